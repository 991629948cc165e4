//! Digests of model files, computed once: reading gigabytes before every run would cost more than
//! many a run.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::digest::sha256_files;
use crate::file_identity::FileIdentity;
use crate::output::AtomicFile;

/// A file that cannot be read for its digest.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {} for its digest: {source}", path.display())]
pub struct DigestError {
    /// The file.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
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

/// A file's SHA-256, from `<cache>/sha256` when the file there is for this very file, unchanged since;
/// else computed and kept there. `progress` is told the bytes read so far.
///
/// # Errors
/// [`DigestError`], of a file that changes meanwhile too. That the cache cannot be written is no error.
pub fn sha256_cached(
    cache: Option<&Path>,
    file: &Path,
    progress: impl FnMut(u64),
) -> Result<String, DigestError> {
    sha256_identified(cache, file, progress).map(|(digest, _)| digest)
}

/// As [`sha256_cached`], with the file that has the digest.
///
/// # Errors
/// As [`sha256_cached`].
pub fn sha256_identified(
    cache: Option<&Path>,
    file: &Path,
    progress: impl FnMut(u64),
) -> Result<(String, FileIdentity), DigestError> {
    let error = |source| DigestError {
        path: file.to_owned(),
        source,
    };
    let identity = FileIdentity::of(file).map_err(error)?;
    let name = |cache: &Path| {
        cache
            .join("sha256")
            .join(hex(identity.to_string().as_bytes()))
    };
    let kept = cache.map(name);
    if let Some(digest) = kept.as_ref().and_then(|kept| recall(kept, &identity)) {
        return Ok((digest, identity));
    }
    let place = identity.place().to_path_buf();
    let digest = sha256_files(&[place], progress).map_err(error)?;
    if !identity.is_current() {
        return Err(error(io::Error::other("it changed meanwhile; try again")));
    }
    if let Some(kept) = kept {
        // Without it the next run computes the digest again, and nothing else.
        let _ = keep(&kept, &format!("{digest}\n{identity}\n"));
    }
    Ok((digest, identity))
}

fn hex(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn recall(kept: &Path, identity: &FileIdentity) -> Option<String> {
    let text = fs::read_to_string(kept).ok()?;
    let (digest, rest) = text.split_once('\n')?;
    let is_whole = digest.len() == 64 && rest.trim_end_matches('\n') == identity.to_string();
    is_whole.then(|| digest.to_owned())
}

fn keep(kept: &Path, text: &str) -> Option<()> {
    fs::create_dir_all(kept.parent()?).ok()?;
    let mut file = AtomicFile::create(kept).ok()?;
    file.write(text.as_bytes()).ok()?;
    file.commit().ok()
}
