//! The tokens still in play. They start as the whole vocabulary, kept as a plain array of
//! logits so that the usual chain (a few penalties, then the 40 best) is one pass over it, and
//! become a list of candidates once a sampler narrows them.
//!
//! Order is total: larger logits first, then lower ids. Tokens at minus infinity are ruled out
//! and never enter the list. Nothing here allocates after construction.

use std::cmp::Ordering;

use super::SampleError;
use super::argmax::first_nan;

/// A token in play.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Candidate {
    pub id: u32,
    pub logit: f32,
    /// Probability; valid after [`Candidates::softmax`].
    pub p: f32,
}

/// Up to this many are found by insertion in one pass; more by selection over the whole list.
const INSERTION_MAX: usize = 256;

#[derive(Clone, Debug)]
pub(super) struct Candidates {
    /// Every logit, by id; meaningful until `listed`.
    dense: Vec<f32>,
    /// The candidates; meaningful once `listed`.
    list: Vec<Candidate>,
    listed: bool,
    /// Whether the list is in order.
    sorted: bool,
}

impl Candidates {
    pub fn new(n_vocab: usize) -> Self {
        Candidates {
            dense: Vec::with_capacity(n_vocab),
            // One more: insertion puts the newcomer in before it drops the last.
            list: Vec::with_capacity(n_vocab + 1),
            listed: false,
            sorted: false,
        }
    }

    /// Puts the whole vocabulary in play.
    pub fn load(&mut self, logits: &[f32]) -> Result<(), SampleError> {
        // Without branches, so that it vectorizes.
        let unfit = |logit: &f32| logit.is_nan() | (*logit == f32::INFINITY);
        let broken = logits
            .iter()
            .fold(false, |broken, logit| broken | unfit(logit));
        if broken {
            let infinite = logits.iter().position(|logit| *logit == f32::INFINITY);
            let has_nan = logits.iter().any(|logit| logit.is_nan());
            return Err(match infinite {
                Some(id) if !has_nan => SampleError::Infinite { id: id as u32 },
                _ => first_nan(logits),
            });
        }
        self.dense.clear();
        self.dense.extend_from_slice(logits);
        (self.listed, self.sorted) = (false, false);
        Ok(())
    }

    /// Changes one token's logit; one that is no longer in play stays out.
    pub fn adjust(&mut self, id: u32, change: impl FnOnce(f32) -> f32) {
        self.sorted = false;
        let logit = if self.listed {
            self.list
                .iter_mut()
                .find(|c| c.id == id)
                .map(|c| &mut c.logit)
        } else {
            self.dense.get_mut(id as usize)
        };
        if let Some(logit) = logit {
            *logit = change(*logit);
        }
    }

    /// Divides every logit by a positive number.
    pub fn divide(&mut self, by: f32) {
        if self.listed {
            self.list.iter_mut().for_each(|c| c.logit /= by);
        } else {
            self.dense.iter_mut().for_each(|logit| *logit /= by);
        }
    }

    /// Calls `see` with each logit in play.
    pub fn each(&self, mut see: impl FnMut(f32)) {
        if self.listed {
            self.list.iter().for_each(|c| see(c.logit));
        } else {
            self.dense
                .iter()
                .filter(|&&logit| logit > f32::NEG_INFINITY)
                .for_each(|l| see(*l));
        }
    }

    /// The largest logit; minus infinity when nothing is in play.
    pub fn max(&self) -> f32 {
        if self.listed && self.sorted {
            return self.list.first().map_or(f32::NEG_INFINITY, |c| c.logit);
        }
        let mut max = f32::NEG_INFINITY;
        self.each(|logit| max = max.max(logit));
        max
    }

    /// Keeps the tokens whose logit is at least `floor`.
    pub fn keep_from(&mut self, floor: f32) {
        if self.listed {
            self.list.retain(|c| c.logit >= floor);
        } else {
            self.enlist(|logit| logit >= floor);
        }
    }

    /// Keeps the best token alone.
    pub fn keep_best(&mut self) {
        self.keep_top(1);
    }

    /// Keeps the `k` best, in order.
    pub fn keep_top(&mut self, k: usize) {
        if !self.listed && k <= INSERTION_MAX {
            return self.insert_top(k);
        }
        let list = self.list();
        if !list.sorted && k < list.list.len() && k > 0 {
            list.list.select_nth_unstable_by(k - 1, order);
            list.list.truncate(k);
        }
        list.sort();
        list.list.truncate(k);
    }

    /// One pass over the vocabulary that keeps the `k` best seen so far in order.
    fn insert_top(&mut self, k: usize) {
        self.list.clear();
        let mut floor = f32::NEG_INFINITY;
        for (id, &logit) in self.dense.iter().enumerate() {
            // Equal to the floor loses: its id is higher.
            if logit <= floor {
                continue;
            }
            let place = self.list.partition_point(|c| c.logit >= logit);
            self.list.insert(
                place,
                Candidate {
                    id: id as u32,
                    logit,
                    p: 0.0,
                },
            );
            if self.list.len() >= k {
                self.list.truncate(k);
                floor = self.list.last().map_or(f32::INFINITY, |c| c.logit);
            }
        }
        (self.listed, self.sorted) = (true, true);
    }

    /// Turns the array into the list, in order of ids.
    fn enlist(&mut self, keep: impl Fn(f32) -> bool) {
        self.list.clear();
        for (id, &logit) in self.dense.iter().enumerate() {
            if logit > f32::NEG_INFINITY && keep(logit) {
                self.list.push(Candidate {
                    id: id as u32,
                    logit,
                    p: 0.0,
                });
            }
        }
        (self.listed, self.sorted) = (true, false);
    }

    fn list(&mut self) -> &mut Self {
        if !self.listed {
            self.enlist(|_| true);
        }
        self
    }

    /// Puts the list in order.
    pub fn sort(&mut self) {
        let this = self.list();
        if !this.sorted {
            this.list.sort_unstable_by(order);
            this.sorted = true;
        }
    }

    /// Puts the best `n` first, in order, and leaves the rest behind them as it comes. Returns
    /// how many are in order.
    pub fn sort_best(&mut self, n: usize) -> usize {
        let this = self.list();
        let n = n.min(this.list.len());
        if n == this.list.len() || this.sorted {
            this.sort();
            return this.list.len();
        }
        this.list.select_nth_unstable_by(n, order);
        this.list[..n].sort_unstable_by(order);
        n
    }

    /// Sets the probabilities: softmax over the list, summed in its order.
    pub fn softmax(&mut self) {
        let max = self.max();
        let this = self.list();
        let mut sum = 0.0f32;
        for c in &mut this.list {
            c.p = libm::expf(c.logit - max);
            sum += c.p;
        }
        this.list.iter_mut().for_each(|c| c.p /= sum);
    }

    /// The list. Samplers that cut or reorder it use [`set_order`](Self::set_order) and
    /// [`cut`](Self::cut).
    pub fn as_list(&mut self) -> &mut [Candidate] {
        &mut self.list().list
    }

    /// Keeps `range` of the list.
    pub fn cut(&mut self, range: std::ops::Range<usize>) {
        let this = self.list();
        this.list.truncate(range.end);
        this.list.drain(..range.start.min(this.list.len()));
    }

    /// Says whether the list is in order after a sampler has moved things.
    pub fn set_order(&mut self, sorted: bool) {
        self.sorted = sorted;
    }

    #[cfg(test)]
    pub fn places(&self) -> [usize; 2] {
        [self.dense.as_ptr().addr(), self.list.as_ptr().addr()]
    }
}

/// Larger logits first, then lower ids. Adding zero makes -0.0 and 0.0 the tie that they are.
pub(super) fn order(a: &Candidate, b: &Candidate) -> Ordering {
    (b.logit + 0.0)
        .total_cmp(&(a.logit + 0.0))
        .then(a.id.cmp(&b.id))
}

#[cfg(test)]
mod tests {
    use super::super::Mt19937;
    use super::*;

    fn ids(candidates: &mut Candidates) -> Vec<u32> {
        candidates.as_list().iter().map(|c| c.id).collect()
    }

    fn loaded(logits: &[f32]) -> Candidates {
        let mut candidates = Candidates::new(logits.len());
        candidates.load(logits).unwrap();
        candidates
    }

    #[test]
    fn the_best_are_the_same_found_each_way() {
        let mut rng = Mt19937::new(7);
        // Few distinct values, so that ties are common, and some tokens ruled out.
        let logits: Vec<f32> = (0..2000)
            .map(|_| match rng.next_u32() % 50 {
                0 => f32::NEG_INFINITY,
                1 => -0.0,
                n => (n % 9) as f32,
            })
            .collect();
        let mut sorted = loaded(&logits);
        sorted.sort();
        let sorted = ids(&mut sorted);
        assert!(sorted.len() < 2000);
        for k in [1, 2, 40, 256, 257, 1999, 2000, 5000] {
            let wanted = &sorted[..k.min(sorted.len())];
            let mut dense = loaded(&logits);
            dense.keep_top(k);
            assert_eq!(ids(&mut dense), wanted, "one pass, {k}");
            let mut listed = loaded(&logits);
            listed.as_list();
            listed.keep_top(k);
            assert_eq!(ids(&mut listed), wanted, "selection, {k}");
            let mut partly = loaded(&logits);
            let n = partly.sort_best(k);
            assert_eq!(ids(&mut partly)[..n], sorted[..n], "partly, {k}");
        }
    }

    #[test]
    fn softmax_sums_to_one_and_survives_extremes() {
        let mut candidates = loaded(&[f32::MAX, -f32::MAX, f32::MAX, f32::NEG_INFINITY]);
        candidates.softmax();
        let p: Vec<f32> = candidates.as_list().iter().map(|c| c.p).collect();
        assert_eq!(p, [0.5, 0.0, 0.5]);
    }

    #[test]
    fn broken_logits_are_named() {
        let mut candidates = Candidates::new(2);
        assert_eq!(
            candidates.load(&[0.0, f32::NAN]),
            Err(SampleError::Nan { id: 1 })
        );
        assert_eq!(
            candidates.load(&[0.0, f32::INFINITY]),
            Err(SampleError::Infinite { id: 1 })
        );
    }
}
