//! The fork machine: runs one kernel job on the caller's lane alone, or on every lane.
//!
//! A job that is smaller than the policy's threshold runs serially; a larger one forks, and the
//! machine reaches `joined` only when every lane has come back. A lane that cannot be reached or
//! that died leads to `failed`, and the outputs of the job are not to be used.

use super::counters::ForkCounts;
use super::error::{EngineError, finish};
use emel_kernels::{Job, LaneError, Lanes, parallel, serial};
use sml::sml;

/// Submits the context's job.
#[derive(Debug, Clone, Copy)]
pub struct Submit {
    /// Multiply-adds (or a comparable count of element operations) in the job.
    pub work: usize,
}

sml! {
    Fork {
        *"idle"_s + event<Submit> [pays] / run_parallel = "parallel"_s,
        "idle"_s + event<Submit> [!pays] / run_serial = "serial"_s,
        "idle"_s + unexpected_event<_> / ignore,

        "serial"_s + completion<_> = "joined"_s,
        "parallel"_s + completion<_> [lost] = "failed"_s,
        "parallel"_s + completion<_> [!lost] = "joined"_s,

        "serial"_s + unexpected_event<_> / ignore,
        "parallel"_s + unexpected_event<_> / ignore,
        "joined"_s + unexpected_event<_> / ignore,
        "failed"_s + unexpected_event<_> / ignore,
    }
}

/// The lanes a job may use, and from which size on it may.
pub(super) struct Forker<'a> {
    /// The pool.
    pub lanes: &'a mut Lanes,
    /// Counts the jobs.
    pub counts: &'a mut ForkCounts,
    /// Work below which a job stays on the caller's lane.
    pub min_work: usize,
}

struct Context<'a, J> {
    lanes: &'a mut Lanes,
    counts: &'a mut ForkCounts,
    min_work: usize,
    job: &'a mut J,
    failure: &'a mut Option<LaneError>,
}

impl<J: Job> ForkStateMachineContext for Context<'_, J> {
    fn pays(&self, submit: &Submit) -> Result<bool, ()> {
        Ok(self.lanes.count() > 1 && submit.work >= self.min_work)
    }

    fn lost(&self) -> Result<bool, ()> {
        Ok(self.failure.is_some())
    }

    fn run_serial(&mut self, _: &Submit) -> Result<(), ()> {
        self.counts.serial += 1;
        serial(self.job);
        Ok(())
    }

    fn run_parallel(&mut self, _: &Submit) -> Result<(), ()> {
        self.counts.parallel += 1;
        *self.failure = parallel(self.lanes, self.job).err();
        Ok(())
    }

    fn ignore(&mut self) -> Result<(), ()> {
        Ok(())
    }
}

impl Forker<'_> {
    /// Runs `job`, which holds `work` multiply-adds, to completion.
    ///
    /// # Errors
    /// [`EngineError::Lane`] when a lane could not be reached or died.
    pub fn run<J: Job>(&mut self, job: &mut J, work: usize) -> Result<(), EngineError> {
        let mut failure = None;
        let context = Context {
            lanes: self.lanes,
            counts: self.counts,
            min_work: self.min_work,
            job,
            failure: &mut failure,
        };
        let mut machine = ForkStateMachine::new(context);
        let _ = machine.process_event(Submit { work });
        let done = machine.is(&ForkStates::Joined);
        finish(done, failure.map(EngineError::Lane))
    }
}
