//! What can go wrong while a model is loaded or run.

use crate::gguf::GgufError;
use crate::model::ModelError;
use crate::sampling::SampleError;
use crate::tokenizer::TokenId;
use emel_kernels::{DequantizeError, LaneError, Level, RopeError};

/// An error of the engine. Errors never lead to a wrong result: the dispatch that met one ends
/// without output, and the session it happened in takes no further events.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The file is not a GGUF file, or a broken one.
    #[error(transparent)]
    Gguf(Box<GgufError>),
    /// The file holds no model that can be run.
    #[error(transparent)]
    Model(Box<ModelError>),
    /// The processor lacks the instruction set that was asked for.
    #[error("this processor has no {level} instructions; choose one of: {available}", level = .0.name(), available = available_levels())]
    Unavailable(Level),
    /// A policy holds a number that means nothing.
    #[error("{what} is {value}, but must be at least 1")]
    Policy {
        /// The number's name.
        what: &'static str,
        /// Its value.
        value: usize,
    },
    /// A tensor could not be packed.
    #[error("tensor '{tensor}': {source}")]
    Pack {
        /// The tensor's name.
        tensor: String,
        /// Why.
        source: emel_kernels::PackError,
    },
    /// There is not enough memory.
    #[error("no room for {what}: {source}; {cure}")]
    Memory {
        /// What it was for.
        what: &'static str,
        /// How much was asked for.
        source: emel_kernels::AllocError,
        /// What to do.
        cure: &'static str,
    },
    /// A rotary embedding is out of range.
    #[error(transparent)]
    Rope(#[from] RopeError),
    /// The embedding table cannot be read.
    #[error("embedding: {0}")]
    Embedding(#[from] DequantizeError),
    /// The key-value cache cannot be made.
    #[error(transparent)]
    Cache(#[from] emel_kernels::CacheError),
    /// A machine ended in a state from which there is no result: a defect of its table.
    #[error("a state machine of the engine ended out of order; please report this")]
    Order,
    /// A lane could not be started or reached, or died.
    #[error(transparent)]
    Lane(#[from] LaneError),
    /// An earlier dispatch of this session failed.
    #[error("an earlier error has ended this session: make a new one")]
    Broken,
    /// The prompt has no tokens.
    #[error("the prompt is empty: give at least one token")]
    EmptyPrompt,
    /// The prompt does not fit in the context.
    #[error(
        "the prompt has {n_prompt} tokens, but the context holds {n_ctx}: shorten it or raise the context size (-c)"
    )]
    PromptTooLong {
        /// Tokens in the prompt.
        n_prompt: usize,
        /// Tokens in the context.
        n_ctx: usize,
    },
    /// A token is not in the vocabulary.
    #[error("token {id} is not in the vocabulary of {n_vocab} tokens")]
    ForeignToken {
        /// The token.
        id: TokenId,
        /// Size of the vocabulary.
        n_vocab: usize,
    },
    /// No token could be selected.
    #[error(transparent)]
    Sample(#[from] SampleError),
}

impl From<GgufError> for EngineError {
    fn from(error: GgufError) -> Self {
        EngineError::Gguf(Box::new(error))
    }
}

impl From<ModelError> for EngineError {
    fn from(error: ModelError) -> Self {
        EngineError::Model(Box::new(error))
    }
}

/// What a dispatch came to: `failure` if there was one, and an error too when the machine did not
/// reach the state that stands for success.
pub(super) fn finish(done: bool, failure: Option<EngineError>) -> Result<(), EngineError> {
    match failure {
        Some(error) => Err(error),
        None if done => Ok(()),
        None => Err(EngineError::Order),
    }
}

fn available_levels() -> String {
    Level::available()
        .iter()
        .map(|level| level.name())
        .collect::<Vec<_>>()
        .join(", ")
}
