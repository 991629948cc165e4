//! Files that a comparison needs while it runs: logits of whole streams, which would not fit in
//! memory. They lie in one folder of the system's temporary one, which goes when the comparison
//! ends.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A file that cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[error("cannot keep logits in {}: {source}; free some space, or set TMPDIR to another disk", path.display())]
pub struct ScratchError {
    /// The file.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

/// The folder.
#[derive(Debug)]
pub struct Scratch(TempDir);

impl Scratch {
    /// Makes it.
    ///
    /// # Errors
    /// [`ScratchError`].
    pub fn new() -> Result<Self, ScratchError> {
        let made = tempfile::Builder::new().prefix("emel-compare-").tempdir();
        let made = made.map_err(|source| ScratchError {
            path: std::env::temp_dir(),
            source,
        })?;
        Ok(Scratch(made))
    }

    /// A file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

/// A number that is kept as its little-endian bytes.
pub trait Kept: Copy {
    /// Bytes of one.
    const BYTES: usize;
    /// Its bytes, at the end of `out`.
    fn put(self, out: &mut Vec<u8>);
    /// From its bytes.
    fn take(bytes: &[u8]) -> Self;
}

impl Kept for f32 {
    const BYTES: usize = 4;

    fn put(self, out: &mut Vec<u8>) {
        out.extend(self.to_le_bytes());
    }

    fn take(bytes: &[u8]) -> Self {
        f32::from_le_bytes(bytes.try_into().unwrap_or_default())
    }
}

impl Kept for f64 {
    const BYTES: usize = 8;

    fn put(self, out: &mut Vec<u8>) {
        out.extend(self.to_le_bytes());
    }

    fn take(bytes: &[u8]) -> Self {
        f64::from_le_bytes(bytes.try_into().unwrap_or_default())
    }
}

/// All numbers of a file.
///
/// # Errors
/// [`ScratchError`].
pub fn read_all<T: Kept>(path: &Path) -> Result<Vec<T>, ScratchError> {
    let bytes = fs::read(path).map_err(|source| ScratchError {
        path: path.to_owned(),
        source,
    })?;
    Ok(bytes.chunks_exact(T::BYTES).map(T::take).collect())
}

/// Rows of equal width in a file, written one after another and read in any order.
#[derive(Debug)]
pub struct RowStore<T> {
    path: PathBuf,
    file: File,
    width: usize,
    rows: usize,
    kept: std::marker::PhantomData<T>,
}

impl<T: Kept> RowStore<T> {
    /// An empty store of rows of `width` numbers.
    ///
    /// # Errors
    /// [`ScratchError`].
    pub fn create(path: PathBuf, width: usize) -> Result<Self, ScratchError> {
        let mut options = File::options();
        let file = options.read(true).write(true).create(true).truncate(true);
        match file.open(&path) {
            Ok(file) => Ok(RowStore {
                path,
                file,
                width,
                rows: 0,
                kept: std::marker::PhantomData,
            }),
            Err(source) => Err(ScratchError { path, source }),
        }
    }

    /// Rows in it.
    pub fn count(&self) -> usize {
        self.rows
    }

    /// Adds whole rows.
    ///
    /// # Errors
    /// [`ScratchError`].
    pub fn push(&mut self, values: &[T]) -> Result<(), ScratchError> {
        let mut bytes = Vec::with_capacity(values.len() * T::BYTES);
        values.iter().for_each(|value| value.put(&mut bytes));
        let end = self.offset(self.rows);
        let written = self.file.seek(SeekFrom::Start(end));
        let written = written.and_then(|_| self.file.write_all(&bytes));
        written.map_err(|source| self.failed(source))?;
        self.rows += values.len() / self.width.max(1);
        Ok(())
    }

    /// `count` rows from `first` on.
    ///
    /// # Errors
    /// [`ScratchError`].
    pub fn rows(&mut self, first: usize, count: usize) -> Result<Vec<T>, ScratchError> {
        let mut bytes = vec![0; count * self.width * T::BYTES];
        let read = self.file.seek(SeekFrom::Start(self.offset(first)));
        let read = read.and_then(|_| self.file.read_exact(&mut bytes));
        read.map_err(|source| self.failed(source))?;
        Ok(bytes.chunks_exact(T::BYTES).map(T::take).collect())
    }

    fn offset(&self, row: usize) -> u64 {
        (row * self.width * T::BYTES) as u64
    }

    fn failed(&self, source: io::Error) -> ScratchError {
        ScratchError {
            path: self.path.clone(),
            source,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_as_they_were_and_the_folder_goes() {
        let scratch = Scratch::new().unwrap();
        let folder = scratch.file("");
        let mut store = RowStore::create(scratch.file("rows"), 2).unwrap();
        store.push(&[1.0_f32, 2.0, 3.0, 4.0]).unwrap();
        assert_eq!(store.rows(0, 1).unwrap(), [1.0, 2.0]);
        store.push(&[5.0, f32::NEG_INFINITY]).unwrap();
        assert_eq!(
            store.rows(1, 2).unwrap(),
            [3.0, 4.0, 5.0, f32::NEG_INFINITY]
        );
        assert!(store.rows(2, 2).is_err());
        let all = read_all::<f32>(&scratch.file("rows")).unwrap();
        assert_eq!(all.len(), 6);
        assert!(read_all::<f64>(&scratch.file("none")).is_err());
        drop(scratch);
        assert!(!folder.exists());
    }
}
