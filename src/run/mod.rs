//! The runner behind `emel-run`: flags, sessions, display. The binary parses with [`args`] and
//! prints; what it prints is decided and formatted here.

pub mod args;
pub mod escape;
