//! Times of paths (`callpath_format::shared::times`): what copies call where a path is measured. The routines keep all registers but the
//! arithmetic flags.
//!
//! The stack at each, from its return address on:
//!
//! ```text
//! callpath_begin_path   the lane's address, procedure and word; they become: when the path began, what it weighs
//! callpath_leave_path   when the path began, which becomes: how long it has taken
//! callpath_resume_path  how long it has taken, which becomes: when it would have begun without the call
//! callpath_end_path     when it began, what it weighs, the lane's address, a part of its number, procedure and the other part
//! ```

use callpath_format::shared::lanes::LaneHead;
use callpath_format::shared::times::{Chosen, PathKey, PathTimes, TimesHead};
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
    "callpath_times_call {begun}",
    "callpath_times_now",
    // 0 would say that nothing is measured.
    "or rax, 1",
    "mov qword ptr [rsp + 24], rax",
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
    // rax: what passes between the clocks of the two. It keeps all other registers but rdx.
    ".p2align 6",
    ".hidden callpath_nothing_passes",
    ".globl callpath_nothing_passes",
    ".type callpath_nothing_passes,@function",
    "callpath_nothing_passes:",
    "push 0",
    "call callpath_resume_path",
    "lea rsp, [rsp - 128]",
    "push qword ptr [rsp + 128]",
    "call callpath_leave_path",
    "pop rax",
    "lea rsp, [rsp + 136]",
    "ret",
    ".size callpath_nothing_passes, . - callpath_nothing_passes",
    ".popsection",
    begun = sym begun,
    ended = sym ended,
    overhead = sym OVERHEAD,
);

unsafe extern "C" {
    fn callpath_begin_path();
    fn callpath_leave_path();
    fn callpath_resume_path();
    fn callpath_end_path();
    fn callpath_nothing_passes() -> u64;
}

/// The routines, in the order in which a path meets them.
pub fn routines() -> [u64; 4] {
    let all: [unsafe extern "C" fn(); 4] =
        [callpath_begin_path, callpath_leave_path, callpath_resume_path, callpath_end_path];
    all.map(|routine| routine as usize as u64)
}

/// Finds out what reading the clock takes.
pub fn begin() {
    const TIMES: usize = 101;
    let mut all = [0u64; TIMES];
    for place in &mut all {
        // SAFETY: it changes nothing.
        *place = unsafe { callpath_nothing_passes() };
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
    /// The number of the first of the procedure's words, and in the upper half the procedure's; becomes what the path weighs.
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
}

fn head() -> Option<&'static TimesHead> {
    // SAFETY: the recorder has mapped it, and nothing unmaps it.
    unsafe { (TIMES.load(Relaxed) as *const TimesHead).as_ref() }
}

/// Says what the path weighs, and when the next one is measured.
extern "C" fn begun(begun: &mut Begun) {
    let (lane, word) = (begun.lane as *const AtomicU64, begun.procedure as u32 as usize);
    // SAFETY: the words of the thread's lane, which stays mapped, and has as many as any copy was told.
    let [skip, chosen, chance] = [word, word.wrapping_add(1), TimesHead::CHANCE_WORD].map(|n| unsafe { &*lane.add(n) });
    let most_shift = head().map_or(0, |head| head.most_shift.load(Relaxed));
    let now = Chosen::from_word(chosen.load(Relaxed));
    let next = now.next(most_shift);
    chosen.store(next.to_word(), Relaxed);
    let mut state = chance.load(Relaxed);
    if state == 0 {
        // SAFETY: any processor has it.
        state = begun.lane ^ unsafe { _rdtsc() }.rotate_left(32);
    }
    // Steele, Lea and Flood 2014 (SplitMix).
    skip.store(
        Chosen::skip(next.shift, || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            (mixed >> 32) as u32
        }),
        Relaxed,
    );
    chance.store(state, Relaxed);
    begun.procedure = 1 << now.shift;
}

/// Adds the time of a path.
extern "C" fn ended(ended: &Ended) {
    let Some(head) = head() else { return };
    // SAFETY: the words of the thread's lane, before which its head is.
    let lane = unsafe { &*((ended.lane as usize).wrapping_sub(LaneHead::LEN_BYTES) as *const LaneHead) };
    let key = PathKey {
        lane: lane.number.load(Relaxed) as u32,
        procedure: (ended.procedure >> 32) as u32,
        path: (ended.index as u32).wrapping_add(ended.procedure as u32),
    };
    let table = core::ptr::from_ref(head).cast::<u8>().wrapping_add(TimesHead::LEN_BYTES).cast::<PathTimes>();
    // SAFETY: it is as long.
    let table = unsafe { core::slice::from_raw_parts(table, TimesHead::COUNT) };
    // Clocks of processors may differ.
    let ticks = (ended.ticks as i64).max(0) as u64;
    match PathTimes::of(table, key) {
        Some(times) => times.add(ended.weight, ticks.saturating_sub(OVERHEAD.load(Relaxed))),
        None => drop(head.lost.fetch_add(1, Relaxed)),
    }
}
