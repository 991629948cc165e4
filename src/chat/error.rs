//! What can go wrong with a template.

/// Why a template gave no text. `line` is 1-based, in the template's source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChatError {
    /// The source is not a template.
    #[error("chat template, line {line}: {message}")]
    Syntax {
        /// Where.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// The template itself refused the conversation (`raise_exception`), for example because
    /// roles do not alternate.
    #[error("chat template, line {line}: the template says: {message}")]
    Raised {
        /// Where it was raised.
        line: usize,
        /// The template's words.
        message: String,
    },
    /// An operation in the template failed, as adding a string to a list.
    #[error("chat template, line {line}: {message}")]
    Failed {
        /// Where.
        line: usize,
        /// What failed.
        message: String,
    },
    /// The template did more work, or held more data, than its budget allows.
    #[error(
        "chat template, line {line}: stopped after its budget of {fuel} steps; it loops without \
         end, or Limits::fuel is too small for this conversation"
    )]
    OutOfFuel {
        /// Where it was stopped.
        line: usize,
        /// The budget.
        fuel: u64,
    },
    /// The text grew past the limit.
    #[error(
        "chat template: stopped when its text grew past {limit} bytes; it repeats itself, or \
         Limits::output is too small for this conversation"
    )]
    OutputTooLong {
        /// The limit, bytes.
        limit: usize,
    },
    /// The source is longer than a template may be.
    #[error("chat template of {length} bytes is longer than {limit}: this is no chat template")]
    SourceTooLong {
        /// Its length, bytes.
        length: usize,
        /// The limit, bytes.
        limit: usize,
    },
    /// No built-in template has this name.
    #[error("no built-in chat template is named {name:?}; there are: {}", known.join(", "))]
    UnknownName {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: Vec<&'static str>,
    },
    /// The messages are not a JSON list.
    #[error("messages must be a JSON list of objects")]
    NotMessages,
    /// Messages or variables nest too deep.
    #[error("messages or template variables nest lists and objects deeper than 100")]
    InputTooDeep,
    /// The template starts a thread for its own stack, and the system gave none.
    #[error("cannot start a thread for the chat template: {0}")]
    Thread(String),
}
