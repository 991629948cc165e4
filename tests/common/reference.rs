//! The llama.cpp backend as a running program, if it is built, and the place of recorded answers.
#![allow(dead_code)] // each test program uses its own part

use emel::bench::protocol::Answer;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The program, if it is built: the one that `EMEL_REFERENCE` names, else the cache's.
pub fn program() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("EMEL_REFERENCE") {
        return Some(path.into());
    }
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    let cache = variable("EMEL_CACHE_DIR")
        .or_else(|| Some(variable("XDG_CACHE_HOME")?.join("emel")))
        .or_else(|| Some(variable("HOME")?.join(".cache/emel")))?;
    let path = cache.join("reference/llama.cpp/native/llama-reference");
    path.is_file().then_some(path)
}

/// A recorded file.
pub fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("benchdata/golden/reference")
        .join(name)
}

/// Writes a recorded file anew, if `EMEL_BLESS` is set.
pub fn bless(name: &str, text: &str) {
    if std::env::var_os("EMEL_BLESS").is_some() {
        std::fs::create_dir_all(golden("")).unwrap();
        std::fs::write(golden(name), text).unwrap();
    }
}

/// The running backend.
pub struct Backend {
    pub child: Child,
    pub requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Backend {
    pub fn start(program: &Path) -> Backend {
        let mut child = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let requests = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Backend {
            child,
            requests,
            answers,
        }
    }

    pub fn ask(&mut self, request: &str) -> String {
        writeln!(self.requests.as_ref().unwrap(), "{request}").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        assert!(
            answer.ends_with('\n'),
            "no answer to {request}: {answer:?}, {:?}",
            self.child.try_wait()
        );
        answer.trim_end().to_owned()
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What an answer gives.
pub fn done<T: DeserializeOwned>(answer: &str) -> T {
    match serde_json::from_str(answer) {
        Ok(Answer::Done(done)) => done,
        Ok(Answer::Failed { error }) => panic!("{error}"),
        Err(error) => panic!("{error}: {answer}"),
    }
}

/// The request must have failed for such a reason.
pub fn check_error(request: &str, wanted: &str, answer: &str) {
    let Ok(Answer::<Value>::Failed { error }) = serde_json::from_str(answer) else {
        panic!("{request}: {answer}");
    };
    assert!(error.contains(wanted), "{request}: {error}");
}
