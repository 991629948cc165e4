//! What a comparison is at, on a terminal; and whether the user still wants it.

use std::borrow::Cow;
use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::error::CompareError;
use crate::cli::interrupt::Interrupt;

/// The line of a stage with steps to count.
const COUNTED: &str = "{spinner} {msg} [{bar:24}] {pos}/{len} {eta}";
/// The line of a stage without.
const OPEN: &str = "{spinner} {msg} {elapsed}";
/// How often the line is drawn while nothing moves.
const TICK: Duration = Duration::from_millis(120);

/// The stages of one comparison.
pub struct Stages {
    shown: bool,
    interrupt: Interrupt,
}

/// One stage; its line goes when it ends.
pub struct Stage(ProgressBar);

impl Stages {
    /// Shown when standard error is a terminal.
    pub fn new(interrupt: &Interrupt) -> Self {
        Stages {
            shown: std::io::stderr().is_terminal(),
            interrupt: interrupt.clone(),
        }
    }

    /// A stage of `total` steps; of an unknown number when that is 0.
    pub fn begin(&self, what: impl Into<Cow<'static, str>>, total: usize) -> Stage {
        let target = match self.shown {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(Some(total as u64), target).with_message(what);
        let template = if total > 0 { COUNTED } else { OPEN };
        // The templates are constants that a test checks.
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        if self.shown {
            bar.enable_steady_tick(TICK);
        }
        Stage(bar)
    }

    /// Ctrl-C, as the matching failure.
    ///
    /// # Errors
    /// [`CompareError::Interrupted`].
    pub fn check(&self) -> Result<(), CompareError> {
        match self.interrupt.is_pressed() {
            true => Err(CompareError::Interrupted),
            false => Ok(()),
        }
    }

    /// Ctrl-C, for whoever waits by himself.
    pub fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }
}

impl Stage {
    /// How many of the stage's steps are done.
    pub fn set(&self, done: usize) {
        self.0.set_position(done as u64);
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_valid_and_stages_count() {
        assert!(ProgressStyle::with_template(COUNTED).is_ok());
        assert!(ProgressStyle::with_template(OPEN).is_ok());
        let stages = Stages {
            shown: false,
            interrupt: Interrupt::default(),
        };
        let stage = stages.begin("x", 5);
        stage.set(3);
        assert_eq!(stage.0.position(), 3);
        assert!(stages.check().is_ok());
    }
}
