//! The types of a cache: what each stores, and that attention over each is the definition's.

use super::*;

/// A cache's bytes by the words on its layout.
fn laid_out(case: &Case, data: &Data) -> Vec<u8> {
    let Case {
        n_kv, dim_k, dim_v, ..
    } = *case;
    let mut bytes = Vec::new();
    let part = |ty: CacheType,
                (row, held): (&dyn Fn(usize) -> Vec<f32>, usize),
                transposed: bool,
                levels: f32| {
        let rows: Vec<Vec<f32>> = (0..64).map(row).collect();
        let width = rows[0].len();
        let order: Vec<(usize, usize)> = match transposed {
            true => (0..width)
                .flat_map(|d| (0..64).map(move |p| (p, d)))
                .collect(),
            false => (0..64)
                .flat_map(|p| (0..width).map(move |d| (p, d)))
                .collect(),
        };
        let mut out = Vec::new();
        for (p, values) in rows.iter().enumerate() {
            let step = match p < held {
                true => factors(ty, &stored(ty, values), levels).1,
                false => 0.0,
            };
            out.extend(step.to_le_bytes());
        }
        let quantized: Vec<Vec<test_util::Quantized>> = match ty {
            CacheType::Q8_0 => rows
                .iter()
                .map(|row| row.chunks(32).map(test_util::quantize).collect())
                .collect(),
            _ => vec![],
        };
        for (p, d) in order {
            match ty {
                CacheType::F32 => out.extend(rows[p][d].to_le_bytes()),
                CacheType::F16 => out.extend(f16::from_f32(rows[p][d]).to_le_bytes()),
                CacheType::Q8_0 => out.push(quantized[p][d / 32].q[d % 32] as u8),
            }
        }
        for run in 0..quantized.first().map_or(0, Vec::len) {
            for blocks in &quantized {
                out.extend(f16::from_f32(blocks[run].d).to_le_bytes());
            }
        }
        out
    };
    let row = |all: &[f32], p: usize, head: usize, dim: usize, width: usize| {
        let start = (p * n_kv + head) * dim;
        let mut row = all
            .get(start..start + dim)
            .map_or(vec![0.0; dim], <[f32]>::to_vec);
        row.resize(width, 0.0);
        row
    };
    for block in 0..case.end().div_ceil(64) {
        let held = case.end() - 64 * block;
        for head in 0..n_kv {
            let padded = dim_k.next_multiple_of(2);
            let of = |p| row(&data.k, 64 * block + p, head, dim_k, padded);
            bytes.extend(part(case.types.0, (&of, held), true, head_levels(dim_k)));
        }
        for head in 0..n_kv {
            let of = |p| {
                row(
                    &data.v,
                    64 * block + p,
                    head,
                    dim_v,
                    dim_v.next_multiple_of(16),
                )
            };
            bytes.extend(part(case.types.1, (&of, held), false, VALUE_LEVELS));
        }
    }
    bytes
}

/// Panics unless a cache holds these bytes. Which NaN a NaN became is left open: such values are
/// compared through what they stand for.
fn assert_holds(what: &str, cache: &LayerCache, wanted: &[u8], any_nan: bool) {
    let found = cache.data.as_flattened();
    assert_eq!(found.len(), wanted.len(), "{what}: lengths");
    let is_nan = |bytes: &[u8]| f16::from_le_bytes([bytes[0], bytes[1]]).is_nan();
    for i in (0..found.len()).step_by(2) {
        let (f, w) = (&found[i..i + 2], &wanted[i..i + 2]);
        let same = f == w || any_nan && is_nan(f) && is_nan(w);
        assert!(same, "{what}: bytes from {i} are {f:?}, not {w:?}");
    }
}

#[test]
fn storing_is_the_same_at_every_level_on_lanes_and_in_pieces() {
    let mut rng = Rng(12);
    for types in pairs() {
        for (n_kv, dim_k, dim_v, tokens) in [
            (1, 5, 3, 1),
            (2, 64, 64, 130),
            (3, 80, 96, 70),
            (1, 17, 40, 65),
            (3, 32, 160, 75),
        ] {
            let case = Case {
                n_head: n_kv,
                n_kv,
                dim_k,
                dim_v,
                tokens,
                types,
                ..PLAIN
            };
            if shape(&case).bytes().is_err() {
                continue;
            }
            let data = Data {
                q: vec![],
                k: rng.wilds(tokens * n_kv * dim_k),
                v: rng.wilds(tokens * n_kv * dim_v),
            };
            let wanted = laid_out(&case, &data);
            assert_eq!(shape(&case).bytes(), Ok(wanted.len()));
            let same = |what: &str, cache: &LayerCache| {
                assert_holds(&format!("{what}, {case:?}"), cache, &wanted, true);
            };
            let mut lanes = Lanes::new(3, crate::Patience::SharedCores).unwrap();
            for kernels in levels() {
                same("whole", &data.cache(&case, kernels));
                let mut cache = empty(&case, kernels);
                let mut job = StoreKvJob::new(&mut cache, 0, &data.k, &data.v);
                parallel(&mut lanes, &mut job).unwrap();
                same("lanes", &cache);
                let mut cache = empty(&case, kernels);
                for p in 0..tokens {
                    let k = &data.k[p * n_kv * dim_k..][..n_kv * dim_k];
                    let v = &data.v[p * n_kv * dim_v..][..n_kv * dim_v];
                    serial(&mut StoreKvJob::new(&mut cache, p, k, v));
                }
                same("pieces", &cache);
            }
        }
    }
}

#[test]
fn every_pair_of_types_over_random_shapes() {
    let mut rng = Rng(20);
    for types in pairs() {
        for _ in 0..12 {
            let group = 1 + rng.below(8);
            let n_kv = 1 + rng.below(3);
            let blocks = |ty: CacheType, rng: &mut Rng| match ty {
                CacheType::Q8_0 => 32 * (1 + rng.below(6)),
                _ => 1 + rng.below(150),
            };
            let case = Case {
                n_head: group * n_kv,
                n_kv,
                dim_k: blocks(types.0, &mut rng),
                dim_v: blocks(types.1, &mut rng),
                pos0: rng.below(260),
                tokens: rng.pick(&[1, 1, 2, 5, 40]),
                window: [None, None, Some(1 + rng.below(100))][rng.below(3)],
                softcap: rng.pick(&[None, None, Some(2.5)]),
                types,
            };
            check(&case, &Data::random(&case, &mut rng));
        }
    }
}

#[test]
fn every_pair_of_types_over_extreme_values() {
    let mut rng = Rng(21);
    for types in pairs() {
        for tokens in [1, 20] {
            let case = Case {
                n_head: 2,
                pos0: 100,
                tokens,
                dim_k: 32,
                dim_v: 64,
                types,
                ..PLAIN
            };
            let n = case.end();
            for _ in 0..8 {
                let mut data = Data::random(&case, &mut rng);
                data.k = rng.wilds(n * 32);
                data.v = rng.wilds(n * 64);
                check(&case, &data);
                // Subnormal scales, and scales that underflow to zero.
                let mut data = Data::random(&case, &mut rng);
                let size = rng.pick(&[1e-4, 1e-6, 1e-38, 1e-44, 1e6, 1e30]);
                data.k.iter_mut().for_each(|k| *k *= size);
                data.v.iter_mut().for_each(|v| *v *= size);
                check(&case, &data);
                let mut data = Data::random(&case, &mut rng);
                data.k[rng.below(n * 32)] = f32::NAN;
                let out = check(&case, &data);
                assert!(out[out.len() - 64..].iter().all(|o| o.is_nan()));
            }
        }
    }
}

#[test]
fn batch_splits_give_the_same_bits_with_every_type() {
    for types in pairs() {
        let case = Case {
            n_head: 6,
            n_kv: 2,
            tokens: 150,
            dim_k: 64,
            dim_v: 32,
            types,
            ..PLAIN
        };
        let data = Data::random(&case, &mut Rng(22));
        let whole = naive(&case, &data);
        let kernels = *levels().last().unwrap();
        for step in [1, 8, 100] {
            let (mut cache, mut out) = (empty(&case, kernels), case.out());
            let mut workspace = case.workspace(1);
            for first in (0..case.tokens).step_by(step) {
                let tokens = first..case.tokens.min(first + step);
                let rows =
                    |x: &[f32], width: usize| x[tokens.start * width..tokens.end * width].to_vec();
                let (k, v) = (rows(&data.k, 2 * 64), rows(&data.v, 2 * 32));
                serial(&mut StoreKvJob::new(&mut cache, first, &k, &v));
                let q = rows(&data.q, 6 * 64);
                let input = AttentionInput {
                    pos0: first,
                    ..case.input(&q, &cache)
                };
                let out = &mut out[tokens.start * 6 * 32..tokens.end * 6 * 32];
                serial(&mut AttentionJob::<Repacked>::new(
                    kernels,
                    input,
                    &mut workspace,
                    out,
                ));
            }
            assert_same(&format!("{types:?}, steps of {step}"), &out, &whole);
        }
    }
}

#[test]
fn sizes_are_those_of_the_types_and_odd_heads_are_refused() {
    let bytes = |type_k, type_v| {
        let shape = CacheShape {
            n_kv_heads: 3,
            head_dim_k: 64,
            head_dim_v: 128,
            n_ctx: 1000,
            n_held: 1000,
            type_k,
            type_v,
        };
        let bytes = shape.bytes().unwrap();
        let cache = LayerCache::allocate(levels()[0], shape).unwrap();
        assert!(cache.bytes() >= bytes && cache.bytes() < bytes + (2 << 20));
        assert_eq!(cache.shape(), shape);
        bytes
    };
    let position = 3 * (64 + 128);
    for (ty, of_32) in [
        (CacheType::F16, 64),
        (CacheType::Q8_0, 34),
        (CacheType::F32, 128),
    ] {
        let steps = 1024 * 3 * 2 * 4;
        assert_eq!(bytes(ty, ty), 1024 * position / 32 * of_32 + steps, "{ty}");
        assert_eq!(ty.name().parse(), Ok(ty));
    }
    let mixed = bytes(CacheType::Q8_0, CacheType::F32);
    assert_eq!(mixed, 1024 * 3 * (64 * 34 / 32 + 4 + 128 * 4 + 4));
    assert!("q4_0".parse::<CacheType>().is_err());
    for (dims, types, refused) in [
        (
            (80, 64),
            (CacheType::Q8_0, CacheType::F16),
            Some(("keys", 80)),
        ),
        (
            (64, 80),
            (CacheType::Q8_0, CacheType::Q8_0),
            Some(("values", 80)),
        ),
        ((80, 64), (CacheType::F32, CacheType::Q8_0), None),
    ] {
        let case = Case {
            dim_k: dims.0,
            dim_v: dims.1,
            types,
            ..PLAIN
        };
        let found = LayerCache::allocate(levels()[0], shape(&case)).err();
        let ty = CacheType::Q8_0;
        let wanted = refused.map(|(what, head_dim)| CacheError::HeadSize { what, head_dim, ty });
        assert_eq!(found, wanted);
        if let Some(error) = found {
            assert!(
                error
                    .to_string()
                    .contains("80 elements cannot be cached as q8_0")
            );
        }
    }
}
