//! What is read from well-formed files, family by family.

mod malformed;
mod scaling;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::LazyLock;

use super::testing::{TestFile, TestModel};
use super::*;
use crate::gguf::TensorType;

/// Writes, opens and binds a file.
fn bound(file: &TestFile) -> Result<Model, ModelError> {
    let file = file.write_temporary().unwrap();
    bind(&Gguf::open(file.path()).unwrap())
}

fn spec(file: &TestFile) -> ModelSpec {
    bound(file).unwrap().spec
}

/// A small file of a family, made once.
fn small(architecture: &'static str) -> TestFile {
    static MADE: LazyLock<HashMap<&str, TestFile>> = LazyLock::new(|| {
        let file = |architecture| TestModel::new(architecture, TensorType::F32).file();
        ["llama", "qwen2", "qwen3", "gemma3"]
            .map(|family| (family, file(family)))
            .into()
    });
    MADE[architecture].clone()
}

fn real(name: &str) -> Model {
    let default = || concat!(env!("CARGO_MANIFEST_DIR"), "/models").into();
    let path = std::env::var_os("EMEL_MODELS_DIR")
        .map_or_else(default, PathBuf::from)
        .join(name);
    assert!(
        path.is_file(),
        "{} is missing: run scripts/fetch_models.sh",
        path.display()
    );
    bind(&Gguf::open(&path).unwrap()).unwrap()
}

#[test]
fn llama_is_a_plain_decoder_that_rotates_neighbours() {
    let spec = spec(&small("llama"));
    assert_eq!(spec.architecture, "llama");
    assert_eq!(
        (spec.d_model, spec.n_vocab, spec.n_ctx_train),
        (256, 300, 4096)
    );
    assert_eq!(
        (spec.embedding_scale, spec.logit_softcap, spec.logit_scale),
        (None, None, None)
    );
    assert_eq!(spec.rms_eps, 1e-6);
    let rope = RopeSpec {
        kind: RopeKind::Norm,
        n_dims: 64,
        base: 100_000.0,
        freq_scale: 1.0,
        attn_factor: 1.0,
        factors: None,
        long: None,
    };
    assert_eq!(spec.ropes, [rope]);
    let layer = LayerSpec {
        n_head: 4,
        n_head_kv: 2,
        head_dim_k: 64,
        head_dim_v: 64,
        d_ff: 512,
        attention: AttentionForm::Plain,
        qkv_bias: false,
        window: None,
        attention_scale: 0.125,
        attention_softcap: None,
        rope: 0,
        post_norms: false,
        activation: Activation::Silu,
        feed_forward: FeedForwardForm::Dense,
    };
    assert_eq!(spec.layers, vec![layer; 3]);
}

#[test]
fn qwen2_has_biases_and_rotates_halves() {
    let spec = spec(&small("qwen2"));
    assert!(spec.layers.iter().all(|layer| layer.qkv_bias));
    assert_eq!(spec.ropes[0].kind, RopeKind::Neox);
}

#[test]
fn qwen3_norms_heads_that_need_not_add_up_to_the_stream() {
    let spec = spec(&small("qwen3"));
    let layer = &spec.layers[0];
    assert_eq!(layer.attention, AttentionForm::QkNorm);
    assert!(!layer.qkv_bias && !layer.post_norms && layer.window.is_none());
    assert_eq!(
        (layer.q_dim(), layer.k_dim(), layer.v_dim(), layer.o_dim()),
        (512, 256, 256, 512)
    );
    assert_eq!(layer.heads_per_kv(), 2);
    assert_eq!(spec.ropes[0].kind, RopeKind::Neox);
}

#[test]
fn gemma3_scales_embeddings_and_windows_all_but_the_last_of_a_period() {
    let mut file = small("gemma3");
    file.set("gemma3.final_logit_softcapping", 30.0f32);
    let spec = spec(&file);
    assert_eq!(spec.embedding_scale, Some(16.0));
    assert_eq!(spec.logit_softcap, Some(30.0));
    let windows: Vec<_> = spec.layers.iter().map(|layer| layer.window).collect();
    assert_eq!(windows, [Some(20), Some(20), None]);
    let bases: Vec<_> = spec
        .layers
        .iter()
        .map(|layer| spec.ropes[layer.rope].base)
        .collect();
    assert_eq!(bases, [10_000.0, 10_000.0, 100_000.0]);
    for layer in &spec.layers {
        assert!(layer.post_norms && layer.activation == Activation::Gelu);
        assert_eq!(layer.attention, AttentionForm::QkNorm);
        assert_eq!(layer.attention_scale, 1.0 / 128.0_f32.sqrt());
    }
}

#[test]
fn gemma3_pattern_may_be_a_period_flags_or_nothing() {
    let windowed = |file: &TestFile| -> Vec<bool> {
        spec(file)
            .layers
            .iter()
            .map(|layer| layer.window.is_some())
            .collect()
    };
    let key = "gemma3.attention.sliding_window_pattern";
    let mut model = TestModel::new("gemma3", TensorType::Q4_0);
    model.n_layer = 7;
    let mut file = model.file();
    file.unset(key);
    assert_eq!(windowed(&file), [true, true, true, true, true, false, true]);
    file.set(key, 1u32);
    assert_eq!(windowed(&file), [false; 7]);
    file.set(key, 0u32);
    assert_eq!(windowed(&file), [true; 7]);
    file.set(
        key,
        vec![true, false, false, true, false, true, true, false],
    );
    assert_eq!(
        windowed(&file),
        [true, false, false, true, false, true, true]
    );
    file.set(key, vec![0u32, 0, 0, 1, 0, 1, 0]);
    assert_eq!(
        windowed(&file),
        [false, false, false, true, false, true, false]
    );
    file.set("gemma3.attention.sliding_window", 0u32);
    assert_eq!(windowed(&file), [false; 7]);
    file.unset("gemma3.attention.sliding_window");
    let spec = spec(&file);
    assert!(
        spec.layers
            .iter()
            .all(|layer| layer.window.is_none() && layer.rope == 0)
    );
    assert_eq!(spec.ropes.len(), 1);
}

#[test]
fn gemma3_local_base_and_width_may_be_given_and_equal_ropes_are_one() {
    let mut file = small("gemma3");
    file.set("gemma3.rope.freq_base_swa", 5000.0f32);
    file.set("gemma3.rope.dimension_count_swa", 64u32);
    let local = spec(&file);
    assert_eq!((local.ropes[1].base, local.ropes[1].n_dims), (5000.0, 64));
    assert_eq!(local.ropes[0].n_dims, 128);
    let mut file = small("gemma3");
    file.set("gemma3.rope.freq_base_swa", 100_000.0f32);
    assert_eq!(spec(&file).ropes.len(), 1);
}

#[test]
fn gemma3_27b_alone_scales_attention_by_the_streams_width_per_head() {
    let mut model = TestModel::new("gemma3", TensorType::Q4_0);
    (model.d_model, model.d_ff, model.head_dim, model.n_layer) = (32, 32, 16, 62);
    assert_eq!(
        spec(&model.file()).layers[61].attention_scale,
        1.0 / 8.0_f32.sqrt()
    );
    model.n_layer = 61;
    assert_eq!(spec(&model.file()).layers[60].attention_scale, 0.25);
}

#[test]
fn heads_and_feed_forward_may_differ_by_layer() {
    let mut file = small("llama");
    file.set("llama.attention.head_count", vec![4u32, 2, 4]);
    file.set("llama.attention.head_count_kv", vec![2u32, 2, 1, 7]);
    file.set("llama.feed_forward_length", vec![512u32, 256, 512]);
    file.reshape("blk.1.attn_q.weight", &[256, 128], TensorType::F32);
    file.reshape("blk.1.attn_output.weight", &[128, 256], TensorType::F32);
    file.reshape("blk.1.ffn_gate.weight", &[256, 256], TensorType::F32);
    file.reshape("blk.1.ffn_up.weight", &[256, 256], TensorType::F32);
    file.reshape("blk.1.ffn_down.weight", &[256, 256], TensorType::F32);
    file.reshape("blk.2.attn_k.weight", &[256, 64], TensorType::F32);
    file.reshape("blk.2.attn_v.weight", &[256, 64], TensorType::F32);
    let spec = spec(&file);
    let layers = spec.layers.iter();
    let sizes: Vec<_> = layers
        .map(|l| (l.n_head, l.n_head_kv, l.d_ff, l.head_dim_k))
        .collect();
    assert_eq!(sizes, [(4, 2, 512, 64), (2, 2, 256, 64), (4, 1, 512, 64)]);
}

#[test]
fn key_and_value_heads_default_to_the_query_heads() {
    let mut model = TestModel::new("llama", TensorType::F32);
    model.n_head_kv = 4;
    let mut file = model.file();
    file.unset("llama.attention.head_count_kv");
    assert_eq!(spec(&file).layers[0].n_head_kv, 4);
}

#[test]
fn tensors_are_bound_by_name_and_tied_when_there_is_no_output() {
    let mut model = TestModel::new("llama", TensorType::F16);
    let file = model.file();
    let names: Vec<&str> = file
        .tensors
        .iter()
        .map(|tensor| tensor.name.as_str())
        .collect();
    let tensors = bound(&file).unwrap().tensors;
    assert_eq!(names[tensors.output.index()], "output.weight");
    assert_eq!(
        names[tensors.layers[1].w_down.index()],
        "blk.1.ffn_down.weight"
    );
    assert_eq!(
        names[tensors.layers[2].wo.index()],
        "blk.2.attn_output.weight"
    );
    assert_eq!(tensors.layers[0].bq, None);
    model.tied = true;
    let tensors = bound(&model.file()).unwrap().tensors;
    assert_eq!(tensors.output, tensors.token_embd);
}

#[test]
fn every_family_binds_with_every_weight_type() {
    for architecture in ["llama", "qwen2", "qwen3", "gemma3"] {
        for ty in WEIGHT_TYPES {
            bound(&TestModel::new(architecture, ty).file()).unwrap();
        }
    }
}

#[test]
fn a_vocabulary_may_be_a_number_or_the_embeddings_rows() {
    let mut file = small("llama");
    file.unset("tokenizer.ggml.tokens");
    assert_eq!(spec(&file).n_vocab, 300);
    file.set("llama.vocab_size", 300u32);
    assert_eq!(spec(&file).n_vocab, 300);
}

#[test]
fn smollm2() {
    let model = real("SmolLM2-135M-Instruct.Q4_1.gguf");
    let spec = &model.spec;
    assert_eq!(
        (spec.d_model, spec.n_vocab, spec.n_ctx_train),
        (576, 49152, 8192)
    );
    assert_eq!((spec.layers.len(), spec.rms_eps), (30, 1e-5));
    let layer = &spec.layers[29];
    assert_eq!(
        (layer.n_head, layer.n_head_kv, layer.head_dim_k, layer.d_ff),
        (9, 3, 64, 1536)
    );
    assert_eq!(
        (spec.ropes[0].kind, spec.ropes[0].base),
        (RopeKind::Norm, 100_000.0)
    );
    assert_eq!(model.tensors.output, model.tensors.token_embd);
}

#[test]
fn gemma3_270m_whose_file_names_neither_pattern_nor_local_base() {
    let model = real("gemma-3-270m-Q4_K_M.gguf");
    let spec = &model.spec;
    assert_eq!(
        (spec.d_model, spec.n_vocab, spec.n_ctx_train),
        (640, 262_144, 32768)
    );
    assert_eq!(spec.embedding_scale, Some(640.0_f32.sqrt()));
    for (i, layer) in spec.layers.iter().enumerate() {
        let global = i % 6 == 5;
        assert_eq!(layer.window, (!global).then_some(512), "layer {i}");
        let base = if global { 1_000_000.0 } else { 10_000.0 };
        assert_eq!(spec.ropes[layer.rope].base, base, "layer {i}");
        assert_eq!(
            (layer.n_head, layer.n_head_kv, layer.head_dim_k, layer.d_ff),
            (4, 1, 256, 2048)
        );
        assert_eq!(layer.attention_scale, 0.0625);
    }
    assert_eq!((spec.layers.len(), spec.ropes.len()), (18, 2));
}
