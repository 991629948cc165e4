//! The f64 oracle: a slow forward pass that says which engine is right.
//!
//! It computes what a model means rather than what an engine does: weights are dequantized
//! exactly, activations and the cache are f64 and never quantized, every function is its
//! textbook form. It shares no code with the kernels. An engine's logits are judged by their
//! distance from the oracle's ([`compare`]).
//!
//! ```no_run
//! use emel::{gguf::Gguf, model, oracle::{Oracle, Want, compare::Distance}};
//!
//! let gguf = Gguf::open("model.gguf".as_ref())?;
//! let model = model::bind(&gguf)?;
//! let mut oracle = Oracle::new(&gguf, &model)?;
//! let logits = oracle.prefill(&[1, 450, 7483], Want::Last)?;
//! let next = oracle.step(310)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod compare;
pub mod dequant;
mod forward;
mod math;
mod parallel;
mod product;
mod weights;

use std::thread;

use crate::gguf::Gguf;
use crate::model::{Model, Point};
use forward::LayerCache;
use weights::Weights;

/// Positions that share each decoded row; bounds the memory of a long prompt.
pub const BATCH: usize = 128;
/// Positions whose logits are computed together: vocabularies are large.
const LOGITS_BATCH: usize = 32;

/// Why the oracle cannot say anything.
#[derive(Debug, thiserror::Error)]
pub enum OracleError {
    /// A token beyond the vocabulary.
    #[error("token {token} is not in the vocabulary of {n_vocab} tokens")]
    UnknownToken {
        /// The token.
        token: u32,
        /// The vocabulary's size.
        n_vocab: usize,
    },
    /// No room for more positions.
    #[error("position {position} is beyond the context of {n_ctx} tokens")]
    ContextFull {
        /// The first position that has no room.
        position: usize,
        /// The context's length.
        n_ctx: usize,
    },
    /// Logits were asked for at a place where there is no token.
    #[error("logits asked for at place {place} of {tokens} tokens")]
    NoSuchPlace {
        /// The place.
        place: usize,
        /// Tokens given.
        tokens: usize,
    },
    /// A tensor type that has no definition here; `model::bind` lets none through.
    #[error("tensor `{tensor}`: the oracle cannot read type {ty}")]
    UnsupportedType {
        /// The tensor.
        tensor: String,
        /// Its type.
        ty: &'static str,
    },
    /// The system gave no thread.
    #[error("the oracle could not start a thread: {0}")]
    Thread(#[source] std::io::Error),
}

/// At which places of the given tokens logits are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want<'a> {
    /// At each.
    Every,
    /// At the last.
    Last,
    /// At these, counted from the first given token, in this order.
    At(&'a [usize]),
}

/// One position's values at one point of the pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tensor<'a> {
    /// The layer; none for what belongs to no layer.
    pub layer: Option<usize>,
    /// Where in the pass.
    pub point: Point,
    /// The position in the context.
    pub position: usize,
    /// The values; [`Point`] says how many.
    pub values: &'a [f64],
}

/// A forward pass in f64 with a cache of its own.
pub struct Oracle<'a> {
    model: &'a Model,
    weights: Weights<'a>,
    caches: Vec<LayerCache>,
    position: usize,
    n_ctx: usize,
    threads: usize,
}

impl<'a> Oracle<'a> {
    /// An oracle for `model`, bound from `gguf`, with the trained context length, on as many
    /// threads as there are processors.
    ///
    /// # Errors
    ///
    /// [`OracleError::UnsupportedType`] when `model` was not bound from `gguf`.
    pub fn new(gguf: &'a Gguf, model: &'a Model) -> Result<Self, OracleError> {
        Ok(Self {
            model,
            weights: Weights::new(gguf, model)?,
            caches: vec![LayerCache::default(); model.spec.layers.len()],
            position: 0,
            n_ctx: model.spec.n_ctx_train,
            threads: thread::available_parallelism().map_or(1, usize::from),
        })
    }

    /// Uses `threads` threads; the results are the same bits for any number.
    pub fn with_threads(mut self, threads: usize) -> Self {
        self.threads = threads.max(1);
        self
    }

    /// Takes the context to hold `n_ctx` tokens, which limits positions and may choose other
    /// rotation factors.
    pub fn with_context(mut self, n_ctx: usize) -> Self {
        self.n_ctx = n_ctx;
        self
    }

    /// Positions in the cache.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Forgets all positions.
    pub fn reset(&mut self) {
        self.caches.fill_with(LayerCache::default);
        self.position = 0;
    }

    /// Adds one token and gives the logits after it, `[n_vocab]`.
    ///
    /// # Errors
    ///
    /// As [`Oracle::prefill`].
    pub fn step(&mut self, token: u32) -> Result<Vec<f64>, OracleError> {
        Ok(self
            .prefill(&[token], Want::Last)?
            .pop()
            .unwrap_or_default())
    }

    /// Adds tokens and gives the logits, `[n_vocab]` each, at the places that `want` names.
    ///
    /// # Errors
    ///
    /// Tokens beyond the vocabulary, positions beyond the context, places beyond the tokens;
    /// then the cache is as it was. [`OracleError::Thread`] can come in the middle of a layer;
    /// [`reset`](Oracle::reset) before going on.
    pub fn prefill(&mut self, tokens: &[u32], want: Want) -> Result<Vec<Vec<f64>>, OracleError> {
        self.prefill_observed(tokens, want, &mut |_| ())
    }

    /// As [`Oracle::prefill`], and shows `observer` every position at every [`Point`], whether its
    /// logits are wanted or not. The positions of a batch of 128 go through the pass together: each
    /// point of it comes for all of them, first to last, before the next.
    ///
    /// The cache takes two vectors of every layer and position, the rest of a pass one of
    /// `d_model` a position and one of `n_vocab` for each that is wanted, 8 bytes a value.
    ///
    /// # Errors
    ///
    /// As [`Oracle::prefill`].
    pub fn prefill_observed(
        &mut self,
        tokens: &[u32],
        want: Want,
        observer: &mut dyn FnMut(Tensor<'_>),
    ) -> Result<Vec<Vec<f64>>, OracleError> {
        self.check(tokens, want)?;
        let mut outputs = Vec::with_capacity(tokens.len());
        for batch in tokens.chunks(BATCH) {
            outputs.extend(self.pass(batch, observer)?);
        }
        let wanted: Vec<Vec<f64>> = match want {
            Want::Every => outputs,
            Want::Last => outputs.pop().into_iter().collect(),
            Want::At(places) => places.iter().map(|place| outputs[*place].clone()).collect(),
        };
        let mut logits = Vec::with_capacity(wanted.len());
        for batch in wanted.chunks(LOGITS_BATCH) {
            logits.extend(self.logits(batch)?);
        }
        Ok(logits)
    }

    fn check(&self, tokens: &[u32], want: Want) -> Result<(), OracleError> {
        let n_vocab = self.model.spec.n_vocab;
        if let Some(&token) = tokens.iter().find(|token| **token as usize >= n_vocab) {
            return Err(OracleError::UnknownToken { token, n_vocab });
        }
        if tokens.len() > self.n_ctx.saturating_sub(self.position) {
            return Err(OracleError::ContextFull {
                position: self.n_ctx,
                n_ctx: self.n_ctx,
            });
        }
        if let Want::At(places) = want
            && let Some(&place) = places.iter().find(|place| **place >= tokens.len())
        {
            return Err(OracleError::NoSuchPlace {
                place,
                tokens: tokens.len(),
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
