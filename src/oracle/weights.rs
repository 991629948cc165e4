//! A model's weights as f64: vectors held, matrices decoded row by row whenever they are used.
//!
//! Decoding again and again is slower than keeping the decoded matrices, but those would take
//! eight bytes a weight.

use super::OracleError;
use super::dequant::Dequantizer;
use crate::gguf::{Gguf, TensorType};
use crate::model::{LayerTensors, Model, TensorId};

/// One activation vector a position.
pub type Rows = Vec<Vec<f64>>;

/// A matrix in the file's blocks.
pub struct Matrix<'a> {
    blocks: &'a [u8],
    row_bytes: usize,
    row_len: usize,
    decoder: Dequantizer,
}

/// Weights of a whole model.
pub struct Weights<'a> {
    pub token_embd: Matrix<'a>,
    pub output_norm: Vec<f64>,
    pub output: Matrix<'a>,
    pub layers: Vec<LayerWeights<'a>>,
}

/// Weights of one layer; the names are those of [`LayerTensors`].
pub struct LayerWeights<'a> {
    pub attn_norm: Vec<f64>,
    pub wq: Matrix<'a>,
    pub wk: Matrix<'a>,
    pub wv: Matrix<'a>,
    pub wo: Matrix<'a>,
    pub bq: Option<Vec<f64>>,
    pub bk: Option<Vec<f64>>,
    pub bv: Option<Vec<f64>>,
    pub q_norm: Option<Vec<f64>>,
    pub k_norm: Option<Vec<f64>>,
    pub post_attn_norm: Option<Vec<f64>>,
    pub ffn_norm: Vec<f64>,
    pub w_gate: Matrix<'a>,
    pub w_up: Matrix<'a>,
    pub w_down: Matrix<'a>,
    pub post_ffn_norm: Option<Vec<f64>>,
}

impl<'a> Weights<'a> {
    pub fn new(gguf: &'a Gguf, model: &Model) -> Result<Self, OracleError> {
        let file = Tensors(gguf);
        let tensors = &model.tensors;
        Ok(Self {
            token_embd: file.matrix(tensors.token_embd)?,
            output_norm: file.vector(tensors.output_norm)?,
            output: file.matrix(tensors.output)?,
            layers: tensors
                .layers
                .iter()
                .map(|l| file.layer(l))
                .collect::<Result<_, _>>()?,
        })
    }
}

impl<'a> Matrix<'a> {
    /// A matrix of rows of `row_len` weights; `None` when a row is no whole number of blocks.
    pub fn new(blocks: &'a [u8], row_len: usize, decoder: Dequantizer) -> Option<Self> {
        Some(Self {
            blocks,
            row_bytes: decoder.row_bytes(row_len)?,
            row_len,
            decoder,
        })
    }

    /// One row.
    pub fn row(&self, index: usize) -> Vec<f64> {
        let mut row = vec![0.0; self.row_len];
        self.decode_row(index, &mut row);
        row
    }

    /// Writes one row to `out`.
    pub fn decode_row(&self, index: usize, out: &mut [f64]) {
        let start = index * self.row_bytes;
        self.decoder
            .decode(&self.blocks[start..start + self.row_bytes], out);
    }

    /// Rows.
    pub fn n_rows(&self) -> usize {
        self.blocks.len() / self.row_bytes
    }

    /// Weights in a row.
    pub fn row_len(&self) -> usize {
        self.row_len
    }
}

/// Access to a file's tensors by role.
struct Tensors<'a>(&'a Gguf);

impl<'a> Tensors<'a> {
    fn matrix(&self, id: TensorId) -> Result<Matrix<'a>, OracleError> {
        let gguf = self.0;
        let tensor = &gguf.tensors()[id.index()];
        let unsupported = || OracleError::UnsupportedType {
            tensor: tensor.name.clone(),
            ty: tensor.ty.name(),
        };
        let decoder = Dequantizer::new(tensor.ty).ok_or_else(unsupported)?;
        let row_len = tensor.row_len() as usize;
        Matrix::new(gguf.data(tensor), row_len, decoder).ok_or_else(unsupported)
    }

    fn vector(&self, id: TensorId) -> Result<Vec<f64>, OracleError> {
        let tensor = &self.0.tensors()[id.index()];
        if tensor.ty != TensorType::F32 {
            let (tensor, ty) = (tensor.name.clone(), tensor.ty.name());
            return Err(OracleError::UnsupportedType { tensor, ty });
        }
        Ok(self.matrix(id)?.row(0))
    }

    fn optional(&self, id: Option<TensorId>) -> Result<Option<Vec<f64>>, OracleError> {
        id.map(|id| self.vector(id)).transpose()
    }

    fn layer(&self, layer: &LayerTensors) -> Result<LayerWeights<'a>, OracleError> {
        Ok(LayerWeights {
            attn_norm: self.vector(layer.attn_norm)?,
            wq: self.matrix(layer.wq)?,
            wk: self.matrix(layer.wk)?,
            wv: self.matrix(layer.wv)?,
            wo: self.matrix(layer.wo)?,
            bq: self.optional(layer.bq)?,
            bk: self.optional(layer.bk)?,
            bv: self.optional(layer.bv)?,
            q_norm: self.optional(layer.q_norm)?,
            k_norm: self.optional(layer.k_norm)?,
            post_attn_norm: self.optional(layer.post_attn_norm)?,
            ffn_norm: self.vector(layer.ffn_norm)?,
            w_gate: self.matrix(layer.w_gate)?,
            w_up: self.matrix(layer.w_up)?,
            w_down: self.matrix(layer.w_down)?,
            post_ffn_norm: self.optional(layer.post_ffn_norm)?,
        })
    }
}
