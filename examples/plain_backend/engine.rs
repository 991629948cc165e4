//! A loaded model: what the requests `load`, `run` and `force` do.

use std::collections::BTreeMap;
use std::time::Instant;

use emel::bench::protocol::{Force, Forced, Load, Loaded, Ran, Run, StopRule, TensorPlace};
use emel::gguf::Gguf;
use emel::model::{self, Point};
use emel::output::AtomicFile;
use emel::sampling::argmax;
use emel::trace::TraceHeader;
use emel::trace::checksum::{Checksums, Fnv64};

use crate::defect::Defect;
use crate::error::PlainError;
use crate::forward::Transformer;
use crate::record::Record;
use crate::vocabulary::Vocabulary;
use crate::weights::Weights;

/// What traces and records call this engine.
const ENGINE: &str = "plain";
/// The most threads that make sense anywhere.
const MOST_THREADS: usize = 1024;
/// The longest context; what it costs is only paid as it fills.
const MOST_CONTEXT: usize = 1 << 24;
/// No more tokens pass at once, whatever is asked for: their activations must fit in memory.
const MOST_BATCH: usize = 512;

/// A loaded model.
pub struct Engine {
    vocabulary: Vocabulary,
    transformer: Transformer,
    late_stop: bool,
    threads: usize,
    threads_batch: usize,
    header: TraceHeader,
    /// The context is that of the last `force`, which may go on.
    fed: bool,
}

/// What was generated.
#[derive(Default)]
struct Reply {
    ids: Vec<u32>,
    /// For each token, the nanoseconds of the step that led to it and of the choice; for the
    /// first, of the choice alone.
    times: Vec<u64>,
    stop: &'static str,
}

/// The tensors of one token, and which they are.
#[derive(Default)]
struct Shown {
    places: Vec<TensorPlace>,
    values: Vec<f32>,
}

fn ns_since(begun: Instant) -> u64 {
    u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// The most memory that this process has held, where the system tells (Linux).
fn peak_rss_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let mut lines = status.lines();
    let kib = lines.find_map(|line| line.strip_prefix("VmHWM:")?.strip_suffix("kB"))?;
    Some(kib.trim().parse::<u64>().ok()? << 10)
}

fn check(field: &'static str, value: usize, most: usize) -> Result<(), PlainError> {
    let least = 1;
    match (least..=most).contains(&value) {
        true => Ok(()),
        false => Err(PlainError::Bounds {
            field,
            value,
            least,
            most,
        }),
    }
}

impl Engine {
    /// Loads what `load` names.
    pub fn load(load: &Load) -> Result<(Self, Loaded), PlainError> {
        check("threads", load.threads, MOST_THREADS)?;
        check("threads_batch", load.threads_batch, MOST_THREADS)?;
        check("n_ctx", load.n_ctx, MOST_CONTEXT)?;
        check("n_ubatch", load.n_ubatch, usize::MAX)?;
        let defect = Defect::read(&load.options)?;
        let defect = defect.as_ref();
        let begun = Instant::now();
        let gguf = Gguf::open(&load.model)?;
        let model = model::bind(&gguf)?;
        if let Some(defect) = defect {
            defect.check(&model.spec)?;
        }
        let vocabulary = Vocabulary::read(gguf.metadata(), defect)?;
        let weights = Weights::read(&gguf, &model, defect, load.threads_batch)?;
        let n_ubatch = load.n_ubatch.min(MOST_BATCH);
        let transformer = Transformer::new(model, weights, defect, load.n_ctx, n_ubatch);
        let loaded = Loaded {
            engine: ENGINE.to_owned(),
            engine_version: env!("CARGO_PKG_VERSION").to_owned(),
            engine_commit: option_env!("EMEL_COMMIT").unwrap_or("unknown").to_owned(),
            engine_compiler: option_env!("EMEL_COMPILER").unwrap_or("rustc").to_owned(),
            isa: "-".to_owned(),
            route: "-".to_owned(),
            numerics: "f32".to_owned(),
            threads: load.threads,
            threads_batch: load.threads_batch,
            thread_contract: "threads are started for each product that is worth it".to_owned(),
            load_ns: ns_since(begun),
            pack_ns: None,
            options: Defect::applied(defect),
        };
        let engine = Engine {
            vocabulary,
            transformer,
            late_stop: defect == Some(&Defect::LateStop),
            threads: load.threads,
            threads_batch: load.threads_batch,
            header: trace_header(&loaded),
            fed: false,
        };
        Ok((engine, loaded))
    }

    /// Generates once from an empty context.
    pub fn run(&mut self, run: &Run) -> Result<Ran, PlainError> {
        self.fed = false;
        self.transformer.reset();
        let begun = Instant::now();
        let mut prompt = self.vocabulary.encode(&run.text);
        let tokenize_ns = ns_since(begun);
        prompt.truncate(run.prompt_tokens.unwrap_or(usize::MAX));
        if prompt.is_empty() {
            return Err(PlainError::EmptyPrompt);
        }
        self.transformer.check(&prompt)?;
        let mut record = Record::begin(&self.header, run, &prompt)?;

        let begun = Instant::now();
        let logits = self.feed(&prompt, self.threads_batch)?;
        let prefill_ns = ns_since(begun);
        let reply = self.reply(run, logits, &mut record)?;

        let begun = Instant::now();
        let text = self.vocabulary.text(&reply.ids);
        let detokenize_ns = ns_since(begun);
        let sums = record.finish(reply.stop, &text)?;
        let sum = |of: fn(&Checksums) -> Fnv64| sums.as_ref().map(|sums| of(sums).to_string());
        Ok(Ran {
            prompt_ids: prompt,
            stop: reply.stop.to_owned(),
            output_bytes: text.len(),
            tokenize_ns: Some(tokenize_ns),
            prefill_ns,
            first_token_ns: reply.times.first().copied().unwrap_or(0),
            step_ns: reply.times.iter().skip(1).copied().collect(),
            detokenize_ns: Some(detokenize_ns),
            text_checksum: sum(|sums| sums.text),
            ids_checksum: sum(|sums| sums.ids),
            logits_checksum: sum(|sums| sums.logits),
            peak_rss_bytes: peak_rss_bytes().unwrap_or(0),
            counters: BTreeMap::new(),
            ids: reply.ids,
        })
    }

    /// Chooses tokens, the first from `logits`, until something ends it.
    fn reply(
        &mut self,
        run: &Run,
        mut logits: Vec<f32>,
        record: &mut Record,
    ) -> Result<Reply, PlainError> {
        let mut reply = Reply::default();
        if run.max_tokens == 0 {
            reply.stop = "limit";
            return Ok(reply);
        }
        let mut missed_end = false;
        let mut begun = Instant::now();
        loop {
            let (id, logit) = argmax(&logits)?;
            reply.times.push(ns_since(begun));
            reply.ids.push(id);
            record.token(id, logit, &logits)?;
            let is_end = run.stop == StopRule::Eog && self.vocabulary.is_end(id);
            if missed_end || (is_end && !self.late_stop) {
                reply.stop = "eog";
                return Ok(reply);
            }
            missed_end = is_end;
            if reply.ids.len() >= run.max_tokens {
                reply.stop = "limit";
                return Ok(reply);
            }
            if self.transformer.room() == 0 {
                reply.stop = "context_full";
                return Ok(reply);
            }
            begun = Instant::now();
            logits = self.feed(&[id], self.threads)?;
        }
    }

    /// Feeds given tokens, as a run that chose them would have.
    pub fn force(&mut self, force: &Force) -> Result<Forced, PlainError> {
        let goes_on = force.prompt == 0;
        if goes_on && !self.fed {
            return Err(PlainError::NothingFed);
        }
        if force.ids.is_empty() {
            return Err(PlainError::NoIds);
        }
        if force.tensors.as_ref() == Some(&force.logits) {
            return Err(PlainError::SameFile);
        }
        if !goes_on {
            check("prompt", force.prompt, force.ids.len())?;
            self.fed = false;
            self.transformer.reset();
        }
        self.transformer.check(&force.ids)?;
        let mut logits = AtomicFile::create(&force.logits)?;
        let mut tensors = match &force.tensors {
            Some(path) => Some(AtomicFile::create(path)?),
            None => None,
        };
        // What goes wrong from here on leaves the context in the middle of the tokens.
        self.fed = false;

        let (prompt, later) = force.ids.split_at(force.prompt);
        let prompt = (!goes_on).then_some((prompt, self.threads_batch));
        let later = later.chunks(1).map(|id| (id, self.threads));
        let steps: Vec<_> = prompt.into_iter().chain(later).collect();
        let rows = steps.len();
        let mut places = Vec::new();
        for (i, (ids, threads)) in steps.into_iter().enumerate() {
            let row = match &mut tensors {
                Some(file) if i + 1 == rows => {
                    let (row, shown) = self.feed_shown(ids, threads)?;
                    places = shown.places;
                    file.write(&bytes(&shown.values))?;
                    row
                }
                _ => self.feed(ids, threads)?,
            };
            logits.write(&bytes(&row))?;
        }
        logits.commit()?;
        if let Some(file) = tensors {
            file.commit()?;
        }
        self.fed = true;
        Ok(Forced {
            rows,
            n_vocab: self.transformer.n_vocab(),
            tensors: places,
        })
    }

    fn feed(&mut self, ids: &[u32], threads: usize) -> Result<Vec<f32>, PlainError> {
        self.transformer.pass(ids, threads, &mut |_, _, _| ())
    }

    /// Feeds tokens and gives, with the logits, the last one's tensors.
    fn feed_shown(&mut self, ids: &[u32], threads: usize) -> Result<(Vec<f32>, Shown), PlainError> {
        let mut shown = Shown::default();
        let mut show = |layer: Option<usize>, point: Point, values: &[f32]| {
            shown.places.push(TensorPlace {
                layer,
                point: point.name().to_owned(),
                len: values.len(),
            });
            shown.values.extend_from_slice(values);
        };
        let logits = self.transformer.pass(ids, threads, &mut show)?;
        Ok((logits, shown))
    }
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

/// What every trace of this engine says, the options among it.
fn trace_header(loaded: &Loaded) -> TraceHeader {
    let options = loaded.options.iter().map(|(name, value)| {
        let value = value.as_str().unwrap_or_default();
        (format!("options_{name}"), value.to_owned())
    });
    TraceHeader {
        engine: loaded.engine.clone(),
        engine_version: loaded.engine_version.clone(),
        threads: loaded.threads.to_string(),
        isa: loaded.isa.clone(),
        route: loaded.route.clone(),
        numerics: loaded.numerics.clone(),
        more: options.collect(),
        ..TraceHeader::default()
    }
}
