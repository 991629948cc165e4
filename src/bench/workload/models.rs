//! The list of models that workloads name, `benchdata/models.json`.

use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::manifest::is_name;
use super::{Document, WorkloadError, sha256_cached};

/// What the list's `schema` must be.
pub const MODELS_SCHEMA: &str = "emel-models/v1";

/// The list's file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelList {
    #[serde(rename = "schema")]
    _schema: String,
    models: Vec<ModelEntry>,
}

/// A model: one GGUF file and how to get it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelEntry {
    /// The name that workloads use: `qwen3_4b_q4_k_m`.
    pub name: String,
    /// Its file, relative to the folder of models.
    pub file: String,
    /// SHA-256 of the file, as 64 hex digits in lower case; null when it is not pinned.
    pub sha256: Option<String>,
    /// The command that fetches or makes it; `{file}` stands for the file's path.
    pub obtain: String,
    /// What it was trained for.
    pub kind: ModelKind,
    /// For generated weights, what they are generated from.
    pub synth: Option<SynthRecipe>,
}

/// What a model was trained for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelKind {
    /// Turns of a conversation, through its chat template.
    Instruct,
    /// Continuing a text.
    Base,
}

/// What `emel-bench synth` needs to make a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SynthRecipe {
    /// The architecture's shape: `qwen3-0.6b`.
    pub shape: String,
    /// The mix of weight types: `q4_k_m`.
    pub quant: String,
    /// Seed of the weights.
    pub seed: u64,
    /// The vocabulary's file, relative to the folder of models; by default the shape's own.
    pub vocab: Option<String>,
}

impl ModelEntry {
    /// Where the file is expected.
    #[must_use]
    pub fn path(&self, folder: &Path) -> PathBuf {
        folder.join(&self.file)
    }

    /// The command that fetches or makes the file.
    #[must_use]
    pub fn obtain_command(&self, folder: &Path) -> String {
        let path = self.path(folder).display().to_string();
        self.obtain.replace("{file}", &path)
    }

    /// The file's path, if it is there.
    ///
    /// # Errors
    /// [`WorkloadError::MissingModel`] with the command that obtains it.
    pub fn locate(&self, folder: &Path) -> Result<PathBuf, WorkloadError> {
        let path = self.path(folder);
        if path.is_file() {
            return Ok(path);
        }
        Err(WorkloadError::MissingModel {
            name: self.name.clone(),
            command: self.obtain_command(folder),
            path,
        })
    }

    /// The file's digest, which must be the listed one. It is computed once: later calls take it
    /// from the cache, keyed by path, size and time of change. `progress` is told the bytes read.
    ///
    /// # Errors
    /// [`WorkloadError::MissingModel`], [`WorkloadError::WrongModel`], [`WorkloadError::Read`].
    pub fn verify(
        &self,
        folder: &Path,
        cache: Option<&Path>,
        progress: impl FnMut(u64),
    ) -> Result<String, WorkloadError> {
        let path = self.locate(folder)?;
        let actual = sha256_cached(cache, &path, progress)?;
        match &self.sha256 {
            Some(expected) if *expected != actual => Err(WorkloadError::WrongModel {
                name: self.name.clone(),
                expected: expected.clone(),
                command: self.obtain_command(folder),
                path,
                actual,
            }),
            _ => Ok(actual),
        }
    }

    fn problem(&self) -> Option<(&'static str, String)> {
        let is_inside = |file: &str| {
            let normal = |part| matches!(part, Component::Normal(_));
            !file.is_empty() && Path::new(file).components().all(normal)
        };
        let is_hex = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
        if !is_name(&self.name) {
            let problem = format!("`{}` must be lower-case letters, digits and _", self.name);
            return Some(("name", problem));
        }
        if !is_inside(&self.file) {
            let problem = format!("`{}` must lie within the folder of models", self.file);
            return Some(("file", problem));
        }
        if let Some(digest) = &self.sha256
            && !(digest.len() == 64 && digest.bytes().all(is_hex))
        {
            return Some((
                "sha256",
                "must be 64 hex digits in lower case, or null".into(),
            ));
        }
        if self.obtain.trim().is_empty() {
            return Some(("obtain", "must be the command that obtains the file".into()));
        }
        let vocab = self.synth.as_ref().and_then(|synth| synth.vocab.as_ref());
        if let Some(vocab) = vocab
            && !is_inside(vocab)
        {
            let problem = format!("`{vocab}` must lie within the folder of models");
            return Some(("vocab", problem));
        }
        None
    }
}

/// Reads the list.
///
/// # Errors
/// [`WorkloadError::Read`], [`WorkloadError::Manifest`].
pub(super) fn read(path: &Path) -> Result<Vec<ModelEntry>, WorkloadError> {
    let document = Document::read(path)?;
    let list: ModelList = document.parse(MODELS_SCHEMA)?;
    for (at, model) in list.models.iter().enumerate() {
        let twice = list.models[..at]
            .iter()
            .any(|other| other.name == model.name);
        let twice = twice.then(|| ("name", format!("`{}` stands there twice", model.name)));
        if let Some((field, problem)) = model.problem().or(twice) {
            // `name` is written once a model; other keys may be left out.
            let line = document.line_of("name", at);
            return Err(document.fault_at(line, &format!("models[{at}].{field}"), problem));
        }
    }
    Ok(list.models)
}
