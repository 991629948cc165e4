//! Word splitters: the large alternations of patterns, each as one forward scan.
//!
//! A regular expression engine with look-ahead backtracks on every word. Here each alternative
//! is decided by the class of one or two characters, so a text is scanned once. The tests prove
//! each function equal to its pattern.

use super::super::classes::{
    Char, Class, Classes, LETTER, MARK, NUMBER, OTHER, PUNCTUATION, SPACE, SYMBOL,
};

/// What differs between the patterns derived from llama 3's:
///
/// ```text
/// (?i:'s|'t|'re|'ve|'m|'ll|'d) | [^\r\n\p{L}\p{N}]?BODY | \p{N}{1,digits}
///     | ?[^\s\p{L}\p{N}]+[\r\n]* | \s*[\r\n]+ | \s+(?!\S) | \s+
/// ```
#[derive(Clone, Copy, Debug)]
pub(in crate::tokenizer) struct Words {
    /// Where the contractions stand.
    pub(super) contractions: Contractions,
    /// Classes of the letters of a word.
    pub(super) body: Class,
    /// Upper case before lower case inside a word, as tekken has it.
    pub(super) cased: bool,
    /// Most digits in one piece.
    pub(super) digits: usize,
    /// Whether `/` may follow punctuation as line ends do.
    pub(super) slash: bool,
}

/// Where `'s`, `'t`, `'re`, `'ve`, `'m`, `'ll`, `'d` are recognized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tokenizer) enum Contractions {
    /// Nowhere.
    No,
    /// As pieces of their own, before anything else.
    First,
    /// At the end of a word.
    Suffix,
}

/// The end of a contraction at `at`, either case when `any_case`.
fn contraction(text: &str, at: usize, any_case: bool) -> Option<usize> {
    let rest = text.as_bytes().get(at..)?;
    let letter = |i: usize| {
        let b = rest.get(i).copied().unwrap_or(0);
        if any_case { b.to_ascii_lowercase() } else { b }
    };
    if rest.first() != Some(&b'\'') {
        return None;
    }
    match (letter(1), letter(2)) {
        (b's' | b't' | b'm' | b'd', _) => Some(at + 2),
        (b'r' | b'v', b'e') | (b'l', b'l') => Some(at + 3),
        _ => None,
    }
}

/// A run of white space.
struct Spaces {
    end: usize,
    /// Where its last character starts.
    last: usize,
    /// After its last line end, if it has one.
    line_end: Option<usize>,
}

fn spaces(classes: &Classes, text: &str, at: usize) -> Spaces {
    let mut run = Spaces {
        end: at,
        last: at,
        line_end: None,
    };
    loop {
        let c = classes.at(text, run.end);
        if c.class & SPACE == 0 {
            return run;
        }
        run.last = run.end;
        run.end += c.len;
        if is_line_end(c) {
            run.line_end = Some(run.end);
        }
    }
}

fn is_line_end(c: Char) -> bool {
    matches!(c.code, 0x0a | 0x0d)
}

impl Spaces {
    /// `\s+(?!\S)|\s+`: the last space stays with the word after it.
    fn without_last(&self, text: &str, at: usize) -> usize {
        if self.end < text.len() && self.last > at {
            self.last
        } else {
            self.end
        }
    }
}

/// `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
#[inline]
pub(super) fn gpt2(classes: &Classes, text: &str, at: usize) -> usize {
    let first = classes.at(text, at);
    if first.code == u32::from('\'')
        && let Some(end) = contraction(text, at, false)
    {
        return end;
    }
    let (from, lead) = if first.code == u32::from(' ') {
        (at + 1, classes.at(text, at + 1))
    } else {
        (at, first)
    };
    const REST: Class = MARK | PUNCTUATION | SYMBOL | OTHER;
    let set = match lead.class {
        LETTER => LETTER,
        NUMBER => NUMBER,
        c if c & REST != 0 => REST,
        _ => return spaces(classes, text, at).without_last(text, at),
    };
    classes.run(text, from + lead.len, set)
}

/// See [`Words`].
#[inline]
pub(super) fn words(rules: &Words, classes: &Classes, text: &str, at: usize) -> usize {
    let first = classes.at(text, at);
    if rules.contractions == Contractions::First
        && first.code == u32::from('\'')
        && let Some(end) = contraction(text, at, true)
    {
        return end;
    }
    if first.class & rules.body != 0 {
        return word(rules, classes, text, at);
    }
    if first.class == NUMBER {
        let mut end = at + first.len;
        for _ in 1..rules.digits {
            let c = classes.at(text, end);
            if c.class != NUMBER {
                break;
            }
            end += c.len;
        }
        return end;
    }
    let second = classes.at(text, at + first.len);
    if !is_line_end(first) && second.class & rules.body != 0 {
        return word(rules, classes, text, at + first.len);
    }
    let rest = (MARK | PUNCTUATION | SYMBOL | OTHER) & !rules.body;
    let lead = if first.code == u32::from(' ') {
        at + 1
    } else {
        at
    };
    if classes.at(text, lead).class & rest != 0 {
        let end = classes.run(text, lead, rest);
        let tail = &text.as_bytes()[end..];
        let more = |&b: &u8| matches!(b, b'\r' | b'\n') || (rules.slash && b == b'/');
        return end + tail.iter().position(|b| !more(b)).unwrap_or(tail.len());
    }
    let run = spaces(classes, text, at);
    run.line_end.unwrap_or_else(|| run.without_last(text, at))
}

/// The end of the word whose letters start at `at`.
#[inline]
fn word(rules: &Words, classes: &Classes, text: &str, at: usize) -> usize {
    let end = if rules.cased {
        cased_word(rules.body, classes, text, at)
    } else {
        classes.run(text, at, rules.body)
    };
    match rules.contractions {
        Contractions::Suffix => contraction(text, end, true).unwrap_or(end),
        Contractions::No | Contractions::First => end,
    }
}

/// `U*L+|U+L*` where U is any letter but a-z and L any letter but A-Z, so that letters outside
/// ASCII are both. When no a-z follows the run of U, the pattern backtracks to the last letter
/// of it that is also an L.
fn cased_word(body: Class, classes: &Classes, text: &str, at: usize) -> usize {
    let mut end = at;
    let mut after_both = None;
    loop {
        let c = classes.at(text, end);
        if c.class & body == 0 {
            return after_both.unwrap_or(end);
        }
        if c.code < 0x80 && text.as_bytes()[end].is_ascii_lowercase() {
            break;
        }
        end += c.len;
        if c.code >= 0x80 {
            after_both = Some(end);
        }
    }
    loop {
        let c = classes.at(text, end);
        if c.class & body == 0 || (c.code < 0x80 && text.as_bytes()[end].is_ascii_uppercase()) {
            return end;
        }
        end += c.len;
    }
}

/// A match of DeepSeek V3's word pattern at `at`, if one starts there:
///
/// ```text
/// [ASCII punctuation][A-Za-z]+ | [^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+
///     | ?[\p{P}\p{S}]+[\r\n]* | \s*[\r\n]+ | \s+(?!\S) | \s+
/// ```
pub(super) fn deepseek3(classes: &Classes, text: &str, at: usize) -> Option<usize> {
    const WORD: Class = LETTER | MARK;
    const SIGN: Class = PUNCTUATION | SYMBOL;
    let bytes = text.as_bytes();
    let first = classes.at(text, at);
    if bytes[at].is_ascii_punctuation() {
        let rest = &bytes[at + 1..];
        let letters = rest
            .iter()
            .position(|b| !b.is_ascii_alphabetic())
            .unwrap_or(rest.len());
        if letters > 0 {
            return Some(at + 1 + letters);
        }
    }
    if first.class & WORD != 0 {
        return Some(classes.run(text, at, WORD));
    }
    let second = classes.at(text, at + first.len);
    if !is_line_end(first) && first.class & SIGN == 0 && second.class & WORD != 0 {
        return Some(classes.run(text, at + first.len, WORD));
    }
    let lead = if first.code == u32::from(' ') {
        at + 1
    } else {
        at
    };
    if classes.at(text, lead).class & SIGN != 0 {
        let end = classes.run(text, lead, SIGN);
        let tail = &bytes[end..];
        let line_ends = tail.iter().position(|b| !matches!(b, b'\r' | b'\n'));
        return Some(end + line_ends.unwrap_or(tail.len()));
    }
    if first.class & SPACE == 0 {
        return None;
    }
    let run = spaces(classes, text, at);
    Some(run.line_end.unwrap_or_else(|| run.without_last(text, at)))
}
