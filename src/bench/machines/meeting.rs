//! Lanes that fork and join over nothing, and lanes that all meet.

use crate::bench::kernels::timed;
use crate::bench::protocol::{Barrier, Repeat, Timed};
use crate::engine::ExecutionPolicy;
use emel_kernels::{Job, LaneError, Lanes, Level, Part, parallel};
use std::sync::atomic::{AtomicUsize, Ordering};

fn lanes(threads: usize) -> Result<Lanes, LaneError> {
    let policy = ExecutionPolicy::new(Level::Scalar, threads);
    Lanes::new(threads, policy.patience)
}

/// A job without work.
struct Idle;

impl Job for Idle {
    fn part(&self, part: &Part<'_, Self>) {
        std::hint::black_box(part.claim_one(0));
    }
}

/// Times the fork and join of `threads` lanes over a job without work, as `repeat` asks for.
///
/// # Errors
///
/// [`LaneError`]: threads that do not start.
pub fn fork_join(threads: usize, repeat: Repeat) -> Result<Timed, LaneError> {
    let mut lanes = lanes(threads)?;
    timed(repeat, |count| {
        (0..count).try_for_each(|_| parallel(&mut lanes, &mut Idle))
    })
}

/// A job whose parts wait for each other: none ends before all have begun.
struct Meeting {
    arrived: AtomicUsize,
}

/// Looks at who has come before the core is offered to those who have not.
const LOOKS: u32 = 2000;

impl Job for Meeting {
    fn part(&self, part: &Part<'_, Self>) {
        self.arrived.fetch_add(1, Ordering::AcqRel);
        let all_are_here = || self.arrived.load(Ordering::Acquire) == part.of();
        while !all_are_here() {
            for _ in 0..LOOKS {
                if all_are_here() {
                    return;
                }
                std::hint::spin_loop();
            }
            std::thread::yield_now();
        }
    }
}

/// Times the meeting of all lanes that `barrier` asks for: fork, every lane there, join.
///
/// # Errors
///
/// [`LaneError`]: threads that do not start.
pub fn barrier(barrier: &Barrier) -> Result<Timed, LaneError> {
    let mut lanes = lanes(barrier.threads)?;
    timed(barrier.repeat, |count| {
        (0..count).try_for_each(|_| {
            let mut meeting = Meeting {
                arrived: AtomicUsize::new(0),
            };
            parallel(&mut lanes, &mut meeting)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meetings_come_to_an_end_with_fewer_cores_than_lanes_too() {
        let repeat = Repeat {
            samples: 2,
            min_sample_ns: 1000,
        };
        for threads in [1, 2, 5] {
            let timed = barrier(&Barrier { threads, repeat }).unwrap();
            assert_eq!(timed.ns.len(), 2);
            assert_eq!(fork_join(threads, repeat).unwrap().ns.len(), 2);
        }
        let none = Barrier { threads: 0, repeat };
        assert!(matches!(barrier(&none), Err(LaneError::Count(0))));
    }
}
