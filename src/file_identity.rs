//! What tells a file from another, and from itself before it changed, without reading it.

use std::fmt;
use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// A file as it was at some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    /// As it was asked for.
    asked: PathBuf,
    /// Where that led, links followed.
    place: PathBuf,
    bytes: u64,
    /// Nanoseconds from 1970 to the last change of its contents, which whoever copies may set.
    modified: u128,
    /// What a copy does not take over.
    own: String,
}

impl FileIdentity {
    /// The file at `path` as it is now.
    ///
    /// # Errors
    /// As the system says.
    pub fn of(path: &Path) -> io::Result<Self> {
        let place = fs::canonicalize(path)?;
        let metadata = fs::metadata(&place)?;
        let modified = metadata.modified().ok();
        let modified = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        Ok(FileIdentity {
            asked: path.to_owned(),
            place,
            bytes: metadata.len(),
            modified: modified.map_or(0, |time| time.as_nanos()),
            own: own(&metadata),
        })
    }

    /// Whether the file is still that one, unchanged.
    #[must_use]
    pub fn is_current(&self) -> bool {
        Self::of(&self.asked).is_ok_and(|now| now == *self)
    }

    /// Where it lies, links followed.
    #[must_use]
    pub fn place(&self) -> &Path {
        &self.place
    }
}

/// Device, inode, and the time at which anything about it changed.
#[cfg(unix)]
fn own(metadata: &Metadata) -> String {
    use std::os::unix::fs::MetadataExt;
    let (seconds, nanoseconds) = (metadata.ctime(), metadata.ctime_nsec());
    let (device, inode) = (metadata.dev(), metadata.ino());
    format!("{device}:{inode} {seconds}.{nanoseconds:09}")
}

#[cfg(not(unix))]
fn own(_: &Metadata) -> String {
    "-".to_owned()
}

/// All of it but how it was asked for, on one line.
impl fmt::Display for FileIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FileIdentity {
            place,
            bytes,
            modified,
            own,
            ..
        } = self;
        write!(f, "{bytes} {modified} {own} {}", place.display())
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn a_file_that_took_another_s_name_size_and_time_is_another() {
        let folder = tempfile::tempdir().unwrap();
        let (file, other) = (folder.path().join("a"), folder.path().join("b"));
        fs::write(&file, "one").unwrap();
        let before = FileIdentity::of(&file).unwrap();
        assert!(before.is_current());
        fs::write(&other, "two").unwrap();
        let time = fs::metadata(&file).unwrap().modified().unwrap();
        File::options()
            .write(true)
            .open(&other)
            .unwrap()
            .set_modified(time)
            .unwrap();
        fs::rename(&other, &file).unwrap();
        assert!(!before.is_current());
        assert_ne!(
            FileIdentity::of(&file).unwrap().to_string(),
            before.to_string()
        );
        folder.close().unwrap();
        assert!(!before.is_current());
    }
}
