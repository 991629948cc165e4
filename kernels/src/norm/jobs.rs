//! The norms as jobs: shapes checked once, rows handed out to lanes.

use std::ops::Range;

use super::{
    AddNormArgs, CHUNK, Disjoint, InPlaceArgs, Job, Kernels, NormArgs, Part, PostNormArgs,
    PostNormNextArgs,
};

/// Panics unless `len` is rows of `d`; says how many.
fn rows(len: usize, d: usize) -> usize {
    assert!(d > 0, "rows of no elements");
    assert_eq!(len % d, 0, "{len} elements are not rows of {d}");
    len / d
}

/// The elements of the next rows of `d`, if any are left of `rows`.
fn claim<J: ?Sized>(part: &Part<'_, J>, rows: usize, d: usize) -> Option<Range<usize>> {
    part.claim(rows, CHUNK / d)
        .map(|rows| rows.start * d..rows.end * d)
}

/// `out = norm(x) * w`.
pub struct RmsNormJob<'a> {
    kernels: Kernels,
    x: &'a [f32],
    w: &'a [f32],
    eps: f32,
    out: Disjoint<'a, f32>,
    rows: usize,
}

impl<'a> RmsNormJob<'a> {
    /// For `x` and `out` `[tokens, d]`, `w` `[d]`.
    ///
    /// # Panics
    ///
    /// When the shapes disagree.
    pub fn new(kernels: Kernels, x: &'a [f32], w: &'a [f32], eps: f32, out: &'a mut [f32]) -> Self {
        let rows = rows(x.len(), w.len());
        assert_eq!(x.len(), out.len(), "input and output of unequal lengths");
        RmsNormJob {
            kernels,
            x,
            w,
            eps,
            out: Disjoint::new(out),
            rows,
        }
    }
}

impl Job for RmsNormJob<'_> {
    fn part(&self, part: &Part<'_, Self>) {
        while let Some(range) = claim(part, self.rows, self.w.len()) {
            // SAFETY: claimed ranges are disjoint.
            let out = unsafe { self.out.slice(range.clone()) };
            let args = NormArgs {
                x: &self.x[range],
                w: self.w,
                eps: self.eps,
                out,
            };
            // SAFETY: `kernels` proves the level.
            unsafe { (self.kernels.0.norm.norm)(args) }
        }
    }
}

/// `x += y`, then `out = norm(x) * w`: a residual addition and the norm of the next sub-layer.
pub struct AddRmsNormJob<'a> {
    kernels: Kernels,
    x: Disjoint<'a, f32>,
    y: &'a [f32],
    w: &'a [f32],
    eps: f32,
    out: Disjoint<'a, f32>,
    rows: usize,
}

impl<'a> AddRmsNormJob<'a> {
    /// For `x`, `y` and `out` `[tokens, d]`, `w` `[d]`.
    ///
    /// # Panics
    ///
    /// When the shapes disagree.
    pub fn new(
        kernels: Kernels,
        x: &'a mut [f32],
        y: &'a [f32],
        w: &'a [f32],
        eps: f32,
        out: &'a mut [f32],
    ) -> Self {
        let rows = rows(x.len(), w.len());
        assert_eq!(x.len(), y.len(), "operands of unequal lengths");
        assert_eq!(x.len(), out.len(), "input and output of unequal lengths");
        AddRmsNormJob {
            kernels,
            x: Disjoint::new(x),
            y,
            w,
            eps,
            out: Disjoint::new(out),
            rows,
        }
    }
}

impl Job for AddRmsNormJob<'_> {
    fn part(&self, part: &Part<'_, Self>) {
        while let Some(range) = claim(part, self.rows, self.w.len()) {
            // SAFETY: claimed ranges are disjoint.
            let (x, out) = unsafe { (self.x.slice(range.clone()), self.out.slice(range.clone())) };
            let args = AddNormArgs {
                x,
                y: &self.y[range],
                w: self.w,
                eps: self.eps,
                out,
            };
            // SAFETY: `kernels` proves the level.
            unsafe { (self.kernels.0.norm.add_norm)(args) }
        }
    }
}

/// `x += norm(y) * w`: a sub-layer's output normalized before it joins the residual.
pub struct PostNormJob<'a> {
    kernels: Kernels,
    x: Disjoint<'a, f32>,
    y: &'a [f32],
    w: &'a [f32],
    eps: f32,
    rows: usize,
}

impl<'a> PostNormJob<'a> {
    /// For `x` and `y` `[tokens, d]`, `w` `[d]`.
    ///
    /// # Panics
    ///
    /// When the shapes disagree.
    pub fn new(kernels: Kernels, x: &'a mut [f32], y: &'a [f32], w: &'a [f32], eps: f32) -> Self {
        let rows = rows(x.len(), w.len());
        assert_eq!(x.len(), y.len(), "operands of unequal lengths");
        PostNormJob {
            kernels,
            x: Disjoint::new(x),
            y,
            w,
            eps,
            rows,
        }
    }
}

impl Job for PostNormJob<'_> {
    fn part(&self, part: &Part<'_, Self>) {
        while let Some(range) = claim(part, self.rows, self.w.len()) {
            // SAFETY: claimed ranges are disjoint.
            let x = unsafe { self.x.slice(range.clone()) };
            let args = PostNormArgs {
                y: &self.y[range],
                w: self.w,
                eps: self.eps,
                x,
            };
            // SAFETY: `kernels` proves the level.
            unsafe { (self.kernels.0.norm.post_norm)(args) }
        }
    }
}

/// `x += norm(y) * w`, then `out = norm(x) * w_next`.
pub struct PostNormThenNormJob<'a> {
    post: PostNormJob<'a>,
    w_next: &'a [f32],
    out: Disjoint<'a, f32>,
}

impl<'a> PostNormThenNormJob<'a> {
    /// A [`PostNormJob`] that goes on to normalize its result with `w_next` `[d]` (and the same
    /// `eps`) into `out` `[tokens, d]`.
    ///
    /// # Panics
    ///
    /// When the shapes disagree.
    pub fn new(post: PostNormJob<'a>, w_next: &'a [f32], out: &'a mut [f32]) -> Self {
        assert_eq!(post.w.len(), w_next.len(), "weights of unequal lengths");
        assert_eq!(
            post.y.len(),
            out.len(),
            "input and output of unequal lengths"
        );
        PostNormThenNormJob {
            post,
            w_next,
            out: Disjoint::new(out),
        }
    }
}

impl Job for PostNormThenNormJob<'_> {
    fn part(&self, part: &Part<'_, Self>) {
        let PostNormJob {
            kernels,
            ref x,
            y,
            w,
            eps,
            rows,
        } = self.post;
        while let Some(range) = claim(part, rows, w.len()) {
            // SAFETY: claimed ranges are disjoint.
            let (x, out) = unsafe { (x.slice(range.clone()), self.out.slice(range.clone())) };
            let post = PostNormArgs {
                y: &y[range],
                w,
                eps,
                x,
            };
            // SAFETY: `kernels` proves the level.
            unsafe {
                (kernels.0.norm.post_norm_next)(PostNormNextArgs {
                    post,
                    w_next: self.w_next,
                    out,
                });
            }
        }
    }
}

/// `x = norm(x) * w` in place for each head of each token (Qwen 3's and Gemma 3's q and k norm).
pub struct HeadNormJob<'a> {
    kernels: Kernels,
    x: Disjoint<'a, f32>,
    w: &'a [f32],
    eps: f32,
    rows: usize,
}

impl<'a> HeadNormJob<'a> {
    /// For `x` `[tokens, n_head, head_dim]`, `w` `[head_dim]`.
    ///
    /// # Panics
    ///
    /// When the shapes disagree.
    pub fn new(kernels: Kernels, x: &'a mut [f32], w: &'a [f32], eps: f32) -> Self {
        let rows = rows(x.len(), w.len());
        HeadNormJob {
            kernels,
            x: Disjoint::new(x),
            w,
            eps,
            rows,
        }
    }
}

impl Job for HeadNormJob<'_> {
    fn part(&self, part: &Part<'_, Self>) {
        let d = self.w.len();
        while let Some(range) = claim(part, self.rows, d) {
            // SAFETY: claimed ranges are disjoint.
            let x = unsafe { self.x.slice(range) };
            let args = InPlaceArgs {
                x,
                d,
                w: self.w,
                eps: self.eps,
            };
            // SAFETY: `kernels` proves the level.
            unsafe { (self.kernels.0.norm.in_place)(args) }
        }
    }
}

/// `x = norm(x)` in place for each head of each token, without weights (a v norm).
pub struct UnweightedHeadNormJob<'a> {
    kernels: Kernels,
    x: Disjoint<'a, f32>,
    head_dim: usize,
    eps: f32,
    rows: usize,
}

impl<'a> UnweightedHeadNormJob<'a> {
    /// For `x` `[tokens, n_head, head_dim]`.
    ///
    /// # Panics
    ///
    /// When `x` is not rows of `head_dim`.
    pub fn new(kernels: Kernels, x: &'a mut [f32], head_dim: usize, eps: f32) -> Self {
        let rows = rows(x.len(), head_dim);
        UnweightedHeadNormJob {
            kernels,
            x: Disjoint::new(x),
            head_dim,
            eps,
            rows,
        }
    }
}

impl Job for UnweightedHeadNormJob<'_> {
    fn part(&self, part: &Part<'_, Self>) {
        let d = self.head_dim;
        while let Some(range) = claim(part, self.rows, d) {
            // SAFETY: claimed ranges are disjoint.
            let x = unsafe { self.x.slice(range) };
            let args = InPlaceArgs {
                x,
                d,
                w: (),
                eps: self.eps,
            };
            // SAFETY: `kernels` proves the level.
            unsafe { (self.kernels.0.norm.in_place_unweighted)(args) }
        }
    }
}
