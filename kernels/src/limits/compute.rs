//! Computing between registers and doing nothing else.

use crate::lanes::{Job, Part};
use crate::level::Level;
use crate::simd::{Scalar, Simd};
use std::hint::black_box;

/// A loop of one instruction (or the few that make one product), compiled for an instruction set
/// that this processor has.
#[derive(Clone, Copy, Debug)]
pub struct ComputeLoop {
    isa: &'static str,
    operations: u64,
    run: unsafe fn(u64),
}

impl ComputeLoop {
    /// 8-bit integer dot products into 32 bits, one loop for each instruction set of this machine,
    /// from the plainest on.
    pub fn int8() -> Vec<ComputeLoop> {
        Level::available().into_iter().map(int8).collect()
    }

    /// Fused multiply-adds of `f32`, likewise.
    pub fn f32() -> Vec<ComputeLoop> {
        let levels = Level::available().into_iter();
        // AVX-VNNI adds nothing to AVX2's, nor AMX to AVX-512's.
        let levels = levels.filter(|level| ![Level::AvxVnni, Level::Amx].contains(level));
        levels.map(f32).collect()
    }

    /// The instruction set's name: its level's.
    pub fn isa(&self) -> &'static str {
        self.isa
    }

    /// Operations of one turn, a multiplication and an addition being two.
    pub fn operations(&self) -> u64 {
        self.operations
    }
}

/// Accumulators of the portable loops.
const SCALAR_ACCUMULATORS: usize = 8;

#[cfg(target_arch = "x86_64")]
fn int8(level: Level) -> ComputeLoop {
    use super::x86;
    let (operations, run): (u64, unsafe fn(u64)) = match level {
        Level::Scalar => return scalar_int8(),
        Level::Avx2 => (x86::AVX2_INT8, x86::avx2_int8),
        Level::AvxVnni => (x86::AVXVNNI_INT8, x86::avxvnni_int8),
        Level::Avx512 => (x86::AVX512_INT8, x86::avx512_int8),
        #[cfg(target_os = "linux")]
        Level::Amx => (super::tile_loop::OPERATIONS, super::tile_loop::run),
        #[cfg(not(target_os = "linux"))]
        Level::Amx => return scalar_int8(),
    };
    ComputeLoop {
        isa: level.name(),
        operations,
        run,
    }
}

#[cfg(target_arch = "x86_64")]
fn f32(level: Level) -> ComputeLoop {
    use super::x86;
    let (operations, run): (u64, unsafe fn(u64)) = match level {
        Level::Scalar => return scalar_f32(),
        Level::Avx2 | Level::AvxVnni => (x86::AVX2_F32, x86::avx2_f32),
        Level::Avx512 | Level::Amx => (x86::AVX512_F32, x86::avx512_f32),
    };
    ComputeLoop {
        isa: level.name(),
        operations,
        run,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn int8(_: Level) -> ComputeLoop {
    scalar_int8()
}

#[cfg(not(target_arch = "x86_64"))]
fn f32(_: Level) -> ComputeLoop {
    scalar_f32()
}

fn scalar_int8() -> ComputeLoop {
    fn run(turns: u64) {
        let mut sums = [[0i32; 16]; SCALAR_ACCUMULATORS];
        for _ in 0..turns {
            for sum in &mut sums {
                let (u, x) = black_box(([0x0102_0304; 16], [0x0506_0708; 16]));
                *sum = Scalar.dot_u8(*sum, u, x);
            }
        }
        black_box(sums);
    }
    ComputeLoop {
        isa: Level::Scalar.name(),
        operations: 2 * 64 * SCALAR_ACCUMULATORS as u64,
        run,
    }
}

fn scalar_f32() -> ComputeLoop {
    fn run(turns: u64) {
        let mut sums = [[0f32; 16]; SCALAR_ACCUMULATORS];
        for _ in 0..turns {
            for sum in &mut sums {
                let (a, b) = black_box(([1.5; 16], [0.25; 16]));
                *sum = Scalar.fma(a, b, *sum);
            }
        }
        black_box(sums);
    }
    ComputeLoop {
        isa: Level::Scalar.name(),
        operations: 2 * 16 * SCALAR_ACCUMULATORS as u64,
        run,
    }
}

/// Runs a loop on some lanes at once.
pub struct ComputeJob {
    compute: ComputeLoop,
    shares: usize,
    turns: u64,
}

impl ComputeJob {
    /// `shares` times `turns` turns of `compute`; lanes claim the shares.
    pub fn new(compute: ComputeLoop, shares: usize, turns: u64) -> ComputeJob {
        ComputeJob {
            compute,
            shares,
            turns: turns.max(1),
        }
    }

    /// Operations that running the job takes.
    pub fn operations(&self) -> u64 {
        self.shares as u64 * self.turns * self.compute.operations
    }
}

impl Job for ComputeJob {
    fn part(&self, part: &Part<'_, Self>) {
        while part.claim_one(self.shares).is_some() {
            // SAFETY: loops are made for instruction sets that the processor has, and turns are
            // at least one.
            unsafe { (self.compute.run)(self.turns) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::{Lanes, Patience, parallel, serial};

    #[test]
    fn every_loop_of_this_machine_runs_and_comes_back() {
        let loops = [ComputeLoop::int8(), ComputeLoop::f32()].concat();
        let names: Vec<_> = ComputeLoop::int8().iter().map(ComputeLoop::isa).collect();
        let levels = Level::available();
        assert_eq!(names, levels.iter().map(|l| l.name()).collect::<Vec<_>>());
        let mut lanes = Lanes::new(2, Patience::SharedCores).unwrap();
        for compute in loops {
            let mut job = ComputeJob::new(compute, 2, 100);
            assert_eq!(job.operations(), 200 * compute.operations());
            serial(&mut job);
            parallel(&mut lanes, &mut job).unwrap();
        }
    }
}
