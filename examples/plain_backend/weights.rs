//! A model's weights as f32, dequantized when they are loaded.

use emel::gguf::Gguf;
use emel::model::{LayerSpec, LayerTensors, Model, TensorId};
use emel::oracle::dequant::Dequantizer;

use crate::defect::Defect;
use crate::error::PlainError;
use crate::math::Dot;
use crate::parallel::fill;
use crate::rows::Rows;

/// `[rows, cols]`, row after row.
pub struct Matrix {
    cols: usize,
    values: Vec<f32>,
}

/// Weights of a whole model.
pub struct Weights {
    pub token_embd: Matrix,
    pub output_norm: Vec<f32>,
    /// None when the embedding serves as both.
    output: Option<Matrix>,
    pub layers: Vec<LayerWeights>,
}

/// Weights of one layer; the names are those of [`LayerTensors`].
pub struct LayerWeights {
    pub attn_norm: Vec<f32>,
    pub wq: Matrix,
    pub wk: Matrix,
    pub wv: Matrix,
    pub wo: Matrix,
    pub bq: Option<Vec<f32>>,
    pub bk: Option<Vec<f32>>,
    pub bv: Option<Vec<f32>>,
    pub q_norm: Option<Vec<f32>>,
    pub k_norm: Option<Vec<f32>>,
    pub post_attn_norm: Option<Vec<f32>>,
    pub ffn_norm: Vec<f32>,
    pub w_gate: Matrix,
    pub w_up: Matrix,
    pub w_down: Matrix,
    pub post_ffn_norm: Option<Vec<f32>>,
}

impl Matrix {
    /// Row `index`.
    pub fn row(&self, index: usize) -> &[f32] {
        &self.values[index * self.cols..][..self.cols]
    }

    fn n_rows(&self) -> usize {
        self.values.len() / self.cols
    }

    /// The matrix times each of `xs`: `[positions, rows]`.
    pub fn times(&self, xs: &Rows, dot: Dot, threads: usize) -> Result<Rows, PlainError> {
        let (n_rows, positions) = (self.n_rows(), xs.len());
        // By rows of the matrix first: each is read once for all positions.
        let mut products = vec![0.0; n_rows * positions];
        let cost = positions * self.cols;
        fill(threads, &mut products, positions, cost, |row, out| {
            for (out, x) in out.iter_mut().zip(xs.iter()) {
                *out = dot(self.row(row), x);
            }
        })?;
        let mut by_position = Rows::zeros(positions, n_rows);
        for (position, out) in by_position.iter_mut().enumerate() {
            let of_position = products.iter().skip(position).step_by(positions);
            for (out, product) in out.iter_mut().zip(of_position) {
                *out = *product;
            }
        }
        Ok(by_position)
    }
}

impl Weights {
    /// Reads the tensors of `model`, which was bound from `gguf`, and spoils them if asked to.
    pub fn read(
        gguf: &Gguf,
        model: &Model,
        defect: Option<&Defect>,
        threads: usize,
    ) -> Result<Self, PlainError> {
        let file = Tensors { gguf, threads };
        let tensors = &model.tensors;
        let tied = tensors.output == tensors.token_embd;
        let output = (!tied).then(|| file.matrix(tensors.output)).transpose()?;
        let layers = tensors.layers.iter().map(|layer| file.layer(layer));
        let mut weights = Weights {
            token_embd: file.matrix(tensors.token_embd)?,
            output_norm: file.vector(tensors.output_norm)?,
            output,
            layers: layers.collect::<Result<_, _>>()?,
        };
        match defect {
            Some(&Defect::ShiftedRows(layer)) => weights.layers[layer].shift_rows(),
            Some(&Defect::SwappedKvHeads(layer)) => {
                weights.layers[layer].swap_kv_heads(&model.spec.layers[layer]);
            }
            _ => {}
        }
        Ok(weights)
    }

    /// The matrix that makes logits.
    pub fn output(&self) -> &Matrix {
        self.output.as_ref().unwrap_or(&self.token_embd)
    }
}

impl LayerWeights {
    /// A defect: every row of `w_down` moves down by one, the last becomes the first.
    fn shift_rows(&mut self) {
        self.w_down.values.rotate_right(self.w_down.cols);
    }

    /// A defect: the first two key heads change places, with their biases, and the first two value
    /// heads too.
    fn swap_kv_heads(&mut self, spec: &LayerSpec) {
        let key_len = spec.head_dim_k * self.wk.cols;
        let value_len = spec.head_dim_v * self.wv.cols;
        swap_first_two(&mut self.wk.values, key_len);
        swap_first_two(&mut self.wv.values, value_len);
        if let Some(bias) = &mut self.bk {
            swap_first_two(bias, spec.head_dim_k);
        }
        if let Some(bias) = &mut self.bv {
            swap_first_two(bias, spec.head_dim_v);
        }
    }
}

/// Swaps the first `len` values with the next `len`.
fn swap_first_two(values: &mut [f32], len: usize) {
    let (first, rest) = values.split_at_mut(len);
    first.swap_with_slice(&mut rest[..len]);
}

/// Access to a file's tensors by role.
struct Tensors<'a> {
    gguf: &'a Gguf,
    threads: usize,
}

impl Tensors<'_> {
    fn matrix(&self, id: TensorId) -> Result<Matrix, PlainError> {
        let tensor = &self.gguf.tensors()[id.index()];
        let (cols, n_rows) = (tensor.row_len() as usize, tensor.n_rows() as usize);
        let unknown = || PlainError::Type {
            tensor: tensor.name.clone(),
            ty: tensor.ty.name(),
        };
        let decoder = Dequantizer::new(tensor.ty).ok_or_else(unknown)?;
        let row_bytes = decoder.row_bytes(cols).ok_or_else(unknown)?;
        let len = cols * n_rows;
        let mut values = Vec::new();
        // Blocks of two bits become sixteen times as large.
        values
            .try_reserve_exact(len)
            .map_err(|_| PlainError::Memory {
                tensor: tensor.name.clone(),
                bytes: len.saturating_mul(size_of::<f32>()),
            })?;
        values.resize(len, 0.0);
        let blocks = self.gguf.data(tensor);
        fill(self.threads, &mut values, cols, cols, |row, out| {
            // The decoder is exact, which takes f64; each weight is rounded once.
            let mut exact = vec![0.0_f64; cols];
            decoder.decode(&blocks[row * row_bytes..][..row_bytes], &mut exact);
            for (out, exact) in out.iter_mut().zip(&exact) {
                *out = *exact as f32;
            }
        })?;
        Ok(Matrix { cols, values })
    }

    /// A norm's or a bias's vector: a matrix of one row.
    fn vector(&self, id: TensorId) -> Result<Vec<f32>, PlainError> {
        Ok(self.matrix(id)?.values)
    }

    fn optional(&self, id: Option<TensorId>) -> Result<Option<Vec<f32>>, PlainError> {
        id.map(|id| self.vector(id)).transpose()
    }

    fn layer(&self, layer: &LayerTensors) -> Result<LayerWeights, PlainError> {
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
