//! The generator: a prompt goes in, tokens come out one dispatch at a time.
//!
//! A [`Session`] owns the engine, the sampler and the limits; a [`Generator`] is the state machine
//! over it. Each event carries the place for its own output, and acceptance (`true`) says only
//! that the machine took the event in its present state:
//!
//! ```no_run
//! use emel::engine::{Engine, ExecutionPolicy, Generator, Limits, LoadOptions, Prompt, RoutePolicy};
//! use emel::engine::{Output, Session, Step};
//! use emel::sampling::{Sampler, SamplerConfig};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let options = LoadOptions::new(ExecutionPolicy::detect(), RoutePolicy::default());
//! let engine = Engine::load("model.gguf".as_ref(), &options)?;
//! let sampler = Sampler::new(&SamplerConfig::greedy(), engine.n_vocab())?;
//! let session = Session::new(engine, sampler, Limits { max_tokens: Some(16), end_tokens: vec![2] });
//! let mut generator = Generator::new(&session);
//!
//! let prefilled = Output::new();
//! assert!(generator.process_event(Prompt { tokens: &[1, 15043], output: &prefilled }));
//! prefilled.take().ok_or("no output")??;
//! loop {
//!     let stepped = Output::new();
//!     generator.process_event(Step { output: &stepped });
//!     let step = stepped.take().ok_or("no output")??;
//!     if let Some(token) = step.token {
//!         println!("{} {}", token.id, token.logit);
//!     }
//!     if step.stop.is_some() {
//!         break;
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The awaitable entry dispatches the same way and is ready once the dispatch has run to
//! completion:
//!
//! ```no_run
//! # use emel::engine::{Generator, Output, Step};
//! # async fn next(generator: &mut Generator<'_>) -> bool {
//! let stepped = Output::new();
//! let accepted = generator.process_event_async(Step { output: &stepped }).await;
//! # accepted }
//! ```

use super::advance;
use super::error::EngineError;
use super::forward;
use super::observer::Event;
use super::prefill::{self, RouteCounts};
use super::session::{Selected, Session};
use crate::tokenizer::TokenId;
use sml::sml;
use std::cell::Cell;
use std::future::Future;

/// The place where a dispatch leaves what it found out.
pub struct Output<T>(Cell<Option<Result<T, EngineError>>>);

impl<T> Output<T> {
    /// An empty place.
    pub fn new() -> Self {
        Self(Cell::new(None))
    }

    /// What the dispatch left here; `None` when the machine did not take the event.
    pub fn take(&self) -> Option<Result<T, EngineError>> {
        self.0.take()
    }

    fn put(&self, value: Result<T, EngineError>) {
        self.0.set(Some(value));
    }
}

impl<T> Default for Output<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// What prompt processing did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefilled {
    /// Tokens at the start of the prompt that were in the cache already.
    pub reused: usize,
    /// Tokens that went through the model.
    pub computed: usize,
    /// Which routes they took.
    pub routes: RouteCounts,
    /// False when the session's observer did not want the rest: no token can be generated then.
    pub whole: bool,
}

/// What a step yielded: a token, a reason to stop, or both (the token that ended generation).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stepped {
    /// The token that was selected.
    pub token: Option<Selected>,
    /// Why no further step will yield a token.
    pub stop: Option<StopReason>,
}

/// Why generation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// The model selected an end-of-generation token.
    EndOfGeneration,
    /// The limit on generated tokens was reached.
    Limit,
    /// The context holds no further token.
    ContextFull,
    /// The caller found a stop string.
    StopString,
    /// The caller cancelled.
    Cancelled,
}

impl StopReason {
    /// The name used by traces and records.
    pub fn name(self) -> &'static str {
        match self {
            StopReason::EndOfGeneration => "eog",
            StopReason::Limit => "limit",
            StopReason::ContextFull => "context_full",
            StopReason::StopString => "stop_string",
            StopReason::Cancelled => "cancelled",
        }
    }
}

/// A whole prompt. What of it the cache already holds, from the first token on, is not computed
/// again, unless a layer has given up a part of the window that the next token looks back over.
#[derive(Clone, Copy)]
pub struct Prompt<'a> {
    /// The tokens, first to last.
    pub tokens: &'a [TokenId],
    /// Receives what was done.
    pub output: &'a Output<Prefilled>,
}

/// Asks for one more token.
#[derive(Clone, Copy)]
pub struct Step<'a> {
    /// Receives the token or the reason why there is none.
    pub output: &'a Output<Stepped>,
}

/// Ends generation from outside.
#[derive(Clone, Copy)]
pub struct Halt<'a> {
    /// The reason to report.
    pub reason: StopReason,
    /// Receives the reason.
    pub output: &'a Output<Stepped>,
}

sml! {
    Generate<'a> {
        *"idle"_s + event<Prompt<'a>> [lost] / refuse_broken = "failed"_s,
        "idle"_s + event<Prompt<'a>> [!lost && empty] / refuse_empty,
        "idle"_s + event<Prompt<'a>> [!lost && !empty && too_long] / refuse_long,
        "idle"_s + event<Prompt<'a>> [!lost && !empty && !too_long && foreign] / refuse_foreign,
        "idle"_s + event<Prompt<'a>> [!lost && !empty && !too_long && !foreign]
            / (eval [window_gone] / forget, prefill, eval [read_whole] / project,
               eval [read_whole] / announce_end)
            = "prefilling"_s,
        "idle"_s + unexpected_event<_> / ignore,

        "prefilling"_s + completion<_> [failed] = "failed"_s,
        "prefilling"_s + completion<_> [!failed && cut] / report_cut = "finished"_s,
        "prefilling"_s + completion<_> [!failed && !cut] = "prefilled"_s,
        "prefilling"_s + unexpected_event<_> / ignore,

        "prefilled"_s + event<Step<'a>> [at_limit] / stop_at_limit = "finished"_s,
        "prefilled"_s + event<Step<'a>> [!at_limit]
            / (select, eval [ended_here] / report_end) = "selecting"_s,
        "prefilled"_s + event<Halt<'a>> / halt = "finished"_s,
        "prefilled"_s + unexpected_event<_> / ignore,

        "selecting"_s + completion<_> [failed] = "failed"_s,
        "selecting"_s + completion<_> [!failed && ended] = "finished"_s,
        "selecting"_s + completion<_> [!failed && !ended] = "decoding"_s,
        "selecting"_s + unexpected_event<_> / ignore,

        "decoding"_s + event<Step<'a>> [at_limit] / stop_at_limit = "finished"_s,
        "decoding"_s + event<Step<'a>> [!at_limit && context_full] / stop_at_context
            = "finished"_s,
        "decoding"_s + event<Step<'a>> [!at_limit && !context_full]
            / (decode, eval [intact] / select, eval [ended_here] / report_end) = "selecting"_s,
        "decoding"_s + event<Halt<'a>> / halt = "finished"_s,
        "decoding"_s + unexpected_event<_> / ignore,

        "finished"_s + event<Prompt<'a>> [empty] / refuse_empty,
        "finished"_s + event<Prompt<'a>> [!empty && too_long] / refuse_long,
        "finished"_s + event<Prompt<'a>> [!empty && !too_long && foreign] / refuse_foreign,
        "finished"_s + event<Prompt<'a>> [!empty && !too_long && !foreign]
            / (eval [window_gone] / forget, prefill, eval [read_whole] / project,
               eval [read_whole] / announce_end)
            = "prefilling"_s,
        "finished"_s + unexpected_event<_> / ignore,

        "failed"_s + unexpected_event<_> / ignore,
    }
}

/// The machine's context: the session it drives.
struct Driver<'s>(&'s Session);

impl GenerateStateMachineContext for Driver<'_> {
    fn intact(&self, _: &Step<'_>) -> Result<bool, ()> {
        Ok(!self.0.borrow().broken)
    }

    fn read_whole(&self, _: &Prompt<'_>) -> Result<bool, ()> {
        let state = self.0.borrow();
        Ok(!state.broken && !state.cut)
    }

    fn cut(&self) -> Result<bool, ()> {
        Ok(self.0.borrow().cut)
    }

    fn ended_here(&self, _: &Step<'_>) -> Result<bool, ()> {
        self.ended()
    }

    fn lost(&self, _: &Prompt<'_>) -> Result<bool, ()> {
        self.failed()
    }

    fn empty(&self, prompt: &Prompt<'_>) -> Result<bool, ()> {
        Ok(prompt.tokens.is_empty())
    }

    fn too_long(&self, prompt: &Prompt<'_>) -> Result<bool, ()> {
        Ok(prompt.tokens.len() > self.0.borrow().engine.n_ctx())
    }

    fn foreign(&self, prompt: &Prompt<'_>) -> Result<bool, ()> {
        let n_vocab = self.0.borrow().engine.n_vocab();
        Ok(prompt.tokens.iter().any(|&id| id as usize >= n_vocab))
    }

    fn window_gone(&self, prompt: &Prompt<'_>) -> Result<bool, ()> {
        Ok(self.0.borrow().engine.has_lost_window(prompt.tokens))
    }

    fn failed(&self) -> Result<bool, ()> {
        Ok(self.0.borrow().broken)
    }

    fn ended(&self) -> Result<bool, ()> {
        Ok(self.0.borrow().ended())
    }

    fn at_limit(&self, _: &Step<'_>) -> Result<bool, ()> {
        Ok(self.0.borrow().at_limit())
    }

    fn context_full(&self, _: &Step<'_>) -> Result<bool, ()> {
        Ok(self.0.borrow().engine.is_full())
    }

    fn refuse_broken(&mut self, prompt: &Prompt<'_>) -> Result<(), ()> {
        prompt.output.put(Err(EngineError::Broken));
        Ok(())
    }

    fn refuse_empty(&mut self, prompt: &Prompt<'_>) -> Result<(), ()> {
        prompt.output.put(Err(EngineError::EmptyPrompt));
        Ok(())
    }

    fn refuse_long(&mut self, prompt: &Prompt<'_>) -> Result<(), ()> {
        let n_ctx = self.0.borrow().engine.n_ctx();
        let n_prompt = prompt.tokens.len();
        prompt
            .output
            .put(Err(EngineError::PromptTooLong { n_prompt, n_ctx }));
        Ok(())
    }

    fn refuse_foreign(&mut self, prompt: &Prompt<'_>) -> Result<(), ()> {
        let n_vocab = self.0.borrow().engine.n_vocab();
        let id = prompt
            .tokens
            .iter()
            .copied()
            .find(|&id| id as usize >= n_vocab);
        prompt.output.put(Err(EngineError::ForeignToken {
            id: id.unwrap_or_default(),
            n_vocab,
        }));
        Ok(())
    }

    fn forget(&mut self, _: &Prompt<'_>) -> Result<(), ()> {
        self.0.borrow_mut().engine.forget();
        Ok(())
    }

    fn prefill(&mut self, prompt: &Prompt<'_>) -> Result<(), ()> {
        let state = &mut *self.0.borrow_mut();
        let reused = state.begin(prompt.tokens);
        let rest = &prompt.tokens[reused..];
        let tokens = rest.len();
        let begins = Event::PromptBegins { reused, tokens };
        state.engine.observer.event(begins);
        let mut routes = RouteCounts::default();
        let result = prefill::run(&mut state.engine, rest, &mut routes);
        state.broken = result.is_err();
        state.cut = result.as_ref().is_ok_and(|whole| !whole);
        prompt.output.put(result.map(|whole| Prefilled {
            reused,
            computed: routes.tokens.iter().sum::<u64>() as usize,
            routes,
            whole,
        }));
        Ok(())
    }

    fn project(&mut self, prompt: &Prompt<'_>) -> Result<(), ()> {
        let state = &mut *self.0.borrow_mut();
        let pool = state.engine.pools.batch;
        let result = forward::logits(&mut state.engine, pool);
        state.broken = result.is_err();
        result
            .err()
            .into_iter()
            .for_each(|error| prompt.output.put(Err(error)));
        Ok(())
    }

    fn announce_end(&mut self, _: &Prompt<'_>) -> Result<(), ()> {
        self.0.borrow().engine.observer.event(Event::PromptEnds);
        Ok(())
    }

    fn report_cut(&mut self) -> Result<(), ()> {
        self.0.borrow().engine.observer.event(Event::PromptCut);
        Ok(())
    }

    fn decode(&mut self, step: &Step<'_>) -> Result<(), ()> {
        let state = &mut *self.0.borrow_mut();
        state.engine.observer.event(Event::StepBegins);
        let (pending, left) = (state.pending(), state.left());
        let result = advance::run(&mut state.engine, pending, left);
        state.broken = result.is_err();
        result
            .err()
            .into_iter()
            .for_each(|error| step.output.put(Err(error)));
        Ok(())
    }

    fn select(&mut self, step: &Step<'_>) -> Result<(), ()> {
        let result = self.0.borrow_mut().select();
        step.output.put(result.map(|token| Stepped {
            token: Some(token),
            stop: None,
        }));
        Ok(())
    }

    fn report_end(&mut self, step: &Step<'_>) -> Result<(), ()> {
        let stop = Some(StopReason::EndOfGeneration);
        let stepped = step.output.take();
        stepped.into_iter().flatten().for_each(|stepped| {
            step.output.put(Ok(Stepped { stop, ..stepped }));
        });
        Ok(())
    }

    fn stop_at_limit(&mut self, step: &Step<'_>) -> Result<(), ()> {
        step.output.put(Ok(Stepped {
            token: None,
            stop: Some(StopReason::Limit),
        }));
        Ok(())
    }

    fn stop_at_context(&mut self, step: &Step<'_>) -> Result<(), ()> {
        step.output.put(Ok(Stepped {
            token: None,
            stop: Some(StopReason::ContextFull),
        }));
        Ok(())
    }

    fn halt(&mut self, halt: &Halt<'_>) -> Result<(), ()> {
        halt.output.put(Ok(Stepped {
            token: None,
            stop: Some(halt.reason),
        }));
        Ok(())
    }

    fn ignore(&mut self) -> Result<(), ()> {
        Ok(())
    }
}

/// The generator machine over a session.
pub struct Generator<'s> {
    machine: GenerateStateMachine<Driver<'s>>,
}

impl<'s> Generator<'s> {
    /// An idle generator over `session`.
    pub fn new(session: &'s Session) -> Self {
        Self {
            machine: GenerateStateMachine::new(Driver(session)),
        }
    }

    /// Dispatches one event to completion and reports whether the machine took it. What came of it
    /// is in the event's output.
    pub fn process_event<'e>(&mut self, event: impl Into<GenerateEvents<'e>>) -> bool {
        sml::Machine::process_event(&mut self.machine, event.into())
    }

    /// The awaitable form of [`process_event`](Self::process_event): ready once the dispatch has
    /// run to completion.
    pub fn process_event_async<'e>(
        &mut self,
        event: impl Into<GenerateEvents<'e>>,
    ) -> impl Future<Output = bool> {
        sml::Machine::process_event_async(&mut self.machine, event.into())
    }

    /// True when no further [`Step`] will yield a token.
    pub fn is_finished(&self) -> bool {
        self.machine.is(&GenerateStates::Finished)
    }

    /// True when an error has ended the session.
    pub fn is_failed(&self) -> bool {
        self.machine.is(&GenerateStates::Failed)
    }
}
