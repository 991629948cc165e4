//! The draw that ends the chain.

use super::candidates::{Candidate, Candidates};
use super::rng::Mt19937;

/// Draws from the softmax of the candidates, as llama.cpp's `dist` does: one fraction of the
/// double sum of single-precision weights, in list order. None when nothing is left.
pub(super) fn draw(candidates: &mut Candidates, rng: &mut Mt19937) -> Option<u32> {
    let max = candidates.max();
    let fraction = rng.next_f64();
    let list = candidates.as_list();
    if list.is_empty() {
        return None;
    }
    let mut total = 0.0f64;
    for c in list.iter_mut() {
        c.p = libm::expf(c.logit - max);
        total += f64::from(c.p);
    }
    let target = total * fraction;
    let mut sum = 0.0f64;
    let mut chosen = None;
    for c in list.iter().filter(|c| c.p > 0.0) {
        sum += f64::from(c.p);
        chosen = Some(c.id);
        if sum >= target {
            break;
        }
    }
    chosen
}

/// Draws by the probabilities that are there, as GNU's `std::discrete_distribution` does: no
/// random number for a single candidate.
pub(super) fn draw_from(list: &[Candidate], rng: &mut Mt19937) -> Option<Candidate> {
    if list.len() < 2 {
        return list.first().copied();
    }
    let total: f64 = list.iter().map(|c| f64::from(c.p)).sum();
    let fraction = rng.next_f64();
    let mut sum = 0.0f64;
    let probable = list.iter().filter(|c| c.p > 0.0);
    let mut chosen = None;
    for c in probable {
        sum += f64::from(c.p) / total;
        chosen = Some(*c);
        if sum >= fraction {
            break;
        }
    }
    chosen
}
