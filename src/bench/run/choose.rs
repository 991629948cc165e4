//! Choosing the reference's fastest configuration for a task, by trying each.
//!
//! Every configuration is tried over the prompt's beginning. Where the prompt is longer, what
//! attention costs is not known from that, but everything else is: of each value of the option
//! `flash_attention` the fastest is then tried over as much of the prompt as takes a reasonable time.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::super::backend::{BackendError, Contender};
use super::super::report::Metric;
use super::measure::{Measured, Track};
use super::task::{Extent, Runner, Task, first_token_ns, run_ns, step_ns};
use crate::trace::checksum::Fnv64;

/// Tokens of the prompt in a first trial.
pub const TRIAL_PROMPT: usize = 512;
/// Tokens that a trial generates.
pub const TRIAL_TOKENS: usize = 8;
/// A trial that takes less is run again, up to so many times, and its best time counts.
pub const TRIAL_RUNS: usize = 4;
/// The time from which on one run is enough for one trial, in nanoseconds.
const LONG_NS: f64 = 1e9;
/// A run of so many nanoseconds need not be repeated because another came near.
pub const SURE_NS: f64 = 10e9;
/// What a trial over a long prompt may take, about, in nanoseconds.
pub const LONG_TRIAL_NS: f64 = 25e9;
/// How far from the fastest a configuration may lie to be tried again.
const NEAR: f64 = 1.15;

/// The best times of a configuration's trials, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Times {
    prefill: Option<f64>,
    step: Option<f64>,
    first_token: Option<f64>,
}

impl Times {
    fn of(self, metric: Metric) -> Option<f64> {
        match metric {
            Metric::Prefill => self.prefill,
            Metric::Decode => self.step,
            Metric::Ttft => self.first_token,
            Metric::Total => None,
        }
    }

    fn least(self, other: Times) -> Times {
        Times {
            prefill: least(self.prefill, other.prefill),
            step: least(self.step, other.step),
            first_token: least(self.first_token, other.first_token),
        }
    }
}

fn least(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    a.into_iter().chain(b).min_by(f64::total_cmp)
}

/// How a configuration fared.
struct Trial {
    measured: Measured,
    times: Times,
}

/// What trials showed, so that workloads that begin alike need not repeat them.
#[derive(Debug, Default)]
pub struct Known(RefCell<BTreeMap<String, Times>>);

/// What a first trial depends on, beside the configuration.
pub fn first_trial(task: &Task, threads: usize) -> String {
    let (n_prompt, output) = (
        task.n_prompt.min(TRIAL_PROMPT),
        task.max_tokens.min(TRIAL_TOKENS),
    );
    let text = Fnv64::of(task.text.as_bytes()).value();
    let (model, cold) = (task.model.display(), task.cold);
    format!("{threads} {n_prompt} {output} {cold} {text:x} {model}")
}

/// What it depends on.
fn key(task: &Task, contender: &Contender) -> String {
    let (label, batch) = (contender.label(), contender.threads_batch);
    let task = first_trial(task, contender.threads);
    format!("{label} {batch} {} {task}", contender.n_ubatch)
}

impl Known {
    /// The times that are known, or those of a trial.
    fn or_try(
        &self,
        track: &Track<'_>,
        trial: &mut Trial,
        prompt: usize,
        what: &str,
    ) -> Result<(), BackendError> {
        let key = format!("{prompt} {}", key(track.task, &trial.measured.contender));
        let before = self.0.borrow().get(&key).copied();
        if let Some(times) = before {
            trial.times = times;
            return Ok(());
        }
        try_out(track, trial, prompt, what)?;
        if trial.measured.failure.is_none() {
            self.0.borrow_mut().insert(key, trial.times);
        }
        Ok(())
    }
}

/// Of `candidates`, those that were fastest in what is sought, each with what it was fastest for;
/// and those that failed. Those that come near the fastest are tried once more before that is
/// decided: one disturbed run must not make the reference slower than it is.
///
/// # Errors
/// [`BackendError::Interrupted`] alone.
pub fn fastest(
    track: &Track<'_>,
    candidates: Vec<Contender>,
    known: &Known,
) -> Result<Vec<Measured>, BackendError> {
    let task = track.task;
    let mut trials = Vec::new();
    for contender in candidates {
        let mut trial = Trial {
            measured: Measured::new(contender, Vec::new()),
            times: Times::default(),
        };
        known.or_try(track, &mut trial, TRIAL_PROMPT, "on trial")?;
        trials.push(trial);
    }
    if !task.cold && task.n_prompt > TRIAL_PROMPT {
        long(track, &mut trials, known)?;
    } else {
        for at in near(&trials, &task.sought) {
            try_out(track, &mut trials[at], TRIAL_PROMPT, "on trial again")?;
        }
    }
    Ok(choose(trials, &task.sought))
}

/// Tries the finalists over a longer part of the prompt; the others leave.
fn long(track: &Track<'_>, trials: &mut [Trial], known: &Known) -> Result<(), BackendError> {
    let task = track.task;
    let finalists = finalists(trials, &task.sought);
    let slowest = finalists.iter().filter_map(|&at| trials[at].times.prefill);
    let slowest = slowest.fold(0.0, f64::max);
    let mut prompt = task.n_prompt;
    while prompt > 2 * TRIAL_PROMPT && slowest * prompt as f64 / TRIAL_PROMPT as f64 > LONG_TRIAL_NS
    {
        prompt /= 2;
    }
    let several = finalists.len() > 1;
    for (at, trial) in trials.iter_mut().enumerate() {
        let is_final = finalists.contains(&at);
        if is_final && several {
            trial.times = Times::default();
            known.or_try(track, trial, prompt, "on a long trial")?;
        } else if !is_final {
            trial.times = Times::default();
        }
    }
    Ok(())
}

/// For everything that is sought, the fastest of each value of `flash_attention`.
fn finalists(trials: &[Trial], sought: &[Metric]) -> Vec<usize> {
    let attention = |trial: &Trial| {
        let options = &trial.measured.contender.options;
        options.get("flash_attention").map(ToString::to_string)
    };
    let mut finalists = Vec::new();
    for &metric in sought {
        let mut best: BTreeMap<Option<String>, (usize, f64)> = BTreeMap::new();
        for (at, trial) in trials.iter().enumerate() {
            let Some(ns) = trial.times.of(metric) else {
                continue;
            };
            let place = best.entry(attention(trial)).or_insert((at, ns));
            if ns < place.1 {
                *place = (at, ns);
            }
        }
        finalists.extend(best.into_values().map(|(at, _)| at));
    }
    finalists.sort_unstable();
    finalists.dedup();
    finalists
}

/// The trials that may be the fastest at something that is not decided yet.
fn near(trials: &[Trial], sought: &[Metric]) -> Vec<usize> {
    let mut near = Vec::new();
    for &metric in sought {
        let of = |at: usize| trials[at].times.of(metric);
        let best = (0..trials.len()).filter_map(of).min_by(f64::total_cmp);
        let Some(best) = best else { continue };
        let is_long = |at: usize| trials[at].times.prefill.is_some_and(|ns| ns >= SURE_NS);
        let close = |at: &usize| of(*at).is_some_and(|ns| ns <= best * NEAR);
        let close: Vec<usize> = (0..trials.len()).filter(close).collect();
        if close.len() > 1 && !close.iter().all(|&at| is_long(at)) {
            near.extend(close);
        }
    }
    near.sort_unstable();
    near.dedup();
    near
}

/// Tries one over so much of the prompt; its best times are kept, or its failure.
fn try_out(
    track: &Track<'_>,
    trial: &mut Trial,
    prompt: usize,
    what: &str,
) -> Result<(), BackendError> {
    let contender = &trial.measured.contender;
    (track.tell)(&format!("{} {what}", contender.label()));
    let times = match track.task.cold {
        true => starts(track, contender),
        false => runs(track, contender, prompt),
    };
    match times {
        Ok(times) => trial.times = trial.times.least(times),
        Err(BackendError::Interrupted) => return Err(BackendError::Interrupted),
        Err(failure) => {
            trial.times = Times::default();
            trial.measured.failure = Some(failure);
        }
    }
    Ok(())
}

/// Runs in one process.
fn runs(track: &Track<'_>, contender: &Contender, prompt: usize) -> Result<Times, BackendError> {
    let task = track.task;
    let mut runner = Runner::start(contender, task, track.interrupt, track.timeout)?;
    runner.run(task, &Extent::Touch)?;
    let mut times = Times::default();
    for _ in 0..TRIAL_RUNS {
        let output = TRIAL_TOKENS;
        let ran = runner.run(task, &Extent::Trial { prompt, output })?;
        times = times.least(Times {
            prefill: Some(ran.prefill_ns as f64),
            step: step_ns(&ran),
            first_token: None,
        });
        if run_ns(&ran) >= LONG_NS {
            break;
        }
    }
    Ok(times)
}

/// Processes, each up to its first token. The first may have to fetch the file from the disk.
fn starts(track: &Track<'_>, contender: &Contender) -> Result<Times, BackendError> {
    let mut times = Times::default();
    for _ in 0..2 {
        let mut runner = Runner::start(contender, track.task, track.interrupt, track.timeout)?;
        let ran = runner.run(track.task, &Extent::Timed)?;
        let start = runner.start.as_nanos() as f64;
        times = times.least(Times {
            first_token: Some(start + first_token_ns(&ran)),
            ..Times::default()
        });
    }
    Ok(times)
}

fn choose(trials: Vec<Trial>, sought: &[Metric]) -> Vec<Measured> {
    let fastest = |metric: Metric| {
        let timed = trials.iter().enumerate();
        let timed = timed.filter_map(|(at, trial)| Some((at, trial.times.of(metric)?)));
        let least = timed.min_by(|(_, a), (_, b)| a.total_cmp(b));
        least.map(|(at, _)| at)
    };
    let best: Vec<(Metric, Option<usize>)> = sought
        .iter()
        .map(|&metric| (metric, fastest(metric)))
        .collect();
    let mut chosen = Vec::new();
    for (at, trial) in trials.into_iter().enumerate() {
        let mut measured = trial.measured;
        let won = best.iter().filter(|(_, best)| *best == Some(at));
        measured.best_for = won.map(|(metric, _)| metric.name()).collect();
        if !measured.best_for.is_empty() || measured.failure.is_some() {
            chosen.push(measured);
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: [Metric; 2] = [Metric::Prefill, Metric::Decode];

    fn trial(config: &str, prefill: Option<f64>, step: Option<f64>) -> Trial {
        let contender = Contender {
            backend: "b".into(),
            engine: "b".into(),
            config: config.into(),
            command: vec![],
            cure: String::new(),
            threads: 1,
            threads_batch: 1,
            n_ubatch: 512,
            options: Default::default(),
        };
        Trial {
            measured: Measured::new(contender, Vec::new()),
            times: Times {
                prefill,
                step,
                first_token: None,
            },
        }
    }

    fn chosen(trials: Vec<Trial>) -> Vec<(String, Vec<&'static str>)> {
        let all = choose(trials, &BOTH);
        all.into_iter()
            .map(|m| (m.contender.config, m.best_for))
            .collect()
    }

    #[test]
    fn each_phase_has_its_own_best() {
        let trials = vec![
            trial("a", Some(3.0), Some(1.0)),
            trial("b", Some(2.0), Some(2.0)),
            trial("c", Some(4.0), Some(4.0)),
        ];
        let expected = [("a", vec!["decode"]), ("b", vec!["prefill"])];
        assert_eq!(chosen(trials), expected.map(|(n, p)| (n.to_owned(), p)));
        let trials = vec![trial("a", Some(3.0), None), trial("b", Some(2.0), None)];
        assert_eq!(chosen(trials), [("b".to_owned(), vec!["prefill"])]);
    }

    #[test]
    fn only_what_is_sought_is_chosen_for() {
        let trials = vec![
            trial("a", Some(3.0), Some(1.0)),
            trial("b", Some(2.0), Some(2.0)),
        ];
        let all = choose(trials, &[Metric::Prefill]);
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].contender.config, "b");
        assert_eq!(all[0].best_for, ["prefill"]);
        let mut quick = trial("a", None, None);
        quick.times.first_token = Some(5.0);
        let all = choose(vec![quick, trial("b", None, None)], &[Metric::Ttft]);
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].best_for, ["ttft"]);
    }

    #[test]
    fn close_trials_are_run_again() {
        let mut trials = [
            trial("a", Some(100.0), Some(10.0)),
            trial("b", Some(110.0), Some(20.0)),
            trial("c", Some(130.0), Some(21.0)),
            trial("d", None, None),
        ];
        assert_eq!(near(&trials, &BOTH), [0, 1]);
        assert!(near(&trials, &[Metric::Decode]).is_empty());
        assert_eq!(near(&trials[1..], &BOTH), [0, 1]);
        assert!(near(&trials[3..], &BOTH).is_empty());
        for trial in &mut trials {
            trial.times.prefill = trial.times.prefill.map(|ns| ns * 1e8);
        }
        assert!(near(&trials, &BOTH).is_empty());
        assert_eq!(least(Some(2.0), None), Some(2.0));
        assert_eq!(least(Some(2.0), Some(1.0)), Some(1.0));
    }

    #[test]
    fn the_fastest_with_and_without_flash_attention_are_finalists() {
        let with = |config, attention: bool, prefill, step| {
            let mut trial = trial(config, Some(prefill), Some(step));
            let options = &mut trial.measured.contender.options;
            options.insert("flash_attention".to_owned(), attention.into());
            trial
        };
        let trials = [
            with("a", true, 1.0, 3.0),
            with("b", true, 2.0, 2.0),
            with("c", false, 4.0, 5.0),
            with("d", false, 3.0, 6.0),
        ];
        assert_eq!(finalists(&trials, &[Metric::Prefill]), [0, 3]);
        assert_eq!(finalists(&trials, &BOTH), [0, 1, 2, 3]);
        let plain = [trial("a", Some(2.0), None), trial("b", Some(1.0), None)];
        assert_eq!(finalists(&plain, &BOTH), [1]);
    }

    #[test]
    fn failures_are_kept_and_never_best() {
        let mut broken = trial("a", None, None);
        broken.measured.failure = Some(BackendError::Died {
            name: "a".into(),
            status: "signal: 4".into(),
            stderr_tail: String::new(),
        });
        let trials = vec![broken, trial("b", Some(2.0), Some(2.0))];
        let expected = [("a", vec![]), ("b", vec!["prefill", "decode"])];
        assert_eq!(chosen(trials), expected.map(|(n, p)| (n.to_owned(), p)));
    }
}
