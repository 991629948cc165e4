//! Integers as digits, in the order in which tile registers take them.

use std::arch::x86_64::*;

use super::super::BLOCK;
use super::super::element::AsIntegers;
use super::super::integers::{head_levels, integers, query_step};
use super::super::job::Plan;
use super::super::products::{Source, Stored};
use super::super::repack::PackArgs;
use super::super::workspace::{TILE_ROWS, TileScratch};
use super::{Int, vectors};
use crate::simd::{Avx512, Simd};

/// The digits, high and low, of four integers in each lane, given as pairs: elements 0 and 1, 2 and 3.
#[inline(always)]
fn digits(_: Avx512, pairs: [Int; 2]) -> [Int; 2] {
    // SAFETY: the token proves that the processor has the instructions.
    unsafe {
        let half = _mm512_set1_epi16(64);
        let (mut highs, mut lows) = (pairs, pairs);
        for i in 0..2 {
            highs[i] = _mm512_srai_epi16::<7>(_mm512_add_epi16(pairs[i], half));
            lows[i] = _mm512_sub_epi16(pairs[i], _mm512_slli_epi16::<7>(highs[i]));
        }
        // In each 128 bits packing puts the first pairs of four lanes before their second ones.
        let order = _mm_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15);
        let order = _mm512_broadcast_i32x4(order);
        [
            _mm512_shuffle_epi8(_mm512_packs_epi16(highs[0], highs[1]), order),
            _mm512_shuffle_epi8(_mm512_packs_epi16(lows[0], lows[1]), order),
        ]
    }
}

/// Keys, `[head_dim / 64][4][2]` tiles; elements past the head's are zero.
///
/// # Safety
///
/// - The processor has AVX-512's level.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(super) unsafe fn pack_keys<E: AsIntegers>(PackArgs { from, inverses, to }: PackArgs<'_>) {
    const ROW: usize = BLOCK / 16;
    // SAFETY: the caller's obligation.
    let s = unsafe { vectors() };
    let keys = Stored::<E>::view(from, inverses);
    let pairs = Stored::<E>::vectors(keys) / ROW;
    let (tiles, rest) = to.as_chunks_mut::<{ TILE_ROWS * 2 * ROW }>();
    assert!(rest.is_empty());
    for (k_tile, tile) in tiles.iter_mut().enumerate() {
        for row in 0..TILE_ROWS {
            let first = (k_tile * TILE_ROWS + row) * 2;
            for n in 0..ROW {
                let pair = |pair: usize| {
                    if pair < pairs {
                        let scale = Stored::<E>::key_scale(s, keys, pair / Stored::<E>::RUN, n);
                        Stored::<E>::key_pair(s, keys, pair, n, scale)
                    } else {
                        s.zero_i32()
                    }
                };
                let [high, low] = digits(s, [pair(first), pair(first + 1)]);
                s.store_i32(high, &mut tile[2 * n * TILE_ROWS + row]);
                s.store_i32(low, &mut tile[(2 * n + 1) * TILE_ROWS + row]);
            }
        }
    }
}

/// Values, `[vectors][2]` tiles.
///
/// # Safety
///
/// - The processor has AVX-512's level.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(super) unsafe fn pack_values<E: AsIntegers>(PackArgs { from, inverses, to }: PackArgs<'_>) {
    // SAFETY: the caller's obligation.
    let s = unsafe { vectors() };
    let values = Stored::<E>::view(from, inverses);
    let (tiles, rest) = to.as_chunks_mut::<{ TILE_ROWS * 2 }>();
    assert!(rest.is_empty());
    let vectors = tiles.len();
    for (vector, tile) in tiles.iter_mut().enumerate() {
        let scales = Stored::<E>::value_scales(s, values, Stored::<E>::run_of(vector));
        for row in 0..TILE_ROWS {
            let pair = |i: usize| {
                Stored::<E>::value_pair(s, values, vectors, 2 * row + i, vector, &scales)
            };
            let [high, low] = digits(s, [pair(0), pair(1)]);
            s.store_i32(high, &mut tile[row]);
            s.store_i32(low, &mut tile[TILE_ROWS + row]);
        }
    }
}

/// Queries of a tile as digits, with what their scores are multiplied by.
#[inline(always)]
pub(super) fn fill_queries(
    s: Avx512,
    plan: &Plan<'_>,
    (kv_head, token, queries): (usize, usize, usize),
    scratch: &mut TileScratch<'_>,
) {
    let head_dim = plan.input.cache.head_dim_k();
    let k_tiles = head_dim.div_ceil(64);
    let rows = plan.queries(kv_head, token, 0);
    let levels = head_levels(head_dim);
    for i in 0..queries {
        let position = plan.input.pos0 + token + i / plan.group;
        scratch.positions[i / TILE_ROWS][i % TILE_ROWS] =
            i32::try_from(position).expect("positions of a model fit 31 bits");
        let row = rows.row(i);
        let (step, inverse) = query_step(s, row, levels);
        scratch.scales[i / TILE_ROWS][i % TILE_ROWS] = step * plan.input.scale;
        let tiles = &mut scratch.q[i / TILE_ROWS * k_tiles..][..k_tiles];
        for (from, [high, low]) in row.chunks(64).zip(tiles) {
            let (high, low) = (&mut high[i % TILE_ROWS], &mut low[i % TILE_ROWS]);
            let to = high.as_chunks_mut().0.iter_mut().zip(low.as_chunks_mut().0);
            for (from, (high, low)) in from.chunks(16).zip(to) {
                let from = match from.first_chunk() {
                    Some(from) => s.load(from),
                    None => s.load_partial(from),
                };
                let n = integers(s, from, inverse);
                let digit = s.sar(s.add_i32(n, s.splat_i32(64)), 7);
                s.store_low_bytes(digit, high);
                s.store_low_bytes(s.sub_i32(n, s.shl(digit, 7)), low);
            }
        }
    }
}

/// Row `4 i + c` and column `4 c + i` exchanged, of four times four.
#[inline(always)]
pub(super) fn transposition(_: Avx512) -> Int {
    // SAFETY: the token proves that the processor has the instructions.
    unsafe { _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15) }
}

/// The digits of 64 weights, high and low.
#[inline(always)]
pub(super) fn weight_digits(s: Avx512, n: [Int; BLOCK / 16]) -> [Int; 2] {
    // SAFETY: the token proves that the processor has the instructions.
    unsafe {
        // In each 128 bits packing puts four of each vector side by side.
        let halves = [
            _mm512_packus_epi32(n[0], n[1]),
            _mm512_packus_epi32(n[2], n[3]),
        ];
        let high = _mm512_packus_epi16(
            _mm512_srli_epi16::<7>(halves[0]),
            _mm512_srli_epi16::<7>(halves[1]),
        );
        let low = _mm512_packus_epi16(
            _mm512_and_si512(halves[0], _mm512_set1_epi16(127)),
            _mm512_and_si512(halves[1], _mm512_set1_epi16(127)),
        );
        [
            _mm512_permutexvar_epi32(transposition(s), high),
            _mm512_permutexvar_epi32(transposition(s), low),
        ]
    }
}
