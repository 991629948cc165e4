//! The GGUF container: header, metadata, tensor directory, memory map.
