//! Why a request cannot be met. Each becomes an answer `{"error": "..."}`.

use emel::gguf::GgufError;
use emel::model::ModelError;
use emel::output::OutputError;
use emel::sampling::SampleError;
use emel::tokenizer::TokenizerError;

use crate::defect::DefectError;

/// A request that cannot be met. Only `load` changes what is loaded; after any other error the
/// next request finds an empty context at worst.
#[derive(Debug, thiserror::Error)]
pub enum PlainError {
    /// The file is no model.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// A model of another kind.
    #[error(transparent)]
    Model(Box<ModelError>),
    /// The vocabulary.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// Logits without a largest.
    #[error(transparent)]
    Sample(#[from] SampleError),
    /// A file that was asked for.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The options.
    #[error(transparent)]
    Defect(#[from] DefectError),
    /// The system gave no thread.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] std::io::Error),
    /// A weight type without a decoder.
    #[error("tensor `{tensor}` is of type {ty}, which cannot be decoded")]
    Type {
        /// The tensor.
        tensor: String,
        /// Its type.
        ty: &'static str,
    },
    /// Weights that do not fit in memory.
    #[error("not enough memory: tensor `{tensor}` takes {bytes} bytes as f32")]
    Memory {
        /// The tensor.
        tensor: String,
        /// What it takes.
        bytes: usize,
    },
    /// A number out of bounds.
    #[error("`{field}` is {value}: it must be from {least} to {most}")]
    Bounds {
        /// The request's field.
        field: &'static str,
        /// What it says.
        value: usize,
        /// The least it may say.
        least: usize,
        /// The most it may say.
        most: usize,
    },
    /// Nothing to run.
    #[error("no model is loaded: send `load` first")]
    NotLoaded,
    /// The text has no tokens.
    #[error("the prompt has no tokens")]
    EmptyPrompt,
    /// Nothing to feed.
    #[error("`ids` is empty: there is nothing to feed")]
    NoIds,
    /// One file for two things.
    #[error("`logits` and `tensors` name the same file: give each its own")]
    SameFile,
    /// A `force` that goes on from nothing.
    #[error("`prompt` is 0, and there is no `force` to go on from: give the whole prompt")]
    NothingFed,
    /// A token beyond the vocabulary.
    #[error("token {id} is not in the vocabulary of {n_vocab} tokens")]
    ForeignToken {
        /// The token.
        id: u32,
        /// The vocabulary's size.
        n_vocab: usize,
    },
    /// More tokens than the context holds.
    #[error("{tokens} tokens do not fit: {room} of the context's {n_ctx} are free; raise `n_ctx`")]
    ContextFull {
        /// Tokens that were to be fed.
        tokens: usize,
        /// Free positions.
        room: usize,
        /// All positions.
        n_ctx: usize,
    },
    /// What only other backends do.
    #[error("`{0}` is not what this backend does: it answers `load`, `run` and `force`")]
    NotOffered(&'static str),
    /// A line that is no request.
    #[error("no request of this protocol: {0}")]
    NoRequest(String),
}

impl From<ModelError> for PlainError {
    fn from(error: ModelError) -> Self {
        PlainError::Model(Box::new(error))
    }
}
