//! Probe events: what an engine tells whoever watches it, as it happens.
//!
//! The engine reads no clock; an observer that wants times takes them when it hears an event. A
//! phase lies between two events, so nothing has to be subtracted.

use super::Route;
use crate::tokenizer::TokenId;

/// Something that just happened, or is about to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A load begins.
    LoadBegins,
    /// The container's header, metadata and tensor directory are read and bound to a model.
    Bound,
    /// `done` of the `total` bytes of weights are packed; the first such event has 0 done.
    Packing {
        /// Bytes of the file.
        done: u64,
        /// Bytes of the file.
        total: u64,
    },
    /// Every weight is packed.
    Packed,
    /// The engine is ready to run.
    Ready,
    /// A prompt is about to pass through the model.
    PromptBegins {
        /// Its tokens at the start that are in the cache already.
        reused: usize,
        /// Tokens to compute.
        tokens: usize,
    },
    /// Some of its tokens have passed.
    Passed {
        /// The route they took.
        route: Route,
        /// How many.
        tokens: usize,
    },
    /// All have, and the last one's logits are there.
    PromptEnds,
    /// The observer did not want the rest of it.
    PromptCut,
    /// The model is about to take a step with the token selected last.
    StepBegins,
    /// Logits are there, a token is about to be selected from them.
    Selecting,
    /// A token was selected.
    Selected {
        /// The token.
        id: TokenId,
    },
}

/// Watches an engine. Called on the thread that dispatches, in the middle of the dispatch: an
/// observer must not use the session that it watches, and what it takes is time lost.
pub trait Observer {
    /// Something happened.
    fn event(&self, event: Event);

    /// Asked between the passes of a prompt: true when the rest of it is not wanted any more.
    fn wants_end(&self) -> bool {
        false
    }
}

/// Watches nothing.
impl Observer for () {
    fn event(&self, _: Event) {}
}

impl<O: Observer + ?Sized> Observer for std::rc::Rc<O> {
    fn event(&self, event: Event) {
        (**self).event(event);
    }

    fn wants_end(&self) -> bool {
        (**self).wants_end()
    }
}
