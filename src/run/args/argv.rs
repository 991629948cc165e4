//! From what fingers type to what clap reads: every flag becomes `--long`, with `=value` when
//! it takes one. The next argument is the value whatever it looks like, as in llama.cpp
//! (`-p "- a list"`, `-n -1`, `-p -sys`).

use std::ffi::OsString;

use super::UsageError;
use super::flag::{self, Act, Flag};

/// Rewrites the arguments.
///
/// # Errors
/// A single-dash argument that is no flag; letting clap split `-fit` into `-f it` would turn
/// a typo into a file name.
pub(super) fn canonical(
    args: impl IntoIterator<Item = OsString>,
) -> Result<Vec<OsString>, UsageError> {
    let mut out = Vec::new();
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let Some(text) = arg
            .to_str()
            .filter(|text| text.starts_with('-') && text.len() > 1)
        else {
            if arg.to_str().is_some_and(|text| text.ends_with(".gguf")) {
                return Err(UsageError::BareModel(arg.to_string_lossy().into_owned()));
            }
            out.push(arg);
            continue;
        };
        let text = dashed(text);
        let (name, inline) = split(&text);
        let Some((flag, on)) = find(name) else {
            // Misspelt long names are left to clap, which knows the nearest.
            if text.starts_with("--") || ["-h", "-V"].contains(&text.as_str()) {
                out.push(OsString::from(if text == "--usage" {
                    "--help"
                } else {
                    &text
                }));
                continue;
            }
            return Err(UsageError::Unknown(text));
        };
        let long = match flag.act {
            Act::Toggle { off, .. } if !on => off,
            _ => flag.long,
        };
        let mut canonical = OsString::from(format!("--{long}"));
        let value = match inline {
            Some(value) => Some(OsString::from(value)),
            None if flag.takes_value() => args.next(),
            None => None,
        };
        if let Some(value) = value {
            canonical.push("=");
            canonical.push(value);
        }
        out.push(canonical);
    }
    Ok(out)
}

/// llama.cpp takes `_` for `-` in long names.
fn dashed(text: &str) -> String {
    if !text.starts_with("--") {
        return text.to_owned();
    }
    match text.split_once('=') {
        Some((name, value)) => format!("{}={value}", name.replace('_', "-")),
        None => text.replace('_', "-"),
    }
}

/// Splits `--name=value`, `-m=value` and, for short flags with a number, `-n5`.
fn split(text: &str) -> (&str, Option<&str>) {
    if find(text).is_some() {
        return (text, None);
    }
    if let Some((name, value)) = text.split_once('=') {
        return (name, Some(value));
    }
    let number = text
        .get(2..)
        .filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    match number {
        Some(number) if !text.starts_with("--") => (&text[..2], Some(number)),
        _ => (text, None),
    }
}

fn find(name: &str) -> Option<(&'static Flag, bool)> {
    flag::all().find_map(|flag| Some((flag, flag.matches(name)?)))
}
