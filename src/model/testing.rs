//! Small model files for tests: random ones of every family and weight type, and a file in the
//! making whose keys and tensors a test can change at will.
//!
//! The same seed gives the same bytes on every machine. The models say nothing sensible; their
//! weights are scaled so that logits differ clearly and no value runs away.

use std::fs;
use std::io;
use std::path::Path;
use tempfile::TempPath;

use crate::gguf::write::{GgufWriter, WriteError};
use crate::gguf::{TensorType, Value};
use crate::model::quantize::Quantizer;

/// Encodes `values` as blocks of `ty`.
///
/// # Panics
///
/// When `ty` is no weight type of the engine, or `values` is no whole number of blocks.
pub fn quantize(ty: TensorType, values: &[f32]) -> Vec<u8> {
    let quantizer = Quantizer::new(ty)
        .unwrap_or_else(|| panic!("{} is no weight type of the engine", ty.name()));
    let mut out = Vec::new();
    if let Err(error) = quantizer.encode(values, &mut out) {
        panic!("{error}");
    }
    out
}

/// A small random model. Change the fields before writing.
#[derive(Clone, Debug)]
pub struct TestModel {
    /// `llama`, `qwen2`, `qwen3` or `gemma3`.
    pub architecture: &'static str,
    /// The type of every matrix, the embedding included.
    pub weights: TensorType,
    /// Layers.
    pub n_layer: usize,
    /// Width of the residual stream.
    pub d_model: usize,
    /// Query heads.
    pub n_head: usize,
    /// Key and value heads.
    pub n_head_kv: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Width of the feed-forward network.
    pub d_ff: usize,
    /// Tokens in the vocabulary; from 300 on it is one a tokenizer can use for any text.
    pub n_vocab: usize,
    /// Trained context length.
    pub n_ctx: u32,
    /// Sliding window (gemma3) and the period of its pattern.
    pub window: Option<(u32, u32)>,
    /// No `output.weight`: the embedding serves as both.
    pub tied: bool,
    /// Rotation with Llama 3's frequency factors in `rope_freqs.weight` (llama).
    pub rope_factors: bool,
    /// Where the random numbers start.
    pub seed: u64,
}

impl TestModel {
    /// Three layers, 256 wide, of `architecture` with matrices of type `weights`. Heads are
    /// grouped; in families whose heads need not add up to the stream's width, they do not.
    pub fn new(architecture: &'static str, weights: TensorType) -> Self {
        let wide_heads = matches!(architecture, "qwen3" | "gemma3");
        let gemma = architecture == "gemma3";
        Self {
            architecture,
            weights,
            n_layer: 3,
            d_model: 256,
            n_head: 4,
            n_head_kv: if gemma { 1 } else { 2 },
            head_dim: if wide_heads { 128 } else { 64 },
            d_ff: 512,
            n_vocab: 300,
            n_ctx: 4096,
            window: gemma.then_some((20, 3)),
            tied: gemma,
            rope_factors: false,
            seed: 1,
        }
    }

    /// The file, to be changed or written.
    pub fn file(&self) -> TestFile {
        let mut file = TestFile::new(self.architecture);
        self.push_metadata(&mut file);
        self.push_vocabulary(&mut file);
        self.push_tensors(&mut file);
        file
    }

    /// Writes the file into the system's temporary directory; it goes when the handle is dropped.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub fn write_temporary(&self) -> Result<TemporaryModel, WriteError> {
        self.file().write_temporary()
    }

    fn push_metadata(&self, file: &mut TestFile) {
        let mut set = |name: &str, value: Value| {
            file.set(format!("{}.{name}", self.architecture), value);
        };
        set("context_length", Value::U32(self.n_ctx));
        set("embedding_length", Value::U32(self.d_model as u32));
        set("block_count", Value::U32(self.n_layer as u32));
        set("feed_forward_length", Value::U32(self.d_ff as u32));
        set("attention.head_count", Value::U32(self.n_head as u32));
        set("attention.head_count_kv", Value::U32(self.n_head_kv as u32));
        set("attention.layer_norm_rms_epsilon", Value::F32(1e-6));
        if self.head_dim * self.n_head != self.d_model {
            set("attention.key_length", Value::U32(self.head_dim as u32));
            set("attention.value_length", Value::U32(self.head_dim as u32));
        }
        set("rope.freq_base", Value::F32(100_000.0));
        if let Some((window, pattern)) = self.window {
            set("attention.sliding_window", Value::U32(window));
            set("attention.sliding_window_pattern", Value::U32(pattern));
        }
    }

    fn push_vocabulary(&self, file: &mut TestFile) {
        for (key, value) in vocabulary(self.n_vocab) {
            file.set(key, value);
        }
    }

    fn push_tensors(&self, file: &mut TestFile) {
        let mut random = Random(self.seed);
        let mut matrix = |file: &mut TestFile, name: &str, rows: usize, row_len: usize| {
            let scale = 1.5 / (row_len as f32).sqrt();
            let values: Vec<f32> = (0..rows * row_len)
                .map(|_| scale * random.normal())
                .collect();
            let shape = [row_len as u64, rows as u64];
            file.tensor(name, &shape, self.weights, quantize(self.weights, &values));
        };
        let mut others = Random(self.seed ^ 0x5eed);
        let mut vector = |file: &mut TestFile, name: &str, len: usize, middle: f32| {
            let values: Vec<f32> = (0..len).map(|_| middle + 0.2 * others.normal()).collect();
            file.vector(name, &values);
        };
        let (d_model, q_dim) = (self.d_model, self.n_head * self.head_dim);
        let kv_dim = self.n_head_kv * self.head_dim;
        matrix(file, "token_embd.weight", self.n_vocab, d_model);
        vector(file, "output_norm.weight", d_model, 1.0);
        if !self.tied {
            matrix(file, "output.weight", self.n_vocab, d_model);
        }
        if self.rope_factors {
            let factors: Vec<f32> = (0..self.head_dim / 2)
                .map(|i| 1.0 + i as f32 / 4.0)
                .collect();
            file.vector("rope_freqs.weight", &factors);
        }
        for layer in 0..self.n_layer {
            let name = |part: &str| format!("blk.{layer}.{part}");
            vector(file, &name("attn_norm.weight"), d_model, 1.0);
            matrix(file, &name("attn_q.weight"), q_dim, d_model);
            matrix(file, &name("attn_k.weight"), kv_dim, d_model);
            matrix(file, &name("attn_v.weight"), kv_dim, d_model);
            matrix(file, &name("attn_output.weight"), d_model, q_dim);
            if self.architecture == "qwen2" {
                vector(file, &name("attn_q.bias"), q_dim, 0.0);
                vector(file, &name("attn_k.bias"), kv_dim, 0.0);
                vector(file, &name("attn_v.bias"), kv_dim, 0.0);
            }
            if matches!(self.architecture, "qwen3" | "gemma3") {
                vector(file, &name("attn_q_norm.weight"), self.head_dim, 1.0);
                vector(file, &name("attn_k_norm.weight"), self.head_dim, 1.0);
            }
            if self.architecture == "gemma3" {
                vector(file, &name("post_attention_norm.weight"), d_model, 1.0);
                vector(file, &name("post_ffw_norm.weight"), d_model, 1.0);
            }
            vector(file, &name("ffn_norm.weight"), d_model, 1.0);
            matrix(file, &name("ffn_gate.weight"), self.d_ff, d_model);
            matrix(file, &name("ffn_up.weight"), self.d_ff, d_model);
            matrix(file, &name("ffn_down.weight"), d_model, self.d_ff);
        }
    }
}

/// The keys of a SentencePiece vocabulary: three control tokens, all bytes, letters and a few
/// pieces, then names that no text holds, `n_vocab` in all.
pub fn vocabulary(n_vocab: usize) -> Vec<(&'static str, Value)> {
    let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>"].map(str::to_owned).to_vec();
    tokens.extend((0..=255).map(|byte| format!("<0x{byte:02X}>")));
    tokens.push("\u{2581}".to_owned());
    tokens.extend(('a'..='z').map(String::from));
    let pieces = [
        "\u{2581}t",
        "he",
        "\u{2581}the",
        "in",
        "er",
        "an",
        "on",
        "\u{2581}a",
        "ing",
    ];
    tokens.extend(pieces.map(str::to_owned));
    let named = tokens.len();
    tokens.extend((named..n_vocab).map(|i| format!("[{i}]")));
    tokens.truncate(n_vocab);
    let kind = |i: usize| match i {
        0 => 2,
        1 | 2 => 3,
        3..=258 => 6,
        _ => 1,
    };
    let scores: Vec<f32> = (0..n_vocab).map(|i| -(i as f32)).collect();
    let kinds: Vec<i32> = (0..n_vocab).map(kind).collect();
    vec![
        ("tokenizer.ggml.model", "llama".into()),
        ("tokenizer.ggml.tokens", tokens.into()),
        ("tokenizer.ggml.scores", scores.into()),
        ("tokenizer.ggml.token_type", kinds.into()),
        ("tokenizer.ggml.bos_token_id", 1u32.into()),
        ("tokenizer.ggml.eos_token_id", 2u32.into()),
        ("tokenizer.ggml.unknown_token_id", 0u32.into()),
    ]
}

/// A model file in the making.
#[derive(Clone, Debug)]
pub struct TestFile {
    /// Keys and values, in order.
    pub metadata: Vec<(String, Value)>,
    /// Tensors, in order.
    pub tensors: Vec<TestTensor>,
}

/// One tensor of a [`TestFile`].
#[derive(Clone, Debug)]
pub struct TestTensor {
    /// The name.
    pub name: String,
    /// Row length first.
    pub shape: Vec<u64>,
    /// The type.
    pub ty: TensorType,
    /// The blocks.
    pub data: Vec<u8>,
}

impl TestFile {
    /// A file that says nothing but its architecture.
    pub fn new(architecture: &str) -> Self {
        let metadata = vec![("general.architecture".to_owned(), Value::from(architecture))];
        Self {
            metadata,
            tensors: Vec::new(),
        }
    }

    /// Sets a key, in place if it is there.
    pub fn set(&mut self, key: impl Into<String>, value: impl Into<Value>) -> &mut Self {
        let (key, value) = (key.into(), value.into());
        match self.metadata.iter_mut().find(|(name, _)| *name == key) {
            Some(pair) => pair.1 = value,
            None => self.metadata.push((key, value)),
        }
        self
    }

    /// Takes a key away.
    ///
    /// # Panics
    ///
    /// When it is not there: the test would not test what it says.
    pub fn unset(&mut self, key: &str) -> &mut Self {
        let before = self.metadata.len();
        self.metadata.retain(|(name, _)| name != key);
        assert_ne!(before, self.metadata.len(), "no key `{key}`");
        self
    }

    /// Appends a tensor.
    pub fn tensor(
        &mut self,
        name: &str,
        shape: &[u64],
        ty: TensorType,
        data: Vec<u8>,
    ) -> &mut Self {
        self.tensors.push(TestTensor {
            name: name.to_owned(),
            shape: shape.to_vec(),
            ty,
            data,
        });
        self
    }

    /// Appends an F32 vector.
    pub fn vector(&mut self, name: &str, values: &[f32]) -> &mut Self {
        let data = quantize(TensorType::F32, values);
        self.tensor(name, &[values.len() as u64], TensorType::F32, data)
    }

    /// Appends an F32 matrix, given by rows.
    pub fn matrix<const N: usize>(&mut self, name: &str, rows: &[[f32; N]]) -> &mut Self {
        let data = quantize(TensorType::F32, rows.as_flattened());
        self.tensor(name, &[N as u64, rows.len() as u64], TensorType::F32, data)
    }

    /// The tensor called `name`.
    ///
    /// # Panics
    ///
    /// When there is none.
    pub fn tensor_mut(&mut self, name: &str) -> &mut TestTensor {
        let found = self.tensors.iter_mut().find(|tensor| tensor.name == name);
        found.unwrap_or_else(|| panic!("no tensor `{name}`"))
    }

    /// Takes a tensor away.
    ///
    /// # Panics
    ///
    /// When it is not there.
    pub fn remove(&mut self, name: &str) -> &mut Self {
        let before = self.tensors.len();
        self.tensors.retain(|tensor| tensor.name != name);
        assert_ne!(before, self.tensors.len(), "no tensor `{name}`");
        self
    }

    /// Gives a tensor another shape or type, and zeros for data.
    pub fn reshape(&mut self, name: &str, shape: &[u64], ty: TensorType) -> &mut Self {
        let tensor = self.tensor_mut(name);
        let blocks = shape.iter().product::<u64>() / ty.block_len();
        tensor.shape = shape.to_vec();
        tensor.ty = ty;
        tensor.data = vec![0; (blocks * ty.block_bytes()) as usize];
        self
    }

    /// Writes the file.
    ///
    /// # Errors
    ///
    /// When what was declared is no valid container, or the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), WriteError> {
        let mut writer = GgufWriter::new();
        for (key, value) in &self.metadata {
            writer.set(key.clone(), value.clone());
        }
        for tensor in &self.tensors {
            writer.tensor(tensor.name.clone(), &tensor.shape, tensor.ty);
        }
        let mut stream = writer.begin(io::BufWriter::new(fs::File::create(path)?))?;
        for tensor in &self.tensors {
            stream.data(&tensor.data)?;
        }
        io::Write::flush(&mut stream.finish()?)?;
        Ok(())
    }

    /// Writes the file into the system's temporary directory; it goes when the handle is dropped.
    ///
    /// # Errors
    ///
    /// As [`TestFile::write`].
    pub fn write_temporary(&self) -> Result<TemporaryModel, WriteError> {
        let path = tempfile::Builder::new()
            .prefix("emel-test-")
            .suffix(".gguf")
            .tempfile()?
            .into_temp_path();
        self.write(&path)?;
        Ok(TemporaryModel { path })
    }
}

/// A model file that is deleted when this is dropped.
#[derive(Debug)]
pub struct TemporaryModel {
    path: TempPath,
}

impl TemporaryModel {
    /// Where the file lies.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// SplitMix64 (Steele, Lea and Flood 2014).
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The next number of a bell of width 1 around 0, from -3.5 to 3.5: four even ones added
    /// (Irwin and Hall), which takes no function that machines compute unalike.
    pub fn normal(&mut self) -> f32 {
        let bits = self.bits();
        let sum: u64 = [0, 16, 32, 48]
            .map(|shift| bits >> shift & 0xffff)
            .iter()
            .sum();
        (sum as f32 / 65536.0 - 2.0) * 1.732_050_8
    }
}
