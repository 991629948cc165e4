//! Whole tokenizers from small made-up vocabularies: rules, streams, and malformed files.

use super::*;
use crate::gguf::Value;

/// Metadata of a byte-level BPE tokenizer with all bytes, three merges and four special tokens.
fn bpe_meta() -> Metadata {
    let mut meta = Metadata::new("toy.gguf".as_ref());
    let mut tokens: Vec<String> = (0..=255u8)
        .map(|byte| String::from_utf8(Spelling::ByteAlphabet.text_of(&[byte])).unwrap())
        .collect();
    let mut types = vec![1i32; 256];
    for (text, kind) in [
        ("he", 1),
        ("ll", 1),
        ("hell", 1),
        ("<s>", 3),
        ("</s>", 3),
        ("<|im_end|>", 3),
        ("[tool]", 4),
        ("[too", 4),
    ] {
        tokens.push(text.to_owned());
        types.push(kind);
    }
    meta.set("tokenizer.ggml.model", "gpt2".to_owned());
    meta.set("tokenizer.ggml.pre", "gpt-2".to_owned());
    meta.set("tokenizer.ggml.tokens", tokens);
    meta.set(
        "tokenizer.ggml.token_type",
        Value::Array(crate::gguf::Array::I32(types)),
    );
    meta.set("tokenizer.ggml.merges", strings(&["h e", "l l", "he ll"]));
    meta.set("tokenizer.ggml.bos_token_id", 259u32);
    meta.set("tokenizer.ggml.eos_token_id", 260u32);
    meta
}

/// Metadata of an SPM tokenizer: four specials, all bytes, and some words.
fn spm_meta() -> Metadata {
    let mut meta = Metadata::new("toy.gguf".as_ref());
    let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>", "<|end|>"]
        .into_iter()
        .map(str::to_owned)
        .collect();
    let mut types = vec![2i32, 3, 3, 3];
    for byte in 0..=255u8 {
        tokens.push(format!("<0x{byte:02X}>"));
        types.push(6);
    }
    let words = ["▁", "a", "b", "▁a", "ab", "▁▁", "aa", "中"];
    let mut scores = vec![0f32; tokens.len()];
    for (rank, word) in words.into_iter().enumerate() {
        tokens.push(word.to_owned());
        types.push(1);
        scores.push(-(rank as f32));
    }
    meta.set("tokenizer.ggml.model", "llama".to_owned());
    meta.set("tokenizer.ggml.tokens", tokens);
    meta.set(
        "tokenizer.ggml.token_type",
        Value::Array(crate::gguf::Array::I32(types)),
    );
    meta.set(
        "tokenizer.ggml.scores",
        Value::Array(crate::gguf::Array::F32(scores)),
    );
    meta
}

fn strings(items: &[&str]) -> Value {
    items.to_vec().into()
}

fn tokenizer(meta: &Metadata) -> Tokenizer {
    Tokenizer::from_metadata(meta).unwrap()
}

fn options(add_special: bool, parse_special: bool) -> EncodeOptions {
    EncodeOptions {
        add_special,
        parse_special,
    }
}

/// The tokens of a text, each as its text.
fn pieces(tokenizer: &Tokenizer, text: &str, options: EncodeOptions) -> Vec<String> {
    let ids = tokenizer.encode(text, options);
    ids.into_iter()
        .map(|id| String::from_utf8_lossy(&tokenizer.vocab.text(id)).into())
        .collect()
}

#[test]
fn merges_apply_in_their_order() {
    let toy = tokenizer(&bpe_meta());
    assert_eq!(
        pieces(&toy, "hello hell", options(false, false)),
        ["hell", "o", "Ġ", "hell"]
    );
    assert_eq!(toy.encode("", options(false, false)), Vec::<TokenId>::new());
    assert_eq!(toy.n_vocab(), 264);
}

#[test]
fn a_merge_into_no_token_falls_back_to_bytes() {
    let mut meta = bpe_meta();
    meta.set(
        "tokenizer.ggml.merges",
        strings(&["h e", "l l", "he ll", "o o", "oo é"]),
    );
    assert_eq!(
        pieces(&tokenizer(&meta), "hoo", options(false, false)),
        ["h", "o", "o"]
    );
}

#[test]
fn special_tokens_are_parsed_on_request() {
    let toy = tokenizer(&bpe_meta());
    let text = "a<s>[tool][too]";
    let parsed = ["a", "<s>", "[tool]", "[too", "]"];
    assert_eq!(pieces(&toy, text, options(false, true)), parsed);
    // User-defined tokens are always recognized, the longest first.
    let plain = ["a", "<", "s", ">", "[tool]", "[too", "]"];
    assert_eq!(pieces(&toy, text, options(false, false)), plain);
    let overlapping = "[too[tool]";
    assert_eq!(
        pieces(&toy, overlapping, options(false, true)),
        ["[too", "[tool]"]
    );
}

#[test]
fn bos_and_eos_follow_the_file() {
    let mut meta = bpe_meta();
    let toy = tokenizer(&meta);
    assert!(!toy.add_bos() && !toy.add_eos());
    assert_eq!(toy.encode("h", options(true, false)).len(), 1);
    meta.set("tokenizer.ggml.add_bos_token", true);
    meta.set("tokenizer.ggml.add_eos_token", true);
    let toy = tokenizer(&meta);
    assert_eq!(
        pieces(&toy, "h", options(true, false)),
        ["<s>", "h", "</s>"]
    );
    assert_eq!(pieces(&toy, "", options(true, false)), ["<s>", "</s>"]);
    assert_eq!(pieces(&toy, "h", options(false, false)), ["h"]);
    // Names decide where the file is silent.
    let mut meta = bpe_meta();
    meta.set("tokenizer.ggml.pre", "llama-bpe".to_owned());
    assert!(tokenizer(&meta).add_bos());
}

#[test]
fn ends_of_generation_are_known_by_id_and_by_text() {
    let toy = tokenizer(&bpe_meta());
    let ends: Vec<TokenId> = (0..264).filter(|&id| toy.is_eog(id)).collect();
    assert_eq!(ends, [260, 261]);
    assert_eq!(toy.eot(), Some(261));
    assert_eq!((toy.bos(), toy.eos()), (Some(259), Some(260)));
    assert!(toy.is_control(259) && !toy.is_control(262) && !toy.is_control(999));
    assert!(!toy.is_eog(999));
}

#[test]
fn spm_joins_by_score_and_prefixes_a_space() {
    let toy = tokenizer(&spm_meta());
    assert!(toy.add_bos() && !toy.add_eos());
    assert_eq!(pieces(&toy, "ab", options(true, false)), ["<s>", "▁a", "b"]);
    assert_eq!(pieces(&toy, "", options(true, false)), ["<s>"]);
    assert_eq!(pieces(&toy, "  a", options(false, false)), ["▁▁", "▁a"]);
    assert_eq!(pieces(&toy, "▁a", options(false, false)), ["▁", "▁a"]);
    // After a special token the prefix comes again.
    assert_eq!(
        pieces(&toy, "a<s>a", options(false, true)),
        ["▁a", "<s>", "▁a"]
    );
    assert_eq!(
        pieces(&toy, "é", options(false, false)),
        ["▁", "<0xC3>", "<0xA9>"]
    );
    let mut meta = spm_meta();
    meta.set("tokenizer.ggml.add_space_prefix", false);
    assert_eq!(
        pieces(&tokenizer(&meta), "ab", options(false, false)),
        ["ab"]
    );
}

#[test]
fn phi_3_special_tokens_swallow_spaces() {
    let mut meta = spm_meta();
    meta.set("general.name", "Phi-3 mini".to_owned());
    let toy = tokenizer(&meta);
    assert_eq!(
        pieces(&toy, "a<|end|> \n a", options(false, true)),
        ["▁a", "<|end|>", "▁a"]
    );
    assert_eq!(
        pieces(&toy, "a<s> a", options(false, true)),
        ["▁a", "<s>", "▁", "▁a"]
    );
}

#[test]
fn pieces_hide_control_tokens_unless_asked() {
    let toy = tokenizer(&bpe_meta());
    assert_eq!(toy.piece(32, false).unwrap().as_ref(), b" ");
    assert_eq!(toy.piece(259, false).unwrap().as_ref(), b"");
    assert_eq!(toy.piece(259, true).unwrap().as_ref(), b"<s>");
    assert_eq!(toy.piece(262, false).unwrap().as_ref(), b"[tool]");
    let error = toy.piece(264, true).unwrap_err();
    assert!(matches!(
        error,
        TokenizerError::NoSuchToken {
            id: 264,
            n_vocab: 264
        }
    ));
    let toy = tokenizer(&spm_meta());
    assert_eq!(toy.piece(4 + 0x41, false).unwrap().as_ref(), b"A");
    let space_a = toy.token("▁a").unwrap();
    assert_eq!(toy.piece(space_a, false).unwrap().as_ref(), b" a");
    assert_eq!(toy.decode(&[space_a, space_a], false).unwrap(), "a a");
}

#[test]
fn streams_never_give_half_a_character() {
    let toy = tokenizer(&bpe_meta());
    let mut stream = toy.detokenizer(false);
    let mut text = Vec::new();
    for &byte in "é🙂x".as_bytes() {
        text.push(stream.push(byte.into()).to_owned());
    }
    assert_eq!(text, ["", "é", "", "", "", "🙂", "x"]);
    assert_eq!(stream.finish(), "");
    // A control token in between adds nothing and breaks nothing.
    assert_eq!(stream.push(0xc3), "");
    assert_eq!(stream.push(259), "");
    assert_eq!(stream.push(0xa9), "é");
    // Broken bytes become one U+FFFD for each broken beginning.
    assert_eq!(stream.push(0xe2), "");
    assert_eq!(stream.push(0x82), "");
    assert_eq!(stream.push(0x41), "\u{fffd}A");
    assert_eq!(stream.push(0xff), "\u{fffd}");
    assert_eq!(stream.push(0xf0), "");
    assert_eq!(stream.push(9999), "\u{fffd}\u{fffd}");
    assert_eq!(stream.push(0xf0), "");
    assert_eq!(stream.finish(), "\u{fffd}");
    assert_eq!(stream.finish(), "");
}

#[test]
fn any_bytes_stream_as_their_lossy_text() {
    let toy = tokenizer(&bpe_meta());
    let mut seed = 1u32;
    for _ in 0..2000 {
        let bytes: Vec<u8> = (0..12)
            .map(|_| {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                [0x41, 0x80, 0xbf, 0xc3, 0xe2, 0xed, 0xf0, 0xf4, 0x9f][(seed >> 20) as usize % 9]
            })
            .collect();
        let mut stream = toy.detokenizer(true);
        let mut text = String::new();
        for &byte in &bytes {
            text.push_str(stream.push(byte.into()));
        }
        text.push_str(stream.finish());
        assert_eq!(text, String::from_utf8_lossy(&bytes), "{bytes:x?}");
    }
}

/// The error of a vocabulary after a change, and the parts its message must have.
fn refused(mut meta: Metadata, key: &str, value: impl Into<Value>, parts: &[&str]) {
    meta.set(key, value);
    let error = Tokenizer::from_metadata(&meta)
        .err()
        .unwrap_or_else(|| panic!("{key} accepted"));
    let message = error.to_string();
    for part in ["toy.gguf", key].iter().chain(parts) {
        assert!(message.contains(part), "`{part}` is not in: {message}");
    }
    assert!(!message.contains('\n'), "{message}");
}

#[test]
fn unknown_kinds_and_names_are_refused_with_the_known_ones() {
    refused(
        bpe_meta(),
        MODEL,
        "bert".to_owned(),
        &["`bert`", "WordPiece", "gpt2", "llama"],
    );
    refused(bpe_meta(), MODEL, "x".to_owned(), &["`x`", "gemma4"]);
    refused(
        bpe_meta(),
        PRE,
        "x".to_owned(),
        &["`x`", "llama-bpe", "qwen35", "tekken", "default"],
    );
}

#[test]
fn required_keys_must_be_there_and_of_their_type() {
    for key in [MODEL, PRE, vocab::TOKENS, vocab::TYPES, bpe::MERGES] {
        refused(bpe_meta(), key, 7u32, &[]);
    }
    refused(
        bpe_meta(),
        vocab::TOKENS,
        Value::Array(crate::gguf::Array::U32(vec![1])),
        &[],
    );
    refused(bpe_meta(), ids::BOS, "one".to_owned(), &[]);
    refused(bpe_meta(), ADD_BOS, 1u32, &[]);
    refused(spm_meta(), vocab::SCORES, 1.0f32, &[]);
    refused(spm_meta(), ADD_SPACE_PREFIX, "yes".to_owned(), &[]);
    for (meta, missing) in [
        (bpe_meta(), MODEL),
        (bpe_meta(), vocab::TOKENS),
        (bpe_meta(), bpe::MERGES),
        (spm_meta(), vocab::TOKENS),
        (spm_meta(), vocab::SCORES),
    ] {
        let mut rest = Metadata::new("toy.gguf".as_ref());
        for (key, value) in meta.iter().filter(|(key, _)| *key != missing) {
            rest.set(key, value.clone());
        }
        let message = Tokenizer::from_metadata(&rest)
            .err()
            .expect(missing)
            .to_string();
        assert!(
            message.contains(missing) && message.contains("toy.gguf"),
            "{message}"
        );
    }
}

#[test]
fn arrays_must_agree_in_length() {
    let types = Value::Array(crate::gguf::Array::I32(vec![1; 263]));
    refused(bpe_meta(), vocab::TYPES, types, &["263", "264"]);
    let types = Value::Array(crate::gguf::Array::I32(vec![1; 265]));
    refused(bpe_meta(), vocab::TYPES, types, &["265", "264"]);
    let scores = Value::Array(crate::gguf::Array::F32(vec![0.0; 3]));
    refused(bpe_meta(), vocab::SCORES, scores.clone(), &["3", "264"]);
    refused(spm_meta(), vocab::SCORES, scores, &["3", "268"]);
    refused(bpe_meta(), vocab::TOKENS, strings(&[]), &["no token"]);
}

#[test]
fn tokens_must_be_sound() {
    let with = |texts: &[&str], kinds: &[i32]| {
        let mut meta = bpe_meta();
        meta.set(
            vocab::TYPES,
            Value::Array(crate::gguf::Array::I32(kinds.to_vec())),
        );
        (meta, strings(texts))
    };
    let (meta, tokens) = with(&["a", "b", "a"], &[1, 1, 1]);
    refused(
        meta,
        vocab::TOKENS,
        tokens,
        &["token 2 repeats token 0", "\"a\""],
    );
    // Also when no word could ever match them.
    let (meta, tokens) = with(&["a b", "a b"], &[3, 3]);
    refused(meta, vocab::TOKENS, tokens, &["token 1 repeats token 0"]);
    for bad in ["<0xZZ>", "<0x1>", "0x12", "", "<0x0A"] {
        let (meta, tokens) = with(&["a", bad], &[1, 6]);
        refused(meta, vocab::TOKENS, tokens, &["token 1", "<0x00>"]);
    }
    let long = "x".repeat(100_000);
    let (meta, tokens) = with(&[&long], &[6]);
    refused(meta, vocab::TOKENS, tokens, &["xxx\"..."]);
    let mut kinds = vec![1; 264];
    kinds[5] = 7;
    let kinds = Value::Array(crate::gguf::Array::I32(kinds));
    refused(bpe_meta(), vocab::TYPES, kinds, &["token 5", "type 7"]);
    let mut scores = vec![0.0; 268];
    scores[9] = f32::NAN;
    let scores = Value::Array(crate::gguf::Array::F32(scores));
    refused(
        spm_meta(),
        vocab::SCORES,
        scores,
        &["token 9", "not a number"],
    );
}

#[test]
fn ids_must_lie_in_the_vocabulary() {
    for key in [ids::BOS, ids::EOS, "tokenizer.ggml.padding_token_id"] {
        refused(bpe_meta(), key, 264u32, &["264"]);
        refused(bpe_meta(), key, u64::MAX, &["264"]);
        refused(bpe_meta(), key, -2i32, &["-2"]);
    }
    // -1 says that there is none.
    let mut meta = bpe_meta();
    meta.set(ids::BOS, u32::MAX);
    meta.set("tokenizer.ggml.padding_token_id", -1i32);
    assert_eq!(tokenizer(&meta).bos(), None);
    meta.set(ADD_BOS, true);
    let error = Tokenizer::from_metadata(&meta).err().unwrap();
    assert!(
        matches!(error, TokenizerError::NoSuchSpecial { key: ids::BOS, .. }),
        "{error}"
    );
}

#[test]
fn merges_are_two_parts() {
    for bad in ["ab", "", " ", " b", "a ", "a"] {
        let merges = strings(&["h e", bad]);
        refused(bpe_meta(), bpe::MERGES, merges, &["entry 1"]);
    }
}

#[test]
fn long_runs_are_not_quadratic() {
    for toy in [tokenizer(&bpe_meta()), tokenizer(&spm_meta())] {
        let markers_are_spaces = matches!(toy.kind, Kind::Spm(_));
        for c in ["a", "h", " ", "\n", "中", "[", "<", "▁", "[too"] {
            let text = c.repeat((1 << 20) / c.len());
            let ids = toy.encode(&text, options(false, true));
            let wanted = if markers_are_spaces {
                text.replace('▁', " ")
            } else {
                text
            };
            assert!(
                toy.decode(&ids, true).unwrap() == wanted,
                "{c:?} a million times"
            );
        }
    }
}

#[test]
fn parts_end_with_characters() {
    assert_eq!(part_len("aé", 9), 3);
    assert_eq!(part_len("aé", 2), 1);
    assert_eq!(part_len("", 1), 0);
}
