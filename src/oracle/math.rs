//! The few functions a transformer is made of, in f64, from their textbook definitions.
//!
//! Transcendental functions come from the `libm` crate, so that the oracle says the same on
//! every machine.

use crate::model::{Activation, RopeKind, RopeSpec};

/// `Σ a[i] * b[i]`. Eight running sums, because one alone would leave the processor waiting; the
/// order never changes, so neither does the result.
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len(), "vectors of unlike length");
    let mut sums = [0.0; 8];
    let (a8, b8) = (a.chunks_exact(8), b.chunks_exact(8));
    let rest: f64 = a8
        .remainder()
        .iter()
        .zip(b8.remainder())
        .map(|(x, y)| x * y)
        .sum();
    for (x, y) in a8.zip(b8) {
        for i in 0..8 {
            sums[i] += x[i] * y[i];
        }
    }
    sums.iter().sum::<f64>() + rest
}

/// RMS norm (Zhang and Sennrich 2019): `x / sqrt(mean(x²) + eps) * weight`.
pub fn rms_norm(x: &[f64], weight: &[f64], eps: f64) -> Vec<f64> {
    assert_eq!(x.len(), weight.len(), "vectors of unlike length");
    let scale = 1.0 / libm::sqrt(dot(x, x) / x.len() as f64 + eps);
    x.iter().zip(weight).map(|(x, w)| x * scale * w).collect()
}

/// Softmax in place, shifted by the maximum.
pub fn softmax(x: &mut [f64]) {
    let max = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut sum = 0.0;
    for v in x.iter_mut() {
        *v = libm::exp(*v - max);
        sum += *v;
    }
    for v in x.iter_mut() {
        *v /= sum;
    }
}

/// `c * tanh(x / c)`.
pub fn softcap(x: f64, c: f64) -> f64 {
    c * libm::tanh(x / c)
}

/// One activation value. GELU is the tanh form of Hendrycks and Gimpel (2016).
pub fn activate(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::Silu => x / (1.0 + libm::exp(-x)),
        Activation::Gelu => {
            let u = libm::sqrt(2.0 / std::f64::consts::PI) * (x + 0.044715 * x * x * x);
            0.5 * x * (1.0 + libm::tanh(u))
        }
    }
}

/// Cosine and sine by which each pair of a head turns at position `pos`, both times the rope's
/// factor, for a run whose context holds `n_ctx` tokens.
pub fn turns(rope: &RopeSpec, n_ctx: usize, pos: usize) -> Vec<(f64, f64)> {
    let factors = rope.factors_for(n_ctx);
    let turn = |pair: usize| {
        let exponent = -2.0 * pair as f64 / rope.n_dims as f64;
        let factor = factors.map_or(1.0, |f| f64::from(f[pair]));
        let angle =
            pos as f64 * libm::pow(f64::from(rope.base), exponent) * f64::from(rope.freq_scale)
                / factor;
        let scale = f64::from(rope.attn_factor);
        (libm::cos(angle) * scale, libm::sin(angle) * scale)
    };
    (0..rope.n_dims / 2).map(turn).collect()
}

/// Rotary position embedding (Su et al. 2021) of one head, in place, by the [`turns`] of its
/// position.
pub fn rotate(kind: RopeKind, turns: &[(f64, f64)], head: &mut [f64]) {
    for (pair, (cos, sin)) in turns.iter().enumerate() {
        let (i, j) = match kind {
            RopeKind::Norm => (2 * pair, 2 * pair + 1),
            RopeKind::Neox => (pair, pair + turns.len()),
        };
        let (x, y) = (head[i], head[j]);
        head[i] = x * cos - y * sin;
        head[j] = x * sin + y * cos;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dot_adds_every_product_at_every_length() {
        for n in 0..40 {
            let a: Vec<f64> = (0..n).map(|i| i as f64).collect();
            let b: Vec<f64> = (0..n).map(|i| (i * i) as f64).collect();
            let wanted: f64 = (0..n).map(|i| (i * i * i) as f64).sum();
            assert_eq!(dot(&a, &b), wanted, "length {n}");
        }
    }

    #[test]
    fn rms_norm_of_three_and_four() {
        // The mean square is 12.5; with eps 3.5 the root is 4.
        assert_eq!(rms_norm(&[3.0, 4.0], &[10.0, 20.0], 3.5), [7.5, 20.0]);
    }

    #[test]
    fn softmax_of_logarithms_gives_shares() {
        let mut x = [1.0_f64, 2.0, 5.0].map(libm::log);
        softmax(&mut x);
        for (got, wanted) in x.iter().zip([0.125, 0.25, 0.625]) {
            assert!((got - wanted).abs() < 1e-15, "{got} for {wanted}");
        }
    }

    #[test]
    fn softmax_survives_huge_scores() {
        let mut x = [1e6, 1e6, -1e6];
        softmax(&mut x);
        assert_eq!(x, [0.5, 0.5, 0.0]);
    }

    #[test]
    fn activations_at_known_points() {
        assert_eq!(activate(Activation::Silu, 0.0), 0.0);
        // x * sigmoid(x) at ln 3: sigmoid is 3/4.
        let ln3 = libm::log(3.0);
        assert!((activate(Activation::Silu, ln3) - 0.75 * ln3).abs() < 1e-15);
        assert_eq!(activate(Activation::Gelu, 0.0), 0.0);
        // u = sqrt(2/pi) * 1.044715 = 0.833561..., tanh(u) = 0.682384...
        assert!((activate(Activation::Gelu, 1.0) - 0.841_191_990_608).abs() < 1e-11);
        assert!((activate(Activation::Gelu, -1.0) + 0.158_808_009_392).abs() < 1e-11);
    }

    #[test]
    fn softcap_is_linear_near_zero_and_bounded_far_off() {
        assert!((softcap(1e-3, 30.0) - 1e-3).abs() < 1e-11);
        assert_eq!(softcap(1e9, 30.0), 30.0);
    }

    /// Turns a head as at position `pos`.
    fn turned(rope: &RopeSpec, n_ctx: usize, pos: usize, mut head: Vec<f64>) -> Vec<f64> {
        rotate(rope.kind, &turns(rope, n_ctx, pos), &mut head);
        head
    }

    fn rope(kind: RopeKind) -> RopeSpec {
        RopeSpec {
            kind,
            n_dims: 4,
            base: 10000.0,
            freq_scale: 1.0,
            attn_factor: 1.0,
            factors: None,
            long: None,
        }
    }

    fn close(got: &[f64], wanted: &[f64]) {
        for (g, w) in got.iter().zip(wanted) {
            assert!((g - w).abs() < 1e-14, "{got:?} for {wanted:?}");
        }
    }

    #[test]
    fn rotation_turns_neighbours_or_halves_and_leaves_the_rest() {
        // Pair 0 turns by 3 radians, pair 1 by 3 * 10000^(-1/2) = 0.03.
        let (c0, s0, c1, s1) = (3.0_f64.cos(), 3.0_f64.sin(), 0.03_f64.cos(), 0.03_f64.sin());
        let head = vec![1.0, 2.0, 3.0, 4.0, 5.0];
        let norm = turned(&rope(RopeKind::Norm), 100, 3, head.clone());
        close(
            &norm,
            &[
                c0 - 2.0 * s0,
                s0 + 2.0 * c0,
                3.0 * c1 - 4.0 * s1,
                3.0 * s1 + 4.0 * c1,
                5.0,
            ],
        );
        let neox = turned(&rope(RopeKind::Neox), 100, 3, head);
        close(
            &neox,
            &[
                c0 - 3.0 * s0,
                2.0 * c1 - 4.0 * s1,
                s0 + 3.0 * c0,
                2.0 * s1 + 4.0 * c1,
                5.0,
            ],
        );
    }

    #[test]
    fn rotation_obeys_scale_factors_and_context() {
        let mut spec = rope(RopeKind::Norm);
        spec.freq_scale = 0.5;
        spec.attn_factor = 2.0;
        spec.factors = Some(vec![3.0, 1.0]);
        spec.long = Some(crate::model::LongFactors {
            above: 10,
            factors: vec![6.0, 1.0],
        });
        // 6 * 0.5 / 3 = 1 radian in a short context, half of it in a long one.
        let head = vec![1.0, 0.0, 0.0, 0.0];
        let short = turned(&spec, 10, 6, head.clone());
        close(&short[..2], &[2.0 * 1.0_f64.cos(), 2.0 * 1.0_f64.sin()]);
        let long = turned(&spec, 11, 6, head);
        close(&long[..2], &[2.0 * 0.5_f64.cos(), 2.0 * 0.5_f64.sin()]);
    }
}
