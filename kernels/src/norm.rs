//! Root-mean-square norms (Zhang and Sennrich, 2019), alone and fused with residual additions.
//!
//! For a row `x` of `d` values: sixteen accumulators, `acc[i % 16] = fma(x[i], x[i], acc[i % 16])`
//! for ascending `i`, summed in one tree (`i` with `i + 8`, then `+ 4`, `+ 2`, `+ 1`); then
//! `scale = 1 / sqrt(sum / d + eps)`, each operation rounded; the normalized row is
//! `(x * scale) * w`. Rows are handed out to lanes whole.

use crate::lanes::{Disjoint, Job, Part};
use crate::level::Kernels;
use crate::simd::{Entry, Kernel, Simd, entry};

/// Elements a lane claims at once, in whole rows.
const CHUNK: usize = 2048;

/// `1 / sqrt(mean(x^2) + eps)`.
#[inline(always)]
fn inverse_rms<S: Simd>(s: S, x: &[f32], eps: f32) -> f32 {
    let mut acc = s.zero();
    let (full, tail) = x.as_chunks::<16>();
    for x in full {
        let x = s.load(x);
        acc = s.fma(x, x, acc);
    }
    if !tail.is_empty() {
        // Lanes past the end add 0 * 0 to sums that are no negative zeros: nothing.
        let x = s.load_partial(tail);
        acc = s.fma(x, x, acc);
    }
    1.0 / (s.reduce_add(acc) / x.len() as f32 + eps).sqrt()
}

/// What a normalized value is multiplied by.
pub(crate) trait Weight {
    /// A weight for each element, or nothing.
    type Of<'a>: Copy;
    /// `x` times the weights of chunk `i`.
    fn apply<S: Simd>(s: S, x: S::F32, w: Self::Of<'_>, i: usize) -> S::F32;
    /// `x` times the weights of the last, partial chunk `i`.
    fn apply_tail<S: Simd>(s: S, x: S::F32, w: Self::Of<'_>, i: usize) -> S::F32;
}

/// One weight for each element.
pub(crate) struct Weighted;

impl Weight for Weighted {
    type Of<'a> = &'a [f32];

    #[inline(always)]
    fn apply<S: Simd>(s: S, x: S::F32, w: &[f32], i: usize) -> S::F32 {
        s.mul(x, s.load(&w.as_chunks::<16>().0[i]))
    }

    #[inline(always)]
    fn apply_tail<S: Simd>(s: S, x: S::F32, w: &[f32], i: usize) -> S::F32 {
        s.mul(x, s.load_partial(&w[16 * i..]))
    }
}

/// No weights.
pub(crate) struct Unweighted;

impl Weight for Unweighted {
    type Of<'a> = ();

    #[inline(always)]
    fn apply<S: Simd>(_: S, x: S::F32, (): (), _: usize) -> S::F32 {
        x
    }

    #[inline(always)]
    fn apply_tail<S: Simd>(_: S, x: S::F32, (): (), _: usize) -> S::F32 {
        x
    }
}

/// `out = norm(x) * w` for one row.
#[inline(always)]
fn norm_row<S: Simd>(s: S, x: &[f32], w: &[f32], eps: f32, out: &mut [f32]) {
    let scale = s.splat(inverse_rms(s, x, eps));
    let (x, x_tail) = x.as_chunks::<16>();
    let (out, out_tail) = out.as_chunks_mut::<16>();
    for (i, (x, out)) in x.iter().zip(out).enumerate() {
        s.store(Weighted::apply(s, s.mul(s.load(x), scale), w, i), out);
    }
    if !x_tail.is_empty() {
        let v = s.mul(s.load_partial(x_tail), scale);
        s.store_partial(Weighted::apply_tail(s, v, w, x.len()), out_tail);
    }
}

/// `x = norm(x) * w` for one row.
#[inline(always)]
fn norm_row_in_place<S: Simd, W: Weight>(s: S, x: &mut [f32], w: W::Of<'_>, eps: f32) {
    let scale = s.splat(inverse_rms(s, x, eps));
    let (x, tail) = x.as_chunks_mut::<16>();
    let n = x.len();
    for (i, x) in x.iter_mut().enumerate() {
        s.store(W::apply(s, s.mul(s.load(x), scale), w, i), x);
    }
    if !tail.is_empty() {
        let v = s.mul(s.load_partial(tail), scale);
        s.store_partial(W::apply_tail(s, v, w, n), tail);
    }
}

/// `x += y` for one row.
#[inline(always)]
fn add_row<S: Simd>(s: S, x: &mut [f32], y: &[f32]) {
    let (x, x_tail) = x.as_chunks_mut::<16>();
    let (y, y_tail) = y.as_chunks::<16>();
    for (x, y) in x.iter_mut().zip(y) {
        s.store(s.add(s.load(x), s.load(y)), x);
    }
    if !x_tail.is_empty() {
        s.store_partial(
            s.add(s.load_partial(x_tail), s.load_partial(y_tail)),
            x_tail,
        );
    }
}

/// `x += norm(y) * w` for one row.
#[inline(always)]
fn add_norm_row<S: Simd>(s: S, x: &mut [f32], y: &[f32], w: &[f32], eps: f32) {
    let scale = s.splat(inverse_rms(s, y, eps));
    let (x, x_tail) = x.as_chunks_mut::<16>();
    let (y, y_tail) = y.as_chunks::<16>();
    for (i, (x, y)) in x.iter_mut().zip(y).enumerate() {
        let v = Weighted::apply(s, s.mul(s.load(y), scale), w, i);
        s.store(s.add(s.load(x), v), x);
    }
    if !x_tail.is_empty() {
        let v = s.mul(s.load_partial(y_tail), scale);
        let v = Weighted::apply_tail(s, v, w, y.len());
        s.store_partial(s.add(s.load_partial(x_tail), v), x_tail);
    }
}

/// Rows of `x` `[rows, w.len()]` normalized into `out`.
pub(crate) struct NormArgs<'a> {
    x: &'a [f32],
    w: &'a [f32],
    eps: f32,
    out: &'a mut [f32],
}

/// [`NormArgs`]' kernel.
pub(crate) struct Norm;

impl Kernel for Norm {
    type Args<'a> = NormArgs<'a>;
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(s: S, NormArgs { x, w, eps, out }: NormArgs<'_>) {
        for (x, out) in x.chunks_exact(w.len()).zip(out.chunks_exact_mut(w.len())) {
            norm_row(s, x, w, eps, out);
        }
    }
}

/// `x += y`, then rows of `x` normalized into `out`.
pub(crate) struct AddNormArgs<'a> {
    x: &'a mut [f32],
    y: &'a [f32],
    w: &'a [f32],
    eps: f32,
    out: &'a mut [f32],
}

/// [`AddNormArgs`]' kernel.
pub(crate) struct AddNorm;

impl Kernel for AddNorm {
    type Args<'a> = AddNormArgs<'a>;
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(s: S, AddNormArgs { x, y, w, eps, out }: AddNormArgs<'_>) {
        let d = w.len();
        let rows = x
            .chunks_exact_mut(d)
            .zip(y.chunks_exact(d))
            .zip(out.chunks_exact_mut(d));
        for ((x, y), out) in rows {
            add_row(s, x, y);
            norm_row(s, x, w, eps, out);
        }
    }
}

/// `x += norm(y) * w`.
pub(crate) struct PostNormArgs<'a> {
    y: &'a [f32],
    w: &'a [f32],
    eps: f32,
    x: &'a mut [f32],
}

/// [`PostNormArgs`]' kernel.
pub(crate) struct PostNorm;

impl Kernel for PostNorm {
    type Args<'a> = PostNormArgs<'a>;
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(s: S, PostNormArgs { y, w, eps, x }: PostNormArgs<'_>) {
        for (x, y) in x.chunks_exact_mut(w.len()).zip(y.chunks_exact(w.len())) {
            add_norm_row(s, x, y, w, eps);
        }
    }
}

/// `x += norm(y) * w`, then `out = norm(x) * w_next`.
pub(crate) struct PostNormNextArgs<'a> {
    post: PostNormArgs<'a>,
    w_next: &'a [f32],
    out: &'a mut [f32],
}

/// [`PostNormNextArgs`]' kernel.
pub(crate) struct PostNormNext;

impl Kernel for PostNormNext {
    type Args<'a> = PostNormNextArgs<'a>;
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(s: S, PostNormNextArgs { post, w_next, out }: PostNormNextArgs<'_>) {
        let PostNormArgs { y, w, eps, x } = post;
        let d = w.len();
        let rows = x
            .chunks_exact_mut(d)
            .zip(y.chunks_exact(d))
            .zip(out.chunks_exact_mut(d));
        for ((x, y), out) in rows {
            add_norm_row(s, x, y, w, eps);
            norm_row(s, x, w_next, eps, out);
        }
    }
}

/// Rows of `x` `[rows, d]` normalized in place.
pub(crate) struct InPlaceArgs<'a, W> {
    x: &'a mut [f32],
    d: usize,
    w: W,
    eps: f32,
}

/// [`InPlaceArgs`]' kernel.
pub(crate) struct InPlace<W>(std::marker::PhantomData<W>);

impl<W: Weight> Kernel for InPlace<W> {
    type Args<'a> = InPlaceArgs<'a, W::Of<'a>>;
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(s: S, args: Self::Args<'_>) {
        for x in args.x.chunks_exact_mut(args.d) {
            norm_row_in_place::<S, W>(s, x, args.w, args.eps);
        }
    }
}

/// One level's norm kernels.
pub(crate) struct Table {
    norm: Entry<Norm>,
    add_norm: Entry<AddNorm>,
    post_norm: Entry<PostNorm>,
    post_norm_next: Entry<PostNormNext>,
    in_place: Entry<InPlace<Weighted>>,
    in_place_unweighted: Entry<InPlace<Unweighted>>,
}

impl Table {
    pub(crate) const fn of<S: Simd>() -> Table {
        Table {
            norm: entry::<S, Norm>,
            add_norm: entry::<S, AddNorm>,
            post_norm: entry::<S, PostNorm>,
            post_norm_next: entry::<S, PostNormNext>,
            in_place: entry::<S, InPlace<Weighted>>,
            in_place_unweighted: entry::<S, InPlace<Unweighted>>,
        }
    }
}

mod jobs;

pub use jobs::{
    AddRmsNormJob, HeadNormJob, PostNormJob, PostNormThenNormJob, RmsNormJob, UnweightedHeadNormJob,
};

#[cfg(test)]
mod tests;
