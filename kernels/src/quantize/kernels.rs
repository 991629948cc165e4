//! The quantization kernels: one tile of rows at a time.

use super::tiles::{TILE_TOKENS, TileTable};
use super::{Head32, Head256, Quads32, Quads256, WIDE_TOKENS};
use crate::math::sizes;
use crate::memory::Plain;
use crate::simd::{Entry, Kernel, Simd, entry};

/// One level's quantization kernels.
pub(crate) struct Table {
    pub(super) q8x32: Entry<Quantize32>,
    pub(super) q8x256: Entry<Quantize256>,
    /// What the wide route takes instead, where it runs on tiles.
    pub(super) tiles: Option<TileTable>,
}

impl Table {
    pub(crate) const fn of<S: Simd>() -> Table {
        Table {
            q8x32: entry::<S, Quantize32>,
            q8x256: entry::<S, Quantize256>,
            tiles: None,
        }
    }

    /// The same with tiles for the wide route.
    #[cfg_attr(
        not(all(target_os = "linux", target_arch = "x86_64")),
        allow(dead_code)
    )]
    pub(crate) const fn with_tiles<S: Simd>() -> Table {
        Table {
            tiles: Some(TileTable::of::<S>()),
            ..Table::of::<S>()
        }
    }

    /// Tokens that lie side by side in the activations of the wide route.
    pub(super) const fn wide_tokens(&self) -> usize {
        match self.tiles {
            Some(_) => TILE_TOKENS,
            None => WIDE_TOKENS,
        }
    }
}

/// One tile of rows.
pub(crate) struct Rows<'a, Q, H> {
    /// Up to `tile` rows of `k` values.
    pub(super) x: &'a [f32],
    pub(super) k: usize,
    pub(super) tile: usize,
    /// `[k / block, tile]`.
    pub(super) q: &'a mut [Q],
    /// `[k / block, tile]`.
    pub(super) head: &'a mut [H],
}

/// The largest of |v|, NaN if there is one.
#[inline(always)]
pub(super) fn largest<S: Simd, const N: usize>(s: S, v: &[[f32; 16]; N]) -> f32 {
    f32::from_bits(s.reduce_max_u32(sizes(s, v)))
}

/// 127 / amax, or 0.
#[inline(always)]
pub(super) fn inverse(amax: f32) -> f32 {
    if amax == 0.0 { 0.0 } else { 127.0 / amax }
}

/// Sixteen values to signed bytes; their sum.
#[inline(always)]
pub(super) fn quantize16<S: Simd>(s: S, v: &[f32; 16], inverse: S::F32, q: &mut [i32; 4]) -> i32 {
    let low = s.splat_i32(-127);
    let n = s.round_i32(s.mul(s.load(v), inverse));
    let n = s.select_i32(s.gt_i32(n, s.splat_i32(127)), low, n);
    let n = s.select_i32(s.gt_i32(low, n), low, n);
    let mut bytes = [0; 16];
    s.store_low_bytes(n, &mut bytes);
    for (quad, bytes) in q.iter_mut().zip(bytes.as_chunks::<4>().0) {
        *quad = i32::from_le_bytes(*bytes);
    }
    s.reduce_add_i32(n)
}

/// What is known of 32 quantized values.
pub(super) struct Block32 {
    /// The scale.
    pub(super) d: f32,
    /// The scaled sum.
    pub(super) s: f32,
    /// The sum.
    pub(super) sum: i32,
}

/// Quantizes 32 values.
#[inline(always)]
pub(super) fn scales32<S: Simd>(s: S, v: &[[f32; 16]; 2], q: &mut Quads32) -> Block32 {
    let amax = largest(s, v);
    let d0 = amax / 127.0;
    let id = s.splat(inverse(amax));
    let out: &mut [[i32; 4]; 2] = halves_mut(q);
    let sum = quantize16(s, &v[0], id, &mut out[0]) + quantize16(s, &v[1], id, &mut out[1]);
    let mut pair = [0.0; 16];
    pair[0] = d0;
    pair[1] = d0 * sum as f32;
    let mut half = [0; 16];
    s.store_f16(s.load(&pair), &mut half);
    s.store(s.load_f16(&half), &mut pair);
    Block32 {
        d: pair[0],
        s: pair[1],
        sum,
    }
}

/// Quantizes a tile to blocks of 32.
pub(crate) struct Quantize32;

impl Kernel for Quantize32 {
    type Args<'a> = Rows<'a, Quads32, Head32>;
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(s: S, args: Self::Args<'_>) {
        let Rows {
            x,
            k,
            tile,
            q,
            head,
        } = args;
        for (t, row) in x.chunks_exact(k).enumerate() {
            for (b, v) in row.as_chunks::<32>().0.iter().enumerate() {
                let at = b * tile + t;
                let Block32 { d, s, sum } = scales32(s, halves(v), &mut q[at]);
                head[at] = Head32 {
                    d,
                    s,
                    minus: [-8 * sum, -16 * sum, -128 * sum],
                };
            }
        }
        clear(x.len() / k, tile, q, head);
    }
}

/// Quantizes a tile to blocks of 256.
pub(crate) struct Quantize256;

impl Kernel for Quantize256 {
    type Args<'a> = Rows<'a, Quads256, Head256>;
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(s: S, args: Self::Args<'_>) {
        let Rows {
            x,
            k,
            tile,
            q,
            head,
        } = args;
        for (t, row) in x.chunks_exact(k).enumerate() {
            for (b, v) in row.as_chunks::<256>().0.iter().enumerate() {
                let v: &[[f32; 16]; 16] = sixteenths(v);
                let amax = largest(s, v);
                let is = inverse(amax);
                let d = if amax == 0.0 { 0.0 } else { 1.0 / is };
                let inverse = s.splat(is);
                let mut sums = [0; 16];
                for (p, out) in q[b * tile + t].iter_mut().enumerate() {
                    let out: &mut [[i32; 4]; 2] = halves_mut(out);
                    sums[2 * p] = quantize16(s, &v[2 * p], inverse, &mut out[0]);
                    sums[2 * p + 1] = quantize16(s, &v[2 * p + 1], inverse, &mut out[1]);
                }
                head[b * tile + t] = heads256(d, &sums);
            }
        }
        clear(x.len() / k, tile, q, head);
    }
}

/// The head of 256 values, from the sums of sixteens.
#[inline(always)]
fn heads256(d: f32, sums: &[i32; 16]) -> Head256 {
    /// Blocks `i` and `i + 2` in the halves of a word.
    #[inline(always)]
    fn pair(low: i32, high: i32) -> i32 {
        low & 0xffff | high << 16
    }
    let mut head = Head256 {
        d,
        sums16: [0; 8],
        sums32: [0; 4],
    };
    for i in 0..4 {
        for odd in 0..2 {
            head.sums16[2 * i + odd] = pair(sums[4 * i + odd], sums[4 * i + odd + 2]);
        }
    }
    let by32 = |j: usize| sums[2 * j] + sums[2 * j + 1];
    for i in 0..2 {
        for odd in 0..2 {
            head.sums32[2 * i + odd] = pair(by32(4 * i + odd), by32(4 * i + odd + 2));
        }
    }
    head
}

/// Zeroes the tokens from `from` on, which the batch does not have.
#[inline(always)]
fn clear<Q: Plain, H: Plain>(from: usize, tile: usize, q: &mut [Q], head: &mut [H]) {
    // SAFETY: all-zero bytes are a value of a `Plain` type.
    let (no_q, no_head) = unsafe { (std::mem::zeroed::<Q>(), std::mem::zeroed::<H>()) };
    for (q, head) in q.chunks_exact_mut(tile).zip(head.chunks_exact_mut(tile)) {
        q[from..].fill(no_q);
        head[from..].fill(no_head);
    }
}

#[inline(always)]
pub(super) fn halves<T>(v: &[T; 32]) -> &[[T; 16]; 2] {
    let (chunks, _) = v.as_chunks::<16>();
    chunks.first_chunk().expect("32 is twice 16")
}

#[inline(always)]
fn halves_mut(v: &mut Quads32) -> &mut [[i32; 4]; 2] {
    let (chunks, _) = v.as_chunks_mut::<4>();
    chunks.first_chunk_mut().expect("8 is twice 4")
}

#[inline(always)]
pub(super) fn sixteenths(v: &[f32; 256]) -> &[[f32; 16]; 16] {
    let (chunks, _) = v.as_chunks::<16>();
    chunks.first_chunk().expect("256 is sixteen times 16")
}
