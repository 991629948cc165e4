//! The ruler behind `emel-bench`: runs pinned workloads on EMEL and on other engines side by side
//! and writes what it measured as records that programs can trust.
//!
//! An engine is a *backend*: a program that speaks [`protocol`] on its standard streams, so that no
//! two engines share a process. EMEL's own is this program's `worker` command.

pub mod backend;
pub mod curves;
pub mod error;
pub mod kernels;
pub mod limits;
pub mod list;
pub mod machine_info;
pub mod machines;
pub mod protocol;
pub mod records;
pub mod report;
pub mod run;
pub mod snapshot;
pub mod stats;
pub mod synth;
pub mod targets;
pub mod validate;
pub mod warnings;
pub mod worker;
pub mod workload;

pub use error::BenchError;
