//! What the kernel says of itself and of this process's surroundings: limits, name spaces, filters, clocks.
//! What that means for a measurement is for the caller to say. What can be tried out is in `rehearsal`.

use std::io;
use std::path::Path;
use std::time::Instant;

use crate::launch::most_descriptors;

/// What was found. `None` where the kernel does not say.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Machine {
    /// The kernel's release, `6.1.0-35-amd64` for example.
    pub kernel: Option<String>,
    /// `kernel.perf_event_paranoid`
    pub perf_event_paranoid: Option<i64>,
    /// `kernel.yama.ptrace_scope`; `None` without Yama.
    pub ptrace_scope: Option<i64>,
    /// This process's seccomp mode: 0 none, 1 strict, 2 a filter.
    pub seccomp: Option<i64>,
    /// The effective user.
    pub user: u32,
    /// Effective capabilities, a bit each.
    pub capabilities: Option<u64>,
    /// In a user name space whose users are not the machine's.
    pub in_user_namespace: bool,
    /// In how many PID name spaces this process has a number; 1: in the first one only, or `/proc` is of this one.
    pub pid_namespaces: Option<usize>,
    /// Signs that this is a container.
    pub container: Vec<String>,
    /// What the kernel keeps time with, `tsc` for example.
    pub clock_source: Option<String>,
    /// What reading a thread's CPU clock costs, nanoseconds.
    pub clock_read_ns: u64,
    /// The processor can keep a user shadow stack.
    pub shadow_stack: bool,
    /// Limits, as far as there are any.
    pub limits: Limits,
}

/// Soft limits of this process, but for descriptors; `None`: unlimited.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    /// RLIMIT_AS, bytes.
    pub address_space: Option<u64>,
    /// RLIMIT_FSIZE, bytes.
    pub file_size: Option<u64>,
    /// As many as a recorder may have: RLIMIT_NOFILE, the hard one; with CAP_SYS_RESOURCE, what the kernel allows any process.
    pub descriptors: Option<u64>,
    /// RLIMIT_SIGPENDING: timers of all processes of this user.
    pub pending_signals: Option<u64>,
}

/// `CAP_PERFMON` and `CAP_SYS_ADMIN`, either of which lets a process use perf events.
pub const PERFMON_CAPABILITIES: u64 = 1 << 38 | 1 << 21;

/// `CAP_SYS_RESOURCE`: a process may raise its limits.
const RESOURCE_CAPABILITY: u64 = 1 << 24;

impl Machine {
    /// Looks.
    pub fn look() -> Machine {
        let status = word_file("/proc/self/status").unwrap_or_default();
        let field = |name: &str| status.lines().find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()));
        let number = |path: &str| word_file(path).and_then(|text| text.parse().ok());
        let capabilities = field("CapEff:").and_then(|bits| u64::from_str_radix(&bits, 16).ok());
        let in_user_namespace = word_file("/proc/self/uid_map").is_some_and(|map| {
            let words: Vec<&str> = map.split_whitespace().collect();
            words != ["0", "0", "4294967295"]
        });
        // In a user namespace, that capability lifts no limits.
        let may_raise = capabilities.is_some_and(|held| held & RESOURCE_CAPABILITY != 0) && !in_user_namespace;
        Machine {
            kernel: word_file("/proc/sys/kernel/osrelease"),
            perf_event_paranoid: number("/proc/sys/kernel/perf_event_paranoid"),
            ptrace_scope: number("/proc/sys/kernel/yama/ptrace_scope"),
            seccomp: field("Seccomp:").and_then(|mode| mode.parse().ok()),
            // SAFETY: returns a number.
            user: unsafe { libc::geteuid() },
            capabilities,
            in_user_namespace,
            pid_namespaces: field("NSpid:").map(|numbers| numbers.split_whitespace().count()),
            container: container(),
            clock_source: word_file("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            clock_read_ns: clock_read_ns(),
            shadow_stack: word_file("/proc/cpuinfo")
                .is_some_and(|text| text.split_whitespace().any(|flag| flag == "user_shstk")),
            limits: Limits {
                address_space: limit(libc::RLIMIT_AS).0,
                file_size: limit(libc::RLIMIT_FSIZE).0,
                descriptors: limit(libc::RLIMIT_NOFILE).1.max(most_descriptors().filter(|_| may_raise)),
                pending_signals: limit(libc::RLIMIT_SIGPENDING).0,
            },
        }
    }

    /// The kernel's version, two numbers.
    pub fn kernel_version(&self) -> Option<(u32, u32)> {
        let mut numbers = self.kernel.as_ref()?.split(|c: char| !c.is_ascii_digit()).map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    }
}

/// A small file of the kernel's, without blanks around it.
fn word_file(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn container() -> Vec<String> {
    let mut evidence = Vec::new();
    for file in ["/.dockerenv", "/run/.containerenv"] {
        if Path::new(file).exists() {
            evidence.push(file.to_owned());
        }
    }
    // The first process's environment is readable for its own user only; systemd leaves the same word here.
    evidence.extend(word_file("/run/systemd/container").map(|kind| format!("/run/systemd/container says {kind}")));
    let groups = word_file("/proc/self/cgroup").unwrap_or_default();
    let kinds = ["docker", "kubepods", "lxc", "libpod", "containerd", "garden"];
    evidence.extend(kinds.iter().find(|kind| groups.contains(**kind)).map(|kind| format!("a control group of {kind}")));
    evidence
}

/// Soft and hard.
fn limit(resource: libc::__rlimit_resource_t) -> (Option<u64>, Option<u64>) {
    // SAFETY: a valid place.
    let limit = unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        if libc::getrlimit(resource, &mut limit) != 0 {
            return (None, None);
        }
        limit
    };
    let finite = |value| (value != libc::RLIM_INFINITY).then_some(value);
    (finite(limit.rlim_cur), finite(limit.rlim_max))
}

fn clock_read_ns() -> u64 {
    const READS: u32 = 2000;
    let began = Instant::now();
    for _ in 0..READS {
        // SAFETY: a valid place.
        unsafe {
            let mut time: libc::timespec = std::mem::zeroed();
            libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time);
        }
    }
    u64::try_from((began.elapsed() / READS).as_nanos()).unwrap_or(u64::MAX)
}

/// What can be said of a directory that is to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    /// Bytes that this user may still write.
    pub free_bytes: u64,
    /// Nothing there may be mapped to be executed.
    pub no_exec: bool,
}

impl Room {
    /// Of the file system that `path`, or the nearest directory above it that exists, is on.
    pub fn of(path: &Path) -> io::Result<Room> {
        use std::os::unix::ffi::OsStrExt;
        let there = path.ancestors().find(|path| path.exists()).unwrap_or(Path::new("."));
        let there = if there.as_os_str().is_empty() { Path::new(".") } else { there };
        let name = std::ffi::CString::new(there.as_os_str().as_bytes())?;
        // SAFETY: a valid path and a valid place.
        let (result, room) = unsafe {
            let mut room: libc::statvfs = std::mem::zeroed();
            (libc::statvfs(name.as_ptr(), &mut room), room)
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        let free_bytes = room.f_bavail.saturating_mul(room.f_frsize);
        Ok(Room { free_bytes, no_exec: room.f_flag & libc::ST_NOEXEC != 0 })
    }
}
