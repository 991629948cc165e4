//! Plots: pictures as SVG, with axes that are linear or logarithmic.
//!
//! `emel-compare` draws differences by position with it, `emel-bench` how times grow.

mod scale;
mod svg;

pub use scale::{Linear, Scale};
pub use svg::{Picture, Side, printable};
