//! Finds each tensor of a model by name, checks its shape and type, and notes its place.
//!
//! Every tensor of the file must have been asked for: one that is left over would change the
//! result if it were run as its maker meant it, so the file is refused.

use std::collections::HashMap;

use super::error::{ModelError, Problem, WEIGHT_TYPES};
use super::reader::Reader;
use super::spec::{AttentionForm, LayerSpec, LayerTensors, ModelSpec, ModelTensors, TensorId};
use crate::gguf::{Gguf, TensorType};

/// Types of norms and biases.
const VECTOR_TYPES: [TensorType; 1] = [TensorType::F32];

/// Binds the tensors of `spec`, which `reader` has read.
pub(super) fn bind<'a>(
    gguf: &'a Gguf,
    reader: &Reader<'a>,
    spec: &ModelSpec,
) -> Result<ModelTensors, ModelError> {
    let mut binder = Binder::new(gguf, reader);
    let (d_model, n_vocab) = (spec.d_model, spec.n_vocab);
    let embedding_role = "embedding_length and the vocabulary";
    let token_embd = binder.matrix("token_embd", n_vocab, d_model, embedding_role)?;
    let output_norm = binder.vector("output_norm.weight", d_model, "embedding_length")?;
    let output = if binder.has("output.weight") {
        binder.matrix("output", n_vocab, d_model, embedding_role)?
    } else {
        token_embd
    };
    let layers = spec.layers.iter().enumerate();
    let layers = layers
        .map(|(i, layer)| bind_layer(&mut binder, i, d_model, layer))
        .collect::<Result<_, _>>()?;
    binder.refuse_the_rest()?;
    Ok(ModelTensors {
        token_embd,
        output_norm,
        output,
        layers,
    })
}

fn bind_layer(
    binder: &mut Binder,
    index: usize,
    d_model: usize,
    layer: &LayerSpec,
) -> Result<LayerTensors, ModelError> {
    let name = |part: &str| format!("blk.{index}.{part}");
    let weight = |part: &str| format!("blk.{index}.{part}.weight");
    let bias = |part: &str| format!("blk.{index}.{part}.bias");
    let (q_dim, k_dim, v_dim, o_dim) = (layer.q_dim(), layer.k_dim(), layer.v_dim(), layer.o_dim());
    let q_role = "embedding_length, head_count and key_length";
    let kv_role = "embedding_length, head_count_kv and key_length";
    let ff_role = "embedding_length and feed_forward_length";

    let attn_norm = binder.vector(&weight("attn_norm"), d_model, "embedding_length")?;
    let wq = binder.matrix(&name("attn_q"), q_dim, d_model, q_role)?;
    let wk = binder.matrix(&name("attn_k"), k_dim, d_model, kv_role)?;
    let wv = binder.matrix(&name("attn_v"), v_dim, d_model, kv_role)?;
    let wo = binder.matrix(&name("attn_output"), d_model, o_dim, q_role)?;
    let (mut bq, mut bk, mut bv) = (None, None, None);
    if layer.qkv_bias {
        bq = Some(binder.vector(&bias("attn_q"), q_dim, q_role)?);
        bk = Some(binder.vector(&bias("attn_k"), k_dim, kv_role)?);
        bv = Some(binder.vector(&bias("attn_v"), v_dim, kv_role)?);
    }
    let (mut q_norm, mut k_norm) = (None, None);
    if layer.attention == AttentionForm::QkNorm {
        q_norm = Some(binder.vector(&weight("attn_q_norm"), layer.head_dim_k, "key_length")?);
        k_norm = Some(binder.vector(&weight("attn_k_norm"), layer.head_dim_k, "key_length")?);
    }
    let (mut post_attn_norm, mut post_ffn_norm) = (None, None);
    if layer.post_norms {
        let role = "embedding_length";
        post_attn_norm = Some(binder.vector(&weight("post_attention_norm"), d_model, role)?);
        post_ffn_norm = Some(binder.vector(&weight("post_ffw_norm"), d_model, role)?);
    }
    let ffn_norm = binder.vector(&weight("ffn_norm"), d_model, "embedding_length")?;
    let w_gate = binder.matrix(&name("ffn_gate"), layer.d_ff, d_model, ff_role)?;
    let w_up = binder.matrix(&name("ffn_up"), layer.d_ff, d_model, ff_role)?;
    let w_down = binder.matrix(&name("ffn_down"), d_model, layer.d_ff, ff_role)?;
    Ok(LayerTensors {
        attn_norm,
        wq,
        wk,
        wv,
        wo,
        bq,
        bk,
        bv,
        q_norm,
        k_norm,
        post_attn_norm,
        ffn_norm,
        w_gate,
        w_up,
        w_down,
        post_ffn_norm,
    })
}

/// The tensors of a file, and which of them have been asked for.
struct Binder<'a, 'r> {
    gguf: &'a Gguf,
    reader: &'r Reader<'a>,
    places: HashMap<&'a str, usize>,
    asked_for: Vec<bool>,
}

impl<'a, 'r> Binder<'a, 'r> {
    fn new(gguf: &'a Gguf, reader: &'r Reader<'a>) -> Self {
        let names = gguf.tensors().iter().enumerate();
        Self {
            gguf,
            reader,
            places: names
                .map(|(place, tensor)| (tensor.name.as_str(), place))
                .collect(),
            asked_for: vec![false; gguf.tensors().len()],
        }
    }

    fn has(&self, name: &str) -> bool {
        self.places.contains_key(name)
    }

    /// A weight matrix, by its name without `.weight`.
    fn matrix(
        &mut self,
        name: &str,
        rows: usize,
        row_len: usize,
        role: &'static str,
    ) -> Result<TensorId, ModelError> {
        self.take(
            &format!("{name}.weight"),
            &[row_len as u64, rows as u64],
            &WEIGHT_TYPES,
            role,
        )
    }

    /// A norm's or a bias's vector.
    fn vector(
        &mut self,
        name: &str,
        len: usize,
        role: &'static str,
    ) -> Result<TensorId, ModelError> {
        self.take(name, &[len as u64], &VECTOR_TYPES, role)
    }

    fn take(
        &mut self,
        name: &str,
        shape: &[u64],
        types: &[TensorType],
        role: &'static str,
    ) -> Result<TensorId, ModelError> {
        let Some(&place) = self.places.get(name) else {
            return Err(self.reader.fail(Problem::MissingTensor {
                tensor: name.to_owned(),
            }));
        };
        self.reader
            .check(&self.gguf.tensors()[place], shape, types, role)?;
        self.asked_for[place] = true;
        Ok(TensorId(place))
    }

    fn refuse_the_rest(&self) -> Result<(), ModelError> {
        let names = self
            .gguf
            .tensors()
            .iter()
            .map(|t| t.name.as_str())
            .zip(&self.asked_for);
        let mut left = names.filter(|(name, asked)| !**asked && !self.reader.has_consumed(name));
        match left.next() {
            None => Ok(()),
            Some((name, _)) => Err(self.reader.fail(Problem::UnexpectedTensor {
                tensor: name.to_owned(),
                architecture: self.reader.architecture().to_owned(),
            })),
        }
    }
}
