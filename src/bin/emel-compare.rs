//! `emel-compare`: where two streams of tokens part, and why.

use clap::{Parser, Subcommand};
use emel::bench::worker;
use emel::cli::exit::Exit;
use emel::cli::message::tell;
use emel::compare::{CompareError, determinism, run};

/// Finds where two token streams part, and says why.
#[derive(Parser)]
#[command(name = "emel-compare", version, propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run EMEL and references over one prompt, and say where they part and why
    Run(run::RunArgs),
    /// Run EMEL over instruction sets, threads, routes and batches: one value is the promise
    Determinism(determinism::DeterminismArgs),
    /// EMEL as a backend: answers requests on the standard streams
    #[command(hide = true)]
    Worker,
}

fn main() {
    let exit = match dispatch(Arguments::parse().command) {
        Ok(exit) => exit,
        Err(error) => {
            tell(&format!("error: {error}"));
            error.exit()
        }
    };
    std::process::exit(exit.code());
}

fn dispatch(command: Command) -> Result<Exit, CompareError> {
    match command {
        Command::Run(args) => {
            let report = run::run(&args, 12)?;
            println!("{}", serde_json::to_string(&report).unwrap_or_default());
            Ok(Exit::Done)
        }
        Command::Determinism(args) => {
            let matrix = determinism::run(&args)?;
            println!("{}", serde_json::to_string(&matrix).unwrap_or_default());
            Ok(matrix.exit())
        }
        Command::Worker => Ok(worker::run().map(|()| Exit::Done)?),
    }
}
