//! Text to tokens and back.

use emel::gguf::{Metadata, Strings};
use emel::tokenizer::{EncodeOptions, TokenId, Tokenizer};

use crate::defect::{Defect, DefectError};
use crate::error::PlainError;

const MERGES: &str = "tokenizer.ggml.merges";
const TOKENS: &str = "tokenizer.ggml.tokens";
const TYPES: &str = "tokenizer.ggml.token_type";
/// The type of a token that is a piece of text and nothing else.
const NORMAL: i32 = 1;

/// A model's vocabulary.
pub struct Vocabulary {
    tokenizer: Tokenizer,
    /// Reads texts in place of the other, which is a defect.
    reader: Option<Tokenizer>,
    /// BOS is left out, which is a defect.
    no_bos: bool,
}

impl Vocabulary {
    /// Reads a file's vocabulary, and spoils it if asked to.
    pub fn read(metadata: &Metadata, defect: Option<&Defect>) -> Result<Self, PlainError> {
        let tokenizer = Tokenizer::from_metadata(metadata)?;
        let no_bos = defect == Some(&Defect::NoBos);
        if no_bos && !(tokenizer.add_bos() && tokenizer.bos().is_some()) {
            return Err(DefectError::NoBos.into());
        }
        let reader = match defect {
            Some(Defect::LostMerge(token)) => {
                let metadata = without_merge(metadata, token)?;
                Some(Tokenizer::from_metadata(&metadata)?)
            }
            _ => None,
        };
        Ok(Vocabulary {
            tokenizer,
            reader,
            no_bos,
        })
    }

    /// The tokens of a text that is formatted already.
    pub fn encode(&self, text: &str) -> Vec<TokenId> {
        let options = EncodeOptions {
            add_special: true,
            parse_special: true,
        };
        let reader = self.reader.as_ref().unwrap_or(&self.tokenizer);
        let mut ids = reader.encode(text, options);
        if self.no_bos {
            ids.remove(0);
        }
        ids
    }

    /// The text of generated tokens; control tokens have none.
    pub fn text(&self, ids: &[TokenId]) -> String {
        let mut detokenizer = self.tokenizer.detokenizer(false);
        let mut text = String::new();
        for &id in ids {
            text.push_str(detokenizer.push(id));
        }
        text.push_str(detokenizer.finish());
        text
    }

    /// Whether a generation ends with this token.
    pub fn is_end(&self, id: TokenId) -> bool {
        self.tokenizer.is_eog(id)
    }
}

/// A vocabulary that cannot join two parts to `token`. Where several merges of a list lead there,
/// all are left out: one that stays would make up for the others. A tokenizer that takes whole
/// words from its vocabulary before it merges (`llama-bpe`) still finds the token as a whole word.
fn without_merge(metadata: &Metadata, token: &str) -> Result<Metadata, PlainError> {
    let none = || DefectError::Merge(token.to_owned());
    let changed = match metadata.strings(MERGES)? {
        Some(merges) => {
            let others = merges.iter().filter(|merge| joined(merge) != token);
            let others: Strings = others.collect();
            if others.len() == merges.len() {
                return Err(none().into());
            }
            (MERGES, others)
        }
        // SentencePiece has no list: any two parts are joined whose joined text is a token's.
        None => {
            let tokens = metadata.require_strings(TOKENS)?;
            let types = metadata.i32s(TYPES)?;
            let is_normal = |id: &usize| {
                let types = types.as_ref();
                types.is_none_or(|types| types.get(*id) == Some(&NORMAL))
            };
            let id = tokens.iter().position(|other| other == token);
            let id = id.filter(is_normal).filter(|_| token.chars().count() > 1);
            let lost = id.ok_or_else(none)?;
            // Spaces are written as markers, so that no text ever matches this.
            let spoil = |(id, text)| if id == lost { "a lost merge" } else { text };
            (TOKENS, tokens.iter().enumerate().map(spoil).collect())
        }
    };
    let mut metadata = metadata.clone();
    metadata.set(changed.0, changed.1);
    Ok(metadata)
}

/// What a merge makes: its two parts without the space between. The first character belongs to
/// the left part, whatever it is.
fn joined(merge: &str) -> String {
    let space = merge.char_indices().skip(1).find(|(_, c)| *c == ' ');
    space.map_or_else(String::new, |(at, _)| {
        [&merge[..at], &merge[at + 1..]].concat()
    })
}
