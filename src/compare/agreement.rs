//! How far two engines' logits lie apart, position by position.

use std::thread;

use super::report::{Agreement, Summary};
use crate::oracle::compare::{Distance, top};

/// Two logits vectors of one position, `[n_vocab]` each.
pub type Rows<'a> = (&'a [f64], &'a [f32]);

/// What is kept of one position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Apart {
    /// KL(other ‖ this), the largest difference, whether the top tokens agree.
    pub distance: Distance,
    /// Where they do not: by how much the other's top token lies behind this one's, in logits here.
    pub margin: Option<f64>,
}

impl Apart {
    /// Compares this engine's logits with the other's.
    pub fn of((other, this): Rows<'_>) -> Self {
        let distance = Distance::between(this, other);
        let behind = || {
            let wanted = f64::from(this[top(other)?]);
            let best = this.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            Some(f64::from(best) - wanted)
        };
        let margin = (!distance.top_agrees).then(behind).flatten();
        Apart { distance, margin }
    }

    /// Compares many positions, shared out over the processor's cores.
    pub fn of_all(pairs: &[Rows<'_>]) -> Vec<Self> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let each = pairs.len().div_ceil(cores).max(1);
        thread::scope(|scope| {
            let work = |part: &[Rows<'_>]| part.iter().copied().map(Apart::of).collect::<Vec<_>>();
            let mut parts = pairs.chunks(each);
            let first = parts.next().unwrap_or_default();
            let others: Vec<_> = parts.map(|part| scope.spawn(move || work(part))).collect();
            let mut all = work(first);
            for other in others {
                match other.join() {
                    Ok(part) => all.extend(part),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            all
        })
    }
}

/// What many positions have in common.
pub fn agreement(all: &[Apart]) -> Agreement {
    Agreement {
        positions: all.len(),
        disagreements: all.iter().filter(|one| !one.distance.top_agrees).count(),
        margins: all.iter().filter_map(|one| one.margin).collect(),
        kl: summary(all.iter().map(|one| one.distance.kl)),
        max_difference: summary(all.iter().map(|one| one.distance.max_difference)),
    }
}

/// Mean, median, 99th percentile (nearest rank) and the largest; NaN if any is.
pub fn summary(values: impl Iterator<Item = f64>) -> Summary {
    let mut sorted: Vec<f64> = values.collect();
    if sorted.is_empty() {
        return Summary::default();
    }
    sorted.sort_by(f64::total_cmp);
    let mean = sorted.iter().sum::<f64>() / sorted.len() as f64;
    if mean.is_nan() {
        let (p50, p99, worst) = (mean, mean, mean);
        return Summary {
            mean,
            p50,
            p99,
            worst,
        };
    }
    let rank = |percent: usize| sorted[(sorted.len() * percent).div_ceil(100).max(1) - 1];
    Summary {
        mean,
        p50: rank(50),
        p99: rank(99),
        worst: sorted[sorted.len() - 1],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let s = summary((1..=200).map(f64::from));
        assert_eq!(
            (s.mean, s.p50, s.p99, s.worst),
            (100.5, 100.0, 198.0, 200.0)
        );
        let one = summary([7.0].into_iter());
        assert_eq!(
            (one.mean, one.p50, one.p99, one.worst),
            (7.0, 7.0, 7.0, 7.0)
        );
        assert_eq!(summary(std::iter::empty()), Summary::default());
        assert!(summary([1.0, f64::NAN].into_iter()).worst.is_nan());
    }

    #[test]
    fn disagreements_are_counted_with_their_margins() {
        let other = [[1.0, 3.0, 2.0], [0.0, 0.0, 5.0], [4.0, 0.0, 0.0]];
        let this = [[1.0_f32, 2.5, 2.75], [0.0, 0.0, 5.0], [4.0, 0.0, 0.0]];
        let pairs: Vec<Rows<'_>> = other
            .iter()
            .zip(&this)
            .map(|(other, this)| (&other[..], &this[..]))
            .collect();
        let all = Apart::of_all(&pairs);
        let found = agreement(&all);
        assert_eq!((found.positions, found.disagreements), (3, 1));
        assert_eq!(found.margins, [0.25]);
        assert_eq!(found.max_difference.worst, 0.75);
        assert!(found.kl.worst > 0.0 && found.kl.p50 < 1e-15);
    }
}
