//! The forward pass: a batch of tokens through the layers, and the logits after the last.
//!
//! Positions of a batch never mix: each has its own stream and sees the cache up to itself, so how
//! tokens are split into batches changes nothing.

use emel::model::{FeedForwardForm, LayerSpec, Model, ModelSpec, Point};

use crate::defect::Defect;
use crate::error::PlainError;
use crate::math::{self, Dot};
use crate::parallel::fill;
use crate::rows::Rows;
use crate::weights::Weights;

/// Hears the tensors of a pass's last token: the layer, if it belongs to one, the point, the values.
pub type Show<'a> = dyn FnMut(Option<usize>, Point, &[f32]) + 'a;

/// A model with its cache.
pub struct Transformer {
    spec: ModelSpec,
    weights: Weights,
    /// The layer whose products are summed in f16, which is a defect.
    f16_layer: Option<usize>,
    caches: Vec<LayerCache>,
    position: usize,
    n_ctx: usize,
    n_ubatch: usize,
}

/// Keys, rotated, and values of one layer: a row a position.
struct LayerCache {
    keys: Rows,
    values: Rows,
}

impl Transformer {
    /// A model with an empty context of `n_ctx` tokens, `n_ubatch` of which pass at once.
    pub fn new(
        model: Model,
        weights: Weights,
        defect: Option<&Defect>,
        n_ctx: usize,
        n_ubatch: usize,
    ) -> Self {
        let mut spec = model.spec;
        if defect == Some(&Defect::RopeBase) {
            spec.ropes.iter_mut().for_each(|rope| rope.base /= 10.0);
        }
        let caches = spec.layers.iter().map(|layer| LayerCache {
            keys: Rows::new(layer.k_dim()),
            values: Rows::new(layer.v_dim()),
        });
        Transformer {
            caches: caches.collect(),
            weights,
            f16_layer: match defect {
                Some(&Defect::F16Accumulation(layer)) => Some(layer),
                _ => None,
            },
            spec,
            position: 0,
            n_ctx,
            n_ubatch,
        }
    }

    /// Logits in a row.
    pub fn n_vocab(&self) -> usize {
        self.spec.n_vocab
    }

    /// Positions that are free.
    pub fn room(&self) -> usize {
        self.n_ctx - self.position
    }

    /// Empties the context.
    pub fn reset(&mut self) {
        self.position = 0;
        for cache in &mut self.caches {
            cache.keys.clear();
            cache.values.clear();
        }
    }

    /// Whether tokens can pass.
    pub fn check(&self, ids: &[u32]) -> Result<(), PlainError> {
        let (room, n_ctx, n_vocab) = (self.room(), self.n_ctx, self.spec.n_vocab);
        if ids.len() > room {
            let tokens = ids.len();
            return Err(PlainError::ContextFull {
                tokens,
                room,
                n_ctx,
            });
        }
        match ids.iter().find(|id| **id as usize >= n_vocab) {
            Some(&id) => Err(PlainError::ForeignToken { id, n_vocab }),
            None => Ok(()),
        }
    }

    /// Adds tokens, of which there is at least one and which were checked, and gives the logits
    /// after the last, `[n_vocab]`. After an error the context is empty.
    pub fn pass(
        &mut self,
        ids: &[u32],
        threads: usize,
        show: &mut Show<'_>,
    ) -> Result<Vec<f32>, PlainError> {
        let logits = self.batches(ids, threads, show);
        if logits.is_err() {
            self.reset();
        }
        logits
    }

    fn batches(
        &mut self,
        ids: &[u32],
        threads: usize,
        show: &mut Show<'_>,
    ) -> Result<Vec<f32>, PlainError> {
        let (before, last) = ids.split_at((ids.len() - 1) / self.n_ubatch * self.n_ubatch);
        for batch in before.chunks(self.n_ubatch) {
            self.layers(batch, threads, &mut |_, _, _| ())?;
        }
        let streams = self.layers(last, threads, show)?;
        self.logits(streams.last(), threads, show)
    }

    /// The residual streams after the last layer.
    fn layers(
        &mut self,
        ids: &[u32],
        threads: usize,
        show: &mut Show<'_>,
    ) -> Result<Rows, PlainError> {
        let mut streams = self.embed(ids);
        show(None, Point::Embedding, streams.last());
        for layer in 0..self.spec.layers.len() {
            let attention = self.attention(layer, &streams, threads, show)?;
            streams.add(&attention);
            show(Some(layer), Point::AttnResidual, streams.last());
            let feed_forward = self.feed_forward(layer, &streams, threads, show)?;
            streams.add(&feed_forward);
            show(Some(layer), Point::LayerOut, streams.last());
        }
        self.position += ids.len();
        Ok(streams)
    }

    fn embed(&self, ids: &[u32]) -> Rows {
        let mut streams = Rows::new(self.spec.d_model);
        for &id in ids {
            streams.push(self.weights.token_embd.row(id as usize));
        }
        if let Some(scale) = self.spec.embedding_scale {
            streams.values_mut().iter_mut().for_each(|v| *v *= scale);
        }
        streams
    }

    fn logits(
        &self,
        stream: &[f32],
        threads: usize,
        show: &mut Show<'_>,
    ) -> Result<Vec<f32>, PlainError> {
        let mut normed = Rows::new(self.spec.d_model);
        normed.push(stream);
        self.norm(&mut normed, &self.weights.output_norm);
        show(None, Point::OutputNorm, normed.last());
        let logits = self.weights.output().times(&normed, math::dot, threads)?;
        let finish = |logit: &f32| {
            let logit = self.spec.logit_scale.map_or(*logit, |scale| logit * scale);
            let cap = self.spec.logit_softcap;
            cap.map_or(logit, |cap| math::softcap(logit, cap))
        };
        Ok(logits.last().iter().map(finish).collect())
    }

    /// What attention adds to each stream; the positions' keys and values join the cache.
    fn attention(
        &mut self,
        index: usize,
        streams: &Rows,
        threads: usize,
        show: &mut Show<'_>,
    ) -> Result<Rows, PlainError> {
        let (weights, dot) = (&self.weights.layers[index], self.dot(index));
        let mut normed = streams.clone();
        self.norm(&mut normed, &weights.attn_norm);
        show(Some(index), Point::AttnNorm, normed.last());

        let mut queries = weights.wq.times(&normed, dot, threads)?;
        let mut keys = weights.wk.times(&normed, dot, threads)?;
        let mut values = weights.wv.times(&normed, dot, threads)?;
        for (rows, bias) in [
            (&mut queries, &weights.bq),
            (&mut keys, &weights.bk),
            (&mut values, &weights.bv),
        ] {
            if let Some(bias) = bias {
                rows.add_to_each(bias);
            }
        }
        self.prepare_heads(index, weights.q_norm.as_deref(), &mut queries);
        self.prepare_heads(index, weights.k_norm.as_deref(), &mut keys);
        show(Some(index), Point::Query, queries.last());
        show(Some(index), Point::Key, keys.last());
        show(Some(index), Point::Value, values.last());
        self.caches[index].keys.append(&keys);
        self.caches[index].values.append(&values);

        let mixed = self.mix(index, &queries, threads)?;
        show(Some(index), Point::Attended, mixed.last());
        let weights = &self.weights.layers[index];
        let mut out = weights.wo.times(&mixed, dot, threads)?;
        if let Some(weight) = &weights.post_attn_norm {
            self.norm(&mut out, weight);
        }
        Ok(out)
    }

    /// Norms (if the layer does) and rotates every head of queries or keys.
    fn prepare_heads(&self, index: usize, norm: Option<&[f32]>, rows: &mut Rows) {
        let spec = &self.spec.layers[index];
        let rope = &self.spec.ropes[spec.rope];
        for (i, row) in rows.iter_mut().enumerate() {
            let turns = math::turns(rope, self.n_ctx, self.position + i);
            for head in row.chunks_exact_mut(spec.head_dim_k) {
                if let Some(weight) = norm {
                    math::rms_norm(head, weight, self.spec.rms_eps);
                }
                math::rotate(rope.kind, &turns, head);
            }
        }
    }

    /// Attention proper, for every head of every query.
    fn mix(&self, index: usize, queries: &Rows, threads: usize) -> Result<Rows, PlainError> {
        let (spec, cache) = (&self.spec.layers[index], &self.caches[index]);
        let mut mixed = Rows::zeros(queries.len(), spec.o_dim());
        let cost = cache.keys.len() * (spec.head_dim_k + spec.head_dim_v);
        let out = mixed.values_mut();
        fill(threads, out, spec.head_dim_v, cost, |i, out| {
            let (row, head) = (i / spec.n_head, i % spec.n_head);
            let query = &queries.row(row)[head * spec.head_dim_k..][..spec.head_dim_k];
            attend(spec, cache, self.position + row, head, query, out);
        })?;
        Ok(mixed)
    }

    /// What the feed-forward network adds to each stream.
    fn feed_forward(
        &self,
        index: usize,
        streams: &Rows,
        threads: usize,
        show: &mut Show<'_>,
    ) -> Result<Rows, PlainError> {
        let (weights, dot) = (&self.weights.layers[index], self.dot(index));
        let spec = &self.spec.layers[index];
        let mut normed = streams.clone();
        self.norm(&mut normed, &weights.ffn_norm);
        show(Some(index), Point::FfnNorm, normed.last());
        let mut out = match spec.feed_forward {
            FeedForwardForm::Dense => {
                let mut hidden = weights.w_gate.times(&normed, dot, threads)?;
                let up = weights.w_up.times(&normed, dot, threads)?;
                for (hidden, up) in hidden.iter_mut().zip(up.iter()) {
                    for (gate, up) in hidden.iter_mut().zip(up) {
                        *gate = math::activate(spec.activation, *gate) * up;
                    }
                }
                show(Some(index), Point::FfnHidden, hidden.last());
                weights.w_down.times(&hidden, dot, threads)?
            }
        };
        show(Some(index), Point::FfnOut, out.last());
        if let Some(weight) = &weights.post_ffn_norm {
            self.norm(&mut out, weight);
        }
        Ok(out)
    }

    /// How a layer's matrix products are summed.
    fn dot(&self, layer: usize) -> Dot {
        match self.f16_layer {
            Some(defective) if defective == layer => math::dot_f16,
            _ => math::dot,
        }
    }

    fn norm(&self, rows: &mut Rows, weight: &[f32]) {
        rows.iter_mut()
            .for_each(|row| math::rms_norm(row, weight, self.spec.rms_eps));
    }
}

/// One query head at `position`: the average of the values it sees, weighted by the softmax of its
/// products with their keys. The layer's window says how far back it sees.
fn attend(
    spec: &LayerSpec,
    cache: &LayerCache,
    position: usize,
    head: usize,
    query: &[f32],
    out: &mut [f32],
) {
    let kv_head = head / spec.heads_per_kv();
    let first = spec
        .window
        .map_or(0, |window| (position + 1).saturating_sub(window));
    let seen = first..position + 1;
    let score = |place: usize| {
        let key = &cache.keys.row(place)[kv_head * spec.head_dim_k..][..spec.head_dim_k];
        let score = math::dot(query, key) * spec.attention_scale;
        let cap = spec.attention_softcap;
        cap.map_or(score, |cap| math::softcap(score, cap))
    };
    let mut shares: Vec<f32> = seen.clone().map(score).collect();
    math::softmax(&mut shares);
    for (share, place) in shares.iter().zip(seen) {
        let value = &cache.values.row(place)[kv_head * spec.head_dim_v..][..spec.head_dim_v];
        for (out, value) in out.iter_mut().zip(value) {
            *out += share * value;
        }
    }
}
