//! What tests of several modules share: random values, comparison by bits, and scalar functions
//! written once more, one value at a time, from the words of the modules' documentation.

use crate::lanes::{Job, Lanes, parallel, serial};
use crate::level::{Kernels, Level};

/// SplitMix64 (Steele, Lea and Flood, 2014).
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Below `n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// One of `from`.
    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// Uniform in -1..1.
    pub(crate) fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    /// Mostly of ordinary size, now and then zero, subnormal, huge, infinite or NaN.
    pub(crate) fn wild(&mut self) -> f32 {
        match self.below(40) {
            0 => 0.0,
            1 => -0.0,
            2 => f32::from_bits(self.next() as u32 & 0x807f_ffff),
            3 => f32::from_bits(self.next() as u32 & 0xbfff_ffff),
            4 => f32::from_bits(self.next() as u32),
            5 => [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX][self.below(4)],
            _ => self.unit() * 8.0,
        }
    }

    pub(crate) fn units(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.unit()).collect()
    }

    pub(crate) fn wilds(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.wild()).collect()
    }
}

/// Panics unless all values have the same bits, any NaN counting as any other.
#[track_caller]
pub(crate) fn assert_same(what: &str, found: &[f32], wanted: &[f32]) {
    assert_eq!(found.len(), wanted.len(), "{what}: lengths");
    for (i, (f, w)) in found.iter().zip(wanted).enumerate() {
        let same = f.to_bits() == w.to_bits() || (f.is_nan() && w.is_nan());
        assert!(
            same,
            "{what}: value {i} is {f:e} ({:#x}), not {w:e} ({:#x})",
            f.to_bits(),
            w.to_bits()
        );
    }
}

/// Every level of this machine.
pub(crate) fn levels() -> Vec<Kernels> {
    Level::available()
        .into_iter()
        .filter_map(Kernels::new)
        .collect()
}

/// Runs a job that `make` makes afresh: alone, and on each of these pools.
pub(crate) fn run_everywhere(mut run: impl FnMut(&mut dyn FnMut(&mut dyn Run))) {
    run(&mut |job| job.serial());
    for n in [2, 5] {
        let mut lanes = Lanes::new(n, crate::Patience::SharedCores).unwrap();
        run(&mut |job| job.parallel(&mut lanes));
    }
}

/// A job of any type.
pub(crate) trait Run {
    fn serial(&mut self);
    fn parallel(&mut self, lanes: &mut Lanes);
}

impl<J: Job> Run for J {
    fn serial(&mut self) {
        serial(self);
    }
    fn parallel(&mut self, lanes: &mut Lanes) {
        parallel(lanes, self).unwrap();
    }
}

/// e^x by `math`'s description.
pub(crate) fn exp(x: f32) -> f32 {
    if x.is_nan() {
        return x;
    }
    // ln 2^-126 and ln 2^128 are -87.33654475 and 88.72283911.
    if x < -87.336_54 {
        return 0.0;
    }
    if x > 88.722_83 {
        return f32::INFINITY;
    }
    let n = (x * std::f32::consts::LOG2_E).round_ties_even();
    let r = (-n).mul_add(std::f32::consts::LN_2, x);
    let r = (-n).mul_add(-1.904_654_3e-9, r);
    let p = 1.381_459_9e-3_f32
        .mul_add(r, 8.368_717e-3)
        .mul_add(r, 4.166_839e-2)
        .mul_add(r, 1.666_652_1e-1)
        .mul_add(r, 4.999_999_4e-1)
        .mul_add(r, 1.0)
        .mul_add(r, 1.0);
    // Exact in f64, and the product is an f32 (or overflows to infinity).
    (f64::from(p) * 2f64.powi(n as i32)) as f32
}

pub(crate) fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

pub(crate) fn gelu(x: f32) -> f32 {
    let inner = 0.044_715_f32.mul_add(x * x * x, x);
    x / (1.0 + exp(-1.595_769_2 * inner))
}

pub(crate) fn tanh(y: f32) -> f32 {
    let size = y.abs();
    let result = if size < 0.625 {
        let z = y * y;
        let p = (-5.704_988e-3_f32)
            .mul_add(z, 2.063_908_8e-2)
            .mul_add(z, -5.373_971_5e-2)
            .mul_add(z, 1.333_144_2e-1)
            .mul_add(z, -3.333_328e-1);
        (p * z).mul_add(size, size)
    } else {
        1.0 - 2.0 / (exp(size + size) + 1.0)
    };
    result.copysign(y)
}

/// The sum of sixteen accumulators in the fixed tree.
pub(crate) fn tree(mut acc: [f32; 16]) -> f32 {
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            acc[i] += acc[i + half];
        }
    }
    acc[0]
}

/// One quantized block of activations; `s` is of blocks of 32 alone.
pub(crate) struct Quantized {
    pub(crate) q: Vec<i32>,
    pub(crate) d: f32,
    pub(crate) s: f32,
}

/// Quantizes one block of 32 or 256 values by `quantize`'s description.
pub(crate) fn quantize(x: &[f32]) -> Quantized {
    let amax = f32::from_bits(x.iter().map(|x| x.to_bits() & 0x7fff_ffff).max().unwrap());
    let inverse = if amax == 0.0 { 0.0 } else { 127.0 / amax };
    let round = |&x: &f32| {
        let r = (x * inverse).round_ties_even();
        if (-127.0..=127.0).contains(&r) {
            r as i32
        } else {
            -127
        }
    };
    let q: Vec<i32> = x.iter().map(round).collect();
    let sum: i32 = q.iter().sum();
    if x.len() == 32 {
        let d0 = amax / 127.0;
        let [d, s] = [d0, d0 * sum as f32].map(|v| half::f16::from_f32(v).to_f32());
        Quantized { q, d, s }
    } else {
        Quantized {
            q,
            d: if amax == 0.0 { 0.0 } else { 1.0 / inverse },
            s: f32::NAN,
        }
    }
}
