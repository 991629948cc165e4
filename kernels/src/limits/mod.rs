//! What a machine can do at most: jobs that only read memory, or only compute, for whoever has a
//! clock. Nothing in here looks at one.
//!
//! - [`ReadJob`] reads a [`ReadBuffer`], on small or on huge pages, with the widest loads of a
//!   level.
//! - [`ComputeJob`] runs a [`ComputeLoop`]: integer dot products or fused multiply-adds between
//!   registers, on as many independent accumulators as it takes to hide their latency.

mod compute;
mod read;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod tile_loop;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use compute::{ComputeJob, ComputeLoop};
pub use read::{Pages, ReadBuffer, ReadJob};
pub(crate) use read::{ReadFn, read};
