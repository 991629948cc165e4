//! The tables of generation records: those of warm processes, and those of cold ones.

use super::compare::{Group, Metric, groups};
use super::grid::{Align, Format, Grid, rate};
use crate::bench::records::{Generation, Record, Status};
use crate::bench::stats::{Ratio, Samples};

/// The table of warm processes; none without such records.
pub(super) fn table(records: &[Record], format: Format) -> Option<String> {
    let mut grid = Grid::new(&[
        ("model", Align::Left),
        ("workload", Align::Left),
        ("lane", Align::Left),
        ("prefill t/s", Align::Right),
        ("reference", Align::Right),
        ("ratio", Align::Right),
        ("decode t/s", Align::Right),
        ("reference", Align::Right),
        ("ratio", Align::Right),
        ("best reference", Align::Left),
        ("status", Align::Left),
    ]);
    for group in groups(records) {
        if let Some(any) = group.any().filter(|any| !is_cold(any)) {
            grid.push(row(&group, any));
        }
    }
    (!grid.is_empty()).then(|| grid.render(format))
}

/// The table of processes that began with each run: from their start to the first token. None
/// without such records.
pub(super) fn cold_table(records: &[Record], format: Format) -> Option<String> {
    let mut grid = Grid::new(&[
        ("model", Align::Left),
        ("workload", Align::Left),
        ("lane", Align::Left),
        ("start to token, ms", Align::Right),
        ("reference", Align::Right),
        ("ratio", Align::Right),
        ("of it load, ms", Align::Right),
        ("reference", Align::Right),
        ("best reference", Align::Left),
        ("status", Align::Left),
    ]);
    for group in groups(records) {
        if let Some(any) = group.any().filter(|any| is_cold(any)) {
            grid.push(cold_row(&group, any));
        }
    }
    (!grid.is_empty()).then(|| grid.render(format))
}

/// Whether every run had a process of its own.
fn is_cold(record: &Generation) -> bool {
    record.process == "cold"
}

fn cold_row(group: &Group<'_>, any: &Generation) -> Vec<String> {
    let other = group.fastest(Metric::Ttft, None);
    let ms = |samples: Option<&Samples>| rate(samples.map(|samples| samples.median / 1e6));
    let ttft = |record: Option<&Generation>| ms(record.and_then(|one| one.phases.ttft.as_ref()));
    let load = |record: Option<&Generation>| ms(record.and_then(|one| one.phases.load.as_ref()));
    let mut row = subject(any);
    row.push(ttft(group.emel));
    row.push(ttft(other));
    row.push(other.map_or("-".to_owned(), |other| ratio(group, other, Metric::Ttft)));
    row.push(load(group.emel));
    row.push(load(other));
    row.push(other.map_or("-".to_owned(), Generation::label));
    row.push(status(group));
    row
}

/// Model, workload and lane.
fn subject(any: &Generation) -> Vec<String> {
    let prefix = format!("{}_", any.model);
    let workload = any
        .workload_id
        .strip_prefix(&prefix)
        .unwrap_or(&any.workload_id);
    let threads = any.head.threads;
    vec![
        any.model.clone(),
        workload.to_owned(),
        format!("{} ({threads})", any.lane),
    ]
}

fn row(group: &Group<'_>, any: &Generation) -> Vec<String> {
    let mut row = subject(any);
    for metric in [Metric::Prefill, Metric::Decode] {
        let other = group.fastest(metric, None);
        row.push(rate(group.emel.and_then(|emel| speed(emel, metric))));
        row.push(rate(other.and_then(|other| speed(other, metric))));
        row.push(other.map_or("-".to_owned(), |other| ratio(group, other, metric)));
    }
    row.push(best(group));
    row.push(status(group));
    row
}

fn speed(record: &Generation, metric: Metric) -> Option<f64> {
    match metric {
        Metric::Prefill => record.prefill_tokens_per_second,
        Metric::Decode => record.decode_tokens_per_second,
        Metric::Ttft | Metric::Total => record.tokens_per_second,
    }
}

/// The ratio with its range; of what must not be compared, why it is not there.
fn ratio(group: &Group<'_>, other: &Generation, metric: Metric) -> String {
    let may_not =
        |record: &Generation| !record.comparable || record.head.status == Status::NonComparable;
    if group.emel.is_some_and(may_not) || may_not(other) {
        return "n/c".to_owned();
    }
    metric.ratio(other).map_or("-".to_owned(), ratio_text)
}

/// `1.53 (1.48-1.60)`.
pub(super) fn ratio_text(ratio: &Ratio) -> String {
    format!("{:.2} ({:.2}-{:.2})", ratio.median, ratio.min, ratio.max)
}

/// The configurations that EMEL is compared with: one, or one a phase.
fn best(group: &Group<'_>) -> String {
    let of = |metric| group.fastest(metric, None).map(Generation::label);
    match (of(Metric::Prefill), of(Metric::Decode)) {
        (None, None) => "-".to_owned(),
        (Some(both), None) | (None, Some(both)) => both,
        (Some(prefill), Some(decode)) if prefill == decode => prefill,
        (Some(prefill), Some(decode)) => format!("{prefill} / {decode}"),
    }
}

fn status(group: &Group<'_>) -> String {
    let failed = group
        .records()
        .filter(|record| record.head.status == Status::Error);
    let mut failed: Vec<&str> = failed.map(|record| record.head.engine.as_str()).collect();
    failed.dedup();
    if !failed.is_empty() {
        return format!("error: {}", failed.join(", "));
    }
    let is_apart = |record: &Generation| record.head.status == Status::NonComparable;
    match group.emel {
        _ if group.records().any(is_apart) => "not comparable".to_owned(),
        None => "no EMEL record".to_owned(),
        Some(_) if group.others.is_empty() => "no reference".to_owned(),
        Some(_) => "ok".to_owned(),
    }
}
