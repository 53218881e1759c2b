//! Joining the measurement: the memories that the recorder has mapped, and a slot of this process's own; again in a
//! fork's child.

use callpath_collect::syscall::{futex_wait, getpid, gettid};
use callpath_collect::{Process, refused};
use callpath_format::shared::probe::Admission;
use callpath_format::shared::{PROCESS_SLOTS, ProcessSlot, Session, SlotState, Source};
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::undisturbed;

struct Cell<T>(UnsafeCell<MaybeUninit<T>>);
// SAFETY: written by one thread while no other reads: before `STATE` is `JOINED` for the process.
unsafe impl<T> Sync for Cell<T> {}

static PROCESS: Cell<Process<'static>> = Cell(UnsafeCell::new(MaybeUninit::uninit()));
static ADMISSION: Cell<Admission> = Cell(UnsafeCell::new(MaybeUninit::uninit()));
/// 0: nothing is there; [`JOINED`]; otherwise a thread of a fork's child takes a slot for it: the process's number, and in the lower
/// half the thread's.
static STATE: AtomicU64 = AtomicU64::new(0);
const JOINED: u64 = 1;

/// The address of the slot's word that names the load map, for `routines.rs`.
pub static LOAD_MAP: AtomicU64 = AtomicU64::new(0);

/// How often the recorder had given memory when a wait for more was in vain, + 1: then it is gone, or there is no more.
static IN_VAIN: AtomicU64 = AtomicU64::new(0);

/// Waits for memory, if there is little, unless that was in vain before.
pub fn await_chunks(process: &Process<'_>) {
    /// As long as a busy machine may keep the recorder from running, or a large measurement keep it busy.
    const PATIENCE_NS: u64 = 10_000_000_000;
    let given = || u64::from(process.session.given.load(Relaxed)) + 1;
    if IN_VAIN.load(Relaxed) != given() && !callpath_collect::await_chunks(process, PATIENCE_NS) {
        IN_VAIN.store(given(), Relaxed);
    }
}

/// The load map with which the last wait for code was in vain.
static VAIN_MAP: AtomicU64 = AtomicU64::new(0);

/// Whether a wait for code that this load map lacks was in vain.
pub fn was_vain(map: u64) -> bool {
    VAIN_MAP.load(Relaxed) == map
}

/// Waits until the recorder knows the code that `map` lacks. `map` was read before the walk that found code lacking.
pub fn await_code(process: &Process<'_>, map: u64, patience_ns: u64) -> bool {
    let is_there = callpath_collect::probe::await_code(process, map, patience_ns);
    if !is_there {
        VAIN_MAP.store(map, Relaxed);
    }
    is_there
}

/// How long a fork's child waits to be let in, by turns of [`WAIT_NS`].
const WAITS: u32 = 50;
const WAIT_NS: u64 = 20_000_000;

/// What the recorder has said is kept, and the process takes part from now on.
pub fn begin(process: Process<'static>, admission: &Admission) {
    // SAFETY: nothing reads it before `STATE` says so.
    unsafe { (*ADMISSION.0.get()).write(*admission) };
    if admission.slot == 0 {
        take_part(process, admission.pid as u32, 0);
    } else {
        undisturbed::let_samples_through();
        belong_to(process);
    }
}

/// Whether the process takes part without us: it is sampled.
pub fn is_sampled() -> bool {
    admission().is_some_and(|admission| admission.slot != 0)
}

/// Lets the process's threads count in its slot.
fn belong_to(process: Process<'static>) {
    LOAD_MAP.store(process.slot.load_map.as_ptr() as u64, Relaxed);
    // SAFETY: no thread reads it now: none has begun, or it is a fork's child that says so by `STATE`.
    unsafe { (*PROCESS.0.get()).write(process) };
    STATE.store(JOINED, Release);
}

/// The slot that a process which is sampled has taken, once it was let in.
fn slot_of(pid: u32, before: &Process<'static>) -> Option<Process<'static>> {
    let is_its = |process: &Process<'_>| {
        let slot = process.slot;
        slot.state.load(Acquire) == SlotState::LIVE
            && slot.pid.load(Relaxed) == pid
            && ![Source::None as u32, Source::Refused as u32].contains(&slot.source.load(Acquire))
    };
    let all = (0..PROCESS_SLOTS).filter_map(|index| Process::in_slot(before.arena, before.published, index));
    all.into_iter().find(is_its)
}

/// Fills in the slot, and lets the process's threads count.
fn take_part(process: Process<'static>, pid: u32, forked_from: u32) {
    let slot: &ProcessSlot = process.slot;
    refused::remember_pid(pid);
    slot.pid.store(pid, Relaxed);
    for word in [&slot.source, &slot.map_wanted, &slot.map_served, &slot.map_awaits, &slot.raw, &slot.raw_pending] {
        word.store(0, Relaxed);
    }
    for word in [&slot.threads, &slot.unloading, &slot.trap_default, &slot.pause, &slot.walks_itself] {
        word.store(0, Relaxed);
    }
    for word in [&slot.loads_wanted, &slot.loads_served] {
        word.store(0, Relaxed);
    }
    for word in [&slot.unmarked, &slot.marks_lost, &slot.refused_calls, &slot.raw_reach, &slot.record_word] {
        word.store(0, Relaxed);
    }
    slot.load_map.store(0, Relaxed);
    slot.lane_word.store(0, Relaxed);
    slot.lane_word_image.store(0, Relaxed);
    slot.inherited_cpu_ns.store(0, Relaxed);
    for count in slot.dropped_unrecorded.iter().chain(process.bases) {
        count.store(0, Relaxed);
    }
    slot.forked_from.store(forked_from, Relaxed);
    belong_to(process);
    slot.state.store(SlotState::LIVE, Release);
    process.ring();
}

/// What the recorder said when this process, or the one that it was forked from, was let in.
pub fn admission() -> Option<&'static Admission> {
    // SAFETY: it was written before `STATE` was first set, and is not written again.
    (STATE.load(Acquire) != 0).then(|| unsafe { (*ADMISSION.0.get()).assume_init_ref() })
}

/// This process's view of the measurement. `None`: it has none, or another thread is joining.
pub fn process() -> Option<&'static Process<'static>> {
    // SAFETY: `JOINED` is stored after it was written.
    (STATE.load(Acquire) == JOINED).then(|| unsafe { (*PROCESS.0.get()).assume_init_ref() })
}

/// The same as [`process`]; waits while another thread of this process is joining.
pub fn settled() -> Option<&'static Process<'static>> {
    const WAIT_NS: u64 = 100_000;
    /// Twice the longest wait to be let in.
    const WAITS: u64 = 2 * self::WAITS as u64 * self::WAIT_NS / WAIT_NS;
    static NOBODY: AtomicU32 = AtomicU32::new(0);
    for _ in 0..WAITS {
        let (state, own) = (STATE.load(Acquire), this_thread());
        // Nobody joins; or it is this very thread, interrupted; or one of the parent's, at a fork.
        if state <= JOINED || state == own || state >> 32 != own >> 32 {
            break;
        }
        futex_wait(&NOBODY, 0, WAIT_NS);
    }
    process()
}

fn this_thread() -> u64 {
    u64::from(getpid()) << 32 | u64::from(gettid())
}

/// The same, asked by a thread that nothing is known of: a fork's child takes a slot of its own, and waits to be let
/// in as any process does.
pub fn own_process() -> Option<&'static Process<'static>> {
    let pid = getpid();
    let before = loop {
        let before = settled()?;
        if before.slot.pid.load(Relaxed) == pid {
            return Some(before);
        }
        // Of several threads that begin at the same time, one takes the slot, and the others wait for it.
        if STATE.compare_exchange(JOINED, this_thread(), AcqRel, Relaxed).is_ok() {
            break before;
        }
    };
    if is_sampled() {
        match slot_of(pid, before) {
            Some(own) => belong_to(own),
            // It does not take part, or not yet.
            None => STATE.store(JOINED, Release),
        }
        return process().filter(|process| process.slot.pid.load(Relaxed) == pid);
    }
    let Some(own) = Process::claim(before.arena, before.published, None) else {
        // All hits of this process are lost, and the next one tries again.
        STATE.store(JOINED, Release);
        return None;
    };
    take_part(own, pid, before.slot_index + 1);
    let own = process()?;
    for _ in 0..WAITS {
        if own.slot.source.load(Acquire) != 0 || own.session.recorder.load(Relaxed) != Session::SERVING {
            break;
        }
        futex_wait(&own.slot.source, 0, WAIT_NS);
    }
    Some(own)
}
