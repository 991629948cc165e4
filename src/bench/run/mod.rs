//! `emel-bench run`: workloads on EMEL and on references, run by run in turns.
//!
//! Flags and manifests become tasks and contenders ([`plan`]); the reference's fastest
//! configuration is chosen by trial ([`choose`]); contenders take turns ([`measure`]); runs become
//! samples and ratios ([`phases`]), and those records ([`assemble`]).

mod args;
mod assemble;
mod bar;
mod choose;
mod estimate;
mod facts;
mod measure;
mod phases;
mod plan;
mod task;
mod traces;

pub use args::RunArgs;
pub use facts::ModelFacts;
pub use plan::place;

use std::collections::BTreeSet;
use std::time::Duration;

use self::assemble::Frame;
use self::bar::Bar;
use self::measure::{Measured, Track};
use self::plan::Subject;
use self::traces::Traces;
use super::BenchError;
use super::backend::{BackendError, BackendManifest, NONE, Place};
use super::limits::{self, MachineLimits};
use super::machine_info::MachineInfo;
use super::records::{Record, RecordFile, Status, read_records, run_id};
use super::report::{self, Format, Metric};
use super::workload::{Lane, Library, ProcessRule, Workload};
use crate::cli::interrupt::Interrupt;
use crate::cli::message::tell;

/// One workload in one lane.
struct Pairing<'l> {
    workload: &'l Workload,
    lane: Lane,
}

/// Everything that stays the same through a run.
struct Bench<'a> {
    args: &'a RunArgs,
    library: &'a Library,
    machine: MachineInfo,
    place: Place,
    references: Vec<BackendManifest>,
    interrupt: Interrupt,
    run_id: String,
    bar: Bar,
    known: choose::Known,
}

/// Runs what the flags ask for.
///
/// # Errors
/// [`BenchError`]; the output file is then what it was.
pub fn run(args: &RunArgs) -> Result<(), BenchError> {
    args.snapshot.prepare()?;
    if args.snapshot.snapshot.is_some() && args.reference_config != BEST {
        let problem = "a snapshot holds ratios to the fastest: use --reference-config best";
        return Err(BenchError::Usage(problem.to_owned()));
    }
    if args.snapshot.snapshot.is_some() && args.references.iter().any(|id| id == NONE) {
        let problem = "a snapshot holds ratios to a reference, and there is none";
        return Err(BenchError::Usage(problem.to_owned()));
    }
    let library = args.library.open()?;
    let machine = MachineInfo::read();
    let place = plan::place(library.root())?;
    let references = plan::references(args, library.root(), &place, &machine)?;
    let workloads = plan::workloads(args, &library)?;
    for workload in &workloads {
        let model = library.model(&workload.model)?;
        model.locate(library.models_folder())?;
    }
    let pairings: Vec<Pairing<'_>> = workloads
        .iter()
        .flat_map(|&workload| {
            let lanes = plan::lanes(args, workload).into_iter();
            lanes.map(move |lane| Pairing { workload, lane })
        })
        .collect();
    if pairings.is_empty() {
        let lane = args.lane.map_or("any", Lane::name);
        return Err(BenchError::Usage(format!(
            "no selected workload has the lane {lane}"
        )));
    }
    // What is wrong with any of them shows before hours of measuring.
    let (mut all, mut tried) = (0.0, BTreeSet::new());
    for workload in &workloads {
        let subject = Subject::prepare(&library, workload, |_| ())?;
        for lane in plan::lanes(args, workload) {
            let seconds = plan::seconds(args, &subject, lane, &references, &machine, &mut tried);
            all += seconds;
            if args.dry_run {
                tell(&format!("{} {lane}: {seconds:.0} s", workload.id));
            }
        }
    }
    let count = pairings.len();
    tell(&format!("{count} measurements: {}", estimate::words(all)));
    if args.dry_run {
        return Ok(());
    }
    let interrupt = Interrupt::install().map_err(BenchError::Streams)?;
    let run_id = run_id();
    let output = args.output.as_deref();
    let file = output
        .map(|path| RecordFile::begin(path, args.append))
        .transpose()?;
    let traces = output
        .map(|path| Traces::beside(path, &run_id))
        .transpose()?;
    let traces = traces.flatten();
    let replaced = output.filter(|path| path.is_file()).map(read_records);
    let replaced = replaced.and_then(Result::ok).unwrap_or_default();
    let bench = Bench {
        args,
        library: &library,
        bar: Bar::new(expected_runs(args, &references, pairings.len())),
        known: choose::Known::default(),
        machine,
        place,
        references,
        interrupt,
        run_id,
    };
    let measured = bench.all(&pairings, traces.as_ref());
    bench.bar.end();
    let records = measured?;
    // Shown first: should the file not be written, this is what is left.
    show(args, &records)?;
    if let Some(error) = emel_failed(&records) {
        return Err(BenchError::EmelFailed { error });
    }
    if let Some((mut file, path)) = file.zip(output) {
        records.iter().for_each(|record| file.push(record));
        file.commit()?;
        if let Some(traces) = traces {
            let named = named_traces(&read_records(path)?);
            traces.commit(&named, &named_traces(&replaced));
        }
    }
    args.snapshot.apply(&records)
}

/// Why EMEL measured nothing at all, when that is so: such records are of no use to anyone.
fn emel_failed(records: &[Record]) -> Option<String> {
    let mut own = records.iter().filter(|record| report::is_emel(record));
    let all_failed = own
        .clone()
        .all(|record| record.head().status == Status::Error);
    let first = own.next().filter(|_| all_failed)?;
    Some(first.head().error.clone().unwrap_or_default())
}

/// The traces that records name.
fn named_traces(records: &[Record]) -> BTreeSet<String> {
    let trace = |record: &Record| match record {
        Record::Generation(record) => record.trace.clone(),
        _ => None,
    };
    records.iter().filter_map(trace).collect()
}

/// Engine runs that are to come, about.
fn expected_runs(args: &RunArgs, references: &[BackendManifest], pairings: usize) -> u64 {
    // Each reference is tried in some six configurations and then runs in one or two.
    let each = (1 + 2 * references.len()) * (args.runs.get() + 1) + 6 * references.len();
    (each * pairings) as u64
}

/// Tables for the terminal go to standard error, documents to standard output.
fn show(args: &RunArgs, records: &[Record]) -> Result<(), BenchError> {
    let text = report::report(records, args.format);
    match args.format {
        Format::Table => tell(text.trim_end()),
        Format::Md => crate::run::show(&text).map_err(BenchError::Streams)?,
    }
    Ok(())
}

/// One line on what was just measured.
fn line(pairing: &Pairing<'_>, records: &[Record]) -> String {
    let mut line = format!("{} {}:", pairing.workload.id, pairing.lane);
    for group in report::groups(records) {
        let is_cold = pairing.workload.process == ProcessRule::Cold;
        let metrics = match is_cold {
            true => &[Metric::Ttft][..],
            false => &[Metric::Prefill, Metric::Decode],
        };
        for &metric in metrics {
            let fastest = group.fastest(metric, None);
            if let Some(ratio) = fastest.and_then(|other| metric.ratio(other)) {
                line += &format!(" {} {:.2}x", metric.name(), ratio.median);
            }
        }
    }
    let failed = |record: &&Record| record.head().status == Status::Error;
    match records.iter().filter(failed).count() {
        0 => line + " done",
        failed => line + &format!(" {failed} failed"),
    }
}

impl Bench<'_> {
    fn all(
        &self,
        pairings: &[Pairing<'_>],
        traces: Option<&Traces>,
    ) -> Result<Vec<Record>, BenchError> {
        let mut records = Vec::new();
        for (at, pairing) in pairings.iter().enumerate() {
            let threads = plan::lane_threads(self.args, pairing.lane, &self.machine);
            match self.pairing(pairing, threads, traces) {
                Ok(new) => records.extend(new),
                Err(BenchError::Backend(BackendError::Interrupted)) => {
                    return Err(self.interrupted(&pairings[at..], at));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(records)
    }

    fn interrupted(&self, left: &[Pairing<'_>], done: usize) -> BenchError {
        let name = |pairing: &Pairing<'_>| format!("{} {}", pairing.workload.id, pairing.lane);
        BenchError::Interrupted {
            done,
            missing: left.iter().map(name).collect(),
            output: self.args.output.clone(),
        }
    }

    /// Measures one workload in one lane.
    fn pairing(
        &self,
        pairing: &Pairing<'_>,
        threads: usize,
        traces: Option<&Traces>,
    ) -> Result<Vec<Record>, BenchError> {
        let workload = pairing.workload;
        let subject = Subject::prepare(self.library, workload, |_| ())?;
        let task = subject.task(pairing.lane);
        let tell = |what: &str| {
            let name = format!("{} {}: {what}", workload.id, pairing.lane);
            self.bar.run(&name);
        };
        let track = Track {
            task: &task,
            repetitions: self.args.runs.get(),
            budget: self.args.budget.map(Duration::from_secs),
            timeout: Duration::from_secs(self.args.timeout),
            interrupt: &self.interrupt,
            traces: traces.map(Traces::place),
            tell: &tell,
        };
        let mut contenders = vec![Measured::new(
            plan::emel(self.args, &task, threads, &self.place),
            Vec::new(),
        )];
        for manifest in &self.references {
            contenders.extend(self.of_reference(&track, manifest, threads)?);
        }
        // Before and after, and the higher counts: on a shared machine limits change by the hour. Not
        // before cold starts: memory that was used a moment ago is cheaper to get, and EMEL takes more.
        let before = match task.cold {
            true => None,
            false => self.limits(threads),
        };
        track.measure(&mut contenders)?;
        let limits = match (before, self.limits(threads)) {
            (Some(before), Some(after)) => Some(before.higher(after)),
            (before, after) => before.or(after),
        };
        let frame = Frame {
            workload,
            lane: pairing.lane,
            task: &task,
            facts: &subject.facts,
            threads,
            limits: limits.as_ref(),
            machine: &self.machine,
            run_id: &self.run_id,
        };
        let records = frame.records(&contenders);
        self.bar.say(&line(pairing, &records));
        Ok(records)
    }

    /// This machine's limits; what was measured of speeds is worth telling without them.
    fn limits(&self, threads: usize) -> Option<MachineLimits> {
        self.bar.note("measuring this machine's limits");
        let found = limits::measure_quick(threads);
        let tell = |error: &BenchError| self.bar.say(&format!("limits not measured: {error}"));
        found.inspect_err(tell).ok()
    }

    /// The configurations of a reference that take part: the fastest, or all.
    fn of_reference(
        &self,
        track: &Track<'_>,
        manifest: &BackendManifest,
        threads: usize,
    ) -> Result<Vec<Measured>, BenchError> {
        let all = plan::candidates(self.args, manifest, threads, &self.place, &self.machine);
        if self.args.reference_config == BEST {
            return Ok(choose::fastest(track, all, &self.known)?);
        }
        Ok(all
            .into_iter()
            .map(|contender| Measured::new(contender, Vec::new()))
            .collect())
    }
}

/// The set of configurations of which only the fastest count.
const BEST: &str = "best";
