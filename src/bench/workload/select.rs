//! Choosing workloads on the command line.

use glob::Pattern;

use super::manifest::FULL;
use super::{Library, Workload, WorkloadError};

/// Which workloads; to be flattened into a command's arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct Selection {
    /// Workload by id, or all that match a pattern (`qwen3_4b_*`); may be given several times
    #[arg(short, long = "workload", value_name = "ID")]
    pub workloads: Vec<String>,
    /// All workloads of a suite (`full` is all there are); may be given several times
    #[arg(short, long = "suite", value_name = "NAME")]
    pub suites: Vec<String>,
    /// Of these, only those of a model; may be given several times
    #[arg(long = "model", value_name = "NAME")]
    pub models: Vec<String>,
}

impl Library {
    /// The workloads that are named, or are in a suite that is named, and of a model that is
    /// named; where nothing is named, all. By id, each once.
    ///
    /// # Errors
    /// [`WorkloadError::Unknown`] for a name that is none, [`WorkloadError::Pattern`],
    /// [`WorkloadError::Nothing`] when no workload is left.
    pub fn select(&self, selection: &Selection) -> Result<Vec<&Workload>, WorkloadError> {
        let ids = || {
            self.workloads()
                .iter()
                .map(|workload| workload.id.clone())
                .collect()
        };
        let mut patterns = Vec::new();
        for asked in &selection.workloads {
            let pattern = Pattern::new(asked).map_err(|source| WorkloadError::Pattern {
                pattern: asked.clone(),
                source,
            })?;
            if !self
                .workloads()
                .iter()
                .any(|workload| pattern.matches(&workload.id))
            {
                return Err(WorkloadError::Unknown {
                    what: "workload",
                    asked: asked.clone(),
                    known: ids(),
                });
            }
            patterns.push(pattern);
        }
        let known = self.suites();
        if let Some(asked) = selection.suites.iter().find(|suite| !known.contains(suite)) {
            return Err(WorkloadError::Unknown {
                what: "suite",
                asked: asked.clone(),
                known,
            });
        }
        for name in &selection.models {
            self.model(name)?;
        }
        let named = |workload: &Workload| {
            let in_suite = |suite: &String| suite == FULL || workload.suites.contains(suite);
            (patterns.is_empty() && selection.suites.is_empty())
                || patterns.iter().any(|pattern| pattern.matches(&workload.id))
                || selection.suites.iter().any(in_suite)
        };
        let of_model = |workload: &Workload| {
            selection.models.is_empty() || selection.models.contains(&workload.model)
        };
        let chosen = self.workloads().iter();
        let chosen: Vec<_> = chosen.filter(|w| named(w) && of_model(w)).collect();
        if chosen.is_empty() {
            let models = selection.models.join(", ");
            return Err(WorkloadError::Nothing(match models.as_str() {
                "" => "the library is empty".to_owned(),
                models => format!("none of those named is of {models}"),
            }));
        }
        Ok(chosen)
    }
}
