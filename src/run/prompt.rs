//! Reading the texts that the command line names: prompt and system prompt.

use std::io::Read;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::args::Source;

/// A text that cannot be used.
#[derive(Debug, Error)]
pub enum PromptError {
    /// The file or standard input cannot be read.
    #[error("cannot read {}: {source}{}", name(path), advice(source))]
    Read {
        /// The file; none = standard input.
        path: Option<PathBuf>,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is longer than any model's context.
    #[error("{} is longer than {} MiB, more than any context holds", name(path), MAX_BYTES >> 20)]
    TooLong {
        /// The file; none = standard input.
        path: Option<PathBuf>,
    },
    /// It is not text.
    #[error(
        "{} is not valid UTF-8: byte {offset} cannot be read as text; convert it first (iconv)",
        name(path)
    )]
    Utf8 {
        /// The file; none = standard input.
        path: Option<PathBuf>,
        /// Where the first bad byte is.
        offset: usize,
    },
}

/// The longest text that is read, so that an endless input (a device, a pipe) ends.
const MAX_BYTES: u64 = 256 << 20;

fn name(path: &Option<PathBuf>) -> String {
    path.as_ref().map_or_else(
        || "standard input".to_owned(),
        |path| path.display().to_string(),
    )
}

fn advice(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::NotFound => "; check the file's name",
        std::io::ErrorKind::IsADirectory => "; name a file inside it",
        std::io::ErrorKind::PermissionDenied => "; check who may read it",
        _ => "",
    }
}

/// Reads a text. Of files and standard input one trailing newline is dropped, as llama.cpp
/// does; `-bf` keeps every byte.
///
/// # Errors
/// [`PromptError`].
pub fn read_source(source: &Source) -> Result<String, PromptError> {
    read_with(source, &mut std::io::stdin().lock())
}

fn read_with(source: &Source, stdin: &mut dyn Read) -> Result<String, PromptError> {
    match source {
        Source::Text(text) => Ok(text.clone()),
        Source::File(path) => text(read_file(path)?, Some(path)).map(without_newline),
        Source::Binary(path) => text(read_file(path)?, Some(path)),
        Source::Stdin => text(read_all(stdin, None)?, None).map(without_newline),
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>, PromptError> {
    let error = |source| PromptError::Read {
        path: Some(path.to_owned()),
        source,
    };
    read_all(&mut std::fs::File::open(path).map_err(error)?, Some(path))
}

fn read_all(from: &mut dyn Read, path: Option<&Path>) -> Result<Vec<u8>, PromptError> {
    let path = || path.map(Path::to_owned);
    let mut bytes = Vec::new();
    let read = from.take(MAX_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|source| PromptError::Read {
        path: path(),
        source,
    })?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(PromptError::TooLong { path: path() });
    }
    Ok(bytes)
}

fn text(bytes: Vec<u8>, path: Option<&Path>) -> Result<String, PromptError> {
    String::from_utf8(bytes).map_err(|error| PromptError::Utf8 {
        path: path.map(Path::to_owned),
        offset: error.utf8_error().valid_up_to(),
    })
}

fn without_newline(mut text: String) -> String {
    if text.ends_with('\n') {
        text.pop();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_stdin(bytes: &[u8]) -> Result<String, String> {
        read_with(&Source::Stdin, &mut &*bytes).map_err(|error| error.to_string())
    }

    #[test]
    fn one_newline_is_dropped_but_not_of_binary_files() {
        assert_eq!(from_stdin(b"a\nb\n\n").unwrap(), "a\nb\n");
        assert_eq!(from_stdin(b"").unwrap(), "");
        let place = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&place, "héllo\n").unwrap();
        let path = place.path().to_owned();
        let file = read_source(&Source::File(path.clone())).unwrap();
        let binary = read_source(&Source::Binary(path)).unwrap();
        assert_eq!((file.as_str(), binary.as_str()), ("héllo", "héllo\n"));
        assert_eq!(read_source(&Source::Text("t\n".into())).unwrap(), "t\n");
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let error = from_stdin(b"ok \xff").unwrap_err();
        assert!(
            error.starts_with("standard input is not valid UTF-8: byte 3"),
            "{error}"
        );
        let absent = Source::File("/no/such/prompt".into());
        let error = read_source(&absent).unwrap_err().to_string();
        assert!(error.contains("/no/such/prompt") && error.contains("check the file's name"));
        let folder = Source::Binary(std::env::temp_dir());
        let error = read_source(&folder).unwrap_err().to_string();
        assert!(error.contains("name a file inside it"), "{error}");
    }
}
