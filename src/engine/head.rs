//! The head machine: from the residual stream of tokens that passed to their logits.
//!
//! A prompt and a plain step want those of their last token; a pass that verifies a draft wants
//! those of all its tokens, in one product of the pass's own tile.

use super::Engine;
use super::error::{EngineError, finish};
use super::forward::Pass;
use super::matmul;
use super::observer::Tensor;
use crate::model::Point;
use emel_kernels::{RmsNormJob, ScaleJob, SoftcapJob};
use sml::sml;
use std::marker::PhantomData;
use std::ops::Range;

/// Computes the logits of the rows that the context names.
#[derive(Debug, Clone, Copy)]
pub struct Project;

sml! {
    Head {
        *"idle"_s + event<Project> / norm_rows = "normalized"_s,
        "idle"_s + exception<_> = "failed"_s,
        "idle"_s + unexpected_event<_> / ignore,

        "normalized"_s + completion<_>
            / (project, eval [scaled] / scale, eval [capped] / cap) = "done"_s,
        "normalized"_s + exception<_> = "failed"_s,
        "normalized"_s + unexpected_event<_> / ignore,

        "done"_s + unexpected_event<_> / ignore,
        "failed"_s + unexpected_event<_> / ignore,
    }
}

struct Context<'a, P> {
    engine: &'a mut Engine,
    /// Rows of the residual stream.
    rows: Range<usize>,
    pool: usize,
    failure: &'a mut Option<EngineError>,
    pass: PhantomData<P>,
}

impl<P: Pass> Context<'_, P> {
    /// Runs `action` with the engine, how many rows there are and the pool; an error is kept for
    /// the caller and raises the machine's exception.
    fn act(
        &mut self,
        action: impl FnOnce(&mut Engine, usize, usize) -> Result<(), EngineError>,
    ) -> Result<(), ()> {
        action(self.engine, self.rows.len(), self.pool).map_err(|error| *self.failure = Some(error))
    }
}

impl<P: Pass> HeadStateMachineContext for Context<'_, P> {
    fn scaled(&self) -> Result<bool, ()> {
        Ok(self.engine.spec.logit_scale.is_some())
    }

    fn capped(&self) -> Result<bool, ()> {
        Ok(self.engine.spec.logit_softcap.is_some())
    }

    fn norm_rows(&mut self, _: &Project) -> Result<(), ()> {
        let first = self.rows.start;
        self.act(|engine, rows, pool| {
            let d = engine.spec.d_model;
            let n = rows * d;
            let work = &mut engine.workspace;
            let (x, out) = (&work.x[first * d..][..n], &mut work.normed[..n]);
            let (norm, eps) = (&engine.weights.output_norm, engine.spec.rms_eps);
            let mut forker = engine.pools.forker(pool, &engine.execution);
            forker.run(&mut RmsNormJob::new(engine.kernels, x, norm, eps, out), n)?;
            engine.observer.tensor(Tensor {
                layer: None,
                point: Point::OutputNorm,
                position: engine.memory.n_past() - rows,
                rows,
                values: &work.normed[..n],
            });
            Ok(())
        })
    }

    fn project(&mut self) -> Result<(), ()> {
        self.act(|engine, rows, pool| {
            let work = &mut engine.workspace;
            matmul::multiply::<P::Tile, 1>(
                engine.kernels,
                &mut engine.pools.forker(pool, &engine.execution),
                &mut work.buffers,
                &work.normed[..rows * engine.spec.d_model],
                rows,
                [(
                    &engine.weights.output,
                    &mut work.logits[..rows * engine.spec.n_vocab],
                )],
            )
        })
    }

    fn scale(&mut self) -> Result<(), ()> {
        self.act(|engine, rows, pool| {
            let n = rows * engine.spec.n_vocab;
            let logits = &mut engine.workspace.logits[..n];
            let factor = engine.spec.logit_scale.unwrap_or(1.0);
            let mut forker = engine.pools.forker(pool, &engine.execution);
            forker.run(&mut ScaleJob::new(engine.kernels, logits, factor), n)
        })
    }

    fn cap(&mut self) -> Result<(), ()> {
        self.act(|engine, rows, pool| {
            let n = rows * engine.spec.n_vocab;
            let logits = &mut engine.workspace.logits[..n];
            let cap = engine.spec.logit_softcap.unwrap_or(f32::INFINITY);
            let mut forker = engine.pools.forker(pool, &engine.execution);
            forker.run(&mut SoftcapJob::new(engine.kernels, logits, cap), n)
        })
    }

    fn ignore(&mut self) -> Result<(), ()> {
        Ok(())
    }
}

/// Leaves the logits of the tokens in `rows` of the residual stream, which are the last that
/// passed, in the workspace, `[rows, n_vocab]`; the first row is the one to select from. `P` names
/// the tile: its tokens must fit.
///
/// # Errors
/// [`EngineError::Lane`] when a lane is lost.
pub(super) fn run<P: Pass>(
    engine: &mut Engine,
    rows: Range<usize>,
    pool: usize,
) -> Result<(), EngineError> {
    engine.logits_row = 0;
    let mut failure = None;
    let context = Context::<P> {
        engine,
        rows,
        pool,
        failure: &mut failure,
        pass: PhantomData,
    };
    let mut machine = HeadStateMachine::new(context);
    // What went wrong stands in `failure`; a table without a row for the case ends elsewhere.
    let _ = machine.process_event(Project);
    let done = machine.is(&HeadStates::Done);
    finish(done, failure)
}
