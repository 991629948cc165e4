//! Where the quickstart model lies, for a run without `-m`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// File name of the quickstart model, as `scripts/fetch_models.sh` lays it down.
pub const QUICKSTART_MODEL: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";

/// What to tell a user who has no model yet.
pub const HOW_TO_GET_A_MODEL: &str =
    "no model: name one with -m FILE, or run scripts/fetch_models.sh smollm2-135m";

/// The quickstart model, if present: in `$EMEL_MODELS_DIR`, else in `models/` here, else in
/// `models/` of the tree that the program was built in.
#[must_use]
pub fn quickstart_model(env: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let program = std::env::current_exe().ok();
    first_present(env("EMEL_MODELS_DIR"), Path::new(""), program.as_deref())
}

fn first_present(given: Option<OsString>, here: &Path, program: Option<&Path>) -> Option<PathBuf> {
    let folders: Vec<PathBuf> = match given.filter(|folder| !folder.is_empty()) {
        Some(folder) => vec![PathBuf::from(folder)],
        None => {
            // target/release/emel-run: the tree is two folders above the program's.
            let tree = program.and_then(|program| program.ancestors().nth(3));
            [Some(here), tree]
                .into_iter()
                .flatten()
                .map(|root| root.join("models"))
                .collect()
        }
    };
    folders
        .into_iter()
        .map(|folder| folder.join(QUICKSTART_MODEL))
        .find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_named_folder_counts_alone_then_here_then_the_tree() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let file_in = |folder: &str| {
            let folder = root.join(folder);
            std::fs::create_dir_all(&folder).unwrap();
            let file = folder.join(QUICKSTART_MODEL);
            std::fs::write(&file, "x").unwrap();
            file
        };
        let here = root.join("here");
        let program = root.join("tree/target/release/emel-run");
        let find = |given: Option<&str>| {
            first_present(given.map(|g| root.join(g).into()), &here, Some(&program))
        };
        assert_eq!(find(None), None);
        let in_tree = file_in("tree/models");
        assert_eq!(find(None), Some(in_tree));
        let beside = file_in("here/models");
        assert_eq!(find(None), Some(beside.clone()));
        assert_eq!(find(Some("given")), None);
        let given = file_in("given");
        assert_eq!(find(Some("given")), Some(given));
        assert_eq!(
            first_present(Some(OsString::new()), &here, None),
            Some(beside)
        );
    }
}
