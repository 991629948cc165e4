//! Lanes: the worker pool that runs one job at a time on several cores.
//!
//! A [`Job`] is data: shared inputs, exclusive outputs, all checked when it was made. Running it
//! means calling [`Job::part`] on the caller ([`serial`]) or on the caller and the pool's workers
//! at once ([`parallel`]). Work is handed out by [`Part::claim`], which gives every index to
//! exactly one lane, so lanes write disjoint outputs in any order; the arithmetic of each output
//! element is fixed, hence any number of lanes gives the same bits.
//!
//! # How a dispatch runs
//!
//! Each worker owns one state word, alone on its cache line:
//!
//! ```text
//!            fork                 worker              worker, done
//!   IDLE ----------> READY -----------------> RUNNING -----------> IDLE
//!    |  ^              |  the caller, at join, takes back what
//!    |  +--------------+  no worker has begun
//!    +--> PARKED  (after spinning and yielding in vain; a fork wakes it)
//! ```
//!
//! The caller writes the task, sets every worker READY (waking parked ones), does its own part,
//! which returns once nothing is left to claim, and joins: a worker that is still READY is set
//! IDLE again, since there is nothing left for it; a RUNNING one is waited for. So a worker that
//! the operating system has not scheduled delays nobody, and more lanes than cores cost little.
//! Nothing outlives the dispatch, and nothing in it allocates.
//!
//! A panic in any part is caught; the dispatch joins the others, returns
//! [`LaneError::Panicked`], and the pool refuses every later job: a half-written output is never
//! taken for a result.

mod claims;
mod disjoint;

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use crossbeam_utils::CachePadded;
use crossbeam_utils::sync::{Parker, Unparker};

use claims::Claims;
pub(crate) use disjoint::Disjoint;

/// The most lanes a pool can have; more is a mistake in the caller's arithmetic.
pub const MAX_LANES: usize = 1024;

/// Spins (with a pause instruction each) before a waiting lane starts to yield: somewhat over
/// the serial gap between two dispatches of a decode step, some tens of microseconds.
const SPINS: u32 = 2000;

/// Spins of a pool that shares its cores: whoever is waited for may need this very core.
const SPINS_SHARED: u32 = 20;

/// Yields to the scheduler between spinning and parking.
const YIELDS: u32 = 8;

/// Why a pool could not start, or could not run a job.
#[derive(Debug, thiserror::Error)]
pub enum LaneError {
    /// A pool of no lanes, or of more than [`MAX_LANES`], was asked for.
    #[error("{0} lanes asked for; give at least 1 and at most {MAX_LANES}")]
    Count(usize),
    /// The operating system refused to start a worker thread.
    #[error("cannot start a worker thread (ask for fewer lanes): {0}")]
    CannotStart(#[source] std::io::Error),
    /// A part of this job panicked on `lane` (0 is the caller); its outputs are not to be used.
    #[error("lane {lane} panicked; the outputs of this dispatch are lost")]
    Panicked {
        /// The lane whose part panicked.
        lane: usize,
    },
    /// The pool lost `lane` to a panic in an earlier job, and runs nothing any more.
    #[error("lane {lane} panicked in an earlier dispatch; the pool is dead, make a new one")]
    Dead {
        /// The lane whose part panicked.
        lane: usize,
    },
}

/// Work that several lanes can share.
///
/// An implementation must hand its work out by [`Part::claim`] alone: a worker that has not
/// begun when the caller's part returns is not run at all, so a share tied to a lane's index
/// could be skipped. The index is for choosing per-lane scratch memory.
pub trait Job: Sync {
    /// Claims and does work until none is left.
    ///
    /// Only [`serial`] and [`parallel`] can call this, with the job borrowed exclusively: a
    /// [`Part`] carries its job's type, and nothing else makes one.
    fn part(&self, part: &Part<'_, Self>);
}

/// One lane's view of a running job of type `J`.
pub struct Part<'a, J: ?Sized> {
    index: usize,
    claims: Claims<'a>,
    job: PhantomData<fn(&J)>,
}

impl<J: ?Sized> Part<'_, J> {
    /// This lane's index, below [`Part::of`]; no two lanes of a dispatch share one.
    pub fn index(&self) -> usize {
        self.index
    }

    /// How many lanes the dispatch may use, at least 1.
    pub fn of(&self) -> usize {
        self.claims.lanes()
    }

    /// Claims the next `chunk` (at least 1) indices below `total`; fewer at the end of a lane's
    /// share, `None` when all are taken.
    ///
    /// Across all lanes of one dispatch, no index is ever given twice, whatever chunks are asked
    /// for.
    ///
    /// # Panics
    ///
    /// When this dispatch has claimed with another `total`, or `total` is `usize::MAX`.
    #[inline]
    pub fn claim(&self, total: usize, chunk: usize) -> Option<Range<usize>> {
        self.claims.next(self.index, total, chunk)
    }

    /// Claims one index below `total`.
    #[inline]
    pub fn claim_one(&self, total: usize) -> Option<usize> {
        self.claim(total, 1).map(|range| range.start)
    }
}

/// Runs `job` on the caller alone. A panic in the job unwinds through this call.
pub fn serial<J: Job>(job: &mut J) {
    let (total, taken) = (AtomicUsize::new(0), [CachePadded::new(AtomicUsize::new(0))]);
    let claims = Claims::new(&total, &taken);
    claims.reset();
    job.part(&Part {
        index: 0,
        claims,
        job: PhantomData,
    });
}

/// Runs `job` on all of `lanes`, the caller being one of them, and joins them before returning.
///
/// # Errors
///
/// [`LaneError::Panicked`] when a part panicked: the job's outputs are not to be used, and the
/// pool is dead. [`LaneError::Dead`] on every later call, without running anything.
pub fn parallel<J: Job>(lanes: &mut Lanes, job: &mut J) -> Result<(), LaneError> {
    if let Some(lane) = lanes.dead {
        return Err(LaneError::Dead { lane });
    }
    let job: &J = job;
    let task = Task {
        job: std::ptr::from_ref(job).cast(),
        run: run_part::<J>,
    };
    let result = lanes.dispatch(task);
    if let Err(LaneError::Panicked { lane }) = result {
        lanes.dead = Some(lane);
    }
    result
}

/// A job with its type forgotten: `run` is [`run_part`] of the type `job` points to.
#[derive(Clone, Copy)]
struct Task {
    job: *const (),
    run: unsafe fn(*const (), usize, Claims<'_>),
}

/// Calls `part` of the job of type `J` at `job`.
///
/// # Safety
///
/// - `job` points to a `J` that lives and is borrowed for this dispatch throughout the call.
unsafe fn run_part<J: Job>(job: *const (), index: usize, claims: Claims<'_>) {
    // SAFETY: the caller's obligation; `J: Sync`, so any thread may hold the reference.
    let job: &J = unsafe { &*job.cast::<J>() };
    job.part(&Part {
        index,
        claims,
        job: PhantomData,
    });
}

// A worker's states; see the module's diagram. STOP is final.
const IDLE: u8 = 0;
const READY: u8 = 1;
const RUNNING: u8 = 2;
const PARKED: u8 = 3;
const STOP: u8 = 4;

/// What the caller and the workers share.
struct Shared {
    /// The running task. Written by the caller while every worker is IDLE or PARKED; read by a
    /// worker only after it moved its own state from READY to RUNNING.
    task: UnsafeCell<Task>,
    /// What the running task's claims are made on: the total, and a counter a lane.
    total: CachePadded<AtomicUsize>,
    taken: Box<[CachePadded<AtomicUsize>]>,
    states: Box<[CachePadded<AtomicU8>]>,
    /// Whether the caller is parked, or about to, waiting for a worker to finish.
    caller_waits: CachePadded<AtomicBool>,
    /// One more than the first lane that panicked; 0 for none.
    panicked: AtomicUsize,
    spins: u32,
}

// SAFETY: everything but `task` is Sync by itself. `task` is written by the one caller
// (`dispatch` takes `&mut Lanes`) while no worker is READY or RUNNING, and read by workers that
// are RUNNING; the state words order the two (release on READY, acquire on RUNNING; release on
// IDLE, acquire at the join). The pointer inside is to a `Sync` job that outlives the dispatch.
unsafe impl Sync for Shared {}
// SAFETY: as above; `Shared` holds nothing tied to a thread.
unsafe impl Send for Shared {}

impl Shared {
    fn claims(&self) -> Claims<'_> {
        Claims::new(&self.total, &self.taken)
    }

    /// Runs the current task as `lane`, keeping a panic from unwinding further.
    ///
    /// # Safety
    ///
    /// - Called during a dispatch only, by the caller (lane 0) or by a worker in state RUNNING.
    unsafe fn run(&self, lane: usize) {
        // SAFETY: during a dispatch nobody writes the task.
        let task = unsafe { *self.task.get() };
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: `parallel` made the task from a job it borrows until the join.
            unsafe { (task.run)(task.job, lane, self.claims()) }
        }));
        if let Err(payload) = outcome {
            // Dropping a payload may run code that panics again.
            std::mem::forget(payload);
            let _ =
                self.panicked
                    .compare_exchange(0, lane + 1, Ordering::Relaxed, Ordering::Relaxed);
            // The others need not finish work that is already lost.
            self.claims().close();
        }
    }
}

/// Spins, then yields, until `done` or the patience is used up; says whether it is done.
#[inline]
fn wait_actively(spins: u32, mut done: impl FnMut() -> bool) -> bool {
    for _ in 0..spins {
        if done() {
            return true;
        }
        std::hint::spin_loop();
    }
    for _ in 0..YIELDS {
        if done() {
            return true;
        }
        std::thread::yield_now();
    }
    done()
}

/// How long a lane that waits keeps its core busy before it yields and parks. Changes speed alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// There is a core for each lane: wait actively for some tens of microseconds.
    OwnCores,
    /// There are more lanes than cores, or other work on them: yield almost at once.
    SharedCores,
}

/// A pool of lanes: the calling thread and `count() - 1` worker threads, which end when the pool
/// is dropped.
pub struct Lanes {
    shared: Arc<Shared>,
    parker: Parker,
    workers: Vec<Worker>,
    dead: Option<usize>,
}

struct Worker {
    unparker: Unparker,
    thread: Option<JoinHandle<()>>,
}

impl Lanes {
    /// A pool of `n` lanes; `n - 1` threads are started.
    ///
    /// # Errors
    ///
    /// [`LaneError::Count`] when `n` is 0 or over [`MAX_LANES`]; [`LaneError::CannotStart`] when
    /// a thread cannot be started (those already started end).
    pub fn new(n: usize, patience: Patience) -> Result<Lanes, LaneError> {
        let spins = match patience {
            Patience::OwnCores => SPINS,
            Patience::SharedCores => SPINS_SHARED,
        };
        if n == 0 || n > MAX_LANES {
            return Err(LaneError::Count(n));
        }
        let parker = Parker::new();
        let shared = Arc::new(Shared {
            task: UnsafeCell::new(Task {
                job: std::ptr::null(),
                run: run_part::<Nothing>,
            }),
            total: CachePadded::new(AtomicUsize::new(0)),
            taken: (0..n)
                .map(|_| CachePadded::new(AtomicUsize::new(0)))
                .collect(),
            states: (1..n)
                .map(|_| CachePadded::new(AtomicU8::new(IDLE)))
                .collect(),
            caller_waits: CachePadded::new(AtomicBool::new(false)),
            panicked: AtomicUsize::new(0),
            spins,
        });
        let mut lanes = Lanes {
            shared,
            parker,
            workers: Vec::with_capacity(n - 1),
            dead: None,
        };
        for lane in 1..n {
            let shared = Arc::clone(&lanes.shared);
            let caller = lanes.parker.unparker().clone();
            let own = Parker::new();
            let unparker = own.unparker().clone();
            let thread = std::thread::Builder::new()
                .name(format!("emel-lane-{lane}"))
                .spawn(move || work(&shared, lane, &own, &caller))
                .map_err(LaneError::CannotStart)?;
            lanes.workers.push(Worker {
                unparker,
                thread: Some(thread),
            });
        }
        Ok(lanes)
    }

    /// How many lanes there are, the caller included.
    pub fn count(&self) -> usize {
        self.shared.states.len() + 1
    }

    /// Forks `task` on all lanes, runs the caller's part, joins.
    fn dispatch(&mut self, task: Task) -> Result<(), LaneError> {
        let shared = &*self.shared;
        // SAFETY: `&mut self` and the join of the dispatch before: no worker is RUNNING, and
        // none becomes so before its state is set READY below.
        unsafe { *shared.task.get() = task };
        shared.claims().reset();
        for (state, worker) in shared.states.iter().zip(&self.workers) {
            if state.swap(READY, Ordering::AcqRel) == PARKED {
                worker.unparker.unpark();
            }
        }
        // SAFETY: this is the caller, inside the dispatch. It does not unwind.
        unsafe { shared.run(0) };
        for state in &shared.states {
            self.join(state);
        }
        match shared.panicked.load(Ordering::Relaxed) {
            0 => Ok(()),
            lane => Err(LaneError::Panicked { lane: lane - 1 }),
        }
    }

    /// Takes back an unbegun part, or waits for a running one.
    fn join(&self, state: &AtomicU8) {
        let shared = &*self.shared;
        let unbegun = state
            .compare_exchange(READY, IDLE, Ordering::Relaxed, Ordering::Acquire)
            .is_ok();
        let finished = || state.load(Ordering::Acquire) != RUNNING;
        if unbegun || wait_actively(shared.spins, finished) {
            return;
        }
        // Announce, look again, park: the worker stores IDLE, then looks for the announcement.
        // Both in sequential consistency, so one of the two sees the other.
        shared.caller_waits.store(true, Ordering::SeqCst);
        while state.load(Ordering::SeqCst) == RUNNING {
            self.parker.park();
        }
        shared.caller_waits.store(false, Ordering::Relaxed);
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        for (state, worker) in self.shared.states.iter().zip(&self.workers) {
            state.store(STOP, Ordering::Release);
            worker.unparker.unpark();
        }
        for worker in &mut self.workers {
            if let Some(thread) = worker.thread.take() {
                // A worker catches every panic of a job; there is nothing to report here.
                let _ = thread.join();
            }
        }
    }
}

/// The task before the first dispatch; never run.
struct Nothing;

impl Job for Nothing {
    fn part(&self, _: &Part<'_, Self>) {}
}

/// A worker's life: wait for READY, run, report, until STOP.
fn work(shared: &Shared, lane: usize, parker: &Parker, caller: &Unparker) {
    let state = &*shared.states[lane - 1];
    loop {
        let awake = wait_actively(shared.spins, || state.load(Ordering::Relaxed) != IDLE);
        if !awake
            && state
                .compare_exchange(IDLE, PARKED, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            while state.load(Ordering::Relaxed) == PARKED {
                parker.park();
            }
        }
        match state.compare_exchange(READY, RUNNING, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => {
                // SAFETY: RUNNING, hence inside the dispatch that set READY.
                unsafe { shared.run(lane) };
                // Nothing of the job is touched after this line.
                state.swap(IDLE, Ordering::SeqCst);
                if shared.caller_waits.load(Ordering::SeqCst) {
                    caller.unpark();
                }
            }
            Err(STOP) => return,
            // Taken back by the caller.
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests;
