//! Every level against quantization by its words, one value at a time.

use super::*;
use crate::lanes::{Lanes, parallel, serial};
use crate::matmul::{TileT1, TileT4, TileT8, TileWide};
use crate::test_util::{Quantized, Rng, assert_same, levels, quantize};

/// The four signed bytes of each word.
fn bytes(words: &[i32]) -> Vec<i32> {
    words
        .iter()
        .flat_map(|w| w.to_le_bytes())
        .map(|b| i32::from(b as i8))
        .collect()
}

/// Checks a view against the words, padding included.
fn check(view: ActivationView<'_>, x: &[f32]) {
    let (tokens, k, tile) = (view.tokens(), view.k(), view.tile);
    assert_eq!(tokens * k, x.len());
    let len = view.kind().block_len();
    let (blocks, padded) = (k / len, tokens.next_multiple_of(tile));
    let place = |t: usize, b: usize| t / tile * blocks * tile + b * tile + t % tile;
    for t in 0..padded {
        for b in 0..blocks {
            let zeros = vec![0.0; len];
            let values = if t < tokens {
                &x[t * k + b * len..][..len]
            } else {
                &zeros
            };
            let Quantized { q, d, s } = quantize(values);
            let sums = |n: usize| q.chunks(n).map(|q| q.iter().sum()).collect::<Vec<i32>>();
            match view.data {
                Data::F32(_) => unreachable!(),
                Data::Q8x32(view) => {
                    let head = view.head[place(t, b)];
                    assert_eq!(bytes(&view.q[place(t, b)]), q);
                    assert_same("head", &[head.d, head.s], &[d, s]);
                    assert_eq!(head.minus, [8, 16, 128].map(|n| -n * sums(32)[0]));
                }
                Data::Q8x256(view) => {
                    let head = view.head[place(t, b)];
                    assert_eq!(bytes(view.q[place(t, b)].as_flattened()), q);
                    assert_same("head", &[head.d], &[d]);
                    let pairs = |s: Vec<i32>| -> Vec<i32> {
                        let pair = |a: i32, b: i32| a & 0xffff | b << 16;
                        s.chunks(4)
                            .flat_map(|s| [pair(s[0], s[2]), pair(s[1], s[3])])
                            .collect()
                    };
                    assert_eq!(head.sums16.to_vec(), pairs(sums(16)));
                    assert_eq!(head.sums32.to_vec(), pairs(sums(32)));
                }
                Data::Tiles32(tiles) => {
                    let (tile, t) = (&tiles[t / TILE_TOKENS * blocks + b], t % TILE_TOKENS);
                    assert_eq!(bytes(&tile.q[t]), q);
                    assert_same("tile", &[tile.d[t], tile.s[t]], &[d, s]);
                }
                Data::Tiles256(tiles) => {
                    let (tile, t) = (&tiles[t / TILE_TOKENS * blocks + b], t % TILE_TOKENS);
                    let words: Vec<i32> = tile.q.iter().flat_map(|q| q[t]).collect();
                    assert_eq!(bytes(&words), q);
                    assert_same("tile", &[tile.d[t]], &[d]);
                    let digits = |word: i32| {
                        let [low, rest] = [word << 16, word & !0xffff].map(|half| {
                            let value = f32::from_bits(half as u32);
                            assert_eq!(value.fract(), 0.0);
                            value as i32
                        });
                        assert!((0..16).contains(&low) && rest % 16 == 0);
                        low + rest
                    };
                    assert_eq!(tile.sums[t].map(digits).to_vec(), sums(16));
                }
            }
        }
    }
}

fn run<T: Tile>(kind: ActivationKind, x: &[f32], tokens: usize) {
    for kernels in levels() {
        let k = x.len() / tokens;
        let mut buffers = Activations::new(tokens + 3, k + 100).unwrap();
        // What a larger batch left behind must not show through.
        let other = vec![3.5; buffers.max_tokens * k];
        let max_tokens = buffers.max_tokens;
        serial(&mut QuantizeJob::<TileWide>::new(
            kernels,
            &mut buffers,
            kind,
            &other,
            max_tokens,
        ));
        serial(&mut QuantizeJob::<T>::new(
            kernels,
            &mut buffers,
            kind,
            x,
            tokens,
        ));
        let view = buffers.view();
        let wide = kernels.0.quantize.wide_tokens();
        assert_eq!(view.tile, T::side_by_side(wide));
        check(view, x);
        let mut lanes = Lanes::new(3, crate::Patience::SharedCores).unwrap();
        let mut job = QuantizeJob::<T>::new(kernels, &mut buffers, kind, x, tokens);
        parallel(&mut lanes, &mut job).unwrap();
        check(buffers.view(), x);
    }
}

#[test]
fn every_level_and_tile_quantizes_by_the_words() {
    let mut rng = Rng(21);
    for kind in [ActivationKind::Q8x32, ActivationKind::Q8x256] {
        for blocks in [1, 2, 5, 20] {
            let k = blocks * kind.block_len();
            run::<TileT1>(kind, &rng.units(k), 1);
            run::<TileT4>(kind, &rng.wilds(4 * k), 4);
            run::<TileT8>(kind, &rng.wilds(8 * k), 8);
            for tokens in [1, 7, 19] {
                run::<TileWide>(kind, &rng.wilds(tokens * k), tokens);
            }
        }
    }
}

#[test]
fn special_blocks_quantize_by_the_words() {
    let blocks: [fn(usize) -> f32; 12] = [
        |_| 0.0,
        |i| if i % 2 == 0 { 0.0 } else { -0.0 },
        |i| if i == 5 { f32::NAN } else { 1.0 },
        |i| if i == 5 { f32::INFINITY } else { 1.0 },
        |i| if i == 5 { f32::NEG_INFINITY } else { 0.0 },
        |i| f32::from_bits(i as u32),
        |i| if i == 0 { f32::MIN_POSITIVE } else { 1e-44 },
        |i| if i % 3 == 0 { f32::MAX } else { f32::MIN },
        |i| if i % 2 == 0 { 1.0 } else { -1.0 },
        // Halves: 127 / amax is 1, and every other value lies between two integers.
        |i| if i == 0 { 127.0 } else { i as f32 - 0.5 - 16.0 },
        // Scales that are subnormal, and zero, as half precision.
        |i| (i as f32 - 9.0) * 1e-7,
        |i| (i as f32 - 9.0) * 1e-9,
    ];
    for kind in [ActivationKind::Q8x32, ActivationKind::Q8x256] {
        let x: Vec<f32> = blocks
            .iter()
            .flat_map(|f| (0..kind.block_len()).map(f))
            .collect();
        run::<TileT1>(kind, &x, 1);
        run::<TileWide>(kind, &x, 2);
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let kernels = levels()[0];
    let refused = |kind, n: usize, tokens| {
        let quantize = move || {
            let mut buffers = Activations::new(8, 512).unwrap();
            let x = vec![0.0; n];
            QuantizeJob::<TileWide>::new(kernels, &mut buffers, kind, &x, tokens);
        };
        std::panic::catch_unwind(quantize).is_err()
    };
    assert!(!refused(ActivationKind::Q8x32, 8 * 512, 8));
    assert!(refused(ActivationKind::F32, 512, 1));
    assert!(refused(ActivationKind::Q8x32, 0, 0));
    assert!(refused(ActivationKind::Q8x32, 9 * 32, 9));
    assert!(refused(ActivationKind::Q8x32, 544, 1));
    assert!(refused(ActivationKind::Q8x32, 100, 3));
    assert!(refused(ActivationKind::Q8x256, 32, 1));
    assert!(Activations::new(usize::MAX, 1).is_err());
    assert!(Activations::new(1 << 40, 1 << 40).is_err());
}
