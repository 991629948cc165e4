//! The prefill machine: chooses, batch by batch, the route for the prompt tokens that are left.
//!
//! Planning looks at how many tokens are left and takes the widest route whose threshold they
//! reach; the route runs one pass of the model and planning looks again. Every route yields the
//! same bits, so the thresholds of [`RoutePolicy`] decide speed and nothing else.

use super::error::{EngineError, finish};
use super::forward::{self, Chunk4, Chunk8, Pass, Scalar, Wide};
use super::observer::Event;
use super::{Engine, Route, RoutePolicy};
use crate::tokenizer::TokenId;
use sml::sml;

/// Starts the machine; what to compute stands in its context.
#[derive(Debug, Clone, Copy)]
pub struct Prefill;

sml! {
    PrefillRoute {
        *"idle"_s + event<Prefill> = "planning"_s,
        "idle"_s + unexpected_event<_> / ignore,

        "planning"_s + completion<_> [none_left] = "done"_s,
        "planning"_s + completion<_> [!none_left && unwanted] = "cut"_s,
        "planning"_s + completion<_> [!none_left && !unwanted] = "choosing"_s,

        "choosing"_s + completion<_> [wide_pays] / run_wide = "wide"_s,
        "choosing"_s + completion<_> [!wide_pays && eight_fit] / run_chunk8 = "chunk8"_s,
        "choosing"_s + completion<_> [!wide_pays && !eight_fit && four_fit]
            / run_chunk4 = "chunk4"_s,
        "choosing"_s + completion<_> [!wide_pays && !eight_fit && !four_fit]
            / run_scalar = "scalar"_s,

        "wide"_s + completion<_> = "passed"_s,
        "chunk8"_s + completion<_> = "passed"_s,
        "chunk4"_s + completion<_> = "passed"_s,
        "scalar"_s + completion<_> = "passed"_s,

        "passed"_s + completion<_> [failed] = "failed"_s,
        "passed"_s + completion<_> [!failed] / note_pass = "planning"_s,

        "planning"_s + unexpected_event<_> / ignore,
        "choosing"_s + unexpected_event<_> / ignore,
        "wide"_s + unexpected_event<_> / ignore,
        "chunk8"_s + unexpected_event<_> / ignore,
        "chunk4"_s + unexpected_event<_> / ignore,
        "scalar"_s + unexpected_event<_> / ignore,
        "passed"_s + unexpected_event<_> / ignore,
        "done"_s + unexpected_event<_> / ignore,
        "cut"_s + unexpected_event<_> / ignore,
        "failed"_s + unexpected_event<_> / ignore,
    }
}

/// How often each route ran, and over how many tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RouteCounts {
    /// Passes of each route, in the order of [`Route::ALL`].
    pub passes: [u64; 4],
    /// Tokens that went through each route, in the same order.
    pub tokens: [u64; 4],
}

impl RouteCounts {
    fn add(&mut self, route: Route, tokens: usize) {
        self.passes[route as usize] += 1;
        self.tokens[route as usize] += tokens as u64;
    }
}

struct Context<'a> {
    engine: &'a mut Engine,
    left: &'a [TokenId],
    policy: RoutePolicy,
    counts: &'a mut RouteCounts,
    /// What the observer answered after the last pass.
    unwanted: bool,
    /// Route and tokens of the last pass.
    last: (Route, usize),
    failure: &'a mut Option<EngineError>,
}

impl Context<'_> {
    /// Runs one pass over the next `count` tokens on the route that `P` names.
    fn pass<P: Pass>(&mut self, count: usize) {
        let (batch, rest) = self.left.split_at(count);
        let pool = self.engine.pools.batch;
        *self.failure = forward::pass::<P>(self.engine, batch, pool).err();
        self.last = (P::ROUTE, count);
        self.left = rest;
    }

    fn fits(&self, tokens: usize, threshold: usize) -> bool {
        self.left.len() >= threshold.max(tokens) && self.policy.n_ubatch >= tokens
    }
}

impl PrefillRouteStateMachineContext for Context<'_> {
    fn failed(&self) -> Result<bool, ()> {
        Ok(self.failure.is_some())
    }

    fn none_left(&self) -> Result<bool, ()> {
        Ok(self.left.is_empty())
    }

    fn unwanted(&self) -> Result<bool, ()> {
        Ok(self.unwanted)
    }

    fn wide_pays(&self) -> Result<bool, ()> {
        Ok(self.fits(1, self.policy.wide_min))
    }

    fn eight_fit(&self) -> Result<bool, ()> {
        Ok(self.fits(8, self.policy.chunk8_min))
    }

    fn four_fit(&self) -> Result<bool, ()> {
        Ok(self.fits(4, self.policy.chunk4_min))
    }

    fn run_wide(&mut self) -> Result<(), ()> {
        self.pass::<Wide>(self.left.len().min(self.policy.n_ubatch));
        Ok(())
    }

    fn run_chunk8(&mut self) -> Result<(), ()> {
        self.pass::<Chunk8>(8);
        Ok(())
    }

    fn run_chunk4(&mut self) -> Result<(), ()> {
        self.pass::<Chunk4>(4);
        Ok(())
    }

    fn run_scalar(&mut self) -> Result<(), ()> {
        self.pass::<Scalar>(1);
        Ok(())
    }

    fn note_pass(&mut self) -> Result<(), ()> {
        let (route, tokens) = self.last;
        self.counts.add(route, tokens);
        self.engine.observer.event(Event::Passed { route, tokens });
        self.unwanted = self.engine.observer.wants_end();
        Ok(())
    }

    fn ignore(&mut self) -> Result<(), ()> {
        Ok(())
    }
}

/// Passes `tokens` through the model at the positions after those in the cache, on the routes
/// that the engine's policy asks for, and adds what ran to `counts`. Between passes the engine's
/// observer may end it; false then.
///
/// # Errors
/// What a pass failed with; the passes before it stand in the cache.
pub(super) fn run(
    engine: &mut Engine,
    tokens: &[TokenId],
    counts: &mut RouteCounts,
) -> Result<bool, EngineError> {
    let policy = engine.routes;
    let unwanted = engine.observer.wants_end();
    let mut failure = None;
    let context = Context {
        engine,
        left: tokens,
        policy,
        counts,
        unwanted,
        last: (Route::Scalar, 0),
        failure: &mut failure,
    };
    let mut machine = PrefillRouteStateMachine::new(context);
    let _ = machine.process_event(Prefill);
    let done = machine.is(&PrefillRouteStates::Done);
    let cut = machine.is(&PrefillRouteStates::Cut);
    finish(done || cut, failure).map(|()| done)
}
