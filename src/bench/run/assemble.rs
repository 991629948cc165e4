//! From what was measured to records.

use std::time::{SystemTime, UNIX_EPOCH};

use super::super::backend::BackendError;
use super::super::limits::MachineLimits;
use super::super::machine_info::MachineInfo;
use super::super::protocol::{Loaded, Ran};
use super::super::records::{Generation, Head, Hex64, Phases, Record, Status};
use super::super::warnings::{Warning, WarningKind};
use super::super::worker::CACHE_TYPES;
use super::super::workload::{Lane, Workload};
use super::facts::ModelFacts;
use super::measure::Measured;
use super::phases::{phases, ratios};
use super::task::Task;
use crate::trace::checksum::Fnv64;
use emel_kernels::CacheType;

/// What the records of one workload in one lane share.
pub struct Frame<'a> {
    /// The workload.
    pub workload: &'a Workload,
    /// The lane.
    pub lane: Lane,
    /// What was run.
    pub task: &'a Task,
    /// What the model costs.
    pub facts: &'a ModelFacts,
    /// Threads of the lane.
    pub threads: usize,
    /// What the machine can do with them.
    pub limits: Option<&'a MachineLimits>,
    /// The machine, as it was before the measurement.
    pub machine: &'a MachineInfo,
    /// The run's id.
    pub run_id: &'a str,
}

/// Operations a second, from nanoseconds for so many.
fn rate(operations: f64, ns: Option<f64>) -> Option<f64> {
    ns.filter(|&ns| ns > 0.0).map(|ns| operations * 1e9 / ns)
}

impl Frame<'_> {
    /// A record for each contender; the first is EMEL, with which the others are compared.
    pub fn records(&self, contenders: &[Measured]) -> Vec<Record> {
        let emel = &contenders[0];
        let mut records = Vec::new();
        for (at, measured) in contenders.iter().enumerate() {
            let mut record = self.record(measured);
            if at > 0 {
                self.compare(&mut record, emel, measured);
            }
            records.push(Record::Generation(Box::new(record)));
        }
        records
    }

    /// Adds the ratios, unless the two did not do the same.
    fn compare(&self, record: &mut Generation, emel: &Measured, reference: &Measured) {
        let prompt = |measured: &Measured| {
            let observed = measured.observed.as_ref();
            observed.map(|ran| ran.prompt_ids.clone())
        };
        let (Some(ours), Some(theirs)) = (prompt(emel), prompt(reference)) else {
            return;
        };
        if ours != theirs {
            let at = ours.iter().zip(&theirs).take_while(|(a, b)| a == b).count();
            record.head.status = Status::NonComparable;
            record.head.error = Some(format!(
                "the prompt has other tokens here than in emel, from index {at} on ({} and {} \
                 tokens)",
                theirs.len(),
                ours.len()
            ));
            return;
        }
        let threads = |measured: &Measured| {
            let contender = &measured.contender;
            (contender.threads, contender.threads_batch)
        };
        // Speeds of unequal threads, or of an engine that failed, are no ratio.
        let alike = threads(emel) == threads(reference);
        let both = emel.failure.is_none() && reference.failure.is_none();
        if self.workload.comparable && alike && both {
            record.ratios = Some(ratios(emel, reference, self.task.cold));
        }
        let (ours, theirs) = (&emel.observed, &reference.observed);
        if let (Some(ours), Some(theirs)) = (ours, theirs)
            && ours.ids.len() != theirs.ids.len()
        {
            let message = format!(
                "emel generated {} tokens and {} {}; times of whole runs are not compared: set \
                 stop to \"limit\" for equal lengths",
                ours.ids.len(),
                reference.contender.label(),
                theirs.ids.len()
            );
            let warning = Warning::new(WarningKind::DifferentLength, message);
            record.head.warnings.push(warning);
        }
    }

    fn record(&self, measured: &Measured) -> Generation {
        let (workload, task, contender) = (self.workload, self.task, &measured.contender);
        let phases = phases(measured, task.cold);
        let warnings = self.warnings(measured, &phases);
        let mut record = Generation {
            head: self.head(measured, warnings),
            stderr_tail: measured
                .failure
                .as_ref()
                .and_then(BackendError::stderr_tail)
                .map(str::to_owned),
            backend: contender.backend.clone(),
            config: Some(contender.config.clone()).filter(|config| !config.is_empty()),
            workload_id: workload.id.clone(),
            model: workload.model.clone(),
            model_sha256: Some(task.model_sha256.clone()),
            model_bytes: Some(self.facts.file_bytes),
            formatter: workload.formatter.name().to_owned(),
            sampling: workload.sampling.name().to_owned(),
            stop_rule: workload.stop.name().to_owned(),
            seed: workload.seed,
            max_tokens: workload.max_tokens as u64,
            comparable: workload.comparable,
            comparable_reason: workload.comparable_reason.clone(),
            process: workload.process.name().to_owned(),
            lane: self.lane.name().to_owned(),
            threads_batch: Some(contender.threads_batch as u64),
            n_ctx: Some(task.n_ctx as u64),
            n_ubatch: Some(contender.n_ubatch as u64),
            options: contender.options.clone(),
            runs: measured.rounds.iter().flatten().count() as u64,
            trace: measured.trace.clone(),
            ..Generation::default()
        };
        if let Some(loaded) = &measured.loaded {
            set_loaded(&mut record, loaded);
        }
        let types = cache_types(&record);
        record.cache_bytes = Some(self.facts.cache_bytes_per_token(task.n_ctx as u64, types));
        if let Some(observed) = &measured.observed {
            self.set_observed(&mut record, observed, &phases);
        }
        record.peak_rss_bytes = peak_rss(measured);
        record.phases = phases;
        record
    }

    fn head(&self, measured: &Measured, warnings: Vec<Warning>) -> Head {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let mut head = Head {
            status: match measured.failure {
                Some(_) => Status::Error,
                None => Status::Ok,
            },
            error: measured.failure.as_ref().map(ToString::to_string),
            run_id: self.run_id.to_owned(),
            time_unix: now.map_or(0, |now| now.as_secs()),
            engine: measured.contender.engine.clone(),
            threads: measured.contender.threads as u64,
            warnings,
            ..Head::default()
        };
        head.set_machine(self.machine);
        head
    }

    /// What the observed run says, and what follows from the summaries.
    fn set_observed(&self, record: &mut Generation, observed: &Ran, phases: &Phases) {
        let parsed = |sum: &Option<String>| sum.as_deref().and_then(Hex64::parse);
        let (n_prompt, n_output) = (observed.prompt_ids.len(), observed.ids.len());
        record.prompt_tokens = Some(n_prompt as u64);
        record.prompt_checksum = Some(Hex64(Fnv64::of_ids(&observed.prompt_ids).value()));
        record.output_tokens = Some(n_output as u64);
        record.output_bytes = Some(observed.output_bytes as u64);
        record.stop = Some(observed.stop.clone());
        record.text_checksum = parsed(&observed.text_checksum);
        record.ids_checksum = parsed(&observed.ids_checksum);
        record.logits_checksum = parsed(&observed.logits_checksum);
        record.counters = observed.counters.clone();

        let median = |samples: &Option<super::super::stats::Samples>| {
            samples.as_ref().map(|samples| samples.median)
        };
        let (prefill, decode) = (median(&phases.prefill), median(&phases.decode));
        record.prefill_tokens_per_second = rate(n_prompt as f64, prefill);
        record.decode_tokens_per_second = rate(1.0, decode);
        let steps = n_output.saturating_sub(1) as f64;
        let whole = prefill.map(|ns| {
            ns + median(&phases.tokenize).unwrap_or(0.0)
                + median(&phases.first_token).unwrap_or(0.0)
                + steps * decode.unwrap_or(0.0)
        });
        record.tokens_per_second = rate((n_prompt + n_output) as f64, whole);

        // A step sees the prompt and, on average, half of what is generated.
        let depth = (n_prompt + n_output / 2) as u64;
        let types = cache_types(record);
        let cache = self.facts.cache_bytes_per_token(depth, types);
        let weights = self.facts.weight_bytes_per_token;
        record.weight_bytes_per_token = Some(weights);
        record.cache_bytes_per_token = Some(cache);
        record.bytes_per_token = Some(weights + cache);
        record.read_bytes_per_second = rate((weights + cache) as f64, decode);
        let operations = self.facts.prefill_operations(n_prompt as u64);
        record.int8_ops_per_second = rate(operations as f64, prefill);
        let of_lane = record.head.threads == self.threads as u64;
        if let Some(limits) = self.limits.filter(|_| of_lane) {
            let (read, int8) = (limits.read_bytes_per_second, limits.int8_ops_per_second);
            record.machine_read_bytes_per_second = Some(read);
            record.machine_int8_ops_per_second = Some(int8);
            let share = |rate: Option<f64>, limit: f64| rate.map(|rate| rate / limit);
            record.bandwidth_share = share(record.read_bytes_per_second, read);
            record.int8_share = share(record.int8_ops_per_second, int8);
        }
    }

    fn warnings(&self, measured: &Measured, phases: &Phases) -> Vec<Warning> {
        let mut found = Vec::new();
        let cores = self.machine.cpu_cores.unwrap_or(0);
        found.extend(Warning::of_load(self.machine.load_average, cores));
        let contender = &measured.contender;
        if cores > 0 && contender.threads.max(contender.threads_batch) as u64 > cores {
            let message = format!(
                "more threads than the machine's {cores} cores: they wait for each other; use \
                 --threads {cores}"
            );
            found.push(Warning::new(WarningKind::TooManyThreads, message));
        }
        for (name, samples) in [("prefill", &phases.prefill), ("decode", &phases.decode)] {
            if let Some(samples) = samples {
                found.extend(Warning::of_times(name, &samples.samples));
            }
        }
        let observed = measured.observed.iter();
        let outputs: Vec<&[u32]> = observed
            .chain(measured.rounds.iter().flatten())
            .map(|ran| ran.ids.as_slice())
            .collect();
        found.extend(Warning::of_outputs(&contender.label(), &outputs));
        if let Some(loaded) = &measured.loaded {
            let ignored = contender.options.iter().filter(|(name, value)| {
                let applied = loaded.options.get(*name);
                applied != Some(*value) && value.as_str() != Some("auto")
            });
            for (name, value) in ignored {
                let message = format!(
                    "option {name}={value} was not applied by {}; mend the backend's manifest",
                    contender.label()
                );
                found.push(Warning::new(WarningKind::OptionIgnored, message));
            }
        }
        found
    }
}

/// How keys and values are cached: as applied, where the engine tells.
fn cache_types(record: &Generation) -> [CacheType; 2] {
    CACHE_TYPES.map(|option| {
        let name = record.options.get(option).and_then(|name| name.as_str());
        name.and_then(|name| name.parse().ok()).unwrap_or_default()
    })
}

fn set_loaded(record: &mut Generation, loaded: &Loaded) {
    record.head.engine = loaded.engine.clone();
    record.head.engine_version = Some(loaded.engine_version.clone());
    record.head.isa = Some(loaded.isa.clone());
    record.head.threads = loaded.threads as u64;
    record.engine_commit = Some(loaded.engine_commit.clone());
    record.engine_compiler = Some(loaded.engine_compiler.clone());
    record.threads_batch = Some(loaded.threads_batch as u64);
    record.thread_contract = Some(loaded.thread_contract.clone());
    record.route = Some(loaded.route.clone());
    record.numerics = Some(loaded.numerics.clone());
    record.options = loaded.options.clone();
}

/// The most memory that any of its processes held.
fn peak_rss(measured: &Measured) -> Option<u64> {
    let observed = measured.observed.iter();
    let all = observed.chain(measured.rounds.iter().flatten());
    all.map(|ran| ran.peak_rss_bytes)
        .filter(|&bytes| bytes > 0)
        .max()
}
