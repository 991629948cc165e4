//! A JSON file that people write: read with every mistake named by file, line and field.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::WorkloadError;

/// The longest manifest that is read; the shipped ones have a few kilobytes.
const MAX_BYTES: u64 = 4 << 20;

/// A file's text, kept so that later checks can still name lines.
#[derive(Clone, Debug)]
pub struct Document {
    path: PathBuf,
    text: String,
}

impl Document {
    /// Reads a file.
    ///
    /// # Errors
    /// [`WorkloadError::Read`].
    pub fn read(path: &Path) -> Result<Document, WorkloadError> {
        let text = read_text(path, MAX_BYTES)?;
        let path = path.to_owned();
        Ok(Document { path, text })
    }

    /// Where it was read from.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What stands in it.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Its content, which must be of the named schema. `T` should deny unknown fields.
    ///
    /// # Errors
    /// [`WorkloadError::Manifest`].
    pub fn parse<T: DeserializeOwned>(&self, schema: &str) -> Result<T, WorkloadError> {
        // Of another version's fields nothing is said: the version is what is wrong.
        #[derive(Deserialize)]
        struct Head {
            schema: Option<serde_json::Value>,
        }
        if let Ok(Head { schema: found }) = serde_json::from_str(&self.text)
            && found.as_ref().and_then(serde_json::Value::as_str) != Some(schema)
        {
            let found = found.map_or("nothing".to_owned(), |found| found.to_string());
            let problem = format!("must be \"{schema}\", is {found}");
            return Err(self.fault("schema", problem));
        }
        let mut reader = serde_json::Deserializer::from_str(&self.text);
        let parsed = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
            let field = error.path().to_string();
            self.syntax(field, error.inner())
        })?;
        reader
            .end()
            .map_err(|error| self.syntax(String::new(), &error))?;
        Ok(parsed)
    }

    fn syntax(&self, field: String, error: &serde_json::Error) -> WorkloadError {
        let (line, column) = (error.line(), error.column());
        let problem = error.to_string();
        let place = format!(" at line {line} column {column}");
        WorkloadError::Manifest {
            path: self.path.clone(),
            line,
            // The path of what is missing or cannot be read at all is the whole file's.
            field: if field == "." { String::new() } else { field },
            problem: problem.strip_suffix(&place).unwrap_or(&problem).to_owned(),
        }
    }

    /// The error that says what is wrong with a field of the file's outermost object.
    #[must_use]
    pub fn fault(&self, field: &str, problem: impl Into<String>) -> WorkloadError {
        self.fault_at(self.line_of(field, 0), field, problem)
    }

    /// The same for a field whose line is known.
    #[must_use]
    pub fn fault_at(&self, line: usize, field: &str, problem: impl Into<String>) -> WorkloadError {
        WorkloadError::Manifest {
            path: self.path.clone(),
            line,
            field: field.to_owned(),
            problem: problem.into(),
        }
    }

    /// The line of the `skip`th use of a key, from 1; the first line when there is none.
    #[must_use]
    pub fn line_of(&self, key: &str, skip: usize) -> usize {
        let quoted = format!("\"{key}\"");
        let uses = self.text.match_indices(&quoted).filter(|&(at, _)| {
            let rest = self.text[at + quoted.len()..].trim_start();
            rest.starts_with(':')
        });
        let at = uses.map(|(at, _)| at).nth(skip).unwrap_or(0);
        1 + self.text[..at].matches('\n').count()
    }
}

/// A text file of at most so many bytes.
pub(super) fn read_text(path: &Path, limit: u64) -> Result<String, WorkloadError> {
    let read = || {
        let mut text = String::new();
        let file = File::open(path)?;
        file.take(limit + 1).read_to_string(&mut text)?;
        if text.len() as u64 > limit {
            let problem = format!("longer than {} MiB", limit >> 20);
            return Err(std::io::Error::other(problem));
        }
        Ok(text)
    };
    read().map_err(|source| WorkloadError::Read {
        path: path.to_owned(),
        source,
    })
}
