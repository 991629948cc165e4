//! From tokens back to text, one token at a time.

use super::{TokenId, Tokenizer};

/// Turns a stream of tokens into text without ever giving half a character.
///
/// A token may hold a part of a character's bytes; they wait here until the character is whole.
/// Bytes that can begin no character become U+FFFD, as [`String::from_utf8_lossy`] does it.
pub struct Detokenizer<'a> {
    tokenizer: &'a Tokenizer,
    special: bool,
    /// Bytes of a character that is not complete, three at most between calls.
    pending: Vec<u8>,
    text: String,
}

impl<'a> Detokenizer<'a> {
    pub(super) fn new(tokenizer: &'a Tokenizer, special: bool) -> Detokenizer<'a> {
        Detokenizer {
            tokenizer,
            special,
            pending: Vec::new(),
            text: String::new(),
        }
    }

    /// The text that is complete with the next token. An id that is no token's gives U+FFFD.
    pub fn push(&mut self, id: TokenId) -> &str {
        self.text.clear();
        match self.tokenizer.piece(id, self.special) {
            Ok(piece) => {
                self.pending.extend_from_slice(&piece);
                self.take_complete();
            }
            Err(_) => {
                self.flush();
                self.text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        &self.text
    }

    /// What is left when no token follows: U+FFFD if a character stayed incomplete.
    pub fn finish(&mut self) -> &str {
        self.text.clear();
        self.flush();
        &self.text
    }

    fn flush(&mut self) {
        // What waits is always the beginning of one character.
        if !self.pending.is_empty() {
            self.text.push(char::REPLACEMENT_CHARACTER);
            self.pending.clear();
        }
    }

    fn take_complete(&mut self) {
        let mut used = 0;
        let mut chunks = self.pending.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            self.text.push_str(chunk.valid());
            used += chunk.valid().len();
            let invalid = chunk.invalid();
            if invalid.is_empty() {
                continue;
            }
            let last = chunks.peek().is_none();
            if last && str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none()) {
                break;
            }
            self.text.push(char::REPLACEMENT_CHARACTER);
            used += invalid.len();
        }
        self.pending.drain(..used);
    }
}
