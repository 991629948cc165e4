//! What was measured, as programs read it: JSONL, one flat object a line, schema `emel-bench/v1`.
//!
//! Four kinds share a [`Head`]: [`Generation`] (one workload, lane, engine and configuration),
//! [`Kernel`] (one operator at one shape), [`Machine`] (one state machine or barrier) and
//! [`Limit`] (what this machine can do at best).
//!
//! - Times are nanoseconds, rates are a second's; 64-bit checksums are 16 hex digits ([`Hex64`]).
//! - Every key of a kind is always written; what is not known is null. Groups of keys come and go
//!   as wholes: `options_*`, `counter_*`, and the ratios (`emel_*`), which only another engine's
//!   record has.
//! - A summary of samples is the keys `NAME_min`, `_median`, `_mean`, `_max`, `_stddev` and
//!   `_samples`, all null when there is none; a ratio has no `_mean` and `_stddev`.
//! - Readers ignore unknown keys; a missing key is an error that names it, file and line.

mod error;
mod generation;
mod groups;
mod hex;
mod kinds;
pub(crate) mod read;
mod write;

pub use error::{Fault, RecordError};
pub use generation::{Generation, Phases, Ratios};
pub use hex::Hex64;
pub use kinds::{Head, Kernel, Limit, Machine, Status};
pub use read::{parse_line, read_records};
pub use write::RecordFile;

use serde_json::{Map, Value};

/// Every record's `schema`.
pub const RECORD_SCHEMA: &str = "emel-bench/v1";

/// A record.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// One workload in one lane, on one engine in one configuration.
    Generation(Box<Generation>),
    /// One operator at one shape.
    Kernel(Box<Kernel>),
    /// One dispatch of a state machine, or one meeting of threads.
    Machine(Box<Machine>),
    /// What this machine can do at best.
    Limit(Box<Limit>),
}

impl Record {
    /// Its `kind`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Record::Generation(_) => Generation::KIND,
            Record::Kernel(_) => Kernel::KIND,
            Record::Machine(_) => Machine::KIND,
            Record::Limit(_) => Limit::KIND,
        }
    }

    /// What all kinds share.
    #[must_use]
    pub fn head(&self) -> &Head {
        match self {
            Record::Generation(record) => &record.head,
            Record::Kernel(record) => &record.head,
            Record::Machine(record) => &record.head,
            Record::Limit(record) => &record.head,
        }
    }

    /// The flat object.
    #[must_use]
    pub fn to_object(&self) -> Map<String, Value> {
        match self {
            Record::Generation(record) => record.to_object(),
            Record::Kernel(record) => record.to_object(),
            Record::Machine(record) => record.to_object(),
            Record::Limit(record) => record.to_object(),
        }
    }

    /// The flat object on one line, without a newline.
    #[must_use]
    pub fn to_line(&self) -> String {
        Value::Object(self.to_object()).to_string()
    }

    /// From a flat object.
    ///
    /// # Errors
    /// [`Fault`] of the first key that is wrong or missing.
    pub fn from_object(object: Map<String, Value>) -> Result<Record, Fault> {
        let text = |key: &str| object.get(key).and_then(Value::as_str);
        match object.get("schema") {
            None => return Err(Fault::Missing("schema".to_owned())),
            Some(schema) if schema.as_str() != Some(RECORD_SCHEMA) => {
                return Err(Fault::Schema(schema.to_string()));
            }
            Some(_) => {}
        }
        match text("kind") {
            Some(Generation::KIND) => Ok(Record::Generation(read_kind(object)?)),
            Some(Kernel::KIND) => Ok(Record::Kernel(read_kind(object)?)),
            Some(Machine::KIND) => Ok(Record::Machine(read_kind(object)?)),
            Some(Limit::KIND) => Ok(Record::Limit(read_kind(object)?)),
            _ => match object.get("kind") {
                None => Err(Fault::Missing("kind".to_owned())),
                Some(kind) => Err(Fault::Kind(kind.to_string())),
            },
        }
    }
}

/// A name for this run that no other has: the time and the process.
#[must_use]
pub fn run_id() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seconds = now.map_or(0, |now| now.as_secs());
    format!("{seconds:x}-{:x}", std::process::id())
}

/// A kind of record: a head and a struct whose scalar fields are keys as they stand, and groups of
/// keys. (Serde could flatten the head into the struct, but would then no longer say which key an
/// error is about.)
trait Kind: Default + serde::Serialize + serde::de::DeserializeOwned {
    /// The record's `kind`.
    const KIND: &'static str;

    /// What all kinds share.
    fn head(&self) -> &Head;

    /// The same, to be filled in.
    fn head_mut(&mut self) -> &mut Head;

    /// Writes the groups that are not scalar fields.
    fn write_groups(&self, object: &mut Map<String, Value>);

    /// Reads them.
    fn read_groups(&mut self, object: &Map<String, Value>) -> Result<(), Fault>;

    /// The flat object.
    fn to_object(&self) -> Map<String, Value> {
        let mut object = Map::new();
        object.insert("schema".to_owned(), RECORD_SCHEMA.into());
        object.insert("kind".to_owned(), Self::KIND.into());
        // Serializing a struct of scalars into a value has no way to fail.
        for scalars in [
            serde_json::to_value(self.head()),
            serde_json::to_value(self),
        ] {
            if let Ok(Value::Object(scalars)) = scalars {
                object.extend(scalars);
            }
        }
        self.write_groups(&mut object);
        object
    }
}

fn read_kind<K: Kind>(object: Map<String, Value>) -> Result<Box<K>, Fault> {
    // What a default record writes is what every record must have.
    if let Some((key, _)) = K::default()
        .to_object()
        .iter()
        .find(|(key, _)| !object.contains_key(*key))
    {
        return Err(Fault::Missing(key.clone()));
    }
    let object = Value::Object(object);
    let mut record: K = scalars(&object)?;
    *record.head_mut() = scalars(&object)?;
    if let Value::Object(object) = &object {
        record.read_groups(object)?;
    }
    Ok(Box::new(record))
}

/// The fields of a struct among an object's keys.
fn scalars<T: serde::de::DeserializeOwned>(object: &Value) -> Result<T, Fault> {
    serde_path_to_error::deserialize(object).map_err(|error| Fault::Value {
        key: error.path().to_string(),
        problem: error.inner().to_string(),
    })
}

#[cfg(test)]
pub(in crate::bench) mod tests;
