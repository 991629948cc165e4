//! Requests that cannot be met, and how it ends.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use crate::common::{example, temporary};
use crate::{small, written};
use emel::bench::protocol::Answer;
use emel::gguf::TensorType;
use emel::model::testing::TestModel;
use serde_json::{Value, json};

/// The program, spoken to line by line.
struct Lines {
    child: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Lines {
    fn start() -> Self {
        let mut child = Command::new(example("plain_backend"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        Lines {
            requests: child.stdin.take(),
            answers: BufReader::new(child.stdout.take().expect("a stream")),
            child,
        }
    }

    fn send(&mut self, line: &str) {
        let requests = self.requests.as_mut().expect("it is open");
        writeln!(requests, "{line}").expect("it listens");
    }

    fn ask(&mut self, line: &str) -> Answer<Value> {
        self.send(line);
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("text");
        serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{line}: {error}: {answer}"))
    }

    fn refuses(&mut self, line: &str, words: &str) {
        match self.ask(line) {
            Answer::Failed { error } => assert!(error.contains(words), "{line}: {error}"),
            Answer::Done(done) => panic!("{line}: {done}"),
        }
    }

    fn ends(mut self) {
        self.requests = None;
        for _ in 0..600 {
            if let Some(status) = self.child.try_wait().expect("a child") {
                assert!(status.success(), "{status}");
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("it goes on without its input");
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn load(model: &Path, changes: Value) -> Value {
    let mut load = json!({"op": "load", "model": model, "threads": 1, "threads_batch": 1,
        "n_ctx": 64, "n_ubatch": 64, "options": {}});
    for (key, value) in changes.as_object().into_iter().flatten() {
        load[key] = value.clone();
    }
    load
}

#[test]
fn what_cannot_be_done_is_refused() {
    let llama = written(&small("llama").file());
    let gemma = TestModel::new("gemma3", TensorType::Q8_0).file();
    let gemma = written(&gemma);
    let broken = temporary("broken.gguf");
    std::fs::write(&broken, b"GGUF\x03\0\0\0\xff\xff\xff\xff\xff\xff\xff\x7f").expect("a file");
    let mut lines = Lines::start();
    for nonsense in ["", "{", "[]", "7", "{}", r#"{"op":"fly"}"#, "\u{0}\u{1f}"] {
        lines.refuses(nonsense, "no request of this protocol");
    }
    let run = json!({"op": "run", "text": "the", "max_tokens": 1, "stop": "limit",
        "observe": false})
    .to_string();
    lines.refuses(&run, "no model is loaded");
    let defect = |text: &str| json!({"options": {"defect": text}});
    for (model, changes, words) in [
        (Path::new("/no/such.gguf"), json!({}), "/no/such.gguf"),
        (&broken, json!({}), "broken.gguf"),
        (llama.path(), json!({"threads": 0}), "`threads` is 0"),
        (
            llama.path(),
            json!({"threads_batch": 1_000_000}),
            "`threads_batch`",
        ),
        (llama.path(), json!({"n_ctx": 0}), "`n_ctx`"),
        (llama.path(), json!({"n_ctx": 1_u64 << 60}), "`n_ctx`"),
        (llama.path(), json!({"n_ubatch": 0}), "`n_ubatch`"),
        (llama.path(), json!({"options": {"warp": 9}}), "`warp`"),
        (
            llama.path(),
            json!({"options": {"defect": 9}}),
            "9 is no string",
        ),
        (llama.path(), defect("plague"), "'plague' is not known"),
        (llama.path(), defect("shifted_rows"), "is not known"),
        (llama.path(), defect("shifted_rows:x"), "is not known"),
        (llama.path(), defect("rope_base:1"), "is not known"),
        (llama.path(), defect("shifted_rows:3"), "the model has 3"),
        (
            llama.path(),
            defect("swapped_kv_heads:99999"),
            "the model has 3",
        ),
        (
            gemma.path(),
            defect("swapped_kv_heads:0"),
            "needs two heads",
        ),
        (llama.path(), defect("lost_merge:"), "no two parts"),
        (llama.path(), defect("lost_merge:t"), "no two parts"),
        (llama.path(), defect("lost_merge:<s>"), "no two parts"),
        (llama.path(), defect("lost_merge:nothing"), "no two parts"),
    ] {
        lines.refuses(&load(model, changes).to_string(), words);
    }
    std::fs::remove_file(&broken).expect("it is there");
    // The last model is gone: each load drops it first.
    lines.refuses(&run, "no model is loaded");

    let loaded = lines.ask(&load(llama.path(), json!({})).to_string());
    assert!(matches!(loaded, Answer::Done(done) if done["options"] == json!({"defect": "none"})));
    for op in [
        r#"{"op":"run_kernel","samples":1,"min_sample_ns":1}"#,
        r#"{"op":"barrier","threads":1,"samples":1,"min_sample_ns":1}"#,
        r#"{"op":"prepare_kernel","kernel":"rms_norm","width":8,"tokens":1,"threads":1}"#,
    ] {
        lines.refuses(op, "is not what this backend does");
    }
    let change = |request: &str, key: &str, value: Value| {
        let mut request: Value = serde_json::from_str(request).expect("JSON");
        request[key] = value;
        request.to_string()
    };
    lines.refuses(&change(&run, "prompt_tokens", json!(0)), "no tokens");
    lines.refuses(&change(&run, "text", json!("q".repeat(64))), "do not fit");
    let trace = json!("/no/such/folder/trace");
    let traced = change(&change(&run, "observe", json!(true)), "trace", trace);
    lines.refuses(&traced, "/no/such/folder/trace");
    lines.refuses(
        &change(&run, "top_logprobs", json!(1_u64 << 60)),
        "`top_logprobs`",
    );

    let logits = temporary("logits");
    let force =
        json!({"op": "force", "ids": [5, 6, 7], "prompt": 2, "logits": *logits}).to_string();
    let on = change(&change(&force, "prompt", json!(0)), "ids", json!([8]));
    lines.refuses(&on, "no `force` to go on from");
    lines.refuses(&change(&force, "ids", json!([])), "nothing to feed");
    lines.refuses(&change(&force, "prompt", json!(4)), "`prompt` is 4");
    lines.refuses(&change(&force, "ids", json!([5, 6, 300])), "token 300");
    lines.refuses(&change(&force, "ids", json!(vec![5; 65])), "do not fit");
    lines.refuses(
        &change(&force, "logits", json!("/no/such/folder/l")),
        "/no/such",
    );
    lines.refuses(
        &change(&force, "tensors", json!("/no/such/folder/t")),
        "/no/such",
    );
    lines.refuses(&change(&force, "tensors", json!(*logits)), "the same file");
    assert!(!logits.exists(), "nothing is left of what failed");

    assert!(matches!(lines.ask(&force), Answer::Done(done) if done["rows"] == 2));
    assert!(matches!(lines.ask(&on), Answer::Done(done) if done["rows"] == 1));
    lines.refuses(
        &change(&on, "ids", json!(vec![5; 61])),
        "60 of the context's 64 are free",
    );
    assert!(
        matches!(lines.ask(&on), Answer::Done(_)),
        "a refusal costs nothing"
    );
    assert!(matches!(lines.ask(&run), Answer::Done(_)));
    lines.refuses(&on, "no `force` to go on from");
    assert!(logits.exists());
    lines.ends();
}

#[test]
fn logits_that_are_no_numbers_and_lines_without_end_are_refused() {
    let mut file = small("llama").file();
    let nans = std::iter::repeat_n(f32::NAN.to_le_bytes(), 256);
    file.tensor_mut("output_norm.weight").data = nans.flatten().collect();
    let model = written(&file);
    let mut lines = Lines::start();
    lines.ask(&load(model.path(), json!({})).to_string());
    let run = json!({"op": "run", "text": "the", "max_tokens": 1, "stop": "limit",
        "observe": false});
    lines.refuses(&run.to_string(), "NaN");
    lines.refuses(&"x".repeat(65 << 20), "too long");
    lines.refuses(&run.to_string(), "NaN");
    lines.ends();
}

#[test]
fn it_ends_with_its_input_in_the_middle_of_a_run() {
    let model = written(&small("llama").file());
    let mut lines = Lines::start();
    let long = json!({"n_ctx": 1 << 24});
    lines.ask(&load(model.path(), long).to_string());
    let run = json!({"op": "run", "text": "the", "max_tokens": 1 << 24, "stop": "limit",
        "observe": false});
    lines.send(&run.to_string());
    lines.ends();
}
