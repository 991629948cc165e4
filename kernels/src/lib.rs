//! The compute kernels of EMEL. The only crate with `unsafe`.
