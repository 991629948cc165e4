//! A curve as a picture: points with their range, and the straight line through each engine's.

use super::data::{Curve, Subject};
use super::fit::Fit;
use crate::plot::{Linear, Picture, Side};

/// Labels of an axis at most.
const TICKS: usize = 8;

/// Units in which a subject is shown: what one of x and of y is, and their names.
pub(super) struct Units {
    pub x: f64,
    pub y: f64,
    pub x_name: &'static str,
    pub y_name: &'static str,
}

impl Subject {
    pub(super) fn units(self) -> Units {
        let (x, y, x_name, y_name) = match self {
            Subject::Prefill => (1.0, 1e3, "tokens of the prompt", "µs a prompt token"),
            Subject::Decode => (1.0, 1e6, "tokens before it", "ms a generated token"),
            Subject::Load => (1e9, 1e6, "file, GB", "ms a load"),
        };
        Units {
            x,
            y,
            x_name,
            y_name,
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Subject::Prefill => "Prefill by length of the prompt",
            Subject::Decode => "Decode by depth",
            Subject::Load => "Load by size of the file",
        }
    }
}

/// The title of a curve.
pub(super) fn title(curve: &Curve) -> String {
    let subject = curve.subject.title();
    match &curve.model {
        Some(model) => format!("{subject}: {model}, {}", curve.lane),
        None => format!("{subject}: {}", curve.lane),
    }
}

/// The picture; a point's words are shown by a pointer on it.
#[must_use]
pub fn draw(curve: &Curve) -> String {
    let units = curve.subject.units();
    let mut picture = Picture::begin(&title(curve));
    let all = || curve.lines.iter().flat_map(|line| &line.points);
    let across = Linear::of(all().map(|point| point.x / units.x), TICKS);
    let up = Linear::of(all().map(|point| point.range.1 / units.y), TICKS);
    let (Some(across), Some(up)) = (across, up) else {
        return picture.end();
    };
    let labels = |axis: Linear| {
        let ticks = axis.ticks().into_iter();
        let labels = ticks.map(|tick| (axis.place(tick), number(tick, axis.step)));
        labels.collect::<Vec<_>>()
    };
    picture.axis_below(units.x_name, &labels(across));
    // In no line's colour: the axis is all lines'.
    picture.axis(Side::Left, 5, units.y_name, &labels(up));
    for (at, line) in curve.lines.iter().enumerate() {
        let place = |x: f64, y: f64| (across.place(x / units.x), up.place(y / units.y));
        let points: Vec<(f64, f64)> = line.points.iter().map(|one| (one.x, one.y)).collect();
        if let Some(fit) = Fit::of(&points) {
            // From where both are in the field.
            let begin = match fit.at_zero < 0.0 && fit.slope > 0.0 {
                true => -fit.at_zero / fit.slope,
                false => 0.0,
            };
            let end = points.last().map_or(0.0, |point| point.0);
            picture.dashed(at, place(begin, fit.at(begin)), place(end, fit.at(end)));
        }
        for point in &line.points {
            let where_ = place(point.x, point.y);
            let range = (
                up.place(point.range.0 / units.y),
                up.place(point.range.1 / units.y),
            );
            let label = match point.label.as_str() {
                "" => line.engine.clone(),
                label => format!("{} {label}", line.engine),
            };
            let (x, y) = (point.x / units.x, point.y / units.y);
            let words = format!("{label}: {y:.3} at {x}");
            picture.point(at, where_, range, &words);
        }
        picture.legend(at, &line.engine);
    }
    picture.end()
}

/// With as many digits behind the point as the step needs.
fn number(value: f64, step: f64) -> String {
    let digits = (-step.log10().floor()).clamp(0.0, 6.0) as usize;
    format!("{value:.digits$}")
}
