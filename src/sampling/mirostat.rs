//! Mirostat (Basu et al. 2020, arXiv 2007.14966): keeps the surprise of the text near a target
//! by adapting, after each token, how much of the distribution may be drawn from.

use super::candidates::Candidates;
use super::draw::draw_from;
use super::rng::Mt19937;

/// How many of the best tokens version 1 fits Zipf's exponent to.
const FITTED: usize = 100;

#[derive(Clone, Debug)]
pub(super) struct State {
    /// Target surprise in bits.
    tau: f32,
    /// Learning rate.
    eta: f32,
    /// The running bound on surprise, in bits.
    mu: f32,
}

impl State {
    pub fn new(tau: f32, eta: f32) -> Self {
        State {
            tau,
            eta,
            mu: 2.0 * tau,
        }
    }

    pub fn reset(&mut self) {
        self.mu = 2.0 * self.tau;
    }

    /// Draws and learns: the surprise of what was drawn moves the bound.
    fn choose(&mut self, candidates: &mut Candidates, rng: &mut Mt19937) -> Option<u32> {
        candidates.softmax();
        let chosen = draw_from(candidates.as_list(), rng)?;
        let surprise = -libm::log2f(chosen.p);
        self.mu -= self.eta * (surprise - self.tau);
        Some(chosen.id)
    }
}

/// Version 1: from Zipf's exponent of the best tokens, a k whose expected surprise is the
/// bound.
pub(super) fn v1(
    state: &mut State,
    candidates: &mut Candidates,
    n_vocab: usize,
    rng: &mut Mt19937,
) -> Option<u32> {
    candidates.sort();
    candidates.softmax();
    let list = candidates.as_list();
    let (mut products, mut squares) = (0.0f32, 0.0f32);
    for (rank, pair) in list.windows(2).take(FITTED - 1).enumerate() {
        let t = libm::logf((rank + 2) as f32 / (rank + 1) as f32);
        let b = libm::logf(pair[0].p / pair[1].p);
        products += t * b;
        squares += t * t;
    }
    let exponent = products / squares;
    let epsilon = exponent - 1.0;
    let numerator = epsilon * libm::powf(2.0, state.mu);
    let denominator = 1.0 - libm::powf(n_vocab as f32, -epsilon);
    let k = libm::powf(numerator / denominator, 1.0 / exponent);
    // NaN and everything below 1 become 1; casts saturate.
    candidates.keep_top((k as usize).max(1));
    state.choose(candidates, rng)
}

/// Version 2: drops the tokens whose surprise is above the bound.
pub(super) fn v2(state: &mut State, candidates: &mut Candidates, rng: &mut Mt19937) -> Option<u32> {
    candidates.softmax();
    let mu = state.mu;
    // Surprise grows as the logit falls: find the lowest logit that is within the bound.
    let within = candidates
        .as_list()
        .iter()
        .filter(|c| -libm::log2f(c.p) <= mu);
    let floor = within.map(|c| c.logit).fold(f32::INFINITY, f32::min);
    candidates.keep_from(floor.min(candidates.max()));
    candidates.sort();
    state.choose(candidates, rng)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loaded(p: &[f32]) -> Candidates {
        let logits: Vec<f32> = p.iter().map(|p| libm::logf(*p)).collect();
        let mut candidates = Candidates::new(p.len());
        candidates.load(&logits).unwrap();
        candidates
    }

    #[test]
    fn v2_drops_what_surprises_more_than_the_bound() {
        // Surprises 1, 2, 3, 3 bits; a bound of 2 leaves two, renormalized to 2/3 and 1/3.
        let p = [0.125, 0.5, 0.25, 0.125];
        let mut state = State::new(1.0, 0.1);
        let mut rng = Mt19937::new(1);
        let mut candidates = loaded(&p);
        let id = v2(&mut state, &mut candidates, &mut rng).unwrap();
        let kept: Vec<u32> = candidates.as_list().iter().map(|c| c.id).collect();
        assert_eq!(kept, [1, 2]);
        let drawn: f32 = if id == 1 { 2.0 / 3.0 } else { 1.0 / 3.0 };
        // mu = 2 - 0.1 * (surprise - 1)
        assert!((state.mu - (2.0 - 0.1 * (-drawn.log2() - 1.0))).abs() < 1e-5);
        state.reset();
        assert_eq!(state.mu, 2.0);
    }

    #[test]
    fn v2_keeps_the_best_when_all_surprise() {
        let mut state = State::new(0.1, 0.1);
        let mut candidates = loaded(&[0.25, 0.5, 0.25]);
        assert_eq!(
            v2(&mut state, &mut candidates, &mut Mt19937::new(1)),
            Some(1)
        );
        // Surprise 0 of the one that is left: mu = 0.2 - 0.1 * (0 - 0.1).
        assert!((state.mu - 0.21).abs() < 1e-6);
    }

    #[test]
    fn v1_derives_k_from_zipfs_exponent() {
        // p proportional to 1/rank^2 over 8 tokens: exponent 2, epsilon 1;
        // k = (2^mu / (1 - 1/8))^(1/2). With mu = 2 tau = 4: sqrt(16 * 8/7) = 4.28: 4 kept.
        let p: Vec<f32> = (1..=8).map(|rank| 1.0 / (rank * rank) as f32).collect();
        let mut state = State::new(2.0, 0.0);
        let mut candidates = loaded(&p);
        v1(&mut state, &mut candidates, 8, &mut Mt19937::new(1)).unwrap();
        assert_eq!(candidates.as_list().len(), 4);
        assert_eq!(state.mu, 4.0);
    }

    #[test]
    fn v1_takes_the_only_token() {
        let mut state = State::new(5.0, 0.1);
        let mut candidates = loaded(&[1.0]);
        assert_eq!(
            v1(&mut state, &mut candidates, 1, &mut Mt19937::new(1)),
            Some(0)
        );
    }
}
