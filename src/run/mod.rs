//! The runner behind `emel-run`: flags, sessions, display.
