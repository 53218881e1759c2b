//! What this machine and this user's rights mean for a measurement.

use std::io;
use std::path::{Path, PathBuf};

use callpath_measurement::plain;
use callpath_tables::table_cache::TableCache;
use callpath_target::machine::{Limits, Machine, PERFMON_CAPABILITIES, Room};
use callpath_target::rehearsal::{Rehearsal, TIMER_CPU_MS, rehearse};
use callpath_target::{Pid, StackSampler, StackSamples};

use super::finding::Finding;
use super::trial_recording;
use crate::surroundings;

/// Looks, and tries.
pub(super) fn look() -> anyhow::Result<Vec<Finding>> {
    let machine = Machine::look();
    let rehearsal = rehearse().map_err(|error| anyhow::anyhow!("failed to start a child to try things on: {error}"))?;
    let mut findings = vec![kernel(&machine)];
    // First what can be done, then why.
    findings.extend(trial_recording::EVENTS.into_iter().flat_map(trial_recording::of));
    findings.push(attaching(&machine));
    findings.push(perf_events(&machine, &rehearsal));
    findings.extend([timer(&rehearsal), memory(&rehearsal), maps(&rehearsal), foreign_memory(&machine, &rehearsal)]);
    findings.extend(confinement(&machine));
    findings.extend(limits(&machine.limits));
    findings.push(clock_source(&machine));
    findings.push(shadow_stack(&machine));
    findings.push(cache());
    findings.push(destination());
    findings.extend(preloaded());
    Ok(findings)
}

fn kernel(machine: &Machine) -> Finding {
    let release = machine.kernel.clone().unwrap_or_else(|| "unknown".into());
    // The kernel that first delivered samples as SIGTRAP.
    match machine.kernel_version() {
        Some(version) if version < (5, 13) => Finding::limited("kernel", release)
            .means("the kernel's clock cannot signal a program before Linux 5.13: samples come from timers")
            .remedy("run Linux 5.13 or newer"),
        _ => Finding::good("kernel", release),
    }
}

/// Whether processes that run can be sampled from outside, tried on this one.
fn attaching(machine: &Machine) -> Finding {
    const TOPIC: &str = "attaching (-p)";
    let attach = |user_only: bool| {
        let samples = StackSamples {
            period_ns: 1_000_000,
            user_only,
            stack_bytes: 4096,
            with_children: false,
            everything: false,
            switches: !user_only,
            kernel: false,
        };
        StackSampler::new(samples)?.begin(Pid(std::process::id()))
    };
    let has_right = machine.capabilities.is_some_and(|bits| bits & PERFMON_CAPABILITIES != 0);
    let whose = if has_right { "all processes" } else { "your own processes" };
    if attach(false).is_ok() {
        return Finding::good(TOPIC, format!("{whose} can be sampled while they run, and what they wait for"));
    }
    match attach(true) {
        Ok(()) => Finding::limited(TOPIC, format!("{whose} can be sampled while they run, in user mode only"))
            .means("time in system calls has no call path, and -e wall-time cannot be had of running and of static programs")
            .remedy("as root: sysctl kernel.perf_event_paranoid=1"),
        Err(error) => Finding::limited(TOPIC, format!("a ring for samples does not open ({})", plain(&error)))
            .means("running processes, and programs that load no preloaded object (static, musl, Go), cannot be sampled")
            .remedy("as the line on perf events says"),
    }
}

fn perf_events(machine: &Machine, rehearsal: &Rehearsal) -> Finding {
    const TOPIC: &str = "perf events";
    let setting = machine.perf_event_paranoid.map_or("there is no kernel.perf_event_paranoid".into(), |value| {
        format!("kernel.perf_event_paranoid is {value}")
    });
    let open = |result: &io::Result<()>| match result {
        Ok(()) => "opens".to_owned(),
        Err(error) => format!("does not open ({})", plain(error)),
    };
    let found = format!(
        "{setting}; the kernel's clock {}, in user mode only it {}; the event of context switches {}",
        open(&rehearsal.clock),
        open(&rehearsal.user_clock),
        open(&rehearsal.context_switches)
    );
    let Err(error) = rehearsal.clock.as_ref().and(rehearsal.context_switches.as_ref()) else {
        return Finding::good(TOPIC, found);
    };
    let finding = Finding::limited(TOPIC, found).means(match rehearsal.user_clock {
        Ok(()) => "time in the kernel is sampled at the kernel's tick only; wall-time comes from timers",
        Err(_) => "samples come from a timer in each thread, at the kernel's tick at most",
    });
    let has_right = machine.capabilities.is_some_and(|bits| bits & PERFMON_CAPABILITIES != 0);
    finding.remedy(match error.raw_os_error() {
        Some(libc::EACCES) => "as root: sysctl kernel.perf_event_paranoid=1",
        _ if machine.seccomp == Some(2) => {
            "a seccomp filter denies it: start the container with --cap-add PERFMON (Docker, Podman), or with a seccomp \
             profile that allows perf_event_open"
        }
        Some(libc::EINVAL) => "run Linux 5.13 or newer",
        Some(libc::ENOSYS | libc::ENOENT) => "run a kernel that is built with CONFIG_PERF_EVENTS",
        _ if has_right => "something other than the kernel's setting denies it (a security module, perhaps)",
        _ => "as root: sysctl kernel.perf_event_paranoid=1",
    })
}

fn timer(rehearsal: &Rehearsal) -> Finding {
    const TOPIC: &str = "timers";
    match &rehearsal.timer {
        Ok(0) => Finding::limited(TOPIC, format!("no signal came in {TIMER_CPU_MS} ms of CPU time"))
            .means("where samples come from timers, there are none"),
        Ok(count) => {
            let rate = u64::from(*count) * 1000 / u64::from(TIMER_CPU_MS);
            Finding::good(
                TOPIC,
                format!("a timer on a thread's CPU clock comes {rate} times a second of 1,000 asked for"),
            )
        }
        Err(error) => Finding::limited(TOPIC, format!("a thread cannot have one ({})", plain(error)))
            .means("where samples come from timers, there are none")
            .remedy("ulimit -i unlimited, or a higher limit of pending signals from the administrator"),
    }
}

fn memory(rehearsal: &Rehearsal) -> Finding {
    const TOPIC: &str = "shared memory";
    match (&rehearsal.memory, &rehearsal.opened_by_child) {
        (Ok(()), Ok(())) => {
            Finding::good(TOPIC, "a memory file can be made, and a child can open and map it under /proc")
        }
        (Err(error), _) => Finding::bad(TOPIC, format!("no memory file can be made ({})", plain(error)))
            .means("`callpath record` does not work here")
            .remedy("allow memfd_create, and limits that leave room (ulimit -f, ulimit -v)"),
        (_, Err(error)) => Finding::bad(TOPIC, format!("a child cannot open it under /proc ({})", plain(error)))
            .means("programs cannot join a measurement")
            .remedy("mount /proc, of this PID name space: mount -t proc proc /proc"),
    }
}

fn maps(rehearsal: &Rehearsal) -> Finding {
    const TOPIC: &str = "memory maps";
    match &rehearsal.maps {
        Ok(()) => Finding::good(TOPIC, "/proc/PID/maps of a child can be read"),
        Err(error) => Finding::bad(TOPIC, format!("/proc/PID/maps of a child cannot be read ({})", plain(error)))
            .means("the recorder refuses processes whose map it cannot see")
            .remedy("mount /proc, of this PID name space: mount -t proc proc /proc"),
    }
}

fn foreign_memory(machine: &Machine, rehearsal: &Rehearsal) -> Finding {
    const TOPIC: &str = "other processes' memory";
    let scope = machine.ptrace_scope.map_or("there is no Yama".into(), |s| format!("kernel.yama.ptrace_scope is {s}"));
    if rehearsal.foreign_memory {
        return Finding::good(TOPIC, format!("a child's can be read; {scope}"));
    }
    Finding::limited(TOPIC, format!("a child's cannot be read; {scope}"))
        .means("code that programs write at run time cannot be analysed: paths through it are partial")
        .remedy(match machine.ptrace_scope {
            Some(2..) => "as root: sysctl kernel.yama.ptrace_scope=1",
            _ => "allow process_vm_readv",
        })
}

fn confinement(machine: &Machine) -> Vec<Finding> {
    let mut findings = Vec::new();
    if machine.container.is_empty() {
        findings.push(Finding::good("container", "no sign of one"));
    } else {
        let found = format!("in one: {}", machine.container.join(", "));
        findings.push(Finding::good("container", found).means("run callpath inside of it, beside the program"));
    }
    if machine.in_user_namespace {
        let found = "this is a user name space of its own";
        findings.push(Finding::good("user name space", found).means("root here has no rights to perf events"));
    }
    if let Some(depth @ 2..) = machine.pid_namespaces {
        findings.push(
            Finding::bad("PID name space", format!("/proc is of another one ({depth} levels up are seen)"))
                .means("processes have other numbers in /proc than callpath has of them")
                .remedy("mount -t proc proc /proc"),
        );
    }
    findings.push(match machine.seccomp {
        Some(0) | None => Finding::good("seccomp", "no filter"),
        Some(mode) => Finding::good("seccomp", format!("mode {mode}: a filter restricts system calls"))
            .means("the lines above say what it denies of what callpath needs"),
    });
    findings
}

fn limits(limits: &Limits) -> Vec<Finding> {
    /// The windows that a program maps for callpath.
    const WINDOWS: u64 = 384 << 20;
    const MIB: u64 = 1 << 20;
    /// One for each process that is measured at once, and one for each of its events.
    const DESCRIPTORS: u64 = 1024;
    let mut findings = Vec::new();
    if let Some(limit) = limits.address_space.filter(|limit| *limit < WINDOWS * 16) {
        findings.push(
            Finding::limited("limit of address space", format!("{} MiB (ulimit -v)", limit / MIB))
                .means("the windows for contexts and tables are smaller: at most a sixteenth of it each")
                .remedy("ulimit -v unlimited"),
        );
    }
    if let Some(limit) = limits.file_size {
        findings.push(
            Finding::limited("limit of file size", format!("{} KiB (ulimit -f)", limit / 1024))
                .means("the memory files and the measurement cannot be longer than that")
                .remedy("ulimit -f unlimited"),
        );
    }
    if let Some(limit) = limits.descriptors.filter(|limit| *limit < DESCRIPTORS) {
        findings.push(
            Finding::limited("limit of descriptors", format!("{limit} (ulimit -Hn)"))
                .means(format!("about {} processes can be measured at the same time", limit.saturating_sub(16) / 2))
                .remedy("ulimit -Hn 4096, by root"),
        );
    }
    if let Some(limit) = limits.pending_signals.filter(|limit| *limit < 1024) {
        findings.push(
            Finding::limited("limit of pending signals", format!("{limit} (ulimit -i)"))
                .means("so many threads of all programs of this user can have a timer")
                .remedy("ulimit -i unlimited, by root"),
        );
    }
    if findings.is_empty() {
        findings.push(Finding::good("limits", "none that matters (address space, file size, descriptors, signals)"));
    }
    findings
}

fn clock_source(machine: &Machine) -> Finding {
    let source = machine.clock_source.as_deref().unwrap_or("unknown");
    let found = format!("{source}; a thread's CPU clock is read in {} ns", machine.clock_read_ns);
    match source {
        "tsc" | "kvm-clock" | "hyperv_clocksource_tsc_page" | "unknown" => Finding::good("clock source", found),
        _ => Finding::limited("clock source", found)
            .means(
                "each sample reads clocks by system calls: samples cost more, and programs that ask the time do, too",
            )
            .remedy("boot with clocksource=tsc tsc=reliable, if the processor's counter is steady"),
    }
}

fn shadow_stack(machine: &Machine) -> Finding {
    const TOPIC: &str = "user shadow stacks";
    match machine.shadow_stack {
        true => Finding::good(TOPIC, "the processor and the kernel have them").means(
            "return addresses are left alone in a program that uses one: no returns are counted, deep stacks cost more",
        ),
        false => Finding::good(TOPIC, "none here"),
    }
}

fn cache() -> Finding {
    const TOPIC: &str = "cache";
    let Some(path) = surroundings::cache_directory() else {
        return Finding::limited(TOPIC, "there is none: HOME is not set, nor CALLPATH_CACHE_DIR")
            .means("recipe tables are made anew at each start")
            .remedy("export CALLPATH_CACHE_DIR=DIRECTORY");
    };
    let elsewhere = "export CALLPATH_CACHE_DIR=DIRECTORY, one of your own on another file system";
    let trouble = TableCache::open(Some(path.clone())).trouble().map(ToString::to_string);
    match (Room::of(&path), trouble) {
        (Ok(Room { no_exec: true, .. }), _) => {
            Finding::bad(TOPIC, format!("{} is on a file system that is mounted noexec", path.display()))
                .means("the object that is loaded into programs lies there, and cannot be loaded")
                .remedy(elsewhere)
        }
        (_, Some(trouble)) => {
            Finding::limited(TOPIC, trouble).means("recipe tables are made anew at each start").remedy(elsewhere)
        }
        (Err(error), _) => Finding::limited(TOPIC, format!("{}: {}", path.display(), plain(&error))).remedy(elsewhere),
        (Ok(room), None) => space(TOPIC, &path, room),
    }
}

fn destination() -> Finding {
    const TOPIC: &str = "measurements";
    let here = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("."));
    let temporary = std::env::temp_dir();
    let (path, is_here) = if writable(&here) { (&here, true) } else { (&temporary, false) };
    if !writable(path) {
        let found = format!("neither {} nor {} can be written", here.display(), temporary.display());
        return Finding::bad(TOPIC, found)
            .means("there is no place for a measurement")
            .remedy("callpath record -o DIRECTORY");
    }
    match Room::of(path) {
        Ok(room) if is_here => space(TOPIC, path, room),
        Ok(room) => {
            let mut finding = space(TOPIC, path, room);
            finding.meaning =
                "the current directory cannot be written: measurements go there, unless -o says where".into();
            finding
        }
        Err(error) => Finding::limited(TOPIC, format!("{}: {}", path.display(), plain(&error))),
    }
}

fn space(topic: &'static str, path: &Path, room: Room) -> Finding {
    const LITTLE_BYTES: u64 = 64 << 20;
    let found = format!("{}, {} MiB free", path.display(), room.free_bytes >> 20);
    if room.free_bytes < LITTLE_BYTES {
        Finding::limited(topic, found).means("it may be full before the program ends").remedy("free some space there")
    } else {
        Finding::good(topic, found)
    }
}

fn writable(path: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    std::ffi::CString::new(path.as_os_str().as_bytes()).is_ok_and(|path| {
        // SAFETY: a valid path.
        unsafe { libc::access(path.as_ptr(), libc::W_OK | libc::X_OK) == 0 }
    })
}

/// Other objects that are loaded into every program.
fn preloaded() -> Option<Finding> {
    let objects = std::env::var_os("LD_PRELOAD").filter(|value| !value.is_empty())?;
    let finding = Finding::good("LD_PRELOAD", format!("is set: {}", objects.display()));
    Some(finding.means("callpath's object is loaded before those"))
}
