//! The flags of `emel-bench run`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use emel_kernels::CacheType;

use super::super::report::Format;
use super::super::snapshot::SnapshotArgs;
use super::super::worker::{level_name, route_name, spec_type_name};
use super::super::workload::{Lane, LibraryArgs, Selection};

/// Runs workloads on EMEL and on references, alternating, and records what was measured.
#[derive(Clone, Debug, clap::Args)]
pub struct RunArgs {
    /// Where workloads and models are.
    #[command(flatten)]
    pub library: LibraryArgs,
    /// Which workloads; the suite `published` when none is named.
    #[command(flatten)]
    pub selection: Selection,
    /// Only this lane [default: those of the workload]
    #[arg(long, value_name = "LANE")]
    pub lane: Option<Lane>,
    /// Threads of the multithreaded lane [default: physical cores]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Threads of references for decode, in both lanes [default: the lane's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub reference_threads: Option<u16>,
    /// Threads of references for prompts, in both lanes [default: as for decode]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub reference_threads_batch: Option<u16>,
    /// Backend to measure against, by its manifest's id; may be given several times; `none`
    /// measures EMEL alone
    #[arg(
        short,
        long = "reference",
        value_name = "ID",
        default_value = "llama.cpp"
    )]
    pub references: Vec<String>,
    /// `best` tries the reference's configurations and takes the fastest in prefill and in
    /// decode; `spread` runs all that may differ in bits; or a configuration's name
    #[arg(long, value_name = "NAME", default_value = "best")]
    pub reference_config: String,
    /// Timed runs of each engine, after one that warms up
    #[arg(short = 'n', long, value_name = "N", default_value = "3")]
    pub runs: NonZeroUsize,
    /// Of each workload and lane, begin no third round of timed runs that would end later than so
    /// many seconds after the first began, and no second one if a round takes twice as long
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub budget: Option<u64>,
    /// Say what would be measured and how long it takes, about; measure nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Instruction set of EMEL's kernels: auto, scalar, avx2, avxvnni, avx512 or amx
    /// [default: the workload's, or auto]
    #[arg(long, value_name = "LEVEL", value_parser = level_name)]
    pub isa: Option<String>,
    /// EMEL's prefill route: auto, scalar, chunk4, chunk8 or wide
    #[arg(long, value_name = "ROUTE", default_value = "auto", value_parser = route_name)]
    pub route: String,
    /// How EMEL drafts output ahead: none or ngram-simple
    #[arg(long, value_name = "NAME", default_value = "none", value_parser = spec_type_name)]
    pub spec_type: String,
    /// Type of every engine's K cache: f16, q8_0 or f32 [default: each engine's own, f16]
    #[arg(long, value_name = "TYPE")]
    pub cache_type_k: Option<CacheType>,
    /// Type of every engine's V cache, likewise
    #[arg(long, value_name = "TYPE")]
    pub cache_type_v: Option<CacheType>,
    /// Write records (JSONL) to this file, and traces to a folder beside it
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Add to the file instead of replacing it
    #[arg(long, requires = "output")]
    pub append: bool,
    /// How the summary is printed: a table on standard error, or Markdown on standard output
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// A snapshot to compare with, or to write.
    #[command(flatten)]
    pub snapshot: SnapshotArgs,
    /// Longest wait for one answer of a backend, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "3600",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout: u64,
}
