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
