//! The tokens of a file: their keys, types and scores, and the way from a key to its id.

use super::TokenId;
use super::error::{TokenizerError, excerpt};
use super::hash::{IdTable, Mixer};
use super::text::{Spelling, byte_token_value};
use crate::gguf::Metadata;
use std::borrow::Cow;
use std::collections::HashMap;
use std::hint::black_box;

/// What a token is, as bits; the names are ggml's (`llama_token_attr`).
pub(super) type Attr = u16;

pub(super) const UNKNOWN: Attr = 1;
pub(super) const UNUSED: Attr = 2;
pub(super) const NORMAL: Attr = 4;
pub(super) const CONTROL: Attr = 8;
pub(super) const USER_DEFINED: Attr = 16;
pub(super) const BYTE: Attr = 32;
/// The bits above, of which a file sets at most one.
pub(super) const KIND: Attr = UNKNOWN | UNUSED | NORMAL | CONTROL | USER_DEFINED | BYTE;
/// Generation ends after it.
pub(super) const END: Attr = 64;
/// White space after it in a prompt is dropped.
pub(super) const STRIP_RIGHT: Attr = 128;
/// Its text is not written in the vocabulary's spelling, so its key is the text itself and no
/// word ever matches it.
pub(super) const ODD: Attr = 256;

/// So many keys are looked up at a time when a vocabulary is built.
pub(super) const BATCH: usize = 64;

/// Tokens, merges, and the bytes of either stay below this.
pub(super) const MOST: usize = 1 << 30;

pub(super) const TOKENS: &str = "tokenizer.ggml.tokens";
pub(super) const SCORES: &str = "tokenizer.ggml.scores";
pub(super) const TYPES: &str = "tokenizer.ggml.token_type";

/// Tokens, and after them symbols that merges name although no token has their text.
pub(super) struct Vocab {
    pub(super) spelling: Spelling,
    /// Keys, one after another.
    keys: Vec<u8>,
    /// Where each key ends.
    ends: Vec<u32>,
    attrs: Vec<Attr>,
    table: IdTable,
    mixer: Mixer,
    /// Ids of odd tokens by their text.
    odd: HashMap<Box<str>, TokenId>,
    longest: usize,
}

impl Vocab {
    /// Reads tokens and types.
    pub(super) fn read(meta: &Metadata, spelling: Spelling) -> Result<Vocab, TokenizerError> {
        let file = meta.file();
        let tokens = meta.require_strings(TOKENS)?;
        let size = |found| TokenizerError::Size {
            file: file.to_owned(),
            found,
        };
        if tokens.is_empty() {
            return Err(size("no token"));
        }
        let types = meta.i32s(TYPES)?;
        if let Some(types) = &types
            && types.len() != tokens.len()
        {
            return Err(TokenizerError::length(
                file,
                TYPES,
                types.len(),
                tokens.len(),
            ));
        }
        let text_bytes = tokens.bytes();
        // Merges, limited likewise, may add symbols: three a merge, twice its bytes. All ids then
        // stay below 2^32 - 1 and all offsets below 2^32.
        if tokens.len() >= MOST || text_bytes >= MOST {
            return Err(size("more than 32-bit offsets reach"));
        }
        let mixer = Mixer::new();
        let mut vocab = Vocab {
            spelling,
            keys: Vec::with_capacity(text_bytes),
            ends: Vec::with_capacity(tokens.len()),
            attrs: Vec::with_capacity(tokens.len()),
            table: IdTable::with_capacity(tokens.len(), mixer),
            mixer,
            odd: HashMap::new(),
            longest: 0,
        };
        for first in (0..tokens.len()).step_by(BATCH) {
            let ids = first as u32..(first + BATCH).min(tokens.len()) as u32;
            for id in ids.clone() {
                let text = &tokens[id as usize];
                let value = types.as_ref().map_or(1, |types| types[id as usize]);
                let Some(attr) = attr_of(value) else {
                    return Err(TokenizerError::Type {
                        file: file.to_owned(),
                        id,
                        value,
                    });
                };
                if attr == BYTE && byte_token_value(text).is_none() {
                    let text = excerpt(text);
                    return Err(TokenizerError::Byte {
                        file: file.to_owned(),
                        id,
                        text,
                    });
                }
                vocab.push(text, attr);
            }
            vocab.warm(ids.clone().map(|id| vocab.key(id)));
            for id in ids {
                let text = &tokens[id as usize];
                vocab
                    .enter(id, text)
                    .map_err(|first| TokenizerError::Duplicate {
                        file: file.to_owned(),
                        first,
                        second: id,
                        text: excerpt(text),
                    })?;
            }
        }
        Ok(vocab)
    }

    /// Adds a token, which is not found before it is entered.
    fn push(&mut self, text: &str, attr: Attr) {
        let start = self.keys.len();
        let spelled = self.spelling.push_key(text, &mut self.keys);
        if !spelled {
            self.keys.extend_from_slice(text.as_bytes());
        }
        self.longest = self.longest.max(self.keys.len() - start);
        self.ends.push(self.keys.len() as u32);
        self.attrs.push(if spelled { attr } else { attr | ODD });
    }

    /// Makes a token findable, or gives the earlier one with the same text.
    fn enter(&mut self, id: TokenId, text: &str) -> Result<(), TokenId> {
        if self.attr(id) & ODD != 0 {
            return match self.odd.insert(text.into(), id) {
                Some(first) => Err(first),
                None => Ok(()),
            };
        }
        let key = slice(&self.keys, &self.ends, id);
        // llama.cpp gives an empty token a made-up text; here nothing matches it.
        if key.is_empty() {
            return Ok(());
        }
        self.table
            .insert(key, id, |other| slice(&self.keys, &self.ends, other) == key)
    }

    /// Reads where keys are, so that looking them up next waits less.
    pub(super) fn warm<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) {
        black_box(keys.map(|key| self.table.warm(key)).fold(0, u32::max));
    }

    /// The symbol of a key, which becomes a new one if need be. Ids of symbols that are no
    /// tokens start at [`Vocab::len`].
    pub(super) fn intern(&mut self, key: &[u8]) -> u32 {
        let (keys, ends) = (&self.keys, &self.ends);
        let same = |other| slice(keys, ends, other) == key;
        if let Some(id) = self.table.find(key, same) {
            return id;
        }
        let id = self.ends.len() as u32;
        self.keys.extend_from_slice(key);
        self.ends.push(self.keys.len() as u32);
        if self.table.is_full() {
            self.rebuild_table();
        }
        // Just looked up: the key is new.
        let entered = self.table.insert(key, id, |_| false);
        debug_assert!(entered.is_ok());
        id
    }

    fn rebuild_table(&mut self) {
        // All symbols but the last, which is about to be entered.
        let count = self.ends.len() - 1;
        let mut table = IdTable::with_capacity(count * 2, self.mixer);
        for id in 0..count as u32 {
            let key = slice(&self.keys, &self.ends, id);
            if !key.is_empty() && self.attr(id) & ODD == 0 {
                let entered = table.insert(key, id, |_| false);
                debug_assert!(entered.is_ok());
            }
        }
        self.table = table;
    }

    /// The number of tokens.
    pub(super) fn len(&self) -> usize {
        self.attrs.len()
    }

    /// The hash tables' seed.
    pub(super) fn mixer(&self) -> Mixer {
        self.mixer
    }

    /// The key of a token or symbol below the number of both.
    pub(super) fn key(&self, id: TokenId) -> &[u8] {
        slice(&self.keys, &self.ends, id)
    }

    /// The token or symbol of a key.
    #[inline]
    pub(super) fn find(&self, key: &[u8]) -> Option<TokenId> {
        if key.len() > self.longest {
            return None;
        }
        self.table.find(key, |id| self.key(id) == key)
    }

    /// The token whose text, as the file writes it, is `text`.
    pub(super) fn find_text(&self, text: &str) -> Option<TokenId> {
        let mut key = Vec::with_capacity(text.len());
        let id = match self.spelling.push_key(text, &mut key) {
            true => self.find(&key),
            false => self.odd.get(text).copied(),
        };
        id.filter(|&id| (id as usize) < self.len())
    }

    /// What a token is; 0 for an id that is none.
    pub(super) fn attr(&self, id: TokenId) -> Attr {
        self.attrs.get(id as usize).copied().unwrap_or(0)
    }

    /// Changes what a token is; `id` is a token's.
    pub(super) fn set_attr(&mut self, id: TokenId, attr: Attr) {
        self.attrs[id as usize] = attr;
    }

    /// The token's text as the file writes it.
    pub(super) fn text(&self, id: TokenId) -> Cow<'_, [u8]> {
        let key = self.key(id);
        if self.attr(id) & ODD != 0 {
            return Cow::Borrowed(key);
        }
        let plain = match self.spelling {
            Spelling::ByteAlphabet => key.iter().all(u8::is_ascii_graphic),
            Spelling::SpaceMarker => !key.contains(&b' '),
        };
        if plain {
            Cow::Borrowed(key)
        } else {
            Cow::Owned(self.spelling.text_of(key))
        }
    }

    /// The bytes that a token adds to a text; `special` renders control tokens too.
    ///
    /// Follows llama.cpp's `token_to_piece`: control, unknown and user-defined tokens are their
    /// text, normal ones what it stands for, byte tokens their byte, others nothing.
    pub(super) fn piece(
        &self,
        id: TokenId,
        special: bool,
    ) -> Result<Cow<'_, [u8]>, TokenizerError> {
        if id as usize >= self.len() {
            return Err(TokenizerError::NoSuchToken {
                id,
                n_vocab: self.len(),
            });
        }
        let attr = self.attr(id);
        let piece = if attr & (CONTROL | UNKNOWN) != 0 && !special {
            Cow::Borrowed(&[][..])
        } else if attr & (CONTROL | UNKNOWN | USER_DEFINED) != 0 {
            self.text(id)
        } else if attr & NORMAL != 0 {
            self.normal_piece(id)
        } else if attr & BYTE != 0 {
            let text = self.text(id);
            let value = str::from_utf8(&text).ok().and_then(byte_token_value);
            Cow::Owned(value.into_iter().collect())
        } else {
            Cow::Borrowed(&[][..])
        };
        Ok(piece)
    }

    fn normal_piece(&self, id: TokenId) -> Cow<'_, [u8]> {
        let key = self.key(id);
        match (self.attr(id) & ODD != 0, self.spelling, str::from_utf8(key)) {
            (true, Spelling::SpaceMarker, Ok(text)) => {
                Cow::Owned(text.replace(super::text::MARKER, " ").into_bytes())
            }
            // Characters outside the alphabet stand for themselves, for want of a byte.
            (true, Spelling::ByteAlphabet, Ok(text)) => {
                let mut out = Vec::with_capacity(text.len());
                let mut utf8 = [0; 4];
                for c in text.chars() {
                    let c: &str = c.encode_utf8(&mut utf8);
                    if !self.spelling.push_key(c, &mut out) {
                        out.extend_from_slice(c.as_bytes());
                    }
                }
                Cow::Owned(out)
            }
            _ => Cow::Borrowed(key),
        }
    }
}

/// What a token type of the file means (`llama_token_type`).
fn attr_of(value: i32) -> Option<Attr> {
    match value {
        0 => Some(0),
        1 => Some(NORMAL),
        2 => Some(UNKNOWN),
        3 => Some(CONTROL),
        4 => Some(USER_DEFINED),
        5 => Some(UNUSED),
        6 => Some(BYTE),
        _ => None,
    }
}

fn slice<'a>(keys: &'a [u8], ends: &[u32], id: TokenId) -> &'a [u8] {
    let id = id as usize;
    let start = if id == 0 { 0 } else { ends[id - 1] as usize };
    &keys[start..ends[id] as usize]
}

/// Reads the scores, one a token, all of them numbers.
pub(super) fn read_scores(meta: &Metadata, n_vocab: usize) -> Result<Vec<f32>, TokenizerError> {
    let scores = meta.f32s(SCORES)?.ok_or_else(|| meta.missing(SCORES))?;
    if scores.len() != n_vocab {
        return Err(TokenizerError::length(
            meta.file(),
            SCORES,
            scores.len(),
            n_vocab,
        ));
    }
    if let Some(id) = scores.iter().position(|score| score.is_nan()) {
        return Err(TokenizerError::Score {
            file: meta.file().to_owned(),
            id: id as u32,
        });
    }
    Ok(scores.into_owned())
}
