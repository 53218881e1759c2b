//! Threads: known from their first instruction to their last destructor.
//!
//! `pthread_create` starts a thread in `begin`, which leaves no frame behind: it jumps to the program's own
//! start routine with the stack as it found it. A thread-specific value's destructor marks the end. It runs for
//! a return, `pthread_exit` and cancellation alike.

use callpath_collect::syscall::gettid;
use callpath_collect::{Interrupted, Process, Thread, Trigger, await_chunks, take};
use callpath_format::shared::{ArenaRef, ThreadRecord};
use core::ffi::{c_int, c_void};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Relaxed, Release};

use crate::hook::real;
use crate::libc::{StartRoutine, has_thread_sanitizer};
use crate::tls::{self, Word};
use crate::{lanes, masks, names, part, sentinel, timer};

/// How long a thread that makes another one waits for memory, as long as a busy machine may keep the recorder from
/// running.
const PATIENCE_NS: u64 = 100_000_000;

/// The thread-specific key + 1; 0: there is none, and threads end unnoticed until the recorder looks.
static KEY: AtomicU32 = AtomicU32::new(0);

/// Registers [`end`] with the C library, for each thread's end.
pub fn register() -> bool {
    let Some(create) = real!(fn pthread_key_create(*mut u32, unsafe extern "C" fn(*mut c_void)) -> c_int) else {
        return true;
    };
    let mut key = 0;
    // SAFETY: `end` is called with what `set_specific` has set for the key, which
    // is what it takes; our object is never unloaded.
    if unsafe { create(&raw mut key, end) } == 0 {
        KEY.store(key + 1, Relaxed);
    }
    true
}

/// `pthread_create`: the thread gets a record before it runs.
///
/// # Safety
/// As for `pthread_create(3)`.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    _thread: *mut c_void,
    _attributes: *const c_void,
    _routine: StartRoutine,
    _argument: *mut c_void,
) -> c_int {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "push rdx",
        ".cfi_adjust_cfa_offset 8",
        "push rcx",
        ".cfi_adjust_cfa_offset 8",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "mov rdi, rdx",
        "mov rsi, rcx",
        "call {creator}",
        "mov r10, rdx",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop rcx",
        ".cfi_adjust_cfa_offset -8",
        "pop rdx",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "test r10, r10",
        "je 2f",
        "lea rdx, [rip + {begin}]",
        "mov rcx, r10",
        "2:",
        "jmp rax",
        ".cfi_endproc",
        creator = sym creator,
        begin = sym begin,
    )
}

/// Returned in rax and rdx.
#[repr(C)]
struct Creator {
    /// Where `pthread_create` continues, with its own arguments and frame.
    address: usize,
    /// The record with which the thread begins in `begin`; 0: it begins in the program's start routine.
    record: usize,
}

/// What continues with `pthread_create`. ThreadSanitizer reports its caller as the thread's creator, so our frame must
/// be gone by then. A thread that it fails to make then keeps its record until the process ends.
extern "C" fn creator(routine: u64, argument: u64) -> Creator {
    let is_watched = has_thread_sanitizer();
    match real_create() {
        Some(real) if is_watched => {
            Creator { address: real as usize, record: prepared([routine, argument]).unwrap_or(0) }
        }
        _ => Creator { address: create as *const () as usize, record: 0 },
    }
}

/// A record for a thread that begins in `begin` and continues in the program's start routine.
fn prepared(start: [u64; 2]) -> Option<usize> {
    let process = part::own_process()?;
    // Its tree takes them in the handler, which cannot wait.
    // Without them the thread is not measured; the next one may have more luck.
    let _came = await_chunks(process, PATIENCE_NS);
    let record = Thread::create(process, 0, [0; 2], start)?.record;
    if let Some(creator) = process.arena.get(ArenaRef(tls::get(Word::Record) as u32)) {
        names::inherit(record, creator);
    }
    record.made_under.store(masks::said(), Relaxed);
    sample_if_due();
    Some(core::ptr::from_ref(record) as usize)
}

fn real_create() -> Option<Create> {
    real!(fn pthread_create(*mut c_void, *const c_void, StartRoutine, *mut c_void) -> c_int)
}

type Create = unsafe extern "C" fn(*mut c_void, *const c_void, StartRoutine, *mut c_void) -> c_int;

/// # Safety
/// As for `pthread_create(3)`.
unsafe extern "C" fn create(
    thread: *mut c_void,
    attributes: *const c_void,
    routine: StartRoutine,
    argument: *mut c_void,
) -> c_int {
    const EAGAIN: c_int = 11;
    let Some(create) = real_create() else { return EAGAIN };
    let Some(record) = prepared([routine as usize as u64, argument as u64]) else {
        // SAFETY: the program's own arguments, for which it vouches.
        return unsafe { create(thread, attributes, routine, argument) };
    };
    let creating = lanes::begin_creating();
    // SAFETY: the program vouches for the place and the attributes; `begin` takes a record, which is never unmapped.
    let result = unsafe { create(thread, attributes, begin, record as *mut c_void) };
    if let Some(creating) = creating {
        creating.end(result);
    }
    if result != 0 {
        // It never ran; the recorder takes the record back. SAFETY: `prepared` gave a
        // record, which lies in memory that stays mapped.
        unsafe { &*(record as *const ThreadRecord) }.state.store(ThreadRecord::EXITED, Release);
    }
    result
}

/// The kernel's clock starts a new period with each thread that is made, so a thread that creates others faster than
/// that would never be sampled: its time is recorded here.
fn sample_if_due() {
    let Some(process) = part::process() else { return };
    let thread = Thread::at(process, ArenaRef(tls::get(Word::Record) as u32));
    if let Some(thread) = thread.filter(|t| t.is_due(process)) {
        if masks::is_blocked_in_truth() {
            thread.leave_gap(process);
        }
        sample_here(process, thread);
    }
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
    take(process, thread, Trigger::Own, &Interrupted { registers, pc });
}

/// Where a thread begins: takes its record and jumps to the program's start routine.
#[unsafe(naked)]
unsafe extern "C" fn begin(_record: *mut c_void) -> *mut c_void {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        // The CFA, which is that of the program's start routine, too.
        "lea rsi, [rsp + 16]",
        "call {enter}",
        "pop rcx",
        ".cfi_adjust_cfa_offset -8",
        "mov rdi, rdx",
        "jmp rax",
        ".cfi_endproc",
        enter = sym enter,
    )
}

/// Returned in rax and rdx.
#[repr(C)]
struct Start {
    routine: u64,
    argument: u64,
}

unsafe extern "C" fn enter(record: &'static ThreadRecord, cfa: u64) -> Start {
    let start = Start { routine: record.start_routine.load(Relaxed), argument: record.start_argument.load(Relaxed) };
    let Some(process) = part::process() else { return start };
    let reference = ArenaRef::from_offset(core::ptr::from_ref(record) as usize - process.arena.base() as usize);
    let Some(thread) = Thread::at(process, reference) else { return start };
    let [low, high] = own_stack();
    let set_stack = |record: &ThreadRecord| {
        record.stack[0].store(low, Relaxed);
        record.stack[1].store(high, Relaxed);
        record.stack_base.store(cfa, Relaxed);
    };
    set_stack(record);
    thread.start_clocks(process);
    // A sample that came before now has made a record of its own, as has a copy of the C library's code that counts.
    let earlier = ArenaRef(tls::set_first(Word::Record, u64::from(reference.0)) as u32);
    let thread = match Thread::at(process, earlier) {
        Some(earlier) => {
            set_stack(earlier.record);
            replace(record, earlier.record);
            earlier
        }
        None => {
            record.tid.store(gettid(), Relaxed);
            thread
        }
    };
    masks::adopt_as_made(record.made_under.load(Relaxed));
    set_specific(core::ptr::from_ref(thread.record).cast());
    names::has_begun(&thread);
    timer::start(process, &thread);
    start
}

/// A thread has another record than the one that was prepared for it, which the recorder takes back as one of a thread
/// that never ran.
fn replace(prepared: &ThreadRecord, by: &ThreadRecord) {
    by.start_routine.store(prepared.start_routine.load(Relaxed), Relaxed);
    by.start_argument.store(prepared.start_argument.load(Relaxed), Relaxed);
    names::inherit(by, prepared);
    prepared.state.store(ThreadRecord::EXITED, Release);
}

fn set_specific(value: *const c_void) {
    let set = real!(fn pthread_setspecific(u32, *const c_void) -> c_int);
    let (Some(key), Some(set)) = (KEY.load(Relaxed).checked_sub(1), set) else { return };
    // SAFETY: `register` has made the key, and `end` takes what is set for it. If it fails, the
    // recorder notices by itself that the thread has ended.
    unsafe { set(key, value) };
}

unsafe extern "C" fn end(record: *mut c_void) {
    let Some(process) = part::process() else { return };
    let reference = ArenaRef::from_offset(record as usize - process.arena.base() as usize);
    let Some(thread) = Thread::at(process, reference) else { return };
    if thread.record.tid.load(Relaxed) != gettid() {
        return;
    }
    timer::stop(&thread);
    if process.stubs.is_some() {
        sentinel::end();
    }
    thread.flush(process, masks::is_blocked_in_truth());
    lanes::end();
    thread.record.state.store(ThreadRecord::EXITED, Release);
}

/// What is known of the calling thread's stack: from here up to the thread's control block, which the C library keeps
/// at its top. Samples find out how far down it reaches.
fn own_stack() -> [u64; 2] {
    let (low, high): (u64, u64);
    // SAFETY: reads two registers; fs:[16] is the thread pointer itself (psABI, TLS variant II as glibc lays it out).
    unsafe {
        core::arch::asm!("mov {}, rsp", "mov {}, qword ptr fs:[16]", out(reg) low, out(reg) high, options(nostack, readonly));
    }
    if low < high { [low, high] } else { [0; 2] }
}

/// At a normal end of the process: accounts for what its last thread has used since its last sample.
#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = finish;

extern "C" fn finish() {
    let Some(process) = part::own_process() else { return };
    if let Some(thread) = Thread::at(process, ArenaRef(tls::get(Word::Record) as u32)) {
        thread.flush(process, masks::is_blocked_in_truth());
    }
}
