//! Snapshots: the ratios that were reached, and a gate that says when one has fallen.
//!
//! A snapshot is JSONL, one [`SnapshotRow`] a workload, lane, backend and metric. It holds ratios
//! only: absolute times differ from machine to machine and never gate. Of a backend's several
//! configurations the fastest counts. Prefill and decode gate where a model is loaded once, the
//! whole of it where every run starts a process.

use crate::cli::message::tell;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::BenchError;
use super::records::read::{for_each_line, syntax};
use super::records::{Fault, Record, RecordError, Status};
use super::report::{Group, Metric, groups};
use crate::output::AtomicFile;

/// How far a ratio may fall, as a part of it, unless a row says otherwise.
pub const DEFAULT_TOLERANCE: f64 = 0.10;

/// A ratio that was reached.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotRow {
    /// The workload's id.
    pub workload_id: String,
    /// `single` or `multithreaded`.
    pub lane: String,
    /// The backend that EMEL is compared with.
    pub backend: String,
    /// `prefill`, `decode` or `total`.
    pub metric: String,
    /// EMEL's speed over the backend's.
    pub ratio: f64,
    /// How far it may fall, as a part of it: 0.1 lets 1.50 become 1.35. People set it; an update
    /// keeps it.
    pub tolerance: f64,
}

/// A snapshot beside the ratios of a new run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Comparison {
    /// Rows whose ratio fell by more than their tolerance, with the new ratio.
    pub fallen: Vec<(SnapshotRow, f64)>,
    /// Rows that the new run has no ratio for.
    pub missing: Vec<SnapshotRow>,
    /// Ratios that the snapshot has no row for.
    pub new: Vec<SnapshotRow>,
    /// Rows that held.
    pub held: usize,
}

/// What to do with a snapshot; to be flattened into a command's arguments.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct SnapshotArgs {
    /// File of the ratios that were reached
    #[arg(long, value_name = "FILE")]
    pub snapshot: Option<PathBuf>,
    /// Fail, naming the rows, when a ratio is missing or fell by more than its tolerance
    #[arg(long, requires = "snapshot", conflicts_with = "update")]
    pub check: bool,
    /// Write the snapshot from what was measured; tolerances in it are kept
    #[arg(long, requires = "snapshot")]
    pub update: bool,
}

impl SnapshotArgs {
    /// Whether the arguments make sense; for a command that wants to know before it measures.
    ///
    /// # Errors
    /// [`BenchError::Usage`]; for a check, what is wrong with the file.
    pub fn prepare(&self) -> Result<(), BenchError> {
        match &self.snapshot {
            Some(_) if !self.check && !self.update => Err(BenchError::Usage(
                "--snapshot needs --check or --update".to_owned(),
            )),
            Some(path) if self.check => read(path).map(drop),
            _ => Ok(()),
        }
    }

    /// Checks or updates the snapshot, if one is named; says on standard error what it did.
    ///
    /// # Errors
    /// [`BenchError::Fallen`] when the check fails; what is wrong with the file.
    pub fn apply(&self, records: &[Record]) -> Result<(), BenchError> {
        self.prepare()?;
        let Some(path) = &self.snapshot else {
            return Ok(());
        };
        if self.update {
            let dropped = update(path, records)?;
            for row in &dropped {
                tell(&format!("{}: dropped, not measured: {row}", path.display()));
            }
            return Ok(());
        }
        let comparison = compare(&read(path)?, &rows(records));
        for row in &comparison.new {
            tell(&format!("{}: no row yet for {row}", path.display()));
        }
        match comparison.failure() {
            None if comparison.held == 0 => Err(BenchError::Fallen {
                path: path.clone(),
                failure: " the snapshot has no rows: nothing was compared".to_owned(),
            }),
            None => {
                tell(&format!(
                    "{}: {} ratios held",
                    path.display(),
                    comparison.held
                ));
                Ok(())
            }
            Some(failure) => Err(BenchError::Fallen {
                path: path.clone(),
                failure,
            }),
        }
    }
}

impl std::fmt::Display for SnapshotRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let SnapshotRow {
            workload_id,
            lane,
            backend,
            metric,
            ratio,
            ..
        } = self;
        write!(
            f,
            "{workload_id}, {lane}, {metric} against {backend}: {ratio:.3}"
        )
    }
}

impl SnapshotRow {
    fn is_of(&self, other: &SnapshotRow) -> bool {
        let key = |row: &SnapshotRow| {
            let SnapshotRow {
                workload_id,
                lane,
                backend,
                metric,
                ..
            } = row.clone();
            (workload_id, lane, backend, metric)
        };
        key(self) == key(other)
    }

    /// The least ratio that passes.
    fn floor(&self) -> f64 {
        self.ratio * (1.0 - self.tolerance)
    }
}

impl Comparison {
    /// What failed, a line a row; none when nothing did.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        let fallen = self.fallen.iter().map(|(row, now)| {
            let percent = 100.0 * (1.0 - now / row.ratio);
            let allowed = 100.0 * row.tolerance;
            format!("\n  {row} fell to {now:.3}, by {percent:.1} % ({allowed:.1} % is allowed)")
        });
        let missing = self.missing.iter().map(|row| {
            format!("\n  {row} was not measured (select its workload, or look for its error)")
        });
        let lines: String = fallen.chain(missing).collect();
        (!lines.is_empty()).then_some(lines)
    }
}

/// The ratios of records, as rows with the default tolerance.
#[must_use]
pub fn rows(records: &[Record]) -> Vec<SnapshotRow> {
    groups(records).iter().flat_map(rows_of_group).collect()
}

fn rows_of_group(group: &Group<'_>) -> Vec<SnapshotRow> {
    let is_fit = |record: &crate::bench::records::Generation| {
        record.comparable && record.head.status == Status::Ok
    };
    let mut rows = Vec::new();
    let Some(emel) = group.emel.filter(|emel| is_fit(emel)) else {
        return rows;
    };
    let metrics: &[Metric] = match emel.process.as_str() {
        "cold" => &[Metric::Total],
        _ => &[Metric::Prefill, Metric::Decode],
    };
    for backend in group.backends() {
        for &metric in metrics {
            let fastest = group
                .fastest(metric, Some(backend))
                .filter(|other| is_fit(other));
            if let Some(ratio) = fastest.and_then(|other| metric.ratio(other)) {
                rows.push(SnapshotRow {
                    workload_id: emel.workload_id.clone(),
                    lane: emel.lane.clone(),
                    backend: backend.to_owned(),
                    metric: metric.name().to_owned(),
                    ratio: ratio.median,
                    tolerance: DEFAULT_TOLERANCE,
                });
            }
        }
    }
    rows
}

/// Compares the ratios of a run with a snapshot.
#[must_use]
pub fn compare(snapshot: &[SnapshotRow], now: &[SnapshotRow]) -> Comparison {
    let mut comparison = Comparison::default();
    for row in snapshot {
        match now.iter().find(|new| new.is_of(row)) {
            None => comparison.missing.push(row.clone()),
            Some(new) if new.ratio < row.floor() => {
                comparison.fallen.push((row.clone(), new.ratio));
            }
            Some(_) => comparison.held += 1,
        }
    }
    let is_new = |new: &&SnapshotRow| !snapshot.iter().any(|row| row.is_of(new));
    comparison.new = now.iter().filter(is_new).cloned().collect();
    comparison
}

/// Reads a snapshot.
///
/// # Errors
/// [`BenchError::Records`], with the line.
pub fn read(path: &Path) -> Result<Vec<SnapshotRow>, BenchError> {
    let mut rows: Vec<SnapshotRow> = Vec::new();
    for_each_line(path, |line, text| {
        let row = text.and_then(|text| row(text, &rows));
        rows.push(row.map_err(|fault| RecordError::Line {
            path: path.to_owned(),
            line,
            fault,
        })?);
        Ok::<(), RecordError>(())
    })?;
    Ok(rows)
}

fn row(text: &str, before: &[SnapshotRow]) -> Result<SnapshotRow, Fault> {
    let row: SnapshotRow =
        serde_json::from_str(text).map_err(|error| Fault::Syntax(syntax(&error)))?;
    let wrong = |key: &str, problem: &str| {
        Err(Fault::Value {
            key: key.to_owned(),
            problem: problem.to_owned(),
        })
    };
    if row.ratio <= 0.0 {
        return wrong("ratio", "must be more than 0");
    }
    if !(0.0..1.0).contains(&row.tolerance) {
        return wrong("tolerance", "must be from 0 to less than 1");
    }
    if before.iter().any(|other| other.is_of(&row)) {
        return wrong("workload_id", "an earlier line has the same row");
    }
    Ok(row)
}

/// Writes a snapshot from records, whole or not at all. Tolerances of rows that stood there are
/// kept; the rows that were not measured are dropped and returned.
///
/// # Errors
/// [`BenchError::Output`]; [`BenchError::Records`] when what stands there is no snapshot;
/// [`BenchError::Usage`] when nothing was measured.
pub fn update(path: &Path, records: &[Record]) -> Result<Vec<SnapshotRow>, BenchError> {
    let old = match path.is_file() {
        true => read(path)?,
        false => Vec::new(),
    };
    let mut new = rows(records);
    if new.is_empty() {
        return Err(BenchError::Usage(format!(
            "{} is left alone: no ratio was measured (is there a reference?)",
            path.display()
        )));
    }
    let mut file = AtomicFile::create(path)?;
    for row in &mut new {
        if let Some(before) = old.iter().find(|before| before.is_of(row)) {
            row.tolerance = before.tolerance;
        }
        // Three digits are more than a measurement has; they keep differences readable.
        row.ratio = (row.ratio * 1000.0).round() / 1000.0;
        let line = serde_json::to_string(row).map_err(|error| BenchError::Streams(error.into()))?;
        file.write(line.as_bytes())?;
        file.write(b"\n")?;
    }
    file.commit()?;
    let is_dropped = |row: &SnapshotRow| !new.iter().any(|other| other.is_of(row));
    Ok(old.into_iter().filter(is_dropped).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::tests::pair;
    use std::fs;
    use tempfile::{TempDir, tempdir};

    struct Place(TempDir);

    impl Place {
        fn new() -> Place {
            Place(tempdir().unwrap())
        }
        fn file(&self) -> PathBuf {
            self.0.path().join("snapshot.jsonl")
        }
        fn apply(&self, check: bool, records: &[Record]) -> Result<(), String> {
            let args = SnapshotArgs {
                snapshot: Some(self.file()),
                check,
                update: !check,
            };
            args.apply(records).map_err(|error| error.to_string())
        }
    }

    #[test]
    fn a_ratio_that_falls_is_named() {
        let place = Place::new();
        place.apply(false, &pair("a_v1", 2.0)).unwrap();
        place.apply(true, &pair("a_v1", 2.0)).unwrap();
        place.apply(true, &pair("a_v1", 3.0)).unwrap();
        place.apply(true, &pair("a_v1", 1.81)).unwrap();
        let error = place.apply(true, &pair("a_v1", 1.7)).unwrap_err();
        assert!(
            error.contains(
                "a_v1, single, prefill against llama.cpp: 2.000 fell to 1.700, by 15.0 %"
            ),
            "{error}"
        );
        assert!(error.contains("10.0 % is allowed"), "{error}");
    }

    #[test]
    fn a_row_that_is_missing_fails_and_a_new_one_does_not() {
        let place = Place::new();
        let mut both = pair("a_v1", 2.0);
        both.extend(pair("b_v1", 1.5));
        place.apply(false, &pair("a_v1", 2.0)).unwrap();
        place.apply(true, &both).unwrap();
        let comparison = compare(&read(&place.file()).unwrap(), &rows(&both));
        assert_eq!((comparison.held, comparison.new.len()), (2, 2));
        place.apply(false, &both).unwrap();
        let error = place.apply(true, &pair("a_v1", 2.0)).unwrap_err();
        assert!(
            error.contains("b_v1, single, decode against llama.cpp: 1.500 was not"),
            "{error}"
        );
        // An engine that failed has no ratio.
        let mut failed = both.clone();
        if let Record::Generation(record) = &mut failed[1] {
            record.head.status = Status::Error;
        }
        let error = place.apply(true, &failed).unwrap_err();
        assert!(
            error.contains("a_v1, single, prefill") && !error.contains("b_v1"),
            "{error}"
        );
    }

    #[test]
    fn updates_keep_tolerances_and_name_what_they_drop() {
        let place = Place::new();
        let mut both = pair("a_v1", 2.0);
        both.extend(pair("b_v1", 1.5));
        place.apply(false, &both).unwrap();
        let text = fs::read_to_string(place.file()).unwrap();
        fs::write(place.file(), text.replacen("0.1", "0.25", 1)).unwrap();
        let dropped = update(&place.file(), &pair("a_v1", 1.0)).unwrap();
        assert_eq!(dropped.len(), 2);
        let kept = read(&place.file()).unwrap();
        assert_eq!((kept[0].ratio, kept[0].tolerance), (1.0, 0.25));
        assert_eq!((kept[1].ratio, kept[1].tolerance), (1.0, DEFAULT_TOLERANCE));
        let before = fs::read_to_string(place.file()).unwrap();
        assert!(matches!(
            update(&place.file(), &[]),
            Err(BenchError::Usage(_))
        ));
        assert_eq!(fs::read_to_string(place.file()).unwrap(), before);
    }

    #[test]
    fn a_bad_snapshot_is_named_with_its_line() {
        let place = Place::new();
        place.apply(false, &pair("a_v1", 2.0)).unwrap();
        let good = fs::read_to_string(place.file()).unwrap();
        let first = good.lines().next().unwrap();
        for (line, problem) in [
            (first.to_owned(), "an earlier line has the same row"),
            (
                first.replace("2.0", "-1"),
                "key `ratio`: must be more than 0",
            ),
            (
                first.replace("0.1", "1.5"),
                "key `tolerance`: must be from 0",
            ),
            (first.replace("lane", "lain"), "unknown field `lain`"),
            ("{".to_owned(), "not JSON: EOF"),
        ] {
            fs::write(place.file(), format!("{good}{line}\n")).unwrap();
            let error = read(&place.file()).unwrap_err().to_string();
            assert!(
                error.contains(".jsonl:3: ") && error.contains(problem),
                "{error}"
            );
        }
        let idle = SnapshotArgs {
            snapshot: Some(place.file()),
            ..SnapshotArgs::default()
        };
        assert!(matches!(idle.prepare(), Err(BenchError::Usage(_))));
    }
}
