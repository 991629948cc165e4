//! JSON Schema (draft 2020-12), the part that our schemas use.
//!
//! The crates that know all of the draft bring three dozen others with them, most for formats and
//! remote references that a flat record has no use for. A schema that uses a keyword from outside
//! the part is refused when it is read, so that nothing in it is silently not checked.

use std::collections::BTreeMap;

use regex_lite::Regex;
use serde_json::{Map, Value};

/// A schema, ready to check values.
#[derive(Debug)]
pub struct Schema {
    root: Value,
    patterns: BTreeMap<String, Regex>,
}

/// What is wrong at one place of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The place: `threads`, `warnings[0].kind`; empty for the value as a whole.
    pub key: String,
    /// What is wrong with it.
    pub message: String,
}

/// Why a schema cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// It is no JSON.
    #[error("the schema is not JSON: {0}")]
    Syntax(String),
    /// It uses what this checker does not know, or not in the form it knows.
    #[error("the schema's keyword `{0}` is not supported in this form")]
    Keyword(String),
    /// A pattern that is none.
    #[error("the schema's pattern `{0}` cannot be read")]
    Pattern(String),
}

/// Keywords that say nothing about a value.
const REMARKS: [&str; 5] = ["$schema", "$id", "$defs", "title", "description"];

impl Schema {
    /// Reads a schema.
    ///
    /// # Errors
    /// [`SchemaError`].
    pub fn parse(text: &str) -> Result<Schema, SchemaError> {
        let root: Value =
            serde_json::from_str(text).map_err(|error| SchemaError::Syntax(error.to_string()))?;
        let mut schema = Schema {
            patterns: BTreeMap::new(),
            root: Value::Null,
        };
        schema.prepare(&root, &root)?;
        for part in root
            .get("$defs")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            schema.prepare(part.1, &root)?;
        }
        schema.root = root;
        Ok(schema)
    }

    /// Refuses what [`Schema::check`] would not look at.
    fn prepare(&mut self, schema: &Value, root: &Value) -> Result<(), SchemaError> {
        if schema.is_boolean() {
            return Ok(());
        }
        let object = schema.as_object();
        let object = object.ok_or_else(|| SchemaError::Keyword(schema.to_string()))?;
        for (keyword, value) in object {
            let parts: Vec<&Value> = match keyword.as_str() {
                "properties" | "patternProperties" => {
                    if keyword == "patternProperties" {
                        value
                            .as_object()
                            .into_iter()
                            .flatten()
                            .try_for_each(|(pattern, _)| self.add_pattern(pattern))?;
                    }
                    value
                        .as_object()
                        .into_iter()
                        .flat_map(Map::values)
                        .collect()
                }
                "allOf" => value.as_array().into_iter().flatten().collect(),
                "items" | "additionalProperties" | "if" | "then" => vec![value],
                "pattern" => {
                    self.add_pattern(value.as_str().unwrap_or_default())?;
                    Vec::new()
                }
                "$ref" => {
                    let found = value.as_str().and_then(|name| resolve(root, name));
                    found.ok_or_else(|| SchemaError::Keyword(format!("$ref {value}")))?;
                    Vec::new()
                }
                "type" | "const" | "enum" | "required" | "minItems" | "uniqueItems" | "minimum"
                | "exclusiveMinimum" | "maximum" | "minLength" => Vec::new(),
                remark if REMARKS.contains(&remark) => Vec::new(),
                _ => return Err(SchemaError::Keyword(keyword.clone())),
            };
            for part in parts {
                self.prepare(part, root)?;
            }
        }
        Ok(())
    }

    fn add_pattern(&mut self, pattern: &str) -> Result<(), SchemaError> {
        let regex = Regex::new(pattern).map_err(|_| SchemaError::Pattern(pattern.to_owned()))?;
        self.patterns.insert(pattern.to_owned(), regex);
        Ok(())
    }

    /// The schema itself.
    #[must_use]
    pub fn value(&self) -> &Value {
        &self.root
    }

    /// Everything that is wrong with a value, in the schema's order.
    #[must_use]
    pub fn check(&self, value: &Value) -> Vec<Problem> {
        let mut problems = Vec::new();
        self.visit(&self.root, value, "", &mut problems);
        problems
    }

    fn visit(&self, schema: &Value, value: &Value, key: &str, problems: &mut Vec<Problem>) {
        let Some(schema) = schema.as_object() else {
            if schema == &Value::Bool(false) {
                problems.push(Problem::new(key, "is not allowed here"));
            }
            return;
        };
        if let Some(target) = schema.get("$ref").and_then(Value::as_str)
            && let Some(target) = resolve(&self.root, target)
        {
            self.visit(target, value, key, problems);
        }
        for part in schema
            .get("allOf")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            self.visit(part, value, key, problems);
        }
        if let (Some(condition), Some(then)) = (schema.get("if"), schema.get("then")) {
            let mut unmet = Vec::new();
            self.visit(condition, value, key, &mut unmet);
            if unmet.is_empty() {
                self.visit(then, value, key, problems);
            }
        }
        if let Some(wrong) = self.of_scalar(schema, value) {
            // The parts of a value of the wrong type are of no interest.
            problems.push(Problem::new(key, wrong));
            return;
        }
        match value {
            Value::Object(object) => self.visit_object(schema, object, key, problems),
            Value::Array(list) => self.visit_list(schema, list, key, problems),
            _ => {}
        }
    }

    /// What is wrong with the value itself, whatever its parts.
    fn of_scalar(&self, schema: &Map<String, Value>, value: &Value) -> Option<String> {
        let limit = |keyword: &str| schema.get(keyword).and_then(Value::as_f64);
        if let Some(types) = schema.get("type") {
            let names: Vec<&str> = match types {
                Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
                name => name.as_str().into_iter().collect(),
            };
            if !names.iter().any(|name| is_of_type(value, name)) {
                return Some(format!(
                    "must be {}, is {}",
                    names.join(" or "),
                    shown(value)
                ));
            }
        }
        if let Some(only) = schema.get("const")
            && only != value
        {
            return Some(format!("must be {only}, is {}", shown(value)));
        }
        if let Some(all) = schema.get("enum").and_then(Value::as_array)
            && !all.contains(value)
        {
            let all: Vec<String> = all.iter().map(Value::to_string).collect();
            return Some(format!(
                "must be one of {}, is {}",
                all.join(", "),
                shown(value)
            ));
        }
        if let Some(number) = value.as_f64() {
            if let Some(least) = limit("minimum").filter(|&least| number < least) {
                return Some(format!("must be at least {least}, is {number}"));
            }
            if let Some(bound) = limit("exclusiveMinimum").filter(|&bound| number <= bound) {
                return Some(format!("must be more than {bound}, is {number}"));
            }
            if let Some(most) = limit("maximum").filter(|&most| number > most) {
                return Some(format!("must be at most {most}, is {number}"));
            }
        }
        if let Some(text) = value.as_str() {
            let pattern = schema.get("pattern").and_then(Value::as_str);
            let regex = pattern.and_then(|pattern| self.patterns.get(pattern));
            if regex.is_some_and(|regex| !regex.is_match(text)) {
                let pattern = pattern.unwrap_or_default();
                return Some(format!("must match {pattern}, is {}", shown(value)));
            }
            if limit("minLength").is_some_and(|least| (text.chars().count() as f64) < least) {
                return Some("must not be empty".to_owned());
            }
        }
        None
    }

    fn visit_object(
        &self,
        schema: &Map<String, Value>,
        object: &Map<String, Value>,
        key: &str,
        problems: &mut Vec<Problem>,
    ) {
        let inner = |name: &str| match key {
            "" => name.to_owned(),
            key => format!("{key}.{name}"),
        };
        let required = schema.get("required").and_then(Value::as_array);
        for name in required.into_iter().flatten().filter_map(Value::as_str) {
            if !object.contains_key(name) {
                problems.push(Problem::new(&inner(name), "is missing"));
            }
        }
        let properties = schema.get("properties").and_then(Value::as_object);
        let by_pattern = schema.get("patternProperties").and_then(Value::as_object);
        for (name, value) in object {
            let mut is_known = false;
            if let Some(part) = properties.and_then(|properties| properties.get(name)) {
                is_known = true;
                self.visit(part, value, &inner(name), problems);
            }
            for (pattern, part) in by_pattern.into_iter().flatten() {
                if self
                    .patterns
                    .get(pattern)
                    .is_some_and(|regex| regex.is_match(name))
                {
                    is_known = true;
                    self.visit(part, value, &inner(name), problems);
                }
            }
            if let Some(others) = schema.get("additionalProperties")
                && !is_known
            {
                self.visit(others, value, &inner(name), problems);
            }
        }
    }

    fn visit_list(
        &self,
        schema: &Map<String, Value>,
        list: &[Value],
        key: &str,
        problems: &mut Vec<Problem>,
    ) {
        let least = schema.get("minItems").and_then(Value::as_u64).unwrap_or(0);
        if (list.len() as u64) < least {
            problems.push(Problem::new(
                key,
                format!("must have at least {least} items"),
            ));
        }
        let is_unique = schema.get("uniqueItems") == Some(&Value::Bool(true));
        let has_twice = || (1..list.len()).any(|at| list[..at].contains(&list[at]));
        if is_unique && has_twice() {
            problems.push(Problem::new(key, "has an item twice"));
        }
        if let Some(items) = schema.get("items") {
            for (at, item) in list.iter().enumerate() {
                self.visit(items, item, &format!("{key}[{at}]"), problems);
            }
        }
    }
}

impl Problem {
    fn new(key: &str, message: impl Into<String>) -> Problem {
        Problem {
            key: key.to_owned(),
            message: message.into(),
        }
    }
}

/// A definition within the same schema.
fn resolve<'a>(root: &'a Value, target: &str) -> Option<&'a Value> {
    root.get("$defs")?.get(target.strip_prefix("#/$defs/")?)
}

fn is_of_type(value: &Value, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "number" => value.is_number(),
        // 2.0 is an integer to JSON Schema.
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    }
}

/// A value for a message: a long one shortened.
fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn problems(schema: &Value, value: &Value) -> Vec<String> {
        let schema = Schema::parse(&schema.to_string()).unwrap();
        let problems = schema.check(value).into_iter();
        problems
            .map(|problem| format!("{}: {}", problem.key, problem.message))
            .collect()
    }

    #[test]
    fn keywords_mean_what_the_draft_says() {
        let cases = [
            (json!({"type": "integer"}), json!(2.0), json!(2.5)),
            (json!({"type": ["number", "null"]}), json!(null), json!("1")),
            (json!({"const": 1}), json!(1), json!(2)),
            (json!({"enum": ["a", "b"]}), json!("b"), json!("c")),
            (json!({"minimum": 1}), json!(1), json!(0)),
            (json!({"exclusiveMinimum": 0}), json!(0.1), json!(0)),
            (json!({"maximum": 1}), json!(1), json!(1.5)),
            // Of another type a bound says nothing.
            (json!({"minimum": 1}), json!("x"), json!(-1)),
            (json!({"minLength": 1}), json!("é"), json!("")),
            (
                json!({"pattern": "^[0-9a-f]{4}$"}),
                json!("00ff"),
                json!("00FF"),
            ),
            (json!({"required": ["a"]}), json!({"a": null}), json!({})),
            (
                json!({"properties": {"a": {"type": "null"}}}),
                json!({"b": 1}),
                json!({"a": 1}),
            ),
            (
                json!({"patternProperties": {"^x_": false}}),
                json!({"y": 1}),
                json!({"x_": 1}),
            ),
            (
                json!({"properties": {"a": true}, "additionalProperties": {"type": "string"}}),
                json!({"a": 1, "b": "x"}),
                json!({"a": 1, "b": 2}),
            ),
            (
                json!({"items": {"type": "string"}}),
                json!(["a"]),
                json!(["a", 1]),
            ),
            (json!({"minItems": 1}), json!([1]), json!([])),
            (
                json!({"uniqueItems": true}),
                json!([1, 2]),
                json!([1, 2, 1]),
            ),
            (
                json!({"allOf": [{"minimum": 1}, {"maximum": 3}]}),
                json!(2),
                json!(4),
            ),
            (
                json!({"if": {"required": ["a"]}, "then": {"required": ["b"]}}),
                json!({"c": 1}),
                json!({"a": 1}),
            ),
            (
                json!({"$ref": "#/$defs/id", "$defs": {"id": {"type": "string"}}}),
                json!("x"),
                json!(1),
            ),
        ];
        for (schema, right, wrong) in cases {
            assert_eq!(problems(&schema, &right), [""; 0], "{schema} {right}");
            assert_eq!(problems(&schema, &wrong).len(), 1, "{schema} {wrong}");
        }
    }

    #[test]
    fn problems_name_their_place() {
        let schema = json!({
            "required": ["id"],
            "properties": {"list": {"items": {"properties": {"n": {"type": "integer"}}}}}
        });
        assert_eq!(
            problems(&schema, &json!({"list": [{"n": 1}, {"n": "x"}]})),
            ["id: is missing", "list[1].n: must be integer, is \"x\""]
        );
    }

    #[test]
    fn what_would_not_be_checked_is_refused() {
        for schema in [
            json!({"format": "date"}),
            json!({"properties": {"a": {"oneOf": []}}}),
            json!({"$ref": "#/$defs/none"}),
            json!({"$ref": "elsewhere.json"}),
            json!({"items": [1]}),
            json!({"$defs": {"a": {"not": {}}}}),
        ] {
            let error = Schema::parse(&schema.to_string()).unwrap_err();
            assert!(
                matches!(error, SchemaError::Keyword(_)),
                "{schema}: {error}"
            );
        }
        let error = Schema::parse("{\"pattern\": \"[\"}").unwrap_err();
        assert_eq!(error, SchemaError::Pattern("[".to_owned()));
        assert!(matches!(Schema::parse("{"), Err(SchemaError::Syntax(_))));
    }
}
