//! Reads the hyper-parameters that all families share, and bounds them.
//!
//! Keys are `{architecture}.NAME` as in the GGUF specification; defaults are those of llama.cpp's
//! `llama_model_base::load_hparams`. The bounds below are far above any published model and
//! exist so that nothing computed from a [`ModelSpec`](super::ModelSpec) can overflow: the
//! largest product anyone forms is cache bytes,
//! `layers * n_ctx * (k_dim + v_dim) * 4 < 2^9 * 2^30 * 2^21 * 2^2 = 2^62`.

use std::cell::RefCell;

use super::error::{ModelError, Problem};
use crate::gguf::{Array, Gguf, Metadata, TensorInfo, TensorType, Value};

/// Most layers a model can have (llama.cpp's `LLAMA_MAX_LAYERS`).
pub const MAX_LAYERS: u32 = 512;
/// Longest context, in tokens.
pub const MAX_CONTEXT: u32 = 1 << 30;
/// Widest residual stream, and most query or key-value values of one layer.
pub const MAX_WIDTH: u32 = 1 << 20;
/// Widest feed-forward network.
pub const MAX_FEED_FORWARD: u32 = 1 << 24;
/// Most tokens in a vocabulary.
pub const MAX_VOCABULARY: u64 = 1 << 24;

/// A file being read as a model of one architecture.
pub(super) struct Reader<'a> {
    gguf: &'a Gguf,
    architecture: &'a str,
    /// Names of the tensors that were read as hyper-parameters.
    consumed: RefCell<Vec<&'a str>>,
}

/// Hyper-parameters common to the families. Per-layer vectors have `n_layer` values.
pub(super) struct Sizes {
    pub n_ctx_train: usize,
    pub d_model: usize,
    pub n_layer: usize,
    pub n_vocab: usize,
    pub rms_eps: f32,
    pub n_head: Vec<usize>,
    pub n_head_kv: Vec<usize>,
    pub d_ff: Vec<usize>,
    pub head_dim: usize,
    pub n_rot: usize,
}

impl<'a> Reader<'a> {
    pub fn new(gguf: &'a Gguf, architecture: &'a str) -> Self {
        Self {
            gguf,
            architecture,
            consumed: RefCell::default(),
        }
    }

    /// Whether a tensor was read as hyper-parameters.
    pub fn has_consumed(&self, tensor: &str) -> bool {
        self.consumed.borrow().contains(&tensor)
    }

    pub fn architecture(&self) -> &'a str {
        self.architecture
    }

    pub fn metadata(&self) -> &'a Metadata {
        self.gguf.metadata()
    }

    pub fn find(&self, tensor: &str) -> Option<&'a TensorInfo> {
        self.gguf.find(tensor)
    }

    /// The full name of an architecture key.
    pub fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture)
    }

    pub fn fail(&self, problem: Problem) -> ModelError {
        ModelError::new(self.gguf.path(), problem)
    }

    pub fn bad(&self, key: String, value: impl ToString, why: impl Into<String>) -> ModelError {
        self.fail(Problem::BadValue {
            key,
            value: value.to_string(),
            why: why.into(),
        })
    }

    /// An optional float, finite.
    pub fn float(&self, name: &str) -> Result<Option<f32>, ModelError> {
        let key = self.key(name);
        match self.metadata().f32(&key)? {
            Some(v) if !v.is_finite() => Err(self.bad(key, v, "it must be finite")),
            other => Ok(other),
        }
    }

    /// An optional float, finite and above zero.
    pub fn positive(&self, name: &str) -> Result<Option<f32>, ModelError> {
        match self.float(name)? {
            Some(v) if v <= 0.0 => Err(self.bad(self.key(name), v, "it must be above 0")),
            other => Ok(other),
        }
    }

    /// An optional integer in `1..=max`.
    pub fn count(&self, name: &str, max: u32) -> Result<Option<usize>, ModelError> {
        let key = self.key(name);
        let value = self.metadata().u32(&key)?;
        value.map(|v| self.bounded(&key, v, max)).transpose()
    }

    /// As [`count`](Self::count), but it must be there.
    fn require_count(&self, name: &str, max: u32) -> Result<usize, ModelError> {
        self.count(name, max)?
            .ok_or_else(|| self.metadata().missing(&self.key(name)).into())
    }

    /// One integer in `1..=max` a layer, from a scalar or an array.
    fn counts(&self, name: &str, n: usize, max: u32) -> Result<Option<Vec<usize>>, ModelError> {
        let key = self.key(name);
        let Some(values) = self.metadata().u32_or_array(&key, n)? else {
            return Ok(None);
        };
        values
            .into_iter()
            .map(|v| self.bounded(&key, v, max))
            .collect::<Result<_, _>>()
            .map(Some)
    }

    fn bounded(&self, key: &str, value: u32, max: u32) -> Result<usize, ModelError> {
        if value == 0 || value > max {
            return Err(self.bad(key.to_owned(), value, format!("it must lie in 1..={max}")));
        }
        Ok(value as usize)
    }

    /// Refuses a file that asks for what no family here does.
    fn refuse_foreign_features(&self) -> Result<(), ModelError> {
        for (name, what) in [
            ("expert_count", "a mixture of experts"),
            ("nextn_predict_layers", "layers that predict further tokens"),
        ] {
            let key = self.key(name);
            if let Some(value) = self.metadata().u32(&key)?.filter(|v| *v > 0) {
                let value = value.to_string();
                return Err(self.fail(Problem::UnsupportedFeature { key, value, what }));
            }
        }
        let key = self.key("attention.causal");
        if self.metadata().bool(&key)? == Some(false) {
            let (value, what) = ("false".to_owned(), "attention to later positions");
            return Err(self.fail(Problem::UnsupportedFeature { key, value, what }));
        }
        Ok(())
    }

    /// Reads and bounds the shared hyper-parameters.
    pub fn sizes(&self) -> Result<Sizes, ModelError> {
        self.refuse_foreign_features()?;
        let n_ctx_train = self.require_count("context_length", MAX_CONTEXT)?;
        let d_model = self.require_count("embedding_length", MAX_WIDTH)?;
        let n_layer = self.require_count("block_count", MAX_LAYERS)?;
        let rms_eps = self.rms_eps()?;

        let require = |name| self.metadata().missing(&self.key(name));
        let n_head = self
            .counts("attention.head_count", n_layer, MAX_WIDTH)?
            .ok_or_else(|| require("attention.head_count"))?;
        let n_head_kv = self
            .counts("attention.head_count_kv", n_layer, MAX_WIDTH)?
            .unwrap_or_else(|| n_head.clone());
        let d_ff = self
            .counts("feed_forward_length", n_layer, MAX_FEED_FORWARD)?
            .ok_or_else(|| require("feed_forward_length"))?;
        for (layer, (&n_head, &n_head_kv)) in n_head.iter().zip(&n_head_kv).enumerate() {
            if n_head % n_head_kv != 0 {
                let key = self.key("attention.head_count_kv");
                return Err(self.fail(Problem::HeadsDoNotDivide {
                    key,
                    layer,
                    n_head,
                    n_head_kv,
                }));
            }
        }

        let head_dim = self.head_dim(d_model, &n_head)?;
        let n_rot = self
            .n_rot("rope.dimension_count", head_dim)?
            .unwrap_or(head_dim);
        let n_vocab = self.n_vocab()?;
        Ok(Sizes {
            n_ctx_train,
            d_model,
            n_layer,
            n_vocab,
            rms_eps,
            n_head,
            n_head_kv,
            d_ff,
            head_dim,
            n_rot,
        })
    }

    fn rms_eps(&self) -> Result<f32, ModelError> {
        let name = "attention.layer_norm_rms_epsilon";
        let missing = || self.metadata().missing(&self.key(name));
        let eps = self.float(name)?.ok_or_else(missing)?;
        if eps < 0.0 {
            return Err(self.bad(self.key(name), eps, "it must not be below 0"));
        }
        Ok(eps)
    }

    /// The width of a head: `attention.key_length`, else `d_model / n_head`. Values are as wide
    /// as keys in every family here.
    fn head_dim(&self, d_model: usize, n_head: &[usize]) -> Result<usize, ModelError> {
        let key_name = "attention.key_length";
        let value_name = "attention.value_length";
        let from_key = self.count(key_name, MAX_WIDTH)?;
        let from_value = self.count(value_name, MAX_WIDTH)?;
        let (head_dim, source) = match from_key {
            Some(head_dim) => (head_dim, self.key(key_name)),
            None => {
                let key = self.key("attention.head_count");
                if !d_model.is_multiple_of(n_head[0]) {
                    let why = format!("it does not divide embedding_length = {d_model}");
                    return Err(self.bad(key, n_head[0], why));
                }
                (d_model / n_head[0], key)
            }
        };
        if let Some(value_dim) = from_value.filter(|v| *v != head_dim) {
            let why = format!("keys are {head_dim} wide, and unlike widths are not supported");
            return Err(self.bad(self.key(value_name), value_dim, why));
        }
        let widest = n_head.iter().copied().max().unwrap_or(1);
        if widest * head_dim > MAX_WIDTH as usize {
            let why = format!("{widest} heads of width {head_dim} exceed {MAX_WIDTH} values");
            return Err(self.bad(source, head_dim, why));
        }
        if !head_dim.is_multiple_of(2) {
            let why = format!("it makes heads {head_dim} wide, but rotation takes pairs");
            return Err(self.bad(source, head_dim, why));
        }
        Ok(head_dim)
    }

    /// A count of rotated values: even, at most the head's width.
    pub fn n_rot(&self, name: &str, head_dim: usize) -> Result<Option<usize>, ModelError> {
        let n_rot = self.count(name, MAX_WIDTH)?;
        match n_rot {
            Some(n) if n > head_dim || !n.is_multiple_of(2) => {
                let why = format!("it must be even and at most the head width {head_dim}");
                Err(self.bad(self.key(name), n, why))
            }
            other => Ok(other),
        }
    }

    /// The vocabulary's size: the tokenizer's if the file has one, else `vocab_size`, else what
    /// the embedding holds.
    fn n_vocab(&self) -> Result<usize, ModelError> {
        let (key, n) = match self.metadata().strings("tokenizer.ggml.tokens")? {
            Some(tokens) => ("tokenizer.ggml.tokens".to_owned(), tokens.len() as u64),
            None => {
                let key = self.key("vocab_size");
                let rows = || {
                    self.find("token_embd.weight")
                        .and_then(|t| t.shape.get(1))
                        .copied()
                };
                match self.metadata().u32(&key)?.map(u64::from).or_else(rows) {
                    Some(n) => (key, n),
                    None => {
                        let tensor = "token_embd.weight".to_owned();
                        return Err(self.fail(Problem::MissingTensor { tensor }));
                    }
                }
            }
        };
        if n == 0 || n > MAX_VOCABULARY {
            let why = format!("a vocabulary has 1 to {MAX_VOCABULARY} tokens");
            return Err(self.bad(key, n, why));
        }
        Ok(n as usize)
    }

    /// The values of an F32 vector of hyper-parameters.
    pub fn f32_vector(
        &self,
        tensor: &'a TensorInfo,
        len: usize,
        role: &'static str,
    ) -> Result<Vec<f32>, ModelError> {
        self.consumed.borrow_mut().push(&tensor.name);
        self.check(tensor, &[len as u64], &[TensorType::F32], role)?;
        let bytes = self.gguf.data(tensor).chunks_exact(4);
        Ok(bytes
            .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
            .collect())
    }

    /// Checks a tensor's shape (row length first; trailing ones do not count) and type.
    pub fn check(
        &self,
        tensor: &TensorInfo,
        wanted: &[u64],
        types: &[TensorType],
        role: &'static str,
    ) -> Result<(), ModelError> {
        let (shape, rest) = tensor.shape.split_at(tensor.shape.len().min(wanted.len()));
        if shape != wanted || rest.iter().any(|d| *d != 1) {
            return Err(self.fail(Problem::WrongShape {
                tensor: tensor.name.clone(),
                found: tensor.shape.clone(),
                wanted: wanted.to_vec(),
                role,
            }));
        }
        if !types.contains(&tensor.ty) {
            return Err(self.fail(Problem::UnsupportedType {
                tensor: tensor.name.clone(),
                found: tensor.ty.name(),
                supported: types.iter().map(|t| t.name()).collect(),
            }));
        }
        Ok(())
    }

    /// Which layers are windowed, from `attention.sliding_window_pattern`: one flag a layer, or
    /// the length of a period whose last layer sees everything (0: none does). `default` is the
    /// period when the key is missing.
    pub fn window_pattern(&self, n_layer: usize, default: u32) -> Result<Vec<bool>, ModelError> {
        let key = self.key("attention.sliding_window_pattern");
        match self.metadata().get(&key) {
            Some(Value::Array(Array::Bool(flags))) => {
                if flags.len() < n_layer {
                    let found = flags.len();
                    return Err(self.fail(Problem::ShortArray {
                        key,
                        found,
                        layers: n_layer,
                    }));
                }
                Ok(flags[..n_layer].to_vec())
            }
            Some(Value::Array(_)) => {
                let flags = self
                    .metadata()
                    .u32_or_array(&key, n_layer)?
                    .unwrap_or_default();
                Ok(flags.into_iter().map(|flag| flag != 0).collect())
            }
            _ => {
                let period = self.metadata().u32(&key)?.unwrap_or(default) as usize;
                Ok((0..n_layer)
                    .map(|i| period == 0 || i % period < period - 1)
                    .collect())
            }
        }
    }
}
