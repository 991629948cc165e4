//! From logits to a token: argmax, the n best, and llama.cpp's sampler chain.
//!
//! Logits come from the engine as `[n_vocab]` floats. The chain is biases, then samplers in a
//! configured order (by default penalties, DRY, top-n-sigma, top-k, typical, top-p, min-p, XTC,
//! temperature), then one random draw; or temperature and Mirostat. Semantics and defaults are
//! those of llama.cpp's `llama-sampler.cpp`; arithmetic is plain IEEE operations and the `libm`
//! crate, so the same logits and seed give the same tokens on every machine. Where llama.cpp
//! leaves the order of equal logits to its sort, here the lowest id comes first.

mod argmax;
mod candidates;
mod chain;
mod config;
mod draw;
mod dry;
mod mirostat;
mod penalties;
mod ring;
mod rng;
mod temperature;
mod truncate;

#[cfg(test)]
mod tests;

pub use argmax::{argmax, top_n, top_n_into};
pub use chain::Sampler;
pub use config::{ConfigError, Mirostat, SamplerConfig, SamplerKind};
pub use dry::DryBreakers;
pub use rng::Mt19937;

/// A chosen token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// Its id.
    pub id: u32,
    /// Its logit, as the model gave it.
    pub logit: f32,
}

/// Logits from which no token can be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SampleError {
    /// The first token whose logit is NaN: the model file is damaged, or the engine at fault.
    #[error("the logit of token {id} is NaN; the model's weights may be damaged")]
    Nan {
        /// Its id.
        id: u32,
    },
    /// The first token whose logit is plus infinity.
    #[error("the logit of token {id} is infinite; the model's weights may be damaged")]
    Infinite {
        /// Its id.
        id: u32,
    },
    /// Every token has been ruled out.
    #[error("every token is ruled out; check the logit biases and penalties")]
    NothingLeft,
    /// Biases or penalties have made a logit infinite.
    #[error("a logit overflows under the biases and penalties; make them smaller")]
    Overflow,
    /// There are no logits.
    #[error("there are no logits to choose from")]
    Empty,
    /// Another number of logits than the sampler was made for.
    #[error("{got} logits for a vocabulary of {wanted} tokens")]
    Length {
        /// How many came.
        got: usize,
        /// How many the vocabulary has.
        wanted: usize,
    },
}
