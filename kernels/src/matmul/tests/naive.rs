//! The products by the words of their definition, one weight at a time from the file's blocks.
//! Slow, and independent of packing, vectors and the crate's own decoding.

use crate::format::{ActivationKind, WeightType};
use crate::test_util::{Quantized, quantize};
use half::f16;

/// A block's numbers.
struct Block {
    /// Weights as integers, the format's offset taken off.
    w: Vec<i32>,
    /// Weights in a sub-block.
    sub: usize,
    /// The sub-blocks' scales.
    sc: Vec<i32>,
    /// The sub-blocks' minimums, when the format has them.
    m: Vec<i32>,
    d: f32,
    /// The scale of the minimums, or the minimum itself (blocks of 32).
    dmin: f32,
}

fn half(b: &[u8]) -> f32 {
    f16::from_le_bytes([b[0], b[1]]).to_f32()
}

const TABLE: [i32; 16] = [
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
];

/// 32 values of 4 bits: the low halves of 16 bytes, then the high ones.
fn four_bits(q: &[u8]) -> Vec<i32> {
    let low = q[..16].iter().map(|&q| i32::from(q & 15));
    low.chain(q[..16].iter().map(|&q| i32::from(q >> 4)))
        .collect()
}

fn five_bits(h: &[u8], q: &[u8]) -> Vec<i32> {
    let h = u32::from_le_bytes([h[0], h[1], h[2], h[3]]);
    let low = four_bits(q).into_iter().enumerate();
    low.map(|(k, u)| u + if h & (1 << k) != 0 { 16 } else { 0 })
        .collect()
}

/// The eight 6-bit scales and minimums of 12 bytes.
fn six_bits(b: &[u8]) -> (Vec<i32>, Vec<i32>) {
    let (mut sc, mut m) = (vec![0; 8], vec![0; 8]);
    for j in 0..4 {
        sc[j] = i32::from(b[j]) % 64;
        m[j] = i32::from(b[j + 4]) % 64;
        sc[j + 4] = i32::from(b[j + 8]) % 16 + i32::from(b[j]) / 64 * 16;
        m[j + 4] = i32::from(b[j + 8]) / 16 + i32::from(b[j + 4]) / 64 * 16;
    }
    (sc, m)
}

fn decode(ty: WeightType, b: &[u8]) -> Block {
    let simple = |w: Vec<i32>, d: f32, dmin: f32| Block {
        w,
        sub: 32,
        sc: vec![1],
        m: vec![],
        d,
        dmin,
    };
    let minus = |w: Vec<i32>, offset: i32| w.into_iter().map(|w| w - offset).collect::<Vec<_>>();
    match ty {
        WeightType::Q4_0 => simple(minus(four_bits(&b[2..]), 8), half(b), 0.0),
        WeightType::Q4_1 => simple(four_bits(&b[4..]), half(b), half(&b[2..])),
        WeightType::Q5_0 => simple(minus(five_bits(&b[2..], &b[6..]), 16), half(b), 0.0),
        WeightType::Q5_1 => simple(five_bits(&b[4..], &b[8..]), half(b), half(&b[2..])),
        WeightType::Q8_0 => simple(
            b[2..34].iter().map(|&q| i32::from(q as i8)).collect(),
            half(b),
            0.0,
        ),
        WeightType::IQ4_NL => simple(
            four_bits(&b[2..])
                .iter()
                .map(|&i| TABLE[i as usize])
                .collect(),
            half(b),
            0.0,
        ),
        WeightType::Q2_K => {
            let mut w = vec![];
            for q in [&b[16..48], &b[48..80]] {
                for shift in [0, 2, 4, 6] {
                    w.extend(q.iter().map(|&q| i32::from(q >> shift) % 4));
                }
            }
            let sc = b[..16].iter().map(|&s| i32::from(s) % 16).collect();
            let m = b[..16].iter().map(|&s| i32::from(s) / 16).collect();
            Block {
                w,
                sub: 16,
                sc,
                m,
                d: half(&b[80..]),
                dmin: half(&b[82..]),
            }
        }
        WeightType::Q3_K => {
            let (h, s) = (&b[..32], &b[96..108]);
            let (mut w, mut bit) = (vec![], 1u8);
            for q in [&b[32..64], &b[64..96]] {
                for shift in [0, 2, 4, 6] {
                    for l in 0..32 {
                        let third = if h[l] & bit != 0 { 4 } else { 0 };
                        w.push(i32::from(q[l] >> shift) % 4 + third - 4);
                    }
                    bit = bit.wrapping_shl(1);
                }
            }
            let mut sc = vec![0; 16];
            for i in 0..4 {
                let top = i32::from(s[8 + i]);
                sc[i] = i32::from(s[i]) % 16 + top % 4 * 16 - 32;
                sc[4 + i] = i32::from(s[4 + i]) % 16 + top / 4 % 4 * 16 - 32;
                sc[8 + i] = i32::from(s[i]) / 16 + top / 16 % 4 * 16 - 32;
                sc[12 + i] = i32::from(s[4 + i]) / 16 + top / 64 * 16 - 32;
            }
            Block {
                w,
                sub: 16,
                sc,
                m: vec![],
                d: half(&b[108..]),
                dmin: 0.0,
            }
        }
        WeightType::Q4_K => {
            let (sc, m) = six_bits(&b[4..16]);
            let mut w = vec![];
            for q in b[16..144].chunks(32) {
                w.extend(q.iter().map(|&q| i32::from(q) % 16));
                w.extend(q.iter().map(|&q| i32::from(q) / 16));
            }
            Block {
                w,
                sub: 32,
                sc,
                m,
                d: half(b),
                dmin: half(&b[2..]),
            }
        }
        WeightType::Q5_K => {
            let (sc, m) = six_bits(&b[4..16]);
            let (mut w, h) = (vec![], &b[16..48]);
            for (g, q) in b[48..176].chunks(32).enumerate() {
                for (high, shift) in [(2 * g, 0), (2 * g + 1, 4)] {
                    for l in 0..32 {
                        let fifth = if h[l] >> high & 1 == 1 { 16 } else { 0 };
                        w.push(i32::from(q[l] >> shift) % 16 + fifth);
                    }
                }
            }
            Block {
                w,
                sub: 32,
                sc,
                m,
                d: half(b),
                dmin: half(&b[2..]),
            }
        }
        WeightType::Q6_K => {
            let mut w = vec![0; 256];
            for n in 0..2 {
                let (ql, qh) = (&b[64 * n..], &b[128 + 32 * n..]);
                for l in 0..32 {
                    let at = 128 * n + l;
                    let (a, b, h) = (i32::from(ql[l]), i32::from(ql[l + 32]), i32::from(qh[l]));
                    w[at] = a % 16 + h % 4 * 16 - 32;
                    w[at + 32] = b % 16 + h / 4 % 4 * 16 - 32;
                    w[at + 64] = a / 16 + h / 16 % 4 * 16 - 32;
                    w[at + 96] = b / 16 + h / 64 * 16 - 32;
                }
            }
            let sc = b[192..208].iter().map(|&s| i32::from(s as i8)).collect();
            Block {
                w,
                sub: 16,
                sc,
                m: vec![],
                d: half(&b[208..]),
                dmin: 0.0,
            }
        }
        WeightType::IQ4_XS => {
            let upper = u16::from_le_bytes([b[2], b[3]]);
            let (mut w, mut sc) = (vec![], vec![]);
            for j in 0..8 {
                let low = if j % 2 == 0 {
                    b[4 + j / 2] % 16
                } else {
                    b[4 + j / 2] / 16
                };
                sc.push(i32::from(low) + i32::from(upper >> (2 * j) & 3) * 16 - 32);
                w.extend(
                    four_bits(&b[8 + 16 * j..])
                        .iter()
                        .map(|&i| TABLE[i as usize]),
                );
            }
            Block {
                w,
                sub: 32,
                sc,
                m: vec![],
                d: half(b),
                dmin: 0.0,
            }
        }
        WeightType::F32 | WeightType::F16 | WeightType::BF16 => unreachable!("not a block"),
    }
}

fn float(ty: WeightType, b: &[u8]) -> f32 {
    match ty {
        WeightType::F32 => f32::from_le_bytes([b[0], b[1], b[2], b[3]]),
        WeightType::F16 => half(b),
        _ => f32::from_le_bytes([0, 0, b[0], b[1]]),
    }
}

/// A block's weights in f32, ggml's formulas.
pub(super) fn weights(ty: WeightType, b: &[u8]) -> Vec<f32> {
    match ty.activation() {
        ActivationKind::F32 => vec![float(ty, b)],
        ActivationKind::Q8x32 => {
            let block = decode(ty, b);
            let minimum = matches!(ty, WeightType::Q4_1 | WeightType::Q5_1);
            let scaled = block.w.iter().map(|&w| w as f32 * block.d);
            scaled
                .map(|w| if minimum { w + block.dmin } else { w })
                .collect()
        }
        ActivationKind::Q8x256 => {
            let block = decode(ty, b);
            let weight = |(k, &w): (usize, &i32)| {
                let scaled = block.d * block.sc[k / block.sub] as f32 * w as f32;
                match block.m.get(k / block.sub) {
                    Some(&m) => scaled - block.dmin * m as f32,
                    None => scaled,
                }
            };
            block.w.iter().enumerate().map(weight).collect()
        }
    }
}

/// `[tokens, rows]`.
pub(super) fn product(ty: WeightType, rows: usize, k: usize, src: &[u8], x: &[f32]) -> Vec<f32> {
    let row_bytes = src.len() / rows;
    let (len, bytes) = (ty.block_len(), ty.block_bytes());
    let mut out = vec![0.0; x.len() / k * rows];
    if ty.activation() == ActivationKind::F32 {
        for (x, out) in x.chunks(k).zip(out.chunks_mut(rows)) {
            for (row, out) in src.chunks(row_bytes).zip(out) {
                for (b, &x) in row.chunks(bytes).zip(x) {
                    *out = float(ty, b).mul_add(x, *out);
                }
            }
        }
        return out;
    }
    let blocks: Vec<Block> = src.chunks(bytes).map(|b| decode(ty, b)).collect();
    for (x, out) in x.chunks(k).zip(out.chunks_mut(rows)) {
        let x: Vec<Quantized> = x.chunks(len).map(quantize).collect();
        for (row, out) in blocks.chunks(k / len).zip(out) {
            let mut acc = 0.0f32;
            for (w, x) in row.iter().zip(&x) {
                acc = accumulate(ty, w, x, acc);
            }
            *out = acc;
        }
    }
    out
}

fn accumulate(ty: WeightType, w: &Block, x: &Quantized, acc: f32) -> f32 {
    let mut product = 0;
    for ((j, ws), qs) in w.w.chunks(w.sub).enumerate().zip(x.q.chunks(w.sub)) {
        product += w.sc[j] * ws.iter().zip(qs).map(|(w, q)| w * q).sum::<i32>();
    }
    let acc = (w.d * x.d).mul_add(product as f32, acc);
    match ty {
        WeightType::Q4_1 | WeightType::Q5_1 => w.dmin.mul_add(x.s, acc),
        WeightType::Q2_K | WeightType::Q4_K | WeightType::Q5_K => {
            let sums = x.q.chunks(w.sub).map(|q| q.iter().sum::<i32>());
            let minimums: i32 = sums.zip(&w.m).map(|(sum, m)| sum * m).sum();
            (-(w.dmin * x.d)).mul_add(minimums as f32, acc)
        }
        _ => acc,
    }
}
