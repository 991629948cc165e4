//! Formats of 256-weight super-blocks ("K-quants", and IQ4_XS).
//!
//! A super-block has 8 sub-blocks of 32 weights or 16 of 16. A weight is
//! `(d * sc_j) * (u - offset)`, or `(d * sc_j) * u - (dmin * m_j)`, where `d` and `dmin` are
//! half-precision numbers of the super-block, and `sc_j` and `m_j` small integers of sub-block j.
//! Sums over a super-block stay integers until its end:
//!
//! ```text
//! Σ_j sc_j * Σ_{k in j} u_k * q_k   -   offset * Σ_j sc_j * Σ_{k in j} q_k
//! ```
//!
//! The second sum is over the activations' sub-block sums, which were made once; the minimums
//! need the same with `m_j`. The largest of these sums is that of Q6_K with scales of -128:
//! 256 * 128 * 63 * 127 < 2^29. Signed values biased by 128 stay below 256 * 32 * 255 * 127
//! < 2^29 as well. So 32 bits never wrap.
//!
//! # Packed layout
//!
//! A packed super-block is sixteen rows' super-blocks, taken apart into four-byte words: word `w`
//! of a field of row `r` is lane `r` of chunk `w` of that field. Two fields are reordered within
//! the lane as well, so that four scales come out as the bytes of a word without shuffles:
//! see [`Iq4Xs`]. Words of scales hold sub-blocks `4i..4i+4` in their bytes; the products with
//! sums of activations take bytes 0 and 2, and 1 and 3, as pairs of 16-bit halves, which is why
//! the activations store their sums in that order.
//!
//! A *piece* is 32 consecutive weights: eight chunks of bytes.

use super::{
    GROUP_ROWS, IQ4_TABLE, Pack, Shape, ShapeOf, gather, halves, interleave, lane, put_half,
};
use crate::memory::Plain;
use crate::simd::Simd;

/// What a matmul asks of a super-block of sixteen rows.
pub(crate) trait SuperBlock: 'static {
    /// The super-block's bytes.
    type Block: Plain;
    /// What a product does with them.
    type Shape: Shape;
    /// Eight chunks of bytes: lane `r` of chunk `c` has weights `4c..4c+4` of piece `p`, row `r`.
    fn chunks<S: Simd>(s: S, block: &Self::Block, p: usize) -> [S::Int; 8];
    /// Scales as signed bytes: lane `r` of word `i` has those of sub-blocks `4i..4i+4` of row
    /// `r`. With 8 sub-blocks words 2 and 3 are zero.
    fn scale_words<S: Simd>(s: S, block: &Self::Block) -> [S::Int; 4];
    /// Minimums, in the same form (zero when there are none).
    fn min_words<S: Simd>(s: S, block: &Self::Block) -> [S::Int; 4];
    /// The super-block's scale of each row.
    fn scale<S: Simd>(s: S, block: &Self::Block) -> S::F32;
    /// What scales the minimums (zero when there are none).
    fn min<S: Simd>(s: S, block: &Self::Block) -> S::F32;
}

/// `n` in each byte.
const fn bytes(n: u8) -> i32 {
    i32::from_le_bytes([n; 4])
}

/// The nibbles of eight chunks, low (`high == 0`) or high (`high == 1`).
#[inline(always)]
fn nibbles<S: Simd>(s: S, q: &[[u8; 64]], high: usize) -> [S::Int; 8] {
    let (mask, n) = (s.splat_i32(bytes(15)), 4 * high as u32);
    let mut out = [s.zero_i32(); 8];
    for c in 0..8 {
        out[c] = s.and(s.shr(s.load_bytes(&q[c]), n), mask);
    }
    out
}

/// The 6-bit scales and minimums of Q4_K and Q5_K: two words of four each, from three words
/// that hold the first four of either in six bits, their upper two bits lent to the last four.
#[inline(always)]
fn scales_and_mins<S: Simd>(s: S, words: &[[u8; 64]; 3]) -> [[S::Int; 2]; 2] {
    let (six, four, two) = (
        s.splat_i32(bytes(0x3f)),
        s.splat_i32(bytes(0x0f)),
        s.splat_i32(bytes(0x30)),
    );
    let (a, b, c) = (
        s.load_bytes(&words[0]),
        s.load_bytes(&words[1]),
        s.load_bytes(&words[2]),
    );
    [
        [s.and(a, six), s.or(s.and(c, four), s.and(s.shr(a, 2), two))],
        [
            s.and(b, six),
            s.or(s.and(s.shr(c, 4), four), s.and(s.shr(b, 2), two)),
        ],
    ]
}

/// Declares a format: its packed super-block and what is read from it.
macro_rules! superblock {
    (
        $(#[$doc:meta])* $name:ident,
        file: $file:literal, scales: $n:literal,
        signed: $signed:literal, offset: $offset:literal, has_min: $has_min:literal,
        packed { $($field:ident: $ty:ty),* },
        pack($rows:ident, $out:ident) $pack:block
        unpack($ub:ident, $ur:ident, $uout:ident) $unpack:block
        chunks($s:ident, $b:ident, $p:ident) $chunks:block
        scale_words($ss:ident, $sb:ident) $scale_words:block
        min_words($ms:ident, $mb:ident) $min_words:block
        min($ds:ident, $db:ident) $min:block
    ) => {
        $(#[$doc])*
        pub(crate) struct $name;

        const _: () = {
            /// The packed super-block.
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

            impl SuperBlock for $name {
                type Block = Packed;
                type Shape = ShapeOf<$signed, $offset, $has_min, $n>;
                #[inline(always)]
                fn chunks<S: Simd>($s: S, $b: &Packed, $p: usize) -> [S::Int; 8] $chunks
                #[inline(always)]
                fn scale_words<S: Simd>($ss: S, $sb: &Packed) -> [S::Int; 4] $scale_words
                #[inline(always)]
                fn min_words<S: Simd>($ms: S, $mb: &Packed) -> [S::Int; 4] $min_words
                #[inline(always)]
                fn scale<S: Simd>(s: S, block: &Packed) -> S::F32 {
                    s.load_f16(&block.d)
                }
                #[inline(always)]
                fn min<S: Simd>($ds: S, $db: &Packed) -> S::F32 $min
            }
        };
    };
}

superblock! {
    /// File: 16 bytes of scale (low nibble) and minimum (high), 64 bytes of 2-bit values, f16
    /// `d`, f16 `dmin`. Byte `32h + l` has weights `128h + 32j + l` at bits `2j`.
    Q2K,
    file: 84, scales: 16,
    signed: false, offset: 0, has_min: true,
    packed { q: [[u8; 64]; 16], sm: [[u8; 64]; 4], d: [u16; 16], m: [u16; 16] },
    pack(rows, out) {
        interleave(rows, 0, &mut out.sm);
        interleave(rows, 16, &mut out.q);
        out.d = halves(rows, 80);
        out.m = halves(rows, 82);
    }
    unpack(b, r, out) {
        gather(&b.sm, r, out, 0);
        gather(&b.q, r, out, 16);
        put_half(b.d[r], out, 80);
        put_half(b.m[r], out, 82);
    }
    chunks(s, b, p) {
        let (mask, n) = (s.splat_i32(bytes(3)), 2 * (p % 4) as u32);
        let q = &b.q[p / 4 * 8..][..8];
        let mut out = [s.zero_i32(); 8];
        for c in 0..8 {
            out[c] = s.and(s.shr(s.load_bytes(&q[c]), n), mask);
        }
        out
    }
    scale_words(s, b) {
        let mut out = [s.zero_i32(); 4];
        for i in 0..4 {
            out[i] = s.and(s.load_bytes(&b.sm[i]), s.splat_i32(bytes(15)));
        }
        out
    }
    min_words(s, b) {
        let mut out = [s.zero_i32(); 4];
        for i in 0..4 {
            out[i] = s.and(s.shr(s.load_bytes(&b.sm[i]), 4), s.splat_i32(bytes(15)));
        }
        out
    }
    min(s, b) { s.load_f16(&b.m) }
}

superblock! {
    /// File: 32 bytes of third bits, 64 bytes of 2-bit values (as Q2_K's), 12 bytes of 6-bit
    /// scales plus 32, f16 `d`. Bit `p` of byte `l` of the third bits is weight `32p + l`'s.
    /// Weight `d * sc * (u - 4)`.
    Q3K,
    file: 110, scales: 16,
    signed: false, offset: 4, has_min: false,
    packed { q: [[u8; 64]; 16], h: [[u8; 64]; 8], sc: [[u8; 64]; 3], d: [u16; 16] },
    pack(rows, out) {
        interleave(rows, 0, &mut out.h);
        interleave(rows, 32, &mut out.q);
        interleave(rows, 96, &mut out.sc);
        out.d = halves(rows, 108);
    }
    unpack(b, r, out) {
        gather(&b.h, r, out, 0);
        gather(&b.q, r, out, 32);
        gather(&b.sc, r, out, 96);
        put_half(b.d[r], out, 108);
    }
    chunks(s, b, p) {
        let (low, one, n) = (s.splat_i32(bytes(3)), s.splat_i32(bytes(1)), 2 * (p % 4) as u32);
        let q = &b.q[p / 4 * 8..][..8];
        let mut out = [s.zero_i32(); 8];
        for c in 0..8 {
            let u = s.and(s.shr(s.load_bytes(&q[c]), n), low);
            let h = s.and(s.shr(s.load_bytes(&b.h[c]), p as u32), one);
            out[c] = s.or(u, s.shl(h, 2));
        }
        out
    }
    scale_words(s, b) {
        let (four, two) = (s.splat_i32(bytes(0x0f)), s.splat_i32(bytes(0x30)));
        let (x, y) = (s.load_bytes(&b.sc[0]), s.load_bytes(&b.sc[1]));
        let top = s.load_bytes(&b.sc[2]);
        let words = [
            s.or(s.and(x, four), s.and(s.shl(top, 4), two)),
            s.or(s.and(y, four), s.and(s.shl(top, 2), two)),
            s.or(s.and(s.shr(x, 4), four), s.and(top, two)),
            s.or(s.and(s.shr(y, 4), four), s.and(s.shr(top, 2), two)),
        ];
        let offset = s.splat_i32(bytes(32));
        let mut out = words;
        for i in 0..4 {
            out[i] = s.sub_u8(words[i], offset);
        }
        out
    }
    min_words(s, _b) { [s.zero_i32(); 4] }
    min(s, _b) { s.zero() }
}

superblock! {
    /// File: f16 `d`, f16 `dmin`, 12 bytes of 6-bit scales and minimums, 128 bytes of nibbles.
    /// Byte `32g + l` has weight `64g + l` in its low half, `64g + 32 + l` in its high half.
    Q4K,
    file: 144, scales: 8,
    signed: false, offset: 0, has_min: true,
    packed { q: [[u8; 64]; 32], sm: [[u8; 64]; 3], d: [u16; 16], m: [u16; 16] },
    pack(rows, out) {
        out.d = halves(rows, 0);
        out.m = halves(rows, 2);
        interleave(rows, 4, &mut out.sm);
        interleave(rows, 16, &mut out.q);
    }
    unpack(b, r, out) {
        put_half(b.d[r], out, 0);
        put_half(b.m[r], out, 2);
        gather(&b.sm, r, out, 4);
        gather(&b.q, r, out, 16);
    }
    chunks(s, b, p) { nibbles(s, &b.q[p / 2 * 8..][..8], p % 2) }
    scale_words(s, b) {
        let [scales, _] = scales_and_mins(s, &b.sm);
        [scales[0], scales[1], s.zero_i32(), s.zero_i32()]
    }
    min_words(s, b) {
        let [_, mins] = scales_and_mins(s, &b.sm);
        [mins[0], mins[1], s.zero_i32(), s.zero_i32()]
    }
    min(s, b) { s.load_f16(&b.m) }
}

superblock! {
    /// File: f16 `d`, f16 `dmin`, 12 bytes of 6-bit scales and minimums, 32 bytes of fifth bits,
    /// 128 bytes of nibbles (as Q4_K's). Bit `p` of byte `l` of the fifth bits is weight
    /// `32p + l`'s.
    Q5K,
    file: 176, scales: 8,
    signed: false, offset: 0, has_min: true,
    packed { q: [[u8; 64]; 32], h: [[u8; 64]; 8], sm: [[u8; 64]; 3], d: [u16; 16], m: [u16; 16] },
    pack(rows, out) {
        out.d = halves(rows, 0);
        out.m = halves(rows, 2);
        interleave(rows, 4, &mut out.sm);
        interleave(rows, 16, &mut out.h);
        interleave(rows, 48, &mut out.q);
    }
    unpack(b, r, out) {
        put_half(b.d[r], out, 0);
        put_half(b.m[r], out, 2);
        gather(&b.sm, r, out, 4);
        gather(&b.h, r, out, 16);
        gather(&b.q, r, out, 48);
    }
    chunks(s, b, p) {
        let one = s.splat_i32(bytes(1));
        let mut out = nibbles(s, &b.q[p / 2 * 8..][..8], p % 2);
        for c in 0..8 {
            let h = s.and(s.shr(s.load_bytes(&b.h[c]), p as u32), one);
            out[c] = s.or(out[c], s.shl(h, 4));
        }
        out
    }
    scale_words(s, b) {
        let [scales, _] = scales_and_mins(s, &b.sm);
        [scales[0], scales[1], s.zero_i32(), s.zero_i32()]
    }
    min_words(s, b) {
        let [_, mins] = scales_and_mins(s, &b.sm);
        [mins[0], mins[1], s.zero_i32(), s.zero_i32()]
    }
    min(s, b) { s.load_f16(&b.m) }
}

superblock! {
    /// File: 128 bytes of nibbles, 64 bytes of upper bits, 16 signed scales, f16 `d`. Weight
    /// `128h + 32i + l` has its low four bits in byte `64h + 32(i % 2) + l`, half `i / 2`, and
    /// its upper two in byte `32h + l`, bits `2i`. Weight `d * sc * (u - 32)`.
    Q6K,
    file: 210, scales: 16,
    signed: false, offset: 32, has_min: false,
    packed { q: [[u8; 64]; 32], h: [[u8; 64]; 16], sc: [[u8; 64]; 4], d: [u16; 16] },
    pack(rows, out) {
        interleave(rows, 0, &mut out.q);
        interleave(rows, 128, &mut out.h);
        interleave(rows, 192, &mut out.sc);
        out.d = halves(rows, 208);
    }
    unpack(b, r, out) {
        gather(&b.q, r, out, 0);
        gather(&b.h, r, out, 128);
        gather(&b.sc, r, out, 192);
        put_half(b.d[r], out, 208);
    }
    chunks(s, b, p) {
        let (h, i) = (p / 4, p % 4);
        let (two, n) = (s.splat_i32(bytes(3)), 2 * i as u32);
        let upper = &b.h[8 * h..][..8];
        let mut out = nibbles(s, &b.q[16 * h + 8 * (i % 2)..][..8], i / 2);
        for c in 0..8 {
            let u = s.and(s.shr(s.load_bytes(&upper[c]), n), two);
            out[c] = s.or(out[c], s.shl(u, 4));
        }
        out
    }
    scale_words(s, b) {
        let mut out = [s.zero_i32(); 4];
        for i in 0..4 {
            out[i] = s.load_bytes(&b.sc[i]);
        }
        out
    }
    min_words(s, _b) { [s.zero_i32(); 4] }
    min(s, _b) { s.zero() }
}

superblock! {
    /// File: f16 `d`, 16 bits of upper scale bits, 4 bytes of lower scale nibbles, 128 bytes of
    /// nibbles, indices into [`IQ4_TABLE`]. Byte `16j + l` has weight `32j + l` in its low half,
    /// `32j + 16 + l` in its high half. Weight `d * (ls - 32) * table[u]`.
    ///
    /// The packed lower nibbles: byte `b` has sub-block `b` low, `b + 4` high. The packed upper
    /// bits, from bit 0 up: sub-blocks 6, 4, 2, 0, then 7, 5, 3, 1, so that a copy shifted up by
    /// 18 puts those of 0, 1, 2, 3 at bits 6 and 7 of a word's four bytes, and those of 4, 5, 6,
    /// 7 at bits 2 and 3.
    Iq4Xs,
    file: 136, scales: 8,
    signed: true, offset: 0, has_min: false,
    packed { q: [[u8; 64]; 32], l: [u8; 64], h: [u16; 16], d: [u16; 16] },
    pack(rows, out) {
        out.d = halves(rows, 0);
        for (r, row) in rows.iter().enumerate() {
            let (lower, upper) = (&row[4..8], u16::from_le_bytes([row[2], row[3]]));
            let (mut l, mut h) = ([0u8; 4], 0u16);
            for j in 0..8 {
                let nibble = lower[j / 2] >> (4 * (j % 2)) & 15;
                l[j % 4] |= nibble << (4 * (j / 4));
                h |= (upper >> (2 * j) & 3) << (8 * (j % 2) + 6 - 2 * (j / 2));
            }
            out.l[4 * r..4 * r + 4].copy_from_slice(&l);
            out.h[r] = h;
        }
        interleave(rows, 8, &mut out.q);
    }
    unpack(b, r, out) {
        put_half(b.d[r], out, 0);
        let (l, h) = (lane(&b.l, r), b.h[r]);
        let (mut lower, mut upper) = ([0u8; 4], 0u16);
        for j in 0..8 {
            let nibble = l[j % 4] >> (4 * (j / 4)) & 15;
            lower[j / 2] |= nibble << (4 * (j % 2));
            upper |= (h >> (8 * (j % 2) + 6 - 2 * (j / 2)) & 3) << (2 * j);
        }
        put_half(upper, out, 2);
        out[4..8].copy_from_slice(&lower);
        gather(&b.q, r, out, 8);
    }
    chunks(s, b, p) {
        let mask = s.splat_i32(bytes(15));
        let q = &b.q[4 * p..][..4];
        let mut out = [s.zero_i32(); 8];
        for c in 0..4 {
            let v = s.load_bytes(&q[c]);
            out[c] = s.i8_operand(s.lookup(&IQ4_TABLE, s.and(v, mask)));
            out[c + 4] = s.i8_operand(s.lookup(&IQ4_TABLE, s.and(s.shr(v, 4), mask)));
        }
        out
    }
    scale_words(s, b) {
        let (four, two) = (s.splat_i32(bytes(0x0f)), s.splat_i32(bytes(0x30)));
        let (l, h, offset) = (s.load_bytes(&b.l), s.load_u16(&b.h), s.splat_i32(bytes(32)));
        let h = s.or(h, s.shl(h, 18));
        let low = s.or(s.and(l, four), s.and(s.shr(h, 2), two));
        let high = s.or(s.and(s.shr(l, 4), four), s.and(s.shl(h, 2), two));
        [s.sub_u8(low, offset), s.sub_u8(high, offset), s.zero_i32(), s.zero_i32()]
    }
    min_words(s, _b) { [s.zero_i32(); 4] }
    min(s, _b) { s.zero() }
}
