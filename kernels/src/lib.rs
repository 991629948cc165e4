//! The compute kernels of EMEL. The only crate with `unsafe`.

mod lanes;

pub use lanes::{Job, LaneError, Lanes, MAX_LANES, Part, parallel, serial};
