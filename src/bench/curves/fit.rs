//! A straight line through points.

/// The line `at_zero + slope * x` with the least squared distances, and how far points lie from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// The line's value at 0.
    pub at_zero: f64,
    /// What it rises by 1.
    pub slope: f64,
    /// The root of the mean squared distance, as a part of the mean value.
    pub residual: f64,
    /// The largest distance, as a part of the point's value.
    pub worst: f64,
    /// The x of that point.
    pub worst_at: f64,
}

impl Fit {
    /// The line through at least two points `(x, y)` of two different x and y above 0; none for
    /// others.
    #[must_use]
    pub fn of(points: &[(f64, f64)]) -> Option<Fit> {
        let count = points.len() as f64;
        let usable = |&(x, y): &(f64, f64)| x.is_finite() && y.is_finite() && y > 0.0;
        if points.len() < 2 || !points.iter().all(usable) {
            return None;
        }
        let mean_x = points.iter().map(|(x, _)| x).sum::<f64>() / count;
        let mean_y = points.iter().map(|(_, y)| y).sum::<f64>() / count;
        let spread: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
        if spread == 0.0 {
            return None;
        }
        let shared = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y));
        let slope = shared.sum::<f64>() / spread;
        let at_zero = mean_y - slope * mean_x;
        let distance = |&(x, y): &(f64, f64)| y - (at_zero + slope * x);
        let squares: f64 = points.iter().map(|point| distance(point).powi(2)).sum();
        let parts = points
            .iter()
            .map(|point| (distance(point).abs() / point.1, point.0));
        let (worst, worst_at) = parts.max_by(|a, b| a.0.total_cmp(&b.0))?;
        Some(Fit {
            at_zero,
            slope,
            residual: (squares / count).sqrt() / mean_y,
            worst,
            worst_at,
        })
    }

    /// The line's value.
    #[must_use]
    pub fn at(&self, x: f64) -> f64 {
        self.at_zero + self.slope * x
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_and_a_bend_is_measured() {
        let line = Fit::of(&[(0.0, 1.0), (1.0, 3.0), (4.0, 9.0)]).unwrap();
        assert!((line.at_zero - 1.0).abs() < 1e-12 && (line.slope - 2.0).abs() < 1e-12);
        assert!(line.residual < 1e-12 && line.worst < 1e-12);
        assert!((line.at(10.0) - 21.0).abs() < 1e-9);
        let bent = Fit::of(&[(0.0, 2.0), (1.0, 1.0), (2.0, 2.0)]).unwrap();
        assert!((bent.slope).abs() < 1e-12 && (bent.at_zero - 5.0 / 3.0).abs() < 1e-12);
        // Distances 1/3, 2/3, 1/3 about a mean of 5/3.
        assert!((bent.residual - (6.0f64 / 9.0 / 3.0).sqrt() / (5.0 / 3.0)).abs() < 1e-12);
        assert!((bent.worst - 2.0 / 3.0).abs() < 1e-12 && bent.worst_at == 1.0);
    }

    #[test]
    fn no_line_without_two_places() {
        for points in [
            &[][..],
            &[(1.0, 1.0)],
            &[(1.0, 1.0), (1.0, 2.0)],
            &[(1.0, f64::NAN), (2.0, 1.0)],
            &[(1.0, 0.0), (2.0, 1.0)],
        ] {
            assert_eq!(Fit::of(points), None);
        }
    }
}
