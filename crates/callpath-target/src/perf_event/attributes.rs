//! What the kernel is told of an event: `struct perf_event_attr`.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::{EventSpec, Every};

/// `struct perf_event_attr`, version 7 (128 bytes): the kernel's include/uapi/linux/perf_event.h.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Attributes {
    unit: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    pub(super) flags: u64,
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

/// How long attributes are, words.
pub const ATTRIBUTES_WORDS: usize = 16;

const _: () = assert!(size_of::<Attributes>() == ATTRIBUTES_WORDS * size_of::<u64>());

/// What is written into a ring of each sample of a thread's stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StackSamples {
    /// Nanoseconds that the thread runs between two samples.
    pub period_ns: u64,
    /// In user mode only.
    pub user_only: bool,
    /// How much of the stack is copied, bytes: a multiple of eight, at most [`StackSamples::MOST_BYTES`].
    pub stack_bytes: u32,
    /// Processes that it starts are sampled, too, and not only threads.
    pub with_children: bool,
    /// All threads of the machine are sampled, and not one and those that it starts.
    pub everything: bool,
    /// There is a sample where a thread leaves its processor, too, and a record of when it goes on.
    pub switches: bool,
    /// Samples that hit in the kernel say where, and what the kernel has called up to there.
    pub kernel: bool,
}

impl StackSamples {
    /// The longest copy: a record is shorter than 64 KB, and has registers and numbers besides.
    pub const MOST_BYTES: u32 = 65_536 - 1024;
}

const SOFTWARE: u32 = 1;
const CPU_CLOCK: u64 = 0;
const CONTEXT_SWITCHES: u64 = 3;
const DUMMY: u64 = 9;

impl Attributes {
    pub(super) const DISABLED: u64 = 1;
    const INHERIT: u64 = 1 << 1;
    const EXCLUDE_USER: u64 = 1 << 4;
    const EXCLUDE_KERNEL: u64 = 1 << 5;
    const EXCLUDE_HV: u64 = 1 << 6;
    const EXCLUDE_IDLE: u64 = 1 << 7;
    const MMAP: u64 = 1 << 8;
    const COMM: u64 = 1 << 9;
    const FREQ: u64 = 1 << 10;
    const ENABLE_ON_EXEC: u64 = 1 << 12;
    const TASK: u64 = 1 << 13;
    const PRECISE_SHIFT: u32 = 15;
    const SAMPLE_ID_ALL: u64 = 1 << 18;
    const EXCLUDE_CALLCHAIN_USER: u64 = 1 << 22;
    const MMAP2: u64 = 1 << 23;
    const COMM_EXEC: u64 = 1 << 24;
    const USE_CLOCKID: u64 = 1 << 25;
    const CONTEXT_SWITCH: u64 = 1 << 26;
    const INHERIT_THREAD: u64 = 1 << 35;
    const REMOVE_ON_EXEC: u64 = 1 << 36;
    const SIGTRAP: u64 = 1 << 37;

    /// Of an event whose samples are signals to the thread.
    pub(super) fn of_signals(spec: &EventSpec, signal_data: u64) -> Attributes {
        const TOTAL_TIME_ENABLED: u64 = 1;
        const TOTAL_TIME_RUNNING: u64 = 2;
        let mut flags =
            Attributes::INHERIT | Attributes::INHERIT_THREAD | Attributes::REMOVE_ON_EXEC | Attributes::SIGTRAP;
        flags |= u64::from(spec.precise & 3) << Attributes::PRECISE_SHIFT;
        for (is_set, flag) in [
            (spec.exclude_user, Attributes::EXCLUDE_USER),
            (spec.exclude_kernel, Attributes::EXCLUDE_KERNEL),
            (spec.exclude_hypervisor, Attributes::EXCLUDE_HV),
            (matches!(spec.every, Every::Rate(_)), Attributes::FREQ),
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

    /// Of an event that a thread counts and reads itself, in user mode. It may share its counter with other events: the page says when it was not counted.
    pub(super) fn of_counting(spec: &EventSpec) -> Attributes {
        Attributes {
            unit: spec.unit,
            size: size_of::<Attributes>() as u32,
            config: spec.config,
            config1: spec.config1,
            config2: spec.config2,
            flags: Attributes::EXCLUDE_KERNEL | Attributes::EXCLUDE_HV,
            ..Attributes::default()
        }
    }

    pub(super) fn to_words(&self) -> [u64; ATTRIBUTES_WORDS] {
        // SAFETY: as long, of integers without gaps.
        unsafe { std::mem::transmute_copy(self) }
    }

    /// Of an event whose samples are records in a ring: registers, and a copy of the stack. What is mapped, named, begun and
    /// ended meanwhile is recorded there, too. It does not count before it is enabled.
    /// `from_exec`: that is when it executes a program.
    pub(crate) fn of_stacks(samples: &StackSamples, from_exec: bool) -> Attributes {
        use crate::ring::Fields;
        let mut flags = Attributes::DISABLED
            | Attributes::MMAP
            | Attributes::MMAP2
            | Attributes::COMM
            | Attributes::COMM_EXEC
            | Attributes::TASK;
        for (is_set, flag) in [
            (samples.user_only, Attributes::EXCLUDE_KERNEL | Attributes::EXCLUDE_HV),
            (!samples.everything, Attributes::INHERIT),
            (!samples.everything && !samples.with_children, Attributes::INHERIT_THREAD),
            (samples.everything, Attributes::EXCLUDE_IDLE),
            (from_exec, Attributes::ENABLE_ON_EXEC),
            (samples.switches, Attributes::CONTEXT_SWITCH),
            (samples.kernel, Attributes::EXCLUDE_CALLCHAIN_USER),
        ] {
            flags |= if is_set { flag } else { 0 };
        }
        Attributes {
            config: CPU_CLOCK,
            sample_period: samples.period_ns,
            sample_type: Fields::sample_type(samples.kernel),
            sample_regs_user: Fields::REGISTERS,
            sample_stack_user: samples.stack_bytes,
            ..Attributes::for_ring(flags)
        }
    }

    /// Of an event with such a sample each time a thread leaves its processor.
    pub(crate) fn of_switches(samples: &StackSamples, from_exec: bool) -> Attributes {
        let of_stacks = Attributes::of_stacks(samples, from_exec);
        let of_clock = Attributes::MMAP
            | Attributes::MMAP2
            | Attributes::COMM
            | Attributes::COMM_EXEC
            | Attributes::TASK
            | Attributes::CONTEXT_SWITCH;
        Attributes { config: CONTEXT_SWITCHES, sample_period: 1, flags: of_stacks.flags & !of_clock, ..of_stacks }
    }

    /// Of an event that counts nothing: it holds a ring.
    pub(crate) fn of_ring() -> Attributes {
        Attributes { config: DUMMY, ..Attributes::for_ring(Attributes::DISABLED | Attributes::EXCLUDE_KERNEL) }
    }

    /// The kernel puts no events of different clocks into one ring.
    fn for_ring(flags: u64) -> Attributes {
        Attributes {
            unit: SOFTWARE,
            size: size_of::<Attributes>() as u32,
            flags: flags | Attributes::SAMPLE_ID_ALL | Attributes::USE_CLOCKID,
            clockid: libc::CLOCK_MONOTONIC,
            ..Attributes::default()
        }
    }

    /// All threads, for [`Attributes::open`] on one processor.
    pub(crate) const EVERY_THREAD: u32 = u32::MAX;

    /// Opens the event on a thread (0: the calling one), on one processor or on all.
    pub(crate) fn open(&self, thread: u32, processor: Option<u32>) -> io::Result<OwnedFd> {
        self.open_on(thread as i32, processor.map_or(-1, |processor| processor as i32), 0)
    }

    /// Opens the event on all threads of a control group, by its directory, on one processor.
    pub(crate) fn open_in(&self, group: BorrowedFd<'_>, processor: u32) -> io::Result<OwnedFd> {
        const PERF_FLAG_PID_CGROUP: u64 = 4;
        self.open_on(group.as_raw_fd(), processor as i32, PERF_FLAG_PID_CGROUP)
    }

    fn open_on(&self, whom: i32, processor: i32, flags: u64) -> io::Result<OwnedFd> {
        const PERF_FLAG_FD_CLOEXEC: u64 = 8;
        let flags = flags | PERF_FLAG_FD_CLOEXEC;
        // SAFETY: the kernel reads `size` bytes of the attributes.
        let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, self, whom, processor, -1, flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that no other code owns.
        Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
    }
}
