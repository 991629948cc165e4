//! What tests share: random numbers, comparison of bits, the levels of this machine.

use crate::level::{Kernels, Level};

/// The kernels of every level that this machine has.
pub(crate) fn all_kernels() -> Vec<Kernels> {
    Level::available()
        .into_iter()
        .filter_map(Kernels::new)
        .collect()
}

/// SplitMix64: a small generator whose every seed will do.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// Uniform in -1 to 1.
    pub(crate) fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}

/// Bits, all NaNs taken for the same.
pub(crate) fn bits(x: f32) -> u32 {
    if x.is_nan() {
        f32::NAN.to_bits()
    } else {
        x.to_bits()
    }
}

/// Panics where two vectors differ in a bit, naming the first place.
#[track_caller]
pub(crate) fn assert_bits(got: &[f32], wanted: &[f32], what: impl Fn() -> String) {
    assert_eq!(got.len(), wanted.len(), "{}", what());
    for (i, (&g, &w)) in got.iter().zip(wanted).enumerate() {
        assert!(
            bits(g) == bits(w),
            "{}: at {i}: {g:e} ({:#010x}), wanted {w:e} ({:#010x})",
            what(),
            g.to_bits(),
            w.to_bits()
        );
    }
}
