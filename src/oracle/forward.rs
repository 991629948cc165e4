//! The forward pass itself: a batch of positions through the layers, and the logits.
//!
//! Positions of a batch never mix: each has its own stream and sees the cache up to itself, so
//! how tokens are split into batches changes nothing.

use super::parallel::map_ranges;
use super::weights::{LayerWeights, Rows};
use super::{Oracle, OracleError, Tensor, math};
use crate::model::{LayerSpec, Point};

/// Rotated keys and values of one layer, one vector a position.
#[derive(Clone, Debug, Default)]
pub struct LayerCache {
    /// `[position][n_head_kv * head_dim_k]`.
    keys: Rows,
    /// `[position][n_head_kv * head_dim_v]`.
    values: Rows,
}

/// Shows a batch to the observer.
struct Show<'o> {
    observer: &'o mut dyn FnMut(Tensor<'_>),
    /// The position of the batch's first token.
    first: usize,
    layer: Option<usize>,
}

impl Show<'_> {
    fn rows(&mut self, point: Point, rows: &Rows) {
        for (i, values) in rows.iter().enumerate() {
            (self.observer)(Tensor {
                layer: self.layer,
                point,
                position: self.first + i,
                values,
            });
        }
    }
}

impl Oracle<'_> {
    /// Adds `tokens` at the next positions and gives the last layer's outputs, normed.
    pub(super) fn pass(
        &mut self,
        tokens: &[u32],
        observer: &mut dyn FnMut(Tensor<'_>),
    ) -> Result<Rows, OracleError> {
        let mut show = Show {
            observer,
            first: self.position,
            layer: None,
        };
        let mut streams: Rows = tokens.iter().map(|token| self.embed(*token)).collect();
        show.rows(Point::Embedding, &streams);
        for layer in 0..self.model.spec.layers.len() {
            show.layer = Some(layer);
            let attention = self.attention(layer, &streams, &mut show)?;
            add(&mut streams, &attention);
            show.rows(Point::AttnResidual, &streams);
            let feed_forward = self.feed_forward(layer, &streams, &mut show)?;
            add(&mut streams, &feed_forward);
            show.rows(Point::LayerOut, &streams);
        }
        show.layer = None;
        let normed = self.norm(&streams, &self.weights.output_norm);
        show.rows(Point::OutputNorm, &normed);
        self.position += tokens.len();
        Ok(normed)
    }

    fn embed(&self, token: u32) -> Vec<f64> {
        let mut row = self.weights.token_embd.row(token as usize);
        if let Some(scale) = self.model.spec.embedding_scale {
            row.iter_mut().for_each(|v| *v *= f64::from(scale));
        }
        row
    }

    /// The logits of each of a pass's outputs.
    pub(super) fn logits(&self, outputs: &[Vec<f64>]) -> Result<Rows, OracleError> {
        let spec = &self.model.spec;
        let mut logits = self.weights.output.times(outputs, self.threads)?;
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
    fn attention(
        &mut self,
        index: usize,
        streams: &Rows,
        show: &mut Show<'_>,
    ) -> Result<Rows, OracleError> {
        let spec = &self.model.spec.layers[index];
        let weights = &self.weights.layers[index];
        let normed = self.norm(streams, &weights.attn_norm);
        show.rows(Point::AttnNorm, &normed);
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
        let turns: Vec<Vec<(f64, f64)>> = (self.position..)
            .take(streams.len())
            .map(|position| math::turns(&self.model.spec.ropes[spec.rope], self.n_ctx, position))
            .collect();
        self.prepare_heads(spec, &weights.q_norm, &turns, &mut queries);
        self.prepare_heads(spec, &weights.k_norm, &turns, &mut keys);
        show.rows(Point::Query, &queries);
        show.rows(Point::Key, &keys);
        show.rows(Point::Value, &values);
        self.caches[index].keys.append(&mut keys);
        self.caches[index].values.append(&mut values);

        let mixed = self.mix(spec, &self.caches[index], &queries)?;
        show.rows(Point::Attended, &mixed);
        let weights = &self.weights.layers[index];
        let out = weights.wo.times(&mixed, self.threads)?;
        Ok(self.optional_norm(out, &weights.post_attn_norm))
    }

    /// Norms (if the layer does) every head of queries or keys and rotates it by the turns of its
    /// position.
    fn prepare_heads(
        &self,
        spec: &LayerSpec,
        norm: &Option<Vec<f64>>,
        turns: &[Vec<(f64, f64)>],
        rows: &mut Rows,
    ) {
        let kind = self.model.spec.ropes[spec.rope].kind;
        for (row, turns) in rows.iter_mut().zip(turns) {
            for head in row.chunks_exact_mut(spec.head_dim_k) {
                if let Some(weight) = norm {
                    head.copy_from_slice(&math::rms_norm(head, weight, self.eps()));
                }
                math::rotate(kind, turns, head);
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
    fn feed_forward(
        &self,
        index: usize,
        streams: &Rows,
        show: &mut Show<'_>,
    ) -> Result<Rows, OracleError> {
        let spec = &self.model.spec.layers[index];
        let weights: &LayerWeights = &self.weights.layers[index];
        let normed = self.norm(streams, &weights.ffn_norm);
        show.rows(Point::FfnNorm, &normed);
        let gate = weights.w_gate.times(&normed, self.threads)?;
        let up = weights.w_up.times(&normed, self.threads)?;
        let hidden = map_ranges(self.threads, gate.len(), |range| {
            let gated = |i: usize| {
                let pairs = gate[i].iter().zip(&up[i]);
                let gated = pairs.map(|(gate, up)| math::activate(spec.activation, *gate) * up);
                gated.collect()
            };
            range.map(gated).collect()
        })?;
        show.rows(Point::FfnHidden, &hidden);
        let out = weights.w_down.times(&hidden, self.threads)?;
        show.rows(Point::FfnOut, &out);
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
