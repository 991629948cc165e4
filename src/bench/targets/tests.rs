use super::*;
use crate::bench::records::{Generation, Head, Ratios, Record, Status};
use crate::bench::report::Format;
use crate::bench::stats::{Ratio, Samples};

const PROMPT: &str = "smollm2_135m_prompt_512_max_tokens_16_v1";
const DEPTH: &str = "smollm2_135m_depth_4096_max_tokens_128_v1";

fn library() -> Library {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("benchdata");
    Library::open(Some(&root)).unwrap()
}

fn target(workload: &str, metric: TargetMetric, backend: Option<&str>, value: f64) -> Target {
    Target {
        workload: workload.to_owned(),
        lanes: vec![Lane::Single],
        metric,
        backend: backend.map(str::to_owned),
        value,
        needs: None,
        limit: None,
    }
}

fn record(workload: &str, backend: &str, decode_ns: &[f64], best_for: &[&str]) -> Generation {
    let mut record = Generation {
        head: Head {
            engine: backend.to_owned(),
            threads: 1,
            ..Head::default()
        },
        backend: backend.to_owned(),
        config: Some("fa".to_owned()).filter(|_| backend != "emel"),
        workload_id: workload.to_owned(),
        model: "smollm2_135m".to_owned(),
        lane: "single".to_owned(),
        comparable: true,
        model_bytes: Some(1000),
        cache_bytes: Some(500),
        peak_rss_bytes: Some(if backend == "emel" { 1600 } else { 2000 }),
        ..Generation::default()
    };
    record.phases.decode = Samples::new(decode_ns.to_vec());
    record.phases.prefill = Samples::new(decode_ns.to_vec());
    if backend == "emel" {
        record.bandwidth_share = Some(0.8);
        return record;
    }
    let ratio = Ratio::of_speed(&[100.0, 100.0, 100.0], decode_ns);
    record.bandwidth_share = Some(0.4);
    record.ratios = Some(Ratios {
        prefill: ratio.clone(),
        decode: ratio,
        best_for: best_for.iter().map(|&phase| phase.to_owned()).collect(),
        ..Ratios::default()
    });
    record
}

fn records() -> Vec<Record> {
    let all = [
        record(DEPTH, "emel", &[80.0, 100.0, 125.0], &[]),
        record(DEPTH, "llama.cpp", &[800.0, 820.0, 700.0], &["decode"]),
        record(DEPTH, "ik_llama.cpp", &[290.0, 280.0, 305.0], &["decode"]),
    ];
    all.into_iter()
        .map(|one| Record::Generation(Box::new(one)))
        .collect()
}

fn outcome(target: &Target) -> (Verdict, Option<f64>, Option<String>) {
    let outcomes = judge(std::slice::from_ref(target), &records());
    assert_eq!(outcomes.len(), 1);
    let reached = outcomes[0].reached.as_ref().ok();
    (
        outcomes[0].verdict(),
        reached.map(|reached| reached.value),
        reached.and_then(|reached| reached.reference.clone()),
    )
}

#[test]
fn a_ratio_is_to_the_backend_named_or_to_the_fastest() {
    use TargetMetric::DecodeRatio;
    let named = |backend| target(DEPTH, DecodeRatio, backend, 8.0);
    let llama = Some("llama.cpp fa".to_owned());
    let met = (Verdict::Met, Some(8.0), llama);
    assert_eq!(outcome(&named(Some("llama.cpp"))), met);
    let ik = Some("ik_llama.cpp fa".to_owned());
    let missed = (Verdict::Missed, Some(2.9), ik);
    assert_eq!(outcome(&named(Some("ik_llama.cpp"))), missed);
    assert_eq!(outcome(&named(None)), missed);
    assert_eq!(outcome(&named(Some("x"))), (Verdict::Unknown, None, None));
}

#[test]
fn of_decode_no_more_is_possible_than_the_reference_leaves_of_the_bandwidth() {
    let target = target(DEPTH, TargetMetric::DecodeRatio, None, 8.0);
    let mut all = records();
    let possible = |all: &[Record]| {
        let outcomes = judge(std::slice::from_ref(&target), all);
        outcomes[0].reached.as_ref().unwrap().possible
    };
    assert_eq!(possible(&all), Some(2.5));
    for record in &mut all {
        let Record::Generation(record) = record else {
            panic!("all are");
        };
        record.bandwidth_share = None;
    }
    assert_eq!(possible(&all), None);
}

#[test]
fn a_reference_chosen_for_decode_says_nothing_of_prefill() {
    let target = target(DEPTH, TargetMetric::PrefillRatio, None, 1.0);
    let all = records();
    let outcomes = judge(std::slice::from_ref(&target), &all);
    assert_eq!(outcomes[0].reached, Err("reference not measured"));
}

#[test]
fn memory_is_to_stay_below_and_bandwidth_above() {
    use TargetMetric::{BandwidthShare, PeakMemoryOfNeed, PeakMemoryRatio};
    let verdict = |metric, backend, value| {
        let (verdict, value, _) = outcome(&target(DEPTH, metric, backend, value));
        (verdict, value)
    };
    let need = 1600.0 / 1500.0;
    assert_eq!(
        verdict(PeakMemoryOfNeed, None, 1.1),
        (Verdict::Met, Some(need))
    );
    assert_eq!(
        verdict(PeakMemoryOfNeed, None, 1.05),
        (Verdict::Missed, Some(need))
    );
    let against = verdict(PeakMemoryRatio, Some("llama.cpp"), 1.0);
    assert_eq!(against, (Verdict::Met, Some(0.8)));
    assert_eq!(
        verdict(BandwidthShare, None, 0.85),
        (Verdict::Missed, Some(0.8))
    );
    let target = target(DEPTH, BandwidthShare, None, 0.85);
    let outcomes = judge(std::slice::from_ref(&target), &records());
    let reached = outcomes[0].reached.as_ref().unwrap();
    assert_eq!(reached.possible, None);
    let range = reached.range.unwrap();
    assert!((range.0 - 0.64).abs() < 1e-9 && (range.1 - 1.0).abs() < 1e-9);
}

#[test]
fn what_is_missing_is_named() {
    let mut all = records();
    let judged = |all: &[Record], metric| {
        let target = target(DEPTH, metric, None, 1.0);
        let outcomes = judge(std::slice::from_ref(&target), all);
        outcomes[0].reached.clone().err()
    };
    if let Record::Generation(emel) = &mut all[0] {
        (emel.bandwidth_share, emel.cache_bytes) = (None, None);
    }
    let limit = judged(&all, TargetMetric::BandwidthShare);
    assert_eq!(limit, Some("machine's limit not measured"));
    let cache = judged(&all, TargetMetric::PeakMemoryOfNeed);
    assert_eq!(cache, Some("cache size not recorded"));
    if let Record::Generation(emel) = &mut all[0] {
        emel.head.status = Status::Error;
    }
    assert_eq!(judged(&all, TargetMetric::DecodeRatio), Some("EMEL failed"));
    assert_eq!(
        judged(&all[1..], TargetMetric::DecodeRatio),
        Some("no EMEL record")
    );
    assert_eq!(
        judged(&all[..0], TargetMetric::DecodeRatio),
        Some("not measured")
    );
}

#[test]
fn the_table_has_a_row_a_lane_and_the_limits_below() {
    let mut targets = vec![
        target(DEPTH, TargetMetric::DecodeRatio, Some("llama.cpp"), 8.0),
        target(DEPTH, TargetMetric::DecodeRatio, Some("ik_llama.cpp"), 3.0),
        target(DEPTH, TargetMetric::BandwidthShare, None, 0.85),
        target(DEPTH, TargetMetric::PeakMemoryRatio, None, 0.5),
        target(PROMPT, TargetMetric::PrefillRatio, None, 2.0),
    ];
    targets[1].limit = Some("the cache is read at the bandwidth".to_owned());
    targets[2].limit = targets[1].limit.clone();
    targets[4].lanes.push(Lane::Multithreaded);
    let all = records();
    let text = table(&judge(&targets, &all), &library(), Format::Md);
    let expected = "\
1 of 6 targets met, 2 not measured.

| model | workload | lane | metric | target | result | possible | against | met |
| --- | --- | --- | --- | ---: | ---: | ---: | --- | --- |
| smollm2_135m | depth_4096_max_tokens_128_v1 | single (1) | decode speed | ≥ 8.00 | 8.00 (7.00-8.20) | 2.50 | llama.cpp fa | yes |
| smollm2_135m | depth_4096_max_tokens_128_v1 | single (1) | decode speed | ≥ 3.00 | 2.90 (2.80-3.05) | 2.50 | ik_llama.cpp fa | no [1] |
| smollm2_135m | depth_4096_max_tokens_128_v1 | single (1) | decode, share of bandwidth | ≥ 85 % | 80.0 % (64.0-100.0) | - | - | no [1] |
| smollm2_135m | depth_4096_max_tokens_128_v1 | single (1) | peak memory | ≤ 0.50 | 0.80 | - | llama.cpp fa | no |
| smollm2_135m | prompt_512_max_tokens_16_v1 | single | prefill speed | ≥ 2.00 | - | - | - | not measured |
| smollm2_135m | prompt_512_max_tokens_16_v1 | multithreaded | prefill speed | ≥ 2.00 | - | - | - | not measured |

What limits those that are not met:

1. the cache is read at the bandwidth
";
    assert_eq!(text, expected);
    let drawn = table(&judge(&targets, &all), &library(), Format::Table);
    assert!(drawn.contains("8.00 (7.00-8.20)"), "{drawn}");
}

#[test]
fn a_target_of_another_instruction_set_is_shown_and_not_judged() {
    let mut target = target(DEPTH, TargetMetric::DecodeRatio, Some("llama.cpp"), 9.0);
    target.needs = Some("amx".to_owned());
    let mut all = records();
    let mut with = |isa: &str| {
        if let Record::Generation(emel) = &mut all[0] {
            emel.head.isa = Some(isa.to_owned());
        }
        let outcomes = judge(std::slice::from_ref(&target), &all);
        let text = table(&outcomes, &library(), Format::Md);
        (outcomes[0].verdict(), text)
    };
    assert_eq!(with("amx").0, Verdict::Missed);
    let (verdict, text) = with("avx512");
    assert_eq!(verdict, Verdict::Elsewhere);
    let begin = "0 of 0 targets met, 1 more are for another instruction set.";
    assert!(text.starts_with(begin), "{text}");
    let end = "| 8.00 (7.00-8.20) | 2.50 | llama.cpp fa | needs amx |\n";
    assert!(text.ends_with(end), "{text}");
}

#[test]
fn a_bad_row_is_named_with_its_line() {
    let row = format!(
        r#"{{ "workload": "{DEPTH}", "lanes": ["single"], "metric": "decode_ratio", "value": 2 }}"#
    );
    let file = tempfile::NamedTempFile::new().unwrap();
    for (from, to, problem) in [
        ("4096", "4097", "targets[1].workload: no workload is called"),
        ("[\"single\"]", "[]", "targets[1].lanes: must name"),
        ("2 }", "0 }", "targets[1].value: must be more than 0"),
        ("decode_r", "decoder", "targets[1].metric: unknown variant"),
        ("value", "valu", "targets[1].valu: unknown field"),
        (
            "decode_ratio\"",
            "bandwidth_share\", \"backend\": \"x\"",
            "targets[1].backend: this metric compares with no backend",
        ),
        ("2 }", "3 }", "targets[1].workload: an earlier row"),
        ("2 }", "2, \"needs\": \"mmx\" }", "targets[1].needs: "),
    ] {
        let bad = row.replacen(from, to, 1);
        assert_ne!(bad, row);
        let text =
            format!("{{\"schema\": \"{TARGETS_SCHEMA}\", \"targets\": [\n{row},\n{bad}\n]}}\n");
        std::fs::write(&file, text).unwrap();
        let error = read(file.path(), &library()).unwrap_err().to_string();
        assert!(error.contains(&format!(":3: {problem}")), "{error}");
    }
}

#[test]
fn the_shipped_targets_are_of_workloads_that_are_published() {
    let library = library();
    let path = library.root().join(FILE);
    let targets = read(&path, &library).unwrap();
    assert!(targets.len() >= 30);
    let found = crate::bench::validate::validate_file(&path).unwrap();
    assert_eq!((found.checked, found.problems), (1, vec![]));
    for target in &targets {
        let workload = library.workload(&target.workload).unwrap();
        // scripts/bench.sh measures both kinds.
        let of_level = workload.isa.as_ref().map(|isa| format!("isa_{isa}"));
        let suite = of_level.as_deref().unwrap_or("published");
        assert!(
            workload.suites.iter().any(|name| name == suite),
            "{}",
            target.workload
        );
    }
}
