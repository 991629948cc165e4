//! Reading a trace back, with every fault named by its line.

use std::path::{Path, PathBuf};

use thiserror::Error;

use super::{REQUIRED_KEYS, SCHEMA, TraceHeader};

/// A trace that has been read.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// Its header.
    pub header: TraceHeader,
    /// Ids of the prompt.
    pub prompt: Vec<u32>,
    /// The generated tokens, in order.
    pub tokens: Vec<TraceToken>,
    /// Why it ended.
    pub stop: String,
}

/// One generated token.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceToken {
    /// Its id.
    pub id: u32,
    /// Its logit.
    pub logit: f32,
    /// The next best, in descending order.
    pub next: Vec<(u32, f32)>,
}

/// A trace that cannot be read.
#[derive(Debug, Error)]
#[error("{}:{line}: {problem}", path.display())]
pub struct TraceError {
    /// The file.
    pub path: PathBuf,
    /// The line, from 1; 0 for the file as a whole.
    pub line: usize,
    /// What is wrong.
    pub problem: TraceProblem,
}

/// What can be wrong with a trace.
#[derive(Debug, Error)]
pub enum TraceProblem {
    /// It cannot be read, or is not text.
    #[error("cannot be read: {0}")]
    Read(#[from] std::io::Error),
    /// The first line is another.
    #[error("not a token trace: the first line is not '# {SCHEMA}'")]
    Schema,
    /// A header line without `=`.
    #[error("header line is not '# key=value'")]
    HeaderLine,
    /// A required key is absent.
    #[error("the header has no '{0}'")]
    MissingKey(&'static str),
    /// An id or logit that is not a number.
    #[error("'{0}' is not {1}")]
    Number(String, &'static str),
    /// Indices must count from 0.
    #[error("token index {found} where {wanted} is due")]
    Index {
        /// What stands there.
        found: u64,
        /// What should.
        wanted: u64,
    },
    /// Next best tokens out of order.
    #[error("next best tokens are not in descending order")]
    Order,
    /// No `# prompt` line before the first token.
    #[error("no '# prompt' line before the tokens")]
    NoPrompt,
    /// The file ends early.
    #[error("ends without '# stop=': the trace was cut short")]
    NoStop,
    /// Something after the end.
    #[error("text after '# stop='")]
    AfterStop,
}

impl Trace {
    /// Reads a trace.
    ///
    /// # Errors
    /// [`TraceError`] with file and line.
    pub fn read(path: &Path) -> Result<Trace, TraceError> {
        let at = |line, problem| TraceError {
            path: path.to_owned(),
            line,
            problem,
        };
        let text = std::fs::read_to_string(path).map_err(|e| at(0, TraceProblem::Read(e)))?;
        Self::parse(&text).map_err(|(line, problem)| at(line, problem))
    }

    /// Reads a trace from its text; errors carry the line, from 1.
    ///
    /// # Errors
    /// [`TraceProblem`].
    pub fn parse(text: &str) -> Result<Trace, (usize, TraceProblem)> {
        let mut lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
        if lines.next().map(|(_, line)| line) != Some(&format!("# {SCHEMA}")) {
            return Err((1, TraceProblem::Schema));
        }
        let mut pairs = Vec::new();
        let mut prompt = None;
        let mut last = 1;
        for (at, line) in lines.by_ref() {
            last = at;
            let header = line
                .strip_prefix("# ")
                .ok_or((at, TraceProblem::NoPrompt))?;
            if let Some(ids) = prompt_ids(header) {
                prompt = Some(ids.map_err(|problem| (at, problem))?);
                break;
            }
            let (key, value) = header
                .split_once('=')
                .ok_or((at, TraceProblem::HeaderLine))?;
            pairs.push((key.to_owned(), value.to_owned()));
        }
        let prompt = prompt.ok_or((last, TraceProblem::NoPrompt))?;
        let header = header(pairs).map_err(|problem| (last, problem))?;
        let mut tokens = Vec::new();
        let mut stop = None;
        for (at, line) in lines {
            last = at;
            if stop.is_some() {
                return Err((at, TraceProblem::AfterStop));
            }
            if let Some(reason) = line.strip_prefix("# stop=") {
                stop = Some(reason.to_owned());
                continue;
            }
            let due = tokens.len() as u64;
            tokens.push(token(line, due).map_err(|problem| (at, problem))?);
        }
        let stop = stop.ok_or((last, TraceProblem::NoStop))?;
        Ok(Trace {
            header,
            prompt,
            tokens,
            stop,
        })
    }
}

/// The ids of a `prompt` line; none when it is another.
fn prompt_ids(header: &str) -> Option<Result<Vec<u32>, TraceProblem>> {
    let ids = header.strip_prefix("prompt")?;
    if !ids.is_empty() && !ids.starts_with(' ') {
        return None;
    }
    Some(
        ids.split_whitespace()
            .map(|id| number(id, "a token id"))
            .collect(),
    )
}

fn header(pairs: Vec<(String, String)>) -> Result<TraceHeader, TraceProblem> {
    let get = |key: &'static str| {
        let found = pairs.iter().find(|(known, _)| known == key);
        found
            .map(|(_, value)| value.clone())
            .ok_or(TraceProblem::MissingKey(key))
    };
    let [
        engine,
        engine_version,
        model_sha256,
        workload_id,
        lane,
        threads,
        isa,
        route,
        numerics,
    ] = REQUIRED_KEYS.map(get);
    let header = TraceHeader {
        engine: engine?,
        engine_version: engine_version?,
        model_sha256: model_sha256?,
        workload_id: workload_id?,
        lane: lane?,
        threads: threads?,
        isa: isa?,
        route: route?,
        numerics: numerics?,
        more: Vec::new(),
    };
    let known = |key: &str| REQUIRED_KEYS.contains(&key);
    let more = pairs.into_iter().filter(|(key, _)| !known(key)).collect();
    Ok(TraceHeader { more, ..header })
}

fn token(line: &str, due: u64) -> Result<TraceToken, TraceProblem> {
    let mut words = line.split_whitespace();
    let mut word = || words.next().unwrap_or_default();
    let found = number(word(), "a token index")?;
    if found != due {
        return Err(TraceProblem::Index { found, wanted: due });
    }
    let id = number(word(), "a token id")?;
    let logit = number(word(), "a logit")?;
    let mut next = Vec::new();
    for pair in words {
        let (id, logit) = pair.split_once(':').unwrap_or((pair, ""));
        next.push((number(id, "a token id")?, number(logit, "a logit")?));
    }
    let ordered = next.windows(2).all(|pair| pair[0].1 >= pair[1].1);
    if ordered {
        Ok(TraceToken { id, logit, next })
    } else {
        Err(TraceProblem::Order)
    }
}

fn number<T: std::str::FromStr>(word: &str, wanted: &'static str) -> Result<T, TraceProblem> {
    word.parse()
        .map_err(|_| TraceProblem::Number(word.to_owned(), wanted))
}
