//! Progress bars on standard error: only on a terminal, only for what takes a while, and gone
//! when it is done.

use std::io::IsTerminal;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A step that takes less shows no bar.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// Whether bars are shown at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    shown: bool,
}

impl Progress {
    /// The rule: a terminal, no `--simple-io`, and someone who wants to be told things
    /// (`verbosity` as in `RunConfig`, where 1 is failures alone).
    #[must_use]
    pub fn rule(is_terminal: bool, simple_io: bool, verbosity: u8) -> Self {
        Progress {
            shown: is_terminal && !simple_io && verbosity > 1,
        }
    }

    /// The rule, asked of this process's standard error.
    #[must_use]
    pub fn for_stderr(simple_io: bool, verbosity: u8) -> Self {
        Self::rule(std::io::stderr().is_terminal(), simple_io, verbosity)
    }

    /// Whether bars are shown.
    #[must_use]
    pub fn is_shown(self) -> bool {
        self.shown
    }

    /// Begins a step of `total` units; its bar appears once it has taken `patience`.
    #[must_use]
    pub fn step(self, what: &'static str, unit: Unit, total: u64, patience: Duration) -> Step {
        Step {
            shown: self.shown,
            what,
            unit,
            total,
            patience,
            begun: Instant::now(),
            bar: OnceLock::new(),
        }
    }
}

/// What a bar counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes, shown as KiB, MiB, GiB.
    Bytes,
    /// Tokens.
    Tokens,
}

impl Unit {
    fn template(self) -> &'static str {
        match self {
            Unit::Bytes => "{msg:8} [{bar:30}] {binary_bytes}/{binary_total_bytes} {eta}",
            Unit::Tokens => "{msg:8} [{bar:30}] {pos}/{len} tokens {eta}",
        }
    }
}

/// One step with a bar; shared by the threads that do the work. Dropping it removes the bar.
#[derive(Debug)]
pub struct Step {
    shown: bool,
    what: &'static str,
    unit: Unit,
    total: u64,
    patience: Duration,
    begun: Instant,
    bar: OnceLock<ProgressBar>,
}

impl Step {
    /// How much is done by now, of the step's total.
    pub fn set(&self, done: u64) {
        if !self.shown || (self.bar.get().is_none() && self.begun.elapsed() < self.patience) {
            return;
        }
        self.bar
            .get_or_init(|| self.draw(ProgressDrawTarget::stderr()))
            .set_position(done);
    }

    /// Whether the bar has appeared.
    #[must_use]
    pub fn has_appeared(&self) -> bool {
        self.bar.get().is_some()
    }

    fn draw(&self, target: ProgressDrawTarget) -> ProgressBar {
        let bar = ProgressBar::with_draw_target(Some(self.total), target).with_message(self.what);
        // The templates are constants that a test checks; a plain bar would do no harm.
        if let Ok(style) = ProgressStyle::with_template(self.unit.template()) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.with_elapsed(self.begun.elapsed())
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_for_terminals_and_people() {
        assert!(Progress::rule(true, false, 3).is_shown());
        assert!(!Progress::rule(false, false, 3).is_shown());
        assert!(!Progress::rule(true, true, 3).is_shown());
        assert!(!Progress::rule(true, false, 1).is_shown());
    }

    #[test]
    fn a_short_step_shows_nothing() {
        let hour = Duration::from_secs(3600);
        let step = Progress::rule(true, false, 3).step("packing", Unit::Bytes, 10, hour);
        step.set(5);
        assert!(!step.has_appeared());
        let hidden = Progress::rule(false, false, 3).step("x", Unit::Tokens, 10, Duration::ZERO);
        hidden.set(5);
        assert!(!hidden.has_appeared());
    }

    #[test]
    fn a_long_step_shows_where_it_is() {
        let step = Progress::rule(true, false, 3).step("x", Unit::Bytes, 10, Duration::ZERO);
        let bar = step.draw(ProgressDrawTarget::hidden());
        bar.set_position(7);
        assert_eq!((bar.position(), bar.length()), (7, Some(10)));
        step.set(8);
        assert!(step.has_appeared());
    }

    #[test]
    fn templates_are_valid() {
        for unit in [Unit::Bytes, Unit::Tokens] {
            assert!(ProgressStyle::with_template(unit.template()).is_ok());
        }
    }
}
