use super::*;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Counts how often each index was handed out.
struct Count<'a> {
    hits: &'a [AtomicU32],
    chunk: usize,
}

impl Job for Count<'_> {
    fn part(&self, part: &Part<'_, Self>) {
        assert!(part.index() < part.of());
        while let Some(range) = part.claim(self.hits.len(), self.chunk) {
            for hit in &self.hits[range] {
                hit.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

fn hits(n: usize) -> Vec<AtomicU32> {
    (0..n).map(|_| AtomicU32::new(0)).collect()
}

/// Panics in the part that claims `bad`.
struct Fault {
    total: usize,
    bad: usize,
}

impl Job for Fault {
    fn part(&self, part: &Part<'_, Self>) {
        while let Some(index) = part.claim_one(self.total) {
            assert_ne!(index, self.bad, "injected");
        }
    }
}

/// Makes the caller wait until a worker has begun, so that the worker's part certainly runs.
struct Meet {
    workers: AtomicUsize,
    panic_in_worker: bool,
}

impl Job for Meet {
    fn part(&self, part: &Part<'_, Self>) {
        if part.index() == 0 {
            while self.workers.load(Ordering::Acquire) == 0 {
                std::thread::yield_now();
            }
        } else {
            self.workers.fetch_add(1, Ordering::Release);
            assert!(!self.panic_in_worker, "injected in lane {}", part.index());
        }
    }
}

#[test]
fn every_index_is_claimed_once() {
    for lanes in [1, 2, 3, 8] {
        let mut lanes = Lanes::new(lanes, Patience::SharedCores).unwrap();
        for total in [0, 1, 2, 7, 64, 1000] {
            for chunk in [0, 1, 3, 64, usize::MAX] {
                let hits = hits(total);
                parallel(&mut lanes, &mut Count { hits: &hits, chunk }).unwrap();
                assert!(hits.iter().all(|hit| hit.load(Ordering::Relaxed) == 1));
            }
        }
    }
    let hits = hits(100);
    serial(&mut Count {
        hits: &hits,
        chunk: 7,
    });
    assert!(hits.iter().all(|hit| hit.load(Ordering::Relaxed) == 1));
}

#[test]
fn a_pool_is_reused_for_many_forks() {
    for (n, forks) in [(2, 100_000), (8, 10_000)] {
        let mut lanes = Lanes::new(n, Patience::SharedCores).unwrap();
        let hits = hits(5);
        for _ in 0..forks {
            parallel(
                &mut lanes,
                &mut Count {
                    hits: &hits,
                    chunk: 1,
                },
            )
            .unwrap();
        }
        assert!(hits.iter().all(|hit| hit.load(Ordering::Relaxed) == forks));
    }
}

#[test]
fn workers_take_part() {
    let mut lanes = Lanes::new(2, Patience::SharedCores).unwrap();
    for _ in 0..100 {
        let mut job = Meet {
            workers: AtomicUsize::new(0),
            panic_in_worker: false,
        };
        parallel(&mut lanes, &mut job).unwrap();
        assert_eq!(*job.workers.get_mut(), 1);
    }
}

#[test]
fn parked_lanes_wake() {
    let mut lanes = Lanes::new(3, Patience::SharedCores).unwrap();
    for _ in 0..5 {
        let parked = |lanes: &Lanes| {
            lanes
                .shared
                .states
                .iter()
                .all(|state| state.load(Ordering::Relaxed) == PARKED)
        };
        while !parked(&lanes) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut job = Meet {
            workers: AtomicUsize::new(0),
            panic_in_worker: false,
        };
        parallel(&mut lanes, &mut job).unwrap();
    }
}

#[test]
fn the_caller_parks_for_a_slow_worker() {
    /// The worker outlasts the caller's patience.
    struct Slow(AtomicBool);
    impl Job for Slow {
        fn part(&self, part: &Part<'_, Self>) {
            if part.index() == 0 {
                while !self.0.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
            } else {
                self.0.store(true, Ordering::Release);
                std::thread::sleep(Duration::from_millis(30));
                self.0.store(false, Ordering::Release);
            }
        }
    }
    let mut lanes = Lanes::new(2, Patience::SharedCores).unwrap();
    for _ in 0..3 {
        let mut job = Slow(AtomicBool::new(false));
        parallel(&mut lanes, &mut job).unwrap();
        assert!(!*job.0.get_mut(), "returned before the worker was done");
    }
}

#[test]
fn a_panic_is_an_error_and_the_pool_is_dead() {
    for lanes in [1, 2, 8] {
        let mut lanes = Lanes::new(lanes, Patience::SharedCores).unwrap();
        let error = parallel(
            &mut lanes,
            &mut Fault {
                total: 100,
                bad: 37,
            },
        )
        .unwrap_err();
        let LaneError::Panicked { lane } = error else {
            panic!("{error}")
        };
        let hits = hits(3);
        for _ in 0..2 {
            let error = parallel(
                &mut lanes,
                &mut Count {
                    hits: &hits,
                    chunk: 1,
                },
            )
            .unwrap_err();
            assert!(
                matches!(error, LaneError::Dead { lane: dead } if dead == lane),
                "{error}"
            );
        }
        assert!(
            hits.iter().all(|hit| hit.load(Ordering::Relaxed) == 0),
            "a dead pool ran a job"
        );
    }
}

#[test]
fn a_panic_in_a_worker_names_its_lane() {
    let mut lanes = Lanes::new(2, Patience::SharedCores).unwrap();
    let mut job = Meet {
        workers: AtomicUsize::new(0),
        panic_in_worker: true,
    };
    let error = parallel(&mut lanes, &mut job).unwrap_err();
    assert!(matches!(error, LaneError::Panicked { lane: 1 }), "{error}");
    assert!(error.to_string().contains("lane 1"), "{error}");
}

#[test]
fn dropping_the_pool_ends_its_threads() {
    for n in [1, 2, 8] {
        let mut lanes = Lanes::new(n, Patience::SharedCores).unwrap();
        let hits = hits(10);
        parallel(
            &mut lanes,
            &mut Count {
                hits: &hits,
                chunk: 1,
            },
        )
        .unwrap();
        let shared = Arc::downgrade(&lanes.shared);
        drop(lanes);
        // Each thread owned a count of it; joined threads have dropped theirs.
        assert_eq!(shared.strong_count(), 0);
    }
}

#[test]
fn a_pool_can_move_to_another_thread() {
    let mut lanes = Lanes::new(2, Patience::SharedCores).unwrap();
    let mut lanes = std::thread::spawn(move || {
        let hits = hits(10);
        parallel(
            &mut lanes,
            &mut Count {
                hits: &hits,
                chunk: 1,
            },
        )
        .unwrap();
        lanes
    })
    .join()
    .unwrap();
    let mut job = Meet {
        workers: AtomicUsize::new(0),
        panic_in_worker: false,
    };
    parallel(&mut lanes, &mut job).unwrap();
}

#[test]
fn impossible_counts_are_refused() {
    for n in [0, MAX_LANES + 1, usize::MAX] {
        assert!(matches!(Lanes::new(n, Patience::SharedCores), Err(LaneError::Count(m)) if m == n));
    }
    assert_eq!(Lanes::new(3, Patience::SharedCores).unwrap().count(), 3);
}
