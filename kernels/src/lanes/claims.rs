//! Handing out the indices of a dispatch, each to exactly one lane.
//!
//! Indices are cut into one share a lane, each with a counter of its own. A lane takes from its own
//! share first, front to back, and then from the others': so a lane reads memory in one long run,
//! which is what prefetching in hardware wants, and none idles while work is left.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;

/// What was handed out in a dispatch.
// Relaxed throughout: what lanes write is published by the join, not by the claim.
#[derive(Clone, Copy)]
pub(super) struct Claims<'a> {
    /// The total of the first claim, or [`OPEN`] before it.
    total: &'a AtomicUsize,
    /// Indices taken of each lane's share.
    taken: &'a [CachePadded<AtomicUsize>],
}

/// No total yet.
const OPEN: usize = usize::MAX;

impl<'a> Claims<'a> {
    /// The claims of one dispatch over as many lanes as there are counters. All claims of a
    /// dispatch are made on the same two.
    pub(super) fn new(total: &'a AtomicUsize, taken: &'a [CachePadded<AtomicUsize>]) -> Self {
        Claims { total, taken }
    }

    /// How many lanes there are.
    pub(super) fn lanes(&self) -> usize {
        self.taken.len()
    }

    /// Nothing is taken. Only between dispatches: indices would be handed out twice.
    pub(super) fn reset(&self) {
        self.total.store(OPEN, Ordering::Relaxed);
        for taken in self.taken {
            taken.store(0, Ordering::Relaxed);
        }
    }

    /// Everything is taken.
    pub(super) fn close(&self) {
        for taken in self.taken {
            taken.store(usize::MAX, Ordering::Relaxed);
        }
    }

    /// The next `chunk` (at least 1) indices below `total` for `lane`: see
    /// [`Part::claim`](super::Part::claim).
    #[inline]
    pub(super) fn next(&self, lane: usize, total: usize, chunk: usize) -> Option<Range<usize>> {
        self.agree(total);
        let lanes = self.taken.len();
        (lane..lanes)
            .chain(0..lane)
            .find_map(|of| take(&self.taken[of], &share(of, lanes, total), chunk.max(1)))
    }

    /// Two totals would mean two sets of shares.
    #[inline]
    fn agree(&self, total: usize) {
        let found = self.total.load(Ordering::Relaxed);
        if found == total && total != OPEN {
            return;
        }
        let first = self
            .total
            .compare_exchange(OPEN, total, Ordering::Relaxed, Ordering::Relaxed);
        let agreed = first.is_ok() || first == Err(total);
        assert!(
            agreed && total != OPEN,
            "a dispatch hands out one range of indices: not {total} after {first:?}"
        );
    }
}

/// The share of lane `of` of `lanes`: as long as the others', or by one longer.
fn share(of: usize, lanes: usize, total: usize) -> Range<usize> {
    let begin = |i: usize| total / lanes * i + i.min(total % lanes);
    begin(of)..begin(of + 1)
}

/// Takes up to `chunk` indices of a share.
#[inline]
fn take(taken: &AtomicUsize, share: &Range<usize>, chunk: usize) -> Option<Range<usize>> {
    // A compare-and-swap to the exact end, instead of an addition that could run past the share
    // and, repeated often enough, wrap round to indices already given.
    let mut from = taken.load(Ordering::Relaxed);
    loop {
        if from >= share.len() {
            return None;
        }
        let to = from.saturating_add(chunk).min(share.len());
        match taken.compare_exchange_weak(from, to, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return Some(share.start + from..share.start + to),
            Err(now) => from = now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(lanes: usize) -> Vec<CachePadded<AtomicUsize>> {
        (0..lanes).map(|_| CachePadded::default()).collect()
    }

    #[test]
    fn shares_cover_everything_once() {
        for lanes in 1..9 {
            for total in [0, 1, 2, 7, 8, 64, 1000, usize::MAX - 1] {
                let mut end = 0;
                for of in 0..lanes {
                    let share = share(of, lanes, total);
                    assert_eq!(share.start, end);
                    end = share.end;
                }
                assert_eq!(end, total);
            }
        }
    }

    #[test]
    fn a_lane_takes_its_own_share_then_the_others() {
        let (total, taken) = (AtomicUsize::new(OPEN), counters(3));
        let claims = Claims::new(&total, &taken);
        let mut order = Vec::new();
        while let Some(range) = claims.next(1, 10, 2) {
            order.push(range);
        }
        // Shares of four, three and three.
        assert_eq!(order, [4..6, 6..7, 7..9, 9..10, 0..2, 2..4]);
        assert_eq!(claims.next(0, 10, 1), None);
        claims.reset();
        assert_eq!(claims.next(0, 4, 9), Some(0..2));
        claims.close();
        assert_eq!(claims.next(0, 4, 9), None);
    }

    #[test]
    fn claims_never_wrap_round() {
        let (total, taken) = (AtomicUsize::new(OPEN), counters(1));
        let claims = Claims::new(&total, &taken);
        let all = usize::MAX - 1;
        assert_eq!(claims.next(0, all, 4), Some(0..4));
        assert_eq!(claims.next(0, all, usize::MAX), Some(4..all));
        for _ in 0..3 {
            assert_eq!(claims.next(0, all, usize::MAX), None);
        }
    }

    #[test]
    #[should_panic(expected = "one range of indices")]
    fn a_second_total_is_a_mistake() {
        let (total, taken) = (AtomicUsize::new(OPEN), counters(2));
        let claims = Claims::new(&total, &taken);
        claims.next(0, 10, 2);
        claims.next(1, 11, 2);
    }
}
