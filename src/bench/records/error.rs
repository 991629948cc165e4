//! Why records cannot be read.

use std::path::PathBuf;

/// What is wrong with one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It is no JSON.
    #[error("not JSON: {0}")]
    Syntax(String),
    /// It is JSON, but no object.
    #[error("must be a JSON object")]
    NotAnObject,
    /// Its schema is another.
    #[error("schema is {0}, this program reads \"emel-bench/v1\"")]
    Schema(String),
    /// Its kind is unknown.
    #[error("kind is {0}; there are \"generation\", \"kernel\", \"machine\" and \"limit\"")]
    Kind(String),
    /// A required key is not there.
    #[error("key `{0}` is missing")]
    Missing(String),
    /// A key's value is of the wrong form.
    #[error("key `{key}`: {problem}")]
    Value {
        /// The key.
        key: String,
        /// What is wrong with its value.
        problem: String,
    },
    /// It is longer than any record.
    #[error("longer than {0} MiB")]
    TooLong(u64),
}

/// Why a file of records cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// It cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// One of its lines is no record.
    #[error("{}:{line}: {fault}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        fault: Fault,
    },
    /// It is to be appended to, and one of its lines is no record.
    #[error(
        "{}:{line}: {fault}; nothing is appended to a file that is not all records: mend the line \
         or choose another file",
        path.display()
    )]
    Append {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        fault: Fault,
    },
}
