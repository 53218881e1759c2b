//! The program's handlers of signals: a wait that a sample has interrupted must know whether one of them has run.
//!
//! Nothing of the kernel's says so. A sample may come just when the program's handler has returned, and then finds the
//! thread as the handler did: behind a system call that has failed with EINTR. So where a wait can be interrupted by
//! samples, the kernel is given [`relay`] in the place of a handler. It tells the wait, and jumps to the handler with all
//! that the kernel has passed. The program sees its own handlers when it asks. Of handlers that it installs by its own
//! system call instruction nothing is known.

use core::ffi::c_int;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

use crate::hook::{Next, hook};
use crate::libc::{SA_RESTART, SIGTRAP, Sigaction};
use crate::tls::Word;
use crate::{part, signal, waits};

/// How many signals there are, and no signal 0.
const SIGNALS: usize = 65;

/// By signal: the program's handler, where the kernel has [`relay`].
static HANDLERS: [AtomicUsize; SIGNALS] = [const { AtomicUsize::new(0) }; SIGNALS];

/// Lower ones stand for something else: SIG_DFL, SIG_IGN, and SIG_HOLD of `sigset(3)`.
const FIRST_ADDRESS: usize = 4096;
const SIG_ERR: usize = usize::MAX;

/// Signals of what an instruction has done end no wait: SIGILL, SIGBUS, SIGFPE, SIGSEGV.
const OF_INSTRUCTIONS: [c_int; 4] = [4, 7, 8, 11];

/// What the kernel calls: notes that a handler has run, and jumps to it. A handler gets three arguments, and 0 in eax.
#[unsafe(naked)]
unsafe extern "C" fn relay() {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "mov rcx, qword ptr [rip + callpath_thread_words@GOTTPOFF]",
        "cmp qword ptr fs:[rcx + {wait}], 0",
        "je 2f",
        "mov qword ptr fs:[rcx + {wait}], {ended}",
        "2:",
        "lea rcx, [rip + {handlers}]",
        "movsxd r8, edi",
        "jmp qword ptr [rcx + 8*r8]",
        ".cfi_endproc",
        wait = const Word::Wait as usize,
        ended = const waits::ENDED,
        handlers = sym HANDLERS,
    )
}

fn relay_address() -> usize {
    relay as *const () as usize
}

/// What the kernel is asked to do for one signal.
struct Change {
    signal: c_int,
    /// The program's handler before, if the kernel has `relay`.
    before: usize,
    /// What the kernel gets.
    passed: usize,
}

impl Change {
    /// To `handler`; `None`: the program only asks.
    fn to(signal: c_int, handler: Option<usize>) -> Change {
        let own = usize::try_from(signal).ok().and_then(|signal| HANDLERS.get(signal));
        let before = own.map_or(0, |own| own.load(Relaxed));
        let handler = handler.unwrap_or(0);
        // The memory of a vfork's child is its parent's, whose handlers stay.
        let is_relayed = (FIRST_ADDRESS..SIG_ERR).contains(&handler)
            && !OF_INSTRUCTIONS.contains(&signal)
            && signal::is_taken()
            && part::own_process().is_some();
        match own.filter(|_| is_relayed) {
            Some(own) => {
                // It may know our address from a call that is not ours.
                if handler != relay_address() {
                    own.store(handler, Relaxed);
                }
                Change { signal, before, passed: relay_address() }
            }
            None => Change { signal, before, passed: handler },
        }
    }

    /// The kernel refuses it.
    fn take_back(&self) {
        if self.passed == relay_address()
            && let Some(own) = usize::try_from(self.signal).ok().and_then(|signal| HANDLERS.get(signal))
        {
            own.store(self.before, Relaxed);
        }
    }

    /// The handler before, as the program knows it.
    fn old(&self, reported: usize) -> usize {
        if reported == relay_address() { self.before } else { reported }
    }
}

type Signal = unsafe extern "C" fn(c_int, usize) -> usize;

/// One of the functions that set a handler, and for SIGTRAP the flags that they set with it.
fn set(next: &Next<Signal>, flags: usize) -> usize {
    let (signal, handler) = next.arguments();
    if signal == SIGTRAP && part::process().is_some() && signal::is_taken() {
        return signal::change(Some(signal::Action { handler, flags, mask: 0 })).handler;
    }
    let change = Change::to(signal, Some(handler));
    // SAFETY: the program's own arguments, or a handler that jumps to its own.
    let old = unsafe { (next.real)(signal, change.passed) };
    if old == SIG_ERR {
        change.take_back();
    }
    change.old(old)
}

/// As BSD has it: calls are restarted.
const BSD: usize = SA_RESTART as usize;
/// As System V has it: SA_RESETHAND and SA_NODEFER.
const SYSTEM_V: usize = 0x8000_0000 | 0x4000_0000;

hook! {
    /// `sigaction(2)` as the program sees it: SIGTRAP's action is kept and given back, and never reaches the kernel.
    fn sigaction(signal: c_int, new: *const Sigaction, old: *mut Sigaction) -> c_int, or -1;
    |next| {
        // SAFETY: the program vouches that it is null or points to an action.
        let wanted = unsafe { new.as_ref() };
        // SAFETY: the program vouches that it is null or a place for an action.
        let old_action = || unsafe { old.as_mut() };
        if signal == SIGTRAP && part::process().is_some() && signal::is_taken() {
            let before = signal::change(wanted.map(signal::Action::of));
            if let Some(old) = old_action() {
                *old = before.for_program();
            }
            return 0;
        }
        let change = Change::to(signal, wanted.map(|wanted| wanted.handler));
        let passed = wanted.map(|wanted| Sigaction { handler: change.passed, ..*wanted });
        // SAFETY: null or an action of this frame's, with the program's handler or one that jumps to it; and its own place.
        let result = unsafe { (next.real)(signal, passed.as_ref().map_or(core::ptr::null(), core::ptr::from_ref), old) };
        if result != 0 {
            change.take_back();
        } else if let Some(old) = old_action() {
            old.handler = change.old(old.handler);
        }
        result
    }

    /// `signal(2)` as the program sees it.
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
}
