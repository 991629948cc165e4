//! How far an engine's logits lie from the oracle's.
//!
//! The reference distribution `p` is the softmax of the oracle's logits, `q` that of the
//! engine's; `KL(p ‖ q) = Σ p ln(p / q)` is in nats. Both distributions are computed in f64.

/// The distance of one position's logits from the oracle's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Distance {
    /// `KL(oracle ‖ engine)`, nats; never negative, NaN if a logit is not finite.
    pub kl: f64,
    /// The largest absolute difference of two logits; NaN if a logit is not finite.
    pub max_difference: f64,
    /// Both have their largest logit at the same token (the lowest on a tie).
    pub top_agrees: bool,
}

impl Distance {
    /// Compares the logits of one position.
    ///
    /// # Panics
    ///
    /// When the two are empty or of unlike length: they are not logits of one model.
    pub fn between(engine: &[f32], oracle: &[f64]) -> Self {
        let engine: Vec<f64> = engine.iter().copied().map(f64::from).collect();
        assert_eq!(engine.len(), oracle.len(), "logits of unlike length");
        let mut max_difference = 0.0_f64;
        for (e, o) in engine.iter().zip(oracle) {
            let difference = (e - o).abs();
            // Written so that NaN, once seen, stays.
            max_difference = if max_difference >= difference {
                max_difference
            } else {
                difference
            };
            if difference.is_nan() {
                max_difference = f64::NAN;
                break;
            }
        }
        Self {
            kl: kl_divergence(oracle, &engine),
            max_difference,
            top_agrees: top(&engine) == top(oracle),
        }
    }
}

/// What many positions have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// Positions compared.
    pub positions: usize,
    /// Mean of [`Distance::kl`].
    pub mean_kl: f64,
    /// Largest of [`Distance::kl`].
    pub max_kl: f64,
    /// Largest of [`Distance::max_difference`].
    pub max_difference: f64,
    /// Positions whose top tokens agree.
    pub top_agreements: usize,
}

impl Summary {
    /// Sums up `distances`; NaN in any of them is NaN in the summary.
    pub fn of(distances: impl IntoIterator<Item = Distance>) -> Self {
        let mut summary = Self::default();
        let mut total = 0.0;
        for d in distances {
            summary.positions += 1;
            total += d.kl;
            summary.max_kl = larger(summary.max_kl, d.kl);
            summary.max_difference = larger(summary.max_difference, d.max_difference);
            summary.top_agreements += usize::from(d.top_agrees);
        }
        if summary.positions > 0 {
            summary.mean_kl = total / summary.positions as f64;
        }
        summary
    }
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} positions: KL mean {:.3e}, worst {:.3e}; largest difference {:.3e}; top token \
             agrees at {}",
            self.positions, self.mean_kl, self.max_kl, self.max_difference, self.top_agreements
        )
    }
}

/// The larger of two; NaN if either is.
fn larger(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() {
        f64::NAN
    } else {
        a.max(b)
    }
}

/// `KL(softmax(p) ‖ softmax(q))` in nats, from logits.
///
/// With `d = ln P - ln Q` the sum is taken as `Σ P (d - 1 + exp(-d))`, which equals `Σ P d` because
/// both distributions sum to one, has no negative terms, and so keeps its digits when the two
/// are nearly equal. Where they are not, `P exp(-d)` is written as `Q`, which cannot overflow.
pub fn kl_divergence(p: &[f64], q: &[f64]) -> f64 {
    assert_eq!(p.len(), q.len(), "logits of unlike length");
    let (zp, zq) = (log_sum_exp(p), log_sum_exp(q));
    let term = |(a, b): (&f64, &f64)| {
        let (a, b) = (a - zp, b - zq);
        let d = a - b;
        if d.abs() < 1.0 {
            libm::exp(a) * (d + libm::expm1(-d))
        } else {
            libm::exp(a) * (d - 1.0) + libm::exp(b)
        }
    };
    p.iter().zip(q).map(term).sum()
}

/// `ln Σ exp(x)`, shifted by the maximum.
fn log_sum_exp(x: &[f64]) -> f64 {
    let max = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    max + libm::log(x.iter().map(|v| libm::exp(v - max)).sum())
}

/// The place of the largest value, the lowest on a tie; `None` for an empty slice or NaN in it.
pub fn top(logits: &[f64]) -> Option<usize> {
    let mut best: Option<usize> = None;
    for (i, v) in logits.iter().enumerate() {
        if v.is_nan() {
            return None;
        }
        if best.is_none_or(|b| *v > logits[b]) {
            best = Some(i);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_logits_have_no_distance_and_a_shift_changes_only_the_difference() {
        let d = Distance::between(&[1.0, 2.5, -3.0], &[1.0, 2.5, -3.0]);
        assert_eq!(
            d,
            Distance {
                kl: 0.0,
                max_difference: 0.0,
                top_agrees: true
            }
        );
        let d = Distance::between(&[2.0, 3.5, -2.0], &[1.0, 2.5, -3.0]);
        assert!(d.kl.abs() < 1e-30 && d.max_difference == 1.0 && d.top_agrees);
    }

    #[test]
    fn divergence_of_two_known_distributions() {
        // p = (1/2, 1/2), q = (1/4, 3/4): 1/2 ln 2 + 1/2 ln(2/3) = 1/2 ln(4/3).
        let (p, q) = ([0.0, 0.0], [0.0, libm::log(3.0)]);
        assert!((kl_divergence(&p, &q) - 0.5 * libm::log(4.0 / 3.0)).abs() < 1e-15);
        // The other way: 1/4 ln(1/2) + 3/4 ln(3/2).
        let wanted = 0.25 * libm::log(0.5) + 0.75 * libm::log(1.5);
        assert!((kl_divergence(&q, &p) - wanted).abs() < 1e-15);
    }

    #[test]
    fn tiny_divergence_keeps_its_digits() {
        // For a small step e in one of two equal logits KL is e² p (1 - p) / 2 = e² / 8.
        let kl = kl_divergence(&[0.0, 0.0], &[1e-9, 0.0]);
        assert!((kl / 1.25e-19 - 1.0).abs() < 1e-6, "{kl:e}");
    }

    #[test]
    fn huge_divergence_stays_finite() {
        // q holds the certain token for exp(-2000) likely.
        let kl = kl_divergence(&[2000.0, 0.0], &[0.0, 2000.0]);
        assert!((kl - 2000.0).abs() < 1e-9, "{kl}");
    }

    #[test]
    fn top_token_disagrees_when_another_leads() {
        let d = Distance::between(&[0.0, 1.0], &[1.0, 0.5]);
        assert!(!d.top_agrees && d.max_difference == 1.0);
        assert_eq!(top(&[3.0, 7.0, 7.0]), Some(1));
        assert_eq!(top(&[]), None);
    }

    #[test]
    fn summary_is_mean_worst_and_count() {
        let one = Distance {
            kl: 0.25,
            max_difference: 3.0,
            top_agrees: true,
        };
        let two = Distance {
            kl: 0.75,
            max_difference: 1.0,
            top_agrees: false,
        };
        let summary = Summary::of([one, two]);
        assert_eq!(
            summary,
            Summary {
                positions: 2,
                mean_kl: 0.5,
                max_kl: 0.75,
                max_difference: 3.0,
                top_agreements: 1
            }
        );
        assert_eq!(Summary::of([]), Summary::default());
    }

    #[test]
    fn not_a_number_is_never_lost() {
        let d = Distance::between(&[f32::NAN, 1.0], &[1.0, 1.0]);
        assert!(d.kl.is_nan() && d.max_difference.is_nan() && !d.top_agrees);
        let fine = Distance::between(&[1.0], &[1.0]);
        let summary = Summary::of([fine, d, fine]);
        assert!(summary.mean_kl.is_nan() && summary.max_kl.is_nan());
        assert!(summary.max_difference.is_nan());
    }
}
