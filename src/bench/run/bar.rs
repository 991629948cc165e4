//! The progress of a measurement: a bar with the time left on a terminal, a line a lane elsewhere.

use crate::cli::message::tell;
use std::cell::Cell;
use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How far a command has come, in runs of an engine.
pub struct Bar {
    bar: ProgressBar,
    is_terminal: bool,
    begun: Cell<bool>,
}

const TEMPLATE: &str = "[{bar:24}] {pos}/{len} runs, {eta} left  {wide_msg}";

impl Bar {
    /// A bar over `runs` runs.
    pub fn new(runs: u64) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        let target = match is_terminal {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(Some(runs), target);
        // The template is a constant that a test checks.
        if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
            bar.set_style(style.progress_chars("=> "));
        }
        Bar {
            bar,
            is_terminal,
            begun: Cell::new(false),
        }
    }

    /// A run begins: the one before it is over.
    pub fn run(&self, what: &str) {
        if self.begun.replace(true) {
            self.bar.inc(1);
        }
        self.bar.set_message(what.to_owned());
    }

    /// Something else than a run is going on.
    pub fn note(&self, what: &str) {
        self.bar.set_message(what.to_owned());
    }

    /// A line that stays.
    pub fn say(&self, line: &str) {
        if self.is_terminal {
            self.bar.suspend(|| tell(line));
        } else {
            tell(line);
        }
    }

    /// Takes the bar away.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_counted_when_the_next_one_begins() {
        assert!(ProgressStyle::with_template(TEMPLATE).is_ok());
        let bar = Bar::new(3);
        bar.run("a");
        assert_eq!(bar.bar.position(), 0);
        bar.run("b");
        assert_eq!(bar.bar.position(), 1);
        bar.note("a pause");
        assert_eq!(bar.bar.position(), 1);
    }
}
