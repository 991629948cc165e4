//! EMEL runs GGUF language models on a CPU, with results that are the same bits on every
//! route, lane count, instruction set and machine.
//!
//! Dependencies point one way: the binaries use [`run`], which uses the engine, which uses the
//! model, sampler and tokenizer, which use [`gguf`] and the kernels crate.
#![deny(unsafe_code)]

pub mod bench;
pub mod chat;
pub mod cli;
pub mod compare;
pub mod engine;
pub mod file_identity;
pub mod gguf;
pub mod model;
pub mod oracle;
pub mod output;
pub mod packed;
pub mod plot;
pub mod run;
pub mod sampling;
pub mod tokenizer;
pub mod trace;
