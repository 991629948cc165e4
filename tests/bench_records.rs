//! `emel-bench list`, `validate` and `report` as a shell sees them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use emel::bench::records::{Generation, Head, Ratios, Record, RecordFile, Status, read_records};
use emel::bench::stats::{Ratio, Samples};
use tempfile::{TempDir, tempdir};

/// A folder of its own, removed at the end.
struct Folder(TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempdir().unwrap())
    }
    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

fn bench(arguments: &[&str], folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_emel-bench"))
        .args(arguments)
        .current_dir(folder)
        .env("EMEL_MODELS_DIR", folder)
        .env("EMEL_CACHE_DIR", folder)
        .env(
            "EMEL_BENCHDATA",
            Path::new(env!("CARGO_MANIFEST_DIR")).join("benchdata"),
        )
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn generation(engine: &str, ratio: Option<f64>) -> Record {
    let ratio = ratio.map(|ratio| Ratio {
        median: ratio,
        min: ratio,
        max: ratio,
        samples: vec![ratio],
    });
    let mut record = Generation {
        head: Head {
            run_id: "r".to_owned(),
            engine: engine.to_owned(),
            engine_version: Some("1".to_owned()),
            threads: 1,
            ..Head::default()
        },
        backend: engine.to_owned(),
        workload_id: "m_hello_v1".to_owned(),
        model: "m".to_owned(),
        formatter: "raw".to_owned(),
        sampling: "argmax".to_owned(),
        stop_rule: "eog".to_owned(),
        max_tokens: 2,
        comparable: true,
        comparable_reason: "same text".to_owned(),
        process: "warm".to_owned(),
        lane: "single".to_owned(),
        prompt_tokens: Some(4),
        output_tokens: Some(2),
        runs: 1,
        prefill_tokens_per_second: Some(50.0),
        ratios: ratio.map(|ratio| Ratios {
            prefill: Some(ratio),
            ..Ratios::default()
        }),
        ..Generation::default()
    };
    record.phases.prefill = Samples::new(vec![8e7]);
    record.phases.ttft = Samples::new(vec![8e7]);
    Record::Generation(Box::new(record))
}

fn write(path: &Path, ratio: f64) {
    let mut file = RecordFile::begin(path, false).unwrap();
    file.push(&generation("emel", None));
    file.push(&generation("llama.cpp", Some(ratio)));
    file.commit().unwrap();
}

#[test]
fn validate_accepts_what_is_written_and_names_what_is_not() {
    let folder = Folder::new();
    write(&folder.file("out.jsonl"), 2.0);
    let output = bench(&["validate", "out.jsonl"], folder.0.path());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "out.jsonl: 2 checked, all valid\n");

    let good = fs::read_to_string(folder.file("out.jsonl")).unwrap();
    let bad = good.replacen("\"runs\":1", "\"runs\":\"one\"", 1);
    fs::write(folder.file("bad.jsonl"), &bad).unwrap();
    let output = bench(&["validate", "bad.jsonl", "out.jsonl"], folder.0.path());
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        error.starts_with("bad.jsonl:1: runs: must be integer, is \"one\"\n"),
        "{error}"
    );
    assert!(
        error.contains("error: bad.jsonl: 1 problem(s) in 1 of 2"),
        "{error}"
    );
    assert_eq!(text(&output.stdout), "out.jsonl: 2 checked, all valid\n");

    let output = bench(&["validate", "none.jsonl"], folder.0.path());
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("cannot read none.jsonl"));
    assert_eq!(bench(&["validate"], folder.0.path()).status.code(), Some(2));
}

#[test]
fn report_shows_records_and_refuses_others() {
    let folder = Folder::new();
    write(&folder.file("out.jsonl"), 2.0);
    let output = bench(&["report", "--format", "md", "out.jsonl"], folder.0.path());
    let report = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(report.contains("| m | hello_v1 | single (1) | 50.0 | 50.0 | 2.00 (2.00-2.00) |"));
    fs::write(folder.file("bad.jsonl"), "{\"schema\":\"emel-bench/v0\"}\n").unwrap();
    let output = bench(&["report", "bad.jsonl"], folder.0.path());
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    assert!(
        error.contains("bad.jsonl:1: schema is \"emel-bench/v0\", this program"),
        "{error}"
    );
}

#[test]
fn a_snapshot_gates() {
    let folder = Folder::new();
    let with = |mode: &str| {
        bench(
            &["report", "out.jsonl", "--snapshot", "s.jsonl", mode],
            folder.0.path(),
        )
    };
    write(&folder.file("out.jsonl"), 2.0);
    assert_eq!(with("--check").status.code(), Some(1));
    assert_eq!(with("--update").status.code(), Some(0));
    assert_eq!(with("--check").status.code(), Some(0));
    write(&folder.file("out.jsonl"), 1.5);
    let output = with("--check");
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    assert!(
        error.contains("m_hello_v1, single, prefill against llama.cpp: 2.000 fell"),
        "{error}"
    );
    let output = bench(
        &["report", "out.jsonl", "--snapshot", "s.jsonl"],
        folder.0.path(),
    );
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn list_shows_what_there_is_and_how_to_obtain_the_rest() {
    let folder = Folder::new();
    fs::write(folder.file("SmolLM2-135M-Instruct.Q4_1.gguf"), "").unwrap();
    let output = bench(&["list"], folder.0.path());
    let list = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(list.contains("smollm2_135m_single_user_hello_max_tokens_1000_v1"));
    let line = |name: &str| list.lines().find(|line| line.contains(name)).unwrap();
    assert!(line("SmolLM2-135M-Instruct.Q4_1.gguf").contains("(present)"));
    assert!(line("gemma-3-270m-Q4_K_M.gguf").contains("scripts/fetch_models.sh gemma3-270m"));
    let synth = folder
        .file("synth/qwen3-4b-q4_k_m.gguf")
        .display()
        .to_string();
    assert!(line("qwen3-4b-q4_k_m").contains(&synth), "{list}");
    let output = bench(&["list", "workloads", "--suite", "daily"], folder.0.path());
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("no suite is called `daily`; there are: cold, curves, full")
    );
}

#[test]
fn a_failed_append_leaves_the_file_as_it_was() {
    let folder = Folder::new();
    let path = folder.file("out.jsonl");
    write(&path, 2.0);
    let mut failed = generation("llama.cpp", None);
    if let Record::Generation(record) = &mut failed {
        record.head.status = Status::Error;
        record.head.error = Some("killed".to_owned());
    }
    let mut file = RecordFile::begin(&path, true).unwrap();
    file.push(&failed);
    drop(file);
    assert_eq!(read_records(&path).unwrap().len(), 2);
    let mut file = RecordFile::begin(&path, true).unwrap();
    file.push(&failed);
    file.commit().unwrap();
    assert_eq!(read_records(&path).unwrap()[2], failed);
}

/// Records of a real run, one repetition, of SmolLM2 in the multithreaded lane.
fn recorded() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = root.join("benchdata/golden/records/smollm2_135m.jsonl");
    path.display().to_string()
}

#[test]
fn report_shows_targets_beside_results() {
    let folder = Folder::new();
    let file = recorded();
    let output = bench(
        &["report", &file, "--targets", "--format", "md"],
        folder.0.path(),
    );
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report = text(&output.stdout);
    let row = |parts: &[&str]| {
        let found = report
            .lines()
            .find(|line| parts.iter().all(|part| line.contains(part)));
        found
            .unwrap_or_else(|| panic!("{parts:?}\n{report}"))
            .to_owned()
    };
    // Three engines were measured: the fastest counts, or the one that is named.
    let prompt = row(&["smollm2_135m | prompt_512", "multithreaded (2)"]);
    assert!(prompt.contains("| ik_llama.cpp rtr-fa | "), "{prompt}");
    let start = row(&["smollm2_135m | cold_start", "multithreaded (2)"]);
    assert!(start.contains("| llama.cpp amx-fa | "), "{start}");
    for part in [
        "start to first token",
        "peak memory / (file",
        "peak memory |",
    ] {
        let line = row(&["smollm2_135m |", "multithreaded (2)", part]);
        assert!(
            line.ends_with("| yes |") || line.contains("| no "),
            "{line}"
        );
    }
    // The other lane and the other models were not measured.
    let single = row(&["smollm2_135m | prompt_512", "| single |"]);
    assert!(single.ends_with("| - | - | not measured |"), "{single}");
    assert!(report.contains(" targets met, "), "{report}");

    let own = format!(
        r#"{{"schema": "emel-targets/v1", "targets": [{{"workload":
        "smollm2_135m_{}", "lanes": ["multithreaded"], "metric": "decode_ratio", "value": 1000,
        "limit": "nobody is that fast"}}]}}"#,
        "decode_max_tokens_128_v1"
    );
    fs::write(folder.file("own.json"), own).unwrap();
    let output = bench(&["validate", "own.json"], folder.0.path());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let output = bench(&["report", &file, "--targets=own.json"], folder.0.path());
    let report = text(&output.stdout);
    assert!(report.starts_with("0 of 1 targets met.\n"), "{report}");
    assert!(report.contains("no [1]") && report.contains("1. nobody is that fast\n"));

    let bad = fs::read_to_string(folder.file("own.json")).unwrap();
    fs::write(folder.file("bad.json"), bad.replace("1000", "-1")).unwrap();
    let output = bench(&["validate", "bad.json"], folder.0.path());
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    assert!(error.contains("targets[0].value"), "{error}");
    let output = bench(&["report", &file, "--targets=bad.json"], folder.0.path());
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    assert!(
        error.contains("bad.json:1: targets[0].value: must be"),
        "{error}"
    );
}

#[test]
fn curves_draws_what_was_recorded() {
    let folder = Folder::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = root.join("benchdata/golden/records/growth.jsonl");
    let file = file.display().to_string();
    let output = bench(
        &["curves", &file, "-o", ".", "--link", "pictures"],
        folder.0.path(),
    );
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let page = text(&output.stdout);
    for name in ["prefill_qwen3_0_6b_q8_0", "decode_qwen3_0_6b_q8_0"] {
        let name = format!("{name}_multithreaded.svg");
        assert!(page.contains(&format!("](pictures/{name})")), "{page}");
        let picture = fs::read_to_string(folder.file(&name)).unwrap();
        assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
        assert!(picture.contains("<circle"), "{picture}");
    }
    assert!(page.contains("(root mean square, of their mean)"), "{page}");
    let output = bench(&["curves", &recorded()], folder.0.path());
    assert_eq!(output.status.code(), Some(2));
    let error = text(&output.stderr);
    assert!(error.contains("no curve: ") && error.contains("scripts/curves.sh"));
}
