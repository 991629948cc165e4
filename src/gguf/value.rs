//! Metadata values: GGUF's twelve scalar types and arrays of them.
//!
//! Type ids follow the GGUF specification's `gguf_metadata_value_type`.

use super::strings::Strings;

/// A metadata value, as the file (or an override) types it.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // a variant's name is its type
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(String),
    Array(Array),
    U64(u64),
    I64(i64),
    F64(f64),
}

/// A metadata array: one type for all elements. Arrays of arrays may mix what they hold.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // a variant's name is its element type
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    F32(Vec<f32>),
    Bool(Vec<bool>),
    String(Strings),
    Nested(Vec<Array>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F64(Vec<f64>),
}

/// Type ids as stored in files.
pub(super) mod id {
    pub const U8: u32 = 0;
    pub const I8: u32 = 1;
    pub const U16: u32 = 2;
    pub const I16: u32 = 3;
    pub const U32: u32 = 4;
    pub const I32: u32 = 5;
    pub const F32: u32 = 6;
    pub const BOOL: u32 = 7;
    pub const STRING: u32 = 8;
    pub const ARRAY: u32 = 9;
    pub const U64: u32 = 10;
    pub const I64: u32 = 11;
    pub const F64: u32 = 12;
}

/// The fewest bytes one value of this type takes in a file; `None` for an unknown type.
pub(super) const fn least_bytes(type_id: u32) -> Option<u64> {
    Some(match type_id {
        id::U8 | id::I8 | id::BOOL => 1,
        id::U16 | id::I16 => 2,
        id::U32 | id::I32 | id::F32 => 4,
        id::STRING | id::U64 | id::I64 | id::F64 => 8,
        id::ARRAY => 12,
        _ => return None,
    })
}

impl Value {
    /// The type's name, such as `u32`, `string` or `array of f32`.
    pub const fn type_name(&self) -> &'static str {
        match self {
            Value::U8(_) => "u8",
            Value::I8(_) => "i8",
            Value::U16(_) => "u16",
            Value::I16(_) => "i16",
            Value::U32(_) => "u32",
            Value::I32(_) => "i32",
            Value::F32(_) => "f32",
            Value::Bool(_) => "bool",
            Value::String(_) => "string",
            Value::Array(array) => array.type_name(),
            Value::U64(_) => "u64",
            Value::I64(_) => "i64",
            Value::F64(_) => "f64",
        }
    }

    /// The value of any integer type; `None` for the others. Every GGUF integer fits `i128`.
    pub fn as_integer(&self) -> Option<i128> {
        Some(match *self {
            Value::U8(v) => v.into(),
            Value::I8(v) => v.into(),
            Value::U16(v) => v.into(),
            Value::I16(v) => v.into(),
            Value::U32(v) => v.into(),
            Value::I32(v) => v.into(),
            Value::U64(v) => v.into(),
            Value::I64(v) => v.into(),
            _ => return None,
        })
    }

    /// The type's id in a file.
    pub(super) const fn type_id(&self) -> u32 {
        match self {
            Value::U8(_) => id::U8,
            Value::I8(_) => id::I8,
            Value::U16(_) => id::U16,
            Value::I16(_) => id::I16,
            Value::U32(_) => id::U32,
            Value::I32(_) => id::I32,
            Value::F32(_) => id::F32,
            Value::Bool(_) => id::BOOL,
            Value::String(_) => id::STRING,
            Value::Array(_) => id::ARRAY,
            Value::U64(_) => id::U64,
            Value::I64(_) => id::I64,
            Value::F64(_) => id::F64,
        }
    }
}

impl Array {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Array::U8(v) => v.len(),
            Array::I8(v) => v.len(),
            Array::U16(v) => v.len(),
            Array::I16(v) => v.len(),
            Array::U32(v) => v.len(),
            Array::I32(v) => v.len(),
            Array::F32(v) => v.len(),
            Array::Bool(v) => v.len(),
            Array::String(v) => v.len(),
            Array::Nested(v) => v.len(),
            Array::U64(v) => v.len(),
            Array::I64(v) => v.len(),
            Array::F64(v) => v.len(),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The type's name, such as `array of f32`.
    pub const fn type_name(&self) -> &'static str {
        match self {
            Array::U8(_) => "array of u8",
            Array::I8(_) => "array of i8",
            Array::U16(_) => "array of u16",
            Array::I16(_) => "array of i16",
            Array::U32(_) => "array of u32",
            Array::I32(_) => "array of i32",
            Array::F32(_) => "array of f32",
            Array::Bool(_) => "array of bool",
            Array::String(_) => "array of string",
            Array::Nested(_) => "array of arrays",
            Array::U64(_) => "array of u64",
            Array::I64(_) => "array of i64",
            Array::F64(_) => "array of f64",
        }
    }

    /// The elements converted to `T` when this is an integer array: `None` for another type,
    /// `Some(Err((index, value)))` for the first element that does not fit.
    pub(super) fn integers<T: TryFrom<i128>>(&self) -> Option<Result<Vec<T>, (usize, i128)>> {
        fn convert<S: Copy + Into<i128>, T: TryFrom<i128>>(
            from: &[S],
        ) -> Result<Vec<T>, (usize, i128)> {
            let fits = |(i, &v): (usize, &S)| T::try_from(v.into()).map_err(|_| (i, v.into()));
            from.iter().enumerate().map(fits).collect()
        }
        Some(match self {
            Array::U8(v) => convert(v),
            Array::I8(v) => convert(v),
            Array::U16(v) => convert(v),
            Array::I16(v) => convert(v),
            Array::U32(v) => convert(v),
            Array::I32(v) => convert(v),
            Array::U64(v) => convert(v),
            Array::I64(v) => convert(v),
            _ => return None,
        })
    }

    /// The element type's id in a file.
    pub(super) const fn element_id(&self) -> u32 {
        match self {
            Array::U8(_) => id::U8,
            Array::I8(_) => id::I8,
            Array::U16(_) => id::U16,
            Array::I16(_) => id::I16,
            Array::U32(_) => id::U32,
            Array::I32(_) => id::I32,
            Array::F32(_) => id::F32,
            Array::Bool(_) => id::BOOL,
            Array::String(_) => id::STRING,
            Array::Nested(_) => id::ARRAY,
            Array::U64(_) => id::U64,
            Array::I64(_) => id::I64,
            Array::F64(_) => id::F64,
        }
    }
}

macro_rules! from_rust {
    ($($variant:ident: $scalar:ty),*) => {$(
        impl From<$scalar> for Value {
            fn from(v: $scalar) -> Value {
                Value::$variant(v)
            }
        }
        impl From<Vec<$scalar>> for Value {
            fn from(v: Vec<$scalar>) -> Value {
                Value::Array(Array::$variant(v))
            }
        }
    )*};
}
from_rust!(U8: u8, I8: i8, U16: u16, I16: i16, U32: u32, I32: i32, F32: f32, Bool: bool,
    U64: u64, I64: i64, F64: f64);

impl From<&str> for Value {
    fn from(v: &str) -> Value {
        Value::String(v.to_owned())
    }
}

impl From<String> for Value {
    fn from(v: String) -> Value {
        Value::String(v)
    }
}

impl From<Strings> for Value {
    fn from(v: Strings) -> Value {
        Value::Array(Array::String(v))
    }
}

impl From<Vec<&str>> for Value {
    fn from(v: Vec<&str>) -> Value {
        Strings::from_iter(v).into()
    }
}

impl From<Vec<String>> for Value {
    fn from(v: Vec<String>) -> Value {
        Strings::from_iter(v).into()
    }
}
