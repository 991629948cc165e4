//! The values that were found before, on whatever machine: benchdata/golden/determinism.json.
//!
//! One value in all settings of one machine might be another on the next. `EMEL_BLESS=1` writes down
//! what is found, for an arithmetic that was changed on purpose.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Mutex;

/// Checksums by what they are of.
type Sums = BTreeMap<String, String>;

/// One test at a time writes the file.
static FILE: Mutex<()> = Mutex::new(());

/// Compares the checksums of a run with those written down.
///
/// # Panics
/// If they differ, or none are written down; a value that is to be written down never does.
pub fn check(of: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("benchdata/golden/determinism.json");
    let _held = FILE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let text = fs::read_to_string(&path).unwrap_or_else(|_| "{}".to_owned());
    let mut known: Sums = serde_json::from_str(&text).expect("a map of checksums");
    if std::env::var_os("EMEL_BLESS").is_some() {
        known.insert(of.to_owned(), found.to_owned());
        let text = serde_json::to_string_pretty(&known).expect("a map is JSON");
        fs::write(&path, text + "\n").expect("the file is written");
        return;
    }
    assert_eq!(
        known.get(of).map(String::as_str),
        Some(found),
        "{of}: not what {} says; EMEL_BLESS=1 after a change of the arithmetic",
        path.display()
    );
}
