//! Every level and tile against a naive product over the file's blocks, bit for bit.

mod blocks;
mod naive;
mod shared;

use super::*;
use crate::format::{ActivationKind, dequantize_row};
use crate::lanes::{Lanes, parallel, serial};
use crate::level::Kernels;
use crate::quantize::{Activations, QuantizeJob};
use crate::test_util::{Rng, assert_same, levels};
use blocks::{Scales, Values};

/// Activations that are small, mixed, or extreme.
fn activations(rng: &mut Rng, n: usize, extreme: bool) -> Vec<f32> {
    let special = [
        0.0,
        -0.0,
        1e-40,
        -1e-45,
        f32::MIN_POSITIVE,
        3e38,
        -3e38,
        1e30,
    ];
    let block_scale: Vec<f32> = (0..n.div_ceil(32))
        .map(|_| rng.pick(&[0.0, 1e-3, 0.1, 1.0, 1.0, 30.0]))
        .collect();
    (0..n)
        .map(|i| match rng.below(2000) {
            0 if extreme => f32::NAN,
            1 if extreme => f32::INFINITY,
            2 if extreme => f32::NEG_INFINITY,
            3..40 if extreme => rng.pick(&special),
            _ => rng.unit() * block_scale[i / 32],
        })
        .collect()
}

/// Activations that all quantize to 127 or -127.
fn saturating(rng: &mut Rng, n: usize) -> Vec<f32> {
    let sign = rng.pick(&[1.0, -1.0]);
    (0..n)
        .map(|i| if i % 64 < 32 { sign } else { -sign })
        .collect()
}

fn packed(kernels: Kernels, ty: WeightType, rows: usize, k: usize, src: &[u8]) -> PackedMatrix {
    let mut matrix = PackedMatrix::allocate(kernels, ty, rows, k).unwrap();
    serial(&mut PackJob::new(&mut matrix, src).unwrap());
    matrix
}

/// `matrix * x` by tile `T`, on one lane.
fn product<T: Tile>(kernels: Kernels, matrix: &PackedMatrix, x: &[f32]) -> Vec<f32> {
    let k = matrix.cols();
    let tokens = x.len() / k;
    let mut buffers = Activations::new(tokens, k).unwrap();
    let view = view::<T>(kernels, &mut buffers, matrix.activation(), x, tokens);
    let mut out = vec![f32::NAN; tokens * matrix.rows()];
    let mut scratch = Scratch::new(1, tokens).unwrap();
    let part = MatmulPart::new(matrix, view, &mut out);
    serial(&mut MatmulJob::<T>::new([part], &mut scratch));
    out
}

fn view<'a, T: Tile>(
    kernels: Kernels,
    buffers: &'a mut Activations,
    kind: ActivationKind,
    x: &'a [f32],
    tokens: usize,
) -> ActivationView<'a> {
    if kind == ActivationKind::F32 {
        return ActivationView::f32(x, tokens, x.len() / tokens);
    }
    serial(&mut QuantizeJob::<T>::new(
        kernels, buffers, kind, x, tokens,
    ));
    buffers.view()
}

/// All tiles that take these tokens, at all levels, equal the naive product.
fn check(ty: WeightType, rows: usize, k: usize, tokens: usize, src: &[u8], x: &[f32], why: &str) {
    let wanted = naive::product(ty, rows, k, src, x);
    for kernels in levels() {
        let matrix = packed(kernels, ty, rows, k, src);
        let what = |tile: &str| {
            let ty = ty.name();
            format!("{why}: {ty} {rows}x{k}, {tokens} tokens, {kernels:?}, {tile}")
        };
        assert_same(
            &what("wide"),
            &product::<TileWide>(kernels, &matrix, x),
            &wanted,
        );
        type Product = fn(Kernels, &PackedMatrix, &[f32]) -> Vec<f32>;
        let small: [(usize, Product); 3] = [
            (1, product::<TileT1>),
            (4, product::<TileT4>),
            (8, product::<TileT8>),
        ];
        for (n, product) in small {
            for (x, wanted) in x.chunks_exact(n * k).zip(wanted.chunks_exact(n * rows)) {
                assert_same(
                    &what(&format!("t{n}")),
                    &product(kernels, &matrix, x),
                    wanted,
                );
            }
        }
    }
}

#[test]
fn random_shapes_equal_the_naive_product() {
    let mut rng = Rng(1);
    for ty in WeightType::ALL {
        for (rows, blocks, tokens) in [
            (1, 1, 1),
            (15, 2, 4),
            (16, 3, 9),
            (17, 5, 8),
            (33, 1, 17),
            (50, 7, 3),
            (70, 9, 12),
        ] {
            let k = blocks * ty.block_len();
            let src = blocks::random(&mut rng, ty, rows * blocks, Values::Random, Scales::Usual);
            let x = activations(&mut rng, tokens * k, false);
            check(ty, rows, k, tokens, &src, &x, "random shape");
        }
    }
}

/// Batches of up to two and a half pairs of tiles, groups that make no pair, runs cut short.
#[test]
fn every_count_of_tokens_equals_the_naive_product() {
    let mut rng = Rng(8);
    for ty in WeightType::ALL {
        for (rows, n) in [(40, 512), (9, 256), (20, 512 + 3 * 32)] {
            let k = n / ty.block_len() * ty.block_len();
            let (most, blocks) = (70, rows * k / ty.block_len());
            let src = blocks::random(&mut rng, ty, blocks, Values::Random, Scales::Usual);
            let x = activations(&mut rng, most * k, false);
            let wanted = naive::product(ty, rows, k, &src, &x);
            for kernels in levels().split_off(1) {
                let matrix = packed(kernels, ty, rows, k, &src);
                for tokens in 1..=most {
                    let found = product::<TileWide>(kernels, &matrix, &x[..tokens * k]);
                    let what = format!("{} {rows}x{k}, {tokens} tokens, {kernels:?}", ty.name());
                    assert_same(&what, &found, &wanted[..tokens * rows]);
                }
            }
        }
    }
}

/// More groups than a wide dispatch takes at once, and blocks that fill no run.
#[test]
fn many_groups_equal_the_naive_product() {
    let mut rng = Rng(9);
    for ty in WeightType::ALL {
        let (rows, tokens) = (16 * (MAX_GROUPS + 3) + 5, 33);
        let k = 7 * ty.block_len().max(32);
        let blocks = rows * k / ty.block_len();
        let src = blocks::random(&mut rng, ty, blocks, Values::Random, Scales::Usual);
        let x = activations(&mut rng, tokens * k, false);
        let wanted = naive::product(ty, rows, k, &src, &x);
        for kernels in levels() {
            let matrix = packed(kernels, ty, rows, k, &src);
            let found = product::<TileWide>(kernels, &matrix, &x);
            assert_same(&format!("{} {kernels:?}", ty.name()), &found, &wanted);
        }
    }
}

#[test]
fn rows_many_superblocks_deep_equal_the_naive_product() {
    let mut rng = Rng(2);
    for ty in WeightType::ALL {
        let k = 23 * 256;
        let n = k / ty.block_len();
        let src = blocks::random(&mut rng, ty, 18 * n, Values::Random, Scales::Usual);
        let x = activations(&mut rng, 9 * k, false);
        check(ty, 18, k, 9, &src, &x, "deep rows");
    }
}

#[test]
fn odd_lengths_of_float_rows_equal_the_naive_product() {
    let mut rng = Rng(3);
    for ty in [WeightType::F32, WeightType::F16, WeightType::BF16] {
        for k in [1, 3, 7, 8, 9, 255, 257, 600] {
            let src = blocks::random(&mut rng, ty, 19 * k, Values::Random, Scales::Usual);
            let x = activations(&mut rng, 10 * k, false);
            check(ty, 19, k, 10, &src, &x, "odd float rows");
        }
    }
}

#[test]
fn saturating_weights_and_activations_equal_the_naive_product() {
    let mut rng = Rng(4);
    for ty in WeightType::ALL {
        for values in [
            Values::All(0x00),
            Values::All(0xff),
            Values::All(0x80),
            Values::All(0x7f),
        ] {
            let k = 20 * 256;
            let n = k / ty.block_len();
            let src = blocks::random(&mut rng, ty, 17 * n, values, Scales::Usual);
            let mut x = saturating(&mut rng, 2 * k);
            x[k..].fill(-3.0);
            x.extend(vec![2.0; k]);
            x.extend(activations(&mut rng, k, false));
            check(ty, 17, k, 4, &src, &x, "saturating");
        }
    }
}

#[test]
fn extreme_scales_and_activations_equal_the_naive_product() {
    let mut rng = Rng(5);
    for ty in WeightType::ALL {
        for scales in [
            Scales::Zero,
            Scales::Denormal,
            Scales::Infinite,
            Scales::Anything,
        ] {
            let k = 6 * 256;
            let n = k / ty.block_len();
            let src = blocks::random(&mut rng, ty, 20 * n, Values::Random, scales);
            for extreme in [false, true] {
                let x = activations(&mut rng, 9 * k, extreme);
                check(ty, 20, k, 9, &src, &x, "extreme");
            }
        }
    }
}

#[test]
fn several_matrices_on_several_lanes_equal_the_naive_products() {
    let mut rng = Rng(6);
    let k = 1024;
    let types = [
        WeightType::Q4_K,
        WeightType::Q8_0,
        WeightType::F16,
        WeightType::Q6_K,
    ];
    let rows = [130, 47, 16, 1];
    let sources: Vec<Vec<u8>> = (0..4)
        .map(|i| {
            let n = rows[i] * k / types[i].block_len();
            blocks::random(&mut rng, types[i], n, Values::Random, Scales::Usual)
        })
        .collect();
    let tokens = 21;
    let x = activations(&mut rng, tokens * k, false);
    let wanted: Vec<Vec<f32>> = (0..4)
        .map(|i| naive::product(types[i], rows[i], k, &sources[i], &x))
        .collect();
    for kernels in levels() {
        for n_lanes in [1, 2, 3] {
            let mut lanes = Lanes::new(n_lanes, crate::Patience::SharedCores).unwrap();
            let matrices: Vec<PackedMatrix> = (0..4)
                .map(|i| {
                    let mut m = PackedMatrix::allocate(kernels, types[i], rows[i], k).unwrap();
                    parallel(&mut lanes, &mut PackJob::new(&mut m, &sources[i]).unwrap()).unwrap();
                    m
                })
                .collect();
            let [mut q32, mut q256] = [(); 2].map(|()| Activations::new(64, 2048).unwrap());
            for (buffers, kind) in [
                (&mut q32, ActivationKind::Q8x32),
                (&mut q256, ActivationKind::Q8x256),
            ] {
                let mut job = QuantizeJob::<TileWide>::new(kernels, buffers, kind, &x, tokens);
                parallel(&mut lanes, &mut job).unwrap();
            }
            let mut scratch = Scratch::new(n_lanes, 64).unwrap();
            let mut out = rows.map(|rows| vec![f32::NAN; rows * tokens]);
            let [o0, o1, o2, o3] = &mut out;
            let parts = [
                MatmulPart::new(&matrices[0], q256.view(), o0),
                MatmulPart::new(&matrices[1], q32.view(), o1),
                MatmulPart::new(&matrices[2], ActivationView::f32(&x, tokens, k), o2),
                MatmulPart::new(&matrices[3], q256.view(), o3),
            ];
            parallel(
                &mut lanes,
                &mut MatmulJob::<TileWide>::new(parts, &mut scratch),
            )
            .unwrap();
            for i in 0..4 {
                let what = format!("matrix {i}, {kernels:?}, {n_lanes} lanes");
                assert_same(&what, &out[i], &wanted[i]);
            }
        }
    }
}

#[test]
fn dequantized_rows_are_scales_times_integers() {
    let mut rng = Rng(7);
    for ty in WeightType::ALL {
        let n = 6;
        let src = blocks::random(&mut rng, ty, n, Values::Random, Scales::Usual);
        let mut out = vec![0.0; n * ty.block_len()];
        dequantize_row(ty, &src, &mut out).unwrap();
        let wanted: Vec<f32> = src
            .chunks(ty.block_bytes())
            .flat_map(|b| naive::weights(ty, b))
            .collect();
        assert_same(ty.name(), &out, &wanted);
        assert!(dequantize_row(ty, &src[1..], &mut out).is_err());
        assert!(dequantize_row(ty, &src, &mut out[ty.block_len()..]).is_err());
    }
}

#[test]
fn packing_refuses_what_does_not_fit() {
    let kernels = levels()[0];
    let allocate = |ty, rows, cols| PackedMatrix::allocate(kernels, ty, rows, cols);
    for cols in [0, 1, 31, 33, 320 + 16] {
        let found = allocate(WeightType::Q4_0, 4, cols).unwrap_err();
        assert_eq!(
            found,
            PackError::Cols {
                ty: WeightType::Q4_0,
                cols
            }
        );
    }
    assert!(matches!(
        allocate(WeightType::Q4_K, 4, 320),
        Err(PackError::Cols { .. })
    ));
    assert_eq!(
        allocate(WeightType::F32, 0, 8).unwrap_err(),
        PackError::Rows
    );
    for (rows, cols) in [
        (1 << 40, 1 << 40),
        (usize::MAX, 1),
        (1, usize::MAX),
        (1 << 44, 1 << 12),
    ] {
        assert!(matches!(
            allocate(WeightType::F32, rows, cols),
            Err(PackError::Memory(_))
        ));
    }
    let mut matrix = allocate(WeightType::Q8_0, 3, 64).unwrap();
    let src = vec![0; matrix.source_bytes() + 1];
    assert_eq!(
        PackJob::new(&mut matrix, &src).err(),
        Some(PackError::Source {
            expected: 3 * 68,
            found: 3 * 68 + 1
        })
    );
}

#[test]
fn a_packed_row_comes_back_as_the_files_bytes() {
    let mut rng = Rng(71);
    for kernels in levels() {
        for ty in WeightType::ALL {
            for rows in [1, 15, 16, 17, 48, 61] {
                let cols = 256 * (1 + rng.below(3));
                let row_bytes = cols / ty.block_len() * ty.block_bytes();
                let src: Vec<u8> = (0..rows * row_bytes).map(|_| rng.next() as u8).collect();
                let matrix = packed(kernels, ty, rows, cols, &src);
                assert_eq!(matrix.row_bytes(), row_bytes);
                let mut out = vec![0; row_bytes];
                for (row, wanted) in src.chunks_exact(row_bytes).enumerate() {
                    out.fill(rng.next() as u8);
                    matrix.unpack_row(row, &mut out);
                    assert!(out == wanted, "{}: row {row} of {rows}", ty.name());
                }
            }
        }
    }
}

#[test]
#[should_panic(expected = "no row 17 among 17")]
fn a_row_past_the_last_is_refused() {
    let matrix = PackedMatrix::allocate(levels()[0], WeightType::Q8_0, 17, 32).unwrap();
    matrix.unpack_row(17, &mut [0; 34]);
}

#[test]
fn packed_weights_take_the_files_bytes() {
    for ty in WeightType::ALL {
        let matrix = PackedMatrix::allocate(levels()[0], ty, 48, 512).unwrap();
        assert_eq!(
            matrix.packed_bytes(),
            matrix.source_bytes(),
            "{}",
            ty.name()
        );
        let tail = PackedMatrix::allocate(levels()[0], ty, 49, 512).unwrap();
        assert_eq!(tail.n_groups(), 4);
        assert_eq!(
            tail.packed_bytes(),
            matrix.packed_bytes() / 3 * 4,
            "{}",
            ty.name()
        );
    }
}

#[test]
#[should_panic(expected = "wrong kind")]
fn activations_of_another_kind_are_refused() {
    let kernels = levels()[0];
    let matrix = PackedMatrix::allocate(kernels, WeightType::Q4_0, 16, 256).unwrap();
    MatmulPart::new(
        &matrix,
        ActivationView::f32(&[0.0; 256], 1, 256),
        &mut [0.0; 16],
    );
}

#[test]
#[should_panic(expected = "another tile")]
fn activations_of_another_tile_are_refused() {
    let kernels = levels()[0];
    let matrix = PackedMatrix::allocate(kernels, WeightType::Q4_0, 16, 32).unwrap();
    let mut buffers = Activations::new(4, 32).unwrap();
    let x = [1.0; 128];
    let view = view::<TileT4>(kernels, &mut buffers, ActivationKind::Q8x32, &x, 4);
    let mut out = [0.0; 64];
    let part = MatmulPart::new(&matrix, view, &mut out);
    MatmulJob::<TileWide>::new([part], &mut Scratch::new(1, 4).unwrap());
}
