//! Other processes that share a process's memory: children by `clone` with `CLONE_VM` and without `CLONE_THREAD`.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::listed::living_thread;
use crate::pid::Pid;

/// Processes that did not share it when they were looked at, before it was stopped: they never will, only a new one can. So a
/// stop is not spent on looking at all of them.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    /// When, and which.
    looked: Option<(Instant, BTreeSet<Pid>)>,
}

impl Strangers {
    /// Of a process that runs.
    pub(super) fn of(process: Pid) -> Strangers {
        let Some(reference) = living_thread(process) else { return Strangers::default() };
        let looked = Instant::now();
        let others = processes().filter(|other| !share_memory(reference, *other));
        Strangers { looked: Some((looked, others.collect())) }
    }

    /// Those that share the memory of `thread`, without those known. Processes that this user may not look at are passed
    /// over, and all on a kernel without `kcmp`.
    pub(super) fn sharers(&self, thread: Pid, known: &[Pid]) -> Vec<Pid> {
        /// Too short for all numbers of processes to be used, and a stranger's by another one.
        const NUMBERS_LAST: Duration = Duration::from_millis(100);
        let strangers = self.looked.as_ref().filter(|(looked, _)| looked.elapsed() < NUMBERS_LAST);
        let is_stranger = |process: &Pid| strangers.is_some_and(|(_, strangers)| strangers.contains(process));
        let open = processes().filter(|process| !known.contains(process) && !is_stranger(process));
        open.filter(|process| share_memory(thread, *process)).collect()
    }
}

/// All there are.
fn processes() -> impl Iterator<Item = Pid> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok().map(Pid))
}

fn share_memory(one: Pid, other: Pid) -> bool {
    const KCMP_VM: i32 = 1;
    // SAFETY: takes numbers.
    unsafe { libc::syscall(libc::SYS_kcmp, one.0, other.0, KCMP_VM, 0, 0) == 0 }
}
