//! [`ChatTemplate`]: a compiled template and how it is rendered.

use std::borrow::Borrow;
use std::io;

use minijinja::value::Value;
use minijinja::{Environment, Error, ErrorKind, State, UndefinedBehavior};
use serde::{Deserialize, Serialize};

use super::value::{fail, settle, to_text, write_output};
use super::{ChatError, CivilTime, filters, fuel, methods, rewrite};

/// One turn of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// `system`, `user`, `assistant`, or what else the template knows.
    pub role: String,
    /// The text.
    pub content: String,
}

impl Message {
    /// A message.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Message {
            role: role.into(),
            content: content.into(),
        }
    }
}

/// What to do with a system message that a template has no place for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SystemRole {
    /// Give it to the template as it is; the template may raise an exception or leave it out.
    AsIs,
    /// As llama.cpp does: when the template [does not support it](ChatTemplate::supports_system),
    /// put it before the next message's text, with a newline between. A conversation that is
    /// nothing but a system message loses it.
    #[default]
    MergeIfUnsupported,
    /// Always put it before the next message's text.
    Merge,
}

/// What the names `tools` and `documents` are to a template when [`RenderOptions::kwargs`] does
/// not give them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AbsentTools {
    /// `None`, as in Hugging Face's transformers. Some templates fail on that.
    None,
    /// Not defined, as in llama.cpp.
    Undefined,
    /// `None`; when the template fails otherwise than by an exception of its own, once more
    /// with the names not defined.
    #[default]
    NoneThenUndefined,
}

/// How to render a conversation.
#[derive(Clone, Debug, Default)]
pub struct RenderOptions<'a> {
    /// End with the words that open the assistant's turn.
    pub add_generation_prompt: bool,
    /// Text of the tokenizer's beginning-of-sequence token; empty if it has none.
    pub bos_token: &'a str,
    /// Text of the tokenizer's end-of-sequence token; empty if it has none.
    pub eos_token: &'a str,
    /// The switch that reasoning models' templates read; `None` leaves it undefined.
    pub enable_thinking: Option<bool>,
    /// More variables, as `tools`; they go before the ones above.
    pub kwargs: serde_json::Map<String, serde_json::Value>,
    /// What `strftime_now` tells; `None` is the system's clock, in UTC.
    pub now: Option<CivilTime>,
    /// Handling of a system message.
    pub system: SystemRole,
    /// Handling of absent tools.
    pub tools: AbsentTools,
}

/// Bounds on what a template may do. The defaults grow with the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Steps and data: one unit is an instruction of the template engine, two items of a list, or
    /// 64 bytes of text that a filter, a test or a method reads or makes, so that this bounds time
    /// and memory. One more is added per byte of input.
    ///
    /// Not counted is what the engine's operators read without making anything of that size:
    /// comparing two long texts or nested lists by `==` or `<`, an index or a slice near the end
    /// of a long text, a long text as a key. Nor is a long path given as `attribute`.
    pub fuel: u64,
    /// Bytes of text. Four more are added per byte of input.
    pub output: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            fuel: 2_000_000,
            output: 8 << 20,
        }
    }
}

/// Bytes a template's source may have; the longest known has 17 KiB.
const MAX_SOURCE: usize = 1 << 20;
/// Stack for compiling and rendering: what the limits on nesting need several times over, also
/// in a build without optimization.
const STACK: usize = 32 << 20;

/// A compiled chat template.
///
/// ```
/// use emel::chat::{ChatTemplate, Message, RenderOptions};
///
/// let template = ChatTemplate::from_name("chatml")?;
/// let messages = [Message::new("user", "Hi")];
/// let options = RenderOptions { add_generation_prompt: true, ..Default::default() };
/// assert_eq!(
///     template.render(&messages, &options)?,
///     "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
/// );
/// # Ok::<(), emel::chat::ChatError>(())
/// ```
#[derive(Debug)]
pub struct ChatTemplate {
    env: Environment<'static>,
    source: String,
    limits: Limits,
    supports_system: std::sync::OnceLock<bool>,
}

impl ChatTemplate {
    /// Compiles a template's source (jinja2 as Hugging Face's transformers sets it up).
    ///
    /// # Errors
    /// [`ChatError::Syntax`] with the line; [`ChatError::SourceTooLong`].
    pub fn new(source: &str) -> Result<Self, ChatError> {
        if source.len() > MAX_SOURCE {
            return Err(ChatError::SourceTooLong {
                length: source.len(),
                limit: MAX_SOURCE,
            });
        }
        let mut env = environment();
        let rewritten = rewrite::rewrite(source)?;
        on_own_stack(|| {
            env.add_template_owned(NAME, rewritten)
                .map_err(syntax_error)
        })??;
        Ok(ChatTemplate {
            env,
            source: source.to_owned(),
            limits: Limits::default(),
            supports_system: std::sync::OnceLock::new(),
        })
    }

    /// A built-in template by the name llama.cpp's `--chat-template` gives it.
    ///
    /// # Errors
    /// [`ChatError::UnknownName`], which lists the names.
    pub fn from_name(name: &str) -> Result<Self, ChatError> {
        match super::builtin::source(name) {
            Some(source) => Self::new(&source),
            None => Err(ChatError::UnknownName {
                name: name.to_owned(),
                known: super::builtin::names().collect(),
            }),
        }
    }

    /// The same with other limits.
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The source it was made from.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Renders a conversation.
    ///
    /// # Errors
    /// [`ChatError::Raised`] with the template's message when the template refuses the
    /// conversation; [`ChatError::Failed`] when an operation in it fails; the errors of limits.
    pub fn render<'a>(
        &self,
        messages: &[Message],
        options: impl Borrow<RenderOptions<'a>>,
    ) -> Result<String, ChatError> {
        let messages = serde_json::to_value(messages).map_err(|_| ChatError::NotMessages)?;
        self.render_json(&messages, options)
    }

    /// Renders messages that hold more than a role and a text (tool calls, reasoning, parts).
    ///
    /// # Errors
    /// As [`render`](Self::render), and [`ChatError::NotMessages`] when it is no list of objects.
    pub fn render_json<'a>(
        &self,
        messages: &serde_json::Value,
        options: impl Borrow<RenderOptions<'a>>,
    ) -> Result<String, ChatError> {
        let options = options.borrow();
        let list = messages.as_array().ok_or(ChatError::NotMessages)?;
        if list.iter().any(|message| !message.is_object()) {
            return Err(ChatError::NotMessages);
        }
        if too_deep(messages, 0) || options.kwargs.values().any(|value| too_deep(value, 0)) {
            return Err(ChatError::InputTooDeep);
        }
        let system_first = list.first().is_some_and(|m| m["role"] == "system");
        let merge = match options.system {
            SystemRole::AsIs => false,
            SystemRole::Merge => system_first,
            SystemRole::MergeIfUnsupported => system_first && !self.supports_system(),
        };
        let merged = merge.then(|| serde_json::Value::Array(merge_system(list)));
        let messages = merged.as_ref().unwrap_or(messages);
        let first = self.attempt(messages, options, options.tools != AbsentTools::Undefined);
        match first {
            Err(ChatError::Failed { .. }) if options.tools == AbsentTools::NoneThenUndefined => {
                self.attempt(messages, options, false).or(first)
            }
            result => result,
        }
    }

    /// Whether a system message's text appears in what the template makes of it. A template that
    /// fails whatever it is given counts as one that does.
    pub fn supports_system(&self) -> bool {
        *self.supports_system.get_or_init(|| {
            const MARK: &str = "A7c system probe 0q";
            let options = RenderOptions {
                add_generation_prompt: true,
                system: SystemRole::AsIs,
                now: Some(CivilTime::from_unix(0)),
                ..Default::default()
            };
            let user = Message::new("user", "Hello");
            let with = self.render(&[Message::new("system", MARK), user.clone()], &options);
            with.is_ok_and(|text| text.contains(MARK)) || self.render(&[user], &options).is_err()
        })
    }

    fn attempt(
        &self,
        messages: &serde_json::Value,
        options: &RenderOptions<'_>,
        none_tools: bool,
    ) -> Result<String, ChatError> {
        let now = options.now.unwrap_or_else(CivilTime::now);
        let mut variables: Vec<(&str, Value)> = Vec::new();
        if none_tools {
            variables.extend([("tools", Value::from(())), ("documents", Value::from(()))]);
        }
        variables.push(("messages", to_value(messages)));
        variables.push((
            "add_generation_prompt",
            Value::from(options.add_generation_prompt),
        ));
        variables.push(("bos_token", Value::from(options.bos_token)));
        variables.push(("eos_token", Value::from(options.eos_token)));
        if let Some(thinking) = options.enable_thinking {
            variables.push(("enable_thinking", Value::from(thinking)));
        }
        variables.push((
            "strftime_now",
            Value::from_function(move |format: &str| {
                if format.len() > 4096 {
                    return Err(fail("strftime_now: a format longer than 4096 is refused"));
                }
                Ok(now.strftime(format))
            }),
        ));
        for (name, value) in &options.kwargs {
            variables.push((name, to_value(value)));
        }
        let input = json_size(messages)
            + options.kwargs.values().map(json_size).sum::<usize>()
            + options.bos_token.len()
            + options.eos_token.len();
        let fuel = self.limits.fuel.saturating_add(input as u64);
        let limit = self.limits.output.saturating_add(input.saturating_mul(4));
        let mut env = self.env.clone();
        env.set_fuel(Some(fuel));
        let mut out = Bounded {
            bytes: Vec::new(),
            limit,
            overflowed: false,
        };
        let result = on_own_stack(|| {
            let context = Value::from_pairs(variables);
            let template = env
                .get_template(NAME)
                .map_err(|error| run_error(&error, fuel))?;
            template
                .render_captured_to(context, &mut out)
                .map(drop)
                .map_err(|error| run_error(&error, fuel))
        })?;
        if out.overflowed {
            return Err(ChatError::OutputTooLong { limit });
        }
        result?;
        // the engine writes whole strings, so this never replaces anything
        Ok(String::from_utf8(out.bytes)
            .unwrap_or_else(|bad| String::from_utf8_lossy(bad.as_bytes()).into_owned()))
    }
}

/// The name the engine knows the template by.
const NAME: &str = "chat";

/// Text with a limit.
struct Bounded {
    bytes: Vec<u8>,
    limit: usize,
    overflowed: bool,
}

impl io::Write for Bounded {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + data.len() > self.limit {
            self.overflowed = true;
            return Err(io::Error::other("too long"));
        }
        self.bytes.extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Runs `work` on a thread with a stack that holds the deepest nesting the limits allow, whatever
/// the caller's stack is.
fn on_own_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, ChatError> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("chat template".to_owned())
            .stack_size(STACK)
            .spawn_scoped(scope, work)
            .map_err(|error| ChatError::Thread(error.to_string()))?;
        thread
            .join()
            .map_err(|_| ChatError::Thread("it panicked".to_owned()))
    })
}

/// Whether lists and objects nest deeper than a template can print.
fn too_deep(value: &serde_json::Value, depth: usize) -> bool {
    use serde_json::Value as Json;
    depth > super::value::MAX_DEPTH
        || match value {
            Json::Array(items) => items.iter().any(|item| too_deep(item, depth + 1)),
            Json::Object(map) => map.values().any(|item| too_deep(item, depth + 1)),
            _ => false,
        }
}

/// The engine's value for a JSON value; objects keep their order.
fn to_value(json: &serde_json::Value) -> Value {
    use serde_json::Value as Json;
    match json {
        Json::Null => Value::from(()),
        Json::Bool(b) => Value::from(*b),
        Json::Number(n) => match (n.as_i64(), n.as_u64()) {
            (Some(n), _) => Value::from(n),
            (None, Some(n)) => Value::from(n),
            (None, None) => Value::from(n.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => Value::from(items.iter().map(to_value).collect::<Vec<_>>()),
        Json::Object(map) => Value::from_pairs(map.iter().map(|(k, v)| (k.as_str(), to_value(v)))),
    }
}

/// Roughly the bytes a JSON value holds: a measure of how much work a conversation is.
fn json_size(value: &serde_json::Value) -> usize {
    use serde_json::Value as Json;
    match value {
        Json::String(text) => text.len(),
        Json::Array(items) => 16 + items.iter().map(json_size).sum::<usize>(),
        Json::Object(map) => map.iter().map(|(k, v)| 16 + k.len() + json_size(v)).sum(),
        _ => 8,
    }
}

/// Puts the first message's text before the second's.
fn merge_system(messages: &[serde_json::Value]) -> Vec<serde_json::Value> {
    let mut rest = messages[1..].to_vec();
    if let (Some(text), Some(next)) = (messages[0]["content"].as_str(), rest.first_mut())
        && let Some(own) = next["content"].as_str()
    {
        next["content"] = format!("{text}\n{own}").into();
    }
    rest
}

/// What a template raised, inside the engine's error.
#[derive(Debug)]
struct Raise(String);

impl std::fmt::Display for Raise {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raise {}

fn environment() -> Environment<'static> {
    let mut env = Environment::new();
    let syntax = minijinja::syntax::SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()
        .unwrap_or_default();
    env.set_syntax(syntax);
    env.set_undefined_behavior(UndefinedBehavior::Lenient);
    env.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    env.set_unknown_method_callback(methods::call);
    env.set_formatter(write_output);
    filters::register(&mut env);
    fuel::guard(&mut env);
    env.add_function("raise_exception", |state: &State, message: &Value| {
        let message = to_text(state, message)?;
        let error = Error::new(ErrorKind::InvalidOperation, message.clone());
        Err::<Value, Error>(error.with_source(Raise(message)))
    });
    env.add_function("__value", |state: &State, value: &Value| {
        settle(state, value, false)
    });
    env.add_function("__field", |state: &State, value: &Value| {
        settle(state, value, true)
    });
    env.add_function("__iter", |value: &Value| {
        if value.is_none() {
            Err(fail("'NoneType' object is not iterable"))
        } else {
            Ok(value.clone())
        }
    });
    env.add_function("__add", super::filters::add);
    env.add_function("joiner", minijinja_contrib::globals::joiner);
    env.add_function("__str", |state: &State, value: &Value| {
        if value.as_str().is_some() {
            Ok(value.clone())
        } else {
            to_text(state, value).map(Value::from)
        }
    });
    env.add_function(
        "__generation",
        |state: &mut State, named: minijinja::value::Kwargs| {
            named.get::<Value>("caller")?.call(state, &[])
        },
    );
    env
}

fn syntax_error(error: Error) -> ChatError {
    let line = error.line().unwrap_or(1);
    let message = error
        .detail()
        .map_or_else(|| error.kind().to_string(), str::to_owned);
    ChatError::Syntax { line, message }
}

fn run_error(error: &Error, fuel: u64) -> ChatError {
    let mut line = error.line();
    let mut exhausted = false;
    let mut raised = None;
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(current) = cause {
        if let Some(inner) = current.downcast_ref::<Error>() {
            line = line.or(inner.line());
            exhausted |= inner.kind() == ErrorKind::OutOfFuel;
        }
        if let Some(Raise(message)) = current.downcast_ref::<Raise>() {
            raised = Some(message.clone());
        }
        cause = current.source();
    }
    let line = line.unwrap_or(1);
    if let Some(message) = raised {
        return ChatError::Raised { line, message };
    }
    if exhausted {
        return ChatError::OutOfFuel { line, fuel };
    }
    let message = match error.detail() {
        Some(detail) if error.kind() != ErrorKind::InvalidOperation => {
            format!("{}: {detail}", error.kind())
        }
        Some(detail) => detail.to_owned(),
        None => error.kind().to_string(),
    };
    ChatError::Failed { line, message }
}
