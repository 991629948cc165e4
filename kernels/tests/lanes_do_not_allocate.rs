//! A dispatch allocates nothing, on any lane. Alone in its file: the counting allocator sees the
//! whole process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use emel_kernels::{Job, Lanes, Part, parallel, serial};

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: forwards to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the caller's obligations are the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Sum {
    total: AtomicU64,
}

impl Job for Sum {
    fn part(&self, part: &Part<'_, Self>) {
        while let Some(range) = part.claim(1000, 10) {
            let sum: u64 = range.map(|i| black_box(i as u64)).sum();
            self.total.fetch_add(sum, Ordering::Relaxed);
        }
    }
}

#[test]
fn dispatches_allocate_nothing() {
    let before = ALLOCATIONS.load(Ordering::SeqCst);
    drop(black_box(Box::new(1)));
    assert!(
        ALLOCATIONS.load(Ordering::SeqCst) > before,
        "the allocator does not count"
    );

    for n in [1, 2, 8] {
        let mut lanes = Lanes::new(n, emel_kernels::Patience::SharedCores).unwrap();
        let mut job = Sum {
            total: AtomicU64::new(0),
        };
        // Thread start-up allocates, on the new threads; give them time to get past it.
        for _ in 0..100 {
            parallel(&mut lanes, &mut job).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let before = ALLOCATIONS.load(Ordering::SeqCst);
        for _ in 0..1000 {
            parallel(&mut lanes, &mut job).unwrap();
            serial(&mut job);
        }
        // Parked workers, too.
        for _ in 0..10 {
            std::thread::sleep(std::time::Duration::from_millis(2));
            parallel(&mut lanes, &mut job).unwrap();
        }
        assert_eq!(
            ALLOCATIONS.load(Ordering::SeqCst),
            before,
            "{n} lanes allocated"
        );
        assert_eq!(*job.total.get_mut(), 499_500 * 2110);
    }
}
