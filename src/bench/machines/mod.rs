//! `emel-bench machines`: what it costs to choose and to meet.
//!
//! Nanoseconds for each dispatch of every state machine of the engine, its actions doing nothing;
//! for each fork and join of the lanes over a job without work (`fork_join`: a lane that comes late
//! is not waited for); and for a meeting that every lane takes part in (`barrier`), against
//! OpenMP's barrier in a reference. Lanes come together twice in a meeting, at its beginning and at
//! its end, where OpenMP's threads do once; a lane that finds others at work on its core gives way
//! sooner than an OpenMP thread does, so only an idle machine compares the two. Records are of kind
//! `machine`.

mod meeting;

pub use meeting::barrier;

use super::BenchError;
use super::backend::{BackendConfig, BackendError};
use super::kernels::{ReferenceArgs, Side, Taken, alternate, ratio_cells, time, timed};
use super::limits::record::Records;
use super::limits::{right, table};
use super::machine_info::MachineInfo;
use super::protocol::{Barrier, Repeat, Request};
use super::records::{Machine, Record, Status};
use super::stats::{Ratio, Samples};
use crate::cli::interrupt::Interrupt;
use crate::cli::message::tell;
use crate::engine::NullMachine;
use comfy_table::{Cell, Table};
use std::path::PathBuf;

/// Measures state machines' dispatches and the meetings of threads.
#[derive(clap::Args)]
pub struct MachinesArgs {
    /// Most threads that meet [default: every physical core]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// The reference; the first of its configurations is taken
    #[command(flatten)]
    pub reference: ReferenceArgs,
    /// Taken of each number
    #[arg(short = 'n', long, value_name = "N", default_value = "7",
          value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: u16,
    /// Write the records here, as JSONL
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Least time of a sample.
const SAMPLE_NS: u64 = 5_000_000;

/// Runs the command.
///
/// # Errors
///
/// A reference that cannot be used, threads that do not start, or records that cannot be written;
/// the user's Ctrl-C.
pub fn run(args: &MachinesArgs) -> Result<(), BenchError> {
    let interrupt = Interrupt::install().map_err(BenchError::Streams)?;
    let place = args.reference.place()?;
    let references = args.reference.sides("barrier", &place, &interrupt)?;
    let mut reference = references.into_iter().next();
    let mut emel = Side::emel(&place, BackendConfig::default(), &interrupt);
    let most = args
        .threads
        .map_or_else(|| MachineInfo::read().lane_threads(), usize::from);
    let rounds = usize::from(args.rounds);
    let repeat = Repeat {
        samples: rounds,
        min_sample_ns: SAMPLE_NS,
    };
    let mut report = Report {
        records: Records::create(args.output.as_deref())?,
        table: table(&["machine", "threads", "emel", "reference", "ratio", "range"]),
    };
    for machine in NullMachine::ALL {
        let times = |count| {
            let done = std::hint::black_box(machine.dispatch(count));
            if done == count {
                Ok(())
            } else {
                Err(stuck(machine))
            }
        };
        report.own(machine.name(), 1, &timed(repeat, times)?.ns);
    }
    for threads in 1..=most {
        report.own(
            "fork_join",
            threads,
            &meeting::fork_join(threads, repeat)?.ns,
        );
    }
    for threads in 1..=most {
        let one = Repeat {
            samples: 1,
            ..repeat
        };
        let request = Request::Barrier(Barrier {
            threads,
            repeat: one,
        });
        let (mut own, mut other) = (Taken::default(), Taken::default());
        match &mut reference {
            None => {
                for _ in 0..rounds {
                    own.add(emel.sample(&request)?);
                }
                report.own("barrier", threads, &own.ns);
            }
            Some(side) => {
                let sides = [(&mut emel, &mut own), (&mut *side, &mut other)];
                match alternate(sides, &request, rounds) {
                    Ok(()) => report.pair(threads, &own.ns, side, &other.ns),
                    Err((error, true)) if !matches!(error, BackendError::Interrupted) => {
                        report.failure(threads, side, &error);
                    }
                    Err((error, _)) => return Err(error.into()),
                }
            }
        }
    }
    tell(&report.table.to_string());
    report.records.commit()
}

/// A machine whose ordinary path does not lead to its end is a mistake in this program.
fn stuck(machine: NullMachine) -> BenchError {
    let name = machine.name();
    BenchError::Usage(format!("{name} does not reach its end over a null context"))
}

/// Where results go.
struct Report {
    records: Records,
    table: Table,
}

impl Report {
    fn own(&mut self, machine: &str, threads: usize, ns: &[f64]) {
        self.row(machine, threads, ns, &[]);
        self.push(machine, threads, ns);
    }

    fn push(&mut self, machine: &str, threads: usize, ns: &[f64]) {
        let record = Machine {
            head: self.records.head(threads),
            machine: machine.to_owned(),
            ns: Samples::new(ns.to_vec()),
            emel_ratio: None,
        };
        self.records.push(&Record::Machine(Box::new(record)));
    }

    /// A reference's record of a barrier without results.
    fn reference(&self, threads: usize, side: &Side) -> Machine {
        let mut head = self.records.head(threads);
        head.engine.clone_from(&side.engine);
        head.engine_version = None;
        Machine {
            head,
            machine: "barrier".to_owned(),
            ..Machine::default()
        }
    }

    fn pair(&mut self, threads: usize, own: &[f64], side: &Side, other: &[f64]) {
        let ratio = Ratio::of_speed(own, other);
        let mut more = vec![right(time(other))];
        more.extend(ratio.iter().flat_map(ratio_cells));
        self.row("barrier", threads, own, &more);
        self.push("barrier", threads, own);
        let record = Machine {
            ns: Samples::new(other.to_vec()),
            emel_ratio: ratio,
            ..self.reference(threads, side)
        };
        self.records.push(&Record::Machine(Box::new(record)));
    }

    fn failure(&mut self, threads: usize, side: &Side, error: &BackendError) {
        tell(&format!("warning: barrier of {threads}: {error}"));
        let mut record = self.reference(threads, side);
        record.head.status = Status::Error;
        record.head.error = Some(error.to_string());
        self.records.push(&Record::Machine(Box::new(record)));
    }

    fn row(&mut self, machine: &str, threads: usize, ns: &[f64], more: &[Cell]) {
        let mut row = vec![Cell::new(machine), right(threads), right(time(ns))];
        row.extend_from_slice(more);
        self.table.add_row(row);
    }
}
