//! `emel-bench kernels`: EMEL's kernels against a reference's operators at real models' shapes.
//!
//! Both sides are processes that speak the [protocol](super::protocol): weights are packed when a
//! case is set up, activations are quantized within the time. Taken alternate between the two,
//! and a ratio is the median of the pairs'. Where a reference has several configurations, a first
//! sample of each finds the fastest, which is compared. A side that refuses a case or dies of it
//! gets a record that says so, and the run goes on. Records are of kind `kernel`, one a side.
//!
//! A matrix that fits a cache stays there from one operation to the next, on both sides; what
//! memory allows is seen in the output heads.

mod cases;
mod emel;
mod pairs;
mod reference;
mod timing;

pub use cases::{Shape, Suite};
pub use emel::{KernelBench, KernelError};
pub use pairs::{Side, Taken, alternate, one};
pub use reference::ReferenceArgs;
pub use timing::timed;

use super::BenchError;
use super::backend::{BackendConfig, BackendError};
use super::limits::record::Records;
use super::limits::{right, table};
use super::machine_info::MachineInfo;
use super::protocol::Request;
use super::records::{Kernel, Record, Status};
use super::stats::{Ratio, Samples, median};
use crate::cli::interrupt::Interrupt;
use crate::cli::message::tell;
use comfy_table::{Cell, Table};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Map, json};
use std::path::PathBuf;
use std::time::Duration;

/// Measures kernels, EMEL's against a reference's, at real models' shapes.
#[derive(clap::Args)]
pub struct KernelsArgs {
    /// Which cases
    #[arg(long, value_enum, default_value_t = Suite::All)]
    pub suite: Suite,
    /// Only cases whose name contains this, `gemv q4_k` for one
    #[arg(long, value_name = "TEXT")]
    pub filter: Option<String>,
    /// Threads, of both sides; may be given several times [default: one, and every physical core]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Vec<u16>,
    /// The reference
    #[command(flatten)]
    pub reference: ReferenceArgs,
    /// Taken of each side
    #[arg(short = 'n', long, value_name = "N", default_value = "5",
          value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: u16,
    /// Least time of a sample, in milliseconds
    #[arg(long, value_name = "MS", default_value = "20",
          value_parser = clap::value_parser!(u16).range(1..))]
    pub sample_ms: u16,
    /// Instruction set of EMEL's kernels: auto, scalar, avx2, avxvnni, avx512 or amx
    #[arg(long, value_name = "LEVEL", default_value = "auto",
          value_parser = crate::bench::worker::level_name)]
    pub isa: String,
    /// Write the records here, as JSONL
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

impl KernelsArgs {
    fn threads(&self) -> Vec<usize> {
        let mut counts: Vec<_> = match &self.threads[..] {
            [] => vec![1, MachineInfo::read().lane_threads()],
            given => given.iter().map(|&n| usize::from(n)).collect(),
        };
        counts.dedup();
        counts
    }

    fn shapes(&self) -> Result<Vec<Shape>, BenchError> {
        let mut shapes = self.suite.shapes();
        if let Some(text) = &self.filter {
            shapes.retain(|shape| shape.name().contains(text));
            if shapes.is_empty() {
                return Err(BenchError::Usage(format!(
                    "no case's name contains '{text}': names are like `{}`",
                    self.suite.shapes()[0].name()
                )));
            }
        }
        Ok(shapes)
    }
}

/// Runs the command.
///
/// # Errors
///
/// A reference that cannot be used, or records that cannot be written; the user's Ctrl-C.
pub fn run(args: &KernelsArgs) -> Result<(), BenchError> {
    let interrupt = Interrupt::install().map_err(BenchError::Streams)?;
    let (shapes, threads) = (args.shapes()?, args.threads());
    let place = args.reference.place()?;
    let mut references = args.reference.sides("kernels", &place, &interrupt)?;
    let config = BackendConfig {
        options: Map::from_iter([("isa".to_owned(), json!(args.isa))]),
        ..BackendConfig::default()
    };
    let mut emel = Side::emel(&place, config, &interrupt);
    let mut report = Report {
        records: Records::create(args.output.as_deref())?,
        table: table(&[
            "case",
            "threads",
            "emel",
            "reference",
            "config",
            "ratio",
            "range",
        ]),
    };
    let bar = progress(shapes.len() * threads.len());
    for shape in &shapes {
        for &threads in &threads {
            bar.set_message(shape.name());
            let case = Case {
                shape,
                threads,
                rounds: usize::from(args.rounds),
                sample: Duration::from_millis(args.sample_ms.into()),
            };
            case.measure(&mut emel, &mut references, &mut report)?;
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    tell(&report.table.to_string());
    report.records.commit()
}

/// A bar with the time left, on a terminal's standard error.
pub(super) fn progress(steps: usize) -> ProgressBar {
    let bar = ProgressBar::new(steps as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {eta} left  {msg}") {
        bar.set_style(style);
    }
    bar
}

/// One case.
struct Case<'a> {
    shape: &'a Shape,
    threads: usize,
    rounds: usize,
    sample: Duration,
}

/// Lets what ends the whole command through, and keeps what is one side's trouble.
fn trouble<T>(result: Result<T, BackendError>) -> Result<Result<T, BackendError>, BenchError> {
    match result {
        Err(error @ (BackendError::Interrupted | BackendError::Start { .. })) => Err(error.into()),
        other => Ok(other),
    }
}

impl Case<'_> {
    /// Sets a side up, and takes a first sample: its own time, or why there is none.
    fn prepare(&self, side: &mut Side, samples: &mut Taken) -> Result<f64, BackendError> {
        let case = self.shape.case(self.threads, side.config.options.clone());
        samples.ready = Some(side.ask(&Request::PrepareKernel(case))?);
        Ok(side.sample(&Request::RunKernel(one(self.sample)))?.ns)
    }

    fn measure(
        &self,
        emel: &mut Side,
        references: &mut [Side],
        report: &mut Report,
    ) -> Result<(), BenchError> {
        let mut own = Taken::default();
        let own_first = trouble(self.prepare(emel, &mut own))?;
        let mut best: Option<(usize, f64, Taken)> = None;
        for (at, side) in references.iter_mut().enumerate() {
            let mut samples = Taken::default();
            match trouble(self.prepare(side, &mut samples))? {
                Ok(ns) if best.as_ref().is_none_or(|best| ns < best.1) => {
                    best = Some((at, ns, samples));
                }
                Ok(_) => {}
                Err(error) => report.failure(self, side, &error),
            }
        }
        let request = Request::RunKernel(one(self.sample));
        let mut other = best.map(|(at, _, samples)| (&mut references[at], samples));
        let done = match (own_first, &mut other) {
            (Err(error), _) => Err((error, false)),
            (Ok(_), None) => (0..self.rounds).try_for_each(|_| {
                let sample = emel.sample(&request).map_err(|error| (error, false))?;
                own.add(sample);
                Ok(())
            }),
            (Ok(_), Some((side, samples))) => {
                let sides = [(&mut *emel, &mut own), (&mut **side, &mut *samples)];
                alternate(sides, &request, self.rounds)
            }
        };
        if let Err((error, of_reference)) = done {
            let error = match trouble::<()>(Err(error))? {
                Err(error) => error,
                Ok(()) => return Ok(()),
            };
            match &other {
                Some((side, _)) if of_reference => report.failure(self, side, &error),
                _ => report.failure(self, emel, &error),
            }
            return Ok(());
        }
        let other = other.as_ref().map(|(side, samples)| (&**side, samples));
        report.success(self, (emel, &own), other);
        Ok(())
    }
}

/// Where results go.
struct Report {
    records: Records,
    table: Table,
}

impl Report {
    /// A record of the case without results.
    fn record(&self, case: &Case<'_>, side: &Side) -> Kernel {
        let mut record = Kernel {
            head: self.records.head(case.threads),
            backend: side.id.clone(),
            config: Some(side.config.name.clone()).filter(|name| !name.is_empty()),
            options: side.config.options.clone(),
            ..case.shape.record()
        };
        record.head.engine.clone_from(&side.engine);
        record.head.engine_version = None;
        record
    }

    fn failure(&mut self, case: &Case<'_>, side: &Side, error: &BackendError) {
        let mut record = self.record(case, side);
        record.head.status = Status::Error;
        record.head.error = Some(error.to_string());
        tell(&format!("warning: {}: {error}", case.shape.name()));
        self.records.push(&Record::Kernel(Box::new(record)));
    }

    fn measured(&self, case: &Case<'_>, side: &Side, taken: &Taken) -> Kernel {
        let mut record = self.record(case, side);
        if let Some(ready) = &taken.ready {
            record.head.engine_version = Some(ready.engine_version.clone());
            record.head.isa = Some(ready.isa.clone());
            record.variant = Some(ready.variant.clone());
        }
        let rate = |amount: u64| Some(amount as f64 / median(&taken.ns)?);
        record.operations = Some(taken.operations);
        record.gops = rate(case.shape.operations());
        record.bytes_per_second = rate(case.shape.bytes()).map(|rate| rate * 1e9);
        record.ns = Samples::new(taken.ns.clone());
        record
    }

    fn success(
        &mut self,
        case: &Case<'_>,
        (emel, own): (&Side, &Taken),
        other: Option<(&Side, &Taken)>,
    ) {
        let record = self.measured(case, emel, own);
        self.records.push(&Record::Kernel(Box::new(record)));
        let mut row = vec![
            Cell::new(case.shape.name()),
            right(case.threads),
            right(time(&own.ns)),
        ];
        if let Some((side, taken)) = other {
            let ratio = Ratio::of_speed(&own.ns, &taken.ns);
            row.extend([right(time(&taken.ns)), Cell::new(&side.config.name)]);
            row.extend(ratio.iter().flat_map(ratio_cells));
            let mut record = self.measured(case, side, taken);
            record.emel_ratio = ratio;
            self.records.push(&Record::Kernel(Box::new(record)));
        }
        self.table.add_row(row);
    }
}

/// A ratio and its range.
pub(super) fn ratio_cells(ratio: &Ratio) -> [Cell; 2] {
    [
        right(format!("{:.2}", ratio.median)),
        right(format!("{:.2}..{:.2}", ratio.min, ratio.max)),
    ]
}

/// The median of nanoseconds, for people.
pub(super) fn time(ns: &[f64]) -> String {
    match median(ns) {
        None => "-".to_owned(),
        Some(ns) if ns >= 1e6 => format!("{:.2} ms", ns / 1e6),
        Some(ns) if ns >= 1e3 => format!("{:.2} us", ns / 1e3),
        Some(ns) => format!("{ns:.1} ns"),
    }
}
