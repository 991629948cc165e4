//! Tokenizers against llama.cpp's own vectors: for each `ggml-vocab-NAME.gguf` there is a
//! `.inp` file with texts and an `.out` file with the ids that each text must give.

use emel::gguf::Gguf;
use emel::tokenizer::{EncodeOptions, TokenId, Tokenizer, TokenizerError};
use std::path::{Path, PathBuf};

/// Vocabularies with vectors.
const WITH_VECTORS: [&str; 14] = [
    "command-r",
    "deepseek-coder",
    "deepseek-llm",
    "falcon",
    "gemma-4",
    "gpt-2",
    "llama-bpe",
    "llama-spm",
    "mpt",
    "phi-3",
    "qwen2",
    "qwen35",
    "refact",
    "starcoder",
];

/// Vocabularies without.
const WITHOUT_VECTORS: [&str; 3] = ["aquila", "baichuan", "gpt-neox"];

fn models() -> PathBuf {
    match std::env::var_os("EMEL_MODELS_DIR") {
        Some(dir) => dir.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("models"),
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path)
        .unwrap_or_else(|error| panic!("{}: {error}; run scripts/fetch_models.sh", path.display()))
}

fn vocab_path(name: &str) -> PathBuf {
    models().join("vocab").join(format!("ggml-vocab-{name}.gguf"))
}

fn open(path: &Path) -> Gguf {
    assert!(path.exists(), "{} is missing; run scripts/fetch_models.sh", path.display());
    Gguf::open(path).unwrap()
}

fn tokenizer(path: &Path) -> Tokenizer {
    Tokenizer::from_metadata(open(path).metadata()).unwrap()
}

const PLAIN: EncodeOptions = EncodeOptions { add_special: false, parse_special: false };

fn vectors(name: &str) -> Vec<(String, Vec<TokenId>)> {
    let path = vocab_path(name);
    let texts = read(&path.with_extension("gguf.inp"));
    let ids = read(&path.with_extension("gguf.out"));
    // Most files end with a separator, after which nothing comes.
    let mut texts: Vec<&str> = texts.split("\n__ggml_vocab_test__\n").collect();
    texts.pop_if(|last| last.is_empty());
    let ids: Vec<Vec<TokenId>> = ids
        .lines()
        .map(|line| line.split_whitespace().map(|id| id.parse().unwrap()).collect())
        .collect();
    assert_eq!(texts.len(), ids.len(), "{name}: as many texts as lines of ids");
    texts.into_iter().map(str::to_owned).zip(ids).collect()
}

#[test]
fn every_vocabulary_with_vectors_passes_them() {
    let mut failures = Vec::new();
    for name in WITH_VECTORS {
        let tokenizer = tokenizer(&vocab_path(name));
        let vectors = vectors(name);
        assert!(vectors.len() >= 40, "{name}: {} vectors", vectors.len());
        for (text, wanted) in vectors {
            let found = tokenizer.encode(&text, PLAIN);
            if found != wanted {
                failures.push(format!("{name}: {text:?}\n  wanted {wanted:?}\n  found  {found:?}"));
            }
        }
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn vectors_detokenize_to_their_texts() {
    for name in WITH_VECTORS {
        let tokenizer = tokenizer(&vocab_path(name));
        for (text, ids) in vectors(name) {
            assert_eq!(tokenizer.decode(&ids, true).unwrap(), text, "{name}");
        }
    }
}

#[test]
fn unsupported_kinds_are_refused_by_name() {
    for (name, kind, long) in
        [("bert-bge", "`bert`", "WordPiece"), ("nomic-bert-moe", "`t5`", "unigram")]
    {
        let gguf = open(&vocab_path(name));
        let error = Tokenizer::from_metadata(gguf.metadata()).err().expect(name);
        assert!(matches!(error, TokenizerError::UnknownModel { .. }));
        let message = error.to_string();
        for part in [kind, long, "gpt2", "ggml-vocab-", "tokenizer.ggml.model"] {
            assert!(message.contains(part), "{message}");
        }
    }
}
