//! A backend's process: starting it, asking it, ending it.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;

use super::super::protocol::{Answer, Request};
use crate::cli::children;
use crate::cli::interrupt::Interrupt;

/// Why a backend gave no answer that can be used.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// It could not be started.
    #[error("cannot start {program}: {source}; {cure}")]
    Start {
        /// The program.
        program: String,
        /// What the system said.
        source: std::io::Error,
        /// How to get it.
        cure: String,
    },
    /// It ended in the middle.
    #[error("{name} died ({status})")]
    Died {
        /// The backend.
        name: String,
        /// Its exit code or the signal that killed it.
        status: String,
        /// The end of what it wrote to standard error.
        stderr_tail: String,
    },
    /// It took too long and was ended.
    #[error("{name} gave no answer within {seconds} s and was ended; allow more with --timeout")]
    Late {
        /// The backend.
        name: String,
        /// The limit.
        seconds: u64,
        /// The end of what it wrote to standard error.
        stderr_tail: String,
    },
    /// It says that it cannot.
    #[error("{name}: {error}")]
    Refused {
        /// The backend.
        name: String,
        /// Its words.
        error: String,
        /// The end of what it wrote to standard error.
        stderr_tail: String,
    },
    /// Its answer is none.
    #[error("{name} answered what is no answer to `{op}`: {problem}: {answer}")]
    Garbled {
        /// The backend.
        name: String,
        /// What was asked.
        op: &'static str,
        /// What is wrong.
        problem: String,
        /// The beginning of the answer.
        answer: String,
    },
    /// The user has ended the run.
    #[error("interrupted")]
    Interrupted,
}

impl BackendError {
    /// The end of what the backend wrote to standard error.
    pub fn stderr_tail(&self) -> Option<&str> {
        match self {
            BackendError::Died { stderr_tail, .. }
            | BackendError::Late { stderr_tail, .. }
            | BackendError::Refused { stderr_tail, .. } => Some(stderr_tail),
            _ => None,
        }
    }
}

/// Bytes of standard error that are kept.
const TAIL_BYTES: usize = 4096;
/// The longest answer that is read.
const MAX_ANSWER_BYTES: u64 = 64 << 20;
/// How often a wait looks for Ctrl-C.
const GLANCE: Duration = Duration::from_millis(50);
/// How long a backend may take to end by itself.
const FAREWELL: Duration = Duration::from_secs(2);

/// How long the last words of one that has ended are waited for.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// How variables begin that would change what an engine does.
const SETTINGS: [&str; 5] = ["OMP_", "GOMP_", "KMP_", "GGML_", "LLAMA_"];

/// A running backend.
#[derive(Debug)]
pub struct Backend {
    name: String,
    child: Child,
    /// Lines for its standard input, which a thread writes: a backend that does not read must not
    /// stop this program. Closed first, which asks the process to end.
    input: Option<Sender<Vec<u8>>>,
    /// Closed before the listeners are waited for: one of them may be about to send.
    answers: Option<Receiver<std::io::Result<String>>>,
    tail: Arc<Mutex<VecDeque<u8>>>,
    listeners: Vec<JoinHandle<()>>,
    interrupt: Interrupt,
    timeout: Duration,
}

impl Backend {
    /// Starts `command` under `name`. `cure` says what to do when there is no such program.
    ///
    /// # Errors
    /// [`BackendError::Start`].
    pub fn start(
        name: &str,
        command: &[String],
        cure: &str,
        interrupt: &Interrupt,
        timeout: Duration,
    ) -> Result<Self, BackendError> {
        let program = command.first().map_or("", String::as_str);
        let fail = |source| BackendError::Start {
            program: program.to_owned(),
            source,
            cure: cure.to_owned(),
        };
        let mut command_line = Command::new(program);
        // What the caller's shell says to threading libraries is no part of a configuration.
        for (name, _) in std::env::vars_os() {
            let is_of = |prefix| name.to_string_lossy().starts_with(prefix);
            if SETTINGS.into_iter().any(is_of) {
                command_line.env_remove(&name);
            }
        }
        let mut child = command_line
            .args(command.iter().skip(1))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(fail)?;
        children::begun(child.id());
        let (sender, answers) = sync_channel(1);
        let tail = Arc::new(Mutex::new(VecDeque::new()));
        let mut listeners = Vec::new();
        if let Some(output) = child.stdout.take() {
            listeners.push(std::thread::spawn(move || {
                let mut output = BufReader::new(output);
                loop {
                    let mut line = Vec::new();
                    let read = output
                        .by_ref()
                        .take(MAX_ANSWER_BYTES)
                        .read_until(b'\n', &mut line);
                    let answer = match read {
                        Ok(0) => return,
                        Ok(_) => Ok(String::from_utf8_lossy(&line).into_owned()),
                        Err(error) => Err(error),
                    };
                    if sender.send(answer).is_err() {
                        return;
                    }
                }
            }));
        }
        if let Some(errors) = child.stderr.take() {
            let tail = Arc::clone(&tail);
            listeners.push(std::thread::spawn(move || keep_tail(errors, &tail)));
        }
        Ok(Backend {
            name: name.to_owned(),
            input: child.stdin.take().map(writer),
            child,
            answers: Some(answers),
            tail,
            listeners,
            interrupt: interrupt.clone(),
            timeout,
        })
    }

    /// The name it was started under.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Asks and waits for the answer.
    ///
    /// # Errors
    /// [`BackendError`]; after anything but [`BackendError::Refused`] the process is gone.
    pub fn request<T: DeserializeOwned>(&mut self, request: &Request) -> Result<T, BackendError> {
        let op = request.name();
        // A request is made of numbers and strings, which have a JSON form.
        let mut line = serde_json::to_vec(request).unwrap_or_default();
        line.push(b'\n');
        // Answers may come so fast that no waiting ever sees it.
        if self.interrupt.is_pressed() {
            self.end();
            return Err(BackendError::Interrupted);
        }
        if let Some(stray) = self.stray() {
            self.end();
            return Err(self.garbled(op, &stray, "nobody asked for it"));
        }
        // That the process is gone shows in the waiting.
        if let Some(input) = &self.input {
            let _ = input.send(line);
        }
        let answer = self.wait()?;
        match serde_json::from_str(&answer) {
            Ok(Answer::Done(done)) => Ok(done),
            Ok(Answer::Failed { error }) => Err(BackendError::Refused {
                name: self.name.clone(),
                error,
                stderr_tail: self.tail(),
            }),
            Err(_) => {
                // The untagged form hides what is wrong with the answer one hoped for.
                let problem = serde_json::from_str::<T>(&answer).err();
                self.end();
                let problem = problem.map_or_else(String::new, |error| error.to_string());
                Err(self.garbled(op, &answer, &problem))
            }
        }
    }

    /// A line that the backend said unasked.
    fn stray(&self) -> Option<String> {
        self.answers.as_ref()?.try_recv().ok()?.ok()
    }

    fn garbled(&self, op: &'static str, answer: &str, problem: &str) -> BackendError {
        BackendError::Garbled {
            name: self.name.clone(),
            op,
            problem: problem.to_owned(),
            answer: answer.chars().take(200).collect(),
        }
    }

    fn wait(&mut self) -> Result<String, BackendError> {
        let begun = Instant::now();
        let mut was_gone = false;
        loop {
            let gone = Err(RecvTimeoutError::Disconnected);
            let answers = self.answers.as_ref();
            match answers.map_or(gone, |answers| answers.recv_timeout(GLANCE)) {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(_)) | Err(RecvTimeoutError::Disconnected) => return Err(self.death()),
                // A process of its own may hold its streams open; an answer would have come by now.
                Err(RecvTimeoutError::Timeout) if was_gone => return Err(self.death()),
                Err(RecvTimeoutError::Timeout) => {}
            }
            was_gone = matches!(self.child.try_wait(), Ok(Some(_)));
            if self.interrupt.is_pressed() {
                self.end();
                return Err(BackendError::Interrupted);
            }
            if begun.elapsed() >= self.timeout {
                self.end();
                return Err(BackendError::Late {
                    name: self.name.clone(),
                    seconds: self.timeout.as_secs(),
                    stderr_tail: self.tail(),
                });
            }
        }
    }

    /// What to say of a process that is gone, or about to be.
    fn death(&mut self) -> BackendError {
        self.input = None;
        let status = self.leave(FAREWELL);
        if self.interrupt.is_pressed() {
            return BackendError::Interrupted;
        }
        BackendError::Died {
            name: self.name.clone(),
            status,
            stderr_tail: self.tail(),
        }
    }

    /// Waits for the process to go by itself, ends it if it does not, and says how it went.
    fn leave(&mut self, patience: Duration) -> String {
        let begun = Instant::now();
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break status.to_string(),
                Ok(None) if begun.elapsed() < patience => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                // It may be gone in this very moment.
                _ => {
                    let _ = self.child.kill();
                    break self
                        .child
                        .wait()
                        .map_or_else(|error| error.to_string(), |status| status.to_string());
                }
            }
        };
        // Whatever it started itself goes with it.
        children::end_group(self.child.id());
        self.answers = None;
        // What it started itself may hold its streams open for longer than anyone wants to wait.
        let begun = Instant::now();
        let listening = |listener: &JoinHandle<()>| !listener.is_finished();
        while self.listeners.iter().any(listening) && begun.elapsed() < LAST_WORDS {
            std::thread::sleep(Duration::from_millis(2));
        }
        self.listeners.clear();
        status
    }

    fn end(&mut self) {
        self.input = None;
        self.leave(Duration::ZERO);
    }

    fn tail(&self) -> String {
        let tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes: Vec<u8> = tail.iter().copied().collect();
        String::from_utf8_lossy(&bytes).trim().to_owned()
    }
}

/// Closing its standard input tells a backend to end.
impl Drop for Backend {
    fn drop(&mut self) {
        self.input = None;
        self.answers = None;
        self.leave(FAREWELL);
    }
}

/// A thread that writes lines to `input` until there are no more, or nobody reads them.
fn writer(mut input: ChildStdin) -> Sender<Vec<u8>> {
    let (sender, lines) = channel::<Vec<u8>>();
    std::thread::spawn(move || {
        for line in lines {
            if input.write_all(&line).and_then(|()| input.flush()).is_err() {
                return;
            }
        }
    });
    sender
}

fn keep_tail(mut errors: impl Read, tail: &Mutex<VecDeque<u8>>) {
    let mut buffer = [0; 1024];
    while let Ok(count @ 1..) = errors.read(&mut buffer) {
        let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
        tail.extend(&buffer[..count]);
        let excess = tail.len().saturating_sub(TAIL_BYTES);
        tail.drain(..excess);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::protocol::{Barrier, Repeat, Timed};

    const SECOND: Duration = Duration::from_secs(1);

    fn shell(script: &str, timeout: Duration) -> Backend {
        let command = ["/bin/sh", "-c", script].map(str::to_owned);
        Backend::start("b", &command, "", &Interrupt::default(), timeout).expect("a shell")
    }

    fn ask(backend: &mut Backend) -> Result<Timed, BackendError> {
        let repeat = Repeat {
            samples: 1,
            min_sample_ns: 1,
        };
        backend.request(&Request::Barrier(Barrier { threads: 1, repeat }))
    }

    #[test]
    fn an_answer_is_taken_and_a_refusal_told() {
        let script = r#"read x; echo '{"ns":[1.5],"operations":2}'; read x; echo '{"error":"no"}'"#;
        let mut backend = shell(script, 60 * SECOND);
        assert_eq!(ask(&mut backend).unwrap().ns, [1.5]);
        let error = ask(&mut backend).unwrap_err();
        assert!(matches!(&error, BackendError::Refused { error, .. } if error == "no"));
    }

    #[test]
    fn a_death_is_told_with_the_last_words() {
        let mut backend = shell("read x; echo last words >&2; kill -ILL $$", 60 * SECOND);
        let error = ask(&mut backend).unwrap_err();
        assert_eq!(error.stderr_tail(), Some("last words"));
        assert!(error.to_string().contains("signal: 4"), "{error}");
        let again = ask(&mut backend).unwrap_err();
        assert!(matches!(again, BackendError::Died { .. }));
    }

    #[test]
    fn silence_ends_at_the_limit_and_nonsense_at_once() {
        let mut backend = shell("read x; exec sleep 1000", SECOND / 10);
        assert!(matches!(ask(&mut backend), Err(BackendError::Late { .. })));
        for nonsense in ["hello", "{}", r#"{"ns":3}"#, ""] {
            let mut backend = shell(&format!("read x; echo '{nonsense}'"), 60 * SECOND);
            let error = ask(&mut backend).unwrap_err();
            assert!(
                matches!(error, BackendError::Garbled { .. }),
                "{nonsense}: {error}"
            );
        }
    }

    #[test]
    fn a_chatterbox_is_ended_and_keeps_nobody_waiting() {
        let lines = "for i in 1 2 3 4 5 6 7 8; do echo hello; done; exec sleep 1000";
        let mut backend = shell(&format!("read x; {lines}"), 60 * SECOND);
        let error = ask(&mut backend).unwrap_err();
        assert!(matches!(error, BackendError::Garbled { .. }), "{error}");
        // An answer too many is not taken for the next one's.
        let answer = r#"{"ns":[1.5],"operations":2}"#;
        let script = format!("while read x; do echo '{answer}'; echo '{answer}'; done");
        let mut backend = shell(&script, 60 * SECOND);
        assert!(ask(&mut backend).is_ok());
        std::thread::sleep(SECOND / 5);
        let error = ask(&mut backend).unwrap_err().to_string();
        assert!(error.contains("nobody asked"), "{error}");
        // A child of its own that outlives it holds the streams open.
        let mut backend = shell("read x; sleep 1000 & exit 3", 60 * SECOND);
        let error = ask(&mut backend).unwrap_err();
        assert!(matches!(error, BackendError::Died { .. }), "{error}");
    }

    #[test]
    fn a_missing_program_names_the_cure() {
        let command = ["/no/such/backend".to_owned()];
        let started = Backend::start("b", &command, "build it", &Interrupt::default(), SECOND);
        let error = started.unwrap_err().to_string();
        assert!(
            error.contains("/no/such/backend") && error.ends_with("build it"),
            "{error}"
        );
    }
}
