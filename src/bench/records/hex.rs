//! 64-bit checksums as records write them.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error};
use serde::{Serialize, Serializer};

/// A 64-bit checksum, written as 16 hex digits in lower case: JSON's numbers are doubles to many
/// readers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Hex64(pub u64);

impl Hex64 {
    /// Reads 16 hex digits; none for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Hex64> {
        let is_digit = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
        let is_whole = text.len() == 16 && text.bytes().all(is_digit);
        is_whole.then(|| u64::from_str_radix(text, 16).ok().map(Hex64))?
    }
}

impl fmt::Display for Hex64 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl Serialize for Hex64 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hex64 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Hex64, D::Error> {
        let text = String::deserialize(deserializer)?;
        Hex64::parse(&text).ok_or_else(|| {
            D::Error::custom(format!("`{text}` must be 16 hex digits in lower case"))
        })
    }
}
