//! `emel-run`: runs a GGUF model from a terminal.

use std::time::Instant;

use emel::cli::exit::Exit;
use emel::cli::message::tell;
use emel::output::is_closed_pipe;
use emel::run::args::{Parsed, parse};
use emel::run::{session, show};

fn main() {
    let begun = Instant::now();
    let exit = match parse(std::env::args_os().skip(1), |name| std::env::var_os(name)) {
        Ok(Parsed::Print(text)) => match show(&text) {
            Err(error) if !is_closed_pipe(&error) => fail(&error, Exit::Failed),
            _ => Exit::Done,
        },
        Ok(Parsed::Run(config)) => match session::run(&config, begun) {
            Err(error) if !error.is_closed_pipe() => fail(&error, error.exit()),
            _ => Exit::Done,
        },
        Err(error) => fail(&error, Exit::Usage),
    };
    std::process::exit(exit.code());
}

fn fail(error: &dyn std::error::Error, exit: Exit) -> Exit {
    tell(&format!("error: {error}"));
    exit
}
