//! The page about curves: pictures, tables of their points, and how straight they are.

use super::data::{Curve, Line, Subject};
use super::draw::title;
use super::fit::Fit;
use crate::bench::report::{Align, Format, Grid, rate};

/// The page, without what stands above it. Pictures are named within the folder `link`.
#[must_use]
pub fn page(curves: &[Curve], link: &str) -> String {
    let mut text = String::new();
    let mut origin: Vec<&String> = Vec::new();
    for line in curves.iter().flat_map(|curve| &curve.origin) {
        if !origin.contains(&line) {
            origin.push(line);
        }
    }
    for line in origin {
        text += &format!("- {line}\n");
    }
    for curve in curves {
        let title = title(curve);
        let name = &curve.name;
        text += &format!("\n## {title}\n\n![{title}]({link}/{name}.svg)\n\n");
        text += &points(curve).render(Format::Md);
        text.push('\n');
        for line in &curve.lines {
            text += &format!("- {}: {}\n", line.engine, straightness(curve, line));
        }
    }
    text
}

fn points(curve: &Curve) -> Grid {
    let units = curve.subject.units();
    let mut columns: Vec<(String, Align)> = Vec::new();
    if curve.subject == Subject::Load {
        columns.push(("model".to_owned(), Align::Left));
    }
    columns.push((units.x_name.to_owned(), Align::Right));
    for line in &curve.lines {
        columns.push((format!("{}, {}", line.engine, units.y_name), Align::Right));
    }
    let borrowed: Vec<(&str, Align)> = columns
        .iter()
        .map(|(name, side)| (&**name, *side))
        .collect();
    let mut grid = Grid::new(&borrowed);
    let mut all: Vec<(f64, &str)> = Vec::new();
    for point in curve.lines.iter().flat_map(|line| &line.points) {
        // Two models may be of one size; a point's other labels are configurations.
        let label = match curve.subject {
            Subject::Load => point.label.as_str(),
            _ => "",
        };
        if !all.contains(&(point.x, label)) {
            all.push((point.x, label));
        }
    }
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    for (x, label) in all {
        let mut row = Vec::new();
        if curve.subject == Subject::Load {
            row.push(label.to_owned());
        }
        row.push(match curve.subject {
            Subject::Load => format!("{:.3}", x / units.x),
            _ => format!("{:.0}", x / units.x),
        });
        for line in &curve.lines {
            let of = |point: &&super::data::Point| {
                point.x == x && (label.is_empty() || point.label == label)
            };
            let point = line.points.iter().find(of);
            row.push(point.map_or("-".to_owned(), |point| {
                let number = |ns: f64| rate(Some(ns / units.y));
                let (least, most) = point.range;
                format!("{} ({}-{})", number(point.y), number(least), number(most))
            }));
        }
        grid.push(row);
    }
    grid
}

/// `8.12 ms + 0.412 ms per 1000 tokens; points lie 1.2 % from this line (root mean square), the
/// farthest 3.0 %, at 64`.
fn straightness(curve: &Curve, line: &Line) -> String {
    let points: Vec<(f64, f64)> = line.points.iter().map(|one| (one.x, one.y)).collect();
    let Some(fit) = Fit::of(&points) else {
        return "no straight line".to_owned();
    };
    let units = curve.subject.units();
    let (unit, step, each) = match curve.subject {
        Subject::Prefill => ("µs", 1e3, "1000 tokens"),
        Subject::Decode => ("ms", 1e3, "1000 tokens"),
        Subject::Load => ("ms", 1e9, "GB"),
    };
    let (at_zero, slope) = (fit.at_zero / units.y, fit.slope * step / units.y);
    // Not "-0.000".
    let at_zero = if at_zero.abs() < 5e-4 { 0.0 } else { at_zero };
    let sign = if slope < 0.0 { '-' } else { '+' };
    let worst_at = match curve.subject {
        Subject::Load => format!("{:.3} GB", fit.worst_at / units.x),
        _ => format!("{:.0}", fit.worst_at),
    };
    format!(
        "{at_zero:.3} {unit} {sign} {:.3} {unit} per {each}; its {} points lie {:.1} % from this \
         line (root mean square, of their mean), the farthest {:.1} % of its value, at {worst_at}",
        slope.abs(),
        points.len(),
        100.0 * fit.residual,
        100.0 * fit.worst
    )
}
