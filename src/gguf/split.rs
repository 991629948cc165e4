//! Split models: `NAME-00001-of-0000N.gguf` and its siblings.
//!
//! The keys are those of llama.cpp's `gguf-split`: `split.count` shards, `split.no` from 0 in
//! each, `split.tensors.count` tensors in all. Metadata is the first shard's. A merged file may
//! keep `split.count` = 0.

use super::error::{Fault, GgufError, Place, SplitFault};
use super::{Metadata, Opened};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const COUNT: &str = "split.count";
const NUMBER: &str = "split.no";
const TENSORS: &str = "split.tensors.count";

/// The shards a split model should have.
#[derive(Debug)]
pub(super) struct Plan {
    /// Path up to `-00001-of-...`.
    stem: PathBuf,
    /// Shards in all.
    count: u64,
    /// Index of the shard that was opened first, from 0.
    given: u64,
}

impl Plan {
    /// The path of the shard of this index, from 0.
    fn path(&self, index: u64) -> Arc<Path> {
        let mut path = self.stem.clone().into_os_string();
        path.push(format!("-{:05}-of-{:05}.gguf", index + 1, self.count));
        PathBuf::from(path).into()
    }
}

/// What shards belong to an opened file; `None` when it is whole.
pub(super) fn shards_of(opened: &Opened) -> Result<Option<Plan>, GgufError> {
    let count = opened.header.metadata.u64(COUNT)?.unwrap_or(0);
    if count <= 1 {
        return Ok(None);
    }
    let fault = |fault| GgufError::Split {
        file: opened.file.clone(),
        fault,
    };
    let (stem, number, named) =
        parse_name(&opened.file).ok_or_else(|| fault(SplitFault::Name { count }))?;
    if named != count {
        return Err(fault(SplitFault::CountNamed { named, count }));
    }
    Ok(Some(Plan {
        stem,
        count,
        given: number - 1,
    }))
}

/// Opens the shards of `plan`, of which `first` is already open, and checks that they are one
/// model.
pub(super) fn open_all(plan: &Plan, first: Opened) -> Result<Vec<Opened>, GgufError> {
    let mut first = Some(first);
    let mut shards: Vec<Opened> = Vec::new();
    let mut numbers: HashMap<u64, u64> = HashMap::new();
    for index in 0..plan.count {
        let shard = match first.take_if(|_| index == plan.given) {
            Some(shard) => shard,
            None => open_sibling(plan, index)?,
        };
        let no = check_numbers(plan, index, &shard.header.metadata, &numbers)?;
        numbers.insert(no, index);
        shards.push(shard);
    }
    check_tensors(&shards)?;
    Ok(shards)
}

fn open_sibling(plan: &Plan, index: u64) -> Result<Opened, GgufError> {
    let path = plan.path(index);
    match Opened::new(path.clone()) {
        Err(GgufError::Open { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            let fault = SplitFault::Missing {
                number: index + 1,
                count: plan.count,
            };
            Err(GgufError::Split { file: path, fault })
        }
        opened => opened,
    }
}

/// Checks a shard's own account of itself, and gives its `split.no`.
fn check_numbers(
    plan: &Plan,
    index: u64,
    metadata: &Metadata,
    before: &HashMap<u64, u64>,
) -> Result<u64, GgufError> {
    let number = index + 1;
    let fail = |fault| GgufError::Split {
        file: metadata.file().into(),
        fault,
    };
    let key = |key| {
        let missing = || fail(SplitFault::KeyMissing { number, key });
        metadata.u64(key)?.ok_or_else(missing)
    };
    let (no, count) = (key(NUMBER)?, key(COUNT)?);
    if let Some(&first) = before.get(&no) {
        return Err(fail(SplitFault::Repeated {
            number,
            first: first + 1,
            no,
        }));
    }
    if no != index {
        return Err(fail(SplitFault::OutOfOrder {
            number,
            found: no,
            wanted: index,
        }));
    }
    if count != plan.count {
        return Err(fail(SplitFault::CountDiffers {
            found: count,
            count: plan.count,
        }));
    }
    Ok(no)
}

/// Checks that names are unique over all shards and that no tensor is missing.
fn check_tensors(shards: &[Opened]) -> Result<(), GgufError> {
    let mut names: HashMap<&str, (usize, u64)> = HashMap::new();
    for (index, shard) in shards.iter().enumerate() {
        for tensor in &shard.header.tensors {
            let before = names.insert(&tensor.name, (index, tensor.entry));
            if let Some((first_shard, first)) = before {
                return Err(GgufError::Malformed {
                    file: shard.file.clone(),
                    place: Place::Tensor(tensor.name.as_str().into()),
                    offset: tensor.entry,
                    fault: Fault::NameElsewhere {
                        shard: first_shard + 1,
                        first,
                    },
                });
            }
        }
    }
    let found = names.len() as u64;
    for shard in shards {
        if let Some(wanted) = shard.header.metadata.u64(TENSORS)?
            && wanted != found
        {
            let fault = SplitFault::TensorCount { found, wanted };
            return Err(GgufError::Split {
                file: shard.file.clone(),
                fault,
            });
        }
    }
    Ok(())
}

/// Takes `STEM-00002-of-00005.gguf` apart into stem, number and count.
fn parse_name(path: &Path) -> Option<(PathBuf, u64, u64)> {
    let rest = path.file_name()?.to_str()?.strip_suffix(".gguf")?;
    let (rest, count) = five_digits(rest)?;
    let (stem, number) = five_digits(rest.strip_suffix("-of-")?)?;
    let stem = stem.strip_suffix('-')?;
    let valid = (1..=count).contains(&number);
    valid.then(|| (path.with_file_name(stem), number, count))
}

/// The five digits that `text` ends in, and what is before them.
fn five_digits(text: &str) -> Option<(&str, u64)> {
    let (rest, digits) = text.split_at_checked(text.len().checked_sub(5)?)?;
    let all = digits.bytes().all(|byte| byte.is_ascii_digit());
    Some((rest, digits.parse().ok().filter(|_| all)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart_and_put_together() {
        let path = Path::new("some dir/a-model-00002-of-00005.gguf");
        let (stem, number, count) = parse_name(path).unwrap();
        assert_eq!(
            (stem.as_path(), number, count),
            (Path::new("some dir/a-model"), 2, 5)
        );
        let plan = Plan {
            stem,
            count,
            given: number - 1,
        };
        assert_eq!(&*plan.path(1), path);
        assert_eq!(
            &*plan.path(4),
            Path::new("some dir/a-model-00005-of-00005.gguf")
        );
    }

    #[test]
    fn names_that_are_no_shards() {
        for name in [
            "model.gguf",
            "m-00001-of-00002.bin",
            "m-0001-of-0002.gguf",
            "m-00000-of-00002.gguf",
            "m-00003-of-00002.gguf",
            "m-+0001-of-00002.gguf",
            "m00001-of-00002.gguf",
            "-of-00002.gguf",
            ".gguf",
            "é001-of-00002.gguf",
        ] {
            assert!(parse_name(Path::new(name)).is_none(), "{name}");
        }
    }
}
