//! What `/proc/PID/task/TID/status` says of a thread.

use crate::pid::Pid;
use crate::proc_file::read_whole;

/// Of a thread. Sets of signals: bit n-1 is signal n.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct TaskStatus {
    /// Its name.
    pub(crate) name: String,
    /// `R`, `S`, `D`, `Z`, ...
    pub(crate) state: char,
    /// The thread that traces it; 0: none.
    pub(crate) tracer: u32,
    /// The process.
    pub(crate) process: u32,
    /// Effective user.
    pub(crate) user: u32,
    /// 0: none, 1: strict, 2: a filter.
    pub(crate) seccomp: u8,
    /// Memory of the process's that stays in RAM (`mlockall`), kB.
    pub(crate) locked_kb: u64,
    /// Whether it has a shadow stack.
    pub(crate) shadow_stack: bool,
    /// Signals pending for it alone.
    pub(crate) pending: u64,
    /// Signals pending for the process.
    pub(crate) shared_pending: u64,
    /// Signals held back.
    pub(crate) blocked: u64,
    /// Signals that the process ignores by its own wish.
    pub(crate) ignored: u64,
    /// Signals that have a handler.
    pub(crate) caught: u64,
}

impl TaskStatus {
    /// `None`: there is no such thread (any more).
    pub(crate) fn read(process: Pid, thread: Pid) -> Option<TaskStatus> {
        let text = read_whole(format!("/proc/{process}/task/{thread}/status")).ok()?;
        Some(TaskStatus::parse(&String::from_utf8_lossy(&text)))
    }

    fn parse(text: &str) -> TaskStatus {
        let mut status = TaskStatus::default();
        for line in text.lines() {
            let Some((field, value)) = line.split_once(':') else { continue };
            let value = value.trim();
            let number = || value.parse().unwrap_or(0);
            let set = || u64::from_str_radix(value, 16).unwrap_or(0);
            match field {
                "Name" => status.name = value.to_owned(),
                "State" => status.state = value.chars().next().unwrap_or('?'),
                "TracerPid" => status.tracer = number(),
                "Tgid" => status.process = number(),
                "Uid" => {
                    status.user = value.split_whitespace().nth(1).and_then(|user| user.parse().ok()).unwrap_or(0);
                }
                "Seccomp" => status.seccomp = value.parse().unwrap_or(0),
                "VmLck" => status.locked_kb = value.trim_end_matches(" kB").parse().unwrap_or(0),
                "x86_Thread_features" => status.shadow_stack = value.split_whitespace().any(|word| word == "shstk"),
                "SigPnd" => status.pending = set(),
                "ShdPnd" => status.shared_pending = set(),
                "SigBlk" => status.blocked = set(),
                "SigIgn" => status.ignored = set(),
                "SigCgt" => status.caught = set(),
                _ => {}
            }
        }
        status
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }

    /// Of `signals`, those that do something when they are delivered.
    pub(crate) fn effective(&self, signals: u64) -> u64 {
        const WITHOUT_EFFECT: [i32; 4] = [libc::SIGCHLD, libc::SIGURG, libc::SIGWINCH, libc::SIGCONT];
        let without_effect = WITHOUT_EFFECT.iter().fold(0, |set, signal| set | bit(*signal));
        signals & !self.ignored & !(without_effect & !self.caught)
    }

    /// Pending signals that it would take now and that do something.
    pub(crate) fn imminent(&self) -> u64 {
        self.effective((self.pending | self.shared_pending) & !self.blocked)
    }
}

/// A set of one signal.
pub(crate) fn bit(signal: i32) -> u64 {
    1_u64.checked_shl(signal.wrapping_sub(1) as u32).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_as_the_kernel_writes_it() {
        let text = "Name:\ta b\nState:\tt (tracing stop)\nTgid:\t7\nTracerPid:\t12\nUid:\t1\t1000\t1\t1\n\
                    Seccomp:\t2\nSigPnd:\t0000000000000200\nShdPnd:\t0000000000010000\nSigBlk:\t0000000000000000\n\
                    SigIgn:\t0000000000001000\nSigCgt:\t0000000180000002\nx86_Thread_features:\tshstk wrss\n";
        let status = TaskStatus::parse(text);
        assert_eq!((status.name.as_str(), status.state, status.process, status.tracer), ("a b", 't', 7, 12));
        assert_eq!((status.user, status.seccomp, status.shadow_stack), (1000, 2, true));
        // SIGUSR1 (10) acts; SIGCHLD (17) does nothing unless it is caught.
        assert_eq!(status.imminent(), bit(libc::SIGUSR1));
        let caught = TaskStatus { caught: bit(libc::SIGCHLD), ..status };
        assert_eq!(caught.imminent(), bit(libc::SIGUSR1) | bit(libc::SIGCHLD));
    }

    #[test]
    fn own_status() {
        let own = Pid(std::process::id());
        let status = TaskStatus::read(own, own).unwrap();
        assert_eq!(status.process, own.0);
        assert!(!status.has_ended());
    }
}
