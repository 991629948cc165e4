//! `emel-compare traces`: two finished traces, from any engine.

use std::path::{Path, PathBuf};

use super::error::CompareError;
use super::pair::{Named, compare};
use super::report::{Report, Subject};
use super::show::ShowArgs;
use super::text;
use super::vocabulary::{Vocabulary, VocabularyArgs, absent};
use crate::trace::Trace;

/// Two finished traces.
#[derive(Clone, Debug, clap::Args)]
pub struct TracesArgs {
    /// The first trace
    #[arg(value_name = "A")]
    pub a: PathBuf,
    /// The second
    #[arg(value_name = "B")]
    pub b: PathBuf,
    /// Whose tokens they are
    #[command(flatten)]
    pub vocabulary: VocabularyArgs,
    /// How the report is shown
    #[command(flatten)]
    pub show: ShowArgs,
}

/// Runs the command.
///
/// # Errors
/// [`CompareError::Trace`] of the first file that is no whole trace; [`CompareError::Model`] for a
/// model that was named and cannot be read.
pub fn run(args: &TracesArgs) -> Result<Report, CompareError> {
    args.show
        .refuse_plot("finished traces hold a few logits of each position")?;
    let (a, b) = (Trace::read(&args.a)?, Trace::read(&args.b)?);
    let [a_label, b_label] = labels([&args.a, &args.b], [&a, &b]);
    let (a, b) = (Named::new(a_label, a), Named::new(b_label, b));
    let [own, other] = [&a, &b].map(|one| one.contract.get("model_sha256"));
    // Of two models the vocabularies are two.
    let is_one_model = own.is_none() || other.is_none() || own == other;
    let digest = own.or(other);
    let vocabulary = match is_one_model {
        true => args.vocabulary.open(digest)?,
        false => None,
    };
    let mut notes = Vec::new();
    if is_one_model && vocabulary.is_none() {
        notes.push(absent(digest));
    }
    let tokenizer = vocabulary.as_ref().map(|vocabulary| &vocabulary.tokenizer);
    let pair = compare(&a, &b, tokenizer, args.show.context);
    let mut report = Report::new(vec![pair]);
    report.subject = vocabulary
        .as_ref()
        .map(|vocabulary| subject(vocabulary, &a, &b));
    report.notes = notes;
    Ok(report)
}

/// The engines' names where these tell the traces apart; else the files'; else the paths.
fn labels(paths: [&Path; 2], traces: [&Trace; 2]) -> [String; 2] {
    let engine = |trace: &Trace| trace.header.engine.clone();
    let file = |path: &Path| {
        let name = path.file_name().unwrap_or(path.as_os_str());
        name.to_string_lossy().into_owned()
    };
    let whole = |path: &Path| path.display().to_string();
    let tries = [traces.map(engine), paths.map(file), paths.map(whole)];
    let told = |[a, b]: &&[String; 2]| a != b && !a.is_empty() && !b.is_empty();
    let found = tries.iter().find(told).unwrap_or(&tries[2]);
    found.clone()
}

fn subject(vocabulary: &Vocabulary, a: &Named, b: &Named) -> Subject {
    let stated = |field: &str| a.contract.get(field).or(b.contract.get(field));
    let longer = a.trace.tokens.len().max(b.trace.tokens.len());
    let prompt = &a.trace.prompt;
    let text = text::shown(&vocabulary.tokenizer, prompt);
    Subject {
        model: vocabulary.path.display().to_string(),
        model_sha256: stated("model_sha256").unwrap_or_default().to_owned(),
        prompt_text: Some(Subject::beginning(&text)),
        prompt_tokens: prompt.len(),
        max_tokens: stated("max_tokens")
            .and_then(|most| most.parse().ok())
            .unwrap_or(longer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::TraceHeader;

    #[test]
    fn labels_tell_the_traces_apart() {
        let trace = |engine: &str| Trace {
            header: TraceHeader {
                engine: engine.to_owned(),
                ..TraceHeader::default()
            },
            prompt: Vec::new(),
            tokens: Vec::new(),
            stop: "eog".to_owned(),
        };
        let labels = |paths: [&str; 2], engines: [&str; 2]| {
            let traces = engines.map(trace);
            super::labels(paths.map(Path::new), [&traces[0], &traces[1]])
        };
        assert_eq!(
            labels(["a/x", "b/x"], ["emel", "llama.cpp"]),
            ["emel", "llama.cpp"]
        );
        assert_eq!(labels(["a/x", "b/y"], ["emel", "emel"]), ["x", "y"]);
        assert_eq!(labels(["a/x", "b/x"], ["emel", "emel"]), ["a/x", "b/x"]);
        assert_eq!(labels(["a/x", "b/y"], ["emel", ""]), ["x", "y"]);
        assert_eq!(labels(["a/x", "a/x"], ["emel", "emel"]), ["a/x", "a/x"]);
    }
}
