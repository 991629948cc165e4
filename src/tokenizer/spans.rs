//! Cutting a text where no merge can reach across.
//!
//! SentencePiece vocabularies have no words: merges run over the whole text, which makes one
//! queue of a million symbols. But a merge joins two texts, and when none joins a text ending in
//! `c` with one starting with a space, then no token ever crosses that place, and the two sides
//! can be tokenized apart, with the same result. That holds for nearly every `c` but the space
//! itself, so a text falls into words that are short, and repeat.

use std::collections::BTreeSet;

/// Knows after which characters a space may start a new word.
pub(super) struct SpaceCuts {
    /// ASCII characters that some merge joins with a space after them.
    ascii: [bool; 128],
    /// Other characters of the kind.
    others: BTreeSet<char>,
}

/// The character that `bytes` end with, however long they are; nothing when they end in a piece
/// of one.
fn last_char(bytes: &[u8]) -> Option<char> {
    (1..=bytes.len().min(4))
        .find_map(|n| str::from_utf8(&bytes[bytes.len() - n..]).ok())
        .and_then(|last| last.chars().next_back())
}

impl SpaceCuts {
    /// Cuts before every space: no merge is known yet.
    pub(super) fn everywhere() -> SpaceCuts {
        SpaceCuts {
            ascii: [false; 128],
            others: BTreeSet::new(),
        }
    }

    /// Learns that `left` and `right` may be joined.
    pub(super) fn join(&mut self, left: &[u8], right: &[u8]) {
        if right.first() != Some(&b' ') {
            return;
        }
        match left.last() {
            Some(&byte) if byte < 0x80 => self.ascii[usize::from(byte)] = true,
            _ => {
                if let Some(c) = last_char(left) {
                    self.others.insert(c);
                }
            }
        }
    }

    /// Learns that all parts of a token may be joined.
    pub(super) fn join_within(&mut self, token: &[u8]) {
        for at in 1..token.len() {
            if token[at] == b' ' {
                self.join(&token[..at], &token[at..]);
            }
        }
    }

    /// Cuts `text` and hands the words to `each` in order.
    pub(super) fn split<'a>(&self, text: &'a str, each: &mut dyn FnMut(&'a str)) {
        let bytes = text.as_bytes();
        let mut start = 0;
        for at in 1..bytes.len() {
            if bytes[at] == b' ' && !self.joins(text, at) {
                each(&text[start..at]);
                start = at;
            }
        }
        if start < bytes.len() {
            each(&text[start..]);
        }
    }

    /// Whether a merge may reach across the start of the space at `at`.
    fn joins(&self, text: &str, at: usize) -> bool {
        let before = text.as_bytes()[at - 1];
        if before < 0x80 {
            return self.ascii[usize::from(before)];
        }
        match text[..at].chars().next_back() {
            Some(c) => self.others.contains(&c),
            None => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(cuts: &SpaceCuts, text: &str) -> Vec<String> {
        let mut words = Vec::new();
        cuts.split(text, &mut |word| words.push(word.to_owned()));
        words
    }

    #[test]
    fn words_start_where_no_token_crosses() {
        let mut cuts = SpaceCuts::everywhere();
        assert_eq!(split(&cuts, "a bé  c"), ["a", " bé", " ", " c"]);
        cuts.join_within(b"    ");
        assert_eq!(split(&cuts, "a bé  c"), ["a", " bé", "  c"]);
        cuts.join_within("xé y".as_bytes());
        assert_eq!(split(&cuts, "a bé  c"), ["a", " bé  c"]);
        cuts.join(b"a", b" b");
        assert_eq!(split(&cuts, "a b a"), ["a b", " a"]);
        assert_eq!(split(&cuts, ""), [""; 0]);
        assert_eq!(split(&cuts, " "), [" "]);
    }
}
