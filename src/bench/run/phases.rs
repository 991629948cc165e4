//! From runs to summaries of phases, and to ratios between two engines.

use super::super::protocol::Ran;
use super::super::records::{Phases, Ratios};
use super::super::stats::{Ratio, Samples};
use super::measure::Measured;
use super::task::{first_token_ns, step_ns};

/// A round's run, with the start of the process that it had to itself (0 when it had none).
struct Round<'a> {
    ran: &'a Ran,
    start_ns: f64,
}

impl Round<'_> {
    fn detokenize_ns(&self) -> Option<f64> {
        let all = self.ran.detokenize_ns? as f64;
        (!self.ran.ids.is_empty()).then(|| all / self.ran.ids.len() as f64)
    }

    /// From the text, or the start of the process, to the first token.
    fn ttft_ns(&self) -> f64 {
        first_token_ns(self.ran) + self.start_ns
    }

    /// Everything.
    fn total_ns(&self) -> f64 {
        let steps: f64 = self.ran.step_ns.iter().map(|&ns| ns as f64).sum();
        self.ttft_ns() + steps + self.ran.detokenize_ns.unwrap_or(0) as f64
    }
}

/// The timed runs of a contender, by round.
fn rounds(measured: &Measured, cold: bool) -> Vec<Option<Round<'_>>> {
    let start_ns = |round: usize| {
        let start = measured.loads.get(round).filter(|_| cold);
        start.map_or(0.0, |start| start.start_ns as f64)
    };
    let rounds = measured.rounds.iter().enumerate();
    let rounds = rounds.map(|(round, ran)| {
        let start_ns = start_ns(round);
        ran.as_ref().map(|ran| Round { ran, start_ns })
    });
    rounds.collect()
}

/// Summaries of a contender's timed runs, in nanoseconds an operation. `cold`: every run had a
/// process of its own.
pub fn phases(measured: &Measured, cold: bool) -> Phases {
    let rounds: Vec<_> = rounds(measured, cold).into_iter().flatten().collect();
    let loads = &measured.loads;
    let all = |of: &dyn Fn(&Round<'_>) -> Option<f64>| {
        Samples::new(rounds.iter().filter_map(of).collect())
    };
    Phases {
        load: Samples::new(loads.iter().map(|one| one.load_ns as f64).collect()),
        pack: Samples::new(
            loads
                .iter()
                .filter_map(|one| Some(one.pack_ns? as f64))
                .collect(),
        ),
        tokenize: all(&|round| Some(round.ran.tokenize_ns? as f64)),
        prefill: all(&|round| Some(round.ran.prefill_ns as f64)),
        first_token: all(&|round| Some(round.ran.first_token_ns as f64)),
        decode: all(&|round| step_ns(round.ran)),
        detokenize: all(&|round| round.detokenize_ns()),
        ttft: all(&|round| Some(round.ttft_ns())),
    }
}

/// Of the steps that both took: later ones see a longer context and cost more.
fn decode_ratio(pairs: &[(Round<'_>, Round<'_>)]) -> Option<Ratio> {
    let of_pair = |(ours, theirs): &(Round<'_>, Round<'_>)| {
        let steps = ours.ran.step_ns.iter().zip(&theirs.ran.step_ns);
        steps.fold((0.0, 0.0), |sums, (&ours, &theirs)| {
            (sums.0 + ours as f64, sums.1 + theirs as f64)
        })
    };
    let (ours, theirs): (Vec<f64>, Vec<f64>) = pairs.iter().map(of_pair).unzip();
    Ratio::of_speed(&ours, &theirs)
}

/// `emel`'s speed over `reference`'s, a sample a round in which both ran. Whole runs are compared
/// only where both generated as many tokens.
pub fn ratios(emel: &Measured, reference: &Measured, cold: bool) -> Ratios {
    let pairs: Vec<_> = rounds(emel, cold)
        .into_iter()
        .zip(rounds(reference, cold))
        .filter_map(|(ours, theirs)| Some((ours?, theirs?)))
        .collect();
    let all = |of: &dyn Fn(&Round<'_>) -> Option<f64>| {
        let both = pairs.iter();
        let both = both.filter_map(|(ours, theirs)| Some((of(ours)?, of(theirs)?)));
        let (ours, theirs): (Vec<f64>, Vec<f64>) = both.unzip();
        Ratio::of_speed(&ours, &theirs)
    };
    let as_long = pairs
        .iter()
        .all(|(ours, theirs)| ours.ran.ids.len() == theirs.ran.ids.len());
    let loads = |measured: &Measured| -> Vec<f64> {
        measured
            .loads
            .iter()
            .map(|one| one.load_ns as f64)
            .collect()
    };
    Ratios {
        prefill: all(&|round| Some(round.ran.prefill_ns as f64)),
        decode: decode_ratio(&pairs),
        ttft: all(&|round| Some(round.ttft_ns())),
        load: Ratio::of_speed(&loads(emel), &loads(reference)),
        total: all(&|round| as_long.then(|| round.total_ns())),
        best_for: reference
            .best_for
            .iter()
            .map(|phase| (*phase).to_owned())
            .collect(),
    }
}
