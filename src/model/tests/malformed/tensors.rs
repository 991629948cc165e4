//! Tensors that do not fit their model, and vocabularies that do not fit the tensors.

use super::*;

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
