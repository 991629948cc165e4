//! Reading records.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use serde_json::Value;

use super::{Fault, Record, RecordError};

/// The longest line that is read; a record of a thousand runs has a few hundred kilobytes.
const MAX_LINE: u64 = 64 << 20;

/// One record from its line.
///
/// # Errors
/// [`Fault`].
pub fn parse_line(line: &str) -> Result<Record, Fault> {
    match serde_json::from_str(line) {
        Ok(Value::Object(object)) => Record::from_object(object),
        Ok(_) => Err(Fault::NotAnObject),
        Err(error) => Err(Fault::Syntax(syntax(&error))),
    }
}

/// A syntax error in one line: its line number would be 1 whatever the file's.
pub(crate) fn syntax(error: &serde_json::Error) -> String {
    let problem = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let bare = problem.strip_suffix(&place).unwrap_or(&problem);
    format!("{bare} at column {}", error.column())
}

/// All records of a file; empty lines are skipped.
///
/// # Errors
/// [`RecordError::Read`]; [`RecordError::Line`] of the first line that is no record.
pub fn read_records(path: &Path) -> Result<Vec<Record>, RecordError> {
    let mut records = Vec::new();
    for_each_line(path, |line, text| {
        let text = text.map_err(|fault| at(path, line, fault))?;
        records.push(parse_line(text).map_err(|fault| at(path, line, fault))?);
        Ok(())
    })?;
    Ok(records)
}

fn at(path: &Path, line: usize, fault: Fault) -> RecordError {
    RecordError::Line {
        path: path.to_owned(),
        line,
        fault,
    }
}

/// Gives every line that is not empty, with its number from 1; of one that is no text or too long,
/// the fault. Such a line ends the reading.
pub(crate) fn for_each_line<E: From<RecordError>>(
    path: &Path,
    mut each: impl FnMut(usize, Result<&str, Fault>) -> Result<(), E>,
) -> Result<(), E> {
    let error = |source| RecordError::Read {
        path: path.to_owned(),
        source,
    };
    let mut reader = BufReader::new(File::open(path).map_err(error)?);
    let mut bytes = Vec::new();
    for line in 1.. {
        bytes.clear();
        let limited = (&mut reader).take(MAX_LINE + 1);
        if read_line(limited, &mut bytes).map_err(error)? == 0 {
            break;
        }
        if bytes.len() as u64 > MAX_LINE {
            return each(line, Err(Fault::TooLong(MAX_LINE >> 20)));
        }
        match std::str::from_utf8(&bytes) {
            Ok(text) if text.trim().is_empty() => {}
            Ok(text) => each(line, Ok(text.trim_end()))?,
            Err(_) => return each(line, Err(Fault::Syntax("not valid UTF-8".to_owned()))),
        }
    }
    Ok(())
}

fn read_line(mut reader: impl BufRead, bytes: &mut Vec<u8>) -> std::io::Result<usize> {
    reader.read_until(b'\n', bytes)
}
