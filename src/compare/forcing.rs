//! Teacher forcing: an engine fed a stream of tokens that are not its own.

use super::error::CompareError;
use super::scratch::{Scratch, read_all};
use crate::bench::backend::Backend;
use crate::bench::protocol::{Force, Forced, Request};
use crate::trace::Trace;

/// Steps between two signs of life.
const CHUNK: usize = 16;

/// A prompt, and the tokens after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    /// All of them.
    pub ids: Vec<u32>,
    /// How many of them are the prompt; at least 1.
    pub prompt: usize,
}

impl Stream {
    /// What a run was asked, and what it chose.
    pub fn of(trace: &Trace) -> Self {
        let tokens = trace.tokens.iter().map(|token| token.id);
        Stream {
            ids: trace.prompt.iter().copied().chain(tokens).collect(),
            prompt: trace.prompt.len(),
        }
    }

    /// Whether the position `index` is on this stream, and comes after the same tokens as on the
    /// other.
    pub fn goes_along(&self, other: &Stream, index: usize) -> bool {
        let is_on = |stream: &Stream| index < stream.positions();
        let same = self.prompt == other.prompt && is_on(self) && is_on(other);
        same && self.upto(index) == other.upto(index)
    }

    /// Positions whose logits choose a token of the stream: one a token after the prompt.
    pub fn positions(&self) -> usize {
        self.ids.len() - self.prompt
    }

    /// The ids whose last one yields the logits of position `index`.
    pub fn upto(&self, index: usize) -> &[u32] {
        &self.ids[..self.prompt + index]
    }
}

/// A tensor of one position, as an engine gave it.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// The layer; none for what belongs to no layer.
    pub layer: Option<usize>,
    /// The point's name.
    pub point: String,
    /// The values.
    pub values: Vec<f32>,
}

/// Feeds `stream` to a backend and hands each position's logits, `[rows, n_vocab]` with the first
/// row's position, to `each`. At `tensors_at`, if any, its tensors are taken, too.
///
/// # Errors
/// [`CompareError`]; a backend whose answer does not fit is one.
pub fn force(
    backend: &mut Backend,
    stream: &Stream,
    tensors_at: Option<usize>,
    scratch: &Scratch,
    mut each: impl FnMut(usize, usize, &[f32]) -> Result<(), CompareError>,
) -> Result<Vec<Told>, CompareError> {
    let mut told = Vec::new();
    let mut position = 0;
    while position < stream.positions() {
        // The prompt's one row; then some steps, the last of which is the one to look at, if any.
        let step = if position == 0 { 1 } else { CHUNK };
        let mut end = (position + step).min(stream.positions());
        let at = tensors_at.filter(|&at| (position..end).contains(&at));
        end = at.map_or(end, |at| at + 1);
        let prompt = if position == 0 { stream.prompt } else { 0 };
        let fed = if position == 0 {
            0
        } else {
            stream.prompt + position - 1
        };
        let (logits, tensors) = (scratch.file("logits"), scratch.file("tensors"));
        let forced: Forced = backend.request(&Request::Force(Force {
            ids: stream.ids[fed..stream.prompt + end - 1].to_vec(),
            prompt,
            logits: logits.clone(),
            tensors: at.map(|_| tensors.clone()),
        }))?;
        let rows: Vec<f32> = read_all(&logits)?;
        let misfit = |what: String| CompareError::Misfit {
            name: backend.name().to_owned(),
            what,
        };
        if forced.rows != end - position || rows.len() != forced.rows * forced.n_vocab {
            let numbers = (forced.rows, forced.n_vocab, rows.len(), end - position);
            return Err(misfit(format!(
                "{} rows of {} logits said, {} logits written, {} rows due",
                numbers.0, numbers.1, numbers.2, numbers.3
            )));
        }
        if at.is_some() {
            told = take(&forced, &read_all(&tensors)?).ok_or_else(|| {
                misfit("the file of tensors is shorter than the answer says".to_owned())
            })?;
        }
        each(position, forced.n_vocab, &rows)?;
        position = end;
    }
    Ok(told)
}

/// The tensors of an answer, from the file's values; none when there are too few.
fn take(forced: &Forced, mut values: &[f32]) -> Option<Vec<Told>> {
    let mut told = Vec::new();
    for place in &forced.tensors {
        let (own, rest) = values.split_at_checked(place.len)?;
        values = rest;
        told.push(Told {
            layer: place.layer,
            point: place.point.clone(),
            values: own.to_vec(),
        });
    }
    Some(told)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::protocol::TensorPlace;

    #[test]
    fn a_position_counts_where_the_stream_goes_along() {
        let stream = |ids: &[u32]| Stream {
            ids: ids.to_vec(),
            prompt: 2,
        };
        let emel = stream(&[1, 2, 5, 6, 7]);
        assert!(stream(&[1, 2, 5, 6, 7]).goes_along(&emel, 2));
        assert!(stream(&[1, 2, 5, 9, 7]).goes_along(&emel, 1));
        assert!(!stream(&[1, 2, 5, 9, 7]).goes_along(&emel, 2));
        assert!(!stream(&[1, 2, 5]).goes_along(&emel, 1));
    }

    #[test]
    fn tensors_are_cut_from_the_file_in_order() {
        let place = |layer, point: &str, len| TensorPlace {
            layer,
            point: point.to_owned(),
            len,
        };
        let forced = Forced {
            rows: 1,
            n_vocab: 2,
            tensors: vec![place(None, "embedding", 1), place(Some(0), "q", 2)],
        };
        let told = take(&forced, &[1.0, 2.0, 3.0]).unwrap();
        assert_eq!(told[1].values, [2.0, 3.0]);
        assert_eq!(told[1].layer, Some(0));
        assert!(take(&forced, &[1.0, 2.0]).is_none());
    }
}
