//! `emel-bench validate`: checks records, reports and manifests, anyone's, against the published
//! schemas in `benchdata/schema`, which are part of this program.

mod schema;

pub use schema::{Problem, Schema, SchemaError};

use crate::cli::message::tell;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::BenchError;
use super::records::Fault;
use super::records::read::{for_each_line, syntax};
use super::workload::Document;

/// What can be checked: a document's `schema`, and the JSON Schema it must satisfy.
pub const SCHEMAS: [(&str, &str); 7] = [
    (
        "emel-bench/v1",
        include_str!("../../../benchdata/schema/emel-bench-v1.schema.json"),
    ),
    (
        "emel-workload/v1",
        include_str!("../../../benchdata/schema/emel-workload-v1.schema.json"),
    ),
    (
        "emel-models/v1",
        include_str!("../../../benchdata/schema/emel-models-v1.schema.json"),
    ),
    (
        "emel-backend/v1",
        include_str!("../../../benchdata/schema/emel-backend-v1.schema.json"),
    ),
    (
        "emel-targets/v1",
        include_str!("../../../benchdata/schema/emel-targets-v1.schema.json"),
    ),
    (
        "emel-compare/v1",
        include_str!("../../../benchdata/schema/emel-compare-v1.schema.json"),
    ),
    (
        "emel-determinism/v1",
        include_str!("../../../benchdata/schema/emel-determinism-v1.schema.json"),
    ),
];

/// Checks files against the schema they name.
#[derive(Clone, Debug, clap::Args)]
pub struct ValidateArgs {
    /// Files of records or reports (JSONL), or of one manifest or report (*.json)
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Problems to show of each file
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub max_problems: usize,
}

/// What is wrong on one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineProblem {
    /// The line, from 1; 0 when a manifest as a whole is meant.
    pub line: usize,
    /// The place within it; empty for the line as a whole.
    pub key: String,
    /// What is wrong.
    pub message: String,
}

/// What was found in one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Records or documents that were checked.
    pub checked: usize,
    /// Those with a problem.
    pub bad: usize,
    /// All problems, by line.
    pub problems: Vec<LineProblem>,
}

/// Runs the command: problems to standard error, a line about each good file to standard output.
///
/// # Errors
/// [`BenchError::Invalid`] when there is a problem; [`BenchError::Records`] or
/// [`BenchError::Workload`] for a file that cannot be read.
pub fn run(args: &ValidateArgs) -> Result<(), BenchError> {
    let mut bad_files = Vec::new();
    for file in &args.files {
        let found = validate_file(file)?;
        let name = file.display();
        for problem in found.problems.iter().take(args.max_problems) {
            tell(&format!("{name}:{}", problem.text()));
        }
        let count = found.problems.len();
        if count > args.max_problems {
            let more = count - args.max_problems;
            tell(&format!(
                "{name}: and {more} more (--max-problems shows them)"
            ));
        }
        match count {
            0 => print_line(&format!("{name}: {} checked, all valid", found.checked))?,
            _ => bad_files.push(format!(
                "{name}: {count} problem(s) in {} of {}",
                found.bad, found.checked
            )),
        }
    }
    match bad_files.is_empty() {
        true => Ok(()),
        false => Err(BenchError::Invalid(bad_files.join("; "))),
    }
}

fn print_line(text: &str) -> Result<(), BenchError> {
    use std::io::Write;
    let written = writeln!(std::io::stdout().lock(), "{text}");
    match written {
        Err(error) if !crate::output::is_closed_pipe(&error) => Err(BenchError::Streams(error)),
        _ => Ok(()),
    }
}

impl LineProblem {
    fn text(&self) -> String {
        let line = match self.line {
            0 => String::new(),
            line => format!("{line}:"),
        };
        match self.key.as_str() {
            "" => format!("{line} {}", self.message),
            key => format!("{line} {key}: {}", self.message),
        }
    }
}

/// Checks one file: one document if its name ends in `.json`, else a document a line; lines that name
/// no schema are taken for records.
///
/// # Errors
/// As [`run`], for a file that cannot be read.
pub fn validate_file(path: &Path) -> Result<Findings, BenchError> {
    let mut found = Findings::default();
    if path
        .extension()
        .is_some_and(|extension| extension == "json")
    {
        let document = Document::read(path)?;
        found.add_text(0, document.text(), None)?;
        return Ok(found);
    }
    let records = Schema::parse(SCHEMAS[0].1)?;
    for_each_line(path, |line, text| {
        match text {
            Ok(text) => found.add_text(line, text, Some(&records))?,
            Err(fault) => found.add_fault(line, &fault),
        }
        Ok::<(), BenchError>(())
    })?;
    Ok(found)
}

impl Findings {
    /// Checks one document against the schema it names; where it names none that is known, against
    /// the one given.
    fn add_text(
        &mut self,
        line: usize,
        text: &str,
        schema: Option<&Schema>,
    ) -> Result<(), BenchError> {
        let value: Value = match serde_json::from_str(text) {
            Ok(value) => value,
            Err(error) if line == 0 => {
                self.add_fault(0, &Fault::Syntax(error.to_string()));
                return Ok(());
            }
            Err(error) => {
                self.add_fault(line, &Fault::Syntax(syntax(&error)));
                return Ok(());
            }
        };
        let name = value.get("schema").and_then(Value::as_str);
        let known = SCHEMAS.iter().find(|(known, _)| Some(*known) == name);
        let named;
        let schema = match (schema, known) {
            // Lines are records, unless they say that they are something else.
            (Some(schema), None) => schema,
            (Some(schema), Some((name, _))) if *name == SCHEMAS[0].0 => schema,
            (_, Some((_, text))) => {
                named = Schema::parse(text)?;
                &named
            }
            (None, None) => {
                let known: Vec<&str> = SCHEMAS.iter().map(|(known, _)| *known).collect();
                let message = format!("must be one of {}", known.join(", "));
                let key = "schema".to_owned();
                self.add(line, vec![Problem { key, message }]);
                return Ok(());
            }
        };
        self.add(line, schema.check(&value));
        Ok(())
    }

    fn add_fault(&mut self, line: usize, fault: &Fault) {
        self.add(
            line,
            vec![Problem {
                key: String::new(),
                message: fault.to_string(),
            }],
        );
    }

    fn add(&mut self, line: usize, problems: Vec<Problem>) {
        self.checked += 1;
        self.bad += usize::from(!problems.is_empty());
        self.problems
            .extend(problems.into_iter().map(|problem| LineProblem {
                line,
                key: problem.key,
                message: problem.message,
            }));
    }
}

#[cfg(test)]
mod tests;
