//! The steps of attention on one block, for up to [`super::QUERIES`] queries at once: the
//! softmax, and the merging of blocks. The products before and after the softmax are in
//! [`super::products`].
//!
//! Scratch layouts, `n` being the number of queries: the query panel is `[head_dim][n]`, scores
//! and weights `[n][64]`, outputs `[n][vectors of 16]`.

use std::marker::PhantomData;

use super::BLOCK;
use super::element::{Codecs, Element, parts};
use crate::elementwise::Softcap;
use crate::math::exp;
use crate::simd::{Entry, Kernel, Simd, entry};

/// 64 values, a row of a key block or the weights of one query, as four vectors' worth.
pub(crate) type Row<T> = [[T; 16]; BLOCK / 16];

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

/// Scores into weights, in place, with each query's maximum and sum.
pub(crate) struct SoftmaxArgs<'a> {
    /// `[n]`
    pub(super) scores: &'a mut [Row<f32>],
    /// `[n]`
    pub(super) spans: &'a [Span],
    pub(super) scale: f32,
    pub(super) cap: f32,
    /// `[n]`; not written where the span is empty.
    pub(super) m: &'a mut [f32],
    /// `[n]`; not written where the span is empty.
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

/// [`SoftmaxArgs`]' kernel.
pub(crate) struct Softmax<C>(PhantomData<C>);

impl<C: Cap> Kernel for Softmax<C> {
    type Args<'a> = SoftmaxArgs<'a>;
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(s: S, args: SoftmaxArgs<'_>) {
        let lowest = s.splat(f32::NEG_INFINITY);
        let scale = s.splat(args.scale);
        for (i, (row, span)) in args.scores.iter_mut().zip(args.spans).enumerate() {
            if span.is_empty() {
                continue;
            }
            let mut v = [s.zero(); BLOCK / 16];
            for j in 0..v.len() {
                let score = C::apply(s, s.mul(s.load(&row[j]), scale), args.cap);
                let inside = s.select(s.first(span.to.saturating_sub(16 * j)), score, lowest);
                v[j] = s.select(s.first(span.from.saturating_sub(16 * j)), lowest, inside);
            }
            let m = s.reduce_max(s.max(s.max(v[0], v[1]), s.max(v[2], v[3])));
            // Outside the span e^-infinity = 0 joins the sum, which leaves it as it is. (Where m
            // is not finite the sum is NaN for the positions inside already.)
            let m_all = s.splat(m);
            let mut sum = s.zero();
            for j in 0..v.len() {
                let w = exp(s, s.sub(v[j], m_all));
                s.store(w, &mut row[j]);
                sum = s.add(sum, w);
            }
            args.m[i] = m;
            args.l[i] = s.reduce_add(sum);
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

// ---- reading the cache ----

/// Widens a head's part of a block to single precision.
pub(crate) struct WidenArgs<'a> {
    pub(super) from: &'a [u8],
    /// As many vectors as `from` has.
    pub(super) to: &'a mut [[f32; 16]],
}

/// [`WidenArgs`]' kernel for keys, `[head_dim][64]`.
pub(crate) struct WidenKeys<E>(PhantomData<E>);

impl<E: Element> Kernel for WidenKeys<E> {
    type Args<'a> = WidenArgs<'a>;
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(s: S, WidenArgs { from, to }: WidenArgs<'_>) {
        const ROW: usize = BLOCK / 16;
        let (numbers, scales) = parts::<E>(from);
        let vectors = E::RUN.saturating_mul(ROW);
        for (run, (from, to)) in numbers
            .chunks(vectors)
            .zip(to.chunks_mut(vectors))
            .enumerate()
        {
            let mut scale = [E::scale(s, scales, run, 0); ROW];
            for j in 1..ROW {
                scale[j] = E::scale(s, scales, run, j);
            }
            for (from, to) in from.chunks_exact(ROW).zip(to.chunks_exact_mut(ROW)) {
                for j in 0..ROW {
                    s.store(E::key(s, &from[j], scale[j]), &mut to[j]);
                }
            }
        }
    }
}

/// [`WidenArgs`]' kernel for values, `[64][vectors]`.
pub(crate) struct WidenValues<E>(PhantomData<E>);

impl<E: Element> Kernel for WidenValues<E> {
    type Args<'a> = WidenArgs<'a>;
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(s: S, WidenArgs { from, to }: WidenArgs<'_>) {
        let (numbers, scales) = parts::<E>(from);
        let vectors = numbers.len() / BLOCK;
        let (mut first, mut run) = (0, 0);
        while first < vectors {
            let end = vectors.min(first.saturating_add(E::RUN / 16));
            let factors = E::scales(s, scales, run);
            for p in 0..BLOCK {
                for i in p * vectors + first..p * vectors + end {
                    s.store(E::value(s, &numbers[i], &factors, p), &mut to[i]);
                }
            }
            (first, run) = (end, run + 1);
        }
    }
}

/// One level's attention kernels.
pub(crate) struct Table {
    pub(super) softmax: Entry<Softmax<Uncapped>>,
    pub(super) softmax_capped: Entry<Softmax<Softcap>>,
    pub(super) merge: Entry<Merge>,
    pub(super) merge_all: Entry<MergeAll>,
    pub(super) finish: Entry<Finish>,
    pub(super) codecs: Codecs,
}

impl Table {
    pub(crate) const fn of<S: Simd>() -> Table {
        Table {
            softmax: entry::<S, Softmax<Uncapped>>,
            softmax_capped: entry::<S, Softmax<Softcap>>,
            merge: entry::<S, Merge>,
            merge_all: entry::<S, MergeAll>,
            finish: entry::<S, Finish>,
            codecs: Codecs::of::<S>(),
        }
    }
}
