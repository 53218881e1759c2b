//! An event that the kernel counts in another process (perf_event), each period delivered there as SIGTRAP.
//! Events' names are callpath-record's.
//!
//! The descriptor stays in callpath: the program's own descriptors are untouched, and the samples end with callpath.

mod attributes;

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::pid::Pid;
use crate::process::descriptors_are_scarce;
pub use attributes::ATTRIBUTES_WORDS;
pub(crate) use attributes::Attributes;
pub use attributes::StackSamples;

/// Lets an event count.
pub(crate) fn enable(event: &OwnedFd) {
    const ENABLE: libc::c_ulong = 0x2400;
    // SAFETY: takes no argument; on an event that is there it succeeds.
    unsafe { libc::ioctl(event.as_raw_fd(), ENABLE, 0) };
}

/// An event's number, as its records name it.
pub(crate) fn number_of(event: &OwnedFd) -> io::Result<u64> {
    /// `_IOR('$', 7, __u64 *)`
    const PERF_EVENT_IOC_ID: u64 = 0x8008_2407;
    let mut number = 0u64;
    // SAFETY: a place for a number.
    match unsafe { libc::ioctl(event.as_raw_fd(), PERF_EVENT_IOC_ID as _, &mut number) } {
        0 => Ok(number),
        _ => Err(io::Error::last_os_error()),
    }
}

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
        PerfEvent::with(&Attributes::of_signals(spec, signal_data), pid.0)
    }

    /// Whether the kernel would open it: tried on the calling thread, without ever counting.
    pub fn try_out(spec: &EventSpec) -> io::Result<()> {
        let mut attributes = Attributes::of_signals(spec, 0);
        attributes.flags |= Attributes::DISABLED;
        PerfEvent::with(&attributes, 0).map(drop)
    }

    /// What the kernel is told by whoever counts an event in its own thread, in user mode, and reads it without a system call.
    pub fn counting(spec: &EventSpec) -> [u64; ATTRIBUTES_WORDS] {
        Attributes::of_counting(spec).to_words()
    }

    /// Whether a thread could count so here: `false` if it may not read the processor's counter itself.
    ///
    /// # Errors
    /// If the kernel does not open it.
    pub fn try_counting(spec: &EventSpec) -> io::Result<bool> {
        /// Where `struct perf_event_mmap_page` says what the program may do, and the bit of `rdpmc`.
        const CAPABILITIES_AT: usize = 40;
        const USER_RDPMC: u64 = 1 << 2;
        const PAGE_BYTES: usize = 4096;
        let event = PerfEvent::with(&Attributes::of_counting(spec), 0)?;
        // SAFETY: a page at a place that the kernel chooses.
        let page = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PAGE_BYTES,
                libc::PROT_READ,
                libc::MAP_SHARED,
                event.descriptor.as_raw_fd(),
                0,
            )
        };
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: within the page, which the kernel writes.
        let capabilities = unsafe { page.cast::<u8>().add(CAPABILITIES_AT).cast::<u64>().read_volatile() };
        // SAFETY: it was just mapped.
        unsafe { libc::munmap(page, PAGE_BYTES) };
        Ok(capabilities & USER_RDPMC != 0)
    }

    fn with(attributes: &Attributes, pid: u32) -> io::Result<PerfEvent> {
        Ok(PerfEvent { descriptor: attributes.open(pid, None)? })
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
