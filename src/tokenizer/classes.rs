//! Unicode classes of characters, as pre-tokenizers need them.
//!
//! llama.cpp freezes its tables at Unicode 15.1, so a character assigned later counts as
//! unassigned here too: text must split the same way whatever Unicode version the compiler
//! knows. The runs in `classes_data.rs` are general categories of that version; the test below
//! derives them again from the regex crate's tables and prints the file when they differ.

use super::classes_data::RUNS;
use std::sync::OnceLock;

/// A set of classes, one bit each; a character has exactly one.
pub(super) type Class = u8;

/// `\p{L}`
pub(super) const LETTER: Class = 1;
/// `\p{N}`
pub(super) const NUMBER: Class = 2;
/// `\p{M}`
pub(super) const MARK: Class = 4;
/// `\p{P}`
pub(super) const PUNCTUATION: Class = 8;
/// `\p{S}`
pub(super) const SYMBOL: Class = 16;
/// `\s`, that is White_Space; no such character is in a class above.
pub(super) const SPACE: Class = 32;
/// Controls, formats, private use, unassigned.
pub(super) const OTHER: Class = 64;

/// One entry a code point up to U+1FFFF; what lies above is searched in the runs.
static TABLE: OnceLock<Box<[Class]>> = OnceLock::new();

const DIRECT: usize = 0x20000;

fn table() -> &'static [Class] {
    TABLE.get_or_init(|| {
        let mut table = vec![OTHER; DIRECT];
        for (i, &run) in RUNS.iter().enumerate() {
            let start = run_start(run) as usize;
            let end = RUNS
                .get(i + 1)
                .map_or(DIRECT, |&next| run_start(next) as usize)
                .min(DIRECT);
            if start < end {
                table[start..end].fill(run_class(run));
            }
        }
        table.into_boxed_slice()
    })
}

/// A run holds its first code point times 8, plus the number of its class bit.
fn run_start(run: u32) -> u32 {
    run >> 3
}

fn run_class(run: u32) -> Class {
    1 << (run & 7)
}

/// Reads classes of characters in a text. Holding one keeps the table's lock out of loops.
#[derive(Clone, Copy)]
pub(super) struct Classes {
    table: &'static [Class],
}

/// A character in a text: its class (0 past the end), code point and length in bytes.
#[derive(Clone, Copy)]
pub(super) struct Char {
    pub(super) class: Class,
    pub(super) code: u32,
    pub(super) len: usize,
}

impl Classes {
    pub(super) fn new() -> Classes {
        Classes { table: table() }
    }

    /// The class of a code point.
    #[inline]
    pub(super) fn of(&self, code: u32) -> Class {
        match self.table.get(code as usize) {
            Some(&class) => class,
            None => {
                let after = RUNS.partition_point(|&run| run_start(run) <= code);
                // The first run starts at 0, so `after` is at least 1.
                run_class(RUNS[after.saturating_sub(1)])
            }
        }
    }

    /// The character at byte `at`, a character boundary of `text`.
    #[inline]
    pub(super) fn at(&self, text: &str, at: usize) -> Char {
        match text.as_bytes().get(at) {
            Some(&byte) if byte < 0x80 => Char {
                class: self.table[byte as usize],
                code: u32::from(byte),
                len: 1,
            },
            _ => self.wide_at(text, at),
        }
    }

    fn wide_at(&self, text: &str, at: usize) -> Char {
        match text[at..].chars().next() {
            Some(c) => Char {
                class: self.of(c as u32),
                code: c as u32,
                len: c.len_utf8(),
            },
            None => Char {
                class: 0,
                code: u32::MAX,
                len: 0,
            },
        }
    }

    /// The end of the run of characters from `at` whose class is in `set`.
    #[inline]
    pub(super) fn run(&self, text: &str, mut at: usize, set: Class) -> usize {
        loop {
            let c = self.at(text, at);
            if c.class & set == 0 {
                return at;
            }
            at += c.len;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fancy_regex::Regex;

    fn derive() -> Vec<u32> {
        let sets: Vec<Regex> = ["L", "N", "M", "P", "S"]
            .iter()
            .map(|p| Regex::new(&format!(r"^[\p{{{p}}}&&\p{{Age=15.1}}]$")).unwrap())
            .chain([Regex::new(r"^\s$").unwrap()])
            .collect();
        let mut runs: Vec<u32> = Vec::new();
        let mut last = u32::MAX;
        for code in 0..0x11_0000u32 {
            let bit = match char::from_u32(code) {
                Some(c) => {
                    let text = c.to_string();
                    sets.iter()
                        .position(|set| set.is_match(&text).unwrap())
                        .unwrap_or(6) as u32
                }
                None => 6,
            };
            if bit != last {
                runs.push(code << 3 | bit);
                last = bit;
            }
        }
        runs
    }

    #[test]
    fn runs_are_those_of_unicode_15_1() {
        let derived = derive();
        if derived != RUNS {
            let list: Vec<String> = derived.iter().map(|run| format!("0x{run:x}")).collect();
            panic!(
                "classes_data.rs must hold {} runs:\n{},",
                derived.len(),
                list.join(", ")
            );
        }
    }

    #[test]
    fn classes_of_known_characters() {
        let classes = Classes::new();
        for (c, class) in [
            ('a', LETTER),
            ('é', LETTER),
            ('中', LETTER),
            ('7', NUMBER),
            ('Ⅷ', NUMBER),
            ('\u{301}', MARK),
            ('«', PUNCTUATION),
            ('+', SYMBOL),
            ('🙂', SYMBOL),
            ('\u{85}', SPACE),
            ('\u{3000}', SPACE),
            ('\0', OTHER),
            ('\u{e000}', OTHER),
            ('\u{20000}', LETTER),
            ('\u{e0100}', MARK),
            ('\u{10ffff}', OTHER),
        ] {
            assert_eq!(classes.of(c as u32), class, "{c:?}");
        }
        assert_eq!(classes.at("", 0).class, 0);
        assert_eq!(classes.run("abcé1", 0, LETTER), 5);
    }
}
