//! The sentinel's stubs: what a marked frame returns to.
//! callpath-collect decides when a frame is marked.
//!
//! A stub leads to code that all share, with the place of its return address: that code counts the return, if the frame
//! is marked in this thread, marks the next frame outwards, and continues where the `ret` would have. It does so
//! whatever it finds, and writes a stub only over that stub's own return address. All registers and the flags are
//! preserved: gcc keeps values in any register across calls to procedures that it knows.
//!
//! Call frame information leads every unwinder through: exceptions, cancellation, backtrace(), gdb. An unwinder finds a
//! stub's address for a return address and looks one byte before it; so the information begins one byte earlier. The
//! real return address is in a table, whose distance from the stub is in the stub.

use callpath_collect::sentinel::{BUCKETS, Frames, MAX_RETURN_ADDRESS_USERS, Own, STUBS, Stubs};
use callpath_format::shared::{Session, SessionHead, Settings, Unmarked};
use core::arch::global_asm;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, AtomicUsize};

use callpath_collect::syscall;

use crate::libc::{next, syscall_number};
use crate::tls::{self, Word};

// Offsets in `Frames`: mark 0. In `Entry`: slot 0, counter 8, outward 16, stub 24, next 32, word 40.
global_asm!(
    ".pushsection .text.callpath_sentinel,\"ax\",@progbits",
    ".balign 64",
    ".fill 63, 1, 0xcc",
    ".cfi_startproc simple",
    // The frame of a stub: it lies one byte above its callee's, and so
    // below its caller's. The registers are the caller's.
    ".cfi_def_cfa 7, 1",
    // rsp = rsp
    ".cfi_escape 0x16, 0x07, 0x02, 0x77, 0x00",
    // The stub is what the return address, or the program counter in it, is without its last five bits.
    // 24 bytes from there is the distance of the return address from that place. Valgrind knows neither
    // dup nor deref_size, and ends at a not. breg16 0; const1s -32; and; plus_uconst 24; breg16 0;
    // const1s -32; and; plus_uconst 24; deref; plus; deref
    ".cfi_escape 0x16, 0x10, 0x11, 0x80, 0x00, 0x09, 0xe0, 0x1a, 0x23, 0x18, \
     0x80, 0x00, 0x09, 0xe0, 0x1a, 0x23, 0x18, 0x06, 0x22, 0x06",
    "int3",
    ".hidden callpath_sentinel_stubs",
    ".type callpath_sentinel_stubs,@function",
    "callpath_sentinel_stubs:",
    ".set callpath_sentinel_at, 0",
    ".rept {stubs}",
    "mov qword ptr [rsp - 16], rax",
    "lea rax, [rip + {reals} + callpath_sentinel_at]",
    ".byte 0xe9",
    ".long callpath_sentinel_common - . - 4",
    ".fill 7, 1, 0xcc",
    ".quad {reals} + callpath_sentinel_at - .",
    ".set callpath_sentinel_at, callpath_sentinel_at + 8",
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
    "mov rcx, qword ptr [rax]",
    "mov qword ptr [rsp - 8], rcx",
    ".hidden callpath_sentinel_left",
    "callpath_sentinel_left:",
    ".cfi_escape 0x10, 0x10, 0x02, 0x77, 0x78",
    // The flags, until they are put back.
    "lahf",
    "seto al",
    // The thread's frames: 0 and 1 are none.
    "mov rcx, qword ptr [rip + callpath_thread_words@GOTTPOFF]",
    "mov rsi, qword ptr fs:[rcx + {word}]",
    "cmp rsi, 1",
    "jbe 9f",
    // Marks within this frame are of frames that are gone without a return. If there is none here, it is a copy of one.
    "lea rdx, [rsp - 8]",
    "2:",
    "mov rcx, qword ptr [rsi]",
    "test rcx, rcx",
    "jz 9f",
    "cmp qword ptr [rcx], rdx",
    "ja 9f",
    "je 3f",
    "mov rcx, qword ptr [rcx + 32]",
    "mov qword ptr [rsi], rcx",
    "jmp 2b",
    "3:",
    "mov rdx, qword ptr [rcx + 8]",
    "inc qword ptr [rdx]",
    "mov rdx, qword ptr [rcx + 32]",
    "mov rcx, qword ptr [rcx + 16]",
    "mov qword ptr [rsi], rdx",
    // The next frame outwards is marked, unless it already is, or its return address is not the noted one.
    "test rcx, rcx",
    "jz 9f",
    "cmp rcx, rdx",
    "je 9f",
    "mov qword ptr [rsp - 48], rdi",
    "mov qword ptr [rsp - 56], r8",
    "mov qword ptr [rcx + 32], rdx",
    "mov rdi, qword ptr [rcx + 24]",
    "mov rdx, qword ptr [rdi + 24]",
    "mov rdx, qword ptr [rdi + rdx + 24]",
    "mov r8, qword ptr [rcx]",
    "cmp qword ptr [r8], rdx",
    "jne 4f",
    "mov qword ptr [rsi], rcx",
    "mov qword ptr [rcx + 40], rdi",
    "mov qword ptr [r8], rdi",
    "4:",
    "mov r8, qword ptr [rsp - 56]",
    "mov rdi, qword ptr [rsp - 48]",
    "9:",
    "add al, 127",
    "sahf",
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
    reals = sym REALS,
    word = const Word::Frames as u64,
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

static REALS: [AtomicU64; STUBS] = [const { AtomicU64::new(0) }; STUBS];
static STUB_BUCKETS: [AtomicU16; BUCKETS] = [const { AtomicU16::new(0) }; BUCKETS];
static USED: AtomicU32 = AtomicU32::new(0);
static PROCEDURES: [AtomicU64; MAX_RETURN_ADDRESS_USERS] = [const { AtomicU64::new(0) }; MAX_RETURN_ADDRESS_USERS];

/// The stubs, if this process uses them; else the reason, if the settings ask for them.
pub fn begin(session: &SessionHead) -> Result<Stubs, Option<Unmarked>> {
    if session.settings.sentinel == Settings::NEVER {
        return Err(None);
    }
    if has_shadow_stack() {
        return Err(Some(Unmarked::ShadowStack));
    }
    find_return_address_users();
    Ok(Stubs {
        first: &raw const FIRST as u64,
        common: &raw const COMMON as u64,
        left: &raw const LEFT as u64,
        end: &raw const END as u64,
        reals: &REALS,
        buckets: &STUB_BUCKETS,
        used: &USED,
        return_address_users: &PROCEDURES,
        make,
        own,
        set_own,
    })
}

/// The procedures of the C library that keep or read their return address.
fn find_return_address_users() {
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

/// Whether the processor keeps its own copies of return addresses (`CONFIG_X86_USER_SHADOW_STACK`).
fn has_shadow_stack() -> bool {
    const ARCH_SHSTK_STATUS: usize = 0x5005;
    const ENABLED: u64 = 1;
    let mut status = 0u64;
    // SAFETY: the kernel writes a number, if it knows the request.
    let result = unsafe {
        let at = core::ptr::from_mut(&mut status) as usize;
        syscall::call4(syscall_number::ARCH_PRCTL, [ARCH_SHSTK_STATUS, at, 0, 0])
    };
    result == 0 && status & ENABLED != 0
}

/// The value of the thread's word if it must have no frames.
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

/// Threads whose frames have memory that was mapped ahead: a program may later refuse its own `mmap` (seccomp).
const AHEAD: usize = Session::AHEAD_LEN_BYTES as usize / size_of::<Frames>();
static MAPPED_AHEAD: AtomicUsize = AtomicUsize::new(0);
/// Which of them are in use, by bits.
static IN_USE: AtomicU32 = AtomicU32::new(0);
const _: () = assert!(AHEAD > 0 && AHEAD < 32);

/// Maps memory ahead, if limits allow for it.
pub fn prepare(session: &SessionHead) {
    if session.ahead_len_bytes() != 0
        && let Some(frames) = Frames::map(AHEAD)
    {
        MAPPED_AHEAD.store(frames.as_ptr() as usize, Relaxed);
    }
}

fn mapped_ahead() -> &'static [Frames] {
    match MAPPED_AHEAD.load(Relaxed) {
        0 => &[],
        // SAFETY: `prepare` has mapped them; they stay mapped.
        at => unsafe { core::slice::from_raw_parts(at as *const Frames, AHEAD) },
    }
}

fn make() -> Option<&'static Frames> {
    for (bit, frames) in mapped_ahead().iter().enumerate() {
        if IN_USE.fetch_or(1 << bit, Acquire) & 1 << bit == 0 {
            frames.forget();
            return Some(frames);
        }
    }
    // What we map would be taken from the program's limit.
    if syscall::is_space_limited() { None } else { Frames::map(1)?.first() }
}

/// The bit of memory that was mapped ahead, if it was.
fn bit_of(frames: &'static Frames) -> Option<u32> {
    let index = mapped_ahead().iter().position(|ahead| core::ptr::eq(ahead, frames))?;
    Some(1 << index)
}

/// The calling thread ends. Frames that are still marked return correctly, but are not counted.
pub fn end() {
    let own = own();
    set_own(Own::Never);
    if let Own::Has(frames) = own {
        match bit_of(frames) {
            Some(bit) => {
                IN_USE.fetch_and(!bit, Release);
            }
            None => frames.unmap(),
        }
    }
}

/// A fork's child: its frames are marked, as its parent's are, but they are not in its tree.
pub fn adopt() {
    let own = own();
    if let Own::Has(frames) = own {
        frames.forget();
    }
    // Its parent's other threads are not here.
    IN_USE.store(if let Own::Has(frames) = own { bit_of(frames).unwrap_or(0) } else { 0 }, Relaxed);
}
