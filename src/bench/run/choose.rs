//! Choosing the reference's fastest configuration for a task, by trying each.

use super::super::backend::BackendError;
use super::contender::{Contender, Extent, Runner, step_ns};
use super::measure::{Measured, Track};

/// Tokens that a trial generates.
const TRIAL_TOKENS: usize = 16;
/// A trial that takes less is run again, up to so many times, and its best time counts.
const TRIAL_RUNS: usize = 3;
/// The time from which on one run is enough.
const LONG_NS: u64 = 3_000_000_000;

/// How a configuration fared.
struct Trial {
    measured: Measured,
    prefill_ns: Option<f64>,
    step_ns: Option<f64>,
}

/// Of `candidates`, those that were fastest in prefill or in decode, each with what it was
/// fastest for; and those that failed.
///
/// # Errors
/// [`BackendError::Interrupted`] alone.
pub fn fastest(
    track: &Track<'_>,
    candidates: Vec<Contender>,
) -> Result<Vec<Measured>, BackendError> {
    let mut trials = Vec::new();
    for contender in candidates {
        (track.tell)(&format!("{} on trial", contender.label()));
        trials.push(try_out(track, contender)?);
    }
    Ok(choose(trials))
}

fn try_out(track: &Track<'_>, contender: Contender) -> Result<Trial, BackendError> {
    let mut trial = Trial {
        measured: Measured::new(contender, Vec::new()),
        prefill_ns: None,
        step_ns: None,
    };
    match time(track, &mut trial) {
        Err(BackendError::Interrupted) => Err(BackendError::Interrupted),
        Err(failure) => {
            trial.measured.failure = Some(failure);
            Ok(trial)
        }
        Ok(()) => Ok(trial),
    }
}

fn time(track: &Track<'_>, trial: &mut Trial) -> Result<(), BackendError> {
    let contender = &trial.measured.contender;
    let mut runner = Runner::start(contender, track.task, track.interrupt, track.timeout)?;
    runner.run(track.task, &Extent::Touch)?;
    for _ in 0..TRIAL_RUNS {
        let ran = runner.run(track.task, &Extent::Trial(TRIAL_TOKENS))?;
        let prefill = ran.prefill_ns as f64;
        trial.prefill_ns = Some(trial.prefill_ns.map_or(prefill, |best| best.min(prefill)));
        if let Some(step) = step_ns(&ran) {
            trial.step_ns = Some(trial.step_ns.map_or(step, |best| best.min(step)));
        }
        if ran.prefill_ns + ran.step_ns.iter().sum::<u64>() >= LONG_NS {
            break;
        }
    }
    Ok(())
}

fn choose(trials: Vec<Trial>) -> Vec<Measured> {
    let least = |of: fn(&Trial) -> Option<f64>| {
        let timed = trials.iter().enumerate();
        let timed = timed.filter_map(|(at, trial)| Some((at, of(trial)?)));
        let least = timed.min_by(|(_, a), (_, b)| a.total_cmp(b));
        least.map(|(at, _)| at)
    };
    let prefill = least(|trial| trial.prefill_ns);
    let decode = least(|trial| trial.step_ns);
    let mut chosen = Vec::new();
    for (at, trial) in trials.into_iter().enumerate() {
        let mut measured = trial.measured;
        for (phase, best) in [("prefill", prefill), ("decode", decode)] {
            if best == Some(at) {
                measured.best_for.push(phase);
            }
        }
        if !measured.best_for.is_empty() || measured.failure.is_some() {
            chosen.push(measured);
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(config: &str, prefill_ns: Option<f64>, step_ns: Option<f64>) -> Trial {
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
            prefill_ns,
            step_ns,
        }
    }

    fn chosen(trials: Vec<Trial>) -> Vec<(String, Vec<&'static str>)> {
        let all = choose(trials);
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
