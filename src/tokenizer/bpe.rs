//! Byte pair encoding, over bytes (GPT-2 and most since) or over characters (Gemma 4).
//!
//! A word's symbols are ids from the start: those of its bytes or characters. A merge is then a
//! lookup of two ids, and the result of the last merge is the token. Merges may name texts that
//! are no tokens; those get ids behind the vocabulary's, and fall back to bytes when a word ends
//! with them.

use super::TokenId;
use super::cache::WordCache;
use super::classes::Classes;
use super::error::{TokenizerError, excerpt};
use super::hash::{Merge, PairTable};
use super::merge::{MergeRule, Merger, NO_ID, Symbol};
use super::pretok::PreTokenizer;
use super::spans::SpaceCuts;
use super::text::{MARKER, Spelling};
use super::vocab::{BATCH, MOST, Vocab};
use crate::gguf::Metadata;
use std::hint::black_box;

pub(super) const MERGES: &str = "tokenizer.ggml.merges";

/// A BPE tokenizer without its vocabulary.
pub(super) struct Bpe {
    pairs: PairTable,
    pre: &'static PreTokenizer,
    /// For each byte, the symbol that a text starts with (byte alphabet only).
    byte_symbols: Box<[u32; 256]>,
    /// For each byte, the token that stands for it when nothing else does.
    byte_tokens: Box<[u32; 256]>,
    /// Where words end between lines (space marker only).
    cuts: Option<SpaceCuts>,
}

impl Bpe {
    /// Reads the merges and interns what they name in `vocab`.
    pub(super) fn read(
        meta: &Metadata,
        vocab: &mut Vocab,
        pre: &'static PreTokenizer,
    ) -> Result<Bpe, TokenizerError> {
        let merges = meta.require_strings(MERGES)?;
        if merges.len() >= MOST || merges.bytes() >= MOST {
            let found = "merges with more text than 32-bit offsets reach";
            return Err(TokenizerError::Size {
                file: meta.file().to_owned(),
                found,
            });
        }
        let spelling = vocab.spelling;
        let mut pairs = PairTable::with_capacity(merges.len(), vocab.mixer());
        let mut cuts = (spelling == Spelling::SpaceMarker).then(SpaceCuts::everywhere);
        let mut keys = Vec::new();
        let mut joints = Vec::with_capacity(BATCH);
        let mut found = Vec::with_capacity(BATCH);
        for first in (0..merges.len()).step_by(BATCH) {
            keys.clear();
            joints.clear();
            for rank in first..(first + BATCH).min(merges.len()) {
                let text = &merges[rank];
                let Some((left, right)) = parts(text) else {
                    let (file, text) = (meta.file().to_owned(), excerpt(text));
                    return Err(TokenizerError::Merge {
                        file,
                        index: rank,
                        text,
                    });
                };
                let start = keys.len();
                if !spelling.push_key(left, &mut keys) {
                    continue;
                }
                let middle = keys.len();
                if !spelling.push_key(right, &mut keys) {
                    keys.truncate(start);
                    continue;
                }
                joints.push(Joint {
                    rank: rank as u32,
                    start,
                    middle,
                    end: keys.len(),
                });
            }
            vocab.warm(joints.iter().flat_map(|joint| joint.keys(&keys)));
            found.clear();
            for joint in &joints {
                let [left, right, both] = joint.keys(&keys);
                if let Some(cuts) = &mut cuts {
                    cuts.join(left, right);
                }
                let (left, right) = (vocab.intern(left), vocab.intern(right));
                let merge = Merge {
                    priority: joint.rank,
                    id: vocab.intern(both),
                };
                found.push((left, right, merge));
            }
            black_box(
                found
                    .iter()
                    .map(|&(l, r, _)| pairs.warm(l, r))
                    .fold(0, u32::max),
            );
            for &(left, right, merge) in &found {
                pairs.insert_first(left, right, merge);
            }
        }
        let mut byte_symbols = Box::new([NO_ID; 256]);
        let mut byte_tokens = Box::new([NO_ID; 256]);
        for byte in 0..=255u8 {
            byte_symbols[usize::from(byte)] = vocab.find(&[byte]).unwrap_or(NO_ID);
            let token = match spelling {
                Spelling::ByteAlphabet => vocab.find(&[byte]),
                Spelling::SpaceMarker => vocab.find(format!("<0x{byte:02X}>").as_bytes()),
            };
            let token = token.filter(|&id| (id as usize) < vocab.len());
            byte_tokens[usize::from(byte)] = token.unwrap_or(NO_ID);
        }
        Ok(Bpe {
            pairs,
            pre,
            byte_symbols,
            byte_tokens,
            cuts,
        })
    }

    /// Appends the tokens of `part`, which holds no special tokens and, where spaces are marked,
    /// spaces for markers.
    pub(super) fn encode(
        &self,
        vocab: &Vocab,
        part: &str,
        cache: &mut WordCache<'_>,
        merger: &mut Merger,
        out: &mut Vec<TokenId>,
    ) {
        let classes = Classes::new();
        let mut word = |word: &str| {
            cache.get_or(word, out, |out| self.word(vocab, word, merger, out));
        };
        self.pre.split(&classes, part, |piece| match &self.cuts {
            Some(cuts) => cuts.split(piece, &mut word),
            None => word(piece),
        });
    }

    fn word(&self, vocab: &Vocab, word: &str, merger: &mut Merger, out: &mut Vec<TokenId>) {
        // Gemma 4 has tokens for runs of line ends that its merges do not reach.
        let whole = self.pre.ignore_merges || (self.cuts.is_some() && word.starts_with('\n'));
        let token = |id: &u32| (*id as usize) < vocab.len();
        if whole && let Some(id) = vocab.find(word.as_bytes()).filter(token) {
            out.push(id);
            return;
        }
        let bytes = word.as_bytes();
        merger.symbols.clear();
        match vocab.spelling {
            Spelling::ByteAlphabet => {
                merger
                    .symbols
                    .extend(bytes.iter().enumerate().map(|(at, &byte)| Symbol {
                        start: at as u32,
                        end: at as u32 + 1,
                        id: self.byte_symbols[usize::from(byte)],
                    }));
            }
            Spelling::SpaceMarker => {
                merger.symbols.extend(word.char_indices().map(|(at, c)| {
                    let end = at + c.len_utf8();
                    let id = match c.is_ascii() {
                        true => Some(self.byte_symbols[bytes[at] as usize]),
                        false => vocab.find(&bytes[at..end]),
                    };
                    Symbol {
                        start: at as u32,
                        end: end as u32,
                        id: id.unwrap_or(NO_ID),
                    }
                }));
            }
        }
        merger.run(bytes, &Rule { pairs: &self.pairs });
        for symbol in &merger.symbols {
            if (symbol.id as usize) < vocab.len() {
                out.push(symbol.id);
            } else {
                self.push_bytes(
                    vocab,
                    &bytes[symbol.start as usize..symbol.end as usize],
                    out,
                );
            }
        }
    }

    /// What no token spells becomes bytes; bytes without a token are dropped, as llama.cpp does.
    fn push_bytes(&self, vocab: &Vocab, bytes: &[u8], out: &mut Vec<TokenId>) {
        let mut push = |byte: u8| {
            let id = self.byte_tokens[usize::from(byte)];
            if id != NO_ID {
                out.push(id);
            }
        };
        for &byte in bytes {
            match (byte, vocab.spelling) {
                (b' ', Spelling::SpaceMarker) => MARKER.bytes().for_each(&mut push),
                _ => push(byte),
            }
        }
    }
}

/// The two parts of a merge, with a space between. The first is never empty, so it may start
/// with a space.
fn parts(text: &str) -> Option<(&str, &str)> {
    let at = text.bytes().skip(1).position(|b| b == b' ')? + 1;
    let (left, right) = (text.get(..at)?, text.get(at + 1..)?);
    (!right.is_empty()).then_some((left, right))
}

/// A merge's parts in a buffer of keys.
struct Joint {
    rank: u32,
    start: usize,
    middle: usize,
    end: usize,
}

impl Joint {
    /// The left part, the right part, and both.
    fn keys<'k>(&self, keys: &'k [u8]) -> [&'k [u8]; 3] {
        let Joint {
            start, middle, end, ..
        } = *self;
        [&keys[start..middle], &keys[middle..end], &keys[start..end]]
    }
}

struct Rule<'a> {
    pairs: &'a PairTable,
}

impl MergeRule for Rule<'_> {
    #[inline]
    fn merge(&self, _: &[u8], left: Symbol, right: Symbol) -> Option<Merge> {
        // NO_ID is in no pair: interned ids stay below it.
        self.pairs.find(left.id, right.id)
    }
}
