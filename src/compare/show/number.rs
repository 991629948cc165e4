//! Numbers for people.

/// Three significant digits; very large and very small ones as `1.2e-7`.
#[must_use]
pub fn short(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if value.is_nan() => "NaN".to_owned(),
        _ if value.is_infinite() => if value > 0.0 { "inf" } else { "-inf" }.to_owned(),
        0.0 => "0".to_owned(),
        _ if !(0.001..1e5).contains(&size) => format!("{value:.1e}"),
        _ if size < 0.01 => format!("{value:.5}"),
        _ if size < 0.1 => format!("{value:.4}"),
        _ if size < 1.0 => format!("{value:.3}"),
        _ if size < 100.0 => format!("{value:.2}"),
        _ => format!("{value:.0}"),
    }
}

/// The same, with its sign.
#[must_use]
pub fn signed(value: f64) -> String {
    match value > 0.0 {
        true => format!("+{}", short(value)),
        false => short(value),
    }
}

/// The same, or a dash.
#[must_use]
pub fn or_dash(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), short)
}

/// A share, as a percentage.
#[must_use]
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_or_a_power() {
        let cases = [
            (0.0, "0"),
            (-0.25, "-0.250"),
            (3.702_4e-3, "0.00370"),
            (3.702_4e-4, "3.7e-4"),
            (12.345, "12.35"),
            (1234.5, "1234"),
            (1.5e6, "1.5e6"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "NaN"),
        ];
        for (value, text) in cases {
            assert_eq!(short(value), text);
        }
        assert_eq!(
            (signed(0.5), signed(-0.5), signed(0.0)),
            ("+0.500".into(), "-0.500".into(), "0".into())
        );
        assert_eq!(
            (or_dash(None), percent(0.0703)),
            ("-".into(), "7.0 %".into())
        );
    }
}
