//! A call as the assembly in `routines.rs` hands it over: what the registers held, and its context.

use callpath_collect::Interrupted;
use callpath_collect::probe::context_of_call;
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

    /// The integer arguments of a procedure that has just been entered (psABI).
    pub fn arguments(&self) -> [u64; 6] {
        [self.rdi, self.rsi, self.rdx, self.rcx, self.r8, self.r9]
    }
}

/// A call's context: the address of its values, the stack that it is on, and what the thread keeps.
pub fn found(saved: &Saved) -> Option<(u64, u64, Activations<'static>)> {
    let Some((process, thread, area)) = areas::own() else { return dropped() };
    let rsp = saved.rsp_at_entry();
    // SAFETY: the area is the calling thread's own, and stays mapped.
    let place = unsafe { (*area).known.get_mut(number_of(saved)) }?;
    let values = match known_values(place, saved, rsp) {
        Some(values) => values,
        None => {
            join::await_chunks(process);
            let values = context_of_call(process, thread, &at_entry(saved, rsp, saved.first), place)?;
            if place.site != 0 {
                (place.rsp, place.rbp) = (rsp, saved.rbp);
                place.site = saved.first;
            }
            values
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

/// Where a thread keeps what it knows of such a call.
fn number_of(saved: &Saved) -> usize {
    let rsp = saved.rsp_at_entry();
    // SAFETY: the return address of the procedure that has just been entered.
    let returns_to = unsafe { (rsp as *const u64).read() };
    let mixed = (rsp.wrapping_add(returns_to).wrapping_add(saved.first) as u32).wrapping_mul(Slot::SPREAD);
    (mixed >> (u32::BITS - Known::COUNT.trailing_zeros())) as usize
}

/// The same of a call whose context the thread knows already: its values and its stack. A handler that comes in between
/// takes nothing away.
pub fn known(area: *mut Area, saved: &Saved) -> Option<(u64, u64)> {
    // SAFETY: the area is the calling thread's own, and stays mapped.
    let place = unsafe { (*area).known.get(number_of(saved)) }?;
    // First: a handler may put another context there.
    let (values, base) = (core::ptr::from_ref(&place.values), core::ptr::from_ref(&place.base));
    // SAFETY: just borrowed.
    let (values, base) = unsafe { (values.read_volatile(), base.read_volatile()) };
    compiler_fence(SeqCst);
    known_values(place, saved, saved.rsp_at_entry())?;
    Some((values, base))
}

/// The same look as in the assembly of `routines.rs`, for a thread whose place in the table is another's.
fn known_values(known: &Known, saved: &Saved, rsp: u64) -> Option<u64> {
    let map = join::LOAD_MAP.load(Relaxed) as *const AtomicU64;
    // SAFETY: a word of the process's slot, in the arena.
    let map = unsafe { (*map).load(Relaxed) };
    let is_there = known.site == saved.first
        && known.rsp == rsp
        && (known.rbp ^ saved.rbp) & known.rbp_mask == 0
        && known.map == map
        && known.word.get(..known.words as usize)?.iter().all(|[at, word]| {
            // SAFETY: on the thread's own stack, outwards of where it stands: only such words are remembered.
            unsafe { (*at as *const u64).read_volatile() == *word }
        });
    is_there.then_some(known.values)
}

/// The thread as it stands at the procedure's first instruction, `pc`.
pub fn at_entry(saved: &Saved, rsp: u64, pc: u64) -> Interrupted {
    let mut registers = [0; 16];
    for (reg, value) in [
        (0, saved.rax),
        (1, saved.rdx),
        (2, saved.rcx),
        (3, saved.rbx),
        (4, saved.rsi),
        (5, saved.rdi),
        (Reg::RBP.index(), saved.rbp),
        (Reg::RSP.index(), rsp),
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
    Interrupted { registers, pc }
}
