//! SentencePiece's unigram vocabularies as Llama, Gemma and Phi-3 use them: neighbouring parts
//! whose joined text is a token are joined, the token with the best score first.

use super::TokenId;
use super::cache::WordCache;
use super::error::TokenizerError;
use super::hash::Merge;
use super::merge::{MergeRule, Merger, NO_ID, Symbol};
use super::spans::SpaceCuts;
use super::text::MARKER;
use super::vocab::{ODD, Vocab, read_scores};
use crate::gguf::Metadata;

/// An SPM tokenizer without its vocabulary.
pub(super) struct Spm {
    /// For each token, its score as a merge priority.
    priorities: Vec<u32>,
    byte_tokens: Box<[u32; 256]>,
    cuts: SpaceCuts,
    /// A space goes before a text.
    pub(super) space_prefix: bool,
}

impl Spm {
    /// Reads the scores.
    pub(super) fn read(
        meta: &Metadata,
        vocab: &Vocab,
        space_prefix: bool,
        unknown: Option<TokenId>,
    ) -> Result<Spm, TokenizerError> {
        let scores = read_scores(meta, vocab.len())?;
        let mut cuts = SpaceCuts::everywhere();
        for id in 0..vocab.len() as u32 {
            if vocab.attr(id) & ODD == 0 {
                cuts.join_within(vocab.key(id));
            }
        }
        let mut byte_tokens = Box::new([NO_ID; 256]);
        for byte in 0..=255u8 {
            let token = vocab.find_text(&format!("<0x{byte:02X}>"));
            let plain = || vocab.find(&[byte]).filter(|_| byte != b' ');
            byte_tokens[usize::from(byte)] = token.or_else(plain).or(unknown).unwrap_or(NO_ID);
        }
        let priorities = scores.into_iter().map(priority).collect();
        Ok(Spm {
            priorities,
            byte_tokens,
            cuts,
            space_prefix,
        })
    }

    /// Appends the tokens of `part`, which holds no special tokens, and spaces for markers.
    pub(super) fn encode(
        &self,
        vocab: &Vocab,
        part: &str,
        cache: &mut WordCache<'_>,
        merger: &mut Merger,
        out: &mut Vec<TokenId>,
    ) {
        self.cuts.split(part, &mut |word| {
            cache.get_or(word, out, |out| self.word(vocab, word, merger, out));
        });
    }

    fn word(&self, vocab: &Vocab, word: &str, merger: &mut Merger, out: &mut Vec<TokenId>) {
        let bytes = word.as_bytes();
        merger.symbols.clear();
        merger
            .symbols
            .extend(word.char_indices().map(|(at, c)| Symbol {
                start: at as u32,
                end: (at + c.len_utf8()) as u32,
                id: NO_ID,
            }));
        merger.run(
            bytes,
            &Rule {
                vocab,
                priorities: &self.priorities,
            },
        );
        for symbol in &merger.symbols {
            let part = &bytes[symbol.start as usize..symbol.end as usize];
            let id = if symbol.id == NO_ID {
                vocab.find(part)
            } else {
                Some(symbol.id)
            };
            match id {
                Some(id) => out.push(id),
                None => self.push_bytes(part, out),
            }
        }
    }

    fn push_bytes(&self, part: &[u8], out: &mut Vec<TokenId>) {
        let part = if part == b" " {
            MARKER.as_bytes()
        } else {
            part
        };
        for &byte in part {
            let id = self.byte_tokens[usize::from(byte)];
            if id != NO_ID {
                out.push(id);
            }
        }
    }
}

/// Orders scores from the best to the worst as ascending integers; equal scores, and both
/// zeros, are equal. The largest integer is never used.
fn priority(score: f32) -> u32 {
    let bits = (score + 0.0).to_bits();
    // The usual map to integers that ascend with the number, inverted.
    let ascending = if bits >> 31 == 0 {
        bits | 1 << 31
    } else {
        !bits
    };
    !ascending
}

struct Rule<'a> {
    vocab: &'a Vocab,
    priorities: &'a [u32],
}

impl MergeRule for Rule<'_> {
    #[inline]
    fn merge(&self, word: &[u8], left: Symbol, right: Symbol) -> Option<Merge> {
        let id = self
            .vocab
            .find(&word[left.start as usize..right.end as usize])?;
        Some(Merge {
            priority: self.priorities[id as usize],
            id,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn better_scores_come_first() {
        let scores = [
            f32::INFINITY,
            1e30,
            2.0,
            1e-40,
            0.0,
            -1e-40,
            -1.5,
            -1000.0,
            f32::NEG_INFINITY,
        ];
        let priorities: Vec<u32> = scores.iter().copied().map(priority).collect();
        assert!(priorities.is_sorted(), "{priorities:?}");
        assert!(priorities.windows(2).all(|w| w[0] < w[1]));
        assert_eq!(priority(0.0), priority(-0.0));
        assert!(priority(f32::NEG_INFINITY) < u32::MAX);
    }
}
