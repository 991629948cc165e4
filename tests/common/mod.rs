//! What whole-program tests share: the binary, the models, temporary files.
#![allow(dead_code)] // each test program uses its own part

pub mod plain;

use std::ffi::OsStr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// SmolLM2 135M Instruct, Q4_1.
pub const SMOLLM2: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
/// Gemma 3 270M, Q4_K_M.
pub const GEMMA3: &str = "gemma-3-270m-Q4_K_M.gguf";

/// The real binary.
pub fn emel_run() -> Command {
    Command::new(env!("CARGO_BIN_EXE_emel-run"))
}

/// A fetched file.
pub fn model(name: &str) -> PathBuf {
    let folder = std::env::var_os("EMEL_MODELS_DIR").map(PathBuf::from);
    let folder = folder.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("models"));
    let file = folder.join(name);
    assert!(
        file.is_file(),
        "{} is missing: run scripts/fetch_models.sh",
        file.display()
    );
    file
}

/// A path in a folder of its own, which goes with it.
pub struct Temporary {
    path: PathBuf,
    _folder: TempDir,
}

impl Deref for Temporary {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.path
    }
}

impl AsRef<Path> for Temporary {
    fn as_ref(&self) -> &Path {
        self
    }
}

impl AsRef<OsStr> for Temporary {
    fn as_ref(&self) -> &OsStr {
        self.as_os_str()
    }
}

/// A path that does not exist yet.
pub fn temporary(name: &str) -> Temporary {
    let folder = tempfile::tempdir().expect("a temporary folder");
    Temporary {
        path: folder.path().join(name),
        _folder: folder,
    }
}

/// What is in a folder, in order.
pub fn names(folder: impl AsRef<Path>) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("the folder");
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        let name = entry.expect("an entry").file_name();
        name.into_string().expect("UTF-8")
    };
    let mut names: Vec<_> = entries.map(name).collect();
    names.sort();
    names
}

/// The program of an example: `cargo test` builds them beside the tests' own folder.
pub fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let build = test.parent().and_then(Path::parent);
    let folder = build.expect("a test lies in a build").join("examples");
    let program = folder.join(name);
    let changed = |file: &Path| file.metadata().and_then(|found| found.modified());
    let cure = format!("build it with `cargo build --example {name}` in this test's profile");
    let built = changed(&program);
    let built = built.unwrap_or_else(|error| panic!("{}: {error}; {cure}", program.display()));
    // A test that is run by its name alone does not build examples.
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("examples")
        .join(name);
    for entry in source.read_dir().expect("an example has a folder") {
        let file = entry.expect("an entry").path();
        let newer = changed(&file).expect("a source file") > built;
        assert!(
            !newer,
            "{} is newer than the program; {cure}",
            file.display()
        );
    }
    program
}
