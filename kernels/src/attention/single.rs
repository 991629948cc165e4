//! The products on keys and values cached as [`super::CacheType::F32`]: these are no integers, so
//! the order of their sums is the definition's.

use super::element::{Single, parts};
use super::integers::{PanelArgs, largest_of};
use super::kernels::{Row, Span};
use super::products::{Ahead, ScoresArgs, ValuesArgs, width, with_count};
use super::{BLOCK, QUERIES};
use crate::simd::{Kernel, Simd};

/// The step that stands for numbers which are themselves: NaN when the largest is not finite.
#[inline(always)]
pub(super) fn unit_step(largest: f32) -> f32 {
    if largest.is_finite() { 1.0 } else { f32::NAN }
}

/// Notes what the scores of a panel's queries are multiplied by; the panel stays as it is.
pub(crate) struct NotePanel;

impl Kernel for NotePanel {
    type Args<'a> = PanelArgs<'a>;
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(s: S, args: PanelArgs<'_>) {
        for (i, to) in args.scales.iter_mut().enumerate() {
            *to = unit_step(largest_of(s, args.queries.row(i))) * args.scale;
        }
    }
}

// ---- scores ----

/// [`ScoresArgs`]' kernel.
pub(crate) struct SingleScores;

/// Scores of the `N` queries from `query` on, `P` of a row's vectors at a time.
#[inline(always)]
fn scores_tile<S: Simd, const N: usize, const P: usize>(s: S, args: ScoresArgs<'_>, query: usize) {
    let keys: &[Row<f32>] = parts::<Single>(args.k).0.as_chunks().0;
    let mut rows = [args.queries.row(query); N];
    for i in 1..N {
        rows[i] = args.queries.row(query + i);
    }
    let scores: &mut [Row<f32>; N] = args.scores[query..].first_chunk_mut().expect("N scores");
    let ahead = Ahead::new(s, args.ahead, rows[0]);
    for first in (0..BLOCK / 16).step_by(P) {
        let mut acc = [[s.zero(); P]; N];
        for (d, row) in keys.iter().enumerate().take(args.queries.head_dim) {
            // As many lines as the row itself has.
            for line in 0..size_of::<f32>() {
                s.prefetch_far(ahead.line(size_of::<f32>() * d + line));
            }
            let mut k = [s.zero(); P];
            for j in 0..P {
                k[j] = s.load(&row[first + j]);
            }
            for i in 0..N {
                let q = s.splat(rows[i][d]);
                for j in 0..P {
                    acc[i][j] = s.fma(q, k[j], acc[i][j]);
                }
            }
        }
        for j in 0..P {
            let step = s.load(&args.steps[first + j]);
            for i in 0..N {
                s.store(s.mul(acc[i][j], step), &mut scores[i][first + j]);
            }
        }
    }
}

/// Scores of all `N` queries.
#[inline(always)]
fn scores_of<S: Simd, const N: usize>(s: S, args: ScoresArgs<'_>) {
    match width::<S>(N) {
        4 => scores_tile::<S, N, 4>(s, args, 0),
        2 => scores_tile::<S, N, 2>(s, args, 0),
        _ => scores_tile::<S, N, 1>(s, args, 0),
    }
}

impl Kernel for SingleScores {
    type Args<'a> = ScoresArgs<'a>;
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(s: S, mut args: ScoresArgs<'_>) {
        let n = args.scores.len();
        if S::ONE_BY_ONE {
            for i in 0..n {
                scores_tile::<S, 1, 1>(s, args.again(), i);
            }
        } else {
            with_count!(n, scores_of::<S>(s, args));
        }
    }
}

// ---- values ----

/// [`ValuesArgs`]' kernel.
pub(crate) struct SingleValues;

/// `o[i] += Σ u[i][p] v[p]` over the positions of `span`, for the `P` vectors from `first` on.
#[inline(always)]
fn values_tile<S: Simd, const N: usize, const P: usize>(
    s: S,
    weights: &[&[f32; BLOCK]; N],
    span: Span,
    v: &[[f32; 16]],
    o: &mut [[f32; 16]],
    first: usize,
    ahead: Ahead,
) {
    let vectors = v.len() / BLOCK;
    let mut acc = [[s.zero(); P]; N];
    for i in 0..N {
        let o: &[[f32; 16]; P] = o[i * vectors + first..].first_chunk().expect("P vectors");
        for j in 0..P {
            acc[i][j] = s.load(&o[j]);
        }
    }
    let mut p = span.from;
    while p < span.to.min(BLOCK) {
        // Spread over the tiles of a block, this asks for about as much as the block's values are.
        for line in 0..P {
            s.prefetch_far(ahead.line((first / P * BLOCK + p) * P + line));
        }
        let row: &[[f32; 16]; P] = v[p * vectors + first..].first_chunk().expect("P vectors");
        let mut values = [s.zero(); P];
        for j in 0..P {
            values[j] = s.load(&row[j]);
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

/// All vectors of `N` queries over the same positions.
#[inline(always)]
fn values_of<S: Simd, const N: usize>(
    s: S,
    weights: &[Row<f32>],
    span: Span,
    v: &[[f32; 16]],
    o: &mut [[f32; 16]],
    ahead: Ahead,
) {
    let mut rows = [&[0.0; BLOCK]; N];
    for i in 0..N {
        rows[i] = weights[i].as_flattened().first_chunk().expect("a row");
    }
    let vectors = v.len() / BLOCK;
    let mut first = 0;
    if width::<S>(N) == 4 {
        while first + 4 <= vectors {
            values_tile::<S, N, 4>(s, &rows, span, v, o, first, ahead);
            first += 4;
        }
    } else if width::<S>(N) == 2 {
        while first + 2 <= vectors {
            values_tile::<S, N, 2>(s, &rows, span, v, o, first, ahead);
            first += 2;
        }
    }
    while first < vectors {
        values_tile::<S, N, 1>(s, &rows, span, v, o, first, ahead);
        first += 1;
    }
}

/// Each query by itself, over what `part` takes of its span.
#[inline(always)]
fn values_each<S: Simd>(s: S, args: &mut ValuesArgs<'_>, v: &[[f32; 16]], part: Span) {
    let vectors = v.len() / BLOCK;
    let near = Ahead::new(s, &[], args.weights);
    for (i, span) in args.spans.iter().enumerate() {
        let span = Span {
            from: span.from.max(part.from),
            to: span.to.min(part.to),
        };
        if !span.is_empty() {
            let o = &mut args.o[i * vectors..][..vectors];
            values_of::<S, 1>(s, &args.weighted[i..=i], span, v, o, near);
        }
    }
}

impl Kernel for SingleValues {
    type Args<'a> = ValuesArgs<'a>;
    type Out = ();

    /// Positions that all queries attend to are done for all at once. Before and after those
    /// come, one query at a time, the positions that some do not attend to: the edge of the
    /// causal mask, or of the window.
    #[inline(always)]
    fn run<S: Simd>(s: S, mut args: ValuesArgs<'_>) {
        let n = args.spans.len();
        let v = parts::<Single>(args.v).0;
        assert!(args.weighted.len() == n && args.o.len() == n * (v.len() / BLOCK));
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
        let before = Span {
            from: 0,
            to: common.from,
        };
        let after = Span {
            from: common.to,
            to: BLOCK,
        };
        values_each::<S>(s, &mut args, v, before);
        if S::ONE_BY_ONE {
            return;
        }
        let ahead = Ahead::new(s, args.ahead, args.weights);
        with_count!(
            n,
            values_of::<S>(s, args.weighted, common, v, args.o, ahead)
        );
        values_each::<S>(s, &mut args, v, after);
    }
}
