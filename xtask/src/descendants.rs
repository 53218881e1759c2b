//! The descendants of a process: their memory, and their end.

use std::io;
use std::time::{Duration, Instant};

use anyhow::Context;

/// How long processes that a program left behind may take to end.
const GRACE: Duration = Duration::from_secs(3);

/// Makes orphans of our descendants our children, so that they can be found. Fails if the kernel refuses.
pub fn adopt_orphans() -> anyhow::Result<()> {
    // SAFETY: changes who adopts orphans, nothing else.
    let result = unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()).context("cannot adopt orphans") }
}

/// Waits for the children that a run left behind. Kills those that do not end in time, and gives their names.
pub fn end_those_left() -> anyhow::Result<Vec<String>> {
    let began = Instant::now();
    let mut killed = vec![];
    loop {
        // SAFETY: takes what has ended; no other code waits for these.
        while unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) } > 0 {}
        let children = children(std::process::id());
        if children.is_empty() {
            return Ok(killed);
        }
        if began.elapsed() > GRACE {
            for pid in children {
                killed.push(format!("{} ({pid})", name(pid)));
                kill(pid)?;
                // SAFETY: a child of ours that has been killed.
                unsafe { libc::waitpid(pid as i32, std::ptr::null_mut(), 0) };
            }
        } else {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Kills a process that has not been waited for, and all its descendants. Fails if one cannot be killed.
pub fn kill(pid: u32) -> anyhow::Result<()> {
    let below = below(pid);
    // Those that could start others end first.
    for pid in std::iter::once(pid).chain(below) {
        // SAFETY: sends a signal. The first is a child of ours that has not been waited for: the number is its own. Those below
        // were alive a moment ago.
        if unsafe { libc::kill(pid as i32, libc::SIGKILL) } != 0 {
            let error = io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::ESRCH) {
                return Err(error).with_context(|| format!("failed to kill {} ({pid})", name(pid)));
            }
        }
    }
    Ok(())
}

/// Memory of a process and its descendants, bytes, without pages of files and shared memory.
pub fn resident_bytes(pid: u32) -> u64 {
    let resident = |pid| -> Option<u64> {
        let sizes = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
        let mut sizes = sizes.split(' ').filter_map(|size| size.parse::<u64>().ok());
        let (_, resident, shared) = (sizes.next()?, sizes.next()?, sizes.next()?);
        Some((resident - shared.min(resident)) * 4096)
    };
    std::iter::once(pid).chain(below(pid)).filter_map(resident).sum()
}

/// The descendants of a process, parents before their children.
fn below(pid: u32) -> Vec<u32> {
    let mut all = children(pid);
    let mut next = 0;
    while let Some(&pid) = all.get(next) {
        all.extend(children(pid));
        next += 1;
    }
    all
}

/// A process that has ended meanwhile has none.
fn children(pid: u32) -> Vec<u32> {
    let mut all = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let text = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        all.extend(text.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
    }
    all
}

fn name(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).map_or_else(|_| "?".into(), |name| name.trim().to_owned())
}
