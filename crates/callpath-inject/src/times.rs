//! Times of paths (`callpath_format::shared::times`): what copies call where a path is measured. The routines keep all registers but the
//! arithmetic flags.
//!
//! The stack at each, from its return address on:
//!
//! ```text
//! callpath_begin_path   the lane's address, procedure and word; they become: when the path began, what it weighs
//! callpath_leave_path   when the path began, which becomes: how long it has taken
//! callpath_resume_path  how long it has taken, which becomes: when it would have begun without the call
//! callpath_end_path     when it began, what it weighs, the lane's address, a part of its number, procedure and the other part,
//!                       the context's node
//! ```

use crate::gauges::Values;
use callpath_format::shared::activation::ContextNode;
use callpath_format::shared::gauge::Gauge;
use callpath_format::shared::lanes::LaneHead;
use callpath_format::shared::times::{Chosen, OfProcedure, PathKey, TimesHead, TimesOfPath};
use core::arch::global_asm;
use core::arch::x86_64::_rdtsc;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// The address of [`TimesHead`], which the recorder writes; 0: no times are measured.
pub static TIMES: AtomicU64 = AtomicU64::new(0);

/// What passes from one reading of the clock to the next where nothing is between, ticks.
static OVERHEAD: AtomicU64 = AtomicU64::new(0);

global_asm!(
    // Calls \\to with the address of what lies above the return address. rax and rdx are saved.
    ".macro callpath_times_call to",
    "push rcx",
    "push rsi",
    "push rdi",
    "push r8",
    "push r9",
    "push r10",
    "push r11",
    "push rbx",
    "mov rbx, rsp",
    "lea rdi, [rsp + 88]",
    "sub rsp, 256",
    "and rsp, -16",
    ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
    "movups xmmword ptr [rsp + 16 * \\n], xmm\\n",
    ".endr",
    "call \\to",
    ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
    "movups xmm\\n, xmmword ptr [rsp + 16 * \\n]",
    ".endr",
    "mov rsp, rbx",
    "pop rbx",
    "pop r11",
    "pop r10",
    "pop r9",
    "pop r8",
    "pop rdi",
    "pop rsi",
    "pop rcx",
    ".endm",
    // rax: the time.
    ".macro callpath_times_now",
    // Nothing before it is still to come, and nothing behind it has begun.
    "lfence",
    "rdtsc",
    "lfence",
    "shl rdx, 32",
    "or rax, rdx",
    ".endm",
    ".macro callpath_times_routine name",
    ".p2align 6",
    ".hidden \\name",
    ".globl \\name",
    ".type \\name,@function",
    "\\name:",
    "push rax",
    "push rdx",
    ".endm",
    ".macro callpath_times_return name",
    "pop rdx",
    "pop rax",
    "ret",
    ".size \\name, . - \\name",
    ".endm",
    ".pushsection .text.callpath_routines,\"ax\",@progbits",
    "callpath_times_routine callpath_begin_path",
    "mov rax, qword ptr [rsp + 24]",
    "mov edx, dword ptr [rsp + 32]",
    "lea rax, [rax + rdx * 8]",
    "mov rdx, qword ptr [rax + {chosen}]",
    "bt rdx, {next_bit}",
    "jnc 3f",
    // It was chosen that this one is measured, which weighs 1 << shift, and 1.
    "push rcx",
    "mov rcx, rdx",
    "shr rcx, {shift_at}",
    "mov edx, 1",
    "shl rdx, cl",
    "add rdx, 1",
    "mov qword ptr [rsp + 40], rdx",
    "pop rcx",
    "mov rdx, qword ptr [rax + {next_skip}]",
    "mov qword ptr [rax], rdx",
    "mov rdx, qword ptr [rax + {next_chosen}]",
    "mov qword ptr [rax + {chosen}], rdx",
    "2:",
    "callpath_times_now",
    // 0 would say that nothing is measured.
    "or rax, 1",
    "mov qword ptr [rsp + 24], rax",
    "pop rdx",
    "pop rax",
    "ret",
    "3:",
    "callpath_times_call {begun}",
    "cmp qword ptr [rsp + 32], 0",
    "jne 2b",
    "mov qword ptr [rsp + 24], 0",
    "callpath_times_return callpath_begin_path",
    "callpath_times_routine callpath_leave_path",
    "callpath_times_now",
    "sub rax, qword ptr [rsp + 24]",
    "sub rax, qword ptr [rip + {overhead}]",
    // Clocks of processors may differ.
    "mov edx, 1",
    "cmp rax, rdx",
    "cmovl rax, rdx",
    "mov qword ptr [rsp + 24], rax",
    "callpath_times_return callpath_leave_path",
    "callpath_times_routine callpath_resume_path",
    "callpath_times_now",
    "sub rax, qword ptr [rsp + 24]",
    "mov qword ptr [rsp + 24], rax",
    "callpath_times_return callpath_resume_path",
    "callpath_times_routine callpath_end_path",
    "callpath_times_now",
    "sub rax, qword ptr [rsp + 24]",
    "mov qword ptr [rsp + 24], rax",
    "callpath_times_call {ended}",
    "callpath_times_return callpath_end_path",
    // rax: what passes between the clocks of the two, if rdi is not 0, with what copies do between.
    ".p2align 6",
    ".hidden callpath_nothing_passes",
    ".globl callpath_nothing_passes",
    ".type callpath_nothing_passes,@function",
    "callpath_nothing_passes:",
    "push rdi",
    "push 0",
    "push 0",
    "call callpath_resume_path",
    "pop qword ptr [rsp]",
    "cmp qword ptr [rsp + 8], 0",
    "jne 2f",
    "xor eax, eax",
    "lea rsp, [rsp + 16]",
    "ret",
    "2:",
    "lea rsp, [rsp - 128]",
    "push qword ptr [rsp + 128]",
    "call callpath_leave_path",
    "pop qword ptr [rsp + 128]",
    "lea rsp, [rsp + 128]",
    "pop rax",
    "pop rdi",
    "ret",
    ".size callpath_nothing_passes, . - callpath_nothing_passes",
    ".popsection",
    begun = sym begun,
    ended = sym ended,
    overhead = sym OVERHEAD,
    chosen = const OfProcedure::Chosen as usize * size_of::<u64>(),
    next_skip = const OfProcedure::NextSkip as usize * size_of::<u64>(),
    next_chosen = const OfProcedure::NextChosen as usize * size_of::<u64>(),
    next_bit = const Chosen::NEXT_BIT,
    shift_at = const Chosen::SHIFT_AT,
);

unsafe extern "C" {
    fn callpath_begin_path();
    fn callpath_leave_path();
    fn callpath_resume_path();
    fn callpath_end_path();
    fn callpath_nothing_passes(is_measured: u64) -> u64;
}

/// The routines, in the order in which a path meets them.
pub fn routines() -> [u64; 4] {
    let all: [unsafe extern "C" fn(); 4] =
        [callpath_begin_path, callpath_leave_path, callpath_resume_path, callpath_end_path];
    all.map(|routine| routine as usize as u64)
}

/// Finds out what passes where a path is measured that does nothing. As with paths, few are measured, so that processors predict that none is:
/// getting ready again is most of it.
pub fn begin() {
    const TIMES: usize = 101;
    const ONE_OF: u64 = 64;
    let mut all = [0u64; TIMES];
    let mut state = 1u64;
    let mut chance = || {
        // Knuth 1998, section 3.3.4.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 58
    };
    for place in &mut all {
        while chance() % ONE_OF != 0 {
            // SAFETY: it changes nothing.
            unsafe { callpath_nothing_passes(0) };
        }
        // SAFETY: as above.
        *place = unsafe { callpath_nothing_passes(1) };
    }
    // The one in the middle: some were interrupted.
    let before = |one: &u64| all.iter().filter(|other| *other < one).count();
    let behind = |one: &u64| all.iter().filter(|other| *other > one).count();
    let middle = all.iter().find(|one| before(one) <= TIMES / 2 && behind(one) <= TIMES / 2);
    OVERHEAD.store(middle.copied().unwrap_or(0), Relaxed);
}

/// What a copy has pushed where a path begins.
#[repr(C)]
struct Begun {
    /// Becomes when it began.
    lane: u64,
    /// The number of the first of the procedure's words, and in the upper half the procedure's; becomes what the path weighs, 0 if it is not
    /// measured.
    procedure: u64,
}

/// The same where it ends.
#[repr(C)]
struct Ended {
    /// How long it has taken, ticks.
    ticks: u64,
    weight: u64,
    lane: u64,
    /// A part of its number.
    index: u64,
    /// The other part, and in the upper half the procedure's number.
    procedure: u64,
    /// The address of the context's node ([`ContextNode`]); 0: contexts are not counted.
    node: u64,
}

fn head() -> Option<&'static TimesHead> {
    // SAFETY: the recorder has mapped it, and nothing unmaps it.
    unsafe { (TIMES.load(Relaxed) as *const TimesHead).as_ref() }
}

/// Chooses when a path is measured next, and says what this one weighs, if it is.
extern "C" fn begun(begun: &mut Begun) {
    let (lane, word) = (begun.lane as *const AtomicU64, begun.procedure as u32 as usize);
    // SAFETY: the words of the thread's lane, which stays mapped, and has as many as any copy was told.
    let at = |number: usize| unsafe { &*lane.wrapping_add(number) };
    let own = |of: OfProcedure| at(word.wrapping_add(of as usize));
    let chance = at(TimesHead::CHANCE_WORD);
    let most_shift = head().map_or(0, |head| {
        head.clock_ticks.store(OVERHEAD.load(Relaxed), Relaxed);
        head.most_shift.load(Relaxed)
    });
    let now = Chosen::from_word(own(OfProcedure::Chosen).load(Relaxed));
    let next = now.next(most_shift);
    let mut state = chance.load(Relaxed);
    if state == 0 {
        // SAFETY: any processor has it.
        state = begun.lane ^ unsafe { _rdtsc() }.rotate_left(32);
    }
    // Steele, Lea and Flood 2014 (SplitMix).
    let skip = Chosen::skip(next.shift, || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed >> 32) as u32
    });
    chance.store(state, Relaxed);
    // The first ones are measured at once: all of them are.
    if now.shift == 0 {
        own(OfProcedure::Chosen).store(next.to_word(), Relaxed);
        own(OfProcedure::Skip).store(skip, Relaxed);
        begun.procedure = now.weight();
    } else {
        own(OfProcedure::NextChosen).store(next.to_word(), Relaxed);
        own(OfProcedure::NextSkip).store(skip, Relaxed);
        own(OfProcedure::Chosen).store(Chosen { is_next: true, ..now }.to_word(), Relaxed);
        own(OfProcedure::Skip).store(0, Relaxed);
        begun.procedure = 0;
    }
}

/// Adds the time of a path: in the table if the procedure has a number there, and in its context.
extern "C" fn ended(ended: &Ended) {
    // Clocks of processors may differ.
    let ticks = (ended.ticks as i64).max(0) as u64;
    let ticks = ticks.saturating_sub(OVERHEAD.load(Relaxed));
    // SAFETY: where a copy keeps a node's address, it stays mapped.
    if let Some(node) = unsafe { (ended.node as *const ContextNode).as_ref() } {
        // SAFETY: of a node of the tree, or 0.
        let values = unsafe { Values::at(node.values.load(Relaxed)) };
        values.add(Gauge::TICKS_COLUMN, ticks.wrapping_mul(ended.weight));
    }
    let procedure = (ended.procedure >> 32) as u32;
    let Some(head) = head().filter(|_| procedure < PathKey::MOST_PROCEDURES) else { return };
    // SAFETY: the words of the thread's lane, before which its head is.
    let lane = unsafe { &*((ended.lane as usize).wrapping_sub(LaneHead::LEN_BYTES) as *const LaneHead) };
    let key = PathKey {
        lane: lane.number.load(Relaxed) as u32,
        procedure,
        path: (ended.index as u32).wrapping_add(ended.procedure as u32),
    };
    let table = core::ptr::from_ref(head).cast::<u8>().wrapping_add(TimesHead::LEN_BYTES).cast::<TimesOfPath>();
    // SAFETY: it is as long.
    let table = unsafe { core::slice::from_raw_parts(table, TimesHead::COUNT) };
    match TimesOfPath::of(table, key) {
        Some(times) => times.add(ended.weight, ticks),
        None => drop(head.lost.fetch_add(1, Relaxed)),
    }
}
