//! What a fork and join of the lanes costs, with a job that does next to nothing.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use emel_kernels::{Job, Lanes, Part, Patience, parallel};
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Every lane adds what it claims.
struct Count {
    sum: AtomicUsize,
    total: usize,
}

impl Job for Count {
    fn part(&self, part: &Part<'_, Self>) {
        while let Some(i) = part.claim_one(self.total) {
            self.sum.fetch_add(black_box(i), Ordering::Relaxed);
        }
    }
}

fn fork_and_join(c: &mut Criterion) {
    let mut group = c.benchmark_group("fork and join");
    for n in [1, 2] {
        let mut lanes = Lanes::new(n, Patience::OwnCores).expect("lanes start");
        group.bench_function(BenchmarkId::new("lanes", n), |b| {
            b.iter(|| {
                let mut job = Count {
                    sum: AtomicUsize::new(0),
                    total: 16,
                };
                parallel(&mut lanes, &mut job).expect("no lane is lost");
                black_box(job.sum.load(Ordering::Relaxed))
            });
        });
    }
    group.finish();
}

criterion_group!(benches, fork_and_join);
criterion_main!(benches);
