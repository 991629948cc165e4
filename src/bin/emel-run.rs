//! `emel-run`: runs a GGUF model from a terminal.
fn main() {}
