//! The measuring itself: contenders take turns, run by run.

use std::path::Path;
use std::time::{Duration, Instant};

use super::super::backend::{BackendError, Contender};
use super::super::protocol::{Loaded, Ran};
use super::task::{Extent, Runner, Task, run_ns};
use crate::cli::interrupt::Interrupt;

/// What was measured of one contender.
#[derive(Debug)]
pub struct Measured {
    /// Who.
    pub contender: Contender,
    /// What it says of itself; of the first load.
    pub loaded: Option<Loaded>,
    /// The observed run.
    pub observed: Option<Ran>,
    /// The file name of its trace.
    pub trace: Option<String>,
    /// Every load: the load itself, and from the start of the process on.
    pub loads: Vec<Start>,
    /// The timed runs, a place a round; none where it failed.
    pub rounds: Vec<Option<Ran>>,
    /// Why it measured no more.
    pub failure: Option<BackendError>,
    /// For a reference: the phases in which this configuration was the engine's fastest.
    pub best_for: Vec<&'static str>,
}

/// One load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// The load.
    pub load_ns: u64,
    /// Packing within it.
    pub pack_ns: Option<u64>,
    /// From the start of the process to the loaded model.
    pub start_ns: u64,
}

impl Measured {
    /// Nothing yet.
    pub fn new(contender: Contender, best_for: Vec<&'static str>) -> Self {
        Measured {
            contender,
            loaded: None,
            observed: None,
            trace: None,
            loads: Vec::new(),
            rounds: Vec::new(),
            failure: None,
            best_for,
        }
    }
}

/// What a measurement needs beside the contenders.
pub struct Track<'a> {
    /// The task.
    pub task: &'a Task,
    /// Timed runs of each contender.
    pub repetitions: usize,
    /// What they may take, all contenders' together: no third round is begun that would end later,
    /// and no second one that takes twice as long by itself.
    pub budget: Option<Duration>,
    /// The longest wait for an answer.
    pub timeout: Duration,
    /// Ctrl-C.
    pub interrupt: &'a Interrupt,
    /// Folder for traces, and what ends their names.
    pub traces: Option<(&'a Path, &'a str)>,
    /// Told before each run of an engine what is about to run.
    pub tell: &'a dyn Fn(&str),
}

impl Track<'_> {
    fn start(&self, contender: &Contender) -> Result<Runner, BackendError> {
        Runner::start(contender, self.task, self.interrupt, self.timeout)
    }

    /// Runs every contender over the task; one that fails is left out of what follows.
    ///
    /// # Errors
    /// [`BackendError::Interrupted`] alone.
    pub fn measure(&self, contenders: &mut [Measured]) -> Result<(), BackendError> {
        let mut runners: Vec<Option<Runner>> = Vec::new();
        for measured in contenders.iter_mut() {
            if measured.failure.is_some() {
                runners.push(None);
                continue;
            }
            (self.tell)(&format!("{} warming up", measured.contender.label()));
            runners.push(settle(measured, |measured| self.warm_up(measured))?);
        }
        let begun = Instant::now();
        let spent = count_observed(contenders, self.task.cold);
        let first = contenders
            .iter()
            .map(|one| one.rounds.len())
            .max()
            .unwrap_or(0);
        for round in first..self.repetitions {
            let elapsed = spent + begun.elapsed();
            if is_over(self.budget, elapsed, round) {
                break;
            }
            // The one who went first goes last the next time: drift favours nobody.
            let mut order: Vec<usize> = (0..contenders.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for at in order {
                let (measured, runner) = (&mut contenders[at], &mut runners[at]);
                measured.rounds.push(None);
                if measured.failure.is_some() {
                    *runner = None;
                    continue;
                }
                (self.tell)(&measured.contender.label());
                let ran = settle(measured, |measured| self.timed(measured, runner))?;
                if let Some(place) = measured.rounds.last_mut() {
                    *place = ran;
                }
            }
        }
        Ok(())
    }

    /// Loads, and runs once with checksums and a trace.
    fn warm_up(&self, measured: &mut Measured) -> Result<Runner, BackendError> {
        let mut runner = self.start(&measured.contender)?;
        let name = self.traces.map(|(_, suffix)| {
            let (task, label) = (self.task, measured.contender.label());
            format!(
                "{}.{}.{label}.{suffix}.tokens.txt",
                task.workload_id, task.lane
            )
        });
        let path = self.traces.zip(name.as_ref());
        let path = path.map(|((folder, _), name)| folder.join(name));
        if !self.task.cold {
            // So that the observed run can count, should it be a long one.
            runner.run(self.task, &Extent::Touch)?;
        }
        let observed = runner.run(self.task, &Extent::Observed(path))?;
        if !self.task.cold {
            measured.loads.push(start_of(&runner));
        }
        measured.trace = name;
        measured.loaded = Some(runner.loaded.clone());
        measured.observed = Some(observed);
        Ok(runner)
    }

    /// Runs once, in a fresh process if the task asks for that.
    fn timed(
        &self,
        measured: &mut Measured,
        runner: &mut Option<Runner>,
    ) -> Result<Ran, BackendError> {
        let mut ready = match runner.take().filter(|_| !self.task.cold) {
            Some(ready) => ready,
            None => {
                let fresh = self.start(&measured.contender)?;
                measured.loads.push(start_of(&fresh));
                fresh
            }
        };
        if !self.task.cold {
            // It has been idle while others ran; the system may have taken pages from it meanwhile.
            ready.run(self.task, &Extent::Touch)?;
        }
        let ran = ready.run(self.task, &Extent::Timed)?;
        *runner = Some(ready);
        Ok(ran)
    }
}

/// Whether another round, as long as those before it, would go beyond the budget: twice the budget,
/// where it would be the second.
fn is_over(budget: Option<Duration>, elapsed: Duration, rounds: usize) -> bool {
    let next = elapsed / u32::try_from(rounds.max(1)).unwrap_or(u32::MAX);
    match (budget, rounds) {
        (None, _) | (_, 0) => false,
        (Some(budget), 1) => next > 2 * budget,
        (Some(budget), _) => elapsed + next > budget,
    }
}

/// An observed run of so many nanoseconds is as good as a timed one: what is kept of its tokens is
/// kept between the times, and what was cold at its start is a small part of it.
pub const LONG_NS: f64 = 20e9;

/// Where runs are long, makes the observed ones the first round; tells what that took.
fn count_observed(contenders: &mut [Measured], cold: bool) -> Duration {
    let all = contenders.iter().filter_map(|one| one.observed.as_ref());
    let longest = all.clone().map(run_ns).fold(0.0, f64::max);
    if cold || longest < LONG_NS {
        return Duration::ZERO;
    }
    let spent = all.map(run_ns).sum::<f64>();
    for one in contenders {
        one.rounds.push(one.observed.clone());
    }
    Duration::from_nanos(spent as u64)
}

fn start_of(runner: &Runner) -> Start {
    Start {
        load_ns: runner.loaded.load_ns,
        pack_ns: runner.loaded.pack_ns,
        start_ns: u64::try_from(runner.start.as_nanos()).unwrap_or(u64::MAX),
    }
}

/// Keeps a failure with the one who failed; only Ctrl-C ends everything.
fn settle<T>(
    measured: &mut Measured,
    act: impl FnOnce(&mut Measured) -> Result<T, BackendError>,
) -> Result<Option<T>, BackendError> {
    match act(measured) {
        Ok(done) => Ok(Some(done)),
        Err(BackendError::Interrupted) => Err(BackendError::Interrupted),
        Err(failure) => {
            measured.failure = Some(failure);
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_ends_rounds_and_a_long_one_is_the_only() {
        let seconds = Duration::from_secs;
        let over = |elapsed, rounds| is_over(Some(seconds(60)), seconds(elapsed), rounds);
        assert!(!over(1000, 0));
        assert!(!over(120, 1) && over(121, 1));
        assert!(!over(40, 2) && over(41, 2));
        assert!(!over(45, 3) && over(46, 3));
        assert!(!is_over(None, seconds(1000), 5));
    }
}
