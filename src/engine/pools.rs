//! The worker lanes of an engine: one pool for decode and prompt, or one for each.

use super::counters::ForkCounts;
use super::error::EngineError;
use super::fork::Forker;
use super::policy::ExecutionPolicy;
use emel_kernels::Lanes;

/// The pools, by index.
pub(super) struct Pools {
    /// The pools themselves.
    pub lanes: Vec<Lanes>,
    /// Which of them runs decode steps.
    pub decode: usize,
    /// Which of them runs prompts.
    pub batch: usize,
    /// What they have run.
    pub counts: ForkCounts,
}

impl Pools {
    /// Starts the lanes that `policy` asks for. Equal counts share one pool.
    ///
    /// # Errors
    /// [`EngineError::Lane`] when the system refuses a thread.
    pub fn new(policy: &ExecutionPolicy) -> Result<Self, EngineError> {
        let mut counts = vec![policy.lanes, policy.lanes_batch];
        counts.dedup();
        let lanes = counts
            .iter()
            .map(|&count| Lanes::new(count, policy.patience))
            .collect::<Result<Vec<_>, _>>()?;
        let batch = lanes.len() - 1;
        Ok(Self {
            lanes,
            decode: 0,
            batch,
            counts: ForkCounts::default(),
        })
    }

    /// The most lanes of any pool.
    pub fn widest(&self) -> usize {
        self.lanes.iter().map(Lanes::count).max().unwrap_or(1)
    }

    /// What runs jobs on pool `pool`.
    pub fn forker(&mut self, pool: usize, policy: &ExecutionPolicy) -> Forker<'_> {
        Forker {
            lanes: &mut self.lanes[pool],
            counts: &mut self.counts,
            min_work: policy.fork_min_work,
        }
    }
}
