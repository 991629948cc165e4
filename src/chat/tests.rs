//! The language against Python's jinja2, and the limits.

use serde_json::Value as Json;

use super::{AbsentTools, ChatError, ChatTemplate, CivilTime, Limits, Message, RenderOptions, SystemRole};

fn golden(name: &str) -> Json {
    let path = format!("{}/benchdata/golden/templates/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn pinned<'a>() -> RenderOptions<'a> {
    RenderOptions {
        now: CivilTime::new(2026, 7, 4, 9, 5, 3),
        system: SystemRole::AsIs,
        tools: AbsentTools::Undefined,
        ..Default::default()
    }
}

fn render(source: &str) -> Result<String, ChatError> {
    ChatTemplate::new(source)?.render(&[], pinned())
}

#[test]
fn every_snippet_renders_as_in_python() {
    let golden = golden("dialect.json");
    let variables = golden["variables"].as_object().expect("variables");
    let mut wrong = Vec::new();
    for snippet in golden["snippets"].as_array().expect("snippets") {
        let source = snippet["source"].as_str().expect("source");
        let options = RenderOptions { kwargs: variables.clone(), ..pinned() };
        let got = ChatTemplate::new(source).and_then(|t| t.render(&[], options));
        let fine = match (&got, snippet["text"].as_str(), snippet["raise"].as_str()) {
            (Ok(text), Some(expected), _) => text == expected,
            (Err(ChatError::Raised { message, .. }), _, Some(expected)) => message == expected,
            (Err(ChatError::Syntax { .. } | ChatError::Failed { .. }), None, None) => true,
            _ => false,
        };
        if !fine {
            let want = serde_json::json!({
                "text": snippet["text"], "raise": snippet["raise"], "error": snippet["error"]
            });
            wrong.push(format!("{source}\n  want {want}\n  got  {got:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} snippets differ:\n{}", wrong.len(), wrong.join("\n\n"));
}
