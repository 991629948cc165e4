//! What makes a measurement doubtful. Every warning says what to do about it.

use serde::{Deserialize, Serialize};

use super::stats::{median, modified_z_scores};

/// A doubt about one record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// What was seen.
    pub kind: WarningKind,
    /// The same in words, with what to do.
    pub message: String,
}

/// What was seen.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WarningKind {
    /// The first run was much slower than the others.
    SlowFirstRun,
    /// Some runs lie far from the others.
    Outliers,
    /// Other programs were running when it began.
    MachineBusy,
    /// Runs of one engine on the same input gave different output.
    UnstableOutput,
    /// Too few runs to tell their spread.
    FewRuns,
    /// Runs became slower one after another.
    Throttling,
    /// Engines ended at different tokens.
    DifferentLength,
    /// More threads than the machine has physical cores.
    TooManyThreads,
    /// The machine's limits are not known, and so no share of them.
    UnknownLimits,
    /// An option of the backend's configuration was not applied.
    OptionIgnored,
    /// A kind this version does not know.
    #[serde(untagged)]
    Other(String),
}

/// Runs below which a spread says nothing.
const FEW: usize = 3;
/// The score from which a run is an outlier: ten robust standard deviations and more.
const FAR: f64 = 14.826;
/// How much slower the last third must be than the first to look like throttling.
const SLOWER: f64 = 1.1;

impl Warning {
    /// A warning with its message, which should say what to do.
    #[must_use]
    pub fn new(kind: WarningKind, message: impl Into<String>) -> Warning {
        Warning {
            kind,
            message: message.into(),
        }
    }

    /// Load before the measurement, of others; none when it is low. `load` is the system's average
    /// number of running tasks, over one minute.
    #[must_use]
    pub fn of_load(load: Option<f64>, cores: u64) -> Option<Warning> {
        // A task that runs half of the time on one core already shifts a lane of all cores.
        let load = load.filter(|&load| load > 0.5 && cores > 0)?;
        let message = format!(
            "{load:.2} tasks were running on {cores} cores before the measurement; end other \
             programs, wait a minute and repeat it"
        );
        Some(Warning::new(WarningKind::MachineBusy, message))
    }

    /// Checksums of runs that must be the same; none when they are.
    #[must_use]
    pub fn of_outputs<T: PartialEq>(engine: &str, outputs: &[T]) -> Option<Warning> {
        let first = outputs.first()?;
        let different = outputs.iter().filter(|output| *output != first).count();
        let message = format!(
            "{different} of {} runs of {engine} gave other output than the first on the same \
             input; compare their traces before trusting any of its times",
            outputs.len()
        );
        (different > 0).then(|| Warning::new(WarningKind::UnstableOutput, message))
    }

    /// What the times of a phase say, in the order in which they were taken.
    #[must_use]
    pub fn of_times(phase: &str, times: &[f64]) -> Vec<Warning> {
        let mut found = Vec::new();
        if times.len() < FEW {
            let message = format!(
                "{phase}: {} run(s) cannot show a spread; repeat with at least {FEW} (--runs)",
                times.len()
            );
            found.push(Warning::new(WarningKind::FewRuns, message));
            return found;
        }
        let scores = modified_z_scores(times);
        let far: Vec<usize> = (0..times.len())
            .filter(|&run| scores[run].abs() > FAR)
            .collect();
        let middle = median(times).unwrap_or(0.0);
        if scores[0] > FAR {
            let message = format!(
                "{phase}: the first run took {:.1} times the median; something was cold: repeat \
                 the measurement, with more runs (--runs)",
                times[0] / middle
            );
            found.push(Warning::new(WarningKind::SlowFirstRun, message));
        }
        if far.iter().any(|&run| run != 0 || scores[0] < 0.0) {
            let message = format!(
                "{phase}: {} of {} runs lie far from the others; something else ran on the \
                 machine: end other programs and repeat",
                far.len(),
                times.len()
            );
            found.push(Warning::new(WarningKind::Outliers, message));
        }
        let third = times.len() / 3;
        let (begun, ended) = (&times[..third], &times[times.len() - third..]);
        if let (Some(begun), Some(ended)) = (median(begun), median(ended))
            && third >= 2
            && ended > begun * SLOWER
        {
            let message = format!(
                "{phase}: the last runs took {:.2} times the first ones; the processor may have \
                 become hot and slow: let it cool down and repeat, or measure less at once",
                ended / begun
            );
            found.push(Warning::new(WarningKind::Throttling, message));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(times: &[f64]) -> Vec<WarningKind> {
        let found = Warning::of_times("decode", times).into_iter();
        found.map(|warning| warning.kind).collect()
    }

    #[test]
    fn times_are_judged() {
        use WarningKind::{FewRuns, Outliers, SlowFirstRun, Throttling};
        assert_eq!(kinds(&[100.0, 101.0, 99.0, 102.0, 100.0]), []);
        assert_eq!(kinds(&[100.0, 101.0]), [FewRuns]);
        assert_eq!(kinds(&[300.0, 101.0, 99.0, 102.0, 100.0]), [SlowFirstRun]);
        assert_eq!(kinds(&[100.0, 101.0, 300.0, 102.0, 100.0]), [Outliers]);
        assert_eq!(
            kinds(&[300.0, 101.0, 99.0, 300.0, 100.0, 101.0]),
            [SlowFirstRun, Outliers]
        );
        assert_eq!(kinds(&[10.0, 101.0, 99.0, 102.0, 100.0]), [Outliers]);
        assert_eq!(
            kinds(&[100.0, 101.0, 105.0, 110.0, 120.0, 121.0]),
            [Throttling]
        );
    }

    #[test]
    fn load_and_outputs_are_judged() {
        assert_eq!(Warning::of_load(Some(0.3), 2), None);
        assert_eq!(Warning::of_load(None, 2), None);
        let busy = Warning::of_load(Some(1.5), 2).unwrap();
        assert!(busy.message.contains("1.50 tasks were running on 2 cores"));
        assert_eq!(Warning::of_outputs("emel", &[1, 1, 1]), None);
        assert_eq!(Warning::of_outputs::<u64>("emel", &[]), None);
        let unstable = Warning::of_outputs("emel", &[1, 2, 1]).unwrap();
        assert_eq!(unstable.kind, WarningKind::UnstableOutput);
        assert!(unstable.message.starts_with("1 of 3 runs of emel"));
    }

    #[test]
    fn kinds_are_written_in_snake_case_and_unknown_ones_kept() {
        for (kind, text) in [
            (WarningKind::SlowFirstRun, "\"slow_first_run\""),
            (WarningKind::Other("too_cold".to_owned()), "\"too_cold\""),
        ] {
            assert_eq!(serde_json::to_string(&kind).unwrap(), text);
            assert_eq!(serde_json::from_str::<WarningKind>(text).unwrap(), kind);
        }
    }
}
