//! Filters and tests that differ from the engine's own: jinja2's behaviour, message for message
//! where it matters.

use minijinja::value::{Kwargs, Rest, Value, ValueOrKwargs};
use minijinja::{Environment, Error, State, filters};

use super::casing;
use super::methods;
use super::value::{Generator, to_text};

/// Registers them.
pub(super) fn register(env: &mut Environment<'_>) {
    env.add_filter("tojson", super::json::tojson);
    env.add_filter("string", |state: &State, v: &Value| -> Result<Value, Error> {
        if v.as_str().is_some() { Ok(v.clone()) } else { to_text(state, v).map(Value::from) }
    });
    env.add_filter("join", join);
    env.add_filter("trim", |state: &State, v: &Value, chars: Option<&str>| {
        to_text(state, v).map(|text| methods::strip(&text, chars, true, true).to_owned())
    });
    env.add_filter("upper", |state: &State, v: &Value| to_text(state, v).map(|t| t.to_uppercase()));
    env.add_filter("lower", |state: &State, v: &Value| to_text(state, v).map(|t| t.to_lowercase()));
    env.add_filter("capitalize", |state: &State, v: &Value| {
        to_text(state, v).map(|t| casing::capitalize(&t))
    });
    env.add_filter("title", |state: &State, v: &Value| to_text(state, v).map(|t| title(&t)));
    env.add_filter("map", |state: &mut State, v: Value, args: Rest<ValueOrKwargs>| {
        Generator::from_value(filters::map(state, v, args)?.into())
    });
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
        None => named.get::<Option<Value>>("d")?.map_or(Ok(String::new()), |d| to_text(state, &d))?,
    };
    let attribute = named.get::<Option<Value>>("attribute")?;
    named.assert_all_used()?;
    match attribute {
        None => methods::join_text(state, value, &separator),
        Some(attribute) => {
            let items = state.apply_filter(
                "map",
                &[value.clone(), Kwargs::from_iter([("attribute", attribute)]).into()],
            )?;
            methods::join_text(state, &items, &separator)
        }
    }
}
