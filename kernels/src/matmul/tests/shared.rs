//! Matrices over bytes that were packed before.

use super::*;
use crate::memory::HugeBuffer;
use std::sync::Arc;

struct Aligned(HugeBuffer);

impl AsRef<[u8]> for Aligned {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

#[test]
fn packed_bytes_are_the_same_at_every_level_and_may_be_shared() {
    let mut rng = Rng(11);
    for ty in WeightType::ALL {
        let (rows, k) = (35, 512);
        let src = blocks::random(
            &mut rng,
            ty,
            rows * (k / ty.block_len()),
            Values::Random,
            Scales::Usual,
        );
        let x = activations(&mut rng, k, false);
        let first = packed(levels()[0], ty, rows, k, &src);
        // Something before it, so that the range counts.
        let mut all = HugeBuffer::zeroed(PACKED_ALIGN + first.packed_bytes()).unwrap();
        all[PACKED_ALIGN..].copy_from_slice(first.data());
        let all: SharedBytes = Arc::new(Aligned(all));
        for kernels in levels() {
            let own = packed(kernels, ty, rows, k, &src);
            assert_eq!(own.data(), first.data(), "{}", ty.name());
            let share = |range| PackedMatrix::shared(kernels, ty, rows, k, Arc::clone(&all), range);
            let end = PACKED_ALIGN + own.packed_bytes();
            let shared = share(PACKED_ALIGN..end).unwrap();
            assert_same(
                ty.name(),
                &product::<TileT1>(kernels, &shared, &x),
                &product::<TileT1>(kernels, &own, &x),
            );
        }
    }
}

#[test]
fn shared_bytes_that_do_not_fit_are_refused() {
    let (kernels, ty, rows, k) = (levels()[0], WeightType::Q8_0, 16, 32);
    let bytes = packed_bytes(ty, rows, k).unwrap();
    let all: SharedBytes = Arc::new(Aligned(HugeBuffer::zeroed(bytes + PACKED_ALIGN).unwrap()));
    let share = |range| PackedMatrix::shared(kernels, ty, rows, k, Arc::clone(&all), range);
    for bad in [0..bytes - 1, 0..bytes + 1, 1..bytes + 1, 0..1 << 40] {
        assert!(matches!(share(bad), Err(PackError::Shared { .. })));
    }
    let mut good = share(0..bytes).unwrap();
    let src = vec![0; good.source_bytes()];
    assert!(matches!(
        PackJob::new(&mut good, &src),
        Err(PackError::ReadOnly)
    ));
}

/// FNV-1a, 64 bits.
fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, &byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// Packed copies on disk hold these bytes: who changes them raises the version in src/packed.rs
/// (`PACKED_FORMAT`) with them.
#[test]
fn packed_bytes_are_those_of_format_2() {
    let mut rng = Rng(12);
    let found = WeightType::ALL.map(|ty| {
        let (rows, k) = (35, 512);
        let n = rows * (k / ty.block_len());
        let src = blocks::random(&mut rng, ty, n, Values::Random, Scales::Usual);
        (
            ty.name(),
            digest(packed(levels()[0], ty, rows, k, &src).data()),
        )
    });
    let wanted = [
        ("F32", 0x7b05_7419_e27d_377e),
        ("F16", 0xfcd1_c6ee_a60b_bfa6),
        ("BF16", 0x0eb8_1d49_0f88_34a2),
        ("Q4_0", 0xd782_47f1_13f1_9af4),
        ("Q4_1", 0x4b22_82d1_bfb0_6376),
        ("Q5_0", 0x85de_3d46_60c5_67d7),
        ("Q5_1", 0xdc80_1520_edfe_983c),
        ("Q8_0", 0x444c_59a5_bac4_4a15),
        ("Q2_K", 0x8431_02cb_8ce9_f979),
        ("Q3_K", 0xa856_dada_2271_7aeb),
        ("Q4_K", 0x7175_e631_2fdc_07ea),
        ("Q5_K", 0xc0e5_daf8_d602_825b),
        ("Q6_K", 0x21d7_0f42_7171_8e51),
        ("IQ4_NL", 0x3477_5f09_f0a3_8207),
        ("IQ4_XS", 0x6135_9029_0196_7d4a),
    ];
    assert_eq!(found, wanted);
}
