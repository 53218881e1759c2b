//! The routines that copies of probed procedures call: they keep all registers but the arithmetic flags, and the general
//! ones the flags, too; `callpath_ask` sets rax.
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

use callpath_format::shared::gauge::Gauge;
use callpath_format::shared::probe::{Activation, Area, Known, Reading, Routines, Slot};
use core::arch::global_asm;
use core::mem::{offset_of, size_of};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use crate::activations::{Activations, Entered, SAME_STACK_BYTES};
use crate::gauges::Values;
use crate::hit::{Saved, found};
use crate::undisturbed::Undisturbed;
use crate::{areas, contexts, hashed, join, left, loads, measured, times, waiting};
use callpath_format::shared::activation::{ContextNode, CopiesWords, Entered as EnteredWord, PieceHead};
use callpath_format::shared::known_return::{ActivationTable, KnownReturn};

/// Where the number of a context lies, from its values that are of probes on, bytes.
pub static CONTEXT_AT: AtomicU64 = AtomicU64::new(0);

macro_rules! routines {
    ($($line:expr,)*) => {
        global_asm!($($line,)*
            table = sym areas::TABLE,
            load_map = sym join::LOAD_MAP,
            counted = sym counted,
            entered = sym entered,
            left = sym at_exit,
            noted = sym noted,
            asked = sym asked,
            jumps = sym left::jumps,
            catches = sym left::catches,
            descended = sym contexts::descended,
            context_at = sym CONTEXT_AT,
            measured = sym measured::measured,
            begun = sym measured::begun,
            ended = sym measured::ended,
            ended_by_jump = sym measured::ended_by_jump,
            waits = sym waiting::waits,
            waits_for_io = sym waiting::waits_for_io,
            goes_on = sym waiting::goes_on,
            spacing = const Slot::SPACING_SHIFT,
            spread = const Slot::SPREAD as i32,
            slot_shift = const u32::BITS - Slot::COUNT.trailing_zeros(),
            known_shift = const u32::BITS - Known::COUNT.trailing_zeros(),
            known_len_shift = const Known::LEN_SHIFT,
            known = const offset_of!(Area, known),
            check = const offset_of!(Area, check),
            top = const offset_of!(Area, top),
            first = const offset_of!(Area, activations),
            same_stack = const SAME_STACK_BYTES as i32,
            last = const offset_of!(Area, activations) + (Activation::MOST - 1) * size_of::<Activation>(),
            site = const offset_of!(Known, site),
            rsp_of = const offset_of!(Known, rsp),
            rbp_of = const offset_of!(Known, rbp),
            mask = const offset_of!(Known, rbp_mask),
            values = const offset_of!(Known, values),
            words = const offset_of!(Known, words),
            node = const offset_of!(Known, node),
            copies = sym contexts::COPIES,
            callees = sym contexts::CALLEES,
            returns_at = const CopiesWords::RETURNS_AT,
            returns_shift_at = const CopiesWords::RETURNS_SHIFT_AT,
            rbp_bit = const KnownReturn::RBP_BIT,
            handed_bit = const EnteredWord::HANDED_BIT,
            place_shift = const ActivationTable::PLACE_SHIFT,
            tag_shift = const ActivationTable::TAG_SHIFT,
            activations_at = const ActivationTable::AT,
            piece = const PieceHead::PIECE_BYTES,
            owner = const offset_of!(PieceHead, owner),
            procedure = const offset_of!(ContextNode, procedure),
            next = const offset_of!(ContextNode, next),
            kept = const offset_of!(ContextNode, kept),
            slots = const ContextNode::slot_at(0),
            map = const offset_of!(Known, map),
            base = const offset_of!(Known, base),
            word = const offset_of!(Known, word),
            calls = const 8 * Gauge::CALLS_COLUMN,
            ticks = const 8 * Gauge::TICKS_COLUMN,
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
    "mov r8, qword ptr [rsp + 48]",
    "callpath_known {values}, \\timed",
    ".endm",
    // rax: the word \\what of the context; rsi: rsp at the entry; r8: the procedure's address; as above.
    ".macro callpath_known what, timed",
    "mov rdi, qword ptr [rsi]",
    "lea rax, [rsi + rdi]",
    "add rax, r8",
    "imul eax, eax, {spread}",
    "shr eax, {known_shift}",
    "shl eax, {known_len_shift}",
    "lea rcx, [rdx + rax + {known}]",
    "mov rax, qword ptr [rcx + \\what]",
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
    // Calls \\to with the registers that are saved; with \\flags all flags are kept, too.
    ".macro callpath_slowly to flags",
    "push r9",
    "push r10",
    "push r11",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    ".if \\flags",
    "pushfq",
    "pop r12",
    ".endif",
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
    ".if \\flags",
    "push r12",
    "popfq",
    ".endif",
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
    "add qword ptr [rax + {calls}], 1",
    "7:",
    "callpath_pop",
    "lea rsp, [rsp + 8]",
    "ret",
    "8:",
    "callpath_slowly {counted}, 0",
    "jmp 7b",
    ".size callpath_count, . - callpath_count",
    // Notes an activation; with \\timed when it began, too.
    ".macro callpath_begin_quickly name, to, timed",
    ".p2align 6",
    ".hidden \\name",
    ".globl \\name",
    ".type \\name,@function",
    "\\name:",
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
    "add qword ptr [rax + {calls}], 1",
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
    ".if \\timed",
    "rdtsc",
    "shl rdx, 32",
    "or rax, rdx",
    "mov qword ptr [rcx + {a_began}], rax",
    ".else",
    "mov qword ptr [rcx + {a_began}], 0",
    ".endif",
    "7:",
    "callpath_pop",
    "lea rsp, [rsp + 8]",
    "ret",
    "8:",
    "callpath_slowly \\to, 0",
    "jmp 7b",
    ".size \\name, . - \\name",
    ".endm",
    "callpath_begin_quickly callpath_enter, {entered}, 1",
    "callpath_begin_quickly callpath_note, {noted}, 0",
    // Ends the uppermost activation; with \\timed its time is added.
    ".macro callpath_end_quickly name, timed",
    ".p2align 6",
    ".hidden \\name",
    ".globl \\name",
    ".type \\name,@function",
    "\\name:",
    "callpath_push",
    "callpath_area",
    "lea rsi, [rsp + 56]",
    "mov rdi, qword ptr [rdx + {top}]",
    "cmp qword ptr [rdi], rsi",
    "jne 8f",
    ".if \\timed",
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
    "add qword ptr [rdx + {ticks}], rax",
    ".else",
    "sub rdi, {activation}",
    "mov qword ptr [rdx + {top}], rdi",
    ".endif",
    "7:",
    "callpath_pop",
    "ret",
    "8:",
    "callpath_slowly {left}, 0",
    "jmp 7b",
    ".size \\name, . - \\name",
    ".endm",
    "callpath_end_quickly callpath_leave, 1",
    "callpath_end_quickly callpath_forget, 0",
    // What the function is to return lies where rax was pushed; until it is known, the flags do.
    ".p2align 6",
    ".hidden callpath_ask",
    ".globl callpath_ask",
    ".type callpath_ask,@function",
    "callpath_ask:",
    "callpath_push",
    "lahf",
    "seto al",
    "mov qword ptr [rsp + 40], rax",
    "callpath_area",
    "mov rdi, qword ptr [rdx + {top}]",
    "xor esi, esi",
    "lea rcx, [rdx + {first}]",
    "cmp rdi, rcx",
    "je 7f",
    // The uppermost activation goes on if it is outwards of this place, on the same stack.
    "lea rcx, [rsp + 56]",
    "mov rax, qword ptr [rdi]",
    "sub rax, rcx",
    "jbe 8f",
    "cmp rax, {same_stack}",
    "ja 8f",
    "mov rdi, qword ptr [rdi + {a_values}]",
    "test rdi, rdi",
    "jz 7f",
    "mov rcx, qword ptr [rip + {context_at}]",
    "mov rsi, qword ptr [rdi + rcx]",
    "7:",
    "mov rax, qword ptr [rsp + 40]",
    "add al, 127",
    "sahf",
    "mov qword ptr [rsp + 40], rsi",
    "callpath_pop",
    "ret",
    "8:",
    "callpath_slowly {asked}, 0",
    "mov rsi, rax",
    "jmp 7b",
    ".size callpath_ask, . - callpath_ask",
    // A routine that is all \\to's: \\pushed bytes lie above the return address.
    ".macro callpath_general name, to, pushed",
    ".p2align 6",
    ".hidden \\name",
    ".globl \\name",
    ".type \\name,@function",
    "\\name:",
    "callpath_push",
    "callpath_slowly \\to, 1",
    "callpath_pop",
    ".if \\pushed",
    "lea rsp, [rsp + \\pushed]",
    ".endif",
    "ret",
    ".size \\name, . - \\name",
    ".endm",
    "callpath_general callpath_measure, {measured}, 8",
    "callpath_general callpath_begin, {begun}, 8",
    "callpath_general callpath_end, {ended}, 0",
    "callpath_general callpath_end_by_jump, {ended_by_jump}, 0",
    "callpath_general callpath_wait, {waits}, 0",
    "callpath_general callpath_wait_for_io, {waits_for_io}, 0",
    "callpath_general callpath_go_on, {goes_on}, 0",
    "callpath_general callpath_jump, {jumps}, 0",
    "callpath_general callpath_catch, {catches}, 0",
    // What the copy has pushed: the procedure's address, and how many words of its frame lie above that.
    ".p2align 6",
    ".hidden callpath_descend",
    ".globl callpath_descend",
    ".type callpath_descend,@function",
    "callpath_descend:",
    "callpath_push",
    "callpath_area",
    "movzx ecx, word ptr [rsp + 62]",
    "btr ecx, {handed_bit}",
    "lea rsi, [rsp + rcx * 8 + 72]",
    // Whether the return address is known, where no mark is.
    "mov r8, qword ptr [rip + {copies} + {returns_at}]",
    "test r8, r8",
    "jz 5f",
    "mov rdi, qword ptr [rsi]",
    "imul eax, edi, {spread}",
    "mov ecx, dword ptr [rip + {copies} + {returns_shift_at}]",
    "shr eax, cl",
    "shl rax, 4",
    "add r8, rax",
    "2:",
    "mov rax, qword ptr [r8]",
    "cmp rax, rdi",
    "je 3f",
    "add r8, 16",
    "test rax, rax",
    "jnz 2b",
    "jmp 5f",
    // rax: where the caller's return address is.
    "3:",
    "mov r8, qword ptr [r8 + 8]",
    "movzx ecx, r8w",
    "lea rax, [rsi + 8]",
    "btr ecx, {rbp_bit}",
    "jnc 4f",
    "mov rax, rbp",
    "4:",
    "lea rax, [rax + rcx * 8]",
    // rdi: the caller's node, if it is noted there.
    "mov rcx, rax",
    "shr rcx, {place_shift}",
    "movzx ecx, cx",
    "mov rdi, qword ptr [rip + {callees}]",
    "mov rdi, qword ptr [rdi + rcx * 8 + {activations_at}]",
    "shr rax, {tag_shift}",
    "mov rcx, rdi",
    "shr rcx, 48",
    "cmp ax, cx",
    "jne 5f",
    "shl rdi, 16",
    "shr rdi, 16",
    "jz 5f",
    "mov rax, rdi",
    "and rax, -{piece}",
    "cmp qword ptr [rax + {owner}], rdx",
    "jne 5f",
    "mov rax, r8",
    "shr rax, 32",
    "cmp dword ptr [rdi + {procedure}], eax",
    "jne 5f",
    // Its callee at that site.
    "shr r8d, 16",
    "mov rax, qword ptr [rdi + r8 * 8 + {slots}]",
    "mov ecx, dword ptr [rsp + 56]",
    "2:",
    "test rax, rax",
    "jz 8f",
    "cmp dword ptr [rax + {procedure}], ecx",
    "je 4f",
    "mov rax, qword ptr [rax + {next}]",
    "jmp 2b",
    "5:",
    "mov r8, qword ptr [rsp + 64]",
    "callpath_known {node}, 0",
    "test rax, rax",
    "jz 8f",
    "4:",
    "mov rcx, qword ptr [rax + {kept}]",
    "mov qword ptr [rsp + 56], rcx",
    "mov rax, qword ptr [rax]",
    "add qword ptr [rax + {calls}], 1",
    "7:",
    "callpath_pop",
    "ret",
    "8:",
    "callpath_slowly {descended}, 0",
    "jmp 7b",
    ".size callpath_descend, . - callpath_descend",
    ".popsection",
);

unsafe extern "C" {
    fn callpath_count();
    fn callpath_enter();
    fn callpath_leave();
    fn callpath_measure();
    fn callpath_begin();
    fn callpath_end();
    fn callpath_end_by_jump();
    fn callpath_wait();
    fn callpath_wait_for_io();
    fn callpath_go_on();
    fn callpath_note();
    fn callpath_forget();
    fn callpath_ask();
    fn callpath_jump();
    fn callpath_catch();
    fn callpath_descend();
}

/// Where the routines are.
pub fn addresses() -> Routines {
    let at = |routine: unsafe extern "C" fn()| routine as usize as u64;
    Routines {
        count: at(callpath_count),
        enter: at(callpath_enter),
        leave: at(callpath_leave),
        measure: at(callpath_measure),
        begin: at(callpath_begin),
        end: at(callpath_end),
        end_by_jump: at(callpath_end_by_jump),
        wait: at(callpath_wait),
        wait_for_io: at(callpath_wait_for_io),
        go_on: at(callpath_go_on),
        note: at(callpath_note),
        forget: at(callpath_forget),
        ask: at(callpath_ask),
        jump: at(callpath_jump),
        catch: at(callpath_catch),
        descend: at(callpath_descend),
        count_path: hashed::routine(),
        hashed: hashed::HASHED.as_ptr() as u64,
        copies: contexts::copies(),
        callees: contexts::callees(),
        loaded: loads::routine(),
        ..times::routines()
    }
}

/// `callpath_count` of what is not known yet.
unsafe extern "C" fn counted(saved: &Saved) {
    let _undisturbed = Undisturbed::begin();
    if let Some((values, ..)) = found(saved.call()) {
        // SAFETY: of a node.
        unsafe { Values::at(values) }.add(Gauge::CALLS_COLUMN, 1);
    }
}

/// `callpath_enter` of what is not known yet, or where activations were left without an exit.
unsafe extern "C" fn entered(saved: &Saved) {
    begin(saved, true);
}

/// `callpath_note` of the same.
unsafe extern "C" fn noted(saved: &Saved) {
    begin(saved, false);
}

fn begin(saved: &Saved, is_timed: bool) {
    let _undisturbed = Undisturbed::begin();
    let (rsp, reading) = (saved.rsp_at_entry(), Reading::NONE);
    match found(saved.call()) {
        Some((values, base, mut activations)) => {
            // SAFETY: of a node.
            unsafe { Values::at(values) }.add(Gauge::CALLS_COLUMN, 1);
            activations.enter(Entered { rsp, values, base, reading, is_timed });
        }
        // Its exit belongs to something all the same.
        None => {
            if let Some((_, thread, area)) = areas::own() {
                // SAFETY: the calling thread's own.
                unsafe { Activations::of(area, &thread) }.enter(Entered { rsp, values: 0, base: 0, reading, is_timed });
            }
        }
    }
}

/// `callpath_leave` and `callpath_forget` of what is not the uppermost activation.
unsafe extern "C" fn at_exit(saved: &Saved) {
    let _undisturbed = Undisturbed::begin();
    let Some((_, thread, area)) = areas::own() else { return };
    // SAFETY: the calling thread's own.
    if !unsafe { Activations::of(area, &thread) }.leave(saved.rsp_at_exit(), None) {
        let count = &thread.record.unmatched_exits;
        count.store(count.load(Relaxed).wrapping_add(1), Relaxed);
    }
}

/// The number of the context that the thread is in, where the uppermost activation was left or is another stack's. It
/// only reads: a handler that comes in between does no harm.
unsafe extern "C" fn asked(saved: &Saved) -> u64 {
    let Some((_, thread, area)) = areas::known() else { return 0 };
    // SAFETY: the calling thread's own.
    match unsafe { Activations::of(area, &thread) }.innermost(saved.rsp_at_exit()) {
        0 => 0,
        // SAFETY: a node's values, which have that column.
        values => unsafe { (values.wrapping_add(CONTEXT_AT.load(Relaxed)) as *const u64).read_volatile() },
    }
}
