//! Super-blocks of 256 values whose sub-blocks have scales of 4 to 8 bits: Q2_K to Q6_K, IQ4_XS.

use super::block32::push_32;
use super::fit::{
    affine, extreme, inverse, level_index, nearest, nonlinear, push_half, round_half, symmetric,
};

type Block = [f32; 256];

/// Unsigned numbers of a super-block with scales and minimums per sub-block:
/// `x ≈ d scale q - dmin minimum`. The first `256 / SUB` scales and minimums count.
struct Affine {
    d: f32,
    dmin: f32,
    scales: [u8; 16],
    minimums: [u8; 16],
    q: [u8; 256],
}

fn affine256<const SUB: usize>(x: &Block, scale_top: f32, q_top: f32) -> Affine {
    let subs = x.as_chunks::<SUB>().0;
    let mut wanted = [(0.0f32, 0.0f32); 16];
    for (sub, wanted) in subs.iter().zip(&mut wanted) {
        let (d, m) = affine(sub, q_top, true);
        *wanted = (d, -m);
    }
    let most = |of: fn(&(f32, f32)) -> f32| wanted.iter().map(of).fold(0.0, f32::max);
    let d = round_half(most(|s| s.0) / scale_top);
    let dmin = round_half(most(|s| s.1) / scale_top);
    let (id, idmin) = (inverse(d), inverse(dmin));
    let scales = wanted.map(|s| nearest(s.0 * id, 0.0, scale_top) as u8);
    let minimums = wanted.map(|s| nearest(s.1 * idmin, 0.0, scale_top) as u8);
    let mut q = [0; 256];
    let numbers = q.as_chunks_mut::<SUB>().0;
    for (s, (sub, q)) in subs.iter().zip(numbers).enumerate() {
        let id = inverse(d * f32::from(scales[s]));
        let minimum = dmin * f32::from(minimums[s]);
        *q = sub.map(|v| nearest((v + minimum) * id, 0.0, q_top) as u8);
    }
    Affine {
        d,
        dmin,
        scales,
        minimums,
        q,
    }
}

/// The scales of sub-blocks, signed, as integers up to `top` (and down to `-top - 1`) times the
/// super-block's; the first as many as there are sub-blocks count.
struct Scales {
    d: f32,
    scales: [f32; 16],
}

fn scales256<const SUB: usize>(x: &Block, top: f32, fit: impl Fn(&[f32; SUB]) -> f32) -> Scales {
    let mut wanted = [0.0; 16];
    for (sub, wanted) in x.as_chunks::<SUB>().0.iter().zip(&mut wanted) {
        *wanted = fit(sub);
    }
    let d = round_half(extreme(&wanted).abs() / top);
    let id = inverse(d);
    Scales {
        d,
        scales: wanted.map(|s| nearest(s * id, -top - 1.0, top)),
    }
}

/// Integers in `-half..half`, shifted by `half`, of sub-blocks of 16.
fn symmetric256(x: &Block, top: f32, half: f32) -> (Scales, [u8; 256]) {
    let scales = scales256::<16>(x, top, |sub| symmetric(sub, half));
    let mut q = [0; 256];
    let numbers = q.as_chunks_mut::<16>().0;
    for (s, (sub, q)) in x.as_chunks::<16>().0.iter().zip(numbers).enumerate() {
        let id = inverse(scales.d * scales.scales[s]);
        *q = sub.map(|v| (nearest(v * id, -half, half - 1.0) + half) as u8);
    }
    (scales, q)
}

/// Appends 256 2-bit numbers: bits `2k` of byte `32h + l` are place `128h + 32k + l`.
fn push_two_bits(q: impl Fn(usize) -> u8, out: &mut Vec<u8>) {
    for h in 0..2 {
        for l in 0..32 {
            out.push((0..4).fold(0, |byte, k| byte | (q(128 * h + 32 * k + l) & 3) << (2 * k)));
        }
    }
}

pub fn q2_k(x: &Block, out: &mut Vec<u8>) {
    let block = affine256::<16>(x, 15.0, 3.0);
    out.extend((0..16).map(|s| block.scales[s] | block.minimums[s] << 4));
    push_two_bits(|i| block.q[i], out);
    push_half(block.d, out);
    push_half(block.dmin, out);
}

pub fn q3_k(x: &Block, out: &mut Vec<u8>) {
    let (Scales { d, scales }, q) = symmetric256(x, 31.0, 4.0);
    for l in 0..32 {
        out.push((0..8).fold(0, |byte, k| byte | (q[32 * k + l] >> 2) << k));
    }
    push_two_bits(|i| q[i], out);
    let scales = scales.map(|s| (s + 32.0) as u8);
    out.extend((0..8).map(|s| scales[s] & 15 | (scales[s + 8] & 15) << 4));
    out.extend((0..4).map(|s| (0..4).fold(0, |b, k| b | (scales[s + 4 * k] >> 4) << (2 * k))));
    push_half(d, out);
}

pub fn q4_k(x: &Block, out: &mut Vec<u8>) {
    q4_or_5_k(x, 4, out);
}

pub fn q5_k(x: &Block, out: &mut Vec<u8>) {
    q4_or_5_k(x, 5, out);
}

fn q4_or_5_k(x: &Block, bits: u32, out: &mut Vec<u8>) {
    let block = affine256::<32>(x, 63.0, ((1 << bits) - 1) as f32);
    let (scales, minimums, q) = (&block.scales, &block.minimums, &block.q);
    push_half(block.d, out);
    push_half(block.dmin, out);
    out.extend((0..4).map(|s| scales[s] | (scales[s + 4] >> 4) << 6));
    out.extend((0..4).map(|s| minimums[s] | (minimums[s + 4] >> 4) << 6));
    out.extend((4..8).map(|s| scales[s] & 15 | (minimums[s] & 15) << 4));
    if bits == 5 {
        for l in 0..32 {
            out.push((0..8).fold(0, |byte, s| byte | (q[32 * s + l] >> 4) << s));
        }
    }
    for pair in q.as_chunks::<64>().0 {
        out.extend((0..32).map(|l| pair[l] & 15 | (pair[l + 32] & 15) << 4));
    }
}

pub fn q6_k(x: &Block, out: &mut Vec<u8>) {
    let (Scales { d, scales }, q) = symmetric256(x, 127.0, 32.0);
    for half in [0, 128] {
        out.extend((half..half + 64).map(|i| q[i] & 15 | (q[i + 64] & 15) << 4));
    }
    push_two_bits(|i| q[i] >> 4, out);
    out.extend(scales.map(|s| s as i8 as u8));
    push_half(d, out);
}

pub fn iq4_xs(x: &Block, out: &mut Vec<u8>) {
    let block = scales256::<32>(x, 31.0, nonlinear);
    let scales = block.scales.map(|s| (s + 32.0) as u8);
    push_half(block.d, out);
    let high = (0..8).fold(0u16, |high, s| high | u16::from(scales[s] >> 4) << (2 * s));
    out.extend(high.to_le_bytes());
    out.extend((0..4).map(|s| scales[2 * s] & 15 | (scales[2 * s + 1] & 15) << 4));
    for (sub, scale) in x.as_chunks::<32>().0.iter().zip(block.scales) {
        let id = inverse(block.d * scale);
        push_32(&sub.map(|v| level_index(v * id)), 4, out);
    }
}
