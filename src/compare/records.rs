//! `emel-compare records`: every two streams with the same workload and lane, of one or two files
//! of records and the traces beside them.
//!
//! In each workload and lane EMEL's stream (of two files, the first one's; where there is none, the
//! first record's) is compared with every other.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use super::contract::Contract;
use super::error::CompareError;
use super::pair::{Named, compare};
use super::report::{Pair, Report, Side};
use super::show::ShowArgs;
use super::vocabulary::{Vocabulary, VocabularyArgs, absent};
use crate::bench::records::read::for_each_line;
use crate::bench::records::{Generation, Hex64, Record, RecordError, Status, parse_line};
use crate::trace::Trace;
use crate::trace::checksum::Fnv64;

/// Finished records, with the traces beside them.
#[derive(Clone, Debug, clap::Args)]
pub struct RecordsArgs {
    /// One or two files of records that `emel-bench run -o FILE` wrote, each with its folder
    /// FILE.traces beside it
    #[arg(required = true, num_args = 1..=2, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Whose tokens they are
    #[command(flatten)]
    pub vocabulary: VocabularyArgs,
    /// How the report is shown
    #[command(flatten)]
    pub show: ShowArgs,
}

/// A record and where it stands.
struct Entry<'a> {
    path: &'a Path,
    line: usize,
    record: Generation,
}

/// What an entry yields.
enum Stream {
    /// A stream.
    Whole(Box<Named>),
    /// The measurement failed, for this reason.
    Failed(String),
}

/// Runs the command.
///
/// # Errors
/// [`CompareError`] of the first line or trace that cannot be used; [`CompareError::NoPairs`] when
/// nothing belongs together.
pub fn run(args: &RecordsArgs) -> Result<Report, CompareError> {
    args.show
        .refuse_plot("finished traces hold a few logits of each position")?;
    if let [a, b] = &args.files[..]
        && (a == b
            || a.canonicalize()
                .is_ok_and(|a| b.canonicalize().is_ok_and(|b| a == b)))
    {
        let problem = "both files are one; a file that holds all engines is given once";
        return Err(CompareError::Usage(problem.to_owned()));
    }
    let mut entries = Vec::new();
    for path in &args.files {
        read(path, &mut entries)?;
    }
    let groups = groups(&entries);
    groups.iter().try_for_each(|group| refuse_twice(group))?;
    let (whole, alone): (Vec<_>, Vec<_>) = groups.into_iter().partition(|group| group.len() > 1);
    let lonely: Vec<String> = alone.iter().map(|group| lonely(group)).collect();
    if whole.is_empty() {
        return Err(CompareError::NoPairs(match lonely.is_empty() {
            true => {
                "the records hold no generation; measure with `emel-bench run -o FILE`".to_owned()
            }
            false => format!(
                "no workload and lane has two records: {}",
                lonely.join("; ")
            ),
        }));
    }
    let mut vocabularies = Vocabularies::new(&args.vocabulary, &whole)?;
    let mut pairs = Vec::new();
    for group in &whole {
        pairs.extend(compare_group(group, &mut vocabularies, args.show.context)?);
    }
    let mut report = Report::new(pairs);
    report.notes = vocabularies.notes();
    report.notes.extend(lonely);
    Ok(report)
}

/// Adds a file's generations.
fn read<'a>(path: &'a Path, entries: &mut Vec<Entry<'a>>) -> Result<(), CompareError> {
    for_each_line(path, |line, text| {
        let record = text.and_then(parse_line);
        let record = record.map_err(|fault| RecordError::Line {
            path: path.to_owned(),
            line,
            fault,
        })?;
        if let Record::Generation(record) = record {
            entries.push(Entry {
                path,
                line,
                record: *record,
            });
        }
        Ok(())
    })
}

/// The entries by workload and lane, in the order of their first appearance; in each the one that
/// the others are compared with comes first.
fn groups<'e>(entries: &'e [Entry<'e>]) -> Vec<Vec<&'e Entry<'e>>> {
    let key = |entry: &Entry<'_>| (entry.record.workload_id.clone(), entry.record.lane.clone());
    let mut places = BTreeMap::new();
    let mut groups: Vec<Vec<&Entry<'_>>> = Vec::new();
    for entry in entries {
        let place = *places.entry(key(entry)).or_insert(groups.len());
        match groups.get_mut(place) {
            Some(group) => group.push(entry),
            None => groups.push(vec![entry]),
        }
    }
    for group in &mut groups {
        let emel = group
            .iter()
            .position(|entry| entry.record.backend == "emel");
        group[..=emel.unwrap_or(0)].rotate_right(1);
    }
    groups
}

impl Entry<'_> {
    /// The engine with its configuration.
    fn name(&self) -> String {
        match self.record.config.as_deref() {
            None | Some("") => self.record.backend.clone(),
            Some(config) => format!("{}-{config}", self.record.backend),
        }
    }

    /// The same, with the file where the group has the name in two files.
    fn label(&self, group: &[&Entry<'_>]) -> String {
        let name = self.name();
        let in_both = group
            .iter()
            .any(|other| other.name() == name && other.path != self.path);
        match in_both {
            true => format!("{name} ({})", self.path.display()),
            false => name,
        }
    }

    /// Where its trace should be.
    fn trace_path(&self) -> Result<PathBuf, CompareError> {
        let problem = |problem: &str| CompareError::NoTrace {
            path: self.path.to_owned(),
            line: self.line,
            problem: problem.to_owned(),
        };
        let name = self.record.trace.as_deref().ok_or_else(|| {
            problem(
                "the record names no trace, and without one there is nothing to compare: measure \
                 again with `emel-bench run -o FILE`",
            )
        })?;
        let mut parts = Path::new(name).components();
        let (first, more) = (parts.next(), parts.next());
        if !matches!((first, more), (Some(Component::Normal(_)), None)) {
            return Err(problem(
                "key `trace` must be the name of a file in the folder of traces",
            ));
        }
        let mut folder = self.path.file_name().unwrap_or_default().to_owned();
        folder.push(".traces");
        Ok(self.path.with_file_name(folder).join(name))
    }

    /// Its stream.
    fn stream(&self, group: &[&Entry<'_>]) -> Result<Stream, CompareError> {
        if self.record.head.status == Status::Error {
            let error = self.record.head.error.as_deref();
            let error = error.unwrap_or("failed without a word");
            let place = format!("{}:{}", self.path.display(), self.line);
            return Ok(Stream::Failed(format!("{place}: {}: {error}", self.name())));
        }
        let path = self.trace_path()?;
        if !path.is_file() {
            return Err(CompareError::MissingTrace {
                path: self.path.to_owned(),
                line: self.line,
                trace: path,
            });
        }
        let trace = Trace::read(&path)?;
        self.belongs(&trace, &path)?;
        let named = Named::new(self.label(group), trace);
        let known = Contract::of_record(&self.record);
        Ok(Stream::Whole(Box::new(named.with(known))))
    }

    /// Whether the trace is of the run that was recorded.
    fn belongs(&self, trace: &Trace, path: &Path) -> Result<(), CompareError> {
        let sum = |ids: &[u32]| Fnv64::of_ids(ids).to_string();
        let stated = |sum: Option<Hex64>| sum.map(|sum| sum.to_string());
        let record = &self.record;
        let contract = Contract::of_header(&trace.header);
        let digest = contract.get("model_sha256").map(str::to_owned);
        let checks = [
            ("model_sha256", digest, record.model_sha256.clone()),
            (
                "prompt_checksum",
                Some(sum(&trace.prompt)),
                stated(record.prompt_checksum),
            ),
            (
                "ids_checksum",
                Some(sum(&trace.ids())),
                stated(record.ids_checksum),
            ),
            ("stop", Some(trace.stop.clone()), record.stop.clone()),
        ];
        let wrong = checks.into_iter().find_map(|(key, found, stated)| {
            let (found, stated) = (found?, stated?);
            (found != stated).then_some((key, found, stated))
        });
        match wrong {
            None => Ok(()),
            Some((key, found, stated)) => Err(CompareError::OtherTrace {
                path: self.path.to_owned(),
                line: self.line,
                trace: path.to_owned(),
                key,
                found,
                stated,
            }),
        }
    }

    /// What is known of a stream that there is not.
    fn side(&self, group: &[&Entry<'_>]) -> Side {
        let head = &self.record.head;
        Side {
            label: self.label(group),
            engine: head.engine.clone(),
            engine_version: head.engine_version.clone().unwrap_or_default(),
            ..Side::default()
        }
    }
}

/// Refuses a file that has an engine in one configuration twice.
fn refuse_twice(group: &[&Entry<'_>]) -> Result<(), CompareError> {
    let mut seen = BTreeMap::new();
    let mut in_order = group.to_vec();
    in_order.sort_by_key(|entry| entry.line);
    for entry in in_order {
        let name = entry.name();
        match seen.insert((entry.path, name.clone()), entry.line) {
            None => {}
            Some(first) => {
                return Err(CompareError::Twice {
                    path: entry.path.to_owned(),
                    line: entry.line,
                    first,
                    label: name,
                    workload: entry.record.workload_id.clone(),
                    lane: entry.record.lane.clone(),
                });
            }
        }
    }
    Ok(())
}

fn lonely(group: &[&Entry<'_>]) -> String {
    let all = group.iter().map(|entry| {
        let (workload, lane) = (&entry.record.workload_id, &entry.record.lane);
        format!("{workload} in lane {lane} has {} alone", entry.name())
    });
    all.collect::<Vec<_>>().join(", ")
}

fn compare_group(
    group: &[&Entry<'_>],
    vocabularies: &mut Vocabularies<'_>,
    context: usize,
) -> Result<Vec<Pair>, CompareError> {
    let Some((first, others)) = group.split_first() else {
        return Ok(Vec::new());
    };
    let own = first.stream(group)?;
    let mut pairs = Vec::new();
    for other in others {
        let theirs = other.stream(group)?;
        pairs.push(match (&own, &theirs) {
            (Stream::Whole(a), Stream::Whole(b)) => {
                let digests = [a, b].map(|one| one.contract.get("model_sha256"));
                let vocabulary = match digests {
                    [Some(a), Some(b)] if a != b => None,
                    [a, b] => vocabularies.of(a.or(b))?,
                };
                compare(a, b, vocabulary.map(|one| &one.tokenizer), context)
            }
            _ => {
                let both = [&own, &theirs].into_iter();
                let errors = both.filter_map(|stream| match stream {
                    Stream::Failed(error) => Some(error.as_str()),
                    Stream::Whole(_) => None,
                });
                let errors: Vec<&str> = errors.collect();
                let (a, b) = (first.side(group), other.side(group));
                let (workload, lane) = (&first.record.workload_id, &first.record.lane);
                Pair::failed(workload, lane, a, b, errors.join("; "))
            }
        });
    }
    Ok(pairs)
}

/// The vocabularies of the records' models, each read once.
struct Vocabularies<'a> {
    args: &'a VocabularyArgs,
    by_digest: BTreeMap<Option<String>, Option<Vocabulary>>,
}

impl<'a> Vocabularies<'a> {
    /// Refuses one named model for records of several.
    fn new(args: &'a VocabularyArgs, groups: &[Vec<&Entry<'_>>]) -> Result<Self, CompareError> {
        let all = groups.iter().flatten();
        let mut models: Vec<&str> = all.map(|entry| entry.record.model.as_str()).collect();
        models.sort_unstable();
        models.dedup();
        if args.model.is_some() && models.len() > 1 {
            return Err(CompareError::Usage(format!(
                "-m names one model, the records are of {}; leave it out, and the listed models \
                 are used where they are there",
                models.join(", ")
            )));
        }
        Ok(Vocabularies {
            args,
            by_digest: BTreeMap::new(),
        })
    }

    fn of(&mut self, digest: Option<&str>) -> Result<Option<&Vocabulary>, CompareError> {
        let key = digest.map(str::to_owned);
        if !self.by_digest.contains_key(&key) {
            let found = self.args.open(digest)?;
            self.by_digest.insert(key.clone(), found);
        }
        Ok(self.by_digest.get(&key).and_then(Option::as_ref))
    }

    fn notes(&self) -> Vec<String> {
        let missing = self.by_digest.iter().filter(|(_, found)| found.is_none());
        missing
            .map(|(digest, _)| absent(digest.as_deref()))
            .collect()
    }
}
