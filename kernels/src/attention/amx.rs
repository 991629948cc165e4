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

mod digits;

use digits::{fill_queries, pack_keys, pack_values, transposition, weight_digits};
use std::arch::x86_64::*;
use std::ops::Range;

use super::BLOCK;
use super::element::{AsIntegers, Codec, Codecs, Eight, Half, Packing};
use super::integers::{LEAST, WEIGHT_LEVELS, integers, inverses};
use super::job::Plan;
use super::kernels::{Cap, Row, Span, Table, Uncapped, mask};
use super::tile::{TileArgs, TileOps};
use super::workspace::{AMX_QUERIES, Cut, TILE_ROWS, TileScratch};
use crate::amx::Amx;
use crate::amx::tiles::{Config, Tiles};
use crate::elementwise::Softcap;
use crate::math::{exp, exp_of_at_most_0};
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
            ..Codecs::of::<Avx512>()
        },
        repacked: TileOps {
            queries: AMX_QUERIES,
            run: run::<Uncapped>,
            run_capped: run::<Softcap>,
        },
        ..Table::of::<Avx512>()
    }
}

const fn codec<E: AsIntegers>() -> Codec {
    Codec {
        packing: Some(Packing {
            keys: pack_keys::<E>,
            values: pack_values::<E>,
        }),
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

// ---- products ----

/// Multiplies `k` tiles of `A` with those of `B`, a tile of which has its two planes `planes` apart,
/// and leaves the sums in tiles 0 to 2.
///
/// # Safety
///
/// - `a` has `k` pairs of tiles, and `b` pairs of tiles, `stride` bytes from one to the next.
#[inline(always)]
unsafe fn multiply(
    tiles: &Tiles,
    a: *const [Bytes; 2],
    b: *const [Bytes; 2],
    stride: usize,
    k: usize,
) {
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

// ---- vectors of sixteen queries ----

/// An operation that joins two vectors, lane by lane.
trait Join {
    fn join(s: Avx512, a: F32, b: F32) -> F32;
}

/// [`Simd::add`].
struct Sum;

impl Join for Sum {
    #[inline(always)]
    fn join(s: Avx512, a: F32, b: F32) -> F32 {
        s.add(a, b)
    }
}

/// [`Simd::max`].
struct Max;

impl Join for Max {
    #[inline(always)]
    fn join(s: Avx512, a: F32, b: F32) -> F32 {
        s.max(a, b)
    }
}

/// [`Simd::max_u32`] of the bits.
struct MaxBits;

impl Join for MaxBits {
    #[inline(always)]
    fn join(s: Avx512, a: F32, b: F32) -> F32 {
        s.f32_from_bits(s.max_u32(s.f32_bits(a), s.f32_bits(b)))
    }
}

/// Each row's lanes joined: lane `i` with `i + 8`, then `i + 4`, `i + 2`, `i + 1`, as
/// [`Simd::reduce_add`] does. Lane `r` of the result is row `r`'s.
#[inline(always)]
fn reduce<J: Join>(s: Avx512, rows: &[[f32; 16]; TILE_ROWS]) -> F32 {
    let (mut eight, mut four, mut two) = ([s.zero(); 8], [s.zero(); 4], [s.zero(); 2]);
    // SAFETY: the token proves that the processor has the instructions.
    unsafe {
        for i in 0..8 {
            let (a, b) = (s.load(&rows[2 * i]), s.load(&rows[2 * i + 1]));
            eight[i] = J::join(
                s,
                _mm512_shuffle_f32x4::<0x44>(a, b),
                _mm512_shuffle_f32x4::<0xee>(a, b),
            );
        }
        for i in 0..4 {
            let (a, b) = (eight[2 * i], eight[2 * i + 1]);
            four[i] = J::join(
                s,
                _mm512_shuffle_f32x4::<0x88>(a, b),
                _mm512_shuffle_f32x4::<0xdd>(a, b),
            );
        }
        for i in 0..2 {
            let (a, b) = (four[2 * i], four[2 * i + 1]);
            two[i] = J::join(
                s,
                _mm512_shuffle_ps::<0x44>(a, b),
                _mm512_shuffle_ps::<0xee>(a, b),
            );
        }
        let one = J::join(
            s,
            _mm512_shuffle_ps::<0x88>(two[0], two[1]),
            _mm512_shuffle_ps::<0xdd>(two[0], two[1]),
        );
        _mm512_permutexvar_ps(transposition(s), one)
    }
}

// ---- a tile ----

/// What a lane works with on sixteen queries and a block.
#[repr(C, align(64))]
struct Work {
    /// Of scores.
    scores: [DigitSums; BLOCK / 16],
    /// Of outputs, of vectors in turn.
    outputs: [DigitSums; 2],
    /// Scores, then weights.
    rows: [Row<f32>; TILE_ROWS],
    weights: [Bytes; 2],
}

impl Work {
    const EMPTY: Work = Work {
        scores: [[[[0; 16]; TILE_ROWS]; 3]; BLOCK / 16],
        outputs: [[[[0; 16]; TILE_ROWS]; 3]; 2],
        rows: [[[0.0; 16]; BLOCK / 16]; TILE_ROWS],
        weights: [[[0; 64]; TILE_ROWS]; 2],
    };
}

/// What sixteen queries attend to in a block.
struct Spans {
    each: [Span; TILE_ROWS],
    /// Queries that attend to anything.
    some: u16,
    /// Queries that attend to all of it.
    all: u16,
}

impl Spans {
    /// Of the queries at these positions; there may be fewer than sixteen.
    #[inline(always)]
    fn of(plan: &Plan<'_>, positions: &[i32; TILE_ROWS], n: usize, block: usize) -> Spans {
        let mut spans = Spans {
            each: [Span::default(); TILE_ROWS],
            some: 0,
            all: 0,
        };
        for r in 0..n.min(TILE_ROWS) {
            let span = plan.span(positions[r] as usize, block);
            spans.each[r] = span;
            spans.some |= u16::from(!span.is_empty()) << r;
            spans.all |= u16::from(span.from == 0 && span.to == BLOCK) << r;
        }
        spans
    }

    #[inline(always)]
    fn is_all(&self, r: usize) -> bool {
        self.all >> r & 1 == 1
    }
}

/// Scores of the sums in `work`, as they go into the softmax, into its rows, and their maxima.
#[inline(always)]
fn scores<C: Cap>(
    s: Avx512,
    work: &mut Work,
    spans: &Spans,
    (scales, cap): (&Each, f32),
    key_steps: &Row<f32>,
) -> F32 {
    let lowest = s.splat(f32::NEG_INFINITY);
    let mut top = [[0.0; 16]; TILE_ROWS];
    for r in 0..TILE_ROWS {
        let scale = s.splat(scales[r]);
        let mut v = [s.zero(); BLOCK / 16];
        for j in 0..v.len() {
            let score = s.mul(whole(s, &work.scores[j], r), s.load(&key_steps[j]));
            v[j] = C::apply(s, s.mul(score, scale), cap);
        }
        if !spans.is_all(r) {
            for j in 0..v.len() {
                v[j] = mask(s, v[j], spans.each[r], j, lowest);
            }
        }
        for j in 0..v.len() {
            s.store(v[j], &mut work.rows[r][j]);
        }
        let max = s.max(s.max(v[0], v[1]), s.max(v[2], v[3]));
        s.store(max, &mut top[r]);
    }
    // In whatever order: only which zero, and what NaN becomes, could differ, and no result does.
    reduce::<Max>(s, &top)
}

/// Weights of some rows of scores, times the values' steps, in their place; each row's sums of
/// weights, and the bits of the largest.
#[inline(always)]
fn weigh(
    s: Avx512,
    rows: Range<usize>,
    scores: &mut [Row<f32>; TILE_ROWS],
    spans: &Spans,
    m: &Each,
    value_steps: &Row<f32>,
    (sums, largest): (&mut [[f32; 16]; TILE_ROWS], &mut [[f32; 16]; TILE_ROWS]),
) {
    for r in rows {
        let top = s.splat(m[r]);
        let mut sum = s.zero();
        let mut v = [s.zero(); BLOCK / 16];
        for j in 0..v.len() {
            let w = exp_of_at_most_0(s, s.sub(s.load(&scores[r][j]), top));
            sum = s.add(sum, w);
            v[j] = s.mul(w, s.load(&value_steps[j]));
        }
        if !spans.is_all(r) {
            for j in 0..v.len() {
                v[j] = mask(s, v[j], spans.each[r], j, s.zero());
            }
        }
        for j in 0..v.len() {
            s.store(v[j], &mut scores[r][j]);
        }
        let (low, high) = (MaxBits::join(s, v[0], v[1]), MaxBits::join(s, v[2], v[3]));
        s.store(MaxBits::join(s, low, high), &mut largest[r]);
        s.store(sum, &mut sums[r]);
    }
}

/// The steps of all queries' weights, as [`super::integers::step`] has them.
#[inline(always)]
fn weight_steps(s: Avx512, largest: F32) -> F32 {
    let steps = s.div(largest, s.splat(WEIGHT_LEVELS));
    let steps = s.select(s.lt(largest, s.splat(LEAST)), s.zero(), steps);
    let finite = s.lt(largest, s.splat(f32::INFINITY));
    s.select(finite, steps, s.splat(f32::NAN))
}

/// Weights as digits.
#[inline(always)]
fn round(s: Avx512, work: &mut Work, steps: F32) {
    let mut inverse = [0.0; TILE_ROWS];
    s.store(inverses(s, steps), &mut inverse);
    let [high, low] = &mut work.weights;
    for r in 0..TILE_ROWS {
        let inverse = s.splat(inverse[r]);
        let mut n = [s.zero_i32(); BLOCK / 16];
        for j in 0..n.len() {
            n[j] = integers(s, s.load(&work.rows[r][j]), inverse);
        }
        let digits = weight_digits(s, n);
        s.store_bytes(digits[0], &mut high[r]);
        s.store_bytes(digits[1], &mut low[r]);
    }
}

/// What multiplies the sums that were, and those of a block.
struct Factors {
    was: Each,
    comes: Each,
    /// The steps of the block's weights.
    steps: Each,
}

/// Joins a block's maxima and sums to the running ones, for the queries that attend to it.
#[inline(always)]
fn merge(
    s: Avx512,
    some: u16,
    (m_b, l_b, steps): (F32, F32, F32),
    (m, l): (&mut Each, &mut Each),
) -> Factors {
    let m_old = s.load(m);
    let top = s.max(m_old, m_b);
    let a = exp(s, s.sub(m_old, top));
    let b = exp(s, s.sub(m_b, top));
    let l_old = s.load(l);
    let sum = s.fma(l_old, a, s.mul(l_b, b));
    s.store(s.select(some, top, m_old), m);
    s.store(s.select(some, sum, l_old), l);
    let mut factors = Factors {
        was: [0.0; TILE_ROWS],
        comes: [0.0; TILE_ROWS],
        steps: [0.0; TILE_ROWS],
    };
    s.store(a, &mut factors.was);
    s.store(b, &mut factors.comes);
    s.store(steps, &mut factors.steps);
    factors
}

/// Joins a vector of the block's outputs to the running ones, `o` `[16][vectors]`.
#[inline(always)]
fn join(
    s: Avx512,
    sums: &DigitSums,
    factors: &Factors,
    some: u16,
    o: &mut [[f32; 16]],
    (vector, vectors): (usize, usize),
) {
    for (r, o) in o.chunks_exact_mut(vectors).take(TILE_ROWS).enumerate() {
        if some >> r & 1 == 0 {
            continue;
        }
        let block = s.mul(whole(s, sums, r), s.splat(factors.steps[r]));
        let o = &mut o[vector];
        let comes = s.mul(block, s.splat(factors.comes[r]));
        s.store(s.fma(s.load(o), s.splat(factors.was[r]), comes), o);
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
    let head_dim_k = plan.input.cache.head_dim_k();
    let k_tiles = head_dim_k.div_ceil(64);
    let cut = Cut {
        queries: n_tiles * TILE_ROWS,
        head_dim_k,
        vectors,
    };
    let mut scratch = TileScratch::cut(lane, cut);
    fill_queries(s, plan, (kv_head, tokens.start, queries), &mut scratch);
    scratch.m.fill([f32::NEG_INFINITY; TILE_ROWS]);
    scratch.l.fill([0.0; TILE_ROWS]);
    scratch.o.fill([0.0; 16]);
    let cap = plan.input.softcap.unwrap_or_default();
    let mut work = Work::EMPTY;
    let (mut sums, mut largest) = ([[0.0; 16]; TILE_ROWS], [[0.0; 16]; TILE_ROWS]);

    let pos = |query: usize| plan.input.pos0 + tokens.start + query / group;
    for block in plan.blocks(pos(0), pos(queries - 1)) {
        let stored = plan.stored(kv_head, block, None, scratch.inverses);
        plan.repack(&stored, scratch.k, scratch.v);
        // SAFETY: the only value on this thread: nothing that is called below makes one.
        let tiles = unsafe { Tiles::configure(amx, &Config::FULL) };
        let k = scratch.k.as_ptr().cast::<[Bytes; 2]>();
        let v = scratch.v.as_ptr().cast::<[Bytes; 2]>();
        let q = &*scratch.q;
        let multiply_keys = |tile: usize, n: usize| {
            let q = q[tile * k_tiles..][..k_tiles].as_ptr();
            // SAFETY: both have `k_tiles` pairs of tiles, keys four of them for each 64 elements.
            unsafe {
                let k = k.wrapping_add(n);
                multiply(&tiles, q, k, 4 * size_of::<[Bytes; 2]>(), k_tiles);
            }
        };
        // The tiles whose queries attend to the block follow one another.
        let attends = |tile: usize| {
            let last = queries.min((tile + 1) * TILE_ROWS) - 1;
            plan.blocks(pos(tile * TILE_ROWS), pos(last))
                .contains(&block)
        };
        let mut active = 0..n_tiles;
        while !attends(active.start) {
            active.start += 1;
        }
        while !attends(active.end - 1) {
            active.end -= 1;
        }
        for n in 0..BLOCK / 16 {
            multiply_keys(active.start, n);
            store(&tiles, &mut work.scores[n]);
        }
        for tile in active.clone() {
            let first = tile * TILE_ROWS;
            let positions = &scratch.positions[tile];
            let spans = Spans::of(plan, positions, queries - first, block);
            let scales = (&scratch.scales[tile], cap);
            let m_b = scores::<C>(s, &mut work, &spans, scales, stored.steps.k);
            let mut m = [0.0; TILE_ROWS];
            s.store(m_b, &mut m);
            // The next tile's products keep the tile unit busy meanwhile.
            for n in 0..BLOCK / 16 {
                let more = tile + 1 < active.end;
                if more {
                    multiply_keys(tile + 1, n);
                }
                weigh(
                    s,
                    4 * n..4 * n + 4,
                    &mut work.rows,
                    &spans,
                    &m,
                    stored.steps.v,
                    (&mut sums, &mut largest),
                );
                if more {
                    store(&tiles, &mut work.scores[n]);
                }
            }
            let l_b = reduce::<Sum>(s, &sums);
            let largest = reduce::<MaxBits>(s, &largest);
            let steps = weight_steps(s, largest);
            round(s, &mut work, steps);
            let running = (&mut scratch.m[tile], &mut scratch.l[tile]);
            let factors = merge(s, spans.some, (m_b, l_b, steps), running);

            let o = &mut scratch.o[first * vectors..][..TILE_ROWS * vectors];
            for n in 0..vectors {
                // SAFETY: one pair of tiles of weights, and `vectors` of values.
                unsafe { multiply(&tiles, &raw const work.weights, v.wrapping_add(n), 0, 1) };
                if n > 0 {
                    let sums = &work.outputs[(n - 1) % 2];
                    join(s, sums, &factors, spans.some, o, (n - 1, vectors));
                }
                store(&tiles, &mut work.outputs[n % 2]);
            }
            let sums = &work.outputs[(vectors - 1) % 2];
            join(s, sums, &factors, spans.some, o, (vectors - 1, vectors));
        }
    }
    let l = scratch.l.as_flattened();
    // SAFETY: the caller's obligation.
    unsafe { plan.finish_tile((kv_head, tokens), (scratch.o, l), out) };
}
