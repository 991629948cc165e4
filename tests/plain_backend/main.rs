//! The example backend: its logits lie at the oracle's, feeding repeats a free run bit by bit, each
//! planted defect changes what it says and nothing before it, and what cannot be done is refused.

#[path = "../common/mod.rs"]
mod common;
mod defects;
mod refusals;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use common::plain::{Fed, Plain, Settings, Told, manifest, relative};
use common::{SMOLLM2, model};
use emel::bench::backend::{BackendManifest, Contender, Place};
use emel::bench::protocol::StopRule;
use emel::cli::interrupt::Interrupt;
use emel::engine::{
    Engine, ExecutionPolicy, Generator, Halt, Limits, LoadOptions, Output, Prompt, RoutePolicy,
    Session, StopReason,
};
use emel::gguf::{Gguf, TensorType};
use emel::model::Point;
use emel::model::testing::{TemporaryModel, TestFile, TestModel};
use emel::oracle::{Oracle, Tensor, Want};
use emel::sampling::{Sampler, SamplerConfig, argmax};
use emel::tokenizer::{EncodeOptions, Tokenizer};
use emel::trace::checksum::Checksums;

const FAMILIES: [&str; 4] = ["llama", "qwen2", "qwen3", "gemma3"];
/// Tokens of the prompts, beyond the models' windows.
const PROMPT: usize = 45;
const TEXT: &str = "the thing in the ring";

fn ids(n: usize) -> Vec<u32> {
    (0..n as u32).map(|i| 3 + (i * 37 + i * i) % 290).collect()
}

fn small(family: &'static str) -> TestModel {
    TestModel {
        n_head_kv: 2,
        rope_factors: family == "llama",
        ..TestModel::new(family, TensorType::F32)
    }
}

fn written(file: &TestFile) -> TemporaryModel {
    file.write_temporary().expect("a temporary model")
}

/// The oracle's tensors of one token.
type Exact = Vec<(Option<usize>, Point, Vec<f64>)>;

/// The oracle's logits at the last `n` of `ids`, and its tensors at the last.
fn oracle(path: &Path, ids: &[u32], n: usize) -> (Vec<Vec<f64>>, Exact) {
    let gguf = Gguf::open(path).expect("a readable model");
    let bound = emel::model::bind(&gguf).expect("a supported model");
    let mut oracle = Oracle::new(&gguf, &bound).expect("enough memory");
    let places: Vec<usize> = (ids.len() - n..ids.len()).collect();
    let mut tensors = Exact::new();
    let mut keep = |tensor: Tensor<'_>| {
        if tensor.position == ids.len() - 1 {
            tensors.push((tensor.layer, tensor.point, tensor.values.to_vec()));
        }
    };
    let logits = oracle.prefill_observed(ids, Want::At(&places), &mut keep);
    (logits.expect("the tokens are valid"), tensors)
}

/// EMEL's logits at the last `n` of `ids`.
fn emel(path: &Path, ids: &[u32], n: usize) -> Vec<Vec<f64>> {
    let options = LoadOptions {
        n_ctx: Some(256),
        ..LoadOptions::new(ExecutionPolicy::detect(), RoutePolicy::default())
    };
    let engine = Engine::load(path, &options).expect("a supported model");
    let sampler = Sampler::new(&SamplerConfig::greedy(), engine.n_vocab()).expect("a sampler");
    let limits = Limits {
        max_tokens: None,
        end_tokens: vec![],
    };
    let session = Session::new(engine, sampler, limits);
    let mut generator = Generator::new(&session);
    let at = |end: usize| {
        let output = Output::new();
        generator.process_event(Prompt {
            tokens: &ids[..end],
            output: &output,
        });
        output.take().expect("an output").expect("the prompt fits");
        let logits = session.logits().iter().copied().map(f64::from).collect();
        generator.process_event(Halt {
            reason: StopReason::Cancelled,
            output: &Output::new(),
        });
        logits
    };
    (ids.len() - n + 1..=ids.len()).map(at).collect()
}

/// The largest relative distance of a row from its like.
fn worst(rows: &[Vec<f32>], others: &[Vec<f64>]) -> f64 {
    assert_eq!(rows.len(), others.len());
    let distances = rows
        .iter()
        .zip(others)
        .map(|(row, other)| relative(row, other));
    distances.fold(0.0, |worst, distance| {
        assert!(distance.is_finite());
        worst.max(distance)
    })
}

/// Feeds a prompt and five tokens more, and compares the six rows, and the last token's tensors,
/// with the oracle's.
fn lies_at_the_oracle(path: &Path, what: &str) -> Fed {
    let ids = ids(PROMPT + 5);
    let fed = Plain::load(path, &Settings::new("none")).force(&ids, PROMPT);
    let (logits, tensors) = oracle(path, &ids, 6);
    let distance = worst(&fed.rows, &logits);
    println!("{what}: {distance:.1e} from the oracle");
    assert!(distance < 1e-5, "{what}: {distance:e}");
    assert_eq!(fed.tensors.len(), tensors.len());
    for (told, exact) in fed.tensors.iter().zip(&tensors) {
        let (layer, point) = (exact.0, exact.1);
        assert_eq!((told.0, told.1), (layer, point), "{what}");
        let distance = relative(&told.2, &exact.2);
        assert!(distance < 1e-5, "{what} {layer:?} {point}: {distance:e}");
    }
    fed
}

#[test]
fn forced_logits_lie_at_the_oracle_and_near_emel() {
    for family in FAMILIES {
        let model = written(&small(family).file());
        let fed = lies_at_the_oracle(model.path(), family);
        let distance = worst(&fed.rows, &emel(model.path(), &ids(PROMPT + 5), 6));
        println!("{family}: {distance:.1e} from EMEL");
        // EMEL's cache is f16.
        assert!(distance < 3e-3, "{family}: {distance:e}");
    }
}

#[test]
fn every_kind_of_weight_and_scaling_lies_at_the_oracle() {
    let types = [
        TensorType::F16,
        TensorType::BF16,
        TensorType::Q4_1,
        TensorType::Q8_0,
        TensorType::Q3_K,
        TensorType::Q4_K,
        TensorType::Q6_K,
        TensorType::IQ4_XS,
    ];
    for (ty, family) in types.into_iter().zip(FAMILIES.into_iter().cycle()) {
        let model = TestModel::new(family, ty).file();
        lies_at_the_oracle(written(&model).path(), &format!("{family} {ty}"));
    }
    let mut yarn = small("qwen2").file();
    yarn.set("qwen2.rope.scaling.type", "yarn");
    yarn.set("qwen2.rope.scaling.factor", 4.0_f32);
    yarn.set("qwen2.rope.scaling.original_context_length", 32_u32);
    lies_at_the_oracle(written(&yarn).path(), "yarn");
    let mut capped = small("gemma3").file();
    capped.set("gemma3.final_logit_softcapping", 2.0_f32);
    capped.set("gemma3.rope.scaling.type", "linear");
    capped.set("gemma3.rope.scaling.factor", 8.0_f32);
    let fed = lies_at_the_oracle(written(&capped).path(), "softcap");
    assert!(fed.rows.iter().flatten().all(|logit| logit.abs() <= 2.0));
}

#[test]
fn smollm2_lies_at_the_oracle_and_a_lost_merge_splits_its_token() {
    let path = model(SMOLLM2);
    let text = "<|im_start|>user\nName a colour.<|im_end|>\n";
    let gguf = Gguf::open(&path).expect("a readable model");
    let tokenizer = Tokenizer::from_metadata(gguf.metadata()).expect("a known tokenizer");
    let options = EncodeOptions {
        add_special: true,
        parse_special: true,
    };
    let ids = tokenizer.encode(text, options);
    let mut plain = Plain::load(&path, &Settings::new("none"));
    let rows = plain.force(&ids, ids.len() - 1).rows;
    let distance = worst(&rows, &oracle(&path, &ids, 2).0);
    println!("SmolLM2: {distance:.1e} from the oracle");
    assert!(distance < 1e-4, "{distance:e}");

    let (healthy, _) = plain.run(text, 1, StopRule::Limit);
    assert_eq!(healthy.prompt_ids, ids);
    plain
        .reload(&path, &Settings::new("lost_merge:Ġcolour"))
        .expect("it can be planted");
    let (lost, _) = plain.run(text, 1, StopRule::Limit);
    let whole = tokenizer.token("Ġcolour").expect("a token of SmolLM2's");
    let at = ids.iter().position(|&id| id == whole).expect("it is used");
    assert_eq!(lost.prompt_ids[..at], ids[..at]);
    assert!(!lost.prompt_ids.contains(&whole));
    assert!(lost.prompt_ids.ends_with(&ids[at + 1..]));
    let decode = |ids: &[u32]| tokenizer.decode(ids, true).expect("known tokens");
    assert_eq!(decode(&lost.prompt_ids), decode(&ids));
    let error = plain
        .reload(&path, &Settings::new("no_bos"))
        .expect_err("SmolLM2 adds no BOS");
    assert!(error.to_string().contains("no BOS"), "{error}");
}

fn bits(rows: &[Vec<f32>]) -> Vec<Vec<u32>> {
    let of = |row: &Vec<f32>| row.iter().map(|value| value.to_bits()).collect();
    rows.iter().map(of).collect()
}

fn tensor_bits(tensors: &[Told]) -> Vec<(Option<usize>, Point, Vec<u32>)> {
    let of = |(layer, point, values): &Told| {
        let values = values.iter().map(|value| value.to_bits()).collect();
        (*layer, *point, values)
    };
    tensors.iter().map(of).collect()
}

#[test]
fn feeding_in_parts_on_other_threads_and_in_other_batches_changes_no_bit() {
    for family in FAMILIES {
        let model = written(&small(family).file());
        let ids = ids(PROMPT + 6);
        let mut plain = Plain::load(model.path(), &Settings::new("none"));
        let whole = plain.force(&ids, PROMPT);
        assert_eq!(whole.rows.len(), 7);

        let mut parts = plain.force(&ids[..PROMPT], PROMPT);
        assert_eq!(parts.rows.len(), 1);
        parts.rows.extend(plain.force(&ids[PROMPT..][..4], 0).rows);
        let last = plain.force(&ids[PROMPT + 4..], 0);
        parts.rows.extend(last.rows);
        assert!(bits(&parts.rows) == bits(&whole.rows), "{family}");
        assert!(
            tensor_bits(&last.tensors) == tensor_bits(&whole.tensors),
            "{family}"
        );

        let other = Settings {
            threads: 1,
            n_ubatch: 7,
            ..Settings::new("none")
        };
        plain.reload(model.path(), &other).expect("it loads again");
        assert!(bits(&plain.force(&ids, PROMPT).rows) == bits(&whole.rows));
        // A prompt and a step give the same logits, and the same tensors.
        let prompt = plain.force(&ids, ids.len());
        assert!(bits(&prompt.rows)[..] == bits(&whole.rows)[6..], "{family}");
        assert!(tensor_bits(&prompt.tensors) == tensor_bits(&whole.tensors));
    }
}

#[test]
fn every_point_is_told_once_in_the_order_of_the_pass() {
    let model = small("qwen3");
    let written = written(&model.file());
    let fed = Plain::load(written.path(), &Settings::new("none")).force(&ids(3), 3);
    let mut due = vec![(None, Point::Embedding)];
    for layer in 0..model.n_layer {
        let inside = &Point::ALL[1..Point::ALL.len() - 1];
        due.extend(inside.iter().map(|&point| (Some(layer), point)));
    }
    due.push((None, Point::OutputNorm));
    let told: Vec<_> = fed.tensors.iter().map(|t| (t.0, t.1)).collect();
    assert_eq!(told, due);
    for (_, point, values) in &fed.tensors {
        let len = match point {
            Point::Query | Point::Attended => model.n_head * model.head_dim,
            Point::Key | Point::Value => model.n_head_kv * model.head_dim,
            Point::FfnHidden => model.d_ff,
            _ => model.d_model,
        };
        assert_eq!(values.len(), len, "{point}");
    }
}

#[test]
fn a_run_is_repeated_bit_by_bit_by_feeding_its_tokens() {
    let model = written(&small("llama").file());
    let mut plain = Plain::load(model.path(), &Settings::new("none"));
    let (ran, trace) = plain.run(TEXT, 8, StopRule::Limit);
    assert_eq!((ran.ids.len(), ran.step_ns.len()), (8, 7));
    assert_eq!(ran.stop, "limit");

    assert_eq!(trace.prompt, ran.prompt_ids);
    assert_eq!(trace.stop, "limit");
    assert_eq!(trace.header.engine, "plain");
    assert_eq!(trace.header.lane, "single");
    assert_eq!(trace.header.isa, "-", "what it says of itself stands");
    let more = |key: &str| {
        let found = trace.header.more.iter().find(|(known, _)| known == key);
        found.map(|(_, value)| value.as_str())
    };
    assert_eq!(more("note"), Some("from a test"));
    assert_eq!(more("options_defect"), Some("none"));

    let all = [&ran.prompt_ids[..], &ran.ids[..7]].concat();
    let rows = plain.force(&all, ran.prompt_ids.len()).rows;
    let mut sums = Checksums::default();
    for ((row, &id), traced) in rows.iter().zip(&ran.ids).zip(&trace.tokens) {
        sums.add_logits(row);
        sums.add_id(id);
        assert_eq!(argmax(row), Ok((id, traced.logit)));
        assert_eq!((traced.id, traced.next.len()), (id, 2));
        for &(other, logit) in &traced.next {
            assert_eq!(row[other as usize], logit);
        }
    }
    assert_eq!(ran.logits_checksum, Some(sums.logits.to_string()));
    assert_eq!(ran.ids_checksum, Some(sums.ids.to_string()));
    let gguf = Gguf::open(model.path()).expect("a readable model");
    let tokenizer = Tokenizer::from_metadata(gguf.metadata()).expect("a known tokenizer");
    let mut detokenizer = tokenizer.detokenizer(false);
    let mut text = String::new();
    ran.ids.iter().for_each(|&id| text += detokenizer.push(id));
    text += detokenizer.finish();
    sums.add_text(&text);
    assert_eq!(ran.output_bytes, text.len());
    assert_eq!(ran.text_checksum, Some(sums.text.to_string()));
}

#[test]
fn a_context_that_is_full_ends_a_run() {
    let model = written(&small("llama").file());
    let mut plain = Plain::load(model.path(), &Settings::new("none"));
    let prompt = plain.run(TEXT, 1, StopRule::Limit).0.prompt_ids.len();
    let settings = Settings {
        n_ctx: prompt + 2,
        ..Settings::new("none")
    };
    plain.reload(model.path(), &settings).expect("it loads");
    let (ran, _) = plain.run(TEXT, 9, StopRule::Limit);
    assert_eq!((ran.ids.len(), ran.stop.as_str()), (3, "context_full"));
    let (ran, _) = plain.run(TEXT, 0, StopRule::Limit);
    assert_eq!((ran.ids.len(), ran.stop.as_str()), (0, "limit"));
}

#[test]
fn a_manifest_starts_it_in_each_configuration() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = manifest("patient", &[("well", "none"), ("sick", "shifted_rows:1")]).to_string();
    std::fs::write(folder.path().join("patient.json"), text).expect("a file");
    let manifests = BackendManifest::read_all(folder.path()).expect("a manifest");
    let place = Place {
        cache: "/no/cache".into(),
        repo: "/no/repo".into(),
        program: "/no/program".into(),
    };
    let model = written(&small("llama").file());
    let ready = manifests[0].ready("spread", &BTreeSet::new(), &place);
    for (config, label) in ready.expect("built").into_iter().zip(["well", "sick"]) {
        let contender = Contender::reference(&manifests[0], config, &place, 2, None);
        let (interrupt, patience) = (Interrupt::default(), Duration::from_secs(600));
        let started = contender.start(model.path(), 64, &interrupt, patience);
        let (backend, loaded) = started.expect("it starts");
        assert_eq!(backend.name(), format!("patient-{label}"));
        assert_eq!(loaded.options, config.options);
    }
}
