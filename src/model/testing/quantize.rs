//! Plain quantizers for test models: one pass, no search for better scales.
//!
//! They only have to give valid blocks whose weights lie near what was asked for, and blocks
//! that use their format's whole range (negative scales where a format has them).

use half::{bf16, f16};

use crate::gguf::TensorType;

/// Encodes `values` as blocks of `ty`.
///
/// # Panics
///
/// When `ty` is no weight type of the engine, or `values` is no whole number of blocks.
pub fn quantize(ty: TensorType, values: &[f32]) -> Vec<u8> {
    let block_len = ty.block_len() as usize;
    assert!(
        values.len().is_multiple_of(block_len),
        "no whole number of {} blocks",
        ty.name()
    );
    let encode: fn(&[f32], &mut Vec<u8>) = match ty {
        TensorType::F32 => |x, out| out.extend(x[0].to_le_bytes()),
        TensorType::F16 => |x, out| out.extend(f16::from_f32(x[0]).to_le_bytes()),
        TensorType::BF16 => |x, out| out.extend(bf16::from_f32(x[0]).to_le_bytes()),
        TensorType::Q4_0 => |x, out| symmetric32(x, 4, out),
        TensorType::Q4_1 => |x, out| affine32(x, 4, out),
        TensorType::Q5_0 => |x, out| symmetric32(x, 5, out),
        TensorType::Q5_1 => |x, out| affine32(x, 5, out),
        TensorType::Q8_0 => q8_0,
        TensorType::Q2_K => q2_k,
        TensorType::Q3_K => q3_k,
        TensorType::Q4_K => |x, out| q4_or_5_k(x, 4, out),
        TensorType::Q5_K => |x, out| q4_or_5_k(x, 5, out),
        TensorType::Q6_K => q6_k,
        TensorType::IQ4_NL => iq4_nl,
        TensorType::IQ4_XS => iq4_xs,
        other => panic!("{} is no weight type of the engine", other.name()),
    };
    let mut out = Vec::with_capacity(values.len() / block_len * ty.block_bytes() as usize);
    for block in values.chunks_exact(block_len) {
        encode(block, &mut out);
    }
    out
}

/// The levels of IQ4_NL and IQ4_XS.
const LEVELS: [f32; 16] = [
    -127.0, -104.0, -83.0, -65.0, -49.0, -35.0, -22.0, -10.0, 1.0, 13.0, 25.0, 38.0, 53.0, 69.0,
    89.0, 113.0,
];

/// Appends `v` as f16 and gives the value it has there.
fn push_half(v: f32, out: &mut Vec<u8>) -> f32 {
    let v = f16::from_f32(v);
    out.extend(v.to_le_bytes());
    v.to_f32()
}

/// `x / d` to the nearest integer in `min..=max`; with `d` = 0 the integer nearest to 0.
fn nearest(x: f32, d: f32, min: i32, max: i32) -> i32 {
    let q = if d == 0.0 {
        0.0
    } else {
        (x / d).round_ties_even()
    };
    (q as i32).clamp(min, max)
}

fn nearest_level(x: f32, d: f32) -> u8 {
    let target = if d == 0.0 { 0.0 } else { x / d };
    let distance = |i: &usize| (LEVELS[*i] - target).abs();
    (0..16)
        .min_by(|a, b| distance(a).total_cmp(&distance(b)))
        .unwrap_or(0) as u8
}

/// The value with the largest magnitude.
fn extreme(x: &[f32]) -> f32 {
    x.iter().copied().fold(
        0.0,
        |best: f32, v| if v.abs() > best.abs() { v } else { best },
    )
}

/// Appends 32 numbers of 4 or 5 bits: fifth bits first, then nibbles, places 0 to 15 low.
fn push_32(q: &[u8], bits: u32, out: &mut Vec<u8>) {
    if bits == 5 {
        let high = (0..32).fold(0u32, |high, i| high | u32::from(q[i] >> 4) << i);
        out.extend(high.to_le_bytes());
    }
    out.extend((0..16).map(|i| q[i] & 15 | (q[i + 16] & 15) << 4));
}

fn symmetric32(x: &[f32], bits: u32, out: &mut Vec<u8>) {
    let half = 1 << (bits - 1);
    let d = push_half(extreme(x) / -(half as f32), out);
    let q: Vec<u8> = x
        .iter()
        .map(|v| (nearest(*v, d, -half, half - 1) + half) as u8)
        .collect();
    push_32(&q, bits, out);
}

fn affine32(x: &[f32], bits: u32, out: &mut Vec<u8>) {
    let top = (1 << bits) - 1;
    let min = x.iter().copied().fold(f32::INFINITY, f32::min);
    let max = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let d = push_half((max - min) / top as f32, out);
    let m = push_half(min, out);
    let q: Vec<u8> = x.iter().map(|v| nearest(v - m, d, 0, top) as u8).collect();
    push_32(&q, bits, out);
}

fn q8_0(x: &[f32], out: &mut Vec<u8>) {
    let d = push_half(extreme(x).abs() / 127.0, out);
    out.extend(x.iter().map(|v| nearest(*v, d, -127, 127) as u8));
}

fn iq4_nl(x: &[f32], out: &mut Vec<u8>) {
    let d = push_half(extreme(x) / -127.0, out);
    let q: Vec<u8> = x.iter().map(|v| nearest_level(*v, d)).collect();
    push_32(&q, 4, out);
}

/// Unsigned numbers of a super-block with scales and minimums per sub-block.
struct Affine {
    d: f32,
    dmin: f32,
    scales: Vec<u8>,
    minimums: Vec<u8>,
    q: Vec<u8>,
}

fn affine256(x: &[f32], sub_len: usize, scale_top: i32, q_top: i32) -> Affine {
    let subs: Vec<(f32, f32)> = x
        .chunks_exact(sub_len)
        .map(|sub| {
            let minimum = sub.iter().copied().fold(0.0, f32::min);
            let max = sub.iter().copied().fold(0.0, f32::max);
            ((max - minimum) / q_top as f32, -minimum)
        })
        .collect();
    let most = |of: fn(&(f32, f32)) -> f32| subs.iter().map(of).fold(0.0, f32::max);
    let round = |v: f32| f16::from_f32(v).to_f32();
    let d = round(most(|s| s.0) / scale_top as f32);
    let dmin = round(most(|s| s.1) / scale_top as f32);
    let scales: Vec<u8> = subs
        .iter()
        .map(|s| nearest(s.0, d, 0, scale_top) as u8)
        .collect();
    let minimums: Vec<u8> = subs
        .iter()
        .map(|s| nearest(s.1, dmin, 0, scale_top) as u8)
        .collect();
    let number = |(i, v): (usize, &f32)| {
        let s = i / sub_len;
        let (scale, minimum) = (d * f32::from(scales[s]), dmin * f32::from(minimums[s]));
        nearest(v + minimum, scale, 0, q_top) as u8
    };
    let q = x.iter().enumerate().map(number).collect();
    Affine {
        d,
        dmin,
        scales,
        minimums,
        q,
    }
}

/// Signed numbers of a super-block with signed scales per sub-block. The largest value of a
/// sub-block becomes the lowest number, so scales of both signs occur.
struct Signed {
    d: f32,
    scales: Vec<i32>,
}

fn signed256(x: &[f32], sub_len: usize, scale_top: i32, q_bottom: f32) -> Signed {
    let wanted: Vec<f32> = x
        .chunks_exact(sub_len)
        .map(|sub| extreme(sub) / q_bottom)
        .collect();
    let d = f16::from_f32(extreme(&wanted).abs() / scale_top as f32).to_f32();
    let scales = wanted
        .iter()
        .map(|s| nearest(*s, d, -scale_top - 1, scale_top))
        .collect();
    Signed { d, scales }
}

/// Appends 256 2-bit numbers: bits `2k` of byte `32h + l` are place `128h + 32k + l`.
fn push_two_bits(q: impl Fn(usize) -> u8, out: &mut Vec<u8>) {
    for h in 0..2 {
        for l in 0..32 {
            out.push((0..4).fold(0, |byte, k| byte | (q(128 * h + 32 * k + l) & 3) << (2 * k)));
        }
    }
}

fn q2_k(x: &[f32], out: &mut Vec<u8>) {
    let block = affine256(x, 16, 15, 3);
    out.extend((0..16).map(|s| block.scales[s] | block.minimums[s] << 4));
    push_two_bits(|i| block.q[i], out);
    push_half(block.d, out);
    push_half(block.dmin, out);
}

fn q3_k(x: &[f32], out: &mut Vec<u8>) {
    let block = signed256(x, 16, 31, -4.0);
    let number = |i: usize| {
        let scale = block.d * block.scales[i / 16] as f32;
        (nearest(x[i], scale, -4, 3) + 4) as u8
    };
    for l in 0..32 {
        out.push((0..8).fold(0, |byte, k| byte | (number(32 * k + l) >> 2) << k));
    }
    push_two_bits(number, out);
    let scales: Vec<u8> = block.scales.iter().map(|s| (s + 32) as u8).collect();
    out.extend((0..8).map(|s| scales[s] & 15 | (scales[s + 8] & 15) << 4));
    out.extend((0..4).map(|s| (0..4).fold(0, |b, k| b | (scales[s + 4 * k] >> 4) << (2 * k))));
    push_half(block.d, out);
}

fn q4_or_5_k(x: &[f32], bits: u32, out: &mut Vec<u8>) {
    let Affine {
        d,
        dmin,
        scales,
        minimums,
        q,
    } = affine256(x, 32, 63, (1 << bits) - 1);
    push_half(d, out);
    push_half(dmin, out);
    out.extend((0..4).map(|s| scales[s] | (scales[s + 4] >> 4) << 6));
    out.extend((0..4).map(|s| minimums[s] | (minimums[s + 4] >> 4) << 6));
    out.extend((4..8).map(|s| scales[s] & 15 | (minimums[s] & 15) << 4));
    if bits == 5 {
        for l in 0..32 {
            out.push((0..8).fold(0, |byte, s| byte | (q[32 * s + l] >> 4) << s));
        }
    }
    for pair in q.chunks_exact(64) {
        out.extend((0..32).map(|l| pair[l] & 15 | (pair[l + 32] & 15) << 4));
    }
}

fn q6_k(x: &[f32], out: &mut Vec<u8>) {
    let block = signed256(x, 16, 127, -32.0);
    let number = |i: usize| {
        let scale = block.d * block.scales[i / 16] as f32;
        (nearest(x[i], scale, -32, 31) + 32) as u8
    };
    for half in [0, 128] {
        out.extend((half..half + 64).map(|i| number(i) & 15 | (number(i + 64) & 15) << 4));
    }
    push_two_bits(|i| number(i) >> 4, out);
    out.extend(block.scales.iter().map(|s| *s as u8));
    push_half(block.d, out);
}

fn iq4_xs(x: &[f32], out: &mut Vec<u8>) {
    let block = signed256(x, 32, 31, -127.0);
    let scales: Vec<u8> = block.scales.iter().map(|s| (s + 32) as u8).collect();
    push_half(block.d, out);
    let high = (0..8).fold(0u16, |high, s| high | u16::from(scales[s] >> 4) << (2 * s));
    out.extend(high.to_le_bytes());
    out.extend((0..4).map(|s| scales[2 * s] & 15 | (scales[2 * s + 1] & 15) << 4));
    for (sub, scale) in x.chunks_exact(32).zip(&block.scales) {
        let d = block.d * *scale as f32;
        let q: Vec<u8> = sub.iter().map(|v| nearest_level(*v, d)).collect();
        push_32(&q, 4, out);
    }
}
