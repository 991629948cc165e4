//! Two finished streams: whether they answer one question, and where their answers part.

use super::contract::Contract;
use super::report::{
    Cause, Choice, Difference, Drift, Finding, Pair, PromptDifference, Side, Verdict,
};
use super::text::{self, fraction, shared};
use crate::tokenizer::Tokenizer;
use crate::trace::checksum::Fnv64;
use crate::trace::{Trace, TraceToken};

/// A trace with the name that it has in a report.
#[derive(Clone, Debug, PartialEq)]
pub struct Named {
    /// Its name.
    pub label: String,
    /// The trace.
    pub trace: Trace,
}

impl Named {
    fn ids(&self) -> Vec<u32> {
        self.trace.tokens.iter().map(|token| token.id).collect()
    }

    /// The stream, as a report describes it.
    pub fn side(&self, vocabulary: Option<&Tokenizer>) -> Side {
        let ids = self.ids();
        let bytes = vocabulary.map(|vocabulary| text::bytes(vocabulary, &ids));
        let mut sum = Fnv64::new();
        ids.iter().for_each(|id| sum.update(&id.to_le_bytes()));
        let of_text = |bytes: &Vec<u8>| {
            let mut sum = Fnv64::new();
            sum.update(bytes);
            sum.to_string()
        };
        Side {
            label: self.label.clone(),
            engine: self.trace.header.engine.clone(),
            engine_version: self.trace.header.engine_version.clone(),
            tokens: ids.len(),
            stop: self.trace.stop.clone(),
            ids_checksum: sum.to_string(),
            text_checksum: bytes.as_ref().map(of_text),
            text_bytes: bytes.as_ref().map(Vec::len),
        }
    }
}

/// Compares two streams by what their headers state. `context` tokens are shown on each side of a
/// split.
pub fn compare(a: &Named, b: &Named, vocabulary: Option<&Tokenizer>, context: usize) -> Pair {
    let contracts = [a, b].map(|one| Contract::of_header(&one.trace.header));
    compare_under(a, b, contracts, vocabulary, context)
}

/// Compares two streams, each under a contract that is known from elsewhere.
pub fn compare_under(
    a: &Named,
    b: &Named,
    contracts: [Contract; 2],
    vocabulary: Option<&Tokenizer>,
    context: usize,
) -> Pair {
    let said = |field: &str| {
        let said = contracts.iter().find_map(|contract| contract.get(field));
        said.unwrap_or("-").to_owned()
    };
    let mut pair = Pair {
        workload_id: said("workload_id"),
        lane: said("lane"),
        a: a.side(vocabulary),
        b: b.side(vocabulary),
        verdict: Verdict::ExactMatch,
        differs: contracts[0].difference(&contracts[1]),
        prompt: prompt_difference(&a.trace.prompt, &b.trace.prompt, vocabulary),
        drift: None,
        finding: None,
        error: None,
    };
    if let Some(prompt) = &pair.prompt {
        pair.finding = Some(prompt_finding(prompt, &a.trace, &b.trace, vocabulary));
        pair.differs.get_or_insert_with(|| Difference {
            field: "prompt".to_owned(),
            a: text::count(a.trace.prompt.len(), "token"),
            b: text::count(b.trace.prompt.len(), "token"),
        });
    }
    if pair.differs.is_some() {
        pair.verdict = Verdict::NonComparable;
        return pair;
    }
    let (own, other) = (a.ids(), b.ids());
    if own != other {
        pair.verdict = Verdict::BoundedDrift;
        let drift = drift(a, b, vocabulary, context);
        pair.finding = stop_finding(&a.trace, &b.trace, drift.index);
        pair.drift = Some(drift);
    } else if a.trace.stop != b.trace.stop {
        pair.verdict = Verdict::BoundedDrift;
        pair.finding = stop_finding(&a.trace, &b.trace, own.len());
    }
    pair
}

/// Where two prompts part, if they do.
fn prompt_difference(
    a: &[u32],
    b: &[u32],
    vocabulary: Option<&Tokenizer>,
) -> Option<PromptDifference> {
    if a == b {
        return None;
    }
    let index = shared(a, b);
    let piece = |ids: &[u32]| ids.get(index).map(|&id| text::piece(vocabulary, id));
    let same = |vocabulary| text::bytes(vocabulary, a) == text::bytes(vocabulary, b);
    Some(PromptDifference {
        index,
        a: piece(a),
        b: piece(b),
        a_tokens: a.len(),
        b_tokens: b.len(),
        same_text: vocabulary.map(same),
    })
}

/// The cause of different prompts: the same text, special tokens aside, was read as other tokens;
/// or the texts are others.
fn prompt_finding(
    prompt: &PromptDifference,
    a: &Trace,
    b: &Trace,
    vocabulary: Option<&Tokenizer>,
) -> Finding {
    let mut evidence = Vec::new();
    let cause = match prompt.same_text {
        Some(false) => Cause::Template,
        _ => Cause::Tokenization,
    };
    evidence.push(match prompt.same_text {
        Some(true) => "both prompts are the same text, special tokens aside".to_owned(),
        Some(false) => "the prompts are different texts".to_owned(),
        None => "without the model's vocabulary nobody knows whether the prompts are one text; \
                 name the model with -m"
            .to_owned(),
    });
    if let Some(vocabulary) = vocabulary {
        let special = |ids: &[u32]| -> Vec<u32> {
            let control = |id: &&u32| vocabulary.is_control(**id);
            ids.iter().filter(control).copied().collect()
        };
        let (own, other) = (special(&a.prompt), special(&b.prompt));
        let counts = [own.len(), other.len()];
        if own != other {
            let [own, other] = [own, other].map(|ids| text::shown(vocabulary, &ids));
            evidence.push(format!(
                "special tokens: {} ({own}) in the first, {} ({other}) in the second",
                counts[0], counts[1]
            ));
        }
    }
    Finding {
        cause,
        engine: None,
        tensor: None,
        evidence,
    }
}

/// The cause, when the streams are the same as far as both go.
fn stop_finding(a: &Trace, b: &Trace, shared: usize) -> Option<Finding> {
    let lengths = [a.tokens.len(), b.tokens.len()];
    if !lengths.contains(&shared) {
        return None;
    }
    let mut evidence = vec![format!(
        "all {} of the shorter stream are in the other",
        text::count(shared, "token")
    )];
    let ends = [(a, "first"), (b, "second")];
    evidence.extend(ends.map(|(trace, which)| {
        let tokens = text::count(trace.tokens.len(), "token");
        format!("the {which} ended after {tokens}: {}", trace.stop)
    }));
    Some(Finding {
        cause: Cause::StopRule,
        engine: None,
        tensor: None,
        evidence,
    })
}

fn drift(a: &Named, b: &Named, vocabulary: Option<&Tokenizer>, context: usize) -> Drift {
    let (own, other) = (a.ids(), b.ids());
    let index = shared(&own, &other);
    let longer = own.len().max(other.len());
    let bytes = vocabulary.map(|vocabulary| [&own, &other].map(|ids| text::bytes(vocabulary, ids)));
    let shared_bytes = bytes.as_ref().map(|[a, b]| shared(a, b));
    let longest = bytes.as_ref().map(|[a, b]| a.len().max(b.len()));
    let difference = |[a, b]: &[Vec<u8>; 2]| a.len() as i64 - b.len() as i64;
    let shown = |ids: &[u32]| vocabulary.map(|vocabulary| text::shown(vocabulary, ids));
    let after = |ids: &[u32]| shown(&ids[index..ids.len().min(index.saturating_add(context))]);
    let (a_token, b_token) = (a.trace.tokens.get(index), b.trace.tokens.get(index));
    Drift {
        index,
        a: choice(a_token, b_token, vocabulary),
        b: choice(b_token, a_token, vocabulary),
        shared_tokens: index,
        shared_tokens_fraction: fraction(index, longer),
        shared_bytes,
        shared_bytes_fraction: shared_bytes
            .zip(longest)
            .map(|(part, all)| fraction(part, all)),
        token_difference: own.len() as i64 - other.len() as i64,
        byte_difference: bytes.as_ref().map(difference),
        before: shown(&own[index.saturating_sub(context)..index]),
        after_a: after(&own),
        after_b: after(&other),
    }
}

/// What an engine chose, and what its trace says of the other engine's token.
fn choice(
    own: Option<&TraceToken>,
    other: Option<&TraceToken>,
    vocabulary: Option<&Tokenizer>,
) -> Option<Choice> {
    let own = own?;
    let runner_up = other.and_then(|other| own.next.iter().find(|(id, _)| *id == other.id));
    let other_logit = runner_up.map(|&(_, logit)| logit);
    Some(Choice {
        piece: text::piece(vocabulary, own.id),
        logit: own.logit,
        other_logit,
        gap: other_logit.map(|other| f64::from(own.logit) - f64::from(other)),
    })
}

#[cfg(test)]
mod tests {
    use super::super::text::tests::{A, AB, B, C, THE, TURN, vocabulary};
    use super::*;
    use crate::trace::TraceHeader;

    fn named(label: &str, prompt: &[u32], tokens: &[u32], stop: &str) -> Named {
        let token = |&id| TraceToken {
            id,
            logit: 2.0,
            next: vec![(C, 1.5), (B, 1.25)],
        };
        Named {
            label: label.to_owned(),
            trace: Trace {
                header: TraceHeader {
                    engine: label.to_owned(),
                    model_sha256: "ab".to_owned(),
                    ..TraceHeader::default()
                },
                prompt: prompt.to_vec(),
                tokens: tokens.iter().map(token).collect(),
                stop: stop.to_owned(),
            },
        }
    }

    #[test]
    fn equal_streams_match_and_others_part_with_all_their_measures() {
        let vocabulary = vocabulary();
        let a = named("x", &[1, AB], &[A, THE, C, A], "limit");
        let same = compare(&a, &a.clone(), Some(&vocabulary), 4);
        assert_eq!((same.verdict, same.finding), (Verdict::ExactMatch, None));
        let b = named("y", &[1, AB], &[A, THE, B], "limit");
        let pair = compare(&a, &b, Some(&vocabulary), 1);
        assert_eq!(
            (pair.verdict, &pair.finding),
            (Verdict::BoundedDrift, &None)
        );
        let drift = pair.drift.unwrap();
        assert_eq!((drift.index, drift.token_difference), (2, 1));
        assert_eq!(drift.shared_tokens_fraction, 0.5);
        // "a thecac" would be "a the" and "c", "a"; of the second "b".
        assert_eq!(
            (drift.shared_bytes, drift.byte_difference),
            (Some(5), Some(1))
        );
        let (own, other) = (drift.a.unwrap(), drift.b.unwrap());
        assert_eq!((own.other_logit, own.gap), (Some(1.25), Some(0.75)));
        assert_eq!((other.other_logit, other.gap), (Some(1.5), Some(0.5)));
        assert_eq!(drift.before.as_deref(), Some(" the"));
        assert_eq!(
            (drift.after_a.as_deref(), drift.after_b.as_deref()),
            (Some("c"), Some("b"))
        );
    }

    #[test]
    fn a_stream_that_is_the_others_beginning_has_another_stop() {
        let a = named("x", &[1], &[A, B], "stop_string");
        let b = named("y", &[1], &[A, B, C], "stop_string");
        let pair = compare(&a, &b, None, 4);
        assert_eq!(pair.verdict, Verdict::BoundedDrift);
        assert_eq!(pair.finding.unwrap().cause, Cause::StopRule);
        let c = named("z", &[1], &[A, B], "eog");
        let pair = compare(&a, &c, None, 4);
        assert_eq!(pair.verdict, Verdict::BoundedDrift);
        assert!(pair.drift.is_none());
        assert_eq!(pair.finding.unwrap().cause, Cause::StopRule);
    }

    #[test]
    fn prompts_are_compared_first() {
        let vocabulary = vocabulary();
        let cause = |a: &[u32], b: &[u32], vocabulary| {
            let pair = compare(
                &named("x", a, &[A], "eog"),
                &named("y", b, &[B], "eog"),
                vocabulary,
                4,
            );
            assert_eq!(pair.verdict, Verdict::NonComparable);
            assert_eq!(pair.differs.unwrap().field, "prompt");
            (pair.finding.unwrap().cause, pair.prompt.unwrap().index)
        };
        // A merge left out, a missing BOS, another template; and nobody to read them.
        assert_eq!(
            cause(&[1, AB, C], &[1, A, B, C], Some(&vocabulary)),
            (Cause::Tokenization, 1)
        );
        assert_eq!(
            cause(&[1, AB], &[AB], Some(&vocabulary)),
            (Cause::Tokenization, 0)
        );
        let turn = [1, TURN, AB, C];
        assert_eq!(
            cause(&[1, AB], &turn, Some(&vocabulary)),
            (Cause::Template, 1)
        );
        assert_eq!(cause(&[1, AB], &turn, None), (Cause::Tokenization, 1));
    }

    #[test]
    fn another_model_is_another_question() {
        let a = named("x", &[1], &[A], "eog");
        let mut b = named("y", &[1], &[B], "eog");
        b.trace.header.model_sha256 = "cd".to_owned();
        let pair = compare(&a, &b, None, 4);
        assert_eq!(pair.verdict, Verdict::NonComparable);
        assert_eq!(pair.differs.unwrap().field, "model_sha256");
        assert!(pair.drift.is_none());
    }
}
