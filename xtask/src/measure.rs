//! What a command cost: CPU of itself and everything it waited for, wall time, memory.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

use crate::descendants;

/// What one run cost, by the kernel's account (wait4).
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

/// The limits above which a run is killed, with everything that it has started.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// From start to end.
    pub wall: Duration,
    /// Resident, of all its processes together, looked at twice a second.
    pub memory_bytes: u64,
}

/// Runs a command to its end, with the standard streams that it was given. Fails if it cannot be started.
pub fn run(command: &mut Command) -> io::Result<Usage> {
    let start = Instant::now();
    let child = command.spawn()?;
    reap(&child, start)
}

/// The same within limits. The text says which limit it exceeded and was killed for.
pub fn run_within(command: &mut Command, limits: Limits) -> anyhow::Result<(Usage, Option<String>)> {
    let start = Instant::now();
    let child = command.spawn().with_context(|| format!("failed to start {}", command.get_program().display()))?;
    let (ended, end) = mpsc::channel::<()>();
    let exceeded = std::thread::scope(|scope| -> anyhow::Result<Option<String>> {
        let pid = child.id();
        let watch = scope.spawn(move || watch(pid, limits, start, &end));
        let waited = wait_without_reaping(&child);
        drop(ended);
        waited?;
        watch.join().map_err(|_| anyhow::anyhow!("the watch over the run panicked"))?
    })?;
    Ok((reap(&child, start)?, exceeded))
}

/// The same for a command that must succeed: being killed, or another status than 0, is an error.
pub fn run_well_within(command: &mut Command, limits: Limits) -> anyhow::Result<Usage> {
    let (usage, exceeded) = run_within(command, limits)?;
    let program = command.get_program().display();
    if let Some(what) = exceeded {
        bail!("{program} was killed: it took {what}");
    }
    ensure!(usage.status.success(), "{program} ended with {}", usage.status);
    Ok(usage)
}

/// Waits until a process ends or exceeds a limit; gives the limit as text.
fn watch(pid: u32, limits: Limits, start: Instant, end: &mpsc::Receiver<()>) -> anyhow::Result<Option<String>> {
    loop {
        let left = limits.wall.saturating_sub(start.elapsed());
        if end.recv_timeout(left.min(Duration::from_millis(500))) == Err(RecvTimeoutError::Disconnected) {
            return Ok(None);
        }
        let memory = descendants::resident_bytes(pid);
        let what = if memory > limits.memory_bytes {
            format!("{} MB of memory", memory / 1_000_000)
        } else if start.elapsed() >= limits.wall {
            format!("more than {} s", limits.wall.as_secs())
        } else {
            continue;
        };
        descendants::kill(pid)?;
        return Ok(Some(what));
    }
}

/// Waits until a child has ended without reaping it: its number stays its own, so no other process can be killed by it.
fn wait_without_reaping(child: &Child) -> io::Result<()> {
    loop {
        // SAFETY: siginfo_t is plain numbers.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer is to our own variable; the child stays to be waited for.
        if unsafe { libc::waitid(libc::P_PID, child.id(), &mut info, libc::WEXITED | libc::WNOWAIT) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

fn reap(child: &Child, start: Instant) -> io::Result<Usage> {
    let pid = child.id() as libc::pid_t;
    let mut status = 0;
    // SAFETY: rusage is plain numbers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both pointers are to our own variables; the child is ours and no other code waits for it.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    const PLENTY: Limits = Limits { wall: Duration::from_secs(100), memory_bytes: 1 << 40 };

    #[test]
    fn what_ends_in_time_is_not_killed() {
        let (usage, exceeded) = run_within(&mut shell("exit 3"), PLENTY).unwrap();
        assert_eq!((usage.status.code(), exceeded), (Some(3), None));
        let error = run_well_within(&mut shell("exit 3"), PLENTY).unwrap_err();
        assert_eq!(error.to_string(), "sh ended with exit status: 3");
    }

    #[test]
    fn what_takes_too_long_is_killed_with_its_children() {
        let limits = Limits { wall: Duration::from_millis(300), ..PLENTY };
        let (mut reader, writer) = io::pipe().unwrap();
        let mut command = shell("sleep 99; sleep 99");
        // The shell waits for its child; both hold the pipe.
        let (_, exceeded) = run_within(command.stdout(writer), limits).unwrap();
        assert_eq!(exceeded.as_deref(), Some("more than 0 s"));
        drop(command);
        // Ends only when no process holds the other side.
        assert_eq!(io::Read::read_to_end(&mut reader, &mut vec![]).unwrap(), 0);
    }

    #[test]
    fn what_takes_too_much_memory_is_killed() {
        let limits = Limits { memory_bytes: 1, ..PLENTY };
        let error = run_well_within(&mut shell("sleep 99; true"), limits).unwrap_err();
        assert!(error.to_string().ends_with("MB of memory"), "{error}");
    }
}
