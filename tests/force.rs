//! `emel-bench worker` fed with given tokens: the logits are a run's, the tensors are all there,
//! and what cannot be done is refused.

use emel::bench::protocol::{Answer, Forced, Loaded, Ran};
use emel::gguf::TensorType;
use emel::model::Point;
use emel::model::testing::{TemporaryModel, TestModel};
use emel::trace::checksum::Fnv64;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use tempfile::{TempDir, tempdir};

const N_CTX: usize = 64;
const N_VOCAB: usize = 300;

/// A worker, a model, and a folder for what the worker writes; all gone when dropped.
struct Worker {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    model: TemporaryModel,
    folder: TempDir,
}

impl Worker {
    fn start(architecture: &'static str, ty: TensorType) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_emel-bench"))
            .arg("worker")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("emel-bench starts");
        let requests = child.stdin.take().expect("its input");
        let answers = BufReader::new(child.stdout.take().expect("its output"));
        let folder = tempdir().expect("a folder");
        let model = TestModel::new(architecture, ty);
        Worker {
            child,
            requests,
            answers,
            model: model.write_temporary().expect("a test model"),
            folder,
        }
    }

    /// The same with the model loaded, on the route and with the threads given.
    fn loaded(architecture: &'static str, route: &str, threads: usize) -> Self {
        let mut worker = Self::start(architecture, TensorType::Q8_0);
        worker.load(route, threads);
        worker
    }

    fn load(&mut self, route: &str, threads: usize) {
        let request = json!({"op": "load", "model": self.model.path(), "threads": threads,
            "threads_batch": threads, "n_ctx": N_CTX, "n_ubatch": 8,
            "options": {"route": route}});
        self.done::<Loaded>(&request);
    }

    fn ask<T: DeserializeOwned>(&mut self, request: &Value) -> Answer<T> {
        writeln!(self.requests, "{request}").expect("the worker listens");
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("an answer");
        serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{error}: {answer}"))
    }

    fn done<T: DeserializeOwned>(&mut self, request: &Value) -> T {
        match self.ask(request) {
            Answer::Done(done) => done,
            Answer::Failed { error } => panic!("{request}: {error}"),
        }
    }

    fn refused(&mut self, request: &Value, words: &[&str]) {
        match self.ask::<Forced>(request) {
            Answer::Done(done) => panic!("{request}: {done:?}"),
            Answer::Failed { error } => {
                let missing = words.iter().find(|word| !error.contains(**word));
                assert_eq!(missing, None, "{request}: {error}");
            }
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn request(&self, ids: &[u32], prompt: usize, tensors: bool) -> Value {
        let tensors = tensors.then(|| self.path("tensors"));
        json!({"op": "force", "ids": ids, "prompt": prompt, "logits": self.path("logits"),
            "tensors": tensors})
    }

    /// The bytes of the rows of logits.
    fn force(&mut self, ids: &[u32], prompt: usize) -> Vec<u8> {
        let forced: Forced = self.done(&self.request(ids, prompt, false));
        assert_eq!(forced.n_vocab, N_VOCAB);
        assert_eq!(forced.tensors, []);
        let rows = ids.len() + 1 - prompt.max(1);
        assert_eq!(forced.rows, rows);
        let bytes = fs::read(self.path("logits")).expect("rows of logits");
        assert_eq!(bytes.len(), rows * N_VOCAB * 4);
        bytes
    }

    /// The tensors of the last of `ids`, as they are listed and as bytes.
    fn tensors(&mut self, ids: &[u32], prompt: usize) -> (Forced, Vec<u8>) {
        let forced: Forced = self.done(&self.request(ids, prompt, true));
        let bytes = fs::read(self.path("tensors")).expect("tensors");
        let len: usize = forced.tensors.iter().map(|tensor| tensor.len).sum();
        assert_eq!(bytes.len(), 4 * len);
        (forced, bytes)
    }

    fn run(&mut self, max_tokens: usize) -> Ran {
        self.done(
            &json!({"op": "run", "text": "the thing that ran", "prompt_tokens": null,
            "max_tokens": max_tokens, "stop": "limit", "observe": true, "trace": null}),
        )
    }

    fn files(&self) -> usize {
        fs::read_dir(&self.folder).expect("a folder").count()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Whatever of it is left is this process's to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn sum(bytes: &[u8]) -> String {
    let mut sum = Fnv64::new();
    sum.update(bytes);
    sum.to_string()
}

fn ids(n: usize) -> Vec<u32> {
    (0..n as u32).map(|i| 3 + i * 53 % 290).collect()
}

#[test]
fn rows_are_the_logits_of_a_run_that_chose_these_tokens() {
    for (architecture, route, threads) in [
        ("llama", "auto", 2),
        ("qwen2", "scalar", 1),
        ("qwen3", "wide", 3),
        ("gemma3", "chunk4", 2),
    ] {
        let mut worker = Worker::loaded(architecture, route, threads);
        let ran = worker.run(9);
        let prompt = ran.prompt_ids.len();
        assert!(prompt > 8, "more than a batch: {prompt}");
        let mut ids = ran.prompt_ids.clone();
        // The last token was chosen and never passed.
        ids.extend(&ran.ids[..8]);
        let rows = worker.force(&ids, prompt);
        assert_eq!(Some(sum(&rows)), ran.logits_checksum, "{architecture}");
        // Nor does a force change what a run does.
        assert_eq!(worker.run(9).logits_checksum, ran.logits_checksum);
    }
}

#[test]
fn a_sequence_in_parts_gives_the_rows_of_the_whole() {
    let mut worker = Worker::loaded("llama", "auto", 2);
    let ids = ids(40);
    let whole = worker.force(&ids, 20);
    let mut parts = worker.force(&ids[..25], 20);
    parts.extend(worker.force(&ids[25..26], 0));
    parts.extend(worker.force(&ids[26..], 0));
    assert!(parts == whole);
    // And every row is the same whether its token was of the prompt or came after.
    let row = N_VOCAB * 4;
    assert!(worker.force(&ids, 40) == whole[20 * row..]);
    assert!(worker.force(&ids, 1)[19 * row..] == whole);
}

#[test]
fn tensors_of_the_last_token_are_those_of_every_layer_and_point() {
    for (architecture, attended, keys) in [("llama", 256, 128), ("gemma3", 512, 128)] {
        let mut worker = Worker::loaded(architecture, "auto", 2);
        let ids = ids(21);
        let (forced, bytes) = worker.tensors(&ids, 20);
        let mut wanted = vec![(None, "embedding", 256)];
        for layer in 0..3 {
            for (point, len) in [
                ("attn_norm", 256),
                ("q", attended),
                ("k", keys),
                ("v", keys),
                ("attended", attended),
                ("attn_residual", 256),
                ("ffn_norm", 256),
                ("ffn_hidden", 512),
                ("ffn_out", 256),
                ("layer_out", 256),
            ] {
                wanted.push((Some(layer), point, len));
            }
        }
        wanted.push((None, "output_norm", 256));
        let places = forced.tensors.iter();
        let places: Vec<_> = places
            .map(|place| (place.layer, place.point.as_str(), place.len))
            .collect();
        assert_eq!(places, wanted);
        assert!(
            places
                .iter()
                .all(|(_, point, _)| point.parse::<Point>().is_ok())
        );
        // The same position at the end of a prompt that passes in several batches, and alone.
        let (_, in_prompt) = worker.tensors(&ids, 21);
        assert!(in_prompt == bytes);
        worker.force(&ids[..20], 20);
        let (_, alone) = worker.tensors(&ids[20..], 0);
        assert!(alone == bytes);
        // Another position's are not.
        let (_, before) = worker.tensors(&ids[..20], 20);
        assert!(before != bytes && before.len() == bytes.len());
    }
}

#[test]
fn what_cannot_be_done_is_refused_and_leaves_files_and_cache_alone() {
    let mut worker = Worker::start("llama", TensorType::Q8_0);
    let ids = ids(N_CTX + 1);
    let go_on = "`prompt` is 0";
    worker.refused(&worker.request(&ids[..2], 1, false), &["`load`"]);
    worker.load("auto", 2);
    worker.refused(&worker.request(&ids[..1], 0, false), &[go_on]);
    let whole = worker.force(&ids[..30], 10);
    worker.force(&ids[..28], 10);
    let kept = fs::read(worker.path("logits")).expect("rows of logits");

    worker.refused(&worker.request(&[], 0, false), &["`ids`"]);
    worker.refused(
        &worker.request(&ids[..3], 4, false),
        &["`prompt` is 4", "3"],
    );
    worker.refused(&worker.request(&ids, 7, true), &["65", "64"]);
    worker.refused(&worker.request(&ids[28..], 0, true), &["65", "64"]);
    worker.refused(&worker.request(&[5, 300], 0, true), &["300"]);
    let mut same = worker.request(&ids[..3], 3, true);
    same["tensors"] = same["logits"].clone();
    worker.refused(&same, &["same file"]);
    for key in ["logits", "tensors"] {
        let mut nowhere = worker.request(&ids[..3], 3, true);
        nowhere[key] = json!(worker.path("no/such/file"));
        worker.refused(&nowhere, &["no/such/file", "create its folder first"]);
    }
    assert!(fs::read(worker.path("logits")).expect("rows of logits") == kept);
    assert_eq!(worker.files(), 1);
    // None of these has touched the cache.
    assert!(worker.force(&ids[28..30], 0) == whole[19 * N_VOCAB * 4..]);

    worker.run(2);
    worker.refused(&worker.request(&ids[..1], 0, false), &[go_on]);
    worker.force(&ids[..N_CTX], 60);
    worker.refused(&worker.request(&ids[64..], 0, false), &["65", "64"]);
    worker.load("auto", 1);
    worker.refused(&worker.request(&ids[..1], 0, false), &[go_on]);
    worker.force(&ids[..2], 1);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_told_and_nothing_goes_on_from_there() {
    let mut worker = Worker::loaded("llama", "auto", 2);
    let ids = ids(5);
    worker.force(&ids, 5);
    for key in ["logits", "tensors"] {
        let mut full = worker.request(&ids, 5, true);
        full[key] = json!("/dev/full");
        worker.refused(&full, &["/dev/full", "free some space"]);
        worker.refused(&worker.request(&ids, 0, false), &["`prompt` is 0"]);
        worker.force(&ids, 5);
    }
}
