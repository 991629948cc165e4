//! The last n tokens, newest first.

/// A ring of tokens with room for `n`, allocated once.
#[derive(Clone, Debug)]
pub(super) struct Ring {
    tokens: Vec<u32>,
    room: usize,
    /// Where the oldest is, once the ring is full.
    oldest: usize,
}

impl Ring {
    pub fn new(room: usize) -> Self {
        Ring {
            tokens: Vec::with_capacity(room),
            room,
            oldest: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Adds the newest; returns the one that had to go.
    pub fn push(&mut self, id: u32) -> Option<u32> {
        if self.tokens.len() < self.room {
            self.tokens.push(id);
            return None;
        }
        let slot = self.tokens.get_mut(self.oldest)?;
        let old = std::mem::replace(slot, id);
        self.oldest = (self.oldest + 1) % self.room;
        Some(old)
    }

    /// The token `back` steps before the newest; `back` is below [`len`](Ring::len).
    pub fn back(&self, back: usize) -> u32 {
        let len = self.tokens.len();
        self.tokens[(self.oldest + len - 1 - back) % len]
    }

    pub fn clear(&mut self) {
        self.tokens.clear();
        self.oldest = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::Ring;

    #[test]
    fn the_newest_come_first_and_the_oldest_go() {
        let mut ring = Ring::new(3);
        let gone: Vec<Option<u32>> = (1..=5).map(|id| ring.push(id)).collect();
        assert_eq!(gone, [None, None, None, Some(1), Some(2)]);
        let order: Vec<u32> = (0..ring.len()).map(|back| ring.back(back)).collect();
        assert_eq!(order, [5, 4, 3]);
        ring.clear();
        assert_eq!((ring.len(), ring.push(9), ring.back(0)), (0, None, 9));
    }
}
