//! The best token, and the n best. The lowest id wins a tie; NaN is an error, since it has no
//! place in any order and means that the model or the engine is broken.

use super::SampleError;

/// Id and logit of the largest of `logits`, `[n_vocab]`; of equal ones the lowest id.
///
/// # Errors
/// [`SampleError::Empty`]; [`SampleError::Nan`] with the first id whose logit is NaN.
pub fn argmax(logits: &[f32]) -> Result<(u32, f32), SampleError> {
    let mut best = 0;
    let mut largest = *logits.first().ok_or(SampleError::Empty)?;
    let mut nan = false;
    for (id, &logit) in logits.iter().enumerate() {
        nan |= logit.is_nan();
        if logit > largest {
            (best, largest) = (id, logit);
        }
    }
    if nan {
        return Err(first_nan(logits));
    }
    // A vocabulary has fewer than 2^32 tokens.
    Ok((best as u32, largest))
}

/// The `n` best ids with their logits, descending, ties with the lowest id first; fewer when
/// the vocabulary is smaller.
///
/// # Errors
/// As [`argmax`], but an empty slice gives an empty list.
pub fn top_n(logits: &[f32], n: usize) -> Result<Vec<(u32, f32)>, SampleError> {
    let mut best = Vec::with_capacity(n.min(logits.len()) + 1);
    top_n_into(logits, n, &mut best)?;
    Ok(best)
}

/// [`top_n`] into a list that is there already; allocates nothing once it holds `n + 1`.
/// Meant for an `n` of up to some hundreds: each newcomer moves those behind it.
///
/// # Errors
/// As [`top_n`].
pub fn top_n_into(logits: &[f32], n: usize, best: &mut Vec<(u32, f32)>) -> Result<(), SampleError> {
    best.clear();
    if logits.iter().any(|logit| logit.is_nan()) {
        return Err(first_nan(logits));
    }
    for (id, &logit) in logits.iter().enumerate() {
        if best.len() == n && best.last().is_none_or(|&(_, worst)| logit <= worst) {
            continue;
        }
        let place = best.partition_point(|&(_, other)| other >= logit);
        best.insert(place, (id as u32, logit));
        best.truncate(n);
    }
    Ok(())
}

/// The error for logits of which some are NaN.
pub(super) fn first_nan(logits: &[f32]) -> SampleError {
    let id = logits
        .iter()
        .position(|logit| logit.is_nan())
        .unwrap_or_default();
    SampleError::Nan { id: id as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_id_wins_a_tie() {
        assert_eq!(argmax(&[1.0, 3.0, 3.0, 2.0]), Ok((1, 3.0)));
        assert_eq!(argmax(&[-0.0, 0.0]), Ok((0, -0.0)));
        assert_eq!(argmax(&[f32::NEG_INFINITY; 3]), Ok((0, f32::NEG_INFINITY)));
        assert_eq!(argmax(&[1.0, f32::INFINITY]), Ok((1, f32::INFINITY)));
    }

    #[test]
    fn nan_and_nothing_are_errors() {
        assert_eq!(argmax(&[]), Err(SampleError::Empty));
        assert_eq!(argmax(&[f32::NAN]), Err(SampleError::Nan { id: 0 }));
        assert_eq!(
            argmax(&[1.0, 0.0, f32::NAN, f32::NAN]),
            Err(SampleError::Nan { id: 2 })
        );
        assert_eq!(top_n(&[1.0, f32::NAN], 1), Err(SampleError::Nan { id: 1 }));
    }

    #[test]
    fn the_n_best_descend() {
        let logits = [2.0, 5.0, 2.0, 7.0, 5.0, -1.0];
        assert_eq!(
            top_n(&logits, 4).unwrap(),
            [(3, 7.0), (1, 5.0), (4, 5.0), (0, 2.0)]
        );
        assert_eq!(top_n(&logits, 0).unwrap(), []);
        assert_eq!(top_n(&logits, 99).unwrap().len(), 6);
        assert_eq!(top_n(&logits, 99).unwrap()[5], (5, -1.0));
        assert_eq!(top_n(&[], 3).unwrap(), []);
    }

    #[test]
    fn the_n_best_agree_with_sorting() {
        let mut rng = super::super::Mt19937::new(1);
        for len in [1usize, 2, 10, 300] {
            // Few distinct values, so that ties are common.
            let logits: Vec<f32> = (0..len).map(|_| (rng.next_u32() % 7) as f32).collect();
            let mut sorted: Vec<(u32, f32)> = (0..).zip(logits.iter().copied()).collect();
            sorted.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
            for n in [1, 3, len / 2, len] {
                assert_eq!(top_n(&logits, n).unwrap(), sorted[..n.min(len)]);
            }
            assert_eq!(argmax(&logits).unwrap(), sorted[0]);
        }
    }

    #[test]
    fn a_list_that_is_there_is_used_again() {
        let mut best = Vec::with_capacity(4);
        let place = best.as_ptr();
        for round in 0..3 {
            let logits: Vec<f32> = (0..50).map(|id| ((id * 7 + round) % 50) as f32).collect();
            top_n_into(&logits, 3, &mut best).unwrap();
            assert_eq!((best.len(), best.as_ptr()), (3, place));
        }
    }
}
