//! What a run does while the model reads a prompt: a bar moves and Ctrl-C is heard.

use std::cell::{Cell, RefCell};

use crate::cli::interrupt::Interrupt;
use crate::cli::progress::{PATIENCE, Progress, Step, Unit};
use crate::engine::{Event, Observer};

/// Watches the session.
pub struct Reading {
    interrupt: Interrupt,
    progress: Progress,
    bar: RefCell<Option<Step>>,
    done: Cell<u64>,
}

impl Reading {
    /// Draws on `progress` and obeys `interrupt`.
    #[must_use]
    pub fn new(interrupt: Interrupt, progress: Progress) -> Self {
        Reading {
            interrupt,
            progress,
            bar: RefCell::new(None),
            done: Cell::new(0),
        }
    }
}

impl Observer for Reading {
    fn event(&self, event: Event) {
        match event {
            Event::PromptBegins { tokens, .. } => {
                let bar = self
                    .progress
                    .step("prompt", Unit::Tokens, tokens as u64, PATIENCE);
                self.bar.replace(Some(bar));
                self.done.set(0);
            }
            Event::Passed { tokens, .. } => {
                self.done.set(self.done.get() + tokens as u64);
                if let Some(bar) = &*self.bar.borrow() {
                    bar.set(self.done.get());
                }
            }
            Event::PromptEnds | Event::PromptCut => drop(self.bar.take()),
            _ => {}
        }
    }

    fn wants_end(&self) -> bool {
        self.interrupt.is_pressed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Route;

    #[test]
    fn the_bar_counts_the_tokens_of_one_prompt() {
        let reading = Reading::new(Interrupt::default(), Progress::rule(false, false, 3));
        for _ in 0..2 {
            reading.event(Event::PromptBegins {
                reused: 1,
                tokens: 12,
            });
            for tokens in [8, 4] {
                let route = Route::Chunk8;
                reading.event(Event::Passed { route, tokens });
            }
            assert_eq!(reading.done.get(), 12);
            assert!(reading.bar.borrow().is_some());
            reading.event(Event::PromptEnds);
            assert!(reading.bar.borrow().is_none());
        }
        assert!(!reading.wants_end());
    }
}
