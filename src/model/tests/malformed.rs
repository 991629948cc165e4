//! One test for each way in which a sound container can be no model.

mod tensors;

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
    let error = problem("llama", |file| {
        file.set("llama.rope.scaling.type", "yarn");
        file.set("llama.rope.scaling.factor", 1e4f32);
        file.vector(name, &[1e38; 32]);
    });
    assert!(
        matches!(
            error,
            Problem::BadTensorValue {
                value: f32::INFINITY,
                ..
            }
        ),
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

/// Every key any family reads, with every odd value of every type: an error or a model, never a
/// panic, a hang or an allocation that the file does not pay for.
#[test]
fn odd_values_under_every_key_never_panic() {
    let names = [
        "attention.causal",
        "attention.head_count",
        "attention.head_count_kv",
        "attention.key_length",
        "attention.layer_norm_rms_epsilon",
        "attention.sliding_window",
        "attention.sliding_window_pattern",
        "attention.value_length",
        "block_count",
        "context_length",
        "embedding_length",
        "expert_count",
        "feed_forward_length",
        "final_logit_softcapping",
        "nextn_predict_layers",
        "rope.dimension_count",
        "rope.dimension_count_swa",
        "rope.freq_base",
        "rope.freq_base_swa",
        "rope.scale_linear",
        "rope.scaling.attn_factor",
        "rope.scaling.factor",
        "rope.scaling.high_freq_factor",
        "rope.scaling.low_freq_factor",
        "rope.scaling.original_context_length",
        "rope.scaling.type",
        "vocab_size",
    ];
    let mut values: Vec<Value> = vec!["".into(), "yarn".into(), true.into(), false.into()];
    let odd = [
        0,
        1,
        2,
        3,
        255,
        1 << 20,
        i64::from(i32::MAX),
        i64::from(u32::MAX),
        -1,
        i64::MIN,
    ];
    values.extend(odd.map(Value::from));
    let floats = [
        0.0,
        -0.0,
        1e-45,
        1.0,
        -1.0,
        f32::MAX,
        f32::MIN,
        f32::NAN,
        f32::INFINITY,
    ];
    values.extend(floats.map(Value::from));
    values.push(Vec::<u32>::new().into());
    values.push(vec![0u32; 3].into());
    values.push(vec![u32::MAX; 3].into());
    values.push(vec![i64::MIN; 3].into());
    values.push(vec![1u32; 600].into());
    values.push(vec![f32::NAN; 3].into());
    values.push(vec![true; 3].into());
    for architecture in ["llama", "qwen2", "qwen3", "gemma3"] {
        let file = small(architecture).write_temporary().unwrap();
        for scheme in ["linear", "yarn", "llama3", "longrope"] {
            for (name, value) in names
                .iter()
                .flat_map(|name| values.iter().map(move |v| (name, v)))
            {
                let changes = [
                    (format!("{architecture}.rope.scaling.type"), scheme.into()),
                    (format!("{architecture}.{name}"), value.clone()),
                ];
                let gguf = Gguf::open_with(file.path(), &changes).unwrap();
                if let Ok(model) = bind(&gguf) {
                    let ropes = model.spec.ropes.iter();
                    let factors = ropes.flat_map(|rope| rope.factors.iter().flatten());
                    assert!(
                        factors.into_iter().all(|f| f.is_finite() && *f > 0.0),
                        "{changes:?}"
                    );
                }
            }
        }
    }
}
