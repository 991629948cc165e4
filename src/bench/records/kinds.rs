//! What all records share, and the kinds other than generation.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::groups::{read_prefixed, read_ratio, read_samples};
use super::groups::{write_prefixed, write_ratio, write_samples};
use super::{Fault, Kind};
use crate::bench::machine_info::MachineInfo;
use crate::bench::stats::{Ratio, Samples};
use crate::bench::warnings::Warning;

/// How a measurement ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It was taken.
    #[default]
    Ok,
    /// It failed; `error` says why.
    Error,
    /// It was taken, and must not be compared with another engine's.
    NonComparable,
}

impl Status {
    /// As records write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Error => "error",
            Status::NonComparable => "non_comparable",
        }
    }
}

/// What all kinds share. Of an engine that never answered little is known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// How it ended.
    pub status: Status,
    /// Why it failed.
    pub error: Option<String>,
    /// The same in all records of one command.
    pub run_id: String,
    /// Seconds since 1970, when the measurement began.
    pub time_unix: u64,
    /// `emel`, `llama.cpp`, ...
    pub engine: String,
    /// Its version.
    pub engine_version: Option<String>,
    /// Instruction set in use, as the engine names it.
    pub isa: Option<String>,
    /// Threads (of decode, where phases differ).
    pub threads: u64,
    /// The processor's name.
    pub cpu_model: Option<String>,
    /// Physical cores.
    pub cpu_cores: Option<u64>,
    /// Threads that can run at once.
    pub cpu_threads: Option<u64>,
    /// Bytes of memory.
    pub memory_bytes: Option<u64>,
    /// The system and its version.
    pub os: Option<String>,
    /// Running tasks before the measurement, averaged over a minute.
    pub load_average: Option<f64>,
    /// What makes it doubtful.
    pub warnings: Vec<Warning>,
}

impl Head {
    /// Fills in what is known of the machine.
    pub fn set_machine(&mut self, machine: &MachineInfo) {
        self.cpu_model.clone_from(&machine.cpu_model);
        self.cpu_cores = machine.cpu_cores;
        self.cpu_threads = machine.cpu_threads;
        self.memory_bytes = machine.memory_bytes;
        self.os.clone_from(&machine.os);
        self.load_average = machine.load_average;
    }
}

/// One operator at one shape. Sizes that the operator does not have are null.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Kernel {
    /// What all kinds share.
    #[serde(skip)]
    pub head: Head,
    /// The backend's id.
    pub backend: String,
    /// Its configuration.
    pub config: Option<String>,
    /// `matmul`, `attention` or `rms_norm`.
    pub kernel: String,
    /// The weights' type: `q4_k`.
    pub ty: Option<String>,
    /// Output elements a token.
    pub rows: Option<u64>,
    /// Length of a dot product.
    pub cols: Option<u64>,
    /// Tokens.
    pub tokens: Option<u64>,
    /// Query heads.
    pub n_head: Option<u64>,
    /// Key and value heads.
    pub n_head_kv: Option<u64>,
    /// Width of a head.
    pub head_dim: Option<u64>,
    /// Cached positions.
    pub depth: Option<u64>,
    /// Elements of a normalized row.
    pub width: Option<u64>,
    /// What exactly ran, in words.
    pub variant: Option<String>,
    /// Operations in each sample.
    pub operations: Option<u64>,
    /// 10^9 operations (a multiplication and an addition are two) a second, from the median.
    pub gops: Option<f64>,
    /// Bytes of operands read a second, from the median.
    pub bytes_per_second: Option<f64>,
    /// Time of one operation, in nanoseconds: `ns_*`.
    #[serde(skip)]
    pub ns: Option<Samples>,
    /// Options as they were applied: `options_*`.
    #[serde(skip)]
    pub options: Map<String, Value>,
    /// In another engine's record: EMEL's speed over this engine's, `emel_ratio_*`.
    #[serde(skip)]
    pub emel_ratio: Option<Ratio>,
}

/// One dispatch of a state machine, or one meeting of threads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// What all kinds share.
    #[serde(skip)]
    pub head: Head,
    /// Its name: a machine's, `fork_join`, `barrier`.
    pub machine: String,
    /// Time of one dispatch or meeting, in nanoseconds: `ns_*`.
    #[serde(skip)]
    pub ns: Option<Samples>,
    /// In another engine's record: EMEL's speed over this engine's, `emel_ratio_*`.
    #[serde(skip)]
    pub emel_ratio: Option<Ratio>,
}

/// What this machine can do at best.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// What all kinds share.
    #[serde(skip)]
    pub head: Head,
    /// `read_bandwidth`, `int8_dot`, ...
    pub limit: String,
    /// Size of a page, where it matters.
    pub page_bytes: Option<u64>,
    /// Bytes read over and over, where it matters.
    pub buffer_bytes: Option<u64>,
    /// The rate.
    pub value: Option<f64>,
    /// Its unit: `bytes/s`, `ops/s`.
    pub unit: String,
}

fn read_ratio_if_any(object: &Map<String, Value>) -> Result<Option<Ratio>, Fault> {
    match object.contains_key("emel_ratio_median") {
        true => read_ratio(object, "emel_ratio"),
        false => Ok(None),
    }
}

impl Kind for Kernel {
    const KIND: &'static str = "kernel";

    fn head(&self) -> &Head {
        &self.head
    }

    fn head_mut(&mut self) -> &mut Head {
        &mut self.head
    }

    fn write_groups(&self, object: &mut Map<String, Value>) {
        write_samples(object, "ns", self.ns.as_ref());
        write_prefixed(object, "options", &self.options);
        if let Some(ratio) = &self.emel_ratio {
            write_ratio(object, "emel_ratio", Some(ratio));
        }
    }

    fn read_groups(&mut self, object: &Map<String, Value>) -> Result<(), Fault> {
        self.ns = read_samples(object, "ns")?;
        self.options = read_prefixed(object, "options")?;
        self.emel_ratio = read_ratio_if_any(object)?;
        Ok(())
    }
}

impl Kind for Machine {
    const KIND: &'static str = "machine";

    fn head(&self) -> &Head {
        &self.head
    }

    fn head_mut(&mut self) -> &mut Head {
        &mut self.head
    }

    fn write_groups(&self, object: &mut Map<String, Value>) {
        write_samples(object, "ns", self.ns.as_ref());
        if let Some(ratio) = &self.emel_ratio {
            write_ratio(object, "emel_ratio", Some(ratio));
        }
    }

    fn read_groups(&mut self, object: &Map<String, Value>) -> Result<(), Fault> {
        self.ns = read_samples(object, "ns")?;
        self.emel_ratio = read_ratio_if_any(object)?;
        Ok(())
    }
}

impl Kind for Limit {
    const KIND: &'static str = "limit";

    fn head(&self) -> &Head {
        &self.head
    }

    fn head_mut(&mut self) -> &mut Head {
        &mut self.head
    }

    fn write_groups(&self, _object: &mut Map<String, Value>) {}

    fn read_groups(&mut self, _object: &Map<String, Value>) -> Result<(), Fault> {
        Ok(())
    }
}
