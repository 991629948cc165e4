//! Free runs: each engine asked the same, choosing for itself.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::case::Case;
use super::error::CompareError;
use super::stages::Stages;
use crate::bench::backend::{Backend, Contender};
use crate::bench::protocol::{Ran, Request, Run};
use crate::trace::Trace;

/// Runners-up on each line of a trace.
const TOP_LOGPROBS: usize = 8;

/// Runs `case` on a contender, in a process of its own, and gives the trace that it wrote to
/// `trace`.
///
/// # Errors
/// [`CompareError`].
pub fn run(
    case: &Case,
    contender: &Contender,
    trace: &Path,
    timeout: Duration,
    stages: &Stages,
) -> Result<Trace, CompareError> {
    stages.check()?;
    let _stage = stages.begin(format!("{}: run", contender.label()), 0);
    let interrupt = stages.interrupt();
    let (mut backend, _) = contender.start(&case.model, case.n_ctx, interrupt, timeout)?;
    request(&mut backend, case, contender, Some(trace))?;
    Ok(Trace::read(trace)?)
}

/// Asks a loaded backend.
///
/// # Errors
/// [`CompareError`].
pub fn request(
    backend: &mut Backend,
    case: &Case,
    contender: &Contender,
    trace: Option<&Path>,
) -> Result<Ran, CompareError> {
    let header = [
        ("model_sha256", case.model_sha256.as_str()),
        ("workload_id", &case.workload_id),
        ("lane", "-"),
        ("config", &contender.config),
        ("formatter", case.formatter.name()),
        ("sampling", case.sampling.name()),
        ("stop_rule", case.stop.name()),
    ];
    let header = header.map(|(key, value)| (key.to_owned(), value.to_owned()));
    Ok(backend.request(&Request::Run(Run {
        text: case.text.clone(),
        prompt_tokens: case.prompt_tokens,
        max_tokens: case.max_tokens,
        stop: case.stop,
        observe: true,
        trace: trace.map(Path::to_owned),
        top_logprobs: TOP_LOGPROBS,
        header: BTreeMap::from(header),
    }))?)
}
