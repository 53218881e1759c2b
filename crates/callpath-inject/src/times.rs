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
//!
//! `callpath_begin_metrics` and its kin are the same for other metrics, and for two at once. What they do with the stack `metrics.rs` says.

use crate::gauges::Values;
use crate::metrics;
use callpath_format::shared::activation::ContextNode;
use callpath_format::shared::gauge::Gauge;
use callpath_format::shared::lanes::LaneHead;
use callpath_format::shared::probe::Routines;
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
    ".macro callpath_metrics_routine name, to",
    "callpath_times_routine \\name",
    "callpath_times_call \\to",
    "callpath_times_return \\name",
    ".endm",
    "callpath_metrics_routine callpath_begin_metrics, {metrics_begun}",
    "callpath_metrics_routine callpath_leave_metrics, {metrics_left}",
    "callpath_metrics_routine callpath_resume_metrics, {metrics_resumed}",
    "callpath_metrics_routine callpath_end_metrics, {metrics_ended}",
    // A path that does nothing, with what copies do between: rdi the lane's address, rsi the place for what its two words are at the end,
    // rdx what they are where nothing has been measured yet.
    ".p2align 6",
    ".hidden callpath_nothing_happens",
    ".globl callpath_nothing_happens",
    ".type callpath_nothing_happens,@function",
    "callpath_nothing_happens:",
    "push rsi",
    "push rdi",
    "push rdx",
    "push rdx",
    "call callpath_resume_metrics",
    "cmp qword ptr [rsp], 0",
    "je 2f",
    "lea rsp, [rsp - 128]",
    "push qword ptr [rsp + 144]",
    "push qword ptr [rsp + 144]",
    "push qword ptr [rsp + 144]",
    "call callpath_leave_metrics",
    "pop qword ptr [rsp + 144]",
    "pop qword ptr [rsp + 144]",
    "lea rsp, [rsp + 136]",
    "2:",
    "pop rax",
    "pop rdx",
    "pop rdi",
    "pop rsi",
    "mov qword ptr [rsi], rax",
    "mov qword ptr [rsi + 8], rdx",
    "ret",
    ".size callpath_nothing_happens, . - callpath_nothing_happens",
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
    metrics_begun = sym metrics::begun,
    metrics_left = sym metrics::left,
    metrics_resumed = sym metrics::resumed,
    metrics_ended = sym metrics::ended,
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
    fn callpath_begin_metrics();
    fn callpath_leave_metrics();
    fn callpath_resume_metrics();
    fn callpath_end_metrics();
}

/// The routines of paths, and where they read which memory is theirs.
pub fn routines() -> Routines {
    let at = |routine: unsafe extern "C" fn()| routine as usize as u64;
    Routines {
        begin_path: at(callpath_begin_path),
        leave_path: at(callpath_leave_path),
        resume_path: at(callpath_resume_path),
        end_path: at(callpath_end_path),
        begin_metrics: at(callpath_begin_metrics),
        leave_metrics: at(callpath_leave_metrics),
        resume_metrics: at(callpath_resume_metrics),
        end_metrics: at(callpath_end_metrics),
        times: TIMES.as_ptr() as u64,
        ..Routines::default()
    }
}

/// What is measured, by `one`, of a path that does nothing: the value in the middle, since some are interrupted. As with paths, few are measured, so that
/// processors predict that none is: getting ready again is most of it.
pub fn of_nothing<const TIMES: usize>(mut one: impl FnMut() -> u64) -> u64 {
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
        *place = one();
    }
    let before = |one: &u64| all.iter().filter(|other| *other < one).count();
    let behind = |one: &u64| all.iter().filter(|other| *other > one).count();
    let middle = all.iter().find(|one| before(one) <= TIMES / 2 && behind(one) <= TIMES / 2);
    middle.copied().unwrap_or(0)
}

/// Finds out what passes where a path is measured that does nothing.
pub fn begin() {
    // SAFETY: it changes nothing.
    OVERHEAD.store(of_nothing::<101>(|| unsafe { callpath_nothing_passes(1) }), Relaxed);
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

/// Where times are added up.
pub fn head() -> Option<&'static TimesHead> {
    // SAFETY: the recorder has mapped it, and nothing unmaps it.
    unsafe { (TIMES.load(Relaxed) as *const TimesHead).as_ref() }
}

/// The words of a procedure in the lane of the calling thread.
#[derive(Clone, Copy)]
pub struct Words {
    lane: *const AtomicU64,
    first: usize,
}

impl Words {
    /// # Safety
    /// `lane` must be the address of the words of the calling thread's lane, and `procedure` what a copy has pushed: the number of the first of its words.
    pub unsafe fn of(lane: u64, procedure: u64) -> Words {
        Words { lane: lane as *const AtomicU64, first: procedure as u32 as usize }
    }

    fn at(&self, number: usize) -> &AtomicU64 {
        // SAFETY: the words of the thread's lane, which stays mapped, and has as many as any copy was told.
        unsafe { &*self.lane.wrapping_add(number) }
    }

    fn own(&self, of: OfProcedure) -> &AtomicU64 {
        self.at(self.first.wrapping_add(of as usize))
    }

    /// If it was chosen that this path is measured: what it weighs. The next one is what was to come behind it.
    pub fn take_chosen(&self) -> Option<u64> {
        let now = Chosen::from_word(self.own(OfProcedure::Chosen).load(Relaxed));
        now.is_next.then(|| {
            self.own(OfProcedure::Skip).store(self.own(OfProcedure::NextSkip).load(Relaxed), Relaxed);
            self.own(OfProcedure::Chosen).store(self.own(OfProcedure::NextChosen).load(Relaxed), Relaxed);
            now.weight()
        })
    }

    /// Chooses when a path is measured next, and says what this one weighs; 0: it is not measured.
    pub fn choose(&self, most_shift: u64) -> u64 {
        let chance = self.at(TimesHead::CHANCE_WORD);
        let now = Chosen::from_word(self.own(OfProcedure::Chosen).load(Relaxed));
        let next = now.next(most_shift);
        let mut state = chance.load(Relaxed);
        if state == 0 {
            // SAFETY: any processor has it.
            state = self.lane as u64 ^ unsafe { _rdtsc() }.rotate_left(32);
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
            self.own(OfProcedure::Chosen).store(next.to_word(), Relaxed);
            self.own(OfProcedure::Skip).store(skip, Relaxed);
            now.weight()
        } else {
            self.own(OfProcedure::NextChosen).store(next.to_word(), Relaxed);
            self.own(OfProcedure::NextSkip).store(skip, Relaxed);
            self.own(OfProcedure::Chosen).store(Chosen { is_next: true, ..now }.to_word(), Relaxed);
            self.own(OfProcedure::Skip).store(0, Relaxed);
            0
        }
    }
}

/// Chooses when a path is measured next, and says what this one weighs, if it is.
extern "C" fn begun(begun: &mut Begun) {
    // SAFETY: as a copy has pushed it.
    let words = unsafe { Words::of(begun.lane, begun.procedure) };
    let most_shift = head().map_or(0, |head| {
        head.metrics[0].cost.store(OVERHEAD.load(Relaxed), Relaxed);
        head.most_shift.load(Relaxed)
    });
    begun.procedure = words.choose(most_shift);
}

/// A path that has ended, as a copy knows it.
pub struct EndedPath {
    /// The address of the words of the thread's lane.
    pub lane: u64,
    /// A part of its number.
    pub index: u64,
    /// The other part, and in the upper half the procedure's number.
    pub procedure: u64,
}

impl EndedPath {
    /// The place of a metric's sums, if the procedure has a number there.
    pub fn sums(&self, head: &TimesHead, metric: usize) -> Option<&'static TimesOfPath> {
        let procedure = (self.procedure >> 32) as u32;
        if procedure >= PathKey::MOST_PROCEDURES {
            return None;
        }
        // SAFETY: the words of the thread's lane, before which its head is.
        let lane = unsafe { &*((self.lane as usize).wrapping_sub(LaneHead::LEN_BYTES) as *const LaneHead) };
        let key = PathKey {
            lane: lane.number.load(Relaxed) as u32,
            procedure,
            path: (self.index as u32).wrapping_add(self.procedure as u32),
        };
        let table = core::ptr::from_ref(head).cast::<u8>().wrapping_add(TimesHead::table_at(metric));
        // SAFETY: the memory is as long: the recorder has made it for all metrics.
        let table = unsafe { core::slice::from_raw_parts(table.cast::<TimesOfPath>(), TimesHead::COUNT) };
        let found = TimesOfPath::of(table, key);
        if let (None, Some(metric)) = (&found, head.metrics.get(metric)) {
            metric.lost.fetch_add(1, Relaxed);
        }
        found
    }
}

/// Adds the time of a path: in the table if the procedure has a number there, and in its context.
extern "C" fn ended(ended: &Ended) {
    // Clocks of processors may differ.
    let ticks = (ended.ticks as i64).max(0) as u64;
    let ticks = ticks.saturating_sub(OVERHEAD.load(Relaxed));
    // SAFETY: where a copy keeps a node's address, it stays mapped.
    unsafe { add_in_context(ended.node, Gauge::TICKS_COLUMN, ticks.wrapping_mul(ended.weight)) };
    let Ended { lane, index, procedure, .. } = *ended;
    let path = EndedPath { lane, index, procedure };
    if let Some(sums) = head().and_then(|head| path.sums(head, 0)) {
        sums.add(ended.weight, ticks);
    }
}

/// Adds to a column of a context.
///
/// # Safety
/// `node` must be the address of a [`ContextNode`] that stays mapped, or 0.
pub unsafe fn add_in_context(node: u64, column: usize, amount: u64) {
    // SAFETY: the caller vouches for it.
    if let Some(node) = unsafe { (node as *const ContextNode).as_ref() } {
        // SAFETY: of a node of the tree, or 0.
        let values = unsafe { Values::at(node.values.load(Relaxed)) };
        values.add(column, amount);
    }
}
