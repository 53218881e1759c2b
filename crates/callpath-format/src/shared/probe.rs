//! What a process and the recorder agree on of probes: how a process is let in that did not start with us, and what a
//! thread keeps of the procedures whose calls are counted in it.
//!
//! The object that is injected (`callpath-inject`) begins by [`Admission`]. A thread's [`Area`] is private memory of the
//! process's own; only the routines of that object use it.

use super::activation::NodeMemory;
use super::gauge::Gauge;

/// What the injected object is told when it begins, in memory of the process's own.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Admission {
    /// [`Admission::MAGIC`]: the object and the recorder are of one build.
    pub magic: u64,
    /// Where the arena is mapped.
    pub arena: u64,
    /// Its length, bytes.
    pub arena_len_bytes: u64,
    /// Where the published memory is mapped.
    pub published: u64,
    /// Its length, bytes.
    pub published_len_bytes: u64,
    /// The process's number as it sees it itself.
    pub pid: u64,
    /// The first thread's stack: lowest address and one past the highest; 0, 0: not known.
    pub stack: [u64; 2],
    /// That thread's thread pointer (fs), 0: it has ended.
    pub first_thread: u64,
    /// The number of the slot that the process has taken already, + 1; 0: it takes one.
    pub slot: u64,
    /// 1: calls are counted in contexts ([`super::activation`]).
    pub contexts: u64,
    /// Written by the object: how it ended, an [`Admitted`].
    pub admitted: u64,
    /// Written by the object: the addresses of its routines.
    pub routines: Routines,
}

/// The addresses of the routines that copies call. Each keeps all registers but the arithmetic flags, and [`Routines::ask`]
/// rax.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Routines {
    /// Called at a probed procedure's entry, with the address of its first instruction pushed: counts.
    pub count: u64,
    /// The same, and notes when the activation began.
    pub enter: u64,
    /// Called at a probed procedure's exit, of one that [`Routines::enter`] has noted.
    pub leave: u64,
    /// Called at an entry: counts, and reads what is measured at entries.
    pub measure: u64,
    /// The same, and notes the activation with all that is measured of it.
    pub begin: u64,
    /// Called at a return, of one that [`Routines::begin`] has noted.
    pub end: u64,
    /// The same at a jump to another procedure: there is no result yet.
    pub end_by_jump: u64,
    /// Called at the entry of a function that waits for others.
    pub wait: u64,
    /// The same for input and output.
    pub wait_for_io: u64,
    /// Called where such a function is left.
    pub go_on: u64,
    /// [`Routines::enter`] without a clock.
    pub note: u64,
    /// [`Routines::leave`] of one that [`Routines::note`] has noted.
    pub forget: u64,
    /// Called where the function is left by which the program asks for its context: rax is that context's number then.
    pub ask: u64,
    /// Called at the entry of `longjmp`: ends the activations that it leaves.
    pub jump: u64,
    /// The same where an exception is caught, of those that it has left.
    pub catch: u64,
    /// Called by a procedure that counts its contexts and does not find the one that it is in ([`super::activation`]).
    pub descend: u64,
    /// Called where a path ends that is counted in a hash table ([`super::hashed`]).
    pub count_path: u64,
    /// Not a routine: a word that holds the address of [`super::hashed::HashedHead`].
    pub hashed: u64,
    /// Called where a path begins whose time is measured ([`super::times`]).
    pub begin_path: u64,
    /// The same before a call.
    pub leave_path: u64,
    /// The same behind a call.
    pub resume_path: u64,
    /// The same where the path ends.
    pub end_path: u64,
    /// [`Routines::begin_path`] where what is measured is not the time that passes alone.
    pub begin_metrics: u64,
    /// The same before a call.
    pub leave_metrics: u64,
    /// The same behind a call.
    pub resume_metrics: u64,
    /// The same where the path ends.
    pub end_metrics: u64,
    /// Not a routine: a word that holds the address of [`super::times::TimesHead`].
    pub times: u64,
    /// Not a routine: where it reads the same words as the copies do that call it ([`super::activation::CopiesWords`]).
    pub copies: u64,
    /// Not a routine: the table of callees ([`super::activation::CalleeTable`]).
    pub callees: u64,
    /// Called by the loader when libraries have come, before it relocates them: waits until the recorder has looked at them
    /// ([`super::ProcessSlot::loads_wanted`]).
    pub loaded: u64,
}

impl Routines {
    const COUNT: usize = 30;

    /// Those of paths, in the order in which a path meets them.
    pub fn of_paths(self) -> [u64; 4] {
        [self.begin_path, self.leave_path, self.resume_path, self.end_path]
    }

    /// The same where what is measured is not the time that passes alone.
    pub fn of_metrics(self) -> [u64; 4] {
        [self.begin_metrics, self.leave_metrics, self.resume_metrics, self.end_metrics]
    }

    fn to_words(self) -> [u64; Routines::COUNT] {
        [
            self.count,
            self.enter,
            self.leave,
            self.measure,
            self.begin,
            self.end,
            self.end_by_jump,
            self.wait,
            self.wait_for_io,
            self.go_on,
            self.note,
            self.forget,
            self.ask,
            self.jump,
            self.catch,
            self.descend,
            self.count_path,
            self.hashed,
            self.begin_path,
            self.leave_path,
            self.resume_path,
            self.end_path,
            self.begin_metrics,
            self.leave_metrics,
            self.resume_metrics,
            self.end_metrics,
            self.times,
            self.copies,
            self.callees,
            self.loaded,
        ]
    }

    fn from_words(words: [u64; Routines::COUNT]) -> Routines {
        let [count, enter, leave, measure, begin, end, end_by_jump, rest @ ..] = words;
        let [wait, wait_for_io, go_on, note, forget, ask, jump, catch, descend, rest @ ..] = rest;
        let [count_path, hashed, begin_path, leave_path, resume_path, end_path, rest @ ..] = rest;
        let [begin_metrics, leave_metrics, resume_metrics, end_metrics, times, copies, callees, loaded] = rest;
        Routines {
            count,
            enter,
            leave,
            measure,
            begin,
            end,
            end_by_jump,
            wait,
            wait_for_io,
            go_on,
            note,
            forget,
            ask,
            jump,
            catch,
            descend,
            count_path,
            hashed,
            begin_path,
            leave_path,
            resume_path,
            end_path,
            begin_metrics,
            leave_metrics,
            resume_metrics,
            end_metrics,
            times,
            copies,
            callees,
            loaded,
        }
    }
}

impl Admission {
    /// Includes the version: change it with any layout in this file.
    pub const MAGIC: u64 = u64::from_le_bytes(*b"CPPROBE8");
    /// Its length, bytes.
    pub const LEN_BYTES: usize = size_of::<Admission>();

    /// Its bytes, as they are written into the process.
    pub fn to_bytes(&self) -> [u8; Admission::LEN_BYTES] {
        let words = [
            self.magic,
            self.arena,
            self.arena_len_bytes,
            self.published,
            self.published_len_bytes,
            self.pid,
            self.stack[0],
            self.stack[1],
            self.first_thread,
            self.slot,
            self.contexts,
            self.admitted,
        ];
        let mut bytes = [0; Admission::LEN_BYTES];
        for (to, word) in bytes.chunks_exact_mut(8).zip(words.into_iter().chain(self.routines.to_words())) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// What the object has written into the bytes that it has been given: how it ended, and its routines. `None`: the
    /// bytes are too few, or the first is no such number.
    pub fn answer_in(bytes: &[u8]) -> Option<(Admitted, Routines)> {
        let word = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let admitted = Admitted::from_u64(word(core::mem::offset_of!(Admission, admitted))?)?;
        let mut words = [0; Routines::COUNT];
        for (number, to) in words.iter_mut().enumerate() {
            *to = word(core::mem::offset_of!(Admission, routines) + number * 8)?;
        }
        Some((admitted, Routines::from_words(words)))
    }
}

/// How it ended that the injected object was to begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum Admitted {
    /// It takes part: its slot is live.
    Yes = 1,
    /// The memories are not a session's of this build.
    OtherSession = 2,
    /// All slots are taken, or the process's own is no slot.
    NoSlot = 3,
    /// The kernel gives the process no memory.
    NoMemory = 4,
}

impl Admitted {
    /// The result with this number; `None`: there is none. 0 is none: it has not begun.
    pub fn from_u64(value: u64) -> Option<Admitted> {
        [Admitted::Yes, Admitted::OtherSession, Admitted::NoSlot, Admitted::NoMemory]
            .into_iter()
            .find(|result| *result as u64 == value)
    }
}

/// The dynamic symbol of the injected object's first routine, `extern "C" fn(*mut Admission)`.
pub const JOIN: &str = "callpath_join";

/// A context that a thread was in at a probe: what tells that it is there again, and where it counts.
#[repr(C)]
pub struct Known {
    /// The probe's number + 1; 0: nothing is known.
    pub site: u64,
    /// The stack pointer at the procedure's entry.
    pub rsp: u64,
    /// rbp there.
    pub rbp: u64,
    /// All ones if the walk depended on that, else 0.
    pub rbp_mask: u64,
    /// The address of the first of the node's values that are of probes ([`super::gauge`]).
    pub values: u64,
    /// Words that the walk depended on.
    pub words: u64,
    /// The load map by which it was walked ([`super::load_map::CurrentMap`]).
    pub map: u64,
    /// The stack pointer of its outermost frame, which tells stacks from each other; 0: the walk did not reach it.
    pub base: u64,
    /// The address of the context's node, where calls are counted in contexts ([`super::activation::ContextNode`]); 0: it is not known.
    pub node: u64,
    reserved: u64,
    /// Those words, from the innermost frame on: address and value.
    pub word: [[u64; 2]; Known::MOST_WORDS],
}

impl Known {
    /// The most words of a context that is remembered.
    pub const MOST_WORDS: usize = 59;
    /// How many contexts a thread remembers; a power of two.
    pub const COUNT: usize = 1024;
    /// The binary logarithm of its length in bytes.
    pub const LEN_SHIFT: u32 = 10;
}

/// An activation of a probed procedure, or the mark below those of one stack.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activation {
    /// The stack pointer at its entry: where its return address is. Of a mark [`Activation::MARK`].
    pub rsp: u64,
    /// The address of its context's values that are of probes; 0: it counts nowhere.
    pub values: u64,
    /// When it began, ticks; 0: no clock was read.
    pub began: u64,
    /// What probed procedures that it called took, ticks.
    pub callees: u64,
    /// Which stack it is on ([`Known::base`]).
    pub base: u64,
}

impl Activation {
    /// The deepest stack of activations that is followed.
    pub const MOST: usize = 8192;
    /// No activation's stack pointer.
    pub const MARK: u64 = u64::MAX;

    /// The mark below the activations of a stack.
    pub const fn mark(base: u64) -> Activation {
        Activation { rsp: Activation::MARK, values: 0, began: 0, callees: 0, base }
    }
}

/// What was read when an activation began, beside the time: of those that [`Routines::begin`] has noted.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// [`Activation::began`] of the activation that it is of: others at the same place have none.
    pub began: u64,
    /// The gauges that measured then, a bit for each.
    pub gauges: u64,
    /// The thread's time on a CPU, nanoseconds.
    pub cpu_ns: u64,
    /// What probed procedures that the activation called had of it.
    pub callees_cpu_ns: u64,
    /// [`Waiting::ticks`]
    pub waited: [u64; 2],
    /// What probed procedures that the activation called had of it.
    pub callees_waited: [u64; 2],
    /// The wait that the activation interrupts.
    pub interrupted: Interrupted,
}

impl Reading {
    /// Of no activation.
    pub const NONE: Reading = Reading {
        began: 0,
        gauges: 0,
        cpu_ns: 0,
        callees_cpu_ns: 0,
        waited: [0; 2],
        callees_waited: [0; 2],
        interrupted: Interrupted::NONE,
    };
}

/// A wait that does not go on as long as an activation lasts: of a signal handler, or of a function by which the waiting one
/// waits.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted {
    /// [`Waiting::rsp`]; 0: there is none.
    pub rsp: u64,
    /// [`Waiting::what_for`]
    pub what_for: u64,
}

impl Interrupted {
    /// There is none.
    pub const NONE: Interrupted = Interrupted { rsp: 0, what_for: 0 };
}

/// What a thread has waited.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The stack pointer at the entry of the outermost function that it waits in now; 0: it waits in none.
    pub rsp: u64,
    /// What for: an index of `ticks`.
    pub what_for: u64,
    /// When that began, ticks.
    pub began: u64,
    /// What it has waited until then, by what for.
    pub ticks: [u64; 2],
}

impl Waiting {
    /// For other threads and processes, for signals, for some time to pass.
    pub const FOR_OTHERS: u64 = 0;
    /// For input and output.
    pub const FOR_IO: u64 = 1;
    /// Of a thread that has not waited.
    pub const NONE: Waiting = Waiting { rsp: 0, what_for: 0, began: 0, ticks: [0; 2] };
}

impl Area {
    /// In [`Area::check`]: only the kernel tells the thread from another one. No word of 32 bits is equal then.
    pub const ASKS: u64 = 1 << 32;
}

/// What a thread keeps.
#[repr(C)]
pub struct Area {
    /// Where a word of the thread's control block is, that tells the thread from another one with the same thread
    /// pointer: its distance from there.
    pub check_at: u64,
    /// The thread's number, which is there; with [`Area::ASKS`] it is nowhere.
    pub check: u64,
    /// The thread's record (`ArenaRef`).
    pub record: u64,
    /// The address of the uppermost activation.
    pub top: u64,
    reserved: [u64; 4],
    /// By a hash of probe, stack pointer and return address.
    pub known: [Known; Known::COUNT],
    /// Activations in groups by stack: a mark, then those that are active there, the outermost first. The stack that the
    /// thread is on is the last one. The first mark is of no stack, and stays.
    pub activations: [Activation; Activation::MOST],
    /// Of each.
    pub readings: [Reading; Activation::MOST],
    /// What is measured, by number; the rest is [`Gauge::NONE`].
    pub gauges: [Gauge; Gauge::MOST],
    /// What it has waited.
    pub waiting: Waiting,
    /// Its contexts, if all calls are counted.
    pub nodes: NodeMemory,
}

/// A thread that has an area: an entry of a table that is searched by the thread pointer.
#[repr(C)]
pub struct Slot {
    /// The thread pointer; 0: free.
    pub thread: core::sync::atomic::AtomicU64,
    /// The area's address.
    pub area: core::sync::atomic::AtomicU64,
}

impl Slot {
    /// How many there are; a power of two.
    pub const COUNT: usize = 4096;
    /// Thread pointers lie at least so far apart, as a binary logarithm: a control block is longer.
    pub const SPACING_SHIFT: u32 = 6;
    /// A multiplier that spreads them (Knuth 1998, section 6.4), of 32 bits.
    pub const SPREAD: u32 = 0x9e37_79b1;
}

const _: () = assert!(size_of::<Known>() == 1 << Known::LEN_SHIFT);
const _: () = assert!(core::mem::offset_of!(Area, known) == 64);
