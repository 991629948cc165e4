//! A logarithmic axis.

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
}
