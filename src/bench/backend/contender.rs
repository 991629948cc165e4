//! Who runs: an engine in one configuration, with its threads.

use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value};

use super::super::protocol::{Load, Loaded, Request};
use super::{Backend, BackendConfig, BackendError, BackendManifest, Place};
use crate::cli::interrupt::Interrupt;

/// The physical batch of every engine that asks for no other.
pub const N_UBATCH: usize = 512;

/// An engine in one configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Contender {
    /// The backend's id; `emel` for this engine.
    pub backend: String,
    /// What records call the engine.
    pub engine: String,
    /// The configuration's name.
    pub config: String,
    /// Program and arguments.
    pub command: Vec<String>,
    /// What to do when there is no such program.
    pub cure: String,
    /// Threads of decode.
    pub threads: usize,
    /// Threads of prompts.
    pub threads_batch: usize,
    /// Physical batch.
    pub n_ubatch: usize,
    /// The engine's own options.
    pub options: Map<String, Value>,
}

impl Contender {
    /// EMEL itself: this program's worker.
    pub fn emel(place: &Place, threads: usize, options: Map<String, Value>) -> Self {
        let program = place.program.to_string_lossy().into_owned();
        Contender {
            backend: "emel".to_owned(),
            engine: "emel".to_owned(),
            config: String::new(),
            command: vec![program, "worker".to_owned()],
            cure: "build it again".to_owned(),
            threads,
            threads_batch: threads,
            n_ubatch: N_UBATCH,
            options,
        }
    }

    /// A reference in one of its configurations, whose own threads go before the given ones.
    pub fn reference(
        manifest: &BackendManifest,
        config: &BackendConfig,
        place: &Place,
        threads: usize,
        threads_batch: Option<usize>,
    ) -> Self {
        let decode = config.threads.unwrap_or(threads);
        Contender {
            backend: manifest.id.clone(),
            engine: manifest.engine.clone(),
            config: config.name.clone(),
            command: manifest.command_line(config, place),
            cure: manifest.build_command.clone(),
            threads: decode,
            threads_batch: config.threads_batch.or(threads_batch).unwrap_or(decode),
            n_ubatch: config.n_ubatch.unwrap_or(N_UBATCH),
            options: config.options.clone(),
        }
    }

    /// Its name for people and for traces.
    pub fn label(&self) -> String {
        match self.config.as_str() {
            "" => self.backend.clone(),
            config => format!("{}-{config}", self.backend),
        }
    }

    /// Starts it and loads a model with a context of `n_ctx` tokens.
    ///
    /// # Errors
    /// [`BackendError`].
    pub fn start(
        &self,
        model: &Path,
        n_ctx: usize,
        interrupt: &Interrupt,
        timeout: Duration,
    ) -> Result<(Backend, Loaded), BackendError> {
        let label = self.label();
        let mut backend = Backend::start(&label, &self.command, &self.cure, interrupt, timeout)?;
        let loaded = backend.request(&Request::Load(Load {
            model: model.to_owned(),
            threads: self.threads,
            threads_batch: self.threads_batch,
            n_ctx,
            n_ubatch: self.n_ubatch,
            options: self.options.clone(),
        }))?;
        Ok((backend, loaded))
    }
}
