//! Penalties for tokens that were seen lately: repeat (Keskar et al. 2019, arXiv 1909.05858,
//! with the usual sign fix: a negative logit is multiplied, not divided), presence and
//! frequency.

use super::candidates::Candidates;
use super::config::SamplerConfig;
use super::ring::Ring;

#[derive(Clone, Debug)]
pub(super) struct Penalties {
    repeat: f32,
    presence: f32,
    frequency: f32,
    last: Ring,
    /// Each distinct token of `last` with its count, by id.
    seen: Vec<(u32, u32)>,
}

impl Penalties {
    /// None when they would change nothing.
    pub fn new(config: &SamplerConfig, n_vocab: usize) -> Option<Self> {
        let neutral = config.repeat_penalty == 1.0
            && config.presence_penalty == 0.0
            && config.frequency_penalty == 0.0;
        if neutral || config.repeat_last_n == 0 {
            return None;
        }
        Some(Penalties {
            repeat: config.repeat_penalty,
            presence: config.presence_penalty,
            frequency: config.frequency_penalty,
            last: Ring::new(config.repeat_last_n),
            seen: Vec::with_capacity(config.repeat_last_n.min(n_vocab) + 1),
        })
    }

    pub fn accept(&mut self, id: u32) {
        match self.seen.binary_search_by_key(&id, |&(seen, _)| seen) {
            Ok(at) => self.seen[at].1 += 1,
            Err(at) => self.seen.insert(at, (id, 1)),
        }
        let Some(old) = self.last.push(id) else {
            return;
        };
        if let Ok(at) = self.seen.binary_search_by_key(&old, |&(seen, _)| seen) {
            self.seen[at].1 -= 1;
            if self.seen[at].1 == 0 {
                self.seen.remove(at);
            }
        }
    }

    pub fn apply(&self, candidates: &mut Candidates) {
        for &(id, count) in &self.seen {
            let subtracted = count as f32 * self.frequency + self.presence;
            candidates.adjust(id, |logit| {
                let scaled = if logit <= 0.0 {
                    logit * self.repeat
                } else {
                    logit / self.repeat
                };
                scaled - subtracted
            });
        }
    }

    pub fn reset(&mut self) {
        self.last.clear();
        self.seen.clear();
    }
}
