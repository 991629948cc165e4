//! A plot of letters: bars of Braille dots over positions, on a logarithmic scale.

use super::number::short;
use crate::plot::Scale;

/// Lines of the bars, four dots each.
const ROWS: usize = 8;
/// Letters of a line at most, two dots each.
const COLUMNS: usize = 64;
/// Bits of a Braille letter's dots: by column, from the foot up.
const DOTS: [[u8; 4]; 2] = [[0x40, 0x04, 0x02, 0x01], [0x80, 0x20, 0x10, 0x08]];

/// The plot of values by position, in ascending order; `marks` are positions to point at. Nothing
/// when no value is above 0.
#[must_use]
pub fn draw(points: &[(usize, f64)], marks: &[usize]) -> Vec<String> {
    let (Some(scale), Some(&(first, _)), Some(&(last, _))) = (
        Scale::of(points.iter().map(|(_, value)| *value)),
        points.first(),
        points.last(),
    ) else {
        return Vec::new();
    };
    let span = last.saturating_sub(first).saturating_add(1);
    // A few positions have several columns each.
    let each = (COLUMNS / 2 / span).clamp(1, 4);
    let dots = span.saturating_mul(each).min(COLUMNS * 2);
    let column = |at: usize| {
        let at = at as u128 * dots as u128 / span as u128;
        usize::try_from(at).unwrap_or(dots)
    };
    // Of the positions in one column the worst is shown.
    let mut heights = vec![0; dots];
    for &(position, value) in points {
        let levels = (ROWS * 4 - 1) as f64;
        let height = match value == 0.0 {
            true => 0,
            false => 1 + (scale.height(value) * levels).round() as usize,
        };
        let at = position.saturating_sub(first).min(span - 1);
        let begin = column(at);
        let end = column(at + 1).max(begin + 1);
        for place in &mut heights[begin..end] {
            *place = height.max(*place);
        }
    }
    let labels = [short(scale.high), short(scale.low)];
    let width = labels.iter().map(String::len).max().unwrap_or(0);
    let mut lines = Vec::new();
    for row in 0..ROWS {
        let label = match row {
            0 => labels[0].as_str(),
            row if row == ROWS - 1 => &labels[1],
            _ => "",
        };
        lines.push(format!(
            "{label:>width$} │{}",
            bars(&heights, ROWS - 1 - row)
        ));
    }
    let letters = dots.div_ceil(2);
    lines.push(format!("{:width$} └{}", "", "─".repeat(letters)));
    let mut arrows = vec![' '; letters];
    for &mark in marks.iter().filter(|mark| (first..=last).contains(*mark)) {
        arrows[column(mark - first).min(dots - 1) / 2] = '^';
    }
    lines.push(format!("{:width$}  {}", "", String::from_iter(arrows)));
    let (begin, end) = (first.to_string(), last.to_string());
    let gap = letters.saturating_sub(begin.len() + end.len()).max(1);
    lines.push(format!("{:width$}  {begin}{:gap$}{end}", "", ""));
    lines
}

/// The letters of the line that is `row` lines above the foot.
fn bars(heights: &[usize], row: usize) -> String {
    let letter = |pair: &[usize]| {
        let mut bits = 0;
        for (&height, dots) in pair.iter().zip(DOTS) {
            let filled = height.saturating_sub(row * 4).min(4);
            bits |= dots[..filled].iter().fold(0, |bits, dot| bits | dot);
        }
        // Braille's letters are those from U+2800 on.
        char::from_u32(0x2800 + u32::from(bits)).unwrap_or(' ')
    };
    heights.chunks(2).map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_rise_by_decades_over_an_axis_with_marks() {
        // From 1 to 10^31 in 32 steps of one dot each.
        let points: Vec<(usize, f64)> = (0..32).map(|at| (at, 10f64.powi(at as i32))).collect();
        let lines = draw(&points, &[4, 31, 99]);
        assert_eq!(
            lines,
            [
                "1.0e31 │⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⣠⣾",
                "       │⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⣠⣾⣿⣿",
                "       │⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⣠⣾⣿⣿⣿⣿",
                "       │⠀⠀⠀⠀⠀⠀⠀⠀⣠⣾⣿⣿⣿⣿⣿⣿",
                "       │⠀⠀⠀⠀⠀⠀⣠⣾⣿⣿⣿⣿⣿⣿⣿⣿",
                "       │⠀⠀⠀⠀⣠⣾⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿",
                "       │⠀⠀⣠⣾⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿",
                "  1.00 │⣠⣾⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿",
                "       └────────────────",
                "          ^            ^",
                "        0             31",
            ]
        );
    }

    #[test]
    fn many_positions_share_columns_and_the_worst_is_seen() {
        let mut points: Vec<(usize, f64)> = (5..10_005).map(|at| (at, 0.0)).collect();
        points[7777].1 = 2.0;
        let lines = draw(&points, &[]);
        assert_eq!(lines.len(), ROWS + 3);
        assert!(lines[0].chars().count() <= COLUMNS + 8);
        let dots: Vec<char> = lines[0]
            .chars()
            .filter(|c| ('\u{2801}'..='\u{28ff}').contains(c))
            .collect();
        assert_eq!(dots.len(), 1);
        assert!(lines[ROWS + 2].ends_with("10004"), "{}", lines[ROWS + 2]);
    }

    #[test]
    fn nothing_to_show_is_nothing_and_odd_values_are_no_panic() {
        assert!(draw(&[], &[]).is_empty());
        assert!(draw(&[(0, 0.0), (1, f64::NAN)], &[0]).is_empty());
        let odd = [
            (0, f64::NAN),
            (1, f64::INFINITY),
            (2, -1.0),
            (usize::MAX, 1e-300),
        ];
        assert_eq!(draw(&odd, &[usize::MAX]).len(), ROWS + 3);
        assert_eq!(draw(&[(3, 1.0)], &[3]).len(), ROWS + 3);
    }
}
