//! EMEL's own options in a configuration: `isa`, `route`, `spec_type`, `cache_type_k`,
//! `cache_type_v` and `packed_cache`, as emel-run's flags of those names.

use serde_json::{Map, Value};

use crate::engine::{ExecutionPolicy, Route, RoutePolicy, SpeculationPolicy};
use emel_kernels::{CacheType, Level};

/// An option that EMEL does not have.
#[derive(Debug, thiserror::Error)]
pub enum OptionsError {
    /// No such option.
    #[error(
        "emel has no option `{0}`: it has `isa`, `route`, `spec_type`, `cache_type_k`, \
         `cache_type_v` and `packed_cache`"
    )]
    Unknown(String),
    /// A value it cannot have.
    #[error("option `{option}`: {problem}")]
    Value {
        /// The option.
        option: &'static str,
        /// What is wrong.
        problem: String,
    },
}

/// The options, read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// `None` is the processor's best.
    level: Option<Level>,
    /// `None` lets the engine choose.
    route: Option<Route>,
    /// Whether output is drafted ahead.
    speculate: bool,
    /// Whether a packed copy of the model is mapped, and made if need be.
    pub packed_cache: bool,
    /// How keys are cached.
    pub cache_k: CacheType,
    /// How values are cached.
    pub cache_v: CacheType,
}

/// The options that name how keys and how values are cached, of EMEL and of llama-reference.
pub const CACHE_TYPES: [&str; 2] = ["cache_type_k", "cache_type_v"];

/// What stands for a choice by the engine.
pub const AUTO: &str = "auto";

fn read<T: std::str::FromStr>(
    option: &'static str,
    value: &Value,
) -> Result<Option<T>, OptionsError>
where
    T::Err: std::fmt::Display,
{
    let fail = |problem: String| OptionsError::Value { option, problem };
    match value.as_str() {
        Some(AUTO) => Ok(None),
        Some(name) => name
            .parse()
            .map(Some)
            .map_err(|e: T::Err| fail(e.to_string())),
        None => Err(fail(format!("{value} is no name"))),
    }
}

/// What stands for drafts that are made from the text.
const NGRAM: &str = "ngram-simple";
/// What stands for no drafts.
const NONE: &str = "none";

/// How output is drafted ahead, as a flag takes it.
///
/// # Errors
/// What is wrong with the name.
pub fn spec_type_name(name: &str) -> Result<String, String> {
    match name {
        NONE | NGRAM => Ok(name.to_owned()),
        _ => Err(format!("'{name}' is none of {NONE}, {NGRAM}")),
    }
}

/// A level's name, or `auto`, as a flag takes it.
///
/// # Errors
/// What is wrong with the name.
pub fn level_name(name: &str) -> Result<String, String> {
    let known = name == AUTO
        || name
            .parse::<Level>()
            .map_err(|error| format!("{error}, or {AUTO} for the best one here"))?
            .is_available();
    match known {
        true => Ok(name.to_owned()),
        false => Err(format!("this processor has no {name} instructions")),
    }
}

/// A route's name, or `auto`, as a flag takes it.
///
/// # Errors
/// What is wrong with the name.
pub fn route_name(name: &str) -> Result<String, String> {
    if name != AUTO {
        name.parse::<Route>().map_err(|error| error.to_string())?;
    }
    Ok(name.to_owned())
}

/// The options as a configuration holds them, from names that were checked.
pub fn named_options(isa: &str, route: &str) -> Map<String, Value> {
    let pairs = [("isa", isa), ("route", route)];
    let pairs = pairs.map(|(name, value)| (name.to_owned(), Value::from(value)));
    pairs.into_iter().collect()
}

/// The same with the way drafts are made, if any.
pub fn speculating(mut options: Map<String, Value>, spec_type: &str) -> Map<String, Value> {
    if spec_type != NONE {
        options.insert("spec_type".to_owned(), Value::from(spec_type));
    }
    options
}

/// The option that a packed copy of the model is mapped.
const PACKED: &str = "packed_cache";

/// The same with a packed copy of the model, if it is wanted.
pub fn from_packed_cache(mut options: Map<String, Value>, wanted: bool) -> Map<String, Value> {
    if wanted {
        options.insert(PACKED.to_owned(), true.into());
    }
    options
}

impl Options {
    /// Reads a configuration's options.
    ///
    /// # Errors
    /// [`OptionsError`].
    pub fn read(options: &Map<String, Value>) -> Result<Self, OptionsError> {
        let mut all = Options::default();
        for (name, value) in options {
            match name.as_str() {
                "isa" => all.level = read("isa", value)?,
                "route" => all.route = read("route", value)?,
                "spec_type" => {
                    let fail = |problem| OptionsError::Value {
                        option: "spec_type",
                        problem,
                    };
                    let text = value.as_str().unwrap_or_default();
                    all.speculate = spec_type_name(text).map_err(fail)? == NGRAM;
                }
                PACKED => {
                    let fail = || OptionsError::Value {
                        option: PACKED,
                        problem: format!("{value} is neither true nor false"),
                    };
                    all.packed_cache = value.as_bool().ok_or_else(fail)?;
                }
                "cache_type_k" => all.cache_k = read(CACHE_TYPES[0], value)?.unwrap_or_default(),
                "cache_type_v" => all.cache_v = read(CACHE_TYPES[1], value)?.unwrap_or_default(),
                _ => return Err(OptionsError::Unknown(name.clone())),
            }
        }
        Ok(all)
    }

    /// The execution policy with so many lanes.
    pub fn execution(&self, lanes: usize, lanes_batch: usize) -> ExecutionPolicy {
        let detected = ExecutionPolicy::detect();
        ExecutionPolicy {
            level: self.level.unwrap_or(detected.level),
            ..detected.with_lanes(lanes, lanes_batch)
        }
    }

    /// The route policy.
    pub fn routes(&self) -> RoutePolicy {
        self.route
            .map_or_else(RoutePolicy::default, RoutePolicy::only)
    }

    /// The speculation policy.
    pub fn speculation(&self) -> SpeculationPolicy {
        match self.speculate {
            true => SpeculationPolicy::default(),
            false => SpeculationPolicy::off(),
        }
    }

    /// The route's name.
    pub fn route_name(&self) -> &'static str {
        self.route.map_or(AUTO, Route::name)
    }

    /// The options as they were applied.
    pub fn applied(&self) -> Map<String, Value> {
        let level = self.level.unwrap_or_else(Level::best).name();
        let drafts = if self.speculate { NGRAM } else { NONE };
        let all = speculating(named_options(level, self.route_name()), drafts);
        let mut all = from_packed_cache(all, self.packed_cache);
        for (name, ty) in CACHE_TYPES.into_iter().zip([self.cache_k, self.cache_v]) {
            all.insert(name.to_owned(), ty.name().into());
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn options(value: Value) -> Result<Options, String> {
        let map = value.as_object().expect("an object").clone();
        Options::read(&map).map_err(|error| error.to_string())
    }

    #[test]
    fn options_are_read_and_told_as_applied() {
        let chosen = options(json!({"isa": "scalar", "route": "chunk4"})).unwrap();
        assert_eq!(chosen.execution(2, 3).level, Level::Scalar);
        assert_eq!(
            (
                chosen.execution(2, 3).lanes,
                chosen.execution(2, 3).lanes_batch
            ),
            (2, 3)
        );
        assert_eq!(chosen.routes(), RoutePolicy::only(Route::Chunk4));
        let applied = Value::from(chosen.applied());
        assert_eq!(
            applied,
            json!({"isa": "scalar", "route": "chunk4",
                   "cache_type_k": "f16", "cache_type_v": "f16"})
        );
        let packed = options(json!({"isa": "scalar", "packed_cache": true})).unwrap();
        assert!(packed.packed_cache && !chosen.packed_cache);
        assert_eq!(packed.applied()["packed_cache"], true);
        let auto = options(json!({"isa": "auto", "cache_type_k": "q8_0"})).unwrap();
        assert_eq!(
            (auto.cache_k, auto.cache_v),
            (CacheType::Q8_0, CacheType::F16)
        );
        let applied = Value::from(auto.applied());
        assert_eq!(
            applied,
            json!({"isa": Level::best().name(), "route": "auto",
                   "cache_type_k": "q8_0", "cache_type_v": "f16"})
        );
    }

    #[test]
    fn drafts_are_told_only_when_there_are_any() {
        let plain = options(json!({"isa": "scalar", "spec_type": "none"})).unwrap();
        assert_eq!(plain.speculation(), SpeculationPolicy::off());
        assert_eq!(plain.applied().get("spec_type"), None);
        let drafted = options(json!({"isa": "scalar", "spec_type": "ngram-simple"})).unwrap();
        assert_eq!(drafted.speculation(), SpeculationPolicy::default());
        assert_eq!(drafted.applied()["spec_type"], "ngram-simple");
        assert_eq!(spec_type_name("none"), Ok("none".to_owned()));
        assert!(spec_type_name("eagle").is_err());
    }

    #[test]
    fn flags_are_checked_at_once() {
        assert_eq!(level_name("auto"), Ok("auto".to_owned()));
        assert_eq!(level_name("scalar"), Ok("scalar".to_owned()));
        assert!(level_name("mmx").unwrap_err().contains("amx, or auto"));
        assert_eq!(route_name("wide"), Ok("wide".to_owned()));
        assert!(route_name("diagonal").is_err());
    }

    #[test]
    fn what_it_does_not_have_is_refused() {
        for (bad, says) in [
            (json!({"flash": true}), "flash"),
            (json!({"isa": "mmx"}), "mmx"),
            (json!({"route": 4}), "no name"),
            (json!({"spec_type": "eagle"}), "ngram-simple"),
            (json!({"spec_type": true}), "ngram-simple"),
            (json!({"packed_cache": "yes"}), "neither true nor false"),
            (json!({"cache_type_v": "q4_0"}), "use f16, q8_0 or f32"),
        ] {
            let error = options(bad).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}
