//! One workload in one lane, on one engine in one configuration.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::groups::{read, read_prefixed, read_ratio, read_samples};
use super::groups::{write_prefixed, write_ratio, write_samples};
use super::{Fault, Head, Hex64, Kind};
use crate::bench::stats::{Ratio, Samples};

/// One workload in one lane, on one engine in one configuration. What is not known is none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Generation {
    /// What all kinds share.
    #[serde(skip)]
    pub head: Head,
    /// The end of what the engine wrote to standard error, when it failed.
    pub stderr_tail: Option<String>,
    /// The commit the engine was built from.
    pub engine_commit: Option<String>,
    /// The compiler that built it.
    pub engine_compiler: Option<String>,
    /// The backend's id.
    pub backend: String,
    /// Its configuration.
    pub config: Option<String>,

    /// The workload's id.
    pub workload_id: String,
    /// The model's name in the list.
    pub model: String,
    /// SHA-256 of its file, in hex.
    pub model_sha256: Option<String>,
    /// Bytes of its file.
    pub model_bytes: Option<u64>,
    /// `raw` or `template`.
    pub formatter: String,
    /// `argmax`.
    pub sampling: String,
    /// `eog` or `limit`: what may end generation.
    pub stop_rule: String,
    /// Seed of whatever draws.
    pub seed: u64,
    /// Most tokens to generate.
    pub max_tokens: u64,
    /// Whether engines' speeds on it may be compared.
    pub comparable: bool,
    /// Why, or why not.
    pub comparable_reason: String,
    /// `warm` or `cold`: whether each run has a new process.
    pub process: String,

    /// `single` or `multithreaded`.
    pub lane: String,
    /// Threads of prompt processing.
    pub threads_batch: Option<u64>,
    /// In words: what the threads are and how they meet.
    pub thread_contract: Option<String>,
    /// Prefill route.
    pub route: Option<String>,
    /// Name of the arithmetic.
    pub numerics: Option<String>,
    /// Tokens of context.
    pub n_ctx: Option<u64>,
    /// Physical batch.
    pub n_ubatch: Option<u64>,

    /// Tokens of the prompt.
    pub prompt_tokens: Option<u64>,
    /// FNV-1a 64 over the prompt's ids, little-endian u32.
    pub prompt_checksum: Option<Hex64>,
    /// Tokens generated.
    pub output_tokens: Option<u64>,
    /// Bytes of their text.
    pub output_bytes: Option<u64>,
    /// What ended generation: `eog`, `limit`, `context_full`.
    pub stop: Option<String>,
    /// FNV-1a 64 over the text's bytes.
    pub text_checksum: Option<Hex64>,
    /// FNV-1a 64 over the generated ids, little-endian u32.
    pub ids_checksum: Option<Hex64>,
    /// FNV-1a 64 over the bits of every logits vector that a token was chosen from.
    pub logits_checksum: Option<Hex64>,

    /// Runs that were timed.
    pub runs: u64,
    /// Prompt tokens a second, from the median.
    pub prefill_tokens_per_second: Option<f64>,
    /// Generated tokens a second after the first, from the median.
    pub decode_tokens_per_second: Option<f64>,
    /// Prompt and generated tokens over the time of both, from the medians.
    pub tokens_per_second: Option<f64>,
    /// Most memory the engine's process held.
    pub peak_rss_bytes: Option<u64>,
    /// Bytes of an f16 cache of `n_ctx` positions; a layer with a window keeps no more than that.
    /// Records of earlier versions do not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_bytes: Option<u64>,
    /// Bytes of weights that one decode step reads.
    pub weight_bytes_per_token: Option<u64>,
    /// Bytes of the cache that one decode step reads, at the mean depth.
    pub cache_bytes_per_token: Option<u64>,
    /// Both.
    pub bytes_per_token: Option<u64>,
    /// Bytes that decode reads a second.
    pub read_bytes_per_second: Option<f64>,
    /// The same as a share of the machine's read bandwidth.
    pub bandwidth_share: Option<f64>,
    /// Integer multiplications and additions of prefill a second.
    pub int8_ops_per_second: Option<f64>,
    /// The same as a share of the machine's rate.
    pub int8_share: Option<f64>,
    /// The machine's read bandwidth with these threads, as `emel-bench limits` measured it.
    pub machine_read_bytes_per_second: Option<f64>,
    /// The machine's integer rate with these threads.
    pub machine_int8_ops_per_second: Option<f64>,
    /// The token trace's file name, beside the records.
    pub trace: Option<String>,

    /// Options as they were applied: `options_*`.
    #[serde(skip)]
    pub options: Map<String, Value>,
    /// Times: `load_ns_*`, `prefill_ns_*`, ...
    #[serde(skip)]
    pub phases: Phases,
    /// What ran how often: `counter_*`.
    #[serde(skip)]
    pub counters: BTreeMap<String, u64>,
    /// In another engine's record: how EMEL compares with it.
    #[serde(skip)]
    pub ratios: Option<Ratios>,
}

/// Times of one generation's phases, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Phases {
    /// The whole load, packing included.
    pub load: Option<Samples>,
    /// Packing the weights.
    pub pack: Option<Samples>,
    /// The prompt's text to ids.
    pub tokenize: Option<Samples>,
    /// The prompt through the model.
    pub prefill: Option<Samples>,
    /// Choosing the first token.
    pub first_token: Option<Samples>,
    /// One generated token after the first.
    pub decode: Option<Samples>,
    /// One generated token's id to text.
    pub detokenize: Option<Samples>,
    /// From the request to the first token: tokenizing, prefill and the choice.
    pub ttft: Option<Samples>,
}

/// EMEL's speed over this engine's, of pairs of runs that alternated.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ratios {
    /// Of prefill.
    pub prefill: Option<Ratio>,
    /// Of decode.
    pub decode: Option<Ratio>,
    /// Of the time to the first token.
    pub ttft: Option<Ratio>,
    /// Of loading.
    pub load: Option<Ratio>,
    /// Of the whole generation.
    pub total: Option<Ratio>,
    /// The phases in which this configuration was its engine's fastest: `prefill`, `decode`.
    pub best_for: Vec<String>,
}

impl Generation {
    /// The backend, with its configuration where it has several.
    #[must_use]
    pub fn label(&self) -> String {
        match &self.config {
            Some(config) => format!("{} {config}", self.backend),
            None => self.backend.clone(),
        }
    }
}

impl Phases {
    /// The phases by name, in the order in which they happen.
    #[must_use]
    pub fn by_name(&self) -> [(&'static str, Option<&Samples>); 8] {
        [
            ("load", self.load.as_ref()),
            ("pack", self.pack.as_ref()),
            ("tokenize", self.tokenize.as_ref()),
            ("prefill", self.prefill.as_ref()),
            ("first_token", self.first_token.as_ref()),
            ("decode", self.decode.as_ref()),
            ("detokenize", self.detokenize.as_ref()),
            ("ttft", self.ttft.as_ref()),
        ]
    }
}

impl Ratios {
    /// The ratios by name.
    #[must_use]
    pub fn by_name(&self) -> [(&'static str, Option<&Ratio>); 5] {
        [
            ("prefill", self.prefill.as_ref()),
            ("decode", self.decode.as_ref()),
            ("ttft", self.ttft.as_ref()),
            ("load", self.load.as_ref()),
            ("total", self.total.as_ref()),
        ]
    }
}

impl Kind for Generation {
    const KIND: &'static str = "generation";

    fn head(&self) -> &Head {
        &self.head
    }

    fn head_mut(&mut self) -> &mut Head {
        &mut self.head
    }

    fn write_groups(&self, object: &mut Map<String, Value>) {
        write_prefixed(object, "options", &self.options);
        for (name, samples) in self.phases.by_name() {
            write_samples(object, &format!("{name}_ns"), samples);
        }
        write_prefixed(object, "counter", &self.counters);
        if let Some(ratios) = &self.ratios {
            for (name, ratio) in ratios.by_name() {
                write_ratio(object, &format!("emel_{name}_ratio"), ratio);
            }
            object.insert("best_for".to_owned(), ratios.best_for.clone().into());
        }
    }

    fn read_groups(&mut self, object: &Map<String, Value>) -> Result<(), Fault> {
        self.options = read_prefixed(object, "options")?;
        let samples = |name: &str| read_samples(object, &format!("{name}_ns"));
        self.phases = Phases {
            load: samples("load")?,
            pack: samples("pack")?,
            tokenize: samples("tokenize")?,
            prefill: samples("prefill")?,
            first_token: samples("first_token")?,
            decode: samples("decode")?,
            detokenize: samples("detokenize")?,
            ttft: samples("ttft")?,
        };
        self.counters = read_prefixed(object, "counter")?;
        let has_ratios =
            object.contains_key("best_for") || object.keys().any(|key| key.starts_with("emel_"));
        if has_ratios {
            let ratio = |name: &str| read_ratio(object, &format!("emel_{name}_ratio"));
            self.ratios = Some(Ratios {
                prefill: ratio("prefill")?,
                decode: ratio("decode")?,
                ttft: ratio("ttft")?,
                load: ratio("load")?,
                total: ratio("total")?,
                best_for: read(object, "best_for")?,
            });
        }
        Ok(())
    }
}
