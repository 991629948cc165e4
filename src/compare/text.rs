//! From ids to the text that reports show, where the vocabulary is at hand.

use super::report::Piece;
use crate::tokenizer::{TokenId, Tokenizer};

/// The bytes of a stream's text as a user sees it, without special tokens. A token that the
/// vocabulary does not have is U+FFFD.
#[must_use]
pub fn bytes(vocabulary: &Tokenizer, ids: &[TokenId]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(ids.len() * 4);
    for &id in ids {
        match vocabulary.piece(id, false) {
            Ok(piece) => bytes.extend_from_slice(&piece),
            Err(_) => bytes.extend_from_slice("\u{fffd}".as_bytes()),
        }
    }
    bytes
}

/// A stretch of a stream for people: special tokens are shown, bytes that are no text are U+FFFD.
#[must_use]
pub fn shown(vocabulary: &Tokenizer, ids: &[TokenId]) -> String {
    let mut detokenizer = vocabulary.detokenizer(true);
    let mut text = String::new();
    for &id in ids {
        text.push_str(detokenizer.push(id));
    }
    text.push_str(detokenizer.finish());
    text
}

/// A token with its text.
#[must_use]
pub fn piece(vocabulary: Option<&Tokenizer>, id: TokenId) -> Piece {
    Piece {
        id,
        text: vocabulary.map(|vocabulary| shown(vocabulary, &[id])),
    }
}

/// How many items two sequences share from the first on.
#[must_use]
pub fn shared<T: PartialEq>(a: &[T], b: &[T]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// A part of a whole as a share of it; of nothing everything is shared.
#[must_use]
pub fn fraction(part: usize, whole: usize) -> f64 {
    match whole {
        0 => 1.0,
        whole => part as f64 / whole as f64,
    }
}

/// So many of the things named, in words.
#[must_use]
pub fn count(n: usize, singular: &str) -> String {
    match n {
        1 => format!("1 {singular}"),
        n => format!("{n} {singular}s"),
    }
}

#[cfg(test)]
pub(in crate::compare) mod tests {
    use super::*;
    use crate::gguf::Metadata;
    use std::path::Path;

    /// A vocabulary of bytes (ids 3 to 258) and some words, with `<s>`, `</s>` and a turn's mark:
    /// SPM, without a space before texts.
    pub fn vocabulary() -> Tokenizer {
        let mut texts: Vec<String> = ["<unk>", "<s>", "</s>"].map(str::to_owned).to_vec();
        let mut types: Vec<i32> = vec![2, 3, 3];
        for byte in 0..=255u8 {
            texts.push(format!("<0x{byte:02X}>"));
            types.push(6);
        }
        for word in ["ab", "c", "a", "b", "▁the"] {
            texts.push(word.to_owned());
            types.push(1);
        }
        texts.push("<turn>".to_owned());
        types.push(3);
        let scores: Vec<f32> = (0..texts.len()).map(|at| -(at as f32)).collect();
        let mut meta = Metadata::new(Path::new("test.gguf"));
        meta.set("tokenizer.ggml.model", "llama");
        meta.set("tokenizer.ggml.tokens", texts);
        meta.set("tokenizer.ggml.token_type", types);
        meta.set("tokenizer.ggml.scores", scores);
        meta.set("tokenizer.ggml.add_space_prefix", false);
        meta.set("tokenizer.ggml.bos_token_id", 1u32);
        meta.set("tokenizer.ggml.eos_token_id", 2u32);
        Tokenizer::from_metadata(&meta).unwrap()
    }

    /// Ids of [`vocabulary`].
    pub const AB: u32 = 259;
    pub const C: u32 = 260;
    pub const A: u32 = 261;
    pub const B: u32 = 262;
    pub const THE: u32 = 263;
    pub const TURN: u32 = 264;

    #[test]
    fn texts_are_what_a_user_sees_and_what_people_read() {
        let vocabulary = vocabulary();
        let ids = [1, AB, THE, 2, 999];
        assert_eq!(bytes(&vocabulary, &ids), "ab the\u{fffd}".as_bytes());
        assert_eq!(shown(&vocabulary, &ids), "<s>ab the</s>\u{fffd}");
        // Half an é, counted as one byte and shown as what is no text.
        let half = 3 + 0xc3;
        assert_eq!(bytes(&vocabulary, &[half]), [0xc3]);
        assert_eq!(piece(Some(&vocabulary), half).text.unwrap(), "\u{fffd}");
        assert_eq!(shown(&vocabulary, &[half, 3 + 0xa9]), "é");
        assert_eq!(piece(None, 7), Piece { id: 7, text: None });
    }

    #[test]
    fn shares_of_nothing_are_whole() {
        assert_eq!((fraction(0, 0), fraction(1, 4)), (1.0, 0.25));
        assert_eq!(shared(&[1, 2, 3], &[1, 2]), 2);
        assert_eq!(
            (count(1, "token"), count(0, "token")),
            ("1 token".into(), "0 tokens".into())
        );
    }
}
