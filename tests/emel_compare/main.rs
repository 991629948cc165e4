//! The real `emel-compare` over finished traces and records: verdicts, exit codes, broken inputs,
//! and every form of the report.

#[path = "../common/mod.rs"]
mod common;

mod broken;
mod records;
mod traces;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use emel::bench::validate::validate_file;
use emel::model::testing::{TestFile, vocabulary};
use emel::trace::{TraceHeader, TraceWriter};
use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};

/// Tokens of the test vocabulary.
const BOS: u32 = 1;
const EOS: u32 = 2;
const A: u32 = 260;
const B: u32 = 261;
const T: u32 = 279;
const THE: u32 = 288;
const HE: u32 = 287;
const SPACE_T: u32 = 286;

/// A folder with a vocabulary and an empty library; gone when dropped.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        let place = Place(tempdir().expect("a folder"));
        fs::create_dir_all(place.path("benchdata/workloads")).expect("a folder");
        fs::create_dir_all(place.path("benchdata/prompts")).expect("a folder");
        let mut file = TestFile::new("llama");
        for (key, value) in vocabulary(300) {
            file.set(key, value);
        }
        file.write(&place.path("vocab.gguf")).expect("a vocabulary");
        place.list(json!([]));
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).expect("a file");
        path
    }

    fn list(&self, models: Value) {
        let list = json!({"schema": "emel-models/v1", "models": models});
        self.write("benchdata/models.json", list.to_string());
    }

    fn trace(&self, name: &str, stream: &Stream<'_>) -> PathBuf {
        let path = self.path(name);
        stream.write(&path);
        path
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_emel-compare"));
        command
            .args(arguments)
            .current_dir(&self.0)
            .env("EMEL_BENCHDATA", self.path("benchdata"))
            .env("EMEL_MODELS_DIR", self.0.path())
            .env("EMEL_CACHE_DIR", self.path("cache"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs and gives what was printed, after checking how it ended.
    fn run(&self, arguments: &[&str], code: i32) -> (String, String) {
        let output = self.command(arguments).output().expect("emel-compare runs");
        check(arguments, &output, code)
    }

    /// Runs for JSON, which must satisfy the schema.
    fn json(&self, arguments: &[&str], code: i32) -> Value {
        let mut all = arguments.to_vec();
        all.push("--json");
        let (text, errors) = self.run(&all, code);
        assert_eq!(errors, "", "{arguments:?}");
        assert_eq!(text.matches('\n').count(), 1, "{text}");
        let found = validate_file(&self.write("report.json", &text)).expect("a file to check");
        assert_eq!(found.problems, [], "{text}");
        serde_json::from_str(&text).expect("JSON")
    }

    /// Runs and expects failure with these words.
    fn fails(&self, arguments: &[&str], code: i32, words: &[&str]) {
        let (text, errors) = self.run(arguments, code);
        assert_eq!(text, "", "{arguments:?}");
        for word in words {
            assert!(
                errors.contains(word),
                "{arguments:?}: no '{word}': {errors}"
            );
        }
    }
}

fn check(arguments: &[&str], output: &Output, code: i32) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    let (out, errors) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(
        output.status.code(),
        Some(code),
        "{arguments:?}: {out}{errors}"
    );
    assert!(!errors.contains("panicked"), "{errors}");
    (out, errors)
}

/// A stream to be written.
#[derive(Clone)]
struct Stream<'a> {
    engine: &'a str,
    prompt: Vec<u32>,
    tokens: Vec<u32>,
    stop: &'a str,
    model_sha256: String,
    workload_id: &'a str,
    lane: &'a str,
    more: Vec<(&'a str, &'a str)>,
}

impl<'a> Stream<'a> {
    fn of(engine: &'a str, tokens: &[u32]) -> Self {
        Stream {
            engine,
            prompt: vec![BOS, THE],
            tokens: tokens.to_vec(),
            stop: "limit",
            model_sha256: "ab".repeat(32),
            workload_id: "w_v1",
            lane: "single",
            more: vec![
                ("formatter", "raw"),
                ("sampling", "argmax"),
                ("stop_rule", "limit"),
                ("seed", "1"),
                ("max_tokens", "8"),
            ],
        }
    }

    fn write(&self, path: &Path) {
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let header = TraceHeader {
            engine: self.engine.to_owned(),
            engine_version: "1.0".to_owned(),
            model_sha256: self.model_sha256.clone(),
            workload_id: self.workload_id.to_owned(),
            lane: self.lane.to_owned(),
            threads: "1".to_owned(),
            isa: "scalar".to_owned(),
            route: "-".to_owned(),
            numerics: "-".to_owned(),
            more: self.more.iter().map(own).collect(),
        };
        let mut file = TraceWriter::create(path, &header, &self.prompt).expect("a trace");
        for &token in &self.tokens {
            let next = [(A, 15.75), (B, 15.5), (T, 14.0)];
            let next: Vec<_> = next.into_iter().filter(|(id, _)| *id != token).collect();
            file.token(token, 16.25, &next).expect("a token");
        }
        file.finish(self.stop).expect("a trace");
    }
}
