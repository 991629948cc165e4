//! Messages to standard error. That nobody reads them is no reason to end, or to lose work.

use std::io::Write;

/// Writes text to standard error as it is; a failure is ignored.
pub fn tell_part(text: &str) {
    let _ = write!(std::io::stderr(), "{text}");
}

/// Writes a line to standard error; a failure is ignored.
pub fn tell(line: &str) {
    tell_part(&format!("{line}\n"));
}
