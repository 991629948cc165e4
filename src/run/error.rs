//! Why a run failed. Every message says what went wrong, where, and what to do.

use super::prompt::PromptError;
use super::sink::SinkError;
use super::tokenize::TokenizeError;
use crate::chat::ChatError;
use crate::cli::digests::DigestError;
use crate::cli::exit::Exit;
use crate::engine::EngineError;
use crate::output::{OutputError, is_closed_pipe};
use crate::sampling::ConfigError;
use crate::tokenizer::TokenizerError;

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// No model was named and the quickstart model is not there.
    #[error("{}", super::locate::HOW_TO_GET_A_MODEL)]
    NoModel,
    /// The model, or running it.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The vocabulary.
    #[error(transparent)]
    Tokenizer(Box<TokenizerError>),
    /// The sampler's settings.
    #[error(transparent)]
    Sampling(#[from] ConfigError),
    /// A text that cannot be read.
    #[error(transparent)]
    Prompt(#[from] PromptError),
    /// `--tokenize`.
    #[error(transparent)]
    Tokenize(Box<TokenizeError>),
    /// The chat template.
    #[error("chat template: {0}")]
    Chat(#[from] ChatError),
    /// Chat mode without a template.
    #[error("the model has no chat template: name one with --chat-template, or use -no-cnv")]
    NoTemplate,
    /// A file that cannot be written.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// Standard output.
    #[error(transparent)]
    Sink(#[from] SinkError),
    /// Standard input.
    #[error("cannot read standard input: {0}")]
    Input(#[source] std::io::Error),
    /// A model file that cannot be read again for its digest.
    #[error("cannot read {file} for its digest: {source}")]
    Digest {
        /// The file.
        file: String,
        /// Why.
        source: std::io::Error,
    },
    /// The same for a packed copy.
    #[error(transparent)]
    Digests(#[from] DigestError),
    /// Ctrl-C cannot be handled.
    #[error("cannot take over Ctrl-C: {0}")]
    Interrupt(#[source] std::io::Error),
    /// A file would be written over one that the run reads or writes.
    #[error("{output} ({flag}) is also {other}: name another file")]
    SameFile {
        /// The file that would be written.
        output: String,
        /// The flag that names it.
        flag: &'static str,
        /// What else it is.
        other: &'static str,
    },
    /// The session took no further event, since an earlier one failed.
    #[error("the session has ended by an earlier error and takes no further prompt")]
    NotTaken,
}

impl From<TokenizeError> for RunError {
    fn from(error: TokenizeError) -> Self {
        RunError::Tokenize(Box::new(error))
    }
}

impl From<TokenizerError> for RunError {
    fn from(error: TokenizerError) -> Self {
        RunError::Tokenizer(Box::new(error))
    }
}

impl RunError {
    /// The exit code that this error ends the program with.
    pub fn exit(&self) -> Exit {
        match self {
            RunError::SameFile { .. } => Exit::Usage,
            _ => Exit::Failed,
        }
    }

    /// Whether it is only that nobody reads standard output any more.
    pub fn is_closed_pipe(&self) -> bool {
        match self {
            RunError::Tokenize(error) => match error.as_ref() {
                TokenizeError::Write(error) => is_closed_pipe(error),
                _ => false,
            },
            _ => false,
        }
    }
}
