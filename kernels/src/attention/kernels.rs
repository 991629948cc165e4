//! The steps of attention on one block, for up to [`QUERIES`] queries at once.
//!
//! Scratch layouts, `n` being the number of queries: the query panel is `[head_dim][n]`, scores
//! and weights `[n][64]`, outputs `[n][vectors of 16]`.

use std::marker::PhantomData;

use super::cache::Store;
use super::{BLOCK, QUERIES};
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

/// How cached values are stored.
pub(crate) trait Element {
    /// One stored value.
    type Of: Copy + 'static;
    /// Sixteen of them, exactly.
    fn load<S: Simd>(s: S, from: &[Self::Of; 16]) -> S::F32;
}

/// Half precision, as in the cache.
pub(crate) struct Half;

impl Element for Half {
    type Of = u16;

    #[inline(always)]
    fn load<S: Simd>(s: S, from: &[u16; 16]) -> S::F32 {
        s.load_f16(from)
    }
}

/// Single precision: blocks that were widened.
pub(crate) struct Single;

impl Element for Single {
    type Of = f32;

    #[inline(always)]
    fn load<S: Simd>(s: S, from: &[f32; 16]) -> S::F32 {
        s.load(from)
    }
}

/// Calls `$f` with the const parameter `N = $n`, which is 1 to [`QUERIES`].
macro_rules! with_count {
    ($n:expr, $f:ident::<$($generic:ty),*>($($arg:expr),*)) => {
        match $n {
            1 => $f::<$($generic),*, 1>($($arg),*),
            2 => $f::<$($generic),*, 2>($($arg),*),
            3 => $f::<$($generic),*, 3>($($arg),*),
            4 => $f::<$($generic),*, 4>($($arg),*),
            5 => $f::<$($generic),*, 5>($($arg),*),
            n => {
                assert_eq!(n, QUERIES);
                $f::<$($generic),*, QUERIES>($($arg),*)
            }
        }
    };
}

// ---- scores ----

/// Dots of a panel's queries with a block's 64 keys.
pub(crate) struct ScoresArgs<'a, T> {
    /// `[head_dim][n]`
    pub(super) panel: &'a [f32],
    /// `[head_dim]` rows of 64.
    pub(super) k: &'a [Row<T>],
    /// `[n]`
    pub(super) scores: &'a mut [Row<f32>],
    /// Memory that will be read next.
    pub(super) ahead: &'a [u16],
}

/// [`ScoresArgs`]' kernel.
pub(crate) struct Scores<E>(PhantomData<E>);

/// `P` of the row's vectors at a time.
#[inline(always)]
fn scores_tile<S: Simd, E: Element, const N: usize, const P: usize>(
    s: S,
    args: ScoresArgs<'_, E::Of>,
) {
    let (panel, _) = args.panel.as_chunks::<N>();
    assert!(args.scores.len() >= N && args.k.len() == panel.len());
    let ahead = args.ahead.as_ptr().cast::<u8>();
    let lines = size_of_val(args.ahead) / 64;
    for first in (0..BLOCK / 16).step_by(P) {
        let mut acc = [[s.zero(); P]; N];
        for (d, (q, k)) in panel.iter().zip(args.k).enumerate() {
            // Two lines a row: a half-precision row of 64 is that long.
            if 2 * d < lines {
                s.prefetch(ahead.wrapping_add(128 * d));
                s.prefetch(ahead.wrapping_add(128 * d + 64));
            }
            let mut keys = [s.zero(); P];
            for j in 0..P {
                keys[j] = E::load(s, &k[first + j]);
            }
            for i in 0..N {
                let q = s.splat(q[i]);
                for j in 0..P {
                    acc[i][j] = s.fma(q, keys[j], acc[i][j]);
                }
            }
        }
        for i in 0..N {
            for j in 0..P {
                s.store(acc[i][j], &mut args.scores[i][first + j]);
            }
        }
    }
}

/// The tile's width by the registers there are: `N * P` accumulators (of one register with 512
/// bits, of two with 256), `P` keys, one query.
#[inline(always)]
fn scores_of<S: Simd, E: Element, const N: usize>(s: S, args: ScoresArgs<'_, E::Of>) {
    if S::TOKENS == 8 || N == 1 {
        scores_tile::<S, E, N, 4>(s, args);
    } else if N == 2 {
        scores_tile::<S, E, N, 2>(s, args);
    } else {
        scores_tile::<S, E, N, 1>(s, args);
    }
}

impl<E: Element> Kernel for Scores<E> {
    type Args<'a> = ScoresArgs<'a, E::Of>;
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(s: S, args: Self::Args<'_>) {
        with_count!(args.scores.len(), scores_of::<S, E>(s, args));
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

// ---- values ----

/// The weighted sums of a block's value rows.
pub(crate) struct ValuesArgs<'a, T> {
    /// `[n]`
    pub(super) weights: &'a [Row<f32>],
    /// `[n]`
    pub(super) spans: &'a [Span],
    /// `[64][vectors]`
    pub(super) v: &'a [[T; 16]],
    /// `[n][vectors]`
    pub(super) o: &'a mut [[f32; 16]],
    /// Memory that will be read next.
    pub(super) ahead: &'a [u16],
}

/// [`ValuesArgs`]' kernel.
pub(crate) struct Values<E>(PhantomData<E>);

/// `o[i] += Σ w[i][p] v[p]` over the positions of `span`, for the `P` vectors from `first` on.
#[inline(always)]
fn values_tile<S: Simd, E: Element, const N: usize, const P: usize>(
    s: S,
    weights: &[Row<f32>; N],
    span: Span,
    v: &[[E::Of; 16]],
    o: &mut [[f32; 16]],
    first: usize,
    ahead: &[u16],
) {
    let vectors = v.len() / BLOCK;
    let lines = size_of_val(ahead) / 64;
    let each = lines.div_ceil(BLOCK);
    let mut acc = [[s.zero(); P]; N];
    for i in 0..N {
        for j in 0..P {
            acc[i][j] = s.load(&o[i * vectors + first + j]);
        }
    }
    for p in span.from..span.to.min(BLOCK) {
        for line in p * each..((p + 1) * each).min(lines) {
            s.prefetch(ahead.as_ptr().cast::<u8>().wrapping_add(64 * line));
        }
        let row: &[[E::Of; 16]; P] = v[p * vectors + first..]
            .first_chunk()
            .expect("in the block");
        let mut values = [s.zero(); P];
        for j in 0..P {
            values[j] = E::load(s, &row[j]);
        }
        for i in 0..N {
            let w = s.splat(weights[i].as_flattened()[p]);
            for j in 0..P {
                acc[i][j] = s.fma(w, values[j], acc[i][j]);
            }
        }
    }
    for i in 0..N {
        for j in 0..P {
            s.store(acc[i][j], &mut o[i * vectors + first + j]);
        }
    }
}

/// All vectors of `N` queries that attend to the same `span`. Tiles are as wide as in
/// [`scores_of`].
#[inline(always)]
fn values_of<S: Simd, E: Element, const N: usize>(
    s: S,
    weights: &[Row<f32>],
    span: Span,
    v: &[[E::Of; 16]],
    o: &mut [[f32; 16]],
    ahead: &[u16],
) {
    let weights: &[Row<f32>; N] = weights.first_chunk().expect("weights of N queries");
    let vectors = v.len() / BLOCK;
    let mut first = 0;
    if S::TOKENS == 8 || N == 1 {
        while first + 4 <= vectors {
            let ahead = if first == 0 { ahead } else { &[] };
            values_tile::<S, E, N, 4>(s, weights, span, v, o, first, ahead);
            first += 4;
        }
    } else if N == 2 {
        while first + 2 <= vectors {
            let ahead = if first == 0 { ahead } else { &[] };
            values_tile::<S, E, N, 2>(s, weights, span, v, o, first, ahead);
            first += 2;
        }
    }
    while first < vectors {
        let ahead = if first == 0 { ahead } else { &[] };
        values_tile::<S, E, N, 1>(s, weights, span, v, o, first, ahead);
        first += 1;
    }
}

impl<E: Element> Kernel for Values<E> {
    type Args<'a> = ValuesArgs<'a, E::Of>;
    type Out = ();

    /// Positions that all queries attend to are done for all at once. Before and after those
    /// come, one query at a time, the positions that some do not attend to: the edge of the
    /// causal mask, or of the window.
    #[inline(always)]
    fn run<S: Simd>(s: S, args: Self::Args<'_>) {
        let ValuesArgs {
            weights,
            spans,
            v,
            o,
            ahead,
        } = args;
        let vectors = v.len() / BLOCK;
        let n = weights.len();
        assert!(spans.len() == n && o.len() == n * vectors);
        for o in o.iter_mut() {
            s.store(s.zero(), o);
        }
        let mut common = Span { from: 0, to: BLOCK };
        for span in spans {
            common.from = common.from.max(span.from);
            common.to = common.to.min(span.to);
        }
        if common.is_empty() {
            for (i, (&span, weights)) in spans.iter().zip(weights.chunks(1)).enumerate() {
                values_of::<S, E, 1>(s, weights, span, v, &mut o[i * vectors..][..vectors], &[]);
            }
            return;
        }
        for (i, (span, weights)) in spans.iter().zip(weights.chunks(1)).enumerate() {
            let before = Span {
                from: span.from,
                to: common.from,
            };
            if !before.is_empty() {
                values_of::<S, E, 1>(s, weights, before, v, &mut o[i * vectors..][..vectors], &[]);
            }
        }
        with_count!(n, values_of::<S, E>(s, weights, common, v, o, ahead));
        for (i, (span, weights)) in spans.iter().zip(weights.chunks(1)).enumerate() {
            let after = Span {
                from: common.to,
                to: span.to,
            };
            if !after.is_empty() {
                values_of::<S, E, 1>(s, weights, after, v, &mut o[i * vectors..][..vectors], &[]);
            }
        }
    }
}

// ---- merging ----

/// Merges a block's results into the running ones.
pub(crate) struct MergeArgs<'a> {
    /// `[n]`, at most [`QUERIES`]; a query whose span is empty keeps what it has.
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
            match out.as_mut_array() {
                Some(out) => s.store(v, out),
                None => s.store_partial(v, out),
            }
        }
    }
}

// ---- reading the cache ----

/// Widens half precision to single.
pub(crate) struct WidenArgs<'a> {
    pub(super) from: &'a [[u16; 16]],
    pub(super) to: &'a mut [[f32; 16]],
}

/// [`WidenArgs`]' kernel.
pub(crate) struct Widen;

impl Kernel for Widen {
    type Args<'a> = WidenArgs<'a>;
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(s: S, WidenArgs { from, to }: WidenArgs<'_>) {
        for (from, to) in from.iter().zip(to) {
            s.store(s.load_f16(from), to);
        }
    }
}

/// One level's attention kernels.
pub(crate) struct Table {
    pub(super) scores_half: Entry<Scores<Half>>,
    pub(super) scores_single: Entry<Scores<Single>>,
    pub(super) softmax: Entry<Softmax<Uncapped>>,
    pub(super) softmax_capped: Entry<Softmax<Softcap>>,
    pub(super) values_half: Entry<Values<Half>>,
    pub(super) values_single: Entry<Values<Single>>,
    pub(super) merge: Entry<Merge>,
    pub(super) finish: Entry<Finish>,
    pub(super) widen: Entry<Widen>,
    pub(super) store: Entry<Store>,
}

impl Table {
    pub(crate) const fn of<S: Simd>() -> Table {
        Table {
            scores_half: entry::<S, Scores<Half>>,
            scores_single: entry::<S, Scores<Single>>,
            softmax: entry::<S, Softmax<Uncapped>>,
            softmax_capped: entry::<S, Softmax<Softcap>>,
            values_half: entry::<S, Values<Half>>,
            values_single: entry::<S, Values<Single>>,
            merge: entry::<S, Merge>,
            finish: entry::<S, Finish>,
            widen: entry::<S, Widen>,
            store: entry::<S, Store>,
        }
    }
}
