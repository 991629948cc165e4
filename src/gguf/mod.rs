//! The GGUF container: header, metadata, tensor directory, memory map.
//!
//! [`Gguf::open`] maps a model file (all shards of it, when it is split), checks everything the
//! container promises, and hands out metadata and tensor bytes. What the metadata means for a
//! model is checked by [`crate::model`] and [`crate::tokenizer`]; this module guarantees to
//! them that every value has the type the file says, that names are unique, and that every
//! tensor's bytes lie inside a file and overlap no other's.
//!
//! ```no_run
//! use emel::gguf::Gguf;
//!
//! let gguf = Gguf::open("models/model.gguf".as_ref())?;
//! let layers = gguf.metadata().require_u32("llama.block_count")?;
//! let bytes: usize = gguf.tensors().iter().map(|tensor| gguf.data(tensor).len()).sum();
//! println!("{layers} layers, {bytes} bytes of weights");
//! # Ok::<(), emel::gguf::GgufError>(())
//! ```
//!
//! The format is described at <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.

mod cursor;
mod directory;
mod error;
mod map;
mod metadata;
mod overrides;
mod parse;
mod split;
mod strings;
mod types;
mod value;
pub mod write;

pub use error::{Fault, GgufError, Origin, Place, SplitFault};
pub use metadata::Metadata;
pub use overrides::{OverrideError, parse_override, parse_overrides};
pub use strings::Strings;
pub use types::TensorType;
pub use value::{Array, Value};

pub(crate) use map::Map;
use parse::Header;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// An open model: parsed header and memory-mapped shards.
#[derive(Debug)]
pub struct Gguf {
    shards: Vec<Shard>,
    version: u32,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    index: HashMap<String, usize>,
}

/// One mapped file.
#[derive(Debug)]
struct Shard {
    file: Arc<Path>,
    map: Map,
}

/// Name, shape, type and place of one tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TensorInfo {
    /// The name, unique in the model; at most 64 bytes.
    pub name: String,
    /// One to four positive sizes in ggml's order: `shape[0]` is the row length (the dimension
    /// that products sum over), `shape[1]` the number of rows.
    pub shape: Vec<u64>,
    /// How the weights are stored.
    pub ty: TensorType,
    /// Bytes of data: rows of whole blocks without padding.
    pub n_bytes: u64,
    /// Where the data starts, in bytes from the start of its shard.
    pub offset: u64,
    /// Which shard holds the data, from 0.
    pub shard: usize,
    /// Where the directory entry starts, in bytes from the start of the shard.
    pub entry: u64,
}

impl TensorInfo {
    /// Weights in a row.
    pub fn row_len(&self) -> u64 {
        self.shape[0]
    }

    /// Number of rows, over all further dimensions.
    pub fn n_rows(&self) -> u64 {
        self.shape[1..].iter().product()
    }

    /// Bytes in a row.
    pub fn row_bytes(&self) -> u64 {
        self.row_len() / self.ty.block_len() * self.ty.block_bytes()
    }

    /// Number of weights.
    pub fn n_elements(&self) -> u64 {
        self.shape.iter().product()
    }
}

impl Gguf {
    /// Opens the model at `path`: maps the file, or all shards of a split model when `path`
    /// names any of them, and checks headers and directories.
    ///
    /// # Errors
    /// Whatever is malformed, as a [`GgufError`] naming file, key or tensor, and offset.
    pub fn open(path: &Path) -> Result<Gguf, GgufError> {
        Gguf::open_with(path, &[])
    }

    /// As [`Gguf::open`], with metadata values that replace the file's or add to them. They
    /// act on [`Gguf::metadata`] alone, not on how the container is read.
    ///
    /// # Errors
    /// As [`Gguf::open`].
    pub fn open_with(path: &Path, overrides: &[(String, Value)]) -> Result<Gguf, GgufError> {
        let first = Opened::new(path.into())?;
        let mut opened = match split::shards_of(&first)? {
            None => vec![first],
            Some(plan) => split::open_all(&plan, first)?,
        };
        let mut tensors = Vec::new();
        for (index, shard) in opened.iter_mut().enumerate() {
            shard
                .header
                .tensors
                .iter_mut()
                .for_each(|tensor| tensor.shard = index);
            tensors.append(&mut shard.header.tensors);
        }
        let index = tensors
            .iter()
            .enumerate()
            .map(|(i, t)| (t.name.clone(), i))
            .collect();
        // There is at least the shard that was opened first.
        let Header {
            version, metadata, ..
        } = &mut opened[0].header;
        let version = *version;
        let mut metadata = std::mem::replace(metadata, Metadata::new(path));
        let shards = opened
            .into_iter()
            .map(|o| Shard {
                file: o.file,
                map: o.map,
            })
            .collect();
        for (key, value) in overrides {
            metadata.set(key.clone(), value.clone());
        }
        Ok(Gguf {
            shards,
            version,
            metadata,
            tensors,
            index,
        })
    }

    /// The metadata; of a split model, the first shard's.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// All tensors, in the order of the files.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The tensor of this name.
    pub fn find(&self, name: &str) -> Option<&TensorInfo> {
        self.index.get(name).map(|&i| &self.tensors[i])
    }

    /// The data of a tensor, exactly `n_bytes` long, straight from the map.
    ///
    /// # Panics
    /// When `tensor` comes from another model.
    pub fn data(&self, tensor: &TensorInfo) -> &[u8] {
        // The directory was checked against the map when it was read, so both ends fit usize.
        let end = tensor.offset + tensor.n_bytes;
        &self.shards[tensor.shard].map.bytes()[tensor.offset as usize..end as usize]
    }

    /// Gives a tensor's pages back to the system, when its data has been packed elsewhere.
    /// [`Gguf::data`] stays valid: it would read the file again.
    ///
    /// # Panics
    /// When `tensor` comes from another model.
    pub fn release(&self, tensor: &TensorInfo) {
        self.release_part(tensor, 0..tensor.n_bytes as usize);
    }

    /// As [`Gguf::release`], for some of the tensor's bytes.
    ///
    /// # Panics
    /// When `tensor` comes from another model, or `bytes` reach beyond it.
    pub fn release_part(&self, tensor: &TensorInfo, bytes: Range<usize>) {
        assert!(bytes.start <= bytes.end && bytes.end as u64 <= tensor.n_bytes);
        // A touch maps the whole of a large page-cache folio, which reaches beyond the tensor.
        const FOLIO: usize = 2 << 20;
        let map = &self.shards[tensor.shard].map;
        let offset = tensor.offset as usize;
        let start = (offset + bytes.start).saturating_sub(FOLIO);
        let end = (offset + bytes.end + FOLIO).min(map.bytes().len());
        map.release(start, end - start);
    }

    /// The file; of a split model, the first shard.
    pub fn path(&self) -> &Path {
        self.metadata.file()
    }

    /// The paths of all shards, in order; one for a model in one file.
    pub fn paths(&self) -> impl ExactSizeIterator<Item = &Path> {
        self.shards.iter().map(|shard| &*shard.file)
    }

    /// Bytes of all shards.
    pub fn file_bytes(&self) -> u64 {
        self.shards
            .iter()
            .map(|shard| shard.map.bytes().len() as u64)
            .sum()
    }

    /// The container's version, 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }
}

/// A mapped file with its header.
#[derive(Debug)]
struct Opened {
    file: Arc<Path>,
    map: Map,
    header: Header,
}

impl Opened {
    /// Opens and parses `file`.
    fn new(file: Arc<Path>) -> Result<Opened, GgufError> {
        let open = |source: io::Error| GgufError::Open {
            file: file.clone(),
            source,
        };
        // Asked before opening: opening a pipe would wait for its writer.
        let kind = fs::metadata(&file).map_err(open)?;
        if !kind.is_file() {
            let what = if kind.is_dir() {
                "a directory"
            } else {
                "a pipe or device"
            };
            return Err(GgufError::NotAFile { file, what });
        }
        let handle = File::open(&file).map_err(open)?;
        let map = Map::of(&handle).map_err(|source| GgufError::Map {
            file: file.clone(),
            source,
        })?;
        let header = parse::parse(&file, map.bytes())?;
        Ok(Opened { file, map, header })
    }
}

#[cfg(test)]
mod tests;
