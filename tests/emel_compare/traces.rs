//! `emel-compare traces`.

use std::process::Stdio;

use super::*;

#[test]
fn equal_streams_end_with_0() {
    let place = Place::new();
    place.trace("a", &Stream::of("emel", &[A, B, T]));
    place.trace("b", &Stream::of("llama.cpp", &[A, B, T]));
    let (text, _) = place.run(&["traces", "a", "b"], 0);
    let first = text.lines().next();
    assert_eq!(
        first,
        Some("exact_match: emel and llama.cpp chose the same 3 tokens")
    );
    assert!(text.contains("not at hand: tokens have no text"), "{text}");
    let report = place.json(&["traces", "a", "b", "-m", "vocab.gguf"], 0);
    assert_eq!(report["verdict"], "exact_match");
    assert_eq!(report["pairs"][0]["a"]["text_bytes"], 3);
    assert_eq!(report["notes"], json!([]));
    assert_eq!(report["subject"]["prompt_text"], "<s> the");
    assert_eq!(report["subject"]["max_tokens"], 8);
}

#[test]
fn streams_that_part_end_with_3_and_show_where() {
    let place = Place::new();
    place.trace("a", &Stream::of("emel", &[A, B, THE, T, A]));
    place.trace("b", &Stream::of("llama.cpp", &[A, B, THE, B]));
    let report = place.json(
        &["traces", "a", "b", "-m", "vocab.gguf", "--context", "2"],
        3,
    );
    let drift = &report["pairs"][0]["drift"];
    assert_eq!(report["verdict"], "bounded_drift");
    assert_eq!(
        (&drift["index"], &drift["token_difference"]),
        (&json!(3), &json!(1))
    );
    assert_eq!(drift["shared_tokens_fraction"], 0.6);
    assert_eq!(
        (&drift["shared_bytes"], &drift["byte_difference"]),
        (&json!(6), &json!(1))
    );
    assert_eq!(drift["a"]["piece"], json!({"id": T, "text": "t"}));
    assert_eq!(
        (&drift["a"]["other_logit"], &drift["a"]["gap"]),
        (&json!(15.5), &json!(0.75))
    );
    assert_eq!(drift["before"], "b the");
    assert_eq!(
        (&drift["after_a"], &drift["after_b"]),
        (&json!("ta"), &json!("b"))
    );
    assert!(report["pairs"][0]["finding"].is_null());
    // A finished trace proves no near-tie.
    place.run(&["traces", "a", "b", "--allow", "near-tie"], 3);
}

#[test]
fn the_text_is_as_it_was_recorded() {
    let place = Place::new();
    place.trace("a.tokens.txt", &Stream::of("emel", &[A, B, T]));
    place.trace("b.tokens.txt", &Stream::of("emel", &[A, T, T, B]));
    let (text, errors) = place.run(
        &["traces", "a.tokens.txt", "b.tokens.txt", "-m", "vocab.gguf"],
        3,
    );
    assert_eq!(errors, "");
    let expected = "\
bounded_drift: a.tokens.txt and b.tokens.txt part at token 1 of 4
  model      vocab.gguf, sha256 abababababab
  prompt     2 tokens: \"<s> the\"
  generated  at most 8 tokens
  first           a.tokens.txt (emel 1.0): 3 tokens, stop \"limit\", ids 8339697ad7f780e4, text \
e71fb71905417afa (3 bytes)
  second          b.tokens.txt (emel 1.0): 4 tokens, stop \"limit\", ids 4af185f66ba898c8, text \
52fe49841f549002 (4 bytes)
  shared          1 token (25.0 %), 1 byte (25.0 %); the first has -1 tokens, -1 bytes
  before          \"<s> thea\"
  first chose     261 \"b\" at 16.25; 279 \"t\" at 14: a gap of +2.25
  second chose    279 \"t\" at 16.25; 261 \"b\" at 15.5: a gap of +0.750
  first goes on   \"bt\"
  second goes on  \"ttb\"
";
    assert_eq!(text, expected);
}

#[test]
fn every_field_of_the_contract_that_differs_is_named() {
    let place = Place::new();
    let ours = Stream::of("emel", &[A, B]);
    place.trace("a", &ours);
    let mut others: Vec<(&str, Stream<'_>)> = Vec::new();
    for field in ["formatter", "sampling", "stop_rule", "seed", "max_tokens"] {
        let mut other = Stream::of("llama.cpp", &[A, B]);
        let pair = other.more.iter_mut().find(|(key, _)| *key == field);
        pair.expect("a stated field").1 = "another";
        others.push((field, other));
    }
    let theirs = || Stream::of("llama.cpp", &[A, B]);
    let (model_sha256, prompt) = ("cd".repeat(32), vec![BOS, T]);
    others.push((
        "model_sha256",
        Stream {
            model_sha256,
            ..theirs()
        },
    ));
    others.push((
        "workload_id",
        Stream {
            workload_id: "v_v1",
            ..theirs()
        },
    ));
    others.push((
        "lane",
        Stream {
            lane: "multithreaded",
            ..theirs()
        },
    ));
    others.push(("prompt", Stream { prompt, ..theirs() }));
    for (field, other) in others {
        place.trace("b", &other);
        let report = place.json(&["traces", "a", "b"], 4);
        assert_eq!(report["verdict"], "non_comparable", "{field}");
        assert_eq!(report["pairs"][0]["differs"]["field"], field);
        assert!(report["pairs"][0]["drift"].is_null(), "{field}");
        let (text, _) = place.run(&["traces", "a", "b"], 4);
        assert!(
            text.contains(&format!("cannot be compared: {field} differs")),
            "{text}"
        );
    }
    // What one of them does not state cannot differ.
    let bare = Stream {
        workload_id: "-",
        lane: "-",
        more: Vec::new(),
        ..theirs()
    };
    place.trace("b", &bare);
    place.run(&["traces", "a", "b"], 0);
}

/// A missing BOS, a tokenizer merge left out, another template.
#[test]
fn prompts_are_compared_first_and_blamed() {
    let place = Place::new();
    place.trace(
        "a",
        &Stream {
            prompt: vec![BOS, THE, A],
            ..Stream::of("emel", &[A])
        },
    );
    let cases: [(&[u32], &str, &str, u64); 4] = [
        (
            &[THE, A],
            "tokenization",
            "1 \"<s>\" stands 1x in emel, 0x in llama.cpp",
            0,
        ),
        (
            &[BOS, SPACE_T, HE, A],
            "tokenization",
            "both are the same text",
            1,
        ),
        (
            &[BOS, THE, EOS, A],
            "tokenization",
            "2 \"</s>\" stands 0x in emel, 1x in llama.cpp",
            2,
        ),
        (&[BOS, THE, B], "template", "the texts part at byte 7", 2),
    ];
    for (prompt, cause, evidence, index) in cases {
        let prompt = prompt.to_vec();
        // Their tokens are the same, and nobody looks at them.
        place.trace(
            "b",
            &Stream {
                prompt,
                ..Stream::of("llama.cpp", &[A])
            },
        );
        let report = place.json(&["traces", "a", "b", "-m", "vocab.gguf"], 4);
        let pair = &report["pairs"][0];
        assert_eq!(
            (&pair["prompt"]["index"], &pair["finding"]["cause"]),
            (&json!(index), &json!(cause))
        );
        assert!(
            pair["finding"]["evidence"]
                .to_string()
                .replace('\\', "")
                .contains(evidence),
            "{pair}"
        );
        let report = place.json(&["traces", "a", "b"], 4);
        let evidence = report["pairs"][0]["finding"]["evidence"].to_string();
        assert!(
            evidence.contains("the vocabulary is not at hand"),
            "{evidence}"
        );
    }
}

/// A stop string and an end of generation that are seen one token late.
#[test]
fn stops_that_are_seen_late_are_the_stop_rule() {
    let place = Place::new();
    // Our tokens and stop, theirs, and what the evidence says.
    type Case<'a> = (&'a [u32], &'a str, &'a [u32], &'a str, &'a str);
    let cases: [Case<'_>; 4] = [
        (
            &[A, B],
            "stop_string",
            &[A, B, T],
            "stop_string",
            "one token later",
        ),
        (&[A, EOS], "eog", &[A, EOS, T], "limit", "went on past it"),
        (
            &[A, B],
            "eog",
            &[A, B],
            "limit",
            "both chose the same 2 tokens",
        ),
        (&[], "cancelled", &[A], "limit", "after 0 tokens"),
    ];
    for (ours, our_stop, theirs, their_stop, evidence) in cases {
        place.trace(
            "a",
            &Stream {
                stop: our_stop,
                ..Stream::of("emel", ours)
            },
        );
        place.trace(
            "b",
            &Stream {
                stop: their_stop,
                ..Stream::of("llama.cpp", theirs)
            },
        );
        for arguments in [
            ["traces", "a", "b", "-m", "vocab.gguf"],
            ["traces", "b", "a", "-m", "vocab.gguf"],
        ] {
            let report = place.json(&arguments, 3);
            let finding = &report["pairs"][0]["finding"];
            assert_eq!(finding["cause"], "stop_rule");
            assert!(
                finding["evidence"].to_string().contains(evidence),
                "{finding}"
            );
        }
    }
}

#[test]
fn the_listed_model_of_the_same_digest_gives_the_vocabulary() {
    let place = Place::new();
    let digest =
        emel::cli::digest::sha256_files(&[place.path("vocab.gguf")], |_| ()).expect("a digest");
    let ours = Stream {
        model_sha256: digest.to_uppercase(),
        ..Stream::of("emel", &[A])
    };
    place.trace("a", &ours);
    place.trace(
        "b",
        &Stream {
            model_sha256: digest.clone(),
            ..Stream::of("llama.cpp", &[B])
        },
    );
    let entry = |name: &str, file: &str, sha256: Option<&str>| {
        json!({"name": name, "file": file, "sha256": sha256, "obtain": "make {file}",
               "kind": "base", "synth": null})
    };
    let shown = |place: &Place| {
        let report = place.json(&["traces", "a", "b"], 3);
        let text = report["pairs"][0]["drift"]["a"]["piece"]["text"].clone();
        (text, report["notes"].as_array().map_or(0, Vec::len))
    };
    assert_eq!(shown(&place), (Value::Null, 1));
    place.list(json!([entry("v", "vocab.gguf", None)]));
    assert_eq!(shown(&place), (json!("a"), 0));
    place.list(json!([entry("v", "vocab.gguf", Some(&digest))]));
    assert_eq!(shown(&place), (json!("a"), 0));
    // Another file under a listed name is no vocabulary of theirs, and no failure.
    place.write("other.gguf", "no model");
    place.list(json!([entry("v", "other.gguf", Some(&digest))]));
    assert_eq!(shown(&place), (Value::Null, 1));
    place.write("benchdata/models.json", "{");
    assert_eq!(shown(&place), (Value::Null, 1));
    // One that was named and cannot be read is.
    place.fails(
        &["traces", "a", "b", "-m", "other.gguf"],
        1,
        &["other.gguf"],
    );
}

#[test]
fn markdown_and_json_hold_what_the_text_does() {
    let place = Place::new();
    place.trace("a", &Stream::of("emel", &[A, EOS]));
    place.trace("b", &Stream::of("llama.cpp", &[A, T]));
    let arguments = ["traces", "a", "b", "-m", "vocab.gguf", "--format", "md"];
    let (markdown, _) = place.run(&arguments, 3);
    assert!(
        markdown.starts_with("# **bounded_drift**: `emel` and `llama.cpp` part at token 1 of 2\n")
    );
    assert!(
        markdown.contains("- **first chose**: 2 `\"</s>\"` at 16.25"),
        "{markdown}"
    );
    let json = place.run(&["traces", "a", "b", "--format", "json"], 3);
    assert_eq!(json, place.run(&["traces", "a", "b", "--json"], 3));
    for (text, _) in [json, place.run(&["traces", "a", "b"], 3)] {
        assert!(!text.contains('\u{1b}'), "colour without a terminal");
    }
}

#[test]
fn what_cannot_be_asked_ends_with_2() {
    let place = Place::new();
    place.trace("a", &Stream::of("emel", &[A]));
    place.fails(&["traces", "a"], 2, &["Usage"]);
    place.fails(
        &["traces", "a", "a", "--json", "--format", "md"],
        2,
        &["--json"],
    );
    place.fails(&["traces", "a", "a", "--allow", "luck"], 2, &["near-tie"]);
    place.fails(
        &["traces", "a", "a", "--plot", "p.svg"],
        2,
        &["nothing to plot", "emel-compare run"],
    );
    assert!(!place.path("p.svg").exists());
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let place = Place::new();
    place.trace("a", &Stream::of("emel", &[A; 2000]));
    place.trace("b", &Stream::of("llama.cpp", &[B; 2000]));
    let all = [
        "traces",
        "a",
        "b",
        "-m",
        "vocab.gguf",
        "--context",
        "9999999",
    ];
    let mut child = place
        .command(&all)
        .stdout(Stdio::piped())
        .spawn()
        .expect("emel-compare runs");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    let (_, errors) = check(&all, &output, 3);
    assert_eq!(errors, "");
}
