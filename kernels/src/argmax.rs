//! The index of the largest value: greedy choice over logits.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::lanes::{Job, Part};
use crate::level::Kernels;
use crate::simd::{Entry, Kernel, Simd, entry};

/// Values a lane claims at once.
const CHUNK: usize = 8192;

/// Why there is no largest value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgmaxError {
    /// There are no values.
    #[error("no values to choose from")]
    Empty,
    /// A value is NaN.
    #[error("value {index} is NaN: the model's outputs are not to be trusted")]
    Nan {
        /// The first NaN's index.
        index: usize,
    },
}

/// Finds the largest of some values; of equal ones (+0 and -0 are), the one of lowest index.
pub struct ArgmaxJob<'a> {
    kernels: Kernels,
    values: &'a [f32],
    /// The best so far as [`rank`]; 0 before any.
    best: AtomicU64,
    /// The first NaN's index so far, or `usize::MAX`.
    nan: AtomicUsize,
}

impl<'a> ArgmaxJob<'a> {
    /// For any slice (up to 2^32 - 1 values).
    ///
    /// # Panics
    ///
    /// When there are more values.
    pub fn new(kernels: Kernels, values: &'a [f32]) -> Self {
        assert!(u32::try_from(values.len()).is_ok(), "too many values");
        ArgmaxJob {
            kernels,
            values,
            best: AtomicU64::new(0),
            nan: AtomicUsize::new(usize::MAX),
        }
    }

    /// The index and the value, after the job has run.
    ///
    /// # Errors
    ///
    /// [`ArgmaxError`] when there are no values, or one is NaN.
    pub fn result(&self) -> Result<(usize, f32), ArgmaxError> {
        let nan = self.nan.load(Ordering::Relaxed);
        if nan != usize::MAX {
            return Err(ArgmaxError::Nan { index: nan });
        }
        match self.best.load(Ordering::Relaxed) {
            0 => Err(ArgmaxError::Empty),
            rank => {
                let index = !(rank as u32) as usize;
                Ok((index, self.values[index]))
            }
        }
    }
}

/// Orders candidates: by value, then lowest index first. Never 0.
fn rank(index: usize, value: f32) -> u64 {
    // Adding +0 makes -0 equal to +0. Then the IEEE bits order as integers once negative values
    // are inverted and positive ones get the top bit.
    let bits = (value + 0.0).to_bits();
    let ordered = if bits >> 31 == 1 {
        !bits
    } else {
        bits | 1 << 31
    };
    u64::from(ordered) << 32 | u64::from(!(index as u32))
}

impl Job for ArgmaxJob<'_> {
    fn part(&self, part: &Part<'_, Self>) {
        while let Some(range) = part.claim(self.values.len(), CHUNK) {
            let start = range.start;
            // SAFETY: `kernels` proves the level.
            match unsafe { (self.kernels.0.argmax)(&self.values[range]) } {
                Ok((index, value)) => {
                    self.best
                        .fetch_max(rank(start + index, value), Ordering::Relaxed);
                }
                Err(index) => {
                    self.nan.fetch_min(start + index, Ordering::Relaxed);
                }
            }
        }
    }
}

/// The largest value's index and itself, or the first NaN's index, of a slice that is not empty
/// and shorter than 2^31.
pub(crate) struct Argmax;

/// [`Argmax`] for one level.
pub(crate) type ArgmaxEntry = Entry<Argmax>;

/// Compiles [`Argmax`] for one level.
pub(crate) const fn of<S: Simd>() -> ArgmaxEntry {
    entry::<S, Argmax>
}

impl Kernel for Argmax {
    type Args<'a> = &'a [f32];
    type Out = Result<(usize, f32), usize>;

    #[inline(always)]
    fn run<S: Simd>(s: S, values: &[f32]) -> Self::Out {
        let (chunks, tail) = values.as_chunks::<16>();
        let step = s.splat_i32(16);
        let mut index = s.load_i32(&std::array::from_fn(|i| i as i32));
        let mut best = s.splat(f32::NEG_INFINITY);
        let mut best_index = index;
        let mut ordered = s.first(16);
        for chunk in chunks {
            let v = s.load(chunk);
            ordered = s.and_mask(ordered, s.eq(v, v));
            let better = s.lt(best, v);
            best = s.select(better, v, best);
            best_index = s.select_i32(better, index, best_index);
            index = s.add_i32(index, step);
        }
        let tail_ordered = tail.iter().all(|v| !v.is_nan());
        if s.mask_bits(ordered) != u16::MAX || !tail_ordered {
            return Err(values.iter().position(|v| v.is_nan()).unwrap_or_default());
        }
        let (mut bests, mut indices) = ([0.0; 16], [0; 16]);
        s.store(best, &mut bests);
        s.store_i32(best_index, &mut indices);
        // A lane that saw nothing above -infinity has its own number as index, which is that of
        // a value of the slice that is -infinity, if the slice has so many.
        let lanes = if chunks.is_empty() { 0 } else { 16 };
        let mut winner = (usize::MAX, f32::NEG_INFINITY);
        for (value, index) in bests.into_iter().zip(indices).take(lanes) {
            let index = index as usize;
            if value > winner.1 || (value == winner.1 && index < winner.0) {
                winner = (index, value);
            }
        }
        for (i, &value) in tail.iter().enumerate() {
            let index = 16 * chunks.len() + i;
            if value > winner.1 || (value == winner.1 && index < winner.0) {
                winner = (index, value);
            }
        }
        Ok(winner)
    }
}

#[cfg(test)]
mod tests;
