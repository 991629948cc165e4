//! What an observed run keeps of its tokens: checksums and the trace.

use super::super::protocol::Run;
use super::model::WorkerError;
use crate::engine::{EngineError, Selected, StopReason};
use crate::sampling::top_n_into;
use crate::tokenizer::TokenId;
use crate::trace::checksum::Checksums;
use crate::trace::{REQUIRED_KEYS, TraceHeader, TraceWriter};

/// Keeps nothing unless the run is observed.
pub struct Record {
    sums: Option<Checksums>,
    trace: Option<TraceWriter>,
    /// How many runners-up a trace's lines hold.
    top: usize,
    best: Vec<(TokenId, f32)>,
}

/// `own` with what the request's header says: keys that a trace must have are set, others added.
fn header(own: &TraceHeader, run: &Run) -> TraceHeader {
    let mut header = own.clone();
    for (key, value) in &run.header {
        let place = match key.as_str() {
            "model_sha256" => &mut header.model_sha256,
            "workload_id" => &mut header.workload_id,
            "lane" => &mut header.lane,
            // What the engine says of itself stands.
            own if REQUIRED_KEYS.contains(&own) => continue,
            _ => {
                header.more.push((key.clone(), value.clone()));
                continue;
            }
        };
        place.clone_from(value);
    }
    for place in [&mut header.workload_id, &mut header.lane] {
        if place.is_empty() {
            "-".clone_into(place);
        }
    }
    header
}

impl Record {
    /// Begins the record that `run` asks for.
    ///
    /// # Errors
    /// [`WorkerError::Output`].
    pub fn begin(own: &TraceHeader, run: &Run, prompt: &[TokenId]) -> Result<Self, WorkerError> {
        let trace = match run.trace.as_ref().filter(|_| run.observe) {
            Some(path) => Some(TraceWriter::create(path, &header(own, run), prompt)?),
            None => None,
        };
        Ok(Record {
            sums: run.observe.then(Checksums::default),
            trace,
            top: run.top_logprobs,
            best: Vec::new(),
        })
    }

    /// Adds a token and the logits it was chosen from, `[n_vocab]`.
    ///
    /// # Errors
    /// [`WorkerError`].
    pub fn token(&mut self, token: Selected, logits: &[f32]) -> Result<(), WorkerError> {
        if let Some(sums) = &mut self.sums {
            sums.add_id(token.id);
            sums.add_logits(logits);
        }
        if let Some(trace) = &mut self.trace {
            top_n_into(logits, self.top + 1, &mut self.best).map_err(EngineError::from)?;
            self.best.retain(|&(id, _)| id != token.id);
            self.best.truncate(self.top);
            trace.token(token.id, token.logit, &self.best)?;
        }
        Ok(())
    }

    /// Ends the record of a run that generated `text`.
    ///
    /// # Errors
    /// [`WorkerError::Output`].
    pub fn finish(
        mut self,
        stop: StopReason,
        text: &str,
    ) -> Result<Option<Checksums>, WorkerError> {
        if let Some(sums) = &mut self.sums {
            sums.add_text(text);
        }
        if let Some(trace) = self.trace {
            trace.finish(stop.name())?;
        }
        Ok(self.sums)
    }
}
