//! Metadata overrides as text: `KEY=TYPE:VALUE`, llama.cpp's `--override-kv`.

use super::Value;

/// Why an override's text cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OverrideError {
    /// There is no `=`, no `:` after it, or the key is empty.
    #[error("override {text:?} is not KEY=TYPE:VALUE, such as general.name=str:test")]
    Form {
        /// The override.
        text: String,
    },
    /// The type is none of the four.
    #[error("override {text:?} has type {found:?}; the types are int, float, bool and str")]
    Type {
        /// The override.
        text: String,
        /// The type it names.
        found: String,
    },
    /// The value is not of the type.
    #[error("override {text:?} has value {found:?}, which is not {wanted}")]
    Value {
        /// The override.
        text: String,
        /// The value.
        found: String,
        /// What the type takes.
        wanted: &'static str,
    },
}

/// Parses one override. `int` gives an `i64`, `float` an `f64`, `bool` takes `true` and
/// `false`, and `str` takes the rest of the text as it is.
///
/// # Errors
/// When form, type or value is wrong; the error quotes the text.
pub fn parse_override(text: &str) -> Result<(String, Value), OverrideError> {
    let form = || OverrideError::Form {
        text: text.to_owned(),
    };
    let (key, typed) = text.split_once('=').ok_or_else(form)?;
    let (ty, value) = typed.split_once(':').ok_or_else(form)?;
    if key.is_empty() {
        return Err(form());
    }
    let wrong = |wanted| OverrideError::Value {
        text: text.to_owned(),
        found: value.to_owned(),
        wanted,
    };
    let value = match ty {
        "int" => value
            .parse()
            .map(Value::I64)
            .map_err(|_| wrong("a 64-bit integer"))?,
        "float" => match value.parse::<f64>() {
            Ok(number) if number.is_finite() => Value::F64(number),
            _ => return Err(wrong("a finite number")),
        },
        "bool" => value
            .parse()
            .map(Value::Bool)
            .map_err(|_| wrong("true or false"))?,
        "str" => Value::String(value.to_owned()),
        _ => {
            let (text, found) = (text.to_owned(), ty.to_owned());
            return Err(OverrideError::Type { text, found });
        }
    };
    Ok((key.to_owned(), value))
}

/// Parses overrides separated by commas, as one argument of `--override-kv` may hold several.
/// A part in double quotes may hold commas; a doubled quote in it stands for one.
///
/// # Errors
/// As [`parse_override`], for the first that is wrong.
pub fn parse_overrides(text: &str) -> Result<Vec<(String, Value)>, OverrideError> {
    let mut parts = vec![String::new()];
    let mut quoted = false;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let last = parts.len() - 1;
        match c {
            '"' if quoted && chars.next_if_eq(&'"').is_some() => parts[last].push('"'),
            '"' => quoted = !quoted,
            ',' if !quoted => parts.push(String::new()),
            _ => parts[last].push(c),
        }
    }
    parts.iter().map(|part| parse_override(part)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> (String, Value) {
        parse_override(text).unwrap()
    }

    #[test]
    fn the_four_types() {
        assert_eq!(one("a.b=int:-7"), ("a.b".into(), Value::I64(-7)));
        assert_eq!(one("a=float:1.5e3"), ("a".into(), Value::F64(1500.0)));
        assert_eq!(one("a=bool:true"), ("a".into(), Value::Bool(true)));
        assert_eq!(one("a=bool:false"), ("a".into(), Value::Bool(false)));
        assert_eq!(
            one("a=str:x=y:z"),
            ("a".into(), Value::String("x=y:z".into()))
        );
        assert_eq!(one("a=str:"), ("a".into(), Value::String(String::new())));
    }

    #[test]
    fn text_without_the_form_is_refused() {
        for text in ["", "a", "a=", "a=int", "=int:1", "a:int=1"] {
            let error = parse_override(text).unwrap_err();
            assert_eq!(error, OverrideError::Form { text: text.into() });
        }
    }

    #[test]
    fn unknown_types_are_refused() {
        let error = parse_override("a=u32:1").unwrap_err();
        assert_eq!(
            error,
            OverrideError::Type {
                text: "a=u32:1".into(),
                found: "u32".into()
            }
        );
    }

    #[test]
    fn values_of_another_type_are_refused() {
        for text in [
            "a=int:",
            "a=int:1.5",
            "a=int:9223372036854775808",
            "a=float:x",
            "a=float:nan",
            "a=float:1e999",
            "a=bool:1",
            "a=bool:True",
        ] {
            let error = parse_override(text).unwrap_err();
            assert!(
                matches!(error, OverrideError::Value { .. }),
                "{text}: {error}"
            );
            assert!(error.to_string().contains(text), "{error}");
        }
    }

    #[test]
    fn several_are_separated_by_commas_outside_quotes() {
        let all = parse_overrides("a=int:1,\"b=str:x,y \"\"z\"\"\",c=bool:true").unwrap();
        let wanted: Vec<(String, Value)> = vec![
            ("a".into(), Value::I64(1)),
            ("b".into(), Value::String("x,y \"z\"".into())),
            ("c".into(), Value::Bool(true)),
        ];
        assert_eq!(all, wanted);
        assert!(parse_overrides("a=int:1,").is_err());
    }
}
