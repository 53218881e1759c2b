//! The program's signal masks: SIGTRAP stays unblocked, and the program sees the mask that it set.

use callpath_collect::syscall::{call4, getpid};
use core::ffi::c_int;
use core::sync::atomic::Ordering::Relaxed;

use crate::hook::{Next, hook, real};
use crate::libc::{SIGTRAP, syscall_number};
use crate::tls::{self, Word};
use crate::{part, signal};

pub const TRAP_BIT: u64 = 1 << (SIGTRAP - 1);
const SIG_BLOCK: c_int = 0;
const SIG_UNBLOCK: c_int = 1;
const SIG_SETMASK: c_int = 2;
const EINVAL: c_int = 22;

type Change = unsafe extern "C" fn(c_int, *const u64, *mut u64) -> c_int;

/// Whether the program has blocked SIGTRAP in the calling thread, as far as it knows.
pub fn is_blocked() -> bool {
    tls::get(Word::Mask) & 1 != 0
}

/// Whether it is really blocked: by a system call that the program makes directly.
pub fn is_blocked_in_truth() -> bool {
    change_in_truth(SIG_BLOCK, 0) & TRAP_BIT != 0
}

/// Sets what [`is_blocked`] returns.
pub fn set_blocked(blocked: bool) {
    tls::set(Word::Mask, u64::from(blocked));
}

/// The child of a vfork or of a raw clone takes no samples, and perhaps shares our words with its parent: it really
/// blocks what it blocks. Its number, beside the parent's bit, notes that it has begun to.
fn child_has_begun(pid: u32) -> bool {
    tls::get(Word::Mask) >> 32 == u64::from(pid)
}

/// Whether a program that is executed now must find SIGTRAP blocked although it is not.
pub fn is_blocked_for_successor(is_own: bool) -> bool {
    is_blocked() && (is_own || !child_has_begun(getpid()))
}

/// Takes SIGTRAP out of the calling thread's mask and remembers whether it was in.
pub fn adopt() {
    let before = set_in_truth(SIG_UNBLOCK);
    set_blocked(before & TRAP_BIT != 0);
}

/// Really blocks SIGTRAP in the calling thread, for a child or a program that inherits the mask.
pub fn block() {
    set_in_truth(SIG_BLOCK);
}

/// Takes [`block`] back.
pub fn unblock() {
    set_in_truth(SIG_UNBLOCK);
}

/// Sets the whole mask of the calling thread.
pub fn set_all_in_truth(mask: u64) {
    change_in_truth(SIG_SETMASK, mask);
}

/// Returns the mask before.
fn set_in_truth(how: c_int) -> u64 {
    change_in_truth(how, TRAP_BIT)
}

fn change_in_truth(how: c_int, set: u64) -> u64 {
    let mut before = 0u64;
    let (set, at) = (core::ptr::from_ref(&set) as usize, core::ptr::from_mut(&mut before) as usize);
    // SAFETY: changes the thread's signal mask; both sets have the size given.
    unsafe { call4(syscall_number::RT_SIGPROCMASK, [how as usize, set, at, 8]) };
    before
}

/// Puts SIGTRAP back into the calling thread's mask if the program had it there.
pub fn give_back() {
    if tls::get(Word::Mask) != 0 {
        let block = TRAP_BIT;
        // SAFETY: changes the thread's signal mask; the set has the size given.
        unsafe {
            call4(syscall_number::RT_SIGPROCMASK, [SIG_BLOCK as usize, core::ptr::from_ref(&block) as usize, 0, 8])
        };
        tls::set(Word::Mask, 0);
    }
}

fn change(next: &Next<Change>) -> c_int {
    let (how, set, old) = next.arguments();
    let Some(process) = part::process().filter(|_| signal::is_taken()) else { return next.original() };
    let pid = getpid();
    if process.slot.pid.load(Relaxed) != pid {
        if !child_has_begun(pid) {
            if is_blocked() {
                block();
            }
            tls::set(Word::Mask, u64::from(pid) << 32 | u64::from(is_blocked()));
        }
        return next.original();
    }
    // The C library reads a whole `sigset_t`.
    let mut filtered = [0u64; 16];
    let mut wanted = None;
    let mut passed = set;
    // SAFETY: the program vouches that it is null or points to a set, of which the kernel uses 64 bits.
    if let Some(set) = unsafe { set.as_ref() } {
        // A signal that was sent while it was blocked is really blocked: unblocking it reaches the kernel.
        filtered[0] = if how == SIG_UNBLOCK { *set } else { *set & !TRAP_BIT };
        wanted = Some(set & TRAP_BIT != 0);
        passed = filtered.as_ptr();
    }
    let before = is_blocked();
    let after = match (how, wanted) {
        (SIG_BLOCK, Some(trap)) => before | trap,
        (SIG_UNBLOCK, Some(trap)) => before & !trap,
        (SIG_SETMASK, Some(trap)) => trap,
        _ => before,
    };
    // Such a signal is delivered inside the call, and its handler checks whether it is still blocked.
    if !after {
        set_blocked(false);
    }
    // SAFETY: `passed` is null or a whole set of this frame's; the program vouches for `old`.
    let result = unsafe { (next.real)(how, passed, old) };
    set_blocked(if result == 0 { after } else { before });
    if result != 0 {
        return result;
    }
    // SAFETY: the program vouches that it is null or a place for a set, to which the real one has just written.
    if let Some(old) = unsafe { old.as_mut() }
        && before
    {
        *old |= TRAP_BIT;
    }
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
