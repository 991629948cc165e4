//! The two products of attention on one block: queries with keys, weights with values.
//!
//! Both keep a tile of accumulators in registers: some queries by some vectors. Layouts are those
//! of [`super::kernels`].

use std::marker::PhantomData;

use super::element::{Element, parts};
use super::kernels::{Row, Span};
use super::{BLOCK, QUERIES};
use crate::simd::{Kernel, Simd};

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

/// Memory to ask for while working on something else.
#[derive(Clone, Copy)]
struct Ahead {
    start: *const u8,
    /// 64, or 0 when there is nothing to ask for: then every line is one that is near anyway.
    line: usize,
}

impl Ahead {
    #[inline(always)]
    fn new<T>(ahead: &[u8], near: &[T]) -> Ahead {
        if ahead.is_empty() {
            Ahead {
                start: near.as_ptr().cast(),
                line: 0,
            }
        } else {
            Ahead {
                start: ahead.as_ptr().cast(),
                line: 64,
            }
        }
    }

    /// Line `i`, which may lie past the end: asking for it does no harm.
    #[inline(always)]
    fn line(self, i: usize) -> *const u8 {
        self.start.wrapping_add(i * self.line)
    }
}

// ---- scores ----

/// Dots of a panel's queries with a block's 64 keys.
pub(crate) struct ScoresArgs<'a> {
    /// `[head_dim][n]`
    pub(super) panel: &'a [f32],
    /// The head's keys, `[head_dim]` rows of 64, as the element stores them.
    pub(super) k: &'a [u8],
    /// `[n]`
    pub(super) scores: &'a mut [Row<f32>],
    /// Memory that will be read next.
    pub(super) ahead: &'a [u8],
}

/// [`ScoresArgs`]' kernel.
pub(crate) struct Scores<E>(PhantomData<E>);

/// Scores of the panel's `N` queries from `query` on, `P` of the row's vectors at a time.
#[inline(always)]
fn scores_tile<S: Simd, E: Element, const N: usize, const P: usize>(
    s: S,
    args: ScoresArgs<'_>,
    query: usize,
) {
    let n = args.scores.len();
    let (keys, scales) = parts::<E>(args.k);
    let keys: &[Row<E::Of>] = keys.as_chunks().0;
    let scores: &mut [Row<f32>; N] = args.scores[query..].first_chunk_mut().expect("N scores");
    let ahead = Ahead::new(args.ahead, args.panel);
    for first in (0..BLOCK / 16).step_by(P) {
        let mut acc = [[s.zero(); P]; N];
        // A plain loop: where an iterator's `next` is not inlined, the call spills all tiles.
        let (mut d, mut run) = (0, 0);
        while d < keys.len() {
            let mut scale = [E::scale(s, scales, run, first); P];
            for j in 1..P {
                scale[j] = E::scale(s, scales, run, first + j);
            }
            let end = keys.len().min(d.saturating_add(E::RUN));
            while d < end {
                // As many lines as the row itself has.
                for line in 0..size_of::<E::Of>() {
                    s.prefetch_far(ahead.line(size_of::<E::Of>() * d + line));
                }
                let row = &keys[d];
                let q: &[f32; N] = args.panel[d * n + query..]
                    .first_chunk()
                    .expect("N queries");
                let mut k = [s.zero(); P];
                for j in 0..P {
                    k[j] = E::key(s, &row[first + j], scale[j]);
                }
                for i in 0..N {
                    let q = s.splat(q[i]);
                    for j in 0..P {
                        acc[i][j] = s.fma(q, k[j], acc[i][j]);
                    }
                }
                d += 1;
            }
            run += 1;
        }
        for i in 0..N {
            for j in 0..P {
                s.store(acc[i][j], &mut scores[i][first + j]);
            }
        }
    }
}

/// The tile's width by the registers there are: `N * P` accumulators (of one register with 512
/// bits, of two with 256), `P` keys, one query.
#[inline(always)]
fn scores_of<S: Simd, E: Element, const N: usize>(s: S, args: ScoresArgs<'_>) {
    assert_eq!(args.scores.len(), N);
    if S::MANY_REGISTERS || N == 1 {
        scores_tile::<S, E, N, 4>(s, args, 0);
    } else if N == 2 {
        scores_tile::<S, E, N, 2>(s, args, 0);
    } else {
        scores_tile::<S, E, N, 1>(s, args, 0);
    }
}

impl<E: Element> Kernel for Scores<E> {
    type Args<'a> = ScoresArgs<'a>;
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(s: S, args: Self::Args<'_>) {
        let ScoresArgs {
            panel,
            k,
            scores,
            ahead,
        } = args;
        let n = scores.len();
        assert_eq!(panel.len() * BLOCK, parts::<E>(k).0.len() * 16 * n);
        if S::ONE_BY_ONE {
            for i in 0..n {
                scores_tile::<S, E, 1, 1>(
                    s,
                    ScoresArgs {
                        panel,
                        k,
                        scores,
                        ahead,
                    },
                    i,
                );
            }
        } else {
            with_count!(
                n,
                scores_of::<S, E>(
                    s,
                    ScoresArgs {
                        panel,
                        k,
                        scores,
                        ahead
                    }
                )
            );
        }
    }
}

// ---- values ----

/// A head's values of a block.
struct V<'a, E: Element> {
    /// `[64][vectors]`
    numbers: &'a [[E::Of; 16]],
    scales: &'a [Row<u16>],
}

impl<E: Element> Clone for V<'_, E> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<E: Element> Copy for V<'_, E> {}

impl<'a, E: Element> V<'a, E> {
    #[inline(always)]
    fn new(bytes: &'a [u8]) -> Self {
        let (numbers, scales) = parts::<E>(bytes);
        V { numbers, scales }
    }

    #[inline(always)]
    fn vectors(&self) -> usize {
        self.numbers.len() / BLOCK
    }
}

/// The weighted sums of a block's value rows.
pub(crate) struct ValuesArgs<'a> {
    /// `[n]`
    pub(super) weights: &'a [Row<f32>],
    /// `[n]`
    pub(super) spans: &'a [Span],
    /// The head's values, `[64][vectors]`, as the element stores them.
    pub(super) v: &'a [u8],
    /// `[n][vectors]`
    pub(super) o: &'a mut [[f32; 16]],
    /// Memory that will be read next.
    pub(super) ahead: &'a [u8],
}

/// [`ValuesArgs`]' kernel.
pub(crate) struct Values<E>(PhantomData<E>);

/// `o[i] += Σ w[i][p] v[p]` over the positions of `span`, for the `P` vectors from `first` on.
#[inline(always)]
fn values_tile<S: Simd, E: Element, const N: usize, const P: usize>(
    s: S,
    weights: &[&[f32; BLOCK]; N],
    span: Span,
    v: V<'_, E>,
    o: &mut [[f32; 16]],
    first: usize,
    ahead: Ahead,
) {
    let vectors = v.vectors();
    let run = |j: usize| (first + j) * 16 / E::RUN;
    let mut scales = [E::scales(s, v.scales, run(0)); P];
    for j in 1..P {
        scales[j] = E::scales(s, v.scales, run(j));
    }
    let mut acc = [[s.zero(); P]; N];
    for i in 0..N {
        let o: &[[f32; 16]; P] = o[i * vectors + first..].first_chunk().expect("P vectors");
        for j in 0..P {
            acc[i][j] = s.load(&o[j]);
        }
    }
    let mut p = span.from;
    while p < span.to.min(BLOCK) {
        // Spread over the tiles of a block, this asks for about as much as the block's values are
        // (more where few vectors pass at once): the keys of the next, where both are of one size.
        let lines = (P * size_of::<E::Of>()).div_ceil(4);
        for line in 0..lines {
            s.prefetch_far(ahead.line((first / P * BLOCK + p) * lines + line));
        }
        let row: &[[E::Of; 16]; P] = v.numbers[p * vectors + first..]
            .first_chunk()
            .expect("P vectors");
        let mut values = [s.zero(); P];
        for j in 0..P {
            values[j] = E::value(s, &row[j], &scales[j], p);
        }
        for i in 0..N {
            let w = s.splat(weights[i][p]);
            for j in 0..P {
                acc[i][j] = s.fma(w, values[j], acc[i][j]);
            }
        }
        p += 1;
    }
    for i in 0..N {
        let o: &mut [[f32; 16]; P] = o[i * vectors + first..]
            .first_chunk_mut()
            .expect("P vectors");
        for j in 0..P {
            s.store(acc[i][j], &mut o[j]);
        }
    }
}

/// All vectors of `N` queries that attend to the same `span`, in tiles as wide as in
/// [`scores_of`].
#[inline(always)]
fn values_of<S: Simd, E: Element, const N: usize>(
    s: S,
    weights: &[Row<f32>],
    span: Span,
    v: V<'_, E>,
    o: &mut [[f32; 16]],
    ahead: Ahead,
) {
    let mut rows = [&[0.0; BLOCK]; N];
    for i in 0..N {
        rows[i] = weights[i].as_flattened().first_chunk().expect("a row");
    }
    let vectors = v.vectors();
    let mut first = 0;
    if S::MANY_REGISTERS {
        while first + 4 <= vectors {
            values_tile::<S, E, N, 4>(s, &rows, span, v, o, first, ahead);
            first += 4;
        }
    } else if S::ONE_BY_ONE {
        // As narrow as the rest below.
    } else if N == 1 {
        while first + 4 <= vectors {
            values_tile::<S, E, N, 4>(s, &rows, span, v, o, first, ahead);
            first += 4;
        }
    } else if N == 2 {
        while first + 2 <= vectors {
            values_tile::<S, E, N, 2>(s, &rows, span, v, o, first, ahead);
            first += 2;
        }
    }
    while first < vectors {
        values_tile::<S, E, N, 1>(s, &rows, span, v, o, first, ahead);
        first += 1;
    }
}

/// Each query by itself, over what `part` takes of its span.
#[inline(always)]
fn values_each<S: Simd, E: Element>(s: S, args: &mut ValuesArgs<'_>, part: Span) {
    let v = V::<E>::new(args.v);
    let vectors = v.vectors();
    let near = Ahead::new(&[], args.weights);
    for (i, span) in args.spans.iter().enumerate() {
        let span = Span {
            from: span.from.max(part.from),
            to: span.to.min(part.to),
        };
        if !span.is_empty() {
            let o = &mut args.o[i * vectors..][..vectors];
            values_of::<S, E, 1>(s, &args.weights[i..=i], span, v, o, near);
        }
    }
}

impl<E: Element> Kernel for Values<E> {
    type Args<'a> = ValuesArgs<'a>;
    type Out = ();

    /// Positions that all queries attend to are done for all at once. Before and after those
    /// come, one query at a time, the positions that some do not attend to: the edge of the
    /// causal mask, or of the window.
    #[inline(always)]
    fn run<S: Simd>(s: S, mut args: Self::Args<'_>) {
        let n = args.weights.len();
        let v = V::<E>::new(args.v);
        assert!(args.spans.len() == n && args.o.len() == n * v.vectors());
        for o in args.o.iter_mut() {
            s.store(s.zero(), o);
        }
        let mut common = Span { from: 0, to: BLOCK };
        for span in args.spans {
            common.from = common.from.max(span.from);
            common.to = common.to.min(span.to);
        }
        if common.is_empty() || S::ONE_BY_ONE {
            common = Span {
                from: BLOCK,
                to: BLOCK,
            };
        }
        values_each::<S, E>(
            s,
            &mut args,
            Span {
                from: 0,
                to: common.from,
            },
        );
        if S::ONE_BY_ONE {
            return;
        }
        let ahead = Ahead::new(args.ahead, args.weights);
        with_count!(
            n,
            values_of::<S, E>(s, args.weights, common, v, args.o, ahead)
        );
        values_each::<S, E>(
            s,
            &mut args,
            Span {
                from: common.to,
                to: BLOCK,
            },
        );
    }
}
