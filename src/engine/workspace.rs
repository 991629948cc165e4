//! The buffers of a pass, allocated once for the largest batch.

use super::counters::ProductCounts;
use super::error::EngineError;
use super::matmul::Buffers;
use crate::model::{LayerSpec, ModelSpec};
use emel_kernels::{
    Activations, AllocError, AttentionShape, AttentionWorkspace, HugeBuffer, Scratch,
};

/// Intermediate values, each `[n_ubatch, width]` of the widest layer.
pub(super) struct Workspace {
    /// The residual stream, rows of `d_model`.
    pub x: HugeBuffer<f32>,
    /// Normed rows of it.
    pub normed: HugeBuffer<f32>,
    /// Queries.
    pub q: HugeBuffer<f32>,
    /// Keys.
    pub k: HugeBuffer<f32>,
    /// Values.
    pub v: HugeBuffer<f32>,
    /// What attention yields.
    pub attended: HugeBuffer<f32>,
    /// What goes back to the residual stream, rows of `d_model`.
    pub projected: HugeBuffer<f32>,
    /// The feed-forward gate.
    pub gate: HugeBuffer<f32>,
    /// The feed-forward's other half.
    pub up: HugeBuffer<f32>,
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
        let rows = |width: usize| HugeBuffer::zeroed(n_ubatch * width);
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
            Ok(Self {
                x: rows(spec.d_model)?,
                normed: rows(spec.d_model)?,
                q: rows(widest(LayerSpec::q_dim))?,
                k: rows(widest(LayerSpec::k_dim))?,
                v: rows(widest(LayerSpec::v_dim))?,
                attended: rows(widest(LayerSpec::o_dim))?,
                projected: rows(spec.d_model)?,
                gate: rows(widest(|layer| layer.d_ff))?,
                up: rows(widest(|layer| layer.d_ff))?,
                logits: HugeBuffer::zeroed(n_logits * spec.n_vocab)?,
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
