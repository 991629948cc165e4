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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_those_of_the_c_plus_plus_library() {
        // From g++ 12: a std::mt19937, two fractions from uniform_real_distribution<double>,
        // one from <float>, then discrete_distribution over 0.1, 0.2, 0.3, 0.4.
        let recorded = [
            (
                5489,
                [0.135_477_004_296_780_5, 0.835_008_589_994_579_5],
                0.126_986_82,
                "330123313323",
            ),
            (
                42,
                [0.796_542_984_287_846, 0.183_434_787_893_368_48],
                0.731_993_9,
                "211033303311",
            ),
        ];
        for (seed, doubles, single, ids) in recorded {
            let mut rng = Mt19937::new(seed);
            assert_eq!([rng.next_f64(), rng.next_f64()], doubles);
            assert_eq!(rng.next_f32(), single);
            let candidate = |(id, p)| Candidate { id, logit: 0.0, p };
            let list: Vec<Candidate> = (0..).zip([0.1, 0.2, 0.3, 0.4]).map(candidate).collect();
            let drawn: Vec<u32> = (0..12)
                .map(|_| draw_from(&list, &mut rng).unwrap().id)
                .collect();
            let drawn: String = drawn.iter().map(u32::to_string).collect();
            assert_eq!(drawn, ids);
        }
    }
}
