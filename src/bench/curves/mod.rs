//! `emel-bench curves`: how times grow, from records, as pictures and a page.
//!
//! Three questions: what a token of a prompt costs as prompts get longer, what a generated token
//! costs as the context gets deeper, and what a load costs as files get larger. [`data`] gathers
//! the points, [`fit`] lays a straight line through them and says how far they lie from it, `draw`
//! makes a picture of each and `page` the Markdown around them.

pub mod data;
mod draw;
pub mod fit;
mod page;

use std::io::Write;
use std::path::PathBuf;

use super::BenchError;
use super::records::read_records;
use crate::cli::message::tell;
use crate::output::{AtomicFile, is_closed_pipe};

/// Draws how times grow with lengths, depths and sizes.
#[derive(Clone, Debug, clap::Args)]
pub struct CurvesArgs {
    /// Files of records of the suite `curves`
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Write the pictures, as SVG, into this folder
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// How the page, on standard output, names that folder
    #[arg(long, value_name = "LINK", default_value = "curves")]
    pub link: String,
}

/// Runs the command: pictures into the folder, the page to standard output.
///
/// # Errors
/// [`BenchError::Records`] for a file that is not all records; [`BenchError::Usage`] when they hold
/// no curve; [`BenchError::Output`].
pub fn run(args: &CurvesArgs) -> Result<(), BenchError> {
    let mut records = Vec::new();
    for file in &args.files {
        records.extend(read_records(file)?);
    }
    let curves = data::curves(&records);
    if curves.is_empty() {
        return Err(BenchError::Usage(
            "no curve: the records hold no series of at least two points; measure one with \
             scripts/curves.sh, or emel-bench run --suite curves"
                .to_owned(),
        ));
    }
    if let Some(folder) = &args.output {
        for curve in &curves {
            let path = folder.join(format!("{}.svg", curve.name));
            let mut file = AtomicFile::create(&path)?;
            file.write(draw::draw(curve).as_bytes())?;
            file.commit()?;
            tell(&format!("wrote {}", path.display()));
        }
    }
    let page = page::page(&curves, &args.link);
    match std::io::stdout().lock().write_all(page.as_bytes()) {
        Err(error) if !is_closed_pipe(&error) => Err(BenchError::Streams(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
