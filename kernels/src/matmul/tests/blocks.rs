//! File blocks for tests: any bytes are a block; scales and values are steered.

use crate::format::WeightType;
use crate::test_util::Rng;
use half::f16;

/// What a block's integers are.
#[derive(Clone, Copy)]
pub(super) enum Values {
    Random,
    /// Every byte outside the block's f16 scales.
    All(u8),
}

/// What a block's f16 scales (or a float's values) are.
#[derive(Clone, Copy)]
pub(super) enum Scales {
    Usual,
    Zero,
    Denormal,
    Infinite,
    Anything,
}

impl Scales {
    fn make(self, rng: &mut Rng) -> f16 {
        let usual = f16::from_f32(rng.unit() * 0.05);
        match (self, rng.below(8)) {
            (Scales::Zero, 0..4) => rng.pick(&[f16::ZERO, f16::NEG_ZERO]),
            (Scales::Denormal, 0..4) => f16::from_bits((rng.next() & 0x83ff) as u16),
            (Scales::Infinite, 0) => rng.pick(&[f16::INFINITY, f16::NEG_INFINITY]),
            (Scales::Infinite, 1..3) => rng.pick(&[f16::MAX, f16::MIN]),
            (Scales::Anything, 0..3) => f16::from_bits(rng.next() as u16),
            _ => usual,
        }
    }
}

/// Where a block's f16 numbers are.
fn scale_offsets(ty: WeightType) -> &'static [usize] {
    match ty {
        WeightType::F32 | WeightType::F16 | WeightType::BF16 => &[],
        WeightType::Q4_0 | WeightType::Q5_0 | WeightType::Q8_0 => &[0],
        WeightType::IQ4_NL | WeightType::IQ4_XS => &[0],
        WeightType::Q4_1 | WeightType::Q5_1 | WeightType::Q4_K | WeightType::Q5_K => &[0, 2],
        WeightType::Q2_K => &[80, 82],
        WeightType::Q3_K => &[108],
        WeightType::Q6_K => &[208],
    }
}

/// `n` blocks, one after the other.
pub(super) fn random(
    rng: &mut Rng,
    ty: WeightType,
    n: usize,
    values: Values,
    scales: Scales,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(n * ty.block_bytes());
    for _ in 0..n {
        let float = scales.make(rng);
        match ty {
            WeightType::F32 => out.extend((float.to_f32() * (1.0 + rng.unit())).to_le_bytes()),
            WeightType::F16 => out.extend(float.to_le_bytes()),
            WeightType::BF16 => out.extend(&float.to_f32().to_le_bytes()[2..]),
            _ => {
                let at = out.len();
                out.extend((0..ty.block_bytes()).map(|_| match values {
                    Values::Random => rng.next() as u8,
                    Values::All(byte) => byte,
                }));
                for &offset in scale_offsets(ty) {
                    let scale = scales.make(rng).to_le_bytes();
                    out[at + offset..][..2].copy_from_slice(&scale);
                }
            }
        }
    }
    out
}
