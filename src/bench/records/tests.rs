use std::fs;
use std::path::PathBuf;
use tempfile::{TempDir, tempdir};

use super::*;
use crate::bench::stats::{Ratio, Samples};
use crate::bench::warnings::{Warning, WarningKind};

fn samples(values: &[f64]) -> Option<Samples> {
    Samples::new(values.to_vec())
}

fn ratio() -> Option<Ratio> {
    Ratio::of_speed(&[2.0, 2.0], &[3.0, 4.0])
}

/// One record of each kind, with every group filled; shared with the tests of readers.
pub(in crate::bench) fn examples() -> Vec<Record> {
    let head = Head {
        run_id: "r1".to_owned(),
        time_unix: 1_700_000_000,
        engine: "llama.cpp".to_owned(),
        engine_version: Some("0.5.0".to_owned()),
        threads: 2,
        cpu_cores: Some(2),
        load_average: Some(0.25),
        warnings: vec![Warning::new(WarningKind::FewRuns, "repeat")],
        ..Head::default()
    };
    let mut generation = Generation {
        head: head.clone(),
        backend: "llama.cpp".to_owned(),
        config: Some("amx-fa".to_owned()),
        workload_id: "m_hello_v1".to_owned(),
        model: "m".to_owned(),
        formatter: "raw".to_owned(),
        sampling: "argmax".to_owned(),
        stop_rule: "eog".to_owned(),
        comparable: true,
        comparable_reason: "same text".to_owned(),
        process: "warm".to_owned(),
        lane: "single".to_owned(),
        ids_checksum: Some(Hex64(0xabc)),
        runs: 2,
        prefill_tokens_per_second: Some(100.5),
        ..Generation::default()
    };
    generation.phases.prefill = samples(&[1e9, 1.25e9]);
    generation.options.insert("repack".to_owned(), true.into());
    generation
        .counters
        .insert("route_wide_passes".to_owned(), 3);
    generation.ratios = Some(Ratios {
        prefill: ratio(),
        best_for: vec!["prefill".to_owned()],
        ..Ratios::default()
    });
    let mut kernel = Kernel {
        head: head.clone(),
        backend: "llama.cpp".to_owned(),
        kernel: "matmul".to_owned(),
        ty: Some("q4_k".to_owned()),
        rows: Some(64),
        ns: samples(&[10.5]),
        emel_ratio: ratio(),
        ..Kernel::default()
    };
    kernel.options.insert("build".to_owned(), "native".into());
    let machine = Machine {
        head: head.clone(),
        machine: "barrier".to_owned(),
        ns: samples(&[900.0, 950.0]),
        emel_ratio: ratio(),
    };
    let limit = Limit {
        head,
        limit: "read_bandwidth".to_owned(),
        page_bytes: Some(4096),
        value: Some(1.5e10),
        unit: "bytes/s".to_owned(),
        ..Limit::default()
    };
    vec![
        Record::Generation(Box::new(generation)),
        Record::Kernel(Box::new(kernel)),
        Record::Machine(Box::new(machine)),
        Record::Limit(Box::new(limit)),
        Record::Generation(Box::default()),
        Record::Kernel(Box::default()),
        Record::Machine(Box::default()),
        Record::Limit(Box::default()),
    ]
}

#[test]
fn what_is_written_is_read() {
    for record in examples() {
        let line = record.to_line();
        assert!(!line.contains('\n'));
        assert_eq!(parse_line(&line).unwrap(), record, "{line}");
    }
}

#[test]
fn keys_are_flat_and_their_names_fixed() {
    let object = examples()[0].to_object();
    let value = |key: &str| object.get(key).unwrap_or_else(|| panic!("no {key}"));
    assert_eq!(object.keys().next().unwrap(), "schema");
    assert_eq!(value("schema"), "emel-bench/v1");
    assert_eq!(value("kind"), "generation");
    assert_eq!(value("status"), "ok");
    assert_eq!(value("ids_checksum"), "0000000000000abc");
    assert_eq!(value("options_repack"), true);
    assert_eq!(value("counter_route_wide_passes"), 3);
    assert_eq!(value("prefill_ns_median"), 1.125e9);
    assert_eq!(value("prefill_ns_samples").as_array().unwrap().len(), 2);
    assert!(value("decode_ns_median").is_null() && value("decode_ns_samples").is_null());
    assert_eq!(value("emel_prefill_ratio_median"), 1.75);
    assert!(value("emel_ttft_ratio_samples").is_null());
    assert_eq!(value("best_for")[0], "prefill");
    assert_eq!(value("warnings")[0]["kind"], "few_runs");
    let nested = object.iter().filter(|(_, value)| value.is_object());
    assert_eq!(nested.count(), 0);
    // Without another engine there are no ratios, not even as null.
    let own = examples()[4].to_object();
    assert!(
        !own.keys()
            .any(|key| key.starts_with("emel_") || key == "best_for")
    );
}

#[test]
fn unknown_keys_are_ignored() {
    for record in examples() {
        let mut object = record.to_object();
        object.insert("colour".to_owned(), "blue".into());
        assert_eq!(Record::from_object(object).unwrap(), record);
    }
}

#[test]
fn every_missing_key_is_named() {
    for record in examples() {
        let object = record.to_object();
        let optional = ["options_", "counter_", "emel_ratio_"];
        let required = |key: &&String| !optional.iter().any(|prefix| key.starts_with(prefix));
        for key in object.keys().filter(required) {
            let mut without = object.clone();
            without.shift_remove(key);
            let fault = Record::from_object(without).unwrap_err();
            assert_eq!(fault, Fault::Missing(key.clone()));
        }
    }
}

#[test]
fn wrong_values_are_named() {
    let cases: &[(&str, Value, &str)] = &[
        (
            "schema",
            "emel-bench/v2".into(),
            "schema is \"emel-bench/v2\", this program reads",
        ),
        ("kind", "limits".into(), "kind is \"limits\"; there are"),
        ("kind", 3.into(), "kind is 3; there are"),
        ("threads", "2".into(), "key `threads`: "),
        ("threads", (-1).into(), "key `threads`: "),
        ("status", "fine".into(), "key `status`: "),
        (
            "ids_checksum",
            "abc".into(),
            "key `ids_checksum`: `abc` must be 16 hex digits",
        ),
        (
            "ids_checksum",
            "0000000000000ABC".into(),
            "must be 16 hex digits in lower case",
        ),
        ("ids_checksum", 5.into(), "key `ids_checksum`: "),
        ("prefill_ns_median", "x".into(), "key `prefill_ns_median`: "),
        (
            "prefill_ns_samples",
            Value::Null,
            "key `prefill_ns_samples`: the summary and its",
        ),
        (
            "emel_prefill_ratio_max",
            Value::Null,
            "key `emel_prefill_ratio_samples`: the ratio",
        ),
        (
            "counter_route_wide_passes",
            1.5.into(),
            "key `counter_route_wide_passes`: ",
        ),
        ("warnings", Value::Null, "key `warnings`: "),
    ];
    for (key, value, expected) in cases {
        let mut object = examples()[0].to_object();
        assert!(object.insert((*key).to_owned(), value.clone()).is_some());
        let fault = Record::from_object(object).unwrap_err().to_string();
        assert!(fault.contains(expected), "{key}={value}: {fault}");
    }
    assert_eq!(parse_line("[1]"), Err(Fault::NotAnObject));
    let fault = parse_line("{\"schema\": ").unwrap_err().to_string();
    assert!(
        fault.contains("not JSON: EOF") && fault.contains("column"),
        "{fault}"
    );
}

#[test]
fn numbers_that_json_has_not_become_null() {
    let mut limit = Limit {
        value: Some(f64::INFINITY),
        ..Limit::default()
    };
    assert!(limit.to_object()["value"].is_null());
    limit.value = None;
    let line = Record::Limit(Box::new(limit.clone())).to_line();
    assert_eq!(parse_line(&line).unwrap(), Record::Limit(Box::new(limit)));
}

/// A file in a folder of its own, both removed at the end.
struct Place(TempDir);

impl Place {
    fn new() -> Place {
        Place(tempdir().unwrap())
    }
    fn file(&self) -> PathBuf {
        self.0.path().join("out.jsonl")
    }
    fn write(&self, records: &[Record], append: bool) -> Result<(), String> {
        let mut file = RecordFile::begin(&self.file(), append).map_err(|e| e.to_string())?;
        records.iter().for_each(|record| file.push(record));
        assert_eq!(file.len(), records.len());
        file.commit().map_err(|error| error.to_string())
    }
}

#[test]
fn files_are_replaced_or_appended_to() {
    let place = Place::new();
    let all = examples();
    place.write(&all[..2], true).unwrap();
    place.write(&all[2..4], true).unwrap();
    assert_eq!(read_records(&place.file()).unwrap(), &all[..4]);
    // A last line without its newline is a line all the same.
    let text = fs::read_to_string(place.file()).unwrap();
    fs::write(place.file(), text.trim_end()).unwrap();
    place.write(&all[..1], true).unwrap();
    assert_eq!(read_records(&place.file()).unwrap().len(), 5);
    place.write(&all[..1], false).unwrap();
    assert_eq!(read_records(&place.file()).unwrap(), &all[..1]);
}

#[test]
fn nothing_is_appended_to_what_is_not_records() {
    let place = Place::new();
    let all = examples();
    place.write(&all[..2], false).unwrap();
    let mut text = fs::read_to_string(place.file()).unwrap();
    text.push_str("\n{\"schema\":\"emel-bench/v1\",\"kind\":\"limit\"}\n");
    fs::write(place.file(), &text).unwrap();
    let error = place.write(&all, true).unwrap_err();
    assert!(
        error.contains("out.jsonl:4: key `status` is missing"),
        "{error}"
    );
    assert_eq!(fs::read_to_string(place.file()).unwrap(), text);
    let error = read_records(&place.file()).unwrap_err().to_string();
    assert!(
        error.contains("out.jsonl:4: key `status` is missing"),
        "{error}"
    );
    fs::write(place.file(), b"\xff\n").unwrap();
    let error = read_records(&place.file()).unwrap_err().to_string();
    assert!(
        error.contains("out.jsonl:1: not JSON: not valid UTF-8"),
        "{error}"
    );
    // Begun and not finished, it leaves what was there and nothing else.
    let file = RecordFile::begin(&place.file(), false).unwrap();
    assert!(file.is_empty());
    drop(file);
    assert_eq!(fs::read_dir(&place.0).unwrap().count(), 1);
}
