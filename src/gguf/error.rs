//! What can be wrong with a GGUF file, in types: every error names the file, the place in it
//! (key or tensor) and, where there is one, the byte offset.

use super::TensorType;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Why a GGUF file could not be opened, or a metadata value not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GgufError {
    /// The operating system refused to open or read the file.
    #[error("{}: cannot open the model: {source}", file.display())]
    Open {
        /// The file.
        file: Arc<Path>,
        /// The system's reason.
        source: io::Error,
    },
    /// The path names a directory, a pipe or a device.
    #[error("{}: is {what}, not a file; name a .gguf file", file.display())]
    NotAFile {
        /// The path.
        file: Arc<Path>,
        /// What it is instead.
        what: &'static str,
    },
    /// The system refused to map the file into memory.
    #[error("{}: cannot map the model into memory: {source}", file.display())]
    Map {
        /// The file.
        file: Arc<Path>,
        /// The system's reason.
        source: io::Error,
    },
    /// The container is malformed.
    #[error("{}: {place}, byte {offset}: {fault}", file.display())]
    Malformed {
        /// The file; for a split model, the shard.
        file: Arc<Path>,
        /// The header, key or tensor at fault.
        place: Place,
        /// Byte offset in the file of the value at fault.
        offset: u64,
        /// The class of malformation.
        fault: Fault,
    },
    /// A required metadata key is absent.
    #[error("{}: required key {} is missing; the file was converted incompletely", file.display(), Shown(key))]
    MissingKey {
        /// The file.
        file: Arc<Path>,
        /// The key.
        key: Box<str>,
    },
    /// A metadata value has a type that its use does not allow.
    #[error("{}: key {} ({origin}) is {found}, but {wanted} is needed", file.display(), Shown(key))]
    WrongType {
        /// The file.
        file: Arc<Path>,
        /// The key.
        key: Box<str>,
        /// Where the value comes from.
        origin: Origin,
        /// The type its user needs.
        wanted: &'static str,
        /// The type it has.
        found: &'static str,
    },
    /// A metadata integer does not fit the type its use needs.
    #[error("{}: key {} ({origin}){} is {value}, which does not fit {wanted}", file.display(), Shown(key), Index(*index))]
    OutOfRange {
        /// The file.
        file: Arc<Path>,
        /// The key.
        key: Box<str>,
        /// Where the value comes from.
        origin: Origin,
        /// The element, when the value is an array.
        index: Option<usize>,
        /// The integer found.
        value: i128,
        /// The type its user needs.
        wanted: &'static str,
    },
    /// A metadata array holds too few elements.
    #[error("{}: key {} ({origin}) holds {found} elements, but {needed} are needed", file.display(), Shown(key))]
    ArrayTooShort {
        /// The file.
        file: Arc<Path>,
        /// The key.
        key: Box<str>,
        /// Where the value comes from.
        origin: Origin,
        /// Elements present.
        found: usize,
        /// Elements needed.
        needed: usize,
    },
    /// The shards of a split model do not form one model.
    #[error("{}: {fault}", file.display())]
    Split {
        /// The shard at fault.
        file: Arc<Path>,
        /// What does not fit.
        fault: SplitFault,
    },
}

/// Where in a file a fault lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Magic, version and counts.
    Header,
    /// The metadata pair of this index, whose key could not be read.
    Pair(u64),
    /// The value of this key.
    Key(Box<str>),
    /// An element of the array under this key.
    Element(Box<str>, u64),
    /// The tensor directory's entry of this index, whose name could not be read.
    Entry(u64),
    /// The directory entry or the data of this tensor.
    Tensor(Box<str>),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Header => write!(f, "header"),
            Place::Pair(i) => write!(f, "metadata pair {i}"),
            Place::Key(key) => write!(f, "key {}", Shown(key)),
            Place::Element(key, i) => write!(f, "key {}, element {i}", Shown(key)),
            Place::Entry(i) => write!(f, "tensor {i}"),
            Place::Tensor(name) => write!(f, "tensor {}", Shown(name)),
        }
    }
}

/// Where a metadata value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The file, at this byte offset.
    File(u64),
    /// An override, or values built in memory.
    Given,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::File(offset) => write!(f, "byte {offset}"),
            Origin::Given => write!(f, "overridden"),
        }
    }
}

/// The classes of malformed containers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the messages say what each is, and its numbers
pub enum Fault {
    #[error("the file is empty; download it again")]
    Empty,
    #[error("not a GGUF file: it starts with {}{}", Magic(*found), hint(found))]
    Magic { found: [u8; 4] },
    #[error(
        "GGUF version {version} in big-endian byte order, which is not supported; convert the \
         model for little-endian machines"
    )]
    BigEndian { version: u32 },
    #[error("GGUF version {0} is not supported (2 and 3 are); convert the model again")]
    Version(u32),
    #[error("{what} needs {needed} bytes where {left} are left; the file is truncated or damaged")]
    Truncated {
        what: &'static str,
        needed: u64,
        left: u64,
    },
    #[error(
        "{count} {what} cannot fit the {left} bytes that are left; the file is truncated or \
         damaged"
    )]
    Count {
        what: &'static str,
        count: u64,
        left: u64,
    },
    #[error("{count} {what}, more than the {limit} that are accepted; the file is damaged")]
    Limit {
        what: &'static str,
        count: u64,
        limit: u64,
    },
    #[error("the key is empty")]
    KeyEmpty,
    #[error("the key holds a NUL byte")]
    KeyNul,
    #[error("the key is a duplicate of the one at byte {first}")]
    KeyDuplicate { first: u64 },
    #[error("{what} is not UTF-8 (its byte {valid} is wrong)")]
    NotUtf8 { what: &'static str, valid: u64 },
    #[error("value type {0} is unknown")]
    ValueType(u32),
    #[error("array element type {0} is unknown")]
    ElementType(u32),
    #[error("a bool is {0}, neither 0 nor 1")]
    Bool(u8),
    #[error("arrays are nested more than {limit} deep")]
    Nesting { limit: u32 },
    #[error("the alignment is {found}, but u32 is needed")]
    AlignmentType { found: &'static str },
    #[error("alignment {value} is not a power of two from 1 to {limit}")]
    Alignment { value: u32, limit: u32 },
    #[error("the tensor's name is empty")]
    NameEmpty,
    #[error("the tensor's name holds a NUL byte")]
    NameNul,
    #[error("the tensor's name is {len} bytes long, more than the format's {limit}")]
    NameLong { len: u64, limit: u64 },
    #[error("the name is a duplicate of the one at byte {first}")]
    NameDuplicate { first: u64 },
    #[error("the name is also that of a tensor in shard {shard}, byte {first}")]
    NameElsewhere { shard: usize, first: u64 },
    #[error("the tensor has {0} dimensions, but the format has 1 to 4")]
    Dimensions(u32),
    #[error("dimension {axis} is {size}, but it must be positive")]
    Dimension { axis: usize, size: i64 },
    #[error("the product of the dimensions {0:?} is more than 2^63 - 1")]
    ElementsOverflow(Box<[u64]>),
    #[error("the tensor of shape {shape:?} and type {ty} takes more than 2^64 - 1 bytes")]
    BytesOverflow { shape: Box<[u64]>, ty: TensorType },
    #[error("tensor type {0} is unknown; the file is newer than this program or damaged")]
    TensorType(u32),
    #[error("tensor type {name} (id {id}) was removed from ggml; convert the model again")]
    TensorTypeRemoved { id: u32, name: &'static str },
    #[error("a row holds {row} weights, not a multiple of {ty}'s block of {block}")]
    RowNotBlocks {
        row: u64,
        ty: TensorType,
        block: u64,
    },
    #[error("data offset {offset} is not a multiple of the alignment {alignment}")]
    DataUnaligned { offset: u64, alignment: u32 },
    #[error("data offset {offset} plus size {size} is more than 2^64 - 1")]
    DataWraps { offset: u64, size: u64 },
    #[error(
        "the data ends at byte {end}, but the file at {file_bytes}; it is truncated: download \
         it again"
    )]
    DataPastEnd { end: u64, file_bytes: u64 },
    #[error("the data overlaps that of tensor {}", Shown(other))]
    DataOverlaps { other: Box<str> },
}

/// What does not fit among the shards of a split model.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the messages say what each is, and its numbers
pub enum SplitFault {
    #[error(
        "the model is split in {count}, so the file's name must end in -00001-of-{count:05}.gguf \
         (or the shard's own number); rename it back"
    )]
    Name { count: u64 },
    #[error("the name says {named} shards, but key \"split.count\" says {count}")]
    CountNamed { named: u64, count: u64 },
    #[error("shard {number} of {count} is missing; put it beside the others")]
    Missing { number: u64, count: u64 },
    #[error("shard {number} has no key {key:?}; it does not belong to this model")]
    KeyMissing { number: u64, key: &'static str },
    #[error("key \"split.count\" is {found} here but {count} in the first shard")]
    CountDiffers { found: u64, count: u64 },
    #[error("shard {number} repeats shard {first}: both have \"split.no\" = {no}")]
    Repeated { number: u64, first: u64, no: u64 },
    #[error(
        "shard {number} is out of order: its \"split.no\" is {found}, {wanted} is needed; the \
         file was renamed"
    )]
    OutOfOrder {
        number: u64,
        found: u64,
        wanted: u64,
    },
    #[error("the shards hold {found} tensors, but key \"split.tensors.count\" says {wanted}")]
    TensorCount { found: u64, wanted: u64 },
}

/// The longest part of a name that a message quotes, in characters.
const SHOWN_CHARS: usize = 80;

/// A name from the file, quoted, escaped and of bounded length.
struct Shown<'a>(&'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.char_indices().nth(SHOWN_CHARS) {
            Some((end, _)) => write!(f, "{:?}...", &self.0[..end]),
            None => write!(f, "{:?}", self.0),
        }
    }
}

/// `, element N`, or nothing.
struct Index(Option<usize>);

impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(i) => write!(f, ", element {i},"),
            None => Ok(()),
        }
    }
}

/// The first four bytes of a file, escaped.
struct Magic([u8; 4]);

impl fmt::Display for Magic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

/// What a file with this beginning most likely is.
fn hint(found: &[u8; 4]) -> &'static str {
    match found {
        b"lmgg" | b"fmgg" | b"tjgg" | b"algg" => " (an older ggml format; convert the model again)",
        b"vers" => " (a Git LFS pointer? fetch the file itself)",
        b"<!DO" | b"<htm" | b"<!do" => " (a web page; download the file itself)",
        b"PK\x03\x04" => " (a zip archive or PyTorch checkpoint; convert it to GGUF)",
        _ => "",
    }
}
