//! What to feed next: a conversation that grows, against what the model has already seen.

use super::{ChatError, ChatTemplate, Message, RenderOptions};

/// What is to be fed so that the model has seen a new text, given what it has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delta<'a> {
    /// Bytes of the previous text that stand: when less than its length, the model must forget
    /// what comes after them (templates rewrite history, as when they drop past reasoning).
    pub keep: usize,
    /// The text to feed after those bytes.
    pub feed: &'a str,
}

/// Compares the text a model has seen with the text it should have seen.
///
/// `seen` is the prompt last fed and the reply that followed, with the end-of-turn token's text
/// if the model was given it. The kept part ends at a character's boundary.
pub fn delta<'a>(seen: &str, next: &'a str) -> Delta<'a> {
    let same = seen
        .bytes()
        .zip(next.bytes())
        .take_while(|(a, b)| a == b)
        .count();
    let keep = (0..=same)
        .rev()
        .find(|&at| next.is_char_boundary(at))
        .unwrap_or(0);
    Delta {
        keep,
        feed: &next[keep..],
    }
}

/// Whether the tokenizer should put a beginning-of-sequence token before a rendered text.
///
/// `add_bos` is the tokenizer's own rule and `bos_token` the token's text. A template that
/// writes the token makes it the text's first; the tokenizer must not add another.
pub fn needs_bos(rendered: &str, bos_token: &str, add_bos: bool) -> bool {
    add_bos && (bos_token.is_empty() || !rendered.starts_with(bos_token))
}

/// A conversation and the text that a model has seen of it.
///
/// ```
/// use emel::chat::{ChatTemplate, Conversation, Message, RenderOptions};
///
/// let template = ChatTemplate::from_name("chatml")?;
/// let options = RenderOptions { add_generation_prompt: true, ..Default::default() };
/// let mut chat = Conversation::new(&template, options);
///
/// let step = chat.turn(Message::new("user", "Hi"))?;
/// assert_eq!(step.feed, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
/// // the model answers, and its last token is the end of the turn
/// chat.replied("Hello!", "<|im_end|>");
///
/// let step = chat.turn(Message::new("user", "Bye"))?;
/// assert_eq!(step.keep, step.seen);
/// assert_eq!(step.feed, "\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n");
/// # Ok::<(), emel::chat::ChatError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Conversation<'t> {
    template: &'t ChatTemplate,
    options: RenderOptions<'t>,
    messages: Vec<Message>,
    seen: String,
}

/// The next text to feed in a [`Conversation`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Bytes of text the model had seen before this step.
    pub seen: usize,
    /// How many of them stand; see [`Delta::keep`].
    pub keep: usize,
    /// The text to feed after those.
    pub feed: String,
}

impl<'t> Conversation<'t> {
    /// An empty conversation. `options` should ask for the generation prompt.
    pub fn new(template: &'t ChatTemplate, options: RenderOptions<'t>) -> Self {
        Conversation {
            template,
            options,
            messages: Vec::new(),
            seen: String::new(),
        }
    }

    /// The messages so far.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// The text the model has seen.
    pub fn seen(&self) -> &str {
        &self.seen
    }

    /// Adds a message that is not to be answered by itself, as the system's.
    pub fn push(&mut self, message: Message) {
        self.messages.push(message);
    }

    /// Adds a message and says what to feed for its answer.
    ///
    /// # Errors
    /// Those of [`ChatTemplate::render`]; the conversation is then as it was.
    pub fn turn(&mut self, message: Message) -> Result<Step, ChatError> {
        self.messages.push(message);
        let next = match self.template.render(&self.messages, &self.options) {
            Ok(next) => next,
            Err(error) => {
                self.messages.pop();
                return Err(error);
            }
        };
        let Delta { keep, feed } = delta(&self.seen, &next);
        let step = Step {
            seen: self.seen.len(),
            keep,
            feed: feed.to_owned(),
        };
        self.seen = next;
        Ok(step)
    }

    /// Records the model's reply: its text, and the text of the token that ended the turn if the
    /// model was given that token (it is not part of the message).
    pub fn replied(&mut self, text: &str, end: &str) {
        self.messages.push(Message::new("assistant", text));
        self.seen.push_str(text);
        self.seen.push_str(end);
    }

    /// Takes back the last exchange: the last user's message and what followed it. Returns that
    /// message's text. The next [`turn`](Self::turn) says how much of the seen text stands.
    pub fn undo(&mut self) -> Option<String> {
        let at = self.messages.iter().rposition(|m| m.role == "user")?;
        let text = self.messages.swap_remove(at).content;
        self.messages.truncate(at);
        Some(text)
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.messages.clear();
        self.seen.clear();
    }
}
