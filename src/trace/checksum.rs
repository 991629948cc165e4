//! The three checksums of a run: over the text, the chosen ids and every logits vector. Two
//! runs with equal sums took the same steps with the same bits.

use std::fmt;

/// FNV-1a, 64 bits (Fowler, Noll, Vo; draft-eastlake-fnv). Not against malice, only against
/// chance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fnv64(u64);

impl Fnv64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;

    /// The sum of nothing.
    #[must_use]
    pub const fn new() -> Self {
        Fnv64(Self::OFFSET)
    }

    /// The sum of bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let mut sum = Fnv64::new();
        sum.update(bytes);
        sum
    }

    /// The sum of ids, four little-endian bytes each, as traces and records hold it.
    #[must_use]
    pub fn of_ids(ids: &[u32]) -> Self {
        let mut sum = Fnv64::new();
        ids.iter().for_each(|&id| sum.add_id(id));
        sum
    }

    fn add_id(&mut self, id: u32) {
        self.update(&id.to_le_bytes());
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(Self::PRIME);
        }
    }

    /// The sum so far.
    #[must_use]
    pub fn value(self) -> u64 {
        self.0
    }
}

impl Default for Fnv64 {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for Fnv64 {
    /// Sixteen hex digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The three sums of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checksums {
    /// Over the bytes of the text.
    pub text: Fnv64,
    /// Over the chosen ids, four little-endian bytes each.
    pub ids: Fnv64,
    /// Over the bits of every logits vector, four little-endian bytes a logit.
    pub logits: Fnv64,
}

impl Checksums {
    /// Adds text.
    pub fn add_text(&mut self, text: &str) {
        self.text.update(text.as_bytes());
    }

    /// Adds a chosen id.
    pub fn add_id(&mut self, id: u32) {
        self.ids.add_id(id);
    }

    /// Adds a logits vector, `[n_vocab]`.
    pub fn add_logits(&mut self, logits: &[f32]) {
        for logit in logits {
            self.logits.update(&logit.to_bits().to_le_bytes());
        }
    }
}

impl fmt::Display for Checksums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Checksums { text, ids, logits } = self;
        write!(f, "checksums: text={text} ids={ids} logits={logits}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fnv(bytes: &[u8]) -> u64 {
        let mut sum = Fnv64::new();
        sum.update(bytes);
        sum.value()
    }

    #[test]
    fn published_vectors() {
        // From the test suite of the FNV reference code.
        assert_eq!(fnv(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn each_sum_is_over_little_endian_bytes() {
        let mut sums = Checksums::default();
        sums.add_text("foo");
        sums.add_text("bar");
        sums.add_id(0x6f6f_6661);
        sums.add_logits(&[1.0, -0.0]);
        assert_eq!(sums.text.value(), fnv(b"foobar"));
        assert_eq!(sums.ids.value(), fnv(b"afoo"));
        assert_eq!(sums.logits.value(), fnv(&[0, 0, 0x80, 0x3f, 0, 0, 0, 0x80]));
        assert_eq!(
            Checksums::default().to_string(),
            "checksums: text=cbf29ce484222325 ids=cbf29ce484222325 logits=cbf29ce484222325"
        );
    }
}
