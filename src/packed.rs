//! A packed copy: a model's matrices in packed form, in a file of its own. A load that finds one maps
//! it, and neither packs nor takes memory for weights: it is done at once, and what several
//! processes map is in memory once.
//!
//! ```text
//! "EMELPACK", the header's length (u64, little-endian), its SHA-256, the header (JSON), zeros,
//! data from a multiple of 4096 on
//! ```
//!
//! The header names the format's version, the model by its digest and each tensor with type, shape and
//! place. A copy of another version or model is not used. Packed weights are the same bytes at every
//! level, so one copy serves all; they are trusted as the model's own are. A file that is neither a
//! copy nor empty is not replaced by one: its beginning is read before a copy is made, and again just
//! before it takes its place.

use crate::file_identity::FileIdentity;
use crate::gguf::Map;
use crate::output::{AtomicFile, OutputError, remove_abandoned};
use emel_kernels::{Kernels, PACKED_ALIGN, PackError, PackedMatrix, SharedBytes, WeightType};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The version of the packed formats and of this file's own. A change of either changes it.
pub const PACKED_FORMAT: u32 = 2;

const MAGIC: &[u8; 8] = b"EMELPACK";
/// Magic, length and digest of the header.
const PREFIX: usize = 16 + 32;
/// The longest header that is read: ten times what a model of ten thousand matrices needs.
const MAX_HEADER: usize = 16 << 20;
/// What data starts at a multiple of: a page.
const PAGE: usize = 4096;

/// Where a packed copy is, or is to be, and of which model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedPlace {
    /// The copy's file.
    pub path: PathBuf,
    /// The model's SHA-256, as hex digits (of a split model the shards', joined by `+`).
    pub model: String,
    /// The model's files as they were when they had that digest.
    pub files: Vec<FileIdentity>,
}

impl PackedPlace {
    /// Whether the model's files are still those that have the digest.
    fn is_current(&self) -> bool {
        self.files.iter().all(FileIdentity::is_current)
    }
}

/// Why a file is not used as a packed copy.
#[derive(Debug, thiserror::Error)]
pub enum PackedError {
    /// There is none yet.
    #[error("there is none")]
    Missing,
    /// It cannot be opened or mapped.
    #[error("it cannot be read: {0}")]
    Read(#[source] io::Error),
    /// It is something else.
    #[error("it is not a packed copy, or a damaged one: {0}")]
    Foreign(String),
    /// It was written by another version.
    #[error("it has format {found}, and this version reads {PACKED_FORMAT}")]
    Format {
        /// The file's.
        found: u32,
    },
    /// It is another model's.
    #[error("it was made of another model, or of this file before it changed")]
    Model,
    /// The model may not be the one that was read for its digest.
    #[error("the model has changed since its digest was taken; start again")]
    Changed,
    /// It does not have a tensor as the model has it.
    #[error("it does not hold tensor '{0}' as the model has it")]
    Tensor(String),
    /// A tensor's bytes are not what they must be.
    #[error("tensor '{tensor}': {source}")]
    Pack {
        /// The tensor.
        tensor: String,
        /// What is wrong.
        source: PackError,
    },
}

/// What became of the packed copy that a load was to use.
#[derive(Debug, Default)]
pub struct PackedReport {
    /// Whether the weights are mapped from a copy.
    pub used: bool,
    /// Why the file that was there was not used; none when it was, or when no copy was asked for.
    pub ignored: Option<PackedError>,
    /// The bytes of the copy that was made, or why there is none; none when nothing was to be made.
    pub kept: Option<Result<u64, OutputError>>,
}

#[derive(Serialize, Deserialize)]
struct Header {
    format: u32,
    model: String,
    tensors: Vec<Entry>,
}

/// The version alone, for what else a header holds depends on it.
#[derive(Deserialize)]
struct Version {
    format: u32,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    name: String,
    #[serde(rename = "type")]
    ty: String,
    rows: u64,
    cols: u64,
    /// From the start of the data.
    offset: u64,
    bytes: u64,
}

/// An open packed copy.
pub(crate) struct PackedCopy {
    map: Arc<Mapped>,
    /// Where the data starts.
    data: usize,
    entries: HashMap<String, Entry>,
}

/// A mapped file as shared bytes.
struct Mapped(Map);

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

/// Where data starts after a header of so many bytes.
fn data_start(header: usize) -> Option<usize> {
    PREFIX
        .checked_add(header)
        .and_then(|end| end.checked_next_multiple_of(PAGE))
}

impl PackedCopy {
    /// Maps the file at `place`, whole, and reads its header.
    pub(crate) fn open(place: &PackedPlace) -> Result<PackedCopy, PackedError> {
        let missing = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => PackedError::Missing,
            _ => PackedError::Read(error),
        };
        let kind = std::fs::metadata(&place.path).map_err(missing)?;
        if !kind.is_file() {
            return Err(PackedError::Foreign("no regular file".to_owned()));
        }
        let file = File::open(&place.path).map_err(missing)?;
        let map = Map::of(&file).map_err(PackedError::Read)?;
        let (header, data) = header(map.bytes())?;
        if header.model != place.model {
            return Err(PackedError::Model);
        }
        if !place.is_current() {
            return Err(PackedError::Changed);
        }
        let tensors = header.tensors.into_iter();
        Ok(PackedCopy {
            map: Arc::new(Mapped(map)),
            data,
            entries: tensors.map(|entry| (entry.name.clone(), entry)).collect(),
        })
    }

    /// The matrices of these names, types and shapes. The pages from the data's start to their end
    /// are read at once, so that no product waits for one: no more, however long the file is.
    pub(crate) fn matrices<'n>(
        &self,
        kernels: Kernels,
        wanted: impl Iterator<Item = (&'n str, WeightType, [usize; 2])>,
    ) -> Result<Vec<PackedMatrix>, PackedError> {
        let mut end = self.data;
        let matrix = |(name, ty, shape)| {
            let (matrix, place) = self.matrix(kernels, name, ty, shape)?;
            end = end.max(place.end);
            Ok(matrix)
        };
        let matrices = wanted.map(matrix).collect::<Result<Vec<_>, _>>()?;
        self.map.0.populate(self.data..end);
        Ok(matrices)
    }

    /// The matrix of this name, type and shape, and where it is.
    fn matrix(
        &self,
        kernels: Kernels,
        name: &str,
        ty: WeightType,
        [rows, cols]: [usize; 2],
    ) -> Result<(PackedMatrix, Range<usize>), PackedError> {
        let differs = || PackedError::Tensor(name.to_owned());
        let entry = self.entries.get(name).ok_or_else(differs)?;
        let place = self.place(entry).ok_or_else(differs)?;
        if entry.ty != ty.name() || (entry.rows, entry.cols) != (rows as u64, cols as u64) {
            return Err(differs());
        }
        let map: SharedBytes = self.map.clone();
        let matrix = PackedMatrix::shared(kernels, ty, rows, cols, map, place.clone());
        let matrix = matrix.map_err(|source| PackedError::Pack {
            tensor: name.to_owned(),
            source,
        })?;
        Ok((matrix, place))
    }

    fn place(&self, entry: &Entry) -> Option<Range<usize>> {
        let start = self.data.checked_add(usize::try_from(entry.offset).ok()?)?;
        let end = start.checked_add(usize::try_from(entry.bytes).ok()?)?;
        Some(start..end)
    }
}

/// The header of a copy, and where its data starts.
fn header(bytes: &[u8]) -> Result<(Header, usize), PackedError> {
    let foreign = |what: &str| PackedError::Foreign(what.to_owned());
    let (prefix, rest) = bytes
        .split_at_checked(PREFIX)
        .filter(|(prefix, _)| prefix.starts_with(MAGIC))
        .ok_or_else(|| foreign("it does not begin with EMELPACK"))?;
    let (length_bytes, digest) = prefix[MAGIC.len()..].split_at(8);
    let mut length = [0; 8];
    length.copy_from_slice(length_bytes);
    let length = usize::try_from(u64::from_le_bytes(length)).ok();
    let length = length.unwrap_or(usize::MAX);
    let text = rest.get(..length);
    let text = text.ok_or_else(|| foreign("it ends within its header"))?;
    if length > MAX_HEADER {
        return Err(foreign("its header is too long"));
    }
    // A copy: text must stay what it was checked to be, whatever becomes of the file.
    let text = &text.to_vec()[..];
    if Sha256::digest(text)[..] != *digest {
        return Err(foreign("its header has another digest"));
    }
    let wrong = |error: serde_json::Error| PackedError::Foreign(format!("header: {error}"));
    let Version { format } = serde_json::from_slice(text).map_err(wrong)?;
    if format != PACKED_FORMAT {
        return Err(PackedError::Format { found: format });
    }
    let header: Header = serde_json::from_slice(text).map_err(wrong)?;
    let data = data_start(text.len()).ok_or_else(|| foreign("its header is too long"))?;
    Ok((header, data))
}

/// Refuses a path at which there is something that is no copy: it is somebody's.
fn may_be_written(path: &Path) -> io::Result<()> {
    let refuse = |what: &str| {
        let problem = format!("{what} is in its place; remove it");
        Err(io::Error::new(io::ErrorKind::AlreadyExists, problem))
    };
    let found = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if !found.is_file() {
        return refuse("something that is no regular file");
    }
    let mut magic = Vec::new();
    let file = File::open(path)?;
    file.take(MAGIC.len() as u64).read_to_end(&mut magic)?;
    match magic.is_empty() || magic == MAGIC {
        true => Ok(()),
        false => refuse("a file that is no packed copy"),
    }
}

/// Writes a copy of `matrices` to `place` and tells its size. The file is there whole or not at all.
pub(crate) fn keep<'m>(
    place: &PackedPlace,
    matrices: impl Iterator<Item = (&'m str, &'m PackedMatrix)> + Clone,
) -> Result<u64, OutputError> {
    let mut end = 0;
    let tensors = matrices.clone().map(|(name, matrix)| {
        let bytes = matrix.packed_bytes() as u64;
        let offset = end;
        end = (end + bytes).next_multiple_of(PACKED_ALIGN as u64);
        Entry {
            name: name.to_owned(),
            ty: matrix.ty().name().to_owned(),
            rows: matrix.rows() as u64,
            cols: matrix.cols() as u64,
            offset,
            bytes,
        }
    });
    let header = Header {
        format: PACKED_FORMAT,
        model: place.model.clone(),
        tensors: tensors.collect(),
    };
    let fail = |source: io::Error| OutputError {
        path: place.path.clone(),
        source,
    };
    let text = serde_json::to_vec(&header).map_err(|error| fail(error.into()))?;
    let data = data_start(text.len()).filter(|_| text.len() <= MAX_HEADER);
    let data = data.ok_or_else(|| fail(io::ErrorKind::FileTooLarge.into()))?;
    may_be_written(&place.path).map_err(fail)?;
    remove_abandoned(&place.path);
    let mut file = AtomicFile::create(&place.path)?;
    file.write(MAGIC)?;
    file.write(&(text.len() as u64).to_le_bytes())?;
    file.write(&Sha256::digest(&text))?;
    file.write(&text)?;
    file.write(&vec![0; data - PREFIX - text.len()])?;
    for (_, matrix) in matrices {
        let padded = matrix.packed_bytes().next_multiple_of(PACKED_ALIGN);
        file.write(matrix.data())?;
        file.write(&[0; PACKED_ALIGN][..padded - matrix.packed_bytes()])?;
    }
    if !place.is_current() {
        return Err(fail(io::Error::other(PackedError::Changed)));
    }
    // Again: writing took a while.
    may_be_written(&place.path).map_err(fail)?;
    file.commit()?;
    Ok(data as u64 + end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(header: &str) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend((header.len() as u64).to_le_bytes());
        bytes.extend(Sha256::digest(header));
        bytes.extend(header.as_bytes());
        bytes
    }

    #[test]
    fn what_is_no_copy_is_told_from_what_is_another() {
        let good = r#"{"format":2,"model":"ab","tensors":[]}"#;
        let (found, data) = header(&bytes(good)).expect("a header");
        assert_eq!((found.model.as_str(), data), ("ab", PAGE));
        let newer = bytes(r#"{"format":3,"tensors":"elsewhere"}"#);
        assert!(matches!(
            header(&newer),
            Err(PackedError::Format { found: 3 })
        ));
        let mut endless = bytes(good);
        endless[MAGIC.len()..16].fill(0xff);
        let mut altered = bytes(good);
        *altered.last_mut().expect("a header") = b' ';
        let whole = bytes(good);
        let damaged = [
            &whole[..0],
            &whole[..PREFIX - 1],
            &whole[..whole.len() - 1],
            &endless,
            &altered,
            &bytes("{\"format\":2}"),
            &bytes("not JSON"),
            &bytes(&format!("{}{good}", " ".repeat(MAX_HEADER))),
            b"GGUF0000000000000000000000000000",
        ];
        for bad in damaged {
            assert!(
                matches!(header(bad), Err(PackedError::Foreign(_))),
                "{bad:?}"
            );
        }
    }
}
