//! Backend manifests, `benchdata/backends/ID.json`: what an engine's program is called, how to
//! build it, and the configurations in which it may run.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A manifest's `schema`.
pub const SCHEMA: &str = "emel-backend/v1";

/// A manifest that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// It cannot be read.
    #[error("cannot read {}: {source}", file.display())]
    Read {
        /// The manifest.
        file: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is no JSON, or not of the right form.
    #[error("{}: {source}", file.display())]
    Form {
        /// The manifest.
        file: PathBuf,
        /// What and where.
        source: serde_json::Error,
    },
    /// A field says something impossible.
    #[error("{}: `{field}` {problem}", file.display())]
    Field {
        /// The manifest.
        file: PathBuf,
        /// The field.
        field: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// There is no backend of that name.
    #[error("no backend '{id}': there are {known}")]
    Unknown {
        /// What was asked for.
        id: String,
        /// What there is.
        known: String,
    },
}

/// An engine as a program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackendManifest {
    /// [`SCHEMA`].
    pub schema: String,
    /// Its id: the file's stem.
    pub id: String,
    /// Its name for people.
    pub name: String,
    /// Program and arguments. `{cache}`, `{repo}`, `{self}` and `{build}` stand for the cache
    /// folder, this tree, this program and the configuration's build.
    pub command: Vec<String>,
    /// The command that builds it.
    pub build_command: String,
    /// What its traces and records call the engine.
    pub engine: String,
    /// `run`, `kernels`, `barrier`.
    pub capabilities: BTreeSet<String>,
    /// How it may run.
    pub configs: Vec<BackendConfig>,
    /// What changes the bits of its results.
    #[serde(default)]
    pub changes_bits: Vec<String>,
}

/// One way to run a backend.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackendConfig {
    /// Its name.
    pub name: String,
    /// Which build.
    #[serde(default)]
    pub build: String,
    /// Options for the engine.
    #[serde(default)]
    pub options: Map<String, Value>,
    /// Processor flags (as Linux names them) without which it is left out.
    #[serde(default)]
    pub needs_cpu: Vec<String>,
    /// The sets it belongs to: `best`, `spread`.
    #[serde(default)]
    pub sets: BTreeSet<String>,
    /// Threads of decode, where they are not the lane's.
    pub threads: Option<usize>,
    /// Threads of prompts, where they are not the lane's.
    pub threads_batch: Option<usize>,
    /// Physical batch, where it is not the default.
    pub n_ubatch: Option<usize>,
}

/// What the placeholders of a command stand for.
#[derive(Clone, Debug)]
pub struct Place {
    /// The cache folder.
    pub cache: PathBuf,
    /// This tree.
    pub repo: PathBuf,
    /// This program.
    pub program: PathBuf,
}

impl BackendManifest {
    /// Reads every manifest of a folder, by id.
    ///
    /// # Errors
    /// [`ManifestError`], of the first bad one.
    pub fn read_all(folder: &Path) -> Result<Vec<Self>, ManifestError> {
        let fail = |source| ManifestError::Read {
            file: folder.to_owned(),
            source,
        };
        let mut files = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(fail)? {
            let file = entry.map_err(fail)?.path();
            if file
                .extension()
                .is_some_and(|extension| extension == "json")
            {
                files.push(file);
            }
        }
        files.sort();
        files.iter().map(|file| Self::read(file)).collect()
    }

    /// Reads one manifest.
    ///
    /// # Errors
    /// [`ManifestError`].
    pub fn read(file: &Path) -> Result<Self, ManifestError> {
        let text = std::fs::read_to_string(file).map_err(|source| ManifestError::Read {
            file: file.to_owned(),
            source,
        })?;
        let manifest: Self = serde_json::from_str(&text).map_err(|source| ManifestError::Form {
            file: file.to_owned(),
            source,
        })?;
        manifest.check(file)?;
        Ok(manifest)
    }

    /// The one called `id` among `all`.
    ///
    /// # Errors
    /// [`ManifestError::Unknown`].
    pub fn find<'a>(all: &'a [Self], id: &str) -> Result<&'a Self, ManifestError> {
        let known = || all.iter().map(|one| one.id.as_str()).collect::<Vec<_>>();
        all.iter()
            .find(|manifest| manifest.id == id)
            .ok_or_else(|| ManifestError::Unknown {
                id: id.to_owned(),
                known: known().join(", "),
            })
    }

    fn check(&self, file: &Path) -> Result<(), ManifestError> {
        let fail = |field, problem: String| {
            Err(ManifestError::Field {
                file: file.to_owned(),
                field,
                problem,
            })
        };
        if self.schema != SCHEMA {
            return fail("schema", format!("is '{}', not '{SCHEMA}'", self.schema));
        }
        if file.file_stem().is_none_or(|stem| stem != self.id.as_str()) {
            return fail("id", format!("is '{}', not the file's name", self.id));
        }
        if self.command.first().is_none_or(String::is_empty) {
            return fail("command", "names no program".to_owned());
        }
        if self.configs.is_empty() {
            return fail("configs", "is empty".to_owned());
        }
        let mut names = BTreeSet::new();
        for config in &self.configs {
            if !names.insert(&config.name) {
                return fail("configs", format!("holds '{}' twice", config.name));
            }
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
            if config.name.is_empty() || !config.name.chars().all(is_plain) {
                return fail(
                    "configs",
                    format!("'{}' must be letters, digits and any of _.-", config.name),
                );
            }
            let numbers = [config.threads, config.threads_batch, config.n_ubatch];
            if numbers.contains(&Some(0)) {
                return fail(
                    "configs",
                    format!("'{}' asks for 0 of something", config.name),
                );
            }
        }
        Ok(())
    }

    /// The configurations of `set` (or the one of that name) that a processor with `cpu_flags`
    /// can run.
    pub fn configs_of<'a>(
        &'a self,
        set: &str,
        cpu_flags: &BTreeSet<String>,
    ) -> Vec<&'a BackendConfig> {
        let wanted = |config: &&BackendConfig| {
            let fits = config.needs_cpu.iter().all(|flag| cpu_flags.contains(flag));
            (config.sets.contains(set) && fits) || config.name == set
        };
        self.configs.iter().filter(wanted).collect()
    }

    /// The command line for `config`.
    pub fn command_line(&self, config: &BackendConfig, place: &Place) -> Vec<String> {
        let fill = |word: &String| {
            word.replace("{cache}", &place.cache.to_string_lossy())
                .replace("{repo}", &place.repo.to_string_lossy())
                .replace("{self}", &place.program.to_string_lossy())
                .replace("{build}", &config.build)
        };
        self.command.iter().map(fill).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn manifest() -> Value {
        json!({
            "schema": SCHEMA, "id": "x", "name": "X", "engine": "x",
            "command": ["{cache}/x/{build}/run", "--flag"], "build_command": "make x",
            "capabilities": ["run"],
            "configs": [
                {"name": "a", "build": "native", "needs_cpu": ["amx_int8"], "sets": ["best"]},
                {"name": "b", "build": "plain", "sets": ["best", "spread"], "threads": 1},
            ],
        })
    }

    fn read(value: &Value) -> Result<BackendManifest, String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("x.json"), value.to_string()).unwrap();
        let read = BackendManifest::read_all(folder.path()).map_err(|error| error.to_string());
        read.map(|mut all| all.remove(0))
    }

    #[test]
    fn configurations_are_chosen_by_set_name_and_processor() {
        let manifest = read(&manifest()).unwrap();
        let names = |set: &str, flags: &[&str]| {
            let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
            let configs = manifest.configs_of(set, &flags);
            configs.iter().map(|c| c.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(names("best", &["amx_int8"]), ["a", "b"]);
        assert_eq!(names("best", &[]), ["b"]);
        assert_eq!(names("spread", &["amx_int8"]), ["b"]);
        assert_eq!(names("a", &[]), ["a"]);
        let place = Place {
            cache: "/c".into(),
            repo: "/r".into(),
            program: "/p".into(),
        };
        let command = manifest.command_line(&manifest.configs[1], &place);
        assert_eq!(command, ["/c/x/plain/run", "--flag"]);
    }

    #[test]
    fn bad_manifests_name_file_and_field() {
        let changed = |field: &str, value: Value| {
            let mut bad = manifest();
            bad[field] = value;
            read(&bad).unwrap_err()
        };
        for (field, value) in [
            ("schema", json!("emel-backend/v9")),
            ("id", json!("y")),
            ("command", json!([])),
            ("configs", json!([])),
            ("configs", json!([{"name": "a"}, {"name": "a"}])),
            ("configs", json!([{"name": "a", "threads": 0}])),
            ("configs", json!([{"name": "../a"}])),
        ] {
            let error = changed(field, value);
            assert!(error.contains("x.json") && error.contains(field), "{error}");
        }
        let error = changed("colour", json!("red"));
        assert!(error.contains("unknown field `colour`"), "{error}");
    }
}
