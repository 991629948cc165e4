//! Given tokens in place of chosen ones: what `force` asks for.
//!
//! Each row of logits is that of a prompt: the first as long as the request says, every later one
//! longer by one token. What a prompt shares with the cache is not computed again, so a later row
//! costs what a step of decode does; and since every way through the engine yields the same bits,
//! it is the row that a run which chose these tokens saw.

use std::ops::RangeInclusive;

use super::super::protocol::{Force, Forced, TensorPlace};
use super::model::{Model, WorkerError, taken};
use crate::engine::{EngineError, Generator, Output, Prompt};
use crate::output::AtomicFile;
use crate::tokenizer::TokenId;

/// A request that asks for nothing that can be done.
#[derive(Debug, thiserror::Error)]
pub enum ForceError {
    /// No tokens.
    #[error("`ids` is empty: give at least one token")]
    NoTokens,
    /// More prompt than tokens.
    #[error("`prompt` is {prompt}, but `ids` has {ids}: give at most that many")]
    Prompt {
        /// Tokens that should be the prompt.
        prompt: usize,
        /// Tokens given.
        ids: usize,
    },
    /// Nothing to go on from.
    #[error("`prompt` is 0, but no `force` came just before: give the whole prompt")]
    NothingForced,
    /// One file for two things.
    #[error("`logits` and `tensors` name the same file: give each its own")]
    SameFile,
}

/// Appends `values` to `file`, in little-endian order.
fn write(file: &mut AtomicFile, values: &[f32]) -> Result<(), WorkerError> {
    let bytes: Vec<u8> = values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    Ok(file.write(&bytes)?)
}

impl Model {
    /// Feeds given tokens and writes the logits after each. A row that is not a number is written
    /// as it is.
    ///
    /// # Errors
    /// [`WorkerError`]; the model can be used again. A request that is refused before anything is
    /// computed leaves the cache as it was.
    pub fn force(&self, force: &Force) -> Result<Forced, WorkerError> {
        let (tokens, rows) = self.plan(force)?;
        let mut logits = AtomicFile::create(&force.logits)?;
        let tensors = force.tensors.as_deref();
        let mut tensors = tensors.map(AtomicFile::create).transpose()?;

        self.forced.set(false);
        if force.prompt > 0 {
            self.session.forget();
        }
        let mut tapped = Vec::new();
        for end in rows.clone() {
            if end == tokens.len() && tensors.is_some() {
                self.taps.watch(end - 1);
            }
            let read = self.read(&tokens[..end]);
            tapped = self.taps.take();
            read?;
            write(&mut logits, &self.session.logits())?;
        }
        let mut places = Vec::new();
        if let Some(file) = &mut tensors {
            for tapped in tapped {
                write(file, &tapped.values)?;
                places.push(TensorPlace {
                    layer: tapped.layer,
                    point: tapped.point.name().to_owned(),
                    len: tapped.values.len(),
                });
            }
        }
        logits.commit()?;
        tensors.map_or(Ok(()), AtomicFile::commit)?;
        self.forced.set(true);
        Ok(Forced {
            rows: rows.count(),
            n_vocab: self.session.engine().n_vocab(),
            tensors: places,
        })
    }

    /// All tokens that the context is to hold, and after how many of them logits are wanted.
    fn plan(&self, force: &Force) -> Result<(Vec<TokenId>, RangeInclusive<usize>), WorkerError> {
        let (prompt, ids) = (force.prompt, force.ids.len());
        if ids == 0 {
            return Err(ForceError::NoTokens.into());
        }
        if prompt > ids {
            return Err(ForceError::Prompt { prompt, ids }.into());
        }
        if prompt == 0 && !self.forced.get() {
            return Err(ForceError::NothingForced.into());
        }
        if force.tensors.as_deref() == Some(force.logits.as_path()) {
            return Err(ForceError::SameFile.into());
        }
        let mut tokens = match prompt {
            0 => self.session.cached_tokens().to_vec(),
            _ => Vec::new(),
        };
        let first = tokens.len() + prompt.max(1);
        tokens.extend(&force.ids);
        // The generator would find these too, but only after computing what comes before.
        let engine = self.session.engine();
        let (n_prompt, n_ctx, n_vocab) = (tokens.len(), engine.n_ctx(), engine.n_vocab());
        if n_prompt > n_ctx {
            return Err(EngineError::PromptTooLong { n_prompt, n_ctx }.into());
        }
        if let Some(&id) = tokens.iter().find(|id| **id as usize >= n_vocab) {
            return Err(EngineError::ForeignToken { id, n_vocab }.into());
        }
        Ok((tokens, first..=n_prompt))
    }

    /// Passes what of `tokens` the cache does not hold.
    fn read(&self, tokens: &[TokenId]) -> Result<(), WorkerError> {
        let output = Output::new();
        Generator::new(&self.session).process_event(Prompt {
            tokens,
            output: &output,
        });
        taken(&output).map(|_| ())
    }
}
