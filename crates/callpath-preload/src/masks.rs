//! The program's signal masks: SIGTRAP stays unblocked, and the program sees the mask that it set.
//!
//! Where the program blocks SIGTRAP, SIGSTKFLT is blocked in its place, which no kernel sends: so whatever puts an earlier mask back, a call
//! that we see, `siglongjmp`, `setcontext` or the return of a handler, puts that back, too. Almost every program blocks both or none; where it
//! treats them differently, a word of the thread says so.

use callpath_collect::syscall::{call4, getpid};
use core::ffi::c_int;
use core::sync::atomic::Ordering::Relaxed;

use crate::hook::{Next, hook, real};
use crate::libc::{SIGSTKFLT, SIGTRAP, syscall_number};
use crate::tls::{self, Word};
use crate::{part, signal};

pub const TRAP_BIT: u64 = 1 << (SIGTRAP - 1);
/// Stands for SIGTRAP in masks that the kernel has.
pub const STANDS_IN: u64 = 1 << (SIGSTKFLT - 1);
const BOTH: u64 = TRAP_BIT | STANDS_IN;
const SIG_BLOCK: c_int = 0;
const SIG_UNBLOCK: c_int = 1;
const SIG_SETMASK: c_int = 2;
const EINVAL: c_int = 22;

/// Bits of [`Word::Mask`]: the program wants SIGSTKFLT otherwise than SIGTRAP; it waits with a mask that opens SIGTRAP.
const DIFFER: u64 = 1;
const OPENED: u64 = 2;
/// Others tell masks apart: the first holds as long as the kernel has the mask that it was said of.
const OF_MASK: u64 = 0xffff_fffc;

type Change = unsafe extern "C" fn(c_int, *const u64, *mut u64) -> c_int;

/// Whether the program has blocked SIGTRAP in the calling thread, as far as it knows.
pub fn is_blocked() -> bool {
    is_blocked_in(in_truth())
}

/// The same, of a thread whose mask this was when it was interrupted.
pub fn is_blocked_in(mask: u64) -> bool {
    // During such a wait SIGTRAP is really blocked in the mask that is put back afterwards.
    let is_open = || mask & TRAP_BIT != 0 && tls::get(Word::Mask) & OPENED != 0;
    signal::is_taken() && mask & STANDS_IN != 0 && !is_open()
}

/// Whether it is really blocked: by a system call that the program makes directly.
pub fn is_blocked_in_truth() -> bool {
    in_truth() & TRAP_BIT != 0
}

/// What the kernel gets for a mask of the program's.
pub fn for_kernel(mask: u64) -> u64 {
    if mask & TRAP_BIT != 0 { mask & !TRAP_BIT | STANDS_IN } else { mask & !STANDS_IN }
}

/// What the kernel gets for the mask of a handler or a wait, which really blocks SIGTRAP: a handler's stack may have no room for a sample.
pub fn in_action(mask: u64) -> u64 {
    if mask & TRAP_BIT != 0 { mask } else { mask & !STANDS_IN }
}

/// Whether a mask has one of the two signals alone, which the kernel's does not say.
pub fn differs(mask: u64) -> bool {
    mask & BOTH != 0 && mask & BOTH != BOTH
}

/// The program's mask, of the kernel's and of what [`differs`] said.
pub fn for_program(mask: u64, differs: bool) -> u64 {
    match (mask & STANDS_IN != 0, differs) {
        (false, false) => mask,
        (false, true) => mask | STANDS_IN,
        (true, false) => mask | BOTH,
        (true, true) => mask & !STANDS_IN | TRAP_BIT,
    }
}

/// The child of a vfork or of a raw clone takes no samples, and perhaps shares our words with its parent: it really
/// blocks what it blocks. Its number, beside the parent's bit, notes that it has begun to.
fn child_has_begun(pid: u32) -> bool {
    tls::get(Word::Mask) >> 32 == u64::from(pid)
}

/// The calling thread's mask as the program has it, of the kernel's.
fn of_program(mask: u64) -> u64 {
    for_program(mask, differ_in(mask))
}

fn differ_in(mask: u64) -> bool {
    let word = tls::get(Word::Mask);
    word & DIFFER != 0 && word & OF_MASK == said_of(mask)
}

fn said_of(mask: u64) -> u64 {
    /// SIGKILL, SIGSTOP, and two of the C library's own, which nobody can block.
    const NEVER: u64 = 1 << 8 | 1 << 18 | 3 << 31;
    let mask = mask & !(TRAP_BIT | NEVER);
    (mask ^ mask >> 32) << 2 & OF_MASK
}

/// Remembers of the kernel's mask whether the program's has one of the two signals alone.
fn remember(mask: u64, differ: bool) {
    tls::set(Word::Mask, if differ { said_of(mask) | DIFFER } else { 0 });
}

/// Shows the mask as the program has it. Returns what the mask was, for [`set_all_in_truth`], if that is another one.
fn show() -> Option<u64> {
    if !signal::is_taken() || child_has_begun(getpid()) {
        return None;
    }
    let before = in_truth();
    let shown = of_program(before);
    (before != shown).then(|| change_in_truth(SIG_SETMASK, shown))
}

/// Takes SIGTRAP out of a mask that the kernel has from elsewhere, and remembers whether it was in.
pub fn adopt() {
    if !signal::is_taken() {
        return;
    }
    let before = in_truth();
    set_all_in_truth(for_kernel(before));
    remember(for_kernel(before), differs(before));
}

/// The same, of a thread that has just begun. `made_by`: what [`said`] in the thread that made it.
pub fn adopt_as_made(made_by: u32) {
    if !signal::is_taken() {
        return;
    }
    let mask = in_truth();
    if mask & TRAP_BIT != 0 || said_of(mask) != u64::from(made_by) & OF_MASK {
        // The program has asked for a mask of its own for it; or a signal was kept for its maker.
        return adopt();
    }
    remember(mask, u64::from(made_by) & DIFFER != 0);
}

/// What is to be known of the calling thread's mask by a thread that inherits it.
pub fn said() -> u32 {
    let mask = in_truth();
    (said_of(mask) | u64::from(differ_in(mask))) as u32
}

/// Makes a call that executes a program, or whose children inherit the program's mask.
pub fn shown<R>(call: impl FnOnce() -> R) -> R {
    let before = show();
    let result = call();
    if let Some(mask) = before {
        set_all_in_truth(mask);
    }
    result
}

/// Calls a handler of the program's. The interrupted code has the mask that it had, in our eyes as in the kernel's.
pub fn in_handler(call: impl FnOnce()) {
    let before = tls::get(Word::Mask);
    tls::set(Word::Mask, before & !OPENED);
    call();
    tls::set(Word::Mask, before);
}

/// Makes a call that waits with a mask which opens SIGTRAP: it is really blocked up to then, so that no signal comes early.
pub fn while_opened<R>(call: impl FnOnce() -> R) -> R {
    change_in_truth(SIG_BLOCK, TRAP_BIT);
    tls::set(Word::Mask, tls::get(Word::Mask) | OPENED);
    let result = call();
    tls::set(Word::Mask, tls::get(Word::Mask) & !OPENED);
    unblock();
    result
}

/// Lets samples come again, where a signal was kept.
pub fn unblock() {
    change_in_truth(SIG_UNBLOCK, TRAP_BIT);
}

/// Sets the whole mask of the calling thread.
pub fn set_all_in_truth(mask: u64) {
    change_in_truth(SIG_SETMASK, mask);
}

fn in_truth() -> u64 {
    change_in_truth(SIG_BLOCK, 0)
}

/// Returns the mask before.
fn change_in_truth(how: c_int, set: u64) -> u64 {
    let mut before = 0u64;
    let (set, at) = (core::ptr::from_ref(&set) as usize, core::ptr::from_mut(&mut before) as usize);
    // SAFETY: changes the thread's signal mask; both sets have the size given.
    unsafe { call4(syscall_number::RT_SIGPROCMASK, [how as usize, set, at, 8]) };
    before
}

/// Gives the calling thread the mask that the program set.
pub fn give_back() {
    if !signal::is_taken() {
        return;
    }
    set_all_in_truth(of_program(in_truth()));
    tls::set(Word::Mask, 0);
}

fn change(next: &Next<Change>) -> c_int {
    let (how, set, old) = next.arguments();
    let Some(process) = part::process().filter(|_| signal::is_taken()) else { return next.original() };
    let pid = getpid();
    if process.slot.pid.load(Relaxed) != pid {
        if !child_has_begun(pid) {
            show();
            tls::set(Word::Mask, u64::from(pid) << 32 | tls::get(Word::Mask) & u64::from(u32::MAX));
        }
        return next.original();
    }
    // The C library reads a whole `sigset_t`.
    let (mut filtered, mut own) = ([0u64; 16], [0u64; 16]);
    // SAFETY: the program vouches that it is null or points to a set, of which the kernel uses 64 bits.
    let wanted = unsafe { set.as_ref() }.copied();
    let mut passed = set;
    if let Some(wanted) = wanted {
        // A signal that was sent while it was blocked is really blocked: unblocking it reaches the kernel.
        filtered[0] = for_kernel(wanted) | if how == SIG_UNBLOCK { wanted & TRAP_BIT } else { 0 };
        passed = filtered.as_ptr();
    }
    let at = if old.is_null() { own.as_mut_ptr() } else { old };
    // SAFETY: `passed` is null or a whole set of this frame's; `at` is one, or the program vouches for it.
    let result = unsafe { (next.real)(how, passed, at) };
    if result != 0 {
        return result;
    }
    // SAFETY: the real one has just written it.
    let before = unsafe { at.read() };
    // By a system call that we have not seen, and that is none of what is remembered.
    let unseen = if before & STANDS_IN == 0 { before & TRAP_BIT } else { 0 };
    let was = of_program(before & !unseen);
    let is = match (how, wanted) {
        (SIG_BLOCK, Some(set)) => was | set,
        (SIG_UNBLOCK, Some(set)) => was & !set,
        (_, Some(set)) => set,
        (_, None) => was,
    };
    remember(for_kernel(is), differs(is));
    // SAFETY: as above.
    unsafe { at.write(was | unseen) };
    result
}

hook! {
    /// `sigprocmask(3)` as the program sees it.
    fn sigprocmask(how: c_int, set: *const u64, old: *mut u64) -> c_int, or EINVAL;
    |next| change(&next)

    /// `pthread_sigmask(3)` as the program sees it.
    fn pthread_sigmask(how: c_int, set: *const u64, old: *mut u64) -> c_int, or EINVAL;
    |next| change(&next)
}

/// `sigsetmask(3)`, of BSD, and of some shells today: the first 32 signals as bits.
#[unsafe(no_mangle)]
pub extern "C" fn sigsetmask(mask: c_int) -> c_int {
    change_bits(SIG_SETMASK, mask)
}

/// `sigblock(3)`
#[unsafe(no_mangle)]
pub extern "C" fn sigblock(mask: c_int) -> c_int {
    change_bits(SIG_BLOCK, mask)
}

/// Blocks or unblocks SIGTRAP, as the program sees it. Returns whether it was blocked.
pub fn change_trap(blocks: bool) -> bool {
    const TRAP: c_int = TRAP_BIT as c_int;
    change_bits(if blocks { SIG_BLOCK } else { SIG_UNBLOCK }, TRAP) & TRAP != 0
}

fn change_bits(how: c_int, mask: c_int) -> c_int {
    let Some(real) = real!(fn sigprocmask(c_int, *const u64, *mut u64) -> c_int) else { return -1 };
    let (mut set, mut old) = ([0u64; 16], [0u64; 16]);
    set[0] = u64::from(mask as u32);
    // SAFETY: both are whole sets of this frame's.
    let result = change(&unsafe { Next::new(real, (how, set.as_ptr(), old.as_mut_ptr())) });
    if result == 0 { old[0] as c_int } else { -1 }
}
