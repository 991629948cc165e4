//! File blocks to f32: one scalar definition, for embedding rows and for checking.

use super::{IQ4_TABLE, WeightType};
use half::f16;

/// A row that is not a whole number of blocks, or whose two lengths disagree.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot dequantize {bytes} bytes of {ty:?} into {values} values: a block is {block_bytes} \
     bytes for {block_len} values"
)]
pub struct DequantizeError {
    /// The weights' type.
    pub ty: WeightType,
    /// How many bytes were given.
    pub bytes: usize,
    /// How many values were asked for.
    pub values: usize,
    /// Bytes of one block of that type.
    pub block_bytes: usize,
    /// Values of one block of that type.
    pub block_len: usize,
}

/// Dequantizes `out.len()` weights from their blocks `src`, by ggml's formulas
/// (`dequantize_row_*` in ggml-quants.c), each operation rounded on its own.
pub fn dequantize_row(ty: WeightType, src: &[u8], out: &mut [f32]) -> Result<(), DequantizeError> {
    let (block_len, block_bytes) = (ty.block_len(), ty.block_bytes());
    let fits = out.len().is_multiple_of(block_len)
        && src.len().is_multiple_of(block_bytes)
        && out.len() / block_len == src.len() / block_bytes;
    if !fits {
        let (bytes, values) = (src.len(), out.len());
        return Err(DequantizeError {
            ty,
            bytes,
            values,
            block_bytes,
            block_len,
        });
    }
    let block: fn(&[u8], &mut [f32]) = match ty {
        WeightType::F32 => |b, y| y[0] = f32::from_le_bytes([b[0], b[1], b[2], b[3]]),
        WeightType::F16 => |b, y| y[0] = half(b, 0),
        WeightType::BF16 => |b, y| y[0] = f32::from_bits(u32::from(u16_at(b, 0)) << 16),
        WeightType::Q4_0 => |b, y| {
            nibbles32(&b[2..], |i, u| y[i] = f32::from(u as i8 - 8) * half(b, 0));
        },
        WeightType::Q4_1 => |b, y| {
            nibbles32(&b[4..], |i, u| {
                y[i] = f32::from(u) * half(b, 0) + half(b, 2)
            });
        },
        WeightType::Q5_0 => |b, y| {
            nibbles32(&b[6..], |i, u| {
                y[i] = f32::from((u | bit(&b[2..6], i) << 4) as i8 - 16) * half(b, 0);
            });
        },
        WeightType::Q5_1 => |b, y| {
            nibbles32(&b[8..], |i, u| {
                y[i] = f32::from(u | bit(&b[4..8], i) << 4) * half(b, 0) + half(b, 2);
            });
        },
        WeightType::Q8_0 => |b, y| {
            for i in 0..32 {
                y[i] = f32::from(b[2 + i] as i8) * half(b, 0);
            }
        },
        WeightType::IQ4_NL => |b, y| {
            nibbles32(&b[2..], |i, u| {
                y[i] = half(b, 0) * f32::from(IQ4_TABLE[usize::from(u)])
            });
        },
        WeightType::Q2_K => q2_k,
        WeightType::Q3_K => q3_k,
        WeightType::Q4_K => q4_k,
        WeightType::Q5_K => q5_k,
        WeightType::Q6_K => q6_k,
        WeightType::IQ4_XS => iq4_xs,
    };
    for (b, y) in src
        .chunks_exact(block_bytes)
        .zip(out.chunks_exact_mut(block_len))
    {
        block(b, y);
    }
    Ok(())
}

fn u16_at(b: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([b[at], b[at + 1]])
}

/// The half-precision number at byte `at`.
fn half(b: &[u8], at: usize) -> f32 {
    f16::from_bits(u16_at(b, at)).to_f32_const()
}

/// Bit `i` of little-endian bytes.
fn bit(b: &[u8], i: usize) -> u8 {
    b[i / 8] >> (i % 8) & 1
}

/// Calls `f` with position and nibble: sixteen low halves, then sixteen high ones.
fn nibbles32(q: &[u8], mut f: impl FnMut(usize, u8)) {
    for i in 0..16 {
        f(i, q[i] & 15);
        f(i + 16, q[i] >> 4);
    }
}

fn q2_k(b: &[u8], y: &mut [f32]) {
    let (sc, q, d, dmin) = (&b[..16], &b[16..80], half(b, 80), half(b, 82));
    for (k, y) in y.iter_mut().enumerate() {
        let u = q[k / 128 * 32 + k % 32] >> (2 * (k / 32 % 4)) & 3;
        let s = sc[k / 16];
        *y = d * f32::from(s & 15) * f32::from(u) - dmin * f32::from(s >> 4);
    }
}

fn q3_k(b: &[u8], y: &mut [f32]) {
    let (h, q, sc, d) = (&b[..32], &b[32..96], &b[96..108], half(b, 108));
    for (k, y) in y.iter_mut().enumerate() {
        let low = q[k / 128 * 32 + k % 32] >> (2 * (k / 32 % 4)) & 3;
        let u = low | (h[k % 32] >> (k / 32) & 1) << 2;
        let j = k / 16;
        let s = sc[j % 8] >> (4 * (j / 8)) & 15 | (sc[8 + j % 4] >> (2 * (j / 4)) & 3) << 4;
        *y = d * f32::from(s as i8 - 32) * f32::from(u as i8 - 4);
    }
}

/// Scale and minimum of sub-block `j` of Q4_K and Q5_K (ggml's `get_scale_min_k4`).
fn scale_min(sm: &[u8], j: usize) -> (u8, u8) {
    if j < 4 {
        (sm[j] & 63, sm[j + 4] & 63)
    } else {
        (
            sm[j + 4] & 15 | sm[j - 4] >> 6 << 4,
            sm[j + 4] >> 4 | sm[j] >> 6 << 4,
        )
    }
}

fn q4_k(b: &[u8], y: &mut [f32]) {
    let (d, dmin, sm, q) = (half(b, 0), half(b, 2), &b[4..16], &b[16..]);
    for (k, y) in y.iter_mut().enumerate() {
        let (sc, m) = scale_min(sm, k / 32);
        let u = q[k / 64 * 32 + k % 32] >> (4 * (k / 32 % 2)) & 15;
        *y = d * f32::from(sc) * f32::from(u) - dmin * f32::from(m);
    }
}

fn q5_k(b: &[u8], y: &mut [f32]) {
    let (d, dmin, sm, h, q) = (half(b, 0), half(b, 2), &b[4..16], &b[16..48], &b[48..]);
    for (k, y) in y.iter_mut().enumerate() {
        let (sc, m) = scale_min(sm, k / 32);
        let u = q[k / 64 * 32 + k % 32] >> (4 * (k / 32 % 2)) & 15;
        let u = u | (h[k % 32] >> (k / 32) & 1) << 4;
        *y = d * f32::from(sc) * f32::from(u) - dmin * f32::from(m);
    }
}

fn q6_k(b: &[u8], y: &mut [f32]) {
    let (q, h, sc, d) = (&b[..128], &b[128..192], &b[192..208], half(b, 208));
    for (k, y) in y.iter_mut().enumerate() {
        let (half, i, l) = (k / 128, k / 32 % 4, k % 32);
        let low = q[64 * half + 32 * (i % 2) + l] >> (4 * (i / 2)) & 15;
        let u = low | (h[32 * half + l] >> (2 * i) & 3) << 4;
        *y = d * f32::from(sc[k / 16] as i8) * f32::from(u as i8 - 32);
    }
}

fn iq4_xs(b: &[u8], y: &mut [f32]) {
    let (d, upper, lower, q) = (half(b, 0), u16_at(b, 2), &b[4..8], &b[8..]);
    for j in 0..8 {
        let s = lower[j / 2] >> (4 * (j % 2)) & 15 | ((upper >> (2 * j) & 3) as u8) << 4;
        let dl = d * f32::from(s as i8 - 32);
        nibbles32(&q[16 * j..], |i, u| {
            y[32 * j + i] = dl * f32::from(IQ4_TABLE[usize::from(u)])
        });
    }
}
