//! The measurements: a job of the kernels' limits, a clock, and the best of some samples. A limit
//! is what the machine did at its best; whatever else runs on it only takes away.

use super::host;
use crate::bench::BenchError;
use emel_kernels::{
    ComputeJob, ComputeLoop, Job, Kernels, Lanes, Level, Pages, Patience, ReadBuffer, ReadJob,
    parallel,
};
use serde::Serialize;
use std::time::{Duration, Instant};

/// What this machine can do at most, with some number of threads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MachineLimits {
    /// Bytes read from memory in a second.
    pub read_bytes_per_second: f64,
    /// 8-bit integer operations in a second, on the fastest instruction set (a multiplication and
    /// an addition are two).
    pub int8_ops_per_second: f64,
    /// That instruction set: a level's name, or `amx`.
    pub int8_isa: &'static str,
    /// `f32` operations in a second, by fused multiply-adds (two each).
    pub f32_flops: f64,
}

impl MachineLimits {
    /// What either measurement found at most.
    pub fn higher(self, other: MachineLimits) -> MachineLimits {
        let (int8, isa) = match other.int8_ops_per_second > self.int8_ops_per_second {
            true => (other.int8_ops_per_second, other.int8_isa),
            false => (self.int8_ops_per_second, self.int8_isa),
        };
        MachineLimits {
            read_bytes_per_second: self.read_bytes_per_second.max(other.read_bytes_per_second),
            int8_ops_per_second: int8,
            int8_isa: isa,
            f32_flops: self.f32_flops.max(other.f32_flops),
        }
    }
}

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Samples of each number.
    pub samples: usize,
    /// Least time of a sample.
    pub sample: Duration,
}

impl Effort {
    /// For `emel-bench limits`.
    pub const FULL: Effort = Effort {
        samples: 7,
        sample: Duration::from_millis(30),
    };
    /// For a run that only wants to know its shares.
    pub const QUICK: Effort = Effort {
        samples: 4,
        sample: Duration::from_millis(15),
    };
}

/// Rates of one measurement, a second.
#[derive(Clone, Debug, PartialEq)]
pub struct Rates(Vec<f64>);

impl Rates {
    /// The highest: the limit.
    pub fn best(&self) -> f64 {
        self.0.iter().copied().fold(0.0, f64::max)
    }

    /// The samples, as they came.
    pub fn samples(&self) -> &[f64] {
        &self.0
    }
}

/// Threads that measure.
pub struct Bench {
    lanes: Lanes,
    effort: Effort,
}

/// Most bytes that a thread reads before it looks for the next: from memory, shares are small
/// enough that no thread waits long for the last, and long enough for the prefetchers.
const MEMORY_SHARE: usize = 2 << 20;

impl Bench {
    /// `threads` threads.
    ///
    /// # Errors
    ///
    /// The system refuses a thread.
    pub fn new(threads: usize, effort: Effort) -> Result<Bench, BenchError> {
        let patience = if threads > host::cpu_threads() {
            Patience::SharedCores
        } else {
            Patience::OwnCores
        };
        Ok(Bench {
            lanes: Lanes::new(threads, patience)?,
            effort,
        })
    }

    /// Threads.
    pub fn threads(&self) -> usize {
        self.lanes.count()
    }

    /// Runs the jobs that `make` makes of a number of repetitions, `units` saying how much is done
    /// in one, and gives units a second.
    fn rates<J: Job>(
        &mut self,
        make: impl Fn(u64) -> J,
        units: impl Fn(&J) -> u64,
    ) -> Result<Rates, BenchError> {
        let mut time = |repetitions: u64| -> Result<(Duration, u64), BenchError> {
            let mut job = make(repetitions);
            let start = Instant::now();
            parallel(&mut self.lanes, &mut job)?;
            Ok((start.elapsed(), units(&job)))
        };
        let mut repetitions = 1;
        // The first, with cold caches and clocks, only finds out how often fills a sample.
        loop {
            let (elapsed, _) = time(repetitions)?;
            if elapsed >= self.effort.sample {
                break;
            }
            let wanted = self.effort.sample.as_secs_f64() / elapsed.as_secs_f64().max(1e-7);
            let more = (repetitions as f64 * (wanted * 1.1).clamp(1.5, 100.0)).ceil();
            repetitions = more as u64;
        }
        let mut rates = Vec::with_capacity(self.effort.samples);
        for _ in 0..self.effort.samples {
            let (elapsed, units) = time(repetitions)?;
            rates.push(units as f64 / elapsed.as_secs_f64());
        }
        Ok(Rates(rates))
    }

    /// Bytes read in a second, each thread going through its own `bytes` of the buffer again and
    /// again.
    pub fn read_own(
        &mut self,
        kernels: Kernels,
        buffer: &ReadBuffer,
        bytes: usize,
    ) -> Result<Rates, BenchError> {
        let all = bytes * self.threads();
        self.rates(
            |passes| ReadJob::new(kernels, buffer, all, bytes, passes as usize),
            ReadJob::bytes,
        )
    }

    /// Bytes read in a second, the threads sharing the whole buffer.
    pub fn read_all(&mut self, kernels: Kernels, buffer: &ReadBuffer) -> Result<Rates, BenchError> {
        let mut rates = Vec::with_capacity(self.effort.samples);
        // Passes are jobs of their own: no share is read twice while it is in some cache.
        for sample in 0..=self.effort.samples {
            let (mut read, start) = (0, Instant::now());
            while read == 0 || start.elapsed() < self.effort.sample {
                let mut job = ReadJob::new(kernels, buffer, buffer.bytes(), MEMORY_SHARE, 1);
                parallel(&mut self.lanes, &mut job)?;
                read += job.bytes();
            }
            if sample > 0 {
                rates.push(read as f64 / start.elapsed().as_secs_f64());
            }
        }
        Ok(Rates(rates))
    }

    /// Operations of `compute` in a second.
    pub fn compute(&mut self, compute: ComputeLoop) -> Result<Rates, BenchError> {
        let threads = self.threads();
        self.rates(
            |turns| ComputeJob::new(compute, threads, turns),
            ComputeJob::operations,
        )
    }
}

/// The kernels whose loads are the widest here.
pub fn widest() -> Result<Kernels, BenchError> {
    Kernels::new(Level::best())
        .ok_or_else(|| BenchError::Usage("no instruction set is usable here".to_owned()))
}

/// Bytes that no cache holds, and that the machine can spare: twice the largest cache, at least
/// 256 MiB and at most 2 GiB or a quarter of the memory that is free.
pub fn memory_bytes() -> usize {
    let spare = host::memory_available().unwrap_or(1 << 30) / 4;
    let wanted = host::last_cache_bytes().unwrap_or(0).saturating_mul(2);
    let bytes = wanted.clamp(256 << 20, 2 << 30).min(spare.max(64 << 20));
    usize::try_from(bytes).unwrap_or(256 << 20)
}

/// This machine's limits with `threads` threads, in a second or two.
///
/// # Errors
///
/// The system refuses threads or memory.
pub fn measure_quick(threads: usize) -> Result<MachineLimits, BenchError> {
    let mut bench = Bench::new(threads, Effort::QUICK)?;
    // AMX is tried by a child process: before much memory is mapped.
    let (int8, f32) = (ComputeLoop::int8(), ComputeLoop::f32());
    let mut limits = MachineLimits {
        read_bytes_per_second: 0.0,
        int8_ops_per_second: 0.0,
        int8_isa: Level::Scalar.name(),
        f32_flops: 0.0,
    };
    for compute in int8 {
        let best = bench.compute(compute)?.best();
        if best > limits.int8_ops_per_second {
            (limits.int8_ops_per_second, limits.int8_isa) = (best, compute.isa());
        }
    }
    for compute in f32 {
        limits.f32_flops = limits.f32_flops.max(bench.compute(compute)?.best());
    }
    let buffer = ReadBuffer::new(memory_bytes(), Pages::Huge)?;
    limits.read_bytes_per_second = bench.read_all(widest()?, &buffer)?.best();
    Ok(limits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_as_many_and_as_positive_as_asked_for() {
        let effort = Effort {
            samples: 3,
            sample: Duration::from_micros(200),
        };
        let mut bench = Bench::new(2, effort).unwrap();
        let kernels = Kernels::new(Level::Scalar).unwrap();
        let buffer = ReadBuffer::new(4 << 20, Pages::Huge).unwrap();
        for rates in [
            bench.read_own(kernels, &buffer, 16 << 10).unwrap(),
            bench.read_all(kernels, &buffer).unwrap(),
            bench.compute(ComputeLoop::int8()[0]).unwrap(),
        ] {
            assert_eq!(rates.samples().len(), 3);
            assert!(rates.samples().iter().all(|&rate| rate > 0.0));
            assert!(rates.samples().contains(&rates.best()));
        }
    }
}
