//! What an observed run keeps of its tokens: checksums and the trace.

use emel::bench::protocol::Run;
use emel::sampling::top_n;
use emel::trace::checksum::Checksums;
use emel::trace::{REQUIRED_KEYS, TraceHeader, TraceWriter};

use crate::error::PlainError;

/// The most runners-up on a trace's line.
const MOST_LOGPROBS: usize = 1024;

/// Keeps nothing unless the run is observed.
pub struct Record {
    sums: Option<Checksums>,
    trace: Option<TraceWriter>,
    /// How many runners-up a trace's lines hold.
    top: usize,
}

/// `own` with what the request's header says, but for what this engine says of itself.
fn header(own: &TraceHeader, run: &Run) -> TraceHeader {
    let mut header = TraceHeader {
        workload_id: "-".to_owned(),
        lane: "-".to_owned(),
        ..own.clone()
    };
    for (key, value) in &run.header {
        match key.as_str() {
            "model_sha256" => header.model_sha256.clone_from(value),
            "workload_id" => header.workload_id.clone_from(value),
            "lane" => header.lane.clone_from(value),
            own if REQUIRED_KEYS.contains(&own) => {}
            own if header.more.iter().any(|(key, _)| key == own) => {}
            _ => header.more.push((key.clone(), value.clone())),
        }
    }
    header
}

impl Record {
    /// Begins the record that `run` asks for.
    pub fn begin(own: &TraceHeader, run: &Run, prompt: &[u32]) -> Result<Self, PlainError> {
        if run.top_logprobs > MOST_LOGPROBS {
            return Err(PlainError::Bounds {
                field: "top_logprobs",
                value: run.top_logprobs,
                least: 0,
                most: MOST_LOGPROBS,
            });
        }
        let trace = match run.trace.as_ref().filter(|_| run.observe) {
            Some(path) => Some(TraceWriter::create(path, &header(own, run), prompt)?),
            None => None,
        };
        Ok(Record {
            sums: run.observe.then(Checksums::default),
            trace,
            top: run.top_logprobs,
        })
    }

    /// Adds a token and the logits it was chosen from, `[n_vocab]`.
    pub fn token(&mut self, id: u32, logit: f32, logits: &[f32]) -> Result<(), PlainError> {
        if let Some(sums) = &mut self.sums {
            sums.add_id(id);
            sums.add_logits(logits);
        }
        if let Some(trace) = &mut self.trace {
            let mut next = top_n(logits, self.top + 1)?;
            next.retain(|&(other, _)| other != id);
            trace.token(id, logit, &next)?;
        }
        Ok(())
    }

    /// Ends the record of a run that generated `text` and ended for the reason `stop`.
    pub fn finish(mut self, stop: &str, text: &str) -> Result<Option<Checksums>, PlainError> {
        if let Some(sums) = &mut self.sums {
            sums.add_text(text);
        }
        if let Some(trace) = self.trace {
            trace.finish(stop)?;
        }
        Ok(self.sums)
    }
}
