//! What every engine is asked: a model, a text, and when to stop.

use std::path::PathBuf;

use super::error::CompareError;
use super::report::Subject;
use super::stages::Stages;
use crate::bench::protocol::StopRule;
use crate::bench::workload::{
    Formatter, LibraryArgs, ModelText, Sampling, WorkloadError, cache_folder, needed_context,
    read_prompt, sha256_cached,
};
use crate::tokenizer::Tokenizer;

/// Model and prompt, or a workload of the library.
#[derive(Clone, Debug, clap::Args)]
pub struct CaseArgs {
    /// Where workloads, backends and models are
    #[command(flatten)]
    pub library: LibraryArgs,
    /// A workload of the library, in place of model and prompt
    #[arg(short, long, value_name = "ID", conflicts_with_all = ["model", "prompt", "file"],
          required_unless_present = "model")]
    pub workload: Option<String>,
    /// Model file (GGUF)
    #[arg(short, long, value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// The prompt
    #[arg(
        short,
        long,
        value_name = "TEXT",
        conflicts_with = "file",
        allow_hyphen_values = true
    )]
    pub prompt: Option<String>,
    /// File that holds the prompt; the newline that ends it is left out
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Put the prompt through the model's chat template, as a user's one turn
    #[arg(long, conflicts_with = "workload")]
    pub template: bool,
    /// Most tokens to generate [default: 128, or the workload's]
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub predict: Option<u32>,
    /// Tokens of context [default: as many as needed]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    pub ctx_size: Option<u32>,
    /// Go on after the model has ended its text
    #[arg(long)]
    pub ignore_eos: bool,
}

/// Tokens that are generated when nobody says how many.
const PREDICT: usize = 128;

/// What every engine is asked.
#[derive(Clone, Debug)]
pub struct Case {
    /// The model's file.
    pub model: PathBuf,
    /// Its digest.
    pub model_sha256: String,
    /// The text, formatted.
    pub text: String,
    /// Cut it to so many tokens.
    pub prompt_tokens: Option<usize>,
    /// Most tokens to generate.
    pub max_tokens: usize,
    /// What ends generation.
    pub stop: StopRule,
    /// Tokens of context.
    pub n_ctx: usize,
    /// The workload's id, or `-`.
    pub workload_id: String,
    /// `raw` or `template`.
    pub formatter: Formatter,
    /// How a token is chosen.
    pub sampling: Sampling,
}

impl Case {
    /// The case, for a report.
    pub fn subject(&self, prompt_tokens: usize) -> Subject {
        Subject {
            model: self.model.display().to_string(),
            model_sha256: self.model_sha256.clone(),
            prompt_text: Some(Subject::beginning(&self.text)),
            prompt_tokens,
            max_tokens: self.max_tokens,
        }
    }
}

impl CaseArgs {
    /// Finds the model, reads its digest and formats the prompt; with the model's vocabulary.
    ///
    /// # Errors
    /// [`CompareError`].
    pub fn prepare(&self, stages: &Stages) -> Result<(Case, Tokenizer), CompareError> {
        let case = match &self.workload {
            Some(id) => self.of_workload(id, stages)?,
            None => self.of_flags(stages)?,
        };
        let reader = ModelText::read(&case.model)?;
        let text = reader.format(case.formatter, &case.text, &case.workload_id)?;
        let counted = reader.count(&text);
        let n_prompt = case.prompt_tokens.map_or(counted, |most| most.min(counted));
        let needed = needed_context(n_prompt, case.max_tokens);
        let n_ctx = self.ctx_size.map_or(case.n_ctx.max(needed), |n| n as usize);
        if n_prompt == 0 {
            return Err(CompareError::Usage(
                "the prompt has no tokens: give a text with -p or -f".to_owned(),
            ));
        }
        if n_prompt >= n_ctx {
            return Err(CompareError::Usage(format!(
                "the prompt has {n_prompt} tokens, the context {n_ctx}: allow more with -c"
            )));
        }
        let case = Case {
            text,
            n_ctx,
            ..case
        };
        Ok((case, reader.into_tokenizer()))
    }

    fn of_workload(&self, id: &str, stages: &Stages) -> Result<Case, CompareError> {
        let library = self.library.open()?;
        let workload = library.workload(id)?;
        let entry = library.model(&workload.model)?;
        let folder = library.models_folder();
        let stage = stages.begin("reading the model's digest", 0);
        let model_sha256 = entry.verify(folder, cache_folder().as_deref(), |_| ())?;
        drop(stage);
        Ok(Case {
            model: entry.locate(folder)?,
            model_sha256,
            text: library.prompt(workload)?,
            prompt_tokens: workload.prompt_tokens,
            max_tokens: self.predict.map_or(workload.max_tokens, |n| n as usize),
            stop: if self.ignore_eos {
                StopRule::Limit
            } else {
                workload.stop
            },
            n_ctx: workload.n_ctx.unwrap_or(0),
            workload_id: workload.id.clone(),
            formatter: workload.formatter,
            sampling: workload.sampling,
        })
    }

    fn of_flags(&self, stages: &Stages) -> Result<Case, CompareError> {
        let text = match (&self.prompt, &self.file) {
            (Some(text), _) => text.clone(),
            (None, Some(file)) => read_prompt(file)?,
            (None, None) => {
                let problem = "no prompt: give a text with -p or a file with -f";
                return Err(CompareError::Usage(problem.to_owned()));
            }
        };
        let model = self.model.clone().unwrap_or_default();
        let stage = stages.begin("reading the model's digest", 0);
        let model_sha256 = sha256_cached(cache_folder().as_deref(), &model, |_| ())
            .map_err(WorkloadError::from)?;
        drop(stage);
        Ok(Case {
            model,
            model_sha256,
            text,
            prompt_tokens: None,
            max_tokens: self.predict.map_or(PREDICT, |n| n as usize),
            stop: if self.ignore_eos {
                StopRule::Limit
            } else {
                StopRule::Eog
            },
            n_ctx: 0,
            workload_id: "-".to_owned(),
            formatter: if self.template {
                Formatter::Template
            } else {
                Formatter::Raw
            },
            sampling: Sampling::Argmax,
        })
    }
}
