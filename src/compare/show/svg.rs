//! The replay's plot as SVG: the largest logit difference and the Kullback-Leibler divergence by
//! position, each on a logarithmic axis of its own.

use std::fmt::Write;

use super::page::printable;
use super::replay::compared;
use super::scale::Scale;
use crate::compare::report::{Position, Replay, Report};

/// The picture, in units of a pixel.
const SIZE: (f64, f64) = (900.0, 420.0);
/// The field of the lines: left, top, right, bottom.
const FIELD: (f64, f64, f64, f64) = (80.0, 60.0, 820.0, 350.0);
/// Colours of the two lines.
const COLOURS: [&str; 2] = ["#1f5fa8", "#c4541c"];
/// Labels of an axis at most.
const TICKS: usize = 8;

/// The picture of a report's replay; none when it has none.
#[must_use]
pub fn draw(report: &Report) -> Option<String> {
    let replay = report.replay.as_ref()?;
    let (a, b) = compared(replay)?;
    let (first, last) = (replay.trail.first()?.index, replay.trail.last()?.index);
    let mut svg = Picture {
        text: String::new(),
        first,
        last,
    };
    svg.begin(&format!("{a} and {b} over the stream of {}", replay.stream));
    svg.positions();
    svg.splits(replay);
    svg.series(0, "largest logit difference", &replay.trail, |one| {
        one.max_difference
    });
    svg.series(1, "KL divergence, nats", &replay.trail, |one| one.kl);
    svg.disagreements(&replay.trail);
    svg.put("</svg>\n");
    Some(svg.text)
}

struct Picture {
    text: String,
    first: usize,
    last: usize,
}

/// What may stand in an XML document, with what is markup there escaped.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for letter in printable(text).chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            letter => out.push(letter),
        }
    }
    out
}

impl Picture {
    fn put(&mut self, what: &str) {
        self.text.push_str(what);
    }

    fn line(&mut self, what: std::fmt::Arguments<'_>) {
        // Formatting into a string has no failure.
        let _ = writeln!(self.text, "{what}");
    }

    fn x(&self, position: usize) -> f64 {
        let (left, _, right, _) = FIELD;
        let span = self.last.saturating_sub(self.first).max(1) as f64;
        left + position.saturating_sub(self.first) as f64 / span * (right - left)
    }

    fn begin(&mut self, title: &str) {
        let (width, height) = SIZE;
        let (left, top, right, bottom) = FIELD;
        let title = escaped(title);
        self.line(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             font-family=\"sans-serif\" font-size=\"12\">"
        ));
        self.line(format_args!("<title>{title}</title>"));
        self.line(format_args!(
            "<rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>"
        ));
        self.line(format_args!(
            "<text x=\"{left}\" y=\"26\" font-size=\"15\" fill=\"#222222\">{title}</text>"
        ));
        self.line(format_args!(
            "<rect x=\"{left}\" y=\"{top}\" width=\"{}\" height=\"{}\" fill=\"none\" \
             stroke=\"#888888\"/>",
            right - left,
            bottom - top
        ));
    }

    /// The axis of positions.
    fn positions(&mut self) {
        let (left, _, right, bottom) = FIELD;
        let span = self.last.saturating_sub(self.first);
        let step = (span / TICKS).max(1);
        let ticks = (self.first..=self.last).step_by(step);
        for position in ticks {
            let (x, y) = (self.x(position), bottom + 18.0);
            self.line(format_args!(
                "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\" fill=\"#444444\">{position}</text>"
            ));
        }
        let (x, y) = (f64::midpoint(left, right), bottom + 40.0);
        self.line(format_args!(
            "<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\" fill=\"#222222\">generated token</text>"
        ));
    }

    /// A dashed line where engines part, with the first of them.
    fn splits(&mut self, replay: &Replay) {
        let (_, top, _, bottom) = FIELD;
        let within = self.first..=self.last;
        for split in replay
            .splits
            .iter()
            .filter(|split| within.contains(&split.index))
        {
            let x = self.x(split.index);
            let who = escaped(&split.parting.join(", "));
            let index = split.index;
            self.line(format_args!(
                "<line x1=\"{x:.1}\" y1=\"{top}\" x2=\"{x:.1}\" y2=\"{bottom}\" stroke=\"#777777\" \
                 stroke-dasharray=\"5 4\"><title>token {index}: {who}</title></line>"
            ));
            self.line(format_args!(
                "<text x=\"{:.1}\" y=\"{}\" font-size=\"10\" fill=\"#777777\" \
                 transform=\"rotate(-90 {:.1} {})\">{who}</text>",
                x - 3.0,
                bottom - 4.0,
                x - 3.0,
                bottom - 4.0
            ));
        }
    }

    /// One line with its axis: the first one's at the left, the second one's at the right.
    fn series(&mut self, at: usize, name: &str, trail: &[Position], value: fn(&Position) -> f64) {
        let (left, top, right, bottom) = FIELD;
        let colour = COLOURS[at];
        let (edge, anchor) = [(left - 6.0, "end"), (right + 6.0, "start")][at];
        self.line(format_args!(
            "<text x=\"{edge}\" y=\"{}\" text-anchor=\"{anchor}\" fill=\"{colour}\" \
             font-weight=\"bold\" dx=\"{}\">{name}</text>",
            top - 10.0,
            [110, -110][at]
        ));
        let Some(scale) = Scale::of(trail.iter().map(value)) else {
            return;
        };
        let scale = scale.whole();
        let y = |value: f64| bottom - scale.height(value) * (bottom - top);
        for tick in scale.ticks(TICKS) {
            self.line(format_args!(
                "<text x=\"{edge}\" y=\"{:.1}\" text-anchor=\"{anchor}\" fill=\"{colour}\">{tick:.0e}</text>",
                y(tick) + 4.0
            ));
        }
        let mut points = String::new();
        for position in trail {
            let _ = write!(
                points,
                "{:.1},{:.1} ",
                self.x(position.index),
                y(value(position))
            );
        }
        self.line(format_args!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.3\"/>",
            points.trim_end()
        ));
    }

    /// A short stroke below the field wherever the top tokens differ.
    fn disagreements(&mut self, trail: &[Position]) {
        let (_, _, _, bottom) = FIELD;
        for position in trail.iter().filter(|position| !position.top_agrees) {
            let x = self.x(position.index);
            let index = position.index;
            self.line(format_args!(
                "<line x1=\"{x:.1}\" y1=\"{bottom}\" x2=\"{x:.1}\" y2=\"{}\" stroke=\"#b00020\" \
                 stroke-width=\"2\"><title>token {index}: other top tokens</title></line>",
                bottom + 5.0
            ));
        }
    }
}
