//! The table of targets.

use super::judge::{Outcome, Reached, Verdict};
use super::{Target, TargetMetric};
use crate::bench::report::{Align, Format, Grid};
use crate::bench::workload::Library;

/// The table, how many are met, and what limits those that are not.
#[must_use]
pub fn table(outcomes: &[Outcome<'_>], library: &Library, format: Format) -> String {
    let mut grid = Grid::new(&[
        ("model", Align::Left),
        ("workload", Align::Left),
        ("lane", Align::Left),
        ("metric", Align::Left),
        ("target", Align::Right),
        ("result", Align::Right),
        ("possible", Align::Right),
        ("against", Align::Left),
        ("met", Align::Left),
    ]);
    let mut limits: Vec<&str> = Vec::new();
    for outcome in outcomes {
        grid.push(row(outcome, library, &mut limits));
    }
    let count = |wanted| {
        let with = outcomes.iter().filter(|one| one.verdict() == wanted);
        with.count()
    };
    let elsewhere = count(Verdict::Elsewhere);
    let judged = outcomes.len() - elsewhere;
    let mut summary = format!("{} of {judged} targets met", count(Verdict::Met));
    let unknown = count(Verdict::Unknown);
    if unknown > 0 {
        summary += &format!(", {unknown} not measured");
    }
    if elsewhere > 0 {
        summary += &format!(", {elsewhere} more are for another instruction set");
    }
    let mut text = format!("{summary}.\n\n{}", grid.render(format));
    if !limits.is_empty() {
        text += "\nWhat limits those that are not met:\n\n";
        for (at, limit) in limits.iter().enumerate() {
            text += &format!("{}. {limit}\n", at + 1);
        }
    }
    text
}

fn row<'t>(outcome: &Outcome<'t>, library: &Library, limits: &mut Vec<&'t str>) -> Vec<String> {
    let target: &'t Target = outcome.target;
    let listed = || {
        let workload = library.workload(&target.workload).ok();
        workload.map_or(String::new(), |workload| workload.model.clone())
    };
    let measured = outcome.measured_on.as_ref();
    let model = measured.map_or_else(listed, |(model, _)| model.clone());
    let lane = match measured {
        Some((_, threads)) => format!("{} ({threads})", outcome.lane),
        None => outcome.lane.to_string(),
    };
    let workload = target.workload.strip_prefix(&format!("{model}_"));
    let workload = workload.unwrap_or(&target.workload).to_owned();
    let reached = outcome.reached.as_ref();
    let possible = reached.ok().and_then(|reached| reached.possible);
    let against = reached.ok().and_then(|reached| reached.reference.clone());
    let wanted = target.backend.clone();
    vec![
        model,
        workload,
        lane,
        target.metric.words().to_owned(),
        bound(target),
        reached.map_or("-".to_owned(), |reached| result(target.metric, reached)),
        possible.map_or("-".to_owned(), |possible| format!("{possible:.2}")),
        against.or(wanted).unwrap_or_else(|| "-".to_owned()),
        met(outcome, limits),
    ]
}

/// `yes`, `no`, `no [1]` with the number of what limits it, what it needs, or why nobody knows.
fn met<'t>(outcome: &Outcome<'t>, limits: &mut Vec<&'t str>) -> String {
    let target: &'t Target = outcome.target;
    match (outcome.verdict(), &outcome.reached) {
        (Verdict::Met, _) => "yes".to_owned(),
        (Verdict::Missed, _) => match target.limit.as_deref() {
            None => "no".to_owned(),
            Some(limit) => {
                let at = limits.iter().position(|known| *known == limit);
                let at = at.unwrap_or_else(|| {
                    limits.push(limit);
                    limits.len() - 1
                });
                format!("no [{}]", at + 1)
            }
        },
        (Verdict::Elsewhere, _) => {
            let needs = target.needs.as_deref();
            format!("needs {}", needs.unwrap_or("another"))
        }
        (Verdict::Unknown, reached) => reached.as_ref().err().copied().unwrap_or("?").to_owned(),
    }
}

fn bound(target: &Target) -> String {
    let sign = match target.metric.is_floor() {
        true => "≥",
        false => "≤",
    };
    format!("{sign} {}", amount(target.metric, target.value))
}

fn amount(metric: TargetMetric, value: f64) -> String {
    match metric {
        TargetMetric::BandwidthShare => format!("{:.0} %", value * 100.0),
        _ => format!("{value:.2}"),
    }
}

/// The value with its range, with a digit more than the target where that tells them apart.
fn result(metric: TargetMetric, reached: &Reached) -> String {
    let number = |value: f64| match metric {
        TargetMetric::BandwidthShare => format!("{:.1}", value * 100.0),
        _ => format!("{value:.2}"),
    };
    let unit = match metric {
        TargetMetric::BandwidthShare => " %",
        _ => "",
    };
    let value = number(reached.value);
    match reached.range {
        None => value + unit,
        Some((least, most)) => format!("{value}{unit} ({}-{})", number(least), number(most)),
    }
}
