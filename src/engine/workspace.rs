//! The buffers of a pass, allocated once for the largest batch.

use super::counters::ProductCounts;
use super::error::EngineError;
use super::matmul::Buffers;
use crate::model::{LayerSpec, ModelSpec};
use emel_kernels::{
    Activations, AllocError, Arena, AttentionShape, AttentionWorkspace, HugeBuffer, Scratch,
};

/// Values in a cache line, at which each part of an [`Overlay`] begins.
const LINE: usize = 16;

/// One buffer for two uses: a layer has done with its attention's rows before its feed-forward's
/// come to be, and the other way round. Whoever asks for one kind gives up what stands in the other.
pub(super) struct Overlay {
    values: HugeBuffer<f32>,
}

/// A batch's rows in attention.
pub(super) struct AttentionRows<'a> {
    /// Queries, `[tokens, q_dim]`.
    pub q: &'a mut [f32],
    /// Keys, `[tokens, k_dim]`.
    pub k: &'a mut [f32],
    /// Values, `[tokens, v_dim]`.
    pub v: &'a mut [f32],
    /// What attention yields, `[tokens, o_dim]`.
    pub attended: &'a mut [f32],
}

/// A batch's rows in the feed-forward.
pub(super) struct FeedForwardRows<'a> {
    /// The gate, `[tokens, d_ff]`, and then its product with the other half.
    pub gate: &'a mut [f32],
    /// The other half, `[tokens, d_ff]`.
    pub up: &'a mut [f32],
}

/// Widths of [`AttentionRows`], in order.
fn attention_widths(layer: &LayerSpec) -> [usize; 4] {
    [layer.q_dim(), layer.k_dim(), layer.v_dim(), layer.o_dim()]
}

/// Widths of [`FeedForwardRows`], in order.
fn feed_forward_widths(layer: &LayerSpec) -> [usize; 2] {
    [layer.d_ff; 2]
}

/// How many values `n_tokens` rows of these widths take, each part of whole cache lines.
fn lines_of(n_tokens: usize, widths: &[usize]) -> usize {
    let part = |width: &usize| (n_tokens * width).next_multiple_of(LINE);
    widths.iter().map(part).sum()
}

impl Overlay {
    /// How many values are enough for batches of up to `n_ubatch` tokens in any of the layers.
    fn len(layers: &[LayerSpec], n_ubatch: usize) -> usize {
        let len = |layer: &LayerSpec| {
            let attention = lines_of(n_ubatch, &attention_widths(layer));
            attention.max(lines_of(n_ubatch, &feed_forward_widths(layer)))
        };
        layers.iter().map(len).max().unwrap_or_default()
    }

    /// The rows of `n_tokens` tokens, side by side.
    fn parts<const N: usize>(&mut self, n_tokens: usize, widths: [usize; N]) -> [&mut [f32]; N] {
        let mut rest = &mut self.values[..];
        widths.map(|width| {
            let len = n_tokens * width;
            let (part, after) = std::mem::take(&mut rest).split_at_mut(len.next_multiple_of(LINE));
            rest = after;
            &mut part[..len]
        })
    }

    /// The rows of `n_tokens` tokens in `layer`'s attention.
    pub fn attention(&mut self, n_tokens: usize, layer: &LayerSpec) -> AttentionRows<'_> {
        let [q, k, v, attended] = self.parts(n_tokens, attention_widths(layer));
        AttentionRows { q, k, v, attended }
    }

    /// The rows of `n_tokens` tokens in `layer`'s feed-forward.
    pub fn feed_forward(&mut self, n_tokens: usize, layer: &LayerSpec) -> FeedForwardRows<'_> {
        let [gate, up] = self.parts(n_tokens, feed_forward_widths(layer));
        FeedForwardRows { gate, up }
    }
}

/// Intermediate values, each `[n_ubatch, width]` of the widest layer. They lie side by side, or
/// every one of them would end in a huge page of which it needs a part.
pub(super) struct Workspace {
    /// The residual stream, rows of `d_model`.
    pub x: HugeBuffer<f32>,
    /// Normed rows of it.
    pub normed: HugeBuffer<f32>,
    /// What attention and the feed-forward compute on the way, one after the other.
    pub overlay: Overlay,
    /// What goes back to the residual stream, rows of `d_model`.
    pub projected: HugeBuffer<f32>,
    /// The logits of one token, or of each that a pass verifies, `[n_logits, n_vocab]`.
    pub logits: HugeBuffer<f32>,
    /// What products work in.
    pub buffers: Buffers,
    /// The lanes' working memory for attention.
    pub attention: AttentionWorkspace,
}

impl Workspace {
    /// Buffers for batches of up to `n_ubatch` tokens, `n_logits` of which have logits at once,
    /// `n_ctx` cached positions and `lanes` lanes.
    ///
    /// # Errors
    /// [`EngineError::Memory`] when there is not enough memory.
    pub fn new(
        spec: &ModelSpec,
        n_ubatch: usize,
        n_logits: usize,
        n_ctx: usize,
        lanes: usize,
    ) -> Result<Self, EngineError> {
        let widest = |width: fn(&LayerSpec) -> usize| {
            spec.layers.iter().map(width).max().unwrap_or_default()
        };
        let n_residual = n_ubatch * spec.d_model;
        let n_overlay = Overlay::len(&spec.layers, n_ubatch);
        let n_logits = n_logits * spec.n_vocab;
        let bytes = [n_residual, n_residual, n_residual, n_overlay, n_logits]
            .map(|n_values| Arena::takes(n_values.saturating_mul(size_of::<f32>())))
            .into_iter()
            .fold(0, usize::saturating_add);
        let max_k = spec
            .d_model
            .max(widest(LayerSpec::o_dim))
            .max(widest(|layer| layer.d_ff));
        let shape = AttentionShape {
            lanes,
            n_head: widest(|layer| layer.n_head),
            head_dim_k: widest(|layer| layer.head_dim_k),
            head_dim_v: widest(|layer| layer.head_dim_v),
            n_ctx,
        };
        let buffers = || -> Result<Self, AllocError> {
            let mut arena = Arena::new(bytes)?;
            Ok(Self {
                x: arena.zeroed(n_residual)?,
                normed: arena.zeroed(n_residual)?,
                projected: arena.zeroed(n_residual)?,
                overlay: Overlay {
                    values: arena.zeroed(n_overlay)?,
                },
                logits: arena.zeroed(n_logits)?,
                buffers: Buffers {
                    activations: Activations::new(n_ubatch, max_k)?,
                    scratch: Scratch::new(lanes, n_ubatch)?,
                    counts: ProductCounts::default(),
                },
                attention: AttentionWorkspace::allocate(shape)?,
            })
        };
        buffers().map_err(|source| EngineError::Memory {
            what: "the buffers of a batch",
            source,
            cure: "choose a smaller physical batch (-ub) or context (-c)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_any_batch_fit_and_begin_on_cache_lines() {
        let (n_ubatch, widths) = (9, [1, 16, 7, 0, 33]);
        let mut overlay = Overlay {
            values: HugeBuffer::zeroed(lines_of(n_ubatch, &widths)).expect("memory"),
        };
        for n_tokens in 1..=n_ubatch {
            let parts = overlay.parts(n_tokens, widths);
            for (part, width) in parts.iter().zip(widths) {
                assert_eq!(part.len(), n_tokens * width);
                assert!(part.as_ptr().addr().is_multiple_of(64));
            }
        }
    }
}
