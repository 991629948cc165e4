//! Rows as integers: what attention's products multiply.
//!
//! A row of numbers (a query, a key, a value, the weights of a block) is taken as integers times
//! one step, the row's largest size over the number of levels. The levels are as many as keep every
//! sum of products within 32 bits, so that sums are exact and their order is free; see the
//! definition in [`super`].

use super::kernels::Row;
use crate::math::sizes;
use crate::simd::{Kernel, Simd};

/// Levels of a value on either side of zero.
pub(super) const VALUE_LEVELS: f32 = 4095.0;

/// Levels of a weight above zero: 64 products with values are below 2^31.
pub(super) const WEIGHT_LEVELS: f32 = 8191.0;

/// Rows whose largest size is below this, 2^-100, are all zero: the inverse of their step would
/// overflow.
pub(super) const LEAST: f32 = f32::from_bits((127 - 100) << 23);

/// Levels of a query and of a key on either side of zero: at most thirteen bits, and `head_dim`
/// products are below 2^31.
pub(super) const fn head_levels(head_dim: usize) -> f32 {
    let most = (i32::MAX as usize / head_dim).isqrt();
    if most < 8191 { most as f32 } else { 8191.0 }
}

/// The step of a row with this largest size. NaN when that is not finite.
#[inline(always)]
pub(super) fn step(largest: f32, levels: f32) -> f32 {
    if !largest.is_finite() {
        f32::NAN
    } else if largest < LEAST {
        0.0
    } else {
        largest / levels
    }
}

/// What turns a row's numbers into integers: 1 / step, or 0 where the step is 0 or NaN.
#[inline(always)]
pub(super) fn inverse(step: f32) -> f32 {
    if step > 0.0 { 1.0 / step } else { 0.0 }
}

/// [`inverse`] of each lane.
#[inline(always)]
pub(super) fn inverses<S: Simd>(s: S, steps: S::F32) -> S::F32 {
    let inverse = s.div(s.splat(1.0), steps);
    s.select(s.lt(s.zero(), steps), inverse, s.zero())
}

/// 1.5 * 2^23: to add it is to round to an integer, which then stands in the low bits.
const ROUNDING: f32 = 12_582_912.0;

/// `x * inverse`, rounded once to the nearest integer, halves to even, in the low sixteen bits. Above
/// these stands anything.
#[inline(always)]
pub(super) fn halves<S: Simd>(s: S, x: S::F32, inverse: S::F32) -> S::Int {
    s.f32_bits(s.fma(x, inverse, s.splat(ROUNDING)))
}

/// As [`halves`], as whole integers.
#[inline(always)]
pub(super) fn integers<S: Simd>(s: S, x: S::F32, inverse: S::F32) -> S::Int {
    let rounding = s.splat_i32(ROUNDING.to_bits().cast_signed());
    s.sub_i32(halves(s, x, inverse), rounding)
}

/// The inverses of a block's steps.
pub(crate) struct InversesArgs<'a> {
    pub(super) steps: &'a Row<f32>,
    pub(super) to: &'a mut Row<f32>,
}

/// [`InversesArgs`]' kernel.
pub(crate) struct Inverses;

impl Kernel for Inverses {
    type Args<'a> = InversesArgs<'a>;
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(s: S, InversesArgs { steps, to }: InversesArgs<'_>) {
        for (from, to) in steps.iter().zip(to) {
            s.store(inverses(s, s.load(from)), to);
        }
    }
}

/// Two integers of sixteen bits as one operand of [`Simd::dot_i16`].
#[inline(always)]
pub(super) fn pair(low: u16, high: u16) -> i32 {
    (u32::from(low) | u32::from(high) << 16).cast_signed()
}

/// Rows of queries that share a key-value head: its query heads of one token, then of the next.
#[derive(Clone, Copy)]
pub(crate) struct Queries<'a> {
    /// `[tokens, n_head, head_dim]`
    pub(super) all: &'a [f32],
    pub(super) head_dim: usize,
    pub(super) n_head: usize,
    /// Query heads of a key-value head.
    pub(super) group: usize,
    pub(super) kv_head: usize,
    /// The token whose first head row `-first` is.
    pub(super) token: usize,
    /// Rows from there to row 0.
    pub(super) first: usize,
}

impl<'a> Queries<'a> {
    /// The row of query `i`.
    #[inline(always)]
    pub(super) fn row(&self, i: usize) -> &'a [f32] {
        let i = self.first + i;
        let head = self.kv_head * self.group + i % self.group;
        let row = (self.token + i / self.group) * self.n_head + head;
        &self.all[row * self.head_dim..][..self.head_dim]
    }
}

/// Queries into a panel, as many as `scales` has.
pub(crate) struct PanelArgs<'a> {
    pub(super) queries: Queries<'a>,
    /// What each score is multiplied by.
    pub(super) scale: f32,
    /// Pairs of integers, `[head_dim / 2 (rounded up)][n]`.
    pub(super) panel: &'a mut [i32],
    /// Each query's step times `scale`, `[n]`.
    pub(super) scales: &'a mut [f32],
}

/// The largest size of a row's numbers, NaN if there is one.
#[inline(always)]
pub(super) fn largest_of<S: Simd>(s: S, row: &[f32]) -> f32 {
    let (whole, rest) = row.as_chunks::<16>();
    let rest = s.f32_bits(s.abs(s.load_partial(rest)));
    f32::from_bits(s.reduce_max_u32(s.max_u32(sizes(s, whole), rest)))
}

/// A query's step, and its inverse in all lanes. The levels are those of [`head_levels`].
#[inline(always)]
pub(super) fn query_step<S: Simd>(s: S, row: &[f32], levels: f32) -> (f32, S::F32) {
    let step = step(largest_of(s, row), levels);
    (step, s.splat(inverse(step)))
}

/// [`PanelArgs`]' kernel.
pub(crate) struct FillPanel;

impl Kernel for FillPanel {
    type Args<'a> = PanelArgs<'a>;
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(s: S, args: PanelArgs<'_>) {
        let n = args.scales.len();
        let levels = head_levels(args.queries.head_dim);
        for i in 0..n {
            let row = args.queries.row(i);
            let (step, inverse) = query_step(s, row, levels);
            args.scales[i] = step * args.scale;
            let columns = args.panel.chunks_mut(8 * n);
            for (from, to) in row.chunks(16).zip(columns) {
                let from = match from.first_chunk() {
                    Some(from) => s.load(from),
                    None => s.load_partial(from),
                };
                let mut low = [0; 16];
                s.store_low_halves(halves(s, from, inverse), &mut low);
                for (pairs, low) in to.chunks_mut(n).zip(low.as_chunks::<2>().0) {
                    pairs[i] = pair(low[0], low[1]);
                }
            }
        }
    }
}
