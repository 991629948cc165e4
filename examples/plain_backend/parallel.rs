//! Work shared out over threads: each piece of the output is computed by one of them alone, so
//! that their number changes no bit.

use std::thread;

use crate::error::PlainError;

/// Multiply-adds that take about as long as starting a thread.
const WORTH_A_THREAD: usize = 1 << 16;

/// Lets `compute` fill each piece of `width` values of `out`, given the piece's index. `cost` is
/// about how many multiply-adds a piece takes.
pub fn fill(
    threads: usize,
    out: &mut [f32],
    width: usize,
    cost: usize,
    compute: impl Fn(usize, &mut [f32]) + Sync,
) -> Result<(), PlainError> {
    let pieces = out.len() / width;
    let useful = (pieces.saturating_mul(cost) / WORTH_A_THREAD).max(1);
    let share = pieces.div_ceil(threads.clamp(1, useful)).max(1);
    let work = |first: usize, part: &mut [f32]| {
        for (i, piece) in part.chunks_exact_mut(width).enumerate() {
            compute(first + i, piece);
        }
    };
    let work = &work;
    thread::scope(|scope| {
        let mut parts = out.chunks_mut(share * width).enumerate();
        let own = parts.next();
        for (i, part) in parts {
            thread::Builder::new()
                .spawn_scoped(scope, move || work(i * share, part))
                .map_err(PlainError::Thread)?;
        }
        if let Some((_, part)) = own {
            work(0, part);
        }
        Ok(())
    })
}
