//! The example `plain_backend`, started and asked.

use std::path::Path;
use std::time::Duration;

use emel::bench::backend::{Backend, BackendError};
use emel::bench::protocol::{Force, Forced, Load, Loaded, Ran, Request, Run, StopRule};
use emel::cli::interrupt::Interrupt;
use emel::model::Point;
use emel::trace::Trace;
use serde_json::{Value, json};

use super::{example, temporary};

/// How it is loaded.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What is wrong with it; `none` for nothing.
    pub defect: String,
    /// Threads, for everything.
    pub threads: usize,
    /// Tokens of context.
    pub n_ctx: usize,
    /// Tokens that pass at once.
    pub n_ubatch: usize,
}

impl Settings {
    /// Two threads and a context of 256, with a defect or `none`.
    pub fn new(defect: &str) -> Self {
        Settings {
            defect: defect.to_owned(),
            threads: 2,
            n_ctx: 256,
            n_ubatch: 64,
        }
    }
}

/// A manifest with a configuration a pair of name and defect, all of them in `spread`.
pub fn manifest(id: &str, configs: &[(&str, &str)]) -> Value {
    let config = |&(name, defect): &(&str, &str)| json!({"name": name, "options": {"defect": defect}, "sets": ["best", "spread"]});
    let configs: Vec<Value> = configs.iter().map(config).collect();
    json!({"schema": "emel-backend/v1", "id": id, "name": "a plain f32 engine", "engine": "plain",
        "command": [example("plain_backend")], "capabilities": ["run", "force"],
        "build_command": "cargo build --release --example plain_backend", "configs": configs})
}

/// A tensor: its layer, its point, its values.
pub type Told = (Option<usize>, Point, Vec<f32>);

/// What came of feeding tokens.
pub struct Fed {
    /// One row of logits a position.
    pub rows: Vec<Vec<f32>>,
    /// The last token's tensors.
    pub tensors: Vec<Told>,
}

/// The running example.
pub struct Plain(Backend);

impl Plain {
    /// Starts it and loads a model.
    pub fn load(model: &Path, settings: &Settings) -> Self {
        let mut plain = Self::start();
        if let Err(error) = plain.reload(model, settings) {
            panic!("{settings:?}: {error}");
        }
        plain
    }

    /// Starts it.
    pub fn start() -> Self {
        let program = example("plain_backend").to_string_lossy().into_owned();
        let patience = Duration::from_secs(600);
        let started = Backend::start("plain", &[program], "", &Interrupt::default(), patience);
        Plain(started.unwrap_or_else(|error| panic!("{error}")))
    }

    /// Loads another model, or the same with other settings.
    pub fn reload(&mut self, model: &Path, settings: &Settings) -> Result<Loaded, BackendError> {
        let options = json!({"defect": settings.defect});
        self.0.request(&Request::Load(Load {
            model: model.to_owned(),
            threads: settings.threads,
            threads_batch: settings.threads,
            n_ctx: settings.n_ctx,
            n_ubatch: settings.n_ubatch,
            options: options.as_object().cloned().unwrap_or_default(),
        }))
    }

    /// Generates, observed.
    pub fn run(&mut self, text: &str, max_tokens: usize, stop: StopRule) -> (Ran, Trace) {
        let file = temporary("plain.tokens.txt");
        let header = [("lane", "single"), ("note", "from a test"), ("isa", "none")];
        let header = header.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let ran = self.0.request(&Request::Run(Run {
            text: text.to_owned(),
            prompt_tokens: None,
            max_tokens,
            stop,
            observe: true,
            trace: Some(file.to_path_buf()),
            top_logprobs: 2,
            header: header.into(),
        }));
        let ran = ran.unwrap_or_else(|error| panic!("{error}"));
        let trace = Trace::read(&file);
        std::fs::remove_file(&file).expect("the trace is there");
        (ran, trace.unwrap_or_else(|error| panic!("{error}")))
    }

    /// Feeds tokens, the first `prompt` of them as a prompt.
    pub fn force(&mut self, ids: &[u32], prompt: usize) -> Fed {
        let (logits, tensors) = (temporary("logits"), temporary("tensors"));
        let forced = self.0.request(&Request::Force(Force {
            ids: ids.to_vec(),
            prompt,
            logits: logits.to_path_buf(),
            tensors: Some(tensors.to_path_buf()),
        }));
        let forced: Forced = forced.unwrap_or_else(|error| panic!("{error}"));
        let rows = floats(&logits);
        assert_eq!(rows.len(), forced.rows * forced.n_vocab);
        let mut values = floats(&tensors).into_iter();
        let tensors = forced.tensors.iter().map(|place| {
            let point = place.point.parse().expect("a known point");
            let own: Vec<f32> = values.by_ref().take(place.len).collect();
            assert_eq!(own.len(), place.len, "{point}");
            (place.layer, point, own)
        });
        let tensors = tensors.collect();
        assert_eq!(values.next(), None, "the file holds what the answer says");
        let rows = rows.chunks(forced.n_vocab).map(<[f32]>::to_vec).collect();
        Fed { rows, tensors }
    }
}

/// The f32 values of a file, which goes.
fn floats(file: &Path) -> Vec<f32> {
    let bytes = std::fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    std::fs::remove_file(file).expect("the file was just read");
    let (values, rest) = bytes.as_chunks::<4>();
    assert!(rest.is_empty());
    values.iter().copied().map(f32::from_le_bytes).collect()
}

/// `‖this - other‖ / ‖other‖`.
pub fn relative(this: &[f32], other: &[f64]) -> f64 {
    assert_eq!(this.len(), other.len());
    let pairs = this.iter().zip(other);
    let apart: f64 = pairs.map(|(t, o)| (f64::from(*t) - o).powi(2)).sum();
    let size: f64 = other.iter().map(|o| o * o).sum();
    (apart / size).sqrt()
}
