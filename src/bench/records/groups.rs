//! Groups of keys: summaries of samples, ratios, and maps with a prefix.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::Fault;
use crate::bench::stats::{Ratio, Samples};

/// Writes `NAME_min`, ...; all null when there are no samples.
pub(super) fn write_samples(object: &mut Map<String, Value>, name: &str, all: Option<&Samples>) {
    let parts: [(&str, Option<f64>); 5] = [
        ("min", all.map(|all| all.min)),
        ("median", all.map(|all| all.median)),
        ("mean", all.map(|all| all.mean)),
        ("max", all.map(|all| all.max)),
        ("stddev", all.map(|all| all.stddev)),
    ];
    for (part, value) in parts {
        object.insert(format!("{name}_{part}"), number(value));
    }
    let samples = all.map(|all| list(&all.samples));
    object.insert(format!("{name}_samples"), samples.unwrap_or(Value::Null));
}

/// Reads them; none when the samples are null.
pub(super) fn read_samples(
    object: &Map<String, Value>,
    name: &str,
) -> Result<Option<Samples>, Fault> {
    let part = |part: &str| read::<Option<f64>>(object, &format!("{name}_{part}"));
    let parts = [
        part("min")?,
        part("median")?,
        part("mean")?,
        part("max")?,
        part("stddev")?,
    ];
    let samples: Option<Vec<f64>> = read(object, &format!("{name}_samples"))?;
    match (parts, samples) {
        ([None, None, None, None, None], None) => Ok(None),
        ([Some(min), Some(median), Some(mean), Some(max), Some(stddev)], Some(samples)) => {
            Ok(Some(Samples {
                min,
                median,
                mean,
                max,
                stddev,
                samples,
            }))
        }
        _ => Err(Fault::Value {
            key: format!("{name}_samples"),
            problem: "the summary and its samples must be null together".to_owned(),
        }),
    }
}

/// Writes `NAME_median`, `_min`, `_max` and `_samples`, all null when there is none.
pub(super) fn write_ratio(object: &mut Map<String, Value>, name: &str, ratio: Option<&Ratio>) {
    let parts = [
        ("median", ratio.map(|ratio| ratio.median)),
        ("min", ratio.map(|ratio| ratio.min)),
        ("max", ratio.map(|ratio| ratio.max)),
    ];
    for (part, value) in parts {
        object.insert(format!("{name}_{part}"), number(value));
    }
    let samples = ratio.map(|ratio| list(&ratio.samples));
    object.insert(format!("{name}_samples"), samples.unwrap_or(Value::Null));
}

/// Reads them; none when they are null.
pub(super) fn read_ratio(object: &Map<String, Value>, name: &str) -> Result<Option<Ratio>, Fault> {
    let part = |part: &str| read::<Option<f64>>(object, &format!("{name}_{part}"));
    let parts = [part("median")?, part("min")?, part("max")?];
    let samples: Option<Vec<f64>> = read(object, &format!("{name}_samples"))?;
    match (parts, samples) {
        ([None, None, None], None) => Ok(None),
        ([Some(median), Some(min), Some(max)], Some(samples)) => Ok(Some(Ratio {
            median,
            min,
            max,
            samples,
        })),
        _ => Err(Fault::Value {
            key: format!("{name}_samples"),
            problem: "the ratio and its samples must be null together".to_owned(),
        }),
    }
}

/// Writes each entry as `PREFIX_KEY`.
pub(super) fn write_prefixed<'a, V: Serialize + 'a>(
    object: &mut Map<String, Value>,
    prefix: &str,
    entries: impl IntoIterator<Item = (&'a String, &'a V)>,
) {
    for (key, value) in entries {
        let value = serde_json::to_value(value).unwrap_or(Value::Null);
        object.insert(format!("{prefix}_{key}"), value);
    }
}

/// Reads every key that begins with `PREFIX_`, without it.
pub(super) fn read_prefixed<V: DeserializeOwned, M: FromIterator<(String, V)>>(
    object: &Map<String, Value>,
    prefix: &str,
) -> Result<M, Fault> {
    let entries = object.keys().filter_map(|key| {
        let name = key.strip_prefix(prefix)?.strip_prefix('_')?;
        Some(read(object, key).map(|value| (name.to_owned(), value)))
    });
    entries.collect()
}

/// One key's value.
pub(super) fn read<T: DeserializeOwned>(
    object: &Map<String, Value>,
    key: &str,
) -> Result<T, Fault> {
    let value = object
        .get(key)
        .ok_or_else(|| Fault::Missing(key.to_owned()))?;
    T::deserialize(value).map_err(|error| Fault::Value {
        key: key.to_owned(),
        problem: error.to_string(),
    })
}

/// A number; null for none, and for what JSON has no number for.
fn number(value: Option<f64>) -> Value {
    let number = value.and_then(serde_json::Number::from_f64);
    number.map_or(Value::Null, Value::Number)
}

fn list(values: &[f64]) -> Value {
    values.iter().map(|&value| number(Some(value))).collect()
}
