//! Exponentials and what is made of them, on vectors: `exp`, SiLU, GELU, `tanh`; and largest sizes.
//!
//! Each is one fixed sequence of IEEE-754 operations, so that every level gives the same bits.
//! `exp` reduces `x = n ln 2 + r` with `n` the nearest integer (Cody and Waite, with a fused
//! multiply-add the first step is exact), evaluates a polynomial in `r`, and adds `n` to the
//! exponent bits. The polynomials are minimax fits in relative error, by Remez exchange, with
//! coefficients rounded to `f32`.
//!
//! Largest errors against `f64`, in units in the last place, measured over every `f32`: `exp`
//! 0.895 (results that would be subnormal are 0), `tanh` 1.37; where the result is at least 1e-30
//! in size, SiLU 2.40 and GELU 171 (at x = -9.2: the exponent there is near -66, whose rounding
//! alone is that much). Where `e^-x` overflows, SiLU and GELU are -0.

use crate::simd::Simd;

/// The largest sizes of some numbers, lane by lane, as bits: they order as the sizes do, with NaN at
/// the top.
#[inline(always)]
pub(crate) fn sizes<S: Simd>(s: S, numbers: &[[f32; 16]]) -> S::Int {
    let mut most = s.zero_i32();
    for numbers in numbers {
        most = s.max_u32(most, s.f32_bits(s.abs(s.load(numbers))));
    }
    most
}

const LOG2_E: f32 = std::f32::consts::LOG2_E;
/// ln 2 rounded to `f32`, and what that leaves.
const LN2_HIGH: f32 = std::f32::consts::LN_2;
const LN2_LOW: f32 = -1.904_654_3e-9;

/// The least `f32` not below ln 2^-126: from here on results are normal numbers.
const EXP_LOWEST: f32 = f32::from_bits(0xc2ae_ac4f);
/// The least `f32` above ln 2^128: from here on results overflow.
const EXP_OVERFLOW: f32 = f32::from_bits(0x42b1_7218);

/// (e^r - 1 - r) / r^2 for |r| <= ln 2 / 2, highest power first; the fit's error is 2^-28.
const EXP_COEFFICIENTS: [f32; 5] = [
    1.381_459_9e-3,
    8.368_717e-3,
    4.166_839e-2,
    1.666_652_1e-1,
    4.999_999_4e-1,
];

/// e^x. 0 below -87.336 (where the result would be subnormal), infinity from 88.7229 on, NaN
/// for NaN.
#[inline(always)]
pub(crate) fn exp<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let y = exp_of_at_most_0(s, x);
    s.select(s.le(s.splat(EXP_OVERFLOW), x), s.splat(f32::INFINITY), y)
}

/// [`exp`] of what is at most 0, or NaN.
#[inline(always)]
pub(crate) fn exp_of_at_most_0<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let n = s.round_i32(s.mul(x, s.splat(LOG2_E)));
    let n_float = s.i32_to_f32(n);
    let r = s.fnma(n_float, s.splat(LN2_HIGH), x);
    let r = s.fnma(n_float, s.splat(LN2_LOW), r);
    let mut p = s.splat(EXP_COEFFICIENTS[0]);
    for &c in &EXP_COEFFICIENTS[1..] {
        p = s.fma(p, r, s.splat(c));
    }
    p = s.fma(p, r, s.splat(1.0));
    p = s.fma(p, r, s.splat(1.0));
    // n is in -126..=128 where the result is not replaced below, and p in 0.7..1.42: adding n to
    // the exponent field neither under- nor overflows it. For a NaN, n is i32::MIN, which the
    // shift makes 0.
    let y = s.f32_from_bits(s.add_i32(s.f32_bits(p), s.shl(n, 23)));
    s.select(s.lt(x, s.splat(EXP_LOWEST)), s.zero(), y)
}

/// x / (1 + e^-x), the sigmoid-weighted linear unit (Hendrycks and Gimpel, 2016).
#[inline(always)]
pub(crate) fn silu<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let e = exp(s, s.neg(x));
    s.div(x, s.add(s.splat(1.0), e))
}

/// -2 sqrt(2 / pi).
const GELU_SCALE: f32 = -1.595_769_2;
const GELU_CUBIC: f32 = 0.044_715;

/// GELU in its tanh form, `x / (1 + e^(-2u))` with `u = sqrt(2/pi) (x + 0.044715 x^3)`: ggml's
/// `gelu`, without its table of half-precision results.
#[inline(always)]
pub(crate) fn gelu<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let cube = s.mul(s.mul(x, x), x);
    let inner = s.fma(s.splat(GELU_CUBIC), cube, x);
    let e = exp(s, s.mul(s.splat(GELU_SCALE), inner));
    s.div(x, s.add(s.splat(1.0), e))
}

/// (tanh y - y) / y^3 in powers of y^2 for |y| <= 0.625, highest first.
const TANH_COEFFICIENTS: [f32; 5] = [
    -5.704_988e-3,
    2.063_908_8e-2,
    -5.373_971_5e-2,
    1.333_144_2e-1,
    -3.333_328e-1,
];

/// The hyperbolic tangent.
///
/// Below 0.625 a polynomial, since `1 - 2 / (e^2y + 1)` cancels there. Both are computed, and
/// one is selected.
#[inline(always)]
pub(crate) fn tanh<S: Simd>(s: S, y: S::F32) -> S::F32 {
    let one = s.splat(1.0);
    let magnitude = s.abs(y);
    let e = exp(s, s.add(magnitude, magnitude));
    let far = s.sub(one, s.div(s.splat(2.0), s.add(e, one)));

    let square = s.mul(y, y);
    let mut p = s.splat(TANH_COEFFICIENTS[0]);
    for &c in &TANH_COEFFICIENTS[1..] {
        p = s.fma(p, square, s.splat(c));
    }
    let near = s.fma(s.mul(p, square), magnitude, magnitude);

    let result = s.select(s.lt(magnitude, s.splat(0.625)), near, far);
    let sign = s.and(s.f32_bits(y), s.splat_i32(i32::MIN));
    s.f32_from_bits(s.or(s.f32_bits(result), sign))
}

#[cfg(test)]
mod tests;
