//! Timing an operation as the protocol asks for.

use crate::bench::protocol::{Repeat, Timed};
use std::time::{Duration, Instant};

/// Most samples of one request.
const MAX_SAMPLES: usize = 100_000;
/// Longest sample of one request.
const MAX_SAMPLE: Duration = Duration::from_secs(60);

/// Takes the samples that `repeat` asks for of an operation that `times` does so many times in a
/// row. It is done often enough to fill a sample, found out beforehand, which also warms it up.
///
/// # Errors
///
/// What `times` fails with.
pub fn timed<E>(repeat: Repeat, mut times: impl FnMut(u64) -> Result<(), E>) -> Result<Timed, E> {
    let least = Duration::from_nanos(repeat.min_sample_ns).min(MAX_SAMPLE);
    let mut time = |count: u64| -> Result<Duration, E> {
        let start = Instant::now();
        times(count)?;
        Ok(start.elapsed())
    };
    let mut operations = 1;
    loop {
        let taken = time(operations)?;
        if taken >= least {
            break;
        }
        operations = more(operations, taken, least);
    }
    let mut ns = Vec::new();
    for _ in 0..repeat.samples.clamp(1, MAX_SAMPLES) {
        ns.push(time(operations)?.as_nanos() as f64 / operations as f64);
    }
    Ok(Timed { ns, operations })
}

/// How often to do it next, when `count` times took `taken` and are to take `least`: at most ten
/// times as often, since a first time is slow.
fn more(count: u64, taken: Duration, least: Duration) -> u64 {
    let scaled = count as f64 * least.as_secs_f64() / taken.as_secs_f64().max(1e-9) * 1.1;
    (scaled as u64).clamp(count + 1, count.saturating_mul(10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_as_many_as_asked_for_and_as_long() {
        let repeat = Repeat {
            samples: 3,
            min_sample_ns: 2_000_000,
        };
        let mut counts = Vec::new();
        let timed = timed(repeat, |count| -> Result<(), ()> {
            counts.push(count);
            std::thread::sleep(Duration::from_micros(50 * count));
            Ok(())
        })
        .unwrap();
        assert_eq!(timed.ns.len(), 3);
        assert!(timed.ns.iter().all(|&ns| ns >= 50_000.0));
        assert!(counts.ends_with(&[timed.operations; 4]), "{counts:?}");
        assert!(super::timed(repeat, |_| Err("no")).is_err());
    }

    #[test]
    fn counts_grow_towards_the_sample_and_never_stall() {
        let ms = Duration::from_millis;
        assert_eq!(more(1, ms(1), ms(1000)), 10);
        assert_eq!(more(100, ms(50), ms(60)), 132);
        assert_eq!(more(1, ms(1000), ms(1001)), 2);
        assert_eq!(more(1, Duration::ZERO, ms(1)), 10);
    }
}
