//! `emel-compare records`.

use emel::bench::records::{Generation, Head, Hex64, Record, Status};
use emel::trace::checksum::Fnv64;

use super::*;

/// Records in the making, with their traces.
struct File<'a> {
    place: &'a Place,
    name: &'a str,
    lines: Vec<String>,
}

fn record(stream: &Stream<'_>, config: Option<&str>, trace: Option<&str>) -> Generation {
    let sum = |ids: &[u32]| Some(Hex64(Fnv64::of_ids(ids).value()));
    Generation {
        head: Head {
            run_id: "r".to_owned(),
            engine: stream.engine.to_owned(),
            engine_version: Some("1.0".to_owned()),
            threads: 1,
            ..Head::default()
        },
        backend: stream.engine.to_owned(),
        config: config.map(str::to_owned),
        workload_id: stream.workload_id.to_owned(),
        lane: stream.lane.to_owned(),
        model: "m".to_owned(),
        model_sha256: Some(stream.model_sha256.clone()),
        formatter: "raw".to_owned(),
        sampling: "argmax".to_owned(),
        stop_rule: "limit".to_owned(),
        seed: 1,
        max_tokens: 8,
        comparable_reason: "greedy".to_owned(),
        process: "warm".to_owned(),
        prompt_checksum: sum(&stream.prompt),
        ids_checksum: sum(&stream.tokens),
        stop: Some(stream.stop.to_owned()),
        trace: trace.map(str::to_owned),
        ..Generation::default()
    }
}

impl<'a> File<'a> {
    fn new(place: &'a Place, name: &'a str) -> Self {
        fs::create_dir_all(place.path(&format!("{name}.traces"))).expect("a folder");
        File {
            place,
            name,
            lines: Vec::new(),
        }
    }

    /// Adds a record and its trace.
    fn push(&mut self, stream: &Stream<'_>, config: Option<&str>) -> &mut Self {
        let trace = format!("{}.tokens.txt", self.lines.len());
        stream.write(&self.place.path(&format!("{}.traces/{trace}", self.name)));
        self.record(record(stream, config, Some(&trace)))
    }

    fn record(&mut self, record: Generation) -> &mut Self {
        self.lines
            .push(Record::Generation(Box::new(record)).to_line());
        self.write()
    }

    fn write(&mut self) -> &mut Self {
        self.place.write(self.name, self.lines.join("\n") + "\n");
        self
    }
}

fn pairs(report: &Value) -> Vec<(String, String, String, String)> {
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let list = report["pairs"].as_array().expect("pairs");
    let pair = |pair: &Value| {
        let (a, b) = (text(&pair["a"]["label"]), text(&pair["b"]["label"]));
        (
            text(&pair["workload_id"]) + "/" + &text(&pair["lane"]),
            a,
            b,
            text(&pair["verdict"]),
        )
    };
    list.iter().map(pair).collect()
}

fn row(place: &str, a: &str, b: &str, verdict: &str) -> (String, String, String, String) {
    (
        place.to_owned(),
        a.to_owned(),
        b.to_owned(),
        verdict.to_owned(),
    )
}

#[test]
fn one_file_with_all_engines() {
    let place = Place::new();
    let other = |stream: Stream<'static>| Stream {
        workload_id: "v_v1",
        ..stream
    };
    File::new(&place, "r.jsonl")
        .push(&Stream::of("llama.cpp", &[A, B]), Some("fa"))
        .push(&Stream::of("emel", &[A, B]), None)
        .push(&Stream::of("llama.cpp", &[A, T]), Some("nofa"))
        .push(&other(Stream::of("emel", &[A])), None)
        .push(
            &Stream {
                lane: "multithreaded",
                ..Stream::of("emel", &[A])
            },
            None,
        );
    let report = place.json(&["records", "r.jsonl", "-m", "vocab.gguf"], 3);
    assert_eq!(
        pairs(&report),
        [
            row("w_v1/single", "emel", "llama.cpp-fa", "exact_match"),
            row("w_v1/single", "emel", "llama.cpp-nofa", "bounded_drift"),
        ]
    );
    assert_eq!(report["pairs"][1]["drift"]["a"]["piece"]["text"], "b");
    let notes = report["notes"].to_string();
    assert!(
        notes.contains("v_v1 in lane single has emel alone"),
        "{notes}"
    );
    let (text, _) = place.run(&["records", "r.jsonl"], 3);
    assert!(
        text.starts_with("bounded_drift: 1 exact_match, 1 bounded_drift of 2 pairs\n"),
        "{text}"
    );
    assert!(
        text.contains("w_v1, single: emel and llama.cpp-nofa part at token 1 of 2"),
        "{text}"
    );
    assert!(
        text.contains("the same:\n- w_v1, single: emel and llama.cpp-fa chose"),
        "{text}"
    );
}

#[test]
fn two_files() {
    let place = Place::new();
    File::new(&place, "a.jsonl").push(&Stream::of("emel", &[A, B]), None);
    File::new(&place, "b.jsonl")
        .push(&Stream::of("llama.cpp", &[A, B]), Some("fa"))
        .push(&Stream::of("emel", &[A, B]), None);
    let report = place.json(&["records", "a.jsonl", "b.jsonl"], 0);
    assert_eq!(
        pairs(&report),
        [
            row(
                "w_v1/single",
                "emel (a.jsonl)",
                "llama.cpp-fa",
                "exact_match"
            ),
            row(
                "w_v1/single",
                "emel (a.jsonl)",
                "emel (b.jsonl)",
                "exact_match"
            ),
        ]
    );
    // The other way round it is the other file's EMEL.
    let report = place.json(&["records", "b.jsonl", "a.jsonl"], 0);
    assert_eq!(
        pairs(&report)[1],
        row(
            "w_v1/single",
            "emel (b.jsonl)",
            "emel (a.jsonl)",
            "exact_match"
        )
    );
    place.fails(
        &["records", "a.jsonl", "./a.jsonl"],
        2,
        &["both files are one"],
    );
    place.fails(
        &["records", "a.jsonl", "b.jsonl", "c.jsonl"],
        2,
        &["unexpected"],
    );
    place.fails(
        &["records", "a.jsonl"],
        4,
        &["nothing to compare", "w_v1 in lane single has emel alone"],
    );
    place.write("empty.jsonl", "");
    place.fails(
        &["records", "empty.jsonl"],
        4,
        &["nothing to compare: the records hold no generation"],
    );
}

#[test]
fn what_records_state_is_part_of_the_contract() {
    let place = Place::new();
    let (ours, theirs) = (Stream::of("emel", &[A]), Stream::of("llama.cpp", &[A]));
    type Change = (&'static str, fn(&mut Generation));
    let changes: [Change; 5] = [
        ("formatter", |record| {
            record.formatter = "template".to_owned()
        }),
        ("sampling", |record| record.sampling = "chain".to_owned()),
        ("stop_rule", |record| record.stop_rule = "eog".to_owned()),
        ("seed", |record| record.seed = 2),
        ("max_tokens", |record| record.max_tokens = 9),
    ];
    for (field, change) in changes {
        let mut file = File::new(&place, "r.jsonl");
        file.push(&ours, None).push(&theirs, None);
        let mut other = record(&theirs, None, Some("1.tokens.txt"));
        change(&mut other);
        file.lines.pop();
        file.record(other);
        let report = place.json(&["records", "r.jsonl"], 4);
        assert_eq!(report["pairs"][0]["differs"]["field"], field);
    }
    let prompt = Stream {
        prompt: vec![BOS, T],
        ..theirs
    };
    File::new(&place, "r.jsonl")
        .push(&ours, None)
        .push(&prompt, None);
    let report = place.json(&["records", "r.jsonl"], 4);
    assert_eq!(report["pairs"][0]["differs"]["field"], "prompt");
    // -m names one model.
    let mut strange = record(&Stream::of("llama.cpp", &[A]), None, Some("1.tokens.txt"));
    strange.model = "n".to_owned();
    let mut file = File::new(&place, "r.jsonl");
    file.push(&ours, None)
        .push(&Stream::of("llama.cpp", &[A]), None);
    file.lines.pop();
    file.record(strange);
    place.fails(
        &["records", "r.jsonl", "-m", "vocab.gguf"],
        2,
        &["-m names one model", "m, n"],
    );
}

#[test]
fn a_failed_run_is_a_pair_without_a_stream() {
    let place = Place::new();
    let theirs = Stream::of("llama.cpp", &[A]);
    let mut failed = record(&theirs, Some("fa"), None);
    failed.head.status = Status::Error;
    failed.head.error = Some("it crashed".to_owned());
    let mut file = File::new(&place, "r.jsonl");
    file.push(&Stream::of("emel", &[A]), None).record(failed);
    let report = place.json(&["records", "r.jsonl"], 1);
    assert_eq!(
        pairs(&report),
        [row("w_v1/single", "emel", "llama.cpp-fa", "error")]
    );
    let error = report["pairs"][0]["error"].as_str().expect("a reason");
    assert_eq!(error, "r.jsonl:2: llama.cpp-fa: it crashed");
}

#[test]
fn broken_records_are_named_with_their_line() {
    let place = Place::new();
    let (ours, theirs) = (Stream::of("emel", &[A]), Stream::of("llama.cpp", &[A]));
    let file = || {
        let mut file = File::new(&place, "r.jsonl");
        file.push(&ours, None).push(&theirs, Some("fa"));
        file
    };
    let with = |line: usize, change: &dyn Fn(&mut serde_json::Map<String, Value>)| {
        let mut file = file();
        let mut value: Value = serde_json::from_str(&file.lines[line]).expect("JSON");
        change(value.as_object_mut().expect("an object"));
        file.lines[line] = value.to_string();
        file.write();
    };
    // Unknown keys are nobody's business; a missing one is.
    with(1, &|record| {
        drop(record.insert("colour".to_owned(), "blue".into()))
    });
    place.run(&["records", "r.jsonl"], 0);
    with(1, &|record| drop(record.shift_remove("lane")));
    place.fails(
        &["records", "r.jsonl"],
        1,
        &["error: r.jsonl:2: key `lane` is missing"],
    );
    with(0, &|record| {
        drop(record.insert("schema".to_owned(), "emel-bench/v2".into()))
    });
    place.fails(
        &["records", "r.jsonl"],
        1,
        &["r.jsonl:1: schema is \"emel-bench/v2\""],
    );
    let mut cut = file();
    cut.lines[1].truncate(100);
    cut.write();
    place.fails(&["records", "r.jsonl"], 1, &["r.jsonl:2: not JSON: "]);
    place.fails(
        &["records", "absent.jsonl"],
        1,
        &["cannot read absent.jsonl"],
    );

    file().push(&theirs, Some("fa"));
    place.fails(
        &["records", "r.jsonl"],
        1,
        &[
            "r.jsonl:3: llama.cpp-fa is there a second time for workload w_v1 in lane single",
            "line 2",
        ],
    );
}

#[test]
fn sidecars_that_do_not_belong_are_named_with_the_records_line() {
    let place = Place::new();
    let (ours, theirs) = (Stream::of("emel", &[A]), Stream::of("llama.cpp", &[A]));
    let mut file = File::new(&place, "r.jsonl");
    file.push(&ours, None).push(&theirs, None);
    let trace = place.path("r.jsonl.traces/1.tokens.txt");

    Stream::of("llama.cpp", &[B]).write(&trace);
    place.fails(
        &["records", "r.jsonl"],
        1,
        &[
            "r.jsonl:2: its trace r.jsonl.traces/1.tokens.txt",
            "ids_checksum",
        ],
    );
    Stream {
        prompt: vec![BOS],
        ..theirs.clone()
    }
    .write(&trace);
    place.fails(
        &["records", "r.jsonl"],
        1,
        &["r.jsonl:2: ", "prompt_checksum"],
    );
    Stream {
        stop: "eog",
        ..theirs.clone()
    }
    .write(&trace);
    place.fails(
        &["records", "r.jsonl"],
        1,
        &["r.jsonl:2: ", "stop is eog there and limit"],
    );

    fs::write(&trace, "# emel-token-trace/v1\n").expect("a file");
    place.fails(
        &["records", "r.jsonl"],
        1,
        &["r.jsonl.traces/1.tokens.txt:1: ends without '# stop='"],
    );
    fs::remove_file(&trace).expect("a file");
    place.fails(
        &["records", "r.jsonl"],
        1,
        &[
            "r.jsonl:2: its trace r.jsonl.traces/1.tokens.txt is missing",
            "measure again",
        ],
    );
    for (name, words) in [
        (None, "r.jsonl:2: the record names no trace"),
        (
            Some("../r.jsonl"),
            "r.jsonl:2: key `trace` must be the name of a file",
        ),
        (
            Some("/etc/passwd"),
            "r.jsonl:2: key `trace` must be the name of a file",
        ),
    ] {
        file.lines.pop();
        file.record(record(&theirs, None, name));
        place.fails(&["records", "r.jsonl"], 1, &[words]);
    }
}
