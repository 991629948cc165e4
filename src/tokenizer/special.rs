//! Special tokens in a text: finding them before the text between is tokenized.
//!
//! llama.cpp takes the special tokens from the longest to the shortest, looks for each one in
//! the parts of the text that are still free, from the left, and cuts it out
//! (`tokenizer_st_partition`). With thousands of special tokens that reads the text thousands of
//! times. Here one scan finds, for each place where any of them starts, the longest that does;
//! then the places are settled by descending length:
//!
//! ```text
//! places[n] = places whose longest special token has n bytes
//! for n from the largest down:
//!     for place in places[n], from the left:
//!         all n bytes free?    take them
//!         first byte taken?    forget the place
//!         else                 look for a shorter token there, and file it under its length
//! ```
//!
//! Tokens of one length that overlap each other go from the left; llama.cpp leaves their order
//! to its sort.

use super::TokenId;
use super::vocab::{CONTROL, STRIP_RIGHT, UNKNOWN, USER_DEFINED, Vocab};
use std::collections::BTreeMap;
use std::ops::Range;

/// A part of a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Bytes of the text, never none of them.
    Text(Range<usize>),
    /// A special token.
    Token(TokenId),
}

/// A set of special tokens to look for.
pub(super) struct SpecialTokens {
    /// Ascending by text, so that those with a common prefix are neighbours.
    tokens: Vec<Special>,
    /// For each first byte, its tokens.
    first: Box<[Range<usize>; 256]>,
}

struct Special {
    text: Box<[u8]>,
    id: TokenId,
    strip_right: bool,
}

/// A special token that was found.
struct Found {
    start: usize,
    end: usize,
    /// Where the text goes on.
    resume: usize,
    id: TokenId,
}

impl SpecialTokens {
    /// The special tokens of a vocabulary: the user-defined ones, which are always looked for,
    /// and with `control` also control and unknown tokens.
    pub(super) fn of(vocab: &Vocab, control: bool) -> SpecialTokens {
        let hidden = if control { 0 } else { CONTROL | UNKNOWN };
        let mut tokens: Vec<Special> = (0..vocab.len() as u32)
            .filter_map(|id| {
                let attr = vocab.attr(id);
                let special = attr & (CONTROL | UNKNOWN | USER_DEFINED) != 0 && attr & hidden == 0;
                let text = if special {
                    vocab.text(id)
                } else {
                    Default::default()
                };
                (!text.is_empty()).then(|| Special {
                    text: text.into(),
                    id,
                    strip_right: attr & STRIP_RIGHT != 0,
                })
            })
            .collect();
        tokens.sort_unstable_by(|a, b| a.text.cmp(&b.text));
        let mut first = Box::new([const { 0..0 }; 256]);
        for (byte, range) in first.iter_mut().enumerate() {
            let start = tokens.partition_point(|t| usize::from(t.text[0]) < byte);
            let end = tokens.partition_point(|t| usize::from(t.text[0]) <= byte);
            *range = start..end;
        }
        SpecialTokens { tokens, first }
    }

    /// The longest of the tokens, of at most `most` bytes, that `text` starts with.
    fn longest(&self, text: &[u8], most: usize) -> Option<usize> {
        let mut range = self.first[usize::from(*text.first()?)].clone();
        let mut found = None;
        for depth in 1..=most.min(text.len()) {
            // Of the tokens that share `depth` bytes, only the first can end there.
            if range.is_empty() {
                break;
            }
            if self.tokens[range.start].text.len() == depth {
                found = Some(range.start);
                range.start += 1;
            }
            let Some(&byte) = text.get(depth) else { break };
            let tokens = &self.tokens[range.clone()];
            let start = tokens.partition_point(|t| t.text[depth] < byte);
            let end = start + tokens[start..].partition_point(|t| t.text[depth] == byte);
            range = range.start + start..range.start + end;
        }
        found
    }

    /// Cuts `text` into special tokens and the texts between them.
    pub(super) fn split(&self, text: &str) -> Vec<Part> {
        let bytes = text.as_bytes();
        let mut places: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (at, &byte) in bytes.iter().enumerate() {
            if !self.first[usize::from(byte)].is_empty()
                && let Some(token) = self.longest(&bytes[at..], usize::MAX)
            {
                places
                    .entry(self.tokens[token].text.len())
                    .or_default()
                    .push(at);
            }
        }
        let mut parts = Vec::new();
        let mut rest = 0;
        for found in self.settle(bytes, places) {
            if rest < found.start {
                parts.push(Part::Text(rest..found.start));
            }
            parts.push(Part::Token(found.id));
            rest = found.resume;
        }
        if rest < bytes.len() {
            parts.push(Part::Text(rest..bytes.len()));
        }
        parts
    }

    fn settle(&self, text: &[u8], mut places: BTreeMap<usize, Vec<usize>>) -> Vec<Found> {
        let mut all: Vec<Found> = Vec::new();
        if places.is_empty() {
            return all;
        }
        let mut taken = vec![false; text.len()];
        while let Some((len, mut starts)) = places.pop_last() {
            starts.sort_unstable();
            for start in starts {
                let free = taken[start..start + len]
                    .iter()
                    .position(|&t| t)
                    .unwrap_or(len);
                // Shorter tokens end before the first byte that is taken.
                let Some(token) = self.longest(&text[start..], free) else {
                    continue;
                };
                let special = &self.tokens[token];
                if free < len {
                    places.entry(special.text.len()).or_default().push(start);
                    continue;
                }
                let end = start + len;
                let mut resume = end;
                if special.strip_right {
                    while resume < text.len() && !taken[resume] && is_c_space(text[resume]) {
                        resume += 1;
                    }
                }
                taken[start..resume].fill(true);
                all.push(Found {
                    start,
                    end,
                    resume,
                    id: special.id,
                });
            }
        }
        all.sort_unstable_by_key(|found| found.start);
        debug_assert!(all.windows(2).all(|w| w[0].end <= w[1].start));
        all
    }
}

/// C's `isspace` in the "C" locale.
fn is_c_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}
