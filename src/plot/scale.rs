//! Axes: logarithmic, and linear from 0.

/// The range of an axis: 0 and less lie at its foot, infinity and what is no number at its head.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// The least value that has a logarithm.
    pub low: f64,
    /// The largest.
    pub high: f64,
}

impl Scale {
    /// The range of these values; none when none of them is a positive number.
    #[must_use]
    pub fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let numbers = values.filter(|value| value.is_finite() && *value > 0.0);
        numbers.fold(None, |scale: Option<Scale>, value| {
            let scale = scale.unwrap_or(Scale {
                low: value,
                high: value,
            });
            Some(Scale {
                low: scale.low.min(value),
                high: scale.high.max(value),
            })
        })
    }

    /// The same, widened to whole powers of ten.
    #[must_use]
    pub fn whole(self) -> Self {
        let low = 10f64.powf(self.low.log10().floor());
        let high = 10f64.powf(self.high.log10().ceil());
        Scale {
            low,
            high: high.max(low * 10.0),
        }
    }

    /// How far up the axis a value lies, from 0 to 1.
    #[must_use]
    pub fn height(self, value: f64) -> f64 {
        if value <= 0.0 {
            return 0.0;
        }
        let decades = (self.high / self.low).log10();
        let above = (value / self.low).log10();
        let share = (above / decades).clamp(0.0, 1.0);
        match decades > 0.0 && !share.is_nan() {
            true => share,
            // NaN ends up at the head: something is wrong there.
            false => 1.0,
        }
    }

    /// The powers of ten within the range, at most about `most` of them.
    #[must_use]
    pub fn ticks(self, most: usize) -> Vec<f64> {
        let (low, high) = (
            self.low.log10().ceil() as i32,
            self.high.log10().floor() as i32,
        );
        let span = usize::try_from(high - low).unwrap_or(0);
        let step = span.div_ceil(most.max(1)).max(1);
        (low..=high)
            .step_by(step)
            .map(|power| 10f64.powi(power))
            .collect()
    }
}

/// A linear axis from 0 to a round number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Linear {
    /// Its end, a multiple of the step.
    pub high: f64,
    /// From one label to the next: 1, 2 or 5 times a power of ten.
    pub step: f64,
}

impl Linear {
    /// An axis that holds these values with at most `most` labels after the first; none when none
    /// of them is a positive number.
    #[must_use]
    pub fn of(values: impl Iterator<Item = f64>, most: usize) -> Option<Self> {
        let Scale { high, .. } = Scale::of(values)?;
        let rough = high / most.max(1) as f64;
        let power = 10f64.powf(rough.log10().floor());
        let factors = [1.0, 2.0, 5.0, 10.0];
        let step = factors.into_iter().map(|factor| factor * power);
        let step = step.clone().find(|step| *step >= rough * (1.0 - 1e-9));
        let step = step.unwrap_or(10.0 * power);
        let steps = (high / step - 1e-9).ceil().max(1.0);
        Some(Linear {
            high: steps * step,
            step,
        })
    }

    /// How far along the axis a value lies, from 0 to 1.
    #[must_use]
    pub fn place(self, value: f64) -> f64 {
        let share = (value / self.high).clamp(0.0, 1.0);
        if share.is_nan() { 1.0 } else { share }
    }

    /// The values to label.
    #[must_use]
    pub fn ticks(self) -> Vec<f64> {
        let count = (self.high / self.step).round() as usize;
        (0..=count).map(|at| at as f64 * self.step).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heights_go_by_decades_and_stay_within() {
        let scale = Scale::of([0.0, 0.01, 1.0, f64::INFINITY, f64::NAN].into_iter()).unwrap();
        assert_eq!(
            scale,
            Scale {
                low: 0.01,
                high: 1.0
            }
        );
        let heights =
            [-1.0, 0.0, 0.001, 0.1, 1.0, f64::INFINITY, f64::NAN].map(|v| scale.height(v));
        for (height, expected) in heights.into_iter().zip([0.0, 0.0, 0.0, 0.5, 1.0, 1.0, 1.0]) {
            assert!((height - expected).abs() < 1e-12, "{heights:?}");
        }
        assert_eq!(Scale::of([0.0, f64::NAN].into_iter()), None);
        let one = Scale {
            low: 2.0,
            high: 2.0,
        };
        assert_eq!((one.height(2.0), one.height(0.0)), (1.0, 0.0));
    }

    #[test]
    fn axes_end_at_powers_of_ten() {
        let scale = Scale {
            low: 0.02,
            high: 3.0,
        }
        .whole();
        assert!((scale.low - 0.01).abs() < 1e-15 && (scale.high - 10.0).abs() < 1e-12);
        let one = Scale {
            low: 1.0,
            high: 1.0,
        }
        .whole();
        assert_eq!((one.low, one.high), (1.0, 10.0));
        assert_eq!(
            Scale {
                low: 1e-4,
                high: 1e4
            }
            .ticks(3),
            [1e-4, 1e-1, 1e2]
        );
        assert_eq!(one.ticks(8), [1.0, 10.0]);
    }

    #[test]
    fn linear_axes_begin_at_0_and_end_at_round_numbers() {
        let of = |high: f64| Linear::of([1.0, high, f64::NAN].into_iter(), 8).unwrap();
        let axis = of(16_384.0);
        assert_eq!((axis.high, axis.step), (20_000.0, 5000.0));
        assert_eq!(axis.ticks(), [0.0, 5000.0, 10_000.0, 15_000.0, 20_000.0]);
        assert_eq!((of(8.0).step, of(8.0).high), (1.0, 8.0));
        assert_eq!((of(9.0).step, of(9.0).high), (2.0, 10.0));
        let places = [-1.0, 0.0, 5000.0, 1e9, f64::NAN].map(|value| axis.place(value));
        assert_eq!(places, [0.0, 0.0, 0.25, 1.0, 1.0]);
        assert_eq!(Linear::of([0.0].into_iter(), 8), None);
    }
}
