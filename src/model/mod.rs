//! What a model is: hyper-parameters, per-layer route fields and bound tensors.

pub mod rope;
pub mod spec;

pub use rope::{LongFactors, RopeKind, RopeSpec};
pub use spec::{
    Activation, AttentionForm, FeedForwardForm, LayerSpec, LayerTensors, Model, ModelSpec,
    ModelTensors, TensorId,
};
