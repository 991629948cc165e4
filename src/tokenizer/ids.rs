//! Which tokens begin and end texts, and which end a generation.
//!
//! Files name some special tokens by id. Others are known by their text alone, because
//! converters have long left their ids out; the texts are those that llama.cpp recognizes
//! (`llama_vocab::impl::load`).

use super::TokenId;
use super::error::TokenizerError;
use super::vocab::{CONTROL, END, NORMAL, USER_DEFINED, Vocab};
use crate::gguf::Metadata;

pub(super) const BOS: &str = "tokenizer.ggml.bos_token_id";
pub(super) const EOS: &str = "tokenizer.ggml.eos_token_id";
const EOT: &str = "tokenizer.ggml.eot_token_id";
const EOM: &str = "tokenizer.ggml.eom_token_id";
const UNK: &str = "tokenizer.ggml.unknown_token_id";
const FIM_PAD: &str = "tokenizer.ggml.fim_pad_token_id";
const FIM_REP: &str = "tokenizer.ggml.fim_rep_token_id";
const FIM_SEP: &str = "tokenizer.ggml.fim_sep_token_id";

/// Ids that nothing here uses, but that must be right if they are there.
const OTHERS: [&str; 9] = [
    "tokenizer.ggml.seperator_token_id",
    "tokenizer.ggml.padding_token_id",
    "tokenizer.ggml.mask_token_id",
    "tokenizer.ggml.cls_token_id",
    "tokenizer.ggml.fim_pre_token_id",
    "tokenizer.ggml.fim_suf_token_id",
    "tokenizer.ggml.fim_mid_token_id",
    "tokenizer.ggml.prefix_token_id",
    "tokenizer.ggml.suffix_token_id",
];

/// Ends a turn, the most telling text first.
const EOT_TEXTS: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "<｜end▁of▁sentence｜>",
    "<end_of_utterance>",
];

const EOM_TEXTS: &[&str] = &["<|eom_id|>"];

const FIM_PAD_TEXTS: &[&str] = &["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"];

const FIM_REP_TEXTS: &[&str] = &[
    "<|fim_repo|>",
    "<|repo_name|>",
    "<fim-repo>",
    "<REPO>",
    "<reponame>",
];

const FIM_SEP_TEXTS: &[&str] = &["<|file_sep|>"];

/// Ends a generation, besides the tokens that the ids above name.
const END_TEXTS: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
];

/// Control tokens of a chat format that are shown all the same.
const SHOWN_TEXTS: &[&str] = &["<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"];

/// The ids of a vocabulary's special tokens.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SpecialIds {
    pub(super) bos: Option<TokenId>,
    pub(super) eos: Option<TokenId>,
    pub(super) eot: Option<TokenId>,
    pub(super) unk: Option<TokenId>,
}

/// Reads an id. -1 (in any width) says that there is no such token.
fn read_id(
    meta: &Metadata,
    key: &'static str,
    n_vocab: usize,
) -> Result<Option<TokenId>, TokenizerError> {
    let Some(value) = meta.get(key) else {
        return Ok(None);
    };
    if matches!(value.as_integer(), Some(-1 | 0xffff_ffff)) {
        return Ok(None);
    }
    let out_of_range = |id| TokenizerError::Id {
        file: meta.file().to_owned(),
        key,
        id,
        n_vocab,
    };
    match value.as_integer() {
        Some(id) => match usize::try_from(id) {
            Ok(index) if index < n_vocab => Ok(Some(index as TokenId)),
            _ => Err(out_of_range(i64::try_from(id).unwrap_or(i64::MAX))),
        },
        // Not an integer: the typed getter has the words for it.
        None => Ok(meta.u32(key)?),
    }
}

impl SpecialIds {
    /// Reads the ids and marks in `vocab` what ends a generation.
    ///
    /// `defaults` are BOS, EOS and UNK of a file that names none.
    pub(super) fn read(
        meta: &Metadata,
        vocab: &mut Vocab,
        defaults: [Option<TokenId>; 3],
    ) -> Result<SpecialIds, TokenizerError> {
        let n_vocab = vocab.len();
        let id = |key| read_id(meta, key, n_vocab);
        let or_default = |key, default: Option<TokenId>| {
            let default = default.filter(|&id| (id as usize) < n_vocab);
            let named = id(key)?;
            Ok::<_, TokenizerError>(if meta.get(key).is_some() {
                named
            } else {
                default
            })
        };
        let bos = or_default(BOS, defaults[0])?;
        let eos = or_default(EOS, defaults[1])?;
        let unk = or_default(UNK, defaults[2])?;
        let (named_eot, named_eom) = (id(EOT)?, id(EOM)?);
        let named_fim = [id(FIM_PAD)?, id(FIM_REP)?, id(FIM_SEP)?];
        for key in OTHERS {
            id(key)?;
        }
        let eot = named_eot.or_else(|| by_text(vocab, EOT_TEXTS));
        let eom = named_eom.or_else(|| by_text(vocab, EOM_TEXTS));
        let mut ends: Vec<TokenId> = [eos, eot, eom].into_iter().flatten().collect();
        let fim_texts = [FIM_PAD_TEXTS, FIM_REP_TEXTS, FIM_SEP_TEXTS];
        for (named, texts) in named_fim.into_iter().zip(fim_texts) {
            ends.extend(named.or_else(|| by_text(vocab, texts)));
        }
        for id in ends {
            vocab.set_attr(id, vocab.attr(id) | END);
        }
        for id in END_TEXTS
            .iter()
            .filter_map(|text| vocab.find_text(text))
            .collect::<Vec<_>>()
        {
            vocab.set_attr(id, vocab.attr(id) | END | CONTROL);
        }
        reclassify(vocab);
        Ok(SpecialIds { bos, eos, eot, unk })
    }
}

/// The first of the texts that is a token, which then counts as a control token.
fn by_text(vocab: &mut Vocab, texts: &[&str]) -> Option<TokenId> {
    let id = texts.iter().find_map(|text| vocab.find_text(text))?;
    vocab.set_attr(id, vocab.attr(id) | CONTROL);
    Some(id)
}

/// Tokens that a known text makes something else than an end.
fn reclassify(vocab: &mut Vocab) {
    const KIND: u16 = super::vocab::KIND;
    let become_kind = |vocab: &mut Vocab, id: TokenId, kind: u16, keep: u16| {
        vocab.set_attr(id, (vocab.attr(id) & !(KIND | END)) | kind | keep);
    };
    for text in SHOWN_TEXTS {
        if let Some(id) = vocab.find_text(text) {
            let keep = vocab.attr(id) & END;
            become_kind(vocab, id, USER_DEFINED, keep);
        }
    }
    let ends = |vocab: &Vocab, text: &str| {
        vocab
            .find_text(text)
            .is_some_and(|id| vocab.attr(id) & END != 0)
    };
    // In the harmony and solar formats, `<|end|>` ends a message inside a reply.
    let harmony =
        ends(vocab, "<|return|>") && (ends(vocab, "<|call|>") || ends(vocab, "<|calls|>"));
    let solar = ends(vocab, "<|flush|>") && (ends(vocab, "<|call|>") || ends(vocab, "<|calls|>"));
    if let Some(id) = vocab.find_text("<|end|>")
        && (harmony || solar)
    {
        become_kind(vocab, id, USER_DEFINED, 0);
    }
    // Where these exist, `</s>` is text like any other.
    if let Some(id) = vocab.find_text("</s>")
        && (ends(vocab, "<|tool_response>") || ends(vocab, "<|plamo:eos|>"))
    {
        become_kind(vocab, id, NORMAL, 0);
    }
}
