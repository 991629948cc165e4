//! From flags and manifests to tasks and contenders.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use super::super::BenchError;
use super::super::backend::{BackendManifest, Contender, NONE, Place};
use super::super::machine_info::MachineInfo;
use super::super::report::Metric;
use super::super::worker::{AUTO, CACHE_TYPES, from_packed_cache, named_options, speculating};
use super::super::workload::{
    Lane, Library, ModelText, Phase, ProcessRule, Workload, WorkloadError, cache_folder,
    needed_context,
};
use super::args::RunArgs;
use super::choose::first_trial;
use super::estimate::Plan;
use super::facts::ModelFacts;
use super::task::Task;

/// The references to measure against.
///
/// # Errors
/// [`BenchError`] for a manifest that cannot be used, or a reference that is not built.
pub fn references(
    args: &RunArgs,
    root: &Path,
    place: &Place,
    machine: &MachineInfo,
) -> Result<Vec<BackendManifest>, BenchError> {
    if args.references.iter().any(|id| id == NONE) {
        if args.references.len() > 1 {
            let problem = "--reference none goes with no other";
            return Err(BenchError::Usage(problem.to_owned()));
        }
        return Ok(Vec::new());
    }
    let all = BackendManifest::read_all(&root.join("backends"))?;
    let mut chosen = Vec::new();
    let mut ids: Vec<&String> = Vec::new();
    for id in &args.references {
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    for id in ids {
        let manifest = BackendManifest::find(&all, id)?;
        manifest.ready(&args.reference_config, &machine.cpu_flags, place)?;
        chosen.push(manifest.clone());
    }
    Ok(chosen)
}

/// What the placeholders of commands stand for.
///
/// # Errors
/// [`BenchError::Streams`] when this program cannot find itself.
pub fn place(root: &Path) -> Result<Place, BenchError> {
    let repo = root.canonicalize().ok();
    let repo = repo.and_then(|root| Some(root.parent()?.to_owned()));
    Ok(Place {
        cache: cache_folder().unwrap_or_default(),
        repo: repo.unwrap_or_default(),
        program: std::env::current_exe().map_err(BenchError::Streams)?,
    })
}

/// Threads of EMEL in a lane.
pub fn lane_threads(args: &RunArgs, lane: Lane, machine: &MachineInfo) -> usize {
    let cores = || machine.lane_threads();
    match lane {
        Lane::Single => 1,
        Lane::Multithreaded => args.threads.map_or_else(cores, usize::from),
    }
}

/// EMEL, as a contender on a task.
pub fn emel(args: &RunArgs, task: &Task, threads: usize, place: &Place) -> Contender {
    let asked = args.isa.as_deref().or(task.isa.as_deref());
    let options = named_options(asked.unwrap_or(AUTO), &args.route);
    let options = speculating(options, &args.spec_type);
    let options = from_packed_cache(options, task.packed_cache);
    with_cache_types(args, Contender::emel(place, threads, options))
}

/// The contender with the cache types that were asked for, if any.
fn with_cache_types(args: &RunArgs, mut contender: Contender) -> Contender {
    for (name, ty) in CACHE_TYPES
        .into_iter()
        .zip([args.cache_type_k, args.cache_type_v])
    {
        let asked = ty.map(|ty| (name.to_owned(), ty.name().into()));
        contender.options.extend(asked);
    }
    contender
}

/// The configurations of a reference that are to run in a lane.
pub fn candidates(
    args: &RunArgs,
    manifest: &BackendManifest,
    threads: usize,
    place: &Place,
    machine: &MachineInfo,
) -> Vec<Contender> {
    let threads = args.reference_threads.map_or(threads, usize::from);
    let threads_batch = args.reference_threads_batch.map(usize::from);
    let configs = manifest.configs_of(&args.reference_config, &machine.cpu_flags);
    let make = |config: &&_| {
        let contender = Contender::reference(manifest, config, place, threads, threads_batch);
        with_cache_types(args, contender)
    };
    configs.iter().map(make).collect()
}

/// A workload's model, read once for all its lanes.
pub struct Subject {
    /// The task, whose lane is still to be set.
    task: Task,
    /// What the model costs.
    pub facts: ModelFacts,
}

impl Subject {
    /// Finds the model, checks its digest and formats the prompt.
    ///
    /// # Errors
    /// [`BenchError`].
    pub fn prepare(
        library: &Library,
        workload: &Workload,
        progress: impl FnMut(u64),
    ) -> Result<Self, BenchError> {
        let entry = library.model(&workload.model)?;
        let folder = library.models_folder();
        let model = entry.locate(folder)?;
        let model_sha256 = entry.verify(folder, cache_folder().as_deref(), progress)?;
        let facts = ModelFacts::read(&model).map_err(BenchError::Engine)?;
        let reader = ModelText::read(&model)?;
        let text = reader.format(workload.formatter, &library.prompt(workload)?, &workload.id)?;
        let n_prompt = reader.count(&text);
        if let Some(wanted) = workload.prompt_tokens.filter(|&wanted| wanted > n_prompt) {
            return Err(BenchError::ShortPrompt {
                workload: workload.id.clone(),
                prompt: workload.prompt.clone(),
                n_prompt,
                wanted,
            });
        }
        let n_prompt = workload.prompt_tokens.unwrap_or(n_prompt);
        let needed = needed_context(n_prompt, workload.max_tokens);
        let task = Task {
            model,
            model_sha256,
            text,
            prompt_tokens: workload.prompt_tokens,
            max_tokens: workload.max_tokens,
            stop: workload.stop,
            formatter: workload.formatter.name(),
            sampling: workload.sampling.name(),
            seed: workload.seed,
            n_ctx: workload.n_ctx.unwrap_or(needed),
            workload_id: workload.id.clone(),
            lane: "-",
            cold: workload.process == ProcessRule::Cold,
            packed_cache: workload.packed_cache.unwrap_or_default(),
            isa: workload.isa.clone(),
            n_prompt,
            sought: sought(workload),
        };
        Ok(Subject { task, facts })
    }

    /// The task in a lane.
    pub fn task(&self, lane: Lane) -> Task {
        Task {
            lane: lane.name(),
            ..self.task.clone()
        }
    }
}

/// What a workload is about.
fn sought(workload: &Workload) -> Vec<Metric> {
    if workload.process == ProcessRule::Cold {
        return vec![Metric::Ttft];
    }
    let both = vec![Phase::Prefill, Phase::Decode];
    let phases = workload.phases.clone().unwrap_or(both);
    let metric = |phase| match phase {
        Phase::Prefill => Metric::Prefill,
        Phase::Decode => Metric::Decode,
    };
    phases.into_iter().map(metric).collect()
}

/// The lanes of a workload that are to run.
pub fn lanes(args: &RunArgs, workload: &Workload) -> Vec<Lane> {
    let wanted = |lane: &&Lane| args.lane.is_none_or(|only| only == **lane);
    workload.lanes.iter().filter(wanted).copied().collect()
}

/// Seconds that a workload takes in a lane, about. `tried` holds the first trials of those before it.
pub fn seconds(
    args: &RunArgs,
    subject: &Subject,
    lane: Lane,
    references: &[BackendManifest],
    machine: &MachineInfo,
    tried: &mut BTreeSet<String>,
) -> f64 {
    let configs = |manifest: &BackendManifest| {
        let configs = manifest.configs_of(&args.reference_config, &machine.cpu_flags);
        configs.len()
    };
    let configurations: Vec<usize> = references.iter().map(configs).collect();
    let task = &subject.task;
    let threads = lane_threads(args, lane, machine);
    let plan = Plan {
        facts: &subject.facts,
        n_prompt: task.n_prompt,
        max_tokens: task.max_tokens,
        threads,
        cold: task.cold,
        configurations: &configurations,
        is_known: !tried.insert(first_trial(task, threads)),
        runs: args.runs.get(),
        budget: args.budget.map(Duration::from_secs),
    };
    plan.seconds()
}

/// The workloads that are to run: what is selected, or the published suite.
///
/// # Errors
/// [`WorkloadError`].
pub fn workloads<'l>(
    args: &RunArgs,
    library: &'l Library,
) -> Result<Vec<&'l Workload>, WorkloadError> {
    let mut selection = args.selection.clone();
    if selection.workloads.is_empty() && selection.suites.is_empty() {
        selection.suites.push("published".to_owned());
    }
    library.select(&selection)
}
