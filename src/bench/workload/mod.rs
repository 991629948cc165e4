//! What is measured: workloads, the models they run on, and their prompts, all of them files under
//! `benchdata`, so that adding one edits no code.
//!
//! - `models.json` lists the models ([`ModelEntry`]): file, digest, and the command that obtains it.
//! - `workloads/ID.json` is one [`Workload`] each: model, prompt, stop rule, lanes, ...
//! - `prompts/` holds the texts.
//!
//! [`Library::open`] reads and checks all of them; a mistake is named with file, line and field.

mod document;
mod error;
mod library;
mod manifest;
mod models;
mod prompt;
mod select;

pub use crate::cli::digests::{cache_folder, sha256_cached};
pub use document::Document;
pub use error::WorkloadError;
pub use library::{Library, LibraryArgs};
pub use manifest::{Formatter, Lane, Phase, ProcessRule, Sampling, WORKLOAD_SCHEMA, Workload};
pub use models::{MODELS_SCHEMA, ModelEntry, ModelKind, SynthRecipe};
pub use prompt::{ModelText, needed_context, read_prompt};
pub use select::Selection;

#[cfg(test)]
mod tests;
