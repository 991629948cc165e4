//! Reading a trace back, with every fault named by its line.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read};
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
#[error("{}: {problem}", place(path, *line))]
pub struct TraceError {
    /// The file.
    pub path: PathBuf,
    /// The line, from 1; 0 for the file as a whole.
    pub line: usize,
    /// What is wrong.
    pub problem: TraceProblem,
}

fn place(path: &Path, line: usize) -> String {
    match line {
        0 => path.display().to_string(),
        line => format!("{}:{line}", path.display()),
    }
}

/// What can be wrong with a trace.
#[derive(Debug, Error)]
pub enum TraceProblem {
    /// It cannot be read.
    #[error("cannot be read: {0}")]
    Read(#[from] io::Error),
    /// It is longer than any trace.
    #[error("is longer than {0} MiB, which no trace is")]
    TooLong(u64),
    /// It is not text.
    #[error("is not UTF-8 text: the file is damaged, or no trace")]
    NotText,
    /// It is empty.
    #[error("is empty: the run that was to write it did not end")]
    Empty,
    /// The first line is another.
    #[error("not a token trace: the first line is not '# {SCHEMA}'")]
    Schema,
    /// The first line is another version's.
    #[error("is a trace of version '{0}', this program reads '{SCHEMA}'; make it again")]
    Version(String),
    /// Lines end as they do on Windows.
    #[error(
        "the line ends with CR LF: the file was changed on its way (by an editor, or by git's \
         core.autocrlf); turn it back with `sed -i 's/\\r$//'`"
    )]
    CarriageReturn,
    /// The last line has no newline.
    #[error("the line has no end: the trace was cut short; copy or make it again")]
    Cut,
    /// A header line without `=`.
    #[error("header line is not '# key=value'")]
    HeaderLine,
    /// A header line after the prompt.
    #[error("'#' line between the tokens: only '# stop=' comes after '# prompt'")]
    LateHeader,
    /// A required key is absent.
    #[error("the header has no '{0}'")]
    MissingKey(&'static str),
    /// A key is there twice.
    #[error("the header has '{}' twice; keep the right one", shown(.0))]
    DuplicateKey(String),
    /// An id or logit that is not a number.
    #[error("'{}' is not {}", shown(.0), .1)]
    Number(String, &'static str),
    /// A logit that is NaN.
    #[error(
        "the logit of token {0} is NaN: the engine that wrote it has computed nonsense from \
         there on; look for the fault in its run"
    )]
    Nan(u32),
    /// Indices must count from 0.
    #[error(
        "token index {found} where {wanted} is due: lines are missing or out of order; make the \
         trace again"
    )]
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
    #[error("ends without '# stop=': the trace was cut short; copy or make it again")]
    NoStop,
    /// Something after the end.
    #[error("text after '# stop='")]
    AfterStop,
}

/// A word of a damaged file, fit for a terminal.
fn shown(word: &str) -> String {
    const MOST: usize = 40;
    let mut text: String = word.chars().take(MOST).collect();
    if text.len() < word.len() {
        text.push_str("...");
    }
    text.escape_debug().to_string()
}

/// The longest file that is read: a million tokens with fifty runners-up each have less.
const MAX_BYTES: u64 = 1 << 30;
/// So much is read to see whether a file is a trace at all.
const FIRST_BYTES: u64 = 256;
/// What traces of all versions begin with.
const ANY_VERSION: &str = "emel-token-trace/";

impl Trace {
    /// Reads a trace.
    ///
    /// # Errors
    /// [`TraceError`] with file and line.
    pub fn read(path: &Path) -> Result<Trace, TraceError> {
        let text = read_text(path);
        let parsed = text.and_then(|text| Self::parse(&text));
        parsed.map_err(|(line, problem)| TraceError {
            path: path.to_owned(),
            line,
            problem,
        })
    }

    /// Reads a trace from its text; errors carry the line, from 1.
    ///
    /// # Errors
    /// [`TraceProblem`].
    pub fn parse(text: &str) -> Result<Trace, (usize, TraceProblem)> {
        check_schema(text).map_err(|problem| (1, problem))?;
        let mut lines = Lines { rest: text, at: 0 };
        lines.next()?;
        let (header, prompt) = head(&mut lines)?;
        let mut tokens = Vec::new();
        let mut stop = None;
        while let Some(line) = lines.next()? {
            let at = lines.at;
            if stop.is_some() {
                return Err((at, TraceProblem::AfterStop));
            }
            if let Some(reason) = line.strip_prefix("# stop=") {
                stop = Some(reason.to_owned());
                continue;
            }
            if line.starts_with('#') {
                return Err((at, TraceProblem::LateHeader));
            }
            let due = tokens.len() as u64;
            tokens.push(token(line, due).map_err(|problem| (at, problem))?);
        }
        let stop = stop.ok_or((lines.at, TraceProblem::NoStop))?;
        Ok(Trace {
            header,
            prompt,
            tokens,
            stop,
        })
    }

    /// The generated ids.
    #[must_use]
    pub fn ids(&self) -> Vec<u32> {
        self.tokens.iter().map(|token| token.id).collect()
    }
}

/// The file's text. What is no trace is refused before it is read as a whole: it may be a model.
fn read_text(path: &Path) -> Result<String, (usize, TraceProblem)> {
    let io = |error| (0, TraceProblem::Read(error));
    let mut file = File::open(path).map_err(io)?;
    let mut bytes = Vec::new();
    let mut first = (&mut file).take(FIRST_BYTES);
    first.read_to_end(&mut bytes).map_err(io)?;
    let line = bytes.split(|&byte| byte == b'\n').next();
    let is_whole = (bytes.len() as u64) < FIRST_BYTES;
    let is_ours = |line: &[u8]| line.starts_with(format!("# {ANY_VERSION}").as_bytes());
    if !is_whole && !line.is_some_and(is_ours) {
        return Err((1, TraceProblem::Schema));
    }
    let mut rest = file.take(MAX_BYTES);
    rest.read_to_end(&mut bytes).map_err(io)?;
    if rest.limit() == 0 {
        return Err((0, TraceProblem::TooLong(MAX_BYTES >> 20)));
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + good.iter().filter(|&&byte| byte == b'\n').count();
        (line, TraceProblem::NotText)
    })
}

/// Whether the first line says that this is a trace of the version that is read here.
fn check_schema(text: &str) -> Result<(), TraceProblem> {
    let wanted = format!("# {SCHEMA}");
    let (first, has_end) = match text.split_once('\n') {
        Some((first, _)) => (first.strip_suffix('\r').unwrap_or(first), true),
        None => (text, false),
    };
    match first.strip_prefix("# ") {
        _ if first == wanted => Ok(()),
        _ if text.is_empty() => Err(TraceProblem::Empty),
        _ if !has_end && wanted.starts_with(first) => Err(TraceProblem::Cut),
        Some(version) if version.starts_with(ANY_VERSION) => {
            Err(TraceProblem::Version(shown(version)))
        }
        _ => Err(TraceProblem::Schema),
    }
}

/// A text's lines. A line ends with a newline and nothing else: what `str::lines` takes for the
/// end of one hides that a number was cut.
struct Lines<'a> {
    rest: &'a str,
    /// The last line given, from 1.
    at: usize,
}

impl<'a> Lines<'a> {
    fn next(&mut self) -> Result<Option<&'a str>, (usize, TraceProblem)> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        self.at += 1;
        let Some((line, rest)) = self.rest.split_once('\n') else {
            return Err((self.at, TraceProblem::Cut));
        };
        if line.ends_with('\r') {
            return Err((self.at, TraceProblem::CarriageReturn));
        }
        self.rest = rest;
        Ok(Some(line))
    }
}

/// The header's lines up to the prompt's, which is the last of them.
fn head(lines: &mut Lines<'_>) -> Result<(TraceHeader, Vec<u32>), (usize, TraceProblem)> {
    let mut pairs = Vec::new();
    let mut keys = HashSet::new();
    while let Some(line) = lines.next()? {
        let at = lines.at;
        let said = line
            .strip_prefix("# ")
            .ok_or((at, TraceProblem::NoPrompt))?;
        if let Some(ids) = prompt_ids(said) {
            let prompt = ids.map_err(|problem| (at, problem))?;
            let header = header(pairs).map_err(|problem| (at, problem))?;
            return Ok((header, prompt));
        }
        let (key, value) = said.split_once('=').ok_or((at, TraceProblem::HeaderLine))?;
        if !keys.insert(key) {
            return Err((at, TraceProblem::DuplicateKey(key.to_owned())));
        }
        pairs.push((key.to_owned(), value.to_owned()));
    }
    Err((lines.at, TraceProblem::NoStop))
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
    let logit = logit(word(), id)?;
    let mut next = Vec::new();
    for pair in words {
        let (id, value) = pair.split_once(':').unwrap_or((pair, ""));
        let id = number(id, "a token id")?;
        next.push((id, self::logit(value, id)?));
    }
    let ordered = next.windows(2).all(|pair| pair[0].1 >= pair[1].1);
    if ordered {
        Ok(TraceToken { id, logit, next })
    } else {
        Err(TraceProblem::Order)
    }
}

fn logit(word: &str, id: u32) -> Result<f32, TraceProblem> {
    let value: f32 = number(word, "a logit")?;
    match value.is_nan() {
        true => Err(TraceProblem::Nan(id)),
        false => Ok(value),
    }
}

fn number<T: std::str::FromStr>(word: &str, wanted: &'static str) -> Result<T, TraceProblem> {
    word.parse()
        .map_err(|_| TraceProblem::Number(word.to_owned(), wanted))
}
