//! The points of curves, from records.
//!
//! Prompts and depths are those of workloads named `MODEL_growth_N_...`; loads those of processes
//! that began cold, `MODEL_cold_start_...`.

use crate::bench::records::{Generation, Record, Status};
use crate::bench::report::{Metric, groups};
use crate::bench::stats::Samples;

/// What grows with what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Time of a prompt's token, by the prompt's length.
    Prefill,
    /// Time of a generated token, by the tokens before it.
    Decode,
    /// Time of a load, by the file's size.
    Load,
}

/// One picture: a quantity on one model (or, of loads, on all) in one lane.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// The picture's name: `prefill_qwen3_0_6b_q8_0_multithreaded`.
    pub name: String,
    /// What grows.
    pub subject: Subject,
    /// On which model; all, of loads.
    pub model: Option<String>,
    /// The lane with its threads.
    pub lane: String,
    /// A line an engine, EMEL's first.
    pub lines: Vec<Line>,
    /// Machine and engine versions, as far as they are known.
    pub origin: Vec<String>,
}

/// One engine's points.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The backend's id.
    pub engine: String,
    /// By ascending x.
    pub points: Vec<Point>,
}

/// One measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Tokens, or bytes.
    pub x: f64,
    /// Nanoseconds: the median.
    pub y: f64,
    /// The least and the greatest of its samples.
    pub range: (f64, f64),
    /// Which configuration or model it is of.
    pub label: String,
}

/// A prompt of fewer tokens is no prompt but a step of decode.
const LEAST_PROMPT: f64 = 32.0;

/// The curves that records hold: those of which an engine has at least two points.
#[must_use]
pub fn curves(records: &[Record]) -> Vec<Curve> {
    let mut curves: Vec<Curve> = Vec::new();
    for group in groups(records) {
        let Some(any) = group.any() else { continue };
        for subject in subjects(any) {
            // Of an engine's configurations the one that was fastest there.
            let metric = match subject {
                Subject::Prefill => Metric::Prefill,
                Subject::Decode => Metric::Decode,
                Subject::Load => Metric::Ttft,
            };
            let others = group.backends().into_iter();
            let others = others.filter_map(|backend| group.fastest(metric, Some(backend)));
            for record in group.emel.into_iter().chain(others) {
                if let Some(point) = point(record, subject) {
                    place(&mut curves, record, subject, point);
                }
            }
        }
    }
    for curve in &mut curves {
        curve.lines.retain(|line| line.points.len() > 1);
        for line in &mut curve.lines {
            line.points.sort_by(|a, b| a.x.total_cmp(&b.x));
        }
    }
    curves.retain(|curve| !curve.lines.is_empty());
    curves
}

/// What a workload's records are points of.
fn subjects(record: &Generation) -> Vec<Subject> {
    let prefix = format!("{}_", record.model);
    let name = record.workload_id.strip_prefix(&prefix);
    match name.unwrap_or_default() {
        name if name.starts_with("growth_") => vec![Subject::Prefill, Subject::Decode],
        name if name.starts_with("cold_start_") => vec![Subject::Load],
        _ => Vec::new(),
    }
}

fn point(record: &Generation, subject: Subject) -> Option<Point> {
    if record.head.status == Status::Error {
        return None;
    }
    let prompt = record.prompt_tokens? as f64;
    let (x, times, per): (f64, Option<&Samples>, f64) = match subject {
        Subject::Prefill => (prompt, record.phases.prefill.as_ref(), prompt),
        Subject::Decode => {
            // The mean depth of the steps: the first sees the prompt and one token more.
            let depth = prompt + record.output_tokens? as f64 / 2.0;
            (depth, record.phases.decode.as_ref(), 1.0)
        }
        Subject::Load => (record.model_bytes? as f64, record.phases.load.as_ref(), 1.0),
    };
    if subject == Subject::Prefill && prompt < LEAST_PROMPT {
        return None;
    }
    let times = times?;
    Some(Point {
        x,
        y: times.median / per,
        range: (times.min / per, times.max / per),
        label: match subject {
            Subject::Load => record.model.clone(),
            _ => record.config.clone().unwrap_or_default(),
        },
    })
}

/// Puts a point on its line, which may be the first to be there.
fn place(curves: &mut Vec<Curve>, record: &Generation, subject: Subject, point: Point) {
    let (word, model) = match subject {
        Subject::Prefill => ("prefill", Some(&record.model)),
        Subject::Decode => ("decode", Some(&record.model)),
        Subject::Load => ("load", None),
    };
    let parts = [Some(word), model.map(String::as_str), Some(&*record.lane)];
    let name = parts.into_iter().flatten().collect::<Vec<_>>().join("_");
    let at = curves.iter().position(|curve| curve.name == name);
    let at = at.unwrap_or_else(|| {
        curves.push(Curve {
            name,
            subject,
            model: model.cloned(),
            lane: format!("{} ({})", record.lane, record.head.threads),
            lines: Vec::new(),
            origin: Vec::new(),
        });
        curves.len() - 1
    });
    let curve = &mut curves[at];
    for line in origin(record) {
        if !curve.origin.contains(&line) {
            curve.origin.push(line);
        }
    }
    let lines = &mut curve.lines;
    match lines.iter_mut().find(|line| line.engine == record.backend) {
        Some(line) => line.points.push(point),
        None => lines.push(Line {
            engine: record.backend.clone(),
            points: vec![point],
        }),
    }
}

/// The machine, and the engine with its version.
fn origin(record: &Generation) -> Vec<String> {
    let head = &record.head;
    let machine = head.cpu_model.as_ref().map(|cpu| match head.cpu_cores {
        Some(cores) => format!("machine: {cpu}, {cores} cores"),
        None => format!("machine: {cpu}"),
    });
    let version = head.engine_version.as_deref().unwrap_or("unknown");
    let known = |text: &&String| !text.is_empty() && *text != "unknown";
    let commit = record.engine_commit.as_ref().filter(known);
    let commit = commit.map_or(String::new(), |commit| format!(", commit {commit}"));
    let engine = format!("{} {version}{commit}", head.engine);
    machine.into_iter().chain([engine]).collect()
}
