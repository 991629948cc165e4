//! The compute kernels of EMEL: packed weights and their products with quantized activations,
//! attention, norms, rope, and the lanes that run them. The home of `unsafe` code: elsewhere it is denied,
//! but for the memory map of model files.
//!
//! Every algorithm stands once, generic over the `simd` trait, and is compiled for each
//! instruction-set [`Level`]. All levels give the same bits: a kernel may only reorder what is
//! exact (integer sums), and every floating-point operation has one place in one order.

// Loops over small arrays of vectors count tokens, rows and chunks; several arrays share the count.
#![allow(clippy::needless_range_loop)]

mod amx;
mod argmax;
mod attention;
mod elementwise;
mod format;
mod lanes;
mod level;
mod limits;
mod math;
mod matmul;
mod memory;
mod norm;
mod quantize;
mod rope;
pub(crate) mod simd;
#[cfg(test)]
mod test_util;

pub use amx::Amx;
pub use argmax::{ArgmaxError, ArgmaxJob};
pub use attention::{
    AttentionInput, AttentionJob, AttentionMergeJob, AttentionShape, AttentionSplitJob,
    AttentionWorkspace, BLOCK, CacheError, CacheReading, CacheShape, CacheType, Direct, LayerCache,
    Repacked, StoreKvJob, UnknownCacheType,
};
pub use elementwise::{AddBiasJob, AddJob, GluJob, ScaleJob, SoftcapJob};
pub use format::{
    ActivationKind, DequantizeError, Dequantizer, GROUP_ROWS, WeightType, dequantize_row,
};
pub use lanes::{Job, LaneError, Lanes, MAX_LANES, Part, Patience, parallel, serial};
pub use level::{Kernels, Level, ParseLevelError};
pub use limits::{ComputeJob, ComputeLoop, Pages, ReadBuffer, ReadJob};
pub use matmul::{
    MatmulJob, MatmulPart, PACKED_ALIGN, PackError, PackJob, PackedMatrix, Scratch, SharedBytes,
    Tile, TileKind, TileT1, TileT4, TileT8, TileWide, packed_bytes,
};
pub use memory::{AllocError, Arena, HugeBuffer};
pub use norm::{
    AddRmsNormJob, HeadNormJob, PostNormJob, PostNormThenNormJob, RmsNormJob, UnweightedHeadNormJob,
};
pub use quantize::{ActivationView, Activations, QuantizeJob};
pub use rope::{RopeError, RopeFillJob, RopeJob, RopePairs, RopeTable, rope_frequencies};
