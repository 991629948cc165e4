//! A small engine that speaks `emel-backend/v1` (docs/backends.md), to start from when another
//! engine is ported, and the planted patient of `emel-compare`'s tests.
//!
//! It runs what [`emel::model::bind`] describes, in f32 and nothing else: weights are dequantized
//! when they are loaded, activations are never quantized, keys and values stay f32. There is no
//! SIMD, no packing, no kernel. Threads share out rows, and every output element is computed by one
//! of them alone, so that neither their number nor the batches change a bit.
//!
//! | file | what |
//! | --- | --- |
//! | `serve` | standard input to standard output: requests to answers |
//! | `engine` | a loaded model: what `load`, `run` and `force` do |
//! | `forward` | the pass of a batch of tokens, and the cache |
//! | `weights`, `rows` | matrices, and one vector a position |
//! | `math`, `parallel` | the few functions of a transformer; threads |
//! | `vocabulary` | text to tokens and back |
//! | `record` | checksums and the trace of an observed run |
//! | `defect` | what can be made wrong on purpose |
//! | `error` | why a request cannot be met |
//!
//! Its one option, in `load`'s `options`, is `defect`; `none` is a healthy engine. To try it by
//! hand, type requests into it: it ends when its input does.

mod defect;
mod engine;
mod error;
mod forward;
mod math;
mod parallel;
mod record;
mod rows;
mod serve;
mod vocabulary;
mod weights;

use std::process::ExitCode;

fn main() -> ExitCode {
    match serve::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("plain_backend: standard streams: {error}");
            ExitCode::FAILURE
        }
    }
}
