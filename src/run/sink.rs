//! Where the text goes: standard output as it comes, the transcript file, the text checksum.

use std::io::{self, Write};

use crate::output::{AtomicFile, OutputError, is_closed_pipe};
use crate::trace::checksum::Checksums;

/// What writing text came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// It is out.
    Out,
    /// Nobody reads any more; the run can end quietly.
    ReaderGone,
}

/// Why text could not be written.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// Standard output.
    #[error("cannot write to standard output: {0}")]
    Stdout(#[source] io::Error),
    /// The transcript.
    #[error(transparent)]
    Transcript(#[from] OutputError),
}

/// Writes text out, flushed after each piece so that it streams.
#[derive(Debug)]
pub struct TextSink<W> {
    out: W,
    transcript: Option<AtomicFile>,
}

impl<W: Write> TextSink<W> {
    /// A sink over standard output (or a stand-in) and perhaps a transcript.
    pub fn new(out: W, transcript: Option<AtomicFile>) -> Self {
        TextSink { out, transcript }
    }

    /// Writes what is shown but not generated (the prompt).
    ///
    /// # Errors
    /// [`SinkError`]; a closed pipe is not one.
    pub fn show(&mut self, text: &str) -> Result<Written, SinkError> {
        if let Some(transcript) = &mut self.transcript {
            transcript.write(text.as_bytes())?;
        }
        match self
            .out
            .write_all(text.as_bytes())
            .and_then(|()| self.out.flush())
        {
            Ok(()) => Ok(Written::Out),
            Err(error) if is_closed_pipe(&error) => Ok(Written::ReaderGone),
            Err(error) => Err(SinkError::Stdout(error)),
        }
    }

    /// Writes generated text, which also enters the text checksum.
    ///
    /// # Errors
    /// [`SinkError`]; a closed pipe is not one.
    pub fn generated(&mut self, text: &str, sums: &mut Checksums) -> Result<Written, SinkError> {
        if text.is_empty() {
            return Ok(Written::Out);
        }
        sums.add_text(text);
        self.show(text)
    }

    /// Puts the transcript in its place.
    ///
    /// # Errors
    /// [`SinkError::Transcript`].
    pub fn finish(self) -> Result<(), SinkError> {
        self.transcript
            .map_or(Ok(()), AtomicFile::commit)
            .map_err(SinkError::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Failing(io::ErrorKind);

    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_transcript_has_everything_and_the_checksum_the_generated_part() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("transcript");
        let mut out = Vec::new();
        let mut sums = Checksums::default();
        let mut sink = TextSink::new(&mut out, Some(AtomicFile::create(&path).unwrap()));
        assert_eq!(sink.show("prompt ").unwrap(), Written::Out);
        assert_eq!(sink.generated("answer", &mut sums).unwrap(), Written::Out);
        assert_eq!(sink.generated("", &mut sums).unwrap(), Written::Out);
        sink.finish().unwrap();
        let transcript = std::fs::read_to_string(&path).unwrap();
        assert_eq!(
            (out.as_slice(), transcript.as_str()),
            (&b"prompt answer"[..], "prompt answer")
        );
        let mut wanted = Checksums::default();
        wanted.add_text("answer");
        assert_eq!(sums, wanted);
    }

    #[test]
    fn a_closed_pipe_is_quiet_and_other_failures_are_not() {
        let mut sums = Checksums::default();
        let mut gone = TextSink::new(Failing(io::ErrorKind::BrokenPipe), None);
        assert_eq!(gone.generated("x", &mut sums).unwrap(), Written::ReaderGone);
        let mut full = TextSink::new(Failing(io::ErrorKind::StorageFull), None);
        let error = full.show("x").unwrap_err().to_string();
        assert!(
            error.starts_with("cannot write to standard output: "),
            "{error}"
        );
    }
}
