//! The layer machine: one transformer layer over one batch of tokens.
//!
//! The rows choose what a layer's record asks for: biases, head norms, how attention is shared
//! between lanes, post norms, the activation. Between `idle` and `done` the residual stream `x`
//! gains the attention output (`mixed`) and the feed-forward output (`done`). On the way the
//! engine's observer sees every [`Point`].

use super::Engine;
use super::error::{EngineError, finish};
use super::fork::Forker;
use super::forward::Pass;
use super::matmul;
use super::observer::{Observer, Tensor};
use super::weights::LayerWeights;
use super::workspace::{AttentionRows, FeedForwardRows, Workspace};
use crate::model::{Activation, AttentionForm, LayerSpec, Point};
use emel_kernels::{
    AddBiasJob, AddJob, AddRmsNormJob, AttentionInput, AttentionJob, AttentionMergeJob,
    AttentionSplitJob, GluJob, HeadNormJob, Kernels, LayerCache, PostNormJob, PostNormThenNormJob,
    RmsNormJob, RopeJob, RopeTable, StoreKvJob,
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

        "projected"_s + completion<_> [split_pays] / (attend_blocks, merge_blocks) = "attended"_s,
        "projected"_s + completion<_> [!split_pays] / attend_tokens = "attended"_s,
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

struct Context<'a, P> {
    engine: &'a mut Engine,
    layer: usize,
    n_tokens: usize,
    pool: usize,
    failure: &'a mut Option<EngineError>,
    pass: PhantomData<P>,
}

/// The engine borrowed apart, for one action.
struct Parts<'a> {
    kernels: Kernels,
    eps: f32,
    pos0: usize,
    n_tokens: usize,
    show: Show<'a>,
    spec: &'a LayerSpec,
    weights: &'a LayerWeights,
    rope: &'a RopeTable,
    cache: &'a mut LayerCache,
    work: &'a mut Workspace,
    forker: Forker<'a>,
}

impl Parts<'_> {
    /// Elements of the residual stream's rows.
    fn n_residual(&self) -> usize {
        self.n_tokens * self.weights.attn_norm.len()
    }
}

/// Shows rows of the batch to the engine's observer.
struct Show<'a> {
    observer: &'a dyn Observer,
    layer: usize,
    position: usize,
    rows: usize,
}

impl Show<'_> {
    /// Shows the batch's rows at `point`.
    fn at(&self, point: Point, values: &[f32]) {
        self.observer.tensor(Tensor {
            layer: Some(self.layer),
            point,
            position: self.position,
            rows: self.rows,
            values,
        });
    }
}

impl<P: Pass> Context<'_, P> {
    fn spec(&self) -> &LayerSpec {
        &self.engine.spec.layers[self.layer]
    }

    fn parts(&mut self) -> Parts<'_> {
        let engine = &mut *self.engine;
        let spec = &engine.spec.layers[self.layer];
        let pos0 = engine.memory.n_past();
        Parts {
            kernels: engine.kernels,
            eps: engine.spec.rms_eps,
            pos0,
            n_tokens: self.n_tokens,
            show: Show {
                observer: &*engine.observer,
                layer: self.layer,
                position: pos0,
                rows: self.n_tokens,
            },
            spec,
            weights: &engine.weights.layers[self.layer],
            rope: &engine.ropes[spec.rope],
            cache: &mut engine.memory.layers[self.layer],
            work: &mut engine.workspace,
            forker: engine.pools.forker(self.pool, &engine.execution),
        }
    }

    /// Runs `action` on the borrowed parts; an error is kept for the caller and raises the
    /// machine's exception.
    fn act(&mut self, action: impl FnOnce(Parts<'_>) -> Result<(), EngineError>) -> Result<(), ()> {
        action(self.parts()).map_err(|error| *self.failure = Some(error))
    }
}

/// Multiply-adds of attention: every query head against every position it may see, for scores
/// and for values.
fn attention_work(spec: &LayerSpec, n_tokens: usize, pos0: usize) -> usize {
    let depth = spec.window.unwrap_or(usize::MAX).min(pos0 + n_tokens);
    n_tokens * depth * spec.n_head * (spec.head_dim_k + spec.head_dim_v)
}

/// What attention reads.
fn attention_input<'a>(
    spec: &LayerSpec,
    q: &'a [f32],
    cache: &'a LayerCache,
    pos0: usize,
) -> AttentionInput<'a> {
    AttentionInput {
        q,
        cache,
        pos0,
        n_head: spec.n_head,
        scale: spec.attention_scale,
        window: spec.window,
        softcap: spec.attention_softcap,
    }
}

impl<P: Pass> LayerStateMachineContext for Context<'_, P> {
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

    /// One token has too few heads to keep every lane busy over a long context: its blocks of
    /// positions are shared out then, and merged.
    fn split_pays(&self) -> Result<bool, ()> {
        let lanes = self.engine.pools.lanes[self.pool].count();
        let depth = self.engine.memory.n_past() + self.n_tokens;
        Ok(self.n_tokens == 1 && lanes > 1 && depth >= self.engine.execution.split_min_depth)
    }

    fn norm_input(&mut self, _: &Run) -> Result<(), ()> {
        self.act(|mut parts| {
            let n = parts.n_residual();
            let (x, out) = (&parts.work.x[..n], &mut parts.work.normed[..n]);
            let norm = &parts.weights.attn_norm;
            parts.forker.run(
                &mut RmsNormJob::new(parts.kernels, x, norm, parts.eps, out),
                n,
            )?;
            parts.show.at(Point::AttnNorm, &parts.work.normed[..n]);
            Ok(())
        })
    }

    fn project_qkv(&mut self) -> Result<(), ()> {
        self.act(|mut parts| {
            let (n, spec, weights) = (parts.n_tokens, parts.spec, parts.weights);
            let n_residual = parts.n_residual();
            let work = &mut *parts.work;
            let AttentionRows { q, k, v, .. } = work.overlay.attention(n, spec);
            matmul::multiply::<P::Tile, 3>(
                parts.kernels,
                &mut parts.forker,
                &mut work.buffers,
                &work.normed[..n_residual],
                n,
                [(&weights.wq, q), (&weights.wk, k), (&weights.wv, v)],
            )
        })
    }

    fn add_biases(&mut self) -> Result<(), ()> {
        self.act(|mut parts| {
            let (n, spec, weights) = (parts.n_tokens, parts.spec, parts.weights);
            let AttentionRows { q, k, v, .. } = parts.work.overlay.attention(n, spec);
            let rows = [(q, &weights.bq), (k, &weights.bk), (v, &weights.bv)];
            rows.into_iter().try_for_each(|(rows, bias)| {
                let work = rows.len();
                parts
                    .forker
                    .run(&mut AddBiasJob::new(parts.kernels, rows, bias), work)
            })
        })
    }

    fn norm_heads(&mut self) -> Result<(), ()> {
        self.act(|mut parts| {
            let (n, spec, weights) = (parts.n_tokens, parts.spec, parts.weights);
            let AttentionRows { q, k, .. } = parts.work.overlay.attention(n, spec);
            let rows = [(q, &weights.q_norm), (k, &weights.k_norm)];
            rows.into_iter().try_for_each(|(rows, norm)| {
                let work = rows.len();
                let mut job = HeadNormJob::new(parts.kernels, rows, norm, parts.eps);
                parts.forker.run(&mut job, work)
            })
        })
    }

    fn rotate(&mut self) -> Result<(), ()> {
        self.act(|mut parts| {
            let (n, spec) = (parts.n_tokens, parts.spec);
            let AttentionRows { q, k, .. } = parts.work.overlay.attention(n, spec);
            let rows = [(q, spec.n_head), (k, spec.n_head_kv)];
            rows.into_iter().try_for_each(|(rows, heads)| {
                let work = rows.len();
                let (rope, pos0, head_dim) = (parts.rope, parts.pos0, spec.head_dim_k);
                let mut job = RopeJob::new(parts.kernels, rope, pos0, rows, heads, head_dim);
                parts.forker.run(&mut job, work)
            })
        })
    }

    fn store_kv(&mut self) -> Result<(), ()> {
        self.act(|mut parts| {
            let (n, spec) = (parts.n_tokens, parts.spec);
            let AttentionRows { q, k, v, .. } = parts.work.overlay.attention(n, spec);
            parts.show.at(Point::Query, q);
            parts.show.at(Point::Key, k);
            parts.show.at(Point::Value, v);
            let mut job = StoreKvJob::new(parts.cache, parts.pos0, k, v);
            parts.forker.run(&mut job, k.len() + v.len())
        })
    }

    fn attend_tokens(&mut self) -> Result<(), ()> {
        self.act(|mut parts| {
            let (n, spec) = (parts.n_tokens, parts.spec);
            let work = &mut *parts.work;
            let AttentionRows {
                q, attended: out, ..
            } = work.overlay.attention(n, spec);
            let input = attention_input(spec, q, parts.cache, parts.pos0);
            let mut job =
                AttentionJob::<P::Reading>::new(parts.kernels, input, &mut work.attention, out);
            parts
                .forker
                .run(&mut job, attention_work(spec, n, parts.pos0))
        })
    }

    fn attend_blocks(&mut self) -> Result<(), ()> {
        self.act(|mut parts| {
            let (n, spec) = (parts.n_tokens, parts.spec);
            let work = &mut *parts.work;
            let AttentionRows { q, .. } = work.overlay.attention(n, spec);
            let input = attention_input(spec, q, parts.cache, parts.pos0);
            let mut job = AttentionSplitJob::new(parts.kernels, input, &mut work.attention);
            parts
                .forker
                .run(&mut job, attention_work(spec, n, parts.pos0))
        })
    }

    fn merge_blocks(&mut self) -> Result<(), ()> {
        self.act(|mut parts| {
            let (n, spec) = (parts.n_tokens, parts.spec);
            let work = &mut *parts.work;
            let AttentionRows {
                q, attended: out, ..
            } = work.overlay.attention(n, spec);
            let input = attention_input(spec, q, parts.cache, parts.pos0);
            let n_out = out.len();
            let mut job = AttentionMergeJob::new(parts.kernels, input, &mut work.attention, out);
            parts.forker.run(&mut job, n_out)
        })
    }

    fn project_attention(&mut self) -> Result<(), ()> {
        self.act(|mut parts| {
            let (n, spec, weights) = (parts.n_tokens, parts.spec, parts.weights);
            let n_residual = parts.n_residual();
            let work = &mut *parts.work;
            let AttentionRows { attended, .. } = work.overlay.attention(n, spec);
            parts.show.at(Point::Attended, attended);
            matmul::multiply::<P::Tile, 1>(
                parts.kernels,
                &mut parts.forker,
                &mut work.buffers,
                attended,
                n,
                [(&weights.wo, &mut work.projected[..n_residual])],
            )
        })
    }

    fn join_attention(&mut self) -> Result<(), ()> {
        self.act(|mut parts| {
            let n = parts.n_residual();
            let work = &mut *parts.work;
            let (x, y, out) = (
                &mut work.x[..n],
                &work.projected[..n],
                &mut work.normed[..n],
            );
            let norm = &parts.weights.ffn_norm;
            let mut job = AddRmsNormJob::new(parts.kernels, x, y, norm, parts.eps, out);
            parts.forker.run(&mut job, n)?;
            parts.show.at(Point::AttnResidual, &parts.work.x[..n]);
            parts.show.at(Point::FfnNorm, &parts.work.normed[..n]);
            Ok(())
        })
    }

    fn join_attention_post_normed(&mut self) -> Result<(), ()> {
        self.act(|mut parts| {
            let n = parts.n_residual();
            let work = &mut *parts.work;
            let (x, y, out) = (
                &mut work.x[..n],
                &work.projected[..n],
                &mut work.normed[..n],
            );
            let weights = parts.weights;
            let post = PostNormJob::new(parts.kernels, x, y, &weights.post_attn_norm, parts.eps);
            parts.forker.run(
                &mut PostNormThenNormJob::new(post, &weights.ffn_norm, out),
                n,
            )?;
            parts.show.at(Point::AttnResidual, &parts.work.x[..n]);
            parts.show.at(Point::FfnNorm, &parts.work.normed[..n]);
            Ok(())
        })
    }

    fn expand(&mut self) -> Result<(), ()> {
        self.act(|mut parts| {
            let (n, spec, weights) = (parts.n_tokens, parts.spec, parts.weights);
            let n_residual = parts.n_residual();
            let work = &mut *parts.work;
            let FeedForwardRows { gate, up } = work.overlay.feed_forward(n, spec);
            matmul::multiply::<P::Tile, 2>(
                parts.kernels,
                &mut parts.forker,
                &mut work.buffers,
                &work.normed[..n_residual],
                n,
                [(&weights.w_gate, gate), (&weights.w_up, up)],
            )
        })
    }

    fn gate_silu(&mut self) -> Result<(), ()> {
        self.act(|mut parts| {
            let FeedForwardRows { gate, up } =
                parts.work.overlay.feed_forward(parts.n_tokens, parts.spec);
            let n = gate.len();
            parts
                .forker
                .run(&mut GluJob::silu(parts.kernels, gate, up), GATE_WORK * n)
        })
    }

    fn gate_gelu(&mut self) -> Result<(), ()> {
        self.act(|mut parts| {
            let FeedForwardRows { gate, up } =
                parts.work.overlay.feed_forward(parts.n_tokens, parts.spec);
            let n = gate.len();
            parts
                .forker
                .run(&mut GluJob::gelu(parts.kernels, gate, up), GATE_WORK * n)
        })
    }

    fn contract(&mut self) -> Result<(), ()> {
        self.act(|mut parts| {
            let (n, spec, weights) = (parts.n_tokens, parts.spec, parts.weights);
            let n_residual = parts.n_residual();
            let work = &mut *parts.work;
            let FeedForwardRows { gate, .. } = work.overlay.feed_forward(n, spec);
            parts.show.at(Point::FfnHidden, gate);
            matmul::multiply::<P::Tile, 1>(
                parts.kernels,
                &mut parts.forker,
                &mut work.buffers,
                gate,
                n,
                [(&weights.w_down, &mut work.projected[..n_residual])],
            )?;
            parts
                .show
                .at(Point::FfnOut, &parts.work.projected[..n_residual]);
            Ok(())
        })
    }

    fn join_feed_forward(&mut self) -> Result<(), ()> {
        self.act(|mut parts| {
            let n = parts.n_residual();
            let (x, y) = (&mut parts.work.x[..n], &parts.work.projected[..n]);
            parts.forker.run(&mut AddJob::new(parts.kernels, x, y), n)?;
            parts.show.at(Point::LayerOut, &parts.work.x[..n]);
            Ok(())
        })
    }

    fn join_feed_forward_post_normed(&mut self) -> Result<(), ()> {
        self.act(|mut parts| {
            let n = parts.n_residual();
            let (x, y) = (&mut parts.work.x[..n], &parts.work.projected[..n]);
            let norm = &parts.weights.post_ffn_norm;
            let mut job = PostNormJob::new(parts.kernels, x, y, norm, parts.eps);
            parts.forker.run(&mut job, n)?;
            parts.show.at(Point::LayerOut, &parts.work.x[..n]);
            Ok(())
        })
    }

    fn ignore(&mut self) -> Result<(), ()> {
        Ok(())
    }
}

/// An activation costs about as much as this many multiply-adds.
const GATE_WORK: usize = 16;

/// Passes `n_tokens` tokens, whose residual stream stands in the workspace, through layer
/// `layer`, on the lanes of `pool`.
///
/// # Errors
/// [`EngineError::Lane`] when a lane is lost.
pub(super) fn run<P: Pass>(
    engine: &mut Engine,
    layer: usize,
    n_tokens: usize,
    pool: usize,
) -> Result<(), EngineError> {
    let mut failure = None;
    let pass = PhantomData::<P>;
    let context = Context {
        engine,
        layer,
        n_tokens,
        pool,
        failure: &mut failure,
        pass,
    };
    let mut machine = LayerStateMachine::new(context);
    // What went wrong stands in `failure`; a table without a row for the case ends elsewhere.
    let _ = machine.process_event(Run);
    let done = machine.is(&LayerStates::Done);
    finish(done, failure)
}
