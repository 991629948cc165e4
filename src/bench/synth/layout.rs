//! What a file of a shape holds: the keys that converters write, and every tensor with its type
//! and how its values are drawn.
//!
//! The spreads keep a model well behaved at any depth. A matrix that reads the normed stream keeps
//! its width (1 / sqrt(row)); those that write to the stream are smaller by the square root of the
//! number of writes, so that the stream grows to the width of one layer's output and no further.
//! Gemma norms what it writes, so there the norms' weights decide. The last norm multiplies by
//! [`LOGIT_GAIN`], which spreads logits about as far as trained models do. The embedding is small
//! beside what the layers write: a model with one matrix for both ends would otherwise say each
//! token again.

use super::mix::{Mix, Role};
use super::shape::{Family, Shape};
use crate::gguf::{TensorType, Value};

/// How far logits spread.
const LOGIT_GAIN: f32 = 4.0;
/// What a layer writes, next to what it reads.
const WRITE_GAIN: f32 = 2.0;
/// Weights of Gemma's norms after attention and feed-forward.
const POST_NORM: f32 = 2.0;

/// One tensor to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Its name.
    pub name: String,
    /// Row length first.
    pub shape: Vec<u64>,
    /// Its type.
    pub ty: TensorType,
    /// Its values.
    pub values: Values,
}

/// The values of a tensor.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Drawn from a bell around `middle` with the standard deviation `spread`.
    Drawn {
        /// Where the bell stands.
        middle: f32,
        /// How wide it is.
        spread: f32,
    },
    /// As given, in one row.
    Given(Vec<f32>),
}

impl Tensor {
    /// Values in a row.
    pub fn row_len(&self) -> u64 {
        self.shape.first().copied().unwrap_or(1)
    }

    /// Rows.
    pub fn n_rows(&self) -> u64 {
        self.shape.iter().skip(1).product()
    }

    /// Bytes of a row.
    pub fn row_bytes(&self) -> u64 {
        self.row_len() / self.ty.block_len() * self.ty.block_bytes()
    }

    fn vector(name: String, len: u32, middle: f32) -> Tensor {
        Tensor {
            name,
            shape: vec![len.into()],
            ty: TensorType::F32,
            values: Values::Drawn {
                middle,
                spread: middle / 10.0,
            },
        }
    }
}

/// The keys, but for the tokenizer's, in the order of converters.
pub fn metadata(shape: &Shape, mix: &Mix, seed: u64) -> Vec<(String, Value)> {
    let architecture = shape.family.architecture();
    let (name, quant) = (shape.name, mix.name);
    let description = format!(
        "Synthetic, not a trained model: the shape of {} with random weights of seed {seed}",
        shape.title
    );
    let mut pairs: Vec<(String, Value)> = Vec::new();
    let mut set = |key: String, value: Value| pairs.push((key, value));
    set("general.architecture".into(), architecture.into());
    set("general.type".into(), "model".into());
    let title = format!("{} synthetic", shape.title);
    set("general.name".into(), title.as_str().into());
    set("general.size_label".into(), shape.size_label.into());
    set("general.description".into(), description.as_str().into());
    let mut own = |key: &str, value: Value| set(format!("{architecture}.{key}"), value);
    own("block_count", shape.n_layer.into());
    own("context_length", shape.n_ctx.into());
    own("embedding_length", shape.d_model.into());
    own("feed_forward_length", shape.d_ff.into());
    own("attention.head_count", shape.n_head.into());
    own("attention.head_count_kv", shape.n_head_kv.into());
    own("rope.freq_base", shape.rope_base.into());
    own("attention.layer_norm_rms_epsilon", shape.eps.into());
    own("attention.key_length", shape.head_dim.into());
    own("attention.value_length", shape.head_dim.into());
    match shape.family {
        Family::Llama { .. } => {
            own("vocab_size", shape.n_vocab.into());
            own("rope.dimension_count", shape.head_dim.into());
        }
        Family::Qwen3 => {}
        Family::Gemma3 {
            window,
            pattern,
            local_base,
        } => {
            own("attention.sliding_window", window.into());
            own("attention.sliding_window_pattern", pattern.into());
            own("rope.freq_base_swa", local_base.into());
        }
    }
    set("general.quantization_version".into(), 2u32.into());
    set("general.file_type".into(), mix.file_type.into());
    set("emel.synth.shape".into(), name.into());
    set("emel.synth.quant".into(), quant.into());
    set("emel.synth.seed".into(), seed.into());
    pairs
}

/// The tensors, in the order of converters.
pub fn tensors(shape: &Shape, mix: &Mix) -> Vec<Tensor> {
    let mut plan = Plan {
        shape,
        mix,
        tensors: Vec::new(),
    };
    let d_model = shape.d_model;
    let width = 1.0 / (d_model as f32).sqrt();
    plan.matrix(
        "token_embd.weight".into(),
        Role::Embedding,
        shape.n_vocab,
        d_model,
        width,
    );
    if let Family::Llama {
        scaling: Some(scaling),
    } = shape.family
    {
        let factors = scaling.factors(shape.rope_base.into(), shape.head_dim);
        plan.tensors.push(Tensor {
            name: "rope_freqs.weight".into(),
            shape: vec![factors.len() as u64],
            ty: TensorType::F32,
            values: Values::Given(factors),
        });
    }
    for layer in 0..shape.n_layer {
        plan.layer(layer);
    }
    plan.vector("output_norm.weight".into(), d_model, LOGIT_GAIN);
    plan.tensors
}

struct Plan<'a> {
    shape: &'a Shape,
    mix: &'a Mix,
    tensors: Vec<Tensor>,
}

impl Plan<'_> {
    fn vector(&mut self, name: String, len: u32, middle: f32) {
        self.tensors.push(Tensor::vector(name, len, middle));
    }

    fn matrix(&mut self, name: String, role: Role, rows: u32, row_len: u32, spread: f32) {
        self.tensors.push(Tensor {
            name,
            shape: vec![row_len.into(), rows.into()],
            ty: self.mix.type_of(self.shape, role, row_len.into()),
            values: Values::Drawn {
                middle: 0.0,
                spread,
            },
        });
    }

    fn layer(&mut self, layer: u32) {
        let shape = self.shape;
        let (d_model, d_ff, head_dim) = (shape.d_model, shape.d_ff, shape.head_dim);
        let (q_dim, kv_dim) = (shape.n_head * head_dim, shape.n_head_kv * head_dim);
        let read = |row_len: u32| 1.0 / (row_len as f32).sqrt();
        let writes = (2 * shape.n_layer) as f32;
        let write = |row_len: u32| WRITE_GAIN * read(row_len) / writes.sqrt();
        let name = |part: &str| format!("blk.{layer}.{part}.weight");
        let is_gemma = matches!(shape.family, Family::Gemma3 { .. });
        self.vector(name("attn_norm"), d_model, 1.0);
        self.matrix(name("attn_q"), Role::Other, q_dim, d_model, read(d_model));
        self.matrix(name("attn_k"), Role::Other, kv_dim, d_model, read(d_model));
        self.matrix(
            name("attn_v"),
            Role::AttnV(layer),
            kv_dim,
            d_model,
            read(d_model),
        );
        self.matrix(
            name("attn_output"),
            Role::AttnOutput,
            d_model,
            q_dim,
            write(q_dim),
        );
        if is_gemma || shape.family == Family::Qwen3 {
            self.vector(name("attn_q_norm"), head_dim, 1.0);
            self.vector(name("attn_k_norm"), head_dim, 1.0);
        }
        if is_gemma {
            self.vector(name("post_attention_norm"), d_model, POST_NORM);
            self.vector(name("post_ffw_norm"), d_model, POST_NORM);
        }
        self.vector(name("ffn_norm"), d_model, 1.0);
        self.matrix(name("ffn_gate"), Role::Other, d_ff, d_model, read(d_model));
        self.matrix(name("ffn_up"), Role::Other, d_ff, d_model, read(d_model));
        self.matrix(
            name("ffn_down"),
            Role::FfnDown(layer),
            d_model,
            d_ff,
            write(d_ff),
        );
    }
}
