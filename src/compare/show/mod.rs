//! Reports, printed: a screen of text, Markdown or JSON, and a plot in a file.
//!
//! What a report says is put into words once, as a [`page`], from which text and Markdown are made.

mod markdown;
mod matrix;
pub(super) mod number;
mod page;
mod pairs;
mod plot;
mod replay;
mod svg;
mod tensors;
mod text;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use serde::Serialize;

use super::determinism::Matrix;
use super::error::CompareError;
use super::report::Report;
use crate::cli::exit::Exit;
use crate::output::{AtomicFile, is_closed_pipe};
use page::Page;

/// How a report is shown; to be flattened into a command's arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct ShowArgs {
    /// Print the report as one JSON object on one line (the same as --format json)
    #[arg(long, conflicts_with = "format")]
    pub json: bool,
    /// How the report is written
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Tokens of text shown on each side of a split
    #[arg(long, value_name = "K", default_value_t = CONTEXT)]
    pub context: usize,
    /// Draw the replay's differences by position into this file, as SVG
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// End with 0 when every divergence is of this kind
    #[arg(long, value_enum, value_name = "CAUSE")]
    pub allow: Vec<Allowed>,
}

/// Tokens shown on each side of a split when nobody says how many.
const CONTEXT: usize = 12;

/// How a report is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For a terminal.
    #[default]
    Text,
    /// Markdown.
    Md,
    /// One JSON object on one line.
    Json,
}

/// A kind of divergence that does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Allowed {
    /// The gap is smaller than the reference's own spread there.
    NearTie,
}

/// How something is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShowOptions {
    /// The form.
    pub format: Format,
    /// Whether the text has colours.
    pub colour: bool,
}

impl ShowArgs {
    /// The form asked for; with colours when standard output is a terminal that wants them.
    #[must_use]
    pub fn options(&self) -> ShowOptions {
        let variable = |name| std::env::var_os(name).unwrap_or_default();
        let wants = variable("NO_COLOR").is_empty() && variable("TERM") != "dumb";
        ShowOptions {
            format: if self.json { Format::Json } else { self.format },
            colour: wants && std::io::stdout().is_terminal(),
        }
    }

    /// Refuses `--plot` before any work, for commands that compare no logits.
    ///
    /// # Errors
    /// [`CompareError::NothingToPlot`] with the reason.
    pub fn refuse_plot(&self, why: &'static str) -> Result<(), CompareError> {
        match self.plot {
            Some(_) => Err(CompareError::NothingToPlot(why)),
            None => Ok(()),
        }
    }

    /// Begins the plot's file: that it cannot be written is said before the work, not after it.
    ///
    /// # Errors
    /// [`CompareError::Output`].
    pub fn begin_plot(&self) -> Result<Option<AtomicFile>, CompareError> {
        Ok(self.plot.as_deref().map(AtomicFile::create).transpose()?)
    }

    /// Prints the report, draws it into the file that [`ShowArgs::begin_plot`] has begun, and tells
    /// how the program ends.
    ///
    /// # Errors
    /// [`CompareError::Streams`], [`CompareError::Output`], [`CompareError::NothingToPlot`].
    pub fn finish(&self, report: &Report, plot: Option<AtomicFile>) -> Result<Exit, CompareError> {
        print(report, &self.options())?;
        if let Some(mut file) = plot {
            let none = CompareError::NothingToPlot("no stream was replayed");
            let picture = svg::draw(report).ok_or(none)?;
            file.write(picture.as_bytes())?;
            file.commit()?;
        }
        Ok(report.exit(self.allow.contains(&Allowed::NearTie)))
    }

    /// Prints the matrix of a determinism run, and tells how the program ends.
    ///
    /// # Errors
    /// [`CompareError::Streams`].
    pub fn finish_matrix(&self, matrix: &Matrix) -> Result<Exit, CompareError> {
        print_matrix(matrix, &self.options())?;
        Ok(matrix.exit())
    }
}

/// Prints a report to standard output. A reader that went away is no failure.
///
/// # Errors
/// [`CompareError::Streams`].
pub fn print(report: &Report, options: &ShowOptions) -> Result<(), CompareError> {
    put(&render(report, options))
}

/// Prints the matrix of a determinism run.
///
/// # Errors
/// [`CompareError::Streams`].
pub fn print_matrix(matrix: &Matrix, options: &ShowOptions) -> Result<(), CompareError> {
    put(&form(matrix, || matrix::page(matrix), options))
}

/// A report as it is printed, with a newline at its end.
#[must_use]
pub fn render(report: &Report, options: &ShowOptions) -> String {
    form(report, || page_of(report), options)
}

fn form(value: &impl Serialize, page: impl FnOnce() -> Page, options: &ShowOptions) -> String {
    match options.format {
        Format::Text => text::render(&page(), options.colour),
        Format::Md => markdown::render(&page()),
        // Structs of scalars, lists and structs have no way to fail.
        Format::Json => serde_json::to_string(value).unwrap_or_default() + "\n",
    }
}

fn page_of(report: &Report) -> Page {
    let mut page = Page::default();
    pairs::head(report, &mut page);
    pairs::all(report, &mut page);
    if let Some(replay) = &report.replay {
        replay::all(replay, &mut page);
    }
    if let Some(trail) = &report.tensors {
        tensors::all(trail, &mut page);
    }
    page.list(
        "notes",
        report
            .notes
            .iter()
            .map(|note| note.as_str().into())
            .collect(),
    );
    page
}

fn put(text: &str) -> Result<(), CompareError> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if !is_closed_pipe(&error) => Err(CompareError::Streams(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
