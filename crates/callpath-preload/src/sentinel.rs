//! The sentinel's stubs: what a marked frame returns to.
//! Knows nothing of when a frame is marked.
//!
//! A stub leads to its record and on to code that all share: it puts the real return address back where it was, counts the
//! return, marks the next frame outwards, and goes on as the `ret` would have. All registers stay as they are, and the
//! flags: gcc keeps values in any register across calls to procedures that it knows.
//!
//! Call frame information leads every unwinder through: exceptions, cancellation, backtrace(), gdb. An unwinder finds a
//! stub's address for a return address and looks one byte before it; so the information begins one byte earlier. The
//! real return address is in the record, whose distance from the stub stands in the stub.

use callpath_collect::sentinel::{Frames, GROUP, Own, READERS, Record, STUBS, Stubs};
use callpath_format::shared::{Session, Settings, Unmarked};
use core::arch::global_asm;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::libc::{next, syscall_number};
use crate::tls::{self, Word};

// Offsets in `Record`: real 0, slot 8, entry 16, stub 24. In `Entry`: slot 0, counter 8, outward 16, marked 28.
global_asm!(
    ".pushsection .text.callpath_sentinel,\"ax\",@progbits",
    ".balign 64",
    ".fill 63, 1, 0xcc",
    ".cfi_startproc simple",
    // The frame of a stub: it lies one byte above its callee's, and so below its caller's. The registers are the caller's.
    ".cfi_def_cfa 7, 1",
    // rsp = rsp
    ".cfi_escape 0x16, 0x07, 0x02, 0x77, 0x00",
    // The stub is what the return address, or the program counter in it, is without its last five bits. 28 bytes from there
    // is the distance of the record from that place; the record begins with the return address.
    // breg16 0; lit31; not; and; plus_uconst 28; dup; deref_size 4; plus; deref
    ".cfi_escape 0x16, 0x10, 0x0c, 0x80, 0x00, 0x4f, 0x20, 0x1a, 0x23, 0x1c, 0x12, 0x94, 0x04, 0x22, 0x06",
    "int3",
    ".hidden callpath_sentinel_stubs",
    ".type callpath_sentinel_stubs,@function",
    "callpath_sentinel_stubs:",
    ".set callpath_sentinel_at, 0",
    ".rept {stubs}",
    "mov qword ptr [rsp - 16], rax",
    "lea rax, [rip + {records} + callpath_sentinel_at]",
    ".byte 0xe9",
    ".long callpath_sentinel_common - . - 4",
    ".fill 11, 1, 0xcc",
    ".long {records} + callpath_sentinel_at - .",
    ".set callpath_sentinel_at, callpath_sentinel_at + 64",
    ".endr",
    ".cfi_endproc",
    ".hidden callpath_sentinel_common",
    ".type callpath_sentinel_common,@function",
    "callpath_sentinel_common:",
    ".cfi_startproc simple",
    ".cfi_def_cfa 7, 1",
    ".cfi_escape 0x16, 0x07, 0x02, 0x77, 0x00",
    // The return address is where rax points.
    ".cfi_escape 0x10, 0x10, 0x02, 0x70, 0x00",
    "mov qword ptr [rsp - 24], rcx",
    "mov qword ptr [rsp - 32], rdx",
    "mov qword ptr [rsp - 40], rsi",
    "mov rcx, qword ptr [rax + 8]",
    "not rcx",
    "lea rcx, [rcx + rsp - 7]",
    "jrcxz 2f",
    // The stub was put somewhere else meanwhile: the stack was copied away and back again (`Stubs`). There is no way back.
    "ud2",
    "2:",
    "mov rcx, qword ptr [rax]",
    "mov qword ptr [rsp - 8], rcx",
    ".hidden callpath_sentinel_left",
    "callpath_sentinel_left:",
    ".cfi_escape 0x10, 0x10, 0x02, 0x77, 0x78",
    "mov rcx, qword ptr [rax + 16]",
    "jrcxz 7f",
    "mov rsi, qword ptr [rcx + 8]",
    "mov rdx, qword ptr [rsi]",
    "lea rdx, [rdx + 1]",
    "mov qword ptr [rsi], rdx",
    "mov dword ptr [rcx + 28], 0",
    "mov rcx, qword ptr [rcx + 16]",
    "jrcxz 7f",
    "mov rsi, rcx",
    "mov ecx, dword ptr [rsi + 28]",
    "jrcxz 3f",
    "jmp 7f",
    // The next frame outwards is marked with the same stub.
    "3:",
    "mov rcx, qword ptr [rsi]",
    "mov rdx, qword ptr [rcx]",
    "mov qword ptr [rax], rdx",
    "mov qword ptr [rax + 8], rcx",
    "mov qword ptr [rax + 16], rsi",
    "mov dword ptr [rsi + 28], 1",
    "mov rdx, qword ptr [rax + 24]",
    "mov qword ptr [rcx], rdx",
    "jmp 9f",
    // The stub is free.
    "7:",
    "mov qword ptr [rax + 16], 0",
    "mov qword ptr [rax + 8], 0",
    "9:",
    "mov rsi, qword ptr [rsp - 40]",
    "mov rdx, qword ptr [rsp - 32]",
    "mov rcx, qword ptr [rsp - 24]",
    "mov rax, qword ptr [rsp - 16]",
    // Not `ret`: the processor has predicted the stub's caller's returns from here on.
    "jmp qword ptr [rsp - 8]",
    ".cfi_endproc",
    ".hidden callpath_sentinel_end",
    "callpath_sentinel_end:",
    ".popsection",
    stubs = const STUBS,
    records = sym RECORDS,
);

unsafe extern "C" {
    #[link_name = "callpath_sentinel_stubs"]
    static FIRST: u8;
    #[link_name = "callpath_sentinel_common"]
    static COMMON: u8;
    #[link_name = "callpath_sentinel_left"]
    static LEFT: u8;
    #[link_name = "callpath_sentinel_end"]
    static END: u8;
}

static RECORDS: [Record; STUBS] = [const { Record::new() }; STUBS];
static OWNERS: [AtomicU32; STUBS / GROUP] = [const { AtomicU32::new(0) }; STUBS / GROUP];
static PROCEDURES: [AtomicU64; READERS] = [const { AtomicU64::new(0) }; READERS];

/// The stubs, if this process is to use them; else why it does not, if it was asked to.
pub fn begin(session: &Session) -> Result<Stubs, Option<Unmarked>> {
    if session.settings.sentinel == Settings::NEVER {
        return Err(None);
    }
    if has_shadow_stack() {
        return Err(Some(Unmarked::ShadowStack));
    }
    find_readers();
    Ok(Stubs {
        first: &raw const FIRST as u64,
        common: &raw const COMMON as u64,
        left: &raw const LEFT as u64,
        end: &raw const END as u64,
        records: &RECORDS,
        owners: &OWNERS,
        readers: &PROCEDURES,
        own,
        set_own,
    })
}

/// The procedures of the C library that keep or look at where they return to.
fn find_readers() {
    let names = [
        c"setjmp",
        c"_setjmp",
        c"__sigsetjmp",
        c"getcontext",
        c"swapcontext",
        c"vfork",
        c"__vfork",
        c"dlsym",
        c"dlvsym",
        c"dlopen",
        c"dlmopen",
        c"dladdr",
        c"_dl_mcount_wrapper_check",
        c"mcount",
        c"_mcount",
        c"__fentry__",
        c"_Unwind_RaiseException",
        c"_Unwind_Resume",
        c"_Unwind_Resume_or_Rethrow",
        c"_Unwind_ForcedUnwind",
        c"_Unwind_Backtrace",
        c"backtrace",
    ];
    for (place, name) in PROCEDURES.iter().zip(names) {
        place.store(next(name) as u64, Relaxed);
    }
}

/// Whether the processor keeps return addresses of its own (`CONFIG_X86_USER_SHADOW_STACK`).
fn has_shadow_stack() -> bool {
    const ARCH_SHSTK_STATUS: usize = 0x5005;
    const ENABLED: u64 = 1;
    let mut status = 0u64;
    // SAFETY: the kernel writes a number, if it knows the request.
    let result = unsafe {
        let at = core::ptr::from_mut(&mut status) as usize;
        callpath_collect::syscall::call4(syscall_number::ARCH_PRCTL, ARCH_SHSTK_STATUS, at, 0, 0)
    };
    result == 0 && status & ENABLED != 0
}

/// The thread's word when it must have no frames.
const NEVER: u64 = 1;

fn own() -> Own {
    match tls::get(Word::Frames) {
        0 => Own::NotYet,
        NEVER => Own::Never,
        // SAFETY: the word is what `set_own` has put there; it is taken away before the memory is.
        address => Own::Has(unsafe { &*(address as *const Frames) }),
    }
}

fn set_own(own: Own) {
    let word = match own {
        Own::NotYet => 0,
        Own::Never => NEVER,
        Own::Has(frames) => core::ptr::from_ref(frames) as u64,
    };
    tls::set(Word::Frames, word);
}

/// The calling thread ends. What is still marked of it returns, but counts nothing.
pub fn end(stubs: &Stubs) {
    let own = own();
    set_own(Own::Never);
    if let Own::Has(frames) = own {
        frames.destroy(stubs);
    }
}

/// A fork's child: its frames are marked, as its parent's are, but they are not in its tree.
pub fn adopt(stubs: &Stubs) {
    if let Own::Has(frames) = own() {
        frames.adopt(stubs, callpath_collect::syscall::gettid());
    }
}
