//! An event that the kernel counts in another process (perf_event), each period delivered there as SIGTRAP.
//! Events' names are callpath-record's.
//!
//! The descriptor stays in callpath: the program's own descriptors are untouched, and the samples end with callpath.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::pid::Pid;
use crate::process::descriptors_are_scarce;

/// When the kernel takes a sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Every {
    /// A sample each time that this many events have happened.
    Period(u64),
    /// Samples a second, by a period that the kernel adapts in each thread.
    Rate(u64),
}

/// What the kernel counts, and where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EventSpec {
    /// The number of the unit that counts: `PERF_TYPE_*`, or a file `type` in /sys/bus/event_source/devices.
    pub unit: u32,
    /// Which of its events; of a breakpoint, nothing.
    pub config: u64,
    /// More of it; of a breakpoint, the address.
    pub config1: u64,
    /// More of it; of a breakpoint, the length in bytes.
    pub config2: u64,
    /// What a breakpoint waits for: bits read, write, execute; else 0.
    pub breakpoint: u32,
    /// When there is a sample.
    pub every: Every,
    /// How near a sample must be to what it samples, 0 to 3 (`precise_ip`).
    pub precise: u8,
    /// Not in user mode.
    pub exclude_user: bool,
    /// Not in the kernel.
    pub exclude_kernel: bool,
    /// Not in a hypervisor.
    pub exclude_hypervisor: bool,
}

impl EventSpec {
    /// Everywhere, at every event.
    pub const fn new(unit: u32, config: u64) -> EventSpec {
        EventSpec {
            unit,
            config,
            config1: 0,
            config2: 0,
            breakpoint: 0,
            every: Every::Period(1),
            precise: 0,
            exclude_user: false,
            exclude_kernel: false,
            exclude_hypervisor: false,
        }
    }
}

/// What the kernel has counted so far, in all threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Count {
    /// How often it has happened.
    pub events: u64,
    /// How long threads have run with the event, nanoseconds, summed up.
    pub enabled_ns: u64,
    /// How long it was counted meanwhile: less, where more events are asked for than the processor has counters.
    pub running_ns: u64,
}

impl Count {
    /// Whether it was counted only for a part of the time.
    pub fn is_shared(&self) -> bool {
        // The kernel reads two clocks one after the other.
        const SLACK: u64 = 1000;
        self.running_ns > 0 && self.enabled_ns - self.enabled_ns / SLACK > self.running_ns
    }
}

/// An open event; closing it ends the samples.
#[derive(Debug)]
pub struct PerfEvent {
    descriptor: OwnedFd,
}

impl PerfEvent {
    /// Opens an event on a process that has one thread; all threads that it starts later inherit the event.
    /// `signal_data` comes with each signal.
    pub fn open(spec: &EventSpec, pid: Pid, signal_data: u64) -> io::Result<PerfEvent> {
        if descriptors_are_scarce() {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        PerfEvent::with(&Attributes::new(spec, signal_data), pid.0)
    }

    /// Whether the kernel would open it: tried on the calling thread, without ever counting.
    pub fn try_out(spec: &EventSpec) -> io::Result<()> {
        const DISABLED: u64 = 1;
        let mut attributes = Attributes::new(spec, 0);
        attributes.flags |= DISABLED;
        PerfEvent::with(&attributes, 0).map(drop)
    }

    fn with(attributes: &Attributes, pid: u32) -> io::Result<PerfEvent> {
        const PERF_FLAG_FD_CLOEXEC: u64 = 8;
        // SAFETY: the kernel reads `size` bytes of the attributes.
        let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, attributes, pid, -1, -1, PERF_FLAG_FD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that no other code owns.
        Ok(PerfEvent { descriptor: unsafe { OwnedFd::from_raw_fd(fd as i32) } })
    }

    /// What was counted up to now, also in threads that have ended.
    pub fn count(&self) -> io::Result<Count> {
        let mut words = [0u64; 3];
        let len = size_of_val(&words);
        // SAFETY: the kernel writes at most `len` bytes.
        let read = unsafe { libc::read(self.descriptor.as_raw_fd(), words.as_mut_ptr().cast(), len) };
        match usize::try_from(read) {
            Ok(read) if read == len => Ok(Count { events: words[0], enabled_ns: words[1], running_ns: words[2] }),
            Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(_) => Err(io::Error::last_os_error()),
        }
    }

    /// Lets it count in all threads, or stops it in all; when this returns, it has.
    pub fn set_running(&self, running: bool) {
        const ENABLE: libc::c_ulong = 0x2400;
        const DISABLE: libc::c_ulong = 0x2401;
        // SAFETY: neither takes an argument; on an event that is there both succeed.
        unsafe { libc::ioctl(self.descriptor.as_raw_fd(), if running { ENABLE } else { DISABLE }, 0) };
    }

    /// Changes the period: in the thread that it was opened on, and in those that begin from now on.
    pub fn set_period(&self, period: u64) -> io::Result<()> {
        /// `_IOW('$', 4, __u64)`
        const PERF_EVENT_IOC_PERIOD: u64 = 0x4008_2404;
        // SAFETY: the kernel reads a number.
        match unsafe { libc::ioctl(self.descriptor.as_raw_fd(), PERF_EVENT_IOC_PERIOD as _, &period) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// `struct perf_event_attr`, version 7 (128 bytes): the kernel's include/uapi/linux/perf_event.h.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    unit: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint: u32,
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
    fn new(spec: &EventSpec, signal_data: u64) -> Attributes {
        const INHERIT: u64 = 1 << 1;
        const EXCLUDE_USER: u64 = 1 << 4;
        const EXCLUDE_KERNEL: u64 = 1 << 5;
        const EXCLUDE_HV: u64 = 1 << 6;
        const FREQ: u64 = 1 << 10;
        const PRECISE_SHIFT: u32 = 15;
        const INHERIT_THREAD: u64 = 1 << 35;
        const REMOVE_ON_EXEC: u64 = 1 << 36;
        const SIGTRAP: u64 = 1 << 37;
        const TOTAL_TIME_ENABLED: u64 = 1;
        const TOTAL_TIME_RUNNING: u64 = 2;
        let mut flags = INHERIT | INHERIT_THREAD | REMOVE_ON_EXEC | SIGTRAP;
        flags |= u64::from(spec.precise & 3) << PRECISE_SHIFT;
        for (is_set, flag) in [
            (spec.exclude_user, EXCLUDE_USER),
            (spec.exclude_kernel, EXCLUDE_KERNEL),
            (spec.exclude_hypervisor, EXCLUDE_HV),
            (matches!(spec.every, Every::Rate(_)), FREQ),
        ] {
            flags |= if is_set { flag } else { 0 };
        }
        let (Every::Period(sample_period) | Every::Rate(sample_period)) = spec.every;
        Attributes {
            unit: spec.unit,
            size: size_of::<Attributes>() as u32,
            config: spec.config,
            config1: spec.config1,
            config2: spec.config2,
            breakpoint: spec.breakpoint,
            sample_period,
            read_format: TOTAL_TIME_ENABLED | TOTAL_TIME_RUNNING,
            flags,
            sig_data: signal_data,
            ..Attributes::default()
        }
    }
}
