//! `emel-bench synth`: a model file of a real architecture's exact shape with random weights.
//!
//! Speed does not depend on what weights say, only on how many there are and how they are stored;
//! so a model whose real weights are out of reach is measured with a file from here. The file is
//! valid for any engine that reads GGUF: the keys are what converters write ([`layout`]), the
//! types are what llama.cpp's quantizer chooses ([`mix`]), and the tokenizer is a real one
//! ([`vocabulary`]).
//!
//! The same shape, mixture, seed and vocabulary give the same bytes on every machine, with any
//! number of threads.

mod error;
pub mod layout;
pub mod mix;
pub mod shape;
pub mod vocabulary;
mod write;

pub use error::SynthError;
pub use mix::Mix;
pub use shape::Shape;
pub use write::{Position, Written, write};

use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::PathBuf;

use super::BenchError;
use crate::cli::interrupt::Interrupt;
use crate::cli::progress::{PATIENCE, Progress, Unit};

/// A synthetic model to be written.
#[derive(Clone, Debug)]
pub struct SynthSpec {
    /// Its shape, from [`shape::SHAPES`] or one's own.
    pub shape: Shape,
    /// Which tensors have which types.
    pub mix: &'static Mix,
    /// Where the random numbers start.
    pub seed: u64,
    /// The vocabulary file; without one, the shape's own.
    pub vocabulary: Option<PathBuf>,
    /// Threads that draw and quantize.
    pub threads: usize,
}

/// Writes a model of a real shape with random weights, to be measured with.
#[derive(Debug, clap::Args)]
pub struct SynthArgs {
    /// The model whose shape it has
    #[arg(long, value_parser = parse_shape, long_help = shape_help())]
    shape: Shape,
    /// How its weights are stored
    #[arg(long, value_parser = parse_mix, long_help = mix_help())]
    quant: &'static Mix,
    /// Where the random numbers start
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The file to write; its folder is created when it is missing
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// A GGUF file to take the tokenizer from, instead of the shape's own
    #[arg(long, value_name = "FILE")]
    vocab: Option<PathBuf>,
    /// Threads that draw and quantize [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

fn shape_help() -> String {
    format!("The model whose shape it has: {}", Shape::names())
}

fn mix_help() -> String {
    format!("How its weights are stored: {}", Mix::names())
}

fn parse_shape(name: &str) -> Result<Shape, String> {
    let found = Shape::find(name).cloned();
    found.ok_or_else(|| format!("no such shape; known are {}", Shape::names()))
}

fn parse_mix(name: &str) -> Result<&'static Mix, String> {
    Mix::find(name).ok_or_else(|| format!("no such mixture; known are {}", Mix::names()))
}

/// Writes the file and says its SHA-256 and name on standard output, as `sha256sum` would.
///
/// # Errors
///
/// [`BenchError`], after which nothing is left behind.
pub fn run(args: &SynthArgs) -> Result<(), BenchError> {
    let interrupt = Interrupt::install().map_err(BenchError::Streams)?;
    let all = || std::thread::available_parallelism().map_or(1, usize::from);
    let spec = SynthSpec {
        shape: args.shape.clone(),
        mix: args.quant,
        seed: args.seed,
        vocabulary: args.vocab.clone(),
        threads: args.threads.map_or_else(all, usize::from),
    };
    create_folder(&args.output)?;
    let mut bar = None;
    let progress = Progress::for_stderr(false, u8::MAX);
    let written = write(&spec, &args.output, |position: Position| {
        let begin = || progress.step("writing", Unit::Bytes, position.total, PATIENCE);
        bar.get_or_insert_with(begin).set(position.done);
        if interrupt.is_pressed() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    drop(bar);
    let written = written?;
    let mut out = std::io::stdout();
    writeln!(out, "{}  {}", written.sha256, args.output.display()).map_err(BenchError::Streams)
}

/// Creates the folder that a file is to lie in.
fn create_folder(file: &std::path::Path) -> Result<(), SynthError> {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => {
            std::fs::create_dir_all(folder).map_err(|source| SynthError::Folder {
                path: folder.to_owned(),
                source,
            })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
