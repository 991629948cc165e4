//! The weights of a model in the form the kernels read.

use crate::model::{LayerTensors, Model, TensorId};
use emel_kernels::{Dequantizer, PackedMatrix};

/// All weights but an embedding table that is not the output matrix too; that one is read row by
/// row from the file's map.
pub(super) struct Weights {
    /// One record a layer.
    pub layers: Vec<LayerWeights>,
    /// `[d_model]`.
    pub output_norm: Vec<f32>,
    /// `[n_vocab, d_model]`.
    pub output: PackedMatrix,
}

/// The weights of one layer. What a layer does not have is empty, and no row of the layer machine
/// reads it.
pub(super) struct LayerWeights {
    /// `[d_model]`.
    pub attn_norm: Vec<f32>,
    /// `[q_dim, d_model]`.
    pub wq: PackedMatrix,
    /// `[k_dim, d_model]`.
    pub wk: PackedMatrix,
    /// `[v_dim, d_model]`.
    pub wv: PackedMatrix,
    /// `[d_model, o_dim]`.
    pub wo: PackedMatrix,
    /// `[q_dim]`, or empty.
    pub bq: Vec<f32>,
    /// `[k_dim]`, or empty.
    pub bk: Vec<f32>,
    /// `[v_dim]`, or empty.
    pub bv: Vec<f32>,
    /// `[head_dim_k]`, or empty.
    pub q_norm: Vec<f32>,
    /// `[head_dim_k]`, or empty.
    pub k_norm: Vec<f32>,
    /// `[d_model]`, or empty.
    pub post_attn_norm: Vec<f32>,
    /// `[d_model]`.
    pub ffn_norm: Vec<f32>,
    /// `[d_ff, d_model]`.
    pub w_gate: PackedMatrix,
    /// `[d_ff, d_model]`.
    pub w_up: PackedMatrix,
    /// `[d_model, d_ff]`.
    pub w_down: PackedMatrix,
    /// `[d_model]`, or empty.
    pub post_ffn_norm: Vec<f32>,
}

/// The embedding table: where its rows are, and how a row of it is read.
pub(super) struct Embedding {
    /// The tensor, `[n_vocab, d_model]`.
    pub tensor: TensorId,
    /// Reads its rows.
    pub dequantizer: Dequantizer,
    /// Whether the table is the output matrix, from which its rows are taken then.
    pub tied: bool,
    /// Room for the bytes of a row.
    pub row: Box<[u8]>,
}

/// Every tensor that is copied.
pub(super) fn vectors(model: &Model) -> Vec<TensorId> {
    let of_layer = |layer: &LayerTensors| {
        let always = [layer.attn_norm, layer.ffn_norm].map(Some);
        let biases = [layer.bq, layer.bk, layer.bv];
        let norms = [
            layer.q_norm,
            layer.k_norm,
            layer.post_attn_norm,
            layer.post_ffn_norm,
        ];
        always.into_iter().chain(biases).chain(norms).flatten()
    };
    let mut vectors = vec![model.tensors.output_norm];
    vectors.extend(model.tensors.layers.iter().flat_map(of_layer));
    vectors
}

/// Every tensor that is packed.
pub(super) fn matrices(model: &Model) -> Vec<TensorId> {
    let of_layer = |layer: &LayerTensors| {
        let LayerTensors {
            wq,
            wk,
            wv,
            wo,
            w_gate,
            w_up,
            w_down,
            ..
        } = *layer;
        [wq, wk, wv, wo, w_gate, w_up, w_down]
    };
    let mut matrices = vec![model.tensors.output];
    matrices.extend(model.tensors.layers.iter().flat_map(of_layer));
    matrices
}
