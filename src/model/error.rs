//! What can be wrong with a model whose container is sound.

use std::path::{Path, PathBuf};

use crate::gguf::{GgufError, TensorType};

/// Why a file cannot be run as a model.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// A key is missing, or of another type than its meaning asks for.
    #[error(transparent)]
    Metadata(#[from] GgufError),
    /// The container is sound, but what it says does not make a model this engine runs.
    #[error("{}: {problem}", file.display())]
    Model {
        /// The file (the first shard of a split model).
        file: PathBuf,
        /// What is wrong.
        problem: Problem,
    },
}

impl ModelError {
    pub(super) fn new(file: &Path, problem: Problem) -> Self {
        Self::Model {
            file: file.to_owned(),
            problem,
        }
    }

    /// What is wrong, when it is not the metadata's form.
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Metadata(_) => None,
            Self::Model { problem, .. } => Some(problem),
        }
    }
}

/// One way in which a well-formed file is no model this engine runs.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Problem {
    /// The family is none of ours.
    #[error("architecture `{name}` is not supported (key `general.architecture`); supported: {}", supported.join(", "))]
    UnsupportedArchitecture {
        /// `general.architecture`.
        name: String,
        /// What it could be.
        supported: Vec<&'static str>,
    },
    /// The family is ours, but this member of it asks for something that is not built.
    #[error("key `{key}` = {value} asks for {what}, which is not supported")]
    UnsupportedFeature {
        /// The key that asks.
        key: String,
        /// Its value.
        value: String,
        /// What it asks for.
        what: &'static str,
    },
    /// A hyper-parameter has a value that no model can have.
    #[error("key `{key}` = {value} is not usable: {why}")]
    BadValue {
        /// The key.
        key: String,
        /// Its value.
        value: String,
        /// What it must be.
        why: String,
    },
    /// Query heads cannot be shared out evenly among key and value heads.
    #[error(
        "key `{key}`: layer {layer} has {n_head_kv} key and value heads, which do not divide its \
         {n_head} query heads"
    )]
    HeadsDoNotDivide {
        /// The key of the key and value heads.
        key: String,
        /// The layer.
        layer: usize,
        /// Its query heads.
        n_head: usize,
        /// Its key and value heads.
        n_head_kv: usize,
    },
    /// A per-layer array has fewer values than the model has layers.
    #[error("key `{key}` has {found} values, but the model has {layers} layers")]
    ShortArray {
        /// The key.
        key: String,
        /// Its length.
        found: usize,
        /// `block_count`.
        layers: usize,
    },
    /// A tensor that the model needs is not in the file.
    #[error("tensor `{tensor}` is missing")]
    MissingTensor {
        /// Its name.
        tensor: String,
    },
    /// A tensor of the file has no role in the model: running without it would be wrong.
    #[error(
        "tensor `{tensor}` has no role in a model of architecture `{architecture}`; this variant \
         is not supported"
    )]
    UnexpectedTensor {
        /// Its name.
        tensor: String,
        /// The family.
        architecture: String,
    },
    /// A tensor's shape is not the one that the hyper-parameters ask for.
    #[error("tensor `{tensor}` has shape {found:?}, but {role} asks for {wanted:?}")]
    WrongShape {
        /// Its name.
        tensor: String,
        /// Its shape, row length first.
        found: Vec<u64>,
        /// The shape asked for.
        wanted: Vec<u64>,
        /// Where the wanted sizes come from.
        role: &'static str,
    },
    /// A tensor's type is not one its role can have.
    #[error("tensor `{tensor}` has type {found}, which is not supported here; supported: {}", supported.join(", "))]
    UnsupportedType {
        /// Its name.
        tensor: String,
        /// The type's name in ggml.
        found: &'static str,
        /// The names of the types it could have.
        supported: Vec<&'static str>,
    },
    /// A tensor that holds hyper-parameters has a value that no model can have.
    #[error("tensor `{tensor}`: value {index} is {value}, but {why}")]
    BadTensorValue {
        /// Its name.
        tensor: String,
        /// The place of the value.
        index: usize,
        /// The value.
        value: f32,
        /// What it must be.
        why: &'static str,
    },
}

/// The types a weight matrix can have.
pub const WEIGHT_TYPES: [TensorType; 15] = [
    TensorType::F32,
    TensorType::F16,
    TensorType::BF16,
    TensorType::Q4_0,
    TensorType::Q4_1,
    TensorType::Q5_0,
    TensorType::Q5_1,
    TensorType::Q8_0,
    TensorType::Q2_K,
    TensorType::Q3_K,
    TensorType::Q4_K,
    TensorType::Q5_K,
    TensorType::Q6_K,
    TensorType::IQ4_NL,
    TensorType::IQ4_XS,
];
