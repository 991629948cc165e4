//! Runs the real `emel-bench kernels` and `machines`: EMEL's side against references
//! that are small shell scripts, and what becomes of their answers and their deaths.

use emel::bench::records::{Kernel, Record, Status, read_records};
use std::process::{Command, Output};
use tempfile::{TempDir, tempdir};

/// A folder of its own, removed at the end.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        let folder = tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("backends")).expect("a folder");
        Folder(folder)
    }

    /// A reference that runs `script`.
    fn reference(&self, script: &str) {
        let manifest = serde_json::json!({
            "schema": "emel-backend/v1", "id": "fake", "name": "Fake", "engine": "fake",
            "command": ["/bin/sh", "-c", script], "build_command": "none",
            "capabilities": ["kernels", "barrier"],
            "configs": [{"name": "only", "sets": ["best"]}],
        });
        let path = self.0.path().join("backends/fake.json");
        std::fs::write(path, manifest.to_string()).expect("a manifest");
    }

    fn bench(&self, arguments: &[&str]) -> (Output, Vec<Record>) {
        let output = self.0.path().join("records.jsonl");
        let ran = Command::new(env!("CARGO_BIN_EXE_emel-bench"))
            .args(arguments)
            .env("EMEL_BENCHDATA", self.0.path())
            .arg("-o")
            .arg(&output)
            .output()
            .expect("emel-bench runs");
        let records = if output.exists() {
            read_records(&output).expect("records")
        } else {
            Vec::new()
        };
        (ran, records)
    }
}

/// One small case on one thread, a sample as short as can be.
const CASE: [&str; 9] = [
    "kernels",
    "--filter",
    "rms_norm 1x576",
    "-t1",
    "-n3",
    "--sample-ms",
    "1",
    "--reference",
    "fake",
];

fn kernels(records: &[Record]) -> Vec<&Kernel> {
    let mut kernels = Vec::new();
    for record in records {
        match record {
            Record::Kernel(kernel) => kernels.push(&**kernel),
            other => panic!("not a kernel: {}", other.kind()),
        }
    }
    kernels
}

#[test]
fn a_case_is_recorded_for_both_sides_with_their_ratio() {
    let folder = Folder::new();
    folder.reference(
        "while read x; do case $x in \
         *prepare*) echo '{\"engine\":\"fake\",\"engine_version\":\"7\",\"isa\":\"i\",\"variant\":\"v\"}';; \
         *) echo '{\"ns\":[1e12],\"operations\":3}';; esac; done",
    );
    let (ran, records) = folder.bench(&CASE);
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{errors}");
    assert!(errors.contains("rms_norm 1x576"), "{errors}");
    let [own, other] = kernels(&records)[..] else {
        panic!("{} records", records.len());
    };
    assert_eq!(
        (&own.head.engine[..], &other.head.engine[..]),
        ("emel", "fake")
    );
    assert_eq!(own.ns.as_ref().map(|ns| ns.samples.len()), Some(3));
    assert_eq!(other.head.engine_version.as_deref(), Some("7"));
    assert_eq!(other.ns.as_ref().map(|ns| ns.median), Some(1e12));
    let ratio = other.emel_ratio.as_ref().expect("a ratio");
    assert!(ratio.samples.len() == 3 && ratio.median > 1.0);
}

#[test]
fn a_reference_that_dies_is_recorded_and_the_run_goes_on() {
    let folder = Folder::new();
    folder.reference("read x; echo last words >&2; kill -ILL $$");
    let (ran, records) = folder.bench(&CASE);
    assert!(ran.status.success());
    let [dead, own] = kernels(&records)[..] else {
        panic!("{} records", records.len());
    };
    assert_eq!(
        (&dead.head.engine[..], dead.head.status),
        ("fake", Status::Error)
    );
    let error = dead.head.error.as_deref().unwrap_or_default();
    assert!(error.contains("signal: 4"), "{error}");
    assert_eq!(
        (&own.head.engine[..], own.head.status),
        ("emel", Status::Ok)
    );
    assert_eq!(own.ns.as_ref().map(|ns| ns.samples.len()), Some(3));
}

#[test]
fn a_filter_that_fits_nothing_is_a_usage_error_and_writes_nothing() {
    let folder = Folder::new();
    let (ran, records) = folder.bench(&["kernels", "--filter", "no such", "--reference", "none"]);
    assert_eq!(ran.status.code(), Some(2));
    assert!(records.is_empty());
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(errors.contains("names are like"), "{errors}");
}

#[test]
fn every_machine_and_meeting_has_a_record() {
    let folder = Folder::new();
    folder.reference("while read x; do echo '{\"ns\":[1e12],\"operations\":3}'; done");
    let arguments = ["machines", "-t2", "-n2", "--reference", "fake"];
    let (ran, records) = folder.bench(&arguments);
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{errors}");
    let found: Vec<_> = records
        .iter()
        .map(|record| match record {
            Record::Machine(machine) => {
                assert_eq!(machine.ns.as_ref().map(|ns| ns.samples.len()), Some(2));
                (
                    machine.machine.as_str(),
                    &*machine.head.engine,
                    machine.head.threads,
                )
            }
            other => panic!("not a machine: {}", other.kind()),
        })
        .collect();
    for machine in emel::engine::NullMachine::ALL {
        assert!(found.contains(&(machine.name(), "emel", 1)), "{found:?}");
    }
    for threads in [1, 2] {
        for (machine, engine) in [
            ("fork_join", "emel"),
            ("barrier", "emel"),
            ("barrier", "fake"),
        ] {
            assert!(found.contains(&(machine, engine, threads)), "{found:?}");
        }
    }
}
