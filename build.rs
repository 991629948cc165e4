//! Tells the program which commit it is built from, as `EMEL_COMMIT` (with `-dirty` when
//! the tree differs from it, `unknown` when there is none:
//! a source archive, no git), and by which compiler, as `EMEL_COMPILER`.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let commit = git(&[
        "describe",
        "--always",
        "--dirty",
        "--abbrev=12",
        "--exclude=*",
    ]);
    let commit = commit.unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=EMEL_COMMIT={commit}");
    let compiler =
        std::env::var_os("RUSTC").and_then(|rustc| output(Command::new(rustc).arg("-V")));
    let compiler = compiler.unwrap_or_else(|| "rustc".to_owned());
    println!("cargo::rustc-env=EMEL_COMPILER={compiler}");
    // A change that is not committed makes the commit a dirty one.
    for place in ["build.rs", "src", "kernels/src", "Cargo.lock"] {
        println!("cargo::rerun-if-changed={place}");
    }
    // HEAD names the branch; the log is written whenever HEAD moves, along the branch too.
    for name in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--git-path", name]).map(PathBuf::from);
        // A path that is not there would make every build a new one.
        if let Some(path) = path.filter(|path| path.exists()) {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
}

/// What git says of this tree; none when it is not one, or lies in another's.
fn git(arguments: &[&str]) -> Option<String> {
    let root = std::env::var_os("CARGO_MANIFEST_DIR")?;
    if !Path::new(&root).join(".git").exists() {
        return None;
    }
    output(Command::new("git").arg("-C").arg(&root).args(arguments))
}

/// What a program prints, if it succeeds.
fn output(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
