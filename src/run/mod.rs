//! The runner behind `emel-run`: flags, sessions, display. The binary parses with [`args`] and
//! prints; what it prints is decided and formatted here.
//!
//! [`session`] is a whole run: it loads the model and completes a text or, with [`chat`], holds a
//! conversation, [`reply`] by reply. [`args`] says what is wanted and [`prompt`] reads the texts it
//! names. Generated text passes [`stop`] and leaves through [`sink`]; tokens are recorded by
//! [`crate::trace`], and [`timings`] go to standard error.

pub mod args;
pub mod chat;
pub mod error;
pub mod escape;
pub mod locate;
pub mod prompt;
pub mod reading;
pub mod reply;
pub mod session;
pub mod sink;
pub mod stop;
pub mod timings;
pub mod tokenize;

use std::io::{self, Write};

/// Writes text to standard output at once.
///
/// # Errors
/// As the system says.
pub fn show(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
