//! Argmax and the sampler chain.

mod config;

pub use config::{ConfigError, Mirostat, SamplerConfig, SamplerKind};
