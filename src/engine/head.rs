//! The head machine: from the residual stream of the last token to its logits.

use super::Engine;
use super::error::EngineError;
use super::fork::Forker;
use super::forward::Scalar;
use super::matmul;
use emel_kernels::{RmsNormJob, ScaleJob, SoftcapJob};
use sml::sml;

/// Computes the logits of the last token that passed.
#[derive(Debug, Clone, Copy)]
pub struct Project;

sml! {
    Head {
        *"idle"_s + event<Project> / (norm_last, project, eval [scaled] / scale) = "projected"_s,
        "idle"_s + exception<_> = "failed"_s,
        "idle"_s + unexpected_event<_> / ignore,

        "projected"_s + completion<_> [capped] / cap = "done"_s,
        "projected"_s + completion<_> [!capped] = "done"_s,
        "projected"_s + exception<_> = "failed"_s,
        "projected"_s + unexpected_event<_> / ignore,

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
    /// Keeps an error for the caller and raises the machine's exception.
    fn check(&mut self, result: Result<(), EngineError>) -> Result<(), ()> {
        result.map_err(|error| *self.failure = Some(error))
    }

    fn forker(&mut self) -> Forker<'_> {
        let engine = &mut *self.engine;
        engine.pools.forker(self.pool, engine.execution.fork_min_work)
    }
}
