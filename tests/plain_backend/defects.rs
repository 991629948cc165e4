//! Each planted defect changes what it should, and nothing before it.

use crate::common::plain::{Plain, Settings, relative};
use crate::{FAMILIES, PROMPT, TEXT, bits, ids, small, written};
use emel::bench::protocol::StopRule;
use emel::gguf::Gguf;
use emel::model::Point;
use emel::sampling::argmax;
use emel::tokenizer::Tokenizer;
use serde_json::json;

/// Plants `defect` and checks that the tensors part first at `layer` and `point`, by more than
/// `least`, and that the logits part too.
fn parts_first_at(family: &'static str, defect: &str, layer: usize, point: Point, least: f64) {
    let model = written(&small(family).file());
    let ids = ids(PROMPT + 1);
    let mut plain = Plain::load(model.path(), &Settings::new("none"));
    let healthy = plain.force(&ids, PROMPT);
    plain
        .reload(model.path(), &Settings::new(defect))
        .unwrap_or_else(|error| panic!("{family} {error}"));
    let sick = plain.force(&ids, PROMPT);
    assert!(bits(&healthy.rows) != bits(&sick.rows), "{family} {defect}");
    let mut pairs = healthy.tensors.iter().zip(&sick.tensors);
    let (was, is) = pairs
        .find(|(was, is)| {
            was.2
                .iter()
                .map(|v| v.to_bits())
                .ne(is.2.iter().map(|v| v.to_bits()))
        })
        .unwrap_or_else(|| panic!("{family} {defect}: no tensor differs"));
    assert_eq!((is.0, is.1), (Some(layer), point), "{family} {defect}");
    let was: Vec<f64> = was.2.iter().copied().map(f64::from).collect();
    let distance = relative(&is.2, &was);
    println!("{family} {defect}: {distance:.1e} at {point}");
    assert!(distance > least, "{family} {defect}: {distance:e}");
    // And all is well again without it.
    plain
        .reload(model.path(), &Settings::new("none"))
        .expect("it loads");
    assert!(bits(&plain.force(&ids, PROMPT).rows) == bits(&healthy.rows));
}

#[test]
fn defects_of_the_pass_show_where_they_are_and_not_before() {
    for family in FAMILIES {
        parts_first_at(family, "rope_base", 0, Point::Query, 0.1);
        parts_first_at(family, "shifted_rows:1", 1, Point::FfnOut, 0.5);
        parts_first_at(family, "swapped_kv_heads:2", 2, Point::Key, 0.5);
        parts_first_at(family, "f16_accumulation:1", 1, Point::Query, 5e-4);
    }
}

#[test]
fn defects_of_the_tokenizer_change_the_prompt_alone() {
    let model = written(&small("llama").file());
    let mut plain = Plain::load(model.path(), &Settings::new("none"));
    let (healthy, _) = plain.run(TEXT, 4, StopRule::Limit);
    let mut prompt_of = |defect: &str| {
        let loaded = plain.reload(model.path(), &Settings::new(defect));
        let loaded = loaded.expect("it can be planted");
        assert_eq!(loaded.options["defect"], json!(defect));
        let (ran, trace) = plain.run(TEXT, 4, StopRule::Limit);
        let option = ("options_defect".to_owned(), defect.to_owned());
        assert!(trace.header.more.contains(&option));
        // The same tokens are the same to it.
        let rows = plain.force(&healthy.prompt_ids, healthy.prompt_ids.len());
        assert_eq!(argmax(&rows.rows[0]).expect("numbers").0, healthy.ids[0]);
        ran.prompt_ids
    };
    let all = &healthy.prompt_ids;
    assert_eq!(prompt_of("no_bos"), all[1..]);

    let gguf = Gguf::open(model.path()).expect("a readable model");
    let tokenizer = Tokenizer::from_metadata(gguf.metadata()).expect("a known tokenizer");
    let whole = tokenizer.token("▁the").expect("a token");
    let parts = ["▁t", "he"].map(|text| tokenizer.token(text).expect("a token"));
    let spelled = all.iter().flat_map(|&id| match id == whole {
        true => parts.to_vec(),
        false => vec![id],
    });
    assert_eq!(all.iter().filter(|&&id| id == whole).count(), 2);
    assert_eq!(prompt_of("lost_merge:▁the"), spelled.collect::<Vec<_>>());
}

#[test]
fn a_late_stop_adds_one_token_after_the_end() {
    let mut file = small("llama").file();
    let free = Plain::load(written(&file).path(), &Settings::new("none"))
        .run(TEXT, 12, StopRule::Limit)
        .0
        .ids;
    // The first token that was not chosen before it is one whose first sight is known.
    let end = (2..)
        .find(|&i| !free[..i].contains(&free[i]))
        .expect("some");
    file.set("tokenizer.ggml.eos_token_id", free[end]);
    let model = written(&file);
    let mut plain = Plain::load(model.path(), &Settings::new("none"));
    let (healthy, _) = plain.run(TEXT, 12, StopRule::Eog);
    assert_eq!(
        (&healthy.ids[..], healthy.stop.as_str()),
        (&free[..=end], "eog")
    );
    let (unstopped, _) = plain.run(TEXT, 12, StopRule::Limit);
    assert_eq!(unstopped.ids, free);

    plain
        .reload(model.path(), &Settings::new("late_stop"))
        .expect("it loads");
    let (late, trace) = plain.run(TEXT, 12, StopRule::Eog);
    assert_eq!(
        (&late.ids[..], late.stop.as_str()),
        (&free[..end + 2], "eog")
    );
    assert_eq!(trace.stop, "eog");
    // A limit is seen in time.
    let (limited, _) = plain.run(TEXT, end + 1, StopRule::Eog);
    assert_eq!(
        (&limited.ids[..], limited.stop.as_str()),
        (&free[..=end], "limit")
    );
}
