//! One workload: what a manifest in `benchdata/workloads` says.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Document, WorkloadError};
use crate::bench::protocol::StopRule;
use emel_kernels::Level;

/// What a workload's `schema` must be.
pub const WORKLOAD_SCHEMA: &str = "emel-workload/v1";

/// The most tokens that any count in a manifest may ask for.
const MAX_TOKENS: usize = 1 << 20;

/// A workload: everything that a measurement depends on but engine, machine and threads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// [`WORKLOAD_SCHEMA`].
    pub schema: String,
    /// Its name, the manifest's file name without `.json`:
    /// `qwen3_4b_single_user_hello_max_tokens_1000_v1`. What the id stands for never changes; a
    /// changed workload has a new version.
    pub id: String,
    /// The model's name in `models.json`.
    pub model: String,
    /// The prompt's file in `benchdata/prompts`.
    pub prompt: String,
    /// How the prompt becomes the text that is fed.
    pub formatter: Formatter,
    /// Cut the formatted prompt to its first so many tokens.
    pub prompt_tokens: Option<usize>,
    /// How a token is chosen.
    pub sampling: Sampling,
    /// What ends generation before `max_tokens`.
    pub stop: StopRule,
    /// Seed of whatever draws; greedy choice draws nothing.
    pub seed: u64,
    /// Most tokens to generate, at least 1.
    pub max_tokens: usize,
    /// The lanes it is measured in.
    pub lanes: Vec<Lane>,
    /// Whether each run has a new process.
    pub process: ProcessRule,
    /// Whether engines' speeds on it may be compared as a ratio.
    pub comparable: bool,
    /// Why, or why not.
    pub comparable_reason: String,
    /// Names of the suites it belongs to. Every workload belongs to `full`, which no manifest
    /// names.
    pub suites: Vec<String>,
    /// What it is about: a reference's fastest configuration is sought for these phases, and no
    /// ratio of others is shown. By default both; of a cold process the time to the first token.
    pub phases: Option<Vec<Phase>>,
    /// Tokens of context; by default as many as the prompt and `max_tokens` need.
    pub n_ctx: Option<usize>,
    /// Whether EMEL maps a packed copy of the model, which the run that warms up makes if need be.
    pub packed_cache: Option<bool>,
    /// Instruction set of EMEL's kernels, where the command line names none; by default the best.
    pub isa: Option<String>,
}

/// How a prompt becomes the text that is fed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Formatter {
    /// As it is.
    Raw,
    /// As a user's one turn, through the model's own chat template, the opening of the answer
    /// included. EMEL renders it for every engine, so that all are fed the same text.
    Template,
}

/// A phase of a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The prompt through the model.
    Prefill,
    /// Generated tokens after the first.
    Decode,
}

/// How a token is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sampling {
    /// The highest logit, the lowest id on a tie.
    Argmax,
}

/// How many threads an engine gets.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
pub enum Lane {
    /// One thread for everything.
    Single,
    /// As many threads as the machine has physical cores, or as the command line says.
    Multithreaded,
}

/// Whether runs share a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessRule {
    /// A model is loaded once and runs several times.
    Warm,
    /// Every run starts a process and loads the model: what a person waits for.
    Cold,
}

impl Formatter {
    /// As manifests and records write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Formatter::Raw => "raw",
            Formatter::Template => "template",
        }
    }
}

impl Sampling {
    /// As manifests and records write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Sampling::Argmax => "argmax",
        }
    }
}

impl Lane {
    /// As manifests and records write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Lane::Single => "single",
            Lane::Multithreaded => "multithreaded",
        }
    }
}

impl std::fmt::Display for Lane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl ProcessRule {
    /// As manifests and records write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ProcessRule::Warm => "warm",
            ProcessRule::Cold => "cold",
        }
    }
}

impl Workload {
    /// Reads a manifest and checks what can be checked without the rest of the library.
    ///
    /// # Errors
    /// [`WorkloadError::Read`], [`WorkloadError::Manifest`].
    pub fn read(path: &Path) -> Result<(Workload, Document), WorkloadError> {
        let document = Document::read(path)?;
        let workload: Workload = document.parse(WORKLOAD_SCHEMA)?;
        workload.check(&document)?;
        Ok((workload, document))
    }

    fn check(&self, document: &Document) -> Result<(), WorkloadError> {
        let fail = |field: &str, problem: String| Err(document.fault(field, problem));
        if !is_id(&self.id) {
            return fail(
                "id",
                format!(
                    "`{}` must be lower-case letters, digits and _, and end in a version as _v1",
                    self.id
                ),
            );
        }
        let stem = document.path().file_stem().unwrap_or_default();
        if stem != self.id.as_str() {
            let stem = stem.to_string_lossy();
            return fail(
                "id",
                format!("must be the file's name, `{stem}`, is `{}`", self.id),
            );
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if !self.prompt.chars().all(is_plain) || self.prompt.trim_matches('.').is_empty() {
            return fail(
                "prompt",
                format!("`{}` must be the name of a file in prompts/", self.prompt),
            );
        }
        let counts = [
            ("max_tokens", Some(self.max_tokens)),
            ("prompt_tokens", self.prompt_tokens),
            ("n_ctx", self.n_ctx),
        ];
        for (field, count) in counts {
            if count.is_some_and(|count| !(1..=MAX_TOKENS).contains(&count)) {
                return fail(field, format!("must be from 1 to {MAX_TOKENS}"));
            }
        }
        let needed = self.prompt_tokens.unwrap_or(1) + self.max_tokens;
        if self.n_ctx.is_some_and(|n_ctx| n_ctx < needed) {
            return fail(
                "n_ctx",
                format!("must be at least {needed}: prompt and output"),
            );
        }
        if self.lanes.is_empty() {
            return fail("lanes", "must name at least one lane".to_owned());
        }
        if has_twice(&self.lanes) {
            return fail("lanes", "names a lane twice".to_owned());
        }
        if let Some(phases) = &self.phases
            && (phases.is_empty() || has_twice(phases))
        {
            return fail(
                "phases",
                "must name each phase once, at least one".to_owned(),
            );
        }
        if self.packed_cache == Some(true) && self.process != ProcessRule::Cold {
            // The process that makes a copy does not run from it.
            return fail("packed_cache", "needs `\"process\": \"cold\"`".to_owned());
        }
        if let Some(Err(error)) = self.isa.as_ref().map(|name| name.parse::<Level>()) {
            return fail("isa", error.to_string());
        }
        if self.comparable_reason.trim().is_empty() {
            return fail("comparable_reason", "must say why (or why not)".to_owned());
        }
        if self.suites.iter().any(|suite| !is_name(suite)) {
            return fail(
                "suites",
                "names must be lower-case letters, digits and _".to_owned(),
            );
        }
        if has_twice(&self.suites) {
            return fail("suites", "names a suite twice".to_owned());
        }
        if self.suites.iter().any(|suite| suite == FULL) {
            return fail(
                "suites",
                format!("`{FULL}` is every workload's; leave it out"),
            );
        }
        Ok(())
    }
}

/// The suite of all workloads.
pub(super) const FULL: &str = "full";

fn has_twice<T: PartialEq>(list: &[T]) -> bool {
    list.iter()
        .enumerate()
        .any(|(at, item)| list[..at].contains(item))
}

/// Whether a text can name a model or a suite: `^[a-z0-9_]+$`.
pub(super) fn is_name(text: &str) -> bool {
    let is_plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_';
    !text.is_empty() && text.bytes().all(is_plain)
}

/// Whether a text can be a workload's id: `^[a-z0-9_]+_v[0-9]+$`.
fn is_id(text: &str) -> bool {
    let Some((name, version)) = text.rsplit_once("_v") else {
        return false;
    };
    is_name(name) && !version.is_empty() && version.bytes().all(|c| c.is_ascii_digit())
}
