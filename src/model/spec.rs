//! The types that describe a model to the engine: hyper-parameters, one route record a layer,
//! and the tensors bound by role.
//!
//! Everything the engine and the oracle must know stands in these fields; which family a file
//! belongs to is only known to the family files beside this one, which fill them in. All sizes
//! have been checked when a [`Model`] exists: every product of two sizes of one model fits well
//! inside `usize`, every bound tensor has the shape its role asks for, and every index is valid.

use super::rope::RopeSpec;

/// A model that is ready to run: what to compute, and the tensors to compute it with.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Sizes, constants and the route of each layer.
    pub spec: ModelSpec,
    /// The tensors, as places in [`Gguf::tensors`](crate::gguf::Gguf::tensors).
    pub tensors: ModelTensors,
}

/// Sizes and constants of a whole model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelSpec {
    /// `general.architecture`, for display only.
    pub architecture: String,
    /// The context length the model was trained for, in tokens.
    pub n_ctx_train: usize,
    /// The width of the residual stream.
    pub d_model: usize,
    /// Rows of the embedding and length of a logits vector.
    pub n_vocab: usize,
    /// Added to the mean square inside every RMS norm.
    pub rms_eps: f32,
    /// Multiplies each embedding row before the first layer.
    pub embedding_scale: Option<f32>,
    /// `c` in `logits = c * tanh(logits / c)`, the last step.
    pub logit_softcap: Option<f32>,
    /// Multiplies the logits, before the softcap.
    pub logit_scale: Option<f32>,
    /// The distinct rotary embeddings; layers name theirs by index.
    pub ropes: Vec<RopeSpec>,
    /// One record a layer, first to last; never empty.
    pub layers: Vec<LayerSpec>,
}

/// Sizes and route of one layer.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerSpec {
    /// Query heads.
    pub n_head: usize,
    /// Key and value heads; divides `n_head`.
    pub n_head_kv: usize,
    /// Width of one query or key head.
    pub head_dim_k: usize,
    /// Width of one value head.
    pub head_dim_v: usize,
    /// Width inside the feed-forward network.
    pub d_ff: usize,
    /// How queries and keys are prepared.
    pub attention: AttentionForm,
    /// Biases are added to queries, keys and values before anything else happens to them.
    pub qkv_bias: bool,
    /// `Some(w)`: position `p` sees positions `p - w + 1 ..= p`. `None`: it sees all before it.
    pub window: Option<usize>,
    /// Multiplies every query-key product.
    pub attention_scale: f32,
    /// `c` in `score = c * tanh(score / c)`, after the scale and before the softmax.
    pub attention_softcap: Option<f32>,
    /// Index into [`ModelSpec::ropes`].
    pub rope: usize,
    /// The outputs of attention and feed-forward are normed before they join the residual.
    pub post_norms: bool,
    /// The activation of the feed-forward's gate.
    pub activation: Activation,
    /// The form of the feed-forward network.
    pub feed_forward: FeedForwardForm,
}

impl LayerSpec {
    /// Query heads that share one key and value head.
    pub fn heads_per_kv(&self) -> usize {
        self.n_head / self.n_head_kv
    }

    /// Width of all query heads together: rows of `wq`.
    pub fn q_dim(&self) -> usize {
        self.n_head * self.head_dim_k
    }

    /// Width of all key heads together: rows of `wk`.
    pub fn k_dim(&self) -> usize {
        self.n_head_kv * self.head_dim_k
    }

    /// Width of all value heads together: rows of `wv`.
    pub fn v_dim(&self) -> usize {
        self.n_head_kv * self.head_dim_v
    }

    /// Width of attention's result: the row length of `wo`.
    pub fn o_dim(&self) -> usize {
        self.n_head * self.head_dim_v
    }
}

/// How queries and keys are prepared between projection and rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttentionForm {
    /// They are rotated as they are.
    Plain,
    /// Each head is RMS-normed first, with one weight vector for queries and one for keys.
    QkNorm,
}

/// The activation of a gated feed-forward network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// `x / (1 + exp(-x))`.
    Silu,
    /// GELU in its tanh form.
    Gelu,
}

/// The form of a feed-forward network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FeedForwardForm {
    /// `w_down · (activation(w_gate · x) * (w_up · x))`.
    Dense,
}

/// The place of a tensor in [`Gguf::tensors`](crate::gguf::Gguf::tensors).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TensorId(pub usize);

impl TensorId {
    /// The index into the tensor directory.
    pub fn index(self) -> usize {
        self.0
    }
}

/// Tensors of a whole model. Shapes are `[rows, row length]`; norms and biases are F32 vectors.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelTensors {
    /// `[n_vocab, d_model]`.
    pub token_embd: TensorId,
    /// `[d_model]`.
    pub output_norm: TensorId,
    /// `[n_vocab, d_model]`; equal to `token_embd` when the two are tied.
    pub output: TensorId,
    /// One record a layer, in step with [`ModelSpec::layers`].
    pub layers: Vec<LayerTensors>,
}

/// Tensors of one layer.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerTensors {
    /// `[d_model]`.
    pub attn_norm: TensorId,
    /// `[q_dim, d_model]`.
    pub wq: TensorId,
    /// `[k_dim, d_model]`.
    pub wk: TensorId,
    /// `[v_dim, d_model]`.
    pub wv: TensorId,
    /// `[d_model, o_dim]`.
    pub wo: TensorId,
    /// `[q_dim]`; present exactly when [`LayerSpec::qkv_bias`] is set.
    pub bq: Option<TensorId>,
    /// `[k_dim]`; as `bq`.
    pub bk: Option<TensorId>,
    /// `[v_dim]`; as `bq`.
    pub bv: Option<TensorId>,
    /// `[head_dim_k]`; present exactly with [`AttentionForm::QkNorm`].
    pub q_norm: Option<TensorId>,
    /// `[head_dim_k]`; as `q_norm`.
    pub k_norm: Option<TensorId>,
    /// `[d_model]`; present exactly when [`LayerSpec::post_norms`] is set.
    pub post_attn_norm: Option<TensorId>,
    /// `[d_model]`.
    pub ffn_norm: TensorId,
    /// `[d_ff, d_model]`.
    pub w_gate: TensorId,
    /// `[d_ff, d_model]`.
    pub w_up: TensorId,
    /// `[d_model, d_ff]`.
    pub w_down: TensorId,
    /// `[d_model]`; as `post_attn_norm`.
    pub post_ffn_norm: Option<TensorId>,
}
