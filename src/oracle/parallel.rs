//! Work shared out over threads so that the result does not depend on how many there are: each
//! item is computed alone, and the items come back in order.

use std::ops::Range;
use std::thread;

use super::OracleError;

/// Calls `work` with consecutive ranges that cover `0..items`, one a thread, and joins what they
/// give in order.
pub fn map_ranges<T: Send>(
    threads: usize,
    items: usize,
    work: impl Fn(Range<usize>) -> Vec<T> + Sync,
) -> Result<Vec<T>, OracleError> {
    let per_thread = items.div_ceil(threads.max(1)).max(1);
    let ranges = (0..items)
        .step_by(per_thread)
        .map(|i| i..items.min(i + per_thread));
    let mut ranges = ranges.collect::<Vec<_>>().into_iter();
    let first = ranges.next().unwrap_or(0..0);
    thread::scope(|scope| {
        let work = &work;
        let spawn = |range| thread::Builder::new().spawn_scoped(scope, move || work(range));
        let others = ranges.map(spawn).collect::<Result<Vec<_>, _>>();
        let others = others.map_err(OracleError::Thread)?;
        let mut all = work(first);
        for other in others {
            match other.join() {
                Ok(part) => all.extend(part),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(all)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_come_back_in_order_for_any_number_of_threads() {
        for items in [0, 1, 2, 7, 64] {
            for threads in [0, 1, 2, 3, 8, 100] {
                let squares = map_ranges(threads, items, |r| r.map(|i| i * i).collect()).unwrap();
                let wanted: Vec<usize> = (0..items).map(|i| i * i).collect();
                assert_eq!(squares, wanted, "{items} items on {threads} threads");
            }
        }
    }
}
