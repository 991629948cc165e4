use super::data::{Subject, curves};
use super::{draw, page};
use crate::bench::records::{Generation, Head, Ratios, Record, Status};
use crate::bench::stats::Samples;

const MODEL: &str = "qwen3_0_6b_q8_0";

fn growth(backend: &str, config: &str, tokens: u64, prefill_ns: f64) -> Generation {
    let mut record = Generation {
        head: Head {
            engine: backend.to_owned(),
            engine_version: Some("1.0".to_owned()),
            cpu_model: Some("Fast CPU".to_owned()),
            threads: 2,
            run_id: format!("{backend}-{tokens}"),
            ..Head::default()
        },
        backend: backend.to_owned(),
        config: Some(config.to_owned()).filter(|config| !config.is_empty()),
        workload_id: format!("{MODEL}_growth_{tokens}_max_tokens_32_v1"),
        model: MODEL.to_owned(),
        lane: "multithreaded".to_owned(),
        prompt_tokens: Some(tokens),
        output_tokens: Some(32),
        ..Generation::default()
    };
    // A token costs 1 ms, and 1 µs for each before it.
    record.phases.prefill = Samples::new(vec![prefill_ns * tokens as f64]);
    let decode = 2e6 + 500.0 * (tokens as f64 + 16.0);
    record.phases.decode = Samples::new(vec![decode * 0.9, decode, decode * 1.2]);
    record
}

fn emel() -> Vec<Record> {
    let all =
        [1, 64, 1024, 4096].map(|tokens| growth("emel", "", tokens, 1e6 + 1e3 * tokens as f64));
    boxed(all.into())
}

fn boxed(all: Vec<Generation>) -> Vec<Record> {
    all.into_iter()
        .map(|record| Record::Generation(Box::new(record)))
        .collect()
}

fn load(model: &str, bytes: u64, ns: f64) -> Record {
    let mut record = growth("emel", "", 40, 1e6);
    record.model = model.to_owned();
    record.workload_id = format!("{model}_cold_start_prompt_40_max_tokens_1_v1");
    record.model_bytes = Some(bytes);
    record.phases.load = Samples::new(vec![ns]);
    Record::Generation(Box::new(record))
}

#[test]
fn lengths_and_depths_become_curves() {
    let curves = curves(&emel());
    let names: Vec<&str> = curves.iter().map(|curve| curve.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "decode_qwen3_0_6b_q8_0_multithreaded",
            "prefill_qwen3_0_6b_q8_0_multithreaded"
        ]
    );
    let of = |subject| curves.iter().find(|one| one.subject == subject).unwrap();
    let xy = |subject| -> Vec<(f64, f64)> {
        let points = &of(subject).lines[0].points;
        points.iter().map(|point| (point.x, point.y)).collect()
    };
    // One token is no prompt.
    let expected = [64.0, 1024.0, 4096.0].map(|x| (x, 1e6 + 1e3 * x));
    for ((x, y), (expected_x, expected_y)) in xy(Subject::Prefill).into_iter().zip(expected) {
        assert!(x == expected_x && (y - expected_y).abs() < 1e-3);
    }
    let depths: Vec<f64> = xy(Subject::Decode).iter().map(|point| point.0).collect();
    assert_eq!(depths, [17.0, 80.0, 1040.0, 4112.0]);
}

#[test]
fn a_reference_is_drawn_by_its_fastest_and_not_by_its_failures() {
    let mut records = emel();
    for (config, ns) in [("slow", 9e6), ("fast", 3e6)] {
        for tokens in [64, 1024] {
            let mut record = growth("llama.cpp", config, tokens, ns);
            record.head.run_id = format!("emel-{tokens}");
            record.ratios = Some(Ratios::default());
            records.push(Record::Generation(Box::new(record)));
        }
    }
    let mut failed = growth("llama.cpp", "fast", 4096, 1.0);
    failed.head.status = Status::Error;
    records.push(Record::Generation(Box::new(failed)));
    let curves = curves(&records);
    let prefill = curves.iter().find(|one| one.subject == Subject::Prefill);
    let lines = &prefill.unwrap().lines;
    assert_eq!(lines[1].engine, "llama.cpp");
    let points: Vec<_> = lines[1].points.iter().map(|p| (p.x, p.y)).collect();
    assert_eq!(points, [(64.0, 3e6), (1024.0, 3e6)]);
}

#[test]
fn a_page_shows_pictures_points_and_how_straight_they_are() {
    let mut records = emel();
    records.extend([
        load("small", 100_000_000, 5e7),
        load("large", 2_000_000_000, 1e9),
    ]);
    let curves = curves(&records);
    let text = page::page(&curves, "curves");
    for expected in [
        "- machine: Fast CPU\n- emel 1.0\n\n## ",
        "## Prefill by length of the prompt: qwen3_0_6b_q8_0, multithreaded (2)\n\n\
         ![Prefill by length of the prompt: qwen3_0_6b_q8_0, multithreaded (2)]\
         (curves/prefill_qwen3_0_6b_q8_0_multithreaded.svg)\n\n\
         | tokens of the prompt | emel, µs a prompt token |\n| ---: | ---: |\n\
         | 64 | 1064 (1064-1064) |\n",
        "- emel: 1000.000 µs + 1000.000 µs per 1000 tokens; its 3 points lie 0.0 % from this line",
        "- emel: 2.000 ms + 0.500 ms per 1000 tokens; its 4 points",
        "| model | file, GB | emel, ms a load |\n| --- | ---: | ---: |\n| small | 0.100 | 50.0 (",
        "- emel: 0.000 ms + 500.000 ms per GB; its 2 points",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    assert!(!text.contains("-0.000"), "{text}");
}

#[test]
fn pictures_hold_every_point_and_a_line_an_engine() {
    let curves = curves(&emel());
    let picture = draw::draw(&curves[0]);
    assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
    assert_eq!(picture.matches("<circle").count(), 4);
    assert_eq!(picture.matches("stroke-dasharray").count(), 1);
    assert!(picture.contains("ms a generated token"), "{picture}");
    assert!(!picture.contains("NaN"), "{picture}");
}

#[test]
fn one_point_is_no_curve() {
    assert_eq!(curves(&emel()[..1]), []);
    assert_eq!(curves(&[]), []);
}
