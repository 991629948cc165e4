//! Requests on standard input to answers on standard output, one JSON object a line.

use std::fmt::Display;
use std::io::{self, BufRead, Read, Write};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use emel::bench::protocol::{Answer, Request};
use emel::output::remove_unfinished;
use serde::Serialize;

use crate::engine::Engine;
use crate::error::PlainError;

/// The longest request that is read.
const MOST_BYTES: u64 = 64 << 20;

/// Answers until standard input ends.
pub fn run() -> io::Result<()> {
    let mut engine = None;
    let mut output = io::stdout();
    for line in requests()? {
        let mut answer = match read(&line) {
            Ok(request) => meet(&mut engine, request),
            Err(error) => refusal(&error),
        };
        answer.push(b'\n');
        output.write_all(&answer)?;
        output.flush()?;
    }
    Ok(())
}

/// The lines of standard input, read on a thread of its own: when whoever asks is gone, this
/// process goes too, in the middle of a computation if need be.
fn requests() -> io::Result<Receiver<Vec<u8>>> {
    let (sender, receiver) = sync_channel(0);
    let listen = move || {
        let mut input = io::stdin().lock();
        loop {
            let mut line = Vec::new();
            let read = input.by_ref().take(MOST_BYTES).read_until(b'\n', &mut line);
            let mut is_over = !matches!(read, Ok(1..));
            // The rest of a line that is too long is no request of its own.
            if line.len() as u64 == MOST_BYTES && !line.ends_with(b"\n") {
                is_over = input.skip_until(b'\n').is_err();
            }
            if is_over || sender.send(line).is_err() {
                remove_unfinished();
                std::process::exit(0);
            }
        }
    };
    thread::Builder::new()
        .name("requests".to_owned())
        .spawn(listen)?;
    Ok(receiver)
}

fn read(line: &[u8]) -> Result<Request, PlainError> {
    if line.len() as u64 == MOST_BYTES && !line.ends_with(b"\n") {
        return Err(PlainError::NoRequest("the line is too long".to_owned()));
    }
    serde_json::from_slice(line).map_err(|error| PlainError::NoRequest(error.to_string()))
}

fn meet(engine: &mut Option<Engine>, request: Request) -> Vec<u8> {
    match request {
        Request::Load(load) => {
            // Dropped first: two models may not fit in memory.
            *engine = None;
            answer(Engine::load(&load).map(|(loaded_engine, loaded)| {
                *engine = Some(loaded_engine);
                loaded
            }))
        }
        Request::Run(run) => answer(loaded(engine).and_then(|engine| engine.run(&run))),
        Request::Force(force) => answer(loaded(engine).and_then(|engine| engine.force(&force))),
        other => refusal(&PlainError::NotOffered(other.name())),
    }
}

fn loaded(engine: &mut Option<Engine>) -> Result<&mut Engine, PlainError> {
    engine.as_mut().ok_or(PlainError::NotLoaded)
}

fn answer<T: Serialize>(result: Result<T, PlainError>) -> Vec<u8> {
    match result {
        Ok(done) => serde_json::to_vec(&Answer::Done(done)).unwrap_or_else(|error| refusal(&error)),
        Err(error) => refusal(&error),
    }
}

fn refusal(error: &dyn Display) -> Vec<u8> {
    let failed = Answer::<()>::Failed {
        error: error.to_string(),
    };
    // A string always has a JSON form.
    serde_json::to_vec(&failed).unwrap_or_default()
}
