//! One item a flag: its names, where it stands in the help, what it says about itself and what
//! it does to the [`RunConfig`]. The parser, the help page and the tests all come from the list
//! in [`all`], so a flag cannot exist in one and not in another.

use super::config::RunConfig;
use super::value::Text;
use super::{flags_engine, flags_refused, flags_sampling, flags_text};

/// A chapter of the help page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chapter {
    Model,
    Engine,
    Prompt,
    Chat,
    Sampling,
    Display,
    Tokenize,
}

impl Chapter {
    pub fn title(self) -> &'static str {
        match self {
            Chapter::Model => "Model",
            Chapter::Engine => "Engine",
            Chapter::Prompt => "Prompt and length",
            Chapter::Chat => "Chat",
            Chapter::Sampling => "Sampling",
            Chapter::Display => "Display and records",
            Chapter::Tokenize => "Tokens only",
        }
    }
}

/// What a flag does. An error text is shown after the flag's name.
pub(super) enum Act {
    /// Takes a value (its name in the help comes first).
    Value(
        &'static str,
        fn(&mut RunConfig, &Text<'_>) -> Result<(), String>,
    ),
    /// Takes none.
    Set(fn(&mut RunConfig)),
    /// Takes none and has an opposite with its own names.
    Toggle {
        /// The opposite's long name.
        off: &'static str,
        /// The opposite's single-dash names.
        off_dash: &'static [&'static str],
        /// Applies one or the other.
        set: fn(&mut RunConfig, bool),
    },
    /// One of llama.cpp's that emel-run does not have: refused, with the reason.
    Refused {
        /// Whether it takes a value there.
        value: bool,
        /// Why, and what to do instead.
        why: &'static str,
    },
}

/// A flag.
pub(super) struct Flag {
    /// Long name, without dashes.
    pub long: &'static str,
    /// Further long names.
    pub also: &'static [&'static str],
    /// Single-dash names, without the dash; llama.cpp has them with several letters.
    pub dash: &'static [&'static str],
    /// Environment variables, the strongest first. The command line is stronger than all.
    pub env: &'static [&'static str],
    /// Chapter of the help page.
    pub chapter: Chapter,
    /// One line.
    pub help: &'static str,
    /// What `--help` adds to it; may be empty.
    pub more: &'static str,
    /// Effect.
    pub act: Act,
}

impl Flag {
    /// Whether the flag takes a value.
    pub fn takes_value(&self) -> bool {
        matches!(self.act, Act::Value(..) | Act::Refused { value: true, .. })
    }

    /// Whether `name` (as typed, dashes included) is this flag; `Some(false)` is its opposite.
    pub fn matches(&self, name: &str) -> Option<bool> {
        let (long, dash) = match name.strip_prefix("--") {
            Some(long) => (Some(long), None),
            None => (None, name.strip_prefix('-')),
        };
        if let Some(long) = long {
            if self.long == long || self.also.contains(&long) {
                return Some(true);
            }
            if let Act::Toggle { off, .. } = self.act {
                return (off == long).then_some(false);
            }
        }
        if let Some(dash) = dash {
            if self.dash.contains(&dash) {
                return Some(true);
            }
            if let Act::Toggle { off_dash, .. } = self.act {
                return off_dash.contains(&dash).then_some(false);
            }
        }
        None
    }

    /// The names as the user knows them, for messages: `-n, --n-predict`.
    pub fn names(&self) -> String {
        let mut names: Vec<String> = self.dash.iter().map(|d| format!("-{d}")).collect();
        names.push(format!("--{}", self.long));
        names.join(", ")
    }
}

/// Every flag, in the order of the help page.
pub(super) fn all() -> impl Iterator<Item = &'static Flag> {
    [
        flags_engine::FLAGS,
        flags_text::FLAGS,
        flags_sampling::FLAGS,
        flags_refused::FLAGS,
    ]
    .into_iter()
    .flatten()
}
