//! The program's handlers of signals: a wait that a sample has interrupted must know whether one of them has run.
//!
//! Nothing of the kernel's says so. A sample may come just when the program's handler has returned, and then finds the
//! thread as the handler did: behind a system call that has failed with EINTR. So where samples may come, the kernel is
//! given a relay in the place of a handler: a few instructions that tell the wait, and jump to the handler with all that
//! the kernel has passed. A relay leads to one handler for ever, whatever signals have it and whoever has asked the kernel
//! for it. The program sees its own handlers when it asks. Of handlers that it installs by its own system call
//! instruction nothing is known.

use core::arch::global_asm;
use core::ffi::c_int;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU64, AtomicUsize};

use crate::hook::{Next, hook};
use crate::libc::{SA_RESTART, SIG_IGN, SIGTRAP, Sigaction};
use crate::tls::Word;
use crate::{masks, part, signal, waits};

/// So many handlers have relays; more are installed as they are.
const RELAYS: usize = 256;
/// The length of a relay, bytes.
const RELAY_BYTES: usize = 16;

/// By relay: the handler that it leads to, set once. 0: none yet.
static HANDLERS: [AtomicUsize; RELAYS] = [const { AtomicUsize::new(0) }; RELAYS];

/// By signal: the mask of its action has SIGSTKFLT and not SIGTRAP, which the kernel's must not have ([`masks::in_action`]).
static MASKS_WITH_MORE: AtomicU64 = AtomicU64::new(0);

/// Lower ones stand for something else.
const FIRST_ADDRESS: usize = 4096;
const SIG_ERR: usize = usize::MAX;
/// For `sigset(3)`: the signal is blocked.
const SIG_HOLD: usize = 2;

/// Signals of what an instruction has done end no wait: SIGILL, SIGBUS, SIGFPE, SIGSEGV.
const OF_INSTRUCTIONS: [c_int; 4] = [4, 7, 8, 11];

// A relay finds its handler by where it lies. A handler gets three arguments, and 0 in eax.
global_asm!(
    ".pushsection .text.callpath_relays,\"ax\",@progbits",
    ".hidden callpath_relays",
    ".type callpath_relays,@function",
    ".p2align 4",
    "callpath_relays:",
    ".cfi_startproc",
    ".rept {relays}",
    "lea r8, [rip - 7]",
    "jmp 3f",
    ".p2align 4",
    ".endr",
    "3:",
    "mov rcx, qword ptr [rip + callpath_thread_words@GOTTPOFF]",
    "cmp qword ptr fs:[rcx + {wait}], 0",
    "je 4f",
    "mov qword ptr fs:[rcx + {wait}], {ended}",
    "4:",
    "lea rcx, [rip + callpath_relays]",
    "sub r8, rcx",
    "lea rcx, [rip + {handlers}]",
    // The distance is 16 for each; an entry has 8 bytes.
    "shr r8",
    "jmp qword ptr [rcx + r8]",
    ".cfi_endproc",
    ".size callpath_relays, . - callpath_relays",
    ".popsection",
    relays = const RELAYS,
    wait = const Word::Wait as usize,
    ended = const waits::ENDED,
    handlers = sym HANDLERS,
);

unsafe extern "C" {
    /// The first relay's first byte.
    static callpath_relays: u8;
}

fn first_relay() -> usize {
    &raw const callpath_relays as usize
}

/// The handler that a relay leads to; any other address is a handler itself.
fn behind(address: usize) -> usize {
    let distance = address.wrapping_sub(first_relay());
    let handler = HANDLERS.get(distance / RELAY_BYTES).filter(|_| distance.is_multiple_of(RELAY_BYTES));
    handler.map_or(address, |handler| handler.load(Relaxed))
}

/// What the kernel gets for a handler of a signal.
fn in_front_of(signal: c_int, handler: usize) -> usize {
    let is_handler = (FIRST_ADDRESS..SIG_ERR).contains(&handler);
    if !is_handler || OF_INSTRUCTIONS.contains(&signal) || part::process().is_none() || !signal::is_taken() {
        return handler;
    }
    // It may know a relay by a call that is not ours.
    let handler = behind(handler);
    let leads_to = |relay: &AtomicUsize| {
        relay.load(Relaxed) == handler
            || relay.load(Relaxed) == 0
                && relay.compare_exchange(0, handler, Relaxed, Relaxed).map_or_else(|other| other == handler, |_| true)
    };
    HANDLERS.iter().position(leads_to).map_or(handler, |number| first_relay() + number * RELAY_BYTES)
}

/// Of a signal, in a mask of all; 0 for what is no signal.
fn bit(signal: c_int) -> u64 {
    let number = signal.checked_sub(1).and_then(|number| u32::try_from(number).ok());
    number.and_then(|number| 1u64.checked_shl(number)).unwrap_or(0)
}

type Signal = unsafe extern "C" fn(c_int, usize) -> usize;

/// Whether an action of this signal is kept here, and never reaches the kernel.
fn is_kept(signal: c_int) -> bool {
    signal == SIGTRAP && part::process().is_some() && signal::is_taken()
}

/// One of the functions that set a handler, and for SIGTRAP the flags that they set with it.
fn set(next: &Next<Signal>, flags: usize) -> usize {
    let (signal, handler) = next.arguments();
    if is_kept(signal) {
        return signal::change(Some(signal::Action { handler, flags, mask: 0 })).handler;
    }
    MASKS_WITH_MORE.fetch_and(!bit(signal), Relaxed);
    // SAFETY: the program's own arguments, or a relay to its handler.
    behind(unsafe { (next.real)(signal, in_front_of(signal, handler)) })
}

/// As BSD has it: calls are restarted.
const BSD: usize = SA_RESTART as usize;
/// As System V has it: SA_RESETHAND and SA_NODEFER.
const SYSTEM_V: usize = 0x8000_0000 | 0x4000_0000;

type Change = unsafe extern "C" fn(c_int, *const Sigaction, *mut Sigaction) -> c_int;

/// `sigaction(2)` as the program sees it.
fn change(next: &Next<Change>) -> c_int {
    let (signal, new, old) = next.arguments();
    // SAFETY: the program vouches that it is null or points to an action.
    let wanted = unsafe { new.as_ref() };
    // The old action may be written to the same place.
    let wanted_mask = wanted.map(|wanted| wanted.mask[0]);
    // SAFETY: the program vouches that it is null or a place for an action.
    let old_action = || unsafe { old.as_mut() };
    if is_kept(signal) {
        let before = signal::change(wanted.map(signal::Action::of));
        if let Some(old) = old_action() {
            *old = before.for_program();
        }
        return 0;
    }
    let is_ours = part::process().is_some() && signal::is_taken();
    let passed = wanted.map(|wanted| {
        let mut passed = Sigaction { handler: in_front_of(signal, wanted.handler), ..*wanted };
        if is_ours && let Some(mask) = passed.mask.first_mut() {
            *mask = masks::in_action(*mask);
        }
        passed
    });
    let bit = bit(signal);
    let had_more = MASKS_WITH_MORE.load(Relaxed) & bit != 0;
    // SAFETY: null or an action of this frame's, with the program's handler or a relay to it; and its own place.
    let result = unsafe { (next.real)(signal, passed.as_ref().map_or(core::ptr::null(), core::ptr::from_ref), old) };
    if result == 0
        && let Some(old) = old_action()
    {
        old.handler = behind(old.handler);
        if had_more && let Some(mask) = old.mask.first_mut() {
            *mask |= masks::STANDS_IN;
        }
    }
    if result == 0
        && let Some((passed, wanted)) = passed.zip(wanted_mask)
    {
        match passed.mask.first() == Some(&wanted) {
            true => MASKS_WITH_MORE.fetch_and(!bit, Relaxed),
            false => MASKS_WITH_MORE.fetch_or(bit, Relaxed),
        };
    }
    result
}

hook! {
    /// `sigaction(2)`
    fn sigaction(signal: c_int, new: *const Sigaction, old: *mut Sigaction) -> c_int, or -1;
    |next| change(&next)

    /// Another name of it.
    fn __sigaction(signal: c_int, new: *const Sigaction, old: *mut Sigaction) -> c_int, or -1;
    |next| change(&next)

    /// `signal(2)`
    fn signal(signal: c_int, handler: usize) -> usize, or SIG_ERR;
    |next| set(&next, BSD)

    /// `bsd_signal(3)`
    fn bsd_signal(signal: c_int, handler: usize) -> usize, or SIG_ERR;
    |next| set(&next, BSD)

    /// Another name of it.
    fn ssignal(signal: c_int, handler: usize) -> usize, or SIG_ERR;
    |next| set(&next, BSD)

    /// `sysv_signal(3)`
    fn sysv_signal(signal: c_int, handler: usize) -> usize, or SIG_ERR;
    |next| set(&next, SYSTEM_V)

    /// What `signal` is where the standard's names alone are asked for.
    fn __sysv_signal(signal: c_int, handler: usize) -> usize, or SIG_ERR;
    |next| set(&next, SYSTEM_V)

    /// `sigset(3)`: it also blocks or unblocks the signal, and says whether it was blocked.
    fn sigset(signal: c_int, handler: usize) -> usize, or SIG_ERR;
    |next| {
        if !is_kept(signal) {
            return set(&next, 0);
        }
        let holds = handler == SIG_HOLD;
        let before = signal::change((!holds).then_some(signal::Action { handler, flags: 0, mask: 0 })).handler;
        if masks::change_trap(holds) { SIG_HOLD } else { before }
    }

    /// `sigignore(3)`
    fn sigignore(signal: c_int) -> c_int, or -1;
    |next| {
        if !is_kept(signal) {
            return next.original();
        }
        signal::change(Some(signal::Action { handler: SIG_IGN, flags: 0, mask: 0 }));
        0
    }

    /// `sighold(3)`
    fn sighold(signal: c_int) -> c_int, or -1;
    |next| {
        if !is_kept(signal) {
            return next.original();
        }
        masks::change_trap(true);
        0
    }

    /// `sigrelse(3)`
    fn sigrelse(signal: c_int) -> c_int, or -1;
    |next| {
        if !is_kept(signal) {
            return next.original();
        }
        masks::change_trap(false);
        0
    }

    /// `siginterrupt(3)`
    fn siginterrupt(signal: c_int, interrupts: c_int) -> c_int, or -1;
    |next| {
        if !is_kept(signal) {
            return next.original();
        }
        let mut action = signal::change(None);
        action.flags = if interrupts != 0 { action.flags & !BSD } else { action.flags | BSD };
        signal::change(Some(action));
        0
    }
}
