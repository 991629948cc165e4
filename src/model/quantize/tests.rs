//! Every format against the oracle's decoder, which shares no line with it.

use super::*;
use crate::model::WEIGHT_TYPES;
use crate::model::testing::Random;
use crate::oracle::dequant::Dequantizer;

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

#[test]
fn measure() {
    for ty in WEIGHT_TYPES {
        let mut random = Random(7);
        let values: Vec<f32> = (0..1 << 18).map(|_| random.normal()).collect();
        let out = round_trip(ty, &values);
        let se: f64 = values
            .iter()
            .zip(&out)
            .map(|(v, o)| (f64::from(*v) - o).powi(2))
            .sum();
        let worst = values
            .iter()
            .zip(&out)
            .map(|(v, o)| (f64::from(*v) - o).abs())
            .fold(0.0, f64::max);
        println!(
            "{ty} rms {:.5} worst {worst:.4}",
            (se / values.len() as f64).sqrt()
        );
    }
}
