//! EMEL as a backend: answers requests of the [protocol](super::protocol) on the standard streams.

mod clock;
mod force;
mod model;
mod options;
mod record;
mod taps;

pub use clock::{Clock, Marks};
pub use force::ForceError;
pub use model::{Model, WorkerError};
pub use options::{
    AUTO, from_packed_cache, level_name, named_options, route_name, spec_type_name, speculating,
};
pub use options::{CACHE_TYPES, Options, OptionsError};
pub use taps::{Tapped, Taps};

use std::fmt::Display;
use std::io::{BufRead, Read, Write};
use std::sync::mpsc::{Receiver, sync_channel};

use serde::Serialize;

use super::kernels::KernelBench;
use super::protocol::{Answer, Request};
use super::{BenchError, machines};
use crate::output::remove_unfinished;

/// The longest request that is read.
const MAX_REQUEST_BYTES: u64 = 64 << 20;

/// Answers until standard input ends.
///
/// # Errors
/// [`BenchError::Streams`] when standard output cannot be written.
pub fn run() -> Result<(), BenchError> {
    let mut worker = Worker::default();
    let mut output = std::io::stdout();
    for line in requests().map_err(BenchError::Streams)? {
        let mut answer = worker.answer(&line);
        answer.push(b'\n');
        output
            .write_all(&answer)
            .and_then(|()| output.flush())
            .map_err(BenchError::Streams)?;
    }
    Ok(())
}

/// The lines of standard input, read on a thread of its own: when whoever asks is gone, this
/// process goes too, in the middle of a computation if need be.
fn requests() -> std::io::Result<Receiver<Vec<u8>>> {
    let (sender, receiver) = sync_channel(0);
    let listen = move || {
        let mut input = std::io::stdin().lock();
        loop {
            let mut line = Vec::new();
            let read = input
                .by_ref()
                .take(MAX_REQUEST_BYTES)
                .read_until(b'\n', &mut line);
            if !matches!(read, Ok(1..)) || sender.send(line).is_err() {
                remove_unfinished();
                std::process::exit(0);
            }
        }
    };
    std::thread::Builder::new()
        .name("emel-requests".to_owned())
        .spawn(listen)?;
    Ok(receiver)
}

/// What a worker holds between requests.
#[derive(Default)]
struct Worker {
    model: Option<Model>,
    kernels: KernelBench,
}

impl Worker {
    fn answer(&mut self, line: &[u8]) -> Vec<u8> {
        match serde_json::from_slice(line) {
            Ok(request) => self.meet(request),
            Err(error) => refusal(&format!("no request of this protocol: {error}")),
        }
    }

    fn meet(&mut self, request: Request) -> Vec<u8> {
        match request {
            Request::Load(load) => {
                // Dropped first: two models may not fit in memory.
                self.model = None;
                let loaded = Model::load(&load);
                answer(loaded.map(|(model, loaded)| {
                    self.model = Some(model);
                    loaded
                }))
            }
            Request::Run(run) => {
                let model = self.model.as_ref().ok_or(WorkerError::NotLoaded);
                answer(model.and_then(|model| model.run(&run)))
            }
            Request::Force(force) => {
                let model = self.model.as_ref().ok_or(WorkerError::NotLoaded);
                answer(model.and_then(|model| model.force(&force)))
            }
            Request::PrepareKernel(case) => answer(self.kernels.prepare(&case)),
            Request::RunKernel(repeat) => answer(self.kernels.run(repeat)),
            Request::Barrier(barrier) => answer(machines::barrier(&barrier)),
        }
    }
}

fn answer<T: Serialize, E: Display>(result: Result<T, E>) -> Vec<u8> {
    match result {
        Ok(done) => serde_json::to_vec(&Answer::Done(done))
            .unwrap_or_else(|error| refusal(&error.to_string())),
        Err(error) => refusal(&error.to_string()),
    }
}

fn refusal(error: &str) -> Vec<u8> {
    let answer = serde_json::json!({ "error": error });
    answer.to_string().into_bytes()
}
