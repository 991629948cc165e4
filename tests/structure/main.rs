//! Reads the project's own sources and holds them to the rules of its state machines: choices
//! stand in transition tables, actions and their helpers compute, engine code names no model
//! family, and the diagrams in docs/machines.md are those of the tables.
//!
//! `EMEL_BLESS=1 cargo test --test structure` rewrites docs/machines.md.

mod rules;
mod table;

use std::fs;
use std::path::{Path, PathBuf};

/// Rust sources below `folder`, sorted.
fn sources(folder: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
            let path = entry.expect("a directory entry").path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn parsed(path: &Path) -> syn::File {
    let text = fs::read_to_string(path).expect("a readable source file");
    syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn name(path: &Path) -> String {
    path.strip_prefix(env!("CARGO_MANIFEST_DIR"))
        .unwrap_or(path)
        .display()
        .to_string()
}

#[test]
fn actions_and_their_helpers_choose_nothing() {
    let mut findings = Vec::new();
    for path in sources("src/engine") {
        findings.extend(rules::choices(&parsed(&path)).into_iter().map(|f| {
            format!(
                "{}:{}: `{}` in `{}`",
                name(&path),
                f.line,
                f.what,
                f.function
            )
        }));
    }
    assert!(
        findings.is_empty(),
        "move these choices into guarded rows of a table:\n{}",
        findings.join("\n")
    );
}

#[test]
fn the_choice_rule_sees_choices() {
    let planted = syn::parse_file(
        "impl XStateMachineContext for C {
             fn wide(&self) -> Result<bool, ()> { Ok(if self.a { true } else { false }) }
             fn run(&mut self) -> Result<(), ()> { if self.fast { self.a() } Ok(()) }
             fn walk(&mut self) -> Result<(), ()> { match self.kind { _ => Ok(()) } }
         }
         fn helper(x: usize) { let _ = (x > 3).then(|| 1); }",
    )
    .expect("a parsable sample");
    let found: Vec<String> = rules::choices(&planted)
        .into_iter()
        .map(|f| f.function)
        .collect();
    assert_eq!(found, ["run", "walk", "helper"]);
}

#[test]
fn engine_code_names_no_model_family() {
    let families = [
        "llama", "qwen", "gemma", "smollm", "mistral", "phi", "deepseek", "falcon",
    ];
    let mut findings = Vec::new();
    for path in sources("src/engine") {
        for word in rules::words(&parsed(&path)) {
            let lower = word.text.to_lowercase();
            if families.iter().any(|family| lower.contains(family)) {
                findings.push(format!("{}:{}: {}", name(&path), word.line, word.text));
            }
        }
    }
    assert!(
        findings.is_empty(),
        "engine code names a model family:\n{}",
        findings.join("\n")
    );
}

#[test]
fn the_processor_is_asked_in_two_places() {
    let mut askers = Vec::new();
    for folder in ["src", "kernels/src"] {
        for path in sources(folder) {
            let text = fs::read_to_string(&path).expect("a readable source file");
            if text.contains("is_x86_feature_detected") || text.contains("__cpuid") {
                askers.push(name(&path));
            }
        }
    }
    assert_eq!(
        askers,
        ["kernels/src/amx.rs", "kernels/src/level.rs"],
        "only the level module, and the proof of AMX, may probe the processor"
    );
}

#[test]
fn every_state_answers_unexpected_events() {
    for table in table::all(&sources("src")) {
        for state in table.states() {
            assert!(
                table
                    .rows
                    .iter()
                    .any(|row| row.source == state && row.trigger.contains("unexpected_event")),
                "{}: state '{state}' of {} has no row for unexpected events",
                table.file,
                table.name,
            );
        }
    }
}

#[test]
fn every_machine_of_the_engine_can_be_timed() {
    let tables = table::all(&sources("src/engine"));
    let mut written: Vec<_> = tables.iter().map(|table| table.name.as_str()).collect();
    let mut timed = emel::engine::NullMachine::ALL.map(|machine| machine.name());
    written.sort_unstable();
    timed.sort_unstable();
    assert_eq!(
        written, timed,
        "every table of src/engine, and nothing else, stands in src/engine/dispatch.rs"
    );
}

#[test]
fn tables_stay_small() {
    for table in table::all(&sources("src")) {
        let rows = table
            .rows
            .iter()
            .filter(|r| !r.trigger.contains("unexpected_event"))
            .count();
        assert!(
            rows <= 40,
            "{} has {rows} rows: split it into smaller tables",
            table.name
        );
    }
}

#[test]
fn diagrams_are_those_of_the_tables() {
    let tables = table::all(&sources("src"));
    assert!(
        tables.len() >= 5,
        "the machines of the design: found only {}",
        tables.len()
    );
    let fresh = table::page(&tables);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/machines.md");
    if std::env::var_os("EMEL_BLESS").is_some() {
        fs::write(&path, &fresh).expect("docs/machines.md can be written");
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == fresh,
        "docs/machines.md is stale: run EMEL_BLESS=1 cargo test --test structure"
    );
}
