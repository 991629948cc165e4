//! Weights as the numbers they stand for, in f64, straight from the file's blocks.
//!
//! Written from ggml's format definitions (`ggml-common.h`, the `block_*` structures) and from
//! nothing in the kernels, so that the two can judge each other. Each block type says which
//! value a weight has by its place `i` inside the block.
//!
//! The values are exact. Every finite f16 is a multiple of 2^-24 below 2^16, the integers that
//! multiply it stay below 2^12 together, and so each product and each difference of two of them
//! is a multiple of 2^-24 below 2^28, which an f64 holds. (An f32 would not: a product and a
//! minimum may need 52 bits.)

use half::{bf16, f16};

use crate::gguf::TensorType;

/// Decodes the blocks of one weight type.
#[derive(Clone, Copy, Debug)]
pub struct Dequantizer {
    block_len: usize,
    block_bytes: usize,
    decode: Decode,
}

/// Decodes one block.
type Decode = fn(&[u8], &mut [f64]);

impl Dequantizer {
    /// The decoder of `ty`; `None` when the type is not one this project runs.
    pub fn new(ty: TensorType) -> Option<Self> {
        let (block_len, block_bytes, decode): (usize, usize, Decode) = match ty {
            TensorType::F32 => (1, 4, f32_block),
            TensorType::F16 => (1, 2, f16_block),
            TensorType::BF16 => (1, 2, bf16_block),
            TensorType::Q4_0 => (32, 18, q4_0),
            TensorType::Q4_1 => (32, 20, q4_1),
            TensorType::Q5_0 => (32, 22, q5_0),
            TensorType::Q5_1 => (32, 24, q5_1),
            TensorType::Q8_0 => (32, 34, q8_0),
            TensorType::Q2_K => (256, 84, q2_k),
            TensorType::Q3_K => (256, 110, q3_k),
            TensorType::Q4_K => (256, 144, q4_k),
            TensorType::Q5_K => (256, 176, q5_k),
            TensorType::Q6_K => (256, 210, q6_k),
            TensorType::IQ4_NL => (32, 18, iq4_nl),
            TensorType::IQ4_XS => (256, 136, iq4_xs),
            _ => return None,
        };
        Some(Self {
            block_len,
            block_bytes,
            decode,
        })
    }

    /// Bytes of a row of `len` weights; `None` when `len` is no whole number of blocks.
    pub fn row_bytes(&self, len: usize) -> Option<usize> {
        len.is_multiple_of(self.block_len)
            .then(|| len / self.block_len * self.block_bytes)
    }

    /// Decodes whole blocks from `src` into `out`.
    ///
    /// # Panics
    ///
    /// When `src` does not hold exactly `row_bytes(out.len())` bytes.
    pub fn decode(&self, src: &[u8], out: &mut [f64]) {
        assert_eq!(
            Some(src.len()),
            self.row_bytes(out.len()),
            "blocks and values disagree"
        );
        let blocks = src.chunks_exact(self.block_bytes);
        for (block, values) in blocks.zip(out.chunks_exact_mut(self.block_len)) {
            (self.decode)(block, values);
        }
    }
}

/// The 16 levels of IQ4_NL and IQ4_XS (`kvalues_iq4nl`).
const IQ4_LEVELS: [i8; 16] = [
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
];

/// The f16 at `at`.
fn half(block: &[u8], at: usize) -> f64 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f64()
}

/// The 4-bit number of place `i` where a run of `2 * half` places shares `half` bytes: the first
/// half in the low nibbles, the second in the high ones.
fn nibble(bytes: &[u8], half: usize, i: usize) -> u8 {
    bytes[i % half] >> (4 * (i / half)) & 15
}

fn f32_block(block: &[u8], out: &mut [f64]) {
    out[0] = f64::from(f32::from_le_bytes([block[0], block[1], block[2], block[3]]));
}

fn f16_block(block: &[u8], out: &mut [f64]) {
    out[0] = half(block, 0);
}

fn bf16_block(block: &[u8], out: &mut [f64]) {
    out[0] = bf16::from_le_bytes([block[0], block[1]]).to_f64();
}

/// `d`, 16 bytes of nibbles: `d * (q - 8)`.
fn q4_0(block: &[u8], out: &mut [f64]) {
    let d = half(block, 0);
    for (i, w) in out.iter_mut().enumerate() {
        *w = d * (f64::from(nibble(&block[2..18], 16, i)) - 8.0);
    }
}

/// `d`, `m`, 16 bytes of nibbles: `d * q + m`.
fn q4_1(block: &[u8], out: &mut [f64]) {
    let (d, m) = (half(block, 0), half(block, 2));
    for (i, w) in out.iter_mut().enumerate() {
        *w = d * f64::from(nibble(&block[4..20], 16, i)) + m;
    }
}

/// The 5-bit number of place `i`: a nibble, and bit `i` of 32 bits for its top.
fn five_bits(high: &[u8], low: &[u8], i: usize) -> f64 {
    let top = high[i / 8] >> (i % 8) & 1;
    f64::from(nibble(low, 16, i) | top << 4)
}

/// `d`, 32 high bits, 16 bytes of nibbles: `d * (q - 16)`.
fn q5_0(block: &[u8], out: &mut [f64]) {
    let d = half(block, 0);
    for (i, w) in out.iter_mut().enumerate() {
        *w = d * (five_bits(&block[2..6], &block[6..22], i) - 16.0);
    }
}

/// `d`, `m`, 32 high bits, 16 bytes of nibbles: `d * q + m`.
fn q5_1(block: &[u8], out: &mut [f64]) {
    let (d, m) = (half(block, 0), half(block, 2));
    for (i, w) in out.iter_mut().enumerate() {
        *w = d * five_bits(&block[4..8], &block[8..24], i) + m;
    }
}

/// `d`, 32 signed bytes: `d * q`.
fn q8_0(block: &[u8], out: &mut [f64]) {
    let d = half(block, 0);
    for (w, &q) in out.iter_mut().zip(&block[2..34]) {
        *w = d * f64::from(q as i8);
    }
}

/// The 2-bit number of place `i` of a super-block: each half of 128 has 32 bytes, and each
/// quarter of a half has two bits of every one of them.
fn two_bits(qs: &[u8], i: usize) -> u8 {
    let (half, quarter, l) = (i / 128, i % 128 / 32, i % 32);
    qs[32 * half + l] >> (2 * quarter) & 3
}

/// 16 bytes of (scale, minimum) nibbles, 64 bytes of 2-bit numbers, `d`, `dmin`; sub-blocks of
/// 16: `d * scale * q - dmin * minimum`.
fn q2_k(block: &[u8], out: &mut [f64]) {
    let (scales, qs) = (&block[0..16], &block[16..80]);
    let (d, dmin) = (half(block, 80), half(block, 82));
    for (s, sub) in out.chunks_exact_mut(16).enumerate() {
        let scale = d * f64::from(scales[s] & 15);
        let minimum = dmin * f64::from(scales[s] >> 4);
        for (l, w) in sub.iter_mut().enumerate() {
            *w = scale * f64::from(two_bits(qs, 16 * s + l)) - minimum;
        }
    }
}

/// 32 bytes of high bits, 64 bytes of 2-bit numbers, 16 6-bit scales in 12 bytes, `d`;
/// sub-blocks of 16: `d * (scale - 32) * (q - 4)`.
fn q3_k(block: &[u8], out: &mut [f64]) {
    let (high, qs, scales) = (&block[0..32], &block[32..96], &block[96..108]);
    let d = half(block, 108);
    for (s, sub) in out.chunks_exact_mut(16).enumerate() {
        let low4 = nibble(scales, 8, s);
        let high2 = scales[8 + s % 4] >> (2 * (s / 4)) & 3;
        let scale = d * (f64::from(low4 | high2 << 4) - 32.0);
        for (l, w) in sub.iter_mut().enumerate() {
            let i = 16 * s + l;
            let top = high[i % 32] >> (i / 32) & 1;
            *w = scale * (f64::from(two_bits(qs, i) | top << 2) - 4.0);
        }
    }
}

/// Scale and minimum of sub-block `s` of 8, 6 bits each, from the 12 bytes that Q4_K and Q5_K
/// share: the first four lie whole in bytes 0 to 7; of the others the low four bits lie in bytes
/// 8 to 11, the high two on top of the first four's.
fn scale_and_minimum(bytes: &[u8], s: usize) -> (f64, f64) {
    let (scale, minimum) = if s < 4 {
        (bytes[s] & 63, bytes[s + 4] & 63)
    } else {
        (
            bytes[s + 4] & 15 | bytes[s - 4] >> 6 << 4,
            bytes[s + 4] >> 4 | bytes[s] >> 6 << 4,
        )
    };
    (f64::from(scale), f64::from(minimum))
}

/// `d`, `dmin`, 12 bytes of scales and minimums, 128 bytes of nibbles; sub-blocks of 32:
/// `d * scale * q - dmin * minimum`.
fn q4_k(block: &[u8], out: &mut [f64]) {
    let (d, dmin) = (half(block, 0), half(block, 2));
    let (scales, qs) = (&block[4..16], &block[16..144]);
    for (s, sub) in out.chunks_exact_mut(32).enumerate() {
        let (scale, minimum) = scale_and_minimum(scales, s);
        let (scale, minimum) = (d * scale, dmin * minimum);
        let pair = &qs[32 * (s / 2)..][..32];
        for (l, w) in sub.iter_mut().enumerate() {
            *w = scale * f64::from(pair[l] >> (4 * (s % 2)) & 15) - minimum;
        }
    }
}

/// As Q4_K with 32 bytes of fifth bits before the nibbles: bit `s` of byte `l` belongs to place
/// `l` of sub-block `s`.
fn q5_k(block: &[u8], out: &mut [f64]) {
    let (d, dmin) = (half(block, 0), half(block, 2));
    let (scales, high, qs) = (&block[4..16], &block[16..48], &block[48..176]);
    for (s, sub) in out.chunks_exact_mut(32).enumerate() {
        let (scale, minimum) = scale_and_minimum(scales, s);
        let (scale, minimum) = (d * scale, dmin * minimum);
        let pair = &qs[32 * (s / 2)..][..32];
        for (l, w) in sub.iter_mut().enumerate() {
            let q = pair[l] >> (4 * (s % 2)) & 15 | (high[l] >> s & 1) << 4;
            *w = scale * f64::from(q) - minimum;
        }
    }
}

/// 128 bytes of low nibbles, 64 bytes of high 2-bit numbers, 16 signed scales, `d`; sub-blocks
/// of 16: `d * scale * (q - 32)`. Inside each half of 128 the nibbles of the first 64 places are
/// the low ones of 64 bytes, those of the others the high ones.
fn q6_k(block: &[u8], out: &mut [f64]) {
    let (low, high, scales) = (&block[0..128], &block[128..192], &block[192..208]);
    let d = half(block, 208);
    for (s, sub) in out.chunks_exact_mut(16).enumerate() {
        let scale = d * f64::from(scales[s] as i8);
        for (l, w) in sub.iter_mut().enumerate() {
            let i = 16 * s + l;
            let q = nibble(&low[64 * (i / 128)..][..64], 64, i % 128) | two_bits(high, i) << 4;
            *w = scale * (f64::from(q) - 32.0);
        }
    }
}

/// `d`, 16 bytes of nibbles: `d * level(q)`.
fn iq4_nl(block: &[u8], out: &mut [f64]) {
    let d = half(block, 0);
    for (i, w) in out.iter_mut().enumerate() {
        *w = d * f64::from(IQ4_LEVELS[usize::from(nibble(&block[2..18], 16, i))]);
    }
}

/// `d`, 16 bits of high scale bits, 4 bytes of low scale nibbles, 128 bytes of nibbles;
/// sub-blocks of 32: `d * (scale - 32) * level(q)`.
fn iq4_xs(block: &[u8], out: &mut [f64]) {
    let d = half(block, 0);
    let high = u16::from_le_bytes([block[2], block[3]]);
    let (low, qs) = (&block[4..8], &block[8..136]);
    for (s, sub) in out.chunks_exact_mut(32).enumerate() {
        let low4 = low[s / 2] >> (4 * (s % 2)) & 15;
        let high2 = (high >> (2 * s) & 3) as u8;
        let scale = d * (f64::from(low4 | high2 << 4) - 32.0);
        for (i, w) in sub.iter_mut().enumerate() {
            let q = nibble(&qs[16 * s..][..16], 16, i);
            *w = scale * f64::from(IQ4_LEVELS[usize::from(q)]);
        }
    }
}

#[cfg(test)]
mod tests;
