//! The command line of `emel-run`: llama.cpp's flags with their short forms and defaults, and
//! a few of ours. [`parse`] turns arguments and environment into a [`RunConfig`] and does
//! nothing else: no file is opened, no machine looked at.
//!
//! Three steps: [`argv`] rewrites each argument as `--long` or `--long=value`, because
//! llama.cpp has single-dash names of several letters, which clap does not; clap checks them,
//! suggests corrections and writes the help; then each flag's own item changes the
//! configuration, in the order of the command line, so that of contradicting flags the last
//! counts.

mod argv;
mod config;
mod flag;
mod flags_engine;
mod flags_refused;
mod flags_sampling;
mod flags_text;
mod value;

#[cfg(test)]
mod tests;

use std::ffi::OsString;

use clap::{Arg, ArgAction, ArgMatches, Command};
use thiserror::Error;

pub use config::{Predict, RunConfig, Source, Switch, TemplateSource};
use flag::{Act, Flag};
use value::Text;

use super::escape::process_escapes;
use crate::engine::SpeculationPolicy;

/// What a command line comes to.
#[derive(Debug)]
pub enum Parsed {
    /// A run.
    Run(Box<RunConfig>),
    /// The help page or the version, for standard output.
    Print(String),
}

/// A command line that cannot be followed; the program prints it and exits with code 2.
#[derive(Debug, Error)]
pub enum UsageError {
    /// A flag that does not exist.
    #[error("there is no flag {0} (emel-run --help lists all)")]
    Unknown(String),
    /// A model file without `-m`.
    #[error("{0} stands alone; name the model with -m {0}")]
    BareModel(String),
    /// A flag of llama.cpp that emel-run does not have.
    #[error("emel-run does not have {flag}: {why}")]
    Refused {
        /// Its names.
        flag: String,
        /// The reason and what to do.
        why: &'static str,
    },
    /// A value that a flag cannot take.
    #[error("{flag}: {problem}")]
    Value {
        /// The flag's names, or the environment variable.
        flag: String,
        /// What is wrong.
        problem: String,
    },
    /// Flags that do not fit together.
    #[error("{0}")]
    Conflict(String),
    /// What clap found: a missing value, a stray argument, a misspelt name.
    #[error("{0}")]
    Syntax(String),
}

/// Parses `args` (without the program's name) and the environment seen through `env`.
///
/// # Errors
/// [`UsageError`], whose text is ready to be shown.
pub fn parse(
    args: impl IntoIterator<Item = OsString>,
    env: impl Fn(&str) -> Option<OsString>,
) -> Result<Parsed, UsageError> {
    let canonical = argv::canonical(args)?;
    let matches = match command().try_get_matches_from(canonical) {
        Ok(matches) => matches,
        Err(error) if !error.use_stderr() => return Ok(Parsed::Print(error.to_string())),
        Err(error) => return Err(UsageError::Syntax(plain(&error.to_string()))),
    };
    let mut config = RunConfig::default();
    apply_environment(&mut config, env)?;
    apply_matches(&mut config, &matches)?;
    finish(&mut config)?;
    Ok(Parsed::Run(Box::new(config)))
}

/// clap starts its messages with `error: `, as the program does with all of them.
fn plain(message: &str) -> String {
    message
        .strip_prefix("error: ")
        .unwrap_or(message)
        .trim_end()
        .to_owned()
}

fn command() -> Command {
    let mut command = Command::new("emel-run")
        .about("Runs a GGUF language model on the CPU and streams its text")
        .version(env!("CARGO_PKG_VERSION"))
        .no_binary_name(true)
        .args_override_self(true)
        .after_help(
            "The text alone goes to standard output; everything else to standard error.\n\
             Exit codes: 0 done, 1 the run failed, 2 usage, 130 interrupted twice.",
        );
    for flag in flag::all() {
        command = command.arg(clap_arg(flag));
        if let Act::Toggle { off, .. } = flag.act {
            let off = Arg::new(off).long(off).action(ArgAction::Count).hide(true);
            command = command.arg(off);
        }
    }
    command
}

fn clap_arg(flag: &'static Flag) -> Arg {
    let mut arg = Arg::new(flag.long)
        .long(flag.long)
        .visible_aliases(flag.also.iter().copied());
    arg = arg.help_heading(flag.chapter.title());
    let mut notes = Vec::new();
    for dash in flag.dash {
        let mut letters = dash.chars();
        match (letters.next(), letters.next()) {
            (Some(letter), None) => arg = arg.short(letter),
            _ => notes.push(format!("also -{dash}")),
        }
    }
    if let Act::Toggle { off, off_dash, .. } = flag.act {
        notes.push(format!("off: --{off}"));
        notes.extend(off_dash.iter().map(|dash| format!("off: -{dash}")));
    }
    notes.extend(flag.env.iter().map(|name| format!("env {name}")));
    let notes = if notes.is_empty() {
        String::new()
    } else {
        format!(" ({})", notes.join("; "))
    };
    arg = arg.help(format!("{}{notes}", flag.help));
    if !flag.more.is_empty() {
        arg = arg.long_help(format!("{}{notes}\n{}", flag.help, flag.more));
    }
    if flag.takes_value() {
        arg = arg
            .action(ArgAction::Append)
            .value_parser(clap::value_parser!(OsString));
    } else {
        arg = arg.action(ArgAction::Count);
    }
    match flag.act {
        Act::Value(name, _) => arg.value_name(name),
        Act::Refused { .. } => arg.hide(true),
        _ => arg,
    }
}

fn apply_environment(
    config: &mut RunConfig,
    env: impl Fn(&str) -> Option<OsString>,
) -> Result<(), UsageError> {
    for flag in flag::all() {
        let given = flag.env.iter().find_map(|name| Some((*name, env(name)?)));
        let Some((name, value)) = given.filter(|(_, value)| !value.is_empty()) else {
            continue;
        };
        apply(config, flag, true, Some(&value)).map_err(|error| match error {
            UsageError::Value { problem, .. } => UsageError::Value {
                flag: format!("environment variable {name}"),
                problem,
            },
            other => other,
        })?;
    }
    Ok(())
}

fn apply_matches(config: &mut RunConfig, matches: &ArgMatches) -> Result<(), UsageError> {
    let mut given: Vec<(usize, &Flag, bool, Option<&OsString>)> = Vec::new();
    for flag in flag::all() {
        let mut ids = vec![(flag.long, true)];
        if let Act::Toggle { off, .. } = flag.act {
            ids.push((off, false));
        }
        for (id, on) in ids {
            let Some(places) = matches.indices_of(id) else {
                continue;
            };
            if flag.takes_value() {
                let values = matches.get_many::<OsString>(id).into_iter().flatten();
                given.extend(
                    places
                        .zip(values)
                        .map(|(at, value)| (at, flag, on, Some(value))),
                );
            } else if matches.get_count(id) > 0 {
                given.extend(places.map(|at| (at, flag, on, None)));
            }
        }
    }
    given.sort_by_key(|&(at, ..)| at);
    for (_, flag, on, value) in given {
        apply(config, flag, on, value)?;
    }
    Ok(())
}

fn apply(
    config: &mut RunConfig,
    flag: &Flag,
    on: bool,
    value: Option<&OsString>,
) -> Result<(), UsageError> {
    match (&flag.act, value) {
        (Act::Value(_, set), Some(value)) => {
            set(config, &Text(value)).map_err(|problem| UsageError::Value {
                flag: flag.names(),
                problem,
            })
        }
        (Act::Set(set), _) => {
            set(config);
            Ok(())
        }
        (Act::Toggle { set, .. }, _) => {
            set(config, on);
            Ok(())
        }
        (Act::Refused { why, .. }, _) => Err(UsageError::Refused {
            flag: flag.names(),
            why,
        }),
        (Act::Value(..), None) => Err(UsageError::Value {
            flag: flag.names(),
            problem: "wants a value".to_owned(),
        }),
    }
}

/// What depends on several flags together.
fn finish(config: &mut RunConfig) -> Result<(), UsageError> {
    if config.n_ubatch == 0 || config.n_ubatch > config.n_batch {
        config.n_ubatch = config.n_batch;
    }
    let drafts = SpeculationPolicy::default();
    let least = config.draft_min.unwrap_or(drafts.draft_min as u32);
    let most = config.draft_max.unwrap_or(drafts.draft_max as u32);
    if config.draft_min.is_some() && least > most {
        return Err(UsageError::Conflict(format!(
            "--draft-min {least} is more than --draft-max {most}"
        )));
    }
    if !config.speculate && (config.draft_max.is_some() || config.draft_min.is_some()) {
        let note = "--draft-max and --draft-min have no effect without --spec-type ngram-simple";
        config.notes.push(note.to_owned());
    }
    if config.escape {
        if let Some(Source::Text(text)) = &mut config.prompt {
            escape_in_place("-p, --prompt", text)?;
        }
        for text in &mut config.stop {
            escape_in_place("-r, --reverse-prompt", text)?;
        }
        for text in &mut config.sampling.dry_sequence_breakers {
            escape_in_place("--dry-sequence-breaker", text)?;
        }
    }
    config.stop.retain(|text| !text.is_empty());
    if config.top_logprobs > 0 && config.trace.is_none() {
        return Err(conflict(
            "--top-logprobs needs --trace FILE, where its numbers go",
        ));
    }
    if config.tokenize && config.prompt.is_none() {
        return Err(conflict(
            "--tokenize needs a text: -p TEXT, -f FILE, or -f - for stdin",
        ));
    }
    if config.no_bos && !config.tokenize {
        return Err(conflict("--no-bos works with --tokenize only"));
    }
    if config.no_parse_special && !config.tokenize {
        return Err(conflict("--no-parse-special works with --tokenize only"));
    }
    Ok(())
}

fn conflict(message: &str) -> UsageError {
    UsageError::Conflict(message.to_owned())
}

fn escape_in_place(flag: &str, text: &mut String) -> Result<(), UsageError> {
    *text = process_escapes(text).map_err(|at| UsageError::Value {
        flag: flag.to_owned(),
        problem: format!(
            "the \\x bytes are not UTF-8 from byte {at} on (use --no-escape to keep backslashes)"
        ),
    })?;
    Ok(())
}
