//! Targets looked up among records.

use super::{Target, TargetMetric};
use crate::bench::records::{Generation, Record, Status};
use crate::bench::report::{Group, Metric, groups};
use crate::bench::workload::Lane;

/// A target in one lane, and what became of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome<'t> {
    /// The target.
    pub target: &'t Target,
    /// The lane.
    pub lane: Lane,
    /// The model's name and EMEL's threads, where there is a record.
    pub measured_on: Option<(String, u64)>,
    /// The instruction set that EMEL ran with.
    pub isa: Option<String>,
    /// What was reached, or why nobody knows.
    pub reached: Result<Reached, &'static str>,
}

/// What was reached.
#[derive(Clone, Debug, PartialEq)]
pub struct Reached {
    /// The value.
    pub value: f64,
    /// Its least and greatest sample, where it has several.
    pub range: Option<(f64, f64)>,
    /// What EMEL is compared with: backend and configuration.
    pub reference: Option<String>,
    /// What a decode that reads at the machine's limit would reach.
    pub possible: Option<f64>,
}

/// Whether a target is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is.
    Met,
    /// It is not.
    Missed,
    /// Nobody knows.
    Unknown,
    /// It is for another instruction set than was measured.
    Elsewhere,
}

impl Outcome<'_> {
    /// Whether the target is met, by its value as measured, not as shown.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let Ok(reached) = &self.reached else {
            return Verdict::Unknown;
        };
        let needs = self.target.needs.as_ref();
        if needs.is_some() && needs != self.isa.as_ref() {
            return Verdict::Elsewhere;
        }
        let is_met = match self.target.metric.is_floor() {
            true => reached.value >= self.target.value,
            false => reached.value <= self.target.value,
        };
        if is_met {
            Verdict::Met
        } else {
            Verdict::Missed
        }
    }
}

/// Every target in every lane it is for, in their order, beside the last measurement of it.
#[must_use]
pub fn judge<'t>(targets: &'t [Target], records: &[Record]) -> Vec<Outcome<'t>> {
    let groups = groups(records);
    let mut outcomes = Vec::new();
    for target in targets {
        for &lane in &target.lanes {
            let is_it = |group: &&Group<'_>| {
                group.any().is_some_and(|one| {
                    one.workload_id == target.workload && one.lane == lane.name()
                })
            };
            let group = groups.iter().find(is_it);
            let any = group.and_then(Group::any);
            outcomes.push(Outcome {
                target,
                lane,
                measured_on: any.map(|one| (one.model.clone(), one.head.threads)),
                isa: group
                    .and_then(|group| group.emel)
                    .and_then(|emel| emel.head.isa.clone()),
                reached: group.map_or(Err("not measured"), |group| reached(target, group)),
            });
        }
    }
    outcomes
}

fn reached(target: &Target, group: &Group<'_>) -> Result<Reached, &'static str> {
    let emel = group.emel.ok_or("no EMEL record")?;
    if emel.head.status == Status::Error {
        return Err("EMEL failed");
    }
    match target.metric {
        TargetMetric::PrefillRatio => ratio(target, group, Metric::Prefill),
        TargetMetric::DecodeRatio => ratio(target, group, Metric::Decode),
        TargetMetric::TtftRatio => ratio(target, group, Metric::Ttft),
        TargetMetric::BandwidthShare => bandwidth(emel),
        TargetMetric::PeakMemoryOfNeed => memory_of_need(emel),
        TargetMetric::PeakMemoryRatio => memory_ratio(target, group, emel),
    }
}

/// Against the fastest of the backend, or of all.
fn ratio(target: &Target, group: &Group<'_>, metric: Metric) -> Result<Reached, &'static str> {
    let other = group.fastest(metric, target.backend.as_deref());
    let other = other.ok_or("reference not measured")?;
    let ratio = metric.ratio(other).ok_or("not comparable")?;
    let range = (ratio.samples.len() > 1).then_some((ratio.min, ratio.max));
    let share = other.bandwidth_share.filter(|&share| share > 0.0);
    Ok(Reached {
        value: ratio.median,
        range,
        reference: Some(other.label()),
        possible: share
            .filter(|_| matches!(metric, Metric::Decode))
            .map(|share| 1.0 / share),
    })
}

/// The share by the median step, and by the slowest and the fastest run's.
fn bandwidth(emel: &Generation) -> Result<Reached, &'static str> {
    let share = emel.bandwidth_share.ok_or("machine's limit not measured")?;
    let steps = emel.phases.decode.as_ref();
    let steps = steps.filter(|ns| ns.samples.len() > 1);
    let range = steps.map(|ns| (share * ns.median / ns.max, share * ns.median / ns.min));
    Ok(Reached {
        value: share,
        range,
        reference: None,
        possible: None,
    })
}

fn memory_of_need(emel: &Generation) -> Result<Reached, &'static str> {
    let peak = emel.peak_rss_bytes.ok_or("peak memory not measured")?;
    let file = emel.model_bytes.ok_or("file size not recorded")?;
    let cache = emel.cache_bytes.ok_or("cache size not recorded")?;
    Ok(Reached {
        value: peak as f64 / (file + cache) as f64,
        range: None,
        reference: None,
        possible: None,
    })
}

/// Against the least that any configuration of the reference held.
fn memory_ratio(
    target: &Target,
    group: &Group<'_>,
    emel: &Generation,
) -> Result<Reached, &'static str> {
    let peak = emel.peak_rss_bytes.ok_or("peak memory not measured")?;
    let of_backend = |other: &&&Generation| {
        let wanted = target.backend.as_deref();
        wanted.is_none_or(|id| other.backend == id) && other.head.status != Status::Error
    };
    let others = group.others.iter().filter(of_backend);
    let measured = others.filter_map(|other| Some((other.peak_rss_bytes?, *other)));
    let least = measured.min_by_key(|(bytes, _)| *bytes);
    let (bytes, other) = least.ok_or("reference not measured")?;
    Ok(Reached {
        value: peak as f64 / bytes as f64,
        range: None,
        reference: Some(other.label()),
        possible: None,
    })
}
