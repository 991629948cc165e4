//! The forward pass itself: a batch of positions through the layers, and the logits.
//!
//! Positions of a batch never mix: each has its own stream and sees the cache up to itself, so
//! how tokens are split into batches changes nothing.

use super::parallel::map_ranges;
use super::weights::{LayerWeights, Rows};
use super::{Hidden, Oracle, OracleError, Point, math};
use crate::model::LayerSpec;

/// Rotated keys and values of one layer, one vector a position.
#[derive(Clone, Debug, Default)]
pub struct LayerCache {
    /// `[position][n_head_kv * head_dim_k]`.
    keys: Rows,
    /// `[position][n_head_kv * head_dim_v]`.
    values: Rows,
}

impl Oracle<'_> {
    /// Adds `tokens` at the next positions and gives the residual stream after the last layer.
    pub(super) fn layers(
        &mut self,
        tokens: &[u32],
        observer: &mut dyn FnMut(Hidden<'_>),
    ) -> Result<Rows, OracleError> {
        let mut streams: Rows = tokens.iter().map(|token| self.embed(*token)).collect();
        for layer in 0..self.model.spec.layers.len() {
            let mut show = |point, streams: &Rows, first: usize| {
                for (i, stream) in streams.iter().enumerate() {
                    observer(Hidden {
                        layer,
                        position: first + i,
                        point,
                        stream,
                    });
                }
            };
            let attention = self.attention(layer, &streams)?;
            add(&mut streams, &attention);
            show(Point::Attention, &streams, self.position);
            let feed_forward = self.feed_forward(layer, &streams)?;
            add(&mut streams, &feed_forward);
            show(Point::FeedForward, &streams, self.position);
        }
        self.position += tokens.len();
        Ok(streams)
    }

    fn embed(&self, token: u32) -> Vec<f64> {
        let mut row = self.weights.token_embd.row(token as usize);
        if let Some(scale) = self.model.spec.embedding_scale {
            row.iter_mut().for_each(|v| *v *= f64::from(scale));
        }
        row
    }

    /// The logits of each stream.
    pub(super) fn logits(&self, streams: &[Vec<f64>]) -> Result<Rows, OracleError> {
        let spec = &self.model.spec;
        let normed = self.norm(streams, &self.weights.output_norm);
        let mut logits = self.weights.output.times(&normed, self.threads)?;
        for logit in logits.iter_mut().flatten() {
            if let Some(scale) = spec.logit_scale {
                *logit *= f64::from(scale);
            }
            if let Some(cap) = spec.logit_softcap {
                *logit = math::softcap(*logit, f64::from(cap));
            }
        }
        Ok(logits)
    }

    /// What attention adds to each stream; the positions' keys and values join the cache.
    fn attention(&mut self, index: usize, streams: &Rows) -> Result<Rows, OracleError> {
        let spec = &self.model.spec.layers[index];
        let weights = &self.weights.layers[index];
        let normed = self.norm(streams, &weights.attn_norm);
        let mut queries = weights.wq.times(&normed, self.threads)?;
        let mut keys = weights.wk.times(&normed, self.threads)?;
        let mut values = weights.wv.times(&normed, self.threads)?;
        for (rows, bias) in [
            (&mut queries, &weights.bq),
            (&mut keys, &weights.bk),
            (&mut values, &weights.bv),
        ] {
            if let Some(bias) = bias {
                rows.iter_mut().for_each(|row| add_vector(row, bias));
            }
        }
        self.prepare_heads(spec, &weights.q_norm, &mut queries);
        self.prepare_heads(spec, &weights.k_norm, &mut keys);
        self.caches[index].keys.append(&mut keys);
        self.caches[index].values.append(&mut values);

        let mixed = self.mix(spec, &self.caches[index], &queries)?;
        let weights = &self.weights.layers[index];
        let out = weights.wo.times(&mixed, self.threads)?;
        Ok(self.optional_norm(out, &weights.post_attn_norm))
    }

    /// Norms (if the layer does) and rotates every head of queries or keys.
    fn prepare_heads(&self, spec: &LayerSpec, norm: &Option<Vec<f64>>, rows: &mut Rows) {
        let rope = &self.model.spec.ropes[spec.rope];
        for (i, row) in rows.iter_mut().enumerate() {
            for head in row.chunks_exact_mut(spec.head_dim_k) {
                if let Some(weight) = norm {
                    head.copy_from_slice(&math::rms_norm(head, weight, self.eps()));
                }
                math::rotate(rope, self.n_ctx, self.position + i, head);
            }
        }
    }

    /// Attention proper: for each query head the average of the values it sees, weighted by the
    /// softmax of its products with their keys.
    fn mix(
        &self,
        spec: &LayerSpec,
        cache: &LayerCache,
        queries: &Rows,
    ) -> Result<Rows, OracleError> {
        let heads = queries.len() * spec.n_head;
        let mixed = map_ranges(self.threads, heads, |range| {
            let mix_head = |i: usize| {
                let (row, head) = (i / spec.n_head, i % spec.n_head);
                let query = &queries[row][head * spec.head_dim_k..][..spec.head_dim_k];
                mix_head(spec, cache, self.position + row, head, query)
            };
            range.flat_map(mix_head).collect()
        })?;
        Ok(mixed
            .chunks_exact(spec.o_dim())
            .map(<[f64]>::to_vec)
            .collect())
    }

    /// What the feed-forward network adds to each stream.
    fn feed_forward(&self, index: usize, streams: &Rows) -> Result<Rows, OracleError> {
        let spec = &self.model.spec.layers[index];
        let weights: &LayerWeights = &self.weights.layers[index];
        let normed = self.norm(streams, &weights.ffn_norm);
        let mut hidden = weights.w_gate.times(&normed, self.threads)?;
        let up = weights.w_up.times(&normed, self.threads)?;
        for (gate, up) in hidden.iter_mut().flatten().zip(up.iter().flatten()) {
            *gate = math::activate(spec.activation, *gate) * up;
        }
        let out = weights.w_down.times(&hidden, self.threads)?;
        Ok(self.optional_norm(out, &weights.post_ffn_norm))
    }

    fn eps(&self) -> f64 {
        f64::from(self.model.spec.rms_eps)
    }

    fn norm(&self, rows: &[Vec<f64>], weight: &[f64]) -> Rows {
        rows.iter()
            .map(|row| math::rms_norm(row, weight, self.eps()))
            .collect()
    }

    fn optional_norm(&self, rows: Rows, weight: &Option<Vec<f64>>) -> Rows {
        match weight {
            Some(weight) => self.norm(&rows, weight),
            None => rows,
        }
    }
}

/// One query head at `position` over the positions it sees.
fn mix_head(
    spec: &LayerSpec,
    cache: &LayerCache,
    position: usize,
    head: usize,
    query: &[f64],
) -> Vec<f64> {
    let kv_head = head / spec.heads_per_kv();
    let first = spec
        .window
        .map_or(0, |window| (position + 1).saturating_sub(window));
    let seen = first..position + 1;
    let score = |key: &Vec<f64>| {
        let key = &key[kv_head * spec.head_dim_k..][..spec.head_dim_k];
        let score = math::dot(query, key) * f64::from(spec.attention_scale);
        spec.attention_softcap
            .map_or(score, |cap| math::softcap(score, f64::from(cap)))
    };
    let mut shares: Vec<f64> = cache.keys[seen.clone()].iter().map(score).collect();
    math::softmax(&mut shares);
    let mut mixed = vec![0.0; spec.head_dim_v];
    for (share, value) in shares.iter().zip(&cache.values[seen]) {
        let value = &value[kv_head * spec.head_dim_v..][..spec.head_dim_v];
        for (m, v) in mixed.iter_mut().zip(value) {
            *m += share * v;
        }
    }
    mixed
}

fn add(rows: &mut Rows, others: &Rows) {
    for (row, other) in rows.iter_mut().zip(others) {
        add_vector(row, other);
    }
}

fn add_vector(row: &mut [f64], other: &[f64]) {
    for (v, o) in row.iter_mut().zip(other) {
        *v += o;
    }
}
