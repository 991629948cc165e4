//! Why a comparison could not be made. Every message says what, where, and what to do.

use std::path::PathBuf;

use super::scratch::ScratchError;
use crate::bench::BenchError;
use crate::bench::backend::{BackendError, ManifestError};
use crate::bench::records::RecordError;
use crate::bench::workload::WorkloadError;
use crate::cli::exit::Exit;
use crate::engine::EngineError;
use crate::gguf::GgufError;
use crate::model::ModelError;
use crate::oracle::OracleError;
use crate::output::OutputError;
use crate::tokenizer::TokenizerError;
use crate::trace::TraceError;

/// Why a comparison could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// A trace.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A file of records.
    #[error(transparent)]
    Records(#[from] RecordError),
    /// A file that cannot be written.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// Whatever the bench's own parts say.
    #[error(transparent)]
    Bench(Box<BenchError>),
    /// An engine.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// An engine whose answer does not fit what was asked.
    #[error("{name} gave an answer that does not fit: {what}")]
    Misfit {
        /// The engine.
        name: String,
        /// What is wrong with it.
        what: String,
    },
    /// A model that cannot be read.
    #[error(transparent)]
    Model(Box<EngineError>),
    /// The oracle.
    #[error(transparent)]
    Oracle(#[from] OracleError),
    /// Logits that cannot be kept.
    #[error(transparent)]
    Scratch(#[from] ScratchError),
    /// Two records of one engine where one can be compared.
    #[error(
        "{}:{line}: {label} is there a second time for workload {workload} in lane {lane} (first on \
         line {first}); keep one of the two, or put them into two files",
        path.display()
    )]
    Twice {
        /// The file.
        path: PathBuf,
        /// The second record's line.
        line: usize,
        /// The first one's.
        first: usize,
        /// The engine with its configuration.
        label: String,
        /// The workload.
        workload: String,
        /// The lane.
        lane: String,
    },
    /// A record without a trace, or whose trace is no file name.
    #[error("{}:{line}: {problem}", path.display())]
    NoTrace {
        /// The file.
        path: PathBuf,
        /// The record's line.
        line: usize,
        /// What is wrong and what to do.
        problem: String,
    },
    /// A record's trace is not there.
    #[error(
        "{}:{line}: its trace {} is missing; keep the folder of traces beside the records, or \
         measure again",
        path.display(),
        trace.display()
    )]
    MissingTrace {
        /// The file.
        path: PathBuf,
        /// The record's line.
        line: usize,
        /// Where the trace should be.
        trace: PathBuf,
    },
    /// A trace of another run than its record.
    #[error(
        "{}:{line}: its trace {} is of another run: {key} is {found} there and {stated} in the \
         record; measure again",
        path.display(),
        trace.display()
    )]
    OtherTrace {
        /// The file.
        path: PathBuf,
        /// The record's line.
        line: usize,
        /// The trace.
        trace: PathBuf,
        /// The key that tells them apart.
        key: &'static str,
        /// What follows from the trace.
        found: String,
        /// What the record says.
        stated: String,
    },
    /// No workload and lane has two records.
    #[error("nothing to compare: {0}")]
    NoPairs(String),
    /// `--plot` without positions to plot.
    #[error(
        "--plot: there is nothing to plot: {0}; `emel-compare run` compares the logits of every \
         position"
    )]
    NothingToPlot(&'static str),
    /// Ctrl-C.
    #[error("interrupted: nothing was compared to its end")]
    Interrupted,
    /// Standard input or output.
    #[error("standard streams: {0}")]
    Streams(#[source] std::io::Error),
    /// The command line asks for what cannot be.
    #[error("{0}")]
    Usage(String),
}

impl From<BenchError> for CompareError {
    fn from(error: BenchError) -> Self {
        CompareError::Bench(Box::new(error))
    }
}

impl From<WorkloadError> for CompareError {
    fn from(error: WorkloadError) -> Self {
        BenchError::from(error).into()
    }
}

impl From<ManifestError> for CompareError {
    fn from(error: ManifestError) -> Self {
        BenchError::from(error).into()
    }
}

impl From<GgufError> for CompareError {
    fn from(error: GgufError) -> Self {
        CompareError::Model(Box::new(error.into()))
    }
}

impl From<ModelError> for CompareError {
    fn from(error: ModelError) -> Self {
        CompareError::Model(Box::new(error.into()))
    }
}

impl From<TokenizerError> for CompareError {
    fn from(error: TokenizerError) -> Self {
        WorkloadError::from(error).into()
    }
}

impl CompareError {
    /// Whether one engine alone is to blame, so that others can go on.
    pub fn is_of_engine(&self) -> bool {
        match self {
            CompareError::Backend(error) => !matches!(error, BackendError::Interrupted),
            CompareError::Misfit { .. } => true,
            _ => false,
        }
    }

    /// The exit code that this error ends the program with.
    pub fn exit(&self) -> Exit {
        match self {
            CompareError::Usage(_) | CompareError::NothingToPlot(_) => Exit::Usage,
            CompareError::NoPairs(_) => Exit::NotComparable,
            CompareError::Bench(error) => error.exit(),
            CompareError::Interrupted | CompareError::Backend(BackendError::Interrupted) => {
                Exit::Interrupted
            }
            _ => Exit::Failed,
        }
    }
}
