//! Element-by-element jobs over activations: gated linear units, additions, scaling, soft caps.
//!
//! All work in place, and hand out runs of [`CHUNK`] elements: each element depends on its own
//! inputs alone, so where a run begins changes nothing.

use std::marker::PhantomData;

use crate::lanes::{Disjoint, Job, Part};
use crate::level::Kernels;
use crate::math;
use crate::simd::{Entry, Kernel, Simd, entry};

/// Elements a lane claims at once: some microseconds of work at most, many times a claim's cost.
const CHUNK: usize = 2048;

/// A function of two values.
trait Binary: 'static {
    fn apply<S: Simd>(s: S, x: S::F32, y: S::F32) -> S::F32;
}

/// A function of a value and a parameter.
trait Unary: 'static {
    fn apply<S: Simd>(s: S, x: S::F32, parameter: f32) -> S::F32;
}

/// x + y.
struct Add;

impl Binary for Add {
    #[inline(always)]
    fn apply<S: Simd>(s: S, x: S::F32, y: S::F32) -> S::F32 {
        s.add(x, y)
    }
}

/// silu(x) y.
struct SiluMul;

impl Binary for SiluMul {
    #[inline(always)]
    fn apply<S: Simd>(s: S, x: S::F32, y: S::F32) -> S::F32 {
        s.mul(math::silu(s, x), y)
    }
}

/// gelu(x) y.
struct GeluMul;

impl Binary for GeluMul {
    #[inline(always)]
    fn apply<S: Simd>(s: S, x: S::F32, y: S::F32) -> S::F32 {
        s.mul(math::gelu(s, x), y)
    }
}

/// x times the parameter.
struct Scale;

impl Unary for Scale {
    #[inline(always)]
    fn apply<S: Simd>(s: S, x: S::F32, factor: f32) -> S::F32 {
        s.mul(x, s.splat(factor))
    }
}

/// The parameter times tanh(x / parameter).
pub(crate) struct Softcap;

impl Softcap {
    /// See the type.
    #[inline(always)]
    pub(crate) fn cap<S: Simd>(s: S, x: S::F32, cap: f32) -> S::F32 {
        let cap = s.splat(cap);
        s.mul(cap, math::tanh(s, s.div(x, cap)))
    }
}

impl Unary for Softcap {
    #[inline(always)]
    fn apply<S: Simd>(s: S, x: S::F32, cap: f32) -> S::F32 {
        Softcap::cap(s, x, cap)
    }
}

/// `x = f(x, y)`, of equal lengths.
pub(crate) struct Pair<'a> {
    x: &'a mut [f32],
    y: &'a [f32],
}

/// [`Binary`] `B` over slices.
pub(crate) struct Zip<B>(PhantomData<B>);

#[inline(always)]
fn zip<S: Simd, B: Binary>(s: S, x: &mut [f32], y: &[f32]) {
    let (x, x_tail) = x.as_chunks_mut::<16>();
    let (y, y_tail) = y.as_chunks::<16>();
    for (x, y) in x.iter_mut().zip(y) {
        let v = B::apply(s, s.load(x), s.load(y));
        s.store(v, x);
    }
    if !x_tail.is_empty() {
        let v = B::apply(s, s.load_partial(x_tail), s.load_partial(y_tail));
        s.store_partial(v, x_tail);
    }
}

impl<B: Binary> Kernel for Zip<B> {
    type Args<'a> = Pair<'a>;
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(s: S, Pair { x, y }: Pair<'_>) {
        zip::<S, B>(s, x, y);
    }
}

/// Adds the bias to each of the rows, which are as long as it.
pub(crate) struct AddToRows;

impl Kernel for AddToRows {
    type Args<'a> = Pair<'a>;
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(s: S, Pair { x, y }: Pair<'_>) {
        for row in x.chunks_exact_mut(y.len()) {
            zip::<S, Add>(s, row, y);
        }
    }
}

/// `x = f(x, parameter)`.
pub(crate) struct One<'a> {
    x: &'a mut [f32],
    parameter: f32,
}

/// [`Unary`] `U` over a slice.
pub(crate) struct Map<U>(PhantomData<U>);

impl<U: Unary> Kernel for Map<U> {
    type Args<'a> = One<'a>;
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(s: S, One { x, parameter }: One<'_>) {
        let (x, tail) = x.as_chunks_mut::<16>();
        for x in x {
            let v = U::apply(s, s.load(x), parameter);
            s.store(v, x);
        }
        if !tail.is_empty() {
            let v = U::apply(s, s.load_partial(tail), parameter);
            s.store_partial(v, tail);
        }
    }
}

/// One level's elementwise kernels.
pub(crate) struct Table {
    add: Entry<Zip<Add>>,
    add_to_rows: Entry<AddToRows>,
    silu_mul: Entry<Zip<SiluMul>>,
    gelu_mul: Entry<Zip<GeluMul>>,
    scale: Entry<Map<Scale>>,
    softcap: Entry<Map<Softcap>>,
}

impl Table {
    pub(crate) const fn of<S: Simd>() -> Table {
        Table {
            add: entry::<S, Zip<Add>>,
            add_to_rows: entry::<S, AddToRows>,
            silu_mul: entry::<S, Zip<SiluMul>>,
            gelu_mul: entry::<S, Zip<GeluMul>>,
            scale: entry::<S, Map<Scale>>,
            softcap: entry::<S, Map<Softcap>>,
        }
    }
}

/// A job that applies a function of two values, in place on the first.
struct PairJob<'a> {
    /// From the table of a level that the processor has.
    run: unsafe fn(Pair<'_>),
    x: Disjoint<'a, f32>,
    y: &'a [f32],
}

impl<'a> PairJob<'a> {
    fn new(run: unsafe fn(Pair<'_>), x: &'a mut [f32], y: &'a [f32]) -> Self {
        assert_eq!(x.len(), y.len(), "operands of unequal lengths");
        PairJob {
            run,
            x: Disjoint::new(x),
            y,
        }
    }

    fn part<J: ?Sized>(&self, part: &Part<'_, J>) {
        while let Some(range) = part.claim(self.y.len(), CHUNK) {
            // SAFETY: this job's only use of claims; the ranges are disjoint.
            let x = unsafe { self.x.slice(range.clone()) };
            // SAFETY: `run` is from a `Kernels`' table.
            unsafe {
                (self.run)(Pair {
                    x,
                    y: &self.y[range],
                })
            }
        }
    }
}

/// A job that applies a function of a value and a parameter in place.
struct OneJob<'a> {
    /// From the table of a level that the processor has.
    run: unsafe fn(One<'_>),
    x: Disjoint<'a, f32>,
    parameter: f32,
}

impl<'a> OneJob<'a> {
    fn new(run: unsafe fn(One<'_>), x: &'a mut [f32], parameter: f32) -> Self {
        OneJob {
            run,
            x: Disjoint::new(x),
            parameter,
        }
    }

    fn part<J: ?Sized>(&self, part: &Part<'_, J>) {
        while let Some(range) = part.claim(self.x.len(), CHUNK) {
            // SAFETY: this job's only use of claims; the ranges are disjoint.
            let x = unsafe { self.x.slice(range) };
            // SAFETY: `run` is from a `Kernels`' table.
            unsafe {
                (self.run)(One {
                    x,
                    parameter: self.parameter,
                })
            }
        }
    }
}

/// The gated linear unit `gate = act(gate) * up`, both `[tokens, d_ff]`.
pub struct GluJob<'a>(PairJob<'a>);

impl<'a> GluJob<'a> {
    /// With `act(x) = x / (1 + e^-x)` (SwiGLU).
    ///
    /// # Panics
    ///
    /// When the lengths differ.
    pub fn silu(kernels: Kernels, gate: &'a mut [f32], up: &'a [f32]) -> Self {
        GluJob(PairJob::new(kernels.0.elementwise.silu_mul, gate, up))
    }

    /// With GELU in its tanh form (GeGLU).
    ///
    /// # Panics
    ///
    /// When the lengths differ.
    pub fn gelu(kernels: Kernels, gate: &'a mut [f32], up: &'a [f32]) -> Self {
        GluJob(PairJob::new(kernels.0.elementwise.gelu_mul, gate, up))
    }
}

impl Job for GluJob<'_> {
    fn part(&self, part: &Part<'_, Self>) {
        self.0.part(part);
    }
}

/// `x += y`, element by element.
pub struct AddJob<'a>(PairJob<'a>);

impl<'a> AddJob<'a> {
    /// For slices of one shape.
    ///
    /// # Panics
    ///
    /// When the lengths differ.
    pub fn new(kernels: Kernels, x: &'a mut [f32], y: &'a [f32]) -> Self {
        AddJob(PairJob::new(kernels.0.elementwise.add, x, y))
    }
}

impl Job for AddJob<'_> {
    fn part(&self, part: &Part<'_, Self>) {
        self.0.part(part);
    }
}

/// `x += bias` in each row of `x`.
pub struct AddBiasJob<'a> {
    /// From the table of a level that the processor has.
    run: unsafe fn(Pair<'_>),
    x: Disjoint<'a, f32>,
    bias: &'a [f32],
}

impl<'a> AddBiasJob<'a> {
    /// For `x` `[tokens, d]` and `bias` `[d]`.
    ///
    /// # Panics
    ///
    /// When `bias` is empty or `x` is not rows of its length.
    pub fn new(kernels: Kernels, x: &'a mut [f32], bias: &'a [f32]) -> Self {
        assert!(!bias.is_empty(), "an empty bias");
        assert_eq!(
            x.len() % bias.len(),
            0,
            "x is not rows of the bias's length"
        );
        AddBiasJob {
            run: kernels.0.elementwise.add_to_rows,
            x: Disjoint::new(x),
            bias,
        }
    }
}

impl Job for AddBiasJob<'_> {
    fn part(&self, part: &Part<'_, Self>) {
        let d = self.bias.len();
        while let Some(rows) = part.claim(self.x.len() / d, CHUNK / d) {
            // SAFETY: this job's only use of claims; the ranges are disjoint.
            let x = unsafe { self.x.slice(rows.start * d..rows.end * d) };
            // SAFETY: `run` is from a `Kernels`' table.
            unsafe { (self.run)(Pair { x, y: self.bias }) }
        }
    }
}

/// `x *= factor`, element by element.
pub struct ScaleJob<'a>(OneJob<'a>);

impl<'a> ScaleJob<'a> {
    /// For any slice.
    pub fn new(kernels: Kernels, x: &'a mut [f32], factor: f32) -> Self {
        ScaleJob(OneJob::new(kernels.0.elementwise.scale, x, factor))
    }
}

impl Job for ScaleJob<'_> {
    fn part(&self, part: &Part<'_, Self>) {
        self.0.part(part);
    }
}

/// `x = cap * tanh(x / cap)`, element by element: the soft cap of Gemma 2's logits.
pub struct SoftcapJob<'a>(OneJob<'a>);

impl<'a> SoftcapJob<'a> {
    /// For any slice.
    pub fn new(kernels: Kernels, x: &'a mut [f32], cap: f32) -> Self {
        SoftcapJob(OneJob::new(kernels.0.elementwise.softcap, x, cap))
    }
}

impl Job for SoftcapJob<'_> {
    fn part(&self, part: &Part<'_, Self>) {
        self.0.part(part);
    }
}

#[cfg(test)]
mod tests;
