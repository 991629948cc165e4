//! All workloads, models and prompts: the `benchdata` folder, read and checked as a whole.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::manifest::FULL;
use super::{ModelEntry, Workload, WorkloadError, models, read_prompt};

/// Where the library is; to be flattened into a command's arguments.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct LibraryArgs {
    /// Folder of workloads, prompts and the model list [default: benchdata here, or where this
    /// program was built]
    #[arg(long, value_name = "DIR", env = "EMEL_BENCHDATA")]
    pub benchdata: Option<PathBuf>,
    /// Folder of the models [default: models beside benchdata]
    #[arg(long, value_name = "DIR", env = "EMEL_MODELS_DIR")]
    pub models_dir: Option<PathBuf>,
}

/// Everything that can be measured.
#[derive(Clone, Debug)]
pub struct Library {
    root: PathBuf,
    models_folder: PathBuf,
    workloads: Vec<Workload>,
    models: Vec<ModelEntry>,
}

impl LibraryArgs {
    /// The folder of the library, unread.
    ///
    /// # Errors
    /// [`WorkloadError::NoLibrary`].
    pub fn folder(&self) -> Result<PathBuf, WorkloadError> {
        folder(self.benchdata.as_deref())
    }

    /// Reads the library these arguments name.
    ///
    /// # Errors
    /// As [`Library::open`].
    pub fn open(&self) -> Result<Library, WorkloadError> {
        let mut library = Library::open(self.benchdata.as_deref())?;
        if let Some(folder) = &self.models_dir {
            library.models_folder.clone_from(folder);
        }
        Ok(library)
    }
}

impl Library {
    /// Reads the folder `root`; by default that of `EMEL_BENCHDATA`, else `benchdata` in the
    /// current folder, else that of the tree this program was built in. Models are expected in
    /// `EMEL_MODELS_DIR`, by default `models` beside the folder.
    ///
    /// # Errors
    /// [`WorkloadError`] of the first file, by name, that cannot be used.
    pub fn open(root: Option<&Path>) -> Result<Library, WorkloadError> {
        let root = folder(root)?;
        let models = models::read(&root.join("models.json"))?;
        let mut workloads = Vec::new();
        for path in manifests(&root.join("workloads"))? {
            let (workload, document) = Workload::read(&path)?;
            if !models.iter().any(|model| model.name == workload.model) {
                let problem = format!("models.json has no model `{}`", workload.model);
                return Err(document.fault("model", problem));
            }
            let prompt = root.join("prompts").join(&workload.prompt);
            if !prompt.is_file() {
                return Err(document.fault("prompt", format!("{} is missing", prompt.display())));
            }
            workloads.push(workload);
        }
        workloads.sort_by(|a, b| a.id.cmp(&b.id));
        let beside = || match root.parent() {
            Some(parent) => parent.join("models"),
            None => PathBuf::from("models"),
        };
        let models_folder = std::env::var_os("EMEL_MODELS_DIR").filter(|name| !name.is_empty());
        Ok(Library {
            models_folder: models_folder.map_or_else(beside, PathBuf::from),
            root,
            workloads,
            models,
        })
    }

    /// The folder it was read from.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder that models are in.
    #[must_use]
    pub fn models_folder(&self) -> &Path {
        &self.models_folder
    }

    /// All workloads, by id.
    #[must_use]
    pub fn workloads(&self) -> &[Workload] {
        &self.workloads
    }

    /// All models, as listed.
    #[must_use]
    pub fn models(&self) -> &[ModelEntry] {
        &self.models
    }

    /// A model by name.
    ///
    /// # Errors
    /// [`WorkloadError::Unknown`].
    pub fn model(&self, name: &str) -> Result<&ModelEntry, WorkloadError> {
        let found = self.models.iter().find(|model| model.name == name);
        found.ok_or_else(|| WorkloadError::Unknown {
            what: "model",
            asked: name.to_owned(),
            known: self.models.iter().map(|model| model.name.clone()).collect(),
        })
    }

    /// A workload by id.
    ///
    /// # Errors
    /// [`WorkloadError::Unknown`].
    pub fn workload(&self, id: &str) -> Result<&Workload, WorkloadError> {
        let found = self.workloads.iter().find(|workload| workload.id == id);
        found.ok_or_else(|| WorkloadError::Unknown {
            what: "workload",
            asked: id.to_owned(),
            known: self.workloads.iter().map(|one| one.id.clone()).collect(),
        })
    }

    /// The names of all suites, `full` among them.
    #[must_use]
    pub fn suites(&self) -> Vec<String> {
        let named = self.workloads.iter().flat_map(|workload| &workload.suites);
        let mut all: BTreeSet<String> = named.cloned().collect();
        all.insert(FULL.to_owned());
        all.into_iter().collect()
    }

    /// A workload's prompt, before any formatting. The newline that ends the file is not part of
    /// it.
    ///
    /// # Errors
    /// [`WorkloadError::Read`].
    pub fn prompt(&self, workload: &Workload) -> Result<String, WorkloadError> {
        read_prompt(&self.root.join("prompts").join(&workload.prompt))
    }
}

/// The folder that is named, or the one that is there.
fn folder(named: Option<&Path>) -> Result<PathBuf, WorkloadError> {
    named.map_or_else(find, |root| Ok(root.to_owned()))
}

fn find() -> Result<PathBuf, WorkloadError> {
    if let Some(named) = std::env::var_os("EMEL_BENCHDATA").filter(|name| !name.is_empty()) {
        return Ok(named.into());
    }
    let here = PathBuf::from("benchdata");
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("benchdata");
    let tried = vec![here, built];
    let found = tried.iter().find(|path| path.join("models.json").is_file());
    match found {
        Some(found) => Ok(found.clone()),
        None => Err(WorkloadError::NoLibrary { tried }),
    }
}

fn manifests(folder: &Path) -> Result<Vec<PathBuf>, WorkloadError> {
    let error = |source| WorkloadError::Read {
        path: folder.to_owned(),
        source,
    };
    let mut paths = Vec::new();
    for entry in folder.read_dir().map_err(error)? {
        let path = entry.map_err(error)?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}
