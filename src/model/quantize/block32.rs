//! Blocks of 32 values with numbers of their own: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL.

use super::fit::{affine, extreme, inverse, level_index, nearest, nonlinear, push_half, symmetric};

type Block = [f32; 32];

pub fn q4_0(x: &Block, out: &mut Vec<u8>) {
    symmetric32(x, 4, out);
}

pub fn q4_1(x: &Block, out: &mut Vec<u8>) {
    affine32(x, 4, out);
}

pub fn q5_0(x: &Block, out: &mut Vec<u8>) {
    symmetric32(x, 5, out);
}

pub fn q5_1(x: &Block, out: &mut Vec<u8>) {
    affine32(x, 5, out);
}

pub fn q8_0(x: &Block, out: &mut Vec<u8>) {
    let d = extreme(x).abs() / 127.0;
    // As in ggml, the integers are taken before the scale is rounded.
    let id = inverse(d);
    push_half(d, out);
    out.extend(x.map(|v| nearest(v * id, -127.0, 127.0) as i8 as u8));
}

pub fn iq4_nl(x: &Block, out: &mut Vec<u8>) {
    let id = inverse(push_half(nonlinear(x), out));
    push_32(&x.map(|v| level_index(v * id)), 4, out);
}

/// Appends 32 numbers of 4 or 5 bits: fifth bits first, then nibbles, places 0 to 15 low.
pub fn push_32(q: &[u8; 32], bits: u32, out: &mut Vec<u8>) {
    if bits == 5 {
        let high = (0..32).fold(0u32, |high, i| high | u32::from(q[i] >> 4) << i);
        out.extend(high.to_le_bytes());
    }
    out.extend((0..16).map(|i| q[i] & 15 | (q[i + 16] & 15) << 4));
}

fn symmetric32(x: &Block, bits: u32, out: &mut Vec<u8>) {
    let half = (1 << (bits - 1)) as f32;
    let id = inverse(push_half(symmetric(x, half), out));
    let q = x.map(|v| (nearest(v * id, -half, half - 1.0) + half) as u8);
    push_32(&q, bits, out);
}

fn affine32(x: &Block, bits: u32, out: &mut Vec<u8>) {
    let top = ((1 << bits) - 1) as f32;
    let (d, m) = affine(x, top, false);
    let id = inverse(push_half(d, out));
    let m = push_half(m, out);
    let q = x.map(|v| nearest((v - m) * id, 0.0, top) as u8);
    push_32(&q, bits, out);
}
