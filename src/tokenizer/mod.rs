//! Tokenizers read from GGUF metadata.
mod classes;
mod classes_data;
mod hash;
mod merge;
