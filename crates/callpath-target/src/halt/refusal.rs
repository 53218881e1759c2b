//! Why a process cannot be stopped, in words.

use std::io::Read;

use super::tracer::Tracer;
use crate::error::TargetError;
use crate::pid::Pid;
use crate::proc_file::read_whole;
use crate::ptrace;
use crate::task_status::TaskStatus;

/// Whether a process can be stopped, as far as can be seen without touching it.
pub(super) fn check(pid: Pid) -> Result<(), TargetError> {
    let status = TaskStatus::read(pid, pid);
    let Some(status) = status.filter(|status| status.process == pid.0) else {
        // The number may be one of its threads'.
        let thread_of = process_of(pid);
        return Err(match thread_of {
            Some(process) => TargetError::Refused { pid, why: format!("it is a thread of process {process}") },
            None => TargetError::NoProcess { pid },
        });
    };
    if pid.0 == std::process::id() {
        return Err(TargetError::Refused { pid, why: "it is callpath itself".to_owned() });
    }
    if status.tracer != 0 {
        return Err(TargetError::AlreadyTraced { pid, tracer: tracer_name(status.tracer) });
    }
    let is_32_bits = || {
        // The file itself, also of another mount name space.
        let mut head = [0; 5];
        let read = std::fs::File::open(format!("/proc/{pid}/exe")).and_then(|mut file| file.read_exact(&mut head));
        read.is_ok() && head == *b"\x7fELF\x01"
    };
    if is_32_bits() { Err(TargetError::Bits32 { pid }) } else { Ok(()) }
}

/// Why a process that hides which file it runs cannot be stopped: the kernel allows reading that by the same rules as
/// tracing.
pub fn why_hidden(pid: Pid) -> TargetError {
    if let Err(error) = check(pid) {
        // SAFETY: signal 0 is never sent.
        let is_hidden = unsafe { libc::kill(pid.0 as i32, 0) } != 0
            && std::io::Error::last_os_error().raw_os_error() == Some(libc::EPERM);
        return match error {
            TargetError::NoProcess { pid } if is_hidden => {
                TargetError::Refused { pid, why: "it belongs to another user, and /proc hides it (hidepid)".to_owned() }
            }
            error => error,
        };
    }
    let Some(status) = TaskStatus::read(pid, pid) else { return TargetError::NoProcess { pid } };
    if matches!(status.state, 'Z' | 'X') {
        return TargetError::Refused {
            pid,
            why: "it has ended (a zombie: its parent has not waited for it)".to_owned(),
        };
    }
    explain(pid, &status, &std::io::Error::from_raw_os_error(libc::EPERM))
}

/// Whether it can be changed, now that it stands still.
pub(super) fn check_stopped(tracer: &Tracer) -> Result<(), TargetError> {
    /// The code segment of 64-bit programs.
    const USER_CS: u64 = 0x33;
    let pid = tracer.pid;
    for thread in &tracer.threads {
        if ptrace::registers(thread.tid)?.cs != USER_CS {
            return Err(TargetError::Bits32 { pid });
        }
    }
    Ok(())
}

/// The process of which `pid` is a thread other than the first.
fn process_of(pid: Pid) -> Option<u32> {
    let text = read_whole(format!("/proc/{pid}/status")).ok()?;
    let text = String::from_utf8_lossy(&text);
    text.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok()).filter(|process| *process != pid.0)
}

/// A thread's process, by name and number.
fn tracer_name(thread: u32) -> String {
    let process = process_of(Pid(thread)).unwrap_or(thread);
    match std::fs::read_to_string(format!("/proc/{process}/comm")) {
        Ok(name) => format!("{} (process {process})", name.trim_end()),
        Err(_) => format!("process {process}"),
    }
}

/// Why the kernel refuses to have a living thread traced.
pub(super) fn explain(pid: Pid, thread: &TaskStatus, error: &std::io::Error) -> TargetError {
    if thread.tracer != 0 {
        return TargetError::AlreadyTraced { pid, tracer: tracer_name(thread.tracer) };
    }
    if error.raw_os_error() != Some(libc::EPERM) {
        return TargetError::Refused { pid, why: format!("the kernel refuses to have it traced: {error}") };
    }
    if std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.is_empty())
        && std::fs::read_link(format!("/proc/{pid}/exe")).is_err()
        && TaskStatus::read(pid, pid).is_some_and(|status| status.process == pid.0 && status.caught == 0)
        && read_whole(format!("/proc/{pid}/maps")).is_ok_and(|maps| maps.is_empty())
    {
        return TargetError::Refused { pid, why: "it is a thread of the kernel".to_owned() };
    }
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    let scope = scope.ok().and_then(|scope| scope.trim().parse().ok()).unwrap_or(0);
    // SAFETY: has no arguments.
    let own = unsafe { libc::geteuid() };
    TargetError::Refused { pid, why: why_forbidden((own, thread.user), scope) }
}

/// By the users (callpath's, the process's), and `kernel.yama.ptrace_scope`.
fn why_forbidden((own, other): (u32, u32), scope: u32) -> String {
    match (own == other, scope) {
        (_, 3) => "kernel.yama.ptrace_scope is 3: no process may be traced until this machine starts anew".to_owned(),
        (false, _) if own != 0 => format!(
            "it belongs to another user ({other}, callpath runs as {own}): run callpath as that user, as root, or with \
             CAP_SYS_PTRACE"
        ),
        (_, 1) => "kernel.yama.ptrace_scope is 1: only a program's parent may trace it. Run callpath as root, or set it \
                   to 0 (sysctl kernel.yama.ptrace_scope=0)"
            .to_owned(),
        (_, 2) => "kernel.yama.ptrace_scope is 2: only root, or a program with CAP_SYS_PTRACE, may trace others".to_owned(),
        (true, _) if own != 0 => "the kernel protects it (it has more privileges than callpath, or wishes not to be \
                                  traced): run callpath as root, or with CAP_SYS_PTRACE"
            .to_owned(),
        _ => "callpath lacks CAP_SYS_PTRACE for it (in a container, --cap-add=SYS_PTRACE), or a security module forbids it"
            .to_owned(),
    }
}

/// Why a thread does not stop, by its state.
pub(super) fn why_running(process: Pid, thread: Pid, state: char) -> String {
    if state != 'D' {
        return format!("it is in state {state}");
    }
    let call = std::fs::read_to_string(format!("/proc/{process}/task/{thread}/syscall"));
    let call: Option<libc::c_long> = call.ok().and_then(|call| call.split(' ').next()?.parse().ok());
    match call {
        Some(libc::SYS_vfork | libc::SYS_clone | libc::SYS_clone3) => {
            "it waits for a child that shares its memory (vfork) and has not executed a program yet".to_owned()
        }
        Some(call) => format!("it waits uninterruptibly in system call {call} (a slow disk or network file system?)"),
        None => "it waits uninterruptibly in the kernel".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_says_what_would_help() {
        assert!(why_forbidden((1000, 33), 0).contains("another user (33, callpath runs as 1000)"));
        assert!(why_forbidden((1000, 1000), 1).contains("sysctl kernel.yama.ptrace_scope=0"));
        assert!(why_forbidden((1000, 1000), 2).contains("CAP_SYS_PTRACE"));
        assert!(why_forbidden((0, 1000), 3).contains("starts anew"));
        assert!(why_forbidden((1000, 1000), 0).contains("more privileges"));
        assert!(why_forbidden((0, 1000), 0).contains("--cap-add"));
    }
}
