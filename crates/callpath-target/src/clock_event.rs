//! The kernel's software clock (perf_event) on another process, delivered there as SIGTRAP.
//! Knows nothing of what the signal's handler does.
//!
//! The descriptor stays in callpath: the program's own descriptors are untouched, and the samples end with callpath.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::error::TargetError;
use crate::process::Pid;

/// What the kernel counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventKind {
    /// A sample each so many nanoseconds that the thread runs, in user mode and in the kernel.
    CpuClock,
    /// The same in user mode only.
    UserCpuClock,
    /// A sample each time the thread leaves a CPU, delivered when it is back in user mode.
    ContextSwitches,
}

impl EventKind {
    fn name(self) -> &'static str {
        match self {
            EventKind::CpuClock => "cpu-clock",
            EventKind::UserCpuClock => "cpu-clock in user mode",
            EventKind::ContextSwitches => "context-switches",
        }
    }
}

/// An open event; closing it ends the samples.
#[derive(Debug)]
pub struct ClockEvent {
    descriptor: OwnedFd,
}

impl ClockEvent {
    /// Opens an event on a process that has one thread; it goes on to all threads that this one and they make.
    pub fn open(kind: EventKind, pid: Pid, period: u64) -> Result<ClockEvent, TargetError> {
        let error = || TargetError::Event { event: kind.name(), pid, source: std::io::Error::last_os_error() };
        let attributes = Attributes::new(kind, period);
        const PERF_FLAG_FD_CLOEXEC: u64 = 8;
        // SAFETY: the kernel reads `size` bytes of the attributes.
        let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, &attributes, pid.0, -1, -1, PERF_FLAG_FD_CLOEXEC) };
        if fd < 0 {
            return Err(error());
        }
        // SAFETY: a new descriptor that nobody else owns.
        Ok(ClockEvent { descriptor: unsafe { OwnedFd::from_raw_fd(fd as i32) } })
    }

    /// Lets it tick in all threads, or stops it in all; when this returns, it has.
    pub fn set_running(&self, running: bool) {
        const ENABLE: libc::c_ulong = 0x2400;
        const DISABLE: libc::c_ulong = 0x2401;
        // SAFETY: neither takes an argument; on an event that is there both succeed.
        unsafe { libc::ioctl(self.descriptor.as_raw_fd(), if running { ENABLE } else { DISABLE }, 0) };
    }
}

/// `struct perf_event_attr`, version 7 (128 bytes): the kernel's include/uapi/linux/perf_event.h.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clockid: i32,
    sample_regs_intr: u64,
    aux_watermark: u32,
    sample_max_stack: u16,
    reserved_2: u16,
    aux_sample_size: u32,
    reserved_3: u32,
    sig_data: u64,
}

const _: () = assert!(size_of::<Attributes>() == 128);

impl Attributes {
    fn new(kind: EventKind, period: u64) -> Attributes {
        const TYPE_SOFTWARE: u32 = 1;
        const CPU_CLOCK: u64 = 0;
        const CONTEXT_SWITCHES: u64 = 3;
        const INHERIT: u64 = 1 << 1;
        const EXCLUDE_KERNEL: u64 = 1 << 5;
        const EXCLUDE_HV: u64 = 1 << 6;
        const INHERIT_THREAD: u64 = 1 << 35;
        const REMOVE_ON_EXEC: u64 = 1 << 36;
        const SIGTRAP: u64 = 1 << 37;
        let exclude = if kind == EventKind::UserCpuClock { EXCLUDE_KERNEL | EXCLUDE_HV } else { 0 };
        Attributes {
            kind: TYPE_SOFTWARE,
            size: size_of::<Attributes>() as u32,
            config: if kind == EventKind::ContextSwitches { CONTEXT_SWITCHES } else { CPU_CLOCK },
            sample_period: period,
            flags: INHERIT | INHERIT_THREAD | REMOVE_ON_EXEC | SIGTRAP | exclude,
            ..Attributes::default()
        }
    }
}
