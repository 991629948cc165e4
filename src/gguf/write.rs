//! Writes GGUF files (version 3, little-endian) to anything that takes bytes.
//!
//! Metadata and the tensor directory are declared first, since the header needs every size;
//! then the data is streamed, so that no file has to fit memory.
//!
//! ```
//! use emel::gguf::{TensorType, write::GgufWriter};
//!
//! let mut writer = GgufWriter::new();
//! writer.set("general.architecture", "llama");
//! writer.tensor("output_norm.weight", &[2], TensorType::F32);
//! let mut stream = writer.begin(Vec::new())?;
//! stream.data(&1.0f32.to_le_bytes())?; // a tensor may come in pieces
//! stream.data(&2.0f32.to_le_bytes())?;
//! let bytes = stream.finish()?;
//! assert_eq!(&bytes[..4], b"GGUF");
//! # Ok::<(), emel::gguf::write::WriteError>(())
//! ```

use super::directory::size_of_shape;
use super::metadata::Metadata;
use super::parse::{ALIGNMENT_KEY, DEFAULT_ALIGNMENT, parse_start};
use super::{Array, GgufError, TensorType, Value};
use std::io::{self, Read, Write};
use std::path::Path;

/// Why a file could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// A reader would refuse what was declared, for this reason.
    #[error("what was declared cannot be written: {0}")]
    Invalid(#[source] GgufError),
    /// More data came than was declared.
    #[error("{extra} bytes of data more than the declared tensors take")]
    TooMuch {
        /// Bytes too many.
        extra: u64,
    },
    /// The stream was finished before all data had come.
    #[error("tensor {tensor:?} still needs {needed} bytes of data")]
    TooLittle {
        /// The first tensor that is not complete.
        tensor: String,
        /// Bytes it still needs.
        needed: u64,
    },
    /// The output refused bytes.
    #[error("cannot write the model: {0}")]
    Io(#[from] io::Error),
}

/// A file being declared: metadata pairs and tensors, each in order.
#[derive(Clone, Debug)]
pub struct GgufWriter {
    metadata: Metadata,
    tensors: Vec<Declared>,
}

#[derive(Clone, Debug)]
struct Declared {
    name: String,
    shape: Vec<u64>,
    ty: TensorType,
}

impl Default for GgufWriter {
    fn default() -> GgufWriter {
        GgufWriter::new()
    }
}

impl GgufWriter {
    /// A file with nothing in it.
    pub fn new() -> GgufWriter {
        GgufWriter {
            metadata: Metadata::new(Path::new("")),
            tensors: Vec::new(),
        }
    }

    /// Sets a metadata pair; a key that is set again keeps its place. `general.alignment`
    /// (`u32`) sets the alignment of the data, else 32.
    pub fn set(&mut self, key: impl Into<String>, value: impl Into<Value>) -> &mut GgufWriter {
        self.metadata.set(key, value);
        self
    }

    /// Declares the next tensor; `shape[0]` is the row length.
    pub fn tensor(
        &mut self,
        name: impl Into<String>,
        shape: &[u64],
        ty: TensorType,
    ) -> &mut GgufWriter {
        self.tensors.push(Declared {
            name: name.into(),
            shape: shape.to_vec(),
            ty,
        });
        self
    }

    /// Checks all that was declared with the reader's own eyes, writes the header, and gives
    /// the stream that takes the tensors' data.
    ///
    /// # Errors
    /// [`WriteError::Invalid`] before any byte is written; [`WriteError::Io`] from `out`.
    pub fn begin<W: Write>(self, mut out: W) -> Result<DataStream<W>, WriteError> {
        let alignment = match self.metadata.get(ALIGNMENT_KEY) {
            Some(&Value::U32(value @ 1..)) => value.into(),
            _ => u64::from(DEFAULT_ALIGNMENT), // or wrong, which the check below finds
        };
        let mut header = self.header();
        let mut sizes = Vec::with_capacity(self.tensors.len());
        let mut offset = 0u64;
        let mut end = 0u64;
        for tensor in self.tensors {
            tensor.push_entry(offset, &mut header);
            // Sizes without a value, and sums that would wrap, do not pass the check below.
            let size = size_of_shape(&tensor.shape, tensor.ty).unwrap_or(0);
            end = offset.saturating_add(size);
            offset = end.checked_next_multiple_of(alignment).unwrap_or(u64::MAX);
            sizes.push((tensor.name, size));
        }
        let header_bytes = header.len() as u64;
        let start = header_bytes.next_multiple_of(alignment);
        let file = Path::new("output").into();
        parse_start(&file, &header, start.saturating_add(end)).map_err(WriteError::Invalid)?;
        out.write_all(&header)?;
        if !sizes.is_empty() {
            pad(&mut out, start - header_bytes)?;
        }
        Ok(DataStream {
            out,
            alignment,
            tensors: sizes.into_iter(),
            current: None,
        })
    }

    /// Writes the whole file with data made by `fill`, which is called for every tensor in
    /// order with its name and its size in bytes.
    ///
    /// # Errors
    /// As [`GgufWriter::begin`], and when `fill` gives too many or too few bytes.
    pub fn write_with<W: Write>(
        self,
        out: W,
        mut fill: impl FnMut(&str, u64) -> Vec<u8>,
    ) -> Result<W, WriteError> {
        let mut stream = self.begin(out)?;
        while let Some(Coming { name, needed, .. }) = stream.coming() {
            let (size, data) = (*needed, fill(name, *needed));
            let len = data.len() as u64;
            if len < size {
                return Err(WriteError::TooLittle {
                    tensor: name.clone(),
                    needed: size - len,
                });
            }
            if len > size {
                return Err(WriteError::TooMuch { extra: len - size });
            }
            stream.data(&data)?;
        }
        stream.finish()
    }

    /// Magic, version, counts and metadata.
    fn header(&self) -> Vec<u8> {
        let mut header = Vec::from(b"GGUF");
        header.extend(3u32.to_le_bytes());
        header.extend((self.tensors.len() as u64).to_le_bytes());
        header.extend((self.metadata.len() as u64).to_le_bytes());
        for (key, value) in self.metadata.iter() {
            push_string(key, &mut header);
            header.extend(value.type_id().to_le_bytes());
            push_value(value, &mut header);
        }
        header
    }
}

impl Declared {
    fn push_entry(&self, offset: u64, out: &mut Vec<u8>) {
        push_string(&self.name, out);
        out.extend((self.shape.len() as u32).to_le_bytes());
        for size in &self.shape {
            out.extend(size.to_le_bytes());
        }
        out.extend(self.ty.id().to_le_bytes());
        out.extend(offset.to_le_bytes());
    }
}

/// Takes the data of the declared tensors, one after another, and pads between them.
#[derive(Debug)]
#[must_use = "the file is complete only after `finish`"]
pub struct DataStream<W> {
    out: W,
    alignment: u64,
    /// Tensors whose data has not begun.
    tensors: std::vec::IntoIter<(String, u64)>,
    /// The tensor whose data is coming.
    current: Option<Coming>,
}

#[derive(Debug)]
struct Coming {
    name: String,
    /// Bytes still to come.
    needed: u64,
    /// Zero bytes that follow them.
    padding: u64,
}

impl<W: Write> DataStream<W> {
    /// Appends data, which may be part of a tensor or reach over several.
    ///
    /// # Errors
    /// [`WriteError::TooMuch`] past the last tensor; [`WriteError::Io`].
    pub fn data(&mut self, mut bytes: &[u8]) -> Result<(), WriteError> {
        while !bytes.is_empty() {
            let Some(coming) = self.coming() else {
                return Err(WriteError::TooMuch {
                    extra: bytes.len() as u64,
                });
            };
            let count = coming.needed.min(bytes.len() as u64);
            coming.needed -= count;
            let done = (coming.needed == 0).then_some(coming.padding);
            let (now, later) = bytes.split_at(count as usize);
            self.out.write_all(now)?;
            if let Some(padding) = done {
                pad(&mut self.out, padding)?;
                self.current = None;
            }
            bytes = later;
        }
        Ok(())
    }

    /// The tensor that takes the next byte.
    fn coming(&mut self) -> Option<&mut Coming> {
        if self.current.is_none() {
            let (name, needed) = self.tensors.next()?;
            let padding = needed.next_multiple_of(self.alignment) - needed;
            self.current = Some(Coming {
                name,
                needed,
                padding,
            });
        }
        self.current.as_mut()
    }

    /// Flushes and gives the output back.
    ///
    /// # Errors
    /// [`WriteError::TooLittle`] when data is missing; [`WriteError::Io`].
    pub fn finish(mut self) -> Result<W, WriteError> {
        if let Some(Coming { name, needed, .. }) = self.coming() {
            return Err(WriteError::TooLittle {
                tensor: name.clone(),
                needed: *needed,
            });
        }
        self.out.flush()?;
        Ok(self.out)
    }
}

/// Writes zero bytes.
fn pad(out: &mut impl Write, count: u64) -> io::Result<()> {
    io::copy(&mut io::repeat(0).take(count), out).map(|_| ())
}

fn push_string(text: &str, out: &mut Vec<u8>) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

fn push_value(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::U8(v) => out.push(*v),
        Value::I8(v) => out.extend(v.to_le_bytes()),
        Value::U16(v) => out.extend(v.to_le_bytes()),
        Value::I16(v) => out.extend(v.to_le_bytes()),
        Value::U32(v) => out.extend(v.to_le_bytes()),
        Value::I32(v) => out.extend(v.to_le_bytes()),
        Value::F32(v) => out.extend(v.to_le_bytes()),
        Value::Bool(v) => out.push((*v).into()),
        Value::String(v) => push_string(v, out),
        Value::Array(v) => push_array(v, out),
        Value::U64(v) => out.extend(v.to_le_bytes()),
        Value::I64(v) => out.extend(v.to_le_bytes()),
        Value::F64(v) => out.extend(v.to_le_bytes()),
    }
}

fn push_array(array: &Array, out: &mut Vec<u8>) {
    out.extend(array.element_id().to_le_bytes());
    out.extend((array.len() as u64).to_le_bytes());
    match array {
        Array::U8(v) => out.extend(v),
        Array::I8(v) => out.extend(v.iter().flat_map(|v| v.to_le_bytes())),
        Array::U16(v) => out.extend(v.iter().flat_map(|v| v.to_le_bytes())),
        Array::I16(v) => out.extend(v.iter().flat_map(|v| v.to_le_bytes())),
        Array::U32(v) => out.extend(v.iter().flat_map(|v| v.to_le_bytes())),
        Array::I32(v) => out.extend(v.iter().flat_map(|v| v.to_le_bytes())),
        Array::F32(v) => out.extend(v.iter().flat_map(|v| v.to_le_bytes())),
        Array::Bool(v) => out.extend(v.iter().map(|&v| u8::from(v))),
        Array::String(v) => v.iter().for_each(|text| push_string(text, out)),
        Array::Nested(v) => v.iter().for_each(|inner| push_array(inner, out)),
        Array::U64(v) => out.extend(v.iter().flat_map(|v| v.to_le_bytes())),
        Array::I64(v) => out.extend(v.iter().flat_map(|v| v.to_le_bytes())),
        Array::F64(v) => out.extend(v.iter().flat_map(|v| v.to_le_bytes())),
    }
}
