//! The steps of attention on one block, for up to [`super::QUERIES`] queries at once: the
//! softmax, and the merging of blocks. The products before and after the softmax are in
//! [`super::products`].
//!
//! Scratch layouts, `n` being the number of queries: the query panel is `[head_dim / 2][n]` pairs,
//! scores are `[n][64]`, weights `[n][32]` pairs, outputs `[n][vectors of 16]`.

use std::marker::PhantomData;

use super::element::Codecs;
use super::integers::{Inverses, WEIGHT_LEVELS, halves, inverse, pair, step};
use super::products::{Packed, Scores, Values};
use super::tile::{Repacked, TileOps};
use super::{BLOCK, QUERIES};
use crate::elementwise::Softcap;
use crate::math::{exp, exp_of_at_most_0};
use crate::simd::{Entry, Kernel, Simd, entry};

/// 64 values, a row of a key block or the weights of one query, as four vectors' worth.
pub(crate) type Row<T> = [[T; 16]; BLOCK / 16];

/// The weights of one query as integers, those of two positions in each.
pub(crate) type Pairs = [i32; BLOCK / 2];

/// Positions of a block that one query attends to, `from..to`; empty when `from >= to`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(super) from: usize,
    pub(super) to: usize,
}

impl Span {
    pub(super) fn is_empty(self) -> bool {
        self.from >= self.to
    }
}

// ---- softmax ----

/// Scores into weights, with each query's maximum and sum.
pub(crate) struct SoftmaxArgs<'a> {
    /// `[n]`; they become weights times the values' steps, 0 outside the span.
    pub(super) scores: &'a mut [Row<f32>],
    /// `[n]`
    pub(super) spans: &'a [Span],
    /// What each query's scores are multiplied by, `[n]`.
    pub(super) scales: &'a [f32],
    pub(super) cap: f32,
    /// Of the positions' values.
    pub(super) value_steps: &'a Row<f32>,
    /// `[n]`; where the span is empty this, and what follows, is left to chance.
    pub(super) weights: &'a mut [Pairs],
    /// The weights' steps, `[n]`.
    pub(super) steps: &'a mut [f32],
    /// `[n]`
    pub(super) m: &'a mut [f32],
    /// `[n]`
    pub(super) l: &'a mut [f32],
}

/// What happens to a scaled score.
pub(crate) trait Cap {
    fn apply<S: Simd>(s: S, score: S::F32, cap: f32) -> S::F32;
}

/// Nothing.
pub(crate) struct Uncapped;

impl Cap for Uncapped {
    #[inline(always)]
    fn apply<S: Simd>(_: S, score: S::F32, _: f32) -> S::F32 {
        score
    }
}

impl Cap for Softcap {
    #[inline(always)]
    fn apply<S: Simd>(s: S, score: S::F32, cap: f32) -> S::F32 {
        Softcap::cap(s, score, cap)
    }
}

/// `v` inside the span, `outside` elsewhere: the `j`th vector of a row.
#[inline(always)]
pub(super) fn mask<S: Simd>(s: S, v: S::F32, span: Span, j: usize, outside: S::F32) -> S::F32 {
    let inside = s.select(s.first(span.to.saturating_sub(16 * j)), v, outside);
    s.select(s.first(span.from.saturating_sub(16 * j)), outside, inside)
}

/// [`SoftmaxArgs`]' kernel.
pub(crate) struct Softmax<C>(PhantomData<C>);

impl<C: Cap> Kernel for Softmax<C> {
    type Args<'a> = SoftmaxArgs<'a>;
    type Out = ();

    /// Step by step for all queries: each step of one alone would wait for the one before it.
    #[inline(always)]
    fn run<S: Simd>(s: S, args: SoftmaxArgs<'_>) {
        let n = args.spans.len();
        assert!(n <= QUERIES && args.scores.len() == n && args.scales.len() == n);
        assert!(args.weights.len() == n && args.steps.len() == n);
        assert!(args.m.len() == n && args.l.len() == n);
        let lowest = s.splat(f32::NEG_INFINITY);
        for i in 0..n {
            let scale = s.splat(args.scales[i]);
            let mut v = [s.zero(); BLOCK / 16];
            for j in 0..v.len() {
                let score = C::apply(s, s.mul(s.load(&args.scores[i][j]), scale), args.cap);
                v[j] = mask(s, score, args.spans[i], j, lowest);
                s.store(v[j], &mut args.scores[i][j]);
            }
            args.m[i] = s.reduce_max(s.max(s.max(v[0], v[1]), s.max(v[2], v[3])));
        }
        let mut inverses = [0.0; QUERIES];
        for i in 0..n {
            // Outside the span e^-infinity = 0 joins the sum, which leaves it as it is. (Where m
            // is not finite the sum is NaN for the positions inside already.)
            let top = s.splat(args.m[i]);
            let mut sum = s.zero();
            let mut largest = s.zero_i32();
            for j in 0..BLOCK / 16 {
                let w = exp_of_at_most_0(s, s.sub(s.load(&args.scores[i][j]), top));
                sum = s.add(sum, w);
                // A step beyond the span may be anything.
                let w = s.mul(w, s.load(&args.value_steps[j]));
                let w = mask(s, w, args.spans[i], j, s.zero());
                s.store(w, &mut args.scores[i][j]);
                // Nothing is negative, and a NaN above all.
                largest = s.max_u32(largest, s.f32_bits(w));
            }
            args.l[i] = s.reduce_add(sum);
            args.steps[i] = step(f32::from_bits(s.reduce_max_u32(largest)), WEIGHT_LEVELS);
            inverses[i] = inverse(args.steps[i]);
        }
        for i in 0..n {
            let inverse = s.splat(inverses[i]);
            let mut low = [[0; 16]; BLOCK / 16];
            for (from, low) in args.scores[i].iter().zip(&mut low) {
                s.store_low_halves(halves(s, s.load(from), inverse), low);
            }
            let low = low.as_flattened().as_chunks::<2>().0;
            for (to, from) in args.weights[i].iter_mut().zip(low) {
                *to = pair(from[0], from[1]);
            }
        }
    }
}

// ---- merging ----

/// Merges a block's results into the running ones.
pub(crate) struct MergeArgs<'a> {
    /// `[n]`, at most [`super::QUERIES`]; a query whose span is empty keeps what it has.
    pub(super) spans: &'a [Span],
    /// The block's: `[n]`, `[n]`, `[n][vectors]`.
    pub(super) block: Partial<&'a [f32], &'a [[f32; 16]]>,
    /// The running ones, of the same shapes.
    pub(super) sum: Partial<&'a mut [f32], &'a mut [[f32; 16]]>,
}

/// Maxima, sums and weighted values of some queries.
pub(crate) struct Partial<A, O> {
    pub(super) m: A,
    pub(super) l: A,
    pub(super) o: O,
}

/// [`MergeArgs`]' kernel.
pub(crate) struct Merge;

impl Kernel for Merge {
    type Args<'a> = MergeArgs<'a>;
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(s: S, MergeArgs { spans, block, sum }: MergeArgs<'_>) {
        let n = spans.len();
        assert!(n <= 8 && block.m.len() == n && block.l.len() == n);
        assert!(sum.m.len() == n && sum.l.len() == n && sum.o.len() == block.o.len());
        let vectors = block.o.len() / n;
        // Both factors of all queries in one vector: a in lanes 0 to 7, b from lane 8 on.
        let (mut factors, mut tops) = ([0.0; 16], [0.0; 8]);
        for i in 0..n {
            let (m, m_b) = (sum.m[i], block.m[i]);
            tops[i] = if m > m_b { m } else { m_b };
            factors[i] = m - tops[i];
            factors[i + 8] = m_b - tops[i];
        }
        let factors_exp = exp(s, s.load(&factors));
        s.store(factors_exp, &mut factors);
        for i in 0..n {
            if spans[i].is_empty() {
                continue;
            }
            let (a, b) = (factors[i], factors[i + 8]);
            sum.m[i] = tops[i];
            let (av, bv) = (s.splat(a), s.splat(b));
            // In the vector form, so that the one fused operation is the level's own.
            let l = s.fma(s.splat(sum.l[i]), av, s.splat(block.l[i] * b));
            let mut lanes = [0.0; 16];
            s.store(l, &mut lanes);
            sum.l[i] = lanes[0];
            let o_b = &block.o[i * vectors..][..vectors];
            let o = &mut sum.o[i * vectors..][..vectors];
            for (o, o_b) in o.iter_mut().zip(o_b) {
                s.store(s.fma(s.load(o), av, s.mul(s.load(o_b), bv)), o);
            }
        }
    }
}

/// Merges the blocks of one query, first to last.
pub(crate) struct MergeAllArgs<'a> {
    /// From one block's m, l and o to the next's.
    pub(super) stride: usize,
    pub(super) blocks: Partial<&'a [f32], &'a [[f32; 16]]>,
    /// `[vectors]`, zero.
    pub(super) o: &'a mut [[f32; 16]],
}

/// [`MergeAllArgs`]' kernel. What [`Merge`] does block by block, with the factors of sixteen blocks
/// computed at once: they depend on the maxima alone.
pub(crate) struct MergeAll;

impl Kernel for MergeAll {
    type Args<'a> = MergeAllArgs<'a>;
    type Out = f32;

    #[inline(always)]
    fn run<S: Simd>(s: S, MergeAllArgs { stride, blocks, o }: MergeAllArgs<'_>) -> f32 {
        let vectors = o.len();
        let n_blocks = blocks.m.len().div_ceil(stride);
        assert!(blocks.l.len() == blocks.m.len());
        let mut m = f32::NEG_INFINITY;
        let mut l = s.zero();
        let (mut a, mut b) = ([0.0; 16], [0.0; 16]);
        for first in (0..n_blocks).step_by(16) {
            let n = (n_blocks - first).min(16);
            for i in 0..n {
                let m_b = blocks.m[(first + i) * stride];
                let top = if m > m_b { m } else { m_b };
                (a[i], b[i]) = (m - top, m_b - top);
                m = top;
            }
            s.store(exp(s, s.load(&a)), &mut a);
            s.store(exp(s, s.load(&b)), &mut b);
            for i in 0..n {
                let at = (first + i) * stride;
                let (av, bv) = (s.splat(a[i]), s.splat(b[i]));
                l = s.fma(l, av, s.mul(s.splat(blocks.l[at]), bv));
                let o_b = &blocks.o[at * vectors..][..vectors];
                for (o, o_b) in o.iter_mut().zip(o_b) {
                    s.store(s.fma(s.load(o), av, s.mul(s.load(o_b), bv)), o);
                }
            }
        }
        let mut lanes = [0.0; 16];
        s.store(l, &mut lanes);
        lanes[0]
    }
}

/// `out = o / l` for one query.
pub(crate) struct FinishArgs<'a> {
    pub(super) o: &'a [[f32; 16]],
    pub(super) l: f32,
    /// `[head_dim]`, which may end inside `o`'s last vector.
    pub(super) out: &'a mut [f32],
}

/// [`FinishArgs`]' kernel.
pub(crate) struct Finish;

impl Kernel for Finish {
    type Args<'a> = FinishArgs<'a>;
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(s: S, FinishArgs { o, l, out }: FinishArgs<'_>) {
        let l = s.splat(l);
        for (o, out) in o.iter().zip(out.chunks_mut(16)) {
            let v = s.div(s.load(o), l);
            match out.first_chunk_mut() {
                Some(out) => s.store(v, out),
                None => s.store_partial(v, out),
            }
        }
    }
}

/// One level's attention kernels.
pub(crate) struct Table {
    pub(super) inverses: Entry<Inverses>,
    pub(super) softmax: Entry<Softmax<Uncapped>>,
    pub(super) softmax_capped: Entry<Softmax<Softcap>>,
    pub(super) merge: Entry<Merge>,
    pub(super) merge_all: Entry<MergeAll>,
    pub(super) finish: Entry<Finish>,
    pub(super) codecs: Codecs,
    /// The products on repacked blocks.
    pub(super) packed_scores: Entry<Scores<Packed>>,
    pub(super) packed_values: Entry<Values<Packed>>,
    /// How tiles are done that repack blocks.
    pub(super) repacked: TileOps,
}

impl Table {
    pub(crate) const fn of<S: Simd>() -> Table {
        Table {
            inverses: entry::<S, Inverses>,
            softmax: entry::<S, Softmax<Uncapped>>,
            softmax_capped: entry::<S, Softmax<Softcap>>,
            merge: entry::<S, Merge>,
            merge_all: entry::<S, MergeAll>,
            finish: entry::<S, Finish>,
            codecs: Codecs::of::<S>(),
            packed_scores: entry::<S, Scores<Packed>>,
            packed_values: entry::<S, Values<Packed>>,
            repacked: TileOps::panels::<Repacked>(),
        }
    }
}
