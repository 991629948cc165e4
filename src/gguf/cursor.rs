//! A little-endian reader that never looks past the bytes it was given.

use super::error::Fault;
use std::str::Utf8Error;

/// A fault and the offset at which it was met; the caller adds file and place.
#[derive(Debug)]
pub(super) struct Flaw {
    pub fault: Fault,
    pub offset: u64,
    /// The array element being read, if any.
    pub element: Option<u64>,
}

/// Reads forward through the bytes of a file.
#[derive(Clone)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    pos: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { bytes, pos: 0 }
    }

    /// Offset of the next byte.
    pub fn pos(&self) -> u64 {
        self.pos as u64
    }

    /// Bytes after the position.
    pub fn left(&self) -> u64 {
        (self.bytes.len() - self.pos) as u64
    }

    /// A flaw at `offset`.
    pub fn flaw(offset: u64, fault: Fault) -> Flaw {
        Flaw {
            fault,
            offset,
            element: None,
        }
    }

    /// The next `count` bytes, described as `what` when there are fewer.
    pub fn take(&mut self, count: u64, what: &'static str) -> Result<&'a [u8], Flaw> {
        let left = self.left();
        if count > left {
            let fault = Fault::Truncated {
                what,
                needed: count,
                left,
            };
            return Err(Cursor::flaw(self.pos(), fault));
        }
        let start = self.pos;
        self.pos += count as usize; // at most the slice's length
        Ok(&self.bytes[start..self.pos])
    }

    /// The next `N` bytes as an array.
    pub fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Flaw> {
        let bytes = self.take(N as u64, what)?;
        let mut out = [0; N];
        out.copy_from_slice(bytes);
        Ok(out)
    }

    pub fn u32(&mut self, what: &'static str) -> Result<u32, Flaw> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub fn u64(&mut self, what: &'static str) -> Result<u64, Flaw> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// A string: a 64-bit length of at most `limit`, then that many bytes of UTF-8. Copied before
    /// it is checked, so that it stays valid whatever happens to the file.
    pub fn string(&mut self, what: &'static str, limit: u64) -> Result<String, Flaw> {
        let bytes = self.string_bytes(what, limit)?.to_vec();
        let start = self.pos() - bytes.len() as u64;
        String::from_utf8(bytes).map_err(|error| not_utf8(what, start, error.utf8_error()))
    }

    /// As [`Cursor::string`], copied to `copy` in place of what that held.
    pub fn string_in<'c>(
        &mut self,
        what: &'static str,
        limit: u64,
        copy: &'c mut Vec<u8>,
    ) -> Result<&'c str, Flaw> {
        copy.clear();
        copy.extend_from_slice(self.string_bytes(what, limit)?);
        let start = self.pos() - copy.len() as u64;
        str::from_utf8(copy).map_err(|error| not_utf8(what, start, error))
    }

    /// The bytes of a string, which may be no UTF-8.
    pub fn string_bytes(&mut self, what: &'static str, limit: u64) -> Result<&'a [u8], Flaw> {
        let at = self.pos();
        let len = self.u64(what)?;
        if len > self.left() {
            let fault = Fault::Truncated {
                what,
                needed: len,
                left: self.left(),
            };
            return Err(Cursor::flaw(at, fault));
        }
        if len > limit {
            let fault = Fault::Limit {
                what: "bytes in one string",
                count: len,
                limit,
            };
            return Err(Cursor::flaw(at, fault));
        }
        self.take(len, what)
    }
}

/// The flaw of a string whose bytes start at `start`.
fn not_utf8(what: &'static str, start: u64, error: Utf8Error) -> Flaw {
    let valid = error.valid_up_to() as u64;
    Cursor::flaw(start + valid, Fault::NotUtf8 { what, valid })
}
