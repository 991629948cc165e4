//! Simple splitters: one pattern each, applied to every piece that earlier ones left.
//!
//! A splitter cuts a piece into matches and the gaps between them, in order; nothing is lost.
//! As in llama.cpp, look-ahead and `$` see the end of the piece, not of the text.

use super::super::classes::{Char, Class, Classes, SPACE};
use super::words::{self, Words};

/// Characters by class and by code point. White space never belongs to `ranges`: llama.cpp
/// replaces it before it matches them.
#[derive(Clone, Copy, Debug)]
pub(in crate::tokenizer) struct Set {
    pub(super) classes: Class,
    /// Inclusive, ascending.
    pub(super) ranges: &'static [(u32, u32)],
}

impl Set {
    fn has(&self, c: Char) -> bool {
        if c.class & self.classes != 0 {
            return true;
        }
        if c.class & SPACE != 0 {
            return false;
        }
        let after = self.ranges.partition_point(|&(first, _)| first <= c.code);
        after > 0 && c.code <= self.ranges[after - 1].1 && c.len > 0
    }
}

/// One pattern.
#[derive(Clone, Copy, Debug)]
pub(in crate::tokenizer) enum Stage {
    /// GPT-2's words.
    Gpt2,
    /// The words of llama 3 and its relatives.
    Words(Words),
    /// DeepSeek V3's words.
    DeepSeek3,
    /// `[set]`
    Each(Set),
    /// `[set]+`
    Runs(Set),
    /// `\s?[set]+`
    SpacedRuns(Set),
    /// `[set]{1,n}`
    UpTo(usize, Set),
    /// `[0-9][0-9][0-9]`
    Triples,
    /// `\r` and `\n`, one each. (White space, so no [`Set`].)
    LineEnds,
    /// `[^\n]+|\n+`
    Lines,
    /// `\s+$`
    TrailingSpace,
}

impl Stage {
    /// The end of the first part (match or gap) of `piece` at or after `at < piece.len()`.
    #[inline]
    fn part_end(&self, classes: &Classes, piece: &str, at: usize) -> usize {
        match self {
            Stage::Gpt2 => words::gpt2(classes, piece, at),
            Stage::Words(rules) => words::words(rules, classes, piece, at),
            Stage::Lines => {
                let bytes = piece.as_bytes();
                let newline = bytes[at] == b'\n';
                let rest = &bytes[at..];
                rest.iter()
                    .position(|&b| (b == b'\n') != newline)
                    .map_or(bytes.len(), |n| at + n)
            }
            _ => self.gap_or_match(classes, piece, at),
        }
    }

    fn gap_or_match(&self, classes: &Classes, piece: &str, at: usize) -> usize {
        let mut gap = at;
        loop {
            match self.match_end(classes, piece, gap) {
                Some(end) if gap == at => return end,
                Some(_) => return gap,
                None => gap += classes.at(piece, gap).len,
            }
            if gap >= piece.len() {
                return piece.len();
            }
        }
    }

    /// The end of the match that starts at `at`, if one does.
    fn match_end(&self, classes: &Classes, piece: &str, at: usize) -> Option<usize> {
        let first = classes.at(piece, at);
        match self {
            Stage::Each(set) => set.has(first).then_some(at + first.len),
            Stage::Runs(set) => set
                .has(first)
                .then(|| run(set, usize::MAX, classes, piece, at)),
            Stage::UpTo(most, set) => set.has(first).then(|| run(set, *most, classes, piece, at)),
            Stage::SpacedRuns(set) => {
                let skip = if first.class & SPACE != 0 {
                    first.len
                } else {
                    0
                };
                if set.has(classes.at(piece, at + skip)) {
                    Some(run(set, usize::MAX, classes, piece, at + skip))
                } else {
                    set.has(first)
                        .then(|| run(set, usize::MAX, classes, piece, at))
                }
            }
            Stage::Triples => {
                let digits = piece.as_bytes().get(at..at + 3)?;
                digits.iter().all(u8::is_ascii_digit).then_some(at + 3)
            }
            Stage::LineEnds => matches!(first.code, 0x0a | 0x0d).then_some(at + 1),
            Stage::TrailingSpace => {
                let text = piece.trim_end_matches(|c| classes.of(c as u32) & SPACE != 0);
                (at >= text.len()).then_some(piece.len())
            }
            Stage::DeepSeek3 => words::deepseek3(classes, piece, at),
            // These cover every character and are matched in `part_end`.
            Stage::Gpt2 | Stage::Words(_) | Stage::Lines => Some(self.part_end(classes, piece, at)),
        }
    }
}

fn run(set: &Set, most: usize, classes: &Classes, piece: &str, mut at: usize) -> usize {
    for _ in 0..most {
        let c = classes.at(piece, at);
        if !set.has(c) {
            break;
        }
        at += c.len;
    }
    at
}

/// Splits `text` by all `stages` in order and hands the pieces to `each`.
pub(super) fn split<'a>(
    stages: &[Stage],
    classes: &Classes,
    text: &'a str,
    each: &mut dyn FnMut(&'a str),
) {
    let Some((stage, rest)) = stages.split_first() else {
        each(text);
        return;
    };
    // A trailing-space match needs the piece's end once, not once a position.
    if let Stage::TrailingSpace = stage {
        let gap = text
            .trim_end_matches(|c| classes.of(c as u32) & SPACE != 0)
            .len();
        for part in [&text[..gap], &text[gap..]] {
            if !part.is_empty() {
                split(rest, classes, part, each);
            }
        }
        return;
    }
    let mut at = 0;
    while at < text.len() {
        let end = stage.part_end(classes, text, at);
        let part = &text[at..end];
        if rest.is_empty() {
            each(part);
        } else {
            split(rest, classes, part, each);
        }
        at = end;
    }
}
