//! Taking strings apart as Python's methods do: windows, splits and lines.

use super::methods::{is_space, strip};

/// The part of the text between two character positions, as Python's slices count them, and how
/// many characters stand before it.
pub(super) fn window(text: &str, start: Option<i64>, end: Option<i64>) -> Option<(&str, usize)> {
    if start.is_none() && end.is_none() {
        return Some((text, 0));
    }
    let length = text.chars().count();
    let place = |at: i64| match usize::try_from(at) {
        Ok(at) => at,
        Err(_) => length.saturating_sub(at.unsigned_abs() as usize),
    };
    let (start, end) = (
        start.map_or(0, place),
        end.map_or(length, place).min(length),
    );
    if start > end {
        return None;
    }
    let offset = |n: usize| text.char_indices().nth(n).map_or(text.len(), |(at, _)| at);
    Some((&text[offset(start)..offset(end)], start))
}

/// `str.split()` and `str.rsplit()` at runs of blanks, with at most `max` cuts.
pub(super) fn split_blank(text: &str, max: usize, from_right: bool) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = strip(text, None, true, true);
    while !rest.is_empty() {
        let cut = if parts.len() == max {
            None
        } else if from_right {
            rest.rfind(is_space)
        } else {
            rest.find(is_space)
        };
        let Some(cut) = cut else { break };
        if from_right {
            let after = rest[cut..].trim_start_matches(is_space);
            parts.push(after);
            rest = rest[..cut].trim_end_matches(is_space);
        } else {
            parts.push(&rest[..cut]);
            rest = rest[cut..].trim_start_matches(is_space);
        }
    }
    if !rest.is_empty() {
        // what the last cut left keeps the blanks of the side that was not walked
        let whole = match from_right {
            false if parts.len() == max => {
                let offset = rest.as_ptr() as usize - text.as_ptr() as usize;
                &text[offset..]
            }
            true if parts.len() == max => {
                let offset = rest.as_ptr() as usize - text.as_ptr() as usize + rest.len();
                &text[..offset]
            }
            _ => rest,
        };
        parts.push(whole);
    }
    if from_right {
        parts.reverse();
    }
    parts
}

/// `str.split(sep)` and `str.rsplit(sep)`, with at most `max` cuts.
pub(super) fn split_on<'t>(text: &'t str, sep: &str, max: usize, from_right: bool) -> Vec<&'t str> {
    let pieces = max.saturating_add(1);
    if from_right {
        let mut parts: Vec<&str> = text.rsplitn(pieces, sep).collect();
        parts.reverse();
        parts
    } else {
        text.splitn(pieces, sep).collect()
    }
}

/// The lines of a text by every line boundary Python knows.
pub(super) fn split_lines(text: &str, keep: bool) -> Vec<&str> {
    let boundary = |c: char| {
        matches!(
            c,
            '\n' | '\r' | '\x0b' | '\x0c' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}'
        )
    };
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(boundary) {
        let mark = if rest[at..].starts_with("\r\n") {
            2
        } else {
            rest[at..].chars().next().map_or(1, char::len_utf8)
        };
        lines.push(&rest[..if keep { at + mark } else { at }]);
        rest = &rest[at + mark..];
    }
    if !rest.is_empty() {
        lines.push(rest);
    }
    lines
}
