//! Tests of the container: one for each class of malformed file, and whole files.

mod arrays;
mod directory;
mod files;
mod getters;
mod header;
mod keys;
mod placement;
mod real;
mod splits;
mod writer;

use super::parse::{self, Header};
use super::{Fault, GgufError, Place};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::{TempDir, tempdir};

/// Bytes of a file, put down one after another, right or wrong.
#[derive(Clone, Default)]
struct Raw(Vec<u8>);

impl Raw {
    /// A version 3 header with these counts.
    fn header(tensors: u64, pairs: u64) -> Raw {
        Raw(b"GGUF".to_vec()).u32(3).u64(tensors).u64(pairs)
    }

    fn u32(self, value: u32) -> Raw {
        self.bytes(&value.to_le_bytes())
    }

    fn u64(self, value: u64) -> Raw {
        self.bytes(&value.to_le_bytes())
    }

    fn bytes(mut self, bytes: &[u8]) -> Raw {
        self.0.extend(bytes);
        self
    }

    fn string(self, text: &str) -> Raw {
        self.u64(text.len() as u64).bytes(text.as_bytes())
    }

    /// A key and the type of its value.
    fn key(self, key: &str, value_type: u32) -> Raw {
        self.string(key).u32(value_type)
    }

    /// A directory entry.
    fn tensor(self, name: &str, shape: &[u64], type_id: u32, offset: u64) -> Raw {
        let raw = self.string(name).u32(shape.len() as u32);
        let raw = shape.iter().fold(raw, |raw, &size| raw.u64(size));
        raw.u32(type_id).u64(offset)
    }

    /// Zero bytes up to a multiple of `alignment`, then `count` more.
    fn data(mut self, alignment: usize, count: usize) -> Raw {
        let start = self.0.len().next_multiple_of(alignment);
        self.0.resize(start + count, 0);
        self
    }

    /// Bytes enough that no count is refused for want of them.
    fn filler(self) -> Raw {
        self.bytes(&[0; 4096])
    }

    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn parse(&self) -> Result<Header, GgufError> {
        let file: Arc<Path> = Path::new("some.gguf").into();
        parse::parse(&file, &self.0)
    }

    /// Asserts that parsing fails with just this, and that the message names file, place and
    /// offset.
    #[track_caller]
    fn fails(&self, at: Place, byte: u64, why: Fault) {
        let error = self
            .parse()
            .map(|_| "parsed")
            .expect_err("the file is malformed");
        let text = error.to_string();
        let GgufError::Malformed {
            file,
            place,
            offset,
            fault,
        } = error
        else {
            panic!("another class: {text}");
        };
        assert_eq!((&place, offset, &fault), (&at, byte, &why), "{text}");
        assert_eq!(&*file, Path::new("some.gguf"));
        assert_eq!(text, format!("some.gguf: {at}, byte {byte}: {why}"));
    }
}

fn key(key: &str) -> Place {
    Place::Key(key.into())
}

fn tensor(name: &str) -> Place {
    Place::Tensor(name.into())
}

/// A directory of its own that goes away with the test.
struct Folder(TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, bytes).unwrap();
        path
    }
}
