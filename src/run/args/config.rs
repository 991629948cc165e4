//! What a command line asks for, as plain data. Nothing here opens a file or looks at the
//! machine; the session does, with this in hand.

use std::path::PathBuf;

use emel_kernels::{CacheType, Level};

use crate::engine::Route;
use crate::gguf::Value;
use crate::sampling::SamplerConfig;

/// A choice that may be left to the program: chat mode, colour, thinking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Switch {
    /// Decided when more is known (is there a template, is this a terminal).
    #[default]
    Auto,
    /// On.
    On,
    /// Off.
    Off,
}

/// How many tokens to generate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Predict {
    /// Until the model ends (-1).
    #[default]
    Endless,
    /// Until the context is full (-2).
    UntilFull,
    /// At most this many.
    Count(u32),
}

/// Where a text comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The command line.
    Text(String),
    /// A file, whose last newline is dropped.
    File(PathBuf),
    /// Standard input to its end, whose last newline is dropped (`-f -`).
    Stdin,
    /// A file taken as it is.
    Binary(PathBuf),
}

/// Where the chat template comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TemplateSource {
    /// The model's metadata.
    #[default]
    Model,
    /// The name of a known template, or a template's text.
    NameOrText(String),
    /// A file.
    File(PathBuf),
}

/// Everything that `emel-run` was asked to do.
#[derive(Clone, Debug)]
pub struct RunConfig {
    /// The model file; none = the quickstart model.
    pub model: Option<PathBuf>,
    /// Metadata overrides, in order.
    pub overrides: Vec<(String, Value)>,

    /// Threads of decode; none = every core that this process may use.
    pub threads: Option<usize>,
    /// Threads of prefill; none = as `threads`.
    pub threads_batch: Option<usize>,
    /// Instruction set; none = the best of the processor. It may be one that this processor
    /// has not.
    pub isa: Option<Level>,
    /// Prefill route; none = by the number of tokens that are left.
    pub route: Option<Route>,

    /// Context length in tokens; 0 = the model's.
    pub n_ctx: u32,
    /// How keys are cached.
    pub cache_k: CacheType,
    /// How values are cached.
    pub cache_v: CacheType,
    /// Map a packed copy of the model, and make it if need be.
    pub packed_cache: bool,
    /// Tokens to generate.
    pub n_predict: Predict,
    /// Logical batch, in tokens.
    pub n_batch: u32,
    /// Physical batch, in tokens; never above `n_batch`.
    pub n_ubatch: u32,

    /// Whether output is drafted ahead.
    pub speculate: bool,
    /// Most tokens of a draft; none = the engine's default.
    pub draft_max: Option<u32>,
    /// Fewest tokens of a draft; none = the engine's default.
    pub draft_min: Option<u32>,

    /// The prompt, if one was given.
    pub prompt: Option<Source>,
    /// Whether `\n` and the like are processed in `-p`, `-r` and DRY breakers. Already done
    /// in those fields; kept for texts that are read later.
    pub escape: bool,
    /// The system prompt.
    pub system: Option<Source>,
    /// Chat mode.
    pub chat: Switch,
    /// One turn, then exit.
    pub single_turn: bool,
    /// Input ends with an empty line instead of each line's end.
    pub multiline_input: bool,
    /// Texts that end the generation.
    pub stop: Vec<String>,
    /// Chat template.
    pub template: TemplateSource,
    /// Extra variables of the template.
    pub template_kwargs: serde_json::Map<String, serde_json::Value>,
    /// Thinking, for templates that know `enable_thinking`.
    pub reasoning: Switch,

    /// Random seed; none = a fresh one, printed. [`SamplerConfig::seed`] is set from it.
    pub seed: Option<u32>,
    /// The sampler chain.
    pub sampling: SamplerConfig,
    /// Rule out every end-of-generation token.
    pub ignore_eos: bool,

    /// Whether the prompt is printed before the answer.
    pub display_prompt: bool,
    /// Print each prompt token as `id -> 'piece'` to standard error.
    pub verbose_prompt: bool,
    /// Print control tokens.
    pub special: bool,
    /// Colour.
    pub color: Switch,
    /// No bars, no colour, no cursor movement.
    pub simple_io: bool,
    /// Print the timings block.
    pub timings: bool,
    /// 0 = nothing but failures, 3 = default, 5 = everything.
    pub verbosity: u8,

    /// Transcript file.
    pub output: Option<PathBuf>,
    /// Token trace file.
    pub trace: Option<PathBuf>,
    /// How many next-best tokens each trace line carries.
    pub top_logprobs: usize,
    /// Print the three checksums.
    pub logits_checksum: bool,

    /// Print the prompt's token ids and exit.
    pub tokenize: bool,
    /// Without the model's leading token (`--tokenize`).
    pub no_bos: bool,
    /// Special tokens in the text are plain text (`--tokenize`).
    pub no_parse_special: bool,

    /// What was accepted without effect; printed once at the start.
    pub notes: Vec<String>,
}

impl Default for RunConfig {
    fn default() -> Self {
        RunConfig {
            model: None,
            overrides: Vec::new(),
            threads: None,
            threads_batch: None,
            isa: None,
            route: None,
            n_ctx: 0,
            cache_k: CacheType::default(),
            cache_v: CacheType::default(),
            packed_cache: false,
            n_predict: Predict::Endless,
            n_batch: 2048,
            n_ubatch: 512,
            speculate: false,
            draft_max: None,
            draft_min: None,
            prompt: None,
            escape: true,
            system: None,
            chat: Switch::Auto,
            single_turn: false,
            multiline_input: false,
            stop: Vec::new(),
            template: TemplateSource::Model,
            template_kwargs: serde_json::Map::new(),
            reasoning: Switch::Auto,
            seed: None,
            sampling: SamplerConfig::default(),
            ignore_eos: false,
            display_prompt: true,
            verbose_prompt: false,
            special: false,
            color: Switch::Auto,
            simple_io: false,
            timings: true,
            verbosity: 3,
            output: None,
            trace: None,
            top_logprobs: 0,
            logits_checksum: false,
            tokenize: false,
            no_bos: false,
            no_parse_special: false,
            notes: Vec::new(),
        }
    }
}
