//! The embed machine: from tokens to the rows of the residual stream.
//!
//! An embedding table that is the output matrix too is in memory already, packed: its rows are
//! taken from there, and the file's map is left alone. Any other table stays in the file's map.
//! Either way a row is the file's bytes, so the values are the same.

use super::Engine;
use super::error::{EngineError, finish};
use super::observer::Tensor;
use crate::model::Point;
use crate::tokenizer::TokenId;
use sml::sml;

/// Looks up the tokens that the context names.
#[derive(Debug, Clone, Copy)]
pub struct LookUp;

sml! {
    Embed {
        *"idle"_s + event<LookUp> [tied] / unpack_rows = "found"_s,
        "idle"_s + event<LookUp> [!tied] / read_rows = "found"_s,
        "idle"_s + exception<_> = "failed"_s,
        "idle"_s + unexpected_event<_> / ignore,

        "found"_s + completion<_> [scaled] / (scale, show) = "done"_s,
        "found"_s + completion<_> [!scaled] / show = "done"_s,
        "found"_s + exception<_> = "failed"_s,
        "found"_s + unexpected_event<_> / ignore,

        "done"_s + unexpected_event<_> / ignore,
        "failed"_s + unexpected_event<_> / ignore,
    }
}

struct Context<'a> {
    engine: &'a mut Engine,
    tokens: &'a [TokenId],
    failure: &'a mut Option<EngineError>,
}

impl Context<'_> {
    /// Elements of the tokens' rows.
    fn n_values(&self) -> usize {
        self.tokens.len() * self.engine.spec.d_model
    }

    fn check(&mut self, result: Result<(), EngineError>) -> Result<(), ()> {
        result.map_err(|error| *self.failure = Some(error))
    }
}

impl EmbedStateMachineContext for Context<'_> {
    fn tied(&self, _: &LookUp) -> Result<bool, ()> {
        Ok(self.engine.embedding.tied)
    }

    fn scaled(&self) -> Result<bool, ()> {
        Ok(self.engine.spec.embedding_scale.is_some())
    }

    fn unpack_rows(&mut self, _: &LookUp) -> Result<(), ()> {
        let engine = &mut *self.engine;
        let (table, matrix) = (&mut engine.embedding, &engine.weights.output);
        let rows = engine.workspace.x.chunks_exact_mut(engine.spec.d_model);
        let result = self.tokens.iter().zip(rows).try_for_each(|(&id, row)| {
            matrix.unpack_row(id as usize, &mut table.row);
            table.dequantizer.row(&table.row, row)?;
            Ok(())
        });
        self.check(result)
    }

    fn read_rows(&mut self, _: &LookUp) -> Result<(), ()> {
        let engine = &mut *self.engine;
        let table = &engine.embedding;
        let tensor = &engine.source.tensors()[table.tensor.index()];
        let bytes = engine.source.data(tensor);
        let row_bytes = table.row.len();
        let rows = engine.workspace.x.chunks_exact_mut(engine.spec.d_model);
        let result = self.tokens.iter().zip(rows).try_for_each(|(&id, row)| {
            let start = id as usize * row_bytes;
            table
                .dequantizer
                .row(&bytes[start..start + row_bytes], row)?;
            Ok(())
        });
        // The system maps far more than a row at each touch; unreleased, the whole table would
        // soon be in memory.
        engine.source.release(tensor);
        self.check(result)
    }

    fn scale(&mut self) -> Result<(), ()> {
        let n = self.n_values();
        let factor = self.engine.spec.embedding_scale.unwrap_or(1.0);
        self.engine.workspace.x[..n]
            .iter_mut()
            .for_each(|value| *value *= factor);
        Ok(())
    }

    fn show(&mut self) -> Result<(), ()> {
        let engine = &*self.engine;
        engine.observer.tensor(Tensor {
            layer: None,
            point: Point::Embedding,
            position: engine.memory.n_past(),
            rows: self.tokens.len(),
            values: &engine.workspace.x[..self.n_values()],
        });
        Ok(())
    }

    fn ignore(&mut self) -> Result<(), ()> {
        Ok(())
    }
}

/// Writes the embedding rows of `tokens` to the residual stream, `[tokens, d_model]`.
///
/// # Errors
/// [`EngineError::Embedding`] when the table's rows are not those of the model.
pub(super) fn run(engine: &mut Engine, tokens: &[TokenId]) -> Result<(), EngineError> {
    let mut failure = None;
    let context = Context {
        engine,
        tokens,
        failure: &mut failure,
    };
    let mut machine = EmbedStateMachine::new(context);
    // What went wrong stands in `failure`; a table without a row for the case ends elsewhere.
    let _ = machine.process_event(LookUp);
    let done = machine.is(&EmbedStates::Done);
    finish(done, failure)
}
