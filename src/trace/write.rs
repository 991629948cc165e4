//! Writing a trace as the tokens come.

use std::fmt::Write as _;
use std::path::Path;

use super::{SCHEMA, TraceHeader};
use crate::output::{AtomicFile, OutputError};

/// A trace being written. The file appears at [`finish`](TraceWriter::finish); dropped before
/// that, it leaves nothing.
#[derive(Debug)]
pub struct TraceWriter {
    file: AtomicFile,
    index: u64,
    /// The line in the making, kept so that a token allocates nothing.
    line: String,
}

impl TraceWriter {
    /// Begins a trace with its header and the prompt's ids.
    ///
    /// # Errors
    /// [`OutputError`], at once when the file's folder is missing or not writable.
    pub fn create(path: &Path, header: &TraceHeader, prompt: &[u32]) -> Result<Self, OutputError> {
        let mut trace = TraceWriter {
            file: AtomicFile::create(path)?,
            index: 0,
            line: String::new(),
        };
        trace.line.push_str(&head(header, prompt));
        trace.put_line()?;
        Ok(trace)
    }

    /// Adds a generated token with its logit and the next best, in descending order and
    /// without the token itself.
    ///
    /// # Errors
    /// [`OutputError`].
    pub fn token(&mut self, id: u32, logit: f32, next: &[(u32, f32)]) -> Result<(), OutputError> {
        put(&mut self.line, format_args!("{} {id} {logit}", self.index));
        for (id, logit) in next {
            put(&mut self.line, format_args!(" {id}:{logit}"));
        }
        self.line.push('\n');
        self.index += 1;
        self.put_line()
    }

    /// Ends the trace with the reason (`eog`, `limit`, ...) and puts the file in its place.
    ///
    /// # Errors
    /// [`OutputError`]; nothing is left behind.
    pub fn finish(mut self, stop: &str) -> Result<(), OutputError> {
        put(&mut self.line, format_args!("# stop={}\n", one_line(stop)));
        self.put_line()?;
        self.file.commit()
    }

    fn put_line(&mut self) -> Result<(), OutputError> {
        self.file.write(self.line.as_bytes())?;
        self.line.clear();
        Ok(())
    }
}

fn head(header: &TraceHeader, prompt: &[u32]) -> String {
    let mut text = format!("# {SCHEMA}\n");
    let more = header
        .more
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()));
    for (key, value) in header.required().into_iter().chain(more) {
        put(&mut text, format_args!("# {key}={}\n", one_line(value)));
    }
    text.push_str("# prompt");
    for id in prompt {
        put(&mut text, format_args!(" {id}"));
    }
    text.push('\n');
    text
}

fn put(text: &mut String, what: std::fmt::Arguments<'_>) {
    // Formatting into a string has no failure.
    let _ = text.write_fmt(what);
}

/// A value must not end its line early.
fn one_line(value: &str) -> String {
    value.replace(['\n', '\r'], " ")
}
