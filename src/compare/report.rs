//! What a comparison found, as data: the JSON object of `--json`, and what the tables are made of.
//!
//! Logits are as the engines gave them; gaps, probabilities and divergences are computed in f64.
//! Divergences are in nats.

use serde::Serialize;

use crate::cli::exit::Exit;

/// A report's `schema`.
pub const SCHEMA: &str = "emel-compare/v1";

/// The whole of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The gravest of the pairs' verdicts.
    pub verdict: Verdict,
    /// What was run; none for finished traces whose model is not at hand.
    pub subject: Option<Subject>,
    /// Every two streams that were compared.
    pub pairs: Vec<Pair>,
    /// Both engines over one stream, and the reference against itself.
    pub replay: Option<Replay>,
    /// Tensor by tensor, at the first split.
    pub tensors: Option<TensorTrail>,
    /// What was left out, and why.
    pub notes: Vec<String>,
}

impl Report {
    /// A report of pairs alone.
    #[must_use]
    pub fn new(pairs: Vec<Pair>) -> Self {
        let gravest = pairs.iter().map(|pair| pair.verdict).max();
        Report {
            schema: SCHEMA,
            verdict: gravest.unwrap_or(Verdict::Error),
            subject: None,
            pairs,
            replay: None,
            tensors: None,
            notes: Vec::new(),
        }
    }

    /// How the program ends. With `allow_near_tie` streams that part at proven near-ties alone are
    /// as good as equal ones.
    #[must_use]
    pub fn exit(&self, allow_near_tie: bool) -> Exit {
        let is_near_tie = |pair: &Pair| {
            let cause = pair.finding.as_ref().map(|finding| finding.cause);
            cause == Some(Cause::NearTie)
        };
        let mut parted = self
            .pairs
            .iter()
            .filter(|pair| pair.verdict == Verdict::BoundedDrift);
        match self.verdict {
            Verdict::ExactMatch => Exit::Done,
            Verdict::BoundedDrift if allow_near_tie && parted.all(is_near_tie) => Exit::Done,
            Verdict::BoundedDrift => Exit::Diverged,
            Verdict::NonComparable => Exit::NotComparable,
            Verdict::Error => Exit::Failed,
        }
    }
}

/// Whether two streams are one; ordered by gravity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Same prompt, same tokens, same end.
    ExactMatch,
    /// Same contract, and the streams part.
    BoundedDrift,
    /// They answer different questions.
    NonComparable,
    /// One of them is no stream.
    Error,
}

impl Verdict {
    /// As reports write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Verdict::ExactMatch => "exact_match",
            Verdict::BoundedDrift => "bounded_drift",
            Verdict::NonComparable => "non_comparable",
            Verdict::Error => "error",
        }
    }
}

/// What an analysis ran over.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Subject {
    /// The model's file.
    pub model: String,
    /// Its digest.
    pub model_sha256: String,
    /// The beginning of the prompt's text.
    pub prompt_text: Option<String>,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Most tokens that were to be generated.
    pub max_tokens: usize,
}

/// Characters of a prompt that a report shows.
const PROMPT_SHOWN: usize = 200;

impl Subject {
    /// As much of a prompt's text as a report shows.
    #[must_use]
    pub fn beginning(text: &str) -> String {
        text.chars().take(PROMPT_SHOWN).collect()
    }
}

/// Two streams.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pair {
    /// The workload, or `-`.
    pub workload_id: String,
    /// The lane, or `-`.
    pub lane: String,
    /// The first stream.
    pub a: Side,
    /// The second.
    pub b: Side,
    /// Whether they are one.
    pub verdict: Verdict,
    /// Of streams that cannot be compared: the field in which they differ.
    pub differs: Option<Difference>,
    /// Where the prompts part, if they do.
    pub prompt: Option<PromptDifference>,
    /// Where the streams part.
    pub drift: Option<Drift>,
    /// Why they part.
    pub finding: Option<Finding>,
    /// Why there is nothing to compare.
    pub error: Option<String>,
}

impl Pair {
    /// Two streams of which at least one is none, with the reason.
    #[must_use]
    pub fn failed(workload_id: &str, lane: &str, a: Side, b: Side, error: String) -> Self {
        Pair {
            workload_id: workload_id.to_owned(),
            lane: lane.to_owned(),
            a,
            b,
            verdict: Verdict::Error,
            differs: None,
            prompt: None,
            drift: None,
            finding: None,
            error: Some(error),
        }
    }
}

/// One stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Side {
    /// Its name in this report: the engine with its configuration, or the file.
    pub label: String,
    /// `emel`, `llama.cpp`, ...
    pub engine: String,
    /// Its version.
    pub engine_version: String,
    /// Tokens generated.
    pub tokens: usize,
    /// Why it ended.
    pub stop: String,
    /// FNV-1a 64 over the ids.
    pub ids_checksum: String,
    /// FNV-1a 64 over the text, where the vocabulary is at hand.
    pub text_checksum: Option<String>,
    /// Bytes of the text.
    pub text_bytes: Option<usize>,
}

/// A field of the contract in which two streams differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// `model_sha256`, `prompt`, `sampling`, `stop_rule`, `formatter`, `lane`, `workload_id`, ...
    pub field: String,
    /// What the first says.
    pub a: String,
    /// What the second says.
    pub b: String,
}

/// Where two prompts part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PromptDifference {
    /// The first place at which ids differ.
    pub index: usize,
    /// The id there, or none at the end.
    pub a: Option<Piece>,
    /// The same in the second.
    pub b: Option<Piece>,
    /// Tokens of the first prompt.
    pub a_tokens: usize,
    /// Tokens of the second.
    pub b_tokens: usize,
    /// Whether both are the same text; none where the vocabulary is not at hand.
    pub same_text: Option<bool>,
}

/// A token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Piece {
    /// Its id.
    pub id: u32,
    /// Its text, where the vocabulary is at hand.
    pub text: Option<String>,
}

/// Where two streams part.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Drift {
    /// The first generated token that differs, from 0.
    pub index: usize,
    /// What the first chose there; none when it had ended.
    pub a: Option<Choice>,
    /// What the second chose.
    pub b: Option<Choice>,
    /// Tokens shared before that.
    pub shared_tokens: usize,
    /// The same as a share of the longer stream.
    pub shared_tokens_fraction: f64,
    /// Bytes of text shared before the texts part.
    pub shared_bytes: Option<usize>,
    /// The same as a share of the longer text.
    pub shared_bytes_fraction: Option<f64>,
    /// Tokens of the first less those of the second.
    pub token_difference: i64,
    /// Bytes of the first text less those of the second.
    pub byte_difference: Option<i64>,
    /// Text before the split.
    pub before: Option<String>,
    /// Text from the split on, in the first.
    pub after_a: Option<String>,
    /// The same in the second.
    pub after_b: Option<String>,
}

/// What an engine chose at a split, from its own trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Choice {
    /// The token.
    pub piece: Piece,
    /// Its logit.
    pub logit: f32,
    /// The logit of the token that the other engine chose, where known.
    pub other_logit: Option<f32>,
    /// The first less the second.
    pub gap: Option<f64>,
}

/// Why two streams part.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The kind of cause.
    pub cause: Cause,
    /// For a defect: the engine, by its label.
    pub engine: Option<String>,
    /// For a defect: the tensor, as `layer 3 ffn_out`.
    pub tensor: Option<String>,
    /// Sentences with the numbers that led here.
    pub evidence: Vec<String>,
}

/// Kinds of cause; docs/compare.md has the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The gap is smaller than the reference's own spread there.
    NearTie,
    /// The reference's own configurations choose differently there.
    ReferenceSpread,
    /// The same text became other tokens.
    Tokenization,
    /// The prompts are different texts.
    Template,
    /// The streams are the same as far as both go.
    StopRule,
    /// One engine leaves exact arithmetic abruptly, the other does not.
    NumericDefect,
    /// None of these.
    Unknown,
}

impl Cause {
    /// As reports write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Cause::NearTie => "near_tie",
            Cause::ReferenceSpread => "reference_spread",
            Cause::Tokenization => "tokenization",
            Cause::Template => "template",
            Cause::StopRule => "stop_rule",
            Cause::NumericDefect => "numeric_defect",
            Cause::Unknown => "unknown",
        }
    }
}

/// Everybody over one stream.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Replay {
    /// Whose stream, by its label, or `prompt`.
    pub stream: String,
    /// Positions compared: each is one logits vector.
    pub positions: usize,
    /// EMEL first, the reference next, then the reference's other configurations.
    pub engines: Vec<Replayed>,
    /// The reference against EMEL, position by position.
    pub trail: Vec<Position>,
    /// Everybody at each place where two streams part.
    pub splits: Vec<Split>,
    /// Positions at which the oracle spoke.
    pub oracle_positions: Vec<usize>,
}

/// One engine in one configuration over the stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Replayed {
    /// Its label.
    pub label: String,
    /// Where its own free run parts from EMEL's; none where it does not.
    pub first_split: Option<usize>,
    /// Why.
    pub cause: Option<Cause>,
    /// Against EMEL; none for EMEL itself.
    pub to_emel: Option<Agreement>,
    /// Against the reference; none for the reference itself, and for EMEL, with which it is
    /// compared.
    pub to_reference: Option<Agreement>,
    /// Against the oracle, at the oracle's positions.
    pub to_oracle: Option<Agreement>,
    /// Why it was left out.
    pub error: Option<String>,
}

/// How far two logits streams lie apart.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Agreement {
    /// Positions compared.
    pub positions: usize,
    /// Positions with another top token.
    pub disagreements: usize,
    /// Their margins: by how much the other's top token lies behind here, in logits.
    pub margins: Vec<f64>,
    /// Kullback-Leibler divergence, KL(other ‖ this).
    pub kl: Summary,
    /// Largest difference of two logits at a position.
    pub max_difference: Summary,
}

/// Many numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Their mean.
    pub mean: f64,
    /// Their median.
    pub p50: f64,
    /// All but one in a hundred are at most this.
    pub p99: f64,
    /// The largest.
    pub worst: f64,
}

/// One position of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Position {
    /// The generated token that is chosen there, from 0.
    pub index: usize,
    /// KL(EMEL ‖ reference).
    pub kl: f64,
    /// Largest difference of two logits.
    pub max_difference: f64,
    /// Both have the same top token.
    pub top_agrees: bool,
}

/// Everybody at the place where two streams part, fed the same tokens so far.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Split {
    /// The generated token, from 0.
    pub index: usize,
    /// EMEL's choice.
    pub a: Piece,
    /// The other's.
    pub b: Piece,
    /// Who parts from EMEL here, by label: configurations of one backend.
    pub parting: Vec<String>,
    /// That backend.
    pub backend: String,
    /// Every engine and configuration, in the order of [`Replay::engines`].
    pub views: Vec<View>,
    /// The oracle.
    pub oracle: Option<View>,
    /// Largest less smallest of the margins over the backend's configurations: its spread; none
    /// when it has one alone.
    pub spread: Option<f64>,
}

/// What one engine makes of two candidates.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct View {
    /// Its label; `oracle`.
    pub label: String,
    /// The backend that it is a configuration of; `emel`, `oracle`.
    pub backend: String,
    /// Its top token.
    pub top: Piece,
    /// Logit of `a`.
    pub logit_a: f64,
    /// Logit of `b`.
    pub logit_b: f64,
    /// The first less the second: positive chooses `a`.
    pub margin: f64,
    /// The same in probability.
    pub probability_margin: f64,
    /// KL(oracle ‖ this), where the oracle spoke; none for the oracle.
    pub kl_to_oracle: Option<f64>,
}

/// Two engines tensor by tensor against the oracle, at one position.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TensorTrail {
    /// The generated token whose logits the position yields, from 0.
    pub index: usize,
    /// The first engine's label.
    pub a: String,
    /// The second's.
    pub b: String,
    /// In the order of the pass.
    pub rows: Vec<TensorRow>,
    /// The first tensor, if any, at which an engine leaves the oracle abruptly.
    pub defect: Option<Defect>,
}

/// One tensor. Errors are relative: the norm of the difference over the norm of the exact one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TensorRow {
    /// The layer; none for what belongs to no layer.
    pub layer: Option<usize>,
    /// A name of [`Point`](crate::model::Point).
    pub point: String,
    /// The first engine's distance from the oracle; none where it does not tell.
    pub a_error: Option<f64>,
    /// The second's.
    pub b_error: Option<f64>,
    /// The distance of the two from each other.
    pub between: Option<f64>,
}

/// An engine that leaves exact arithmetic abruptly.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Defect {
    /// Its label.
    pub engine: String,
    /// The layer.
    pub layer: Option<usize>,
    /// The point.
    pub point: String,
    /// Its distance from the oracle there.
    pub error: f64,
    /// The other engine's.
    pub other_error: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(verdict: Verdict, cause: Option<Cause>) -> Pair {
        let side = Side::default;
        Pair {
            workload_id: "-".to_owned(),
            lane: "-".to_owned(),
            a: side(),
            b: side(),
            verdict,
            differs: None,
            prompt: None,
            drift: None,
            finding: cause.map(|cause| Finding {
                cause,
                engine: None,
                tensor: None,
                evidence: Vec::new(),
            }),
            error: None,
        }
    }

    #[test]
    fn the_gravest_verdict_decides_how_it_ends() {
        let exit = |pairs: &[(Verdict, Option<Cause>)], allow| {
            let pairs = pairs.iter().map(|&(verdict, cause)| pair(verdict, cause));
            Report::new(pairs.collect()).exit(allow)
        };
        let same = (Verdict::ExactMatch, None);
        let tie = (Verdict::BoundedDrift, Some(Cause::NearTie));
        let spread = (Verdict::BoundedDrift, Some(Cause::ReferenceSpread));
        let bare = (Verdict::BoundedDrift, None);
        let other = (Verdict::NonComparable, Some(Cause::Template));
        let error = (Verdict::Error, None);
        assert_eq!(exit(&[same, same], false), Exit::Done);
        assert_eq!(exit(&[same, tie], false), Exit::Diverged);
        assert_eq!(exit(&[same, tie], true), Exit::Done);
        assert_eq!(exit(&[tie, spread], true), Exit::Diverged);
        assert_eq!(exit(&[tie, bare], true), Exit::Diverged);
        assert_eq!(exit(&[tie, other], true), Exit::NotComparable);
        assert_eq!(exit(&[other, error, same], true), Exit::Failed);
    }

    #[test]
    fn names_are_those_of_the_json() {
        for verdict in [
            Verdict::ExactMatch,
            Verdict::BoundedDrift,
            Verdict::NonComparable,
            Verdict::Error,
        ] {
            assert_eq!(serde_json::to_value(verdict).unwrap(), verdict.name());
        }
        for cause in [
            Cause::NearTie,
            Cause::ReferenceSpread,
            Cause::Tokenization,
            Cause::Template,
            Cause::StopRule,
            Cause::NumericDefect,
            Cause::Unknown,
        ] {
            assert_eq!(serde_json::to_value(cause).unwrap(), cause.name());
        }
    }
}
