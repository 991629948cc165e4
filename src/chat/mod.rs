//! Chat templates: renders a conversation into the text a model was trained on.
mod builtin;
mod casing;
mod clock;
mod conversation;
mod error;
mod filters;
mod json;
mod lexer;
mod methods;
mod rewrite;
mod template;
mod value;

pub use clock::CivilTime;
pub use conversation::{Conversation, Delta, Step, delta, needs_bos};
pub use error::ChatError;
pub use template::{AbsentTools, ChatTemplate, Limits, Message, RenderOptions, SystemRole};

#[cfg(test)]
mod tests;
