//! The merge loop that BPE and SPM share.
//!
//! A word starts as symbols (bytes or characters). Of all neighbouring pairs that have a merge,
//! the one with the lowest priority value is joined, the leftmost one on a tie, until no pair
//! has a merge:
//!
//! ```text
//! while some neighbours (l, r) have merge(l, r):
//!     take the pair with the smallest (priority, position)
//!     replace l r by merge(l, r).id
//! ```
//!
//! BPE's priority is the rank of the merge in the file's list; SPM's is the score of the joined
//! token, best first. Short words, nearly all, are scanned again for each merge: with a few
//! symbols in one cache line that beats any queue. Longer ones keep their pairs in a heap with
//! lazy deletion, so that a word of a million symbols takes `n log n` steps and not `n^2`.

use super::hash::Merge;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// The id of a symbol that no token spells.
pub(super) const NO_ID: u32 = u32::MAX;

/// A part of a word that is one symbol at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Symbol {
    /// Byte range in the word.
    pub(super) start: u32,
    pub(super) end: u32,
    /// Token (or interned symbol), [`NO_ID`] for none.
    pub(super) id: u32,
}

/// Tells which neighbours can be joined.
pub(super) trait MergeRule {
    /// The merge of two neighbouring symbols of `word`.
    fn merge(&self, word: &[u8], left: Symbol, right: Symbol) -> Option<Merge>;
}

/// Above this many symbols the heap is used.
const SCAN_LIMIT: usize = 40;

/// A priority that no merge has.
const NO_PRIORITY: u32 = u32::MAX;

/// Buffers of the merge loop, kept between words.
#[derive(Default)]
pub(super) struct Merger {
    /// In: the word's first symbols. Out: its last ones.
    pub(super) symbols: Vec<Symbol>,
    pairs: Vec<Merge>,
    links: Vec<Link>,
}

#[derive(Clone, Copy)]
struct Link {
    prev: u32,
    next: u32,
}

const NO_LINK: u32 = u32::MAX;

/// Neighbours that wait to be joined. When they no longer end where they did, one of them has
/// been joined to another symbol since, and the pair is stale.
#[derive(Clone, Copy)]
struct Pair {
    /// The complement of priority and left symbol, for heaps give the largest first.
    order: u64,
    end: u32,
    id: u32,
}

impl Pair {
    fn new(merge: Merge, left: u32, end: u32) -> Pair {
        let order = !(u64::from(merge.priority) << 32 | u64::from(left));
        Pair {
            order,
            end,
            id: merge.id,
        }
    }
}

impl Ord for Pair {
    fn cmp(&self, other: &Pair) -> Ordering {
        self.order.cmp(&other.order)
    }
}

impl PartialOrd for Pair {
    fn partial_cmp(&self, other: &Pair) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Pair {
    fn eq(&self, other: &Pair) -> bool {
        self.order == other.order
    }
}

impl Eq for Pair {}

impl Merger {
    /// Joins `self.symbols` until no neighbours have a merge.
    pub(super) fn run(&mut self, word: &[u8], rule: &impl MergeRule) {
        if self.symbols.len() <= SCAN_LIMIT {
            self.scan(word, rule);
        } else {
            self.queue(word, rule);
        }
    }

    fn scan(&mut self, word: &[u8], rule: &impl MergeRule) {
        let none = Merge {
            priority: NO_PRIORITY,
            id: NO_ID,
        };
        let symbols = &mut self.symbols;
        let pairs = &mut self.pairs;
        pairs.clear();
        pairs.extend(
            symbols
                .windows(2)
                .map(|w| rule.merge(word, w[0], w[1]).unwrap_or(none)),
        );
        loop {
            let mut best = none;
            let mut at = 0;
            for (i, &pair) in pairs.iter().enumerate() {
                if pair.priority < best.priority {
                    best = pair;
                    at = i;
                }
            }
            if best.priority == NO_PRIORITY {
                return;
            }
            symbols[at] = Symbol {
                start: symbols[at].start,
                end: symbols[at + 1].end,
                id: best.id,
            };
            symbols.remove(at + 1);
            pairs.remove(at);
            if at > 0 {
                pairs[at - 1] = rule
                    .merge(word, symbols[at - 1], symbols[at])
                    .unwrap_or(none);
            }
            if at + 1 < symbols.len() {
                pairs[at] = rule
                    .merge(word, symbols[at], symbols[at + 1])
                    .unwrap_or(none);
            }
        }
    }

    fn queue(&mut self, word: &[u8], rule: &impl MergeRule) {
        let n = self.symbols.len();
        let symbols = &mut self.symbols;
        self.links.clear();
        self.links.extend((0..n as u32).map(|i| Link {
            prev: i.wrapping_sub(1),
            next: if i as usize + 1 == n { NO_LINK } else { i + 1 },
        }));
        let links = &mut self.links;
        let mut heap: BinaryHeap<Pair> = symbols
            .windows(2)
            .enumerate()
            .filter_map(|(i, w)| {
                let merge = rule.merge(word, w[0], w[1])?;
                Some(Pair::new(merge, i as u32, w[1].end))
            })
            .collect();
        while let Some(Pair { order, end, id }) = heap.pop() {
            let left = !order as u32;
            let Link { prev, next: right } = links[left as usize];
            let alive = symbols[left as usize].start != symbols[left as usize].end;
            if !alive || right == NO_LINK || symbols[right as usize].end != end {
                continue;
            }
            let after = links[right as usize].next;
            symbols[left as usize].end = end;
            symbols[left as usize].id = id;
            let gone = &mut symbols[right as usize];
            gone.start = gone.end;
            links[left as usize].next = after;
            if after != NO_LINK {
                links[after as usize].prev = left;
                let (l, r) = (symbols[left as usize], symbols[after as usize]);
                if let Some(merge) = rule.merge(word, l, r) {
                    heap.push(Pair::new(merge, left, r.end));
                }
            }
            if prev != NO_LINK {
                let (l, r) = (symbols[prev as usize], symbols[left as usize]);
                if let Some(merge) = rule.merge(word, l, r) {
                    heap.push(Pair::new(merge, prev, r.end));
                }
            }
        }
        symbols.retain(|s| s.start != s.end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Joins any neighbours; the priority depends on the two ids, with many ties.
    struct Toy {
        kinds: u32,
    }

    impl MergeRule for Toy {
        fn merge(&self, _: &[u8], left: Symbol, right: Symbol) -> Option<Merge> {
            let mix = left
                .id
                .wrapping_mul(31)
                .wrapping_add(right.id.wrapping_mul(17));
            (!mix.is_multiple_of(3)).then_some(Merge {
                priority: mix % self.kinds,
                id: (mix ^ left.id) % 11,
            })
        }
    }

    fn first_symbols(ids: &[u32]) -> Vec<Symbol> {
        ids.iter()
            .enumerate()
            .map(|(i, &id)| Symbol {
                start: i as u32,
                end: i as u32 + 1,
                id,
            })
            .collect()
    }

    #[test]
    fn scan_and_queue_agree_on_random_words() {
        let mut seed = 7u32;
        let mut random = move || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            seed >> 8
        };
        for round in 0..3000 {
            let n = random() as usize % 60;
            let ids: Vec<u32> = (0..n).map(|_| random() % 11).collect();
            let toy = Toy {
                kinds: 1 + random() % 9,
            };
            let mut scan = Merger {
                symbols: first_symbols(&ids),
                ..Merger::default()
            };
            scan.scan(&[], &toy);
            let mut queue = Merger {
                symbols: first_symbols(&ids),
                ..Merger::default()
            };
            queue.queue(&[], &toy);
            assert_eq!(scan.symbols, queue.symbols, "round {round}, ids {ids:?}");
        }
    }
}
