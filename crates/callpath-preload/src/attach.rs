//! Joining the measurement: the session named in the environment, mapped, with a slot of this process's own.
//! Knows nothing of samples.

use callpath_collect::clock::{monotonic_ns, ticks};
use callpath_collect::syscall::{call4, call6, getpid, gettid};
use callpath_collect::{Interrupted, Process, Thread, Trigger, refused, sample};
use callpath_format::shared::load_map::Published;
use callpath_format::shared::refused::Calls;
use callpath_format::shared::{Arena, CHUNK_LEN_BYTES, PROCESS_SLOTS, Pause, ProcessSlot, Session, SlotState, Source};
use core::cell::UnsafeCell;
use core::ffi::{c_char, c_int};
use core::mem::MaybeUninit;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::file::{File, joined};
use crate::libc::{self, syscall_number};
use crate::tls::{self, Word};
use crate::{environment, fork, hook, recorder, sentinel, signal, threads, timer};

/// How long a process waits for a sign of the recorder while it makes the first load map.
const PATIENCE_NS: u64 = 5_000_000_000;

struct Cell(UnsafeCell<MaybeUninit<Process<'static>>>);
// SAFETY: written before `STATE` says so, by one thread; read only afterwards.
unsafe impl Sync for Cell {}

static PROCESS: Cell = Cell(UnsafeCell::new(MaybeUninit::uninit()));
static STATE: AtomicU32 = AtomicU32::new(0);
const ATTACHED: u32 = 1;

/// This process's view of the measurement, if it takes part in one.
#[inline]
pub fn process() -> Option<&'static Process<'static>> {
    if STATE.load(Acquire) != ATTACHED {
        return None;
    }
    // SAFETY: `STATE` is `ATTACHED` only after the value was written; it is written again only in a fork's child, which
    // has one thread.
    Some(unsafe { (*PROCESS.0.get()).assume_init_ref() })
}

/// As `process`, but only if this is the process that attached, not a child that a raw clone or vfork made of it.
pub fn own_process() -> Option<&'static Process<'static>> {
    process().filter(|p| p.slot.pid.load(Relaxed) == getpid())
}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = construct;

extern "C" fn construct(_count: c_int, _arguments: *const *const c_char, environment: *const *const c_char) {
    // musl passes nothing to constructors; only glibc has this symbol.
    if libc::next(c"gnu_get_libc_version").is_null() {
        return;
    }
    let Some((arena, published)) = session_of(environment) else { return };
    environment::find();
    let Some(session) = arena.at_offset::<Session>(0) else { return };
    refused::remember_time(0, 0, session.settings.ticks_per_ms);
    refused::set(Calls(session.settings.refused_calls));
    // By the kernel's clock, if that can be asked.
    refused::remember_time(monotonic_ns(), ticks(), session.settings.ticks_per_ms);
    let stubs = sentinel::begin(session);
    hook::resolve_all();
    if let Some(process) = Process::claim(arena, published, stubs.ok()) {
        process.slot.unmarked.store(stubs.err().flatten().map_or(0, |reason| reason as u32), Relaxed);
        if process.stubs.is_some() {
            sentinel::prepare(session);
        }
        join(process, main_stack(environment), 0);
    }
}

/// Takes part: publishes the slot, makes the calling thread's record, waits for the recorder, starts the source.
pub fn join(process: Process<'static>, stack: [u64; 2], forked_from: u32) {
    let slot = process.slot;
    let earlier = if forked_from == 0 { earlier_program(&process) } else { None };
    if forked_from == 0 {
        // A filter stays in force when another program is executed.
        let of_earlier = earlier.map_or(0, |slot| slot.refused_calls.load(Relaxed));
        refused::set(Calls(refused::calls().0 | of_earlier));
    }
    slot.refused_calls.store(refused::calls().0, Relaxed);
    let pid = getpid();
    refused::remember_pid(pid);
    slot.pid.store(pid, Relaxed);
    for word in [&slot.source, &slot.map_wanted, &slot.map_served, &slot.raw, &slot.raw_pending] {
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
    for count in slot.dropped_unrecorded.iter().chain(&slot.bases) {
        count.store(0, Relaxed);
    }
    slot.forked_from.store(forked_from, Relaxed);
    // SAFETY: the program has one thread here (its constructors have not run, or it is a fork's child).
    unsafe { (*PROCESS.0.get()).write(process) };
    let thread = Thread::create(&process, gettid(), stack, [0; 2]);
    tls::set(Word::Record, thread.map_or(0, |t| u64::from(t.place().0)));
    STATE.store(ATTACHED, Release);
    let was_default = earlier.is_some_and(|s| s.trap_default.load(Relaxed) != 0);
    if forked_from == 0 && !(signal::install() && fork::register() && threads::register()) {
        STATE.store(0, Release);
        slot.state.store(SlotState::FREE, Release);
        return;
    }
    if was_default {
        signal::was_default();
    }
    if let Some(thread) = thread {
        // The clock may tick as soon as the recorder has opened it, and nobody has read it yet.
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
        // What was used until here is the loader's, and is attributed to where this thread now is.
        thread.start_first_clocks(&process);
        thread.record.busy.store(0, Release);
        timer::start(&process, &thread);
        if forked_from == 0 {
            sample_here(&process, thread);
        }
    }
}

/// The slot that this process had when it executed this program. The recorder leaves it alone until it sees the new one.
fn earlier_program<'m>(process: &Process<'m>) -> Option<&'m ProcessSlot> {
    let pid = getpid();
    (0..PROCESS_SLOTS).filter(|index| *index as u32 != process.slot_index).find_map(|index| {
        let slot: &ProcessSlot = process.arena.at_offset(ProcessSlot::offset_bytes(index)?)?;
        (slot.pid.load(Relaxed) == pid && slot.state.load(Acquire) == SlotState::LIVE).then_some(slot)
    })
}

/// Takes part no longer: there was no slot for a fork's child, or the program forbids itself system calls.
pub fn leave() {
    STATE.store(0, Release);
}

/// Takes part again.
pub fn come_back() {
    STATE.store(ATTACHED, Release);
}

/// Takes part no longer, before anything was measured: all is again as it was found.
fn leave_refused(slot: &ProcessSlot) {
    STATE.store(0, Release);
    tls::set(Word::Record, 0);
    signal::give_back();
    slot.state.store(SlotState::FREE, Release);
}

/// A sample of the calling thread at a moment that callpath knows of.
pub fn sample_here(process: &Process<'_>, thread: Thread<'_>) {
    let mut registers = [0u64; 16];
    let pc: u64;
    // SAFETY: stores seven registers within `registers`, which is 128 bytes long.
    unsafe {
        core::arch::asm!(
            "mov [{r} + 24], rbx", "mov [{r} + 48], rbp", "mov [{r} + 56], rsp",
            "mov [{r} + 96], r12", "mov [{r} + 104], r13", "mov [{r} + 112], r14", "mov [{r} + 120], r15",
            "lea {pc}, [rip]",
            r = in(reg) registers.as_mut_ptr(), pc = out(reg) pc, options(nostack),
        );
    }
    sample::take(process, thread, Trigger::Own, &Interrupted { registers, pc });
}

/// Finds `CALLPATH_SESSION=PID:ARENA_FD:PUBLISHED_FD:NONCE` and maps both; nothing if anything is amiss.
fn session_of(environment: *const *const c_char) -> Option<(Arena<'static>, Published<'static>)> {
    let value = environment::variable(environment, environment::SESSION)?;
    let mut fields = value.split(|b| *b == b':');
    let (pid, arena, published) = (fields.next()?, fields.next()?, fields.next()?);
    let nonce = number(fields.next()?)?;
    let arena = open_of_recorder(pid, arena, File::READ_AND_WRITE)?;
    let published = open_of_recorder(pid, published, File::READ)?;
    let head = map(&arena, CHUNK_LEN_BYTES, PROT_READ)?;
    // SAFETY: a whole chunk is mapped; `Session` fits into it.
    let session = unsafe { &*head.cast::<Session>() };
    let accepted = session.magic == Session::MAGIC && session.nonce == nonce;
    let (arena_len, published_len) = (session.arena_len_bytes as usize, session.published_len_bytes as usize);
    // SAFETY: unmaps what was mapped above; `session` is not used any more.
    unsafe { call4(syscall_number::MUNMAP, head as usize, CHUNK_LEN_BYTES, 0, 0) };
    if !accepted {
        return None;
    }
    recorder::remember(number(pid)? as u32);
    let arena = map(&arena, arena_len, PROT_READ | PROT_WRITE)?;
    let Some(published) = map(&published, published_len, PROT_READ) else {
        // SAFETY: nobody has been told of this mapping.
        unsafe { call4(syscall_number::MUNMAP, arena as usize, arena_len, 0, 0) };
        return None;
    };
    // SAFETY: both stay mapped for ever; the recorder backs with memory what it hands out and publishes.
    unsafe {
        Some((Arena::new(arena, arena_len), Published::new(core::slice::from_raw_parts(published, published_len))))
    }
}

/// Whether a program that is started now could open what `CALLPATH_SESSION` names.
pub fn can_open(session: &[u8]) -> bool {
    let mut fields = session.split(|b| *b == b':');
    let (Some(pid), Some(arena), Some(published)) = (fields.next(), fields.next(), fields.next()) else { return false };
    [(arena, File::READ_AND_WRITE), (published, File::READ)].into_iter().all(|(descriptor, access)| {
        let mut path = [0u8; 64];
        path_of_recorder(pid, descriptor, &mut path).is_some_and(|path| {
            File::open(File::HERE, path, access).is_ok() && File::can_be_opened_by_user(File::HERE, path, access)
        })
    })
}

/// One of the recorder's descriptors, opened again.
fn open_of_recorder(pid: &[u8], descriptor: &[u8], access: usize) -> Option<File> {
    let mut path = [0u8; 64];
    File::open(File::HERE, path_of_recorder(pid, descriptor, &mut path)?, access).ok()
}

fn path_of_recorder<'b>(pid: &[u8], descriptor: &[u8], place: &'b mut [u8]) -> Option<&'b [u8]> {
    joined(&[b"/proc/", pid, b"/fd/", descriptor], place)
}

const PROT_READ: usize = 1;
const PROT_WRITE: usize = 2;

fn map(file: &File, len: usize, protection: usize) -> Option<*mut u8> {
    const MAP_SHARED: usize = 1;
    const MAP_NORESERVE: usize = 0x4000;
    const MADV_DONTDUMP: usize = 16;
    let arguments = [0, len, protection, MAP_SHARED | MAP_NORESERVE, file.descriptor(), 0];
    // SAFETY: a new mapping at a place of the kernel's choice.
    let at = unsafe { call6(syscall_number::MMAP, arguments) };
    let at = usize::try_from(at).ok()?;
    // SAFETY: changes only what a core dump holds.
    unsafe { call4(syscall_number::MADVISE, at, len, MADV_DONTDUMP, 0) };
    Some(at as *mut u8)
}

pub fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |n, d| {
        let digit = d.checked_sub(b'0').filter(|d| *d < 10)?;
        n.checked_mul(10)?.checked_add(u64::from(digit))
    })
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
