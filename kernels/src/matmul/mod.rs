//! Products of packed weights and batches of activations: `out[t, r] = Σ_k w[r, k] x[t, k]`.
//!
//! # Shape of the work
//!
//! A [`PackedMatrix`] is groups of sixteen rows; a group is the unit that lanes claim. How many
//! tokens a dispatch has decides its [`Tile`], chosen by whoever makes the job:
//!
//! - [`TileT1`], [`TileT4`], [`TileT8`]: exactly 1, 4 or 8 tokens. Weights are unpacked in
//!   registers as they stream from memory, and each unpacked vector meets all the tokens.
//! - [`TileWide`]: any number of tokens. Weights of a few groups and a short run of k are
//!   unpacked once into a panel that stays in the first-level cache, and all tokens pass it, eight
//!   at a time; accumulators wait in scratch memory between runs.
//!
//! ```text
//! wide:  for each run of K_RUN along k:
//!            for each of up to GROUPS groups: unpack the run into its panel
//!            for each tile of 8 tokens:
//!                for each of the groups:
//!                    acc[group][tile] continues through the panel's run
//! ```
//!
//! With AMX the wide route is another one, on tiles of sixteen tokens and sixteen rows: see `amx`.
//!
//! Each output is one f32 accumulator that runs through the blocks in ascending k whatever the
//! tile, so all tiles give the same bits.

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub(crate) mod amx;
mod block32;
mod float;
mod job;
mod matrix;
mod superblock;
#[cfg(test)]
mod tests;
mod write;

pub use job::{MatmulJob, MatmulPart, Scratch, Tile, TileKind, TileT1, TileT4, TileT8, TileWide};
pub use matrix::{
    ALIGN as PACKED_ALIGN, PackError, PackJob, PackedMatrix, SharedBytes, packed_bytes,
};

use crate::format::{
    GROUP_ROWS, PackFn, Shape, UnpackFn, WeightType, block32 as b32, float as fl, superblock as sb,
};
use crate::quantize::{ActivationView, WIDE_TOKENS};
use crate::simd::Simd;
use write::Outputs;

/// Sixteen rows' accumulators for one token, on a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Acc(pub(crate) [f32; GROUP_ROWS]);

// SAFETY: sixteen numbers that fill the alignment: no padding.
unsafe impl crate::memory::Plain for Acc {}

impl Acc {
    pub(crate) const ZERO: Acc = Acc([0.0; GROUP_ROWS]);
}

/// Groups that a wide dispatch takes at once: while a tile of activations is in the first-level
/// cache, it meets this many panels there.
pub(crate) const GROUPS: usize = 2;

/// The most groups that a wide dispatch of any level takes at once.
pub(crate) const MAX_GROUPS: usize = 16;

/// Values of k in a panel of quantized weights: two super-blocks. Two panels of some 11 KiB, a
/// tile's 4 KiB of activations and its accumulators share a 48 KiB first-level cache.
pub(crate) const K_RUN: usize = 512;

/// Bytes of scratch memory for the panels, of whatever format.
pub(crate) const PANEL_BYTES: usize = 64 << 10;

/// `acc` plus the products of a chunk of weights with a word of activations.
#[inline(always)]
fn dot<S: Simd, H: Shape>(s: S, acc: S::Int, w: S::Int, q: i32) -> S::Int {
    let x = s.splat_i32(q);
    if H::SIGNED {
        s.dot_i8(acc, w, x)
    } else {
        s.dot_u8(acc, w, x)
    }
}

/// The smaller, at compile time.
const fn min(a: usize, b: usize) -> usize {
    if a < b { a } else { b }
}

/// One group times one tile.
pub(crate) struct TileArgs<'a> {
    /// The group's packed bytes.
    pub(crate) weights: &'a [u8],
    /// Exactly as many tokens as the tile takes.
    pub(crate) x: &'a ActivationView<'a>,
    /// One a token; added to.
    pub(crate) acc: &'a mut [Acc],
}

/// Up to [`WideOps::groups`] groups times a whole batch.
///
/// Whoever makes one has claimed the groups' outputs for this lane.
pub(crate) struct WideArgs<'a> {
    /// The groups' packed bytes, one after the other.
    pub(crate) weights: &'a [u8],
    /// How many groups.
    pub(crate) groups: usize,
    /// The batch.
    pub(crate) x: &'a ActivationView<'a>,
    /// `[groups, tokens rounded up to WideOps::tokens]`: scratch memory.
    pub(crate) acc: &'a mut [Acc],
    /// [`PANEL_BYTES`] of scratch memory, aligned to 64.
    pub(crate) panel: &'a mut [u8],
    /// Where the products go.
    pub(crate) out: Outputs<'a>,
}

/// What one format can do at one level.
pub(crate) struct MatmulOps {
    pub(crate) t1: unsafe fn(TileArgs<'_>),
    pub(crate) t4: unsafe fn(TileArgs<'_>),
    pub(crate) t8: unsafe fn(TileArgs<'_>),
    pub(crate) wide: WideOps,
    pub(crate) pack: PackFn,
    pub(crate) unpack: UnpackFn,
}

/// The wide route of one format at one level.
pub(crate) struct WideOps {
    pub(crate) run: unsafe fn(WideArgs<'_>),
    /// Tokens that lie side by side in quantized activations, and whose multiple batches are
    /// rounded up to.
    pub(crate) tokens: usize,
    /// Groups that it takes at once, at most [`MAX_GROUPS`].
    pub(crate) groups: usize,
}

impl WideOps {
    /// Tiles of [`WIDE_TOKENS`] tokens, [`GROUPS`] groups at once.
    const fn narrow(run: unsafe fn(WideArgs<'_>)) -> WideOps {
        WideOps {
            run,
            tokens: WIDE_TOKENS,
            groups: GROUPS,
        }
    }
}

/// One level's operations, by [`WeightType`].
pub(crate) type Table = [MatmulOps; WeightType::ALL.len()];

/// The operations of each format, compiled for `S`.
pub(crate) const fn table<S: Simd>() -> Table {
    [
        float::ops::<S, fl::F32>(),
        float::ops::<S, fl::F16>(),
        float::ops::<S, fl::Bf16>(),
        block32::ops::<S, b32::Q4_0>(),
        block32::ops::<S, b32::Q4_1>(),
        block32::ops::<S, b32::Q5_0>(),
        block32::ops::<S, b32::Q5_1>(),
        block32::ops::<S, b32::Q8_0>(),
        superblock::ops::<S, sb::Q2K>(),
        superblock::ops::<S, sb::Q3K>(),
        superblock::ops::<S, sb::Q4K>(),
        superblock::ops::<S, sb::Q5K>(),
        superblock::ops::<S, sb::Q6K>(),
        block32::ops::<S, b32::Iq4Nl>(),
        superblock::ops::<S, sb::Iq4Xs>(),
    ]
}
