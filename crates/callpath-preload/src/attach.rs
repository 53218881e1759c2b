//! Joining the measurement: the session named in the environment, mapped, with a slot of this process's own.

use callpath_collect::clock::{monotonic_ns, thread_cpu_ns, ticks};
use callpath_collect::syscall::{getpid, gettid};
use callpath_collect::{Process, Thread, refused};
use callpath_format::shared::refused::Calls;
use callpath_format::shared::{PROCESS_SLOTS, Pause, ProcessSlot, Session, SlotState, Source};
use core::ffi::{c_char, c_int};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::libc;
use crate::tls::{self, Word};
use crate::{environment, fork, hook, lanes, part, recorder, sentinel, session, signal, threads, timer};

/// How long a process waits for progress of the recorder while that builds the first load map.
const PATIENCE_NS: u64 = 5_000_000_000;

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = construct;

extern "C" fn construct(_count: c_int, arguments: *const *const c_char, environment: *const *const c_char) {
    // musl passes nothing to constructors; only glibc has this symbol.
    if libc::next(c"gnu_get_libc_version").is_null() {
        return;
    }
    let begin = Beginning::Ticks(ticks());
    let Some((arena, published)) = session::find(environment) else { return };
    environment::find();
    let Some(session) = arena.at_offset::<Session>(0).map(Session::head) else { return };
    refused::remember_time(0, 0, session.settings.ticks_per_ms);
    refused::set(Calls(session.settings.refused_calls));
    // From the kernel, if the call is allowed.
    refused::remember_time(monotonic_ns(), ticks(), session.settings.ticks_per_ms);
    let stubs = sentinel::begin(&session);
    hook::resolve_all();
    if let Some(process) = Process::claim(arena, published, stubs.ok()) {
        process.slot.unmarked.store(stubs.err().flatten().map_or(0, |reason| reason as u32), Relaxed);
        if process.stubs.is_some() {
            sentinel::prepare(&session);
        }
        // The kernel puts the number of arguments below them.
        let stack = OwnStack { bounds: main_stack(environment), base: (arguments as u64).wrapping_sub(8) };
        join(process, stack, 0, begin);
    }
}

/// What is known of a thread's stack.
#[derive(Clone, Copy, Default)]
pub struct OwnStack {
    /// Its lowest address and one past its highest; 0, 0 where they are not known.
    pub bounds: [u64; 2],
    /// From where heights on it count ([`ThreadRecord::stack_base`]); 0 where that is not known.
    ///
    /// [`ThreadRecord::stack_base`]: callpath_format::shared::ThreadRecord::stack_base
    pub base: u64,
}

/// When our own work at the start of a process began.
pub enum Beginning {
    /// At this time stamp: no system call could be made yet, since it was not known which are refused.
    Ticks(u64),
    /// At this CPU time of the thread, if it can be read.
    Cpu(Option<u64>),
}

impl Beginning {
    /// Now, where it is known which system calls are refused.
    pub fn now() -> Beginning {
        Beginning::Cpu(thread_cpu_ns())
    }

    /// The thread's CPU time then, if it can be read.
    fn cpu_ns(&self, ticks_per_ms: u64) -> Option<u64> {
        /// It takes longer only if the thread has lost its CPU meanwhile.
        const LONGEST_NS: u64 = 500_000;
        match *self {
            Beginning::Cpu(cpu_ns) => cpu_ns,
            Beginning::Ticks(then) => {
                let passed_ns = ticks().saturating_sub(then).saturating_mul(1_000_000) / ticks_per_ms.max(1);
                thread_cpu_ns().map(|now_ns| now_ns.saturating_sub(passed_ns.min(LONGEST_NS)))
            }
        }
    }
}

/// Takes part: publishes the slot, makes the calling thread's record, waits for the recorder, starts the source.
pub fn join(process: Process<'static>, stack: OwnStack, forked_from: u32, begin: Beginning) {
    let slot = process.slot;
    let earlier = if forked_from == 0 { earlier_program(&process) } else { None };
    if forked_from == 0 {
        // A filter stays in force when another program is executed.
        let of_earlier = earlier.map_or(0, |slot| slot.refused_calls.load(Relaxed));
        refused::set(Calls(refused::calls().0 | of_earlier));
    }
    let begin_cpu_ns = begin.cpu_ns(process.session.settings.ticks_per_ms);
    slot.refused_calls.store(refused::calls().0, Relaxed);
    let pid = getpid();
    refused::remember_pid(pid);
    slot.pid.store(pid, Relaxed);
    for word in [&slot.loads_wanted, &slot.loads_served] {
        word.store(0, Relaxed);
    }
    for word in [&slot.source, &slot.map_wanted, &slot.map_served, &slot.map_awaits, &slot.raw, &slot.raw_pending] {
        word.store(0, Relaxed);
    }
    slot.threads.store(0, Relaxed);
    slot.unloading.store(0, Relaxed);
    slot.load_map.store(0, Relaxed);
    slot.trap_default.store(0, Relaxed);
    slot.pause.store(Pause::RUNNING, Relaxed);
    slot.walks_itself.store(0, Relaxed);
    slot.marks_lost.store(0, Relaxed);
    slot.raw_reach.store(0, Relaxed);
    slot.inherited_cpu_ns.store(0, Relaxed);
    for count in slot.dropped_unrecorded.iter().chain(process.bases) {
        count.store(0, Relaxed);
    }
    slot.forked_from.store(forked_from, Relaxed);
    slot.record_word.store(tls::record_distance(), Relaxed);
    lanes::tell(slot);
    // SAFETY: the program has one thread here (its constructors have not run, or it is a fork's child), and
    // `fork::child`, which called, holds a copy of the parent's.
    unsafe { part::begin(process) };
    let thread = first_thread(&process, stack);
    tls::set(Word::Record, thread.map_or(0, |t| u64::from(t.reference().0)));
    let was_default = earlier.is_some_and(|s| s.trap_default.load(Relaxed) != 0);
    if forked_from == 0 && !(signal::install(&process.session.settings) && fork::register() && threads::register()) {
        part::leave();
        slot.state.store(SlotState::FREE, Release);
        return;
    }
    if was_default {
        signal::was_default();
    }
    if let Some(thread) = thread {
        // The clock may tick as soon as the recorder has opened it, before it was first read.
        thread.record.busy.store(1, Relaxed);
    }
    slot.state.store(SlotState::LIVE, Release);
    process.ring();
    recorder::wait(&process, &slot.source, PATIENCE_NS, |source| source != Source::None as u32);
    if slot.source.load(Acquire) == Source::Refused as u32 {
        leave_refused(slot);
        return;
    }
    if let Some(thread) = thread {
        thread.start_first_clocks(&process, begin_cpu_ns, forked_from != 0);
        thread.record.busy.store(0, Release);
        timer::start(&process, &thread);
    }
}

/// The calling thread's record. If no chunk is free, it waits for one: a process waits for the recorder anyway, which may
/// have been busy with others that began at the same time. `None`: there is no memory left, or no recorder.
fn first_thread(process: &Process<'static>, stack: OwnStack) -> Option<Thread<'static>> {
    let session = process.session;
    loop {
        let given = session.given.load(Acquire);
        if let Some(thread) = Thread::create(process, gettid(), stack.bounds, [0; 2]) {
            thread.record.stack_base.store(stack.base, Relaxed);
            return Some(thread);
        }
        let is_dry = session.low_water.load(Relaxed) == 0;
        if is_dry || !recorder::wait(process, &session.given, PATIENCE_NS, |now| now != given) {
            return None;
        }
    }
}

/// The slot that this process had when it executed this program. The
/// recorder leaves it alone until it sees the new one.
fn earlier_program<'m>(process: &Process<'m>) -> Option<&'m ProcessSlot> {
    let pid = getpid();
    (0..PROCESS_SLOTS).filter(|index| *index as u32 != process.slot_index).find_map(|index| {
        let slot: &ProcessSlot = process.arena.at_offset(ProcessSlot::offset_bytes(index)?)?;
        (slot.pid.load(Relaxed) == pid && slot.state.load(Acquire) == SlotState::LIVE).then_some(slot)
    })
}

/// Leaves the measurement before anything was measured, and restores what joining changed.
fn leave_refused(slot: &ProcessSlot) {
    part::leave();
    tls::set(Word::Record, 0);
    signal::give_back();
    slot.state.store(SlotState::FREE, Release);
}

/// What is known of the first thread's stack: from here up to the strings that the kernel put at its top.
fn main_stack(environment: *const *const c_char) -> [u64; 2] {
    const AT_EXECFN: u64 = 31;
    let mut end = environment;
    // SAFETY: the environment ends with a null pointer; the auxiliary vector, pairs that end with a 0, follows it.
    let top = unsafe {
        while !(*end).is_null() {
            end = end.add(1);
        }
        let mut pair = end.add(1).cast::<[u64; 2]>();
        loop {
            match *pair {
                [0, _] => break 0,
                [AT_EXECFN, name] => break name,
                _ => pair = pair.add(1),
            }
        }
    };
    [core::ptr::from_ref(&top) as u64, top & !7]
}
