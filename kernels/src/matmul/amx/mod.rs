//! The wide route on AMX: tiles of sixteen tokens by sixteen rows, bit-equal to every other route.
//!
//! # What a tile product is
//!
//! A tile is a register of sixteen rows of 64 bytes. One instruction adds the products of a tile of
//! activations (`A`: a token a row, 64 values of k) and a tile of weights (`B`: four values of k a
//! row, sixteen rows of the matrix across) to a tile of sums (`C`: a token a row, sixteen `i32`).
//! `B` is what packing makes of weights anyway: a chunk of sixteen lanes of four bytes. So a row of
//! `C` is what a vector holds on the other routes: one token, the sixteen rows of a group.
//!
//! ```text
//! for each run of k:                                   256 or 512 values
//!     for each pair of the groups (up to MAX_GROUPS):
//!         unpack the run of both groups into a panel   first-level cache, both together 20 KiB
//!         for all tokens, tile by tile:                second-level cache, once a pair
//!             sums = A x B                             tile registers, then a buffer
//!             acc  = scales * sums + acc               vectors, on the buffer's rows
//! ```
//!
//! Taking many groups at once keeps the run's activations in the second-level cache: without, all
//! of the batch would come from the third level for each pair. Products leave in the last run; where
//! the output is large, past the caches: a line of it is written whole, once, and to fetch it before
//! takes longer than to compute it.
//!
//! # Two units at once
//!
//! The products and the pass that scales their sums keep different parts of a core busy, and either
//! takes about as long as the other. Neither waits for the other where instructions of both are at
//! hand, so they are woven into each other: between the products of one step stands the scale pass
//! of the step before. What measurements showed (a core from 2024, at 3.3 GHz):
//!
//! - A product takes 16 cycles, whatever the sums it adds to, and its result is there after 52; zeroing
//!   a tile is free. Storing one takes 14 cycles of the decoder's time, and 12 more of the tile
//!   unit's when it directly follows the product it waits for. So sums are stored one or more
//!   products later.
//! - While tiles are multiplied, fused multiply-adds, conversions and integer products on whole
//!   vectors run at one a cycle, not two. Additions, of integers and of `f32`, do not suffer, nor do
//!   loads. So what can be added is added: of weights with minimums, sums of 32 products become `f32` by
//!   two additions (without minimums one conversion is faster).
//! - The minimums' sums come out of the tile unit as `f32`: see [`superblock`].

mod block32;
mod digits;
mod superblock;
mod unpack;

use super::write::Outputs;
use super::{Acc, MAX_GROUPS, MatmulOps, Table, WideArgs, WideOps, float};
use crate::format::{GROUP_ROWS, Pack, WeightType, block32 as b32, float as fl, superblock as sb};
use crate::quantize::tiles::TILE_TOKENS;
use crate::simd::{Avx512, Simd};
use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch, _mm_sfence, _mm512_stream_ps};

type F32 = <Avx512 as Simd>::F32;

/// Sixteen rows of 64 bytes, as a tile takes them.
type TileBytes = [[u8; 64]; 16];

/// Groups whose panels are in the first-level cache together.
const PAIR: usize = 2;

/// The wide route of a format on tiles.
const fn on_tiles(run: unsafe fn(WideArgs<'_>)) -> WideOps {
    WideOps {
        run,
        tokens: TILE_TOKENS,
        groups: MAX_GROUPS,
    }
}

/// Blocks of 32: AVX-512's operations, but for the wide route.
const fn blocks32<F>() -> MatmulOps
where
    F: b32::Block32<Block = <F as Pack>::Packed> + Pack,
{
    MatmulOps {
        wide: on_tiles(block32::wide::<F>),
        ..super::block32::ops::<Avx512, F>()
    }
}

/// Super-blocks: AVX-512's operations, but for the wide route.
const fn superblocks<F>() -> MatmulOps
where
    F: digits::OnTiles<Block = <F as Pack>::Packed> + Pack,
{
    MatmulOps {
        wide: on_tiles(superblock::wide::<F>),
        ..super::superblock::ops::<Avx512, F>()
    }
}

/// The operations of each format.
pub(crate) const fn table() -> Table {
    const { assert!(WeightType::ALL.len() == 15) };
    [
        float::ops::<Avx512, fl::F32>(),
        float::ops::<Avx512, fl::F16>(),
        float::ops::<Avx512, fl::Bf16>(),
        blocks32::<b32::Q4_0>(),
        blocks32::<b32::Q4_1>(),
        blocks32::<b32::Q5_0>(),
        blocks32::<b32::Q5_1>(),
        blocks32::<b32::Q8_0>(),
        superblocks::<sb::Q2K>(),
        superblocks::<sb::Q3K>(),
        superblocks::<sb::Q4K>(),
        superblocks::<sb::Q5K>(),
        superblocks::<sb::Q6K>(),
        blocks32::<b32::Iq4Nl>(),
        superblocks::<sb::Iq4Xs>(),
    ]
}

/// Weights that are unpacked next, asked for in small shares, one share a step, while there is
/// something else to do. (Shares are of one size, and may go past the end: a hint may point anywhere,
/// and a loop of changing length would cost more than a few hints in vain.)
#[derive(Clone, Copy)]
struct Ahead {
    start: *const u8,
    /// Lines of a share.
    share: usize,
}

impl Ahead {
    /// `bytes`, in `shares` shares.
    fn of(bytes: &[u8], shares: usize) -> Ahead {
        Ahead {
            start: bytes.as_ptr(),
            share: bytes.len().div_ceil(64).div_ceil(shares),
        }
    }

    /// Asks for share `i` to be brought to the second-level cache.
    #[inline(always)]
    fn ask(self, i: usize) {
        for line in i * self.share..(i + 1) * self.share {
            // SAFETY: a hint, which may point anywhere.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(self.start.wrapping_add(64 * line).cast()) };
        }
    }
}

/// Where the scale pass of some tokens finds a group's accumulators, and where it leaves them.
#[derive(Clone, Copy)]
struct Place {
    from: *const Acc,
    /// All ones, or zero in the first run, when `from` holds nothing yet.
    held: i32,
    to: *mut f32,
    /// Values from one token to the next.
    stride: usize,
    /// Whether `to` is whole lines that are not wanted soon.
    stream: bool,
}

impl Place {
    /// Memory that nobody reads, for the scale pass of no step.
    #[inline(always)]
    fn sink(sink: &mut [Acc]) -> Place {
        Place {
            from: sink.as_ptr(),
            held: 0,
            to: sink.as_mut_ptr().cast(),
            stride: GROUP_ROWS,
            stream: false,
        }
    }

    /// Token `token`'s accumulators.
    ///
    /// # Safety
    ///
    /// - The place has so many tokens and is this lane's.
    #[inline(always)]
    unsafe fn load(self, s: Avx512, token: usize) -> F32 {
        // SAFETY: sixteen values, by the caller's word.
        let acc = s.load(unsafe { &(*self.from.add(token)).0 });
        s.f32_from_bits(s.and(s.f32_bits(acc), s.splat_i32(self.held)))
    }

    /// Leaves token `token`'s accumulators.
    ///
    /// # Safety
    ///
    /// - The place has so many tokens and is this lane's.
    #[inline(always)]
    unsafe fn store(self, s: Avx512, token: usize, acc: F32) {
        let to = self.to.wrapping_add(token * self.stride);
        // SAFETY: sixteen values, by the caller's word; whole lines are aligned as such.
        unsafe {
            if self.stream {
                _mm512_stream_ps(to, acc);
            } else {
                s.store(acc, &mut *to.cast::<[f32; GROUP_ROWS]>());
            }
        }
    }
}

/// The accumulators and the outputs of some groups, in one run of k.
#[derive(Clone, Copy)]
struct Places<'a> {
    /// `[groups, tokens]`.
    acc: *mut Acc,
    tokens: usize,
    out: Outputs<'a>,
    /// The run, of how many.
    run: (usize, usize),
}

impl Places<'_> {
    /// The place of group `g` for `tokens`, all of whose accumulators exist. In the first run, if
    /// that `begins`, there is nothing yet; in the last one, if that `ends`, products are left where
    /// they go, if there is room for all of them.
    #[inline(always)]
    fn of(self, g: usize, tokens: std::ops::Range<usize>, (begins, ends): (bool, bool)) -> Place {
        let acc = self.acc.wrapping_add(g * self.tokens + tokens.start);
        let out = self.out.group(g);
        let first = begins && self.run.0 == 0;
        let last = ends && self.run.0 + 1 == self.run.1;
        let direct = last && out.have(tokens.clone());
        let (to, stride) = if direct {
            (out.place(tokens.start), out.stride())
        } else {
            (acc.cast(), GROUP_ROWS)
        };
        let aligned = to.addr().is_multiple_of(64) && stride.is_multiple_of(GROUP_ROWS);
        Place {
            from: acc,
            held: if first { 0 } else { -1 },
            to,
            stride,
            stream: direct && aligned && out.are_large(),
        }
    }
}

/// What comes after the groups `pair` of run `run`, of `runs` runs of `groups` groups: the same for
/// the next pair, or the next run's first. After the last it stays where it is.
#[inline(always)]
fn next_unpacked(pair: usize, groups: usize, run: usize, runs: usize) -> (usize, usize) {
    if pair + PAIR < groups {
        (pair + PAIR, run)
    } else if run + 1 < runs {
        (0, run + 1)
    } else {
        (pair, run)
    }
}

/// Lets what was written past the caches be seen by other lanes before anything that this lane does
/// next is.
#[inline(always)]
fn end_streams() {
    // SAFETY: every processor with AVX-512 has the instruction.
    unsafe { _mm_sfence() };
}

/// The level's token.
///
/// # Safety
///
/// - The processor has AVX-512's level.
#[inline(always)]
unsafe fn vectors() -> Avx512 {
    // SAFETY: the caller's obligation.
    unsafe { Avx512::assume() }
}
