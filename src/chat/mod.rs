//! Chat templates: renders a conversation into the text a model was trained on.
//!
//! A template is jinja2 source, from a model's metadata, a file, or [built in](ChatTemplate::from_name).
//! minijinja runs it, made to behave as Python's jinja2 does in the environment that Hugging
//! Face's transformers sets up: by filters, tests and methods of our own, and by a rewriting of
//! the source (`rewrite`) where the engine's language differs. The rendered text goes to the
//! tokenizer with special tokens parsed; [`needs_bos`] says whether it adds its own first token,
//! [`Conversation`] what to feed as a chat grows.
//!
//! All templates of llama.cpp's collection render as in Python (tests/chat_templates.rs). What
//! stays different is in no template known, and is an error here: `%` as a formatting operator,
//! `varargs` and `kwargs` in macros, unary plus, `!r` in `str.format`, and the filters
//! `wordcount`, `center`, `truncate`, `wordwrap`, `striptags`, `urlencode` and `filesizeformat`.
//! A comparison of unlike types (`"a" < 1`) has an answer here and is an error there; a variable
//! set inside a `{% set %}` block stays set after it; a namespace cannot hold a namespace.
//!
//! A template is untrusted: [`Limits`] bound its steps, memory and text, nesting is bounded in
//! the source and in values, and it runs on a stack of its own.
mod builtin;
mod casing;
mod clock;
mod conversation;
mod error;
mod filters;
mod fuel;
mod json;
mod lexer;
mod methods;
mod rewrite;
mod splitting;
mod template;
mod value;

pub use clock::CivilTime;
pub use conversation::{Conversation, Delta, Step, delta, needs_bos};
pub use error::ChatError;
pub use template::{AbsentTools, ChatTemplate, Limits, Message, RenderOptions, SystemRole};

#[cfg(test)]
mod tests;
