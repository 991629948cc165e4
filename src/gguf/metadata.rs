//! The ordered metadata of a model and its typed getters.
//!
//! A getter says `Ok(None)` for an absent key and gives a typed error, naming file, key and
//! offset, for a value of another type or range; it never converts silently.

use super::error::{GgufError, Origin};
use super::strings::Strings;
use super::value::{Array, Value};
use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// Metadata pairs in the order of the file, found by key.
#[derive(Clone, Debug)]
pub struct Metadata {
    file: Arc<Path>,
    entries: Vec<Entry>,
    index: HashMap<String, usize>,
}

#[derive(Clone, Debug)]
struct Entry {
    key: String,
    value: Value,
    origin: Origin,
}

impl Metadata {
    /// No pairs yet; `file` is the name that errors will carry.
    pub fn new(file: &Path) -> Metadata {
        Metadata {
            file: file.into(),
            entries: Vec::new(),
            index: HashMap::new(),
        }
    }

    /// The file the metadata was read from.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Number of pairs.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no pairs.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The value under `key`.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entry(key).map(|entry| &entry.value)
    }

    /// All pairs, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.entries
            .iter()
            .map(|entry| (entry.key.as_str(), &entry.value))
    }

    /// Sets `key`, in place when it is present, else at the end.
    pub fn set(&mut self, key: impl Into<String>, value: impl Into<Value>) {
        self.set_from(key.into(), value.into(), Origin::Given);
    }

    /// Adds a pair read at a place, replacing any of the same key.
    pub(super) fn set_from(&mut self, key: String, value: Value, origin: Origin) {
        match self.index.get(&key) {
            Some(&at) => self.entries[at] = Entry { key, value, origin },
            None => {
                self.index.insert(key.clone(), self.entries.len());
                self.entries.push(Entry { key, value, origin });
            }
        }
    }

    /// Where the value under `key` was read.
    pub(super) fn origin(&self, key: &str) -> Option<Origin> {
        self.entry(key).map(|entry| entry.origin)
    }

    fn entry(&self, key: &str) -> Option<&Entry> {
        self.index.get(key).map(|&at| &self.entries[at])
    }

    /// The integer under `key`, of any integer type that holds a value which fits `u32`.
    pub fn u32(&self, key: &str) -> Result<Option<u32>, GgufError> {
        self.integer(key, "u32")
    }

    /// As [`Metadata::u32`], for `u64`.
    pub fn u64(&self, key: &str) -> Result<Option<u64>, GgufError> {
        self.integer(key, "u64")
    }

    /// As [`Metadata::u32`], for `i32`.
    pub fn i32(&self, key: &str) -> Result<Option<i32>, GgufError> {
        self.integer(key, "i32")
    }

    /// The float under `key`; an `f64` is rounded to `f32`.
    pub fn f32(&self, key: &str) -> Result<Option<f32>, GgufError> {
        self.typed(key, "f32", |value| match *value {
            Value::F32(v) => Some(v),
            Value::F64(v) => Some(v as f32),
            _ => None,
        })
    }

    /// The bool under `key`.
    pub fn bool(&self, key: &str) -> Result<Option<bool>, GgufError> {
        self.typed(key, "bool", |value| match *value {
            Value::Bool(v) => Some(v),
            _ => None,
        })
    }

    /// The string under `key`.
    pub fn str(&self, key: &str) -> Result<Option<&str>, GgufError> {
        self.typed(key, "string", |value| match value {
            Value::String(v) => Some(v.as_str()),
            _ => None,
        })
    }

    /// The array of strings under `key`.
    pub fn strings(&self, key: &str) -> Result<Option<&Strings>, GgufError> {
        self.typed(key, "array of string", |value| match value {
            Value::Array(Array::String(v)) => Some(v),
            _ => None,
        })
    }

    /// The array of bools under `key`.
    pub fn bools(&self, key: &str) -> Result<Option<&[bool]>, GgufError> {
        self.typed(key, "array of bool", |value| match value {
            Value::Array(Array::Bool(v)) => Some(v.as_slice()),
            _ => None,
        })
    }

    /// The array of floats under `key`; `f64` elements are rounded to `f32`.
    pub fn f32s(&self, key: &str) -> Result<Option<Cow<'_, [f32]>>, GgufError> {
        self.typed(key, "array of f32", |value| match value {
            Value::Array(Array::F32(v)) => Some(Cow::Borrowed(v.as_slice())),
            Value::Array(Array::F64(v)) => Some(v.iter().map(|&v| v as f32).collect()),
            _ => None,
        })
    }

    /// The array of integers under `key`, of any integer type whose values all fit `u32`.
    pub fn u32s(&self, key: &str) -> Result<Option<Cow<'_, [u32]>>, GgufError> {
        match self.get(key) {
            Some(Value::Array(Array::U32(v))) => Ok(Some(Cow::Borrowed(v))),
            _ => Ok(self.integers(key, "u32", "array of u32")?.map(Cow::Owned)),
        }
    }

    /// As [`Metadata::u32s`], for `i32`.
    pub fn i32s(&self, key: &str) -> Result<Option<Cow<'_, [i32]>>, GgufError> {
        match self.get(key) {
            Some(Value::Array(Array::I32(v))) => Ok(Some(Cow::Borrowed(v))),
            _ => Ok(self.integers(key, "i32", "array of i32")?.map(Cow::Owned)),
        }
    }

    /// `n` integers, one a layer: a scalar stands for `n` equal ones, an array must hold at
    /// least `n`, of which the first `n` are given.
    pub fn u32_or_array(&self, key: &str, n: usize) -> Result<Option<Vec<u32>>, GgufError> {
        let Some(entry) = self.entry(key) else {
            return Ok(None);
        };
        let Value::Array(array) = &entry.value else {
            let wanted = "u32 or array of u32";
            let value = entry.value.as_integer();
            let value = value.ok_or_else(|| self.wrong_type(entry, wanted))?;
            let value =
                u32::try_from(value).map_err(|_| self.out_of_range(entry, None, value, "u32"))?;
            return Ok(Some(vec![value; n]));
        };
        if array.len() < n {
            return Err(self.too_short(entry, array.len(), n));
        }
        let mut all = self
            .integers(key, "u32", "u32 or array of u32")?
            .unwrap_or_default();
        all.truncate(n);
        Ok(Some(all))
    }

    /// As [`Metadata::u32`]; an absent key is an error.
    pub fn require_u32(&self, key: &str) -> Result<u32, GgufError> {
        self.u32(key)?.ok_or_else(|| self.missing(key))
    }

    /// As [`Metadata::f32`]; an absent key is an error.
    pub fn require_f32(&self, key: &str) -> Result<f32, GgufError> {
        self.f32(key)?.ok_or_else(|| self.missing(key))
    }

    /// As [`Metadata::str`]; an absent key is an error.
    pub fn require_str(&self, key: &str) -> Result<&str, GgufError> {
        self.str(key)?.ok_or_else(|| self.missing(key))
    }

    /// As [`Metadata::strings`]; an absent key is an error.
    pub fn require_strings(&self, key: &str) -> Result<&Strings, GgufError> {
        self.strings(key)?.ok_or_else(|| self.missing(key))
    }

    /// The error for an absent key, for callers with rules of their own.
    pub fn missing(&self, key: &str) -> GgufError {
        GgufError::MissingKey {
            file: self.file.clone(),
            key: key.into(),
        }
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        wanted: &'static str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, GgufError> {
        let Some(entry) = self.entry(key) else {
            return Ok(None);
        };
        read(&entry.value)
            .map(Some)
            .ok_or_else(|| self.wrong_type(entry, wanted))
    }

    fn integer<T: TryFrom<i128>>(
        &self,
        key: &str,
        wanted: &'static str,
    ) -> Result<Option<T>, GgufError> {
        let Some(entry) = self.entry(key) else {
            return Ok(None);
        };
        let value = entry
            .value
            .as_integer()
            .ok_or_else(|| self.wrong_type(entry, wanted))?;
        match T::try_from(value) {
            Ok(v) => Ok(Some(v)),
            Err(_) => Err(self.out_of_range(entry, None, value, wanted)),
        }
    }

    fn integers<T: TryFrom<i128>>(
        &self,
        key: &str,
        element: &'static str,
        wanted: &'static str,
    ) -> Result<Option<Vec<T>>, GgufError> {
        let Some(entry) = self.entry(key) else {
            return Ok(None);
        };
        let converted = match &entry.value {
            Value::Array(array) => array.integers(),
            _ => None,
        };
        match converted {
            Some(Ok(all)) => Ok(Some(all)),
            Some(Err((i, value))) => Err(self.out_of_range(entry, Some(i), value, element)),
            None => Err(self.wrong_type(entry, wanted)),
        }
    }

    fn wrong_type(&self, entry: &Entry, wanted: &'static str) -> GgufError {
        GgufError::WrongType {
            file: self.file.clone(),
            key: entry.key.as_str().into(),
            origin: entry.origin,
            wanted,
            found: entry.value.type_name(),
        }
    }

    fn out_of_range(
        &self,
        entry: &Entry,
        index: Option<usize>,
        value: i128,
        wanted: &'static str,
    ) -> GgufError {
        GgufError::OutOfRange {
            file: self.file.clone(),
            key: entry.key.as_str().into(),
            origin: entry.origin,
            index,
            value,
            wanted,
        }
    }

    fn too_short(&self, entry: &Entry, found: usize, needed: usize) -> GgufError {
        GgufError::ArrayTooShort {
            file: self.file.clone(),
            key: entry.key.as_str().into(),
            origin: entry.origin,
            found,
            needed,
        }
    }
}
