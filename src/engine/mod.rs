//! How a model runs: generator, prefill, layer and matmul machines over the kernels.
//!
//! An [`Engine`] is a loaded model with its cache and lanes. Machines choose and actions compute:
//! the generator ([`Generator`]) takes prompts and steps, the prefill machine picks routes, the
//! advance machine decides whether a step is plain, verifies a draft or needs no pass, the embed
//! machine where a token's row is found, the layer machine the form of each layer, the matmul
//! machine the activations' quantization, and the fork machine one lane or all. docs/machines.md
//! draws them. An [`Observer`] hears what happens and sees the tensors of every pass.

mod advance;
mod counters;
mod dispatch;
mod embed;
mod error;
mod fork;
mod forward;
mod generator;
mod head;
mod layer;
mod load_options;
mod loader;
mod matmul;
mod memory;
mod observer;
mod policy;
mod pools;
mod prefill;
mod session;
mod speculation;
mod weights;
mod workspace;

pub use counters::Counters;
pub use dispatch::NullMachine;
pub use error::EngineError;
pub use generator::{Generator, Halt, Output, Prefilled, Prompt, Step, Stepped, StopReason};
pub use load_options::LoadOptions;
pub use observer::{Event, Observer, Tensor};
pub use policy::{ExecutionPolicy, Route, RoutePolicy, UnknownRoute};
pub use prefill::RouteCounts;
pub use session::{Limits, Selected, Session};
pub use speculation::{SpeculationPolicy, VerifyCosts};

use crate::gguf::Gguf;
use crate::model::ModelSpec;
use crate::packed::PackedReport;
use crate::tokenizer::TokenId;
use emel_kernels::{Kernels, RopeTable};

/// A loaded model, its cache, its lanes and its buffers.
pub struct Engine {
    spec: ModelSpec,
    source: Gguf,
    embedding: weights::Embedding,
    weights: weights::Weights,
    kernels: Kernels,
    ropes: Vec<RopeTable>,
    memory: memory::Memory,
    workspace: workspace::Workspace,
    pools: pools::Pools,
    execution: ExecutionPolicy,
    routes: RoutePolicy,
    /// Hears every event and sees every tensor.
    observer: Box<dyn Observer>,
    /// The row of the residual stream that holds the last token that passed.
    last_row: usize,
    /// The row of the workspace's logits that the next token is selected from.
    logits_row: usize,
    /// What is drafted, and whether drafting pays.
    speculator: speculation::Speculator,
    /// What became of the packed copy.
    packed: PackedReport,
}

impl Engine {
    /// The model's sizes and routes.
    pub fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    /// The file the model came from.
    pub fn source(&self) -> &Gguf {
        &self.source
    }

    /// Tokens the context holds.
    pub fn n_ctx(&self) -> usize {
        self.memory.n_ctx()
    }

    /// Size of the vocabulary.
    pub fn n_vocab(&self) -> usize {
        self.spec.n_vocab
    }

    /// The policy the engine was made with.
    pub fn execution(&self) -> ExecutionPolicy {
        self.execution
    }

    /// What became of the packed copy, if one was asked for.
    pub fn packed(&self) -> &PackedReport {
        &self.packed
    }

    /// Bytes that a full key-value cache takes.
    pub fn cache_bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// What has run since the engine was loaded.
    pub fn counters(&self) -> Counters {
        Counters {
            products: self.workspace.buffers.counts,
            forks: self.pools.counts,
            drafts: self.speculator.counts(),
        }
    }

    /// The logits of the last token, `[n_vocab]`.
    pub fn logits(&self) -> &[f32] {
        let n = self.spec.n_vocab;
        &self.workspace.logits[self.logits_row * n..][..n]
    }

    /// Tokens in the cache, first to last.
    pub fn cached_tokens(&self) -> &[TokenId] {
        self.memory.tokens()
    }

    /// True when no further token fits.
    pub fn is_full(&self) -> bool {
        self.memory.n_past() >= self.memory.n_ctx()
    }

    /// Forgets every cached token.
    fn forget(&mut self) {
        self.speculator.begin();
        self.memory.clear();
    }

    /// How many tokens of `prompt`, the last one excepted, the cache begins with.
    fn common_prefix(&self, prompt: &[TokenId]) -> usize {
        let pairs = prompt.iter().zip(self.memory.tokens());
        let common = pairs.take_while(|(a, b)| a == b).count();
        common.min(prompt.len() - 1)
    }

    /// Whether the cache no longer holds a sliding window before the place where it and `prompt`
    /// part.
    fn has_lost_window(&self, prompt: &[TokenId]) -> bool {
        let position = self.common_prefix(prompt);
        !self.memory.holds_windows(&self.spec.layers, position)
    }

    /// Drops what is cached beyond the longest beginning that `prompt` shares, its last token
    /// excepted, and returns the length of that beginning.
    fn keep_common_prefix(&mut self, prompt: &[TokenId]) -> usize {
        let n_kept = self.common_prefix(prompt);
        self.speculator.begin();
        self.memory.truncate(n_kept);
        n_kept
    }
}
