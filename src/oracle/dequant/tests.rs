//! Each format against blocks made by hand: a few bytes set, and the weights at their places
//! worked out from the format's description.

use super::*;
use crate::model::WEIGHT_TYPES;
use crate::model::testing::{Random, quantize};

/// A block of zeros with the given bytes set.
fn block(ty: TensorType, bytes: &[(usize, u8)]) -> Vec<u8> {
    let mut block = vec![0; ty.block_bytes() as usize];
    for (place, byte) in bytes {
        block[*place] = *byte;
    }
    block
}

/// Writes an f16 into a block.
fn put(block: &mut [u8], at: usize, value: f32) {
    block[at..at + 2].copy_from_slice(&f16::from_f32(value).to_le_bytes());
}

fn decode(ty: TensorType, block: &[u8]) -> Vec<f64> {
    let mut out = vec![f64::NAN; ty.block_len() as usize];
    Dequantizer::new(ty).unwrap().decode(block, &mut out);
    out
}

/// Checks weights at places.
fn check(ty: TensorType, block: &[u8], wanted: &[(usize, f64)]) {
    let out = decode(ty, block);
    for (place, value) in wanted {
        assert_eq!(out[*place], *value, "{} place {place}", ty.name());
    }
}

#[test]
fn block_geometry_is_the_containers() {
    for ty in WEIGHT_TYPES {
        let decoder = Dequantizer::new(ty).unwrap();
        assert_eq!(decoder.block_len as u64, ty.block_len(), "{}", ty.name());
        assert_eq!(
            decoder.block_bytes as u64,
            ty.block_bytes(),
            "{}",
            ty.name()
        );
    }
    assert!(Dequantizer::new(TensorType::IQ2_XXS).is_none());
    assert_eq!(
        Dequantizer::new(TensorType::Q4_0).unwrap().row_bytes(33),
        None
    );
}

#[test]
fn plain_floats() {
    let out = |ty, bytes: &[u8]| decode(ty, bytes)[0];
    assert_eq!(out(TensorType::F32, &(-1.5_f32).to_le_bytes()), -1.5);
    assert_eq!(out(TensorType::F16, &[0x00, 0xc2]), -3.0);
    assert_eq!(out(TensorType::BF16, &[0xc0, 0x3f]), 1.5);
}

#[test]
fn q4_0_by_hand() {
    let mut b = block(TensorType::Q4_0, &[(2, 0xf1)]);
    put(&mut b, 0, 0.5);
    check(
        TensorType::Q4_0,
        &b,
        &[(0, -3.5), (16, 3.5), (1, -4.0), (31, -4.0)],
    );
}

#[test]
fn q4_1_by_hand() {
    let mut b = block(TensorType::Q4_1, &[(4 + 3, 0x2a)]);
    put(&mut b, 0, 0.5);
    put(&mut b, 2, 10.0);
    check(TensorType::Q4_1, &b, &[(3, 15.0), (19, 11.0), (0, 10.0)]);
}

#[test]
fn q5_0_by_hand() {
    // Fifth bits of places 0 and 31; low bits 1 at place 0, 2 at place 31.
    let mut b = block(
        TensorType::Q5_0,
        &[(2, 1), (5, 0x80), (6, 0x01), (21, 0x20)],
    );
    put(&mut b, 0, 2.0);
    check(
        TensorType::Q5_0,
        &b,
        &[(0, 2.0), (31, 4.0), (15, -32.0), (16, -32.0)],
    );
}

#[test]
fn q5_1_by_hand() {
    let mut b = block(
        TensorType::Q5_1,
        &[(4, 1), (7, 0x80), (8, 0x01), (23, 0x20)],
    );
    put(&mut b, 0, 2.0);
    put(&mut b, 2, -1.0);
    check(
        TensorType::Q5_1,
        &b,
        &[(0, 33.0), (31, 35.0), (15, -1.0), (16, -1.0)],
    );
}

#[test]
fn q8_0_by_hand() {
    let mut b = block(TensorType::Q8_0, &[(2, 0x80), (33, 127)]);
    put(&mut b, 0, 0.25);
    check(TensorType::Q8_0, &b, &[(0, -32.0), (31, 31.75), (1, 0.0)]);
}

#[test]
fn q2_k_by_hand() {
    // Scale 1 and minimum 2 for sub-block 0, scale 2 for 9, scale 3 and minimum 1 for 15.
    let scales = [(0, 0x21), (9, 0x02), (15, 0x13)];
    let numbers = [(16, 0b11), (16 + 48, 0b01), (16 + 63, 0b1000_0000)];
    let mut b = block(TensorType::Q2_K, &[scales, numbers].concat());
    put(&mut b, 80, 0.5);
    put(&mut b, 82, 0.25);
    let ends = [(0, 1.0), (1, -0.5), (254, -0.25), (255, 2.75)];
    check(TensorType::Q2_K, &b, &ends);
    check(TensorType::Q2_K, &b, &[(144, 1.0), (143, 0.0), (100, 0.0)]);
}

#[test]
fn q3_k_by_hand() {
    // Stored scales: 33 for sub-block 0, 31 for 15, 32 (which means 0) for the others.
    let low = [(96, 0x01), (103, 0xf0)];
    let high = [(104, 0xaa), (105, 0xaa), (106, 0xaa), (107, 0x6a)];
    // Place 0 is 3 with its high bit set; place 255 is 1 without.
    let numbers = [(0, 1), (32, 0b11), (32 + 63, 0b0100_0000)];
    let mut b = block(TensorType::Q3_K, &[&low[..], &high, &numbers].concat());
    put(&mut b, 108, 0.5);
    let wanted = [(0, 1.5), (1, -2.0), (254, 2.0), (255, 1.5), (100, 0.0)];
    check(TensorType::Q3_K, &b, &wanted);
}

/// Scale 63 and minimum 1 for sub-block 0, scale 53 and minimum 42 for 7, `d` 1/2, `dmin` 1/4.
fn k_scales(b: &mut [u8]) {
    put(b, 0, 0.5);
    put(b, 2, 0.25);
    b[4] = 63;
    b[4 + 4] = 1;
    b[4 + 11] = 0xa5; // low nibbles of 42 and 53
    b[4 + 3] = 0b11 << 6; // high bits of 53
    b[4 + 7] = 0b10 << 6; // high bits of 42
}

#[test]
fn q4_k_by_hand() {
    let mut b = block(TensorType::Q4_K, &[(16, 0x05), (16 + 127, 0xc0)]);
    k_scales(&mut b);
    let wanted = [
        (0, 157.25),
        (1, -0.25),
        (32, 0.0),
        (254, -10.5),
        (255, 307.5),
    ];
    check(TensorType::Q4_K, &b, &wanted);
}

#[test]
fn q5_k_by_hand() {
    let numbers = [(48, 0x05), (48 + 127, 0xc0)];
    let fifth_bits = [(16, 1), (16 + 31, 0x80)];
    let mut b = block(TensorType::Q5_K, &[numbers, fifth_bits].concat());
    k_scales(&mut b);
    let wanted = [
        (0, 661.25),
        (1, -0.25),
        (32, 0.0),
        (254, -10.5),
        (255, 731.5),
    ];
    check(TensorType::Q5_K, &b, &wanted);
}

#[test]
fn q6_k_by_hand() {
    // Scales 2, 1 and -1 for sub-blocks 0, 4 and 15.
    let scales = [(192, 2), (196, 1), (207, 0xff)];
    // Place 0 is 63; place 64, in the high nibble of the same byte, 39; place 255 is 17.
    let numbers = [
        (0, 0x7f),
        (128, 0b0010_0011),
        (127, 0x10),
        (128 + 63, 0b0100_0000),
    ];
    let mut b = block(TensorType::Q6_K, &[&scales[..], &numbers].concat());
    put(&mut b, 208, 0.5);
    let wanted = [
        (0, 31.0),
        (1, -32.0),
        (64, 3.5),
        (65, -16.0),
        (254, 16.0),
        (255, 7.5),
    ];
    check(TensorType::Q6_K, &b, &wanted);
}

#[test]
fn iq4_nl_by_hand() {
    let mut b = block(TensorType::IQ4_NL, &[(2, 0xf0), (3, 0x98)]);
    put(&mut b, 0, 2.0);
    let wanted = [(0, -254.0), (16, 226.0), (1, 2.0), (17, 26.0), (31, -254.0)];
    check(TensorType::IQ4_NL, &b, &wanted);
}

#[test]
fn iq4_xs_by_hand() {
    // Stored scales: 33 for sub-block 0, 31 for 7, 32 (which means 0) for the others.
    let scales = [(2, 0xaa), (3, 0x6a), (4, 0x01), (7, 0xf0)];
    let numbers = [(8, 0xf0), (8 + 127, 0x80)];
    let mut b = block(TensorType::IQ4_XS, &[&scales[..], &numbers].concat());
    put(&mut b, 0, 0.5);
    let wanted = [(0, -63.5), (16, 56.5), (100, 0.0), (239, 63.5), (255, -0.5)];
    check(TensorType::IQ4_XS, &b, &wanted);
}

#[test]
fn the_widest_difference_is_exact() {
    // The largest f16 times the largest integers minus the smallest f16 times the largest
    // minimum, counted in units of 2^-24.
    let mut b = block(TensorType::Q5_K, &[(4, 63), (8, 63), (16, 1), (48, 0x0f)]);
    put(&mut b, 0, 65504.0);
    b[2..4].copy_from_slice(&1u16.to_le_bytes());
    let units = (65504_i128 << 24) * 63 * 31 - 63;
    let got = decode(TensorType::Q5_K, &b)[0];
    assert_eq!((got * 16_777_216.0) as i128, units);
}

/// The test models' quantizers were written apart from these decoders; a value that one puts
/// elsewhere than the other looks for it would miss by far more than a step.
#[test]
fn what_was_quantized_decodes_to_within_a_step() {
    // The largest error a format may make on values of width 1, from its step.
    let bound = |ty: TensorType| match ty.name() {
        "F32" => 0.0,
        "F16" => 2e-3,
        "BF16" => 2e-2,
        "Q8_0" => 0.02,
        "Q6_K" => 0.1,
        "Q5_0" | "Q5_1" | "Q5_K" => 0.2,
        "Q4_0" | "Q4_1" | "Q4_K" | "IQ4_NL" | "IQ4_XS" => 0.5,
        _ => 1.2,
    };
    for ty in WEIGHT_TYPES {
        let mut random = Random(11);
        let values: Vec<f32> = (0..4096).map(|_| random.normal()).collect();
        let mut out = vec![0.0; values.len()];
        Dequantizer::new(ty)
            .unwrap()
            .decode(&quantize(ty, &values), &mut out);
        let error = |(v, o): (&f32, &f64)| (f64::from(*v) - o).abs();
        let worst = values.iter().zip(&out).map(error).fold(0.0, f64::max);
        assert!(worst <= bound(ty), "{} misses by {worst}", ty.name());
    }
}
