use super::layout::{Values, metadata, tensors};
use super::mix::MIXES;
use super::shape::{Family, SHAPES};
use super::*;
use crate::gguf::{Gguf, TensorType, Value};
use crate::model;
use crate::oracle::{Oracle, Want};
use std::fs;
use std::path::Path;
use tempfile::{TempDir, tempdir};

/// A folder of its own, removed at the end.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Folder(tempdir().unwrap())
    }
    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
    fn is_empty(&self) -> bool {
        fs::read_dir(&self.0).unwrap().next().is_none()
    }
}

fn spec(mix: &str) -> SynthSpec {
    SynthSpec {
        shape: Shape::find("test").unwrap().clone(),
        mix: Mix::find(mix).unwrap(),
        seed: 1,
        vocabulary: None,
        threads: 2,
    }
}

fn go_on(_: Position) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Benchmarks name these files by digest: the recipe may not change, on any machine.
#[test]
fn the_bytes_are_a_contract() {
    let folder = Folder::new();
    let file = folder.file("a.gguf");
    for (mix, sha256) in [
        (
            "q8_0",
            "fc5f807fbd840cdb3c3f4ea08b644856c2fb4d90ad2949713b0142e5c99be8ec",
        ),
        (
            "q4_k_m",
            "3db3aa8e1cccb105f4b170a6503bbeb53bcea9a40c49d17d753f4acbbe4a8540",
        ),
    ] {
        let written = write(&spec(mix), &file, go_on).unwrap();
        assert_eq!(written.sha256, sha256, "{mix}");
        assert_eq!(written.bytes, fs::metadata(&file).unwrap().len());
        let read = crate::cli::digest::sha256_files(std::slice::from_ref(&file), |_| ()).unwrap();
        assert_eq!(read, sha256);
    }
}

#[test]
fn threads_change_nothing_and_seeds_everything() {
    let folder = Folder::new();
    let file = folder.file("a.gguf");
    let digest = |threads, seed| {
        let spec = SynthSpec {
            threads,
            seed,
            ..spec("q4_k_m")
        };
        write(&spec, &file, go_on).unwrap().sha256
    };
    let two = digest(2, 1);
    for threads in [0, 1, 3, 7, 64] {
        assert_eq!(digest(threads, 1), two, "{threads} threads");
    }
    assert_ne!(digest(2, 2), two);
}

#[test]
fn every_mixture_is_a_model_of_the_engine() {
    let folder = Folder::new();
    let file = folder.file("a.gguf");
    for mix in &MIXES {
        write(&spec(mix.name), &file, go_on).unwrap();
        let gguf = Gguf::open(&file).unwrap();
        model::bind(&gguf).unwrap();
        let metadata = gguf.metadata();
        assert_eq!(
            metadata.u32("general.file_type").unwrap(),
            Some(mix.file_type)
        );
        assert_eq!(metadata.str("emel.synth.quant").unwrap(), Some(mix.name));
        assert_eq!(metadata.u64("emel.synth.seed").unwrap(), Some(1));
        let description = metadata.require_str("general.description").unwrap();
        assert!(description.starts_with("Synthetic"), "{description}");
    }
}

/// The parameters of each shape, and of what: as the published models have them.
#[test]
fn shapes_have_the_parameters_of_their_models() {
    let known = [
        ("qwen3-0.6b", 596_049_920),
        ("qwen3-4b", 4_022_468_096),
        ("llama-1b", 1_235_814_400 + 32),
        ("gemma3-1b", 999_885_952),
        ("gemma3-270m", 268_098_176),
        ("smollm2-135m", 134_515_008),
    ];
    for (name, parameters) in known {
        let tensors = tensors(Shape::find(name).unwrap(), &MIXES[0]);
        let count: u64 = tensors.iter().map(|t| t.row_len() * t.n_rows()).sum();
        assert_eq!(count, parameters, "{name}");
    }
    assert_eq!(known.len() + 1, SHAPES.len());
}

#[test]
fn gemma_files_say_what_is_windowed() {
    let shape = Shape::find("gemma3-1b").unwrap();
    let pairs = metadata(shape, &MIXES[0], 1);
    let value = |key: &str| &pairs.iter().find(|pair| pair.0 == key).unwrap().1;
    assert_eq!(*value("gemma3.attention.sliding_window"), Value::U32(512));
    assert_eq!(
        *value("gemma3.attention.sliding_window_pattern"),
        Value::U32(6)
    );
    assert_eq!(*value("gemma3.rope.freq_base_swa"), Value::F32(10000.0));
}

/// The factors that Llama 3.2 1B's own file carries: none for the quick pairs, 32 for the slow.
#[test]
fn llama_rotation_is_scaled() {
    let tensors = tensors(Shape::find("llama-1b").unwrap(), &MIXES[0]);
    let factors = tensors
        .iter()
        .find(|t| t.name == "rope_freqs.weight")
        .unwrap();
    assert_eq!(
        (factors.shape.as_slice(), factors.ty),
        ([32].as_slice(), TensorType::F32)
    );
    let Values::Given(factors) = &factors.values else {
        panic!("drawn");
    };
    assert_eq!(factors[..15], [1.0; 15]);
    assert_eq!(factors[18..], [32.0; 14]);
    // Pair 15 makes 2.779 turns in 8192 tokens: 0.593 of the way from 1 turn to 4.
    assert!((factors[15] - 1.6513).abs() < 1e-3, "{}", factors[15]);
    assert!(factors.is_sorted());
}

/// Deep models of every family: the logits spread as a trained model's do, no two are the same,
/// and they depend on more than the last token.
#[test]
fn nothing_dies_or_explodes_over_many_layers() {
    let folder = Folder::new();
    let file = folder.file("a.gguf");
    let gemma = Shape::find("gemma3-1b").unwrap().family;
    for family in [Family::Llama { scaling: None }, Family::Qwen3, gemma] {
        let mut spec = spec("q4_k_m");
        spec.shape.n_layer = 36;
        spec.shape.family = family;
        write(&spec, &file, go_on).unwrap();
        let gguf = Gguf::open(&file).unwrap();
        let model = model::bind(&gguf).unwrap();
        let logits = |tokens: &[u32]| {
            let mut oracle = Oracle::new(&gguf, &model).unwrap();
            oracle.prefill(tokens, Want::Last).unwrap().remove(0)
        };
        let one = logits(&[1, 270, 280, 290, 264]);
        let spread = (one.iter().map(|l| l * l).sum::<f64>() / one.len() as f64).sqrt();
        assert!((2.0..8.0).contains(&spread), "{family:?}: {spread}");
        let mut sorted = one.clone();
        sorted.sort_by(f64::total_cmp);
        assert!(
            sorted.windows(2).all(|pair| pair[0] < pair[1]),
            "{family:?}"
        );
        let other = logits(&[1, 271, 281, 291, 264]);
        let apart = one
            .iter()
            .zip(&other)
            .map(|(a, b)| (a - b).abs())
            .fold(0.0, f64::max);
        assert!(apart > 0.1, "{family:?}: {apart}");
    }
}

#[test]
fn stopped_it_leaves_what_was_there() {
    let folder = Folder::new();
    let file = folder.file("a.gguf");
    fs::write(&file, "before").unwrap();
    let stop = |position: Position| {
        if position.done > 0 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let error = write(&spec("q8_0"), &file, stop).unwrap_err();
    assert!(matches!(error, SynthError::Interrupted), "{error}");
    assert_eq!(fs::read(&file).unwrap(), b"before");
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1);
}

#[test]
fn progress_ends_at_the_total() {
    let folder = Folder::new();
    let mut last = None;
    let written = write(&spec("q8_0"), &folder.file("a.gguf"), |position| {
        last = Some(position);
        go_on(position)
    });
    let Position { done, total } = last.unwrap();
    assert_eq!(done, total);
    assert!(total < written.unwrap().bytes);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_one_clear_line() {
    let error = write(&spec("f32"), Path::new("/dev/full"), go_on).unwrap_err();
    let error = error.to_string();
    assert!(error.starts_with("cannot write /dev/full: "), "{error}");
    assert!(error.contains("free some space"), "{error}");
}

/// What `vocabulary::keys` says of a file with these pairs, for the test shape.
fn keys_of(pairs: &[(&str, Value)]) -> Result<Vec<(String, Value)>, SynthError> {
    let folder = Folder::new();
    let mut file = crate::model::testing::TestFile::new("llama");
    for (key, value) in pairs {
        file.set(*key, value.clone());
    }
    let path = folder.file("vocabulary.gguf");
    file.write(&path).unwrap();
    vocabulary::keys(Shape::find("test").unwrap(), Some(&path))
}

#[test]
fn vocabularies_are_filled_up() {
    let mut pairs = crate::model::testing::vocabulary(300);
    pairs.push(("tokenizer.chat_template", "{{ messages }}".into()));
    pairs.push(("llama.block_count", 7u32.into()));
    let keys = keys_of(&pairs).unwrap();
    let value = |key: &str| keys.iter().find(|pair| pair.0 == key).map(|pair| &pair.1);
    let Some(Value::Array(crate::gguf::Array::String(tokens))) = value("tokenizer.ggml.tokens")
    else {
        panic!("no tokens");
    };
    assert_eq!((tokens.len(), &tokens[511]), (512, "[PAD511]"));
    let Some(Value::Array(crate::gguf::Array::I32(kinds))) = value("tokenizer.ggml.token_type")
    else {
        panic!("no kinds");
    };
    assert_eq!((kinds.len(), kinds[511]), (512, 5));
    assert_eq!(
        value("tokenizer.chat_template"),
        Some(&"{{ messages }}".into())
    );
    assert_eq!(value("llama.block_count"), None);
}

#[test]
fn bad_vocabularies_are_told_apart() {
    let refused = |pairs: &[(&str, Value)], words: &[&str]| {
        let error = keys_of(pairs).unwrap_err().to_string();
        for word in words {
            assert!(error.contains(word), "no '{word}' in: {error}");
        }
    };
    let changed = |key: &str, value: Value| {
        let mut pairs = crate::model::testing::vocabulary(300);
        pairs.retain(|pair| pair.0 != key);
        pairs.push((Box::leak(key.to_owned().into_boxed_str()), value));
        pairs
    };
    let tokens = "tokenizer.ggml.tokens";
    refused(&[], &["vocabulary.gguf", tokens]);
    refused(&changed(tokens, 3u32.into()), &["vocabulary.gguf", tokens]);
    refused(
        &changed(tokens, Vec::<String>::new().into()),
        &["holds 0 tokens", "1 to 512"],
    );
    refused(
        &crate::model::testing::vocabulary(513),
        &["holds 513 tokens", "shape test"],
    );
    refused(
        &changed("tokenizer.ggml.model", "no-such-model".into()),
        &["no-such-model", "supported"],
    );
    refused(
        &changed("tokenizer.ggml.token_type", vec![1i32; 7].into()),
        &["vocabulary.gguf", "token_type"],
    );
}

#[test]
fn a_failed_vocabulary_leaves_no_file() {
    let folder = Folder::new();
    let spec = SynthSpec {
        vocabulary: Some(folder.file("missing.gguf")),
        ..spec("q8_0")
    };
    let error = write(&spec, &folder.file("a.gguf"), go_on).unwrap_err();
    assert!(error.to_string().contains("missing.gguf"), "{error}");
    assert!(folder.is_empty());
}
