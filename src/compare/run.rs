//! `emel-compare run`: both engines over one prompt, then everything that tells why they part.

use std::collections::BTreeSet;

use super::case::{Case, CaseArgs};
use super::cause;
use super::engines::EngineArgs;
use super::error::CompareError;
use super::forcing::Stream;
use super::free;
use super::judge::{Judgement, judge};
use super::pair::{self, Named};
use super::replay::{Found, Parting, Plan, replay};
use super::report::{Cause, Finding, Pair, Piece, Replay, Report, Side, TensorTrail, Verdict};
use super::scratch::Scratch;
use super::show::ShowArgs;
use super::stages::Stages;
use super::text::shared;
use super::trail;
use crate::bench::backend::Contender;
use crate::cli::interrupt::Interrupt;
use crate::tokenizer::Tokenizer;
use crate::trace::Trace;

/// Both engines over one prompt.
#[derive(Clone, Debug, clap::Args)]
pub struct RunArgs {
    /// What is asked
    #[command(flatten)]
    pub case: CaseArgs,
    /// Who is asked
    #[command(flatten)]
    pub engines: EngineArgs,
    /// The stream that everybody is fed to look behind the split: EMEL's, the reference's, the
    /// prompt's own, or none
    #[arg(long, value_enum, default_value_t)]
    pub replay: Fed,
    /// Ask the oracle at so many positions, spread over the stream, beside the splits
    #[arg(long, value_name = "N", default_value = "0")]
    pub oracle_positions: usize,
    /// Do not ask the oracle at all
    #[arg(long, conflicts_with = "oracle_positions")]
    pub no_oracle: bool,
    /// Look at the tensors of this position [default: the first split's]
    #[arg(long, value_name = "INDEX", conflicts_with = "no_oracle")]
    pub tensors_at: Option<usize>,
    /// How the report is shown
    #[command(flatten)]
    pub show: ShowArgs,
}

/// The stream that everybody is fed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Fed {
    /// What EMEL has generated.
    #[default]
    A,
    /// What the reference has generated.
    B,
    /// The prompt itself, from its second token on.
    Prompt,
    /// No replay.
    None,
}

/// Everything that one comparison works with.
struct Work<'a> {
    args: &'a RunArgs,
    case: Case,
    /// EMEL, then the configuration to compare with of each reference, then the others.
    contenders: Vec<Contender>,
    /// How many references there are.
    references: usize,
    vocabulary: Tokenizer,
    stages: Stages,
    scratch: Scratch,
}

/// Runs the command.
///
/// # Errors
/// [`CompareError`].
pub fn run(args: &RunArgs) -> Result<Report, CompareError> {
    if args.replay == Fed::None {
        args.show.refuse_plot("no stream is replayed")?;
    }
    let interrupt = Interrupt::install().map_err(CompareError::Streams)?;
    let stages = Stages::new(&interrupt);
    let engines = args.engines.engines(&args.case.library)?;
    let (case, vocabulary) = args.case.prepare(&stages)?;
    let work = Work {
        args,
        vocabulary,
        case,
        contenders: engines.all(),
        references: engines.references.len(),
        stages,
        scratch: Scratch::new()?,
    };
    work.report(args.show.context)
}

impl Work<'_> {
    fn report(&self, context: usize) -> Result<Report, CompareError> {
        let contenders = &self.contenders;
        let emel = self.free(0, &contenders[0])?;
        let mut others = Vec::new();
        for (at, contender) in contenders.iter().enumerate().skip(1) {
            others.push(match self.free(at, contender) {
                Ok(trace) => Ok(trace),
                Err(error) if error.is_of_engine() => Err(error.to_string()),
                Err(error) => return Err(error),
            });
        }
        let named = |label: String, trace: &Trace| Named::new(label, trace.clone());
        let a = named(contenders[0].label(), &emel);
        let mut pairs = Vec::new();
        for (contender, other) in contenders[1..].iter().zip(&others).take(self.references) {
            pairs.push(match other {
                Ok(trace) => {
                    let b = named(contender.label(), trace);
                    pair::compare(&a, &b, Some(&self.vocabulary), context)
                }
                Err(error) => failed(&a, contender.label(), error.clone()),
            });
        }
        let mut report = Report::new(pairs);
        report.subject = Some(self.case.subject(emel.prompt.len()));
        self.explain(&emel, &others, &mut report)?;
        Ok(report)
    }

    fn free(&self, at: usize, contender: &Contender) -> Result<Trace, CompareError> {
        let trace = self.scratch.file(&format!("{at}.tokens.txt"));
        let timeout = self.args.engines.timeout();
        free::run(&self.case, contender, &trace, timeout, &self.stages)
    }

    /// The replay, the oracle, the tensors, and what follows from them.
    fn explain(
        &self,
        emel: &Trace,
        others: &[Result<Trace, String>],
        report: &mut Report,
    ) -> Result<(), CompareError> {
        let Some((stream, whose)) = self.stream(emel, others) else {
            report
                .notes
                .push("no replay: no stream to feed, or none wanted".to_owned());
            return Ok(());
        };
        let contenders = &self.contenders;
        let splits = self.splits(emel, others, &stream);
        let partings = partings(&splits);
        // The first pair that parts on this stream.
        let firsts = splits.iter().take(self.references);
        let parted = firsts
            .flatten()
            .map(|split| (split.index, split.label.as_str()))
            .next();
        let beside = parted.map_or_else(
            || contenders.get(1).map(|one| one.label()),
            |(_, label)| Some(label.to_owned()),
        );
        let at = self.args.tensors_at.or(parted.map(|(index, _)| index));
        let at = at.filter(|_| !self.args.no_oracle);
        if let Some(asked) = self.args.tensors_at.filter(|&at| at >= stream.positions()) {
            return Err(CompareError::Usage(format!(
                "--tensors-at {asked} is beyond the stream's {} positions",
                stream.positions()
            )));
        }
        let mut exact = self.exact(&stream, &partings, at)?;
        let plan = Plan {
            case: &self.case,
            stream: &stream,
            partings: &partings,
            tensors: at.zip(beside.as_deref()),
            timeout: self.args.engines.timeout(),
            scratch: &self.scratch,
            stages: &self.stages,
        };
        let mut found = replay(&plan, contenders, &mut exact)?;
        for (replayed, split) in found.engines[1..].iter_mut().zip(&splits) {
            replayed.first_split = split.as_ref().map(|split| split.index);
        }
        report.tensors = plan.tensors.map(|(index, beside)| {
            tensors(index, [&contenders[0].label(), beside], &exact, &found)
        });
        self.judge_splits(&mut found, others, report);
        found.splits.iter_mut().for_each(|split| self.spell(split));
        report.replay = Some(Replay {
            stream: whose,
            positions: stream.positions(),
            engines: found.engines,
            trail: found.trail,
            splits: found.splits,
            oracle_positions: exact.positions,
        });
        Ok(())
    }

    /// The stream that everybody is fed, and whose it is.
    fn stream(&self, emel: &Trace, others: &[Result<Trace, String>]) -> Option<(Stream, String)> {
        let (stream, whose) = match self.args.replay {
            Fed::A => (Stream::of(emel), self.contenders[0].label()),
            Fed::B => {
                let label = self.contenders.get(1)?.label();
                (Stream::of(others.first()?.as_ref().ok()?), label)
            }
            Fed::Prompt => {
                let ids = emel.prompt.clone();
                (Stream { ids, prompt: 1 }, "prompt".to_owned())
            }
            Fed::None => return None,
        };
        (stream.prompt > 0 && stream.positions() > 0).then_some((stream, whose))
    }

    /// Where each other engine's free run parts from EMEL's, as far as the stream goes along with
    /// EMEL's.
    fn splits(
        &self,
        emel: &Trace,
        others: &[Result<Trace, String>],
        stream: &Stream,
    ) -> Vec<Option<Split>> {
        let own = Stream::of(emel);
        let split = |(contender, other): (&Contender, &Result<Trace, String>)| {
            let other = other.as_ref().ok()?;
            let (index, [a, b]) = first_split(emel, other)?;
            let along = stream.goes_along(&own, index);
            along.then(|| Split {
                index,
                label: contender.label(),
                backend: contender.backend.clone(),
                a,
                b,
            })
        };
        self.contenders[1..].iter().zip(others).map(split).collect()
    }

    /// What the oracle says at the splits and wherever else it is asked.
    fn exact(
        &self,
        stream: &Stream,
        partings: &[Parting],
        at: Option<usize>,
    ) -> Result<Judgement, CompareError> {
        if self.args.no_oracle {
            return Ok(Judgement::none());
        }
        let (wanted, all) = (self.args.oracle_positions, stream.positions());
        let spread = (0..wanted.min(all)).map(|i| i * all / wanted.min(all).max(1));
        let asked: BTreeSet<usize> = partings
            .iter()
            .map(|one| one.index)
            .chain(at)
            .chain(spread)
            .collect();
        let positions: Vec<usize> = asked.into_iter().collect();
        let (path, n_ctx) = (&self.case.model, self.case.n_ctx);
        judge(
            path,
            stream,
            n_ctx,
            positions,
            at,
            &self.scratch,
            &self.stages,
        )
    }

    /// Finds the cause of every split.
    fn judge_splits(
        &self,
        found: &mut Found,
        others: &[Result<Trace, String>],
        report: &mut Report,
    ) {
        let emel = self.contenders[0].label();
        let defect = report
            .tensors
            .as_ref()
            .and_then(|trail| trail.defect.clone());
        let beside = report.tensors.as_ref().map(|trail| trail.b.clone());
        for (replayed, other) in found.engines[1..].iter_mut().zip(others) {
            if other.is_err() {
                continue;
            }
            let label = &replayed.label;
            let split = found
                .splits
                .iter()
                .find(|split| split.parting.contains(label));
            let defect = defect.as_ref().filter(|_| beside.as_ref() == Some(label));
            let finding = split.map(|split| cause::of_split(split, label, &emel, defect));
            replayed.cause = finding.as_ref().map(|finding| finding.cause);
            let pair = report.pairs.iter_mut().find(|pair| pair.b.label == *label);
            if let Some(pair) = pair {
                pair.finding = pair.finding.take().or(finding);
                if pair.verdict == Verdict::BoundedDrift && pair.finding.is_none() {
                    pair.finding = Some(unheard());
                }
                replayed.cause = pair.finding.as_ref().map(|finding| finding.cause);
            }
        }
    }

    /// Gives the tokens of a split their texts.
    fn spell(&self, split: &mut super::report::Split) {
        let views = split.views.iter_mut().chain(&mut split.oracle);
        let tops = views.map(|view| &mut view.top);
        for piece in tops.chain([&mut split.a, &mut split.b]) {
            let bytes = self.vocabulary.piece(piece.id, true).ok();
            piece.text = bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        }
    }
}

/// Where a free run parts from EMEL's.
struct Split {
    index: usize,
    label: String,
    backend: String,
    a: u32,
    b: u32,
}

/// Splits at the same place between the same tokens, by configurations of one backend, are one.
fn partings(splits: &[Option<Split>]) -> Vec<Parting> {
    let mut all: Vec<Parting> = Vec::new();
    let piece = |id| Piece { id, text: None };
    for split in splits.iter().flatten() {
        let same = |one: &&mut Parting| {
            let candidates = (one.a.id, one.b.id) == (split.a, split.b);
            one.index == split.index && candidates && one.backend == split.backend
        };
        match all.iter_mut().find(same) {
            Some(known) => known.labels.push(split.label.clone()),
            None => all.push(Parting {
                index: split.index,
                a: piece(split.a),
                b: piece(split.b),
                backend: split.backend.clone(),
                labels: vec![split.label.clone()],
            }),
        }
    }
    all.sort_by_key(|parting| parting.index);
    all
}

/// The first token that differs, with both ids; none where one ends before, or prompts differ.
fn first_split(a: &Trace, b: &Trace) -> Option<(usize, [u32; 2])> {
    let index = shared(&a.ids(), &b.ids());
    let (a_token, b_token) = (a.tokens.get(index)?, b.tokens.get(index)?);
    (a.prompt == b.prompt).then_some((index, [a_token.id, b_token.id]))
}

fn tensors(index: usize, labels: [&str; 2], exact: &Judgement, found: &Found) -> TensorTrail {
    let rows = trail::rows(&exact.tensors, &found.told[0], &found.told[1]);
    TensorTrail {
        index,
        a: labels[0].to_owned(),
        b: labels[1].to_owned(),
        defect: trail::defect(&rows, exact.noise, labels),
        rows,
    }
}

/// A pair whose second engine has failed.
fn failed(a: &Named, label: String, error: String) -> Pair {
    let header = &a.trace.header;
    let own = Side {
        label: a.label.clone(),
        engine: header.engine.clone(),
        tokens: a.trace.tokens.len(),
        stop: a.trace.stop.clone(),
        ..Side::default()
    };
    let other = Side {
        label,
        ..Side::default()
    };
    Pair::failed(&header.workload_id, &header.lane, own, other, error)
}

/// What to say of a split that lies on no stream that was replayed.
fn unheard() -> Finding {
    Finding {
        cause: Cause::Unknown,
        engine: None,
        tensor: None,
        evidence: vec!["the split does not lie on the stream that was replayed".to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{TraceHeader, TraceToken};

    fn trace(prompt: &[u32], tokens: &[u32]) -> Trace {
        let token = |&id| TraceToken {
            id,
            logit: 1.0,
            next: Vec::new(),
        };
        Trace {
            header: TraceHeader::default(),
            prompt: prompt.to_vec(),
            tokens: tokens.iter().map(token).collect(),
            stop: "limit".to_owned(),
        }
    }

    #[test]
    fn a_split_is_the_first_token_that_differs() {
        let a = trace(&[1], &[5, 6, 7]);
        assert_eq!(first_split(&a, &trace(&[1], &[5, 9, 7])), Some((1, [6, 9])));
        assert_eq!(first_split(&a, &trace(&[1], &[5, 6])), None);
        assert_eq!(first_split(&a, &trace(&[2], &[5, 9])), None);
    }

    #[test]
    fn splits_at_one_place_between_the_same_tokens_are_one() {
        let split = |index, label: &str, backend: &str, b| {
            Some(Split {
                index,
                label: label.to_owned(),
                backend: backend.to_owned(),
                a: 1,
                b,
            })
        };
        let all = partings(&[
            split(9, "r-x", "r", 2),
            None,
            split(4, "r-y", "r", 2),
            split(9, "r-z", "r", 2),
            split(9, "q", "q", 2),
            split(9, "r-w", "r", 3),
        ]);
        let found: Vec<_> = all
            .iter()
            .map(|one| (one.index, one.labels.len()))
            .collect();
        assert_eq!(found, [(4, 1), (9, 2), (9, 1), (9, 1)]);
    }
}
