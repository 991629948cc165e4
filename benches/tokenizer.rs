//! Tokens per second on 1 MiB of mixed text, and the time to build a tokenizer.
//!
//! Needs the vocabularies of `scripts/fetch_models.sh`; run `cargo bench --bench tokenizer`.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use emel::gguf::Gguf;
use emel::tokenizer::{EncodeOptions, Tokenizer};
use std::hint::black_box;
use std::path::{Path, PathBuf};

const VOCABULARIES: [(&str, &str); 5] = [
    ("smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"),
    ("gemma3", "gemma-3-270m-Q4_K_M.gguf"),
    ("llama-bpe", "vocab/ggml-vocab-llama-bpe.gguf"),
    ("qwen2", "vocab/ggml-vocab-qwen2.gguf"),
    ("gemma4", "vocab/ggml-vocab-gemma-4.gguf"),
];

/// What a mixed text is made of: prose, code, numbers, other scripts, markup, emoji.
const PARTS: [&str; 12] = [
    "The engine reads its weights once a token, and every word it writes costs the same. ",
    "It's been said they'd rather not; we'll see what she's found by tomorrow evening. ",
    "fn fold(a: u64, b: u64) -> u64 {\n    let p = u128::from(a) * u128::from(b);\n",
    "    for (index, value) in values.iter().enumerate() {\n        total += value * 2;\n    }\n",
    "On 2024-03-17 the index closed at 38,714.77, up 0.83% from 1,024 points. ",
    "Die Wörter fließen über Brücken, naïve Gäste trinken Café au lait im Größenwahn. ",
    "Быстрая лисица перепрыгнула через ленивую собаку. ",
    "机器学习模型把文字切成小块，再一块一块地读。東京は今日も雨です。",
    "तेज़ लोमड़ी आलसी कुत्ते के ऊपर से कूद गई। الثعلب السريع يقفز فوق الكلب. ",
    "<div class=\"row\"><a href=\"/docs/index.html#top\">Documentation</a></div>\n\n",
    "🙂🚀 done!!! -- see [1], [2] & [3]... ",
    "{\"id\": 4711, \"name\": \"unit test\", \"ok\": true, \"ratio\": 0.5}\n",
];

/// 1 MiB of [`PARTS`] in a shuffled order that never changes, a number in each so that words do
/// not repeat without end.
fn mixed_text() -> String {
    let mut text = String::with_capacity((1 << 20) + 256);
    let mut seed = 1u64;
    while text.len() < 1 << 20 {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963);
        let draw = (seed >> 33) as usize;
        text.push_str(PARTS[draw % PARTS.len()]);
        if draw.is_multiple_of(5) {
            text.push_str(&format!("x{draw:x} "));
        }
    }
    let end = (0..=1 << 20)
        .rev()
        .find(|&at| text.is_char_boundary(at))
        .unwrap_or(0);
    text.truncate(end);
    text
}

fn open(file: &str) -> Gguf {
    let models = std::env::var_os("EMEL_MODELS_DIR").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("models"),
        PathBuf::from,
    );
    let path = models.join(file);
    assert!(
        path.exists(),
        "{} is missing; run scripts/fetch_models.sh",
        path.display()
    );
    Gguf::open(&path).unwrap_or_else(|error| panic!("{error}"))
}

fn bench(criterion: &mut Criterion) {
    let text = mixed_text();
    let plain = EncodeOptions {
        add_special: false,
        parse_special: true,
    };
    for (name, file) in VOCABULARIES {
        let gguf = open(file);
        let build = || Tokenizer::from_metadata(gguf.metadata()).unwrap();
        let tokenizer = build();
        let ids = tokenizer.encode(&text, plain);
        let mut group = criterion.benchmark_group(format!("tokenizer/{name}"));
        group.sample_size(20);
        // Elements are tokens, so criterion's rate is tokens a second.
        group.throughput(Throughput::Elements(ids.len() as u64));
        group.bench_function("encode_1mib_mixed", |b| {
            b.iter(|| tokenizer.encode(black_box(&text), plain));
        });
        group.bench_function("detokenize", |b| {
            b.iter(|| {
                let mut stream = tokenizer.detokenizer(false);
                ids.iter().map(|&id| stream.push(id).len()).sum::<usize>()
            });
        });
        group.finish();
        criterion.bench_function(&format!("tokenizer/{name}/build"), |b| b.iter(build));
    }
}

criterion_group!(benches, bench);
criterion_main!(benches);
