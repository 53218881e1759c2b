//! A call as the assembly in `routines.rs` hands it over: what the registers held, and its context.

use callpath_collect::probe::{Context, Told, context_at_height, context_of_call, infers, load_map};
use callpath_collect::{Interrupted, Process, Thread, clock};
use callpath_format::register::Reg;
use callpath_format::shared::probe::{Area, Known, Slot};
use callpath_format::shared::thread::Dropped;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicU64, compiler_fence};

use crate::activations::Activations;
use crate::{areas, join};

/// As the assembly has pushed them, the last one first.
#[repr(C)]
pub struct Saved {
    r15: u64,
    r14: u64,
    r13: u64,
    r12: u64,
    rbp: u64,
    rbx: u64,
    r11: u64,
    r10: u64,
    r9: u64,
    r8: u64,
    rdi: u64,
    rsi: u64,
    rdx: u64,
    rcx: u64,
    pub rax: u64,
    /// At an entry, the procedure's address; at an exit, and of a descent, where the copy goes on.
    first: u64,
    /// At an entry, where the copy goes on; of a descent, what the copy has pushed about its procedure.
    pub second: u64,
}

impl Saved {
    /// What the procedure's caller returns to lies there: rsp at its entry.
    pub fn rsp_at_entry(&self) -> u64 {
        self.rsp_at_exit() + 8
    }

    /// The same at an exit, where one word less was pushed.
    pub fn rsp_at_exit(&self) -> u64 {
        core::ptr::from_ref(&self.second) as u64
    }

    /// Of a descent: where the copy goes on.
    pub fn goes_on_at(&self) -> u64 {
        self.first
    }

    /// rbp.
    pub fn rbp(&self) -> u64 {
        self.rbp
    }

    /// The call of a procedure that has just been entered.
    pub fn call(&self) -> Call<'_> {
        Call { saved: self, entry: self.first, rsp: self.rsp_at_entry() }
    }

    /// The integer arguments of a procedure that has just been entered (psABI).
    pub fn arguments(&self) -> [u64; 6] {
        [self.rdi, self.rsi, self.rdx, self.rcx, self.r8, self.r9]
    }
}

/// A call of a procedure, which has just been entered.
#[derive(Clone, Copy)]
pub struct Call<'s> {
    pub saved: &'s Saved,
    /// The procedure's first instruction.
    pub entry: u64,
    /// Where the return address is.
    pub rsp: u64,
}

/// A call's context: the address of its values, the stack that it is on, and what the thread keeps.
pub fn found(call: Call<'_>) -> Option<(u64, u64, Activations<'static>)> {
    let Some((process, thread, area)) = areas::own() else { return dropped() };
    // SAFETY: the area is the calling thread's own, and stays mapped.
    let place = unsafe { (*area).known.get_mut(call.number()) }?;
    let values = match call.values_in(place) {
        Some(values) => values,
        None => {
            with_all_code(process, |as_it_is| walked((process, thread), place, (call, as_it_is), |_, _| None))?.values
        }
    };
    // SAFETY: the calling thread's own.
    Some((values, place.base, unsafe { Activations::of(area, &thread) }))
}

/// Counts a call of a thread for which there is no memory.
pub fn dropped<T>() -> Option<T> {
    let slot = join::process()?.slot;
    slot.dropped_unrecorded.get(Dropped::NoMemory as usize)?.fetch_add(1, Relaxed);
    None
}

/// A call's context, found by a walk, or, where none is made, by the height of the stack. `known` is the thread's place for it; `told` as of [`context_of_call`].
pub fn walked(
    (process, thread): (&Process<'_>, Thread<'_>),
    known: &mut Known,
    (call, as_it_is): (Call<'_>, bool),
    told: impl Fn(u64, u64) -> Option<Told>,
) -> Option<Context> {
    join::await_chunks(process);
    let at_entry = &call.at_entry();
    let context = match infers(process) {
        true => context_at_height((process, thread), (at_entry, as_it_is), known)?,
        false => context_of_call((process, thread), (at_entry, as_it_is), known, told)?,
    };
    if known.site != 0 {
        (known.rsp, known.rbp) = (call.rsp, call.saved.rbp);
        known.site = call.entry;
    }
    Some(context)
}

/// What a walk finds; while its path ends in code of a library that was just loaded, the walk is made again with the next
/// load map. The last one is to take the path as it is.
pub fn with_all_code(process: &Process<'_>, mut walk: impl FnMut(bool) -> Option<Context>) -> Option<Context> {
    /// Further ones are not waited for.
    const MOST_MAPS: u32 = 8;
    /// As long as the table of a large library takes, for each map, and for all of them.
    const PATIENCE_NS: u64 = 500_000_000;
    const ALL_NS: u64 = 4 * PATIENCE_NS;
    let mut until = None;
    for _ in 0..MOST_MAPS {
        let map = load_map(process);
        if join::was_vain(map) {
            break;
        }
        let context = walk(false)?;
        if !context.lacks_code {
            return Some(context);
        }
        let now = clock::monotonic_ns();
        let left_ns = until.get_or_insert(now.saturating_add(ALL_NS)).saturating_sub(now);
        if left_ns == 0 || !join::await_code(process, map, left_ns.min(PATIENCE_NS)) {
            break;
        }
    }
    walk(true)
}

/// The same of a call whose context the thread knows already: its values, its stack, and the node of a counted procedure
/// or 0. A handler that comes in between takes nothing away.
pub fn known(area: *mut Area, call: Call<'_>) -> Option<[u64; 3]> {
    // SAFETY: the area is the calling thread's own, and stays mapped.
    let place = unsafe { (*area).known.get(call.number()) }?;
    // First: a handler may put another context there.
    // SAFETY: just borrowed.
    let known =
        [&place.values, &place.base, &place.node].map(|word| unsafe { core::ptr::from_ref(word).read_volatile() });
    compiler_fence(SeqCst);
    call.values_in(place)?;
    Some(known)
}

impl Call<'_> {
    /// Where the procedure returns to.
    pub fn returns_to(&self) -> u64 {
        // SAFETY: the return address of a procedure that has just been entered.
        unsafe { (self.rsp as *const u64).read() }
    }

    /// Where a thread keeps what it knows of such a call.
    pub fn number(&self) -> usize {
        let sum = self.rsp.wrapping_add(self.returns_to()).wrapping_add(self.entry);
        let mixed = (sum as u32).wrapping_mul(Slot::SPREAD);
        (mixed >> (u32::BITS - Known::COUNT.trailing_zeros())) as usize
    }

    /// The same look as in the assembly of `routines.rs`, for a thread whose place in the table is another's.
    fn values_in(&self, known: &Known) -> Option<u64> {
        let map = join::LOAD_MAP.load(Relaxed) as *const AtomicU64;
        // SAFETY: a word of the process's slot, in the arena.
        let map = unsafe { (*map).load(Relaxed) };
        let is_there = known.site == self.entry
            && known.rsp == self.rsp
            && (known.rbp ^ self.saved.rbp) & known.rbp_mask == 0
            && known.map == map
            && known.word.get(..known.words as usize)?.iter().all(|[at, word]| {
                // SAFETY: on the thread's own stack, outwards of where it stands: only such words are remembered.
                unsafe { (*at as *const u64).read_volatile() == *word }
            });
        is_there.then_some(known.values)
    }

    /// The thread as it stands at the procedure's first instruction.
    pub fn at_entry(&self) -> Interrupted {
        let saved = self.saved;
        let mut registers = [0; 16];
        for (reg, value) in [
            (0, saved.rax),
            (1, saved.rdx),
            (2, saved.rcx),
            (3, saved.rbx),
            (4, saved.rsi),
            (5, saved.rdi),
            (Reg::RBP.index(), saved.rbp),
            (Reg::RSP.index(), self.rsp),
            (8, saved.r8),
            (9, saved.r9),
            (10, saved.r10),
            (11, saved.r11),
            (12, saved.r12),
            (13, saved.r13),
            (14, saved.r14),
            (15, saved.r15),
        ] {
            if let Some(place) = registers.get_mut(reg) {
                *place = value;
            }
        }
        Interrupted { registers, pc: self.entry }
    }
}
