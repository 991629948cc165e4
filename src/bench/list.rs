//! `emel-bench list`: what can be measured, on which models, against which backends.

use std::io::Write;
use std::path::Path;

use super::BenchError;
use super::backend::BackendManifest;
use super::report::{Align, Format, Grid};
use super::workload::{Library, LibraryArgs, Selection, Workload, cache_folder};
use crate::output::is_closed_pipe;

/// Shows workloads, models and backends.
#[derive(Clone, Debug, clap::Args)]
pub struct ListArgs {
    /// What to show
    #[arg(value_enum, default_value_t)]
    pub what: What,
    /// Which workloads
    #[command(flatten)]
    pub selection: Selection,
    /// Where they are
    #[command(flatten)]
    pub library: LibraryArgs,
    /// How to write the tables
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Instead, a line for each model that these workloads need and that is not there: its name, a
    /// tab, and the command that obtains it
    #[arg(long)]
    pub missing: bool,
}

/// What to show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum What {
    /// Everything.
    #[default]
    All,
    /// Workloads.
    Workloads,
    /// Models, present or not.
    Models,
    /// Backends, built or not.
    Backends,
}

/// Runs the command.
///
/// # Errors
/// [`BenchError::Workload`], [`BenchError::Manifest`], [`BenchError::Streams`].
pub fn run(args: &ListArgs) -> Result<(), BenchError> {
    let library = args.library.open()?;
    if args.missing {
        return print(&missing(&library, &library.select(&args.selection)?)?);
    }
    let shows = |what| args.what == What::All || args.what == what;
    let mut parts = Vec::new();
    if shows(What::Workloads) {
        let chosen = library.select(&args.selection)?;
        parts.push(workloads(&chosen).render(args.format));
    }
    if shows(What::Models) {
        parts.push(models(&library).render(args.format));
    }
    if shows(What::Backends) {
        let folder = library.root().join("backends");
        let all = match folder.is_dir() {
            true => BackendManifest::read_all(&folder)?,
            false => Vec::new(),
        };
        parts.push(backends(&all, cache_folder().as_deref()).render(args.format));
    }
    print(&parts.join("\n"))
}

fn print(text: &str) -> Result<(), BenchError> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if !is_closed_pipe(&error) => Err(BenchError::Streams(error)),
        _ => Ok(()),
    }
}

/// The models of `chosen` that are not there, as the list has them, for a script.
fn missing(library: &Library, chosen: &[&Workload]) -> Result<String, BenchError> {
    let folder = library.models_folder();
    let is_used = |name: &str| chosen.iter().any(|workload| workload.model == name);
    let mut lines = String::new();
    for model in library.models() {
        if is_used(&model.name) && model.locate(folder).is_err() {
            lines += &format!("{}\t{}\n", model.name, model.obtain_command(folder));
        }
    }
    Ok(lines)
}

fn workloads(chosen: &[&Workload]) -> Grid {
    let mut grid = Grid::new(&[
        ("workload", Align::Left),
        ("prompt", Align::Left),
        ("prompt tokens", Align::Right),
        ("output", Align::Right),
        ("process", Align::Left),
        ("suites", Align::Left),
    ]);
    for workload in chosen {
        let tokens = workload.prompt_tokens;
        grid.push(vec![
            workload.id.clone(),
            format!("{} ({})", workload.prompt, workload.formatter.name()),
            tokens.map_or("all".to_owned(), |tokens| tokens.to_string()),
            workload.max_tokens.to_string(),
            workload.process.name().to_owned(),
            workload.suites.join(", "),
        ]);
    }
    grid
}

fn models(library: &Library) -> Grid {
    let mut grid = Grid::new(&[
        ("model", Align::Left),
        ("file", Align::Left),
        ("obtain it with", Align::Left),
    ]);
    for model in library.models() {
        let folder = library.models_folder();
        let state = match model.locate(folder) {
            Ok(_) => "(present)".to_owned(),
            Err(_) => model.obtain_command(folder),
        };
        grid.push(vec![model.name.clone(), model.file.clone(), state]);
    }
    grid
}

/// Backends with their configurations; of those not built, the command that builds them.
fn backends(all: &[BackendManifest], cache: Option<&Path>) -> Grid {
    let mut grid = Grid::new(&[
        ("backend", Align::Left),
        ("name", Align::Left),
        ("best of", Align::Left),
        ("build it with", Align::Left),
    ]);
    for backend in all {
        let best = backend
            .configs
            .iter()
            .filter(|one| one.sets.contains("best"));
        let best: Vec<&str> = best.map(|one| one.name.as_str()).collect();
        let configs = format!("{}; {} in all", best.join(", "), backend.configs.len());
        let is_ours = backend
            .command
            .first()
            .is_some_and(|program| program == "{self}");
        let built = cache.is_some_and(|cache| cache.join("reference").join(&backend.id).exists());
        let state = match is_ours || built {
            true => "(built)".to_owned(),
            false => backend.build_command.clone(),
        };
        grid.push(vec![
            backend.id.clone(),
            backend.name.clone(),
            configs,
            state,
        ]);
    }
    grid
}
