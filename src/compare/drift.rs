//! Where two streams with the same prompt part, and what each engine chose there.

use super::report::{Cause, Choice, Drift, Finding};
use super::text::{bytes, count, fraction, piece, shared, shown};
use crate::tokenizer::Tokenizer;
use crate::trace::{Trace, TraceToken};

/// Where the streams part; none when they are the same to their end. `context` tokens around the
/// split become text.
#[must_use]
pub fn drift(
    a: &Trace,
    b: &Trace,
    vocabulary: Option<&Tokenizer>,
    context: usize,
) -> Option<Drift> {
    let (a_ids, b_ids) = (a.ids(), b.ids());
    if a_ids == b_ids && a.stop == b.stop {
        return None;
    }
    let index = shared(&a_ids, &b_ids);
    let (a_token, b_token) = (a.tokens.get(index), b.tokens.get(index));
    let texts = vocabulary.map(|vocabulary| (bytes(vocabulary, &a_ids), bytes(vocabulary, &b_ids)));
    let shared_bytes = texts.as_ref().map(|(a, b)| shared(a, b));
    let longer = texts.as_ref().map(|(a, b)| a.len().max(b.len()));
    let around = |ids: &[u32]| vocabulary.map(|vocabulary| shown(vocabulary, ids));
    let after = |ids: &[u32]| around(&ids[index..ids.len().min(index.saturating_add(context))]);
    let mut before = a.prompt.clone();
    before.extend_from_slice(&a_ids[..index]);
    Some(Drift {
        index,
        a: a_token.map(|token| choice(token, b_token, vocabulary)),
        b: b_token.map(|token| choice(token, a_token, vocabulary)),
        shared_tokens: index,
        shared_tokens_fraction: fraction(index, a_ids.len().max(b_ids.len())),
        shared_bytes,
        shared_bytes_fraction: shared_bytes
            .zip(longer)
            .map(|(part, whole)| fraction(part, whole)),
        token_difference: difference(a_ids.len(), b_ids.len()),
        byte_difference: texts.as_ref().map(|(a, b)| difference(a.len(), b.len())),
        before: around(&before[before.len().saturating_sub(context)..]),
        after_a: after(&a_ids),
        after_b: after(&b_ids),
    })
}

fn difference(a: usize, b: usize) -> i64 {
    // Neither is longer than memory.
    a as i64 - b as i64
}

/// What was chosen, and by how much it lay before the other engine's choice: as far as the trace
/// tells, which holds some runners-up alone.
fn choice(
    chosen: &TraceToken,
    other: Option<&TraceToken>,
    vocabulary: Option<&Tokenizer>,
) -> Choice {
    let others = |id| chosen.next.iter().find(move |(next, _)| *next == id);
    let other_logit = other
        .and_then(|other| others(other.id))
        .map(|(_, logit)| *logit);
    Choice {
        piece: piece(vocabulary, chosen.id),
        logit: chosen.logit,
        other_logit,
        gap: other_logit.map(|other| f64::from(chosen.logit) - f64::from(other)),
    }
}

/// What a pair of streams says by itself of why they part: when they are the same as far as both
/// go, and only one goes on or they give other reasons for ending, what ends a stream is to blame.
#[must_use]
pub fn finding(
    a: (&str, &Trace),
    b: (&str, &Trace),
    drift: &Drift,
    vocabulary: Option<&Tokenizer>,
) -> Option<Finding> {
    let evidence = match (&drift.a, &drift.b) {
        (Some(_), Some(_)) => return None,
        (None, None) => vec![format!(
            "both chose the same {}; {} ended with {:?}, {} with {:?}",
            count(drift.index, "token"),
            a.0,
            a.1.stop,
            b.0,
            b.1.stop
        )],
        (None, Some(_)) => one_goes_on(a, b, vocabulary),
        (Some(_), None) => one_goes_on(b, a, vocabulary),
    };
    Some(Finding {
        cause: Cause::StopRule,
        engine: None,
        tensor: None,
        evidence,
    })
}

fn one_goes_on(
    short: (&str, &Trace),
    long: (&str, &Trace),
    vocabulary: Option<&Tokenizer>,
) -> Vec<String> {
    let ((short_label, short), (long_label, long)) = (short, long);
    let more = long.tokens.len() - short.tokens.len();
    let mut evidence = vec![format!(
        "{short_label} ended after {} with {:?}; {long_label} chose the same and {} more, and \
         ended with {:?}",
        count(short.tokens.len(), "token"),
        short.stop,
        count(more, "token"),
        long.stop
    )];
    let last = short.tokens.last().map(|token| token.id);
    let is_end = |id: &u32| vocabulary.is_some_and(|vocabulary| vocabulary.is_eog(*id));
    if let Some(id) = last.filter(is_end) {
        evidence.push(format!(
            "the last shared token, {id}, ends a generation, and {long_label} went on past it"
        ));
    }
    if more == 1 && short.stop == long.stop {
        evidence.push(format!(
            "{long_label} ended for the same reason one token later: it looks for it after the \
             next token"
        ));
    }
    evidence
}

#[cfg(test)]
mod tests {
    use super::super::text::tests::{A, AB, B, C, THE, vocabulary};
    use super::*;

    /// Id and logit, and those of the runners-up.
    type Token<'a> = (u32, f32, &'a [(u32, f32)]);

    fn trace(tokens: &[Token<'_>], stop: &str) -> Trace {
        let token = |&(id, logit, next): &Token<'_>| TraceToken {
            id,
            logit,
            next: next.to_vec(),
        };
        Trace {
            header: crate::trace::TraceHeader::default(),
            prompt: vec![1, THE],
            tokens: tokens.iter().map(token).collect(),
            stop: stop.to_owned(),
        }
    }

    fn ids(ids: &[u32], stop: &str) -> Trace {
        let tokens: Vec<_> = ids.iter().map(|&id| (id, 1.0, &[][..])).collect();
        trace(&tokens, stop)
    }

    fn found(a: &Trace, b: &Trace) -> (Drift, Option<Finding>) {
        let vocabulary = vocabulary();
        let drift = drift(a, b, Some(&vocabulary), 2).unwrap();
        let finding = finding(("x", a), ("y", b), &drift, Some(&vocabulary));
        (drift, finding)
    }

    #[test]
    fn streams_that_are_one_do_not_part() {
        let a = ids(&[AB, C], "limit");
        assert_eq!(drift(&a, &a.clone(), None, 12), None);
        assert_eq!(drift(&ids(&[], "eog"), &ids(&[], "eog"), None, 12), None);
    }

    #[test]
    fn a_split_has_both_choices_and_what_is_around_it() {
        let a = trace(
            &[
                (AB, 9.0, &[]),
                (C, 3.5, &[(A, 3.25), (B, 1.0)]),
                (A, 1.0, &[]),
            ],
            "limit",
        );
        let b = trace(&[(AB, 9.0, &[]), (A, 3.5, &[(B, 3.0)])], "eog");
        let (drift, finding) = found(&a, &b);
        assert_eq!(
            (drift.index, drift.shared_tokens, drift.token_difference),
            (1, 1, 1)
        );
        let (ours, theirs) = (drift.a.unwrap(), drift.b.unwrap());
        assert_eq!((ours.piece.id, ours.piece.text.as_deref()), (C, Some("c")));
        assert_eq!((ours.other_logit, ours.gap), (Some(3.25), Some(0.25)));
        // It is not among the two best there.
        assert_eq!(
            (theirs.piece.id, theirs.other_logit, theirs.gap),
            (A, None, None)
        );
        assert_eq!(
            (drift.shared_bytes, drift.byte_difference),
            (Some(2), Some(1))
        );
        assert_eq!(drift.shared_bytes_fraction, Some(0.5));
        assert!((drift.shared_tokens_fraction - 1.0 / 3.0).abs() < 1e-12);
        assert_eq!(drift.before.as_deref(), Some(" theab"));
        assert_eq!(drift.after_a.as_deref(), Some("ca"));
        assert_eq!(drift.after_b.as_deref(), Some("a"));
        assert!(finding.is_none());
    }

    #[test]
    fn bytes_can_be_shared_beyond_the_split() {
        let (drift, finding) = found(&ids(&[AB, C], "limit"), &ids(&[A, B, C], "limit"));
        assert_eq!((drift.index, drift.shared_bytes), (0, Some(3)));
        assert_eq!(drift.shared_bytes_fraction, Some(1.0));
        assert_eq!(drift.before.as_deref(), Some("<s> the"));
        assert!(finding.is_none());
    }

    #[test]
    fn a_stream_that_goes_on_is_the_stop_rule() {
        let (drift, finding) = found(&ids(&[AB, 2], "eog"), &ids(&[AB, 2, C], "limit"));
        assert_eq!((drift.index, drift.a), (2, None));
        assert_eq!(drift.after_a.as_deref(), Some(""));
        let finding = finding.unwrap();
        assert_eq!(finding.cause, Cause::StopRule);
        assert_eq!(
            finding.evidence,
            [
                "x ended after 2 tokens with \"eog\"; y chose the same and 1 token more, and ended \
                 with \"limit\"",
                "the last shared token, 2, ends a generation, and y went on past it"
            ]
        );
        // The other way round, one token late.
        let (drift, finding) = found(
            &ids(&[AB, C, A], "stop_string"),
            &ids(&[AB, C], "stop_string"),
        );
        assert_eq!((drift.token_difference, drift.b), (1, None));
        let evidence = finding.unwrap().evidence;
        assert!(
            evidence[1].starts_with("x ended for the same reason one token later"),
            "{evidence:?}"
        );
        // One that chose nothing at all.
        let (_, finding) = found(&ids(&[], "cancelled"), &ids(&[AB], "limit"));
        assert_eq!(finding.unwrap().cause, Cause::StopRule);
    }

    #[test]
    fn other_reasons_after_the_same_tokens_are_the_stop_rule() {
        let (drift, finding) = found(&ids(&[AB, 2], "eog"), &ids(&[AB, 2], "limit"));
        assert_eq!((drift.index, drift.shared_tokens_fraction), (2, 1.0));
        assert_eq!((drift.a, drift.b), (None, None));
        let finding = finding.unwrap();
        assert_eq!(finding.cause, Cause::StopRule);
        assert_eq!(
            finding.evidence,
            ["both chose the same 2 tokens; x ended with \"eog\", y with \"limit\""]
        );
    }
}
