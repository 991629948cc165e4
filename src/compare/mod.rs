//! `emel-compare`: where two streams of selected tokens part, and why.
//!
//! The commands end in a [`report::Report`], which is printed as a screen of text, as Markdown or
//! as JSON. `run` asks every engine the same ([`case`], [`engines`], [`free`]), feeds all of them
//! one stream ([`forcing`], [`replay`]), asks the oracle ([`judge`]), looks at tensors ([`trail`])
//! and names a cause ([`cause`]).

mod agreement;
mod case;
mod cause;
mod contract;
pub mod determinism;
mod drift;
mod engines;
mod error;
mod forcing;
mod free;
mod judge;
pub mod pair;
mod prompt;
pub mod records;
mod replay;
pub mod report;
pub mod run;
mod scratch;
pub mod show;
mod stages;
mod text;
pub mod traces;
mod trail;
mod vocabulary;

pub use error::CompareError;
