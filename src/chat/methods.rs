//! The methods of Python's built-in types that templates call.
//!
//! The engine asks here before it looks for a key of the method's name, which is the order in
//! which jinja2 resolves `x.name`. What is not here goes to minijinja-contrib's `pycompat`.

use minijinja::value::{Kwargs, Tuple, Value, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State};

use super::casing;
use super::fuel::{ITEM, Weigher, pay, pay_texts, position, weigh};
use super::splitting::{split_blank, split_lines, split_on, window};
use super::value::{BoundMethod, DictView, fail, is_namespace, to_text, type_name};

const DICT: [&str; 11] = [
    "clear",
    "copy",
    "fromkeys",
    "get",
    "items",
    "keys",
    "pop",
    "popitem",
    "setdefault",
    "update",
    "values",
];
const STR: [&str; 10] = [
    "endswith",
    "format",
    "join",
    "lower",
    "lstrip",
    "rstrip",
    "split",
    "startswith",
    "strip",
    "upper",
];
/// What jinja2's immutable sandbox forbids.
const LIST_MUTATORS: [&str; 8] = [
    "append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort",
];
const DICT_MUTATORS: [&str; 5] = ["clear", "pop", "popitem", "setdefault", "update"];

/// Padded results may be this long.
const MAX_WIDTH: usize = 1 << 20;

/// Whether naming this attribute without calling it may mean a method rather than a key.
pub(super) fn is_method_name(name: &str) -> bool {
    DICT.contains(&name) || STR.contains(&name)
}

/// Answers a method call on a value of a built-in type.
pub(super) fn call(
    state: &mut State<'_, '_>,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    if method == "__attr" {
        return attribute(value, args);
    }
    if method.starts_with("__") {
        return Err(unsafe_access(value, method));
    }
    // a text is read or copied by nearly every method; the engine does not charge for arguments
    pay_texts(state, std::iter::once(value).chain(args))?;
    match value.kind() {
        ValueKind::String => {
            match string(state, value.as_str().unwrap_or_default(), method, args) {
                Err(error) if error.kind() == ErrorKind::UnknownMethod => {
                    minijinja_contrib::pycompat::unknown_method_callback(state, value, method, args)
                }
                result => result,
            }
        }
        ValueKind::Seq | ValueKind::Iterable => list(state, value, method, args),
        ValueKind::Map if !is_namespace(value) => dict(state, value, method, args),
        ValueKind::Number => number(value, method, args),
        _ => Err(Error::from(ErrorKind::UnknownMethod)),
    }
}

fn unsafe_access(value: &Value, name: &str) -> Error {
    let kind = type_name(value);
    fail(format!(
        "access to attribute '{name}' of '{kind}' object is unsafe."
    ))
}

/// `x.name` where `name` is a method of a built-in type: the method hides a key.
fn attribute(value: &Value, args: &[Value]) -> Result<Value, Error> {
    let (name,): (&str,) = from_args(args)?;
    let method = match value.kind() {
        ValueKind::String => STR.contains(&name),
        ValueKind::Map => {
            !is_namespace(value)
                && value.as_object().is_some_and(|o| {
                    // the engine's own maps; a macro or a loop is a map to it too
                    o.type_name().contains("Map<") || o.type_name().contains("ValueMap")
                })
                && DICT.contains(&name)
        }
        _ => false,
    };
    if method {
        return Ok(Value::from_object(BoundMethod {
            value: value.clone(),
            name: name.to_owned(),
        }));
    }
    value.get_attr(name)
}

/// Whether Python takes the character for blank.
pub(super) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

/// `str.strip(chars)` on the sides asked for.
pub(super) fn strip<'t>(text: &'t str, chars: Option<&str>, left: bool, right: bool) -> &'t str {
    // searched by halves: the set may be as long as the text
    let mut set: Vec<char> = chars.unwrap_or_default().chars().collect();
    set.sort_unstable();
    let strips = |c: char| match chars {
        Some(_) => set.binary_search(&c).is_ok(),
        None => is_space(c),
    };
    let text = if left {
        text.trim_start_matches(strips)
    } else {
        text
    };
    if right {
        text.trim_end_matches(strips)
    } else {
        text
    }
}

fn string(state: &State<'_, '_>, text: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    let none = || from_args::<()>(args);
    let one = || from_args::<(&str,)>(args).map(|(x,)| x);
    let all = |test: fn(char) -> bool| {
        none().map(|()| Value::from(!text.is_empty() && text.chars().all(test)))
    };
    let padded = |left: usize, right: usize, fill: char| -> Result<Value, Error> {
        if left.saturating_add(right) > MAX_WIDTH {
            return Err(fail(format!("padding wider than {MAX_WIDTH} is refused")));
        }
        // a character of the filling has up to four bytes
        pay(state, 4 * (left + right))?;
        let fill = |n| std::iter::repeat_n(fill, n);
        Ok(Value::from(
            fill(left)
                .chain(text.chars())
                .chain(fill(right))
                .collect::<String>(),
        ))
    };
    match method {
        "strip" | "lstrip" | "rstrip" => {
            let (chars,): (Option<&str>,) = from_args(args)?;
            Ok(Value::from(strip(
                text,
                chars,
                method != "rstrip",
                method != "lstrip",
            )))
        }
        "split" | "rsplit" => {
            let (sep, max, named): (Option<Value>, Option<i64>, Kwargs) = from_args(args)?;
            let sep = match sep {
                Some(sep) => Some(sep),
                None => named.get::<Option<Value>>("sep")?,
            }
            .filter(|sep| !sep.is_none());
            let max = match max {
                Some(max) => Some(max),
                None => named.get::<Option<i64>>("maxsplit")?,
            };
            named.assert_all_used()?;
            let max = max
                .and_then(|max| usize::try_from(max).ok())
                .unwrap_or(usize::MAX);
            let parts = match &sep {
                None => split_blank(text, max, method == "rsplit"),
                Some(sep) => {
                    let sep = sep.as_str().ok_or_else(|| must_be_str("separator", sep))?;
                    if sep.is_empty() {
                        return Err(fail("empty separator"));
                    }
                    split_on(text, sep, max, method == "rsplit")
                }
            };
            pay(state, 2 * ITEM * parts.len())?;
            Ok(Value::from(
                parts.into_iter().map(Value::from).collect::<Vec<_>>(),
            ))
        }
        "splitlines" => {
            let (keep, named): (Option<bool>, Kwargs) = from_args(args)?;
            let keep = match keep {
                Some(keep) => keep,
                None => named.get::<Option<bool>>("keepends")?.unwrap_or(false),
            };
            named.assert_all_used()?;
            let lines = split_lines(text, keep);
            pay(state, 2 * ITEM * lines.len())?;
            Ok(Value::from(
                lines.into_iter().map(Value::from).collect::<Vec<_>>(),
            ))
        }
        "partition" | "rpartition" => {
            let sep = one()?;
            if sep.is_empty() {
                return Err(fail("empty separator"));
            }
            let found = if method == "partition" {
                text.split_once(sep)
            } else {
                text.rsplit_once(sep)
            };
            let parts = match found {
                Some((before, after)) => [before, sep, after],
                None if method == "partition" => [text, "", ""],
                None => ["", "", text],
            };
            Ok(Value::from(Tuple::from(parts.map(Value::from))))
        }
        "startswith" | "endswith" => {
            let (affix, start, end): (&Value, Option<i64>, Option<i64>) = from_args(args)?;
            let Some((part, _)) = window(text, start, end) else {
                return Ok(Value::from(false));
            };
            let test = |affix: &Value| match affix.as_str() {
                Some(affix) if method == "startswith" => Ok(part.starts_with(affix)),
                Some(affix) => Ok(part.ends_with(affix)),
                None => Err(fail(format!(
                    "{method} first arg must be str or a tuple of str, not {}",
                    type_name(affix)
                ))),
            };
            if !affix.is_tuple() {
                return test(affix).map(Value::from);
            }
            weigh(state, affix, 1)?;
            for affix in affix.try_iter()? {
                if test(&affix)? {
                    return Ok(Value::from(true));
                }
            }
            Ok(Value::from(false))
        }
        "find" | "rfind" | "index" | "rindex" => {
            let (what, start, end): (&str, Option<i64>, Option<i64>) = from_args(args)?;
            let found = window(text, start, end).and_then(|(part, before)| {
                let at = if method.starts_with('r') {
                    part.rfind(what)
                } else {
                    part.find(what)
                };
                at.map(|at| (before + part[..at].chars().count()) as i64)
            });
            match found {
                Some(at) => Ok(Value::from(at)),
                None if method.ends_with("find") => Ok(Value::from(-1)),
                None => Err(fail("substring not found")),
            }
        }
        "count" => {
            let (what, start, end): (&str, Option<i64>, Option<i64>) = from_args(args)?;
            Ok(Value::from(window(text, start, end).map_or(
                0,
                |(part, _)| match what {
                    "" => part.chars().count() + 1,
                    what => part.matches(what).count(),
                },
            )))
        }
        "join" => {
            let (items,): (&Value,) = from_args(args)?;
            let mut out = super::value::Text::new(state);
            for (i, item) in items.try_iter()?.enumerate() {
                let Some(item) = item.as_str() else {
                    let kind = type_name(&item);
                    return Err(fail(format!(
                        "sequence item {i}: expected str instance, {kind} found"
                    )));
                };
                out.item()?;
                out.push(if i > 0 { text } else { "" })?;
                out.push(item)?;
            }
            Ok(Value::from(out.finish()))
        }
        "upper" => none().map(|()| Value::from(text.to_uppercase())),
        "lower" => none().map(|()| Value::from(text.to_lowercase())),
        "capitalize" => none().map(|()| Value::from(casing::capitalize(text))),
        "title" => none().map(|()| Value::from(casing::title(text))),
        "swapcase" => none().map(|()| Value::from(casing::swap(text))),
        "casefold" => none().map(|()| Value::from(casing::fold(text))),
        "isalpha" => all(char::is_alphabetic),
        "isalnum" => all(char::is_alphanumeric),
        "isdecimal" => all(casing::is_decimal),
        "isdigit" => all(casing::is_digit),
        "isnumeric" => all(char::is_numeric),
        "isspace" => all(is_space),
        "isascii" => none().map(|()| Value::from(text.is_ascii())),
        "isprintable" => none().map(|()| {
            Value::from(
                text.chars()
                    .all(|c| c == '\\' || !super::value::repr_text(&c.to_string()).contains('\\')),
            )
        }),
        "istitle" => none().map(|()| {
            Value::from(text.chars().any(casing::is_cased) && casing::title(text) == text)
        }),
        "isidentifier" => none().map(|()| {
            let mut chars = text.chars();
            let first = chars.next().is_some_and(|c| c == '_' || c.is_alphabetic());
            Value::from(first && chars.all(|c| c == '_' || c.is_alphanumeric()))
        }),
        "removeprefix" => one().map(|affix| Value::from(text.strip_prefix(affix).unwrap_or(text))),
        "removesuffix" => one().map(|affix| Value::from(text.strip_suffix(affix).unwrap_or(text))),
        "zfill" => {
            let (width,): (usize,) = from_args(args)?;
            let missing = width.saturating_sub(text.chars().count());
            let (sign, digits) = match text.strip_prefix(['-', '+']) {
                Some(digits) => (&text[..1], digits),
                None => ("", text),
            };
            if missing > MAX_WIDTH {
                return Err(fail(format!("padding wider than {MAX_WIDTH} is refused")));
            }
            pay(state, missing)?;
            Ok(Value::from(format!(
                "{sign}{}{digits}",
                "0".repeat(missing)
            )))
        }
        "ljust" | "rjust" | "center" => {
            let (width, fill): (usize, Option<char>) = from_args(args)?;
            let fill = fill.unwrap_or(' ');
            let missing = width.saturating_sub(text.chars().count());
            match method {
                "ljust" => padded(0, missing, fill),
                "rjust" => padded(missing, 0, fill),
                // CPython puts the odd one left when the width is odd
                _ => {
                    let left = missing / 2 + (missing & width & 1);
                    padded(left, missing - left, fill)
                }
            }
        }
        "expandtabs" => {
            let (size,): (Option<usize>,) = from_args(args)?;
            let size = size.unwrap_or(8);
            if size > 1024 {
                return Err(fail("tabs wider than 1024 are refused"));
            }
            let mut column = 0;
            let mut out = super::value::Text::new(state);
            for c in text.chars() {
                match c {
                    '\t' if size > 0 => {
                        let blanks = size - column % size;
                        out.push(&" ".repeat(blanks))?;
                        column += blanks;
                    }
                    '\t' => {}
                    c => {
                        out.push(c.encode_utf8(&mut [0; 4]))?;
                        column = if matches!(c, '\n' | '\r') {
                            0
                        } else {
                            column + 1
                        };
                    }
                }
            }
            Ok(Value::from(out.finish()))
        }
        "replace" => {
            let (old, new, count): (&str, &str, Option<i64>) = from_args(args)?;
            replace(state, text, old, new, count.unwrap_or(-1)).map(Value::from)
        }
        "format" => {
            refuse_wide_formats(text)?;
            // an argument is printed whole, then cut to the precision
            for arg in args {
                weigh(state, arg, 1)?;
            }
            Err(Error::from(ErrorKind::UnknownMethod))
        }
        _ => Err(Error::from(ErrorKind::UnknownMethod)),
    }
}

/// Refuses a width or precision of five digits in a format, which would pad without bound.
pub(super) fn refuse_wide_formats(text: &str) -> Result<(), Error> {
    let wide = text
        .as_bytes()
        .chunk_by(|a, b| a.is_ascii_digit() == b.is_ascii_digit());
    let braces = text.contains('{') || text.contains('%');
    for run in wide.filter(|run| braces && run[0].is_ascii_digit()) {
        if run.len() > 4 {
            return Err(fail(
                "a format with a number of more than four digits is refused",
            ));
        }
    }
    Ok(())
}

fn must_be_str(what: &str, value: &Value) -> Error {
    fail(format!("{what} must be str, not {}", type_name(value)))
}

/// `str.replace`, paid for before it is made.
pub(super) fn replace(
    state: &State<'_, '_>,
    text: &str,
    old: &str,
    new: &str,
    count: i64,
) -> Result<String, Error> {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let matches = text.matches(old).take(count).count();
    let size = text.len().saturating_add(matches.saturating_mul(new.len()));
    pay(state, size)?;
    Ok(text.replacen(old, new, count))
}

fn list(
    state: &State<'_, '_>,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let tuple = value.is_tuple();
    match method {
        "count" => {
            let (what,): (&Value,) = from_args(args)?;
            let mut weigher = Weigher::reading(state);
            let mut count = 0;
            for item in value.try_iter()? {
                count += usize::from(weigher.equal(&item, what)?);
            }
            weigher.finish()?;
            Ok(Value::from(count))
        }
        "index" => {
            let (what,): (&Value,) = from_args(args)?;
            match position(state, value, what)? {
                Some(at) => Ok(Value::from(at)),
                None => Err(fail(format!("{what} is not in the {}", type_name(value)))),
            }
        }
        "copy" if !tuple => {
            from_args::<()>(args)?;
            minijinja::filters::list(state, value.clone())
        }
        name if !tuple && LIST_MUTATORS.contains(&name) => Err(unsafe_access(value, name)),
        _ => Err(Error::from(ErrorKind::UnknownMethod)),
    }
}

fn dict(
    state: &State<'_, '_>,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let Some(object) = value.as_object() else {
        return Err(Error::from(ErrorKind::UnknownMethod));
    };
    let pairs = || object.try_iter_pairs().into_iter().flatten();
    let view = |name, items: Vec<Value>| Ok(Value::from_object(DictView { name, items }));
    if matches!(method, "items" | "keys" | "values" | "copy") {
        pay(state, 2 * ITEM * value.len().unwrap_or(0))?;
    }
    match method {
        "get" => {
            let (key, default): (&Value, Option<Value>) = from_args(args)?;
            weigh(state, key, 1)?;
            Ok(object.get_value(key).or(default).unwrap_or(Value::from(())))
        }
        "items" => {
            from_args::<()>(args)?;
            view(
                "dict_items",
                pairs()
                    .map(|(k, v)| Value::from(Tuple::from([k, v])))
                    .collect(),
            )
        }
        "keys" => {
            from_args::<()>(args)?;
            view("dict_keys", pairs().map(|(k, _)| k).collect())
        }
        "values" => {
            from_args::<()>(args)?;
            view("dict_values", pairs().map(|(_, v)| v).collect())
        }
        "copy" => {
            from_args::<()>(args)?;
            Ok(Value::from_pairs(pairs()))
        }
        name if DICT_MUTATORS.contains(&name) => Err(unsafe_access(value, name)),
        _ => Err(Error::from(ErrorKind::UnknownMethod)),
    }
}

fn number(value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    match method {
        "is_integer" => {
            from_args::<()>(args)?;
            let whole =
                f64::try_from(value.clone()).is_ok_and(|x| x.is_finite() && x.fract() == 0.0);
            Ok(Value::from(value.is_integer() || whole))
        }
        "bit_length" if value.is_integer() => {
            from_args::<()>(args)?;
            let number = i128::try_from(value.clone())?;
            Ok(Value::from(128 - number.unsigned_abs().leading_zeros()))
        }
        _ => Err(Error::from(ErrorKind::UnknownMethod)),
    }
}

/// `"sep".join` for the filter of that name: every item as text.
pub(super) fn join_text(
    state: &State<'_, '_>,
    items: &Value,
    separator: &str,
) -> Result<String, Error> {
    let mut out = super::value::Text::new(state);
    for (i, item) in items.try_iter()?.enumerate() {
        out.item()?;
        out.push(if i > 0 { separator } else { "" })?;
        out.push(&to_text(state, &item)?)?;
    }
    Ok(out.finish())
}
