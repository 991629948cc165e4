//! Files that appear whole or not at all: written beside their place under another name, moved
//! there when complete. A failure on the way, a full disk among them, leaves nothing behind.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use thiserror::Error;

/// An output file that could not be written. What was there before is untouched.
#[derive(Debug, Error)]
#[error("cannot write {}: {source}{}", path.display(), advice(source))]
pub struct OutputError {
    /// The file asked for.
    pub path: PathBuf,
    /// What the system said.
    #[source]
    pub source: io::Error,
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; free some space or choose another disk (nothing was left behind)"
        }
        io::ErrorKind::NotFound => "; create its folder first",
        io::ErrorKind::IsADirectory => "; name a file inside it",
        io::ErrorKind::PermissionDenied => "; choose a place that you may write to",
        _ => "",
    }
}

/// Whether a write failed because the reader has gone away (`| head`), which is no failure.
#[must_use]
pub fn is_closed_pipe(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}

/// Unfinished files of this process, for [`remove_unfinished`].
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn unfinished() -> MutexGuard<'static, Vec<PathBuf>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes what [`AtomicFile`]s have begun and not finished. For an exit that runs no
/// destructors: the second Ctrl-C.
pub fn remove_unfinished() {
    for path in unfinished().drain(..) {
        // It is a leftover; that it cannot be removed is no reason not to exit.
        let _ = fs::remove_file(path);
    }
}

/// A file that takes its place at [`commit`](AtomicFile::commit) and is removed when dropped
/// before that. Devices and pipes (`/dev/null`, `/dev/stderr`) are written directly.
#[derive(Debug)]
pub struct AtomicFile {
    /// As the user wrote it, for messages.
    asked: PathBuf,
    /// Where it goes, links followed.
    place: PathBuf,
    /// Where it is until then; none for a device.
    temp: Option<PathBuf>,
    file: BufWriter<File>,
}

impl AtomicFile {
    /// Begins a file; fails at once when its folder is missing or not writable.
    ///
    /// # Errors
    /// [`OutputError`].
    pub fn create(path: &Path) -> Result<Self, OutputError> {
        Self::begin(path).map_err(|source| OutputError {
            path: path.to_owned(),
            source,
        })
    }

    fn begin(path: &Path) -> io::Result<Self> {
        let place = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let existing = match fs::metadata(&place) {
            Ok(found) => Some(found),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        if existing.as_ref().is_some_and(fs::Metadata::is_dir) || path.file_name().is_none() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        // `/dev/stdout` and the like lead to whatever the stream is, a file perhaps, which is not
        // ours to replace: what we write goes where the stream's other output goes.
        let is_stream = path.starts_with("/dev") || path.starts_with("/proc");
        let is_device = existing.as_ref().is_some_and(|found| !found.is_file());
        if is_device || is_stream {
            let file = OpenOptions::new().append(true).open(path)?;
            return Ok(AtomicFile {
                asked: path.to_owned(),
                place,
                temp: None,
                file: BufWriter::new(file),
            });
        }
        let (temp, file) = create_temp(&place)?;
        // Tells who looks for what was abandoned; where locks are unknown, nobody finds any.
        let _ = file.try_lock();
        unfinished().push(temp.clone());
        // From here on, dropping `out` removes the file.
        let out = AtomicFile {
            asked: path.to_owned(),
            place,
            temp: Some(temp),
            file: BufWriter::new(file),
        };
        if let Some(existing) = existing {
            out.file.get_ref().set_permissions(existing.permissions())?;
        }
        Ok(out)
    }

    /// Writes more.
    ///
    /// # Errors
    /// [`OutputError`]; dropping the file then removes it.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), OutputError> {
        self.file
            .write_all(bytes)
            .map_err(|source| self.error(source))
    }

    /// Puts the file in its place, complete and on the disk.
    ///
    /// # Errors
    /// [`OutputError`]; the file is removed, what was there before stays.
    pub fn commit(mut self) -> Result<(), OutputError> {
        self.finish().map_err(|source| self.error(source))
    }

    fn finish(&mut self) -> io::Result<()> {
        self.file.flush()?;
        let Some(temp) = &self.temp else {
            return Ok(());
        };
        self.file.get_ref().sync_all()?;
        fs::rename(temp, &self.place)?;
        unfinished().retain(|other| other != temp);
        self.temp = None;
        Ok(())
    }

    fn error(&self, source: io::Error) -> OutputError {
        OutputError {
            path: self.asked.clone(),
            source,
        }
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if let Some(temp) = self.temp.take() {
            unfinished().retain(|other| *other != temp);
            // A leftover that cannot be removed is not worth a second error.
            let _ = fs::remove_file(temp);
        }
    }
}

/// A new file under a name that none has: one of a process that was killed, and had the same id,
/// stays where it is.
fn create_temp(place: &Path) -> io::Result<(PathBuf, File)> {
    loop {
        let temp = temp_name(place);
        let file = OpenOptions::new().write(true).create_new(true).open(&temp);
        match file {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => (),
            file => return Ok((temp, file?)),
        }
    }
}

/// How long an unfinished file is left alone, since it may just have been made.
const YOUNG: Duration = Duration::from_secs(60);

/// Removes unfinished files for `path` that processes left which were killed: those that nobody has
/// locked. What cannot be read or removed stays.
pub fn remove_abandoned(path: &Path) {
    let place = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut begins = OsString::from(".");
    begins.push(place.file_name().unwrap_or_default());
    begins.push(".");
    let begins = begins.to_string_lossy();
    let folder = place
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let entries = fs::read_dir(folder.unwrap_or(Path::new(".")));
    for entry in entries.into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let number = name
            .strip_prefix(&*begins)
            .and_then(|rest| rest.strip_suffix(".tmp"));
        let parts = number.and_then(|number| number.split_once('-'));
        let is_number = |part: &str| part.parse::<u64>().is_ok();
        let is_ours = parts.is_some_and(|(id, count)| is_number(id) && is_number(count));
        let is_old = || {
            let found = entry.metadata().ok().filter(fs::Metadata::is_file);
            let changed = found.and_then(|found| found.modified().ok());
            changed
                .and_then(|time| time.elapsed().ok())
                .is_some_and(|age| age > YOUNG)
        };
        let is_free = || File::open(entry.path()).is_ok_and(|file| file.try_lock().is_ok());
        if is_ours && is_old() && is_free() {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// A hidden name in the same folder, so that the move is one rename. The process id and a
/// count keep two runs, and two files of one run, apart.
fn temp_name(place: &Path) -> PathBuf {
    use std::sync::atomic::{AtomicU64, Ordering};
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut name = OsString::from(".");
    name.push(place.file_name().unwrap_or_default());
    name.push(format!(".{}-{count}.tmp", std::process::id()));
    place.with_file_name(name)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use tempfile::tempdir;

    /// What is in a folder, in order.
    pub(crate) fn names(folder: impl AsRef<Path>) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> = entries
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn what_was_abandoned_is_removed_and_what_is_being_written_is_not() {
        let folder = tempdir().unwrap();
        let place = folder.path().join("out");
        let old = std::time::SystemTime::now() - 2 * YOUNG;
        let leave = |name: &str, time| {
            let file = File::create(folder.path().join(name)).unwrap();
            file.set_modified(time).unwrap();
        };
        leave(".out.12345-0.tmp", old);
        for name in [
            ".out.1-2-3.tmp",
            ".out.x-0.tmp",
            ".other.1-0.tmp",
            "out.1-0.tmp",
        ] {
            leave(name, old);
        }
        leave(".out.12346-0.tmp", std::time::SystemTime::now());
        let file = AtomicFile::create(&place).unwrap();
        let temp = file.temp.clone().unwrap();
        File::options()
            .write(true)
            .open(&temp)
            .unwrap()
            .set_modified(old)
            .unwrap();
        let before = names(&folder);
        remove_abandoned(&place);
        let after = names(&folder);
        let gone: Vec<_> = before.iter().filter(|name| !after.contains(name)).collect();
        assert_eq!(gone, [".out.12345-0.tmp"]);
        file.commit().unwrap();
        assert!(place.exists() && !temp.exists());
    }

    #[test]
    fn a_name_that_is_taken_is_passed_over() {
        let folder = tempdir().unwrap();
        let place = folder.path().join("out");
        let (first, _) = create_temp(&place).unwrap();
        let name = first.file_name().unwrap().to_string_lossy().into_owned();
        let count: u64 = name
            .split(['-', '.'])
            .rev()
            .nth(1)
            .unwrap()
            .parse()
            .unwrap();
        for next in count + 1..count + 50 {
            let taken = name.replace(&format!("-{count}."), &format!("-{next}."));
            File::create(folder.path().join(taken)).unwrap();
        }
        AtomicFile::create(&place).unwrap().commit().unwrap();
        assert!(place.exists());
    }

    #[test]
    fn it_appears_whole_at_commit() {
        let folder = tempdir().unwrap();
        let path = folder.path().join("out.txt");
        let mut file = AtomicFile::create(&path).unwrap();
        file.write(b"one ").unwrap();
        file.write(b"two").unwrap();
        assert!(!path.exists());
        assert_eq!(names(&folder).len(), 1);
        file.commit().unwrap();
        assert_eq!(names(&folder), ["out.txt"]);
        assert_eq!(fs::read(&path).unwrap(), b"one two");
    }

    #[test]
    fn dropped_it_leaves_what_was_there() {
        let folder = tempdir().unwrap();
        let path = folder.path().join("out.txt");
        fs::write(&path, "before").unwrap();
        let mut file = AtomicFile::create(&path).unwrap();
        file.write(b"half").unwrap();
        drop(file);
        assert_eq!(names(&folder), ["out.txt"]);
        assert_eq!(fs::read(&path).unwrap(), b"before");
    }

    #[cfg(unix)]
    #[test]
    fn links_are_followed_and_permissions_kept() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempdir().unwrap();
        let (real, link) = (folder.path().join("real"), folder.path().join("link"));
        fs::write(&real, "before").unwrap();
        fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let mut file = AtomicFile::create(&link).unwrap();
        file.write(b"after").unwrap();
        file.commit().unwrap();
        assert_eq!(fs::read(&real).unwrap(), b"after");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(
            fs::metadata(&real).unwrap().permissions().mode() & 0o777,
            0o640
        );
    }

    #[test]
    fn a_missing_folder_and_a_folder_are_named_at_once() {
        let folder = tempdir().unwrap();
        let error = AtomicFile::create(&folder.path().join("no/out"))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("no/out") && error.contains("create its folder first"),
            "{error}"
        );
        let error = AtomicFile::create(folder.path()).unwrap_err().to_string();
        assert!(error.contains("name a file inside it"), "{error}");
        assert!(names(&folder).is_empty());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_a_clear_error() {
        let mut file = AtomicFile::create(Path::new("/dev/full")).unwrap();
        file.write(b"x").unwrap();
        let error = file.commit().unwrap_err().to_string();
        assert!(error.starts_with("cannot write /dev/full: "), "{error}");
        assert!(error.contains("free some space"), "{error}");
        assert!(Path::new("/dev/full").exists());
    }

    #[test]
    fn an_exit_without_destructors_can_clean_up() {
        let folder = tempdir().unwrap();
        let file = AtomicFile::create(&folder.path().join("out")).unwrap();
        let temp = file.temp.clone().unwrap();
        assert!(unfinished().contains(&temp));
        std::mem::forget(file);
        // Only this test's file: others may be at work in the same process.
        unfinished().retain(|path| *path != temp);
        fs::remove_file(&temp).unwrap();
        assert!(names(&folder).is_empty());
    }
}
