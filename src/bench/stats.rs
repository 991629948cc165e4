//! Samples of one quantity and what is said of them.

use serde::{Deserialize, Serialize};

/// Samples and their summary. All are of one unit; at least one sample, all of them finite.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Samples {
    /// The least: what is possible when nothing disturbs it.
    pub min: f64,
    /// The middle one, or the mean of the two in the middle: what is to be expected.
    pub median: f64,
    /// The arithmetic mean.
    pub mean: f64,
    /// The greatest.
    pub max: f64,
    /// Standard deviation of the sample (divided by n - 1); 0 for one sample.
    pub stddev: f64,
    /// All of them, in the order in which they were taken.
    pub samples: Vec<f64>,
}

impl Samples {
    /// Summarizes samples; none when there are none, or when one is not finite.
    #[must_use]
    pub fn new(samples: Vec<f64>) -> Option<Samples> {
        if samples.is_empty() || samples.iter().any(|sample| !sample.is_finite()) {
            return None;
        }
        let count = samples.len() as f64;
        let mean = samples.iter().sum::<f64>() / count;
        let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
        let stddev = match samples.len() {
            1 => 0.0,
            _ => (squares / (count - 1.0)).sqrt(),
        };
        Some(Samples {
            min: samples.iter().copied().fold(f64::INFINITY, f64::min),
            median: median(&samples)?,
            mean,
            max: samples.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            stddev,
            samples,
        })
    }

    /// Summarizes whole nanoseconds.
    #[must_use]
    pub fn of_ns(samples: &[u64]) -> Option<Samples> {
        Samples::new(samples.iter().map(|&ns| ns as f64).collect())
    }
}

/// Median of pairs' ratios, with their spread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// The middle ratio.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
    /// The ratio of each pair, in the order in which they were measured.
    pub samples: Vec<f64>,
}

impl Ratio {
    /// How many times faster than the other EMEL was, pair by pair: the other's time over EMEL's.
    /// Samples are paired in order; those without a partner are left out. None when no pair is
    /// left or a time is not above 0.
    #[must_use]
    pub fn of_speed(emel_ns: &[f64], other_ns: &[f64]) -> Option<Ratio> {
        let pairs = emel_ns.iter().zip(other_ns);
        let ratios = pairs.map(|(&emel, &other)| (emel > 0.0 && other > 0.0).then(|| other / emel));
        let all = Samples::new(ratios.collect::<Option<_>>()?)?;
        Some(Ratio {
            median: all.median,
            min: all.min,
            max: all.max,
            samples: all.samples,
        })
    }
}

/// The middle value; none of an empty list.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    match sorted.len() % 2 {
        1 => Some(upper),
        _ => Some((sorted[sorted.len() / 2 - 1] + upper) / 2.0),
    }
}

/// How far each value lies from the median, in robust standard deviations: 0.6745 times its
/// distance over the median of all distances (Iglewicz and Hoaglin, 1993). That median is taken as
/// at least a two-hundredth of the values' own, below which differences mean nothing here.
#[must_use]
pub fn modified_z_scores(values: &[f64]) -> Vec<f64> {
    let Some(middle) = median(values) else {
        return Vec::new();
    };
    let distances: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    let spread = median(&distances).unwrap_or(0.0).max(middle.abs() / 200.0);
    if spread == 0.0 {
        return vec![0.0; values.len()];
    }
    let score = |value: &f64| 0.6745 * (value - middle) / spread;
    values.iter().map(score).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_says_what_the_samples_say() {
        let all = Samples::new(vec![4.0, 1.0, 2.0, 9.0]).unwrap();
        assert_eq!(
            (all.min, all.median, all.mean, all.max),
            (1.0, 3.0, 4.0, 9.0)
        );
        // Squares of the distances: 0, 9, 4, 25.
        assert!((all.stddev - (38.0f64 / 3.0).sqrt()).abs() < 1e-12);
        assert_eq!(all.samples, [4.0, 1.0, 2.0, 9.0]);
        let one = Samples::of_ns(&[7]).unwrap();
        assert_eq!(
            (one.min, one.median, one.max, one.stddev),
            (7.0, 7.0, 7.0, 0.0)
        );
        assert_eq!(Samples::new(vec![]), None);
        assert_eq!(Samples::new(vec![1.0, f64::NAN]), None);
    }

    #[test]
    fn a_ratio_is_of_pairs() {
        // The machine becomes half as fast after the first pair; the ratio does not.
        let ratio = Ratio::of_speed(&[10.0, 20.0, 20.0], &[15.0, 30.0, 32.0, 99.0]).unwrap();
        assert_eq!(ratio.samples, [1.5, 1.5, 1.6]);
        assert_eq!((ratio.min, ratio.median, ratio.max), (1.5, 1.5, 1.6));
        assert_eq!(Ratio::of_speed(&[], &[1.0]), None);
        assert_eq!(Ratio::of_speed(&[0.0], &[1.0]), None);
    }

    #[test]
    fn scores_single_out_what_is_far() {
        let scores = modified_z_scores(&[100.0, 101.0, 99.0, 100.0, 180.0]);
        assert!(scores[4] > 50.0 && scores[..4].iter().all(|score| score.abs() < 2.0));
        assert_eq!(modified_z_scores(&[0.0, 0.0]), [0.0, 0.0]);
        assert!(modified_z_scores(&[]).is_empty());
    }
}
