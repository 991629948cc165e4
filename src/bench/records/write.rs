//! Writing records: a file whole or not at all, new or longer than before.

use std::path::{Path, PathBuf};

use super::read::for_each_line;
use super::{Record, RecordError, parse_line};
use crate::bench::BenchError;
use crate::output::AtomicFile;

/// A file of records in the making. It takes its place at [`commit`](RecordFile::commit); until
/// then what was there before stays.
#[derive(Debug)]
pub struct RecordFile {
    path: PathBuf,
    file: AtomicFile,
    /// Whether what the file holds is kept.
    appends: bool,
    /// New lines.
    lines: String,
    count: usize,
}

impl RecordFile {
    /// Begins a file; fails at once when it cannot be written, or when it is to be appended to and
    /// is not all records.
    ///
    /// # Errors
    /// [`BenchError::Output`], [`BenchError::Records`].
    pub fn begin(path: &Path, append: bool) -> Result<RecordFile, BenchError> {
        let appends = append && path.is_file();
        if appends {
            old_lines(path)?;
        }
        Ok(RecordFile {
            path: path.to_owned(),
            file: AtomicFile::create(path)?,
            appends,
            lines: String::new(),
            count: 0,
        })
    }

    /// Adds a record.
    pub fn push(&mut self, record: &Record) {
        self.lines.push_str(&record.to_line());
        self.lines.push('\n');
        self.count += 1;
    }

    /// How many records were added.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether none was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Puts the file in its place: what was there (as it is now, if it is appended to), then what
    /// was added.
    ///
    /// # Errors
    /// As [`begin`](RecordFile::begin); what was there before stays.
    pub fn commit(mut self) -> Result<(), BenchError> {
        if self.appends {
            self.file.write(old_lines(&self.path)?.as_bytes())?;
        }
        self.file.write(self.lines.as_bytes())?;
        Ok(self.file.commit()?)
    }
}

/// The lines of a file, each of which must be a record, the last one with its newline.
fn old_lines(path: &Path) -> Result<String, RecordError> {
    let mut lines = String::new();
    for_each_line(path, |line, text| {
        let parsed = text.and_then(|text| parse_line(text).map(|_| text));
        let text = parsed.map_err(|fault| RecordError::Append {
            path: path.to_owned(),
            line,
            fault,
        })?;
        lines.push_str(text);
        lines.push('\n');
        Ok::<(), RecordError>(())
    })?;
    Ok(lines)
}
