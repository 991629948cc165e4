//! The real `emel-bench run` on a library of its own: small models, EMEL as its own reference, and
//! references that crash, hang and talk nonsense.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use emel::gguf::TensorType;
use emel::model::testing::TestModel;
use emel::trace::Trace;
use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};

/// A benchdata folder with a model beside it; gone when dropped.
struct Bench(TempDir);

const HELLO: &str = "tiny_hello_v1";
const COLD: &str = "tiny_cold_v1";

impl Bench {
    fn new() -> Self {
        let bench = Bench(tempdir().expect("a folder"));
        for folder in ["workloads", "prompts", "backends"] {
            fs::create_dir_all(bench.file("benchdata").join(folder)).expect("a folder");
        }
        fs::create_dir(bench.file("models")).expect("a folder");
        let model = TestModel::new("llama", TensorType::Q8_0);
        model
            .file()
            .write(&bench.file("models/tiny.gguf"))
            .expect("a model");
        bench.write(
            "models.json",
            &json!({"schema": "emel-models/v1", "models": [
                {"name": "tiny", "file": "tiny.gguf", "sha256": null, "obtain": "make {file}",
                 "kind": "base", "synth": null},
                {"name": "absent", "file": "absent.gguf", "sha256": null,
                 "obtain": "emel-bench synth -o {file}", "kind": "base", "synth": null},
            ]}),
        );
        fs::write(bench.file("benchdata/prompts/hello.txt"), "the thing\n").expect("a prompt");
        bench.workload(HELLO, "tiny", "warm");
        bench.workload(COLD, "tiny", "cold");
        bench.workload("absent_hello_v1", "absent", "warm");
        bench.backend("itself", &["{self}", "worker"]);
        bench
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, value: &Value) {
        let text = serde_json::to_string_pretty(value).expect("JSON");
        fs::write(self.file("benchdata").join(name), text).expect("a file");
    }

    fn workload(&self, id: &str, model: &str, process: &str) {
        self.write(
            &format!("workloads/{id}.json"),
            &json!({"schema": "emel-workload/v1", "id": id, "model": model, "prompt": "hello.txt",
                "formatter": "raw", "prompt_tokens": null, "sampling": "argmax", "stop": "limit",
                "seed": 1, "max_tokens": 6, "lanes": ["single", "multithreaded"],
                "process": process, "comparable": true, "comparable_reason": "greedy",
                "suites": ["published"], "n_ctx": null}),
        );
    }

    fn backend(&self, id: &str, command: &[&str]) {
        self.write(
            &format!("backends/{id}.json"),
            &json!({"schema": "emel-backend/v1", "id": id, "name": id, "command": command,
            "build_command": format!("build {id}"), "engine": id, "capabilities": ["run"],
            "configs": [
                {"name": "best-isa", "options": {}, "sets": ["best", "spread"]},
                {"name": "scalar", "options": {"isa": "scalar"}, "sets": ["best", "spread"]},
            ]}),
        );
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_emel-bench"));
        command
            .arg("run")
            .args(["--benchdata".as_ref(), self.file("benchdata").as_os_str()])
            .args(["--models-dir".as_ref(), self.file("models").as_os_str()])
            .args(arguments)
            .env("EMEL_CACHE_DIR", self.file("cache"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("emel-bench runs")
    }

    fn succeeds(&self, arguments: &[&str]) -> Output {
        let output = self.run(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {errors}");
        output
    }

    fn fails(&self, arguments: &[&str], code: i32, words: &[&str]) {
        let output = self.run(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
        for word in words {
            assert!(
                errors.contains(word),
                "{arguments:?}: no '{word}': {errors}"
            );
        }
    }

    fn path(&self, name: &str) -> String {
        self.file(name).display().to_string()
    }

    fn records(&self, name: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.file(name)).expect("records");
        let parse = |line| serde_json::from_str(line).expect("a JSON line");
        text.lines().map(parse).collect()
    }
}

fn of<'r>(records: &'r [Value], backend: &str, lane: &str) -> Vec<&'r Value> {
    let wanted = |record: &&Value| record["backend"] == backend && record["lane"] == lane;
    records.iter().filter(wanted).collect()
}

#[test]
fn both_engines_are_recorded_in_both_lanes_with_their_traces() {
    let bench = Bench::new();
    let out = bench.path("out.jsonl");
    let flags = [
        "-w", HELLO, "-r", "itself", "-n", "2", "-t", "2", "-o", &out,
    ];
    let output = bench.succeeds(&flags);
    let records = bench.records("out.jsonl");
    for (lane, threads) in [("single", 1), ("multithreaded", 2)] {
        let own = of(&records, "emel", lane);
        assert_eq!(own.len(), 1, "{records:?}");
        let own = own[0];
        assert_eq!(own["schema"], "emel-bench/v1");
        assert_eq!(own["status"], "ok");
        assert_eq!(own["threads"], threads);
        assert_eq!(own["output_tokens"], 6);
        assert_eq!(own["runs"], 2);
        for phase in [
            "load",
            "pack",
            "tokenize",
            "prefill",
            "first_token",
            "decode",
            "detokenize",
        ] {
            let median = &own[format!("{phase}_ns_median")];
            assert!(median.as_f64().is_some_and(|ns| ns > 0.0), "{phase}: {own}");
        }
        assert_eq!(own["prefill_ns_samples"].as_array().map(Vec::len), Some(2));
        assert_eq!(own["counter_decode_steps"], 5);
        let references = of(&records, "itself", lane);
        assert!(!references.is_empty());
        let best: Vec<&Value> = references
            .iter()
            .flat_map(|record| record["best_for"].as_array().expect("a list"))
            .collect();
        assert_eq!(best.len(), 2, "one for prefill, one for decode: {best:?}");
        for reference in references {
            assert_eq!(reference["status"], "ok");
            assert_eq!(reference["ids_checksum"], own["ids_checksum"]);
            assert_eq!(reference["logits_checksum"], own["logits_checksum"]);
            let ratios = reference["emel_prefill_ratio_samples"].as_array();
            assert_eq!(ratios.map(Vec::len), Some(2));
        }
        for record in records.iter().filter(|record| record["lane"] == lane) {
            let name = record["trace"].as_str().expect("a trace");
            let text = fs::read_to_string(bench.file("out.jsonl.traces").join(name)).expect(name);
            let trace = Trace::parse(&text).expect("a valid trace");
            assert_eq!(trace.tokens.len(), 6);
            assert_eq!(trace.header.workload_id, HELLO);
            assert_eq!(trace.header.lane, lane);
        }
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains(HELLO), "a summary: {errors}");
}

#[test]
fn cold_runs_load_each_time() {
    let bench = Bench::new();
    let out = bench.path("out.jsonl");
    let flags = [
        "-w", COLD, "--lane", "single", "-r", "itself", "-n", "3", "-o", &out,
    ];
    bench.succeeds(&flags);
    for record in bench.records("out.jsonl") {
        assert_eq!(record["load_ns_samples"].as_array().map(Vec::len), Some(3));
        let number = |key: &str| record[key].as_f64().expect(key);
        assert!(number("ttft_ns_min") > number("load_ns_min"), "{record}");
    }
}

#[test]
fn emel_alone_and_appended() {
    let bench = Bench::new();
    let out = bench.path("out.jsonl");
    let flags = [
        "-w", HELLO, "--lane", "single", "-r", "none", "-n", "1", "-o", &out,
    ];
    bench.succeeds(&flags);
    let first = fs::read_to_string(&out).expect("records");
    assert_eq!(first.lines().count(), 1);
    let mut appended = flags.to_vec();
    appended.push("--append");
    bench.succeeds(&appended);
    let both = fs::read_to_string(&out).expect("records");
    assert!(both.starts_with(&first));
    assert_eq!(both.lines().count(), 2);
    let traces = fs::read_dir(bench.file("out.jsonl.traces")).expect("traces");
    assert_eq!(traces.count(), 2);
    fs::write(&out, "no record\n").expect("a file");
    bench.fails(&appended, 1, &["out.jsonl:1:", "nothing is appended"]);
    assert_eq!(fs::read_to_string(&out).expect("a file"), "no record\n");
}

#[test]
fn what_is_missing_is_one_line_with_its_cure() {
    let bench = Bench::new();
    let words = ["absent.gguf is missing", "emel-bench synth -o"];
    bench.fails(&["-w", "absent_hello_v1", "-r", "none"], 1, &words);
    bench.backend("unbuilt", &["/no/such/folder/engine"]);
    let words = ["/no/such/folder/engine", "build unbuilt"];
    bench.fails(&["-w", HELLO, "-r", "unbuilt"], 1, &words);
    bench.fails(
        &["-w", HELLO, "-r", "unheard-of"],
        2,
        &["unheard-of", "itself"],
    );
    bench.fails(
        &["-w", "nothing_v1", "-r", "none"],
        2,
        &["nothing_v1", HELLO],
    );
    let config = ["-w", HELLO, "-r", "itself", "--reference-config", "odd"];
    bench.fails(&config, 2, &["'odd'", "best-isa"]);
    let out = bench.path("no/such/folder/out.jsonl");
    bench.fails(
        &["-w", HELLO, "-r", "none", "-o", &out],
        1,
        &["create its folder first"],
    );
}

#[test]
fn a_reference_that_fails_becomes_a_record_and_the_run_goes_on() {
    let bench = Bench::new();
    let out = bench.path("out.jsonl");
    for (id, script, says) in [
        (
            "crasher",
            "read x; echo the last words >&2; kill -ILL $$",
            "signal: 4",
        ),
        (
            "babbler",
            "while read x; do echo hello; done",
            "no answer to `load`",
        ),
        (
            "refuser",
            "while read x; do echo '{\"error\":\"out of luck\"}'; done",
            "out of luck",
        ),
        ("sleeper", "read x; exec sleep 1000", "within 1 s"),
    ] {
        bench.backend(id, &["/bin/sh", "-c", script]);
        let flags = [
            "-w",
            HELLO,
            "--lane",
            "single",
            "-n",
            "1",
            "-o",
            &out,
            "--timeout",
            "1",
            "-r",
            id,
        ];
        bench.succeeds(&flags);
        let records = bench.records("out.jsonl");
        assert_eq!(of(&records, "emel", "single")[0]["status"], "ok");
        let failed = of(&records, id, "single");
        assert_eq!(failed.len(), 2, "both configurations");
        for record in failed {
            assert_eq!(record["status"], "error");
            let error = record["error"].as_str().expect("an error");
            assert!(error.contains(says), "{id}: {error}");
            if id == "crasher" {
                assert_eq!(record["stderr_tail"], "the last words");
            }
        }
    }
}

/// Starts a run that takes long, waits until it has begun, and sends it a signal.
fn end_midway(bench: &Bench, out: &str, signal: &str) -> Output {
    let flags = ["-w", HELLO, "-r", "itself", "-n", "1000000", "-o", out];
    let child = bench.command(&flags).spawn().expect("emel-bench starts");
    let traces = format!("{out}.traces");
    let begun = || fs::read_dir(&traces).is_ok_and(|entries| entries.count() > 2);
    for _ in 0..600 {
        if begun() {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let killed = Command::new("kill")
        .args([&format!("-{signal}"), &child.id().to_string()])
        .status()
        .expect("kill runs");
    assert!(killed.success());
    child.wait_with_output().expect("emel-bench ends")
}

#[test]
fn a_run_that_is_ended_leaves_the_old_records_and_says_what_is_missing() {
    let bench = Bench::new();
    let out = bench.path("out.jsonl");
    let flags = [
        "-w", HELLO, "--lane", "single", "-r", "none", "-n", "1", "-o", &out,
    ];
    bench.succeeds(&flags);
    let before = fs::read_to_string(&out).expect("records");
    let trace = bench.records("out.jsonl")[0]["trace"].clone();
    let trace = bench
        .file("out.jsonl.traces")
        .join(trace.as_str().expect("a name"));

    let output = end_midway(&bench, &out, "INT");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{errors}");
    assert!(errors.contains("nothing was written"), "{errors}");
    assert!(errors.contains("tiny_hello_v1 multithreaded"), "{errors}");
    assert_eq!(fs::read_to_string(&out).expect("records"), before);
    assert!(trace.is_file());
    let traces = fs::read_dir(bench.file("out.jsonl.traces")).expect("traces");
    assert_eq!(traces.count(), 1, "the ended run's traces are gone");

    let output = end_midway(&bench, &out, "KILL");
    assert!(!output.status.success());
    assert_eq!(fs::read_to_string(&out).expect("records"), before);
    assert!(trace.is_file());
    bench.succeeds(&flags);
    let left = fs::read_dir(bench.file("out.jsonl.traces")).expect("traces");
    assert_eq!(left.count(), 1, "the next run sweeps up");
}

#[test]
fn a_full_disk_is_told() {
    if !Path::new("/dev/full").exists() {
        eprintln!("skipped: this system has no /dev/full");
        return;
    }
    let bench = Bench::new();
    let flags = [
        "-w",
        HELLO,
        "--lane",
        "single",
        "-r",
        "none",
        "-n",
        "1",
        "-o",
        "/dev/full",
    ];
    bench.fails(&flags, 1, &["/dev/full", "free some space"]);
}

#[test]
fn snapshots_hold_ratios_and_fail_when_they_fall() {
    let bench = Bench::new();
    let snapshot = bench.path("snapshot.jsonl");
    let flags = [
        "-w",
        HELLO,
        "--lane",
        "single",
        "-r",
        "itself",
        "-n",
        "1",
        "--snapshot",
    ];
    let with = |last: &str| {
        let mut all = flags.to_vec();
        all.extend([snapshot.as_str(), last]);
        all.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let update = with("--update");
    bench.succeeds(&update.iter().map(String::as_str).collect::<Vec<_>>());
    let text = fs::read_to_string(&snapshot).expect("a snapshot");
    let rows: Vec<Value> = text
        .lines()
        .map(|row| serde_json::from_str(row).unwrap())
        .collect();
    assert!(!rows.is_empty());
    // Ratios that nothing can reach, and ratios that anything reaches.
    for (ratio, code) in [(1e9, 1), (1e-9, 0)] {
        let changed = rows.iter().map(|row| {
            let mut row = row.clone();
            row["ratio"] = json!(ratio);
            row.to_string() + "\n"
        });
        fs::write(&snapshot, changed.collect::<String>()).expect("a snapshot");
        let check = with("--check");
        let output = bench.run(&check.iter().map(String::as_str).collect::<Vec<_>>());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{errors}");
        assert_eq!(code == 1, errors.contains("fell"), "{errors}");
    }
}
