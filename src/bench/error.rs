//! Why a command of `emel-bench` failed. Every message says what, where, and what to do.

use std::path::PathBuf;

use super::backend::ManifestError;
use super::records::RecordError;
use super::validate::SchemaError;
use super::workload::WorkloadError;
use crate::cli::exit::Exit;
use crate::cli::output::OutputError;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A file that cannot be written.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// A workload, model or prompt.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
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
    /// A backend's manifest.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// A synthetic model that could not be written.
    #[error(transparent)]
    Synth(#[from] super::synth::SynthError),
    /// Standard input or output.
    #[error("standard streams: {0}")]
    Streams(#[source] std::io::Error),
    /// Threads that do not start or die.
    #[error(transparent)]
    Lanes(#[from] emel_kernels::LaneError),
    /// Too little memory for a measurement.
    #[error("{0}; close other programs or measure less")]
    Memory(#[from] emel_kernels::AllocError),
    /// A backend that gave no answer.
    #[error(transparent)]
    Backend(#[from] super::backend::BackendError),
    /// A backend's manifest that cannot be used.
    #[error(transparent)]
    Manifest(#[from] super::backend::ManifestError),
    /// The command line asks for what cannot be.
    #[error("{0}")]
    Usage(String),
}

impl BenchError {
    /// The exit code that this error ends the program with.
    pub fn exit(&self) -> Exit {
        match self {
            BenchError::Usage(_) => Exit::Usage,
            BenchError::Backend(super::backend::BackendError::Interrupted) => Exit::Interrupted,
            BenchError::Synth(super::synth::SynthError::Interrupted) => Exit::Interrupted,
            _ => Exit::Failed,
        }
    }
}
