//! The advance machine: one step of decode, from the token selected last to the next one's logits.
//!
//! A step is plain (one token passes), or verifies a draft (the token and what
//! [`speculation`](super::speculation) expects after it pass together, and every position has
//! logits), or needs no pass: the token selected last is the one that was drafted, and the logits
//! after it are there. Every path leaves the same bits in the cache and in the logits: tokens are
//! selected one by one from the logits after their true predecessors, in the order and with the
//! sampler of plain decode, and the cache ends after the last token that was selected and passed.
//! Keys and values of drafted tokens wait behind that end; those of a right one are counted in
//! when its turn comes, those of a wrong one are overwritten.

use super::Engine;
use super::error::{EngineError, finish};
use super::forward::{self, Chunk4, Chunk8, Pass, Scalar, Wide};
use crate::tokenizer::TokenId;
use sml::sml;

/// Starts the machine; the token stands in its context.
#[derive(Debug, Clone, Copy)]
pub struct Proceed;

sml! {
    Advance {
        *"idle"_s + event<Proceed> = "judging"_s,
        "idle"_s + unexpected_event<_> / ignore,

        "judging"_s + completion<_> [foreseen] / accept = "done"_s,
        "judging"_s + completion<_> [!foreseen && outstanding && paid && right] / lengthen
            = "planning"_s,
        "judging"_s + completion<_> [!foreseen && outstanding && paid && !right] / follow
            = "planning"_s,
        "judging"_s + completion<_> [!foreseen && outstanding && !paid] / back_off = "planning"_s,
        "judging"_s + completion<_> [!foreseen && !outstanding] = "planning"_s,
        "judging"_s + unexpected_event<_> / ignore,

        "planning"_s + completion<_> [off || resting || poor] = "plain"_s,
        "planning"_s + completion<_> [!off && !resting && !poor] / look = "looking"_s,
        "planning"_s + unexpected_event<_> / ignore,

        "looking"_s + completion<_> [found] = "sizing"_s,
        "looking"_s + completion<_> [!found && may_shorten] / shorten = "shortened"_s,
        "looking"_s + completion<_> [!found && !may_shorten] = "plain"_s,
        "looking"_s + unexpected_event<_> / ignore,

        "shortened"_s + completion<_> = "looking"_s,
        "shortened"_s + unexpected_event<_> / ignore,

        "sizing"_s + completion<_> [wants_wide] = "wide"_s,
        "sizing"_s + completion<_> [!wants_wide && wants_eight] = "chunk8"_s,
        "sizing"_s + completion<_> [!wants_wide && !wants_eight && wants_four] = "chunk4"_s,
        "sizing"_s + completion<_> [!wants_wide && !wants_eight && !wants_four && wants_some]
            = "wide"_s,
        "sizing"_s + completion<_> [!wants_wide && !wants_eight && !wants_four && !wants_some]
            = "plain"_s,
        "sizing"_s + unexpected_event<_> / ignore,

        "plain"_s + completion<_> / step = "done"_s,
        "plain"_s + exception<_> = "failed"_s,
        "plain"_s + unexpected_event<_> / ignore,

        "chunk4"_s + completion<_> / verify_chunk4 = "done"_s,
        "chunk4"_s + exception<_> = "failed"_s,
        "chunk4"_s + unexpected_event<_> / ignore,

        "chunk8"_s + completion<_> / verify_chunk8 = "done"_s,
        "chunk8"_s + exception<_> = "failed"_s,
        "chunk8"_s + unexpected_event<_> / ignore,

        "wide"_s + completion<_> / verify_wide = "done"_s,
        "wide"_s + exception<_> = "failed"_s,
        "wide"_s + unexpected_event<_> / ignore,

        "done"_s + unexpected_event<_> / ignore,
        "failed"_s + unexpected_event<_> / ignore,
    }
}

struct Context<'a> {
    engine: &'a mut Engine,
    pending: TokenId,
    /// The most tokens a draft may have: a position in the context and a token of the limit for
    /// each, after those of the pending token.
    room: usize,
    failure: &'a mut Option<EngineError>,
}

impl Context<'_> {
    fn depth(&self) -> usize {
        self.engine.memory.n_past()
    }

    /// Runs one pass on the route that `P` names over the pending token and a draft of `draft`
    /// tokens.
    fn verify<P: Pass>(&mut self, draft: usize, cost: f64) -> Result<(), ()> {
        let engine = &mut *self.engine;
        let cached = engine.memory.tokens();
        let tokens = engine.speculator.draft(cached, self.pending, draft, cost);
        let pool = engine.pools.decode;
        let result = forward::verify::<P>(engine, &tokens, pool);
        engine.speculator.verified(tokens);
        result.map_err(|error| *self.failure = Some(error))
    }
}

impl AdvanceStateMachineContext for Context<'_> {
    fn foreseen(&self) -> Result<bool, ()> {
        Ok(self.engine.speculator.foresaw(self.pending))
    }

    fn outstanding(&self) -> Result<bool, ()> {
        Ok(self.engine.speculator.is_outstanding())
    }

    fn paid(&self) -> Result<bool, ()> {
        Ok(self.engine.speculator.has_paid())
    }

    fn right(&self) -> Result<bool, ()> {
        Ok(self.engine.speculator.was_right())
    }

    fn off(&self) -> Result<bool, ()> {
        Ok(self.engine.speculator.is_off())
    }

    fn resting(&self) -> Result<bool, ()> {
        Ok(self.engine.speculator.is_resting())
    }

    fn poor(&self) -> Result<bool, ()> {
        Ok(self.engine.speculator.is_poor(self.depth()))
    }

    fn found(&self) -> Result<bool, ()> {
        Ok(self.engine.speculator.has_found())
    }

    fn may_shorten(&self) -> Result<bool, ()> {
        Ok(self.engine.speculator.may_shorten())
    }

    fn wants_wide(&self) -> Result<bool, ()> {
        let depth = self.depth();
        Ok(self.engine.speculator.wants_wide(self.room, depth))
    }

    fn wants_eight(&self) -> Result<bool, ()> {
        let depth = self.depth();
        Ok(self.engine.speculator.wants_eight(self.room, depth))
    }

    fn wants_four(&self) -> Result<bool, ()> {
        let depth = self.depth();
        Ok(self.engine.speculator.wants_four(self.room, depth))
    }

    fn wants_some(&self) -> Result<bool, ()> {
        let depth = self.depth();
        Ok(self.engine.speculator.wants_some(self.room, depth))
    }

    fn accept(&mut self) -> Result<(), ()> {
        let engine = &mut *self.engine;
        engine.logits_row = engine.speculator.accept();
        engine.memory.advance(&[self.pending]);
        Ok(())
    }

    fn lengthen(&mut self) -> Result<(), ()> {
        self.engine.speculator.lengthen();
        Ok(())
    }

    fn follow(&mut self) -> Result<(), ()> {
        self.engine.speculator.follow();
        Ok(())
    }

    fn back_off(&mut self) -> Result<(), ()> {
        self.engine.speculator.back_off();
        Ok(())
    }

    fn look(&mut self) -> Result<(), ()> {
        let cached = self.engine.memory.tokens();
        self.engine.speculator.look(cached, self.pending);
        Ok(())
    }

    fn shorten(&mut self) -> Result<(), ()> {
        let cached = self.engine.memory.tokens();
        self.engine.speculator.shorten(cached, self.pending);
        Ok(())
    }

    fn step(&mut self) -> Result<(), ()> {
        let engine = &mut *self.engine;
        engine.speculator.step();
        let pool = engine.pools.decode;
        forward::pass::<Scalar>(engine, &[self.pending], pool)
            .and_then(|()| forward::logits(engine, pool))
            .map_err(|error| *self.failure = Some(error))
    }

    fn verify_chunk4(&mut self) -> Result<(), ()> {
        let [chunk4, _] = self.engine.speculator.costs();
        self.verify::<Chunk4>(3, chunk4)
    }

    fn verify_chunk8(&mut self) -> Result<(), ()> {
        let [_, chunk8] = self.engine.speculator.costs();
        self.verify::<Chunk8>(7, chunk8)
    }

    fn verify_wide(&mut self) -> Result<(), ()> {
        let cost = self.engine.speculator.wide_cost(self.room);
        self.verify::<Wide>(self.engine.speculator.drafted(self.room), cost)
    }

    fn ignore(&mut self) -> Result<(), ()> {
        Ok(())
    }
}

/// Leaves the logits after `pending` in the workspace, and `pending` in the cache. `left` tokens
/// may still be selected, the next one included.
///
/// # Errors
/// What a pass failed with.
pub(super) fn run(engine: &mut Engine, pending: TokenId, left: usize) -> Result<(), EngineError> {
    let free = engine.memory.n_ctx() - engine.memory.n_past();
    let room = free.min(left).saturating_sub(1);
    let mut failure = None;
    let context = Context {
        engine,
        pending,
        room,
        failure: &mut failure,
    };
    let mut machine = AdvanceStateMachine::new(context);
    // What went wrong stands in `failure`; a table without a row for the case ends elsewhere.
    let _ = machine.process_event(Proceed);
    let done = machine.is(&AdvanceStates::Done);
    finish(done, failure)
}
