//! The kernel cases: shapes of real models.

use crate::bench::protocol::KernelCase;
use crate::bench::records::Kernel;
use emel_kernels::{WeightType, packed_bytes};
use serde_json::{Map, Value};

/// Which cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Suite {
    /// Products of weights and activations.
    Matmul,
    /// Attention of a prompt and of a token deep in the context.
    Attention,
    /// RMS norm.
    Norm,
    /// All of them.
    All,
}

/// A case without threads and options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// `[tokens, cols] x [rows, cols]^T`.
    Matmul {
        /// The weights' type.
        ty: WeightType,
        /// Output elements a token.
        rows: usize,
        /// Length of a dot product.
        cols: usize,
        /// Tokens.
        tokens: usize,
    },
    /// Causal attention of the last `tokens` of `depth` positions.
    Attention {
        /// Query heads.
        n_head: usize,
        /// Key and value heads.
        n_head_kv: usize,
        /// Width of a head.
        head_dim: usize,
        /// Positions.
        depth: usize,
        /// Queries.
        tokens: usize,
    },
    /// RMS norm with weights.
    Norm {
        /// Elements a token.
        width: usize,
        /// Tokens.
        tokens: usize,
    },
}

/// The sizes of a model that its kernels see.
struct Model {
    d_model: usize,
    d_ff: usize,
    n_vocab: usize,
    n_head: usize,
    n_head_kv: usize,
    head_dim: usize,
}

/// SmolLM2 135M, Gemma 3 270M, Qwen3 0.6B and Qwen3 4B.
const MODELS: [Model; 4] = [
    Model {
        d_model: 576,
        d_ff: 1536,
        n_vocab: 49152,
        n_head: 9,
        n_head_kv: 3,
        head_dim: 64,
    },
    Model {
        d_model: 640,
        d_ff: 2048,
        n_vocab: 262_144,
        n_head: 4,
        n_head_kv: 1,
        head_dim: 256,
    },
    Model {
        d_model: 1024,
        d_ff: 3072,
        n_vocab: 151_936,
        n_head: 16,
        n_head_kv: 8,
        head_dim: 128,
    },
    Model {
        d_model: 2560,
        d_ff: 9728,
        n_vocab: 151_936,
        n_head: 32,
        n_head_kv: 8,
        head_dim: 128,
    },
];

/// Tokens of a prompt's batch.
const BATCH: usize = 512;
/// Positions of a long context.
const DEPTH: usize = 4096;
const QUANTIZED: [WeightType; 4] = [
    WeightType::Q4_K,
    WeightType::Q6_K,
    WeightType::Q8_0,
    WeightType::Q4_1,
];

impl Suite {
    /// The suite's shapes.
    pub fn shapes(self) -> Vec<Shape> {
        match self {
            Suite::Matmul => matmuls(),
            Suite::Attention => attentions(),
            Suite::Norm => norms(),
            Suite::All => [matmuls(), attentions(), norms()].concat(),
        }
    }
}

/// Each model's two feed-forward shapes and its output head, as one token, eight and a batch.
fn matmuls() -> Vec<Shape> {
    let mut shapes = Vec::new();
    let mut put = |ty: WeightType, (rows, cols): (usize, usize), tokens| {
        // Models whose rows are no whole superblocks have other types there.
        if cols.is_multiple_of(ty.block_len()) {
            shapes.push(Shape::Matmul {
                ty,
                rows,
                cols,
                tokens,
            });
        }
    };
    let feed_forward = |model: &Model| [(model.d_ff, model.d_model), (model.d_model, model.d_ff)];
    for model in &MODELS {
        for shape in feed_forward(model) {
            put(WeightType::F32, shape, 1);
            for ty in QUANTIZED {
                put(ty, shape, 1);
            }
        }
        // Heads are embeddings, which are kept in the finer types.
        put(WeightType::Q6_K, (model.n_vocab, model.d_model), 1);
        put(WeightType::Q8_0, (model.n_vocab, model.d_model), 1);
    }
    for model in &MODELS {
        for shape in feed_forward(model) {
            put(WeightType::F32, shape, 8);
        }
    }
    for model in &MODELS {
        for shape in feed_forward(model) {
            for ty in QUANTIZED {
                put(ty, shape, BATCH);
            }
        }
    }
    shapes
}

fn attentions() -> Vec<Shape> {
    let of = |depth, tokens| {
        MODELS.iter().map(move |model| Shape::Attention {
            n_head: model.n_head,
            n_head_kv: model.n_head_kv,
            head_dim: model.head_dim,
            depth,
            tokens,
        })
    };
    let prompt = of(BATCH, BATCH).chain(of(DEPTH, BATCH));
    prompt.chain(of(DEPTH, 1)).collect()
}

fn norms() -> Vec<Shape> {
    let of = |tokens| {
        MODELS.iter().map(move |model| Shape::Norm {
            width: model.d_model,
            tokens,
        })
    };
    of(1).chain(of(BATCH)).collect()
}

impl Shape {
    /// A name for people, and for `--filter`: `gemv q4_k 1536x576`, ...
    pub fn name(&self) -> String {
        match *self {
            Shape::Matmul {
                ty,
                rows,
                cols,
                tokens,
            } => {
                let kind = match tokens {
                    1 => "gemv".to_owned(),
                    n => format!("gemm{n}"),
                };
                format!("{kind} {} {rows}x{cols}", ty.name().to_lowercase())
            }
            Shape::Attention {
                n_head,
                n_head_kv,
                head_dim,
                depth,
                tokens,
            } => {
                let kind = match tokens {
                    1 => format!("decode at {depth}"),
                    n if n == depth => format!("prefill {n}"),
                    n => format!("prefill {n} at {depth}"),
                };
                format!("attention {kind} {n_head}/{n_head_kv}x{head_dim}")
            }
            Shape::Norm { width, tokens } => format!("rms_norm {tokens}x{width}"),
        }
    }

    /// The case with these threads and options.
    pub fn case(&self, threads: usize, options: Map<String, Value>) -> KernelCase {
        match *self {
            Shape::Matmul {
                ty,
                rows,
                cols,
                tokens,
            } => KernelCase::Matmul {
                ty: ty.name().to_lowercase(),
                rows,
                cols,
                tokens,
                threads,
                options,
            },
            Shape::Attention {
                n_head,
                n_head_kv,
                head_dim,
                depth,
                tokens,
            } => KernelCase::Attention {
                n_head,
                n_head_kv,
                head_dim,
                depth,
                tokens,
                threads,
                options,
            },
            Shape::Norm { width, tokens } => KernelCase::RmsNorm {
                width,
                tokens,
                threads,
                options,
            },
        }
    }

    /// Arithmetic operations, a multiplication and an addition being two; of attention, those of
    /// scores and values over the positions that a query sees.
    pub fn operations(&self) -> u64 {
        let product = |factors: &[usize]| factors.iter().map(|&n| n as u64).product::<u64>();
        match *self {
            Shape::Matmul {
                rows, cols, tokens, ..
            } => product(&[2, rows, cols, tokens]),
            Shape::Attention {
                n_head,
                head_dim,
                depth,
                tokens,
                ..
            } => {
                let pairs = tokens * (2 * depth - tokens + 1) / 2;
                product(&[2, 2, n_head, head_dim, pairs])
            }
            // A square and its sum; two products.
            Shape::Norm { width, tokens } => product(&[4, width, tokens]),
        }
    }

    /// Bytes that must be read at least once: weights, cache, activations of a norm.
    pub fn bytes(&self) -> u64 {
        match *self {
            Shape::Matmul { ty, rows, cols, .. } => packed_bytes(ty, rows, cols)
                .map_or(0, |bytes| (bytes / rows.next_multiple_of(16) * rows) as u64),
            Shape::Attention {
                n_head_kv,
                head_dim,
                depth,
                ..
            } => (2 * 2 * n_head_kv * head_dim * depth) as u64,
            Shape::Norm { width, tokens } => 4 * (width * tokens + width) as u64,
        }
    }

    /// A record that says no more than the shape.
    pub fn record(&self) -> Kernel {
        let some = |n: usize| Some(n as u64);
        match *self {
            Shape::Matmul {
                ty,
                rows,
                cols,
                tokens,
            } => Kernel {
                kernel: "matmul".to_owned(),
                ty: Some(ty.name().to_lowercase()),
                rows: some(rows),
                cols: some(cols),
                tokens: some(tokens),
                ..Kernel::default()
            },
            Shape::Attention {
                n_head,
                n_head_kv,
                head_dim,
                depth,
                tokens,
            } => Kernel {
                kernel: "attention".to_owned(),
                n_head: some(n_head),
                n_head_kv: some(n_head_kv),
                head_dim: some(head_dim),
                depth: some(depth),
                tokens: some(tokens),
                ..Kernel::default()
            },
            Shape::Norm { width, tokens } => Kernel {
                kernel: "rms_norm".to_owned(),
                width: some(width),
                tokens: some(tokens),
                ..Kernel::default()
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_the_suites_cover_the_plan() {
        let shapes = Suite::All.shapes();
        let names: BTreeSet<_> = shapes.iter().map(Shape::name).collect();
        assert_eq!(names.len(), shapes.len());
        for name in [
            "gemv f32 1536x576",
            "gemv q4_k 576x1536",
            "gemv q6_k 151936x2560",
            "gemv q8_0 262144x640",
            "gemm8 f32 2048x640",
            "gemm512 q4_1 1536x576",
            "gemm512 q6_k 9728x2560",
            "attention prefill 512 9/3x64",
            "attention prefill 512 at 4096 16/8x128",
            "attention decode at 4096 4/1x256",
            "rms_norm 1x1024",
        ] {
            assert!(names.contains(name), "{name} is missing in {names:?}");
        }
        assert!(
            !names.contains("gemv q4_k 1536x576"),
            "576 is no whole superblock"
        );
    }

    #[test]
    fn work_is_counted_from_the_shape() {
        let attention = |depth, tokens| Shape::Attention {
            n_head: 2,
            n_head_kv: 1,
            head_dim: 10,
            depth,
            tokens,
        };
        // Three queries that see 3, 4 and 5 positions: 12 pairs.
        assert_eq!(attention(5, 3).operations(), 4 * 2 * 10 * 12);
        assert_eq!(attention(5, 3).bytes(), 4 * 10 * 5);
        let matmul = Shape::Matmul {
            ty: WeightType::Q8_0,
            rows: 17,
            cols: 64,
            tokens: 3,
        };
        assert_eq!(matmul.operations(), 2 * 17 * 64 * 3);
        assert_eq!(matmul.bytes(), 17 * 2 * 34);
    }
}
