//! What exact arithmetic says of a stream: the oracle's logits at chosen positions, and all its
//! tensors at one.

use super::error::CompareError;
use super::forcing::Stream;
use super::scratch::{RowStore, Scratch};
use super::stages::Stages;
use super::trail::Exact;
use crate::gguf::Gguf;
use crate::gguf::TensorType;
use crate::model::{self, Model};
use crate::oracle::{BATCH, Oracle, Want};
use std::path::Path;

/// What the oracle said.
pub struct Judgement {
    /// Positions of the stream at which it spoke, ascending.
    pub positions: Vec<usize>,
    /// Its logits there, a row each.
    rows: Option<RowStore<f64>>,
    /// Its tensors at the position that was asked for.
    pub tensors: Vec<Exact>,
    /// What one operation of a sound engine may add to a tensor's relative error, with the
    /// weights of this model.
    pub noise: f64,
}

impl Judgement {
    /// Nothing was asked.
    pub fn none() -> Self {
        Judgement {
            positions: Vec::new(),
            rows: None,
            tensors: Vec::new(),
            noise: 0.0,
        }
    }

    /// The logits at a position; none where it was not asked.
    ///
    /// # Errors
    /// [`CompareError::Scratch`].
    pub fn logits(&mut self, position: usize) -> Result<Option<Vec<f64>>, CompareError> {
        let Ok(row) = self.positions.binary_search(&position) else {
            return Ok(None);
        };
        let rows = self.rows.as_mut();
        Ok(rows.map(|rows| rows.rows(row, 1)).transpose()?)
    }
}

/// Asks the oracle at `positions` of `stream`, ascending; its tensors are kept of `tensors_at`,
/// which is one of them.
///
/// # Errors
/// [`CompareError`].
pub fn judge(
    path: &Path,
    stream: &Stream,
    n_ctx: usize,
    positions: Vec<usize>,
    tensors_at: Option<usize>,
    scratch: &Scratch,
    stages: &Stages,
) -> Result<Judgement, CompareError> {
    let Some(&last) = positions.last() else {
        return Ok(Judgement::none());
    };
    let gguf = Gguf::open(path)?;
    let model = model::bind(&gguf)?;
    let mut oracle = Oracle::new(&gguf, &model)?.with_context(n_ctx);
    let mut rows = RowStore::create(scratch.file("oracle"), model.spec.n_vocab)?;
    let mut tensors = Vec::new();
    let ids = stream.upto(last);
    // A position's logits come after the last id before it.
    let place = |position: usize| stream.prompt + position - 1;
    let watched = tensors_at.map(place);
    let stage = stages.begin("the oracle", ids.len());
    // A batch at a time, so that no weight is decoded more often than in one call.
    for (at, chunk) in ids.chunks(BATCH).enumerate() {
        stages.check()?;
        let first = at * BATCH;
        let places = positions.iter().map(|&position| place(position));
        let wanted: Vec<usize> = places
            .filter(|place| (first..first + chunk.len()).contains(place))
            .map(|place| place - first)
            .collect();
        let logits = oracle.prefill_observed(chunk, Want::At(&wanted), &mut |seen| {
            if Some(seen.position) == watched {
                tensors.push(Exact {
                    layer: seen.layer,
                    point: seen.point,
                    values: seen.values.to_vec(),
                });
            }
        })?;
        logits.iter().try_for_each(|row| rows.push(row))?;
        stage.set(first + chunk.len());
    }
    Ok(Judgement {
        positions,
        rows: Some(rows),
        tensors,
        noise: noise(&gguf, &model),
    })
}

/// What one operation of a sound engine may add to the relative error of its result: rounding
/// activations to eight bits for quantized weights, to the weights' own type for short floats, for
/// full ones the half-precision cache and attention's integers.
fn noise(gguf: &Gguf, model: &Model) -> f64 {
    let matrices = model.tensors.layers.iter();
    let matrices = matrices.flat_map(|l| [l.wq, l.wk, l.wv, l.wo, l.w_gate, l.w_up, l.w_down]);
    let of = |ty: TensorType| match ty {
        TensorType::F32 => 2e-4,
        TensorType::F16 => 1e-3,
        TensorType::BF16 => 4e-3,
        _ => 1e-2,
    };
    let all = matrices.map(|id| of(gguf.tensors()[id.index()].ty));
    all.fold(0.0, f64::max)
}
