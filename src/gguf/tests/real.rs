//! Real files, as `scripts/fetch_models.sh` lays them out.

use crate::gguf::{Gguf, TensorType};
use std::fs;
use std::path::PathBuf;

/// The models' directory, with `name` in it.
fn models(name: &str) -> PathBuf {
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/models");
    let dir = std::env::var_os("EMEL_MODELS_DIR").unwrap_or_else(|| default.into());
    let path = PathBuf::from(dir).join(name);
    assert!(
        path.exists(),
        "{} is missing: run scripts/fetch_models.sh",
        path.display()
    );
    path
}

#[test]
fn smollm2_opens() {
    let gguf = Gguf::open(&models("SmolLM2-135M-Instruct.Q4_1.gguf")).unwrap();
    let metadata = gguf.metadata();
    assert_eq!(
        metadata.require_str("general.architecture").unwrap(),
        "llama"
    );
    assert_eq!(metadata.require_u32("llama.block_count").unwrap(), 30);
    assert_eq!(
        metadata
            .require_strings("tokenizer.ggml.tokens")
            .unwrap()
            .len(),
        49152
    );
    let embedding = gguf.find("token_embd.weight").unwrap();
    assert_eq!(embedding.shape, [576, 49152]);
    assert_eq!(gguf.data(embedding).len() as u64, embedding.n_bytes);
    let norm = gguf.find("output_norm.weight").unwrap();
    assert_eq!((norm.ty, norm.n_bytes), (TensorType::F32, 576 * 4));
    let last = gguf
        .tensors()
        .iter()
        .map(|t| t.offset + t.n_bytes)
        .max()
        .unwrap();
    assert!(last <= gguf.file_bytes());
}

#[test]
fn gemma_opens_and_released_data_reads_the_same() {
    let gguf = Gguf::open(&models("gemma-3-270m-Q4_K_M.gguf")).unwrap();
    assert_eq!(
        gguf.metadata().require_str("general.architecture").unwrap(),
        "gemma3"
    );
    assert_eq!(
        gguf.metadata()
            .strings("tokenizer.ggml.tokens")
            .unwrap()
            .unwrap()
            .len(),
        262144
    );
    let tensor = gguf.find("blk.3.ffn_down.weight").unwrap();
    let before = gguf.data(tensor).to_vec();
    gguf.release(tensor);
    assert!(gguf.data(tensor) == before);
}

#[test]
fn every_vocabulary_opens() {
    let mut count = 0;
    for entry in fs::read_dir(models("vocab")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "gguf") {
            let gguf = Gguf::open(&path).unwrap_or_else(|error| panic!("{error}"));
            let tokens = gguf
                .metadata()
                .require_strings("tokenizer.ggml.tokens")
                .unwrap();
            assert!(!tokens.is_empty());
            assert_eq!(gguf.tensors().len(), 0);
            count += 1;
        }
    }
    assert!(
        count >= 10,
        "{count} vocabularies: run scripts/fetch_models.sh"
    );
}
