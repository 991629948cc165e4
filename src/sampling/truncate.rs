//! Samplers that keep part of the candidates: top-n-sigma, top-p, min-p, locally typical, XTC
//! (top-k is [`Candidates::keep_top`]). Each follows llama.cpp's function of the same name and
//! keeps at least one token.

use super::candidates::{Candidate, Candidates, order};
use super::rng::Mt19937;

/// Keeps logits at least `max - n * sigma`, sigma being the standard deviation of the logits in
/// play (Tang et al. 2024, arXiv 2411.07641).
pub(super) fn top_n_sigma(candidates: &mut Candidates, n: f32) {
    let (mut sum, mut count) = (0.0f64, 0u64);
    candidates.each(|logit| {
        sum += f64::from(logit);
        count += 1;
    });
    if count <= 1 {
        return;
    }
    let mean = sum / count as f64;
    let mut squares = 0.0f64;
    candidates.each(|logit| squares += (f64::from(logit) - mean) * (f64::from(logit) - mean));
    let sigma = libm::sqrt(squares / count as f64) as f32;
    let floor = candidates.max() - n * sigma;
    candidates.keep_from(floor);
}

/// Keeps logits at least `max + ln p`: tokens no less than `p` times as probable as the best
/// (Nguyen et al. 2024, arXiv 2407.01082).
pub(super) fn min_p(candidates: &mut Candidates, p: f32) {
    let floor = candidates.max() + libm::logf(p);
    // With p above 1 nothing would be left.
    let floor = floor.min(candidates.max());
    candidates.keep_from(floor);
}

/// Keeps the best tokens up to the one with which their probability reaches `p` (Holtzman et
/// al. 2019, arXiv 1904.09751).
pub(super) fn top_p(candidates: &mut Candidates, p: f32) {
    candidates.softmax();
    let len = candidates.as_list().len();
    let mut ordered = candidates.sort_best(FIRST_GUESS);
    let mut sum = 0.0f32;
    let mut at = 0;
    while at < len {
        if at == ordered {
            // A flat distribution: order all the rest.
            candidates.sort();
            ordered = len;
        }
        sum += candidates.as_list()[at].p;
        at += 1;
        if sum >= p {
            break;
        }
    }
    candidates.cut(0..at);
    candidates.set_order(true);
}

/// Most distributions reach any p within this many tokens; ordering so few of a whole
/// vocabulary is cheap.
const FIRST_GUESS: usize = 256;

/// Keeps the tokens whose surprise is nearest to the entropy, up to probability `p` (Meister et
/// al. 2022, arXiv 2202.00666). `scratch` holds a score for each candidate.
pub(super) fn typical(candidates: &mut Candidates, p: f32, scratch: &mut Vec<(f32, Candidate)>) {
    candidates.sort();
    candidates.softmax();
    let list = candidates.as_list();
    let surprise = |c: &Candidate| -libm::logf(c.p);
    let probable = list.iter().filter(|c| c.p > 0.0);
    let entropy: f32 = probable.map(|c| c.p * surprise(c)).sum();
    scratch.clear();
    scratch.extend(
        list.iter()
            .map(|c| (libm::fabsf(surprise(c) - entropy), *c)),
    );
    scratch.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then_with(|| order(&a.1, &b.1)));
    let mut sum = 0.0f32;
    let mut kept = 0;
    for (slot, (_, candidate)) in list.iter_mut().zip(scratch.iter()) {
        *slot = *candidate;
        sum += candidate.p;
        kept += 1;
        if sum > p {
            break;
        }
    }
    candidates.cut(0..kept);
    candidates.set_order(false);
}

/// Exclude top choices (p-e-w 2024): with the given probability, drops all tokens of at least
/// `threshold` but the least probable of them.
pub(super) fn xtc(
    candidates: &mut Candidates,
    probability: f32,
    threshold: f32,
    rng: &mut Mt19937,
) {
    if candidates.as_list().len() < 2 || rng.next_f32() > probability {
        return;
    }
    candidates.sort();
    candidates.softmax();
    let list = candidates.as_list();
    let choices = list.iter().take_while(|c| c.p >= threshold).count();
    let len = list.len();
    candidates.cut(choices.saturating_sub(1)..len);
}
