//! `emel-compare run` against the example backend, which is made wrong on purpose: every planted
//! defect is found and named, and a planted near-tie is called one.

mod common;

use common::plain::{Plain, Settings, manifest};
use emel::bench::protocol::StopRule;
use emel::gguf::TensorType;
use emel::model::testing::{TemporaryModel, TestModel};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use tempfile::{TempDir, tempdir};

const TEXT: &str = "the thing in the ring is the thing that rings the other thing in";

/// A small model with plain weights, in whose output matrix each row but the first few has a twin
/// that differs in the last digits of one weight: whoever leads, leads by little more than rounding.
fn twins() -> TemporaryModel {
    let model = TestModel {
        n_head_kv: 2,
        tied: false,
        ..TestModel::new("llama", TensorType::F32)
    };
    let mut file = model.file();
    let output = file.tensor_mut("output.weight");
    let row = 4 * output.shape[0] as usize;
    for pair in output.data.chunks_exact_mut(2 * row).skip(2) {
        let (one, other) = pair.split_at_mut(row);
        other.copy_from_slice(one);
        other[1] ^= 1;
    }
    file.write_temporary().expect("a temporary model")
}

/// A folder of backends that holds the example with these configurations (name and defect).
struct Backends(TempDir);

impl Backends {
    fn new(configs: &[(&str, &str)]) -> Self {
        let folder = tempdir().expect("a folder");
        let backends = folder.path().join("backends");
        std::fs::create_dir(&backends).expect("a folder");
        let text = manifest("plain", configs).to_string();
        std::fs::write(backends.join("plain.json"), text).expect("a manifest");
        Backends(folder)
    }
}

/// Runs the comparison and gives its exit code and report.
fn compare(model: &Path, backends: &Backends, more: &[&str]) -> (i32, Value) {
    let output = Command::new(env!("CARGO_BIN_EXE_emel-compare"))
        .args(["run", "--json", "-r", "plain", "-t", "2", "-p", TEXT, "-m"])
        .arg(model)
        .arg("--benchdata")
        .arg(backends.0.path())
        .args(more)
        .output()
        .expect("emel-compare runs");
    let said = String::from_utf8_lossy(&output.stderr);
    let report = serde_json::from_slice(&output.stdout);
    let report = report.unwrap_or_else(|error| panic!("{error}: {said}"));
    (output.status.code().unwrap_or(-1), report)
}

/// The one pair's finding of the example with a defect.
fn finding(defect: &str, more: &[&str]) -> (i32, Value) {
    let model = twins();
    let backends = Backends::new(&[("sick", defect)]);
    let (code, report) = compare(model.path(), &backends, more);
    println!("{defect}: {}", report["pairs"][0]["finding"]);
    (code, report)
}

fn names_the_defect(defect: &str, tensor: &str) {
    let (code, report) = finding(defect, &["-n", "24", "--ignore-eos"]);
    let found = &report["pairs"][0]["finding"];
    assert_eq!(code, 3, "{report}");
    assert_eq!(report["verdict"], "bounded_drift");
    assert_eq!(found["cause"], "numeric_defect", "{found}");
    assert_eq!(found["engine"], "plain-sick", "{found}");
    assert_eq!(found["tensor"], tensor, "{found}");
}

#[test]
fn a_wrong_rope_base_is_named() {
    names_the_defect("rope_base", "layer 0 q");
}

#[test]
fn a_layers_shifted_rows_are_named() {
    names_the_defect("shifted_rows:1", "layer 1 ffn_out");
}

#[test]
fn swapped_key_and_value_heads_are_named() {
    names_the_defect("swapped_kv_heads:2", "layer 2 k");
}

#[test]
fn half_precision_sums_in_one_layer_are_named() {
    names_the_defect("f16_accumulation:1", "layer 1 q");
}

#[test]
fn a_missing_bos_is_a_matter_of_tokens() {
    let (code, report) = finding("no_bos", &["-n", "4"]);
    let pair = &report["pairs"][0];
    assert_eq!(
        (code, &report["verdict"]),
        (4, &Value::from("non_comparable"))
    );
    assert_eq!(pair["differs"]["field"], "prompt");
    assert_eq!(pair["finding"]["cause"], "tokenization");
    assert_eq!(pair["prompt"]["index"], 0);
}

#[test]
fn a_lost_merge_is_a_matter_of_tokens() {
    let (code, report) = finding("lost_merge:ing", &["-n", "4"]);
    let pair = &report["pairs"][0];
    assert_eq!(code, 4, "{report}");
    assert_eq!(pair["finding"]["cause"], "tokenization");
    assert_eq!(pair["prompt"]["a"]["text"], "ing", "{pair}");
    assert_eq!(pair["prompt"]["same_text"], true);
}

#[test]
fn an_end_that_is_seen_late_is_a_matter_of_stopping() {
    // A model whose end of text is the first token that it chooses for the second time or later.
    let mut file = TestModel::new("llama", TensorType::F32).file();
    let model = file.write_temporary().expect("a temporary model");
    let mut plain = Plain::load(model.path(), &Settings::new("none"));
    let (ran, _) = plain.run(TEXT, 8, StopRule::Limit);
    let at = (1..8)
        .find(|&at| !ran.ids[..at].contains(&ran.ids[at]))
        .expect("two tokens");
    file.set("tokenizer.ggml.eos_token_id", ran.ids[at]);
    let model = file.write_temporary().expect("a temporary model");

    let backends = Backends::new(&[("sick", "late_stop")]);
    let (code, report) = compare(model.path(), &backends, &["-n", "24"]);
    let pair = &report["pairs"][0];
    assert_eq!(code, 3, "{report}");
    assert_eq!(pair["finding"]["cause"], "stop_rule", "{pair}");
    assert_eq!(pair["drift"]["shared_tokens"], at + 1);
    assert_eq!(pair["drift"]["token_difference"], -1);
}

#[test]
fn a_sound_engine_parts_by_near_ties_alone() {
    let configs = [
        ("sound", "none"),
        ("half-0", "f16_accumulation:0"),
        ("half-1", "f16_accumulation:1"),
        ("half-2", "f16_accumulation:2"),
    ];
    let backends = Backends::new(&configs);
    let model = twins();
    let more = ["-n", "64", "--ignore-eos"];
    let (code, report) = compare(model.path(), &backends, &more);
    let found = &report["pairs"][0]["finding"];
    println!("{found}");
    assert_eq!(code, 3, "{report}");
    assert_eq!(found["cause"], "near_tie", "{found}");
    let allowed = [&more[..], &["--allow", "near-tie"]].concat();
    assert_eq!(compare(model.path(), &backends, &allowed).0, 0);
}
