//! Every format against the oracle's decoder, which shares no line with it.

use super::*;
use crate::model::WEIGHT_TYPES;
use crate::model::testing::Random;
use crate::oracle::dequant::Dequantizer;
use sha2::{Digest, Sha256};

fn bytes(ty: TensorType, values: &[f32]) -> Vec<u8> {
    let mut out = Vec::new();
    let quantizer = Quantizer::new(ty).unwrap();
    assert_eq!(quantizer.ty(), ty);
    quantizer.encode(values, &mut out).unwrap();
    out
}

fn round_trip(ty: TensorType, values: &[f32]) -> Vec<f64> {
    let blocks = bytes(ty, values);
    let decoder = Dequantizer::new(ty).unwrap();
    assert_eq!(Some(blocks.len()), decoder.row_bytes(values.len()));
    let mut out = vec![0.0; values.len()];
    decoder.decode(&blocks, &mut out);
    out
}

/// Root mean square and largest of the errors.
fn errors(values: &[f32], out: &[f64]) -> (f64, f64) {
    let each = values
        .iter()
        .zip(out)
        .map(|(v, o)| (f64::from(*v) - o).abs());
    let squares: f64 = each.clone().map(|e| e * e).sum();
    let rms = (squares / values.len() as f64).sqrt();
    (rms, each.fold(0.0, f64::max))
}

fn drawn(seed: u64, count: usize) -> Vec<f32> {
    let mut random = Random(seed);
    (0..count).map(|_| random.normal()).collect()
}

/// The root mean square error of each format on a bell of width 1, in thousandths: what it may be
/// here. A worse choice of steps, or a bit in the wrong place, shows.
const KNOWN: [(TensorType, f64); 15] = [
    (TensorType::F32, 0.0),
    (TensorType::F16, 0.22),
    (TensorType::BF16, 1.7),
    (TensorType::Q4_0, 77.0),
    (TensorType::Q4_1, 68.5),
    (TensorType::Q5_0, 38.5),
    (TensorType::Q5_1, 33.0),
    (TensorType::Q8_0, 5.2),
    (TensorType::Q2_K, 267.0),
    (TensorType::Q3_K, 140.0),
    (TensorType::Q4_K, 69.5),
    (TensorType::Q5_K, 35.0),
    (TensorType::Q6_K, 16.8),
    (TensorType::IQ4_NL, 73.5),
    (TensorType::IQ4_XS, 74.0),
];

#[test]
fn every_format_keeps_its_known_error() {
    assert_eq!(KNOWN.map(|known| known.0), WEIGHT_TYPES);
    let values = drawn(7, 1 << 16);
    for (ty, most) in KNOWN {
        let (rms, _) = errors(&values, &round_trip(ty, &values));
        assert!(rms * 1e3 <= most, "{ty}: {rms}");
    }
}

/// The largest error of one value, as a share of the largest magnitude in its block: a step for
/// formats that may cut an extreme off, half a step for those that may not, and what the rounding
/// of scales and minimums adds. Formats whose zero is fixed are not symmetric about it.
fn largest_share(ty: TensorType) -> f64 {
    match ty {
        TensorType::F32 => 0.0,
        TensorType::F16 => 1.0 / 2048.0,
        TensorType::BF16 => 1.0 / 256.0,
        TensorType::Q8_0 => 0.5 / 127.0 + 1.0 / 2048.0,
        TensorType::Q6_K => 1.1 / 32.0,
        TensorType::Q5_0 => 1.1 / 16.0,
        TensorType::Q5_1 | TensorType::Q5_K => 2.2 / 31.0,
        TensorType::Q4_0 => 1.1 / 8.0,
        TensorType::Q4_1 | TensorType::Q4_K => 2.2 / 15.0,
        TensorType::IQ4_NL | TensorType::IQ4_XS => 24.0 / 127.0,
        TensorType::Q3_K => 1.2 / 4.0,
        _ => 2.2 / 3.0,
    }
}

#[test]
fn no_value_of_any_block_is_far_off() {
    let shapes: [fn(usize, f32) -> f32; 7] = [
        |_, v| v,
        |_, v| v.abs() + 3.0,                     // all above zero
        |_, v| -v.abs(),                          // all below
        |i, v| if i % 32 == 5 { 9.0 } else { v }, // an outlier in each block
        |i, _| (i % 256) as f32 - 128.0,          // a ramp
        |i, _| if i.is_multiple_of(2) { 1.0 } else { -1.0 },
        |_, _| 0.75,
    ];
    for (s, shape) in shapes.iter().enumerate() {
        for scale in [0.03, 1.0, 100.0] {
            let drawn = drawn(s as u64, 4096).into_iter().enumerate();
            let values: Vec<f32> = drawn.map(|(i, v)| scale * shape(i, v)).collect();
            for ty in WEIGHT_TYPES {
                let out = round_trip(ty, &values);
                for (values, out) in values.chunks(256).zip(out.chunks(256)) {
                    let largest = values.iter().fold(0.0f32, |m, v| m.max(v.abs()));
                    let (_, worst) = errors(values, out);
                    let share = worst / f64::from(largest);
                    assert!(
                        share <= largest_share(ty),
                        "{ty}, shape {s}, scale {scale}: {share}"
                    );
                }
            }
        }
    }
}

#[test]
fn what_a_format_holds_exactly_comes_back() {
    let back = |ty: TensorType, values: &[f32]| {
        let out = round_trip(ty, values);
        let same = values.iter().zip(&out).all(|(v, o)| f64::from(*v) == *o);
        assert!(same, "{ty}: {values:?} became {out:?}");
    };
    for ty in WEIGHT_TYPES {
        back(ty, &[0.0; 512]);
    }
    let integers = |low: i32, count: i32| -> Vec<f32> {
        let integer = |i: i32| (low + i * 7 % count) as f32 * 0.5;
        (0..256).map(integer).collect()
    };
    let mut wide = integers(-127, 255);
    wide.iter_mut().step_by(32).for_each(|v| *v = -63.5);
    back(TensorType::Q8_0, &wide);
    back(TensorType::Q4_0, &integers(-8, 16));
    back(TensorType::Q5_0, &integers(-16, 32));
    back(TensorType::Q4_1, &integers(3, 16));
    back(TensorType::Q5_1, &integers(-40, 32));
}

#[test]
fn blocks_of_anything_are_blocks() {
    let odd = [
        f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::MAX,
        f32::MIN_POSITIVE,
        -1e-42,
        1e30,
    ];
    for ty in WEIGHT_TYPES {
        for (at, v) in odd.into_iter().enumerate() {
            let mut values = drawn(at as u64, 256);
            values[17 * at] = v;
            round_trip(ty, &values);
            round_trip(ty, &[v; 256]);
        }
        // Too small for an f16 scale: zeros, or near.
        let out = round_trip(ty, &[1e-9; 256]);
        assert!(out.iter().all(|o| o.abs() < 1e-6), "{ty}");
    }
}

#[test]
fn part_of_a_block_is_refused() {
    let mut out = vec![1];
    let error = Quantizer::new(TensorType::Q4_K)
        .unwrap()
        .encode(&[0.0; 288], &mut out)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "288 values are no whole number of Q4_K blocks of 256"
    );
    assert_eq!(out, [1]);
    assert!(Quantizer::new(TensorType::IQ2_XXS).is_none());
}

/// Files made here are named by their digest, so the bytes may never change.
#[test]
fn the_bytes_are_the_same_everywhere() {
    let values = drawn(3, 4096);
    let mut digest = Sha256::new();
    for ty in WEIGHT_TYPES {
        digest.update(bytes(ty, &values));
    }
    let hex: String = digest
        .finalize()
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    assert_eq!(
        hex,
        "407aac3251839ea87abc9e50402e94ab926090af94c03668d698015977b4e18c"
    );
}
