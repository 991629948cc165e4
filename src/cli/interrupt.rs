//! Ctrl-C: the first ends the reply cleanly, the second ends the program with code 130. Other
//! signals that end a program do so at once, but leave no unfinished file.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use super::children::end_all;
use super::exit::Exit;
use crate::output::remove_unfinished;

/// Shared between the signal's thread and the run.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicU8>);

impl Interrupt {
    /// Takes over Ctrl-C for this process, and the signals that end it: those leave no unfinished
    /// file behind.
    ///
    /// # Errors
    /// When the system refuses a handler or the thread that waits for signals.
    pub fn install() -> io::Result<Interrupt> {
        let interrupt = Interrupt::default();
        let shared = interrupt.clone();
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGQUIT])?;
        let wait = move || {
            for signal in signals.forever() {
                let code = match signal {
                    SIGINT if !shared.press() => continue,
                    SIGINT => Exit::Interrupted.code(),
                    // As a shell reports a program that a signal ended.
                    other => 128 + other,
                };
                end_all();
                remove_unfinished();
                std::process::exit(code);
            }
        };
        std::thread::Builder::new()
            .name("emel-signals".to_owned())
            .spawn(wait)?;
        Ok(interrupt)
    }

    /// Notes a press; true when it is the second since the last [`take`](Interrupt::take), and
    /// the program is to end.
    fn press(&self) -> bool {
        self.0.fetch_add(1, Ordering::SeqCst) > 0
    }

    /// Whether Ctrl-C has been pressed and not taken.
    #[must_use]
    pub fn is_pressed(&self) -> bool {
        self.0.load(Ordering::SeqCst) > 0
    }

    /// Takes the press: a reply has been ended for it, and the next press is a first one.
    pub fn take(&self) -> bool {
        self.0.swap(0, Ordering::SeqCst) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::Interrupt;

    #[test]
    fn the_second_press_ends_unless_the_first_was_taken() {
        let interrupt = Interrupt::default();
        assert!(!interrupt.is_pressed());
        assert!(!interrupt.press());
        assert!(interrupt.is_pressed());
        assert!(interrupt.take());
        assert!(!interrupt.take());
        assert!(!interrupt.press());
        assert!(interrupt.press());
    }
}
