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

/// Rows of one type to f32, by ggml's formulas (`dequantize_row_*` in ggml-quants.c), each
/// operation rounded on its own. The formula is fixed when this is made.
#[derive(Clone, Copy, Debug)]
pub struct Dequantizer {
    ty: WeightType,
    block: fn(&[u8], &mut [f32]),
}

impl Dequantizer {
    /// For rows of type `ty`.
    pub fn new(ty: WeightType) -> Dequantizer {
        Dequantizer {
            ty,
            block: formula(ty),
        }
    }

    /// Dequantizes `out.len()` weights from their blocks `src`.
    ///
    /// # Errors
    ///
    /// The two are not the same whole number of blocks.
    pub fn row(&self, src: &[u8], out: &mut [f32]) -> Result<(), DequantizeError> {
        let ty = self.ty;
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
        for (b, y) in src
            .chunks_exact(block_bytes)
            .zip(out.chunks_exact_mut(block_len))
        {
            (self.block)(b, y);
        }
        Ok(())
    }
}

/// Dequantizes `out.len()` weights of type `ty` from their blocks `src`.
///
/// # Errors
///
/// As [`Dequantizer::row`].
pub fn dequantize_row(ty: WeightType, src: &[u8], out: &mut [f32]) -> Result<(), DequantizeError> {
    Dequantizer::new(ty).row(src, out)
}

/// What one block of a type becomes.
fn formula(ty: WeightType) -> fn(&[u8], &mut [f32]) {
    match ty {
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
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// f16 1.0, 0.5 and -2.0.
    const ONE: [u8; 2] = [0x00, 0x3c];
    const HALF: [u8; 2] = [0x00, 0x38];
    const MINUS_TWO: [u8; 2] = [0x00, 0xc0];

    fn row(ty: WeightType, parts: &[&[u8]]) -> Vec<f32> {
        let mut out = vec![f32::NAN; ty.block_len()];
        dequantize_row(ty, &parts.concat(), &mut out).unwrap();
        out
    }

    #[test]
    fn blocks_of_32_made_by_hand() {
        // Byte i: low half i, high half 15 - i.
        let q: Vec<u8> = (0..16).map(|i| i | (15 - i) << 4).collect();
        let nibble = |k: usize| if k < 16 { k as f32 } else { 31.0 - k as f32 };
        // Fifth bits: weights 0 and 31.
        let h = [1, 0, 0, 0x80];
        let fifth = |k: usize| if k == 0 || k == 31 { 16.0 } else { 0.0 };

        let y = row(WeightType::Q4_0, &[&HALF, &q]);
        assert!((0..32).all(|k| y[k] == 0.5 * (nibble(k) - 8.0)));
        let y = row(WeightType::Q4_1, &[&HALF, &MINUS_TWO, &q]);
        assert!((0..32).all(|k| y[k] == 0.5 * nibble(k) - 2.0));
        let y = row(WeightType::Q5_0, &[&MINUS_TWO, &h, &q]);
        assert!((0..32).all(|k| y[k] == -2.0 * (nibble(k) + fifth(k) - 16.0)));
        let y = row(WeightType::Q5_1, &[&HALF, &ONE, &h, &q]);
        assert!((0..32).all(|k| y[k] == 0.5 * (nibble(k) + fifth(k)) + 1.0));
        let y = row(WeightType::IQ4_NL, &[&HALF, &q]);
        assert!((0..32).all(|k| y[k] == 0.5 * f32::from(IQ4_TABLE[nibble(k) as usize])));
        let w: Vec<u8> = (0..32).map(|k| (k * 8 + 128) as u8).collect();
        let y = row(WeightType::Q8_0, &[&MINUS_TWO, &w]);
        assert!((0..32).all(|k| y[k] == -2.0 * (k as f32 * 8.0 - 128.0)));
    }

    #[test]
    fn superblocks_made_by_hand() {
        // Scale j + 1 and minimum 15 - j of sub-block j; every value 2.
        let sm: Vec<u8> = (0..16).map(|j| ((j + 1) % 16) | (15 - j) << 4).collect();
        let y = row(WeightType::Q2_K, &[&sm, &[0xaa; 64], &HALF, &ONE]);
        let wanted = |k: usize| ((k / 16 + 1) % 16) as f32 - (15 - k / 16) as f32;
        assert!((0..256).all(|k| y[k] == wanted(k)));

        // All scales 33 - 32 = 1; low bits 1; third bits set in the first 32 weights only.
        let scales = [
            0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0xaa, 0xaa, 0xaa, 0xaa,
        ];
        let y = row(WeightType::Q3_K, &[&[1; 32], &[0x55; 64], &scales, &HALF]);
        assert!((0..256).all(|k| y[k] == if k < 32 { 0.5 } else { -1.5 }));

        // Scales 1, 2, 3, 4 and 17, 34, 51, 20; minimums 5, 6, 7, 8 and 0.
        let sm = [0x41, 0x82, 0xc3, 0x44, 5, 6, 7, 8, 0x01, 0x02, 0x03, 0x04];
        let scales = [1.0, 2.0, 3.0, 4.0, 17.0, 34.0, 51.0, 20.0];
        let mins = [5.0, 6.0, 7.0, 8.0, 0.0, 0.0, 0.0, 0.0];
        // Low halves 3, high halves 9.
        let four = |k: usize| if (k / 32).is_multiple_of(2) { 3.0 } else { 9.0 };
        let y = row(WeightType::Q4_K, &[&HALF, &MINUS_TWO, &sm, &[0x93; 128]]);
        assert!((0..256).all(|k| y[k] == 0.5 * scales[k / 32] * four(k) + 2.0 * mins[k / 32]));
        // Fifth bits of sub-blocks 0 and 7.
        let y = row(
            WeightType::Q5_K,
            &[&HALF, &MINUS_TWO, &sm, &[0x81; 32], &[0x93; 128]],
        );
        let five = |k: usize| {
            four(k)
                + if (k / 32).is_multiple_of(7) {
                    16.0
                } else {
                    0.0
                }
        };
        assert!((0..256).all(|k| y[k] == 0.5 * scales[k / 32] * five(k) + 2.0 * mins[k / 32]));

        // Low bits 3 then 9, upper bits 0, 1, 2, 3 in turn; scales j - 8.
        let sc: Vec<u8> = (0..16u8).map(|j| j.wrapping_sub(8)).collect();
        let y = row(
            WeightType::Q6_K,
            &[&[0x93; 128], &[0b1110_0100; 64], &sc, &HALF],
        );
        let six = |k: usize| {
            let quarter = k / 32 % 4;
            (if quarter < 2 { 3.0 } else { 9.0 }) + 16.0 * quarter as f32 - 32.0
        };
        assert!((0..256).all(|k| y[k] == 0.5 * (k as f32 / 16.0 - 8.0).floor() * six(k)));

        // Lower bits of the scales 0 to 7, upper bits 0, 1, 2, 3, 3, 2, 1, 0; indices 0 and 15.
        let upper: u16 = [0, 1, 2, 3, 3, 2, 1, 0]
            .iter()
            .rev()
            .fold(0, |u, &h| u << 2 | h);
        let lower = [0x10, 0x32, 0x54, 0x76];
        let y = row(
            WeightType::IQ4_XS,
            &[&ONE, &upper.to_le_bytes(), &lower, &[0xf0; 128]],
        );
        let scales = [-32.0, -15.0, 2.0, 19.0, 20.0, 5.0, -10.0, -25.0];
        let value = |k: usize| if k % 32 < 16 { -127.0 } else { 113.0 };
        assert!((0..256).all(|k| y[k] == scales[k / 32] * value(k)));
    }

    #[test]
    fn floats_are_themselves() {
        assert_eq!(row(WeightType::F32, &[&1.5f32.to_le_bytes()]), [1.5]);
        assert_eq!(row(WeightType::F16, &[&MINUS_TWO]), [-2.0]);
        assert_eq!(row(WeightType::BF16, &[&[0xc0, 0x3f]]), [1.5]);
    }
}
