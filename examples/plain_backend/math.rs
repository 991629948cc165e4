//! The few functions a transformer is made of, in f32, from their textbook definitions.

use emel::model::{Activation, RopeKind, RopeSpec};
use half::f16;

/// How a matrix product sums one element: `Σ a[i] * b[i]`.
pub type Dot = fn(&[f32], &[f32]) -> f32;

/// Eight running sums, because one alone would leave the processor waiting; always the same eight.
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0_f32; 8];
    let (a8, b8) = (a.chunks_exact(8), b.chunks_exact(8));
    let rest = a8.remainder().iter().zip(b8.remainder());
    let rest: f32 = rest.map(|(x, y)| x * y).sum();
    for (x, y) in a8.zip(b8) {
        for i in 0..8 {
            sums[i] += x[i] * y[i];
        }
    }
    sums.iter().sum::<f32>() + rest
}

/// One running sum in f16, rounded after every addition: a defect.
pub fn dot_f16(a: &[f32], b: &[f32]) -> f32 {
    let add = |sum: f16, (x, y): (&f32, &f32)| f16::from_f32(sum.to_f32() + x * y);
    a.iter().zip(b).fold(f16::ZERO, add).to_f32()
}

/// RMS norm (Zhang and Sennrich 2019), in place: `x / sqrt(mean(x²) + eps) * weight`.
pub fn rms_norm(x: &mut [f32], weight: &[f32], eps: f32) {
    let scale = 1.0 / (dot(x, x) / x.len() as f32 + eps).sqrt();
    for (x, w) in x.iter_mut().zip(weight) {
        *x *= scale * w;
    }
}

/// Softmax in place, shifted by the maximum.
pub fn softmax(x: &mut [f32]) {
    let max = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut sum = 0.0;
    for v in x.iter_mut() {
        *v = (*v - max).exp();
        sum += *v;
    }
    for v in x.iter_mut() {
        *v /= sum;
    }
}

/// `c * tanh(x / c)`.
pub fn softcap(x: f32, c: f32) -> f32 {
    c * (x / c).tanh()
}

/// One activation value. GELU is the tanh form of Hendrycks and Gimpel (2016).
pub fn activate(activation: Activation, x: f32) -> f32 {
    match activation {
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::Gelu => {
            let u = (2.0 / std::f32::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
            0.5 * x * (1.0 + u.tanh())
        }
    }
}

/// Cosine and sine of each pair of a head at a position, for a run whose context holds `n_ctx`
/// tokens. In f64: an f32 angle of a thousand turns has few digits left for the part that counts.
pub fn turns(rope: &RopeSpec, n_ctx: usize, position: usize) -> Vec<(f32, f32)> {
    let factors = rope.factors_for(n_ctx);
    let turn = |pair: usize| {
        let exponent = -2.0 * pair as f64 / rope.n_dims as f64;
        let factor = factors.map_or(1.0, |factors| f64::from(factors[pair]));
        let frequency = f64::from(rope.base).powf(exponent) * f64::from(rope.freq_scale) / factor;
        let (sin, cos) = (position as f64 * frequency).sin_cos();
        let scale = f64::from(rope.attn_factor);
        ((cos * scale) as f32, (sin * scale) as f32)
    };
    (0..rope.n_dims / 2).map(turn).collect()
}

/// Rotary position embedding (Su et al. 2021) of one head, in place.
pub fn rotate(kind: RopeKind, turns: &[(f32, f32)], head: &mut [f32]) {
    for (pair, &(cos, sin)) in turns.iter().enumerate() {
        let (i, j) = match kind {
            RopeKind::Norm => (2 * pair, 2 * pair + 1),
            RopeKind::Neox => (pair, pair + turns.len()),
        };
        let (x, y) = (head[i], head[j]);
        head[i] = x * cos - y * sin;
        head[j] = x * sin + y * cos;
    }
}
