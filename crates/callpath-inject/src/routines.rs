//! The routines that copies of probed procedures call: they keep all registers but the arithmetic flags.
//!
//! The stack at `callpath_count` and `callpath_enter`, and one word less at `callpath_leave`:
//!
//! ```text
//! rsp       the address of the probed procedure's first instruction (not at `callpath_leave`)
//! rsp + 8   where the copy goes on
//! rsp + 16  where the probed procedure returns to: rsp at its entry, and at its exit
//! ```
//!
//! What is known already is looked up without touching a vector register: the thread's area by the thread pointer; the
//! context by probe, stack pointer, rbp and each word on the stack that its walk depended on. All else is `found`'s.

use callpath_collect::Interrupted;
use callpath_collect::probe::context_of_call;
use callpath_format::register::Reg;
use callpath_format::shared::probe::{Activation, Area, Known, Routines, Slot};
use core::arch::global_asm;
use core::mem::{offset_of, size_of};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use crate::activations::{self, Activations};
use crate::chunks::await_chunks;
use crate::undisturbed::Undisturbed;
use crate::{areas, join};

/// As the assembly below has pushed them, the last one first.
#[repr(C)]
struct Saved {
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
    rax: u64,
    /// At an entry, the procedure's address; at an exit, where the copy goes on.
    first: u64,
    /// At an entry, where the copy goes on.
    second: u64,
}

macro_rules! routines {
    ($($line:expr,)*) => {
        global_asm!($($line,)*
            table = sym areas::TABLE,
            load_map = sym join::LOAD_MAP,
            counted = sym counted,
            entered = sym entered,
            left = sym left,
            spacing = const Slot::SPACING_SHIFT,
            spread = const Slot::SPREAD as i32,
            slot_shift = const u32::BITS - Slot::COUNT.trailing_zeros(),
            known_shift = const u32::BITS - Known::COUNT.trailing_zeros(),
            known_len_shift = const Known::LEN_SHIFT,
            known = const offset_of!(Area, known),
            check = const offset_of!(Area, check),
            top = const offset_of!(Area, top),
            last = const offset_of!(Area, activations) + (Activation::MOST - 1) * size_of::<Activation>(),
            site = const offset_of!(Known, site),
            rsp_of = const offset_of!(Known, rsp),
            rbp_of = const offset_of!(Known, rbp),
            mask = const offset_of!(Known, rbp_mask),
            values = const offset_of!(Known, values),
            words = const offset_of!(Known, words),
            map = const offset_of!(Known, map),
            base = const offset_of!(Known, base),
            word = const offset_of!(Known, word),
            a_values = const offset_of!(Activation, values),
            a_began = const offset_of!(Activation, began),
            a_callees = const offset_of!(Activation, callees),
            a_base = const offset_of!(Activation, base),
            activation = const size_of::<Activation>(),
        );
    };
}

routines!(
    // rdx: the thread's area. Goes to 8 if it has none that can be found here.
    ".macro callpath_area",
    "mov rax, qword ptr fs:[0]",
    "mov rcx, rax",
    "shr rcx, {spacing}",
    "imul ecx, ecx, {spread}",
    "shr ecx, {slot_shift}",
    "shl ecx, 4",
    "add rcx, qword ptr [rip + {table}]",
    "cmp qword ptr [rcx], rax",
    "jne 8f",
    "mov rdx, qword ptr [rcx + 8]",
    "mov rcx, qword ptr [rdx]",
    "mov ecx, dword ptr fs:[rcx]",
    "cmp rcx, qword ptr [rdx + {check}]",
    "jne 8f",
    ".endm",
    // rax: the values of the context; rsi: rsp at the entry; rdx as before. Goes to 8 if it is not known, or, with
    // \\timed, on another stack than the uppermost activation.
    ".macro callpath_context timed",
    "lea rsi, [rsp + 64]",
    "mov rdi, qword ptr [rsi]",
    "mov r8, qword ptr [rsp + 48]",
    "lea rax, [rsi + rdi]",
    "add rax, r8",
    "imul eax, eax, {spread}",
    "shr eax, {known_shift}",
    "shl eax, {known_len_shift}",
    "lea rcx, [rdx + rax + {known}]",
    "mov rax, qword ptr [rcx + {values}]",
    "cmp qword ptr [rcx + {site}], r8",
    "jne 8f",
    "cmp qword ptr [rcx + {rsp_of}], rsi",
    "jne 8f",
    "mov rdi, qword ptr [rcx + {rbp_of}]",
    "xor rdi, rbp",
    "test qword ptr [rcx + {mask}], rdi",
    "jnz 8f",
    "mov rdi, qword ptr [rip + {load_map}]",
    "mov rdi, qword ptr [rdi]",
    "cmp qword ptr [rcx + {map}], rdi",
    "jne 8f",
    ".if \\timed",
    "mov rdi, qword ptr [rcx + {base}]",
    "mov r8, qword ptr [rdx + {top}]",
    "cmp qword ptr [r8 + {a_base}], rdi",
    "jne 8f",
    ".endif",
    "mov r8, qword ptr [rcx + {words}]",
    "add rcx, {word}",
    "2:",
    "sub r8, 1",
    "js 3f",
    "mov rdi, qword ptr [rcx]",
    "mov rdi, qword ptr [rdi]",
    "cmp rdi, qword ptr [rcx + 8]",
    "jne 8f",
    "add rcx, 16",
    "jmp 2b",
    "3:",
    ".endm",
    ".macro callpath_push",
    "push rax",
    "push rcx",
    "push rdx",
    "push rsi",
    "push rdi",
    "push r8",
    ".endm",
    ".macro callpath_pop",
    "pop r8",
    "pop rdi",
    "pop rsi",
    "pop rdx",
    "pop rcx",
    "pop rax",
    ".endm",
    // Calls \\to with the registers that are saved.
    ".macro callpath_slowly to",
    "push r9",
    "push r10",
    "push r11",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "mov rdi, rsp",
    "mov rbx, rsp",
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
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "pop r11",
    "pop r10",
    "pop r9",
    ".endm",
    ".pushsection .text.callpath_routines,\"ax\",@progbits",
    ".p2align 6",
    ".hidden callpath_count",
    ".globl callpath_count",
    ".type callpath_count,@function",
    "callpath_count:",
    "callpath_push",
    "callpath_area",
    "callpath_context 0",
    "add qword ptr [rax], 1",
    "7:",
    "callpath_pop",
    "lea rsp, [rsp + 8]",
    "ret",
    "8:",
    "callpath_slowly {counted}",
    "jmp 7b",
    ".size callpath_count, . - callpath_count",
    ".p2align 6",
    ".hidden callpath_enter",
    ".globl callpath_enter",
    ".type callpath_enter,@function",
    "callpath_enter:",
    "callpath_push",
    "callpath_area",
    "callpath_context 1",
    // The uppermost activation goes on if it is outwards of this one; there must be room for another.
    "mov rcx, qword ptr [rdx + {top}]",
    "cmp qword ptr [rcx], rsi",
    "jbe 8f",
    "lea rdi, [rdx + {last}]",
    "cmp rcx, rdi",
    "jae 8f",
    "add qword ptr [rax], 1",
    "mov r8, qword ptr [rcx + {a_base}]",
    "add rcx, {activation}",
    "mov qword ptr [rcx], rsi",
    "mov qword ptr [rcx + {a_base}], r8",
    "mov qword ptr [rdx + {top}], rcx",
    // Once more: a handler that came in between had its own activation there.
    "mov qword ptr [rcx], rsi",
    "mov qword ptr [rcx + {a_base}], r8",
    "mov qword ptr [rcx + {a_values}], rax",
    "mov qword ptr [rcx + {a_callees}], 0",
    "rdtsc",
    "shl rdx, 32",
    "or rax, rdx",
    "mov qword ptr [rcx + {a_began}], rax",
    "7:",
    "callpath_pop",
    "lea rsp, [rsp + 8]",
    "ret",
    "8:",
    "callpath_slowly {entered}",
    "jmp 7b",
    ".size callpath_enter, . - callpath_enter",
    ".p2align 6",
    ".hidden callpath_leave",
    ".globl callpath_leave",
    ".type callpath_leave,@function",
    "callpath_leave:",
    "callpath_push",
    "callpath_area",
    "lea rsi, [rsp + 56]",
    "mov rdi, qword ptr [rdx + {top}]",
    "cmp qword ptr [rdi], rsi",
    "jne 8f",
    "mov r8, rdx",
    "rdtsc",
    "shl rdx, 32",
    "or rax, rdx",
    "sub rax, qword ptr [rdi + {a_began}]",
    "mov rdx, qword ptr [rdi + {a_values}]",
    "mov rcx, qword ptr [rdi + {a_callees}]",
    "sub rdi, {activation}",
    "mov qword ptr [r8 + {top}], rdi",
    "add qword ptr [rdi + {a_callees}], rax",
    "sub rax, rcx",
    // Clocks of processors may differ.
    "jle 7f",
    "test rdx, rdx",
    "jz 7f",
    "add qword ptr [rdx + 8], rax",
    "7:",
    "callpath_pop",
    "ret",
    "8:",
    "callpath_slowly {left}",
    "jmp 7b",
    ".size callpath_leave, . - callpath_leave",
    ".popsection",
);

unsafe extern "C" {
    fn callpath_count();
    fn callpath_enter();
    fn callpath_leave();
}

/// Where the routines are.
pub fn addresses() -> Routines {
    let [count, enter, leave] = [callpath_count, callpath_enter, callpath_leave].map(|routine| routine as usize as u64);
    Routines { count, enter, leave }
}

/// What the procedure's caller returns to lies there: rsp at its entry.
fn rsp_at_entry(saved: &Saved) -> u64 {
    core::ptr::from_ref(&saved.second) as u64 + 8
}

/// A call's context: the address of its values, the stack that it is on, and what the thread keeps.
fn found(saved: &Saved) -> Option<(u64, u64, Activations<'static>)> {
    let (process, thread, area) = areas::own()?;
    let rsp = rsp_at_entry(saved);
    // SAFETY: the return address of the procedure that has just been entered.
    let returns_to = unsafe { (rsp as *const u64).read() };
    let mixed = (rsp.wrapping_add(returns_to).wrapping_add(saved.first) as u32).wrapping_mul(Slot::SPREAD);
    let number = (mixed >> (u32::BITS - Known::COUNT.trailing_zeros())) as usize;
    // SAFETY: the area is the calling thread's own, and stays mapped.
    let place = unsafe { (*area).known.get_mut(number) }?;
    let values = match known_values(place, saved, rsp) {
        Some(values) => values,
        None => {
            await_chunks(process);
            let values = context_of_call(process, thread, &at_entry(saved, rsp), place)?;
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

/// The same look as in the assembly above, for a thread whose place in the table is another's.
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

/// The thread as it stands at the procedure's first instruction.
fn at_entry(saved: &Saved, rsp: u64) -> Interrupted {
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
    Interrupted { registers, pc: saved.first }
}

/// `callpath_count` of what is not known yet.
unsafe extern "C" fn counted(saved: &Saved) {
    let _undisturbed = Undisturbed::begin();
    if let Some((values, ..)) = found(saved) {
        // SAFETY: of a node.
        unsafe { activations::count(values) };
    }
}

/// `callpath_enter` of what is not known yet, or where activations were left without an exit.
unsafe extern "C" fn entered(saved: &Saved) {
    let _undisturbed = Undisturbed::begin();
    let rsp = rsp_at_entry(saved);
    match found(saved) {
        Some((values, base, mut activations)) => {
            // SAFETY: of a node.
            unsafe { activations::count(values) };
            activations.enter(rsp, values, base);
        }
        // Its exit belongs to something all the same.
        None => {
            if let Some((_, thread, area)) = areas::own() {
                // SAFETY: the calling thread's own.
                unsafe { Activations::of(area, &thread) }.enter(rsp, 0, 0);
            }
        }
    }
}

/// `callpath_leave` of what is not the uppermost activation.
unsafe extern "C" fn left(saved: &Saved) {
    let _undisturbed = Undisturbed::begin();
    let rsp = core::ptr::from_ref(&saved.second) as u64;
    let Some((_, thread, area)) = areas::own() else { return };
    // SAFETY: the calling thread's own.
    if !unsafe { Activations::of(area, &thread) }.leave(rsp) {
        let count = &thread.record.unmatched_exits;
        count.store(count.load(Relaxed).wrapping_add(1), Relaxed);
    }
}
