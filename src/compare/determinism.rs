//! `emel-compare determinism`: EMEL over everything that must not change a bit of its results, and
//! the reference over its own options.

use std::collections::BTreeSet;
use std::time::Duration;

use emel_kernels::Level;
use serde::Serialize;

use super::case::{Case, CaseArgs};
use super::engines::EngineArgs;
use super::error::CompareError;
use super::free;
use super::report::Subject;
use super::show::ShowArgs;
use super::stages::Stages;
use crate::bench::backend::{Contender, N_UBATCH};
use crate::bench::protocol::Ran;
use crate::bench::worker::named_options;
use crate::cli::exit::Exit;
use crate::cli::interrupt::Interrupt;
use crate::engine::Route;

/// EMEL over instruction sets, threads, routes, batches and processes; the reference over its spread.
#[derive(Clone, Debug, clap::Args)]
pub struct DeterminismArgs {
    /// What is asked
    #[command(flatten)]
    pub case: CaseArgs,
    /// Who is asked; `--isa` and `--route` are varied, whatever they say
    #[command(flatten)]
    pub engines: EngineArgs,
    /// Every combination, not one thing after another
    #[arg(long)]
    pub full: bool,
    /// How the matrix is shown
    #[command(flatten)]
    pub show: ShowArgs,
}

/// A matrix's `schema`.
pub const SCHEMA: &str = "emel-determinism/v1";

/// What was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Matrix {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// What was run.
    pub subject: Subject,
    /// A row a run.
    pub rows: Vec<Row>,
    /// Different logits checksums of EMEL; 1 is the promise.
    pub emel_values: usize,
    /// Different logits checksums of the references.
    pub reference_values: usize,
    /// Different texts of the references, by their ids' checksum.
    pub reference_streams: usize,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// `emel`, or the backend's id.
    pub backend: String,
    /// The reference's configuration; empty for EMEL.
    pub config: String,
    /// Instruction set in use, as the engine names it.
    pub isa: String,
    /// Threads of decode.
    pub threads: usize,
    /// Prefill route asked for, or `-`.
    pub route: String,
    /// Physical batch.
    pub n_ubatch: usize,
    /// Over the bits of every logits vector.
    pub logits_checksum: Option<String>,
    /// Over the chosen ids.
    pub ids_checksum: Option<String>,
    /// Why there are none.
    pub error: Option<String>,
}

/// Batches that split most prompts.
const BATCHES: [usize; 3] = [N_UBATCH, 64, 7];

/// The ways to run EMEL: each thing varied by itself, or all of them together.
fn ways(emel: &Contender, lanes: usize, full: bool) -> Vec<Contender> {
    let levels = Level::available();
    let routes: Vec<&str> = std::iter::once("auto")
        .chain(Route::ALL.into_iter().map(Route::name))
        .collect();
    let mut threads = vec![1, lanes.max(2)];
    threads.dedup();
    let best = Level::best();
    let mut all = Vec::new();
    for &level in &levels {
        for &route in &routes {
            for &n_ubatch in &BATCHES {
                for &threads in &threads {
                    let usual = [level == best, route == "auto", n_ubatch == N_UBATCH];
                    let varied = usual.into_iter().filter(|usual| !usual).count();
                    if full || varied <= 1 {
                        all.push(Contender {
                            threads,
                            threads_batch: threads,
                            n_ubatch,
                            options: named_options(level.name(), route),
                            ..emel.clone()
                        });
                    }
                }
            }
        }
    }
    all
}

/// Runs the command.
///
/// # Errors
/// [`CompareError`].
pub fn run(args: &DeterminismArgs) -> Result<Matrix, CompareError> {
    args.show.refuse_plot("a matrix has no positions")?;
    let interrupt = Interrupt::install().map_err(CompareError::Streams)?;
    let stages = Stages::new(&interrupt);
    let engines = args.engines.engines(&args.case.library)?;
    let (case, _) = args.case.prepare(&stages)?;
    let mut contenders = ways(&engines.emel, engines.emel.threads, args.full);
    // Once more the same: every run has a process of its own.
    contenders.push(engines.emel.clone());
    contenders.extend(engines.references.iter().flatten().cloned());
    let timeout = args.engines.timeout();
    let stage = stages.begin("runs", contenders.len());
    let mut rows = Vec::new();
    let mut n_prompt = 0;
    for (done, contender) in contenders.iter().enumerate() {
        stage.set(done);
        stages.check()?;
        let ran = one(&case, contender, timeout, &stages);
        let ran = match ran {
            Err(error) if !error.is_of_engine() => return Err(error),
            other => other,
        };
        n_prompt = ran
            .as_ref()
            .map_or(n_prompt, |(_, ran)| ran.prompt_ids.len());
        rows.push(row(contender, ran));
    }
    drop(stage);
    Ok(Matrix::of(&case, n_prompt, rows))
}

fn one(
    case: &Case,
    contender: &Contender,
    timeout: Duration,
    stages: &Stages,
) -> Result<(String, Ran), CompareError> {
    let interrupt = stages.interrupt();
    let (mut backend, loaded) = contender.start(&case.model, case.n_ctx, interrupt, timeout)?;
    let ran = free::request(&mut backend, case, contender, None)?;
    Ok((loaded.isa, ran))
}

fn row(contender: &Contender, ran: Result<(String, Ran), CompareError>) -> Row {
    let error = ran.as_ref().err().map(ToString::to_string);
    let (isa, ran) = ran.ok().unzip();
    let route = contender
        .options
        .get("route")
        .and_then(|route| route.as_str());
    Row {
        backend: contender.backend.clone(),
        config: contender.config.clone(),
        isa: isa.unwrap_or_default(),
        threads: contender.threads,
        route: route.unwrap_or("-").to_owned(),
        n_ubatch: contender.n_ubatch,
        logits_checksum: ran.as_ref().and_then(|ran| ran.logits_checksum.clone()),
        ids_checksum: ran.as_ref().and_then(|ran| ran.ids_checksum.clone()),
        error,
    }
}

impl Matrix {
    fn of(case: &Case, n_prompt: usize, rows: Vec<Row>) -> Self {
        let values = |emel: bool, sum: fn(&Row) -> &Option<String>| {
            let own = rows.iter().filter(|row| (row.backend == "emel") == emel);
            own.filter_map(|row| sum(row).clone())
                .collect::<BTreeSet<_>>()
                .len()
        };
        Matrix {
            schema: SCHEMA,
            subject: case.subject(n_prompt),
            emel_values: values(true, |row| &row.logits_checksum),
            reference_values: values(false, |row| &row.logits_checksum),
            reference_streams: values(false, |row| &row.ids_checksum),
            rows,
        }
    }

    /// Done when EMEL has one value and every run of it has ended well.
    pub fn exit(&self) -> Exit {
        let failed = |row: &Row| row.backend == "emel" && row.error.is_some();
        match self.emel_values {
            _ if self.rows.iter().any(failed) => Exit::Failed,
            0 | 1 => Exit::Done,
            _ => Exit::Diverged,
        }
    }
}
