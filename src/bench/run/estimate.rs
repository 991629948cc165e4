//! How long a measurement will take, about, before it begins.
//!
//! From what models cost and from speeds that a processor of this decade reaches, a thread: nobody
//! is to plan an hour by it, but to know whether to have tea or lunch.

use std::time::Duration;

use super::choose::{LONG_TRIAL_NS, SURE_NS, TRIAL_PROMPT, TRIAL_RUNS, TRIAL_TOKENS};
use super::facts::ModelFacts;
use super::measure::LONG_NS;

/// Integer operations a second of a thread, in llama.cpp's prefill.
const OPERATIONS: f64 = 0.22e12;
/// Float operations a second of a thread, in its attention: of a prompt, and of one token.
const ATTENTION: (f64, f64) = (45e9, 3e9);
/// Bytes of weights a second of a thread, in decode.
const WEIGHT_BYTES: f64 = 9e9;
/// Bytes of a file a second, in loading and repacking it.
const LOAD_BYTES: f64 = 0.8e9;
/// Seconds to measure the machine's limits, before and after.
const LIMITS: f64 = 3.0;
/// Seconds to start a process.
const START: f64 = 0.3;
/// EMEL's time, as a part of a reference's.
const EMEL: f64 = 0.5;
/// First trials of a configuration, by those that are repeated because it came near.
const NEAR_TRIALS: f64 = 1.5;

/// One workload in one lane.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// What its model costs.
    pub facts: &'a ModelFacts,
    /// Tokens of the prompt.
    pub n_prompt: usize,
    /// Tokens to generate.
    pub max_tokens: usize,
    /// Threads.
    pub threads: usize,
    /// Every run has a process of its own.
    pub cold: bool,
    /// Configurations of each reference that are tried; one is run.
    pub configurations: &'a [usize],
    /// A workload before it has made the same first trials.
    pub is_known: bool,
    /// Timed runs.
    pub runs: usize,
    /// What they may take.
    pub budget: Option<Duration>,
}

impl Plan<'_> {
    /// Seconds.
    pub fn seconds(&self) -> f64 {
        let load = START + self.facts.file_bytes as f64 / LOAD_BYTES;
        let run = self.run(self.n_prompt, self.max_tokens);
        let own = if self.cold { load } else { 0.0 };
        let trial = self.run(
            self.n_prompt.min(TRIAL_PROMPT),
            self.max_tokens.min(TRIAL_TOKENS),
        );
        let round = (run + own) * (EMEL + self.configurations.len() as f64);
        let long_trials = match self.n_prompt > TRIAL_PROMPT && !self.cold {
            true => 2.0 * (load + run.min(LONG_TRIAL_NS / 1e9)),
            false => 0.0,
        };
        let repeated = match trial * 1e9 < SURE_NS {
            true => {
                (load + trial * (1.0 / trial).ceil().clamp(1.0, TRIAL_RUNS as f64)) * NEAR_TRIALS
            }
            false => load + trial,
        };
        let first_trials = if self.is_known { 0.0 } else { repeated };
        let choosing = |&configurations: &usize| match configurations {
            0 | 1 => 0.0,
            several => several as f64 * first_trials + long_trials,
        };
        let warm_up = match run >= LONG_NS / 1e9 && !self.cold {
            true => 0.0,
            false => round,
        };
        let loads = load * (EMEL + self.configurations.len() as f64);
        let trials: f64 = self.configurations.iter().map(choosing).sum();
        LIMITS + trials + loads + warm_up + self.rounds(round) * round
    }

    /// A run of the reference, without its load.
    fn run(&self, n_prompt: usize, max_tokens: usize) -> f64 {
        let threads = self.threads as f64;
        let depth = (n_prompt + max_tokens / 2) as u64;
        let attention = |depth: u64| self.facts.attention_operations(depth) as f64;
        let prefill = self.facts.prefill_operations(n_prompt as u64) as f64 / OPERATIONS;
        // The middle token of a prompt sees half of it.
        let in_prompt = n_prompt as f64 * attention(n_prompt as u64 / 2) / ATTENTION.0;
        let prefill = prefill + in_prompt;
        let weights = self.facts.weight_bytes_per_token as f64 / WEIGHT_BYTES;
        let step = weights + attention(depth) / ATTENTION.1;
        (prefill + max_tokens.saturating_sub(1) as f64 * step) / threads
    }

    /// Rounds that the budget allows.
    fn rounds(&self, round: f64) -> f64 {
        let asked = self.runs as f64;
        let budget = self
            .budget
            .map_or(f64::INFINITY, |budget| budget.as_secs_f64());
        let least = if round > 2.0 * budget { 1.0 } else { 2.0 };
        (budget / round).floor().max(least).min(asked)
    }
}

/// `about 12 minutes`.
pub fn words(seconds: f64) -> String {
    match seconds {
        s if s < 90.0 => "about a minute".to_owned(),
        s => format!("about {:.0} minutes", s / 60.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gguf::TensorType;
    use crate::model::testing::TestModel;

    #[test]
    fn more_work_takes_longer_and_a_budget_bounds_it() {
        let file = TestModel::new("gemma3", TensorType::Q8_0)
            .write_temporary()
            .unwrap();
        let facts = ModelFacts::read(file.path()).unwrap();
        let plan = Plan {
            facts: &facts,
            n_prompt: 4096,
            max_tokens: 16,
            threads: 1,
            cold: false,
            configurations: &[6],
            is_known: false,
            runs: 9,
            budget: None,
        };
        let all = plan.seconds();
        let two = [6, 3];
        for (less, more) in [
            (Plan { threads: 2, ..plan }.seconds(), all),
            (Plan { runs: 3, ..plan }.seconds(), all),
            (
                Plan {
                    is_known: true,
                    ..plan
                }
                .seconds(),
                all,
            ),
            (
                Plan {
                    n_prompt: 512,
                    ..plan
                }
                .seconds(),
                all,
            ),
            (
                all,
                Plan {
                    configurations: &two,
                    ..plan
                }
                .seconds(),
            ),
            (
                Plan {
                    budget: Some(Duration::from_nanos(1)),
                    ..plan
                }
                .seconds(),
                all,
            ),
        ] {
            assert!(less < more, "{less} {more}");
        }
        assert_eq!(words(20.0), "about a minute");
        assert_eq!(words(600.0), "about 10 minutes");
    }
}
