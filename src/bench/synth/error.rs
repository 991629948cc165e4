//! Why a synthetic model could not be written.

use std::io;
use std::path::PathBuf;

use crate::gguf::write::WriteError;
use crate::gguf::{GgufError, TensorType};
use crate::model::quantize::UnevenValues;
use crate::output::OutputError;
use crate::tokenizer::TokenizerError;

/// Why a synthetic model could not be written. Whatever was at its place before is untouched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SynthError {
    /// The shape's vocabulary is not there.
    #[error(
        "{} is missing: run scripts/fetch_models.sh {fetched_as}, or name another vocabulary \
         with --vocab FILE",
        path.display()
    )]
    NoVocabulary {
        /// Where it was looked for.
        path: PathBuf,
        /// What fetches it.
        fetched_as: &'static str,
    },
    /// The vocabulary file cannot be read, or has no tokens.
    #[error("vocabulary: {0}")]
    Vocabulary(#[source] Box<GgufError>),
    /// The vocabulary's tokenizer cannot be used.
    #[error("vocabulary: {0}")]
    Tokenizer(#[source] Box<TokenizerError>),
    /// The vocabulary does not fit the shape.
    #[error(
        "{}: key tokenizer.ggml.tokens holds {have} tokens, and shape {shape} has room for 1 to \
         {n_vocab}; choose another vocabulary or shape",
        path.display()
    )]
    TokenCount {
        /// The vocabulary file.
        path: PathBuf,
        /// Its tokens.
        have: usize,
        /// The shape.
        shape: &'static str,
        /// The shape's tokens.
        n_vocab: usize,
    },
    /// The file's folder cannot be made.
    #[error("cannot create the folder {}: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The file cannot be written.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The container refuses what is to be written.
    #[error("{0}")]
    Container(#[source] Box<WriteError>),
    /// A shape whose rows do not fit a mixture's blocks.
    #[error(transparent)]
    Uneven(#[from] UnevenValues),
    /// A mixture of a type that nothing here writes.
    #[error("{0} is no weight type of the engine")]
    NoQuantizer(TensorType),
    /// No thread to be had.
    #[error("cannot start a thread: {0}; try fewer with --threads")]
    Thread(#[source] io::Error),
    /// Stopped by the user.
    #[error("interrupted; nothing was left behind")]
    Interrupted,
}

// Boxed: they would make every result of this module large.
impl From<GgufError> for SynthError {
    fn from(error: GgufError) -> SynthError {
        SynthError::Vocabulary(Box::new(error))
    }
}

impl From<TokenizerError> for SynthError {
    fn from(error: TokenizerError) -> SynthError {
        SynthError::Tokenizer(Box::new(error))
    }
}
