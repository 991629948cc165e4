//! `emel-bench`: measures EMEL and other engines side by side.

use clap::{Parser, Subcommand};
use emel::bench::{
    BenchError, kernels, limits, list, machines, report, synth, validate, worker,
};
use emel::cli::exit::Exit;

/// Measures EMEL and other engines side by side.
#[derive(Parser)]
#[command(name = "emel-bench", version, propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show workloads, models and backends.
    List(list::ListArgs),
    /// Show recorded measurements as tables.
    Report(report::ReportArgs),
    /// Check records and manifests against their schemas.
    Validate(validate::ValidateArgs),
    Limits(limits::LimitsArgs),
    Kernels(kernels::KernelsArgs),
    Machines(machines::MachinesArgs),
    /// EMEL as a backend: answers requests on the standard streams.
    #[command(hide = true)]
    Worker,
    /// Write a model of a real shape with random weights, to be measured with
    Synth(synth::SynthArgs),
}

fn main() {
    let exit = match run(Arguments::parse().command) {
        Ok(()) => Exit::Done,
        Err(error) => {
            eprintln!("error: {error}");
            error.exit()
        }
    };
    std::process::exit(exit.code());
}

fn run(command: Command) -> Result<(), BenchError> {
    match command {
        Command::List(args) => list::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Validate(args) => validate::run(&args),
        Command::Limits(args) => limits::run(&args),
        Command::Kernels(args) => kernels::run(&args),
        Command::Machines(args) => machines::run(&args),
        Command::Worker => worker::run(),
        Command::Synth(args) => synth::run(&args),
    }
}
