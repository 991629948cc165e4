//! Hash tables for vocabularies: bytes to token id, and a pair of symbol ids to its merge.
//!
//! Both tables are open addressing over one flat allocation, at most half full. The hash is
//! seeded per table, so a file cannot be crafted whose tokens all collide; nothing iterates
//! a table, so results never depend on the seed.

use std::hash::{BuildHasher, RandomState};

/// A keyed 64-bit hash built from 64x64 to 128-bit multiplications folded to 64 bits.
#[derive(Clone, Copy)]
pub(super) struct Mixer {
    start: u64,
    factor: u64,
}

impl Mixer {
    pub(super) fn new() -> Mixer {
        let state = RandomState::new();
        Mixer { start: state.hash_one(0u8), factor: state.hash_one(1u8) | 1 }
    }

    pub(super) fn bytes(&self, bytes: &[u8]) -> u64 {
        let mut hash = self.start ^ (bytes.len() as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let (words, tail) = bytes.as_chunks::<8>();
        for word in words {
            hash = fold(hash ^ u64::from_le_bytes(*word), self.factor);
        }
        // Overlapping reads cover every tail byte without a loop.
        let last = match *tail {
            [] => 0,
            [a] => u64::from(a),
            [a, b] => u64::from(a) | u64::from(b) << 8,
            [a, b, c] => u64::from(a) | u64::from(b) << 8 | u64::from(c) << 16,
            [a, b, c, d, ..] => {
                let n = tail.len();
                let low = u32::from_le_bytes([a, b, c, d]);
                let high = u32::from_le_bytes([tail[n - 4], tail[n - 3], tail[n - 2], tail[n - 1]]);
                u64::from(low) | u64::from(high) << 32
            }
        };
        fold(hash ^ last, self.factor ^ self.start.rotate_left(32))
    }

    fn word(&self, word: u64) -> u64 {
        fold(word ^ self.start, self.factor)
    }
}

fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

/// Slots for at least twice `items`, so that probes stay short.
fn capacity(items: usize) -> usize {
    (items.saturating_mul(2)).next_power_of_two().max(16)
}

/// Maps hashes of byte strings to ids. The strings themselves live with the caller, who
/// compares them in `same`.
pub(super) struct IdTable {
    /// High half: a part of the hash. Low half: id + 1, and 0 for an empty slot.
    slots: Vec<u64>,
    items: usize,
}

impl IdTable {
    /// Room for `items` ids.
    pub(super) fn with_capacity(items: usize) -> IdTable {
        IdTable { slots: vec![0; capacity(items)], items: 0 }
    }

    /// Whether one more id needs a larger table.
    pub(super) fn is_full(&self) -> bool {
        self.items * 2 >= self.slots.len()
    }

    /// The id stored under `hash` whose string is the same as the one asked for.
    #[inline]
    pub(super) fn find(&self, hash: u64, same: impl Fn(u32) -> bool) -> Option<u32> {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let slot = self.slots[at];
            if slot == 0 {
                return None;
            }
            let id = (slot as u32) - 1;
            if slot >> 32 == hash >> 32 && same(id) {
                return Some(id);
            }
            at = (at + 1) & mask;
        }
    }

    /// Stores `id` under `hash`, or returns the id whose string is the same.
    pub(super) fn insert(
        &mut self,
        hash: u64,
        id: u32,
        same: impl Fn(u32) -> bool,
    ) -> Result<(), u32> {
        debug_assert!(self.items < self.slots.len(), "the table was sized for fewer items");
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let slot = self.slots[at];
            if slot == 0 {
                self.slots[at] = (hash >> 32) << 32 | (u64::from(id) + 1);
                self.items += 1;
                return Ok(());
            }
            let other = (slot as u32) - 1;
            if slot >> 32 == hash >> 32 && same(other) {
                return Err(other);
            }
            at = (at + 1) & mask;
        }
    }
}

/// What joining two neighbouring symbols gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Merge {
    /// Lower goes first.
    pub(super) priority: u32,
    /// The symbol that replaces both.
    pub(super) id: u32,
}

/// Maps a pair of symbol ids to its merge.
pub(super) struct PairTable {
    slots: Vec<(u64, Merge)>,
    mixer: Mixer,
}

/// No pair in a table has this key; two symbols without an id do, and are not found.
const EMPTY_PAIR: u64 = u64::MAX;

impl PairTable {
    pub(super) fn with_capacity(items: usize, mixer: Mixer) -> PairTable {
        let empty = (EMPTY_PAIR, Merge { priority: 0, id: 0 });
        PairTable { slots: vec![empty; capacity(items)], mixer }
    }

    #[inline]
    pub(super) fn find(&self, left: u32, right: u32) -> Option<Merge> {
        let key = u64::from(left) << 32 | u64::from(right);
        let mask = self.slots.len() - 1;
        let mut at = self.mixer.word(key) as usize & mask;
        loop {
            let (found, merge) = self.slots[at];
            if found == EMPTY_PAIR {
                return None;
            }
            if found == key {
                return Some(merge);
            }
            at = (at + 1) & mask;
        }
    }

    /// Keeps the first merge of a pair: a later one has a worse rank.
    pub(super) fn insert_first(&mut self, left: u32, right: u32, merge: Merge) {
        let key = u64::from(left) << 32 | u64::from(right);
        let mask = self.slots.len() - 1;
        let mut at = self.mixer.word(key) as usize & mask;
        loop {
            let found = self.slots[at].0;
            if found == key {
                return;
            }
            if found == EMPTY_PAIR {
                self.slots[at] = (key, merge);
                return;
            }
            at = (at + 1) & mask;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_found_by_their_strings_alone() {
        let strings: Vec<Vec<u8>> =
            (0..5000u32).map(|i| format!("{:b}{i}", i * 7919).into_bytes()).collect();
        let mixer = Mixer::new();
        let mut table = IdTable::with_capacity(strings.len());
        for (id, s) in strings.iter().enumerate() {
            table.insert(mixer.bytes(s), id as u32, |o| &strings[o as usize] == s).unwrap();
        }
        for (id, s) in strings.iter().enumerate() {
            let found = table.find(mixer.bytes(s), |o| &strings[o as usize] == s);
            assert_eq!(found, Some(id as u32));
            let again = table.insert(mixer.bytes(s), 9, |o| &strings[o as usize] == s);
            assert_eq!(again, Err(id as u32));
        }
        assert_eq!(table.find(mixer.bytes(b"absent"), |_| false), None);
    }

    #[test]
    fn every_byte_of_a_string_enters_the_hash() {
        let mixer = Mixer::new();
        for len in 1..40 {
            let zero = vec![0u8; len];
            for at in 0..len {
                let mut one = zero.clone();
                one[at] = 1;
                assert_ne!(mixer.bytes(&zero), mixer.bytes(&one), "byte {at} of {len}");
            }
            assert_ne!(mixer.bytes(&zero), mixer.bytes(&zero[1..]), "length {len}");
        }
    }

    #[test]
    fn the_first_merge_of_a_pair_stays() {
        let mut pairs = PairTable::with_capacity(2, Mixer::new());
        pairs.insert_first(3, 4, Merge { priority: 0, id: 10 });
        pairs.insert_first(3, 4, Merge { priority: 1, id: 11 });
        assert_eq!(pairs.find(3, 4), Some(Merge { priority: 0, id: 10 }));
        assert_eq!(pairs.find(4, 3), None);
        assert_eq!(pairs.find(u32::MAX, u32::MAX), None);
    }
}
