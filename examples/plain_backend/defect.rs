//! What can be made wrong on purpose, so that a comparison can be asked to find it.
//!
//! | `defect` | what is wrong | first wrong tensor |
//! | --- | --- | --- |
//! | `rope_base` | every rotation's base is a tenth of what the file says | layer 0, `q` |
//! | `shifted_rows:L` | rows of layer L's `ffn_down` move down by one, the last becomes the first | layer L, `ffn_out` |
//! | `swapped_kv_heads:L` | layer L's first two key heads change places, and its value heads too | layer L, `k` |
//! | `f16_accumulation:L` | layer L's matrix products are summed in f16 | layer L, `q` |
//! | `no_bos` | the BOS that the model adds to every text is left out | none: other tokens |
//! | `lost_merge:TOKEN` | the tokenizer never joins two parts to TOKEN, spelled as in the file | none: other tokens |
//! | `late_stop` | an end-of-generation token is seen one token late | none: one token more |
//!
//! A defect that would change nothing (no such layer, one head, no BOS, no such merge) is refused.

use std::fmt;
use std::str::FromStr;

use emel::model::ModelSpec;
use serde_json::{Map, Value};

/// The option's name.
const OPTION: &str = "defect";
/// The option's value for no defect.
const NONE: &str = "none";

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Defect {
    /// Rotations have another base.
    RopeBase,
    /// A layer's `ffn_down` has its rows in other places.
    ShiftedRows(usize),
    /// A layer's first two key and value heads have changed places.
    SwappedKvHeads(usize),
    /// A layer's matrix products are summed in f16.
    F16Accumulation(usize),
    /// Texts get no BOS.
    NoBos,
    /// The tokenizer cannot make this token.
    LostMerge(String),
    /// An end-of-generation token is seen one token late.
    LateStop,
}

/// A defect that cannot be planted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DefectError {
    /// Another option.
    #[error("option `{0}` is not known: there is `{OPTION}`")]
    Option(String),
    /// Not a string.
    #[error("option `{OPTION}`: {0} is no string")]
    NoString(String),
    /// No such defect.
    #[error(
        "option `{OPTION}`: '{0}' is not known: there are rope_base, shifted_rows:LAYER, \
         swapped_kv_heads:LAYER, f16_accumulation:LAYER, no_bos, lost_merge:TOKEN, late_stop, {NONE}"
    )]
    Unknown(String),
    /// The layer does not exist.
    #[error("option `{OPTION}`: '{defect}' needs that layer, and the model has {n_layer}")]
    Layer {
        /// The defect.
        defect: Defect,
        /// Layers of the model.
        n_layer: usize,
    },
    /// There are no two heads.
    #[error("option `{OPTION}`: '{0}' needs two heads, and the layer has one key and value head")]
    Heads(Defect),
    /// The model adds no BOS.
    #[error("option `{OPTION}`: '{NO_BOS}' changes nothing, this model's texts get no BOS")]
    NoBos,
    /// Nothing joins to that token.
    #[error("option `{OPTION}`: no two parts are joined to '{0}' by this tokenizer")]
    Merge(String),
}

const ROPE_BASE: &str = "rope_base";
const SHIFTED_ROWS: &str = "shifted_rows";
const SWAPPED_KV_HEADS: &str = "swapped_kv_heads";
const F16_ACCUMULATION: &str = "f16_accumulation";
const NO_BOS: &str = "no_bos";
const LOST_MERGE: &str = "lost_merge";
const LATE_STOP: &str = "late_stop";

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Defect::RopeBase => f.write_str(ROPE_BASE),
            Defect::ShiftedRows(layer) => write!(f, "{SHIFTED_ROWS}:{layer}"),
            Defect::SwappedKvHeads(layer) => write!(f, "{SWAPPED_KV_HEADS}:{layer}"),
            Defect::F16Accumulation(layer) => write!(f, "{F16_ACCUMULATION}:{layer}"),
            Defect::NoBos => f.write_str(NO_BOS),
            Defect::LostMerge(token) => write!(f, "{LOST_MERGE}:{token}"),
            Defect::LateStop => f.write_str(LATE_STOP),
        }
    }
}

impl FromStr for Defect {
    type Err = DefectError;

    fn from_str(text: &str) -> Result<Self, DefectError> {
        let unknown = || DefectError::Unknown(text.to_owned());
        let layer = |number: &str| number.parse().map_err(|_| unknown());
        match text.split_once(':') {
            None if text == ROPE_BASE => Ok(Defect::RopeBase),
            None if text == NO_BOS => Ok(Defect::NoBos),
            None if text == LATE_STOP => Ok(Defect::LateStop),
            Some((SHIFTED_ROWS, number)) => layer(number).map(Defect::ShiftedRows),
            Some((SWAPPED_KV_HEADS, number)) => layer(number).map(Defect::SwappedKvHeads),
            Some((F16_ACCUMULATION, number)) => layer(number).map(Defect::F16Accumulation),
            Some((LOST_MERGE, token)) => Ok(Defect::LostMerge(token.to_owned())),
            _ => Err(unknown()),
        }
    }
}

impl Defect {
    /// Reads the options of a `load`.
    pub fn read(options: &Map<String, Value>) -> Result<Option<Self>, DefectError> {
        if let Some(other) = options.keys().find(|key| *key != OPTION) {
            return Err(DefectError::Option(other.clone()));
        }
        match options.get(OPTION) {
            None => Ok(None),
            Some(Value::String(text)) if text == NONE => Ok(None),
            Some(Value::String(text)) => text.parse().map(Some),
            Some(other) => Err(DefectError::NoString(other.to_string())),
        }
    }

    /// The options as they were applied.
    pub fn applied(defect: Option<&Self>) -> Map<String, Value> {
        let text = defect.map_or_else(|| NONE.to_owned(), Defect::to_string);
        Map::from_iter([(OPTION.to_owned(), Value::String(text))])
    }

    /// Whether a model has what this spoils.
    pub fn check(&self, spec: &ModelSpec) -> Result<(), DefectError> {
        let (Defect::ShiftedRows(layer)
        | Defect::SwappedKvHeads(layer)
        | Defect::F16Accumulation(layer)) = self
        else {
            return Ok(());
        };
        let Some(layer) = spec.layers.get(*layer) else {
            return Err(DefectError::Layer {
                defect: self.clone(),
                n_layer: spec.layers.len(),
            });
        };
        match self {
            Defect::SwappedKvHeads(_) if layer.n_head_kv < 2 => {
                Err(DefectError::Heads(self.clone()))
            }
            _ => Ok(()),
        }
    }
}
