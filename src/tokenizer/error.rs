//! What can be wrong with a vocabulary.

use crate::gguf::GgufError;
use std::path::{Path, PathBuf};

/// Why a file's tokenizer cannot be used, or a token not be shown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// A key is missing or holds another type.
    #[error(transparent)]
    Metadata(#[from] GgufError),
    /// The tokenizer's kind is none that this engine has.
    #[error(
        "{}: key tokenizer.ggml.model is `{name}`{kind}, which is not supported; \
         supported: gpt2 (byte-level BPE), llama (SPM), gemma4 (BPE with spaces marked)",
        file.display()
    )]
    UnknownModel {
        /// The file.
        file: PathBuf,
        /// The name found.
        name: String,
        /// What that name means, in parentheses, where it is known.
        kind: &'static str,
    },
    /// The pre-tokenizer's name is none that this engine has.
    #[error(
        "{}: key tokenizer.ggml.pre names the pre-tokenizer `{name}`, which is not known; \
         known: {known}",
        file.display()
    )]
    UnknownPreTokenizer {
        /// The file.
        file: PathBuf,
        /// The name found.
        name: String,
        /// The names there are.
        known: String,
    },
    /// No tokens, or more text than 32-bit offsets reach.
    #[error("{}: key tokenizer.ggml.tokens holds {found}", file.display())]
    Size {
        /// The file.
        file: PathBuf,
        /// How many.
        found: &'static str,
    },
    /// An array that must have one entry a token has not.
    #[error(
        "{}: key {key} has {found} entries, tokenizer.ggml.tokens has {wanted}",
        file.display()
    )]
    Length {
        /// The file.
        file: PathBuf,
        /// The array's key.
        key: &'static str,
        /// Its entries.
        found: usize,
        /// The number of tokens.
        wanted: usize,
    },
    /// Two tokens are spelled the same.
    #[error(
        "{}: key tokenizer.ggml.tokens: token {second} repeats token {first}, {text}",
        file.display()
    )]
    Duplicate {
        /// The file.
        file: PathBuf,
        /// The earlier id.
        first: u32,
        /// The later id.
        second: u32,
        /// Their text, quoted and cut short.
        text: String,
    },
    /// A token type outside 0 to 6.
    #[error(
        "{}: key tokenizer.ggml.token_type: token {id} has type {value}, types are 0 to 6",
        file.display()
    )]
    Type {
        /// The file.
        file: PathBuf,
        /// The token.
        id: u32,
        /// Its type.
        value: i32,
    },
    /// A score that cannot be ordered.
    #[error("{}: key tokenizer.ggml.scores: the score of token {id} is not a number", file.display())]
    Score {
        /// The file.
        file: PathBuf,
        /// The token.
        id: u32,
    },
    /// A token of type byte that spells none.
    #[error(
        "{}: key tokenizer.ggml.tokens: token {id}, {text}, has type byte, \
         but is not spelled `<0x00>` to `<0xFF>`",
        file.display()
    )]
    Byte {
        /// The file.
        file: PathBuf,
        /// The token.
        id: u32,
        /// Its text, quoted and cut short.
        text: String,
    },
    /// A special token's id is not in the vocabulary.
    #[error("{}: key {key} is {id}, the vocabulary has {n_vocab} tokens", file.display())]
    Id {
        /// The file.
        file: PathBuf,
        /// The key.
        key: &'static str,
        /// Its value.
        id: i64,
        /// Tokens there are.
        n_vocab: usize,
    },
    /// Texts shall begin (or end) with a token that the file does not name.
    #[error("{}: {key} is missing, but this tokenizer adds that token to texts", file.display())]
    NoSuchSpecial {
        /// The file.
        file: PathBuf,
        /// The key that is missing.
        key: &'static str,
    },
    /// A merge that is not two parts with a space between.
    #[error(
        "{}: key tokenizer.ggml.merges: entry {index}, {text}, is not two parts \
         separated by a space",
        file.display()
    )]
    Merge {
        /// The file.
        file: PathBuf,
        /// Its place in the array.
        index: usize,
        /// Its text, quoted and cut short.
        text: String,
    },
    /// An id asked for is not in the vocabulary.
    #[error("token {id} is not in the vocabulary of {n_vocab} tokens")]
    NoSuchToken {
        /// The id.
        id: u32,
        /// Tokens there are.
        n_vocab: usize,
    },
}

impl TokenizerError {
    pub(super) fn length(
        file: &Path,
        key: &'static str,
        found: usize,
        wanted: usize,
    ) -> TokenizerError {
        TokenizerError::Length {
            file: file.to_owned(),
            key,
            found,
            wanted,
        }
    }
}

/// `text` quoted, control characters escaped, cut after 48 characters.
pub(super) fn excerpt(text: &str) -> String {
    match text.char_indices().nth(48) {
        Some((end, _)) => format!("{:?}...", &text[..end]),
        None => format!("{text:?}"),
    }
}
