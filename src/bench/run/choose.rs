//! Choosing the reference's fastest configuration for a task, by trying each.

use super::super::backend::{BackendError, Contender};
use super::measure::{Measured, Track};
use super::task::{Extent, Runner, step_ns};

/// Tokens that a trial generates.
const TRIAL_TOKENS: usize = 16;
/// A trial that takes less is run again, up to so many times, and its best time counts.
const TRIAL_RUNS: usize = 3;
/// The time from which on one run is enough for one trial, in nanoseconds.
const LONG_NS: f64 = 3e9;

/// How a configuration fared.
struct Trial {
    measured: Measured,
    prefill_ns: Option<f64>,
    step_ns: Option<f64>,
}

/// Of `candidates`, those that were fastest in prefill or in decode, each with what it was
/// fastest for; and those that failed. Those that come near the fastest are tried once more before
/// that is decided: one disturbed run must not make the reference slower than it is.
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
    for at in near(&trials) {
        let contender = trials[at].measured.contender.clone();
        (track.tell)(&format!("{} on trial again", contender.label()));
        let again = try_out(track, contender)?;
        if again.measured.failure.is_some() {
            trials[at] = again;
            continue;
        }
        let trial = &mut trials[at];
        trial.prefill_ns = least(trial.prefill_ns, again.prefill_ns);
        trial.step_ns = least(trial.step_ns, again.step_ns);
    }
    Ok(choose(trials))
}

/// How far from the fastest a configuration may lie to be tried again.
const NEAR: f64 = 1.15;

fn least(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    a.into_iter().chain(b).min_by(f64::total_cmp)
}

/// The trials that may be the fastest at something that is not decided yet.
fn near(trials: &[Trial]) -> Vec<usize> {
    let mut near = Vec::new();
    for of in [
        |trial: &Trial| trial.prefill_ns,
        |trial: &Trial| trial.step_ns,
    ] {
        let best = trials.iter().filter_map(of).min_by(f64::total_cmp);
        let close = |at: &usize| {
            of(&trials[*at])
                .zip(best)
                .is_some_and(|(ns, best)| ns <= best * NEAR)
        };
        let close: Vec<usize> = (0..trials.len()).filter(close).collect();
        if close.len() > 1 {
            near.extend(close);
        }
    }
    near.sort_unstable();
    near.dedup();
    near
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
        let took = prefill + ran.step_ns.iter().map(|&ns| ns as f64).sum::<f64>();
        if took >= LONG_NS {
            break;
        }
    }
    Ok(())
}

fn choose(trials: Vec<Trial>) -> Vec<Measured> {
    let fastest = |of: fn(&Trial) -> Option<f64>| {
        let timed = trials.iter().enumerate();
        let timed = timed.filter_map(|(at, trial)| Some((at, of(trial)?)));
        let least = timed.min_by(|(_, a), (_, b)| a.total_cmp(b));
        least.map(|(at, _)| at)
    };
    let prefill = fastest(|trial| trial.prefill_ns);
    let decode = fastest(|trial| trial.step_ns);
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
    fn close_trials_are_run_again() {
        let trials = [
            trial("a", Some(100.0), Some(10.0)),
            trial("b", Some(110.0), Some(20.0)),
            trial("c", Some(130.0), Some(21.0)),
            trial("d", None, None),
        ];
        assert_eq!(near(&trials), [0, 1]);
        assert_eq!(near(&trials[1..]), [0, 1]);
        assert!(near(&trials[3..]).is_empty());
        assert_eq!(least(Some(2.0), None), Some(2.0));
        assert_eq!(least(Some(2.0), Some(1.0)), Some(1.0));
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
