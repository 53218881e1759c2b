//! Other processes that share a process's memory: children by `clone` with `CLONE_VM` and without `CLONE_THREAD`.

use crate::pid::Pid;

/// Those that share the memory of `thread`, without those known. Processes that this user may not look at are passed over,
/// and all on a kernel without `kcmp`.
pub(super) fn of(thread: Pid, known: &[Pid]) -> Vec<Pid> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok().map(Pid));
    numbers.filter(|process| !known.contains(process) && share_memory(thread, *process)).collect()
}

fn share_memory(one: Pid, other: Pid) -> bool {
    const KCMP_VM: i32 = 1;
    // SAFETY: takes numbers.
    unsafe { libc::syscall(libc::SYS_kcmp, one.0, other.0, KCMP_VM, 0, 0) == 0 }
}
