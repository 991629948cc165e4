//! One test for each way in which a sound container can be no model.

use super::*;
use crate::gguf::{GgufError, Value};

/// The error for a small file of `architecture` after `change`; its message must name the file.
fn refused(architecture: &'static str, change: impl FnOnce(&mut TestFile)) -> ModelError {
    let mut file = small(architecture);
    change(&mut file);
    let file = file.write_temporary().unwrap();
    let error = bind(&Gguf::open(file.path()).unwrap()).unwrap_err();
    let message = error.to_string();
    assert!(
        message.starts_with(&file.path().display().to_string()),
        "{message}"
    );
    error
}

fn problem(architecture: &'static str, change: impl FnOnce(&mut TestFile)) -> Problem {
    let error = refused(architecture, change);
    error.problem().unwrap_or_else(|| panic!("{error}")).clone()
}

/// The key that a [`Problem::BadValue`] names.
fn bad_key(architecture: &'static str, change: impl FnOnce(&mut TestFile)) -> String {
    match problem(architecture, change) {
        Problem::BadValue { key, .. } => key,
        other => panic!("{other}"),
    }
}

/// The tensor that a [`Problem::WrongShape`] names.
fn misshapen(architecture: &'static str, change: impl FnOnce(&mut TestFile)) -> String {
    match problem(architecture, change) {
        Problem::WrongShape { tensor, .. } => tensor,
        other => panic!("{other}"),
    }
}

fn missing_tensor(architecture: &'static str, name: &str) -> bool {
    let error = problem(architecture, |file| {
        file.remove(name);
    });
    error
        == Problem::MissingTensor {
            tensor: name.to_owned(),
        }
}

#[test]
fn architecture_unknown_is_refused_by_name_before_anything_else() {
    // Nothing else in the file would do either.
    let error = problem("llama", |file| {
        *file = TestFile::new("mamba");
    });
    let supported = vec!["llama", "qwen2", "qwen3", "gemma3"];
    let name = "mamba".to_owned();
    assert_eq!(error, Problem::UnsupportedArchitecture { name, supported });
    assert!(error.to_string().contains("llama, qwen2, qwen3, gemma3"));
}

#[test]
fn architecture_missing_or_not_a_string() {
    let error = refused("llama", |file| {
        file.unset("general.architecture");
    });
    assert!(
        matches!(error, ModelError::Metadata(GgufError::MissingKey { .. })),
        "{error}"
    );
    let error = refused("llama", |file| {
        file.set("general.architecture", 3u32);
    });
    assert!(
        matches!(error, ModelError::Metadata(GgufError::WrongType { .. })),
        "{error}"
    );
}

const REQUIRED: [&str; 6] = [
    "context_length",
    "embedding_length",
    "block_count",
    "feed_forward_length",
    "attention.head_count",
    "attention.layer_norm_rms_epsilon",
];

#[test]
fn required_keys_missing() {
    for architecture in ["llama", "qwen2", "qwen3", "gemma3"] {
        for name in REQUIRED {
            let wanted = format!("{architecture}.{name}");
            let error = refused(architecture, |file| {
                file.unset(&wanted);
            });
            match error {
                ModelError::Metadata(GgufError::MissingKey { key, .. }) => {
                    assert_eq!(*key, *wanted)
                }
                other => panic!("{other}"),
            }
        }
    }
}

#[test]
fn required_keys_of_the_wrong_type() {
    for name in REQUIRED {
        let wanted = format!("llama.{name}");
        for value in [Value::from("many"), vec!["many"; 3].into(), true.into()] {
            let error = refused("llama", |file| {
                file.set(&wanted, value);
            });
            match error {
                ModelError::Metadata(GgufError::WrongType { key, .. }) => assert_eq!(*key, *wanted),
                other => panic!("{other}"),
            }
        }
    }
}

#[test]
fn optional_keys_of_the_wrong_type() {
    for (name, value) in [
        ("attention.head_count_kv", Value::from(1.5f32)),
        ("attention.key_length", "wide".into()),
        ("attention.causal", 1u32.into()),
        ("rope.freq_base", 10_000u32.into()),
        ("rope.scaling.type", 4u32.into()),
        ("rope.scaling.factor", "twice".into()),
        ("rope.dimension_count", 64.0f32.into()),
        ("expert_count", vec![8u32].into()),
        ("attention.sliding_window", "long".into()),
        ("attention.sliding_window_pattern", "mixed".into()),
        ("final_logit_softcapping", 30u32.into()),
    ] {
        let wanted = format!("gemma3.{name}");
        let error = refused("gemma3", |file| {
            file.set(&wanted, value);
        });
        match error {
            ModelError::Metadata(GgufError::WrongType { key, .. }) => assert_eq!(*key, *wanted),
            other => panic!("{other}"),
        }
    }
}

#[test]
fn counts_negative_or_beyond_32_bits() {
    for name in &REQUIRED[..5] {
        let wanted = format!("llama.{name}");
        for value in [Value::from(-1i32), (1u64 << 32).into(), i64::MIN.into()] {
            let error = refused("llama", |file| {
                file.set(&wanted, value);
            });
            match error {
                ModelError::Metadata(GgufError::OutOfRange { key, .. }) => {
                    assert_eq!(*key, *wanted)
                }
                other => panic!("{other}"),
            }
        }
    }
}

#[test]
fn counts_zero_or_beyond_any_model() {
    for name in &REQUIRED[..5] {
        let wanted = format!("llama.{name}");
        for value in [0, u32::MAX] {
            let key = bad_key("llama", |file| {
                file.set(&wanted, value);
            });
            assert_eq!(key, wanted);
        }
    }
    let key = bad_key("llama", |file| {
        file.set("llama.attention.head_count_kv", 0u32);
    });
    assert_eq!(key, "llama.attention.head_count_kv");
}

#[test]
fn block_count_0_513_and_100000_without_tensors() {
    for count in [0u32, 513, 100_000] {
        let key = bad_key("llama", |file| {
            file.tensors.clear();
            file.set("llama.block_count", count);
        });
        assert_eq!(key, "llama.block_count");
    }
}

#[test]
fn block_count_beyond_the_tensors() {
    let error = problem("llama", |file| {
        file.set("llama.block_count", 512u32);
    });
    assert_eq!(
        error,
        Problem::MissingTensor {
            tensor: "blk.3.attn_norm.weight".into()
        }
    );
}

#[test]
fn block_count_below_the_tensors() {
    let error = problem("llama", |file| {
        file.set("llama.block_count", 2u32);
    });
    let tensor = "blk.2.attn_norm.weight".to_owned();
    let architecture = "llama".to_owned();
    assert_eq!(
        error,
        Problem::UnexpectedTensor {
            tensor,
            architecture
        }
    );
}

#[test]
fn key_and_value_heads_that_do_not_divide_the_query_heads() {
    let error = problem("llama", |file| {
        file.set("llama.attention.head_count_kv", vec![2u32, 3, 2]);
    });
    let key = "llama.attention.head_count_kv".to_owned();
    let (layer, n_head, n_head_kv) = (1, 4, 3);
    assert_eq!(
        error,
        Problem::HeadsDoNotDivide {
            key,
            layer,
            n_head,
            n_head_kv
        }
    );
    let error = problem("llama", |file| {
        file.set("llama.attention.head_count_kv", 8u32);
    });
    assert!(
        matches!(
            error,
            Problem::HeadsDoNotDivide {
                layer: 0,
                n_head_kv: 8,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn heads_that_do_not_divide_the_stream() {
    let key = bad_key("llama", |file| {
        file.set("llama.attention.head_count", 6u32);
        file.set("llama.attention.head_count_kv", 6u32);
    });
    assert_eq!(key, "llama.attention.head_count");
}

#[test]
fn heads_too_wide_or_odd() {
    let too_wide = |file: &mut TestFile| {
        file.set("llama.attention.key_length", 1u32 << 19);
    };
    assert_eq!(bad_key("llama", too_wide), "llama.attention.key_length");
    let too_many = |file: &mut TestFile| {
        file.set("llama.attention.head_count", 1u32 << 20);
        file.set("llama.attention.head_count_kv", 1u32 << 20);
        file.set("llama.attention.key_length", 1u32 << 20);
    };
    assert_eq!(bad_key("llama", too_many), "llama.attention.key_length");
    let odd = |file: &mut TestFile| {
        file.set("llama.attention.key_length", 63u32);
    };
    assert_eq!(bad_key("llama", odd), "llama.attention.key_length");
}

#[test]
fn values_of_another_width_than_keys() {
    let key = bad_key("qwen3", |file| {
        file.set("qwen3.attention.value_length", 64u32);
    });
    assert_eq!(key, "qwen3.attention.value_length");
}

#[test]
fn per_layer_arrays_too_short() {
    for name in [
        "attention.head_count",
        "attention.head_count_kv",
        "feed_forward_length",
    ] {
        let wanted = format!("llama.{name}");
        let error = refused("llama", |file| {
            file.set(&wanted, vec![4u32, 4]);
        });
        match error {
            ModelError::Metadata(GgufError::ArrayTooShort {
                key,
                found: 2,
                needed: 3,
                ..
            }) => {
                assert_eq!(*key, *wanted)
            }
            other => panic!("{other}"),
        }
    }
}

#[test]
fn window_pattern_too_short() {
    let pattern = "gemma3.attention.sliding_window_pattern";
    let error = problem("gemma3", |file| {
        file.set(pattern, vec![true]);
    });
    assert_eq!(
        error,
        Problem::ShortArray {
            key: pattern.to_owned(),
            found: 1,
            layers: 3
        }
    );
    let error = refused("gemma3", |file| {
        file.set(pattern, vec![1u32, 0]);
    });
    assert!(
        matches!(error, ModelError::Metadata(GgufError::ArrayTooShort { .. })),
        "{error}"
    );
}

#[test]
fn window_longer_than_any_context() {
    let key = bad_key("gemma3", |file| {
        file.set("gemma3.attention.sliding_window", u32::MAX);
    });
    assert_eq!(key, "gemma3.attention.sliding_window");
}

#[test]
fn norm_epsilon_negative_or_no_number() {
    for eps in [-1e-6, f32::NAN, f32::INFINITY] {
        let key = bad_key("llama", |file| {
            file.set("llama.attention.layer_norm_rms_epsilon", eps);
        });
        assert_eq!(key, "llama.attention.layer_norm_rms_epsilon");
    }
}

#[test]
fn rotation_base_that_is_no_base() {
    for base in [0.0, 1.0, -10.0, f32::NAN, f32::INFINITY] {
        let key = bad_key("llama", |file| {
            file.set("llama.rope.freq_base", base);
        });
        assert_eq!(key, "llama.rope.freq_base");
    }
    let key = bad_key("gemma3", |file| {
        file.set("gemma3.rope.freq_base_swa", 0.0f32);
    });
    assert_eq!(key, "gemma3.rope.freq_base_swa");
}

#[test]
fn rotation_of_part_of_a_head_odd_or_beyond_it() {
    for (architecture, n_rot) in [("llama", 32u32), ("qwen2", 32), ("qwen3", 64)] {
        let wanted = format!("{architecture}.rope.dimension_count");
        let key = bad_key(architecture, |file| {
            file.set(&wanted, n_rot);
        });
        assert_eq!(key, wanted);
    }
    for n_rot in [0u32, 33, 130] {
        let key = bad_key("gemma3", |file| {
            file.set("gemma3.rope.dimension_count", n_rot);
        });
        assert_eq!(key, "gemma3.rope.dimension_count");
    }
}

#[test]
fn rotation_scaling_unknown() {
    let key = bad_key("llama", |file| {
        file.set("llama.rope.scaling.type", "quadratic");
    });
    assert_eq!(key, "llama.rope.scaling.type");
}

#[test]
fn rotation_scaling_that_gives_no_frequencies() {
    for factor in [-2.0, f32::NAN, 1e-39] {
        let key = bad_key("llama", |file| {
            file.set("llama.rope.scaling.factor", factor);
        });
        assert_eq!(key, "llama.rope.scaling.factor");
    }
    let key = bad_key("llama", |file| {
        file.set("llama.rope.scaling.type", "yarn");
        file.set("llama.rope.scaling.factor", 8e-39f32);
    });
    assert_eq!(key, "llama.rope.scaling.factor");
    let key = bad_key("llama", |file| {
        file.set("llama.rope.scaling.type", "llama3");
        file.set("llama.rope.scaling.low_freq_factor", 4.0f32);
    });
    assert_eq!(key, "llama.rope.scaling.high_freq_factor");
}

#[test]
fn rotation_factors_of_another_length_type_or_no_factors() {
    let name = "rope_freqs.weight";
    let change = |file: &mut TestFile| {
        file.vector(name, &[1.0; 16]);
    };
    assert_eq!(misshapen("llama", change), name);
    let error = problem("llama", |file| {
        file.vector(name, &[]);
        file.reshape(name, &[32], TensorType::F16);
    });
    assert!(
        matches!(error, Problem::UnsupportedType { found: "F16", .. }),
        "{error}"
    );
    for value in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        let mut factors = [1.0; 32];
        factors[9] = value;
        let error = problem("llama", |file| {
            file.vector(name, &factors);
        });
        assert!(
            matches!(error, Problem::BadTensorValue { index: 9, .. }),
            "{error}"
        );
    }
}

#[test]
fn features_that_no_family_has() {
    for (key, value) in [
        ("llama.expert_count", Value::from(8u32)),
        ("llama.nextn_predict_layers", 1u32.into()),
        ("llama.attention.causal", false.into()),
    ] {
        let error = problem("llama", |file| {
            file.set(key, value);
        });
        match error {
            Problem::UnsupportedFeature { key: named, .. } => assert_eq!(named, key),
            other => panic!("{other}"),
        }
    }
}

#[test]
fn tensors_missing() {
    let common = [
        "token_embd.weight",
        "output_norm.weight",
        "blk.1.attn_norm.weight",
        "blk.1.attn_q.weight",
        "blk.1.attn_k.weight",
        "blk.1.attn_v.weight",
        "blk.1.attn_output.weight",
        "blk.1.ffn_norm.weight",
        "blk.1.ffn_gate.weight",
        "blk.1.ffn_up.weight",
        "blk.1.ffn_down.weight",
    ];
    for name in common {
        assert!(missing_tensor("llama", name), "{name}");
    }
    for name in [
        "blk.2.attn_q.bias",
        "blk.2.attn_k.bias",
        "blk.2.attn_v.bias",
    ] {
        assert!(missing_tensor("qwen2", name), "{name}");
    }
    for name in ["blk.0.attn_q_norm.weight", "blk.0.attn_k_norm.weight"] {
        assert!(missing_tensor("qwen3", name), "{name}");
    }
    for name in [
        "blk.0.post_attention_norm.weight",
        "blk.0.post_ffw_norm.weight",
    ] {
        assert!(missing_tensor("gemma3", name), "{name}");
    }
}

#[test]
fn embedding_missing_when_nothing_else_tells_the_vocabulary() {
    let error = problem("llama", |file| {
        file.unset("tokenizer.ggml.tokens");
        file.remove("token_embd.weight");
    });
    assert_eq!(
        error,
        Problem::MissingTensor {
            tensor: "token_embd.weight".into()
        }
    );
}

#[test]
fn tensors_without_a_role() {
    for name in [
        "blk.0.attn_output.bias",
        "blk.0.ffn_gate_inp.weight",
        "rope_factors_long.weight",
    ] {
        let error = problem("llama", |file| {
            file.vector(name, &[1.0; 32]);
        });
        match error {
            Problem::UnexpectedTensor { tensor, .. } => assert_eq!(tensor, name),
            other => panic!("{other}"),
        }
    }
    // Frequency factors belong to the llama family alone.
    let error = problem("qwen2", |file| {
        file.vector("rope_freqs.weight", &[1.0; 32]);
    });
    assert!(matches!(error, Problem::UnexpectedTensor { .. }), "{error}");
}

#[test]
fn shapes_that_disagree_with_the_hyper_parameters() {
    for (name, shape) in [
        ("output_norm.weight", &[255][..]),
        ("blk.0.attn_norm.weight", &[512]),
        ("blk.0.attn_q.weight", &[256, 128]),
        ("blk.0.attn_k.weight", &[256, 256]),
        ("blk.0.attn_v.weight", &[128, 256]),
        ("blk.0.attn_output.weight", &[256, 255]),
        ("blk.0.ffn_norm.weight", &[256, 2]),
        ("blk.0.ffn_gate.weight", &[512, 256]),
        ("blk.0.ffn_up.weight", &[256, 511]),
        ("blk.0.ffn_down.weight", &[256, 256]),
        ("blk.0.attn_q.weight", &[65536]),
        ("blk.0.attn_q.weight", &[256, 256, 2]),
    ] {
        let change = |file: &mut TestFile| {
            file.reshape(name, shape, TensorType::F32);
        };
        assert_eq!(misshapen("llama", change), name);
    }
    for (architecture, name, shape) in [
        ("qwen2", "blk.0.attn_k.bias", 256),
        ("qwen3", "blk.0.attn_q_norm.weight", 64),
        ("gemma3", "blk.0.post_ffw_norm.weight", 512),
    ] {
        let change = |file: &mut TestFile| {
            file.reshape(name, &[shape], TensorType::F32);
        };
        assert_eq!(misshapen(architecture, change), name);
    }
}

#[test]
fn hyper_parameters_that_disagree_with_the_shapes() {
    for (key, value, tensor) in [
        ("llama.embedding_length", 512u32, "token_embd.weight"),
        ("llama.attention.head_count_kv", 4, "blk.0.attn_k.weight"),
        ("llama.attention.key_length", 32, "blk.0.attn_q.weight"),
        ("llama.feed_forward_length", 256, "blk.0.ffn_gate.weight"),
    ] {
        let change = |file: &mut TestFile| {
            file.set(key, value);
        };
        assert_eq!(misshapen("llama", change), tensor, "{key}");
    }
}

#[test]
fn vocabulary_that_disagrees_with_the_embedding_or_the_output() {
    let fewer = |file: &mut TestFile| {
        file.set("tokenizer.ggml.tokens", vec!["a"; 299]);
    };
    assert_eq!(misshapen("llama", fewer), "token_embd.weight");
    let number = |file: &mut TestFile| {
        file.unset("tokenizer.ggml.tokens")
            .set("llama.vocab_size", 301u32);
    };
    assert_eq!(misshapen("llama", number), "token_embd.weight");
    let output = |file: &mut TestFile| {
        file.reshape("output.weight", &[256, 299], TensorType::F32);
    };
    assert_eq!(misshapen("llama", output), "output.weight");
}

#[test]
fn vocabulary_empty_or_not_strings() {
    let key = bad_key("llama", |file| {
        file.set("tokenizer.ggml.tokens", Vec::<String>::new());
    });
    assert_eq!(key, "tokenizer.ggml.tokens");
    let error = refused("llama", |file| {
        file.set("tokenizer.ggml.tokens", vec![1u32, 2]);
    });
    assert!(
        matches!(error, ModelError::Metadata(GgufError::WrongType { .. })),
        "{error}"
    );
}

#[test]
fn weight_types_that_are_not_built_are_refused_by_name() {
    for ty in [
        TensorType::IQ2_XXS,
        TensorType::IQ3_S,
        TensorType::Q8_K,
        TensorType::I32,
    ] {
        let error = problem("llama", |file| {
            file.reshape("blk.1.ffn_up.weight", &[256, 512], ty);
        });
        match error {
            Problem::UnsupportedType {
                tensor,
                found,
                supported,
            } => {
                assert_eq!((tensor.as_str(), found), ("blk.1.ffn_up.weight", ty.name()));
                assert_eq!(supported.len(), 15);
            }
            other => panic!("{other}"),
        }
    }
}

#[test]
fn norms_and_biases_of_another_type_than_f32() {
    for (architecture, name, len) in [
        ("llama", "blk.0.ffn_norm.weight", 256),
        ("qwen2", "blk.0.attn_q.bias", 256),
    ] {
        let error = problem(architecture, |file| {
            file.reshape(name, &[len], TensorType::F16);
        });
        match error {
            Problem::UnsupportedType {
                tensor,
                found: "F16",
                supported,
            } => {
                assert_eq!((tensor.as_str(), supported), (name, vec!["F32"]));
            }
            other => panic!("{other}"),
        }
    }
}
