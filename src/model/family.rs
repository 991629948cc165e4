//! The families this engine runs, and the decoder form that all of them share.

use super::error::ModelError;
use super::reader::{Reader, Sizes};
use super::spec::{Activation, AttentionForm, FeedForwardForm, LayerSpec, ModelSpec};
use super::{RopeSpec, gemma3, llama, qwen2, qwen3};

/// One family: the name its files carry, and how its hyper-parameters are read.
pub(super) struct Family {
    /// The value of `general.architecture`.
    pub name: &'static str,
    /// Reads a file of the family.
    pub read: fn(&Reader) -> Result<ModelSpec, ModelError>,
}

/// All of them, in the order in which they are listed to people.
pub(super) const FAMILIES: [Family; 4] =
    [llama::FAMILY, qwen2::FAMILY, qwen3::FAMILY, gemma3::FAMILY];

/// A decoder whose layers are all alike: RMS norm, rotary attention over the whole context,
/// SiLU-gated feed-forward. Families change what is different in theirs.
pub(super) fn plain_decoder(reader: &Reader, sizes: &Sizes, rope: RopeSpec) -> ModelSpec {
    let layer = |i: usize| LayerSpec {
        n_head: sizes.n_head[i],
        n_head_kv: sizes.n_head_kv[i],
        head_dim_k: sizes.head_dim,
        head_dim_v: sizes.head_dim,
        d_ff: sizes.d_ff[i],
        attention: AttentionForm::Plain,
        qkv_bias: has_qkv_bias(reader, i),
        window: None,
        attention_scale: inverse_root(sizes.head_dim),
        attention_softcap: None,
        rope: 0,
        post_norms: false,
        activation: Activation::Silu,
        feed_forward: FeedForwardForm::Dense,
    };
    ModelSpec {
        architecture: reader.architecture().to_owned(),
        n_ctx_train: sizes.n_ctx_train,
        d_model: sizes.d_model,
        n_vocab: sizes.n_vocab,
        rms_eps: sizes.rms_eps,
        embedding_scale: None,
        logit_softcap: None,
        logit_scale: None,
        ropes: vec![rope],
        layers: (0..sizes.n_layer).map(layer).collect(),
    }
}

/// `1 / sqrt(n)` in f32, as llama.cpp computes it.
pub(super) fn inverse_root(n: usize) -> f32 {
    1.0 / (n as f32).sqrt()
}

/// Biases are optional in every family; a layer that has one has all three.
fn has_qkv_bias(reader: &Reader, layer: usize) -> bool {
    let has = |name| reader.find(&format!("blk.{layer}.{name}.bias")).is_some();
    ["attn_q", "attn_k", "attn_v"].into_iter().any(has)
}

/// Refuses heads that rotate only in part.
pub(super) fn require_full_rotation(reader: &Reader, sizes: &Sizes) -> Result<(), ModelError> {
    if sizes.n_rot == sizes.head_dim {
        return Ok(());
    }
    let why = format!(
        "heads of this family rotate whole, and they are {} wide",
        sizes.head_dim
    );
    Err(reader.bad(reader.key("rope.dimension_count"), sizes.n_rot, why))
}
