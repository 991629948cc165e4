//! Targets: what EMEL is to reach, beside what it reached.
//!
//! `benchdata/targets.json` holds a [`Target`] a workload, metric and backend; [`judge`] looks each
//! up among records, and [`table`] shows them, met or not, with what limits those that are not.

mod judge;
mod show;

pub use judge::{Outcome, Reached, Verdict, judge};
pub use show::table;

use std::path::Path;

use emel_kernels::Level;
use serde::{Deserialize, Serialize};

use super::workload::{Document, Lane, Library, WorkloadError};

/// What the file's `schema` must be.
pub const TARGETS_SCHEMA: &str = "emel-targets/v1";

/// The file of targets within the library's folder.
pub const FILE: &str = "targets.json";

/// One target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// The workload's id.
    pub workload: String,
    /// The lanes it is for.
    pub lanes: Vec<Lane>,
    /// What is to be reached.
    pub metric: TargetMetric,
    /// The reference, by its manifest's id; none for the best of those measured.
    #[serde(default)]
    pub backend: Option<String>,
    /// How much of it.
    pub value: f64,
    /// The instruction set that EMEL must run with; with another the result is shown, not judged.
    #[serde(default)]
    pub needs: Option<String>,
    /// Where it is not met: what the limit is.
    #[serde(default)]
    pub limit: Option<String>,
}

/// What a target is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetMetric {
    /// EMEL's prefill speed over the reference's.
    PrefillRatio,
    /// EMEL's decode speed over the reference's.
    DecodeRatio,
    /// The reference's time to the first token over EMEL's.
    TtftRatio,
    /// Bytes of weights and cache that decode reads in a second, over what the machine can.
    BandwidthShare,
    /// EMEL's peak memory over the model's file and its cache.
    PeakMemoryOfNeed,
    /// EMEL's peak memory over the reference's least.
    PeakMemoryRatio,
}

impl TargetMetric {
    /// Whether more is better.
    #[must_use]
    pub fn is_floor(self) -> bool {
        use TargetMetric::{BandwidthShare, DecodeRatio, PrefillRatio, TtftRatio};
        matches!(
            self,
            PrefillRatio | DecodeRatio | TtftRatio | BandwidthShare
        )
    }

    /// Whether it compares EMEL with another engine.
    #[must_use]
    pub fn has_reference(self) -> bool {
        use TargetMetric::{BandwidthShare, PeakMemoryOfNeed};
        !matches!(self, BandwidthShare | PeakMemoryOfNeed)
    }

    /// In words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            TargetMetric::PrefillRatio => "prefill speed",
            TargetMetric::DecodeRatio => "decode speed",
            TargetMetric::TtftRatio => "start to first token, speed",
            TargetMetric::BandwidthShare => "decode, share of bandwidth",
            TargetMetric::PeakMemoryOfNeed => "peak memory / (file + cache)",
            TargetMetric::PeakMemoryRatio => "peak memory",
        }
    }
}

/// The targets' file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TargetList {
    #[serde(rename = "schema")]
    _schema: String,
    targets: Vec<Target>,
}

/// Reads a file of targets, and checks it against the library.
///
/// # Errors
/// [`WorkloadError::Read`], [`WorkloadError::Manifest`] with line and field.
pub fn read(path: &Path, library: &Library) -> Result<Vec<Target>, WorkloadError> {
    let document = Document::read(path)?;
    let TargetList { targets, .. } = document.parse(TARGETS_SCHEMA)?;
    let known = library.workloads();
    for (at, target) in targets.iter().enumerate() {
        let fault = |field: &str, problem: String| {
            // Optional keys are not in every row: the row is named by the key that is.
            let line = document.line_of("workload", at);
            Err(document.fault_at(line, &format!("targets[{at}].{field}"), problem))
        };
        let Some(workload) = known.iter().find(|one| one.id == target.workload) else {
            let problem = format!("no workload is called `{}`", target.workload);
            return fault("workload", problem);
        };
        if target.lanes.is_empty() {
            return fault("lanes", "must name at least one lane".to_owned());
        }
        if let Some(lane) = target
            .lanes
            .iter()
            .find(|lane| !workload.lanes.contains(lane))
        {
            return fault("lanes", format!("the workload has no lane {lane}"));
        }
        if !(target.value.is_finite() && target.value > 0.0) {
            return fault("value", "must be more than 0".to_owned());
        }
        if let Some(Err(error)) = target.needs.as_ref().map(|name| name.parse::<Level>()) {
            return fault("needs", error.to_string());
        }
        if target.backend.is_some() && !target.metric.has_reference() {
            let problem = "this metric compares with no backend: leave it out";
            return fault("backend", problem.to_owned());
        }
        let is_same = |other: &Target| {
            (&other.workload, other.metric, &other.backend)
                == (&target.workload, target.metric, &target.backend)
                && other.lanes.iter().any(|lane| target.lanes.contains(lane))
        };
        if targets[..at].iter().any(is_same) {
            return fault("workload", "an earlier row is for the same".to_owned());
        }
    }
    Ok(targets)
}

#[cfg(test)]
mod tests;
