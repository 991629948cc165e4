//! The vocabulary of a finished trace's model, where it is at hand.

use std::path::{Path, PathBuf};

use super::error::CompareError;
use crate::bench::workload::{Library, LibraryArgs, cache_folder, sha256_cached};
use crate::cli::progress::{PATIENCE, Progress, Unit};
use crate::gguf::Gguf;
use crate::tokenizer::Tokenizer;

/// Where the vocabulary comes from.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct VocabularyArgs {
    /// The model that the streams are from: its vocabulary turns ids into text [default: the listed
    /// model of the same sha256, if it is there]
    #[arg(short, long, value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// Where the listed models are
    #[command(flatten)]
    pub library: LibraryArgs,
}

/// A model's vocabulary.
pub struct Vocabulary {
    /// The file it was read from.
    pub path: PathBuf,
    /// The vocabulary.
    pub tokenizer: Tokenizer,
}

impl Vocabulary {
    fn read(path: &Path) -> Result<Self, CompareError> {
        let gguf = Gguf::open(path)?;
        Ok(Vocabulary {
            path: path.to_owned(),
            tokenizer: Tokenizer::from_metadata(gguf.metadata())?,
        })
    }
}

impl VocabularyArgs {
    /// The vocabulary of the model with this digest: that of the file named, else of the listed
    /// model; none when neither is there.
    ///
    /// # Errors
    /// [`CompareError::Model`] for a file that was named and cannot be used.
    pub fn open(&self, model_sha256: Option<&str>) -> Result<Option<Vocabulary>, CompareError> {
        if let Some(path) = &self.model {
            return Vocabulary::read(path).map(Some);
        }
        // What nobody asked for is no failure when it is not there, or is broken.
        let listed = || {
            let library = self.library.open().ok()?;
            Vocabulary::read(&listed(&library, model_sha256?)?).ok()
        };
        Ok(listed())
    }
}

/// The listed file that has this digest.
fn listed(library: &Library, model_sha256: &str) -> Option<PathBuf> {
    let cache = cache_folder();
    let progress = Progress::for_stderr(false, 2);
    let has_digest = |path: &PathBuf| {
        let total = path.metadata().map_or(0, |file| file.len());
        let step = progress.step("digest", Unit::Bytes, total, PATIENCE);
        let actual = sha256_cached(cache.as_deref(), path, |done| step.set(done));
        actual.is_ok_and(|actual| actual == model_sha256)
    };
    let models = library.models().iter();
    let may_be = models.filter(|model| {
        let pinned = model.sha256.as_deref();
        pinned.is_none_or(|pinned| pinned == model_sha256)
    });
    may_be
        .map(|model| model.path(library.models_folder()))
        .filter(|path| path.is_file())
        .find(has_digest)
}

/// What to tell the user when there is no vocabulary.
#[must_use]
pub fn absent(model_sha256: Option<&str>) -> String {
    let model = match model_sha256 {
        Some(digest) => format!("the model of sha256 {digest} is"),
        None => "the streams name no model, and none is".to_owned(),
    };
    format!("{model} not at hand: tokens have no text, and bytes are not counted; name it with -m")
}
