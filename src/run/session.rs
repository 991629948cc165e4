//! A run of `emel-run`: finds and loads the model, then completes a text or holds a conversation.

use std::cell::RefCell;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;

use super::args::{Predict, RunConfig, Source, Switch, TemplateSource};
use super::chat;
use super::error::RunError;
use super::locate::quickstart_model;
use super::prompt::read_source;
use super::reading::Reading;
use super::reply::{self, Replier};
use super::sink::TextSink;
use super::timings::{Drafts, Timings};
use super::tokenize::{self, write_pieces};
use crate::cli::digest::sha256_files;
use crate::cli::interrupt::Interrupt;
use crate::cli::message::tell;
use crate::cli::packed;
use crate::cli::progress::{PATIENCE, Progress, Step, Unit};
use crate::engine::{
    Engine, Event, ExecutionPolicy, Generator, LoadOptions, Observer, RoutePolicy, Session,
    SpeculationPolicy, StopReason,
};
use crate::output::AtomicFile;
use crate::packed::PackedPlace;
use crate::sampling::{DryBreakers, Sampler, SamplerConfig};
use crate::tokenizer::{EncodeOptions, Tokenizer};
use crate::trace::TraceHeader;
use crate::trace::checksum::Checksums;

/// Name of the arithmetic that every trace of this engine states: equal names mean equal bits.
pub const NUMERICS: &str = "emel-2";

/// The level of `-v` at which a run says more about itself.
const TALKATIVE: u8 = 4;
/// The level below which warnings are left out.
const WARNINGS: u8 = 2;

/// Runs what `config` asks for. `begun` is when the program started.
///
/// # Errors
/// [`RunError`], whose text is ready to be shown.
pub fn run(config: &RunConfig, begun: Instant) -> Result<(), RunError> {
    let env = |name: &str| std::env::var_os(name);
    let model = config
        .model
        .clone()
        .or_else(|| quickstart_model(env))
        .ok_or(RunError::NoModel)?;
    if config.tokenize {
        return Ok(tokenize::tokenize(
            config,
            &model,
            &mut io::stdout().lock(),
        )?);
    }
    refuse_overwriting(config, &model)?;
    let interrupt = Interrupt::install().map_err(RunError::Interrupt)?;
    let transcript = config
        .output
        .as_deref()
        .map(AtomicFile::create)
        .transpose()?;
    let progress = Progress::for_stderr(config.simple_io, config.verbosity);
    let packed = packed_place(config, &model, progress)?;
    let engine = load(config, &model, packed.clone(), progress)?;
    if let Some(place) = &packed
        && config.verbosity >= WARNINGS
    {
        for note in packed::notes(place, engine.packed()) {
            tell(&note);
        }
    }
    let metadata = engine.source().metadata();
    let tokenizer = Tokenizer::from_metadata(metadata)?;
    let own = metadata
        .str("tokenizer.chat_template")
        .map_err(crate::engine::EngineError::from)?;
    let has_template = own.is_some();
    let in_chat = match config.chat {
        Switch::On => true,
        Switch::Off => false,
        Switch::Auto => {
            let asked = config.single_turn || config.system.is_some();
            has_template && (asked || io::stdin().is_terminal())
        }
    };
    let template = match in_chat {
        true => Some(chat::template(config, own)?.ok_or(RunError::NoTemplate)?),
        false => None,
    };
    let sampling = sampling(config, &tokenizer);
    let header = TraceHeader {
        more: contract(config, &sampling, in_chat),
        ..header(config, &engine, &model, progress)?
    };
    let sampler = sampler(&sampling, engine.n_vocab(), &tokenizer)?;
    warn(config, &engine, &sampling);
    let reading = Rc::new(Reading::new(interrupt.clone(), progress));
    let session = Session::new(engine, sampler, reply::limits(config, &tokenizer))
        .observed_by(Rc::clone(&reading));
    let mut replier = Replier {
        config,
        tokenizer: &tokenizer,
        session: &session,
        generator: Generator::new(&session),
        sink: TextSink::new(io::stdout(), transcript),
        interrupt,
        header,
        sums: Checksums::default(),
        timings: Timings {
            load: begun.elapsed(),
            ..Timings::default()
        },
    };
    match &template {
        Some(template) => chat::converse(&mut replier, template)?,
        None => complete(&mut replier)?,
    }
    let Replier {
        sink,
        sums,
        mut timings,
        ..
    } = replier;
    sink.finish()?;
    timings.total = begun.elapsed();
    let counters = session.engine().counters();
    timings.drafts = config.speculate.then(|| Drafts {
        drafted: counters.drafted(),
        accepted: counters.accepted(),
        passes: counters.verifying_passes(),
    });
    if config.logits_checksum {
        tell(&sums.to_string());
    }
    if config.timings {
        tell(&timings.to_string());
    }
    Ok(())
}

/// Refuses to write over the model, a text that is read, or the other output.
fn refuse_overwriting(config: &RunConfig, model: &Path) -> Result<(), RunError> {
    fn file(source: Option<&Source>) -> Option<&Path> {
        match source {
            Some(Source::File(path) | Source::Binary(path)) => Some(path),
            _ => None,
        }
    }
    let template = match &config.template {
        TemplateSource::File(path) => Some(path.as_path()),
        _ => None,
    };
    let inputs = [
        (Some(model), "the model"),
        (file(config.prompt.as_ref()), "the prompt's file"),
        (file(config.system.as_ref()), "the system prompt's file"),
        (template, "the chat template's file"),
        (config.output.as_deref(), "the transcript (-o)"),
    ];
    let outputs = [
        (config.output.as_deref(), "-o", 4),
        (config.trace.as_deref(), "--trace", 5),
    ];
    for (output, flag, n_inputs) in outputs {
        let Some(output) = output else { continue };
        for &(input, other) in &inputs[..n_inputs] {
            if input.is_some_and(|input| is_same_file(input, output)) {
                let output = output.display().to_string();
                return Err(RunError::SameFile {
                    output,
                    flag,
                    other,
                });
            }
        }
    }
    Ok(())
}

/// Whether two paths lead to one place, links followed, whether or not it exists yet. Devices are
/// no files: two flags may name one.
fn is_same_file(a: &Path, b: &Path) -> bool {
    let place = |path: &Path| {
        path.canonicalize().ok().or_else(|| {
            let folder = path
                .parent()
                .filter(|folder| !folder.as_os_str().is_empty());
            let folder = folder.unwrap_or(Path::new(".")).canonicalize().ok()?;
            Some(folder.join(path.file_name()?))
        })
    };
    let is_device = a
        .metadata()
        .is_ok_and(|found| !found.is_file() && !found.is_dir());
    place(a).is_some_and(|a| Some(a) == place(b)) && !is_device
}

/// Completes one text.
fn complete<W: Write>(replier: &mut Replier<'_, W>) -> Result<(), RunError> {
    let config = replier.config;
    let text = match &config.prompt {
        Some(source) => read_source(source)?,
        None => read_source(&Source::Stdin)?,
    };
    let options = EncodeOptions {
        add_special: true,
        parse_special: true,
    };
    let mut ids = replier.tokenizer.encode(&text, options);
    if ids.is_empty() {
        // An empty prompt begins a text: with the token that begins one, or ends the last.
        ids.extend(replier.tokenizer.bos().or(replier.tokenizer.eos()));
    }
    if config.verbose_prompt {
        write_pieces(replier.tokenizer, &ids, &mut io::stderr().lock())?;
    }
    let reply = replier.reply(&ids, config.display_prompt)?;
    if reply.reader_gone {
        return Ok(());
    }
    if config.display_prompt && reply.stop == StopReason::EndOfGeneration {
        replier.sink.show(" [end of text]")?;
    }
    replier.sink.show("\n")?;
    // Until the context is full is what `-n -2` asks for.
    let is_cut = reply.stop == StopReason::ContextFull && config.n_predict != Predict::UntilFull;
    if is_cut && config.verbosity >= WARNINGS {
        let n_ctx = replier.session.engine().n_ctx();
        tell(&format!(
            "the context of {n_ctx} tokens is full: -c N makes it larger"
        ));
    }
    Ok(())
}

/// Hears the loader and draws a bar for what takes a while.
struct LoadBar {
    progress: Progress,
    step: RefCell<Option<Step>>,
}

impl Observer for LoadBar {
    fn event(&self, event: Event) {
        if let Event::Packing { done, total } = event {
            let begin = || self.progress.step("packing", Unit::Bytes, total, PATIENCE);
            self.step.borrow_mut().get_or_insert_with(begin).set(done);
        }
    }
}

/// Where the model's packed copy is, if it is wanted.
fn packed_place(
    config: &RunConfig,
    model: &Path,
    progress: Progress,
) -> Result<Option<PackedPlace>, RunError> {
    // A model that is not there is the load's to tell.
    let is_file = model.metadata().is_ok_and(|found| found.is_file());
    if !(is_file && config.packed_cache) {
        return Ok(None);
    }
    let shards = packed::shards(model);
    let step = progress.step("digest", Unit::Bytes, packed::size(&shards), PATIENCE);
    Ok(Some(packed::place(&shards, |done| step.set(done))?))
}

fn load(
    config: &RunConfig,
    model: &Path,
    packed: Option<PackedPlace>,
    progress: Progress,
) -> Result<Engine, RunError> {
    let detected = ExecutionPolicy::detect();
    let lanes = config.threads.unwrap_or(detected.lanes);
    let lanes_batch = config.threads_batch.unwrap_or(lanes);
    let level = config.isa.unwrap_or(detected.level);
    let execution = ExecutionPolicy {
        level,
        ..detected.with_lanes(lanes, lanes_batch)
    };
    let routes = config
        .route
        .map_or_else(RoutePolicy::default, RoutePolicy::only);
    let options = LoadOptions {
        n_ctx: (config.n_ctx > 0).then_some(config.n_ctx as usize),
        overrides: config.overrides.clone(),
        speculation: speculation(config),
        cache_k: config.cache_k,
        cache_v: config.cache_v,
        packed,
        ..LoadOptions::new(execution, routes.with_ubatch(config.n_ubatch as usize))
    };
    let bar = LoadBar {
        progress,
        step: RefCell::new(None),
    };
    Ok(Engine::load_with(model, &options, &bar)?)
}

/// Whether and how output is drafted ahead.
fn speculation(config: &RunConfig) -> SpeculationPolicy {
    if !config.speculate {
        return SpeculationPolicy::off();
    }
    let default = SpeculationPolicy::default();
    let number = |given: Option<u32>, default| given.map_or(default, |n| n as usize);
    SpeculationPolicy {
        draft_max: number(config.draft_max, default.draft_max),
        draft_min: number(config.draft_min, default.draft_min),
        ..default
    }
}

/// The sampler's settings with the seed, and the end tokens ruled out if asked for.
fn sampling(config: &RunConfig, tokenizer: &Tokenizer) -> SamplerConfig {
    let mut sampling = config.sampling.clone();
    sampling.seed = config
        .seed
        .unwrap_or_else(|| RandomState::new().hash_one(0u8) as u32);
    if config.ignore_eos {
        let ends = reply::limits(config, tokenizer).end_tokens;
        sampling
            .logit_bias
            .extend(ends.into_iter().map(|id| (id, f32::NEG_INFINITY)));
    }
    sampling
}

/// The sampler, with the breakers of repetition in token form where DRY is on.
fn sampler(
    sampling: &SamplerConfig,
    n_vocab: usize,
    tokenizer: &Tokenizer,
) -> Result<Sampler, RunError> {
    let sampler = Sampler::new(sampling, n_vocab)?;
    if !sampler.uses_dry() {
        return Ok(sampler);
    }
    let plain = EncodeOptions {
        add_special: false,
        parse_special: false,
    };
    let breakers = DryBreakers::new(
        &sampling.dry_sequence_breakers,
        n_vocab,
        |id| tokenizer.piece(id, true).unwrap_or_default(),
        |text| tokenizer.encode(text, plain),
    );
    Ok(sampler.with_dry_breakers(&breakers))
}

/// Notes and warnings before the text begins.
fn warn(config: &RunConfig, engine: &Engine, sampling: &SamplerConfig) {
    if config.verbosity < WARNINGS {
        return;
    }
    for note in &config.notes {
        tell(&format!("note: {note}"));
    }
    let (n_ctx, trained) = (engine.n_ctx(), engine.spec().n_ctx_train);
    if n_ctx > trained {
        tell(&format!(
            "warning: -c {n_ctx} is beyond the {trained} tokens the model was trained for; \
             expect nonsense past them"
        ));
    }
    if config.verbosity >= TALKATIVE {
        let policy = engine.execution();
        tell(&format!(
            "{}: {} layers, context {n_ctx} ({} MiB of cache, K {}, V {}), {}, {} threads",
            engine.spec().architecture,
            engine.spec().layers.len(),
            engine.cache_bytes() >> 20,
            config.cache_k,
            config.cache_v,
            policy.level,
            policy.lanes,
        ));
    }
    if config.seed.is_none() && sampling.temp > 0.0 {
        tell(&format!("seed: {}", sampling.seed));
    }
}

/// What traces say about this run.
fn header(
    config: &RunConfig,
    engine: &Engine,
    model: &Path,
    progress: Progress,
) -> Result<TraceHeader, RunError> {
    let model_sha256 = match &config.trace {
        Some(_) => digest(engine, model, progress)?,
        None => String::new(),
    };
    Ok(TraceHeader {
        engine: "emel".to_owned(),
        engine_version: env!("CARGO_PKG_VERSION").to_owned(),
        model_sha256,
        workload_id: "-".to_owned(),
        lane: "-".to_owned(),
        threads: engine.execution().lanes.to_string(),
        isa: engine.execution().level.name().to_owned(),
        route: config.route.map_or("auto", |route| route.name()).to_owned(),
        numerics: NUMERICS.to_owned(),
        more: Vec::new(),
    })
}

/// What a trace says of the question that this run answers, in the words of the bench's records.
fn contract(config: &RunConfig, sampling: &SamplerConfig, in_chat: bool) -> Vec<(String, String)> {
    let formatter = if in_chat { "template" } else { "raw" };
    let chooses = if sampling.is_argmax() {
        "argmax"
    } else {
        "chain"
    };
    let mut stop_rule = if config.ignore_eos { "limit" } else { "eog" }.to_owned();
    if !config.stop.is_empty() {
        stop_rule += &format!(" or {:?}", config.stop);
    }
    let mut pairs = vec![
        ("formatter", formatter.to_owned()),
        ("sampling", chooses.to_owned()),
        ("stop_rule", stop_rule),
    ];
    if chooses != "argmax" {
        pairs.push(("seed", sampling.seed.to_string()));
    }
    if let Predict::Count(count) = config.n_predict {
        pairs.push(("max_tokens", count.to_string()));
    }
    let owned = |(key, value): (&str, String)| (key.to_owned(), value);
    pairs.into_iter().map(owned).collect()
}

fn digest(engine: &Engine, model: &Path, progress: Progress) -> Result<String, RunError> {
    let total = engine.source().file_bytes();
    let step = progress.step("digest", Unit::Bytes, total, PATIENCE);
    let fail = |source| RunError::Digest {
        file: model.display().to_string(),
        source,
    };
    let files: Vec<PathBuf> = engine.source().paths().map(Path::to_path_buf).collect();
    sha256_files(&files, |done| step.set(done)).map_err(fail)
}
