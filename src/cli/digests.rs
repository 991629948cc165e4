//! Digests of model files, computed once: reading gigabytes before every run would cost more than
//! many a run.

use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use sha2::{Digest, Sha256};

use super::digest::sha256_files;
use crate::output::AtomicFile;

/// A file that cannot be read for its digest.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {} for its digest: {source}", path.display())]
pub struct DigestError {
    /// The file.
    pub path: PathBuf,
    /// What the system said.
    pub source: std::io::Error,
}

/// Where EMEL keeps what it can make again: `$EMEL_CACHE_DIR`, else `$XDG_CACHE_HOME/emel`, else
/// `~/.cache/emel`; none when no variable says.
#[must_use]
pub fn cache_folder() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let own = variable("EMEL_CACHE_DIR").map(PathBuf::from);
    let shared = || variable("XDG_CACHE_HOME").map(|folder| PathBuf::from(folder).join("emel"));
    let home = || variable("HOME").map(|folder| PathBuf::from(folder).join(".cache/emel"));
    own.or_else(shared).or_else(home)
}

/// A file's SHA-256, from `<cache>/sha256` when the file there is for this path, size and time of
/// change; else computed and kept there. `progress` is told the bytes read so far.
///
/// # Errors
/// [`DigestError`]. That the cache cannot be written is no error.
pub fn sha256_cached(
    cache: Option<&Path>,
    file: &Path,
    progress: impl FnMut(u64),
) -> Result<String, DigestError> {
    let error = |source| DigestError {
        path: file.to_owned(),
        source,
    };
    let place = fs::canonicalize(file).map_err(error)?;
    let before = identity(&place, &fs::metadata(&place).map_err(error)?);
    let kept = cache.map(|cache| cache.join("sha256").join(hex(before.as_bytes())));
    if let Some(digest) = kept.as_ref().and_then(|kept| recall(kept, &before)) {
        return Ok(digest);
    }
    let digest = sha256_files(std::slice::from_ref(&place), progress).map_err(error)?;
    // What changed while it was read has no digest worth keeping.
    let after = identity(&place, &fs::metadata(&place).map_err(error)?);
    if let Some(kept) = kept
        && before == after
    {
        // Without it the next run computes the digest again, and nothing else.
        let _ = keep(&kept, &format!("{digest}\n{before}\n"));
    }
    Ok(digest)
}

fn identity(place: &Path, metadata: &Metadata) -> String {
    let changed = metadata.modified().ok();
    let changed = changed.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let nanoseconds = changed.map_or(0, |time| time.as_nanos());
    let own = own_identity(metadata);
    format!("{} {nanoseconds} {own} {}", metadata.len(), place.display())
}

/// What tells a file from another that took its name, size and time of change.
#[cfg(unix)]
fn own_identity(metadata: &Metadata) -> String {
    use std::os::unix::fs::MetadataExt;
    let (seconds, nanoseconds) = (metadata.ctime(), metadata.ctime_nsec());
    format!(
        "{}:{} {seconds}.{nanoseconds:09}",
        metadata.dev(),
        metadata.ino()
    )
}

#[cfg(not(unix))]
fn own_identity(_: &Metadata) -> String {
    "-".to_owned()
}

fn hex(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn recall(kept: &Path, identity: &str) -> Option<String> {
    let text = fs::read_to_string(kept).ok()?;
    let (digest, rest) = text.split_once('\n')?;
    let is_whole = digest.len() == 64 && rest.trim_end_matches('\n') == identity;
    is_whole.then(|| digest.to_owned())
}

fn keep(kept: &Path, text: &str) -> Option<()> {
    fs::create_dir_all(kept.parent()?).ok()?;
    let mut file = AtomicFile::create(kept).ok()?;
    file.write(text.as_bytes()).ok()?;
    file.commit().ok()
}
