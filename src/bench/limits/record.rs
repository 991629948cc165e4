//! Where `limits`, `kernels` and `machines` put their records.

use crate::bench::BenchError;
use crate::bench::machine_info::MachineInfo;
use crate::bench::records::{Head, Record, RecordFile, run_id};
use crate::bench::warnings::Warning;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// The records of one run of a command, and the file that they go to, if any.
pub struct Records {
    machine: MachineInfo,
    run_id: String,
    file: Option<RecordFile>,
}

fn now() -> std::time::Duration {
    // A clock before 1970 is as good as none.
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

impl Records {
    /// To `path`, or nowhere.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn create(path: Option<&Path>) -> Result<Records, BenchError> {
        Ok(Records {
            machine: MachineInfo::read(),
            run_id: run_id(),
            file: path
                .map(|path| RecordFile::begin(path, false))
                .transpose()?,
        })
    }

    /// The head of a record of EMEL's, begun now.
    pub fn head(&self, threads: usize) -> Head {
        let load = self.machine.load_average;
        let mut head = Head {
            run_id: self.run_id.clone(),
            time_unix: now().as_secs(),
            engine: "emel".to_owned(),
            engine_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            threads: threads as u64,
            warnings: Warning::of_load(load, self.machine.cpu_cores.unwrap_or(1))
                .into_iter()
                .collect(),
            ..Head::default()
        };
        head.set_machine(&self.machine);
        head
    }

    /// Adds a record.
    pub fn push(&mut self, record: &Record) {
        if let Some(file) = &mut self.file {
            file.push(record);
        }
    }

    /// Puts the file in its place.
    ///
    /// # Errors
    ///
    /// It cannot be written; what was there before stays.
    pub fn commit(self) -> Result<(), BenchError> {
        self.file.map_or(Ok(()), RecordFile::commit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::records::{Limit, read_records};

    #[test]
    fn records_share_a_run_and_appear_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("records.jsonl");
        let mut records = Records::create(Some(&path)).unwrap();
        for threads in [1, 2] {
            let head = records.head(threads);
            let limit = Limit {
                head,
                limit: "int8_dot".to_owned(),
                ..Limit::default()
            };
            records.push(&Record::Limit(Box::new(limit)));
        }
        assert!(!path.exists());
        records.commit().unwrap();
        let read = read_records(&path).unwrap();
        let heads: Vec<_> = read.iter().map(Record::head).collect();
        assert_eq!(heads.len(), 2);
        assert_eq!((heads[0].threads, heads[1].threads), (1, 2));
        assert_eq!(heads[0].run_id, heads[1].run_id);
    }
}
