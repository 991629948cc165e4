//! Temperature: fixed, or following the entropy of the candidates.

use super::candidates::Candidates;

/// Divides the logits by `temp`. At or below 0, and when the quotients would overflow (then
/// any two logits are worlds apart), the best token alone is kept.
pub(super) fn temperature(candidates: &mut Candidates, temp: f32) {
    if temp <= 0.0 {
        return candidates.keep_best();
    }
    let mut largest = 0.0f32;
    candidates.each(|logit| largest = largest.max(logit.abs()));
    if !(largest / temp).is_finite() {
        return candidates.keep_best();
    }
    candidates.divide(temp);
}

/// A temperature from `temp - range` (at least 0) for a certain choice to `temp + range` for a
/// flat one: the entropy's share of the largest possible, to the power of `exponent`.
pub(super) fn dynamic_temperature(
    candidates: &mut Candidates,
    temp: f32,
    range: f32,
    exponent: f32,
) {
    candidates.sort();
    candidates.softmax();
    let list = candidates.as_list();
    if list.len() <= 1 {
        return;
    }
    let largest = libm::logf(list.len() as f32);
    let probable = list.iter().filter(|c| c.p > 0.0);
    let entropy: f32 = probable.map(|c| -c.p * libm::logf(c.p)).sum();
    let low = (temp - range).max(0.0);
    let share = libm::powf((entropy / largest).max(0.0), exponent);
    temperature(candidates, low + (temp + range - low) * share);
}
