//! What a token costs a model, as far as drafts are concerned: weights are read once for all tokens
//! of a pass, attention is computed for each.

use crate::model::{LayerSpec, ModelSpec};

/// Multiply-adds of one token.
pub(in super::super) struct Work {
    /// With all weights.
    pub weights: f64,
    /// Window of each layer, and its attention with one position.
    pub attention: Vec<(usize, f64)>,
}

fn layer_weights(spec: &LayerSpec, d_model: usize) -> usize {
    let attention = spec.q_dim() + spec.k_dim() + spec.v_dim() + spec.o_dim();
    d_model * (attention + 3 * spec.d_ff)
}

impl Work {
    /// The work of a model.
    pub fn of(spec: &ModelSpec) -> Self {
        let layers = spec.layers.iter();
        let weights: usize = layers.map(|layer| layer_weights(layer, spec.d_model)).sum();
        let attention = spec.layers.iter().map(|layer| {
            let work = layer.n_head * (layer.head_dim_k + layer.head_dim_v);
            (layer.window.unwrap_or(usize::MAX), work as f64)
        });
        Self {
            weights: (weights + spec.d_model * spec.n_vocab) as f64,
            attention: attention.collect(),
        }
    }

    /// Attention with `depth` cached positions, as a share of the work with weights.
    pub fn attention_share(&self, depth: usize) -> f64 {
        let layers = self.attention.iter();
        let work: f64 = layers
            .map(|&(window, work)| window.min(depth) as f64 * work)
            .sum();
        work / self.weights
    }
}
