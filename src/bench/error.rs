//! Why a command of `emel-bench` failed. Every message says what, where, and what to do.

use std::path::PathBuf;

use super::backend::{BackendError, ManifestError};
use super::records::RecordError;
use super::synth::SynthError;
use super::validate::SchemaError;
use super::workload::WorkloadError;
use crate::cli::exit::Exit;
use crate::engine::EngineError;
use crate::output::OutputError;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A file that cannot be written.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// A workload, model or prompt.
    #[error(transparent)]
    Workload(Box<WorkloadError>),
    /// A file of records.
    #[error(transparent)]
    Records(#[from] RecordError),
    /// Files that do not satisfy their schema; the problems are on standard error.
    #[error("{0}; the problems are named above")]
    Invalid(String),
    /// A schema of this program's own.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// Ratios that fell, or were not measured.
    #[error("{}:{failure}", path.display())]
    Fallen {
        /// The snapshot.
        path: PathBuf,
        /// A line a row.
        failure: String,
    },
    /// A synthetic model that could not be written.
    #[error(transparent)]
    Synth(Box<SynthError>),
    /// A backend's manifest.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// A backend.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// A model that EMEL cannot read.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A reference that is not there.
    #[error(
        "{name} is not built: {} is missing; build it with {command}, or measure EMEL alone with \
         --reference none",
        program.display()
    )]
    NoReference {
        /// The reference.
        name: String,
        /// Its program.
        program: PathBuf,
        /// What builds it.
        command: String,
    },
    /// A prompt that is shorter than the workload says.
    #[error(
        "workload {workload}: {prompt} has {n_prompt} tokens with this model, prompt_tokens asks \
         for {wanted}; name a longer prompt"
    )]
    ShortPrompt {
        /// The workload.
        workload: String,
        /// The prompt's file.
        prompt: String,
        /// Its tokens.
        n_prompt: usize,
        /// What the workload cuts it to.
        wanted: usize,
    },
    /// EMEL itself failed in everything that was asked for.
    #[error("emel failed in every workload, nothing was written: {error}")]
    EmelFailed {
        /// Why, of the first.
        error: String,
    },
    /// Ctrl-C.
    #[error(
        "interrupted: {done} measured, nothing was written{}; missing: {}",
        to(output),
        missing.join(", ")
    )]
    Interrupted {
        /// Workloads and lanes that were measured.
        done: usize,
        /// Those that were not.
        missing: Vec<String>,
        /// Where records would have gone.
        output: Option<PathBuf>,
    },
    /// Standard input or output.
    #[error("standard streams: {0}")]
    Streams(#[source] std::io::Error),
    /// Threads that do not start or die.
    #[error(transparent)]
    Lanes(#[from] emel_kernels::LaneError),
    /// Too little memory for a measurement.
    #[error("{0}; close other programs or measure less")]
    Memory(#[from] emel_kernels::AllocError),
    /// The command line asks for what cannot be.
    #[error("{0}")]
    Usage(String),
}

impl From<WorkloadError> for BenchError {
    fn from(error: WorkloadError) -> Self {
        BenchError::Workload(Box::new(error))
    }
}

impl From<SynthError> for BenchError {
    fn from(error: SynthError) -> Self {
        BenchError::Synth(Box::new(error))
    }
}

fn to(output: &Option<PathBuf>) -> String {
    let to = output.as_ref();
    to.map_or(String::new(), |path| format!(" to {}", path.display()))
}

impl BenchError {
    /// The exit code that this error ends the program with.
    pub fn exit(&self) -> Exit {
        match self {
            BenchError::Usage(_) | BenchError::Manifest(ManifestError::Unknown { .. }) => {
                Exit::Usage
            }
            BenchError::Workload(error) if error.is_usage() => Exit::Usage,
            BenchError::Interrupted { .. } | BenchError::Backend(BackendError::Interrupted) => {
                Exit::Interrupted
            }
            BenchError::Synth(error) if matches!(**error, SynthError::Interrupted) => {
                Exit::Interrupted
            }
            _ => Exit::Failed,
        }
    }
}
