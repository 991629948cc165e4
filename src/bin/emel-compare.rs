//! `emel-compare`: where two streams of tokens part, and why.

use clap::{Parser, Subcommand};
use emel::bench::worker;
use emel::cli::exit::Exit;
use emel::cli::message::tell;
use emel::compare::{CompareError, determinism, records, run, traces};

/// Finds where two token streams part, and says why.
#[derive(Parser)]
#[command(name = "emel-compare", version, propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Compare two finished token traces, from any engine
    Traces(traces::TracesArgs),
    /// Compare finished records: every two streams with the same workload and lane
    Records(records::RecordsArgs),
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
        Command::Traces(args) => args.show.finish(&traces::run(&args)?, None),
        Command::Records(args) => args.show.finish(&records::run(&args)?, None),
        Command::Run(args) => {
            let plot = args.show.begin_plot()?;
            args.show.finish(&run::run(&args)?, plot)
        }
        Command::Determinism(args) => args.show.finish_matrix(&determinism::run(&args)?),
        Command::Worker => Ok(worker::run().map(|()| Exit::Done)?),
    }
}
