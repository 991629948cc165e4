//! Where two prompts part, and whether the text or its tokenization is to blame.

use std::collections::BTreeMap;

use super::report::{Cause, Finding, PromptDifference};
use super::text::{count, piece, shared, shown};
use crate::tokenizer::{TokenId, Tokenizer};

/// A stream's label and its prompt.
pub type Prompt<'a> = (&'a str, &'a [TokenId]);

/// What the texts of two prompts tell.
enum Texts {
    /// There is no vocabulary, or it lacks a token.
    Unknown(String),
    /// They are the same.
    Same,
    /// They are the same but for special tokens.
    SameButSpecial,
    /// They differ.
    Other(String, String),
}

/// Where the prompts part and why; none when they are the same.
#[must_use]
pub fn difference(
    a: Prompt<'_>,
    b: Prompt<'_>,
    vocabulary: Option<&Tokenizer>,
) -> Option<(PromptDifference, Finding)> {
    let ((a_label, a_ids), (b_label, b_ids)) = (a, b);
    if a_ids == b_ids {
        return None;
    }
    let index = shared(a_ids, b_ids);
    let at = |ids: &[TokenId]| ids.get(index).map(|&id| piece(vocabulary, id));
    let texts = texts(a_ids, b_ids, vocabulary);
    let same_text = match texts {
        Texts::Unknown(_) => None,
        Texts::Same | Texts::SameButSpecial => Some(true),
        Texts::Other(..) => Some(false),
    };
    let mut evidence = vec![format!(
        "the prompts part at token {index}: {} in {a_label}, {} in {b_label}",
        count(a_ids.len(), "token"),
        count(b_ids.len(), "token")
    )];
    let mut cause = Cause::Tokenization;
    match texts {
        Texts::Unknown(why) => evidence.push(format!(
            "{why}, so that whether the texts differ is not known: tokenization is assumed"
        )),
        Texts::Same => evidence.push("both are the same text, special tokens included".to_owned()),
        Texts::SameButSpecial => {
            evidence.push("the texts are the same but for special tokens".to_owned());
            evidence.extend(vocabulary.map(|vocabulary| special(a, b, vocabulary)));
        }
        Texts::Other(ours, theirs) => {
            cause = Cause::Template;
            evidence.push(parting(a_label, &ours, b_label, &theirs));
        }
    }
    let found = PromptDifference {
        index,
        a: at(a_ids),
        b: at(b_ids),
        a_tokens: a_ids.len(),
        b_tokens: b_ids.len(),
        same_text,
    };
    let finding = Finding {
        cause,
        engine: None,
        tensor: None,
        evidence,
    };
    Some((found, finding))
}

fn texts(a: &[TokenId], b: &[TokenId], vocabulary: Option<&Tokenizer>) -> Texts {
    let Some(vocabulary) = vocabulary else {
        return Texts::Unknown("the vocabulary is not at hand".to_owned());
    };
    let stranger = a
        .iter()
        .chain(b)
        .find(|&&id| id as usize >= vocabulary.n_vocab());
    if let Some(id) = stranger {
        return Texts::Unknown(format!("the vocabulary has no token {id}"));
    }
    let (whole_a, whole_b) = (shown(vocabulary, a), shown(vocabulary, b));
    if whole_a == whole_b {
        return Texts::Same;
    }
    // Without them, and without the space that an SPM tokenizer puts before a text.
    let plain = |ids| vocabulary.decode(ids, false).ok();
    match plain(a) == plain(b) {
        true => Texts::SameButSpecial,
        false => Texts::Other(whole_a, whole_b),
    }
}

/// Which special tokens one prompt has more often than the other.
fn special(a: Prompt<'_>, b: Prompt<'_>, vocabulary: &Tokenizer) -> String {
    let ((a_label, a_ids), (b_label, b_ids)) = (a, b);
    let mut counts: BTreeMap<TokenId, [usize; 2]> = BTreeMap::new();
    for (side, ids) in [a_ids, b_ids].into_iter().enumerate() {
        for &id in ids.iter().filter(|&&id| vocabulary.is_control(id)) {
            counts.entry(id).or_default()[side] += 1;
        }
    }
    let uneven = counts.into_iter().filter(|(_, [a, b])| a != b);
    let uneven: Vec<String> = uneven
        .map(|(id, [a, b])| {
            let text = shown(vocabulary, &[id]);
            format!("{id} {text:?} stands {a}x in {a_label}, {b}x in {b_label}")
        })
        .collect();
    match uneven.is_empty() {
        true => "the same special tokens stand in other places".to_owned(),
        false => uneven.join("; "),
    }
}

/// Where two texts part, with the text there.
fn parting(a_label: &str, a: &str, b_label: &str, b: &str) -> String {
    const AROUND: usize = 24;
    let mut pairs = a.char_indices().zip(b.chars());
    let parts = pairs.find(|((_, a), b)| a != b);
    let at = parts.map_or(a.len().min(b.len()), |((at, _), _)| at);
    let around = |text: &str| {
        let before: String = text[..at].chars().rev().take(AROUND / 2).collect();
        let before: String = before.chars().rev().collect();
        let after: String = text[at..].chars().take(AROUND).collect();
        format!("{:?}", before + &after)
    };
    format!(
        "the texts part at byte {at}: {} in {a_label}, {} in {b_label}",
        around(a),
        around(b)
    )
}

#[cfg(test)]
mod tests {
    use super::super::text::tests::{A, AB, B, C, THE, TURN, vocabulary};
    use super::*;

    fn compare(a: &[u32], b: &[u32]) -> (PromptDifference, Finding) {
        difference(("x", a), ("y", b), Some(&vocabulary())).unwrap()
    }

    #[test]
    fn equal_prompts_have_no_difference() {
        assert!(difference(("x", &[1, AB]), ("y", &[1, AB]), None).is_none());
        assert!(difference(("x", &[]), ("y", &[]), Some(&vocabulary())).is_none());
    }

    #[test]
    fn the_same_text_in_other_tokens_is_tokenization() {
        let (found, finding) = compare(&[1, AB, C], &[1, A, B, C]);
        assert_eq!((found.index, found.same_text), (1, Some(true)));
        assert_eq!((found.a_tokens, found.b_tokens), (3, 4));
        assert_eq!(found.a.unwrap().text.unwrap(), "ab");
        assert_eq!(found.b.unwrap().text.unwrap(), "a");
        assert_eq!(finding.cause, Cause::Tokenization);
        assert_eq!(
            finding.evidence,
            [
                "the prompts part at token 1: 3 tokens in x, 4 tokens in y",
                "both are the same text, special tokens included"
            ]
        );
        // A special token that was read as its letters.
        let letters: Vec<u32> = "<turn>".bytes().map(|byte| 3 + u32::from(byte)).collect();
        let (found, finding) = compare(&[TURN], &letters);
        assert_eq!(found.same_text, Some(true));
        assert_eq!(finding.cause, Cause::Tokenization);
    }

    #[test]
    fn a_missing_bos_is_tokenization_and_named() {
        let (found, finding) = compare(&[1, AB, C], &[AB, C]);
        assert_eq!((found.index, found.same_text), (0, Some(true)));
        assert_eq!(finding.cause, Cause::Tokenization);
        assert_eq!(finding.evidence[2], "1 \"<s>\" stands 1x in x, 0x in y");
        let (_, finding) = compare(&[TURN, AB], &[AB, TURN]);
        assert_eq!(finding.cause, Cause::Tokenization);
        assert!(
            finding.evidence[2].contains("in other places"),
            "{finding:?}"
        );
    }

    #[test]
    fn another_text_is_the_template() {
        let (found, finding) = compare(&[1, AB, THE], &[1, AB, C]);
        assert_eq!((found.index, found.same_text), (2, Some(false)));
        assert_eq!(finding.cause, Cause::Template);
        assert_eq!(
            finding.evidence[1],
            "the texts part at byte 5: \"<s>ab the\" in x, \"<s>abc\" in y"
        );
        // One ends where the other goes on.
        let (found, finding) = compare(&[1, AB], &[1, AB, C]);
        assert_eq!((found.index, found.a), (2, None));
        assert_eq!(finding.cause, Cause::Template);
        assert!(
            finding.evidence[1].contains("\"<s>ab\" in x, \"<s>abc\" in y"),
            "{finding:?}"
        );
    }

    #[test]
    fn without_the_vocabulary_it_says_so() {
        let (found, finding) = difference(("x", &[1]), ("y", &[2]), None).unwrap();
        assert_eq!(
            (found.same_text, finding.cause),
            (None, Cause::Tokenization)
        );
        assert!(
            finding.evidence[1].contains("vocabulary is not at hand"),
            "{finding:?}"
        );
        let (found, finding) = compare(&[1, 999], &[1, AB]);
        assert_eq!(found.same_text, None);
        assert!(
            finding.evidence[1].contains("has no token 999"),
            "{finding:?}"
        );
    }
}
