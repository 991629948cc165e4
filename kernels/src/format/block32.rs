//! Formats of 32-weight blocks.
//!
//! A weight is `d * (u - offset)`, or `d * u + m`, or `d * w` with a signed `w`, where `d` and
//! `m` are half-precision numbers of the block and `u` is a small unsigned integer.
//!
//! # Packed layout
//!
//! A packed block is sixteen rows' blocks. Lane `r` of each 64-byte chunk is row `r`.
//!
//! - 4-bit values: four chunks. Byte `b` of a lane of chunk `c` is the file's byte `4c + b`: its
//!   low half is weight `4c + b`, its high half weight `4c + b + 16`. So chunk `c` gives the
//!   quads of weights `4c..4c+4` and `16+4c..16+4c+4`, each by a mask (and a shift).
//! - The fifth bit of 5-bit values: one chunk. The file has weight `k`'s at bit `k` of a word;
//!   here the bit of weight `4c + b` is bit `c` of byte `b`, so that shifting the word by a
//!   constant and masking with `0x10` in each byte gives the fifth bits of quad `c`.
//! - 8-bit values: eight chunks, chunk `c` has weights `4c..4c+4`.
//! - Then sixteen half-precision scales, and sixteen minimums where the format has them.

use super::{
    GROUP_ROWS, IQ4_TABLE, Pack, Shape, ShapeOf, gather, halves, interleave, lane, put_half,
};
use crate::memory::Plain;
use crate::simd::Simd;

/// What a matmul asks of a block of 32 weights of sixteen rows.
pub(crate) trait Block32: 'static {
    /// The block's bytes.
    type Block: Plain;
    /// What a product does with them.
    type Shape: Shape;
    /// Whether blocks come from memory (else from the first-level cache).
    const STREAMED: bool = true;
    /// Eight chunks of bytes: lane `r` of chunk `c` has weights `4c..4c+4` of row `r`.
    fn chunks<S: Simd>(s: S, block: &Self::Block) -> [S::Int; 8];
    /// The scale of each row.
    fn scale<S: Simd>(s: S, block: &Self::Block) -> S::F32;
    /// The minimum of each row (zero when there is none).
    fn min<S: Simd>(s: S, block: &Self::Block) -> S::F32;
}

const LOW_NIBBLES: i32 = 0x0f0f_0f0f;
const FIFTH_BITS: i32 = 0x1010_1010;

/// 4-bit values as bytes.
#[inline(always)]
fn nibbles<S: Simd>(s: S, q: &[[u8; 64]; 4]) -> [S::Int; 8] {
    let mask = s.splat_i32(LOW_NIBBLES);
    let mut out = [s.zero_i32(); 8];
    for c in 0..4 {
        let v = s.load_bytes(&q[c]);
        out[c] = s.and(v, mask);
        out[c + 4] = s.and(s.shr(v, 4), mask);
    }
    out
}

/// 5-bit values as bytes.
#[inline(always)]
fn five_bits<S: Simd>(s: S, q: &[[u8; 64]; 4], high: &[u8; 64]) -> [S::Int; 8] {
    let mask = s.splat_i32(FIFTH_BITS);
    let high = s.load_bytes(high);
    let mut out = nibbles(s, q);
    for c in 0..8u32 {
        let bits = if c <= 4 {
            s.shl(high, 4 - c)
        } else {
            s.shr(high, c - 4)
        };
        out[c as usize] = s.or(out[c as usize], s.and(bits, mask));
    }
    out
}

/// The file's word of fifth bits in the packed order.
fn spread_fifth_bits(word: u32) -> u32 {
    let mut out = 0;
    for k in 0..32 {
        let (c, b) = (k / 4, k % 4);
        out |= (word >> k & 1) << (8 * b + c);
    }
    out
}

/// The inverse of [`spread_fifth_bits`].
fn collect_fifth_bits(word: u32) -> u32 {
    let mut out = 0;
    for k in 0..32 {
        let (c, b) = (k / 4, k % 4);
        out |= (word >> (8 * b + c) & 1) << k;
    }
    out
}

/// The words of fifth bits at byte `at` of each row's block.
fn pack_fifth_bits(rows: &[&[u8]; GROUP_ROWS], at: usize, out: &mut [u8; 64]) {
    interleave(rows, at, std::slice::from_mut(out));
    for word in out.as_chunks_mut::<4>().0 {
        *word = spread_fifth_bits(u32::from_le_bytes(*word)).to_le_bytes();
    }
}

/// Row `r`'s word of fifth bits, to `out` at byte `at`.
fn unpack_fifth_bits(packed: &[u8; 64], r: usize, out: &mut [u8], at: usize) {
    let word = collect_fifth_bits(u32::from_le_bytes(lane(packed, r)));
    out[at..at + 4].copy_from_slice(&word.to_le_bytes());
}

/// Declares a format: its packed block and what is read from it.
macro_rules! block32 {
    (
        $(#[$doc:meta])* $name:ident,
        file: $file:literal,
        signed: $signed:literal, offset: $offset:literal, has_min: $has_min:literal,
        packed { $($field:ident: $ty:ty),* },
        pack($rows:ident, $out:ident) $pack:block
        unpack($ub:ident, $ur:ident, $uout:ident) $unpack:block
        chunks($s:ident, $b:ident) $chunks:block
        min($ms:ident, $mb:ident) $min:block
    ) => {
        $(#[$doc])*
        pub(crate) struct $name;

        const _: () = {
            /// The packed block.
            #[derive(Clone, Copy)]
            #[repr(C)]
            pub(crate) struct Packed { $($field: $ty),* }
            // SAFETY: arrays of numbers, bytes first, and of a size that is even (see the
            // assertion in `pack_group`): no padding, every bit pattern a value.
            unsafe impl Plain for Packed {}

            impl Pack for $name {
                const FILE_BYTES: usize = $file;
                type Packed = Packed;
                fn pack($rows: &[&[u8]; GROUP_ROWS], $out: &mut Packed) $pack
                fn unpack($ub: &Packed, $ur: usize, $uout: &mut [u8]) $unpack
            }

            impl Block32 for $name {
                type Block = Packed;
                type Shape = ShapeOf<$signed, $offset, $has_min, 1>;
                #[inline(always)]
                fn chunks<S: Simd>($s: S, $b: &Packed) -> [S::Int; 8] $chunks
                #[inline(always)]
                fn scale<S: Simd>(s: S, block: &Packed) -> S::F32 {
                    s.load_f16(&block.d)
                }
                #[inline(always)]
                fn min<S: Simd>($ms: S, $mb: &Packed) -> S::F32 $min
            }
        };
    };
}

block32! {
    /// File: f16 `d`, 16 bytes of nibbles. Weight `d * (u - 8)`.
    Q4_0,
    file: 18,
    signed: false, offset: 8, has_min: false,
    packed { q: [[u8; 64]; 4], d: [u16; 16] },
    pack(rows, out) {
        out.d = halves(rows, 0);
        interleave(rows, 2, &mut out.q);
    }
    unpack(b, r, out) {
        put_half(b.d[r], out, 0);
        gather(&b.q, r, out, 2);
    }
    chunks(s, b) { nibbles(s, &b.q) }
    min(s, _b) { s.zero() }
}

block32! {
    /// File: f16 `d`, f16 `m`, 16 bytes of nibbles. Weight `d * u + m`.
    Q4_1,
    file: 20,
    signed: false, offset: 0, has_min: true,
    packed { q: [[u8; 64]; 4], d: [u16; 16], m: [u16; 16] },
    pack(rows, out) {
        out.d = halves(rows, 0);
        out.m = halves(rows, 2);
        interleave(rows, 4, &mut out.q);
    }
    unpack(b, r, out) {
        put_half(b.d[r], out, 0);
        put_half(b.m[r], out, 2);
        gather(&b.q, r, out, 4);
    }
    chunks(s, b) { nibbles(s, &b.q) }
    min(s, b) { s.load_f16(&b.m) }
}

block32! {
    /// File: f16 `d`, 4 bytes of fifth bits, 16 bytes of nibbles. Weight `d * (u - 16)`.
    Q5_0,
    file: 22,
    signed: false, offset: 16, has_min: false,
    packed { q: [[u8; 64]; 4], h: [u8; 64], d: [u16; 16] },
    pack(rows, out) {
        out.d = halves(rows, 0);
        pack_fifth_bits(rows, 2, &mut out.h);
        interleave(rows, 6, &mut out.q);
    }
    unpack(b, r, out) {
        put_half(b.d[r], out, 0);
        unpack_fifth_bits(&b.h, r, out, 2);
        gather(&b.q, r, out, 6);
    }
    chunks(s, b) { five_bits(s, &b.q, &b.h) }
    min(s, _b) { s.zero() }
}

block32! {
    /// File: f16 `d`, f16 `m`, 4 bytes of fifth bits, 16 bytes of nibbles. Weight `d * u + m`.
    Q5_1,
    file: 24,
    signed: false, offset: 0, has_min: true,
    packed { q: [[u8; 64]; 4], h: [u8; 64], d: [u16; 16], m: [u16; 16] },
    pack(rows, out) {
        out.d = halves(rows, 0);
        out.m = halves(rows, 2);
        pack_fifth_bits(rows, 4, &mut out.h);
        interleave(rows, 8, &mut out.q);
    }
    unpack(b, r, out) {
        put_half(b.d[r], out, 0);
        put_half(b.m[r], out, 2);
        unpack_fifth_bits(&b.h, r, out, 4);
        gather(&b.q, r, out, 8);
    }
    chunks(s, b) { five_bits(s, &b.q, &b.h) }
    min(s, b) { s.load_f16(&b.m) }
}

block32! {
    /// File: f16 `d`, 32 signed bytes. Weight `d * w`.
    Q8_0,
    file: 34,
    signed: true, offset: 0, has_min: false,
    packed { q: [[u8; 64]; 8], d: [u16; 16] },
    pack(rows, out) {
        out.d = halves(rows, 0);
        interleave(rows, 2, &mut out.q);
    }
    unpack(b, r, out) {
        put_half(b.d[r], out, 0);
        gather(&b.q, r, out, 2);
    }
    chunks(s, b) {
        let mut out = [s.zero_i32(); 8];
        for c in 0..8 {
            out[c] = s.i8_operand(s.load_bytes(&b.q[c]));
        }
        out
    }
    min(s, _b) { s.zero() }
}

block32! {
    /// File: f16 `d`, 16 bytes of nibbles, indices into [`IQ4_TABLE`]. Weight `d * table[u]`.
    Iq4Nl,
    file: 18,
    signed: true, offset: 0, has_min: false,
    packed { q: [[u8; 64]; 4], d: [u16; 16] },
    pack(rows, out) {
        out.d = halves(rows, 0);
        interleave(rows, 2, &mut out.q);
    }
    unpack(b, r, out) {
        put_half(b.d[r], out, 0);
        gather(&b.q, r, out, 2);
    }
    chunks(s, b) {
        let mut out = nibbles(s, &b.q);
        for c in 0..8 {
            out[c] = s.i8_operand(s.lookup(&IQ4_TABLE, out[c]));
        }
        out
    }
    min(s, _b) { s.zero() }
}
