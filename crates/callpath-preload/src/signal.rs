//! SIGTRAP: ours for samples, and still the program's as far as the program can see.
//! What a sample does is callpath-collect's.

use callpath_collect::syscall::{call4, getpid, gettid};
use callpath_collect::{EventOf, Interrupted, Thread, Trigger, take};
use callpath_format::shared::{ArenaRef, Dropped, Session, Settings};
use core::ffi::{c_int, c_ulong, c_void};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};

use crate::hook::{Procedure, hook};
use crate::info::{Context, Info, SI_TIMER, TRAP_PERF};
use crate::libc::{
    KernelSigaction, SA_ONSTACK, SA_RESTART, SA_RESTORER, SA_SIGINFO, SIG_DFL, SIG_IGN, SIGTRAP, Sigaction,
    syscall_number,
};
use crate::tls::{self, Word};
use crate::{masks, part, sends, waits};

/// What the program wants done with its own SIGTRAP: handler, flags, mask.
static PROGRAMS_HANDLER: AtomicUsize = AtomicUsize::new(SIG_DFL);
static PROGRAMS_FLAGS: AtomicUsize = AtomicUsize::new(0);
static PROGRAMS_MASK: AtomicU64 = AtomicU64::new(0);

/// After this many of a timer's samples, the process checks whether the recorder still runs.
const LOOK_AFTER: u32 = 1024;
static TICKS: AtomicU32 = AtomicU32::new(0);

/// Whether samples may run on the program's alternate stacks.
static ON_ALTERNATE_STACK: AtomicBool = AtomicBool::new(true);

/// The smallest alternate stack that a sample fits on, bytes: the kernel's frame with AVX-512, and the walk.
const LEAST_ALTERNATE_BYTES: usize = 8192;

/// Our own action.
fn ours() -> KernelSigaction {
    let on_stack = if ON_ALTERNATE_STACK.load(Relaxed) { SA_ONSTACK } else { 0 };
    KernelSigaction {
        handler: handle as *const () as usize,
        flags: SA_SIGINFO | on_stack | SA_RESTART | SA_RESTORER,
        restorer: restore as *const () as usize,
        mask: u64::MAX,
    }
}

/// Samples come by SIGTRAP. Where nothing is sampled, it stays the program's.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// Whether the program itself ignores SIGTRAP.
pub fn is_ignored_by_program() -> bool {
    PROGRAMS_HANDLER.load(Relaxed) == SIG_IGN
}

/// The program that executed this one did not ignore SIGTRAP; only we did, in between.
pub fn was_default() {
    if is_ignored_by_program() {
        PROGRAMS_HANDLER.store(SIG_DFL, Relaxed);
    }
}

/// Ignores SIGTRAP.
pub fn ignore() {
    if !is_taken() {
        return;
    }
    let ignored =
        KernelSigaction { handler: SIG_IGN, flags: SA_RESTORER, restorer: restore as *const () as usize, mask: 0 };
    exchange(Some(&ignored));
}

/// Takes SIGTRAP back.
pub fn take_back() {
    if !is_taken() {
        return;
    }
    exchange(Some(&ours()));
}

/// Gives SIGTRAP back to the program, with what it wants done with it.
pub fn give_back() {
    if !is_taken() {
        return;
    }
    let programs = KernelSigaction {
        handler: PROGRAMS_HANDLER.load(Relaxed),
        flags: PROGRAMS_FLAGS.load(Relaxed) as c_ulong | SA_RESTORER,
        restorer: restore as *const () as usize,
        mask: PROGRAMS_MASK.load(Relaxed),
    };
    exchange(Some(&programs));
    masks::give_back();
}

/// Whether SIGTRAP is ours.
pub fn is_taken() -> bool {
    IS_TAKEN.load(Relaxed)
}

/// Takes SIGTRAP over, if samples come by it. `false`: the kernel did not let us.
pub fn install(settings: &Settings) -> bool {
    if settings.calls_are_samples() {
        return true;
    }
    IS_TAKEN.store(true, Relaxed);
    let Some(before) = exchange(Some(&ours())) else { return false };
    PROGRAMS_HANDLER.store(before.handler, Relaxed);
    PROGRAMS_FLAGS.store(before.flags as usize, Relaxed);
    PROGRAMS_MASK.store(before.mask, Relaxed);
    // An inherited mask with SIGTRAP blocked would hold back all samples. The program still sees it blocked.
    masks::adopt();
    true
}

fn exchange(new: Option<&KernelSigaction>) -> Option<KernelSigaction> {
    let mut before = KernelSigaction { handler: 0, flags: 0, restorer: 0, mask: 0 };
    let new = new.map_or(0, |n| core::ptr::from_ref(n) as usize);
    let before_at = core::ptr::from_mut(&mut before) as usize;
    // SAFETY: both are of the kernel's layout; the new handler is async-signal-safe.
    let result = unsafe { call4(syscall_number::RT_SIGACTION, [SIGTRAP as usize, new, before_at, 8]) };
    (result == 0).then_some(before)
}

#[unsafe(naked)]
unsafe extern "C" fn restore() {
    core::arch::naked_asm!("mov eax, 15", "syscall")
}

unsafe extern "C" fn handle(_signal: c_int, info: *const Info, context: *mut Context) {
    const TRAP_PERF_ASYNC: u32 = 1;
    /// `si_code` of a SIGTRAP for which the processor gave no reason. The kernel takes that for the instruction `int1`; but breakpoint events in virtual
    /// machines cause it, too, when a thread is switched to. The instruction is then executed, and counted, again.
    const TRAP_BRKPT: i32 = 1;
    // SAFETY: the kernel passes both to a handler with SA_SIGINFO.
    let (info, context) = unsafe { (&*info, &mut *context) };
    let event = part::process().and_then(|p| EventOf::from_signal(info.value, p.session.columns));
    let trigger = match info.code {
        TRAP_PERF => match event {
            Some(event) if info.perf_flags & TRAP_PERF_ASYNC != 0 => Some(Trigger::KernelLate(event)),
            Some(event) => Some(Trigger::Kernel(event)),
            // An event of the program; or one of ours, after this process has left the measurement.
            None if part::process().is_some() => return programs_own(info, context),
            None => None,
        },
        SI_TIMER => Some(Trigger::Timer),
        Session::ASKED if part::process().is_none_or(|p| p.session.nonce == info.value) => Some(Trigger::Asked),
        TRAP_BRKPT if !context.is_at_int1() => None,
        _ => return programs_own(info, context),
    };
    if let Some(trigger) = trigger {
        sampled(trigger, context);
    }
    // As late as can be: what the program is sent until now ends the wait.
    may_wait_on(context);
    // It may have come in the place of a signal of the program's.
    if sends::take() {
        deliver(&sends::by_thread(), context);
    }
}

/// A SIGTRAP that is not ours.
fn programs_own(info: &Info, context: &mut Context) {
    if sends::is_announced(info) {
        if sends::take() {
            // As the program has sent it: without our mark.
            deliver(&Info { sender: info.sender, user: info.user, ..sends::by_thread() }, context);
        } else {
            // A sample came first: the handler was called before the wait began.
            may_wait_on(context);
        }
        return;
    }
    if info.code == sends::SI_TKILL || (info.code == sends::SI_USER && info.sender == 0) {
        // One that was announced may have been one with it; of one without a sender the kernel has lost all but itself.
        sends::take();
    }
    deliver(info, context);
}

/// Delivers a SIGTRAP of the program's to its handler, or keeps it until the program unblocks it.
fn deliver(info: &Info, context: &mut Context) {
    // Where the kernel itself keeps or ignores a signal, it ends no wait.
    if info.code <= 0 && (masks::is_blocked_in(context.mask) && keep_pending(info, context) || is_ignored_by_program())
    {
        return may_wait_on(context);
    }
    waits::ended();
    forward(info, context);
}

/// The program need not know of this signal: if it has ended a wait, that goes on.
fn may_wait_on(context: &Context) {
    if waits::is_waiting() && context.ended_a_wait() {
        waits::sampled();
    }
}

/// Takes a sample of the interrupted thread.
fn sampled(trigger: Trigger, context: &Context) {
    let Some(process) = part::process() else { return };
    let r = &context.registers;
    let interrupted = Interrupted {
        registers: [
            r[13], r[12], r[14], r[11], r[9], r[8], r[10], r[15], r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7],
        ],
        pc: r[16],
    };
    let unrecorded = |reason: Dropped| process.slot.dropped_unrecorded[reason as usize].fetch_add(1, Relaxed);
    let reference = match tls::get(Word::Record) {
        0 if matches!(trigger, Trigger::KernelLate(_)) => {
            // Most likely a thread that is just beginning; its record follows shortly.
            unrecorded(Dropped::Late);
            return;
        }
        0 => {
            // A thread that no hook of ours has seen begin. Its stack's bounds are not known: it will be probed.
            let Some(thread) = Thread::create(process, gettid(), [0; 2], [0; 2]) else {
                unrecorded(Dropped::NoMemory);
                return;
            };
            thread.start_clocks(process);
            tls::set(Word::Record, u64::from(thread.reference().0));
            thread.reference()
        }
        reference => ArenaRef(reference as u32),
    };
    if let Some(thread) = Thread::at(process, reference) {
        let ticks = || TICKS.fetch_add(1, Relaxed);
        if trigger == Trigger::Timer && ticks() % LOOK_AFTER == LOOK_AFTER - 1 && crate::recorder::is_dead() {
            // The kernel's clock ends with the recorder; a timer must be stopped.
            return crate::timer::stop(&thread);
        }
        take(process, thread, trigger, &interrupted);
    }
}

/// A SIGTRAP that was sent to a thread which has blocked it, as the program sees it: the kernel
/// shall keep it until the program unblocks it or waits for it. Until then the thread is not
/// sampled. `false`: the kernel does not take it back.
fn keep_pending(info: &Info, context: &mut Context) -> bool {
    let (process, signal, info_at) = (getpid() as usize, SIGTRAP as usize, core::ptr::from_ref(info) as usize);
    let result = match info.code {
        sends::SI_TKILL => {
            // A sample that waits already stays in its place.
            sends::is_due();
            sends::again()
        }
        // Another thread may have it unblocked. It waits where no sample does. Only the first thread may repeat who
        // sent it. SAFETY: the kernel reads the record that it passed to the handler, whose whole length is there.
        _ => match unsafe { call4(syscall_number::RT_SIGQUEUEINFO, [process, signal, info_at, 0]) } {
            0 => 0,
            // SAFETY: sends a signal to this process.
            _ => unsafe { call4(syscall_number::KILL, [process, signal, 0, 0]) },
        },
    };
    if result == 0 {
        context.mask |= masks::TRAP_BIT;
    }
    result == 0
}

/// A SIGTRAP of the program's own: a breakpoint, or a signal that was sent.
fn forward(info: &Info, context: &Context) {
    const SA_NODEFER: c_ulong = 0x4000_0000;
    const SA_RESETHAND: c_ulong = 0x8000_0000;
    let flags = PROGRAMS_FLAGS.load(Relaxed) as c_ulong;
    let blocked = masks::is_blocked_in(context.mask);
    let handler = match PROGRAMS_HANDLER.load(Relaxed) {
        SIG_DFL | SIG_IGN => return die(),
        // A breakpoint where it is blocked: the kernel does not wait.
        _ if info.code > 0 && blocked => return die(),
        handler => handler,
    };
    if flags & SA_RESETHAND != 0 {
        PROGRAMS_HANDLER.store(SIG_DFL, Relaxed);
    }
    // As the kernel would have it: ours blocks everything.
    let trap = if flags & SA_NODEFER != 0 { 0 } else { masks::TRAP_BIT };
    masks::set_all_in_truth(context.mask | masks::for_kernel(PROGRAMS_MASK.load(Relaxed)) | trap);
    type Handler = unsafe extern "C" fn(c_int, *const Info, *const Context);
    // SAFETY: the program gave it to the kernel as a handler of SIGTRAP. The kernel passes all three to each, whatever flags it has.
    masks::in_handler(|| unsafe { Handler::at(handler)(SIGTRAP, info, context) });
}

/// The kernel's own way of ending the program, with the right status and core.
fn die() {
    let default =
        KernelSigaction { handler: SIG_DFL, flags: SA_RESTORER, restorer: restore as *const () as usize, mask: 0 };
    exchange(Some(&default));
    // SAFETY: sends a signal to the calling thread; it is delivered when this handler returns.
    unsafe { call4(syscall_number::TGKILL, [getpid() as usize, gettid() as usize, SIGTRAP as usize, 0]) };
}

/// What the program wants done with a SIGTRAP of its own.
pub struct Action {
    pub handler: usize,
    pub flags: usize,
    pub mask: u64,
}

impl Action {
    /// As the program has it.
    pub fn of(action: &Sigaction) -> Action {
        Action { handler: action.handler, flags: action.flags as usize, mask: action.mask[0] }
    }

    /// As the program is told.
    pub fn for_program(&self) -> Sigaction {
        let mut mask = [0; 16];
        mask[0] = self.mask;
        Sigaction { handler: self.handler, mask, flags: self.flags as c_int & !(SA_RESTORER as c_int), restorer: 0 }
    }
}

/// Keeps what the program wants done with its own SIGTRAP, and returns what it wanted before.
pub fn change(new: Option<Action>) -> Action {
    let before = Action {
        handler: PROGRAMS_HANDLER.load(Relaxed),
        flags: PROGRAMS_FLAGS.load(Relaxed),
        mask: PROGRAMS_MASK.load(Relaxed),
    };
    if let Some(new) = new {
        PROGRAMS_MASK.store(new.mask, Relaxed);
        PROGRAMS_FLAGS.store(new.flags, Relaxed);
        PROGRAMS_HANDLER.store(new.handler, Relaxed);
    }
    before
}

hook! {
    /// `sigaltstack(2)`: an alternate stack that is too small for a sample is left to the program's own handlers.
    fn sigaltstack(new: *const AlternateStack, old: *mut AlternateStack) -> c_int, or -1;
    |next| {
        const SS_DISABLE: c_int = 2;
        let is_small = |stack: &AlternateStack| stack.flags & SS_DISABLE == 0 && stack.len_bytes < LEAST_ALTERNATE_BYTES;
        // SAFETY: the program vouches that it is null or points to a `stack_t`.
        let small = unsafe { new.as_ref() }.is_some_and(is_small);
        if small && part::own_process().is_some() && ON_ALTERNATE_STACK.swap(false, Relaxed) {
            take_back();
        }
        next.original()
    }
}

/// `stack_t`
#[repr(C)]
pub struct AlternateStack {
    start: *mut c_void,
    flags: c_int,
    len_bytes: usize,
}
