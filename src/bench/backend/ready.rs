//! Whether a backend can run as it is asked to: before anything is measured.

use std::collections::BTreeSet;
use std::path::Path;

use super::super::BenchError;
use super::{BackendConfig, BackendManifest, Place};

/// What stands for no backend at all.
pub const NONE: &str = "none";

impl BackendManifest {
    /// The configurations of `set` (or the one of that name) that a processor with `cpu_flags` can
    /// run, all of them built.
    ///
    /// # Errors
    /// [`BenchError::Usage`] when there is no such configuration, [`BenchError::NoReference`] when
    /// one is not built.
    pub fn ready(
        &self,
        set: &str,
        cpu_flags: &BTreeSet<String>,
        place: &Place,
    ) -> Result<Vec<&BackendConfig>, BenchError> {
        let configs = self.configs_of(set, cpu_flags);
        if configs.is_empty() {
            let sets = self.configs.iter().flat_map(|config| &config.sets);
            let sets: BTreeSet<&str> = sets.map(String::as_str).collect();
            let names = self.configs.iter().map(|config| config.name.as_str());
            return Err(BenchError::Usage(format!(
                "{} has no configuration '{set}' that this processor can run; there are {}",
                self.id,
                sets.into_iter().chain(names).collect::<Vec<_>>().join(", ")
            )));
        }
        for config in &configs {
            let command = self.command_line(config, place);
            let program = Path::new(command.first().map_or("", String::as_str));
            if program.components().count() > 1 && !program.is_file() {
                return Err(BenchError::NoReference {
                    name: self.name.clone(),
                    program: program.to_owned(),
                    command: self.build_command.clone(),
                });
            }
        }
        Ok(configs)
    }
}
