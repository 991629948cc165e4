//! Backends: engines as processes that answer requests of the [protocol](super::protocol).

mod contender;
mod manifest;
mod process;
mod ready;

pub use contender::{Contender, N_UBATCH};
pub use manifest::{BackendConfig, BackendManifest, ManifestError, Place};
pub use process::{Backend, BackendError};
pub use ready::NONE;
