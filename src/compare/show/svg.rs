//! The replay's plot as SVG: the largest logit difference and the Kullback-Leibler divergence by
//! position, each on a logarithmic axis of its own.

use super::replay::compared;
use crate::compare::report::{Position, Replay, Report};
use crate::plot::{Picture, Scale, Side};

/// Labels of an axis at most.
const TICKS: usize = 8;

/// The picture of a report's replay; none when it has none.
#[must_use]
pub fn draw(report: &Report) -> Option<String> {
    let replay = report.replay.as_ref()?;
    let (a, b) = compared(replay)?;
    let (first, last) = (replay.trail.first()?.index, replay.trail.last()?.index);
    let title = format!("{a} and {b} over the stream of {}", replay.stream);
    let mut svg = Drawing {
        picture: Picture::begin(&title),
        first,
        last,
    };
    svg.positions();
    svg.splits(replay);
    svg.series(0, "largest logit difference", &replay.trail, |one| {
        one.max_difference
    });
    svg.series(1, "KL divergence, nats", &replay.trail, |one| one.kl);
    svg.disagreements(&replay.trail);
    Some(svg.picture.end())
}

/// The picture, over positions from the first to the last.
struct Drawing {
    picture: Picture,
    first: usize,
    last: usize,
}

impl Drawing {
    fn x(&self, position: usize) -> f64 {
        let span = self.last.saturating_sub(self.first).max(1) as f64;
        position.saturating_sub(self.first) as f64 / span
    }

    /// The axis of positions.
    fn positions(&mut self) {
        let span = self.last.saturating_sub(self.first);
        let step = (span / TICKS).max(1);
        let ticks = (self.first..=self.last).step_by(step);
        let labels: Vec<_> = ticks
            .map(|position| (self.x(position), position.to_string()))
            .collect();
        self.picture.axis_below("generated token", &labels);
    }

    /// A dashed line where engines part, with the first of them.
    fn splits(&mut self, replay: &Replay) {
        let within = self.first..=self.last;
        for split in replay
            .splits
            .iter()
            .filter(|split| within.contains(&split.index))
        {
            let who = split.parting.join(", ");
            let title = format!("token {}: {who}", split.index);
            self.picture.mark(self.x(split.index), &who, &title);
        }
    }

    /// One line with its axis: the first one's at the left, the second one's at the right.
    fn series(&mut self, at: usize, name: &str, trail: &[Position], value: fn(&Position) -> f64) {
        let side = [Side::Left, Side::Right][at];
        let Some(scale) = Scale::of(trail.iter().map(value)) else {
            self.picture.axis(side, at, name, &[]);
            return;
        };
        let scale = scale.whole();
        let ticks = scale.ticks(TICKS).into_iter();
        let labels: Vec<_> = ticks
            .map(|tick| (scale.height(tick), format!("{tick:.0e}")))
            .collect();
        self.picture.axis(side, at, name, &labels);
        let place = |one: &Position| (self.x(one.index), scale.height(value(one)));
        let points: Vec<_> = trail.iter().map(place).collect();
        self.picture.line(at, &points);
    }

    /// A short stroke below the field wherever the top tokens differ.
    fn disagreements(&mut self, trail: &[Position]) {
        for position in trail.iter().filter(|position| !position.top_agrees) {
            let title = format!("token {}: other top tokens", position.index);
            self.picture.stroke_below(self.x(position.index), &title);
        }
    }
}
