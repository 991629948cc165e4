//! Packed copies beside models: where they are, and what to say of them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::digests::{DigestError, cache_folder, sha256_identified};
use crate::gguf::Gguf;
use crate::packed::{PackedError, PackedPlace, PackedReport};

/// What is added to the name of a model's (first) file.
pub const EXTENSION: &str = ".emel-packed";

/// The packed copy of the model of these files, beside the first. The model's digest is taken from
/// the cache while it is the very same file, unchanged; `progress` is told the bytes read
/// otherwise.
///
/// # Errors
/// [`DigestError`].
///
/// # Panics
/// Without a file.
pub fn place(
    shards: &[PathBuf],
    mut progress: impl FnMut(u64),
) -> Result<PackedPlace, DigestError> {
    let cache = cache_folder();
    let mut before = 0;
    let (mut digests, mut files) = (Vec::new(), Vec::new());
    for shard in shards {
        let mut read = 0;
        let (digest, file) = sha256_identified(cache.as_deref(), shard, |done| {
            read = done;
            progress(before + done);
        })?;
        digests.push(digest);
        files.push(file);
        before += read;
    }
    let mut path = OsString::from(&shards[0]);
    path.push(EXTENSION);
    Ok(PackedPlace {
        path: path.into(),
        model: digests.join("+"),
        files,
    })
}

/// Bytes of these files, which [`place`] reads if it reads any.
#[must_use]
pub fn size(shards: &[PathBuf]) -> u64 {
    let sizes = shards.iter().map(|shard| shard.metadata());
    sizes
        .map(|found| found.map_or(0, |found| found.len()))
        .sum()
}

/// The model's files: of a split one, which its name tells, all shards.
#[must_use]
pub fn shards(model: &Path) -> Vec<PathBuf> {
    let name = model.to_string_lossy();
    let opened = name
        .contains("-of-")
        .then(|| Gguf::open(model).ok())
        .flatten();
    // What cannot be opened is told by the load.
    opened.map_or_else(
        || vec![model.to_path_buf()],
        |gguf| gguf.paths().map(Path::to_path_buf).collect(),
    )
}

/// What a user is told of the copy at `place`, a line each.
#[must_use]
pub fn notes(place: &PackedPlace, report: &PackedReport) -> Vec<String> {
    let path = place.path.display();
    let mut notes = Vec::new();
    match &report.ignored {
        None | Some(PackedError::Missing) => (),
        Some(why) => notes.push(format!(
            "warning: the packed copy {path} is not used: {why}"
        )),
    }
    match &report.kept {
        None => (),
        Some(Ok(bytes)) => notes.push(format!(
            "packed copy: {path} ({} MiB), for the next start",
            bytes >> 20
        )),
        Some(Err(error)) => notes.push(format!("warning: no packed copy is kept: {error}")),
    }
    notes
}
