//! The tokenizer's keys of a synthetic model: those of a vocabulary file (any GGUF with a
//! tokenizer), filled up to the shape's number of tokens.

use std::path::{Path, PathBuf};

use super::error::SynthError;
use super::shape::{Shape, Vocabulary};
use crate::gguf::{Array, Gguf, Metadata, Value};
use crate::model::testing::vocabulary;
use crate::tokenizer::Tokenizer;

const TOKENS: &str = "tokenizer.ggml.tokens";
const SCORES: &str = "tokenizer.ggml.scores";
const KINDS: &str = "tokenizer.ggml.token_type";
/// ggml's kind of a token that no text becomes.
const UNUSED: i32 = 5;
/// The score of such a token.
const LAST: f32 = -1000.0;

/// The models' folder: `$EMEL_MODELS_DIR`, else `models` here.
pub fn models_folder() -> PathBuf {
    let given = std::env::var_os("EMEL_MODELS_DIR").filter(|folder| !folder.is_empty());
    given.map_or_else(|| PathBuf::from("models"), PathBuf::from)
}

/// The keys and values, from `file` or else from where the shape's come from.
///
/// # Errors
///
/// When there is no such file, it is no GGUF, has no tokens or more than the shape, or a tokenizer
/// that neither engine could use.
pub fn keys(shape: &Shape, file: Option<&Path>) -> Result<Vec<(String, Value)>, SynthError> {
    let path = match (file, shape.vocabulary) {
        (Some(file), _) => file.to_owned(),
        (None, Vocabulary::BuiltIn) => {
            let pairs = vocabulary(shape.n_vocab as usize);
            return Ok(pairs.into_iter().map(|(k, v)| (k.to_owned(), v)).collect());
        }
        (None, Vocabulary::File { path, fetched_as }) => {
            let path = models_folder().join(path);
            if !path.exists() {
                return Err(SynthError::NoVocabulary { path, fetched_as });
            }
            path
        }
    };
    from_file(&path, shape)
}

fn from_file(path: &Path, shape: &Shape) -> Result<Vec<(String, Value)>, SynthError> {
    let gguf = Gguf::open(path)?;
    let metadata = gguf.metadata();
    let have = metadata.require_strings(TOKENS)?.len();
    let n_vocab = shape.n_vocab as usize;
    if have == 0 || have > n_vocab {
        return Err(SynthError::TokenCount {
            path: path.to_owned(),
            have,
            shape: shape.name,
            n_vocab,
        });
    }
    let mut filled = Metadata::new(path);
    for (key, value) in metadata
        .iter()
        .filter(|(key, _)| key.starts_with("tokenizer."))
    {
        filled.set(key, fill(key, value.clone(), have, n_vocab));
    }
    // What the engine cannot read would be found only when the file is used.
    Tokenizer::from_metadata(&filled)?;
    let pairs = filled.iter();
    Ok(pairs.map(|(k, v)| (k.to_owned(), v.clone())).collect())
}

/// A list with one entry for each token, filled up; any other value as it is. Lists of another
/// length are the tokenizer's to refuse.
fn fill(key: &str, value: Value, have: usize, n_vocab: usize) -> Value {
    let missing = have..n_vocab;
    match (key, value) {
        (TOKENS, Value::Array(Array::String(mut tokens))) => {
            tokens.extend(missing.map(|i| format!("[PAD{i}]")));
            tokens.into()
        }
        (SCORES, Value::Array(Array::F32(mut scores))) => {
            scores.extend(missing.map(|_| LAST));
            scores.into()
        }
        (KINDS, Value::Array(Array::I32(mut kinds))) => {
            kinds.extend(missing.map(|_| UNUSED));
            kinds.into()
        }
        (_, other) => other,
    }
}
