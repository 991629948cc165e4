//! `emel-compare`: where two streams of selected tokens part, and why.
//!
//! The commands end in a [`report::Report`], which is printed as a screen of text, as Markdown or
//! as JSON.

pub mod report;
