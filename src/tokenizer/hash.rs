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
        Mixer {
            start: state.hash_one(0u8),
            factor: state.hash_one(1u8) | 1,
        }
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

    /// Both parts meet the secret before they meet each other, or keys could be found that
    /// collide whatever it is.
    fn head(&self, head: Head) -> u64 {
        let low = fold(head.low ^ self.start, self.factor);
        fold(
            low ^ u64::from(head.high),
            self.factor ^ self.start.rotate_left(32),
        )
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

/// Maps byte strings, the keys, to ids.
///
/// A slot holds the first bytes of its key, all of them for nearly every token, so that a lookup
/// touches one cache line and not also the key's bytes elsewhere; those live with the caller, who
/// compares longer keys in `same`.
pub(super) struct IdTable {
    slots: Vec<Slot>,
    items: usize,
    mixer: Mixer,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    head: Head,
    /// The id + 1, and 0 for an empty slot.
    id: u32,
}

/// A key's first 11 bytes, zeros after a shorter one, and its length, up to 255.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Head {
    low: u64,
    high: u32,
}

/// Keys up to this length are whole in their head.
const HEAD_LEN: usize = 11;

impl Head {
    #[inline]
    fn of(key: &[u8]) -> Head {
        let mut bytes = [0u8; 12];
        let len = key.len().min(HEAD_LEN);
        bytes[..len].copy_from_slice(&key[..len]);
        bytes[HEAD_LEN] = key.len().min(255) as u8;
        let [a, b, c, d, e, f, g, h, i, j, k, l] = bytes;
        Head {
            low: u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            high: u32::from_le_bytes([i, j, k, l]),
        }
    }
}

impl IdTable {
    /// Room for `items` ids.
    pub(super) fn with_capacity(items: usize, mixer: Mixer) -> IdTable {
        IdTable {
            slots: vec![Slot::default(); capacity(items)],
            items: 0,
            mixer,
        }
    }

    /// Whether one more id needs a larger table.
    pub(super) fn is_full(&self) -> bool {
        self.items * 2 >= self.slots.len()
    }

    /// The slot where `key` is, or the empty one where it would be.
    #[inline]
    fn place(&self, key: &[u8], head: Head, same: impl Fn(u32) -> bool) -> usize {
        let mask = self.slots.len() - 1;
        let mut hash = self.mixer.head(head);
        if key.len() > HEAD_LEN {
            hash ^= self.mixer.bytes(&key[HEAD_LEN..]);
        }
        let mut at = hash as usize & mask;
        loop {
            let slot = &self.slots[at];
            let found = slot.head == head && (key.len() <= HEAD_LEN || same(slot.id - 1));
            if slot.id == 0 || found {
                return at;
            }
            at = (at + 1) & mask;
        }
    }

    /// Reads where `key` would be. A big table lies in memory, not in the cache, and a lookup
    /// waits for it; warming a batch of keys first makes all waits one, for none of these reads
    /// depends on another.
    pub(super) fn warm(&self, key: &[u8]) -> u32 {
        let at = self.mixer.head(Head::of(key)) as usize & (self.slots.len() - 1);
        self.slots[at].id
    }

    /// The id of `key`. `same` tells whether an id's key is this one.
    #[inline]
    pub(super) fn find(&self, key: &[u8], same: impl Fn(u32) -> bool) -> Option<u32> {
        let slot = self.slots[self.place(key, Head::of(key), same)];
        slot.id.checked_sub(1)
    }

    /// Stores the id of `key`, or returns the one that is there.
    pub(super) fn insert(
        &mut self,
        key: &[u8],
        id: u32,
        same: impl Fn(u32) -> bool,
    ) -> Result<(), u32> {
        let head = Head::of(key);
        let at = self.place(key, head, same);
        let slot = &mut self.slots[at];
        match slot.id.checked_sub(1) {
            Some(other) => Err(other),
            None => {
                *slot = Slot { head, id: id + 1 };
                self.items += 1;
                Ok(())
            }
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
        PairTable {
            slots: vec![empty; capacity(items)],
            mixer,
        }
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

    /// Reads where a pair would be, as [`IdTable::warm`] does.
    pub(super) fn warm(&self, left: u32, right: u32) -> u32 {
        let key = u64::from(left) << 32 | u64::from(right);
        self.slots[self.mixer.word(key) as usize & (self.slots.len() - 1)]
            .1
            .id
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
        let strings: Vec<Vec<u8>> = (0..5000u32)
            .map(|i| format!("{:b}{i}", i * 7919).into_bytes())
            .collect();
        let mut table = IdTable::with_capacity(strings.len(), Mixer::new());
        for (id, s) in strings.iter().enumerate() {
            table
                .insert(s, id as u32, |o| &strings[o as usize] == s)
                .unwrap();
        }
        for (id, s) in strings.iter().enumerate() {
            assert_eq!(
                table.find(s, |o| &strings[o as usize] == s),
                Some(id as u32)
            );
            let again = table.insert(s, 9, |o| &strings[o as usize] == s);
            assert_eq!(again, Err(id as u32));
        }
        assert_eq!(table.find(b"absent", |_| true), None);
        assert_eq!(table.find(b"absent and longer than a head", |_| true), None);
        assert!(table.is_full() || table.slots.len() > 2 * strings.len());
    }

    #[test]
    fn a_zero_byte_is_not_the_end_of_a_key() {
        let keys: [&[u8]; 4] = [b"", b"\0", b"\0\0", b"a\0"];
        let mut table = IdTable::with_capacity(4, Mixer::new());
        for (id, key) in keys.into_iter().enumerate() {
            assert_eq!(table.insert(key, id as u32, |_| false), Ok(()));
        }
        for (id, key) in keys.into_iter().enumerate() {
            assert_eq!(table.find(key, |_| false), Some(id as u32));
        }
        assert_eq!(table.find(b"a", |_| false), None);
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
        pairs.insert_first(
            3,
            4,
            Merge {
                priority: 0,
                id: 10,
            },
        );
        pairs.insert_first(
            3,
            4,
            Merge {
                priority: 1,
                id: 11,
            },
        );
        assert_eq!(
            pairs.find(3, 4),
            Some(Merge {
                priority: 0,
                id: 10
            })
        );
        assert_eq!(pairs.find(4, 3), None);
        assert_eq!(pairs.find(u32::MAX, u32::MAX), None);
    }
}
