//! Two finished streams: the verdict, and all that the streams tell by themselves.

use super::contract::Contract;
use super::report::{Difference, Drift, Finding, Pair, Piece, PromptDifference, Side, Verdict};
use super::text::bytes;
use super::{drift, prompt};
use crate::tokenizer::Tokenizer;
use crate::trace::Trace;
use crate::trace::checksum::Fnv64;

/// A stream and what it is called in a report.
#[derive(Clone, Debug, PartialEq)]
pub struct Named {
    /// Its name: the engine with its configuration, or the file.
    pub label: String,
    /// The stream.
    pub trace: Trace,
    /// What it is an answer to.
    pub contract: Contract,
}

impl Named {
    /// A stream that answers what its own header says.
    #[must_use]
    pub fn new(label: impl Into<String>, trace: Trace) -> Self {
        Named {
            label: label.into(),
            contract: Contract::of_header(&trace.header),
            trace,
        }
    }

    /// The same, with what is known of it besides; where the two disagree, `known` counts.
    #[must_use]
    pub fn with(mut self, known: Contract) -> Self {
        self.contract = known.or(self.contract);
        self
    }

    /// What a report says of it.
    #[must_use]
    pub fn side(&self, vocabulary: Option<&Tokenizer>) -> Side {
        let ids = self.trace.ids();
        let text = vocabulary.map(|vocabulary| bytes(vocabulary, &ids));
        Side {
            label: self.label.clone(),
            engine: self.trace.header.engine.clone(),
            engine_version: self.trace.header.engine_version.clone(),
            tokens: ids.len(),
            stop: self.trace.stop.clone(),
            ids_checksum: Fnv64::of_ids(&ids).to_string(),
            text_checksum: text.as_ref().map(|text| Fnv64::of(text).to_string()),
            text_bytes: text.as_ref().map(Vec::len),
        }
    }
}

/// Compares two finished streams: contracts first, then prompts, then tokens. `context` tokens
/// around a split become text.
#[must_use]
pub fn compare(a: &Named, b: &Named, vocabulary: Option<&Tokenizer>, context: usize) -> Pair {
    let shared = |field| {
        a.contract
            .get(field)
            .or(b.contract.get(field))
            .unwrap_or("-")
            .to_owned()
    };
    let mut pair = Pair {
        workload_id: shared("workload_id"),
        lane: shared("lane"),
        a: a.side(vocabulary),
        b: b.side(vocabulary),
        verdict: Verdict::ExactMatch,
        differs: None,
        prompt: None,
        drift: None,
        finding: None,
        error: None,
    };
    let differs = a.contract.difference(&b.contract);
    // Of another model's ids nothing can be said.
    let is_one_model = differs
        .as_ref()
        .is_none_or(|field| field.field != "model_sha256");
    let prompts = is_one_model.then(|| {
        let (a, b) = ((&*a.label, &*a.trace.prompt), (&*b.label, &*b.trace.prompt));
        prompt::difference(a, b, vocabulary)
    });
    if let Some((found, finding)) = prompts.flatten() {
        pair.verdict = Verdict::NonComparable;
        pair.differs = Some(prompt_field(&found));
        pair.prompt = Some(found);
        pair.finding = Some(finding);
    }
    if let Some(differs) = differs {
        pair.verdict = Verdict::NonComparable;
        pair.differs = Some(differs);
    }
    if pair.verdict == Verdict::ExactMatch
        && let Some((found, finding)) = parts(a, b, vocabulary, context)
    {
        pair.verdict = Verdict::BoundedDrift;
        pair.drift = Some(found);
        pair.finding = finding;
    }
    pair
}

fn prompt_field(found: &PromptDifference) -> Difference {
    let at = |piece: &Option<Piece>, tokens: usize| match piece {
        Some(piece) => format!("token {} at {} of {tokens}", piece.id, found.index),
        None => format!("the end at {}", found.index),
    };
    Difference {
        field: "prompt".to_owned(),
        a: at(&found.a, found.a_tokens),
        b: at(&found.b, found.b_tokens),
    }
}

fn parts(
    a: &Named,
    b: &Named,
    vocabulary: Option<&Tokenizer>,
    context: usize,
) -> Option<(Drift, Option<Finding>)> {
    let found = drift::drift(&a.trace, &b.trace, vocabulary, context)?;
    let (a, b) = ((a.label.as_str(), &a.trace), (b.label.as_str(), &b.trace));
    let finding = drift::finding(a, b, &found, vocabulary);
    Some((found, finding))
}

#[cfg(test)]
pub(in crate::compare) mod tests {
    use super::super::report::Cause;
    use super::super::text::tests::{A, AB, B, C, vocabulary};
    use super::*;
    use crate::trace::{TraceHeader, TraceToken};

    pub fn named(label: &str, prompt: &[u32], ids: &[u32], more: &[(&str, &str)]) -> Named {
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let token = |&id: &u32| TraceToken {
            id,
            logit: 1.5,
            next: vec![(B, 1.25), (C, 1.0)],
        };
        let header = TraceHeader {
            engine: label.to_owned(),
            engine_version: "1".to_owned(),
            model_sha256: "ab".to_owned(),
            workload_id: "-".to_owned(),
            lane: "single".to_owned(),
            more: more.iter().map(own).collect(),
            ..TraceHeader::default()
        };
        Named::new(
            label,
            Trace {
                header,
                prompt: prompt.to_vec(),
                tokens: ids.iter().map(token).collect(),
                stop: "limit".to_owned(),
            },
        )
    }

    #[test]
    fn verdicts() {
        let a = named("x", &[1], &[AB, C], &[]);
        let pair = compare(
            &a,
            &named("y", &[1], &[AB, C], &[]),
            Some(&vocabulary()),
            12,
        );
        assert_eq!(pair.verdict, Verdict::ExactMatch);
        assert!(pair.differs.is_none() && pair.drift.is_none() && pair.finding.is_none());
        assert_eq!(
            (pair.workload_id.as_str(), pair.lane.as_str()),
            ("-", "single")
        );
        assert_eq!(pair.a.text_bytes, Some(3));
        // FNV-1a 64 over "abc".
        assert_eq!(pair.a.text_checksum.as_deref(), Some("e71fa2190541574b"));
        assert_eq!(pair.a.ids_checksum, pair.b.ids_checksum);

        let pair = compare(&a, &named("y", &[1], &[AB, B], &[]), None, 12);
        assert_eq!(pair.verdict, Verdict::BoundedDrift);
        assert_eq!(pair.drift.unwrap().a.unwrap().gap, Some(0.25));
        assert_eq!((pair.finding, pair.a.text_checksum), (None, None));

        let pair = compare(&a, &named("y", &[1], &[AB, C, A], &[]), None, 12);
        assert_eq!(pair.finding.unwrap().cause, Cause::StopRule);
    }

    #[test]
    fn prompts_go_before_tokens() {
        let a = named("x", &[1, A, B], &[AB], &[]);
        let pair = compare(
            &a,
            &named("y", &[1, AB], &[C], &[]),
            Some(&vocabulary()),
            12,
        );
        assert_eq!(pair.verdict, Verdict::NonComparable);
        let differs = pair.differs.unwrap();
        assert_eq!(differs.field, "prompt");
        assert_eq!(differs.a, "token 261 at 1 of 3");
        assert_eq!((pair.prompt.unwrap().index, pair.drift), (1, None));
        assert_eq!(pair.finding.unwrap().cause, Cause::Tokenization);
    }

    #[test]
    fn contracts_go_before_all_and_leave_the_prompt_to_be_seen() {
        let a = named("x", &[1, A], &[AB], &[("formatter", "raw")]);
        let b = named("y", &[1, B], &[C], &[("formatter", "template")]);
        let pair = compare(&a, &b, Some(&vocabulary()), 12);
        assert_eq!(pair.verdict, Verdict::NonComparable);
        assert_eq!(pair.differs.unwrap().field, "formatter");
        assert_eq!(pair.finding.unwrap().cause, Cause::Template);
        assert!(pair.prompt.is_some() && pair.drift.is_none());

        let mut other = b.trace.clone();
        other.header.model_sha256 = "cd".to_owned();
        let pair = compare(&a, &Named::new("y", other), Some(&vocabulary()), 12);
        assert_eq!(pair.differs.unwrap().field, "model_sha256");
        assert!(pair.prompt.is_none() && pair.finding.is_none());

        // What is known besides counts.
        let known = |more| named("z", &[], &[], more).contract;
        let b = named("y", &[1, A], &[AB], &[]).with(known(&[("stop_rule", "eog")]));
        let a = a.with(known(&[("stop_rule", "limit")]));
        let pair = compare(&a, &b, None, 12);
        assert_eq!(pair.differs.unwrap().field, "stop_rule");
    }
}
