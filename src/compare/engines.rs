//! Which engines take part: EMEL, and the references in their configurations.

use std::time::Duration;

use super::error::CompareError;
use crate::bench::backend::{BackendConfig, BackendManifest, Contender, Place};
use crate::bench::machine_info::MachineInfo;
use crate::bench::run::place;
use crate::bench::worker::{level_name, named_options, route_name};
use crate::bench::workload::LibraryArgs;

/// The engines of a comparison.
#[derive(Clone, Debug, clap::Args)]
pub struct EngineArgs {
    /// Backend to compare with, by its manifest's id; may be given several times
    #[arg(
        short,
        long = "reference",
        value_name = "ID",
        default_value = "llama.cpp"
    )]
    pub references: Vec<String>,
    /// The configuration to compare with [default: the first of the spread that this processor
    /// can run]
    #[arg(long, value_name = "NAME")]
    pub reference_config: Option<String>,
    /// The configurations that show how far the reference agrees with itself: a set of the
    /// manifest; `none` runs the one alone
    #[arg(long, value_name = "SET", default_value = "spread")]
    pub spread: String,
    /// Threads of every engine [default: physical cores]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Instruction set of EMEL's kernels
    #[arg(long, value_name = "LEVEL", default_value = "auto", value_parser = level_name)]
    pub isa: String,
    /// EMEL's prefill route
    #[arg(long, value_name = "ROUTE", default_value = "auto", value_parser = route_name)]
    pub route: String,
    /// Longest wait for one answer of an engine, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "3600",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout: u64,
}

/// The set that stands for no spread at all.
const NONE: &str = "none";

/// The engines, ready to be started.
#[derive(Clone, Debug)]
pub struct Engines {
    /// EMEL.
    pub emel: Contender,
    /// Of each reference: the configuration to compare with, then the others.
    pub references: Vec<Vec<Contender>>,
}

impl Engines {
    /// All of them, EMEL first, then each reference's first, then the others.
    pub fn all(&self) -> Vec<Contender> {
        let firsts = self.references.iter().filter_map(|all| all.first());
        let others = self.references.iter().flat_map(|all| all.iter().skip(1));
        let emel = std::iter::once(&self.emel);
        emel.chain(firsts).chain(others).cloned().collect()
    }
}

impl EngineArgs {
    /// Threads of every engine.
    pub fn lanes(&self, machine: &MachineInfo) -> usize {
        self.threads
            .map_or_else(|| machine.lane_threads(), usize::from)
    }

    /// The longest wait for an answer.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }

    /// Finds the manifests and checks that what is asked for can run.
    ///
    /// # Errors
    /// [`CompareError`].
    pub fn engines(&self, library: &LibraryArgs) -> Result<Engines, CompareError> {
        let root = library.folder()?;
        let (place, machine) = (place(&root)?, MachineInfo::read());
        let threads = self.lanes(&machine);
        let manifests = BackendManifest::read_all(&root.join("backends"))?;
        let mut references = Vec::new();
        let mut seen: Vec<&String> = Vec::new();
        for id in &self.references {
            if seen.contains(&id) {
                continue;
            }
            seen.push(id);
            let manifest = BackendManifest::find(&manifests, id)?;
            if !manifest.capabilities.contains("force") {
                return Err(CompareError::Usage(format!(
                    "backend '{id}' cannot be compared with: it has not the capability `force`"
                )));
            }
            let configs = self.configs(manifest, &machine, &place)?;
            let of = |config: &BackendConfig| {
                Contender::reference(manifest, config, &place, threads, None)
            };
            references.push(configs.into_iter().map(of).collect());
        }
        Ok(Engines {
            emel: Contender::emel(&place, threads, named_options(&self.isa, &self.route)),
            references,
        })
    }

    /// The configuration to compare with, and after it the others of the spread.
    fn configs<'m>(
        &self,
        manifest: &'m BackendManifest,
        machine: &MachineInfo,
        place: &Place,
    ) -> Result<Vec<&'m BackendConfig>, CompareError> {
        let first = self.reference_config.as_deref();
        let wanted = match (self.spread.as_str(), first) {
            (NONE, None) => "spread",
            (NONE, Some(first)) => first,
            (set, _) => set,
        };
        let mut configs = manifest.ready(wanted, &machine.cpu_flags, place)?;
        if let Some(first) = first {
            let first = manifest.ready(first, &machine.cpu_flags, place)?;
            configs.retain(|config| config.name != first[0].name);
            configs.insert(0, first[0]);
        }
        if self.spread == NONE {
            configs.truncate(1);
        }
        Ok(configs)
    }
}
