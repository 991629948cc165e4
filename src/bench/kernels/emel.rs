//! EMEL's kernels, set up and timed as the protocol asks for: the jobs that the engine runs, on
//! the lanes and with the tile that its policies choose.

mod attention;

use super::timing::timed;
use crate::bench::limits::host;
use crate::bench::protocol::{KernelCase, KernelReady, Repeat, Timed};
use crate::bench::worker::{Options, OptionsError};
use crate::engine::{ExecutionPolicy, Route, RoutePolicy};
use attention::Heads;
use emel_kernels::{
    ActivationKind, ActivationView, Activations, AllocError, CacheError, Job, Kernels, LaneError,
    Lanes, MatmulJob, MatmulPart, PackError, PackJob, PackedMatrix, QuantizeJob, RmsNormJob,
    Scratch, Tile, TileT1, TileT4, TileT8, TileWide, WeightType, packed_bytes, parallel, serial,
};
use serde_json::{Map, Value};
use std::marker::PhantomData;

/// Why a kernel case cannot be set up or timed.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// An option that EMEL does not have.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// A weight type that EMEL does not multiply.
    #[error("type '{0}' is none that weights can have here")]
    Type(String),
    /// Sizes that do not go together.
    #[error("{0}")]
    Shape(&'static str),
    /// Weights that cannot be packed.
    #[error(transparent)]
    Pack(#[from] PackError),
    /// A cache that cannot be made.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// Too little memory.
    #[error(transparent)]
    Memory(#[from] AllocError),
    /// More than this machine has free.
    #[error("the case needs {needed} bytes of memory, and {available} are free")]
    TooLarge {
        /// Bytes of the case.
        needed: u64,
        /// Bytes that are free.
        available: u64,
    },
    /// Threads that do not start or die.
    #[error(transparent)]
    Lanes(#[from] LaneError),
    /// Nothing to time.
    #[error("no kernel case is set up: send `prepare_kernel` first")]
    NotPrepared,
}

/// The kernel case that is set up, if one is.
#[derive(Default)]
pub struct KernelBench {
    operation: Option<Box<dyn Operation>>,
}

/// Something to time.
trait Operation {
    fn once(&mut self) -> Result<(), LaneError>;
}

impl KernelBench {
    /// Sets up `case`; what was set up before is dropped first.
    ///
    /// # Errors
    ///
    /// [`KernelError`]; nothing is set up then.
    pub fn prepare(&mut self, case: &KernelCase) -> Result<KernelReady, KernelError> {
        self.operation = None;
        let (threads, options) = match case {
            KernelCase::Matmul {
                threads, options, ..
            }
            | KernelCase::Attention {
                threads, options, ..
            }
            | KernelCase::RmsNorm {
                threads, options, ..
            } => (*threads, options),
        };
        let on = On::new(threads, options)?;
        let level = on.kernels.level();
        let (mut operation, variant) = match case {
            KernelCase::Matmul {
                ty,
                rows,
                cols,
                tokens,
                ..
            } => matmul(on, ty, *rows, *cols, *tokens)?,
            KernelCase::Attention {
                n_head,
                n_head_kv,
                head_dim,
                depth,
                tokens,
                ..
            } => Heads {
                n_head: *n_head,
                n_head_kv: *n_head_kv,
                head_dim: *head_dim,
            }
            .attention(on, *depth, *tokens)?,
            KernelCase::RmsNorm { width, tokens, .. } => norm(on, *width, *tokens)?,
        };
        operation.once()?;
        self.operation = Some(operation);
        Ok(KernelReady {
            engine: "emel".to_owned(),
            engine_version: env!("CARGO_PKG_VERSION").to_owned(),
            isa: level.name().to_owned(),
            variant,
        })
    }

    /// Times the case that is set up.
    ///
    /// # Errors
    ///
    /// [`KernelError::NotPrepared`]; [`KernelError::Lanes`] when a lane dies.
    pub fn run(&mut self, repeat: Repeat) -> Result<Timed, KernelError> {
        let operation = self.operation.as_mut().ok_or(KernelError::NotPrepared)?;
        Ok(timed(repeat, |count| {
            (0..count).try_for_each(|_| operation.once())
        })?)
    }
}

/// Where and how a case runs.
struct On {
    kernels: Kernels,
    lanes: Lanes,
    execution: ExecutionPolicy,
    routes: RoutePolicy,
}

impl On {
    fn new(threads: usize, options: &Map<String, Value>) -> Result<On, KernelError> {
        let options = Options::read(options)?;
        let execution = options.execution(threads, threads);
        let missing =
            KernelError::Shape("option `isa`: this processor has no such instruction set");
        Ok(On {
            kernels: Kernels::new(execution.level).ok_or(missing)?,
            lanes: Lanes::new(threads, execution.patience)?,
            execution,
            routes: options.routes(),
        })
    }

    /// The route that so many tokens take; other counts than the chunks' are wide.
    fn route(&self, tokens: usize) -> Route {
        match tokens {
            n if n >= self.routes.wide_min => Route::Wide,
            1 => Route::Scalar,
            4 => Route::Chunk4,
            8 => Route::Chunk8,
            _ => Route::Wide,
        }
    }

    /// Runs a job as the engine's fork machine does.
    fn run<J: Job>(&mut self, job: &mut J, work: usize) -> Result<(), LaneError> {
        if self.lanes.count() > 1 && work >= self.execution.fork_min_work {
            parallel(&mut self.lanes, job)
        } else {
            serial(job);
            Ok(())
        }
    }
}

/// A set-up operation, and what exactly it runs.
type SetUp = (Box<dyn Operation>, String);

/// Refuses what takes more than the memory that is free, `factors` being a product each.
fn need<const N: usize, const M: usize>(factors: [[usize; M]; N]) -> Result<(), KernelError> {
    let product = |factors: [usize; M]| {
        factors
            .iter()
            .fold(1u64, |product, &n| product.saturating_mul(n as u64))
    };
    let needed = factors
        .map(product)
        .iter()
        .fold(0u64, |sum, &n| sum.saturating_add(n));
    let available = host::memory_available().unwrap_or(u64::MAX);
    if needed > available.min(isize::MAX as u64) {
        return Err(KernelError::TooLarge { needed, available });
    }
    Ok(())
}

/// `n` values in -1..1 from a linear congruential generator.
fn noise(n: usize) -> Vec<f32> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

/// Weights in whatever format: bytes that make its every half and single precision number a
/// normal one between 2^-100 and 2, since others are slow to multiply.
fn weights(bytes: usize) -> Vec<u8> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        0x10 | (state >> 24) as u8 & 0x2f
    };
    (0..bytes).map(|_| next()).collect()
}

/// Groups of rows that are packed from one run of random bytes.
const GROUPS: usize = 16;

fn matmul(on: On, ty: &str, rows: usize, cols: usize, tokens: usize) -> Result<SetUp, KernelError> {
    let found = WeightType::from_name(&ty.to_uppercase());
    let ty = found.ok_or_else(|| KernelError::Type(ty.to_owned()))?;
    let bytes = packed_bytes(ty, rows, cols)?;
    if tokens == 0 {
        return Err(KernelError::Shape("key `tokens` is 0"));
    }
    need([[bytes, 1, 1], [tokens, cols, 8], [tokens, rows, 4]])?;
    let mut matrix = PackedMatrix::allocate(on.kernels, ty, rows, cols)?;
    let groups = matrix.n_groups();
    let row_bytes = matrix.source_bytes() / rows;
    let group_rows = matrix.group_bytes() / row_bytes;
    let source = weights(GROUPS.min(groups) * matrix.group_bytes());
    for first in (0..groups).step_by(GROUPS) {
        let range = first..groups.min(first + GROUPS);
        let rows = rows.min(range.end * group_rows) - first * group_rows;
        let source = &source[..rows * row_bytes];
        serial(&mut PackJob::groups(&mut matrix, range, source)?);
    }
    match on.route(tokens) {
        Route::Scalar => Matmul::<TileT1>::set_up(on, matrix, tokens),
        Route::Chunk4 => Matmul::<TileT4>::set_up(on, matrix, tokens),
        Route::Chunk8 => Matmul::<TileT8>::set_up(on, matrix, tokens),
        Route::Wide => Matmul::<TileWide>::set_up(on, matrix, tokens),
    }
}

/// Quantization of the activations and the product.
struct Matmul<T> {
    on: On,
    matrix: PackedMatrix,
    x: Vec<f32>,
    tokens: usize,
    activations: Activations,
    scratch: Scratch,
    out: Vec<f32>,
    tile: PhantomData<T>,
}

impl<T: Tile> Matmul<T> {
    fn set_up(on: On, matrix: PackedMatrix, tokens: usize) -> Result<SetUp, KernelError> {
        let route = on.route(tokens);
        let (k, rows) = (matrix.cols(), matrix.rows());
        let variant = format!("{route} tile over rows interleaved by 16");
        let operation = Matmul::<T> {
            activations: Activations::new(tokens, k)?,
            scratch: Scratch::new(on.lanes.count(), tokens)?,
            x: noise(tokens * k),
            out: vec![0.0; tokens * rows],
            on,
            matrix,
            tokens,
            tile: PhantomData,
        };
        Ok((Box::new(operation), variant))
    }
}

impl<T: Tile> Operation for Matmul<T> {
    fn once(&mut self) -> Result<(), LaneError> {
        let (k, tokens) = (self.matrix.cols(), self.tokens);
        let view = match self.matrix.activation() {
            ActivationKind::F32 => ActivationView::f32(&self.x, tokens, k),
            kind => {
                let activations = &mut self.activations;
                let kernels = self.on.kernels;
                let mut job = QuantizeJob::<T>::new(kernels, activations, kind, &self.x, tokens);
                self.on.run(&mut job, self.x.len())?;
                self.activations.view()
            }
        };
        let part = MatmulPart::new(&self.matrix, view, &mut self.out);
        let mut job = MatmulJob::<T>::new([part], &mut self.scratch);
        self.on.run(&mut job, self.matrix.rows() * self.x.len())
    }
}

fn norm(on: On, width: usize, tokens: usize) -> Result<SetUp, KernelError> {
    if width == 0 || tokens == 0 {
        return Err(KernelError::Shape(
            "keys `width` and `tokens` are to be positive",
        ));
    }
    need([[tokens, width, 8], [1, width, 4]])?;
    let operation = Norm {
        x: noise(tokens * width),
        w: noise(width),
        out: vec![0.0; tokens * width],
        on,
    };
    Ok((Box::new(operation), "sixteen running sums".to_owned()))
}

struct Norm {
    on: On,
    x: Vec<f32>,
    w: Vec<f32>,
    out: Vec<f32>,
}

impl Operation for Norm {
    fn once(&mut self) -> Result<(), LaneError> {
        let work = self.x.len();
        let mut job = RmsNormJob::new(self.on.kernels, &self.x, &self.w, 1e-6, &mut self.out);
        self.on.run(&mut job, work)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn case(value: Value) -> KernelCase {
        serde_json::from_value(value).unwrap()
    }

    const REPEAT: Repeat = Repeat {
        samples: 2,
        min_sample_ns: 1000,
    };

    #[test]
    fn every_kind_of_case_is_set_up_and_timed() {
        let mut bench = KernelBench::default();
        let matmul = |ty: &str, rows: usize, tokens: usize, threads: usize| {
            json!({"kernel": "matmul", "ty": ty, "rows": rows, "cols": 256, "tokens": tokens,
                   "threads": threads})
        };
        let attention = |depth: usize, tokens: usize, threads: usize| {
            json!({"kernel": "attention", "n_head": 4, "n_head_kv": 2, "head_dim": 32,
                   "depth": depth, "tokens": tokens, "threads": threads})
        };
        for (value, variant) in [
            (matmul("f32", 33, 1, 1), "scalar tile"),
            (matmul("q4_k", 600, 1, 2), "scalar tile"),
            (matmul("q6_k", 40, 4, 2), "chunk4 tile"),
            (matmul("q8_0", 16, 8, 1), "chunk8 tile"),
            (matmul("q4_1", 100, 17, 2), "wide tile"),
            (attention(300, 1, 2), "shared by lanes"),
            (attention(300, 1, 1), "read as f16"),
            (attention(70, 70, 2), "repacked"),
            (
                json!({"kernel": "rms_norm", "width": 100, "tokens": 3, "threads": 2}),
                "sixteen",
            ),
        ] {
            let ready = bench.prepare(&case(value.clone())).unwrap();
            assert!(
                ready.variant.contains(variant),
                "{value}: {}",
                ready.variant
            );
            let timed = bench.run(REPEAT).unwrap();
            assert_eq!(timed.ns.len(), 2);
            assert!(timed.operations > 0 && timed.ns.iter().all(|&ns| ns > 0.0));
        }
    }

    #[test]
    fn options_are_applied() {
        let mut bench = KernelBench::default();
        let value = json!({"kernel": "matmul", "ty": "q8_0", "rows": 16, "cols": 32, "tokens": 1,
                           "threads": 1, "options": {"isa": "scalar", "route": "wide"}});
        let ready = bench.prepare(&case(value)).unwrap();
        assert_eq!(ready.isa, "scalar");
        assert!(ready.variant.starts_with("wide"));
    }

    #[test]
    fn what_cannot_be_is_refused_and_leaves_nothing_set_up() {
        let mut bench = KernelBench::default();
        let good = json!({"kernel": "rms_norm", "width": 4, "tokens": 1, "threads": 1});
        let huge = usize::MAX;
        for (bad, says) in [
            (
                json!({"kernel": "matmul", "ty": "q9_9", "rows": 1, "cols": 32, "tokens": 1,
                    "threads": 1}),
                "q9_9",
            ),
            (
                json!({"kernel": "matmul", "ty": "q8_0", "rows": 1, "cols": 33, "tokens": 1,
                    "threads": 1}),
                "33",
            ),
            (
                json!({"kernel": "matmul", "ty": "q8_0", "rows": huge / 2, "cols": 32, "tokens": 1,
                    "threads": 1}),
                "bytes",
            ),
            (
                json!({"kernel": "matmul", "ty": "f32", "rows": 1, "cols": 32, "tokens": huge,
                    "threads": 1}),
                "bytes",
            ),
            (
                json!({"kernel": "matmul", "ty": "f32", "rows": 1, "cols": 32, "tokens": 0,
                    "threads": 1}),
                "tokens",
            ),
            (
                json!({"kernel": "attention", "n_head": 3, "n_head_kv": 2, "head_dim": 32,
                    "depth": 4, "tokens": 1, "threads": 1}),
                "n_head",
            ),
            (
                json!({"kernel": "attention", "n_head": 2, "n_head_kv": 2, "head_dim": 32,
                    "depth": 4, "tokens": 5, "threads": 1}),
                "depth",
            ),
            (
                json!({"kernel": "attention", "n_head": 2, "n_head_kv": 2, "head_dim": 32,
                    "depth": huge / 64, "tokens": 1, "threads": 1}),
                "bytes",
            ),
            (
                json!({"kernel": "rms_norm", "width": 0, "tokens": 1, "threads": 1}),
                "width",
            ),
            (
                json!({"kernel": "rms_norm", "width": 4, "tokens": 1, "threads": 0}),
                "lanes",
            ),
            (
                json!({"kernel": "rms_norm", "width": 4, "tokens": 1, "threads": 1,
                    "options": {"amx": true}}),
                "amx",
            ),
        ] {
            bench.prepare(&case(good.clone())).unwrap();
            let error = bench.prepare(&case(bad)).unwrap_err().to_string();
            assert!(error.contains(says), "{says}: {error}");
            assert!(matches!(bench.run(REPEAT), Err(KernelError::NotPrepared)));
        }
    }
}
