//! A file's digest.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

use sha2::{Digest, Sha256};

/// SHA-256 of a model, as hex digits: of its file, or of its shards' bytes one after another.
/// `progress` is told the bytes read so far.
///
/// # Errors
/// When a file cannot be read.
pub fn sha256_files(paths: &[PathBuf], mut progress: impl FnMut(u64)) -> io::Result<String> {
    let mut digest = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    let mut done = 0;
    for path in paths {
        let mut file = File::open(path)?;
        loop {
            let count = match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            digest.update(&buffer[..count]);
            done += count as u64;
            progress(done);
        }
    }
    Ok(digest
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_sha256() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, "abc").unwrap();
        let files = [file.path().to_path_buf()];
        let mut read = 0;
        let digest = sha256_files(&files, |done| read = done).unwrap();
        // The example of FIPS 180-4.
        assert_eq!(
            digest,
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(read, 3);
        drop(file);
        assert!(sha256_files(&files, |_| ()).is_err());
    }
}
