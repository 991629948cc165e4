//! DRY, "don't repeat yourself" (p-e-w 2024; llama.cpp's form of it). When the text ends with a
//! run of tokens that stood somewhere before, the token that followed it there is penalized,
//! exponentially in the run's length. Sequence breakers (a newline, a quote) end a run, so that
//! a chat's fixed phrases do not count as repetition.

use super::candidates::Candidates;
use super::config::SamplerConfig;
use super::ring::Ring;

/// llama.cpp's bounds on a breaker: bytes of its text, tokens after its head.
const MAX_BREAKER_BYTES: usize = 40;
const MAX_TAIL: usize = 20;

/// Sequence breakers in token form: a head token and the tokens that must follow it. A token
/// that holds the whole breaker has no tail.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DryBreakers {
    /// By head.
    sequences: Vec<(u32, Vec<u32>)>,
}

impl DryBreakers {
    /// Turns breaker texts into token form: every token that holds a breaker, or that ends with
    /// the beginning of one, followed by the tokens of the rest. `piece` gives a token's bytes,
    /// `encode` the tokens of a text without additions.
    #[must_use]
    pub fn new<'a>(
        texts: &[String],
        n_vocab: usize,
        piece: impl Fn(u32) -> std::borrow::Cow<'a, [u8]>,
        encode: impl Fn(&str) -> Vec<u32>,
    ) -> Self {
        let texts: Vec<&str> = texts
            .iter()
            .map(|t| clip(t))
            .filter(|text| !text.is_empty())
            .collect();
        let mut sequences = Vec::new();
        for id in 0..u32::try_from(n_vocab).unwrap_or(u32::MAX) {
            let piece = piece(id);
            for text in &texts {
                if contains(&piece, text.as_bytes()) {
                    sequences.push((id, Vec::new()));
                    continue;
                }
                for rest in rests_after(&piece, text) {
                    let mut tail = encode(rest);
                    tail.truncate(MAX_TAIL);
                    sequences.push((id, tail));
                }
            }
        }
        Self::from_sequences(sequences)
    }

    /// Breakers already in token form.
    #[must_use]
    pub fn from_sequences(mut sequences: Vec<(u32, Vec<u32>)>) -> Self {
        sequences.sort();
        sequences.dedup();
        DryBreakers { sequences }
    }

    fn tails(&self, head: u32) -> impl Iterator<Item = &[u32]> {
        let from = self.sequences.partition_point(|(id, _)| *id < head);
        let same = self.sequences[from..]
            .iter()
            .take_while(move |(id, _)| *id == head);
        same.map(|(_, tail)| tail.as_slice())
    }

    fn is_single(&self, id: u32) -> bool {
        self.tails(id).any(<[u32]>::is_empty)
    }
}

fn clip(text: &str) -> &str {
    let fits = text.char_indices().map(|(at, c)| at + c.len_utf8());
    let end = fits.take_while(|&end| end <= MAX_BREAKER_BYTES).last();
    &text[..end.unwrap_or(0)]
}

fn contains(piece: &[u8], text: &[u8]) -> bool {
    piece.windows(text.len()).any(|window| window == text)
}

/// What is left of `text` after each of its beginnings that ends `piece`.
fn rests_after<'t>(piece: &[u8], text: &'t str) -> impl Iterator<Item = &'t str> {
    let beginnings = text.char_indices().skip(1).map(|(at, _)| text.split_at(at));
    beginnings
        .filter(|(head, _)| piece.ends_with(head.as_bytes()))
        .map(|(_, rest)| rest)
}

#[derive(Clone, Debug)]
pub(super) struct Dry {
    multiplier: f32,
    base: f32,
    allowed: usize,
    /// Growth stops here, before the penalty overflows.
    max_exponent: usize,
    breakers: DryBreakers,
    last: Ring,
    /// For each distance back, how long the run there equals the text's end.
    runs: Vec<usize>,
    /// Tokens that would continue a run, with the longest such run, by id.
    continued: Vec<(u32, usize)>,
}

impl Dry {
    /// None when it would change nothing.
    pub fn new(config: &SamplerConfig) -> Option<Self> {
        let room = config.dry_penalty_last_n;
        if config.dry_multiplier == 0.0 || config.dry_base < 1.0 || room == 0 {
            return None;
        }
        // The logarithm of the largest float over the base's.
        let max_exponent = if config.dry_base > 1.000_001 {
            (88.722_84 / libm::logf(config.dry_base)) as usize
        } else {
            usize::MAX
        };
        Some(Dry {
            multiplier: config.dry_multiplier,
            base: config.dry_base,
            allowed: config.dry_allowed_length,
            max_exponent,
            breakers: DryBreakers::default(),
            last: Ring::new(room),
            runs: Vec::with_capacity(room),
            continued: Vec::with_capacity(room),
        })
    }

    pub fn set_breakers(&mut self, breakers: DryBreakers) {
        self.breakers = breakers;
    }

    pub fn accept(&mut self, id: u32) {
        self.last.push(id);
    }

    pub fn apply(&mut self, candidates: &mut Candidates) {
        let longest = self.until_breaker();
        if self.last.len() <= self.allowed || longest < self.allowed {
            return;
        }
        self.measure_runs();
        self.continued.clear();
        for (back, &run) in self.runs.iter().enumerate().skip(1) {
            let run = run.min(longest);
            if run < self.allowed {
                continue;
            }
            let next = self.last.back(back - 1);
            match self.continued.binary_search_by_key(&next, |&(id, _)| id) {
                Ok(at) => self.continued[at].1 = self.continued[at].1.max(run),
                Err(at) => self.continued.insert(at, (next, run)),
            }
        }
        for &(id, run) in &self.continued {
            if self.breakers.is_single(id) {
                continue;
            }
            let exponent = (run - self.allowed).min(self.max_exponent);
            let growth = libm::pow(f64::from(self.base), exponent as f64) as f32;
            candidates.adjust(id, |logit| logit - self.multiplier * growth);
        }
    }

    /// How many of the last tokens stand after the last breaker.
    fn until_breaker(&self) -> usize {
        for back in 0..self.last.len() {
            let matching = self
                .breakers
                .tails(self.last.back(back))
                .filter(|tail| tail.len() <= back)
                .filter(|tail| {
                    tail.iter()
                        .zip(1..)
                        .all(|(id, step)| *id == self.last.back(back - step))
                })
                .map(<[u32]>::len)
                .max();
            if let Some(tail) = matching {
                return back - tail;
            }
        }
        self.last.len()
    }

    /// The Z algorithm over the tokens read backwards: `runs[k]` is how many tokens before
    /// distance `k` equal those before the end. Linear: `right` never moves back.
    fn measure_runs(&mut self) {
        let len = self.last.len();
        self.runs.clear();
        self.runs.resize(len, 0);
        let (mut left, mut right) = (0, 0);
        for k in 1..len {
            let mut run = if k < right {
                self.runs[k - left].min(right - k)
            } else {
                0
            };
            while k + run < len && self.last.back(run) == self.last.back(k + run) {
                run += 1;
            }
            self.runs[k] = run;
            if k + run > right {
                (left, right) = (k, k + run);
            }
        }
    }

    pub fn reset(&mut self) {
        self.last.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;

    fn dry(tokens: &[u32], allowed: usize, breakers: &[(u32, &[u32])]) -> Vec<f32> {
        let config = SamplerConfig {
            dry_multiplier: 1.0,
            dry_base: 2.0,
            dry_allowed_length: allowed,
            ..SamplerConfig::default()
        };
        let mut dry = Dry::new(&config).unwrap();
        let sequences = breakers
            .iter()
            .map(|(head, tail)| (*head, tail.to_vec()))
            .collect();
        dry.set_breakers(DryBreakers::from_sequences(sequences));
        tokens.iter().for_each(|&id| dry.accept(id));
        let mut candidates = Candidates::new(8);
        candidates.load(&[0.0; 8]).unwrap();
        dry.apply(&mut candidates);
        candidates.as_list().iter().map(|c| -c.logit).collect()
    }

    #[test]
    fn the_token_after_a_repeated_run_is_penalized_by_its_length() {
        // a b c c b c y a b c: `a b c` continued with c (run 3), `b c` with y (run 2).
        let text = [1, 2, 3, 3, 2, 3, 7, 1, 2, 3];
        // 2^(3-2) for c, 2^(2-2) for y; `c` alone was followed by b, run 1, allowed.
        assert_eq!(dry(&text, 2, &[]), [0.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0, 1.0]);
        // With 1 allowed: c 2^2, y 2^1, b 2^0.
        assert_eq!(dry(&text, 1, &[]), [0.0, 0.0, 1.0, 4.0, 0.0, 0.0, 0.0, 2.0]);
        assert_eq!(dry(&text, 4, &[]), [0.0; 8]);
    }

    #[test]
    fn breakers_end_a_run() {
        let text = [1, 2, 3, 3, 2, 3, 7, 1, 2, 3];
        // b breaks: one token stands after it, no run of 2 is left.
        assert_eq!(dry(&text, 2, &[(2, &[])]), [0.0; 8]);
        // a breaks: `b c` is left, so c and y both continue a run of 2.
        assert_eq!(
            dry(&text, 2, &[(1, &[])]),
            [0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]
        );
        // The pair `a b` breaks: only `c` is left.
        assert_eq!(dry(&text, 2, &[(1, &[2])]), [0.0; 8]);
        assert_eq!(
            dry(&text, 1, &[(1, &[2])]),
            [0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0]
        );
        // The pair `a c` does not occur.
        assert_eq!(dry(&text, 2, &[(1, &[3])])[3], 2.0);
    }

    #[test]
    fn a_breaker_itself_is_not_penalized() {
        // y breaks, and `b c` was followed by it.
        let text = [2, 3, 7, 1, 2, 3];
        assert_eq!(dry(&text, 2, &[])[7], 1.0);
        assert_eq!(dry(&text, 2, &[(7, &[])]), [0.0; 8]);
    }

    #[test]
    fn one_token_repeated_counts_its_overlaps() {
        assert_eq!(dry(&[5, 5, 5, 5], 2, &[])[5], 2.0);
        assert_eq!(dry(&[5, 5], 2, &[]), [0.0; 8]);
    }

    #[test]
    fn a_long_run_does_not_overflow() {
        let text: Vec<u32> = [1; 64].to_vec();
        let penalty = dry(&text, 0, &[])[1];
        assert_eq!(penalty, 2f32.powi(63));
        let config = SamplerConfig {
            dry_multiplier: 1.0,
            dry_base: 1e20,
            ..SamplerConfig::default()
        };
        assert_eq!(Dry::new(&config).unwrap().max_exponent, 1);
    }

    #[test]
    fn runs_agree_with_counting() {
        let mut rng = super::super::Mt19937::new(3);
        for _ in 0..200 {
            let config = SamplerConfig {
                dry_multiplier: 1.0,
                dry_penalty_last_n: 24,
                ..SamplerConfig::default()
            };
            let mut dry = Dry::new(&config).unwrap();
            let text: Vec<u32> = (0..30).map(|_| rng.next_u32() % 2).collect();
            text.iter().for_each(|&id| dry.accept(id));
            dry.measure_runs();
            let back: Vec<u32> = text.iter().rev().take(24).copied().collect();
            for k in 1..24 {
                let pairs = back.iter().zip(&back[k..]);
                assert_eq!(dry.runs[k], pairs.take_while(|(a, b)| a == b).count());
            }
        }
    }

    #[test]
    fn breaker_texts_become_tokens() {
        // Tokens: 0 "a", 1 "x:", 2 ":", 3 "User", 4 "the U", 5 "ser".
        let pieces = ["a", "x:", ":", "User", "the U", "ser"];
        let piece = |id: u32| Cow::Borrowed(pieces[id as usize].as_bytes());
        let encode = |text: &str| match text {
            "ser:" => vec![5, 2],
            ":" => vec![2],
            other => panic!("encoded {other:?}"),
        };
        let breakers = DryBreakers::new(&["User:".into(), "".into()], 6, piece, encode);
        let wanted = DryBreakers::from_sequences(vec![(3, vec![2]), (4, vec![5, 2])]);
        assert_eq!(breakers, wanted);
        assert_eq!(clip(&"é".repeat(30)), "é".repeat(20));
        assert_eq!(
            clip(&format!("a{}", "é".repeat(30))),
            format!("a{}", "é".repeat(19))
        );
        let colon = DryBreakers::new(&[":".into()], 6, piece, encode);
        assert_eq!(
            colon,
            DryBreakers::from_sequences(vec![(1, vec![]), (2, vec![])])
        );
        assert!(colon.is_single(1) && !colon.is_single(3));
    }

    #[test]
    fn off_is_off() {
        let off = |change: fn(&mut SamplerConfig)| {
            let mut config = SamplerConfig {
                dry_multiplier: 1.0,
                ..SamplerConfig::default()
            };
            change(&mut config);
            Dry::new(&config).is_none()
        };
        assert!(off(|c| c.dry_multiplier = 0.0));
        assert!(off(|c| c.dry_base = 0.5));
        assert!(off(|c| c.dry_penalty_last_n = 0));
        assert!(!off(|_| ()));
    }
}
