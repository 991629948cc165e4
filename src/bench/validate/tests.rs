use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::{Map, Value};

use super::*;
use crate::bench::records::tests::examples;
use crate::bench::records::{Limit, Machine, Record, Status};
use crate::bench::stats::Samples;

fn records_schema() -> Schema {
    Schema::parse(SCHEMAS[0].1).unwrap()
}

/// The examples, with what a record of their status must have.
fn complete() -> Vec<Record> {
    let complete = |mut record: Record| {
        match &mut record {
            Record::Generation(record) if record.phases.prefill.is_some() => {
                (record.prompt_tokens, record.output_tokens) = (Some(4), Some(1));
                record.phases.ttft.clone_from(&record.phases.prefill);
            }
            Record::Generation(record) => fail(&mut record.head),
            Record::Kernel(record) if record.ns.is_none() => fail(&mut record.head),
            Record::Machine(record) if record.ns.is_none() => fail(&mut record.head),
            Record::Limit(record) if record.value.is_none() => fail(&mut record.head),
            _ => {}
        }
        record
    };
    // Defaults have empty names, which no writer writes.
    let named = |record: &Record| !record.head().engine.is_empty();
    examples().into_iter().map(complete).filter(named).collect()
}

fn fail(head: &mut crate::bench::records::Head) {
    head.status = Status::Error;
    head.error = Some("it crashed".to_owned());
}

fn check(object: &Map<String, Value>) -> Vec<String> {
    let problems = records_schema().check(&Value::Object(object.clone()));
    let text = |problem: Problem| format!("{}: {}", problem.key, problem.message);
    problems.into_iter().map(text).collect()
}

#[test]
fn what_our_structs_write_is_valid() {
    let all = complete();
    let kinds: BTreeSet<_> = all.iter().map(Record::kind).collect();
    assert_eq!(kinds.len(), 4);
    for record in all {
        let problems = check(&record.to_object());
        assert!(problems.is_empty(), "{}: {problems:?}", record.kind());
    }
}

/// The schema's required keys are those of a default record: reader and schema cannot differ.
#[test]
fn the_schema_requires_what_readers_require() {
    let schema = records_schema();
    let names = |list: &Value| -> BTreeSet<String> {
        let list = list.as_array().unwrap().iter();
        list.map(|name| name.as_str().unwrap().to_owned()).collect()
    };
    let shared = names(&schema.value()["required"]);
    for record in &examples()[4..] {
        let definition = &schema.value()["$defs"][record.kind()];
        let mut required = names(&definition["required"]);
        required.extend(shared.iter().cloned());
        let written: BTreeSet<String> = record.to_object().keys().cloned().collect();
        assert_eq!(required, written, "{}", record.kind());
    }
}

#[test]
fn every_missing_key_is_refused() {
    for record in complete() {
        let object = record.to_object();
        let optional = ["options_", "counter_"];
        for key in object.keys() {
            let mut without = object.clone();
            without.shift_remove(key);
            // The mark of a group goes with the group.
            let is_optional = optional.iter().any(|prefix| key.starts_with(prefix));
            let is_mark = key == "emel_ratio_median";
            let problems = check(&without);
            let named = problems.contains(&format!("{key}: is missing"));
            assert_eq!(named, !is_optional && !is_mark, "{key}: {problems:?}");
        }
    }
}

#[test]
fn wrong_values_are_refused() {
    let cases: &[(&str, Value)] = &[
        ("schema", "emel-bench/v2".into()),
        ("kind", "limits".into()),
        ("status", "fine".into()),
        ("threads", "2".into()),
        ("threads", 1.5.into()),
        ("threads", (-1).into()),
        ("engine", "".into()),
        ("lane", "double".into()),
        ("comparable", "yes".into()),
        ("ids_checksum", "0000000000000ABC".into()),
        ("ids_checksum", 5.into()),
        ("model_sha256", "abc".into()),
        ("prefill_ns_median", "fast".into()),
        ("prefill_ns_median", Value::Null),
        ("prefill_ns_samples", Value::Array(vec![])),
        ("emel_prefill_ratio_median", 0.into()),
        ("best_for", Value::from(vec!["load"])),
        ("counter_route_wide_passes", 0.5.into()),
        ("options_repack", Value::Array(vec![])),
    ];
    for (key, value) in cases {
        let mut object = complete()[0].to_object();
        assert!(object.insert((*key).to_owned(), value.clone()).is_some());
        let problems = check(&object);
        // The key itself, or an item of its list.
        let names = |problem: &String| {
            let rest = problem.strip_prefix(key);
            rest.is_some_and(|rest| rest.starts_with([':', '[']))
        };
        let named = problems.iter().any(names);
        assert!(named, "{key}={value}: {problems:?}");
    }
    let mut object = complete()[0].to_object();
    object["warnings"] = serde_json::json!([{"kind": "few_runs"}]);
    assert_eq!(check(&object), ["warnings[0].message: is missing"]);
    // A failure says why.
    let failed = Record::Machine(Box::new(Machine {
        machine: "generator".to_owned(),
        head: crate::bench::records::Head {
            status: Status::Error,
            ..complete()[2].head().clone()
        },
        ns: Samples::new(vec![1.0]),
        emel_ratio: None,
    }));
    assert_eq!(
        check(&failed.to_object()),
        ["error: must be string, is null"]
    );
}

#[test]
fn other_keys_are_no_problem() {
    let mut object = complete()[3].to_object();
    object.insert("colour".to_owned(), "blue".into());
    assert!(check(&object).is_empty());
}

#[test]
fn problems_name_file_line_and_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("records.jsonl");
    let good = complete()[0].to_line();
    let mut bad = Limit::default();
    fail(&mut bad.head);
    let bad = Record::Limit(Box::new(bad)).to_line();
    fs::write(&path, format!("{good}\n\n{bad}\n[]\n{{\n{good}\n")).unwrap();
    let found = validate_file(&path).unwrap();
    assert_eq!((found.checked, found.bad), (5, 3));
    let lines: Vec<String> = found.problems.iter().map(LineProblem::text).collect();
    assert!(
        lines.contains(&"3: engine: must not be empty".to_owned()),
        "{lines:?}"
    );
    assert!(
        lines.contains(&"3: unit: must not be empty".to_owned()),
        "{lines:?}"
    );
    assert!(
        lines.contains(&"4: must be object, is []".to_owned()),
        "{lines:?}"
    );
    assert!(
        lines.iter().any(|line| line.starts_with("5: not JSON: ")),
        "{lines:?}"
    );
    let args = ValidateArgs {
        files: vec![path.clone()],
        max_problems: 1,
    };
    let error = run(&args).unwrap_err().to_string();
    assert!(error.contains("in 3 of 5"), "{error}");
    fs::write(&path, format!("{good}\n")).unwrap();
    assert!(run(&args).is_ok());
    fs::remove_file(&path).unwrap();
    assert!(matches!(run(&args), Err(BenchError::Records(_))));
}

#[test]
fn every_shipped_manifest_is_valid() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("benchdata");
    let mut files = vec![root.join("models.json")];
    for folder in ["workloads", "backends"] {
        let entries = fs::read_dir(root.join(folder)).into_iter().flatten();
        files.extend(entries.map(|entry| entry.unwrap().path()));
    }
    assert!(files.len() > 60, "the workloads are not there");
    for file in files {
        let found = validate_file(&file).unwrap();
        assert_eq!(
            (found.checked, found.problems),
            (1, vec![]),
            "{}",
            file.display()
        );
    }
}

#[test]
fn a_manifest_of_another_schema_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("manifest.json");
    for (text, problem) in [
        (
            "{\"schema\": \"emel-workload/v9\"}",
            "schema: must be one of emel-bench/v1, ",
        ),
        (
            "{\"schema\": \"emel-models/v1\", \"models\": [], \"x\": 1}",
            "x: is not allowed here",
        ),
        ("{", "not JSON: "),
    ] {
        fs::write(&path, text).unwrap();
        let found = validate_file(&path).unwrap();
        assert!(
            found.problems[0].text().contains(problem),
            "{:?}",
            found.problems
        );
    }
}
