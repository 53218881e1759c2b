//! Chunk 0: what the whole measurement shares. Data of a single process is in its slot (`process`).

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::arena::{ChunkIndex, Shared};
use super::columns::{Columns, MetricSettings};
use super::unmeasured::{UNMEASURED_LEN, Unmeasured};
use super::wanted::{WANTED_LEN, Wanted};

/// The source of a process's samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Source {
    /// None yet, or none works.
    None = 0,
    /// The kernel's events alone, each sample a signal; the event's clock counts user and kernel time.
    Clock = 1,
    /// The same for user time only; a timer on the thread's CPU clock covers kernel time.
    UserClock = 2,
    /// A timer on each thread's CPU clock.
    CpuTimer = 3,
    /// A timer on the monotonic clock for each thread.
    WallTimer = 4,
    /// None: the recorder could not identify the process.
    Refused = 5,
    /// None in the process: the recorder samples it from outside, and the process does not know of the slot.
    Outside = 6,
}

impl Source {
    /// The source with this number.
    pub fn from_u32(value: u32) -> Source {
        match value {
            1 => Source::Clock,
            2 => Source::UserClock,
            3 => Source::CpuTimer,
            4 => Source::WallTimer,
            5 => Source::Refused,
            6 => Source::Outside,
            _ => Source::None,
        }
    }
}

/// The recording's settings. The recorder writes them before any process sees the arena; they never change.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Settings {
    /// Number of metrics, at most [`Columns::MOST`]. The settings of each are published ([`super::Metrics`]).
    pub metric_count: u32,
    /// [`Settings::SPACE_ADDED`], [`Settings::AHEAD`], [`Settings::HEIGHTS`], [`Settings::INFERS`], [`Settings::TOLD`].
    pub flags: u32,
    /// What the metrics read: a bit for each of the constants below.
    pub meters: u32,
    /// Whether return addresses are marked: [`Settings::NEVER`], [`Settings::AUTO`], [`Settings::ALWAYS`].
    pub sentinel: u32,
    /// Nanoseconds between two samples of a thread by a clock.
    pub period_ns: u64,
    /// Throttling: after a handler that took `t`, no sample is walked for this multiple of `t`.
    pub throttle_factor: u64,
    /// With [`Settings::AUTO`]: the least number of frames of a stack that is marked.
    pub sentinel_depth: u32,
    /// What is kept of paths on which calls recur: [`Settings::WHOLE`], [`Settings::COLLAPSED`], [`Settings::BACK_EDGES`], or
    /// how many of the innermost frames.
    pub recursion: u32,
    /// System calls that a filter refuses to the recorder, too ([`super::refused::Calls`]).
    pub refused_calls: u32,
    /// Ticks of the time stamp counter in a millisecond.
    pub ticks_per_ms: u64,
    /// How many undrained raw samples a process may have; further ones are dropped.
    pub raw_limit: u64,
}

impl Settings {
    /// The thread's time on a CPU, user and kernel, nanoseconds.
    pub const CPU_TIME: u32 = 1;
    /// Time that passed, nanoseconds.
    pub const WALL_TIME: u32 = 2;
    /// The thread's page faults, by the kernel's account of its usage.
    pub const PAGE_FAULTS: u32 = 3;
    /// Minor page faults: no read from a disk.
    pub const MINOR_FAULTS: u32 = 4;
    /// Major page faults: with a read from a disk.
    pub const MAJOR_FAULTS: u32 = 5;
    /// How often the thread left a CPU, by the same account.
    pub const CONTEXT_SWITCHES: u32 = 6;
    /// An event that the thread cannot read itself: a sample weighs the event's period.
    pub const COUNTED: u32 = 7;
    /// Returns from frames that were active at a sample: samples weigh nothing, the sentinel counts them.
    pub const RETURNS: u32 = 8;
    /// Calls of procedures that are probed: no sample counts them.
    pub const CALLS: u32 = 9;
    /// Time that passed in activations of procedures that are probed, less that of probed procedures that they call, by
    /// the time stamp counter, ticks.
    pub const PROBED_TICKS: u32 = 10;
    /// The same of the thread's time on a CPU, nanoseconds.
    pub const PROBED_CPU: u32 = 11;
    /// The shortest of those activations, ticks; 0: none has ended.
    pub const PROBED_SHORTEST: u32 = 12;
    /// The longest of them, ticks.
    pub const PROBED_LONGEST: u32 = 13;
    /// How long they took, nanoseconds: a histogram.
    pub const PROBED_LATENCY: u32 = 14;
    /// An integer argument of calls: a histogram.
    pub const PROBED_ARGUMENT: u32 = 15;
    /// What a procedure returned: a histogram.
    pub const PROBED_RESULT: u32 = 16;
    /// An expression over arguments, with a sign.
    pub const PROBED_EXPRESSION: u32 = 17;
    /// Of the time of activations, what the thread waited for others, ticks.
    pub const PROBED_WAIT: u32 = 18;
    /// The same for input and output.
    pub const PROBED_IO: u32 = 19;
    /// The number by which the program asks for the context that it is in; 0: nothing was entered there.
    pub const PROBED_CONTEXT: u32 = 20;
    /// What paths and calls that are counted exactly take themselves ([`super::times`]): page faults, by the kernel's account of the thread's usage.
    pub const EXACT_FAULTS: u32 = 21;
    /// The same of minor ones.
    pub const EXACT_MINOR_FAULTS: u32 = 22;
    /// The same of major ones.
    pub const EXACT_MAJOR_FAULTS: u32 = 23;
    /// How often the thread left a CPU, by the same account.
    pub const EXACT_SWITCHES: u32 = 24;
    /// What a counter of the processor counts in user mode.
    pub const EXACT_COUNTER: u32 = 25;
    /// No return address is marked.
    pub const NEVER: u32 = 0;
    /// Return addresses of deep stacks are marked, which saves time.
    pub const AUTO: u32 = 1;
    /// The innermost is marked at each sample, and returns are counted.
    pub const ALWAYS: u32 = 2;
    /// Every frame of a path is kept.
    pub const WHOLE: u32 = 0;
    /// A frame whose call is on the path already continues there (Ammons, Ball and Larus 1997).
    pub const COLLAPSED: u32 = u32::MAX;
    /// Samples keep every frame. Of counted procedures, a call of one that is active counts in the context of its
    /// outermost activation, a back edge of the calling context tree (the same, section 4.1).
    pub const BACK_EDGES: u32 = u32::MAX - 1;
    /// Bit of `flags`: the kernel's limits of address space are higher
    /// than the program's by the length of both windows.
    pub const SPACE_ADDED: u32 = 1;
    /// Bit of `flags`: each sample keeps how high the stack was at its innermost frame, below that frame ([`FrameKind::Height`]).
    ///
    /// [`FrameKind::Height`]: crate::frame::FrameKind::Height
    pub const HEIGHTS: u32 = 4;
    /// Bit of `flags`: of a path only the innermost frame is kept, with the height. Nothing is walked.
    pub const INFERS: u32 = 8;
    /// Bit of `flags`: a walk ends at a frame whose path a map tells ([`super::told`]). How high the stack is there is kept above it.
    pub const TOLD: u32 = 16;
    /// Bit of `flags`: processes map [`Session::AHEAD_LEN_BYTES`] of private memory, and
    /// limits of data (RLIMIT_DATA) are raised by it.
    pub const AHEAD: u32 = 2;

    /// These settings for `metrics` metrics.
    pub fn with_metrics(self, metrics: &[MetricSettings]) -> Settings {
        let meters = metrics.iter().fold(0, |bits, metric| bits | bit(metric.meter));
        Settings { metric_count: metrics.len() as u32, meters, ..self }
    }

    /// The layout for this number of metrics. `None`: there are too many.
    pub fn columns(&self) -> Option<Columns> {
        Columns::new(self.metric_count)
    }

    /// Whether a metric reads `meter`.
    #[inline]
    pub fn uses(&self, meter: u32) -> bool {
        self.meters & bit(meter) != 0
    }

    /// Whether samples keep how high the stack was.
    #[inline]
    pub fn keeps_heights(&self) -> bool {
        self.flags & Settings::HEIGHTS != 0
    }

    /// Whether samples keep their innermost frame alone.
    #[inline]
    pub fn infers(&self) -> bool {
        self.flags & Settings::INFERS != 0
    }

    /// Whether a walk ends where a map tells the rest of the path.
    #[inline]
    pub fn asks_a_map(&self) -> bool {
        self.flags & Settings::TOLD != 0
    }

    /// Whether there is an event besides the clocks.
    pub fn has_counters(&self) -> bool {
        const NONE: u32 = bit(Settings::CPU_TIME) | bit(Settings::WALL_TIME) | bit(Settings::RETURNS) | OF_PROBES;
        self.meters & !NONE != 0
    }

    /// Whether nothing is measured but by probes: then each call that they count is a sample.
    pub fn calls_are_samples(&self) -> bool {
        self.meters & OF_PROBES != 0 && self.meters & !OF_PROBES == 0
    }

    /// Whether threads note each node that they add to ([`ThreadRecord::counted`]). Returns and probed calls are added
    /// without a note.
    ///
    /// [`ThreadRecord::counted`]: super::ThreadRecord::counted
    pub fn notes_additions(&self) -> bool {
        !self.uses(Settings::RETURNS) && !self.uses(Settings::CALLS)
    }

    /// Whether a metric is read from the thread's usage.
    #[inline]
    pub fn uses_usage(&self) -> bool {
        const OF_USAGE: u32 = bit(Settings::PAGE_FAULTS)
            | bit(Settings::MINOR_FAULTS)
            | bit(Settings::MAJOR_FAULTS)
            | bit(Settings::CONTEXT_SWITCHES);
        self.meters & OF_USAGE != 0
    }

    /// Whether a meter is read from the thread's usage.
    pub fn is_of_usage(meter: u32) -> bool {
        (Settings::PAGE_FAULTS..=Settings::CONTEXT_SWITCHES).contains(&meter)
    }

    /// Whether probes measure it.
    pub fn is_of_probes(meter: u32) -> bool {
        (Settings::CALLS..=LAST_OF_PROBES).contains(&meter)
    }

    /// How many of a path's innermost frames are kept, if not all.
    pub fn suffix_frames(&self) -> Option<usize> {
        (!matches!(self.recursion, Settings::WHOLE | Settings::COLLAPSED | Settings::BACK_EDGES))
            .then_some(self.recursion as usize)
    }
}

/// The last meter.
const LAST_OF_PROBES: u32 = Settings::EXACT_COUNTER;
/// What only probes and copies that count measure: the meters from CALLS on.
const OF_PROBES: u32 = (bit(LAST_OF_PROBES) << 1) - bit(Settings::CALLS);

/// The bit of a meter in [`Settings::meters`]; 0 for a number that is no meter's.
const fn bit(meter: u32) -> u32 {
    if meter <= LAST_OF_PROBES { 1 << meter } else { 0 }
}

/// The largest number of chunks of an arena, which the stack of free chunks has room for.
pub const FREE_STACK_LEN: usize = 8192;
/// Of [`Session::free`], the bits of a chunk's index, and of how many there are.
const FREE_BITS: u32 = 20;
const FREE_MASK: u64 = (1 << FREE_BITS) - 1;

/// The constant part of a session, written by the recorder before any process sees the arena. Each side copies it at
/// its start ([`Session::head`]), before a wild store of the program can hit it.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct SessionHead {
    /// [`Session::MAGIC`]
    pub magic: [u8; 8],
    /// A random number that the environment of the measured processes repeats, so
    /// that they never mistake another mapping for it.
    pub nonce: u64,
    /// Lengths of the windows to map, bytes.
    pub arena_len_bytes: u64,
    /// Length of the published window, bytes.
    pub published_len_bytes: u64,
    /// The settings.
    pub settings: Settings,
}

impl SessionHead {
    /// How much of [`Session::AHEAD_LEN_BYTES`] is mapped.
    pub fn ahead_len_bytes(&self) -> u64 {
        if self.settings.flags & Settings::AHEAD != 0 { Session::AHEAD_LEN_BYTES } else { 0 }
    }

    /// By how much limits of address space are raised, bytes, so that
    /// callpath's mappings do not count against the program.
    pub fn added_space_bytes(&self) -> u64 {
        let windows = self.arena_len_bytes.saturating_add(self.published_len_bytes);
        let added = windows.saturating_add(self.ahead_len_bytes());
        if self.settings.flags & Settings::SPACE_ADDED != 0 { added } else { 0 }
    }
}

/// The first bytes of the arena.
#[repr(C)]
pub struct Session {
    head: UnsafeCell<SessionHead>,
    /// Futex, the doorbell: counts the calls for the recorder.
    pub doorbell: AtomicU32,
    /// [`Session::SERVING`] as long as the recorder answers.
    pub recorder: AtomicU32,
    /// Counts the recorder's progress. A process that waits for it continues to wait as long as this changes.
    pub beat: AtomicU32,
    /// Processes that found no free slot.
    pub lost_processes: AtomicU32,
    /// Threads that could not get a timer, and were not sampled.
    pub lost_timers: AtomicU32,
    /// Free chunks below which a process rings. 0: no memory is left, and waiting does not help.
    pub low_water: AtomicU32,
    /// The stack of free chunks, backed with memory and zeroed where their new owner expects zeros. The chunk that came
    /// back last, which may still be in a cache, is handed out first. From the lowest bits: the uppermost one's index
    /// (0: none), how many there are, and a count of changes against the ABA problem.
    pub free: AtomicU64,
    /// By index, the free chunk below.
    pub below: [AtomicU32; FREE_STACK_LEN],
    /// Programs that load no preloaded object, to be sampled from outside.
    pub wanted: [Wanted; WANTED_LEN],
    /// Programs that were started and could not be measured.
    pub unmeasured: [Unmeasured; UNMEASURED_LEN],
    /// Such programs that found no free entry.
    pub unmeasured_others: AtomicU32,
    /// Futex: counts the chunks that the recorder has added; a thread that needs one waits here.
    pub given: AtomicU32,
    /// Gauges of probes that measure nothing now, a bit for each ([`super::gauge::Gauge`]).
    pub idle_gauges: AtomicU32,
}

// SAFETY: atomics, and numbers that are read and written by volatile accesses only.
unsafe impl Shared for Session {}
// SAFETY: as above.
unsafe impl Sync for Session {}

impl Session {
    /// Private memory that a process maps at its start for the sentinel's frames, bytes.
    pub const AHEAD_LEN_BYTES: u64 = 64 << 20;

    /// A copy of the head, unchecked.
    pub fn head(&self) -> SessionHead {
        // SAFETY: the place is valid for reads as long as `self` is, and its type for any
        // bytes. Volatile: another process may write there.
        unsafe { self.head.get().read_volatile() }
    }

    /// Writes the head; for the recorder, before it lets any process see the arena.
    pub fn set_head(&self, head: SessionHead) {
        // SAFETY: the place is valid for writes as long as `self` is, and is never borrowed.
        unsafe { self.head.get().write_volatile(head) }
    }

    /// Includes the version: change it with any layout in `crate::shared`.
    pub const MAGIC: [u8; 8] = *b"CPSESS23";
    /// `si_code` of a SIGTRAP by which the recorder asks a thread that waits for a sample; with it comes the nonce.
    pub const ASKED: i32 = -0x4350;
    /// The recorder answers the doorbell.
    pub const SERVING: u32 = 1;
    /// The recorder has ended, or did not answer in time: processes no longer wait for it.
    pub const GONE: u32 = 2;

    /// Takes a free chunk. `None`: there is none.
    #[inline]
    pub fn take_chunk(&self) -> Option<ChunkIndex> {
        let mut free = self.free.load(Ordering::Acquire);
        loop {
            let (chunk, count) = (free & FREE_MASK, free >> FREE_BITS & FREE_MASK);
            let below = self.below.get(chunk as usize).filter(|_| chunk != 0)?.load(Ordering::Relaxed);
            match self.exchange_free(free, u64::from(below), count.saturating_sub(1)) {
                Ok(()) => return Some(ChunkIndex(chunk as u32)),
                Err(now) => free = now,
            }
        }
    }

    /// Adds a free chunk; for the recorder only. `false`: there is no such chunk.
    pub fn give_chunk(&self, chunk: ChunkIndex) -> bool {
        let Some(below) = self.below.get(chunk.0 as usize).filter(|_| chunk.0 != 0) else { return false };
        let mut free = self.free.load(Ordering::Acquire);
        loop {
            below.store((free & FREE_MASK) as u32, Ordering::Relaxed);
            match self.exchange_free(free, u64::from(chunk.0), (free >> FREE_BITS & FREE_MASK) + 1) {
                Ok(()) => break,
                Err(now) => free = now,
            }
        }
        self.given.fetch_add(1, Ordering::Release);
        true
    }

    #[inline]
    fn exchange_free(&self, before: u64, chunk: u64, count: u64) -> Result<(), u64> {
        let changes = (before >> (2 * FREE_BITS)).wrapping_add(1) << (2 * FREE_BITS);
        let after = changes | count << FREE_BITS | chunk & FREE_MASK;
        self.free.compare_exchange(before, after, Ordering::AcqRel, Ordering::Acquire).map(|_| ())
    }

    /// How many chunks are free.
    #[inline]
    pub fn free_chunks(&self) -> u32 {
        (self.free.load(Ordering::Acquire) >> FREE_BITS & FREE_MASK) as u32
    }
}
