//! `tojson` as transformers defines it: Python's `json.dumps`, not jinja2's own filter.

use minijinja::value::{Kwargs, Rest, Value, ValueKind, ValueOrKwargs, from_args};
use minijinja::{Error, State};

use super::value::{Text, fail, float_text, is_sequence, to_text, type_name};

/// Containers nested deeper are refused; Python stops at its recursion limit.
const MAX_DEPTH: usize = 100;

struct Style {
    ascii: bool,
    indent: Option<String>,
    item: String,
    key: String,
    sort: bool,
}

/// `x | tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
///
/// # Errors
/// A value JSON has no form for (undefined, a generator, a dictionary's view), or too deep.
pub(super) fn tojson(
    state: &State<'_, '_>,
    value: &Value,
    args: Rest<ValueOrKwargs>,
) -> Result<Value, Error> {
    let args: Vec<Value> = args.0.into_iter().map(ValueOrKwargs::into_value).collect();
    type Arguments = (
        Option<Value>,
        Option<Value>,
        Option<Value>,
        Option<Value>,
        Kwargs,
    );
    let (ascii, indent, separators, sort, named): Arguments = from_args(&args)?;
    let pick = |given: Option<Value>, name: &str| -> Result<Option<Value>, Error> {
        Ok(match given {
            Some(value) => Some(value),
            None => named.get::<Option<Value>>(name)?,
        }
        .filter(|value| !value.is_none()))
    };
    let ascii = pick(ascii, "ensure_ascii")?.is_some_and(|v| v.is_true());
    let indent = match pick(indent, "indent")? {
        None => None,
        Some(text) if text.as_str().is_some() => Some(to_text(state, &text)?),
        Some(count) => {
            let count = i64::try_from(count.clone())
                .or_else(|_| bool::try_from(count).map(i64::from))
                .map_err(|_| fail("tojson: indent must be a number or a string"))?;
            Some(" ".repeat(count.clamp(0, 64) as usize))
        }
    };
    let (item, key) = match pick(separators, "separators")? {
        None if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        None => (", ".to_owned(), ": ".to_owned()),
        Some(pair) => {
            let pair = pair
                .try_iter()?
                .map(|v| to_text(state, &v))
                .collect::<Result<Vec<_>, _>>()?;
            let [item, key] = <[String; 2]>::try_from(pair)
                .map_err(|_| fail("tojson: separators must be a pair of strings"))?;
            (item, key)
        }
    };
    let sort = pick(sort, "sort_keys")?.is_some_and(|v| v.is_true());
    named.assert_all_used()?;
    let mut out = Text::new(state);
    write(
        &mut out,
        &Style {
            ascii,
            indent,
            item,
            key,
            sort,
        },
        value,
        0,
    )?;
    Ok(Value::from(out.finish()))
}

fn write(
    out: &mut Text<'_, '_, '_>,
    style: &Style,
    value: &Value,
    depth: usize,
) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(fail(format!("tojson: nested deeper than {MAX_DEPTH}")));
    }
    match value.kind() {
        ValueKind::String => out.push(&quote(value.as_str().unwrap_or_default(), style.ascii)),
        ValueKind::Map if type_name(value) == "dict" => {
            let mut keys = value.try_iter()?.collect::<Vec<_>>();
            if style.sort {
                keys.sort();
            }
            write_items(out, style, depth, "{}", keys.iter(), |out, key| {
                out.push(&quote(&key_text(key)?, style.ascii))?;
                out.push(&style.key)?;
                write(out, style, &value.get_item(key)?, depth + 1)
            })
        }
        _ if is_sequence(value) => {
            let items = value.try_iter()?.collect::<Vec<_>>();
            write_items(out, style, depth, "[]", items.iter(), |out, item| {
                write(out, style, item, depth + 1)
            })
        }
        ValueKind::None | ValueKind::Bool | ValueKind::Number => out.push(&scalar(value)),
        _ => Err(fail(format!(
            "Object of type {} is not JSON serializable",
            type_name(value)
        ))),
    }
}

fn write_items<'v>(
    out: &mut Text<'_, '_, '_>,
    style: &Style,
    depth: usize,
    brackets: &str,
    items: impl ExactSizeIterator<Item = &'v Value>,
    mut each: impl FnMut(&mut Text<'_, '_, '_>, &'v Value) -> Result<(), Error>,
) -> Result<(), Error> {
    if items.len() == 0 {
        return out.push(brackets);
    }
    let newline = |depth: usize| {
        style
            .indent
            .as_ref()
            .map(|indent| format!("\n{}", indent.repeat(depth)))
    };
    out.push(&brackets[..1])?;
    for (i, item) in items.enumerate() {
        out.item()?;
        if i > 0 {
            out.push(&style.item)?;
        }
        if let Some(newline) = newline(depth + 1) {
            out.push(&newline)?;
        }
        each(out, item)?;
    }
    if let Some(newline) = newline(depth) {
        out.push(&newline)?;
    }
    out.push(&brackets[1..])
}

/// None, a boolean or a number.
fn scalar(value: &Value) -> String {
    match value.kind() {
        ValueKind::None => "null".to_owned(),
        ValueKind::Bool => if value.is_true() { "true" } else { "false" }.to_owned(),
        _ if value.is_integer() => value.to_string(),
        _ => match f64::try_from(value.clone()) {
            Ok(float) if float.is_nan() => "NaN".to_owned(),
            Ok(float) if float.is_infinite() && float > 0.0 => "Infinity".to_owned(),
            Ok(float) if float.is_infinite() => "-Infinity".to_owned(),
            Ok(float) => float_text(float),
            Err(_) => value.to_string(),
        },
    }
}

fn key_text(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::String => Ok(key.as_str().unwrap_or_default().to_owned()),
        ValueKind::None | ValueKind::Bool | ValueKind::Number => Ok(scalar(key)),
        _ => Err(fail(format!(
            "keys must be str, int, float, bool or None, not {}",
            type_name(key)
        ))),
    }
}

fn quote(text: &str, ascii: bool) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            c if c < ' ' || (ascii && !(' '..='~').contains(&c)) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
