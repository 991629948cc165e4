//! The shapes: what real models are, without their weights.

/// One architecture's sizes, as its published configuration gives them. All share one matrix
/// between the embedding and the output.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// How `--shape` names it.
    pub name: &'static str,
    /// What the file calls the model (`general.name`).
    pub title: &'static str,
    /// Parameters, as model names give them (`general.size_label`).
    pub size_label: &'static str,
    /// The family.
    pub family: Family,
    /// Layers.
    pub n_layer: u32,
    /// Width of the residual stream.
    pub d_model: u32,
    /// Width of the feed-forward network.
    pub d_ff: u32,
    /// Query heads.
    pub n_head: u32,
    /// Key and value heads.
    pub n_head_kv: u32,
    /// Width of a head.
    pub head_dim: u32,
    /// Tokens.
    pub n_vocab: u32,
    /// Trained context length.
    pub n_ctx: u32,
    /// Base of the rotation's frequencies.
    pub rope_base: f32,
    /// What is added to a mean square before its root is taken.
    pub eps: f32,
    /// Which vocabulary it has when none is named.
    pub vocabulary: Vocabulary,
}

/// What a family adds to the plain decoder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Family {
    /// Nothing, or Llama 3.1's scaled rotation.
    Llama {
        /// The scaling, stored as `rope_freqs.weight`.
        scaling: Option<Llama3Scaling>,
    },
    /// Queries and keys normed head by head.
    Qwen3,
    /// Normed queries and keys, norms after each part, windowed layers.
    Gemma3 {
        /// Tokens that a windowed layer sees.
        window: u32,
        /// Every so many layers, one sees everything.
        pattern: u32,
        /// Base of the windowed layers' rotation.
        local_base: f32,
    },
}

impl Family {
    /// The architecture's name in files.
    pub fn architecture(self) -> &'static str {
        match self {
            Family::Llama { .. } => "llama",
            Family::Qwen3 => "qwen3",
            Family::Gemma3 { .. } => "gemma3",
        }
    }
}

/// Llama 3.1's scaling: frequencies whose wave is long next to the old context turn `factor`
/// times slower, short ones as before, and a ramp lies between.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Llama3Scaling {
    /// How much slower.
    pub factor: f64,
    /// Waves longer than the old context over this are slowed in full.
    pub low: f64,
    /// Waves shorter than the old context over this are left.
    pub high: f64,
    /// The old context.
    pub original: f64,
}

impl Llama3Scaling {
    /// The divisor of each pair's frequency, `n_dims / 2` in all.
    pub fn factors(self, base: f64, n_dims: u32) -> Vec<f32> {
        let divisor = |pair: u32| {
            let exponent = f64::from(2 * pair) / f64::from(n_dims);
            let wave = 2.0 * std::f64::consts::PI * libm::pow(base, exponent);
            if wave < self.original / self.high {
                1.0
            } else if wave > self.original / self.low {
                self.factor
            } else {
                let ramp = (self.original / wave - self.low) / (self.high - self.low);
                1.0 / ((1.0 - ramp) / self.factor + ramp)
            }
        };
        (0..n_dims / 2).map(|pair| divisor(pair) as f32).collect()
    }
}

/// Where the tokens come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vocabulary {
    /// All bytes, a few letters and pieces: no file is needed.
    BuiltIn,
    /// A file of the models' folder.
    File {
        /// The file, relative to that folder.
        path: &'static str,
        /// What `scripts/fetch_models.sh` calls it.
        fetched_as: &'static str,
    },
}

const QWEN2: Vocabulary = Vocabulary::File {
    path: "vocab/ggml-vocab-qwen2.gguf",
    fetched_as: "vocab",
};
const LLAMA3: Vocabulary = Vocabulary::File {
    path: "vocab/ggml-vocab-llama-bpe.gguf",
    fetched_as: "vocab",
};
const GEMMA3: Vocabulary = Vocabulary::File {
    path: "gemma-3-270m-Q4_K_M.gguf",
    fetched_as: "gemma3-270m",
};
const SMOLLM2: Vocabulary = Vocabulary::File {
    path: "SmolLM2-135M-Instruct.Q4_1.gguf",
    fetched_as: "smollm2-135m",
};

/// Every shape there is.
pub const SHAPES: [Shape; 7] = [
    Shape {
        name: "qwen3-0.6b",
        title: "Qwen3 0.6B",
        size_label: "0.6B",
        family: Family::Qwen3,
        n_layer: 28,
        d_model: 1024,
        d_ff: 3072,
        n_head: 16,
        n_head_kv: 8,
        head_dim: 128,
        n_vocab: 151_936,
        n_ctx: 40960,
        rope_base: 1e6,
        eps: 1e-6,
        vocabulary: QWEN2,
    },
    Shape {
        name: "qwen3-4b",
        title: "Qwen3 4B",
        size_label: "4B",
        family: Family::Qwen3,
        n_layer: 36,
        d_model: 2560,
        d_ff: 9728,
        n_head: 32,
        n_head_kv: 8,
        head_dim: 128,
        n_vocab: 151_936,
        n_ctx: 40960,
        rope_base: 1e6,
        eps: 1e-6,
        vocabulary: QWEN2,
    },
    Shape {
        name: "llama-1b",
        title: "Llama 3.2 1B",
        size_label: "1B",
        family: Family::Llama {
            scaling: Some(Llama3Scaling {
                factor: 32.0,
                low: 1.0,
                high: 4.0,
                original: 8192.0,
            }),
        },
        n_layer: 16,
        d_model: 2048,
        d_ff: 8192,
        n_head: 32,
        n_head_kv: 8,
        head_dim: 64,
        n_vocab: 128_256,
        n_ctx: 131_072,
        rope_base: 5e5,
        eps: 1e-5,
        vocabulary: LLAMA3,
    },
    Shape {
        name: "gemma3-1b",
        title: "Gemma 3 1B",
        size_label: "1B",
        family: GEMMA3_FAMILY,
        n_layer: 26,
        d_model: 1152,
        d_ff: 6912,
        n_head: 4,
        n_head_kv: 1,
        head_dim: 256,
        n_vocab: 262_144,
        n_ctx: 32768,
        rope_base: 1e6,
        eps: 1e-6,
        vocabulary: GEMMA3,
    },
    Shape {
        name: "gemma3-270m",
        title: "Gemma 3 270M",
        size_label: "270M",
        family: GEMMA3_FAMILY,
        n_layer: 18,
        d_model: 640,
        d_ff: 2048,
        n_head: 4,
        n_head_kv: 1,
        head_dim: 256,
        n_vocab: 262_144,
        n_ctx: 32768,
        rope_base: 1e6,
        eps: 1e-6,
        vocabulary: GEMMA3,
    },
    Shape {
        name: "smollm2-135m",
        title: "SmolLM2 135M",
        size_label: "135M",
        family: Family::Llama { scaling: None },
        n_layer: 30,
        d_model: 576,
        d_ff: 1536,
        n_head: 9,
        n_head_kv: 3,
        head_dim: 64,
        n_vocab: 49152,
        n_ctx: 8192,
        rope_base: 1e5,
        eps: 1e-5,
        vocabulary: SMOLLM2,
    },
    Shape {
        name: "test",
        title: "Test",
        size_label: "2M",
        family: Family::Qwen3,
        n_layer: 2,
        d_model: 256,
        d_ff: 512,
        n_head: 8,
        n_head_kv: 2,
        head_dim: 64,
        n_vocab: 512,
        n_ctx: 4096,
        rope_base: 1e6,
        eps: 1e-6,
        vocabulary: Vocabulary::BuiltIn,
    },
];

const GEMMA3_FAMILY: Family = Family::Gemma3 {
    window: 512,
    pattern: 6,
    local_base: 10000.0,
};

impl Shape {
    /// The shape called so.
    pub fn find(name: &str) -> Option<&'static Shape> {
        SHAPES.iter().find(|shape| shape.name == name)
    }

    /// All names, for messages.
    pub fn names() -> String {
        SHAPES.map(|shape| shape.name).join(", ")
    }

    /// Query heads that share one key and value head.
    pub fn heads_per_kv(&self) -> u32 {
        self.n_head / self.n_head_kv.max(1)
    }
}
