//! From a workload's prompt to the text that every engine is fed.

use std::path::{Path, PathBuf};

use super::document::read_text;
use super::{Formatter, WorkloadError};
use crate::chat::{ChatTemplate, Message, RenderOptions, needs_bos};
use crate::gguf::Gguf;
use crate::tokenizer::{EncodeOptions, TokenId, Tokenizer};

/// The longest prompt that is read.
const MAX_BYTES: u64 = 64 << 20;

/// What a model's file says about text: its vocabulary and template.
pub struct ModelText {
    path: PathBuf,
    tokenizer: Tokenizer,
    template: Option<String>,
}

impl ModelText {
    /// Reads them from a GGUF file; the weights are left alone.
    ///
    /// # Errors
    /// [`WorkloadError::Gguf`], [`WorkloadError::Tokenizer`].
    pub fn read(path: &Path) -> Result<ModelText, WorkloadError> {
        let gguf = Gguf::open(path)?;
        let template = gguf.metadata().str("tokenizer.chat_template")?;
        Ok(ModelText {
            path: path.to_owned(),
            tokenizer: Tokenizer::from_metadata(gguf.metadata())?,
            template: template.map(str::to_owned),
        })
    }

    /// Whether it has a chat template.
    #[must_use]
    pub fn has_template(&self) -> bool {
        self.template.is_some()
    }

    /// The text to feed, ready for [`protocol::Run::text`](crate::bench::protocol::Run::text): a
    /// beginning-of-sequence token that the tokenizer adds by itself is not in it. `workload` names
    /// it in errors.
    ///
    /// # Errors
    /// [`WorkloadError::NoTemplate`], [`WorkloadError::Chat`].
    pub fn format(
        &self,
        formatter: Formatter,
        prompt: &str,
        workload: &str,
    ) -> Result<String, WorkloadError> {
        if formatter == Formatter::Raw {
            return Ok(prompt.to_owned());
        }
        let source = self
            .template
            .as_ref()
            .ok_or_else(|| WorkloadError::NoTemplate {
                id: workload.to_owned(),
                path: self.path.clone(),
            })?;
        let bos = self.piece(self.tokenizer.bos());
        let eos = self.piece(self.tokenizer.eos());
        let options = RenderOptions {
            add_generation_prompt: true,
            bos_token: &bos,
            eos_token: &eos,
            ..RenderOptions::default()
        };
        let messages = [Message::new("user", prompt)];
        let text = ChatTemplate::new(source)?.render(&messages, options)?;
        let add_bos = self.tokenizer.add_bos();
        if add_bos && !needs_bos(&text, &bos, add_bos) {
            return Ok(text.strip_prefix(&bos).unwrap_or(&text).to_owned());
        }
        Ok(text)
    }

    /// How many tokens a text has, with those that the model adds to every text.
    #[must_use]
    pub fn count(&self, text: &str) -> usize {
        let options = EncodeOptions {
            add_special: true,
            parse_special: true,
        };
        self.tokenizer.encode(text, options).len()
    }

    /// The vocabulary alone.
    #[must_use]
    pub fn into_tokenizer(self) -> Tokenizer {
        self.tokenizer
    }

    fn piece(&self, id: Option<TokenId>) -> String {
        let piece = id.and_then(|id| self.tokenizer.piece(id, true).ok());
        piece.map_or(String::new(), |piece| {
            String::from_utf8_lossy(&piece).into_owned()
        })
    }
}

/// Contexts are a multiple of this.
const CONTEXT_STEP: usize = 256;

/// Tokens of context for a prompt and what is generated after it, when nobody says how many.
#[must_use]
pub fn needed_context(n_prompt: usize, max_tokens: usize) -> usize {
    (n_prompt + max_tokens).next_multiple_of(CONTEXT_STEP)
}

/// A prompt's text. The newline that ends its last line is the file's, not the prompt's.
///
/// # Errors
/// [`WorkloadError::Read`].
pub fn read_prompt(path: &Path) -> Result<String, WorkloadError> {
    let mut text = read_text(path, MAX_BYTES)?;
    if text.ends_with('\n') {
        text.pop();
    }
    Ok(text)
}
