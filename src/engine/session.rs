//! A session: the engine, the sampler and the limits of one conversation, and what it has
//! generated so far. The generator machine drives it; callers look at its logits between events.

use super::Engine;
use super::error::EngineError;
use super::observer::{Event, Observer};
use crate::sampling::Sampler;
use crate::tokenizer::TokenId;
use std::cell::{Ref, RefCell, RefMut};

/// When generation ends by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Most tokens to generate for one prompt; `None` has no limit but the context.
    pub max_tokens: Option<usize>,
    /// Tokens that end generation.
    pub end_tokens: Vec<TokenId>,
}

/// A token that the sampler selected.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Selected {
    /// Its place among the tokens generated for this prompt, from 0.
    pub index: usize,
    /// The token.
    pub id: TokenId,
    /// Its logit, as the model gave it.
    pub logit: f32,
}

/// The engine, sampler and limits of one conversation.
pub struct Session {
    state: RefCell<State>,
}

pub(super) struct State {
    pub engine: Engine,
    pub broken: bool,
    /// The observer did not want the rest of the prompt.
    pub cut: bool,
    sampler: Sampler,
    limits: Limits,
    generated: usize,
    last: TokenId,
    at_end: bool,
}

impl Session {
    /// A session with an empty history.
    pub fn new(engine: Engine, sampler: Sampler, limits: Limits) -> Self {
        let state = State {
            engine,
            broken: false,
            cut: false,
            sampler,
            limits,
            generated: 0,
            last: 0,
            at_end: false,
        };
        Self {
            state: RefCell::new(state),
        }
    }

    /// The same, watched by `observer`.
    pub fn observed_by(self, observer: impl Observer + 'static) -> Self {
        self.state.borrow_mut().engine.observer = Box::new(observer);
        self
    }

    /// Forgets every token in the cache: the next prompt is computed from its first token on.
    pub fn forget(&self) {
        self.state.borrow_mut().engine.forget();
    }

    /// The logits from which the latest token was selected, `[n_vocab]`.
    pub fn logits(&self) -> Ref<'_, [f32]> {
        Ref::map(self.state.borrow(), |state| state.engine.logits())
    }

    /// Tokens in the cache, first to last.
    pub fn cached_tokens(&self) -> Ref<'_, [TokenId]> {
        Ref::map(self.state.borrow(), |state| state.engine.cached_tokens())
    }

    /// The limits of the prompts to come.
    pub fn set_limits(&self, limits: Limits) {
        self.state.borrow_mut().limits = limits;
    }

    /// The engine, for questions about the model.
    pub fn engine(&self) -> Ref<'_, Engine> {
        Ref::map(self.state.borrow(), |state| &state.engine)
    }

    pub(super) fn borrow(&self) -> Ref<'_, State> {
        self.state.borrow()
    }

    pub(super) fn borrow_mut(&self) -> RefMut<'_, State> {
        self.state.borrow_mut()
    }
}

impl State {
    /// Readies the session for `prompt` and returns how many of its first tokens the cache
    /// already holds. The last token is always computed, since its logits are wanted.
    pub fn begin(&mut self, prompt: &[TokenId]) -> usize {
        self.generated = 0;
        self.at_end = false;
        self.sampler.forget();
        prompt.iter().for_each(|&id| self.sampler.accept(id));
        self.engine.keep_common_prefix(prompt)
    }

    /// The token selected last, which the model has not seen yet.
    pub fn pending(&self) -> TokenId {
        self.last
    }

    /// True when the token selected last ends generation.
    pub fn ended(&self) -> bool {
        self.at_end
    }

    /// True when as many tokens were generated as the limit allows.
    pub fn at_limit(&self) -> bool {
        self.limits
            .max_tokens
            .is_some_and(|most| self.generated >= most)
    }

    /// Tokens that the limit still allows.
    pub fn left(&self) -> usize {
        let most = self.limits.max_tokens.unwrap_or(usize::MAX);
        most.saturating_sub(self.generated)
    }

    /// Selects the next token from the logits at hand.
    ///
    /// # Errors
    /// [`EngineError::Sample`] when the logits hold a NaN.
    pub fn select(&mut self) -> Result<Selected, EngineError> {
        self.at_end = false;
        self.engine.observer.event(Event::Selecting);
        let choice = self.sampler.sample(self.engine.logits());
        self.broken = choice.is_err();
        let choice = choice.map_err(EngineError::Sample)?;
        self.sampler.accept(choice.id);
        self.engine
            .observer
            .event(Event::Selected { id: choice.id });
        let token = Selected {
            index: self.generated,
            id: choice.id,
            logit: choice.logit,
        };
        self.last = token.id;
        self.generated += 1;
        self.at_end = self.limits.end_tokens.contains(&token.id);
        Ok(token)
    }
}
