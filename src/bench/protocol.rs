//! What `emel-bench` and a backend say to each other, `emel-backend/v1`: one JSON object a line,
//! requests on the backend's standard input, exactly one answer to each on its standard output.
//! What a backend writes to standard error is kept for messages. A backend ends when its standard
//! input ends.
//!
//! Times are nanoseconds. Unknown keys are ignored by both sides, so that either may be newer.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Request {
    /// Load a model; whatever was loaded before is dropped first.
    Load(Load),
    /// Generate once from an empty context.
    Run(Run),
    /// Feed given tokens in place of chosen ones, and give the logits after each.
    Force(Force),
    /// Set up one kernel case; whatever was set up before is dropped first.
    PrepareKernel(KernelCase),
    /// Time the kernel case that is set up.
    RunKernel(Repeat),
    /// Time the meeting of all threads.
    Barrier(Barrier),
}

impl Request {
    /// The request's `op`.
    pub fn name(&self) -> &'static str {
        match self {
            Request::Load(_) => "load",
            Request::Run(_) => "run",
            Request::Force(_) => "force",
            Request::PrepareKernel(_) => "prepare_kernel",
            Request::RunKernel(_) => "run_kernel",
            Request::Barrier(_) => "barrier",
        }
    }
}

/// Load a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// The GGUF file.
    pub model: PathBuf,
    /// Threads of decode.
    pub threads: usize,
    /// Threads of prompt processing.
    pub threads_batch: usize,
    /// Tokens of context.
    pub n_ctx: usize,
    /// Physical batch.
    pub n_ubatch: usize,
    /// The backend's own options, as its manifest's configuration gives them.
    #[serde(default)]
    pub options: Map<String, Value>,
}

/// Generate once: greedy, the lowest id on a tie.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The text, already formatted; special tokens in it are parsed, and the tokens that the model
    /// adds to every text (BOS) are added.
    pub text: String,
    /// Cut the prompt to its first so many tokens.
    pub prompt_tokens: Option<usize>,
    /// Most tokens to generate.
    pub max_tokens: usize,
    /// Whether an end-of-generation token ends it, or only the count.
    pub stop: StopRule,
    /// Compute checksums and, if `trace` names a file, write the trace: for a run whose times do
    /// not count.
    pub observe: bool,
    /// Where the trace goes.
    pub trace: Option<PathBuf>,
    /// How many runners-up a trace's lines hold.
    #[serde(default)]
    pub top_logprobs: usize,
    /// What the trace's header says beyond what the backend knows: `model_sha256`, `workload_id`,
    /// `lane`, ...
    #[serde(default)]
    pub header: BTreeMap<String, String>,
}

/// What ends generation before the most tokens are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopRule {
    /// An end-of-generation token.
    Eog,
    /// Nothing.
    Limit,
}

impl StopRule {
    /// As requests, manifests and records write it.
    pub fn name(self) -> &'static str {
        match self {
            StopRule::Eog => "eog",
            StopRule::Limit => "limit",
        }
    }
}

/// Feed given tokens: teacher forcing. The tokens pass as they do in a [`Run`]: the prompt at once,
/// every later one as a step of its own; so the logits are, bit by bit, those of a run that chose
/// these tokens. Files are overwritten.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Force {
    /// The tokens.
    pub ids: Vec<u32>,
    /// How many of them, from the first on, are the prompt of an empty context; 0 goes on from
    /// where the last `force` ended.
    pub prompt: usize,
    /// Where logits go, f32 in little-endian order, `[rows, n_vocab]`: a row after the prompt, and
    /// one after every later token.
    pub logits: PathBuf,
    /// Where the tensors of the last token go, f32 in little-endian order, one after the other.
    pub tensors: Option<PathBuf>,
}

/// One kernel, at one shape.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kernel", rename_all = "snake_case")]
pub enum KernelCase {
    /// `[tokens, cols] x [rows, cols]^T`: activations in f32, quantized inside the timed part;
    /// weights packed outside it.
    Matmul {
        /// The weights' type, as GGUF names it, in lower case: `q4_k`.
        ty: String,
        /// Output elements a token.
        rows: usize,
        /// Length of a dot product.
        cols: usize,
        /// Tokens.
        tokens: usize,
        /// Threads.
        threads: usize,
        /// The backend's own options.
        #[serde(default)]
        options: Map<String, Value>,
    },
    /// Causal attention of `tokens` queries, the last of them at position `depth - 1`, over an f16
    /// cache.
    Attention {
        /// Query heads.
        n_head: usize,
        /// Key and value heads.
        n_head_kv: usize,
        /// Width of a head.
        head_dim: usize,
        /// Cached positions, the queries' own included.
        depth: usize,
        /// Queries.
        tokens: usize,
        /// Threads.
        threads: usize,
        /// The backend's own options.
        #[serde(default)]
        options: Map<String, Value>,
    },
    /// RMS norm with weights, `[tokens, width]`.
    RmsNorm {
        /// Elements a token.
        width: usize,
        /// Tokens.
        tokens: usize,
        /// Threads.
        threads: usize,
        /// The backend's own options.
        #[serde(default)]
        options: Map<String, Value>,
    },
}

/// How often to time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repeat {
    /// Samples to take.
    pub samples: usize,
    /// Least time of a sample; the operation is repeated within it.
    pub min_sample_ns: u64,
}

/// Time the meeting of all threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Barrier {
    /// Threads that meet.
    pub threads: usize,
    /// How often to time.
    #[serde(flatten)]
    pub repeat: Repeat,
}

/// An answer: why not, or what was asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Answer<T> {
    /// Not done. The backend goes on.
    Failed {
        /// Why.
        error: String,
    },
    /// Done.
    Done(T),
}

/// A model is loaded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Loaded {
    /// `emel`, `llama.cpp`, ...
    pub engine: String,
    /// Its version.
    pub engine_version: String,
    /// The commit it was built from, or `unknown`.
    pub engine_commit: String,
    /// The compiler that built it, with its version.
    pub engine_compiler: String,
    /// Instruction set in use, as the engine names it.
    pub isa: String,
    /// Prefill route, or `-`.
    pub route: String,
    /// Name of the arithmetic, or `-`.
    pub numerics: String,
    /// Threads of decode that really run.
    pub threads: usize,
    /// Threads of prompt processing that really run.
    pub threads_batch: usize,
    /// In words: what the threads are and how they meet.
    pub thread_contract: String,
    /// The whole load: weights, packing included, vocabulary and buffers.
    pub load_ns: u64,
    /// Packing alone, where the engine can tell.
    pub pack_ns: Option<u64>,
    /// Options as they were applied.
    #[serde(default)]
    pub options: Map<String, Value>,
}

/// A generation is done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ran {
    /// The prompt, as this engine reads it.
    pub prompt_ids: Vec<u32>,
    /// What was generated, an end-of-generation token included.
    pub ids: Vec<u32>,
    /// Why it ended: `eog`, `limit` or `context_full`.
    pub stop: String,
    /// Bytes of generated text.
    pub output_bytes: usize,
    /// Text to ids.
    pub tokenize_ns: Option<u64>,
    /// The prompt through the model, the last token's logits included.
    pub prefill_ns: u64,
    /// Choosing the first token from those logits.
    pub first_token_ns: u64,
    /// Every later token: the model's step and the choice. One entry a token.
    pub step_ns: Vec<u64>,
    /// All ids to text.
    pub detokenize_ns: Option<u64>,
    /// FNV-1a 64 over the text's bytes, as 16 hex digits; of an observed run.
    pub text_checksum: Option<String>,
    /// Over the generated ids, little-endian u32.
    pub ids_checksum: Option<String>,
    /// Over the bits of every logits vector that a token was chosen from.
    pub logits_checksum: Option<String>,
    /// Most memory the process has held.
    pub peak_rss_bytes: u64,
    /// What ran how often: routes, kernels, ...
    #[serde(default)]
    pub counters: BTreeMap<String, u64>,
}

/// Tokens were fed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Forced {
    /// Rows of logits written.
    pub rows: usize,
    /// Logits in a row.
    pub n_vocab: usize,
    /// What the tensors file holds, in its order; empty when none was asked for.
    #[serde(default)]
    pub tensors: Vec<TensorPlace>,
}

/// A tensor in the file of a [`Force`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TensorPlace {
    /// The layer; none for what belongs to no layer.
    pub layer: Option<usize>,
    /// Where in the pass: a name of [`Point`](crate::model::Point). Others are ignored.
    pub point: String,
    /// Its values in the file.
    pub len: usize,
}

/// A kernel case is set up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelReady {
    /// `emel`, `llama.cpp`, ...
    pub engine: String,
    /// Its version.
    pub engine_version: String,
    /// Instruction set in use, as the engine names it.
    pub isa: String,
    /// What exactly runs, in words: the tile, the buffer type, ...
    pub variant: String,
}

/// Samples of one operation's time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timed {
    /// Mean time of one operation within each sample.
    pub ns: Vec<f64>,
    /// Operations in each sample.
    pub operations: u64,
}
