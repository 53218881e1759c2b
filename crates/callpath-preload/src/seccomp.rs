//! A program that is about to install a filter of system calls: from then
//! on callpath makes none that the filter refuses.
//!
//! A filter is a program for the kernel's packet filter, which is asked here before the kernel gets it: once for each
//! call that our code makes. A filter that the program installs by its own system call instruction is not seen.

use callpath_collect::clock::{monotonic_ns, ticks};
use callpath_collect::syscall::is_readable;
use callpath_collect::{Process, Thread, refused};
use callpath_format::shared::ArenaRef;
use callpath_format::shared::refused::Calls;
use core::ffi::{c_char, c_int, c_long, c_ulong};
use core::sync::atomic::Ordering::Relaxed;

use crate::filter::Filter;
use crate::hook::{hook, real};
use crate::tls::{self, Word};
use crate::{exec, masks, names, part, signal, threads};

const PR_SET_NAME: c_int = 15;
const PR_SET_SECCOMP: c_int = 22;
const SECCOMP_MODE_STRICT: c_ulong = 1;
const SECCOMP_MODE_FILTER: c_ulong = 2;
/// Operations of `seccomp(2)`.
const SECCOMP_SET_MODE_STRICT: c_ulong = 0;
const SECCOMP_SET_MODE_FILTER: c_ulong = 1;

hook! {
    /// `prctl(2)`, ready for what seccomp refuses. The C library's takes five arguments, whatever it declares.
    fn prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int, or -1;
    |next| match (option, a) {
        (PR_SET_SECCOMP, SECCOMP_MODE_STRICT) => without_calls(|| next.original()),
        (PR_SET_SECCOMP, SECCOMP_MODE_FILTER) => behind_filter(b, || c_long::from(next.original())) as c_int,
        (PR_SET_NAME, name) => {
            let result = next.original();
            if result == 0 {
                // SAFETY: the kernel has just read a string there.
                unsafe { names::is_set(name as *const c_char) };
            }
            result
        }
        _ => next.original(),
    }
}

/// `seccomp(2)`, for which the C library has no function.
///
/// # Safety
/// As for `seccomp(2)`.
unsafe extern "C" fn seccomp(operation: c_ulong, flags: c_ulong, argument: c_ulong) -> c_long {
    const SYS_SECCOMP: c_long = 317;
    let call = || match real_syscall() {
        // SAFETY: the program's own arguments of `seccomp(2)`, for which it vouches.
        Some(syscall) => unsafe { syscall(SYS_SECCOMP, operation, flags, argument, 0, 0) },
        None => -1,
    };
    match operation {
        SECCOMP_SET_MODE_STRICT => without_calls(call),
        SECCOMP_SET_MODE_FILTER => behind_filter(argument, call),
        _ => call(),
    }
}

/// Strict seccomp ends the measurement: no clock can be read.
fn without_calls<R>(call: impl FnOnce() -> R) -> R {
    part::leave();
    call()
}

/// Installs a filter. `argument`: its `struct sock_fprog`.
fn behind_filter(argument: c_ulong, install: impl FnOnce() -> c_long) -> c_long {
    // The child of a vfork shares our memory, and filters are not its parent's.
    let Some(process) = part::own_process() else { return install() };
    let before = refused::calls();
    // The kernel does not accept a filter that cannot be read, either.
    let filter = Filter::at(argument as usize, |addr| is_readable(addr as u64));
    let refuses = filter.map_or(Calls(0), |filter| refused_by(&filter));
    let all = Calls(before.0 | refuses.0);
    if all == before {
        return install();
    }
    if all.has(Calls::RT_SIGRETURN) {
        return stop_before(process, all, install);
    }
    // The clocks can be read for the last time here.
    let settings = &process.session.settings;
    if !before.has(Calls::CLOCK_GETTIME) {
        refused::remember_time(monotonic_ns(), ticks(), settings.ticks_per_ms);
        if let Some(thread) = Thread::at(process, ArenaRef(tls::get(Word::Record) as u32)) {
            threads::sample_here(process, thread);
        }
    }
    set(process, all);
    let result = install();
    if result < 0 {
        set(process, before);
    }
    result
}

fn set(process: &Process<'_>, calls: Calls) {
    refused::set(calls);
    process.slot.refused_calls.store(calls.0, Relaxed);
}

/// No handler could return: samples must stop.
fn stop_before(process: &Process<'_>, all: Calls, install: impl FnOnce() -> c_long) -> c_long {
    let is_paused = exec::pause(process);
    part::leave();
    if is_paused {
        signal::give_back();
    } else {
        signal::ignore();
        masks::give_back();
    }
    let result = install();
    if result < 0 {
        signal::take_back();
        if signal::is_taken() {
            masks::adopt();
        }
        part::come_back();
        exec::go_on(process);
    } else {
        process.slot.refused_calls.store(all.0, Relaxed);
    }
    result
}

/// The calls of ours that a filter does not allow.
fn refused_by(filter: &Filter) -> Calls {
    let mut refused = 0;
    for (call, number, _) in Calls::ALL {
        let arguments = arguments_of(*call);
        if !arguments.iter().all(|arguments| filter.allows(*number as u32, refused_by as *const () as u64, *arguments))
        {
            refused |= call.0;
        }
    }
    Calls(refused)
}

/// The arguments of our calls, as far as a filter may check them.
fn arguments_of(call: Calls) -> &'static [[u64; 6]] {
    const OTHERS: &[[u64; 6]] = &[[0; 6]];
    const ANY: u64 = 0x7f00_0000_0000;
    const HERE: u64 = -100i64 as u64;
    match call {
        Calls::CLOCK_GETTIME => &[[1, ANY, 0, 0, 0, 0], [3, ANY, 0, 0, 0, 0]],
        Calls::GETRUSAGE => &[[1, ANY, 0, 0, 0, 0]],
        Calls::RT_SIGPROCMASK => &[[0x7fff_ffff, ANY, 0, 8, 0, 0], [1, ANY, ANY, 8, 0, 0]],
        Calls::FUTEX => &[[ANY, 0, 0, ANY, 0, 0], [ANY, 1, 0x7fff_ffff, 0, 0, 0]],
        Calls::MMAP => &[[0, 4096, 3, 0x4022, -1i64 as u64, 0]],
        Calls::MUNMAP | Calls::MADVISE => &[[ANY, 4096, 0, 0, 0, 0]],
        Calls::OPENAT => &[[HERE, ANY, 0x80000, 0, 0, 0]],
        Calls::TIMER_CREATE => &[[1, ANY, ANY, 0, 0, 0], [3, ANY, ANY, 0, 0, 0]],
        Calls::RT_SIGACTION => &[[5, ANY, ANY, 8, 0, 0]],
        _ => OTHERS,
    }
}

/// `syscall(2)`: handles calls by number that our hooks must see. All others are a jump. The
/// program's own system call instructions are not seen.
///
/// # Safety
/// As for `syscall(2)`.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall() -> c_long {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "cmp rdi, {sys_execve}",
        "je 2f",
        "cmp rdi, {sys_execveat}",
        "je 3f",
        "cmp rdi, {sys_seccomp}",
        "je 4f",
        "cmp rdi, {sys_prctl}",
        "je 5f",
        "push rdi", ".cfi_adjust_cfa_offset 8",
        "push rsi", ".cfi_adjust_cfa_offset 8",
        "push rdx", ".cfi_adjust_cfa_offset 8",
        "push rcx", ".cfi_adjust_cfa_offset 8",
        "push r8", ".cfi_adjust_cfa_offset 8",
        "push r9", ".cfi_adjust_cfa_offset 8",
        "sub rsp, 8", ".cfi_adjust_cfa_offset 8",
        "call {real}",
        "add rsp, 8", ".cfi_adjust_cfa_offset -8",
        "pop r9", ".cfi_adjust_cfa_offset -8",
        "pop r8", ".cfi_adjust_cfa_offset -8",
        "pop rcx", ".cfi_adjust_cfa_offset -8",
        "pop rdx", ".cfi_adjust_cfa_offset -8",
        "pop rsi", ".cfi_adjust_cfa_offset -8",
        "pop rdi", ".cfi_adjust_cfa_offset -8",
        // A seventh argument stays on the stack, where it is.
        "jmp rax",
        "2:", "mov rdi, rsi", "mov rsi, rdx", "mov rdx, rcx", "jmp {execve}",
        "3:", "mov rdi, rsi", "mov rsi, rdx", "mov rdx, rcx", "mov rcx, r8", "mov r8, r9", "jmp {execveat}",
        "4:", "mov rdi, rsi", "mov rsi, rdx", "mov rdx, rcx", "jmp {seccomp}",
        "5:", "mov rdi, rsi", "mov rsi, rdx", "mov rdx, rcx", "mov rcx, r8", "mov r8, r9", "jmp {prctl}",
        ".cfi_endproc",
        sys_execve = const 59,
        sys_execveat = const 322,
        sys_seccomp = const 317,
        sys_prctl = const 157,
        real = sym address_of_real_syscall,
        execve = sym exec::execve,
        execveat = sym exec::execveat,
        seccomp = sym seccomp,
        prctl = sym prctl_as_call,
    )
}

/// `prctl` as `syscall` gives its result.
unsafe extern "C" fn prctl_as_call(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_long {
    // SAFETY: the program's own arguments, for which it vouches.
    c_long::from(unsafe { prctl(option, a, b, c, d) })
}

/// The C library's `syscall(2)`, without the seventh argument of those calls that have one.
type Syscall = unsafe extern "C" fn(c_long, c_ulong, c_ulong, c_ulong, c_ulong, c_ulong) -> c_long;

fn real_syscall() -> Option<Syscall> {
    real!(fn syscall(c_long, c_ulong, c_ulong, c_ulong, c_ulong, c_ulong) -> c_long)
}

/// Address of the C library's. If there is none, nothing is called: an error could not be returned.
extern "C" fn address_of_real_syscall() -> usize {
    unsafe extern "C" fn nothing(_: c_long, _: c_ulong, _: c_ulong, _: c_ulong, _: c_ulong, _: c_ulong) -> c_long {
        -1
    }
    real_syscall().unwrap_or(nothing) as usize
}
