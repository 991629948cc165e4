//! Token traces, `emel-token-trace/v1`: what a run chose, token by token, as a text file that
//! can be compared, read by eye and replayed.
//!
//! ```text
//! # emel-token-trace/v1
//! # engine=emel
//! # isa=avx512
//! # prompt 1 504 3575
//! 0 2056 18.40625 253:17.5 260:16.25
//! 1 28 21.0
//! # stop=limit
//! ```
//!
//! Header lines are `# key=value`; then one `# prompt` line with the prompt's ids; then a line
//! for each generated token: index, id, logit, and the next best `id:logit` in descending
//! order; then why it ended. Every line ends with a newline. Logits are written with as many digits
//! as their bits need, so that reading gives the same bits; none is NaN. Readers ignore header keys
//! that they do not know; no key is there twice.
//!
//! Keys that EMEL's programs add where they know them say what the run is an answer to, so that two
//! traces alone show whether they can be compared: `formatter`, `sampling`, `stop_rule`, `seed`,
//! `max_tokens`.

pub mod checksum;
mod read;
mod write;

pub use read::{Trace, TraceError, TraceProblem, TraceToken};
pub use write::TraceWriter;

/// First line of a trace, after `# `.
pub const SCHEMA: &str = "emel-token-trace/v1";

/// The keys that a header must have, in the order they are written.
pub const REQUIRED_KEYS: [&str; 9] = [
    "engine",
    "engine_version",
    "model_sha256",
    "workload_id",
    "lane",
    "threads",
    "isa",
    "route",
    "numerics",
];

/// What a trace says about the run that it is from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceHeader {
    /// `emel`, `llama.cpp`, ...
    pub engine: String,
    /// Its version.
    pub engine_version: String,
    /// Digest of the model file, 64 hex digits.
    pub model_sha256: String,
    /// The workload, or `-` for a run of a person's.
    pub workload_id: String,
    /// The lane of the workload, or `-`.
    pub lane: String,
    /// Threads of decode.
    pub threads: String,
    /// Instruction set in use.
    pub isa: String,
    /// Prefill route asked for.
    pub route: String,
    /// Name of the arithmetic; traces with equal names must have equal bits.
    pub numerics: String,
    /// Further keys, in order.
    pub more: Vec<(String, String)>,
}

impl TraceHeader {
    /// The required pairs, in the order of [`REQUIRED_KEYS`].
    fn required(&self) -> [(&'static str, &str); 9] {
        let values = [
            &self.engine,
            &self.engine_version,
            &self.model_sha256,
            &self.workload_id,
            &self.lane,
            &self.threads,
            &self.isa,
            &self.route,
            &self.numerics,
        ];
        let mut pairs = REQUIRED_KEYS.map(|key| (key, ""));
        for (pair, value) in pairs.iter_mut().zip(values) {
            pair.1 = value;
        }
        pairs
    }
}

#[cfg(test)]
mod tests;
