//! The threads of a process, as the kernel lists them.

use crate::pid::Pid;
use crate::task_status::TaskStatus;

/// A thread that has not ended, best the first: of one that has, the kernel shows neither memory nor map.
pub(crate) fn living_thread(process: Pid) -> Option<Pid> {
    let lives = |tid: &Pid| TaskStatus::read(process, *tid).is_some_and(|status| !status.has_ended());
    if lives(&process) { Some(process) } else { threads_of(process).into_iter().find(lives) }
}

/// A process's threads, as far as they have not been reaped; none if it is gone.
pub(crate) fn threads_of(process: Pid) -> Vec<Pid> {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{process}/task")) else { return Vec::new() };
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse().ok().map(Pid);
    entries.filter_map(|entry| number(entry.ok()?)).collect()
}
