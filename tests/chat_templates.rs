//! Every chat template of llama.cpp's collection renders as Python's jinja2 renders it.
//!
//! The expected texts are in benchdata/golden/templates (scripts/record_templates.py says how
//! they are made); the templates are read from EMEL_MODELS_DIR/templates.

use std::path::{Path, PathBuf};

use emel::chat::{AbsentTools, ChatError, ChatTemplate, CivilTime, RenderOptions, SystemRole};
use serde_json::Value as Json;

fn models() -> PathBuf {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("models");
    std::env::var_os("EMEL_MODELS_DIR").map_or(default, PathBuf::from)
}

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benchdata/golden/templates")
}

fn json(path: &Path) -> Json {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The recorded templates: name, recording, source.
fn recordings() -> Vec<(String, Json, String)> {
    let mut names: Vec<String> = std::fs::read_dir(golden())
        .expect("benchdata/golden/templates")
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter_map(|name| name.strip_suffix(".json").map(str::to_owned))
        .filter(|name| !["builtin", "conversations", "dialect"].contains(&name.as_str()))
        .collect();
    names.sort();
    assert!(names.len() >= 70, "only {} recordings", names.len());
    names
        .into_iter()
        .map(|name| {
            let path = models().join("templates").join(format!("{name}.jinja"));
            let source = std::fs::read_to_string(&path)
                .unwrap_or_else(|_| panic!("{}: run scripts/fetch_models.sh", path.display()));
            let recording = json(&golden().join(format!("{name}.json")));
            (name, recording, source)
        })
        .collect()
}

/// The pinned time of the recordings, `2026-07-04T09:05:03`.
fn time(text: &str) -> CivilTime {
    let numbers: Vec<u32> = text
        .split(['-', 'T', ':'])
        .map(|n| n.parse().expect("time"))
        .collect();
    let [year, month, day, hour, minute, second] = numbers[..] else {
        panic!("time {text}")
    };
    CivilTime::new(year as i32, month, day, hour, minute, second).expect("time")
}

#[test]
fn every_template_renders_as_in_python() {
    let inputs = json(&golden().join("conversations.json"));
    let text = |value: &Json| value.as_str().expect("a string").to_owned();
    let (bos, eos) = (
        text(&inputs["tokens"]["bos_token"]),
        text(&inputs["tokens"]["eos_token"]),
    );
    let now = time(&text(&inputs["now"]));
    let mut wrong = Vec::new();
    let mut count = [0; 3];
    for (name, recording, source) in recordings() {
        let template = ChatTemplate::new(&source);
        let cases = recording["cases"].as_object().expect("cases");
        let before = wrong.len();
        for (case, outcome) in cases {
            let expected = &recording["outcomes"][outcome.as_u64().expect("a number") as usize];
            let parts: Vec<&str> = case.split('/').collect();
            let [conversation, prompt, thinking] = parts[..] else {
                panic!("case {case}")
            };
            let conversation = &inputs["conversations"][conversation];
            let undefined = conversation["undefined"].is_array();
            let options = RenderOptions {
                add_generation_prompt: prompt == "prompt",
                bos_token: &bos,
                eos_token: &eos,
                enable_thinking: (thinking != "absent").then_some(thinking == "true"),
                kwargs: conversation["kwargs"]
                    .as_object()
                    .cloned()
                    .unwrap_or_default(),
                now: Some(now),
                system: SystemRole::AsIs,
                tools: if undefined {
                    AbsentTools::Undefined
                } else {
                    AbsentTools::None
                },
            };
            let got = match &template {
                Ok(template) => template.render_json(&conversation["messages"], options),
                Err(error) => Err(error.clone()),
            };
            let (fine, kind) = match (&got, expected["text"].as_str(), expected["raise"].as_str()) {
                (Ok(text), Some(want), _) => (text == want, 0),
                (Err(ChatError::Raised { message, line }), _, Some(want)) => (
                    message == want && *line >= 1 && *line <= source.lines().count(),
                    1,
                ),
                // Python stopped for another reason: so must we, and say where
                (Err(ChatError::Failed { line, .. }), None, None) => (*line >= 1, 2),
                _ => (false, 0),
            };
            count[kind] += usize::from(fine);
            if !fine && wrong.len() < before + 3 {
                wrong.push(format!("{name} {case}\n  want {expected}\n  got  {got:?}"));
            }
        }
    }
    eprintln!(
        "{} texts, {} exceptions, {} failures as in Python",
        count[0], count[1], count[2]
    );
    assert!(
        wrong.is_empty(),
        "{} cases differ:\n{}",
        wrong.len(),
        wrong.join("\n\n")
    );
    assert!(
        count[0] > 6000 && count[1] > 150,
        "too few cases: {count:?}"
    );
}

#[test]
fn every_template_survives_a_chat_with_default_options() {
    let inputs = json(&golden().join("conversations.json"));
    for (name, _, source) in recordings() {
        let template = ChatTemplate::new(&source).unwrap_or_else(|e| panic!("{name}: {e}"));
        let conversation = &inputs["conversations"]["system_user_assistant_user"];
        let mut options = RenderOptions {
            add_generation_prompt: true,
            ..Default::default()
        };
        // this one has no text without them
        if source.contains("functions") && source.contains("datetime") {
            options.kwargs.insert("functions".into(), "none".into());
            options.kwargs.insert("datetime".into(), "today".into());
        }
        let text = template
            .render_json(&conversation["messages"], &options)
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        for message in conversation["messages"].as_array().expect("messages") {
            let words = message["content"].as_str().expect("a text");
            assert!(text.contains(words), "{name} lost {words:?}: {text}");
        }
    }
}
