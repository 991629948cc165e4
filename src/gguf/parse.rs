//! From bytes to metadata and a checked tensor directory.
//!
//! Layout of a file (GGUF specification, versions 2 and 3, which are equal for little-endian
//! files):
//!
//! ```text
//! "GGUF" version:u32 tensors:u64 pairs:u64
//! pairs   x { key:string type:u32 value }
//! tensors x { name:string dims:u32 size:u64 x dims type:u32 offset:u64 }
//! padding to the alignment
//! data, every tensor at its offset from here
//! ```
//!
//! No count is believed: each is compared with the bytes that remain, at the fewest bytes its
//! items can take, before memory is set aside. Memory therefore stays within a small multiple
//! of the file's size, and [`limits`] bounds it for files that are large.

use super::TensorInfo;
use super::cursor::{Cursor, Flaw};
use super::error::{Fault, GgufError, Origin, Place};
use super::metadata::Metadata;
use super::strings::Strings;
use super::value::{Array, Value, id, least_bytes};
use std::path::Path;
use std::sync::Arc;

/// Bounds on what a header may hold, far above what any real model does.
pub(super) mod limits {
    /// Metadata pairs; real models have some 20 to 80.
    pub const PAIRS: u64 = 1 << 16;
    /// Tensors in one file; the largest models have a few thousand.
    pub const TENSORS: u64 = 1 << 20;
    /// Bytes in a key, from the specification.
    pub const KEY_BYTES: u64 = (1 << 16) - 1;
    /// Bytes in a tensor's name, from the specification.
    pub const NAME_BYTES: u64 = 64;
    /// Bytes in one string value; chat templates take some 20 KB.
    pub const STRING_BYTES: u64 = 1 << 26;
    /// Array elements in all of one file; a vocabulary of 262144 with scores, types and merges
    /// has 1.3 million.
    pub const ELEMENTS: u64 = 1 << 24;
    /// Depth of arrays in arrays.
    pub const NESTING: u32 = 4;
    /// Alignment of tensor data: a huge page.
    pub const ALIGNMENT: u32 = 1 << 21;
    /// Items for which memory is set aside on a count's word; more grow as they are read.
    pub const RESERVE: u64 = 1 << 12;
}

/// Alignment of tensor data where the file does not say.
pub(super) const DEFAULT_ALIGNMENT: u32 = 32;
/// The key that says it.
pub(super) const ALIGNMENT_KEY: &str = "general.alignment";

/// A parsed header.
#[derive(Debug)]
pub(super) struct Header {
    pub version: u32,
    pub metadata: Metadata,
    pub tensors: Vec<TensorInfo>,
}

/// Parses and checks the header of `bytes`, all bytes of `file`.
pub(super) fn parse(file: &Arc<Path>, bytes: &[u8]) -> Result<Header, GgufError> {
    parse_start(file, bytes, bytes.len() as u64)
}

/// As [`parse`], for the first `bytes` of a file of `file_bytes`.
pub(super) fn parse_start(
    file: &Arc<Path>,
    bytes: &[u8],
    file_bytes: u64,
) -> Result<Header, GgufError> {
    Parser {
        file,
        cursor: Cursor::new(bytes),
        elements: 0,
    }
    .header(file_bytes)
}

/// Reads one file's header from front to back.
pub(super) struct Parser<'a> {
    file: &'a Arc<Path>,
    pub(super) cursor: Cursor<'a>,
    /// Array elements read so far.
    elements: u64,
}

impl Parser<'_> {
    fn header(mut self, file_bytes: u64) -> Result<Header, GgufError> {
        let (version, n_tensors, n_pairs) = self
            .preamble()
            .map_err(|flaw| self.error(flaw, Place::Header))?;
        let metadata = self.metadata(n_pairs)?;
        let alignment = self.alignment(&metadata)?;
        let mut tensors = self.directory(n_tensors)?;
        let start = self.cursor.pos().next_multiple_of(alignment.into());
        self.place(&mut tensors, start, alignment, file_bytes)?;
        Ok(Header {
            version,
            metadata,
            tensors,
        })
    }

    /// Magic, version, and the counts of tensors and pairs.
    fn preamble(&mut self) -> Result<(u32, u64, u64), Flaw> {
        if self.cursor.left() == 0 {
            return Err(Cursor::flaw(0, Fault::Empty));
        }
        let magic = self.cursor.array::<4>("the magic")?;
        if magic != *b"GGUF" && magic != *b"FUGG" {
            return Err(Cursor::flaw(0, Fault::Magic { found: magic }));
        }
        let at = self.cursor.pos();
        let version = self.cursor.u32("the version")?;
        let swapped = version.swap_bytes();
        if magic == *b"FUGG" || (1..=0xFF).contains(&swapped) {
            return Err(Cursor::flaw(at, Fault::BigEndian { version: swapped }));
        }
        if !(2..=3).contains(&version) {
            return Err(Cursor::flaw(at, Fault::Version(version)));
        }
        let tensors_at = self.cursor.pos();
        let n_tensors = self.cursor.u64("the tensor count")?;
        let pairs_at = self.cursor.pos();
        let n_pairs = self.cursor.u64("the metadata count")?;
        // The least a pair takes: length of the key, type, a value of one byte. The least a
        // tensor takes: length of the name, number of dimensions, type, offset. Empty names
        // are refused when they are met.
        self.count(
            "metadata pairs",
            n_pairs,
            8 + 4 + 1,
            limits::PAIRS,
            pairs_at,
        )?;
        self.count(
            "tensors",
            n_tensors,
            8 + 4 + 4 + 8,
            limits::TENSORS,
            tensors_at,
        )?;
        Ok((version, n_tensors, n_pairs))
    }

    /// Checks that `count` items of at least `least` bytes can follow.
    fn count(
        &self,
        what: &'static str,
        count: u64,
        least: u64,
        limit: u64,
        at: u64,
    ) -> Result<(), Flaw> {
        let left = self.cursor.left();
        if count.checked_mul(least).is_none_or(|needed| needed > left) {
            return Err(Cursor::flaw(at, Fault::Count { what, count, left }));
        }
        if count > limit {
            return Err(Cursor::flaw(at, Fault::Limit { what, count, limit }));
        }
        Ok(())
    }

    fn metadata(&mut self, n_pairs: u64) -> Result<Metadata, GgufError> {
        let mut metadata = Metadata::new(self.file);
        for i in 0..n_pairs {
            let at = self.cursor.pos();
            let key = self
                .key()
                .map_err(|flaw| self.error(flaw, Place::Pair(i)))?;
            if let Some(Origin::File(first)) = metadata.origin(&key) {
                let flaw = Cursor::flaw(at, Fault::KeyDuplicate { first });
                return Err(self.error(flaw, Place::Key(key.into())));
            }
            let value = self.value().map_err(|flaw| match flaw.element {
                Some(index) => self.error(flaw, Place::Element(key.as_str().into(), index)),
                None => self.error(flaw, Place::Key(key.as_str().into())),
            })?;
            metadata.set_from(key, value, Origin::File(at));
        }
        Ok(metadata)
    }

    fn key(&mut self) -> Result<String, Flaw> {
        let at = self.cursor.pos();
        let key = self.cursor.string("the key", limits::KEY_BYTES)?;
        if key.is_empty() {
            return Err(Cursor::flaw(at, Fault::KeyEmpty));
        }
        if key.contains('\0') {
            return Err(Cursor::flaw(at, Fault::KeyNul));
        }
        Ok(key)
    }

    fn value(&mut self) -> Result<Value, Flaw> {
        const WHAT: &str = "the value";
        let at = self.cursor.pos();
        let type_id = self.cursor.u32("the value type")?;
        let cursor = &mut self.cursor;
        Ok(match type_id {
            id::U8 => Value::U8(u8::from_le_bytes(cursor.array(WHAT)?)),
            id::I8 => Value::I8(i8::from_le_bytes(cursor.array(WHAT)?)),
            id::U16 => Value::U16(u16::from_le_bytes(cursor.array(WHAT)?)),
            id::I16 => Value::I16(i16::from_le_bytes(cursor.array(WHAT)?)),
            id::U32 => Value::U32(u32::from_le_bytes(cursor.array(WHAT)?)),
            id::I32 => Value::I32(i32::from_le_bytes(cursor.array(WHAT)?)),
            id::F32 => Value::F32(f32::from_le_bytes(cursor.array(WHAT)?)),
            id::U64 => Value::U64(u64::from_le_bytes(cursor.array(WHAT)?)),
            id::I64 => Value::I64(i64::from_le_bytes(cursor.array(WHAT)?)),
            id::F64 => Value::F64(f64::from_le_bytes(cursor.array(WHAT)?)),
            id::BOOL => {
                let at = cursor.pos();
                let [byte] = cursor.array(WHAT)?;
                Value::Bool(bool_of(byte).map_err(|fault| Cursor::flaw(at, fault))?)
            }
            id::STRING => Value::String(cursor.string(WHAT, limits::STRING_BYTES)?),
            id::ARRAY => Value::Array(self.array(1)?),
            unknown => return Err(Cursor::flaw(at, Fault::ValueType(unknown))),
        })
    }

    /// An array's element type, count and elements; `depth` arrays deep.
    fn array(&mut self, depth: u32) -> Result<Array, Flaw> {
        let at = self.cursor.pos();
        if depth > limits::NESTING {
            return Err(Cursor::flaw(
                at,
                Fault::Nesting {
                    limit: limits::NESTING,
                },
            ));
        }
        let type_id = self.cursor.u32("the element type")?;
        let least =
            least_bytes(type_id).ok_or_else(|| Cursor::flaw(at, Fault::ElementType(type_id)))?;
        let count_at = self.cursor.pos();
        let count = self.cursor.u64("the array count")?;
        self.count("array elements", count, least, u64::MAX, count_at)?;
        self.elements += count; // both are below the file's size
        if self.elements > limits::ELEMENTS {
            let (count, limit) = (self.elements, limits::ELEMENTS);
            let fault = Fault::Limit {
                what: "array elements in one file",
                count,
                limit,
            };
            return Err(Cursor::flaw(count_at, fault));
        }
        Ok(match type_id {
            id::STRING => Array::String(self.strings(count)?),
            id::ARRAY => Array::Nested(self.items(count, |parser| parser.array(depth + 1))?),
            id::BOOL => Array::Bool(self.items(count, |parser| {
                let at = parser.cursor.pos();
                let [byte] = parser.cursor.array("the bool")?;
                bool_of(byte).map_err(|fault| Cursor::flaw(at, fault))
            })?),
            id::U8 => Array::U8(self.numbers(count, u8::from_le_bytes)?),
            id::I8 => Array::I8(self.numbers(count, i8::from_le_bytes)?),
            id::U16 => Array::U16(self.numbers(count, u16::from_le_bytes)?),
            id::I16 => Array::I16(self.numbers(count, i16::from_le_bytes)?),
            id::U32 => Array::U32(self.numbers(count, u32::from_le_bytes)?),
            id::I32 => Array::I32(self.numbers(count, i32::from_le_bytes)?),
            id::F32 => Array::F32(self.numbers(count, f32::from_le_bytes)?),
            id::U64 => Array::U64(self.numbers(count, u64::from_le_bytes)?),
            id::I64 => Array::I64(self.numbers(count, i64::from_le_bytes)?),
            id::F64 => Array::F64(self.numbers(count, f64::from_le_bytes)?),
            // `least_bytes` knows the same types.
            unknown => return Err(Cursor::flaw(at, Fault::ElementType(unknown))),
        })
    }

    /// `count` numbers of `N` bytes; the count is already known to fit.
    fn numbers<T, const N: usize>(
        &mut self,
        count: u64,
        convert: impl Fn([u8; N]) -> T,
    ) -> Result<Vec<T>, Flaw> {
        let bytes = self.cursor.take(count * N as u64, "the array")?;
        Ok(bytes
            .as_chunks::<N>()
            .0
            .iter()
            .map(|&chunk| convert(chunk))
            .collect())
    }

    /// `count` strings.
    fn strings(&mut self, count: u64) -> Result<Strings, Flaw> {
        let (present, bytes) = self.strings_ahead(count);
        let mut strings = Strings::with_capacity(present, bytes);
        let mut copy = Vec::new();
        for i in 0..count {
            self.string_to(&mut strings, &mut copy)
                .map_err(|flaw| Flaw {
                    element: Some(i),
                    ..flaw
                })?;
        }
        Ok(strings)
    }

    /// How many of `count` strings are there, up to the first that is cut off or too long, and
    /// their bytes: for so many, memory is set aside at once.
    fn strings_ahead(&self, count: u64) -> (usize, usize) {
        let mut cursor = self.cursor.clone();
        let (mut present, mut bytes) = (0, 0);
        for _ in 0..count {
            let Ok(text) = cursor.string_bytes("the string", limits::STRING_BYTES) else {
                break;
            };
            present += 1;
            bytes += text.len();
        }
        (present, bytes.min(Strings::MOST_BYTES))
    }

    /// The next string, added to `strings`; `copy` is memory to check it in.
    fn string_to(&mut self, strings: &mut Strings, copy: &mut Vec<u8>) -> Result<(), Flaw> {
        let at = self.cursor.pos();
        let text = self
            .cursor
            .string_in("the string", limits::STRING_BYTES, copy)?;
        let (count, limit) = (strings.bytes() + text.len(), Strings::MOST_BYTES);
        if count > limit {
            let fault = Fault::Limit {
                what: "bytes in one array of strings",
                count: count as u64,
                limit: limit as u64,
            };
            return Err(Cursor::flaw(at, fault));
        }
        strings.push(text);
        Ok(())
    }

    /// `count` elements of varying size.
    fn items<T>(
        &mut self,
        count: u64,
        read: impl Fn(&mut Self) -> Result<T, Flaw>,
    ) -> Result<Vec<T>, Flaw> {
        let mut items = Vec::with_capacity(count.min(limits::RESERVE) as usize);
        for i in 0..count {
            // Of nested arrays, the outermost element is named.
            items.push(read(self).map_err(|flaw| Flaw {
                element: Some(i),
                ..flaw
            })?);
        }
        Ok(items)
    }

    fn alignment(&self, metadata: &Metadata) -> Result<u32, GgufError> {
        let (Some(value), Some(Origin::File(at))) =
            (metadata.get(ALIGNMENT_KEY), metadata.origin(ALIGNMENT_KEY))
        else {
            return Ok(DEFAULT_ALIGNMENT);
        };
        let fault = match *value {
            Value::U32(value) if value.is_power_of_two() && value <= limits::ALIGNMENT => {
                return Ok(value);
            }
            Value::U32(value) => Fault::Alignment {
                value,
                limit: limits::ALIGNMENT,
            },
            ref other => Fault::AlignmentType {
                found: other.type_name(),
            },
        };
        Err(self.error(Cursor::flaw(at, fault), Place::Key(ALIGNMENT_KEY.into())))
    }

    pub(super) fn error(&self, flaw: Flaw, place: Place) -> GgufError {
        GgufError::Malformed {
            file: self.file.clone(),
            place,
            offset: flaw.offset,
            fault: flaw.fault,
        }
    }
}

fn bool_of(byte: u8) -> Result<bool, Fault> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(Fault::Bool(other)),
    }
}
