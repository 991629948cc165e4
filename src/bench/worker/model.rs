//! A loaded model, as the worker's requests use it.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::super::protocol::{Load, Loaded, Ran, Run, StopRule};
use super::clock::{Clock, Marks};
use super::force::ForceError;
use super::options::{Options, OptionsError};
use super::record::Record;
use super::taps::Taps;
use crate::cli::digests::DigestError;
use crate::cli::packed;
use crate::engine::{
    Counters, Engine, EngineError, Generator, Limits, LoadOptions, Output, Prompt, Session, Step,
    StopReason,
};
use crate::output::OutputError;
use crate::packed::PackedPlace;
use crate::run::session::NUMERICS;
use crate::sampling::{ConfigError, Sampler, SamplerConfig};
use crate::tokenizer::{EncodeOptions, TokenId, Tokenizer, TokenizerError};
use crate::trace::TraceHeader;
use crate::trace::checksum::{Checksums, Fnv64};

/// Why a request could not be met.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The vocabulary.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The sampler.
    #[error(transparent)]
    Sampler(#[from] ConfigError),
    /// An option of the configuration.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The trace, or another file.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// What `force` was asked for.
    #[error(transparent)]
    Force(#[from] ForceError),
    /// The model, read for its digest.
    #[error(transparent)]
    Digest(#[from] DigestError),
    /// A packed copy that is neither there nor could be made.
    #[error("{0}")]
    NoCopy(String),
    /// A run before any load.
    #[error("no model is loaded: send `load` first")]
    NotLoaded,
    /// The generator did not take an event.
    #[error("the session has ended by an earlier error: send `load` again")]
    NotTaken,
    /// The text has no tokens.
    #[error("the prompt has no tokens")]
    EmptyPrompt,
}

/// A loaded model.
pub struct Model {
    pub(super) session: Session,
    tokenizer: Tokenizer,
    end_tokens: Vec<TokenId>,
    clock: Rc<Clock>,
    pub(super) taps: Rc<Taps>,
    /// The cache holds the tokens of a `force`, and nothing has run since.
    pub(super) forced: Cell<bool>,
    header: TraceHeader,
}

/// The most memory that this process has held, where the system tells (Linux).
fn peak_rss_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// What a dispatch left in its output.
pub(super) fn taken<T>(output: &Output<T>) -> Result<T, WorkerError> {
    Ok(output.take().ok_or(WorkerError::NotTaken)??)
}

/// Where the model's packed copy is, if it is wanted.
fn packed_place(options: &Options, model: &Path) -> Result<Option<PackedPlace>, WorkerError> {
    let place = || packed::place(&packed::shards(model), |_| ());
    let wanted = options.packed_cache.then(place);
    Ok(wanted.transpose()?)
}

/// Refuses to measure without the copy that was asked for.
fn check_copy(place: Option<&PackedPlace>, engine: &Engine) -> Result<(), WorkerError> {
    match (place, &engine.packed().kept) {
        (Some(place), Some(Err(_))) => {
            let notes = packed::notes(place, engine.packed());
            Err(WorkerError::NoCopy(notes.join("; ")))
        }
        _ => Ok(()),
    }
}

impl Model {
    /// Loads what `load` names.
    ///
    /// # Errors
    /// [`WorkerError`].
    pub fn load(load: &Load) -> Result<(Self, Loaded), WorkerError> {
        let options = Options::read(&load.options)?;
        let execution = options.execution(load.threads, load.threads_batch);
        let routes = options.routes().with_ubatch(load.n_ubatch);
        let place = packed_place(&options, &load.model)?;
        let engine_options = LoadOptions {
            n_ctx: Some(load.n_ctx),
            speculation: options.speculation(),
            cache_k: options.cache_k,
            cache_v: options.cache_v,
            packed: place.clone(),
            ..LoadOptions::new(execution, routes)
        };
        let clock = Rc::new(Clock::default());
        let begun = Instant::now();
        let engine = Engine::load_with(&load.model, &engine_options, &*clock)?;
        check_copy(place.as_ref(), &engine)?;
        let tokenizer = Tokenizer::from_metadata(engine.source().metadata())?;
        let marks = clock.take(0);
        let sampler = Sampler::new(&SamplerConfig::greedy(), engine.n_vocab())?;
        let ids = 0..TokenId::try_from(tokenizer.n_vocab()).unwrap_or(TokenId::MAX);
        let end_tokens = ids.filter(|&id| tokenizer.is_eog(id)).collect();
        let load_ns = ns(begun.elapsed());
        let loaded = Loaded {
            engine: "emel".to_owned(),
            engine_version: env!("CARGO_PKG_VERSION").to_owned(),
            engine_commit: option_env!("EMEL_COMMIT").unwrap_or("unknown").to_owned(),
            engine_compiler: option_env!("EMEL_COMPILER").unwrap_or("rustc").to_owned(),
            isa: execution.level.name().to_owned(),
            route: options.route_name().to_owned(),
            numerics: NUMERICS.to_owned(),
            threads: execution.lanes,
            threads_batch: execution.lanes_batch,
            thread_contract: format!(
                "{} lanes for decode, {} for prompts, meeting at a spin-then-park barrier",
                execution.lanes, execution.lanes_batch
            ),
            load_ns,
            pack_ns: marks.pack().map(ns),
            options: options.applied(),
        };
        let header = TraceHeader {
            engine: loaded.engine.clone(),
            engine_version: loaded.engine_version.clone(),
            threads: loaded.threads.to_string(),
            isa: loaded.isa.clone(),
            route: loaded.route.clone(),
            numerics: loaded.numerics.clone(),
            ..TraceHeader::default()
        };
        let limits = Limits {
            max_tokens: None,
            end_tokens: Vec::new(),
        };
        let taps = Rc::new(Taps::default());
        let observers = (Rc::clone(&clock), Rc::clone(&taps));
        let session = Session::new(engine, sampler, limits).observed_by(observers);
        let model = Model {
            session,
            tokenizer,
            end_tokens,
            clock,
            taps,
            forced: Cell::new(false),
            header,
        };
        Ok((model, loaded))
    }

    /// Generates once from an empty context.
    ///
    /// # Errors
    /// [`WorkerError`]; the model can be used again.
    pub fn run(&self, run: &Run) -> Result<Ran, WorkerError> {
        self.forced.set(false);
        self.session.forget();
        self.session.set_limits(Limits {
            max_tokens: Some(run.max_tokens),
            end_tokens: match run.stop {
                StopRule::Eog => self.end_tokens.clone(),
                StopRule::Limit => Vec::new(),
            },
        });
        let counted = self.session.engine().counters();
        self.clock.take(run.max_tokens);
        let encode = EncodeOptions {
            add_special: true,
            parse_special: true,
        };
        let begun = Instant::now();
        let mut prompt = self.tokenizer.encode(&run.text, encode);
        let tokenize_ns = ns(begun.elapsed());
        prompt.truncate(run.prompt_tokens.unwrap_or(usize::MAX));
        if prompt.is_empty() {
            return Err(WorkerError::EmptyPrompt);
        }
        let mut record = Record::begin(&self.header, run, &prompt)?;

        let mut generator = Generator::new(&self.session);
        let output = Output::new();
        generator.process_event(Prompt {
            tokens: &prompt,
            output: &output,
        });
        taken(&output)?;
        let mut ids = Vec::with_capacity(run.max_tokens);
        let stop = loop {
            let output = Output::new();
            generator.process_event(Step { output: &output });
            let stepped = taken(&output)?;
            if let Some(token) = stepped.token {
                ids.push(token.id);
                record.token(token, &self.session.logits())?;
            }
            // The limit is known without asking for one more.
            let limit = (ids.len() >= run.max_tokens).then_some(StopReason::Limit);
            if let Some(stop) = stepped.stop.or(limit) {
                break stop;
            }
        };
        let marks = self.clock.take(0);
        let begun = Instant::now();
        let text = self.text(&ids);
        let detokenize_ns = ns(begun.elapsed());
        let sums = record.finish(stop, &text)?;
        let sum = |of: fn(&Checksums) -> Fnv64| sums.as_ref().map(|sums| of(sums).to_string());
        Ok(Ran {
            tokenize_ns: Some(tokenize_ns),
            prefill_ns: marks.prefill().map_or(0, ns),
            first_token_ns: ns(marks.first_token),
            step_ns: marks.steps.iter().copied().map(ns).collect(),
            detokenize_ns: Some(detokenize_ns),
            stop: stop.name().to_owned(),
            output_bytes: text.len(),
            text_checksum: sum(|sums| sums.text),
            ids_checksum: sum(|sums| sums.ids),
            logits_checksum: sum(|sums| sums.logits),
            peak_rss_bytes: peak_rss_bytes().unwrap_or(0),
            counters: self.counters(counted, &marks),
            prompt_ids: prompt,
            ids,
        })
    }

    fn text(&self, ids: &[TokenId]) -> String {
        let mut detokenizer = self.tokenizer.detokenizer(false);
        let mut text = String::new();
        for &id in ids {
            text.push_str(detokenizer.push(id));
        }
        text.push_str(detokenizer.finish());
        text
    }

    fn counters(&self, before: Counters, marks: &Marks) -> BTreeMap<String, u64> {
        let now = self.session.engine().counters();
        let of_this_run = now.named().zip(before.named());
        let of_this_run = of_this_run.map(|((name, now), (_, before))| (name, now - before));
        let used = |(_, count): &(String, u64)| *count > 0;
        let steps = ("decode_steps".to_owned(), marks.steps.len() as u64);
        let all = of_this_run.filter(used).chain(marks.routes());
        all.chain([steps]).collect()
    }
}
