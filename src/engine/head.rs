//! The head machine: from the residual stream of the last token to its logits.

use super::Engine;
use super::error::{EngineError, finish};
use super::matmul;
use super::observer::Tensor;
use crate::model::Point;
use emel_kernels::{RmsNormJob, ScaleJob, SoftcapJob, TileT1};
use sml::sml;

/// Computes the logits of the last token that passed.
#[derive(Debug, Clone, Copy)]
pub struct Project;

sml! {
    Head {
        *"idle"_s + event<Project> / norm_last = "normalized"_s,
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

struct Context<'a> {
    engine: &'a mut Engine,
    pool: usize,
    failure: &'a mut Option<EngineError>,
}

impl Context<'_> {
    /// Runs `action`; an error is kept for the caller and raises the machine's exception.
    fn act(
        &mut self,
        action: impl FnOnce(&mut Engine, usize) -> Result<(), EngineError>,
    ) -> Result<(), ()> {
        action(self.engine, self.pool).map_err(|error| *self.failure = Some(error))
    }
}

impl HeadStateMachineContext for Context<'_> {
    fn scaled(&self) -> Result<bool, ()> {
        Ok(self.engine.spec.logit_scale.is_some())
    }

    fn capped(&self) -> Result<bool, ()> {
        Ok(self.engine.spec.logit_softcap.is_some())
    }

    fn norm_last(&mut self, _: &Project) -> Result<(), ()> {
        self.act(|engine, pool| {
            let d = engine.spec.d_model;
            let start = engine.last_row * d;
            let work = &mut engine.workspace;
            let (x, out) = (&work.x[start..start + d], &mut work.normed[..d]);
            let (norm, eps) = (&engine.weights.output_norm, engine.spec.rms_eps);
            let mut forker = engine.pools.forker(pool, &engine.execution);
            forker.run(&mut RmsNormJob::new(engine.kernels, x, norm, eps, out), d)?;
            engine.observer.tensor(Tensor {
                layer: None,
                point: Point::OutputNorm,
                position: engine.memory.n_past() - 1,
                rows: 1,
                values: &work.normed[..d],
            });
            Ok(())
        })
    }

    fn project(&mut self) -> Result<(), ()> {
        self.act(|engine, pool| {
            let work = &mut engine.workspace;
            matmul::multiply::<TileT1, 1>(
                engine.kernels,
                &mut engine.pools.forker(pool, &engine.execution),
                &mut work.buffers,
                &work.normed[..engine.spec.d_model],
                1,
                [(&engine.weights.output, &mut work.logits)],
            )
        })
    }

    fn scale(&mut self) -> Result<(), ()> {
        self.act(|engine, pool| {
            let logits = &mut engine.workspace.logits;
            let n = logits.len();
            let factor = engine.spec.logit_scale.unwrap_or(1.0);
            let mut forker = engine.pools.forker(pool, &engine.execution);
            forker.run(&mut ScaleJob::new(engine.kernels, logits, factor), n)
        })
    }

    fn cap(&mut self) -> Result<(), ()> {
        self.act(|engine, pool| {
            let logits = &mut engine.workspace.logits;
            let n = logits.len();
            let cap = engine.spec.logit_softcap.unwrap_or(f32::INFINITY);
            let mut forker = engine.pools.forker(pool, &engine.execution);
            forker.run(&mut SoftcapJob::new(engine.kernels, logits, cap), n)
        })
    }

    fn ignore(&mut self) -> Result<(), ()> {
        Ok(())
    }
}

/// Leaves the logits of the last token that passed in the workspace.
///
/// # Errors
/// [`EngineError::Lane`] when a lane is lost.
pub(super) fn run(engine: &mut Engine, pool: usize) -> Result<(), EngineError> {
    let mut failure = None;
    let context = Context {
        engine,
        pool,
        failure: &mut failure,
    };
    let mut machine = HeadStateMachine::new(context);
    // What went wrong stands in `failure`; a table without a row for the case ends elsewhere.
    let _ = machine.process_event(Project);
    let done = machine.is(&HeadStates::Done);
    finish(done, failure)
}
