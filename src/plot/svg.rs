//! A picture as SVG: a field with axes, and lines and points in it.
//!
//! Places in the field are shares: 0 is its left or foot, 1 its right or head.

use std::fmt::{Arguments, Write};

/// The picture, in units of a pixel.
const SIZE: (f64, f64) = (900.0, 420.0);
/// The field of the lines: left, top, right, bottom.
const FIELD: (f64, f64, f64, f64) = (80.0, 60.0, 820.0, 350.0);
/// Colours of lines.
const COLOURS: [&str; 6] = [
    "#1f5fa8", "#c4541c", "#2d7d46", "#7b4fa3", "#8a6d1b", "#555555",
];

/// The side of the field that an axis is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The left.
    Left,
    /// The right.
    Right,
}

/// A picture that is being drawn.
#[derive(Debug)]
pub struct Picture {
    text: String,
    legends: usize,
}

/// A text from elsewhere with everything escaped that a terminal would obey or that would not be
/// seen: names of engines and errors of backends are not ours.
#[must_use]
pub fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '"' | '\'' | '\\' => out.push(letter),
            _ => out.extend(letter.escape_debug()),
        }
    }
    out
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

/// The colour of the line so and so.
fn colour(at: usize) -> &'static str {
    COLOURS[at % COLOURS.len()]
}

fn x(share: f64) -> f64 {
    FIELD.0 + share * (FIELD.2 - FIELD.0)
}

fn y(share: f64) -> f64 {
    FIELD.3 - share * (FIELD.3 - FIELD.1)
}

impl Picture {
    /// An empty field under a title.
    #[must_use]
    pub fn begin(title: &str) -> Self {
        let mut picture = Picture {
            text: String::new(),
            legends: 0,
        };
        let (width, height) = SIZE;
        let (left, top, right, bottom) = FIELD;
        let title = escaped(title);
        picture.put(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             font-family=\"sans-serif\" font-size=\"12\">"
        ));
        picture.put(format_args!("<title>{title}</title>"));
        picture.put(format_args!(
            "<rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>"
        ));
        picture.put(format_args!(
            "<text x=\"{left}\" y=\"26\" font-size=\"15\" fill=\"#222222\">{title}</text>"
        ));
        picture.put(format_args!(
            "<rect x=\"{left}\" y=\"{top}\" width=\"{}\" height=\"{}\" fill=\"none\" \
             stroke=\"#888888\"/>",
            right - left,
            bottom - top
        ));
        picture
    }

    /// The document.
    #[must_use]
    pub fn end(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }

    fn put(&mut self, what: Arguments<'_>) {
        // Formatting into a string has no failure.
        let _ = writeln!(self.text, "{what}");
    }

    /// The axis below the field: its name, and labels with their places.
    pub fn axis_below(&mut self, name: &str, labels: &[(f64, String)]) {
        let (left, _, right, bottom) = FIELD;
        for (place, label) in labels {
            let (x, y) = (x(*place), bottom + 18.0);
            let label = escaped(label);
            self.put(format_args!(
                "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\" fill=\"#444444\">{label}</text>"
            ));
        }
        let (x, y) = (f64::midpoint(left, right), bottom + 40.0);
        let name = escaped(name);
        self.put(format_args!(
            "<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\" fill=\"#222222\">{name}</text>"
        ));
    }

    /// An axis at a side, in the colour of the line `of`.
    pub fn axis(&mut self, side: Side, of: usize, name: &str, labels: &[(f64, String)]) {
        let (left, top, right, _) = FIELD;
        let (edge, anchor, shift) = match side {
            Side::Left => (left - 6.0, "end", 110),
            Side::Right => (right + 6.0, "start", -110),
        };
        let (colour, name) = (colour(of), escaped(name));
        // Long names run into the field, from the picture's edge on.
        let (x, anchor_name, shift) = match (side, name.chars().count() > 24) {
            (Side::Left, true) => (left, "start", 0),
            _ => (edge, anchor, shift),
        };
        self.put(format_args!(
            "<text x=\"{x}\" y=\"{}\" text-anchor=\"{anchor_name}\" fill=\"{colour}\" \
             font-weight=\"bold\" dx=\"{shift}\">{name}</text>",
            top - 10.0
        ));
        for (place, label) in labels {
            let label = escaped(label);
            self.put(format_args!(
                "<text x=\"{edge}\" y=\"{:.1}\" text-anchor=\"{anchor}\" fill=\"{colour}\">{label}</text>",
                y(*place) + 4.0
            ));
        }
    }

    /// A line through points.
    pub fn line(&mut self, of: usize, points: &[(f64, f64)]) {
        let mut text = String::new();
        for &(across, up) in points {
            let _ = write!(text, "{:.1},{:.1} ", x(across), y(up));
        }
        self.put(format_args!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.3\"/>",
            text.trim_end(),
            colour(of)
        ));
    }

    /// A dashed line from one place to another, in the colour of the line `of`.
    pub fn dashed(&mut self, of: usize, from: (f64, f64), to: (f64, f64)) {
        self.put(format_args!(
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{}\" \
             stroke-dasharray=\"5 4\"/>",
            x(from.0),
            y(from.1),
            x(to.0),
            y(to.1),
            colour(of)
        ));
    }

    /// A point, with the stroke of its range and what a pointer on it shows.
    pub fn point(&mut self, of: usize, at: (f64, f64), range: (f64, f64), title: &str) {
        let (across, colour, title) = (x(at.0), colour(of), escaped(title));
        self.put(format_args!(
            "<line x1=\"{across:.1}\" y1=\"{:.1}\" x2=\"{across:.1}\" y2=\"{:.1}\" \
             stroke=\"{colour}\"/>",
            y(range.0),
            y(range.1)
        ));
        self.put(format_args!(
            "<circle cx=\"{across:.1}\" cy=\"{:.1}\" r=\"3.5\" fill=\"{colour}\"><title>{title}</title></circle>",
            y(at.1)
        ));
    }

    /// What the line `of` is, in the field's upper left; each under the one before.
    pub fn legend(&mut self, of: usize, name: &str) {
        let (left, top) = (FIELD.0 + 12.0, FIELD.1 + 18.0 + 16.0 * self.legends as f64);
        self.legends += 1;
        let (colour, name) = (colour(of), escaped(name));
        self.put(format_args!(
            "<rect x=\"{left}\" y=\"{}\" width=\"14\" height=\"4\" fill=\"{colour}\"/>",
            top - 6.0
        ));
        self.put(format_args!(
            "<text x=\"{}\" y=\"{top}\" fill=\"#222222\">{name}</text>",
            left + 20.0
        ));
    }

    /// A dashed line across the field's height, with words along it and what a pointer on it shows.
    pub fn mark(&mut self, across: f64, words: &str, title: &str) {
        let (_, top, _, bottom) = FIELD;
        let across = x(across);
        let (words, title) = (escaped(words), escaped(title));
        self.put(format_args!(
            "<line x1=\"{across:.1}\" y1=\"{top}\" x2=\"{across:.1}\" y2=\"{bottom}\" stroke=\"#777777\" \
             stroke-dasharray=\"5 4\"><title>{title}</title></line>"
        ));
        self.put(format_args!(
            "<text x=\"{:.1}\" y=\"{}\" font-size=\"10\" fill=\"#777777\" \
             transform=\"rotate(-90 {:.1} {})\">{words}</text>",
            across - 3.0,
            bottom - 4.0,
            across - 3.0,
            bottom - 4.0
        ));
    }

    /// A short red stroke below the field.
    pub fn stroke_below(&mut self, across: f64, title: &str) {
        let bottom = FIELD.3;
        let (across, title) = (x(across), escaped(title));
        self.put(format_args!(
            "<line x1=\"{across:.1}\" y1=\"{bottom}\" x2=\"{across:.1}\" y2=\"{}\" stroke=\"#b00020\" \
             stroke-width=\"2\"><title>{title}</title></line>",
            bottom + 5.0
        ));
    }
}
