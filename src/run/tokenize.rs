//! `--tokenize`: a text's token ids, without running a model. Works with files that hold a
//! vocabulary alone.

use std::io::{self, Write};
use std::path::Path;

use thiserror::Error;

use super::args::RunConfig;
use super::prompt::{PromptError, read_source};
use crate::gguf::{Gguf, GgufError};
use crate::tokenizer::{EncodeOptions, TokenId, Tokenizer, TokenizerError};

/// Why a text could not be turned into tokens.
#[derive(Debug, Error)]
pub enum TokenizeError {
    /// The text.
    #[error(transparent)]
    Prompt(#[from] PromptError),
    /// The file.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// Its vocabulary.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// Standard output. A closed pipe is for the caller to forgive.
    #[error("cannot write the tokens: {0}")]
    Write(#[from] io::Error),
}

/// Reads the prompt, then the vocabulary of `model`, and writes the ids on one line, or with
/// `-v` one `id -> 'piece'` a line. Pieces are written byte for byte: one alone may be half a
/// character.
///
/// # Errors
/// [`TokenizeError`].
pub fn tokenize(
    config: &RunConfig,
    model: &Path,
    out: &mut impl Write,
) -> Result<(), TokenizeError> {
    let text = config
        .prompt
        .as_ref()
        .map_or(Ok(String::new()), read_source)?;
    let gguf = Gguf::open_with(model, &config.overrides)?;
    let tokenizer = Tokenizer::from_metadata(gguf.metadata())?;
    let options = EncodeOptions {
        add_special: !config.no_bos,
        parse_special: !config.no_parse_special,
    };
    let ids = tokenizer.encode(&text, options);
    if config.verbosity > 3 {
        write_pieces(&tokenizer, &ids, out)?;
    } else {
        write_ids(&ids, out)?;
    }
    Ok(out.flush()?)
}

fn write_ids(ids: &[TokenId], out: &mut impl Write) -> io::Result<()> {
    for (place, id) in ids.iter().enumerate() {
        let gap = if place == 0 { "" } else { " " };
        write!(out, "{gap}{id}")?;
    }
    writeln!(out)
}

/// One token a line as `id -> 'piece'`; also how `--verbose-prompt` shows a prompt.
///
/// # Errors
/// [`TokenizeError::Tokenizer`] for an id that is no token's, [`TokenizeError::Write`].
pub fn write_pieces(
    tokenizer: &Tokenizer,
    ids: &[TokenId],
    out: &mut impl Write,
) -> Result<(), TokenizeError> {
    for &id in ids {
        write!(out, "{id} -> '")?;
        out.write_all(&tokenizer.piece(id, true)?)?;
        writeln!(out, "'")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::run::args::Source;

    fn vocabulary(name: &str) -> PathBuf {
        let models = std::env::var_os("EMEL_MODELS_DIR").map(PathBuf::from);
        let models = models.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("models"));
        let file = models.join("vocab").join(name);
        assert!(
            file.is_file(),
            "{} is missing: run scripts/fetch_models.sh",
            file.display()
        );
        file
    }

    fn tokens(name: &str, text: &str, change: impl FnOnce(&mut RunConfig)) -> String {
        let mut config = RunConfig {
            prompt: Some(Source::Text(text.to_owned())),
            ..RunConfig::default()
        };
        change(&mut config);
        let mut out = Vec::new();
        tokenize(&config, &vocabulary(name), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    const LLAMA: &str = "ggml-vocab-llama-spm.gguf";

    #[test]
    fn ids_stand_on_one_line() {
        assert_eq!(tokens(LLAMA, "Hello world", |_| ()), "1 15043 3186\n");
        assert_eq!(
            tokens(LLAMA, "Hello world", |c| c.no_bos = true),
            "15043 3186\n"
        );
        assert_eq!(tokens(LLAMA, "", |c| c.no_bos = true), "\n");
    }

    #[test]
    fn special_tokens_are_parsed_unless_told_otherwise() {
        assert_eq!(tokens(LLAMA, "</s>", |_| ()), "1 2\n");
        let plain = tokens(LLAMA, "</s>", |c| c.no_parse_special = true);
        assert!(plain.starts_with("1 ") && plain != "1 2\n", "{plain}");
    }

    #[test]
    fn pieces_stand_one_a_line() {
        let lines = tokens(LLAMA, "Hello world", |c| c.verbosity = 5);
        assert_eq!(lines, "1 -> '<s>'\n15043 -> ' Hello'\n3186 -> ' world'\n");
    }

    #[test]
    fn faults_are_named() {
        let config = RunConfig {
            prompt: Some(Source::Text("x".into())),
            ..RunConfig::default()
        };
        let error = tokenize(&config, Path::new("/no/such.gguf"), &mut Vec::new()).unwrap_err();
        assert!(matches!(error, TokenizeError::Gguf(_)), "{error}");
        let config = RunConfig {
            prompt: Some(Source::File("/no/text".into())),
            ..config
        };
        let error = tokenize(&config, &vocabulary(LLAMA), &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("/no/text"), "{error}");
    }
}
