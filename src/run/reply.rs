//! One reply: a prompt's tokens go in, text streams out, and what was chosen is recorded.

use std::io::Write;
use std::time::Instant;

use super::args::{Predict, RunConfig};
use super::error::RunError;
use super::sink::{TextSink, Written};
use super::stop::StopMatcher;
use super::timings::Timings;
use crate::cli::interrupt::Interrupt;
use crate::engine::{
    EngineError, Generator, Halt, Limits, Output, Prompt, Selected, Session, Step, Stepped,
    StopReason,
};
use crate::sampling::top_n_into;
use crate::tokenizer::{TokenId, Tokenizer};
use crate::trace::checksum::Checksums;
use crate::trace::{TraceHeader, TraceWriter};

/// What a reply needs besides its prompt, and what it adds to.
pub struct Replier<'a, W> {
    /// What was asked for.
    pub config: &'a RunConfig,
    /// The model's vocabulary.
    pub tokenizer: &'a Tokenizer,
    /// The engine's session.
    pub session: &'a Session,
    /// The machine over it.
    pub generator: Generator<'a>,
    /// Where text goes.
    pub sink: TextSink<W>,
    /// Ctrl-C.
    pub interrupt: Interrupt,
    /// What traces say about this run.
    pub header: TraceHeader,
    /// The three checksums, over all replies.
    pub sums: Checksums,
    /// Times of all replies.
    pub timings: Timings,
}

/// How a reply ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The generated text, without a stop string that ended it.
    pub text: String,
    /// Why it ended.
    pub stop: StopReason,
    /// Nobody reads standard output any more.
    pub reader_gone: bool,
}

/// The limits that `config` asks for.
pub fn limits(config: &RunConfig, tokenizer: &Tokenizer) -> Limits {
    let max_tokens = match config.n_predict {
        Predict::Endless | Predict::UntilFull => None,
        Predict::Count(count) => Some(count as usize),
    };
    let ids = 0..TokenId::try_from(tokenizer.n_vocab()).unwrap_or(TokenId::MAX);
    Limits {
        max_tokens,
        end_tokens: ids.filter(|&id| tokenizer.is_eog(id)).collect(),
    }
}

/// A dispatch that the generator did not take: its machine is in no state for it.
fn taken<T>(output: &Output<T>) -> Result<T, RunError> {
    Ok(output.take().ok_or(RunError::NotTaken)??)
}

impl<W: Write> Replier<'_, W> {
    /// Generates until something ends the reply. `show_prompt` writes the prompt first, once
    /// the model has read it: a prompt that cannot be run leaves nothing on standard output.
    ///
    /// # Errors
    /// [`RunError`]; the trace then does not appear.
    pub fn reply(&mut self, prompt: &[TokenId], show_prompt: bool) -> Result<Reply, RunError> {
        let mut trace = match &self.config.trace {
            Some(path) => Some(TraceWriter::create(path, &self.header, prompt)?),
            None => None,
        };
        let mut detokenizer = self.tokenizer.detokenizer(self.config.special);
        let mut shown = String::new();
        for &id in prompt {
            shown.push_str(detokenizer.push(id));
        }
        let whole = self.prefill(prompt)?;
        let mut written = Written::Out;
        if show_prompt && whole {
            written = self.sink.show(&shown)?;
        }

        let mut matcher = StopMatcher::new(&self.config.stop);
        let mut text = String::new();
        let mut best = Vec::with_capacity(self.config.top_logprobs + 2);
        let begun = Instant::now();
        let stop = loop {
            if written == Written::ReaderGone || self.interrupt.is_pressed() {
                break self.halt(StopReason::Cancelled)?;
            }
            let stepped = self.step()?;
            if let Some(token) = stepped.token {
                self.record(token, trace.as_mut(), &mut best)?;
                let ends = stepped.stop == Some(StopReason::EndOfGeneration);
                if !ends || self.config.special {
                    let (out, stopped) = matcher.push(detokenizer.push(token.id));
                    text.push_str(out);
                    written = self.sink.generated(out, &mut self.sums)?;
                    if stopped {
                        break self.halt(StopReason::StopString)?;
                    }
                }
            }
            if let Some(stop) = stepped.stop {
                break stop;
            }
        };
        self.interrupt.take();
        let tail = matcher.push(detokenizer.finish()).0.to_owned() + matcher.finish();
        text.push_str(&tail);
        if written == Written::Out {
            written = self.sink.generated(&tail, &mut self.sums)?;
        }
        self.timings.eval += begun.elapsed();
        if let Some(trace) = trace {
            trace.finish(stop.name())?;
        }
        let reader_gone = written == Written::ReaderGone;
        Ok(Reply {
            text,
            stop,
            reader_gone,
        })
    }

    /// Passes the prompt through the model; false when the user has ended it.
    fn prefill(&mut self, prompt: &[TokenId]) -> Result<bool, RunError> {
        let begun = Instant::now();
        let output = Output::new();
        self.generator.process_event(Prompt {
            tokens: prompt,
            output: &output,
        });
        let prefilled = taken(&output)?;
        self.timings.n_prompt += prefilled.computed as u64;
        self.timings.prompt += begun.elapsed();
        Ok(prefilled.whole)
    }

    fn step(&mut self) -> Result<Stepped, RunError> {
        let output = Output::new();
        self.generator.process_event(Step { output: &output });
        taken(&output)
    }

    /// Ends the reply from here, unless it has ended by itself.
    fn halt(&mut self, reason: StopReason) -> Result<StopReason, RunError> {
        let output = Output::new();
        if self.generator.process_event(Halt {
            reason,
            output: &output,
        }) && !self.generator.is_finished()
        {
            return Err(RunError::NotTaken);
        }
        Ok(reason)
    }

    /// Counts a token: checksums, trace, timings.
    fn record(
        &mut self,
        token: Selected,
        trace: Option<&mut TraceWriter>,
        best: &mut Vec<(TokenId, f32)>,
    ) -> Result<(), RunError> {
        self.sums.add_id(token.id);
        // The first token comes from the prompt's logits; the others took a step of the model.
        self.timings.n_eval += u64::from(token.index > 0);
        let logits = self.session.logits();
        if self.config.logits_checksum {
            self.sums.add_logits(&logits);
        }
        if let Some(trace) = trace {
            let n = self.config.top_logprobs;
            top_n_into(&logits, n + 1, best).map_err(EngineError::from)?;
            best.retain(|&(id, _)| id != token.id);
            best.truncate(n);
            trace.token(token.id, token.logit, best)?;
        }
        Ok(())
    }
}
