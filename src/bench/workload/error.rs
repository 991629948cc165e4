//! Why a workload cannot be read or run.

use std::path::PathBuf;

use crate::chat::ChatError;
use crate::gguf::GgufError;
use crate::tokenizer::TokenizerError;

/// Why a workload, a model list or a prompt cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// There is no folder of workloads.
    #[error(
        "no benchdata folder: tried {}; name it with --benchdata or EMEL_BENCHDATA",
        list(tried)
    )]
    NoLibrary {
        /// Where it was looked for.
        tried: Vec<PathBuf>,
    },
    /// A file that cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A manifest that says what cannot be.
    #[error("{}:{line}: {}{problem}", path.display(), prefix(field))]
    Manifest {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// The field, as a path (`models[2].file`); empty when the file as a whole is meant.
        field: String,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// A selection that nothing answers to.
    #[error("no {what} is called `{asked}`; there are: {}", known.join(", "))]
    Unknown {
        /// `workload`, `suite` or `model`.
        what: &'static str,
        /// The name or pattern asked for.
        asked: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// A selection whose parts exclude each other.
    #[error("no workload is left: {0}; widen the selection (emel-bench list shows all)")]
    Nothing(String),
    /// A pattern that is none.
    #[error("`{pattern}` is not a pattern: {source}; *, ? and [...] are understood")]
    Pattern {
        /// As it was given.
        pattern: String,
        /// What is wrong with it.
        source: glob::PatternError,
    },
    /// A model's file is not there.
    #[error("model {name}: {} is missing; obtain it with: {command}", path.display())]
    MissingModel {
        /// The model's name in the list.
        name: String,
        /// The file expected.
        path: PathBuf,
        /// The command that makes or fetches it.
        command: String,
    },
    /// A model's file is another one.
    #[error(
        "model {name}: {} is not the listed file: its sha256 is {actual}, models.json says \
         {expected}; remove it and obtain it again with: {command}",
        path.display()
    )]
    WrongModel {
        /// The model's name in the list.
        name: String,
        /// The file.
        path: PathBuf,
        /// The digest listed.
        expected: String,
        /// The digest found.
        actual: String,
        /// The command that makes or fetches it.
        command: String,
    },
    /// The formatter is the model's template, and the model has none.
    #[error(
        "workload {id}: {} has no chat template (tokenizer.chat_template); set formatter to \"raw\"",
        path.display()
    )]
    NoTemplate {
        /// The workload.
        id: String,
        /// The model's file.
        path: PathBuf,
    },
    /// The model's file.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// Its vocabulary.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// Its chat template.
    #[error("chat template: {0}")]
    Chat(#[from] ChatError),
}

impl WorkloadError {
    /// Whether it is the command line that cannot be followed.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        use WorkloadError::{Nothing, Pattern, Unknown};
        matches!(self, Unknown { .. } | Nothing(_) | Pattern { .. })
    }
}

fn prefix(field: &str) -> String {
    match field {
        "" => String::new(),
        field => format!("{field}: "),
    }
}

fn list(paths: &[PathBuf]) -> String {
    let names: Vec<_> = paths
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    names.join(", ")
}

impl From<crate::cli::digests::DigestError> for WorkloadError {
    fn from(error: crate::cli::digests::DigestError) -> Self {
        WorkloadError::Read {
            path: error.path,
            source: error.source,
        }
    }
}
