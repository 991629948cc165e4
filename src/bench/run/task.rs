//! What contenders do: a workload in a lane, as one request.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::super::backend::{Backend, BackendError, Contender};
use super::super::protocol::{Loaded, Ran, Request, Run, StopRule};
use super::super::report::Metric;
use crate::cli::interrupt::Interrupt;

/// What is run: one workload in one lane, the same for every contender.
#[derive(Clone, Debug)]
pub struct Task {
    /// The model's file.
    pub model: PathBuf,
    /// Its digest.
    pub model_sha256: String,
    /// The formatted prompt.
    pub text: String,
    /// Cut it to so many tokens.
    pub prompt_tokens: Option<usize>,
    /// Most tokens to generate.
    pub max_tokens: usize,
    /// What ends generation.
    pub stop: StopRule,
    /// How the prompt became the text, as records write it.
    pub formatter: &'static str,
    /// How a token is chosen, as records write it.
    pub sampling: &'static str,
    /// Seed of whatever draws.
    pub seed: u64,
    /// Tokens of context.
    pub n_ctx: usize,
    /// The workload's id.
    pub workload_id: String,
    /// The lane's name.
    pub lane: &'static str,
    /// Every run has a process of its own.
    pub cold: bool,
    /// EMEL maps a packed copy of the model.
    pub packed_cache: bool,
    /// Instruction set of EMEL's kernels, where it is not the best.
    pub isa: Option<String>,
    /// Tokens of the prompt, for EMEL's tokenizer.
    pub n_prompt: usize,
    /// For what a reference's fastest configuration is sought.
    pub sought: Vec<Metric>,
}

/// How much of a task a run does.
#[derive(Clone, Debug)]
pub enum Extent {
    /// A short prompt and few tokens: only to warm up.
    Touch,
    /// The prompt's first tokens, and at most so many generated: to choose between configurations.
    Trial {
        /// Tokens of the prompt; all, if it has no more.
        prompt: usize,
        /// Tokens to generate.
        output: usize,
    },
    /// Everything, with checksums, and the trace in this file; its times do not count.
    Observed(Option<PathBuf>),
    /// Everything.
    Timed,
}

/// Tokens of the prompt that a touch reads.
const TOUCH_PROMPT: usize = 32;
/// Tokens that it generates.
const TOUCH_TOKENS: usize = 2;
/// Runners-up on each line of a trace.
const TOP_LOGPROBS: usize = 4;

/// A contender with the task's model loaded.
pub struct Runner {
    backend: Backend,
    /// What it says of itself.
    pub loaded: Loaded,
    /// From starting the process to the loaded model.
    pub start: Duration,
}

impl Runner {
    /// Starts a contender and loads the model.
    ///
    /// # Errors
    /// [`BackendError`].
    pub fn start(
        contender: &Contender,
        task: &Task,
        interrupt: &Interrupt,
        timeout: Duration,
    ) -> Result<Self, BackendError> {
        let begun = Instant::now();
        let (backend, loaded) = contender.start(&task.model, task.n_ctx, interrupt, timeout)?;
        Ok(Runner {
            backend,
            loaded,
            start: begun.elapsed(),
        })
    }

    /// Runs the task, or what `extent` says of it.
    ///
    /// # Errors
    /// [`BackendError`].
    pub fn run(&mut self, task: &Task, extent: &Extent) -> Result<Ran, BackendError> {
        let whole = task.prompt_tokens;
        let (prompt_tokens, max_tokens) = match extent {
            Extent::Touch => {
                let least = whole.map_or(TOUCH_PROMPT, |whole| whole.min(TOUCH_PROMPT));
                (Some(least), task.max_tokens.min(TOUCH_TOKENS))
            }
            Extent::Trial { prompt, output } => {
                let cut = (*prompt < task.n_prompt).then_some(*prompt);
                (cut.or(whole), task.max_tokens.min(*output))
            }
            Extent::Observed(_) | Extent::Timed => (whole, task.max_tokens),
        };
        let trace = match extent {
            Extent::Observed(trace) => trace.clone(),
            _ => None,
        };
        let header = [
            ("model_sha256", task.model_sha256.clone()),
            ("workload_id", task.workload_id.clone()),
            ("lane", task.lane.to_owned()),
            ("formatter", task.formatter.to_owned()),
            ("sampling", task.sampling.to_owned()),
            ("stop_rule", task.stop.name().to_owned()),
            ("seed", task.seed.to_string()),
            ("max_tokens", max_tokens.to_string()),
        ];
        self.backend.request(&Request::Run(Run {
            text: task.text.clone(),
            prompt_tokens,
            max_tokens,
            stop: task.stop,
            observe: matches!(extent, Extent::Observed(_)),
            trace,
            top_logprobs: TOP_LOGPROBS,
            header: header.map(|(key, value)| (key.to_owned(), value)).into(),
        }))
    }
}

/// Nanoseconds a token of a run's steps; none when it took none.
pub fn step_ns(ran: &Ran) -> Option<f64> {
    let total: f64 = ran.step_ns.iter().map(|&ns| ns as f64).sum();
    (!ran.step_ns.is_empty()).then(|| total / ran.step_ns.len() as f64)
}

/// Nanoseconds from the text to the first token.
pub fn first_token_ns(ran: &Ran) -> f64 {
    ran.tokenize_ns.unwrap_or(0) as f64 + ran.prefill_ns as f64 + ran.first_token_ns as f64
}

/// Nanoseconds of prefill and all steps.
pub fn run_ns(ran: &Ran) -> f64 {
    ran.prefill_ns as f64 + ran.step_ns.iter().map(|&ns| ns as f64).sum::<f64>()
}
