//! `emel-bench limits`: what this machine can do at most.
//!
//! Three ceilings, each for one thread up to all of them: bytes read in a second, from working
//! sets that fit a core's caches up to memory, on 4 KiB and on 2 MiB pages; 8-bit integer products
//! on each instruction set; and fused multiply-adds. The jobs are the kernels' (`emel_kernels`,
//! `limits`), so the threads meet as they do in the engine. Each number is the best of its
//! samples. One record of kind `limit` is written for each.
//!
//! `emel-bench run` takes its shares of the limit from [`measure_quick`].

pub mod host;
mod measure;
pub mod record;

pub use measure::{MachineLimits, measure_quick};

use super::BenchError;
use super::records::{Limit, Record};
use super::stats::median;
use super::warnings::{Warning, WarningKind};
use crate::cli::message::tell;
use comfy_table::{Cell, CellAlignment, Table, presets};
use emel_kernels::{ComputeLoop, Pages, ReadBuffer};
use measure::{Bench, Effort, Rates, memory_bytes, widest};
use record::Records;
use std::path::PathBuf;

/// Measures this machine's limits: bytes read and operations in a second.
#[derive(clap::Args)]
pub struct LimitsArgs {
    /// Most threads; one, two, four and so on up to it are measured [default: every core this
    /// process may use]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Write the records here, as JSONL.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Only memory on huge pages and the fastest instruction sets, with one thread and with all,
    /// in some seconds.
    #[arg(long)]
    pub quick: bool,
}

/// Working sets of one thread that caches hold: of the first level, the second, and beyond.
const CACHED: [usize; 5] = [16 << 10, 256 << 10, 1 << 20, 8 << 20, 32 << 20];

/// One, two, four, ... and `most` itself.
fn counts(most: usize) -> Vec<usize> {
    let powers = std::iter::successors(Some(1), |n: &usize| n.checked_mul(2));
    powers.take_while(|&n| n < most).chain([most]).collect()
}

/// Runs the command.
///
/// # Errors
///
/// The system refuses threads or memory, or the records cannot be written.
pub fn run(args: &LimitsArgs) -> Result<(), BenchError> {
    let most = args.threads.map_or_else(host::cpu_threads, usize::from);
    let mut report = Report {
        records: Records::create(args.output.as_deref())?,
        table: table(&["limit", "on", "threads", "best", "median", "unit"]),
    };
    let (counts, effort) = if args.quick {
        let mut ends = vec![1, most];
        ends.dedup();
        (ends, Effort::QUICK)
    } else {
        (counts(most), Effort::FULL)
    };
    let mut benches = counts
        .iter()
        .map(|&threads| Bench::new(threads, effort))
        .collect::<Result<Vec<_>, _>>()?;
    for (limit, loops) in [
        ("int8_dot", ComputeLoop::int8()),
        ("f32_fma", ComputeLoop::f32()),
    ] {
        let slower = if args.quick { loops.len() - 1 } else { 0 };
        for compute in &loops[slower..] {
            for bench in &mut benches {
                let rates = bench.compute(*compute)?;
                report.compute(limit, compute.isa(), bench.threads(), &rates);
            }
        }
    }
    let kernels = widest()?;
    let pages: &[Pages] = if args.quick {
        &[Pages::Huge]
    } else {
        &[Pages::Small, Pages::Huge]
    };
    for &pages in pages {
        let bytes = memory_bytes().max(CACHED[0] * most);
        let buffer = ReadBuffer::new(bytes, pages)?;
        let on = On::new(pages, &buffer, kernels.level().name());
        on.warn();
        for bench in &mut benches {
            if !args.quick {
                for cached in CACHED {
                    let all = cached * bench.threads();
                    if all <= buffer.bytes() {
                        let rates = bench.read_own(kernels, &buffer, cached)?;
                        report.read(&on, all, bench, &rates);
                    }
                }
            }
            let rates = bench.read_all(kernels, &buffer)?;
            report.read(&on, buffer.bytes(), bench, &rates);
        }
    }
    tell(&report.table.to_string());
    report.records.commit()
}

/// The pages that a buffer lies on.
struct On {
    isa: &'static str,
    pages: Pages,
    bytes: usize,
    /// Bytes on huge pages.
    huge: Option<usize>,
    advised: bool,
}

impl On {
    fn new(pages: Pages, buffer: &ReadBuffer, isa: &'static str) -> On {
        On {
            isa,
            pages,
            bytes: buffer.bytes(),
            huge: buffer.huge_bytes(),
            advised: buffer.advised(),
        }
    }

    /// Why the numbers are not those of the pages that were asked for, if so.
    fn refused(&self) -> Option<String> {
        let short = self.pages == Pages::Huge && self.huge.is_some_and(|huge| huge < self.bytes);
        let cure = "set /sys/kernel/mm/transparent_hugepage/enabled to madvise or always";
        if !self.advised {
            Some(format!(
                "the system refused the request for this page size; {cure}"
            ))
        } else if short {
            let percent = self.huge.unwrap_or(0) * 100 / self.bytes;
            Some(format!(
                "only {percent} % of the buffer lies on huge pages; {cure}, or free some memory"
            ))
        } else {
            None
        }
    }

    fn warn(&self) {
        if let Some(message) = self.refused() {
            tell(&format!("warning: {}: {message}", page_name(self.pages)));
        }
    }
}

fn page_name(pages: Pages) -> &'static str {
    match pages {
        Pages::Small => "4 KiB pages",
        Pages::Huge => "2 MiB pages",
    }
}

/// A table in the style of this program's.
pub(super) fn table(heads: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(heads);
    table
}

/// A number at the right of its cell.
pub(super) fn right(text: impl ToString) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

/// Where results go.
struct Report {
    records: Records,
    table: Table,
}

impl Report {
    fn compute(&mut self, limit: &str, isa: &str, threads: usize, rates: &Rates) {
        let mut record = self.record(limit, threads, rates, "ops/s");
        record.head.isa = Some(isa.to_owned());
        self.put(record, isa, rates);
    }

    fn read(&mut self, on: &On, bytes: usize, bench: &Bench, rates: &Rates) {
        let mut record = self.record("read_bandwidth", bench.threads(), rates, "bytes/s");
        record.head.isa = Some(on.isa.to_owned());
        record.page_bytes = Some(on.pages.bytes() as u64);
        record.buffer_bytes = Some(bytes as u64);
        let kind = WarningKind::Other("pages_refused".to_owned());
        let refused = on.refused().map(|message| Warning::new(kind, message));
        record.head.warnings.extend(refused);
        let name = format!("{}, {}", size(bytes), page_name(on.pages));
        self.put(record, &name, rates);
    }

    fn record(&self, limit: &str, threads: usize, rates: &Rates, unit: &str) -> Limit {
        Limit {
            head: self.records.head(threads),
            limit: limit.to_owned(),
            value: Some(rates.best()),
            unit: unit.to_owned(),
            ..Limit::default()
        }
    }

    fn put(&mut self, record: Limit, on: &str, rates: &Rates) {
        let giga = |rate: f64| right(format!("{:.1}", rate / 1e9));
        self.table.add_row([
            Cell::new(&record.limit),
            Cell::new(on),
            right(record.head.threads),
            giga(rates.best()),
            giga(median(rates.samples()).unwrap_or_default()),
            Cell::new(format!("G{}", record.unit)),
        ]);
        self.records.push(&Record::Limit(Box::new(record)));
    }
}

/// Bytes for people, in whole binary units.
fn size(bytes: usize) -> String {
    match bytes {
        n if n >= 1 << 30 && n.is_multiple_of(1 << 30) => format!("{} GiB", n >> 30),
        n if n >= 1 << 20 => format!("{} MiB", n >> 20),
        n => format!("{} KiB", n >> 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_measurements_the_higher_of_each_limit_counts() {
        let of = |read, int8, isa, f32| MachineLimits {
            read_bytes_per_second: read,
            int8_ops_per_second: int8,
            int8_isa: isa,
            f32_flops: f32,
        };
        let (one, other) = (of(1.0, 4.0, "amx", 5.0), of(2.0, 3.0, "avx512", 6.0));
        let both = of(2.0, 4.0, "amx", 6.0);
        assert_eq!((one.higher(other), other.higher(one)), (both, both));
    }

    #[test]
    fn thread_counts_double_up_to_the_last() {
        assert_eq!(counts(1), [1]);
        assert_eq!(counts(2), [1, 2]);
        assert_eq!(counts(6), [1, 2, 4, 6]);
        assert_eq!(counts(8), [1, 2, 4, 8]);
    }

    #[test]
    fn refused_pages_are_said_and_granted_ones_are_not() {
        let on = |pages, advised, huge| On {
            isa: "scalar",
            pages,
            bytes: 100,
            huge,
            advised,
        };
        assert!(on(Pages::Huge, true, Some(100)).refused().is_none());
        assert!(on(Pages::Huge, true, None).refused().is_none());
        assert!(on(Pages::Small, true, Some(0)).refused().is_none());
        let half = on(Pages::Huge, true, Some(50)).refused().unwrap();
        assert!(half.contains("50 %"), "{half}");
        assert!(on(Pages::Huge, false, None).refused().is_some());
        assert_eq!(size(16 << 10), "16 KiB");
        assert_eq!(size(960 << 20), "960 MiB");
    }
}
