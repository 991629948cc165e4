//! What a model is: hyper-parameters and per-layer route fields read from metadata, tensors bound
//! by name.
//!
//! [`bind`] turns a parsed [`Gguf`] into a [`Model`], or says by name which key or tensor makes
//! that impossible, before anything is packed or run. Each family has one file here that knows
//! its keys and its form, and describes both in the terms of [`spec`]; nothing outside this
//! module ever asks for a family's name.

mod binder;
mod error;
mod family;
mod gemma3;
mod llama;
mod point;
pub mod quantize;
mod qwen2;
mod qwen3;
mod reader;
pub mod rope;
mod scaling;
pub mod spec;
pub mod testing;

pub use error::{ModelError, Problem, WEIGHT_TYPES};
pub use point::{Point, UnknownPoint};
pub use rope::{LongFactors, RopeKind, RopeSpec};
pub use spec::{
    Activation, AttentionForm, FeedForwardForm, LayerSpec, LayerTensors, Model, ModelSpec,
    ModelTensors, TensorId,
};

use crate::gguf::Gguf;
use family::FAMILIES;
use reader::Reader;

/// Reads the hyper-parameters of a file and binds its tensors.
///
/// # Errors
///
/// [`ModelError`] names the file and the key or tensor that is missing, unusable or not
/// supported; an unsupported architecture is told apart before anything else is read.
pub fn bind(gguf: &Gguf) -> Result<Model, ModelError> {
    let name = gguf.metadata().require_str("general.architecture")?;
    let Some(family) = FAMILIES.iter().find(|family| family.name == name) else {
        let supported = FAMILIES.iter().map(|family| family.name).collect();
        let problem = Problem::UnsupportedArchitecture {
            name: name.to_owned(),
            supported,
        };
        return Err(ModelError::new(gguf.path(), problem));
    };
    let reader = Reader::new(gguf, name);
    let spec = (family.read)(&reader)?;
    let tensors = binder::bind(gguf, &reader, &spec)?;
    Ok(Model { spec, tensors })
}

#[cfg(test)]
mod tests;
