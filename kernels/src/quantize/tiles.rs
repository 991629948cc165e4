//! Activations as AMX wants them: sixteen tokens' blocks as the rows of tiles.
//!
//! The numbers are those of the other layouts, and so are the operations that make them.
//!
//! A super-block's products need the sums of sixteen values, too, times weights' minimums. These
//! products are made by tiles as well, in bfloat16, which holds integers of up to eight bits; a sum
//! takes two: its lowest four bits and the rest. Every product and every sum of these is an
//! integer below 2^24, which `f32` holds, so nothing is ever rounded.

use super::kernels::{Block32, halves, inverse, largest, quantize16, scales32, sixteenths};
use crate::memory::Plain;
use crate::simd::{Entry, Kernel, Simd, entry};

/// Tokens in a tile: its rows.
pub(crate) const TILE_TOKENS: usize = 16;

/// 32 values of sixteen tokens.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Tile32 {
    /// A token a row, eight words of four signed bytes.
    pub(crate) q: [[i32; 8]; TILE_TOKENS],
    /// The scales.
    pub(crate) d: [f32; TILE_TOKENS],
    /// The scaled sums, which minimums are multiplied with.
    pub(crate) s: [f32; TILE_TOKENS],
}

// SAFETY: four-byte numbers that fill the alignment: no padding.
unsafe impl Plain for Tile32 {}

/// 256 values of sixteen tokens.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Tile256 {
    /// Four tiles of 64 values: a token a row, sixteen words of four signed bytes.
    pub(crate) q: [[[i32; 16]; TILE_TOKENS]; 4],
    /// Sums of sixteen values, a token a row: in word `j` those of values `16j..16j + 16` as two
    /// bfloat16, the lowest four bits in the lower half, the rest in the upper.
    pub(crate) sums: [[i32; 16]; TILE_TOKENS],
    /// The scales.
    pub(crate) d: [f32; TILE_TOKENS],
}

// SAFETY: four-byte numbers that fill the alignment: no padding.
unsafe impl Plain for Tile256 {}

/// The kernels that make tiles.
pub(crate) struct TileTable {
    pub(super) q8x32: Entry<QuantizeTiles32>,
    pub(super) q8x256: Entry<QuantizeTiles256>,
}

impl TileTable {
    pub(super) const fn of<S: Simd>() -> TileTable {
        TileTable {
            q8x32: entry::<S, QuantizeTiles32>,
            q8x256: entry::<S, QuantizeTiles256>,
        }
    }
}

/// Up to sixteen rows.
pub(crate) struct TileRows<'a, T> {
    /// Rows of `k` values.
    pub(super) x: &'a [f32],
    pub(super) k: usize,
    /// `[k / block]`.
    pub(super) out: &'a mut [T],
}

/// Quantizes rows to tiles of 32 values.
pub(crate) struct QuantizeTiles32;

impl Kernel for QuantizeTiles32 {
    type Args<'a> = TileRows<'a, Tile32>;
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(s: S, TileRows { x, k, out }: Self::Args<'_>) {
        for (t, row) in x.chunks_exact(k).enumerate() {
            for (v, out) in row.as_chunks::<32>().0.iter().zip(&mut *out) {
                let Block32 { d, s: scaled, .. } = scales32(s, halves(v), &mut out.q[t]);
                out.d[t] = d;
                out.s[t] = scaled;
            }
        }
        for out in out {
            for t in x.len() / k..TILE_TOKENS {
                (out.q[t], out.d[t], out.s[t]) = ([0; 8], 0.0, 0.0);
            }
        }
    }
}

/// Quantizes rows to tiles of 256 values.
pub(crate) struct QuantizeTiles256;

impl Kernel for QuantizeTiles256 {
    type Args<'a> = TileRows<'a, Tile256>;
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(s: S, TileRows { x, k, out }: Self::Args<'_>) {
        for (t, row) in x.chunks_exact(k).enumerate() {
            for (v, out) in row.as_chunks::<256>().0.iter().zip(&mut *out) {
                let v: &[[f32; 16]; 16] = sixteenths(v);
                let amax = largest(s, v);
                let is = inverse(amax);
                let scale = s.splat(is);
                let mut sums = [0; 16];
                for (tile, q) in out.q.iter_mut().enumerate() {
                    for (i, q) in q[t].as_chunks_mut::<4>().0.iter_mut().enumerate() {
                        sums[4 * tile + i] = quantize16(s, &v[4 * tile + i], scale, q);
                    }
                }
                let low = s.and(s.load_i32(&sums), s.splat_i32(15));
                let rest = s.sub_i32(s.load_i32(&sums), low);
                // A bfloat16 is the upper half of an f32; these have nothing in the lower.
                let low = s.shr(s.f32_bits(s.i32_to_f32(low)), 16);
                let rest = s.f32_bits(s.i32_to_f32(rest));
                s.store_i32(s.or(rest, low), &mut out.sums[t]);
                out.d[t] = if amax == 0.0 { 0.0 } else { 1.0 / is };
            }
        }
        for out in out {
            for t in x.len() / k..TILE_TOKENS {
                for q in &mut out.q {
                    q[t] = [0; 16];
                }
                (out.sums[t], out.d[t]) = ([0; 16], 0.0);
            }
        }
    }
}
