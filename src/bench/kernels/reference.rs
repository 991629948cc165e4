//! Where references are, and which of their configurations a comparison takes.

use super::pairs::Side;
use crate::bench::BenchError;
use crate::bench::backend::{BackendManifest, NONE, Place};
use crate::bench::machine_info::MachineInfo;
use crate::bench::run;
use crate::cli::interrupt::Interrupt;
use std::path::{Path, PathBuf};

/// The flags that choose a reference.
#[derive(clap::Args)]
pub struct ReferenceArgs {
    /// Backend to measure against, by its manifest's id; `none` measures EMEL alone
    #[arg(short, long, value_name = "ID", default_value = "llama.cpp")]
    pub reference: String,
    /// `best` tries the reference's configurations and takes the fastest for each case; or a
    /// configuration's name
    #[arg(long, value_name = "NAME", default_value = "best")]
    pub reference_config: String,
    /// Folder with backends/ in it [default: benchdata here, or where this program was built]
    #[arg(long, value_name = "DIR", env = "EMEL_BENCHDATA")]
    pub benchdata: Option<PathBuf>,
}

impl ReferenceArgs {
    fn root(&self) -> PathBuf {
        let built = || Path::new(env!("CARGO_MANIFEST_DIR")).join("benchdata");
        let here = || Some(PathBuf::from("benchdata")).filter(|path| path.is_dir());
        self.benchdata.clone().or_else(here).unwrap_or_else(built)
    }

    /// What the placeholders of commands stand for.
    ///
    /// # Errors
    ///
    /// This program cannot find itself.
    pub fn place(&self) -> Result<Place, BenchError> {
        run::place(&self.root())
    }

    /// The reference in each of the configurations asked for, none when there is to be none.
    ///
    /// # Errors
    ///
    /// A manifest that cannot be used; a reference without `capability`, without such a
    /// configuration for this processor, or that is not built.
    pub fn sides(
        &self,
        capability: &str,
        place: &Place,
        interrupt: &Interrupt,
    ) -> Result<Vec<Side>, BenchError> {
        if self.reference == NONE {
            return Ok(Vec::new());
        }
        let all = BackendManifest::read_all(&self.root().join("backends"))?;
        let manifest = BackendManifest::find(&all, &self.reference)?;
        if !manifest.capabilities.contains(capability) {
            return Err(BenchError::Usage(format!(
                "{} does not measure {capability}: choose another --reference, or none",
                manifest.id
            )));
        }
        let flags = MachineInfo::read().cpu_flags;
        let configs = manifest.ready(&self.reference_config, &flags, place)?;
        let side = |config| Side::reference(manifest, config, place, interrupt);
        Ok(configs.into_iter().map(side).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sides(reference: &str, config: &str, program: &str) -> Result<Vec<String>, String> {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        std::fs::create_dir(root.join("backends")).unwrap();
        let manifest = json!({
            "schema": "emel-backend/v1", "id": "x", "name": "X", "engine": "x",
            "command": [program], "build_command": "make x", "capabilities": ["kernels"],
            "configs": [{"name": "a", "sets": ["best"]}, {"name": "b", "sets": ["best"]},
                        {"name": "c", "needs_cpu": ["no_such_flag"], "sets": ["other"]}],
        });
        std::fs::write(root.join("backends/x.json"), manifest.to_string()).unwrap();
        let args = ReferenceArgs {
            reference: reference.to_owned(),
            reference_config: config.to_owned(),
            benchdata: Some(root.to_owned()),
        };
        let place = args.place().unwrap();
        let sides = args.sides("kernels", &place, &Interrupt::default());
        let sides = sides.map_err(|error| error.to_string())?;
        Ok(sides.iter().map(|side| side.config.name.clone()).collect())
    }

    #[test]
    fn configurations_are_those_asked_for() {
        assert_eq!(sides("x", "best", "/bin/sh").unwrap(), ["a", "b"]);
        assert_eq!(sides("x", "b", "/bin/sh").unwrap(), ["b"]);
        assert_eq!(sides("none", "best", "/no").unwrap(), [""; 0]);
    }

    #[test]
    fn what_is_missing_is_said_with_its_cure() {
        for (reference, config, program, says) in [
            ("x", "best", "/no/such/program", "build it with make x"),
            ("x", "other", "/bin/sh", "there are best, other, a, b, c"),
            ("y", "best", "/bin/sh", "no backend 'y'"),
        ] {
            let error = sides(reference, config, program).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}
