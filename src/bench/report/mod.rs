//! `emel-bench report`: records as tables, for a terminal or a document.
//!
//! EMEL is compared with the fastest other engine and configuration, for each phase apart; the
//! ratio is EMEL's speed over its, the median of pairs of runs that alternated, with their range.

mod compare;
mod generation;
mod grid;
mod others;

pub use compare::{Group, Metric, groups, is_emel};
pub use grid::{Align, Format, Grid, rate};

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::BenchError;
use super::records::{Record, Status, read_records};
use super::snapshot::SnapshotArgs;
use super::targets;
use super::workload::LibraryArgs;
use crate::output::is_closed_pipe;

/// Shows recorded measurements.
#[derive(Clone, Debug, clap::Args)]
pub struct ReportArgs {
    /// Files of records
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// How to write the tables
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Instead of the tables, show what is to be reached beside what was: by FILE
    /// [default: targets.json of benchdata]
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    pub targets: Option<Option<PathBuf>>,
    /// Where the targets and their workloads are
    #[command(flatten)]
    pub library: LibraryArgs,
    /// A snapshot to compare with, or to write
    #[command(flatten)]
    pub snapshot: SnapshotArgs,
}

/// Runs the command: the report goes to standard output.
///
/// # Errors
/// [`BenchError::Records`] for a file that is not all records; [`BenchError::Workload`] for targets
/// that cannot be read; the snapshot's errors.
pub fn run(args: &ReportArgs) -> Result<(), BenchError> {
    let mut records = Vec::new();
    for file in &args.files {
        records.extend(read_records(file)?);
    }
    let text = match &args.targets {
        None => report(&records, args.format),
        Some(file) => targets(args, file.as_deref(), &records)?,
    };
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if !is_closed_pipe(&error) => return Err(BenchError::Streams(error)),
        _ => {}
    }
    args.snapshot.apply(&records)
}

/// Targets, and what became of them.
fn targets(
    args: &ReportArgs,
    file: Option<&Path>,
    records: &[Record],
) -> Result<String, BenchError> {
    let library = args.library.open()?;
    let shipped = || library.root().join(targets::FILE);
    let targets = targets::read(&file.map_or_else(shipped, Path::to_owned), &library)?;
    let outcomes = targets::judge(&targets, records);
    Ok(targets::table(&outcomes, &library, args.format))
}

/// The whole report: machine and engines, a table a kind, errors and warnings.
#[must_use]
pub fn report(records: &[Record], format: Format) -> String {
    let mut parts = vec![origin(records, format)];
    parts.extend(generation::table(records, format));
    parts.extend(generation::cold_table(records, format));
    parts.extend(others::kernels(records, format));
    parts.extend(others::machines(records, format));
    parts.extend(others::limits(records, format));
    parts.push(remarks("errors", &errors(records), format));
    parts.push(remarks("warnings", &warnings(records), format));
    parts.retain(|part| !part.is_empty());
    match parts.is_empty() {
        true => "no records\n".to_owned(),
        false => parts.join("\n"),
    }
}

fn remarks(title: &str, lines: &[String], format: Format) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let title = match format {
        Format::Table => format!("{title}:\n"),
        Format::Md => format!("**{title}**\n\n"),
    };
    let lines: Vec<String> = lines.iter().map(|line| format!("- {line}\n")).collect();
    title + &lines.concat()
}

/// On what machine and with which engines it was measured: each once.
fn origin(records: &[Record], format: Format) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut add = |line: String| {
        if !lines.contains(&line) {
            lines.push(line);
        }
    };
    for record in records {
        let head = record.head();
        let mut machine: Vec<String> = head.cpu_model.clone().into_iter().collect();
        machine.extend(head.cpu_cores.map(|cores| format!("{cores} cores")));
        machine.extend(head.cpu_threads.map(|threads| format!("{threads} threads")));
        let memory = head
            .memory_bytes
            .map(|bytes| bytes as f64 / 1_073_741_824.0);
        machine.extend(memory.map(|gibibytes| format!("{gibibytes:.0} GiB")));
        machine.extend(head.os.clone());
        if !machine.is_empty() {
            add(format!("machine: {}", machine.join(", ")));
        }
    }
    for record in records {
        let head = record.head();
        let Some(version) = &head.engine_version else {
            continue;
        };
        let mut engine = format!("{} {version}", head.engine);
        if let Record::Generation(record) = record {
            let known = |text: &&String| !text.is_empty() && *text != "unknown";
            let commit = record.engine_commit.as_ref().filter(known);
            engine.extend(commit.map(|commit| format!(", commit {commit}")));
            let compiler = record.engine_compiler.as_ref().filter(known);
            engine.extend(compiler.map(|compiler| format!(", {compiler}")));
        }
        engine.extend(head.isa.as_ref().map(|isa| format!(", {isa}")));
        add(engine);
    }
    let lines = lines.iter().map(|line| match format {
        Format::Table => format!("{line}\n"),
        Format::Md => format!("- {line}\n"),
    });
    lines.collect()
}

fn errors(records: &[Record]) -> Vec<String> {
    let failed = records
        .iter()
        .filter(|record| record.head().status == Status::Error);
    let text = |record: &Record| {
        let error = record
            .head()
            .error
            .as_deref()
            .unwrap_or("failed without a word");
        let tail = match record {
            Record::Generation(record) => record.stderr_tail.as_deref().unwrap_or_default(),
            _ => "",
        };
        // The last line is the one that says what happened, mostly.
        let last = tail.lines().rev().find(|line| !line.trim().is_empty());
        let last = last.map_or(String::new(), |line| format!(" (it said: {})", line.trim()));
        format!("{}: {error}{last}", subject(record))
    };
    failed.map(text).collect()
}

/// Warnings of one kind about many records are shown once, with the first one's words.
fn warnings(records: &[Record]) -> Vec<String> {
    let mut by_kind: BTreeMap<String, (String, usize)> = BTreeMap::new();
    for record in records {
        for warning in &record.head().warnings {
            let kind = serde_json::to_value(&warning.kind).unwrap_or_default();
            let kind = kind.as_str().unwrap_or_default().to_owned();
            let text = format!("{kind}: {}: {}", subject(record), warning.message);
            by_kind.entry(kind).or_insert((text, 0)).1 += 1;
        }
    }
    let text = |(text, count): (String, usize)| match count {
        1 => text,
        count => format!("{text} (and {} more of this kind)", count - 1),
    };
    by_kind.into_values().map(text).collect()
}

/// Which record is meant, in words.
fn subject(record: &Record) -> String {
    let engine = &record.head().engine;
    match record {
        Record::Generation(record) => {
            let config = record
                .config
                .as_ref()
                .map_or(String::new(), |name| format!(" {name}"));
            format!("{engine}{config}, {}, {}", record.workload_id, record.lane)
        }
        Record::Kernel(record) => format!("{engine}, {}", record.kernel),
        Record::Machine(record) => format!("{engine}, {}", record.machine),
        Record::Limit(record) => format!("{engine}, {}", record.limit),
    }
}

#[cfg(test)]
pub(in crate::bench) mod tests;
