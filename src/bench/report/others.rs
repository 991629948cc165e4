//! The tables of kernel, machine and limit records.

use super::compare::is_emel;
use super::generation::ratio_text;
use super::grid::{Align, Format, Grid, rate};
use crate::bench::records::{Kernel, Limit, Machine, Record, Status};
use crate::bench::stats::{Ratio, Samples};

/// What kernels and machines have in common: a name, a time, and a comparison.
struct Timed<'a> {
    record: &'a Record,
    name: String,
    ns: Option<&'a Samples>,
    ratio: Option<&'a Ratio>,
    by: String,
}

/// The table of kernels; none without such records.
pub(super) fn kernels(records: &[Record], format: Format) -> Option<String> {
    let timed = records.iter().filter_map(|record| match record {
        Record::Kernel(kernel) => Some(Timed {
            record,
            name: shape(kernel),
            ns: kernel.ns.as_ref(),
            ratio: kernel.emel_ratio.as_ref(),
            by: match &kernel.config {
                Some(config) => format!("{} {config}", kernel.backend),
                None => kernel.backend.clone(),
            },
        }),
        _ => None,
    });
    table("kernel", timed.collect(), format)
}

/// The table of machines; none without such records.
pub(super) fn machines(records: &[Record], format: Format) -> Option<String> {
    let timed = records.iter().filter_map(|record| match record {
        Record::Machine(machine) => {
            let Machine {
                head,
                machine,
                ns,
                emel_ratio,
            } = &**machine;
            Some(Timed {
                record,
                name: machine.clone(),
                ns: ns.as_ref(),
                ratio: emel_ratio.as_ref(),
                by: head.engine.clone(),
            })
        }
        _ => None,
    });
    table("machine", timed.collect(), format)
}

/// A line a name and thread count: EMEL's time, and that of the fastest other.
fn table(what: &'static str, timed: Vec<Timed<'_>>, format: Format) -> Option<String> {
    let mut grid = Grid::new(&[
        (what, Align::Left),
        ("threads", Align::Right),
        ("EMEL ns", Align::Right),
        ("reference ns", Align::Right),
        ("ratio", Align::Right),
        ("best reference", Align::Left),
    ]);
    let key = |timed: &Timed<'_>| (timed.name.clone(), timed.record.head().threads);
    let median = |timed: &Timed<'_>| timed.ns.map(|ns| ns.median);
    let mut seen = Vec::new();
    for first in &timed {
        let this = key(first);
        if seen.contains(&this) {
            continue;
        }
        let same = || timed.iter().filter(|timed| key(timed) == this);
        let emel = same().rfind(|timed| is_emel(timed.record));
        let usable = |timed: &&Timed<'_>| {
            !is_emel(timed.record) && timed.record.head().status != Status::Error
        };
        let others = same().filter(usable).filter(|timed| timed.ns.is_some());
        let other = others.min_by(|a, b| {
            let (a, b) = (median(a), median(b));
            a.unwrap_or(f64::INFINITY)
                .total_cmp(&b.unwrap_or(f64::INFINITY))
        });
        grid.push(vec![
            this.0.clone(),
            this.1.to_string(),
            rate(emel.and_then(median)),
            rate(other.and_then(median)),
            other
                .and_then(|other| other.ratio)
                .map_or("-".to_owned(), ratio_text),
            other.map_or("-".to_owned(), |other| other.by.clone()),
        ]);
        seen.push(this);
    }
    (!grid.is_empty()).then(|| grid.render(format))
}

/// The operator with its sizes: `matmul q4_k 64x256 tokens 8`.
fn shape(kernel: &Kernel) -> String {
    let mut text = kernel.kernel.clone();
    let mut add = |part: String| {
        text.push(' ');
        text.push_str(&part);
    };
    if let Some(ty) = &kernel.ty {
        add(ty.clone());
    }
    if let (Some(rows), Some(cols)) = (kernel.rows, kernel.cols) {
        add(format!("{rows}x{cols}"));
    }
    if let (Some(n_head), Some(n_head_kv), Some(head_dim)) =
        (kernel.n_head, kernel.n_head_kv, kernel.head_dim)
    {
        add(format!("heads {n_head}/{n_head_kv}x{head_dim}"));
    }
    let sizes = [
        ("width", kernel.width),
        ("depth", kernel.depth),
        ("tokens", kernel.tokens),
    ];
    for (name, size) in sizes {
        if let Some(size) = size {
            add(format!("{name} {size}"));
        }
    }
    text
}

/// The table of limits; none without such records.
pub(super) fn limits(records: &[Record], format: Format) -> Option<String> {
    let mut grid = Grid::new(&[
        ("limit", Align::Left),
        ("isa", Align::Left),
        ("threads", Align::Right),
        ("page", Align::Right),
        ("buffer", Align::Right),
        ("value", Align::Right),
    ]);
    for record in records {
        if let Record::Limit(limit) = record {
            grid.push(limit_row(limit));
        }
    }
    (!grid.is_empty()).then(|| grid.render(format))
}

fn limit_row(limit: &Limit) -> Vec<String> {
    let bytes = |count: Option<u64>| match count {
        None => "-".to_owned(),
        Some(count) if count >= 1 << 30 => {
            format!("{} GiB", rate(Some(count as f64 / 1_073_741_824.0)))
        }
        Some(count) if count >= 1 << 20 => format!("{} MiB", count >> 20),
        Some(count) => format!("{} KiB", count >> 10),
    };
    let value = match limit.value {
        None => "-".to_owned(),
        Some(value) if value >= 1e12 => format!("{} T{}", rate(Some(value / 1e12)), limit.unit),
        Some(value) if value >= 1e9 => format!("{} G{}", rate(Some(value / 1e9)), limit.unit),
        Some(value) => format!("{} {}", rate(Some(value)), limit.unit),
    };
    vec![
        limit.limit.clone(),
        limit.head.isa.clone().unwrap_or_else(|| "-".to_owned()),
        limit.head.threads.to_string(),
        bytes(limit.page_bytes),
        bytes(limit.buffer_bytes),
        value,
    ]
}
