//! `emel-bench`: measures EMEL and other engines side by side.

use clap::{Parser, Subcommand};
use emel::bench::{
    BenchError, curves, kernels, limits, list, machines, report, run, synth, validate, worker,
};
use emel::cli::exit::Exit;
use emel::cli::message::tell;

/// Measures EMEL and other engines side by side.
#[derive(Parser)]
#[command(name = "emel-bench", version, propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure workloads on EMEL and on references, in turns
    Run(run::RunArgs),
    /// Measure what this machine can do at most: bytes read and operations in a second
    Limits(limits::LimitsArgs),
    /// Measure matrix products, attention and norms, against ggml's own
    Kernels(kernels::KernelsArgs),
    /// Measure dispatches of the state machines and meetings of the threads
    Machines(machines::MachinesArgs),
    /// Show workloads, models and backends
    List(list::ListArgs),
    /// Show recorded measurements as tables
    Report(report::ReportArgs),
    /// Draw how times grow with lengths, depths and sizes
    Curves(curves::CurvesArgs),
    /// Check records and manifests against their schemas
    Validate(validate::ValidateArgs),
    /// Write a model of a real shape with random weights, to be measured with
    Synth(synth::SynthArgs),
    /// EMEL as a backend: answers requests on the standard streams
    #[command(hide = true)]
    Worker,
}

fn main() {
    let exit = match dispatch(Arguments::parse().command) {
        Ok(()) => Exit::Done,
        Err(error) => {
            tell(&format!("error: {error}"));
            error.exit()
        }
    };
    std::process::exit(exit.code());
}

fn dispatch(command: Command) -> Result<(), BenchError> {
    match command {
        Command::Run(args) => run::run(&args),
        Command::Limits(args) => limits::run(&args),
        Command::Kernels(args) => kernels::run(&args),
        Command::Machines(args) => machines::run(&args),
        Command::List(args) => list::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Curves(args) => curves::run(&args),
        Command::Validate(args) => validate::run(&args),
        Command::Synth(args) => synth::run(&args),
        Command::Worker => worker::run(),
    }
}
