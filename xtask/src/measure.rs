//! What a command cost: CPU of itself and everything it waited for, wall time, memory.
//! Knows nothing of what the command does.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

/// The account of one run, by the kernel (wait4).
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// User plus system time of the command and of all descendants that were waited for.
    pub cpu: Duration,
    /// From start to end.
    pub wall: Duration,
    /// The largest resident set of any one of these processes, bytes.
    pub max_rss_bytes: u64,
    /// How it ended.
    pub status: ExitStatus,
}

/// Runs a command to its end. Standard streams are as the command says.
pub fn run(command: &mut Command) -> io::Result<Usage> {
    let start = Instant::now();
    let child = command.spawn()?;
    let pid = child.id() as libc::pid_t;
    let mut status = 0;
    // SAFETY: rusage is plain numbers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both pointers are to our own variables; the child is ours and nobody else waits for it.
        if unsafe { libc::wait4(pid, &mut status, 0, &mut usage) } == pid {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    Ok(Usage {
        cpu: duration(usage.ru_utime) + duration(usage.ru_stime),
        wall: start.elapsed(),
        max_rss_bytes: u64::try_from(usage.ru_maxrss).unwrap_or(0) * 1024,
        status: ExitStatus::from_raw(status),
    })
}

fn duration(time: libc::timeval) -> Duration {
    Duration::from_micros(time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64)
}
