//! Tokenizers read from GGUF metadata: text to token ids and back.
//!
//! A file's `tokenizer.ggml.*` keys hold the vocabulary, its kind and its rules. Two kinds are
//! supported: byte pair encoding (`gpt2`, and Gemma 4's `gemma4`) and SPM (`llama`). Results are
//! those of llama.cpp's `llama_tokenize`, token for token, which is tested with the vectors that
//! its vocabulary files come with and with recorded ones.
//!
//! The way of a text:
//!
//! 1. `special` cuts out special tokens; BOS, EOS and SPM's space prefix are added by rule.
//! 2. BPE: `pretok` cuts the rest into words. SPM, and BPE over whole lines: `spans` cuts
//!    where no token can reach across.
//! 3. `cache` remembers the words of this text; new ones go through `merge`.
//!
//! All steps take time proportional to the text, times the logarithm of the longest word.

mod bpe;
mod cache;
mod classes;
mod classes_data;
mod detok;
mod error;
mod hash;
mod ids;
mod merge;
mod pretok;
mod spans;
mod special;
mod spm;
#[cfg(test)]
mod tests;
mod text;
mod vocab;

pub use detok::Detokenizer;
pub use error::TokenizerError;

use crate::gguf::Metadata;
use bpe::Bpe;
use cache::WordCache;
use ids::SpecialIds;
use merge::Merger;
use special::{Part, SpecialTokens};
use spm::Spm;
use std::borrow::Cow;
use std::ops::Range;
use text::{MARKER, Spelling, push_unmarked};
use vocab::{CONTROL, END, STRIP_RIGHT, Vocab};

/// A token's number in its vocabulary, from 0.
pub type TokenId = u32;

/// How a text is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncodeOptions {
    /// Adds BOS before and EOS after the text where the model's rules say so.
    pub add_special: bool,
    /// Takes the texts of control tokens (`<|im_end|>`) for these tokens. User-defined tokens
    /// are recognized in any case.
    pub parse_special: bool,
}

/// A vocabulary with its rules.
pub struct Tokenizer {
    vocab: Vocab,
    kind: Kind,
    pre_name: String,
    ids: SpecialIds,
    add_bos: bool,
    add_eos: bool,
    /// User-defined tokens, and all special tokens.
    special: [SpecialTokens; 2],
}

enum Kind {
    Bpe(Bpe),
    Spm(Spm),
}

const MODEL: &str = "tokenizer.ggml.model";
const PRE: &str = "tokenizer.ggml.pre";
const ADD_BOS: &str = "tokenizer.ggml.add_bos_token";
const ADD_EOS: &str = "tokenizer.ggml.add_eos_token";
const ADD_SPACE_PREFIX: &str = "tokenizer.ggml.add_space_prefix";

/// No part of a text longer than this is tokenized as one, so that 32-bit offsets suffice.
const LONGEST_PART: usize = 1 << 30;

impl Tokenizer {
    /// Builds the tokenizer that a file's metadata describes.
    ///
    /// # Errors
    ///
    /// A required key is missing or of the wrong type; the kind or the pre-tokenizer is not
    /// known; arrays disagree in length; a token is there twice, or is a byte token without a
    /// byte; an id is beyond the vocabulary; a merge is not two parts. Each names the file and
    /// the key.
    pub fn from_metadata(meta: &Metadata) -> Result<Tokenizer, TokenizerError> {
        let model = meta.require_str(MODEL)?;
        let gemma4 = match model {
            "gpt2" => false,
            "gemma4" => true,
            "llama" => return Tokenizer::read_spm(meta),
            name => {
                let kind = match name {
                    "bert" => " (BERT's WordPiece, WPM)",
                    "t5" => " (T5's unigram model, UGM)",
                    "rwkv" => " (RWKV's greedy tokenizer)",
                    "plamo2" => " (PLaMo 2's table-driven tokenizer)",
                    "no_vocab" | "none" => " (no vocabulary)",
                    _ => "",
                };
                let (file, name) = (meta.file().to_owned(), name.to_owned());
                return Err(TokenizerError::UnknownModel { file, name, kind });
            }
        };
        Tokenizer::read_bpe(meta, gemma4)
    }

    fn read_bpe(meta: &Metadata, gemma4: bool) -> Result<Tokenizer, TokenizerError> {
        let name = match meta.str(PRE)? {
            _ if gemma4 => "gemma4",
            None | Some("") => pretok::DEFAULT,
            Some(name) => name,
        };
        let Some(pre) = pretok::find(name) else {
            return Err(TokenizerError::UnknownPreTokenizer {
                file: meta.file().to_owned(),
                name: name.to_owned(),
                known: pretok::known_names(),
            });
        };
        let marked = name == "gemma4";
        let spelling = if marked {
            Spelling::SpaceMarker
        } else {
            Spelling::ByteAlphabet
        };
        let mut vocab = Vocab::read(meta, spelling)?;
        check_scores(meta, &vocab)?;
        let ids = SpecialIds::read(meta, &mut vocab, [None; 3])?;
        let bpe = Bpe::read(meta, &mut vocab, pre)?;
        // Early Gemma 4 files deny their BOS; the model needs it.
        let add_bos = marked || meta.bool(ADD_BOS)?.unwrap_or(pre.add_bos);
        Tokenizer::finish(meta, vocab, Kind::Bpe(bpe), name, ids, add_bos)
    }

    fn read_spm(meta: &Metadata) -> Result<Tokenizer, TokenizerError> {
        let mut vocab = Vocab::read(meta, Spelling::SpaceMarker)?;
        // Llama's first vocabulary, whose files did not name them.
        let ids = SpecialIds::read(meta, &mut vocab, [Some(1), Some(2), Some(0)])?;
        let space_prefix = meta.bool(ADD_SPACE_PREFIX)?.unwrap_or(true);
        let spm = Spm::read(meta, &vocab, space_prefix, ids.unk)?;
        let add_bos = meta.bool(ADD_BOS)?.unwrap_or(true);
        Tokenizer::finish(meta, vocab, Kind::Spm(spm), pretok::DEFAULT, ids, add_bos)
    }

    fn finish(
        meta: &Metadata,
        mut vocab: Vocab,
        kind: Kind,
        pre_name: &str,
        ids: SpecialIds,
        add_bos: bool,
    ) -> Result<Tokenizer, TokenizerError> {
        let add_eos = meta.bool(ADD_EOS)?.unwrap_or(false);
        for (add, id, key) in [(add_bos, ids.bos, ids::BOS), (add_eos, ids.eos, ids::EOS)] {
            if add && id.is_none() {
                return Err(TokenizerError::NoSuchSpecial {
                    file: meta.file().to_owned(),
                    key,
                });
            }
        }
        mark_stripping(meta, &mut vocab)?;
        let special = [
            SpecialTokens::of(&vocab, false),
            SpecialTokens::of(&vocab, true),
        ];
        let pre_name = pre_name.to_owned();
        Ok(Tokenizer {
            vocab,
            kind,
            pre_name,
            ids,
            add_bos,
            add_eos,
            special,
        })
    }

    /// The number of tokens.
    pub fn n_vocab(&self) -> usize {
        self.vocab.len()
    }

    /// The pre-tokenizer's name; `default` where the file names none.
    pub fn pre_tokenizer(&self) -> &str {
        &self.pre_name
    }

    /// The token before a text.
    pub fn bos(&self) -> Option<TokenId> {
        self.ids.bos
    }

    /// The token after a text.
    pub fn eos(&self) -> Option<TokenId> {
        self.ids.eos
    }

    /// The token after a turn of a conversation.
    pub fn eot(&self) -> Option<TokenId> {
        self.ids.eot
    }

    /// The token for what has none.
    pub fn unk(&self) -> Option<TokenId> {
        self.ids.unk
    }

    /// Whether [`EncodeOptions::add_special`] adds BOS.
    pub fn add_bos(&self) -> bool {
        self.add_bos
    }

    /// Whether [`EncodeOptions::add_special`] adds EOS.
    pub fn add_eos(&self) -> bool {
        self.add_eos
    }

    /// Whether a generation ends with this token.
    pub fn is_eog(&self, id: TokenId) -> bool {
        self.vocab.attr(id) & END != 0
    }

    /// Whether the token is one of the model's own, never shown as text.
    pub fn is_control(&self, id: TokenId) -> bool {
        self.vocab.attr(id) & CONTROL != 0
    }

    /// The token with this text, as the file spells it.
    pub fn token(&self, text: &str) -> Option<TokenId> {
        self.vocab.find_text(text)
    }

    /// The token ids of a text.
    pub fn encode(&self, text: &str, options: EncodeOptions) -> Vec<TokenId> {
        let mut out = Vec::with_capacity(text.len() / 3 + 8);
        if options.add_special && self.add_bos {
            out.extend(self.ids.bos);
        }
        let parts = self.special[usize::from(options.parse_special)].split(text);
        let (text, parts) = self.normalize(text, parts);
        let mut cache = WordCache::for_text(&text, self.vocab.mixer());
        let mut merger = Merger::default();
        for part in parts {
            match part {
                Part::Token(id) => out.push(id),
                Part::Text(range) => {
                    let mut rest = &text[range];
                    while !rest.is_empty() {
                        let (part, more) = rest.split_at(part_len(rest, LONGEST_PART));
                        self.encode_part(part, &mut cache, &mut merger, &mut out);
                        rest = more;
                    }
                }
            }
        }
        if options.add_special && self.add_eos {
            out.extend(self.ids.eos);
        }
        out
    }

    fn encode_part(
        &self,
        part: &str,
        cache: &mut WordCache<'_>,
        merger: &mut Merger,
        out: &mut Vec<TokenId>,
    ) {
        match &self.kind {
            Kind::Bpe(bpe) => bpe.encode(&self.vocab, part, cache, merger, out),
            Kind::Spm(spm) => spm.encode(&self.vocab, part, cache, merger, out),
        }
    }

    /// Brings the texts between special tokens into the vocabulary's form: markers, which mean
    /// spaces, become spaces, and SPM puts one before each text that nothing but a special token
    /// precedes. The parts' ranges are those in the text returned.
    fn normalize<'a>(&self, text: &'a str, parts: Vec<Part>) -> (Cow<'a, str>, Vec<Part>) {
        let prefix = match &self.kind {
            Kind::Bpe(_) => false,
            Kind::Spm(spm) => spm.space_prefix,
        };
        let marked = self.vocab.spelling == Spelling::SpaceMarker && text.contains(MARKER);
        if !prefix && !marked {
            return (Cow::Borrowed(text), parts);
        }
        let mut bytes = Vec::with_capacity(text.len() + 1);
        // Between two texts there is always a special token.
        let mut place = |range: Range<usize>| {
            let start = bytes.len();
            if prefix {
                bytes.push(b' ');
            }
            push_unmarked(&text[range], &mut bytes);
            Part::Text(start..bytes.len())
        };
        let parts = parts
            .into_iter()
            .map(|part| match part {
                Part::Text(range) => place(range),
                token => token,
            })
            .collect();
        // Whole characters were replaced by whole characters.
        (
            Cow::Owned(String::from_utf8(bytes).unwrap_or_default()),
            parts,
        )
    }

    /// The bytes of one token; with `special`, control and unknown tokens are their text, else
    /// nothing. A token may be a part of a character.
    ///
    /// # Errors
    ///
    /// [`TokenizerError::NoSuchToken`] for an id that is none.
    pub fn piece(&self, id: TokenId, special: bool) -> Result<Cow<'_, [u8]>, TokenizerError> {
        self.vocab.piece(id, special)
    }

    /// A detokenizer for a stream of tokens; `special` as for [`Tokenizer::piece`].
    pub fn detokenizer(&self, special: bool) -> Detokenizer<'_> {
        Detokenizer::new(self, special)
    }

    /// The text of whole token sequences. The space that SPM put before the text is taken away.
    ///
    /// # Errors
    ///
    /// [`TokenizerError::NoSuchToken`] for an id that is none.
    pub fn decode(&self, ids: &[TokenId], special: bool) -> Result<String, TokenizerError> {
        let mut bytes = Vec::with_capacity(ids.len() * 4);
        for &id in ids {
            bytes.extend_from_slice(&self.piece(id, special)?);
        }
        let prefixed = matches!(&self.kind, Kind::Spm(spm) if spm.space_prefix);
        let text = bytes
            .strip_prefix(b" ")
            .filter(|_| prefixed)
            .unwrap_or(&bytes);
        Ok(String::from_utf8_lossy(text).into_owned())
    }
}

/// The most bytes of `text`, `most` or fewer, that end with a character.
fn part_len(text: &str, most: usize) -> usize {
    let mut len = text.len().min(most);
    while !text.is_char_boundary(len) {
        len -= 1;
    }
    len
}

/// BPE files may carry scores nobody uses; they must still be one a token.
fn check_scores(meta: &Metadata, vocab: &Vocab) -> Result<(), TokenizerError> {
    match meta.get(vocab::SCORES) {
        Some(_) => vocab::read_scores(meta, vocab.len()).map(drop),
        None => Ok(()),
    }
}

/// Phi-3's special tokens swallow the white space after them, but for three. The vocabulary does
/// not say so; llama.cpp goes by the model's name, and so must whoever wants the same tokens.
fn mark_stripping(meta: &Metadata, vocab: &mut Vocab) -> Result<(), TokenizerError> {
    let name = meta
        .str("general.name")?
        .unwrap_or_default()
        .to_ascii_lowercase();
    if !(name.contains("phi-3") || name.contains("phi3")) {
        return Ok(());
    }
    let kept = ["<unk>", "<s>", "<|endoftext|>"].map(|text| vocab.find_text(text));
    for id in 0..vocab.len() as TokenId {
        let special = vocab.attr(id) & (CONTROL | vocab::UNKNOWN | vocab::USER_DEFINED) != 0;
        if special && !kept.contains(&Some(id)) {
            vocab.set_attr(id, vocab.attr(id) | STRIP_RIGHT);
        }
    }
    Ok(())
}
