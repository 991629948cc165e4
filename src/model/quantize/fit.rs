//! The choice of a step: the heart of every quantizer.
//!
//! A block of values `x` is to become integers `q` with `x ≈ d q` or `x ≈ d q + m`. For given
//! integers the best `d` (and `m`) is a line through the points (least squares); for a given `d`
//! the best integers are the nearest. The two are not solved together: the step that just spans
//! the block is tried, and a few a little wider and narrower, and the best is kept.
//! A narrower step cuts the extremes off, which pays when few values are extreme.

use half::f16;

/// How much the tried steps differ from the one that spans the block: in integers of its range.
const SPREAD: [f32; 7] = [0.0, -0.9, -0.6, -0.3, 0.3, 0.6, 0.9];

/// Appends `v` as f16 and gives the value it has there.
pub fn push_half(v: f32, out: &mut Vec<u8>) -> f32 {
    let v = f16::from_f32(v);
    out.extend(v.to_le_bytes());
    v.to_f32()
}

/// `v` rounded to f16.
pub fn round_half(v: f32) -> f32 {
    f16::from_f32(v).to_f32()
}

/// `1 / d`, or 0 where there is no such number.
pub fn inverse(d: f32) -> f32 {
    if d == 0.0 { 0.0 } else { 1.0 / d }
}

/// The integer nearest to `x`, ties to even, held within `low..=high` (less than 2^22 apart from
/// 0). What is no number becomes `low`.
#[inline]
pub fn nearest(x: f32, low: f32, high: f32) -> f32 {
    // Added to a number of this size, a fraction has no bits left: the sum is rounded.
    const ROUNDER: f32 = 12_582_912.0; // 1.5 * 2^23
    (x.max(low).min(high) + ROUNDER) - ROUNDER
}

/// The value with the largest magnitude, the first of them.
pub fn extreme(x: &[f32]) -> f32 {
    x.iter().copied().fold(
        0.0,
        |best: f32, v| if v.abs() > best.abs() { v } else { best },
    )
}

/// Sums over a block in eight lanes, so that their order is fixed and they can be vectors.
#[derive(Clone, Copy)]
struct Lanes([f32; 8]);

impl Lanes {
    const ZERO: Lanes = Lanes([0.0; 8]);

    fn total(self) -> f32 {
        let [a, b, c, d, e, f, g, h] = self.0;
        ((a + e) + (b + f)) + ((c + g) + (d + h))
    }
}

/// Sums of products of values `x` and their integers `q`.
struct Sums {
    q: f32,
    qq: f32,
    x: f32,
    xq: f32,
}

#[inline]
fn sums<const N: usize>(x: &[f32; N], integer: impl Fn(f32) -> f32) -> Sums {
    let [mut q_, mut qq, mut x_, mut xq] = [Lanes::ZERO; 4];
    for values in x.as_chunks::<8>().0 {
        for (lane, &v) in values.iter().enumerate() {
            let q = integer(v);
            q_.0[lane] += q;
            qq.0[lane] += q * q;
            x_.0[lane] += v;
            xq.0[lane] += v * q;
        }
    }
    Sums {
        q: q_.total(),
        qq: qq.total(),
        x: x_.total(),
        xq: xq.total(),
    }
}

/// The `d` of `x ≈ d q` with `q` in `-half..half`. The largest magnitude lies near `-half`, the
/// end with one integer more; so `d` has the other sign.
pub fn symmetric<const N: usize>(x: &[f32; N], half: f32) -> f32 {
    let extreme = extreme(x);
    scaled(x, SPREAD.map(|t| (half + t) / -extreme), |v| {
        nearest(v, -half, half - 1.0)
    })
}

/// The best `d` of `x ≈ d level`, where `level` gives the place of `x / d` among the levels that
/// there are, and `1 / d` starts from one of `inverses`.
#[inline]
pub fn scaled<const N: usize>(
    x: &[f32; N],
    inverses: impl IntoIterator<Item = f32>,
    level: impl Fn(f32) -> f32,
) -> f32 {
    let (mut best, mut most) = (0.0, 0.0);
    for id in inverses {
        if !id.is_finite() {
            continue;
        }
        let s = sums(x, |v| level(v * id));
        // The squared error is the sum of x^2 less this.
        let gain = s.xq * s.xq / s.qq;
        if gain > most {
            (best, most) = (s.xq / s.qq, gain);
        }
    }
    best
}

/// The `d` and `m` of `x ≈ d q + m` with `q` in `0..=top`; with `below_zero`, `m` is at most 0.
pub fn affine<const N: usize>(x: &[f32; N], top: f32, below_zero: bool) -> (f32, f32) {
    let low = x.iter().copied().fold(f32::INFINITY, f32::min);
    let high = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let low = if below_zero { low.min(0.0) } else { low };
    if high <= low {
        return (0.0, low);
    }
    let n = N as f32;
    let (mut best, mut most) = (((high - low) / top, low), f32::NEG_INFINITY);
    for t in SPREAD {
        let id = (top + t) / (high - low);
        let s = sums(x, |v| nearest((v - low) * id, 0.0, top));
        let spread = n * s.qq - s.q * s.q;
        let mut d = (n * s.xq - s.q * s.x) / spread;
        let mut m = (s.qq * s.x - s.q * s.xq) / spread;
        if below_zero && m > 0.0 {
            (d, m) = (s.xq / s.qq, 0.0);
        }
        // The squared error is the sum of x^2 less this.
        let gain = d * s.xq + m * s.x;
        if d > 0.0 && gain > most {
            (best, most) = ((d, m), gain);
        }
    }
    best
}

/// The levels of IQ4_NL and IQ4_XS (ggml's `kvalues_iq4nl`).
const LEVELS: [f32; 16] = [
    -127.0, -104.0, -83.0, -65.0, -49.0, -35.0, -22.0, -10.0, 1.0, 13.0, 25.0, 38.0, 53.0, 69.0,
    89.0, 113.0,
];

/// Half way between neighbouring levels.
const MIDDLES: [f32; 15] = {
    let mut middles = [0.0; 15];
    let mut i = 0;
    while i < 15 {
        middles[i] = (LEVELS[i] + LEVELS[i + 1]) / 2.0;
        i += 1;
    }
    middles
};

/// The number of the level nearest to `v`.
#[inline]
pub fn level_index(v: f32) -> u8 {
    MIDDLES.iter().map(|middle| u8::from(v > *middle)).sum()
}

/// The level nearest to `v`.
#[inline]
fn level(v: f32) -> f32 {
    // Every middle that `v` has passed lifts it by the way between two levels.
    let mut level = LEVELS[0];
    for i in 0..15 {
        let step = LEVELS[i + 1] - LEVELS[i];
        level += if v > MIDDLES[i] { step } else { 0.0 };
    }
    level
}

/// The `d` of `x ≈ d level`. The levels reach farther down than up, so both signs are tried.
pub fn nonlinear(x: &[f32; 32]) -> f32 {
    let extreme = extreme(x);
    let ends = [-127.0, -118.0, -110.0, 113.0, 105.0];
    scaled(x, ends.map(|end| end / extreme), level)
}
