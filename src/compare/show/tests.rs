//! A report with everything in it, in each form.

use serde_json::Value;

use super::super::report::*;
use super::*;
use crate::bench::validate::{SCHEMAS, Schema};

fn piece(id: u32, text: &str) -> Piece {
    Piece {
        id,
        text: Some(text.to_owned()),
    }
}

fn side(label: &str) -> Side {
    Side {
        label: label.to_owned(),
        engine: label.split('-').next().unwrap_or_default().to_owned(),
        engine_version: "1.0".to_owned(),
        tokens: 8,
        stop: "limit".to_owned(),
        ids_checksum: "00000000000000aa".to_owned(),
        text_checksum: Some("00000000000000bb".to_owned()),
        text_bytes: Some(20),
    }
}

fn bare(verdict: Verdict) -> Pair {
    Pair {
        workload_id: "w".to_owned(),
        lane: "single".to_owned(),
        a: side("emel"),
        b: side("llama.cpp-fa"),
        verdict,
        differs: None,
        prompt: None,
        drift: None,
        finding: None,
        error: None,
    }
}

fn finding(cause: Cause) -> Option<Finding> {
    Some(Finding {
        cause,
        engine: None,
        tensor: None,
        evidence: vec!["gaps of 0.0200 and 0.0300 logits".to_owned()],
    })
}

/// A pair that parts between a special token and a text with a bar, a backtick and an escape.
fn drifting() -> Pair {
    let choice = |own: Piece, gap: f64| Choice {
        piece: own,
        logit: 16.5,
        other_logit: Some(16.5 - gap as f32),
        gap: Some(gap),
    };
    Pair {
        drift: Some(Drift {
            index: 3,
            a: Some(choice(piece(2, "<|end|>"), 0.25)),
            b: Some(choice(piece(9, " a`b\u{1b}[1m"), 0.5)),
            shared_tokens: 3,
            shared_tokens_fraction: 0.375,
            shared_bytes: Some(10),
            shared_bytes_fraction: Some(0.5),
            token_difference: 0,
            byte_difference: Some(-4),
            before: Some("one\ntwo".to_owned()),
            after_a: Some("<|end|>".to_owned()),
            after_b: Some(" a`b\u{1b}[1m".to_owned()),
        }),
        finding: finding(Cause::NearTie),
        ..bare(Verdict::BoundedDrift)
    }
}

fn incomparable() -> Pair {
    Pair {
        b: side("other"),
        differs: Some(Difference {
            field: "prompt".to_owned(),
            a: "token 5 at 1 of 3".to_owned(),
            b: "the end at 1".to_owned(),
        }),
        prompt: Some(PromptDifference {
            index: 1,
            a: Some(piece(5, "x")),
            b: None,
            a_tokens: 3,
            b_tokens: 1,
            same_text: Some(false),
        }),
        finding: finding(Cause::Template),
        ..bare(Verdict::NonComparable)
    }
}

fn replay() -> Replay {
    let summary = |scale: f64| Summary {
        mean: scale,
        p50: scale / 2.0,
        p99: scale * 4.0,
        worst: scale * 5.0,
    };
    let agreement = |scale: f64| {
        Some(Agreement {
            positions: 8,
            disagreements: 1,
            margins: vec![0.25],
            kl: summary(scale / 100.0),
            max_difference: summary(scale),
        })
    };
    let view = |label: &str, margin: f64| View {
        label: label.to_owned(),
        backend: label.split('-').next().unwrap_or_default().to_owned(),
        top: if margin > 0.0 {
            piece(2, "<|end|>")
        } else {
            piece(9, "b")
        },
        logit_a: 16.5,
        logit_b: 16.5 - margin,
        margin,
        probability_margin: margin / 10.0,
        kl_to_oracle: Some(0.001),
    };
    let replayed = |label: &str| Replayed {
        label: label.to_owned(),
        to_oracle: agreement(0.1),
        ..Replayed::default()
    };
    let position = |index: usize| Position {
        index,
        kl: if index == 0 { 0.0 } else { 1e-4 * index as f64 },
        max_difference: 0.01 * (index + 1) as f64,
        top_agrees: index != 3,
    };
    Replay {
        stream: "emel".to_owned(),
        positions: 8,
        engines: vec![
            replayed("emel"),
            Replayed {
                first_split: Some(3),
                cause: Some(Cause::NearTie),
                to_emel: agreement(0.2),
                ..replayed("llama.cpp-fa")
            },
            Replayed {
                label: "llama.cpp-nofa".to_owned(),
                error: Some("it crashed\nat once".to_owned()),
                ..Replayed::default()
            },
        ],
        trail: (0..8).map(position).collect(),
        splits: vec![Split {
            index: 3,
            a: piece(2, "<|end|>"),
            b: piece(9, "b"),
            parting: vec!["llama.cpp-fa".to_owned()],
            backend: "llama.cpp".to_owned(),
            views: vec![view("emel", 0.25), view("llama.cpp-fa", -0.5)],
            oracle: Some(View {
                kl_to_oracle: None,
                ..view("oracle", 0.125)
            }),
            spread: Some(0.75),
        }],
        oracle_positions: vec![3],
    }
}

fn trail() -> TensorTrail {
    let points = ["attn_norm", "q", "attended", "ffn_out", "layer_out"];
    let mut rows = vec![TensorRow {
        layer: None,
        point: "embedding".to_owned(),
        a_error: Some(0.0),
        b_error: Some(0.0),
        between: Some(0.0),
    }];
    for layer in 0..6 {
        rows.extend(points.map(|point| TensorRow {
            layer: Some(layer),
            point: point.to_owned(),
            a_error: Some(1e-3),
            b_error: Some(if layer < 3 { 1e-3 } else { 0.5 }),
            between: None,
        }));
    }
    TensorTrail {
        index: 3,
        a: "emel".to_owned(),
        b: "llama.cpp-fa".to_owned(),
        rows,
        defect: Some(Defect {
            engine: "llama.cpp-fa".to_owned(),
            layer: Some(3),
            point: "attn_norm".to_owned(),
            error: 0.5,
            other_error: 1e-3,
        }),
    }
}

fn whole() -> Report {
    let failed = Pair {
        error: Some("r.jsonl:4: it crashed".to_owned()),
        ..bare(Verdict::Error)
    };
    let mut report = Report::new(vec![
        bare(Verdict::ExactMatch),
        drifting(),
        incomparable(),
        failed,
    ]);
    report.subject = Some(Subject {
        model: "model.gguf".to_owned(),
        model_sha256: "ab".repeat(32),
        prompt_text: Some("Say <|x|>\n".to_owned()),
        prompt_tokens: 3,
        max_tokens: 8,
    });
    report.replay = Some(replay());
    report.tensors = Some(trail());
    report.notes = vec!["a note".to_owned()];
    report
}

fn shown(report: &Report, format: Format) -> String {
    let colour = false;
    render(report, &ShowOptions { format, colour })
}

/// Compares with a recorded text; `EMEL_BLESS=1` records it.
fn golden(name: &str, text: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = path.join("benchdata/golden/compare").join(name);
    if std::env::var_os("EMEL_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
    }
    let recorded = std::fs::read_to_string(&path).unwrap();
    assert_eq!(
        text,
        recorded,
        "{} differs: look, and bless it",
        path.display()
    );
}

#[test]
fn the_text_is_as_recorded() {
    golden("report.txt", &shown(&whole(), Format::Text));
}

#[test]
fn the_markdown_is_as_recorded() {
    golden("report.md", &shown(&whole(), Format::Md));
}

#[test]
fn the_first_line_of_a_single_pair_says_all() {
    let first = |pair: Pair| {
        let text = shown(&Report::new(vec![pair]), Format::Text);
        text.lines().next().unwrap_or_default().to_owned()
    };
    assert_eq!(
        first(bare(Verdict::ExactMatch)),
        "exact_match: emel and llama.cpp-fa chose the same 8 tokens"
    );
    assert_eq!(
        first(drifting()),
        "bounded_drift: emel and llama.cpp-fa part at token 3 of 8 (near_tie)"
    );
    assert_eq!(
        first(incomparable()),
        "non_comparable: emel and other cannot be compared: prompt differs (template)"
    );
    let mut ended = drifting();
    if let Some(drift) = &mut ended.drift {
        (drift.a, drift.b, drift.index) = (None, None, 8);
    }
    ended.finding = finding(Cause::StopRule);
    assert_eq!(
        first(ended),
        "bounded_drift: emel and llama.cpp-fa chose the same 8 tokens and ended for other reasons \
         (stop_rule)"
    );
}

#[test]
fn no_form_obeys_what_a_model_or_a_name_says() {
    let mut report = whole();
    report.pairs[1].b.label = "evil\u{1b}[2J\n".to_owned();
    report.notes.push("line\u{7}".to_owned());
    for format in [Format::Text, Format::Md, Format::Json] {
        let text = shown(&report, format);
        let obeyed = |letter: char| letter.is_control() && letter != '\n';
        assert!(!text.contains(obeyed), "{format:?}");
    }
    let coloured = render(
        &report,
        &ShowOptions {
            format: Format::Text,
            colour: true,
        },
    );
    let codes = coloured.split('\u{1b}').skip(1);
    assert!(codes.clone().count() > 10);
    for code in codes {
        let known = ["[1m", "[2m", "[22m", "[31m", "[32m", "[33m", "[36m", "[39m"];
        assert!(
            known.iter().any(|known| code.starts_with(known)),
            "{code:?}"
        );
    }
}

/// With nothing allowed but what the schema names, so that no key of a report is left out of it.
fn strict(value: &mut Value) {
    if let Value::Object(object) = value {
        if object.contains_key("properties") {
            object.insert("additionalProperties".to_owned(), false.into());
        }
        object.values_mut().for_each(strict);
    }
}

fn problems(schema: &str, text: &str) -> Vec<String> {
    let (_, schema) = SCHEMAS.iter().find(|(name, _)| *name == schema).unwrap();
    let mut schema: Value = serde_json::from_str(schema).unwrap();
    strict(&mut schema);
    let schema = Schema::parse(&schema.to_string()).unwrap();
    let found = schema.check(&serde_json::from_str(text).unwrap());
    found
        .into_iter()
        .map(|problem| format!("{}: {}", problem.key, problem.message))
        .collect()
}

#[test]
fn the_json_is_one_line_that_satisfies_the_schema() {
    let mut infinite = whole();
    if let Some(replay) = &mut infinite.replay {
        replay.trail[1].kl = f64::INFINITY;
        replay.splits[0].views[0].margin = f64::NAN;
    }
    let small = Report::new(vec![bare(Verdict::ExactMatch)]);
    for report in [whole(), infinite, small] {
        let text = shown(&report, Format::Json);
        assert_eq!(text.matches('\n').count(), 1);
        assert_eq!(problems(SCHEMA, &text), [""; 0]);
    }
    let mut value: Value = serde_json::from_str(&shown(&whole(), Format::Json)).unwrap();
    value["pairs"][1]["drift"]["colour"] = 1.into();
    value["replay"]["engines"][0]["cause"] = "luck".into();
    let found = problems(SCHEMA, &value.to_string());
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("pairs[1].drift.colour: "), "{found:?}");
}

fn matrix() -> Matrix {
    let row = |backend: &str, sum: Option<&str>| crate::compare::determinism::Row {
        backend: backend.to_owned(),
        config: if backend == "emel" {
            String::new()
        } else {
            "fa".to_owned()
        },
        isa: "avx2".to_owned(),
        threads: 2,
        route: "-".to_owned(),
        n_ubatch: 512,
        logits_checksum: sum.map(str::to_owned),
        ids_checksum: sum.map(str::to_owned),
        error: sum.is_none().then(|| "it crashed".to_owned()),
    };
    Matrix {
        schema: crate::compare::determinism::SCHEMA,
        subject: whole().subject.unwrap(),
        rows: vec![
            row("emel", Some("0a")),
            row("emel", Some("0a")),
            row("r", Some("0b")),
            row("r", None),
        ],
        emel_values: 1,
        reference_values: 1,
        reference_streams: 1,
    }
}

#[test]
fn a_matrix_has_all_forms_too() {
    let matrix = matrix();
    let form = |format| {
        form(
            &matrix,
            || matrix::page(&matrix),
            &ShowOptions {
                format,
                colour: false,
            },
        )
    };
    let text = form(Format::Text);
    assert!(
        text.starts_with(
            "emel: 1 value in 2 runs; the reference: 1 value of logits and 1 of tokens in 1 run\n"
        ),
        "{text}"
    );
    assert!(text.contains("- r fa: it crashed"), "{text}");
    assert!(form(Format::Md).contains("| engine | configuration | isa |"));
    assert_eq!(
        problems("emel-determinism/v1", &form(Format::Json)),
        [""; 0]
    );
}

/// Whether tags are closed in order and nothing in between is markup.
fn is_well_formed(xml: &str) -> bool {
    let mut open: Vec<&str> = Vec::new();
    for part in xml.split('<').skip(1) {
        let Some((tag, text)) = part.split_once('>') else {
            return false;
        };
        let entities = text.split('&').skip(1);
        let known = ["amp;", "lt;", "gt;", "quot;", "apos;"];
        let mut bad = entities.filter(|rest| !known.iter().any(|known| rest.starts_with(known)));
        if bad.next().is_some() || text.contains('>') {
            return false;
        }
        let name = tag.split_whitespace().next().unwrap_or_default();
        match (tag.strip_prefix('/'), tag.ends_with('/')) {
            (Some(name), _) if open.pop() != Some(name) => return false,
            (None, false) => open.push(name),
            _ => {}
        }
        if tag.matches('"').count() % 2 != 0 {
            return false;
        }
    }
    open.is_empty() && xml.trim_end().ends_with("</svg>")
}

#[test]
fn the_plot_is_well_formed_whatever_names_and_numbers_are() {
    let mut report = whole();
    let picture = svg::draw(&report).unwrap();
    assert!(is_well_formed(&picture), "{picture}");
    assert_eq!(picture.matches("<polyline").count(), 2);
    assert_eq!(picture.matches("stroke-dasharray").count(), 1);
    assert!(picture.contains("token 3: other top tokens"), "{picture}");
    if let Some(replay) = &mut report.replay {
        replay.engines[0].label = "a<b>&\"'\u{1b}".to_owned();
        replay.splits[0].parting = vec!["</svg>".to_owned()];
        replay.trail[2].kl = f64::NAN;
        replay.trail[3].max_difference = f64::INFINITY;
    }
    let picture = svg::draw(&report).unwrap();
    assert!(is_well_formed(&picture), "{picture}");
    assert!(
        !picture.contains("NaN") && !picture.contains("inf"),
        "{picture}"
    );
    // All alike, and one position alone.
    if let Some(replay) = &mut report.replay {
        replay.trail.truncate(1);
        replay.trail[0].max_difference = 0.0;
    }
    assert!(is_well_formed(&svg::draw(&report).unwrap()));
    report.replay = None;
    assert!(svg::draw(&report).is_none());
}
