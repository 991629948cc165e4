//! A tile's way through the cache on AMX: sixteen queries at a time against a block of 64 positions,
//! bit-equal to every other way.
//!
//! # Digits
//!
//! Tile registers multiply bytes. An integer of up to fourteen bits is `128 high + low`, and both
//! digits fit: of queries, keys and values `low` is in -64..=63, of weights, which are not negative,
//! both are in 0..=127. A product of two such integers is three sums of products of digits,
//!
//! ```text
//! sum(a b) = 2^14 sum(ah bh) + 2^7 (sum(ah bl) + sum(al bh)) + sum(al bl)
//! ```
//!
//! each exact in 32 bits, and so is their sum, since the definition keeps it there.
//!
//! # Tiles
//!
//! ```text
//! scores   A: 16 queries x 64 elements   B: 64 elements x 16 positions   C: queries x positions
//! values   A: 16 weights x 64 positions  B: 64 positions x 16 elements   C: queries x elements
//! ```
//!
//! Row `r` of `B` holds elements (or positions) `4 r ..` of each of its sixteen columns side by side.
//! A block is repacked so once for all queries of a tile.

use std::arch::x86_64::{
    _mm512_broadcast_i32x4, _mm512_packs_epi16, _mm512_shuffle_epi8,
    _mm512_slli_epi16, _mm512_srai_epi16, _mm512_add_epi16, _mm512_set1_epi16, _mm512_sub_epi16,
    _mm_setr_epi8,
};

use super::BLOCK;
use super::element::{Codec, Codecs, Eight, Element, Half, Single};
use super::integers::{LEAST, WEIGHT_LEVELS, inverses, query_step};
use super::job::Plan;
use super::kernels::{Cap, Row, Span, Table, Uncapped};
use super::products::{Source, Stored};
use super::repack::PackArgs;
use super::tile::{TileArgs, TileOps};
use super::workspace::{AMX_QUERIES, Cut, TILE_ROWS, TileScratch};
use crate::amx::Amx;
use crate::amx::tiles::{Config, Tiles};
use crate::elementwise::Softcap;
use crate::math::exp;
use crate::simd::{Avx512, Simd};

type F32 = <Avx512 as Simd>::F32;
type Int = <Avx512 as Simd>::Int;

/// A tile register's bytes.
type Bytes = [[u8; 64]; TILE_ROWS];
/// A tile register's sums.
type Sums = [[i32; 16]; TILE_ROWS];
/// Sums of high digits, of high and low, and of low digits.
type DigitSums = [Sums; 3];
/// A number of each query.
type Each = [f32; TILE_ROWS];

/// AVX-512's table, but for tiles that repack blocks.
pub(crate) const fn table() -> Table {
    Table {
        codecs: Codecs {
            half: codec::<Half>(),
            eight: codec::<Eight>(),
            single: codec::<Single>(),
        },
        repacked: TileOps {
            queries: AMX_QUERIES,
            run: run::<Uncapped>,
            run_capped: run::<Softcap>,
        },
        ..Table::of::<Avx512>()
    }
}

const fn codec<E: Element>() -> Codec {
    Codec {
        pack_keys: pack_keys::<E>,
        pack_values: pack_values::<E>,
        ..Codec::of::<Avx512, E>()
    }
}

/// The level's token.
///
/// # Safety
///
/// - The processor has AVX-512's level.
#[inline(always)]
unsafe fn vectors() -> Avx512 {
    // SAFETY: the caller's obligation.
    unsafe { Avx512::assume() }
}

// ---- repacking ----

/// The digits, high and low, of four integers in each lane, given as pairs: elements 0 and 1, 2 and 3.
#[inline(always)]
fn digits(_: Avx512, pairs: [Int; 2]) -> [Int; 2] {
    // SAFETY: the token proves that the processor has the instructions.
    unsafe {
        let high = |pair| _mm512_srai_epi16::<7>(_mm512_add_epi16(pair, _mm512_set1_epi16(64)));
        let highs = [high(pairs[0]), high(pairs[1])];
        let low = |i: usize| _mm512_sub_epi16(pairs[i], _mm512_slli_epi16::<7>(highs[i]));
        // In each 128 bits packing puts the first pairs of four lanes before their second ones.
        let order = _mm_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15);
        let order = _mm512_broadcast_i32x4(order);
        [
            _mm512_shuffle_epi8(_mm512_packs_epi16(highs[0], highs[1]), order),
            _mm512_shuffle_epi8(_mm512_packs_epi16(low(0), low(1)), order),
        ]
    }
}

/// Keys, `[head_dim / 64][4][2]` tiles; elements past the head's are zero.
///
/// # Safety
///
/// - The processor has AVX-512's level.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn pack_keys<E: Element>(PackArgs { from, inverses, to }: PackArgs<'_>) {
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
unsafe fn pack_values<E: Element>(PackArgs { from, inverses, to }: PackArgs<'_>) {
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
fn fill_queries(
    s: Avx512,
    plan: &Plan<'_>,
    (kv_head, token, queries): (usize, usize, usize),
    scratch: &mut TileScratch<'_>,
) {
    let head_dim = plan.input.cache.head_dim_k();
    let k_tiles = head_dim.div_ceil(64);
    for i in 0..queries {
        let start = plan.row(kv_head, token, i);
        let row = &plan.input.q[start..start + head_dim];
        let (step, inverse) = query_step(s, row);
        scratch.scales[i / TILE_ROWS][i % TILE_ROWS] = step * plan.input.scale;
        let tiles = &mut scratch.q[i / TILE_ROWS * k_tiles..][..k_tiles];
        for (from, [high, low]) in row.chunks(64).zip(tiles) {
            let (high, low) = (&mut high[i % TILE_ROWS], &mut low[i % TILE_ROWS]);
            let to = high
                .as_chunks_mut()
                .0
                .iter_mut()
                .zip(low.as_chunks_mut().0);
            for (from, (high, low)) in from.chunks(16).zip(to) {
                let from = match from.first_chunk() {
                    Some(from) => s.load(from),
                    None => s.load_partial(from),
                };
                let n = s.round_i32(s.mul(from, inverse));
                let digit = s.sar(s.add_i32(n, s.splat_i32(64)), 7);
                s.store_low_bytes(digit, high);
                s.store_low_bytes(s.sub_i32(n, s.shl(digit, 7)), low);
            }
        }
    }
}

// ---- products ----

/// Multiplies `k` tiles of `A` with those of `B`, a tile of which has its two planes `planes` apart,
/// and leaves the sums in tiles 0 to 2.
///
/// # Safety
///
/// - `a` has `k` pairs of tiles, and `b` pairs of tiles, `stride` bytes from one to the next.
#[inline(always)]
unsafe fn multiply(tiles: &Tiles, a: *const [Bytes; 2], b: *const [Bytes; 2], stride: usize, k: usize) {
    tiles.zero::<0>();
    tiles.zero::<1>();
    tiles.zero::<2>();
    for i in 0..k {
        let a = a.wrapping_add(i).cast::<u8>();
        let b = b.wrapping_byte_add(i * stride).cast::<u8>();
        // SAFETY: the caller's obligation; tiles are full.
        unsafe {
            tiles.load::<4>(a, 64);
            tiles.load::<6>(b, 64);
            tiles.load::<7>(b.wrapping_add(size_of::<Bytes>()), 64);
            tiles.load::<5>(a.wrapping_add(size_of::<Bytes>()), 64);
            tiles.dot_i8::<1, 4, 7>();
            tiles.dot_i8::<0, 4, 6>();
            tiles.dot_i8::<2, 5, 7>();
            tiles.dot_i8::<1, 5, 6>();
        }
    }
}

/// Stores what [`multiply`] left.
#[inline(always)]
fn store(tiles: &Tiles, to: &mut DigitSums) {
    let [high, middle, low] = to;
    // SAFETY: sixteen rows of 64 bytes each.
    unsafe {
        tiles.store::<0>(high.as_mut_ptr().cast(), 64);
        tiles.store::<2>(low.as_mut_ptr().cast(), 64);
        tiles.store::<1>(middle.as_mut_ptr().cast(), 64);
    }
}

/// A row's sums, whole.
#[inline(always)]
fn whole(s: Avx512, sums: &DigitSums, row: usize) -> F32 {
    let [high, middle, low] = sums;
    let sum = s.add_i32(s.shl(s.load_i32(&high[row]), 7), s.load_i32(&middle[row]));
    s.i32_to_f32(s.add_i32(s.shl(sum, 7), s.load_i32(&low[row])))
}

// ---- a tile ----

/// What a lane works with on sixteen queries and a block.
#[repr(C, align(64))]
struct Work {
    sums: [DigitSums; BLOCK / 16],
    /// Scores, then weights.
    rows: [Row<f32>; TILE_ROWS],
    weights: [Bytes; 2],
}

impl Work {
    const EMPTY: Work = Work {
        sums: [[[[0; 16]; TILE_ROWS]; 3]; BLOCK / 16],
        rows: [[[0.0; 16]; BLOCK / 16]; TILE_ROWS],
        weights: [[[0; 64]; TILE_ROWS]; 2],
    };
}

/// `v` inside the span, `outside` elsewhere.
#[inline(always)]
fn mask(s: Avx512, v: F32, span: Span, j: usize, outside: F32) -> F32 {
    let inside = s.select(s.first(span.to.saturating_sub(16 * j)), v, outside);
    s.select(s.first(span.from.saturating_sub(16 * j)), outside, inside)
}

/// Whether a query attends to all of a block.
#[inline(always)]
fn is_whole(span: Span) -> bool {
    span.from == 0 && span.to == BLOCK
}

/// Makes weights of the sums in `work`, with what `l`, `m` and the weights' steps are.
#[inline(always)]
fn softmax<C: Cap>(
    s: Avx512,
    work: &mut Work,
    spans: &[Span; TILE_ROWS],
    (scales, cap): (&Each, f32),
    (key_steps, value_steps): (&Row<f32>, &Row<f32>),
) -> (Each, Each, Each) {
    let (mut m, mut l, mut largest) = ([0.0; TILE_ROWS], [0.0; TILE_ROWS], [0.0; TILE_ROWS]);
    let lowest = s.splat(f32::NEG_INFINITY);
    for r in 0..TILE_ROWS {
        let scale = s.splat(scales[r]);
        let mut v = [s.zero(); BLOCK / 16];
        for j in 0..v.len() {
            let score = s.mul(whole(s, &work.sums[j], r), s.load(&key_steps[j]));
            v[j] = C::apply(s, s.mul(score, scale), cap);
        }
        if !is_whole(spans[r]) {
            for j in 0..v.len() {
                v[j] = mask(s, v[j], spans[r], j, lowest);
            }
        }
        for j in 0..v.len() {
            s.store(v[j], &mut work.rows[r][j]);
        }
        m[r] = s.reduce_max(s.max(s.max(v[0], v[1]), s.max(v[2], v[3])));
    }
    for r in 0..TILE_ROWS {
        let top = s.splat(m[r]);
        let mut sum = s.zero();
        let mut v = [s.zero(); BLOCK / 16];
        for j in 0..v.len() {
            let w = exp(s, s.sub(s.load(&work.rows[r][j]), top));
            sum = s.add(sum, w);
            v[j] = s.mul(w, s.load(&value_steps[j]));
        }
        if !is_whole(spans[r]) {
            for j in 0..v.len() {
                v[j] = mask(s, v[j], spans[r], j, s.zero());
            }
        }
        let mut bits = s.zero_i32();
        for j in 0..v.len() {
            bits = s.max_u32(bits, s.f32_bits(s.abs(v[j])));
            s.store(v[j], &mut work.rows[r][j]);
        }
        l[r] = s.reduce_add(sum);
        largest[r] = f32::from_bits(s.reduce_max_u32(bits));
    }
    // The steps of all queries, as `integers::step` has them.
    let largest = s.load(&largest);
    let steps = s.div(largest, s.splat(WEIGHT_LEVELS));
    let steps = s.select(s.lt(largest, s.splat(LEAST)), s.zero(), steps);
    let finite = s.lt(largest, s.splat(f32::INFINITY));
    let steps = s.select(finite, steps, s.splat(f32::NAN));
    let mut inverse = [0.0; TILE_ROWS];
    s.store(inverses(s, steps), &mut inverse);
    let [high, low] = &mut work.weights;
    for r in 0..TILE_ROWS {
        let inverse = s.splat(inverse[r]);
        let to = high[r]
            .as_chunks_mut()
            .0
            .iter_mut()
            .zip(low[r].as_chunks_mut().0);
        for (from, (high, low)) in work.rows[r].iter().zip(to) {
            let n = s.round_i32(s.mul(s.load(from), inverse));
            s.store_low_bytes(s.shr(n, 7), high);
            s.store_low_bytes(s.and(n, s.splat_i32(127)), low);
        }
    }
    let mut step = [0.0; TILE_ROWS];
    s.store(steps, &mut step);
    (m, l, step)
}

/// The factors of what was and of what comes, and the running maxima and sums with the block's, for
/// the queries that attend to it.
#[inline(always)]
fn merge(
    s: Avx512,
    attends: <Avx512 as Simd>::Mask,
    block: (&Each, &Each),
    (m, l): (&mut Each, &mut Each),
) -> (Each, Each) {
    let (m_old, m_b) = (s.load(m), s.load(block.0));
    let top = s.max(m_old, m_b);
    let a = exp(s, s.sub(m_old, top));
    let b = exp(s, s.sub(m_b, top));
    let l_old = s.load(l);
    let sum = s.fma(l_old, a, s.mul(s.load(block.1), b));
    s.store(s.select(attends, top, m_old), m);
    s.store(s.select(attends, sum, l_old), l);
    let (mut was, mut comes) = ([0.0; TILE_ROWS], [0.0; TILE_ROWS]);
    s.store(a, &mut was);
    s.store(b, &mut comes);
    (was, comes)
}

/// Adds a vector of the block's outputs to the running ones, `o` `[16][vectors]`.
#[inline(always)]
fn join(
    s: Avx512,
    sums: &DigitSums,
    (steps, was, comes): (&Each, &Each, &Each),
    rows: &[usize],
    o: &mut [[f32; 16]],
    (vector, vectors): (usize, usize),
) {
    for &r in rows {
        let block = s.mul(whole(s, sums, r), s.splat(steps[r]));
        let o = &mut o[r * vectors + vector];
        let sum = s.fma(s.load(o), s.splat(was[r]), s.mul(block, s.splat(comes[r])));
        s.store(sum, o);
    }
}

/// Does a tile.
///
/// # Safety
///
/// - The processor has AVX-512's level, and [`Amx::new`] gave out its proof.
/// - Nobody else writes this tile's outputs.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn run<C: Cap>(args: TileArgs<'_>) {
    let TileArgs {
        plan,
        kv_head,
        tokens,
        lane,
        out,
    } = args;
    // SAFETY: the caller's obligation.
    let (s, amx) = unsafe { (vectors(), Amx::assume()) };
    let (group, vectors) = (plan.group, plan.vectors);
    let queries = tokens.len() * group;
    let n_tiles = queries.div_ceil(TILE_ROWS);
    let k_tiles = plan.input.cache.head_dim_k().div_ceil(64);
    let mut scratch = TileScratch::cut(
        lane,
        Cut {
            queries: n_tiles * TILE_ROWS,
            head_dim_k: plan.input.cache.head_dim_k(),
            vectors,
        },
    );
    fill_queries(s, plan, (kv_head, tokens.start, queries), &mut scratch);
    scratch.m.fill([f32::NEG_INFINITY; TILE_ROWS]);
    scratch.l.fill([0.0; TILE_ROWS]);
    scratch.o.fill([0.0; 16]);
    let cap = plan.input.softcap.unwrap_or_default();
    let mut work = Work::EMPTY;

    let pos = |query: usize| plan.input.pos0 + tokens.start + query / group;
    let blocks = plan.blocks(pos(0), pos(queries - 1));
    for block in blocks.clone() {
        let stored = plan.stored(kv_head, block, None, scratch.inverses);
        plan.repack(&stored, scratch.k, scratch.v);
        // SAFETY: the only value on this thread: nothing that is called below makes one.
        let tiles = unsafe { Tiles::configure(amx, &Config::FULL) };
        for tile in 0..n_tiles {
            let first = tile * TILE_ROWS;
            let mut spans = [Span::default(); TILE_ROWS];
            let (mut rows, mut n_rows, mut attends) = ([0; TILE_ROWS], 0, 0);
            for (r, span) in spans.iter_mut().enumerate().take(queries - first) {
                *span = plan.span(pos(first + r), block);
                if !span.is_empty() {
                    rows[n_rows] = r;
                    n_rows += 1;
                    attends |= 1 << r;
                }
            }
            if n_rows == 0 {
                continue;
            }
            let q = scratch.q[tile * k_tiles..][..k_tiles].as_ptr();
            let k = scratch.k.as_ptr().cast::<[Bytes; 2]>();
            for n in 0..BLOCK / 16 {
                // SAFETY: both have `k_tiles` pairs of tiles, keys four of them for each 64 elements.
                unsafe {
                    let k = k.wrapping_add(n);
                    multiply(&tiles, q, k, 4 * size_of::<[Bytes; 2]>(), k_tiles);
                }
                store(&tiles, &mut work.sums[n]);
            }
            let scales = (&scratch.scales[tile], cap);
            let steps = (stored.steps.k, stored.steps.v);
            let (m, l, steps) = softmax::<C>(s, &mut work, &spans, scales, steps);
            let sums = (&mut scratch.m[tile], &mut scratch.l[tile]);
            let (was, comes) = merge(s, attends, (&m, &l), sums);

            let o = &mut scratch.o[first * vectors..][..TILE_ROWS * vectors];
            let factors = (&steps, &was, &comes);
            let v = scratch.v.as_ptr().cast::<[Bytes; 2]>();
            for n in 0..vectors {
                // SAFETY: one pair of tiles of weights, and `vectors` of values.
                unsafe { multiply(&tiles, &raw const work.weights, v.wrapping_add(n), 0, 1) };
                if n > 0 {
                    let sums = &work.sums[(n - 1) % 2];
                    join(s, sums, factors, &rows[..n_rows], o, (n - 1, vectors));
                }
                store(&tiles, &mut work.sums[n % 2]);
            }
            let sums = &work.sums[(vectors - 1) % 2];
            join(s, sums, factors, &rows[..n_rows], o, (vectors - 1, vectors));
        }
    }
    let l = scratch.l.as_flattened();
    // SAFETY: the caller's obligation.
    unsafe { plan.finish_tile((kv_head, tokens), (scratch.o, l), out) };
}
