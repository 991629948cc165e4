//! Filters and tests that differ from the engine's own: jinja2's behaviour, message for message
//! where it matters.

use std::borrow::Cow;

use minijinja::value::{Kwargs, Rest, Tuple, Value, ValueKind, ValueOrKwargs, from_args};
use minijinja::{Environment, Error, State, filters};

use super::casing;
use super::fuel::{ITEM, pay, pay_sort, pay_texts};
use super::methods;
use super::value::{
    BoundMethod, Generator, Text, fail, is_generator, is_sequence, to_text, type_name,
};

/// Registers them.
pub(super) fn register(env: &mut Environment<'_>) {
    env.add_filter("tojson", super::json::tojson);
    env.add_filter(
        "string",
        |state: &State, v: &Value| -> Result<Value, Error> {
            if v.as_str().is_some() {
                Ok(v.clone())
            } else {
                to_text(state, v).map(Value::from)
            }
        },
    );
    env.add_filter("join", join);
    env.add_filter("escape", |state: &State, v: &Value| markup(state, v, false));
    env.add_filter("e", |state: &State, v: &Value| markup(state, v, false));
    env.add_filter("forceescape", |state: &State, v: &Value| {
        markup(state, v, true)
    });
    env.add_filter("trim", |state: &State, v: &Value, chars: Option<&str>| {
        pay(state, chars.map_or(0, str::len))?;
        to_text(state, v).map(|text| methods::strip(&text, chars, true, true).to_owned())
    });
    env.add_filter("upper", |state: &State, v: &Value| {
        to_text(state, v).map(|t| t.to_uppercase())
    });
    env.add_filter("lower", |state: &State, v: &Value| {
        to_text(state, v).map(|t| t.to_lowercase())
    });
    env.add_filter("capitalize", |state: &State, v: &Value| {
        to_text(state, v).map(|t| casing::capitalize(&t))
    });
    env.add_filter("title", |state: &State, v: &Value| {
        to_text(state, v).map(|t| title(&t))
    });
    env.add_filter("default", default);
    env.add_filter("d", default);
    env.add_filter("list", |state: &State, v: Value| {
        if v.is_none() {
            Err(fail("'NoneType' object is not iterable"))
        } else {
            filters::list(state, v)
        }
    });
    env.add_filter("length", length);
    env.add_filter("count", length);
    env.add_filter("dictsort", dictsort);
    env.add_filter("indent", indent);
    env.add_filter("int", int);
    env.add_filter("float", float);
    env.add_filter("items", |state: &State, v: &Value| {
        if v.is_undefined() {
            return Generator::from_value(Value::from(Vec::<Value>::new()));
        }
        if type_name(v) != "dict" {
            return Err(fail("Can only get item pairs from a mapping."));
        }
        pay(state, 2 * ITEM * v.len().unwrap_or(0))?;
        Generator::from_value(filters::items(v)?)
    });
    env.add_filter(
        "map",
        |state: &mut State, v: Value, args: Rest<ValueOrKwargs>| {
            Generator::from_value(filters::map(state, v, args)?.into())
        },
    );
    env.add_filter(
        "select",
        |state: &mut State, v: Value, test: Option<Cow<str>>, args: Rest<ValueOrKwargs>| {
            Generator::from_value(filters::select(state, v, test, args)?.into())
        },
    );
    env.add_filter(
        "reject",
        |state: &mut State, v: Value, test: Option<Cow<str>>, args: Rest<ValueOrKwargs>| {
            Generator::from_value(filters::reject(state, v, test, args)?.into())
        },
    );
    env.add_filter(
        "selectattr",
        |state: &mut State,
         v: Value,
         attr: Cow<str>,
         test: Option<Cow<str>>,
         args: Rest<ValueOrKwargs>| {
            Generator::from_value(filters::selectattr(state, v, attr, test, args)?.into())
        },
    );
    env.add_filter(
        "rejectattr",
        |state: &mut State,
         v: Value,
         attr: Cow<str>,
         test: Option<Cow<str>>,
         args: Rest<ValueOrKwargs>| {
            Generator::from_value(filters::rejectattr(state, v, attr, test, args)?.into())
        },
    );
    env.add_test("sequence", |v: &Value| {
        is_sequence(v) || v.is_undefined() || v.as_str().is_some() || matches!(type_name(v), "dict")
    });
    env.add_test("iterable", |v: &Value| {
        !v.is_none() && type_name(v) != "Namespace" && (v.is_undefined() || v.try_iter().is_ok())
    });
    env.add_test("mapping", |v: &Value| type_name(v) == "dict");
    env.add_test("callable", |v: &Value| {
        v.downcast_object_ref::<BoundMethod>().is_some() || matches!(v.kind(), ValueKind::Plain)
    });
}

/// `x | default(value, boolean)`.
fn default(
    value: &Value,
    other: Option<Value>,
    boolean: Option<bool>,
    named: Kwargs,
) -> Result<Value, Error> {
    let other = match other {
        Some(other) => other,
        None => named
            .get::<Option<Value>>("default_value")?
            .unwrap_or_else(|| Value::from("")),
    };
    let boolean = match boolean {
        Some(boolean) => boolean,
        None => named.get::<Option<bool>>("boolean")?.unwrap_or(false),
    };
    named.assert_all_used()?;
    let missing = value.is_undefined() || boolean && !value.is_true();
    Ok(if missing { other } else { value.clone() })
}

fn length(state: &State, value: &Value) -> Result<usize, Error> {
    match value.len() {
        Some(length) if !is_generator(value) => Ok(length),
        _ if value.is_undefined() => Ok(0),
        // a slice that has not been assigned
        _ if is_sequence(value) => {
            filters::list(state, value.clone()).map(|items| items.len().unwrap_or(0))
        }
        _ => Err(fail(format!(
            "object of type '{}' has no len()",
            type_name(value)
        ))),
    }
}

/// `d | dictsort(case_sensitive=False, by="key", reverse=False)`.
fn dictsort(state: &State, value: &Value, rest: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let rest = rest.into_values();
    type Arguments = (Option<bool>, Option<String>, Option<bool>, Kwargs);
    let (case_sensitive, by, reverse, named): Arguments = from_args(&rest)?;
    pay_sort(state, value)?;
    let mut all: Vec<(String, Value)> = Vec::new();
    let mut option = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            all.push((name.to_owned(), value));
        }
    };
    option(
        "case_sensitive",
        case_sensitive
            .map(Value::from)
            .or(named.get("case_sensitive")?),
    );
    option("by", by.map(Value::from).or(named.get("by")?));
    option(
        "reverse",
        reverse.map(Value::from).or(named.get("reverse")?),
    );
    named.assert_all_used()?;
    filters::dictsort(value, all.into_iter().collect())
}

/// `x | indent(width=4, first=False, blank=False)`; the width may be text.
fn indent(state: &State, value: &Value, args: Rest<ValueOrKwargs>) -> Result<String, Error> {
    let args: Vec<Value> = args.0.into_iter().map(ValueOrKwargs::into_value).collect();
    type Arguments = (Option<Value>, Option<bool>, Option<bool>, Kwargs);
    let (width, first, blank, named): Arguments = from_args(&args)?;
    let text = to_text(state, value)?;
    let width = width.or(named.get::<Option<Value>>("width")?);
    let first = first.or(named.get("first")?).unwrap_or(false);
    let blank = blank.or(named.get("blank")?).unwrap_or(false);
    named.assert_all_used()?;
    let prefix = match &width {
        None => "    ".to_owned(),
        Some(width) => match width.as_str() {
            Some(_) => to_text(state, width)?,
            None => " ".repeat(usize::try_from(width.clone())?.min(1024)),
        },
    };
    let mut out = Text::new(state);
    // jinja2 adds a newline and takes the lines, so that a last empty line stays
    for (i, line) in text.split('\n').enumerate() {
        if i > 0 {
            out.push("\n")?;
        }
        let wanted = if i == 0 {
            first
        } else {
            blank || !line.is_empty()
        };
        out.push(if wanted { &prefix } else { "" })?;
        out.push(line)?;
    }
    Ok(out.finish())
}

/// `x | int(default=0, base=10)`: Python's `int()`, through `float()` when that fails.
fn int(
    state: &State,
    value: &Value,
    default: Option<Value>,
    base: Option<u32>,
    named: Kwargs,
) -> Result<Value, Error> {
    let default = default
        .or(named.get("default")?)
        .unwrap_or_else(|| Value::from(0));
    let base = base.or(named.get("base")?).unwrap_or(10);
    named.assert_all_used()?;
    pay_texts(state, [value])?;
    if value.is_integer() {
        return Ok(value.clone());
    }
    if let Ok(flag) = bool::try_from(value.clone()) {
        return Ok(Value::from(i64::from(flag)));
    }
    let truncated = |float: f64| {
        (float.is_finite() && float.abs() < 1e38).then(|| Value::from(float.trunc() as i128))
    };
    let Some(text) = value.as_str() else {
        return Ok(f64::try_from(value.clone())
            .ok()
            .and_then(truncated)
            .unwrap_or(default));
    };
    let text = methods::strip(text, None, true, true).replace('_', "");
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(&text)),
    };
    let marks: &[&str] = match base {
        16 => &["0x", "0X"],
        8 => &["0o", "0O"],
        2 => &["0b", "0B"],
        _ => &[],
    };
    let digits = marks
        .iter()
        .find_map(|mark| digits.strip_prefix(mark))
        .unwrap_or(digits);
    let whole = (2..=36).contains(&base) && digits.starts_with(|c: char| c.is_alphanumeric());
    if let Some(number) = whole
        .then(|| i128::from_str_radix(digits, base).ok())
        .flatten()
    {
        return Ok(Value::from(sign * number));
    }
    Ok(text
        .parse::<f64>()
        .ok()
        .and_then(truncated)
        .unwrap_or(default))
}

/// `x | float(default=0.0)`.
fn float(state: &State, value: &Value, default: Option<Value>) -> Result<Value, Error> {
    pay_texts(state, [value])?;
    let default = default.unwrap_or_else(|| Value::from(0.0));
    Ok(match value.as_str() {
        Some(text) => {
            let text = methods::strip(text, None, true, true).replace('_', "");
            text.parse::<f64>().map_or(default, Value::from)
        }
        None => match (f64::try_from(value.clone()), bool::try_from(value.clone())) {
            (Ok(float), _) => Value::from(float),
            (_, Ok(flag)) => Value::from(f64::from(u8::from(flag))),
            _ => default,
        },
    })
}

/// `a + b + ..` where some may be marked-up text, which escapes what is added to it.
pub(super) fn add(state: &mut State, terms: Rest<Value>) -> Result<Value, Error> {
    let mut terms = terms.0.into_iter();
    let mut sum = terms.next().unwrap_or_default();
    for term in terms {
        sum = match (sum.as_str(), term.as_str()) {
            (Some(a), Some(b)) if sum.is_safe() || term.is_safe() => {
                pay(state, a.len() + b.len())?;
                let part = |v: &Value, text: &str| {
                    if v.is_safe() {
                        text.to_owned()
                    } else {
                        escape(text)
                    }
                };
                Value::from_safe_string(part(&sum, a) + &part(&term, b))
            }
            (Some(a), Some(b)) => {
                pay(state, a.len() + b.len())?;
                Value::from([a, b].concat())
            }
            (None, None)
                if is_sequence(&sum) && is_sequence(&term) && sum.is_tuple() == term.is_tuple() =>
            {
                let mut items = Vec::new();
                for item in sum.try_iter()?.chain(term.try_iter()?) {
                    // as it grows: a repeated list is short to hold and long to copy
                    if items.len() % 8 == 0 {
                        pay(state, 16 * ITEM)?;
                    }
                    items.push(item);
                }
                if sum.is_tuple() {
                    Value::from(Tuple::from(items))
                } else {
                    Value::from(items)
                }
            }
            _ => match (number(&sum), number(&term)) {
                (Some(a), Some(b)) => {
                    Value::from(a.checked_add(b).ok_or_else(|| fail("sum too large"))?)
                }
                _ => match (f64::try_from(sum.clone()), f64::try_from(term.clone())) {
                    (Ok(a), Ok(b)) => Value::from(a + b),
                    _ => {
                        let (a, b) = (type_name(&sum), type_name(&term));
                        return Err(fail(format!("cannot add {a} and {b}")));
                    }
                },
            },
        };
    }
    Ok(sum)
}

fn number(value: &Value) -> Option<i128> {
    match value.kind() {
        ValueKind::Bool => Some(i128::from(value.is_true())),
        _ if value.is_integer() => i128::try_from(value.clone()).ok(),
        _ => None,
    }
}

fn markup(state: &State, value: &Value, again: bool) -> Result<Value, Error> {
    if value.is_safe() && !again {
        return Ok(value.clone());
    }
    to_text(state, value).map(|text| Value::from_safe_string(escape(&text)))
}

/// markupsafe's `escape`.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\'' => out.push_str("&#39;"),
            '"' => out.push_str("&#34;"),
            c => out.push(c),
        }
    }
    out
}

/// jinja2's `title` filter: words are split at blanks and opening brackets and hyphens.
fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut word = String::new();
    let flush = |word: &mut String, out: &mut String| {
        out.push_str(&casing::capitalize(word));
        word.clear();
    };
    for c in text.chars() {
        if methods::is_space(c) || matches!(c, '-' | '(' | '{' | '[' | '<') {
            flush(&mut word, &mut out);
            out.push(c);
        } else {
            word.push(c);
        }
    }
    flush(&mut word, &mut out);
    out
}

fn join(
    state: &mut State,
    value: &Value,
    separator: Option<&Value>,
    named: Kwargs,
) -> Result<String, Error> {
    let separator = match separator {
        Some(separator) => to_text(state, separator)?,
        None => named
            .get::<Option<Value>>("d")?
            .map_or(Ok(String::new()), |d| to_text(state, &d))?,
    };
    let attribute = named.get::<Option<Value>>("attribute")?;
    named.assert_all_used()?;
    match attribute {
        None => methods::join_text(state, value, &separator),
        Some(attribute) => {
            let items = state.apply_filter(
                "map",
                &[
                    value.clone(),
                    Kwargs::from_iter([("attribute", attribute)]).into(),
                ],
            )?;
            methods::join_text(state, &items, &separator)
        }
    }
}
