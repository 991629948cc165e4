//! The two sides of a comparison, and their samples, taken in turn.

use crate::bench::backend::{Backend, BackendConfig, BackendError, BackendManifest, Place};
use crate::bench::protocol::{KernelReady, Repeat, Request, Timed};
use crate::cli::interrupt::Interrupt;
use std::time::Duration;

/// A backend in one configuration, started when it is first asked and again when it has died.
pub struct Side {
    /// The backend's id.
    pub id: String,
    /// What the records call the engine.
    pub engine: String,
    /// The configuration.
    pub config: BackendConfig,
    command: Vec<String>,
    cure: String,
    interrupt: Interrupt,
    backend: Option<Backend>,
}

/// A kernel case may be a large matrix on a slow machine.
const TIMEOUT: Duration = Duration::from_secs(300);

impl Side {
    /// EMEL itself: this program's worker.
    pub fn emel(place: &Place, config: BackendConfig, interrupt: &Interrupt) -> Side {
        Side {
            id: "emel".to_owned(),
            engine: "emel".to_owned(),
            command: vec![
                place.program.to_string_lossy().into_owned(),
                "worker".to_owned(),
            ],
            config,
            cure: "build it again".to_owned(),
            interrupt: interrupt.clone(),
            backend: None,
        }
    }

    /// A reference in one of its configurations.
    pub fn reference(
        manifest: &BackendManifest,
        config: &BackendConfig,
        place: &Place,
        interrupt: &Interrupt,
    ) -> Side {
        Side {
            id: manifest.id.clone(),
            engine: manifest.engine.clone(),
            command: manifest.command_line(config, place),
            config: config.clone(),
            cure: format!("build it: {}", manifest.build_command),
            interrupt: interrupt.clone(),
            backend: None,
        }
    }

    /// Asks the backend.
    ///
    /// # Errors
    ///
    /// [`BackendError`]; the next request starts the backend anew if it has died.
    pub fn ask<T: serde::de::DeserializeOwned>(
        &mut self,
        request: &Request,
    ) -> Result<T, BackendError> {
        let mut backend = match self.backend.take() {
            Some(backend) => backend,
            None => {
                let name = format!("{} {}", self.id, self.config.name);
                let name = name.trim_end();
                Backend::start(name, &self.command, &self.cure, &self.interrupt, TIMEOUT)?
            }
        };
        let answer = backend.request(request);
        if matches!(answer, Ok(_) | Err(BackendError::Refused { .. })) {
            self.backend = Some(backend);
        }
        answer
    }

    /// One sample of what is set up.
    ///
    /// # Errors
    ///
    /// [`BackendError`].
    pub fn sample(&mut self, request: &Request) -> Result<Sample, BackendError> {
        let timed: Timed = self.ask(request)?;
        Ok(Sample {
            ns: timed.ns.first().copied().unwrap_or(f64::NAN),
            operations: timed.operations,
        })
    }
}

/// One sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Time of one operation.
    pub ns: f64,
    /// Operations within the sample.
    pub operations: u64,
}

/// A side's samples of one case.
#[derive(Debug, Default)]
pub struct Taken {
    /// What it said when the case was set up.
    pub ready: Option<KernelReady>,
    /// Time of one operation, one a round.
    pub ns: Vec<f64>,
    /// Operations in the last sample.
    pub operations: u64,
}

impl Taken {
    /// Adds a round's.
    pub fn add(&mut self, sample: Sample) {
        self.ns.push(sample.ns);
        self.operations = sample.operations;
    }
}

/// A request for one sample of at least so long.
pub fn one(min_sample: Duration) -> Repeat {
    Repeat {
        samples: 1,
        min_sample_ns: u64::try_from(min_sample.as_nanos()).unwrap_or(u64::MAX),
    }
}

/// Takes a sample of each side in turn, `rounds` times, the first to go changing each time.
///
/// # Errors
///
/// [`BackendError`], and whether it is the second side's.
pub fn alternate(
    sides: [(&mut Side, &mut Taken); 2],
    request: &Request,
    rounds: usize,
) -> Result<(), (BackendError, bool)> {
    let [mut a, mut b] = sides;
    for round in 0..2 * rounds {
        // a b, b a, a b, ...
        let second = matches!(round % 4, 1 | 2);
        let (side, samples) = if second { &mut b } else { &mut a };
        samples.add(side.sample(request).map_err(|error| (error, second))?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Side {
        Side {
            id: "b".to_owned(),
            engine: "b".to_owned(),
            config: BackendConfig::default(),
            command: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
            cure: String::new(),
            interrupt: Interrupt::default(),
            backend: None,
        }
    }

    #[test]
    fn sides_are_asked_in_turn() {
        let loud = "i=0; while read x; do i=$((i+1)); echo \"{\\\"ns\\\":[$((i*100))],\
                    \\\"operations\\\":7}\"; done";
        let calm = "while read x; do echo '{\"ns\":[50],\"operations\":2}'; done";
        let (mut emel, mut reference) = (shell(calm), shell(loud));
        let (mut a, mut b) = (Taken::default(), Taken::default());
        let request = Request::RunKernel(one(Duration::from_millis(1)));
        let sides = [(&mut emel, &mut a), (&mut reference, &mut b)];
        alternate(sides, &request, 3).unwrap();
        assert_eq!((&a.ns[..], a.operations), (&[50.0; 3][..], 2));
        assert_eq!((&b.ns[..], b.operations), (&[100.0, 200.0, 300.0][..], 7));
    }

    #[test]
    fn a_side_that_dies_is_started_anew() {
        let mut side = shell("read x; echo '{\"ns\":[1],\"operations\":1}'");
        let request = Request::RunKernel(one(Duration::ZERO));
        assert_eq!(side.sample(&request).unwrap().ns, 1.0);
        let died = side.sample(&request).unwrap_err();
        assert!(matches!(died, BackendError::Died { .. }), "{died}");
        assert_eq!(side.sample(&request).unwrap().ns, 1.0);
    }
}
