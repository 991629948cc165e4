use super::*;
use crate::bench::records::tests::examples;
use crate::bench::records::{Generation, Head, Ratios};
use crate::bench::stats::{Ratio, Samples};
use crate::bench::warnings::{Warning, WarningKind};

fn generation(workload: &str, engine: &str, speed: f64) -> Generation {
    let mut record = Generation {
        head: Head {
            engine: engine.to_owned(),
            engine_version: Some("1.0".to_owned()),
            threads: 1,
            cpu_model: Some("Fast CPU".to_owned()),
            cpu_cores: Some(2),
            ..Head::default()
        },
        backend: engine.to_owned(),
        workload_id: workload.to_owned(),
        model: "m".to_owned(),
        lane: "single".to_owned(),
        process: "warm".to_owned(),
        comparable: true,
        prefill_tokens_per_second: Some(100.0 * speed),
        decode_tokens_per_second: Some(10.0 * speed),
        ..Generation::default()
    };
    record.phases.prefill = Samples::new(vec![1e9 / speed]);
    record.phases.decode = Samples::new(vec![1e8 / speed]);
    record
}

fn other(workload: &str, backend: &str, config: &str, speed: f64, ratio: f64) -> Generation {
    let ratio = Some(Ratio {
        median: ratio,
        min: ratio - 0.125,
        max: ratio + 0.125,
        samples: vec![ratio],
    });
    Generation {
        config: Some(config.to_owned()),
        ratios: Some(Ratios {
            prefill: ratio.clone(),
            decode: ratio.clone(),
            total: ratio,
            ..Ratios::default()
        }),
        ..generation(workload, backend, speed)
    }
}

/// EMEL's record and another engine's, EMEL being `ratio` times as fast at everything.
pub(in crate::bench) fn pair(workload: &str, ratio: f64) -> Vec<Record> {
    let emel = generation(workload, "emel", ratio);
    let other = other(workload, "llama.cpp", "fa", 1.0, ratio);
    vec![
        Record::Generation(Box::new(emel)),
        Record::Generation(Box::new(other)),
    ]
}

fn boxed(all: Vec<Generation>) -> Vec<Record> {
    all.into_iter()
        .map(|record| Record::Generation(Box::new(record)))
        .collect()
}

#[test]
fn emel_is_compared_with_the_fastest_of_each_phase() {
    let mut quick_decode = other("m_hello_v1", "ik_llama.cpp", "rtr", 0.5, 4.0);
    quick_decode.decode_tokens_per_second = Some(15.0);
    quick_decode.phases.decode = Samples::new(vec![1e8 / 1.5]);
    if let Some(ratios) = &mut quick_decode.ratios {
        ratios.decode = Ratio::of_speed(&[3.0], &[4.0]);
    }
    let records = boxed(vec![
        generation("m_hello_v1", "emel", 2.0),
        other("m_hello_v1", "llama.cpp", "fa", 1.0, 2.0),
        other("m_hello_v1", "llama.cpp", "no-fa", 0.8, 2.5),
        quick_decode,
    ]);
    let text = report(&records, Format::Md);
    let row = "| m | hello_v1 | single (1) | 200 | 100 | 2.00 (1.88-2.12) | 20.0 | 15.0 | 1.33 \
        (1.33-1.33) | llama.cpp fa / ik_llama.cpp rtr | ok |";
    assert!(text.contains(row), "{text}");
    assert!(
        text.contains("- machine: Fast CPU, 2 cores\n- emel 1.0\n- llama.cpp 1.0\n"),
        "{text}"
    );
    let drawn = report(&records, Format::Table);
    assert!(drawn.contains("llama.cpp fa / ik_llama.cpp rtr"), "{drawn}");
}

#[test]
fn the_last_measurement_counts() {
    let mut records = pair("m_hello_v1", 2.0);
    records.extend(pair("m_hello_v1", 3.0));
    let text = report(&records, Format::Md);
    assert!(
        text.contains("3.00 (2.88-3.12)") && !text.contains("2.00 ("),
        "{text}"
    );
}

#[test]
fn failures_and_doubts_stand_below() {
    let mut records = pair("m_hello_v1", 2.0);
    let warning = Warning::new(WarningKind::FewRuns, "repeat it");
    for record in &mut records {
        let Record::Generation(record) = record else {
            continue;
        };
        record.head.warnings.push(warning.clone());
        if record.backend == "llama.cpp" {
            record.head.status = Status::Error;
            record.head.error = Some("it was killed by signal 4".to_owned());
            record.stderr_tail = Some("loading\nillegal instruction\n\n".to_owned());
        }
    }
    let text = report(&records, Format::Md);
    assert!(text.contains("| error: llama.cpp |"), "{text}");
    assert!(
        text.contains(
            "- llama.cpp fa, m_hello_v1, single: it was killed by signal 4 (it said: illegal \
             instruction)"
        ),
        "{text}"
    );
    assert!(
        text.contains("- few_runs: emel, m_hello_v1, single: repeat it (and 1 more of this kind)"),
        "{text}"
    );
}

#[test]
fn cold_processes_have_a_table_of_their_own() {
    let mut records = pair("m_cold_v1", 2.0);
    records.extend(pair("m_hello_v1", 2.0));
    for record in &mut records[..2] {
        let Record::Generation(record) = record else {
            continue;
        };
        record.process = "cold".to_owned();
        record.phases.load = Samples::new(vec![3e7]);
        let ns = if record.backend == "emel" { 4e7 } else { 9e7 };
        record.phases.ttft = Samples::new(vec![ns]);
        if let Some(ratios) = &mut record.ratios {
            ratios.ttft = Ratio::of_speed(&[4e7], &[9e7]);
            ratios.best_for = vec!["ttft".to_owned()];
        }
    }
    let text = report(&records, Format::Md);
    let row = "| m | cold_v1 | single (1) | 40.0 | 90.0 | 2.25 (2.25-2.25) | 30.0 | 30.0 | llama.cpp fa | ok |";
    assert!(text.contains(row), "{text}");
    assert_eq!(text.matches("| cold_v1 |").count(), 1);
    assert_eq!(text.matches("| hello_v1 |").count(), 1);
}

#[test]
fn what_a_reference_was_not_chosen_for_has_no_ratio() {
    let mut records = pair("m_hello_v1", 2.0);
    if let Record::Generation(record) = &mut records[1]
        && let Some(ratios) = &mut record.ratios
    {
        ratios.best_for = vec!["prefill".to_owned()];
    }
    let text = report(&records, Format::Md);
    let row = "| 200 | 100 | 2.00 (1.88-2.12) | 20.0 | - | - | llama.cpp fa | ok |";
    assert!(text.contains(row), "{text}");
}

#[test]
fn what_must_not_be_compared_has_no_ratio() {
    let mut records = pair("m_hello_v1", 2.0);
    if let Record::Generation(record) = &mut records[0] {
        record.comparable = false;
    }
    assert!(report(&records, Format::Md).contains("| 100 | n/c |"));
    let alone = report(&pair("m_hello_v1", 2.0)[..1], Format::Md);
    assert!(alone.contains("| - | no reference |"), "{alone}");
    let alone = report(&pair("m_hello_v1", 2.0)[1..], Format::Md);
    assert!(alone.contains("| no EMEL record |"), "{alone}");
    assert_eq!(report(&[], Format::Md), "no records\n");
}

#[test]
fn kernels_machines_and_limits_have_tables() {
    let text = report(&examples()[..4], Format::Md);
    for row in [
        "| matmul q4_k | 2 | - | 10.5 | 1.75 (1.50-2.00) | llama.cpp |",
        "| barrier | 2 | - | 925 | 1.75 (1.50-2.00) | llama.cpp |",
        "| read_bandwidth | - | 2 | 4 KiB | - | 15.0 Gbytes/s |",
    ] {
        assert!(text.contains(row), "{text}");
    }
}
