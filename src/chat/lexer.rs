//! Splits a template's source into text, comments and tags, and a tag into tokens.
//!
//! It follows jinja2's lexer: a tag ends at its closing mark only outside brackets and strings,
//! raw blocks are text. The tokens feed [`rewrite`](super::rewrite); the template engine lexes
//! the rewritten source again, so nothing here decides what whitespace is kept.

use super::ChatError;

/// Tokens one tag may hold. Real templates stay below 200.
const MAX_TAG_TOKENS: usize = 4000;

/// A piece of the source, in order; together the pieces are the whole source.
#[derive(Debug)]
pub(super) enum Piece<'s> {
    /// Text, a comment or a raw block: goes through as it is.
    Verbatim(&'s str),
    /// `{{ .. }}` or `{% .. %}`.
    Tag(Tag<'s>),
}

/// One `{{ .. }}` or `{% .. %}`.
#[derive(Debug)]
pub(super) struct Tag<'s> {
    /// The opening mark with its whitespace sign, as `{%-`.
    pub open: &'s str,
    /// The closing mark with its whitespace sign and the blanks before it.
    pub close: &'s str,
    /// What stands between.
    pub tokens: Vec<Token<'s>>,
    /// Offset of the opening mark.
    pub start: usize,
    /// Whether it is a statement (`{%`).
    pub statement: bool,
}

/// What a [`Token`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Name,
    Number,
    Text,
    Open,
    Close,
    Operator,
}

/// A token, with the blanks that stand before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'s> {
    pub kind: Kind,
    pub blank: &'s str,
    pub text: &'s str,
}

impl Token<'_> {
    /// Whether it is this operator or bracket.
    pub fn is(&self, text: &str) -> bool {
        self.text == text && self.kind != Kind::Text
    }
}

const OPERATORS: [&str; 6] = ["**", "//", "==", "!=", ">=", "<="];

/// Takes `source` apart.
///
/// # Errors
/// [`ChatError::Syntax`] for an unclosed tag, comment, raw block, string or bracket, a character
/// no token starts with, or a tag with too many tokens.
pub(super) fn split(source: &str) -> Result<Vec<Piece<'_>>, ChatError> {
    let mut pieces = Vec::new();
    let mut at = 0;
    while let Some(start) = find_mark(source, at) {
        if start > at {
            pieces.push(Piece::Verbatim(&source[at..start]));
        }
        let end = if source[start..].starts_with("{#") {
            match source[start + 2..].find("#}") {
                Some(found) => start + 2 + found + 2,
                None => return Err(error(source, start, "unclosed comment: `#}` is missing")),
            }
        } else if let Some(length) = basic_tag(&source[start..], "raw") {
            end_of_raw(source, start, start + length)?
        } else {
            let (tag, end) = read_tag(source, start)?;
            pieces.push(Piece::Tag(tag));
            at = end;
            continue;
        };
        pieces.push(Piece::Verbatim(&source[start..end]));
        at = end;
    }
    if at < source.len() {
        pieces.push(Piece::Verbatim(&source[at..]));
    }
    Ok(pieces)
}

fn find_mark(source: &str, from: usize) -> Option<usize> {
    let bytes = source.as_bytes();
    (from..bytes.len().saturating_sub(1))
        .find(|&i| bytes[i] == b'{' && matches!(bytes[i + 1], b'{' | b'%' | b'#'))
}

/// The length of `{% NAME %}` (with whitespace signs) at the start of `text`, if it is that.
fn basic_tag(text: &str, name: &str) -> Option<usize> {
    let rest = text.strip_prefix("{%")?;
    let rest = rest.strip_prefix(['-', '+']).unwrap_or(rest);
    let rest = rest.trim_start().strip_prefix(name)?.trim_start();
    let rest = rest.strip_prefix(['-', '+']).unwrap_or(rest);
    Some(text.len() - rest.strip_prefix("%}")?.len())
}

fn end_of_raw(source: &str, start: usize, mut at: usize) -> Result<usize, ChatError> {
    while let Some(found) = source[at..].find("{%") {
        at += found;
        if let Some(length) = basic_tag(&source[at..], "endraw") {
            return Ok(at + length);
        }
        at += 2;
    }
    Err(error(
        source,
        start,
        "unclosed raw block: `{% endraw %}` is missing",
    ))
}

fn read_tag(source: &str, start: usize) -> Result<(Tag<'_>, usize), ChatError> {
    let statement = source[start..].starts_with("{%");
    let end_mark = if statement { "%}" } else { "}}" };
    let sign = matches!(source.as_bytes().get(start + 2), Some(b'-' | b'+'));
    let open = &source[start..start + 2 + usize::from(sign)];
    let mut at = start + open.len();
    let mut tokens = Vec::new();
    let mut brackets: Vec<u8> = Vec::new();
    loop {
        let rest = &source[at..];
        let trimmed = rest.trim_start();
        let blank = &rest[..rest.len() - trimmed.len()];
        let from = at + blank.len();
        if brackets.is_empty() {
            let unsigned = trimmed.strip_prefix(['-', '+']).unwrap_or(trimmed);
            if let Some(after) = [unsigned, trimmed]
                .into_iter()
                .find_map(|t| t.strip_prefix(end_mark))
            {
                let end = source.len() - after.len();
                let close = &source[at..end];
                return Ok((
                    Tag {
                        open,
                        close,
                        tokens,
                        start,
                        statement,
                    },
                    end,
                ));
            }
        }
        let Some(first) = trimmed.chars().next() else {
            return Err(error(
                source,
                start,
                "unclosed tag: its closing mark is missing",
            ));
        };
        let (kind, length) = match first {
            '\'' | '"' => match text_length(trimmed) {
                Some(length) => (Kind::Text, length),
                None => return Err(error(source, from, "unclosed string")),
            },
            '(' | '[' | '{' => {
                brackets.push(match first {
                    '(' => b')',
                    '[' => b']',
                    _ => b'}',
                });
                (Kind::Open, 1)
            }
            ')' | ']' | '}' => {
                if brackets.pop() != Some(first as u8) {
                    return Err(error(source, from, &format!("unexpected `{first}`")));
                }
                (Kind::Close, 1)
            }
            '0'..='9' => {
                let after_dot = matches!(tokens.last(), Some(Token { text: ".", .. }));
                (Kind::Number, number_length(trimmed, after_dot))
            }
            c if c == '_' || c.is_alphabetic() => (
                Kind::Name,
                trimmed
                    .find(|c: char| c != '_' && !c.is_alphanumeric())
                    .unwrap_or(trimmed.len()),
            ),
            _ => match OPERATORS.iter().find(|op| trimmed.starts_with(**op)) {
                Some(op) => (Kind::Operator, op.len()),
                None if "+-/*%~|.,:=<>!".contains(first) => (Kind::Operator, 1),
                None => return Err(error(source, from, &format!("unexpected `{first}`"))),
            },
        };
        tokens.push(Token {
            kind,
            blank,
            text: &trimmed[..length],
        });
        if tokens.len() > MAX_TAG_TOKENS {
            let message = format!("a tag with more than {MAX_TAG_TOKENS} tokens is refused");
            return Err(error(source, start, &message));
        }
        at = from + length;
    }
}

/// Length of the quoted string at the start of `text`, quotes included.
fn text_length(text: &str) -> Option<usize> {
    let quote = text.as_bytes()[0];
    let mut escaped = false;
    for (i, &byte) in text.as_bytes().iter().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            _ if byte == quote => return Some(i + 1),
            _ => {}
        }
    }
    None
}

/// Length of the number at the start of `text`; after a dot it is an index, without a fraction.
fn number_length(text: &str, after_dot: bool) -> usize {
    let bytes = text.as_bytes();
    let digits = |from: usize| {
        bytes[from..]
            .iter()
            .take_while(|b| b.is_ascii_digit() || **b == b'_')
            .count()
    };
    if bytes[0] == b'0' && matches!(bytes.get(1), Some(b'x' | b'X' | b'b' | b'B' | b'o' | b'O')) {
        return 2 + bytes[2..]
            .iter()
            .take_while(|b| b.is_ascii_hexdigit() || **b == b'_')
            .count();
    }
    let mut length = digits(0);
    if after_dot {
        return length;
    }
    if bytes.get(length) == Some(&b'.') && bytes.get(length + 1).is_some_and(u8::is_ascii_digit) {
        length += 1 + digits(length + 1);
    }
    if matches!(bytes.get(length), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(length + 1), Some(b'+' | b'-')));
        let exponent = digits((length + 1 + sign).min(bytes.len()));
        if exponent > 0 {
            length += 1 + sign + exponent;
        }
    }
    length
}

/// The 1-based line of the byte at `offset`.
fn line_of(source: &str, offset: usize) -> usize {
    1 + source.as_bytes()[..offset]
        .iter()
        .filter(|&&b| b == b'\n')
        .count()
}

/// A syntax error at the byte at `offset`.
pub(super) fn error(source: &str, offset: usize, message: &str) -> ChatError {
    ChatError::Syntax {
        line: line_of(source, offset),
        message: message.to_owned(),
    }
}
