//! The runner behind `emel-run`: flags, sessions, display. The binary parses with [`args`] and
//! prints; what it prints is decided and formatted here.
//!
//! [`args`] says what is wanted and [`prompt`] reads the texts it names. Generated text passes
//! [`stop`] and leaves through [`sink`]; tokens are recorded by [`trace`] and [`checksum`].
//! [`progress`] and [`timings`] go to standard error. [`output`] is how any file is written.

pub mod args;
pub mod checksum;
pub mod escape;
pub mod exit;
pub mod interrupt;
pub mod locate;
pub mod output;
pub mod progress;
pub mod prompt;
pub mod sink;
pub mod stop;
pub mod timings;
pub mod tokenize;
pub mod trace;
