//! EMEL beside the others: which records belong together, and which of the others is the fastest.

use crate::bench::records::{Generation, Record, Status};
use crate::bench::stats::{Ratio, Samples};

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// The prompt through the model.
    Prefill,
    /// A generated token.
    Decode,
    /// From the text, or where every run has a process of its own from its start, to the first
    /// token.
    Ttft,
    /// All of it, the load included where every run has one.
    Total,
}

impl Metric {
    /// As snapshots write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Metric::Prefill => "prefill",
            Metric::Decode => "decode",
            Metric::Ttft => "ttft",
            Metric::Total => "total",
        }
    }

    /// EMEL's speed over that of another engine's record.
    #[must_use]
    pub fn ratio(self, other: &Generation) -> Option<&Ratio> {
        let ratios = other.ratios.as_ref()?;
        match self {
            Metric::Prefill => ratios.prefill.as_ref(),
            Metric::Decode => ratios.decode.as_ref(),
            Metric::Ttft => ratios.ttft.as_ref(),
            Metric::Total => ratios.total.as_ref(),
        }
    }

    /// The median time, where a record has it by itself.
    #[must_use]
    pub fn time(self, record: &Generation) -> Option<f64> {
        let median = |samples: &Option<Samples>| samples.as_ref().map(|samples| samples.median);
        match self {
            Metric::Prefill => median(&record.phases.prefill),
            Metric::Decode => median(&record.phases.decode),
            Metric::Ttft => median(&record.phases.ttft),
            Metric::Total => None,
        }
    }
}

/// One workload in one lane, on all engines.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    /// EMEL's record.
    pub emel: Option<&'a Generation>,
    /// The others', in the order of the records.
    pub others: Vec<&'a Generation>,
}

impl<'a> Group<'a> {
    /// Any of its records: there is at least one.
    #[must_use]
    pub fn any(&self) -> Option<&'a Generation> {
        self.emel.or(self.others.first().copied())
    }

    /// All of its records.
    pub fn records(&self) -> impl Iterator<Item = &'a Generation> {
        self.emel.into_iter().chain(self.others.iter().copied())
    }

    /// The fastest of the others at something, of one backend or of all: by its own median time, or
    /// where there is none by the least ratio. None of a backend whose fastest configuration was
    /// chosen for other phases: those that were measured need not be its fastest at this one.
    #[must_use]
    pub fn fastest(&self, metric: Metric, backend: Option<&str>) -> Option<&'a Generation> {
        let of_backend = |other: &&Generation| backend.is_none_or(|id| other.backend == id);
        let measured = |other: &&'a Generation| {
            let by_ratio = || metric.ratio(other).map(|ratio| ratio.median);
            let key = metric.time(other).or_else(by_ratio)?;
            let counts =
                other.head.status != Status::Error && self.was_sought(metric, &other.backend);
            counts.then_some((key, *other))
        };
        let all = self.others.iter().filter(|other| of_backend(other));
        let fastest = all.filter_map(measured).min_by(|a, b| a.0.total_cmp(&b.0));
        fastest.map(|(_, other)| other)
    }

    /// Whether a backend's fastest at `metric` is among the records: nobody chose among its
    /// configurations, or somebody did so for this.
    fn was_sought(&self, metric: Metric, backend: &str) -> bool {
        let ratios = self.others.iter().filter(|other| other.backend == backend);
        let ratios = ratios.filter_map(|other| other.ratios.as_ref());
        let mut chosen = ratios.flat_map(|ratios| &ratios.best_for).peekable();
        metric == Metric::Total
            || chosen.peek().is_none()
            || chosen.any(|phase| phase == metric.name())
    }

    /// The backends of the others, each once.
    #[must_use]
    pub fn backends(&self) -> Vec<&'a str> {
        let mut backends: Vec<&str> = Vec::new();
        for other in &self.others {
            if !backends.contains(&other.backend.as_str()) {
                backends.push(&other.backend);
            }
        }
        backends
    }
}

/// The backend that the others are compared with.
const EMEL: &str = "emel";

/// Whether a record is EMEL's own.
#[must_use]
pub fn is_emel(record: &Record) -> bool {
    match record {
        Record::Generation(record) => record.backend == EMEL,
        other => other.head().engine == EMEL,
    }
}

/// The generation records by workload and lane, in the order of their first appearance; of several
/// runs the last one counts.
#[must_use]
pub fn groups(records: &[Record]) -> Vec<Group<'_>> {
    let generations = records.iter().filter_map(|record| match record {
        Record::Generation(generation) => Some(&**generation),
        _ => None,
    });
    let mut groups: Vec<Group<'_>> = Vec::new();
    for record in generations {
        let is_same = |group: &&mut Group<'_>| {
            group.any().is_some_and(|other| {
                let key = |of: &Generation| {
                    (
                        of.workload_id.clone(),
                        of.lane.clone(),
                        of.head.run_id.clone(),
                    )
                };
                key(other) == key(record)
            })
        };
        let group = match groups.iter_mut().find(is_same) {
            Some(group) => group,
            None => {
                groups.push(Group {
                    emel: None,
                    others: Vec::new(),
                });
                let Some(group) = groups.last_mut() else {
                    continue;
                };
                group
            }
        };
        if record.backend == EMEL {
            group.emel = Some(record);
            continue;
        }
        let identity = |other: &Generation| {
            let threads = (other.head.threads, other.threads_batch, other.n_ubatch);
            (other.backend.clone(), other.config.clone(), threads)
        };
        let mut others = group.others.iter_mut();
        match others.find(|other| identity(other) == identity(record)) {
            Some(other) => *other = record,
            None => group.others.push(record),
        }
    }
    latest(groups)
}

/// Of several runs of one workload in one lane the last: speeds of one and ratios of another would
/// not fit together.
fn latest(groups: Vec<Group<'_>>) -> Vec<Group<'_>> {
    let key = |group: &Group<'_>| {
        let any = group.any();
        any.map(|record| (record.workload_id.clone(), record.lane.clone()))
    };
    let keys: Vec<_> = groups.iter().map(key).collect();
    let is_last = |at: usize| !keys[at + 1..].contains(&keys[at]);
    let all = groups.into_iter().enumerate();
    all.filter(|(at, _)| is_last(*at))
        .map(|(_, group)| group)
        .collect()
}
