//! The folder of traces beside a records file: `NAME.jsonl.traces` for `NAME.jsonl`.
//!
//! Every run's traces have names of their own, so that a run which is killed leaves the records
//! that were there with the traces that they name. A finished run removes those of the records that
//! it replaces.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::output::OutputError;

/// How a trace's name ends.
const ENDING: &str = ".tokens.txt";

/// The folder, with this run's traces in it.
#[derive(Debug)]
pub struct Traces {
    folder: PathBuf,
    suffix: String,
    /// The records file has taken its place, and names this run's traces.
    committed: bool,
    /// The folder was not there before.
    is_new: bool,
}

impl Traces {
    /// Makes the folder beside `records`, for the traces of the run `run_id`; none when the
    /// records go to a device or a pipe, which has no beside.
    ///
    /// # Errors
    /// [`OutputError`].
    pub fn beside(records: &Path, run_id: &str) -> Result<Option<Self>, OutputError> {
        let is_device = |found: fs::Metadata| !found.is_file() && !found.is_dir();
        if fs::metadata(records).is_ok_and(is_device) {
            return Ok(None);
        }
        let mut name = records.file_name().unwrap_or_default().to_owned();
        name.push(".traces");
        let folder = records.with_file_name(name);
        let is_new = !folder.is_dir();
        if is_new {
            fs::create_dir(&folder).map_err(|source| OutputError {
                path: folder.clone(),
                source,
            })?;
        }
        Ok(Some(Traces {
            folder,
            suffix: run_id.to_owned(),
            committed: false,
            is_new,
        }))
    }

    /// Where traces go, and what their names hold before the ending.
    pub fn place(&self) -> (&Path, &str) {
        (&self.folder, &self.suffix)
    }

    /// The records are in their place, and name `named`: what the ones that they replace named
    /// and they do not goes, and what runs that were killed have left.
    pub fn commit(mut self, named: &BTreeSet<String>, replaced: &BTreeSet<String>) {
        self.committed = true;
        self.remove(|name| {
            !named.contains(name) && (replaced.contains(name) || is_orphan(name, &self.suffix))
        });
    }

    fn remove(&self, unwanted: impl Fn(&str) -> bool) {
        let entries = fs::read_dir(&self.folder).into_iter().flatten();
        for entry in entries.flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.contains(ENDING) && unwanted(&name) {
                // A leftover that cannot be removed harms nobody.
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

/// Whether a trace is of a run whose process, the last part of its id, is no more. Only where the
/// system lists its processes.
fn is_orphan(name: &str, own: &str) -> bool {
    let id = name
        .split(ENDING)
        .next()
        .and_then(|stem| stem.rsplit('.').next());
    let process = id
        .filter(|id| *id != own)
        .and_then(|id| id.rsplit_once('-'))
        .and_then(|(_, process)| u32::from_str_radix(process, 16).ok());
    let processes = Path::new("/proc");
    process.is_some_and(|process| {
        processes.join("self").exists() && !processes.join(process.to_string()).exists()
    })
}

impl Drop for Traces {
    fn drop(&mut self) {
        if self.committed {
            return;
        }
        // Unfinished ones too, whose names go on after the ending.
        let own = format!(".{}{ENDING}", self.suffix);
        self.remove(|name| name.contains(&own));
        if self.is_new {
            // Refused when something else is in it, as it should be.
            let _ = fs::remove_dir(&self.folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::tests::names;

    #[test]
    fn a_run_that_fails_leaves_what_was_there_and_one_that_ends_what_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let records = root.join("a.jsonl");
        let write = |traces: &Traces, name: &str| {
            let (folder, suffix) = traces.place();
            fs::write(folder.join(format!("{name}.{suffix}.tokens.txt")), "x").unwrap();
        };
        let failing = Traces::beside(&records, "r0").unwrap().unwrap();
        write(&failing, "w");
        drop(failing);
        assert!(!root.join("a.jsonl.traces").exists());

        let first = Traces::beside(&records, "r1").unwrap().unwrap();
        write(&first, "w");
        write(&first, "v");
        let named = |name: &str| BTreeSet::from([format!("{name}.tokens.txt")]);
        let none = BTreeSet::new();
        first.commit(&named("w.r1"), &none);
        let kept = ["v.r1.tokens.txt", "w.r1.tokens.txt"];
        assert_eq!(names(root.join("a.jsonl.traces")), kept);
        // A process of this number cannot be.
        let orphan = root.join("a.jsonl.traces/w.6b0f7e57-ffffffff.tokens.txt.tmp");
        fs::write(orphan, "half").unwrap();
        fs::write(root.join("a.jsonl.traces/notes.md"), "mine").unwrap();

        let killed = Traces::beside(&records, "r2").unwrap().unwrap();
        write(&killed, "w");
        drop(killed);
        let orphan = "w.6b0f7e57-ffffffff.tokens.txt.tmp";
        let kept = ["notes.md", "v.r1.tokens.txt", orphan, "w.r1.tokens.txt"];
        assert_eq!(names(root.join("a.jsonl.traces")), kept);

        let second = Traces::beside(&records, "r3").unwrap().unwrap();
        write(&second, "w");
        let replaced = ["v.r1", "w.r1"]
            .iter()
            .flat_map(|name| named(name))
            .collect();
        second.commit(&named("w.r3"), &replaced);
        let kept = ["notes.md", "w.r3.tokens.txt"];
        assert_eq!(names(root.join("a.jsonl.traces")), kept);
        assert!(
            Traces::beside(Path::new("/dev/null"), "r4")
                .unwrap()
                .is_none()
        );
    }
}
