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

/// Vocabularies without vectors of their own, and the two models.
const OTHERS: [&str; 5] = [
    "vocab/ggml-vocab-aquila.gguf",
    "vocab/ggml-vocab-baichuan.gguf",
    "vocab/ggml-vocab-gpt-neox.gguf",
    "SmolLM2-135M-Instruct.Q4_1.gguf",
    "gemma-3-270m-Q4_K_M.gguf",
];

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
    models()
        .join("vocab")
        .join(format!("ggml-vocab-{name}.gguf"))
}

fn open(path: &Path) -> Gguf {
    assert!(
        path.exists(),
        "{} is missing; run scripts/fetch_models.sh",
        path.display()
    );
    Gguf::open(path).unwrap()
}

fn tokenizer(path: &Path) -> Tokenizer {
    Tokenizer::from_metadata(open(path).metadata()).unwrap()
}

const PLAIN: EncodeOptions = EncodeOptions {
    add_special: false,
    parse_special: false,
};

fn vectors(name: &str) -> Vec<(String, Vec<TokenId>)> {
    let path = vocab_path(name);
    let texts = read(&path.with_extension("gguf.inp"));
    let ids = read(&path.with_extension("gguf.out"));
    // Most files end with a separator, after which nothing comes.
    let mut texts: Vec<&str> = texts.split("\n__ggml_vocab_test__\n").collect();
    texts.pop_if(|last| last.is_empty());
    let ids: Vec<Vec<TokenId>> = ids
        .lines()
        .map(|line| {
            line.split_whitespace()
                .map(|id| id.parse().unwrap())
                .collect()
        })
        .collect();
    assert_eq!(
        texts.len(),
        ids.len(),
        "{name}: as many texts as lines of ids"
    );
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
                failures.push(format!(
                    "{name}: {text:?}\n  wanted {wanted:?}\n  found  {found:?}"
                ));
            }
        }
    }
    assert!(
        failures.is_empty(),
        "{} failures:\n{}",
        failures.len(),
        failures.join("\n")
    );
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
    for (name, kind, long) in [
        ("bert-bge", "`bert`", "WordPiece"),
        ("nomic-bert-moe", "`t5`", "unigram"),
    ] {
        let gguf = open(&vocab_path(name));
        let error = Tokenizer::from_metadata(gguf.metadata()).err().expect(name);
        assert!(matches!(error, TokenizerError::UnknownModel { .. }));
        let message = error.to_string();
        for part in [kind, long, "gpt2", "ggml-vocab-", "tokenizer.ggml.model"] {
            assert!(message.contains(part), "{message}");
        }
    }
}

#[derive(serde::Deserialize)]
struct Golden {
    model: String,
    pre: Option<String>,
    parse_special: bool,
    text: String,
    ids: Vec<TokenId>,
}

/// What llama-tokenize gave for the same texts; the file's first line says how.
#[test]
fn recorded_vectors_are_met() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("benchdata/golden/tokenizer/llama-tokenize.jsonl");
    let golden = std::fs::read_to_string(&path).unwrap();
    let mut failures = Vec::new();
    let mut count = 0;
    // Vectors of one vocabulary stand together, so it is read once.
    let mut loaded: Option<(String, Option<String>, Tokenizer)> = None;
    for line in golden.lines().skip(1) {
        let Golden {
            model,
            pre,
            parse_special,
            text,
            ids,
        } = serde_json::from_str(line).unwrap();
        if loaded
            .as_ref()
            .is_none_or(|(m, p, _)| *m != model || *p != pre)
        {
            let path = models().join(&model);
            assert!(
                path.exists(),
                "{} is missing; run scripts/fetch_models.sh",
                path.display()
            );
            let key = "tokenizer.ggml.pre".to_owned();
            let replaced: Vec<_> = pre
                .iter()
                .map(|pre| (key.clone(), pre.as_str().into()))
                .collect();
            let gguf = Gguf::open_with(&path, &replaced).unwrap();
            let tokenizer = Tokenizer::from_metadata(gguf.metadata()).unwrap();
            loaded = Some((model.clone(), pre.clone(), tokenizer));
        }
        let Some((_, _, tokenizer)) = &loaded else {
            unreachable!("just loaded")
        };
        let found = tokenizer.encode(
            &text,
            EncodeOptions {
                add_special: false,
                parse_special,
            },
        );
        if found != ids {
            failures.push(format!(
                "{model} {pre:?}\n  wanted {ids:?}\n  found  {found:?}"
            ));
        }
        count += 1;
    }
    assert!(count >= 50, "{count} vectors");
    assert!(
        failures.is_empty(),
        "{} failures:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

/// A small generator: the same texts on every run.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963);
        ((self.0 >> 33) as usize) % n
    }

    /// Any character, those that are common or telling more often.
    fn char(&mut self) -> char {
        let code = match self.below(8) {
            0..=2 => 0x20 + self.below(0x5f),
            3 => [0x20, 0x0a, 0x0d, 0x09, 0xa0, 0x3000, 0x27, 0x3c][self.below(8)],
            4 => 0xa0 + self.below(0x500),
            5 => 0x500 + self.below(0xd300),
            6 => self.below(0x2_0000),
            _ => self.below(0x11_0000),
        };
        char::from_u32(code as u32).unwrap_or('\u{fffd}')
    }
}

/// Vocabularies without tokens for some control characters and for the first bytes of planes 4
/// and up. llama.cpp drops such bytes, and so does EMEL.
const LACKING_BYTES: [&str; 4] = ["falcon", "refact", "starcoder", "SmolLM2"];

/// Random Unicode comes back as it was, whole and token by token. In SPM's spelling `▁` is a
/// space, so it is left out.
#[test]
fn random_unicode_round_trips() {
    let with_vectors = WITH_VECTORS.map(|name| format!("vocab/ggml-vocab-{name}.gguf"));
    let mut random = Random(2024);
    for name in with_vectors.iter().map(String::as_str).chain(OTHERS) {
        let tokenizer = tokenizer(&models().join(name));
        let lossy = LACKING_BYTES.iter().any(|lacking| name.contains(lacking));
        // Only SPM may put a space first, which the stream shows and the whole text does not.
        let prefix = tokenizer.encode("a", PLAIN);
        let prefix = tokenizer.piece(prefix[0], true).unwrap().starts_with(b" ");
        for _ in 0..300 {
            let len = 1 + random.below(60);
            let mut text: String = (0..len).map(|_| random.char()).collect();
            text.retain(|c| c != '▁');
            if lossy {
                text.retain(|c| {
                    let ids = tokenizer.encode(&format!("a{c}"), PLAIN);
                    let kept = tokenizer.decode(&ids, true).unwrap().ends_with(c);
                    assert!(kept || c.is_control() || c >= '\u{40000}', "{name}: {c:?}");
                    kept
                });
            }
            let ids = tokenizer.encode(&text, PLAIN);
            assert_eq!(tokenizer.decode(&ids, true).unwrap(), text, "{name}");
            let mut stream = tokenizer.detokenizer(true);
            let mut streamed: String = ids.iter().map(|&id| stream.push(id).to_owned()).collect();
            streamed.push_str(stream.finish());
            let streamed = streamed
                .strip_prefix(' ')
                .filter(|_| prefix)
                .unwrap_or(&streamed);
            assert_eq!(streamed, text, "{name}");
        }
    }
}
