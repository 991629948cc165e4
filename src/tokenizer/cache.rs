//! Remembers the tokens of words within one text.
//!
//! Words repeat; their tokens are already in the output, and the word itself is in the text. An
//! entry is therefore four numbers, and the cache a small table in which a new word replaces
//! whatever was in its place.

use super::TokenId;
use super::hash::Mixer;

/// See the module's text.
pub(super) struct WordCache<'a> {
    text: &'a str,
    entries: Vec<Entry>,
    mixer: Mixer,
}

#[derive(Clone, Copy, Default)]
struct Entry {
    /// The word in the text; an empty one marks an unused entry.
    start: usize,
    len: usize,
    /// Its tokens in the output.
    out: usize,
    count: usize,
}

/// More entries than this leave the processor's second-level cache.
const MOST_ENTRIES: usize = 1 << 14;

impl<'a> WordCache<'a> {
    /// A cache whose size suits the text.
    pub(super) fn for_text(text: &'a str, mixer: Mixer) -> WordCache<'a> {
        let entries = (text.len() / 16).next_power_of_two().min(MOST_ENTRIES);
        WordCache {
            text,
            entries: vec![Entry::default(); entries],
            mixer,
        }
    }

    /// Appends the tokens of `word`, a part of the text, to `out`: remembered ones, or those that
    /// `encode` appends. All words of a cache go to the same output, which only grows.
    #[inline]
    pub(super) fn get_or(
        &mut self,
        word: &str,
        out: &mut Vec<TokenId>,
        encode: impl FnOnce(&mut Vec<TokenId>),
    ) {
        let hash = self.mixer.bytes(word.as_bytes()) as usize;
        let mask = self.entries.len() - 1;
        let entry = &mut self.entries[hash & mask];
        let known = self
            .text
            .as_bytes()
            .get(entry.start..entry.start + entry.len);
        if entry.len == word.len() && known == Some(word.as_bytes()) {
            out.extend_from_within(entry.out..entry.out + entry.count);
            return;
        }
        let at = out.len();
        encode(out);
        // `word` lies in the text, so the difference of their addresses is its offset.
        let start = word.as_ptr().addr() - self.text.as_ptr().addr();
        *entry = Entry {
            start,
            len: word.len(),
            out: at,
            count: out.len() - at,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembered_words_give_the_same_tokens() {
        let text = "to be or not to be, that is the question: to be or not";
        let mixer = Mixer::new();
        let mut cache = WordCache::for_text(text, mixer);
        let mut out = vec![7];
        let mut encoded = 0;
        for word in text.split_inclusive(' ') {
            cache.get_or(word, &mut out, |out| {
                encoded += 1;
                out.extend(word.bytes().map(TokenId::from));
            });
        }
        let expected: Vec<TokenId> = [7]
            .into_iter()
            .chain(text.bytes().map(Into::into))
            .collect();
        assert_eq!(out, expected);
        assert!(encoded >= 8, "eight different words, {encoded} encoded");
    }
}
