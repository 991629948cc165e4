//! Draws, quantizes and writes: a few mebibytes of rows at a time, each row by itself, so that
//! neither the memory nor the bytes depend on the model's size or on the number of threads.

use std::io::{self, Write};
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::thread;

use sha2::{Digest, Sha256};

use super::SynthSpec;
use super::error::SynthError;
use super::layout::{self, Tensor, Values};
use super::vocabulary;
use crate::gguf::write::{GgufWriter, WriteError};
use crate::model::quantize::Quantizer;
use crate::model::testing::Random;
use crate::output::{AtomicFile, OutputError};

/// What one thread encodes before its bytes are written.
const PIECE_BYTES: u64 = 4 << 20;

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// SHA-256 of the file, as hex digits.
    pub sha256: String,
    /// Its bytes.
    pub bytes: u64,
    /// Weights in it.
    pub weights: u64,
}

/// How far a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Bytes of tensors written.
    pub done: u64,
    /// Bytes of tensors in all.
    pub total: u64,
}

/// Writes the model that `spec` describes, whole or not at all. `progress` hears of every few
/// mebibytes and may break off.
///
/// # Errors
///
/// [`SynthError`]; what was at `path` before is then still there.
pub fn write(
    spec: &SynthSpec,
    path: &Path,
    mut progress: impl FnMut(Position) -> ControlFlow<()>,
) -> Result<Written, SynthError> {
    let file = AtomicFile::create(path)?;
    let keys = vocabulary::keys(&spec.shape, spec.vocabulary.as_deref())?;
    let tensors = layout::tensors(&spec.shape, spec.mix);
    let mut writer = GgufWriter::new();
    for (key, value) in layout::metadata(&spec.shape, spec.mix, spec.seed) {
        writer.set(key, value);
    }
    for (key, value) in keys {
        writer.set(key, value);
    }
    let (mut total, mut weights) = (0, 0);
    for tensor in &tensors {
        writer.tensor(tensor.name.clone(), &tensor.shape, tensor.ty);
        total += tensor.n_rows() * tensor.row_bytes();
        weights += tensor.n_rows() * tensor.row_len();
    }
    let place = |error| at(path, error);
    let mut stream = writer.begin(Hashed::new(file)).map_err(place)?;
    let mut team = Team::new(spec.threads);
    let mut done = 0;
    for tensor in &tensors {
        let rows_at_once = (PIECE_BYTES / tensor.row_bytes().max(1)).max(1) * team.size();
        let mut row = 0;
        while row < tensor.n_rows() {
            if progress(Position { done, total }).is_break() {
                return Err(SynthError::Interrupted);
            }
            let end = tensor.n_rows().min(row + rows_at_once);
            for piece in team.encode(tensor, spec.seed, row..end)? {
                stream.data(piece).map_err(place)?;
                done += piece.len() as u64;
            }
            row = end;
        }
    }
    let _ = progress(Position { done, total });
    let (file, sha256, bytes) = stream.finish().map_err(place)?.finish();
    file.commit()?;
    Ok(Written {
        sha256,
        bytes,
        weights,
    })
}

/// An error of the container's writer; what the system said belongs to the output.
fn at(path: &Path, error: WriteError) -> SynthError {
    match error {
        WriteError::Io(source) => SynthError::Output(OutputError {
            path: path.to_owned(),
            source,
        }),
        other => SynthError::Container(Box::new(other)),
    }
}

/// Threads that encode rows, and their buffers.
struct Team {
    pieces: Vec<Vec<u8>>,
}

impl Team {
    fn new(threads: usize) -> Team {
        Team {
            pieces: vec![Vec::new(); threads.max(1)],
        }
    }

    fn size(&self) -> u64 {
        self.pieces.len() as u64
    }

    /// The blocks of some rows, in order, in pieces.
    fn encode(
        &mut self,
        tensor: &Tensor,
        seed: u64,
        rows: Range<u64>,
    ) -> Result<&[Vec<u8>], SynthError> {
        let share = (rows.end - rows.start).div_ceil(self.size());
        thread::scope(|scope| {
            let mut begun = Vec::with_capacity(self.pieces.len());
            let mut start = rows.start;
            for piece in &mut self.pieces {
                let own = start..rows.end.min(start + share);
                start = own.end;
                let work = move || encode_rows(tensor, seed, own, piece);
                let handle = thread::Builder::new()
                    .spawn_scoped(scope, work)
                    .map_err(SynthError::Thread)?;
                begun.push(handle);
            }
            // A thread that panicked panics here: it is a fault of this program.
            begun.into_iter().try_for_each(|handle| {
                handle
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
        })?;
        Ok(&self.pieces)
    }
}

/// Draws and encodes `rows`; each row's numbers start from the seed, the tensor's name and the
/// row's number.
fn encode_rows(
    tensor: &Tensor,
    seed: u64,
    rows: Range<u64>,
    out: &mut Vec<u8>,
) -> Result<(), SynthError> {
    out.clear();
    let Some(quantizer) = Quantizer::new(tensor.ty) else {
        return Err(SynthError::NoQuantizer(tensor.ty));
    };
    let mut values = vec![0.0; tensor.row_len() as usize];
    for row in rows {
        match &tensor.values {
            Values::Given(given) => values.copy_from_slice(given),
            Values::Drawn { middle, spread } => {
                let mut random = row_random(seed, &tensor.name, row);
                for value in &mut values {
                    *value = middle + spread * random.normal();
                }
            }
        }
        quantizer.encode(&values, out)?;
    }
    Ok(())
}

/// Where a row's numbers start.
fn row_random(seed: u64, tensor: &str, row: u64) -> Random {
    let mut state = Random(seed).bits();
    for byte in tensor.bytes() {
        state = Random(state ^ u64::from(byte)).bits();
    }
    Random(Random(state ^ row).bits())
}

/// Hashes what it passes on.
struct Hashed {
    file: AtomicFile,
    digest: Sha256,
    bytes: u64,
}

impl Hashed {
    fn new(file: AtomicFile) -> Hashed {
        Hashed {
            file,
            digest: Sha256::new(),
            bytes: 0,
        }
    }

    fn finish(self) -> (AtomicFile, String, u64) {
        let digest = self.digest.finalize();
        let hex = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        (self.file, hex, self.bytes)
    }
}

impl Write for Hashed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes).map_err(|error| error.source)?;
        self.digest.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(()) // `AtomicFile::commit` does
    }
}
