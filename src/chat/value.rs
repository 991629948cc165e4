//! Values as Python has them: what they print, what they serialise to, how large they are.
//!
//! The engine's values come from JSON and from the template. Two kinds of Python values have no
//! counterpart there and are objects of ours: [`Generator`] (what `map`, `select` and their like
//! give) and [`DictView`] (`d.items()` and so on).

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use minijinja::value::{Enumerator, Object, ObjectExt, ObjectRepr, Value, ValueKind};
use minijinja::{Error, ErrorKind, State};

use super::fuel::{ITEM, Weigher, pay};

/// Values nest at most this deep: Python's own limit is its recursion limit.
pub(super) const MAX_DEPTH: usize = 100;

/// An iterator that can be walked once: no length, no index, always true.
pub(super) struct Generator(Mutex<Option<std::vec::IntoIter<Value>>>);

impl Generator {
    /// Collects what `items` gives; the engine charges fuel as they are made.
    pub fn from_value(items: Value) -> Result<Value, Error> {
        let items = items.try_iter()?.collect::<Vec<_>>();
        if let Some(error) = items.iter().find_map(|item| item.clone().validate_error()) {
            return Err(error);
        }
        Ok(Value::from_object(Generator(Mutex::new(Some(
            items.into_iter(),
        )))))
    }
}

impl std::fmt::Debug for Generator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("<generator object>")
    }
}

impl Object for Generator {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Iterable
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        let taken = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        Enumerator::Iter(Box::new(taken.unwrap_or_default()))
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        None
    }

    fn render(self: &Arc<Self>, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("<generator object>")
    }
}

/// `d.items()`, `d.keys()` or `d.values()`: has a length, prints its name, has no index.
#[derive(Debug)]
pub(super) struct DictView {
    /// `dict_items`, `dict_keys` or `dict_values`.
    pub name: &'static str,
    /// The items at the time of the call.
    pub items: Vec<Value>,
}

impl Object for DictView {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Iterable
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        // lent out, since the engine asks for it also where it wants the first item or the length
        self.mapped_enumerator(|view| Box::new(view.items.iter().cloned()))
    }
}

/// A method that was named but not called (`x.items`).
#[derive(Debug)]
pub(super) struct BoundMethod {
    /// The value it belongs to.
    pub value: Value,
    /// Its name.
    pub name: String,
}

impl Object for BoundMethod {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn call(self: &Arc<Self>, state: &mut State<'_, '_>, args: &[Value]) -> Result<Value, Error> {
        self.value.call_method(state, &self.name, args)
    }

    fn render(self: &Arc<Self>, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "<built-in method {}>", self.name)
    }
}

trait ValidateError {
    fn validate_error(self) -> Option<Error>;
}

impl ValidateError for Value {
    fn validate_error(self) -> Option<Error> {
        // An invalid value carries its error; calling `try_iter` hands it out.
        (self.kind() == ValueKind::Invalid).then(|| match self.try_iter() {
            Err(error) => error,
            Ok(_) => Error::new(ErrorKind::InvalidOperation, "invalid value"),
        })
    }
}

/// Whether the value is a [`Generator`].
pub(super) fn is_generator(value: &Value) -> bool {
    value.downcast_object_ref::<Generator>().is_some()
}

/// Whether the value is a [`DictView`].
pub(super) fn is_view(value: &Value) -> bool {
    value.downcast_object_ref::<DictView>().is_some()
}

/// Whether the value is what `namespace()` makes.
pub(super) fn is_namespace(value: &Value) -> bool {
    value
        .as_object()
        .is_some_and(|object| object.type_name().ends_with("::Namespace"))
}

/// Whether the value is a `range`.
fn is_range(value: &Value) -> bool {
    value.kind() == ValueKind::Iterable && !is_generator(value) && !is_view(value)
}

/// Whether Python's value is a list, a tuple or a range: has a length and an order.
pub(super) fn is_sequence(value: &Value) -> bool {
    value.kind() == ValueKind::Seq || is_range(value)
}

/// Python's name of the value's type, for messages.
pub(super) fn type_name(value: &Value) -> &'static str {
    match value.kind() {
        ValueKind::Undefined => "Undefined",
        ValueKind::None => "NoneType",
        ValueKind::Bool => "bool",
        ValueKind::Number if value.is_integer() => "int",
        ValueKind::Number => "float",
        ValueKind::String => "str",
        ValueKind::Bytes => "bytes",
        ValueKind::Seq if value.is_tuple() => "tuple",
        ValueKind::Seq => "list",
        ValueKind::Map if is_namespace(value) => "Namespace",
        ValueKind::Map => "dict",
        ValueKind::Iterable if is_generator(value) => "generator",
        ValueKind::Iterable => match value.downcast_object_ref::<DictView>() {
            Some(view) => view.name,
            None => "list",
        },
        _ => "object",
    }
}

/// An error of the kind Python would raise.
pub(super) fn fail(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}

/// Text under construction that pays fuel as it grows, so that it cannot outgrow the budget.
pub(super) struct Text<'a, 't, 'e> {
    state: &'a State<'t, 'e>,
    out: String,
    due: usize,
}

impl<'a, 't, 'e> Text<'a, 't, 'e> {
    /// Empty text.
    pub fn new(state: &'a State<'t, 'e>) -> Self {
        Text {
            state,
            out: String::new(),
            due: 0,
        }
    }

    /// Appends.
    pub fn push(&mut self, text: &str) -> Result<(), Error> {
        self.out.push_str(text);
        self.charge(text.len())
    }

    /// Pays for one item of what is written, which may itself add nothing.
    pub fn item(&mut self) -> Result<(), Error> {
        self.charge(ITEM)
    }

    fn charge(&mut self, bytes: usize) -> Result<(), Error> {
        self.due += bytes;
        let whole = self.due - self.due % 64;
        self.due -= whole;
        if whole > 0 {
            pay(self.state, whole)?;
        }
        Ok(())
    }

    /// The text.
    pub fn finish(self) -> String {
        self.out
    }
}

/// Python's `str(value)`.
pub(super) fn to_text(state: &State<'_, '_>, value: &Value) -> Result<String, Error> {
    if let Some(text) = value.as_str() {
        pay(state, text.len())?;
        return Ok(text.to_owned());
    }
    let mut text = Text::new(state);
    match value.kind() {
        ValueKind::Undefined => {}
        _ => write_repr(&mut text, value, 0)?,
    }
    Ok(text.finish())
}

fn write_repr(out: &mut Text<'_, '_, '_>, value: &Value, depth: usize) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(too_deep());
    }
    match value.kind() {
        ValueKind::Undefined => out.push("Undefined"),
        ValueKind::Number if !value.is_integer() => match f64::try_from(value.clone()) {
            Ok(float) => out.push(&float_text(float)),
            Err(_) => out.push(&value.to_string()),
        },
        ValueKind::String if value.is_safe() => {
            out.push("Markup(")?;
            out.push(&repr_text(value.as_str().unwrap_or_default()))?;
            out.push(")")
        }
        ValueKind::String => out.push(&repr_text(value.as_str().unwrap_or_default())),
        ValueKind::Map => {
            let namespace = is_namespace(value);
            out.push(if namespace { "<Namespace {" } else { "{" })?;
            for (i, key) in value.try_iter()?.enumerate() {
                out.item()?;
                out.push(if i > 0 { ", " } else { "" })?;
                write_repr(out, &key, depth + 1)?;
                out.push(": ")?;
                write_repr(out, &value.get_item(&key)?, depth + 1)?;
            }
            out.push(if namespace { "}>" } else { "}" })
        }
        ValueKind::Iterable if is_range_object(value) => out.push(&range_text(value)?),
        ValueKind::Seq | ValueKind::Iterable if !is_generator(value) => {
            let view = value.downcast_object_ref::<DictView>();
            let (open, close) = match view {
                Some(view) => {
                    out.push(view.name)?;
                    ("([", "])")
                }
                None if value.is_tuple() && value.len() == Some(1) => ("(", ",)"),
                None if value.is_tuple() => ("(", ")"),
                None => ("[", "]"),
            };
            out.push(open)?;
            for (i, item) in value.try_iter()?.enumerate() {
                out.item()?;
                out.push(if i > 0 { ", " } else { "" })?;
                write_repr(out, &item, depth + 1)?;
            }
            out.push(close)
        }
        _ => out.push(&value.to_string()),
    }
}

/// Python's `repr` of a range, from its first items and its length.
fn range_text(value: &Value) -> Result<String, Error> {
    let number = |v: Option<Value>| v.and_then(|v| i64::try_from(v).ok());
    let length = i64::try_from(value.len().unwrap_or(0)).unwrap_or(i64::MAX);
    let mut items = value.try_iter()?;
    let (first, second) = (number(items.next()), number(items.next()));
    let start = first.unwrap_or(0);
    let step = second.map_or(1, |second| second - start);
    let end = start + step * length;
    Ok(if step == 1 {
        format!("range({start}, {end})")
    } else {
        format!("range({start}, {end}, {step})")
    })
}

pub(super) fn too_deep() -> Error {
    fail(format!("a value nested deeper than {MAX_DEPTH} is refused"))
}

/// Python's `repr` of a string: quotes, escapes for what is not printable.
pub(super) fn repr_text(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    let mut out = String::with_capacity(text.len() + 2);
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            c if is_printable(c) => out.push(c),
            c => {
                let code = u32::from(c);
                // writing to a String cannot fail
                let _ = match code {
                    0..=0xff => write!(out, "\\x{code:02x}"),
                    0x100..=0xffff => write!(out, "\\u{code:04x}"),
                    _ => write!(out, "\\U{code:08x}"),
                };
            }
        }
    }
    out.push(quote);
    out
}

/// Python's `str.isprintable` for one character, by what Rust's `escape_debug` leaves alone.
fn is_printable(c: char) -> bool {
    // A combining mark is printable, but `escape_debug` escapes it when it stands first.
    let mut pair = String::from("a");
    pair.push(c);
    pair.escape_debug().nth(1) == Some(c) || matches!(c, '"' | '\'')
}

/// Python's `repr` of a float: the shortest digits that read back, with an exponent from 1e16
/// and below 1e-4.
pub(super) fn float_text(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if value != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    let mut text = value.to_string();
    if !text.contains('.') {
        text.push_str(".0");
    }
    text
}

/// Checks a value's size and makes a list of what the engine keeps as a view of a list.
///
/// Walks the whole value, a fuel for every two nodes and every KiB of text, so that a value that
/// shares its parts (and would print far more than it holds) is stopped while it is small.
///
/// # Errors
/// Out of fuel; a value nested deeper than [`MAX_DEPTH`]; a namespace inside, when `plain`: one
/// that is assigned to a namespace could hold itself.
pub(super) fn settle(state: &State<'_, '_>, value: &Value, plain: bool) -> Result<Value, Error> {
    let settled = match value.kind() {
        ValueKind::Iterable if is_range(value) && !is_range_object(value) => {
            let mut items = Vec::new();
            for item in value.try_iter()? {
                if items.len() % 8 == 7 {
                    pay(state, 8 * ITEM)?;
                }
                items.push(item);
            }
            Value::from(items)
        }
        ValueKind::Seq | ValueKind::Map | ValueKind::Iterable => value.clone(),
        _ => return Ok(value.clone()),
    };
    Weigher::sizing(state, plain).visit(&settled, 0)?;
    Ok(settled)
}

/// Whether this is what `range()` made: it is no list, and is short to write and long to walk.
pub(super) fn is_range_object(value: &Value) -> bool {
    value
        .as_object()
        .is_some_and(|object| object.type_name().contains("range"))
}

/// Writes what `{{ value }}` prints.
pub(super) fn write_output(
    out: &mut minijinja::Output<'_>,
    state: &mut State<'_, '_>,
    value: &Value,
) -> Result<(), Error> {
    let written = match value.as_str() {
        Some(text) => out.write_str(text),
        None => out.write_str(&to_text(state, value)?),
    };
    written.map_err(|_| Error::new(ErrorKind::WriteFailure, "the text cannot be written"))
}
