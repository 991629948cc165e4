//! Processes that this program has started, each the head of a group of its own: when the program
//! ends, they and whatever they started end too.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, kill_process_group};

static GROUPS: Mutex<Vec<u32>> = Mutex::new(Vec::new());

fn groups() -> MutexGuard<'static, Vec<u32>> {
    GROUPS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn end(group: u32) {
    let pid = i32::try_from(group).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // It may be gone already.
        let _ = kill_process_group(pid, Signal::KILL);
    }
}

/// Notes a process that heads a group.
pub fn begun(group: u32) {
    groups().push(group);
}

/// Ends what is left of a group.
pub fn end_group(group: u32) {
    let mut groups = groups();
    if groups.contains(&group) {
        groups.retain(|other| *other != group);
        end(group);
    }
}

/// Ends every group. For an exit that runs no destructors.
pub fn end_all() {
    groups().drain(..).for_each(end);
}
