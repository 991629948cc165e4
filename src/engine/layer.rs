//! The layer machine: one transformer layer over one batch of tokens.
//!
//! The rows choose what a layer's record asks for: biases, head norms, how attention is shared
//! between lanes, post norms, the activation. Between `idle` and `done` the residual stream `x`
//! gains the attention output (`mixed`) and the feed-forward output (`done`).

use super::Engine;
use super::error::EngineError;
use super::forward::Tile;
use super::fork::Forker;
use super::matmul;
use crate::model::{Activation, AttentionForm, LayerSpec};
use emel_kernels::{
    AddBiasJob, AddJob, AddRmsNormJob, AttentionJob, AttentionMergeJob, AttentionSplitJob, GluJob,
    HeadNormJob, PostNormJob, PostNormThenNormJob, RmsNormJob, RopeJob, StoreKvJob,
};
use sml::sml;
use std::marker::PhantomData;

/// Runs the layer that the context names.
#[derive(Debug, Clone, Copy)]
pub struct Run;

sml! {
    Layer {
        *"idle"_s + event<Run> / norm_input = "normalized"_s,
        "idle"_s + exception<_> = "failed"_s,
        "idle"_s + unexpected_event<_> / ignore,

        "normalized"_s + completion<_>
            / (project_qkv, eval [biased] / add_biases, eval [head_normed] / norm_heads,
               rotate, store_kv) = "projected"_s,
        "normalized"_s + exception<_> = "failed"_s,
        "normalized"_s + unexpected_event<_> / ignore,

        "projected"_s + completion<_> [split_pays] / (attend_split, merge_split) = "attended"_s,
        "projected"_s + completion<_> [!split_pays] / attend_tiles = "attended"_s,
        "projected"_s + exception<_> = "failed"_s,
        "projected"_s + unexpected_event<_> / ignore,

        "attended"_s + completion<_> [post_normed] / (project_attention, join_attention_post_normed)
            = "mixed"_s,
        "attended"_s + completion<_> [!post_normed] / (project_attention, join_attention)
            = "mixed"_s,
        "attended"_s + exception<_> = "failed"_s,
        "attended"_s + unexpected_event<_> / ignore,

        "mixed"_s + completion<_> [silu] / (expand, gate_silu, contract) = "contracted"_s,
        "mixed"_s + completion<_> [gelu] / (expand, gate_gelu, contract) = "contracted"_s,
        "mixed"_s + exception<_> = "failed"_s,
        "mixed"_s + unexpected_event<_> / ignore,

        "contracted"_s + completion<_> [post_normed] / join_feed_forward_post_normed = "done"_s,
        "contracted"_s + completion<_> [!post_normed] / join_feed_forward = "done"_s,
        "contracted"_s + exception<_> = "failed"_s,
        "contracted"_s + unexpected_event<_> / ignore,

        "done"_s + unexpected_event<_> / ignore,
        "failed"_s + unexpected_event<_> / ignore,
    }
}

struct Context<'a, T> {
    engine: &'a mut Engine,
    layer: usize,
    n_tokens: usize,
    pool: usize,
    failure: &'a mut Option<EngineError>,
    tile: PhantomData<T>,
}

/// Borrows the engine apart: what every job of a layer reads, and the lanes it runs on.
macro_rules! parts {
    ($context:ident => $spec:ident, $weights:ident, $work:ident, $forker:ident) => {
        let engine = &mut *$context.engine;
        #[allow(unused_variables)]
        let $spec = &engine.spec.layers[$context.layer];
        #[allow(unused_variables)]
        let $weights = &engine.weights.layers[$context.layer];
        let $work = &mut engine.workspace;
        #[allow(unused_mut)]
        let mut $forker = Forker {
            lanes: &mut engine.pools.lanes[$context.pool],
            min_work: engine.execution.fork_min_work,
        };
    };
}

impl<T: Tile> Context<'_, T> {
    fn spec(&self) -> &LayerSpec {
        &self.engine.spec.layers[self.layer]
    }

    /// Keeps an error for the caller and raises the machine's exception.
    fn check(&mut self, result: Result<(), EngineError>) -> Result<(), ()> {
        result.map_err(|error| *self.failure = Some(error))
    }
}

impl<T: Tile> LayerStateMachineContext for Context<'_, T> {
    fn biased(&self) -> Result<bool, ()> {
        Ok(self.spec().qkv_bias)
    }

    fn head_normed(&self) -> Result<bool, ()> {
        Ok(self.spec().attention == AttentionForm::QkNorm)
    }

    fn post_normed(&self) -> Result<bool, ()> {
        Ok(self.spec().post_norms)
    }

    fn silu(&self) -> Result<bool, ()> {
        Ok(self.spec().activation == Activation::Silu)
    }

    fn gelu(&self) -> Result<bool, ()> {
        Ok(self.spec().activation == Activation::Gelu)
    }

    /// One token has too few heads to keep every lane busy on a long context: blocks of positions
    /// are shared out then, and merged.
    fn split_pays(&self) -> Result<bool, ()> {
        let lanes = self.engine.pools.lanes[self.pool].count();
        let depth = self.engine.memory.n_past() + self.n_tokens;
        Ok(self.n_tokens == 1 && lanes > 1 && depth > self.engine.execution.split_min_depth)
    }

    fn norm_input(&mut self, _: &Run) -> Result<(), ()> {
        let n = self.n_tokens * self.engine.spec.d_model;
        let (kernels, eps) = (self.engine.kernels, self.engine.spec.rms_eps);
        parts!(self => spec, weights, work, forker);
        let (x, out) = (&work.x[..n], &mut work.normed[..n]);
        let result = forker.run(&mut RmsNormJob::new(kernels, x, &weights.attn_norm, eps, out), n);
        self.check(result)
    }

    fn project_qkv(&mut self) -> Result<(), ()> {
        let n_tokens = self.n_tokens;
        let d_model = self.engine.spec.d_model;
        parts!(self => spec, weights, work, forker);
        let result = matmul::multiply::<T>(
            &mut forker,
            &weights.qkv_kinds,
            &mut work.activations,
            &mut work.scratch,
            &work.normed[..n_tokens * d_model],
            n_tokens,
            [
                (&weights.wq, &mut work.q[..n_tokens * spec.q_dim()]),
                (&weights.wk, &mut work.k[..n_tokens * spec.k_dim()]),
                (&weights.wv, &mut work.v[..n_tokens * spec.v_dim()]),
            ],
        );
        self.check(result)
    }

    fn add_biases(&mut self) -> Result<(), ()> {
        let n_tokens = self.n_tokens;
        let kernels = self.engine.kernels;
        parts!(self => spec, weights, work, forker);
        let rows = [
            (&mut work.q[..n_tokens * spec.q_dim()], &weights.bq),
            (&mut work.k[..n_tokens * spec.k_dim()], &weights.bk),
            (&mut work.v[..n_tokens * spec.v_dim()], &weights.bv),
        ];
        let result = rows.into_iter().try_for_each(|(rows, bias)| {
            let work = rows.len();
            forker.run(&mut AddBiasJob::new(kernels, rows, bias), work)
        });
        self.check(result)
    }

    fn norm_heads(&mut self) -> Result<(), ()> {
        let n_tokens = self.n_tokens;
        let (kernels, eps) = (self.engine.kernels, self.engine.spec.rms_eps);
        parts!(self => spec, weights, work, forker);
        let rows = [
            (&mut work.q[..n_tokens * spec.q_dim()], &weights.q_norm),
            (&mut work.k[..n_tokens * spec.k_dim()], &weights.k_norm),
        ];
        let result = rows.into_iter().try_for_each(|(rows, weight)| {
            let work = rows.len();
            forker.run(&mut HeadNormJob::new(kernels, rows, weight, eps), work)
        });
        self.check(result)
    }

    fn rotate(&mut self) -> Result<(), ()> {
        let n_tokens = self.n_tokens;
        let kernels = self.engine.kernels;
        let pos0 = self.engine.memory.n_past();
        let table = &self.engine.ropes[self.spec().rope];
        let engine = &mut *self.engine;
        let spec = &engine.spec.layers[self.layer];
        let mut forker = Forker {
            lanes: &mut engine.pools.lanes[self.pool],
            min_work: engine.execution.fork_min_work,
        };
        let _ = table;
        let table = &engine.ropes[spec.rope];
        let rows = [
            (&mut engine.workspace.q[..n_tokens * spec.q_dim()], spec.n_head),
            (&mut engine.workspace.k[..n_tokens * spec.k_dim()], spec.n_head_kv),
        ];
        let result = rows.into_iter().try_for_each(|(rows, heads)| {
            let work = rows.len();
            let mut job = RopeJob::new(kernels, table, pos0, rows, heads, spec.head_dim_k);
            forker.run(&mut job, work)
        });
        self.check(result)
    }
}
