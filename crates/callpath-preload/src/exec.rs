//! Another program in this process: no sample may reach it before it can take one.
//!
//! The kernel removes the clock from a process that executes another program, but a sample that it took inside that
//! system call is delivered afterwards: to a program that has no handler yet, and dies of it. A signal that is ignored
//! stays so through `execve` and is never delivered, so SIGTRAP is ignored from just before the call until our object
//! in the new program takes it over. The process's slot passes on what the old program wanted done with SIGTRAP.
//!
//! A program into which our object will not be loaded would find SIGTRAP
//! ignored. For it the recorder stops the clock first.

use callpath_collect::Process;
use callpath_collect::syscall::getpid;
use callpath_format::shared::unmeasured::Reason;
use callpath_format::shared::{Pause, Source};
use core::ffi::{c_char, c_int};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::environment::{self, Words};
use crate::file::File;
use crate::hook::hook;
use crate::libc::{ENOSYS, failed};
use crate::successor::{self, Named};
use crate::{masks, outside, part, recorder, signal};

/// How long an exec waits for the recorder.
const PATIENCE_NS: u64 = 1_000_000_000;

/// Calls `exec`, which returns only if it fails, with the environment for the new program.
fn around(named: Named, environment: Words, exec: impl FnOnce(Words) -> c_int) -> c_int {
    let Some(process) = part::process() else { return exec(environment) };
    // The child of a vfork has no clock; it must only pass on what the program wants of SIGTRAP.
    let is_own = process.slot.pid.load(Relaxed) == getpid();
    let obstacle = Obstacle::of(process, named, environment);
    let ignored = signal::is_ignored_by_program();
    let is_paused = is_own && obstacle.is_some() && pause(process);
    let is_sampled = obstacle.as_ref().is_some_and(|obstacle| obstacle.can_be_sampled() && outside::from_exec(process));
    if is_sampled {
        obstacle.iter().for_each(|obstacle| obstacle.count(false));
    }
    let ignore = ignored || (is_own && !is_paused);
    if is_own {
        process.slot.trap_default.store(u32::from(!ignored), Relaxed);
    }
    if ignore {
        signal::ignore();
    }
    let result = masks::shown(|| match &obstacle {
        Some(obstacle) if obstacle.is_disturbed_by_us() => environment::without_ours(environment, exec),
        _ => exec(environment),
    });
    if ignore {
        signal::take_back();
    }
    if is_paused {
        go_on(process);
    }
    if let Some(obstacle) = obstacle.filter(|_| !is_sampled) {
        obstacle.withdraw();
    }
    result
}

/// Lets the recorder stop the clock. `false`: it does not answer, and samples may come.
pub fn pause(process: &Process<'_>) -> bool {
    let slot = process.slot;
    match Source::from_u32(slot.source.load(Acquire)) {
        Source::Refused => return true,
        // At an exec the kernel takes back what a timer has sent.
        Source::CpuTimer | Source::WallTimer if !process.session.settings.has_counters() => return true,
        _ => {}
    }
    slot.pause.store(Pause::WANTED, Release);
    process.ring();
    recorder::wait(process, &slot.pause, PATIENCE_NS, |pause| pause == Pause::PAUSED) || recorder::is_dead()
}

/// Lets the recorder start the clock again.
pub fn go_on(process: &Process<'_>) {
    process.slot.pause.store(Pause::OVER, Release);
    process.ring();
}

/// Why a program is not measured, counted in the session.
pub struct Obstacle {
    reason: Reason,
    process: &'static Process<'static>,
    /// The entry in the session; `None`: all were in use.
    entry: Option<usize>,
}

impl Obstacle {
    /// Finds the reason, if any, and counts the program.
    pub fn of(process: &'static Process<'static>, named: Named, environment: Words) -> Option<Obstacle> {
        let reason = successor::obstacle(named, environment)?;
        let entry = process.session.unmeasured.iter().position(|entry| entry.takes(reason, named.name()));
        let obstacle = Obstacle { reason, process, entry };
        obstacle.count(true);
        Some(obstacle)
    }

    /// Whether our entries in its environment would make its loader complain.
    pub fn is_disturbed_by_us(&self) -> bool {
        matches!(self.reason, Reason::OtherMachine | Reason::OutOfReach)
    }

    /// Whether it may be sampled from outside: the kernel takes the events from what gains privileges.
    pub fn can_be_sampled(&self) -> bool {
        !matches!(self.reason, Reason::OtherMachine | Reason::Privileged)
    }

    /// Has the process sampled from outside that runs it.
    pub fn sample_now(&self, pid: u32) {
        outside::from_now(self.process, pid, self.entry);
    }

    /// Takes the count back: the program was not started.
    pub fn withdraw(self) {
        self.count(false);
    }

    fn count(&self, more: bool) {
        let session = self.process.session;
        match self.entry.and_then(|index| session.unmeasured.get(index)) {
            Some(entry) => entry.count(more),
            None if more => drop(session.unmeasured_others.fetch_add(1, AcqRel)),
            None => drop(session.unmeasured_others.fetch_sub(1, AcqRel)),
        }
    }
}

const E2BIG: c_int = 7;

hook! {
    /// `execve(2)`, with SIGTRAP as the new program needs it.
    fn execve(path: *const c_char, arguments: Words, environment: Words) -> c_int, or failed(ENOSYS);
    |next| around(Named::Path(File::HERE, path), environment, |environment| {
        // SAFETY: the program's own arguments; `around` passes its environment or one that lives as long as the call.
        unsafe { (next.real)(path, arguments, environment) }
    })

    /// `execvpe(3)`, with SIGTRAP as the new program needs it.
    fn execvpe(file: *const c_char, arguments: Words, environment: Words) -> c_int, or failed(ENOSYS);
    |next| around(Named::InPath(file), environment, |environment| {
        // SAFETY: as for `execve`.
        unsafe { (next.real)(file, arguments, environment) }
    })

    /// `fexecve(3)`, with SIGTRAP as the new program needs it.
    fn fexecve(descriptor: c_int, arguments: Words, environment: Words) -> c_int, or failed(ENOSYS);
    |next| around(Named::Open(descriptor), environment, |environment| {
        // SAFETY: as for `execve`.
        unsafe { (next.real)(descriptor, arguments, environment) }
    })

    /// `execveat(2)`, with SIGTRAP as the new program needs it.
    fn execveat(
        directory: c_int, path: *const c_char, arguments: Words, environment: Words, flags: c_int
    ) -> c_int, or failed(ENOSYS);
    |next| around(Named::at(directory, path, flags), environment, |environment| {
        // SAFETY: as for `execve`.
        unsafe { (next.real)(directory, path, arguments, environment, flags) }
    })
}

/// `execv(3)`: `execve` with the program's own environment.
///
/// # Safety
/// As for `execv(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execv(path: *const c_char, arguments: Words) -> c_int {
    // SAFETY: the program's own arguments, and its environment as the C library keeps it.
    unsafe { execve(path, arguments, environment::own()) }
}

/// `execvp(3)`: `execvpe` with the program's own environment.
///
/// # Safety
/// As for `execvp(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvp(file: *const c_char, arguments: Words) -> c_int {
    // SAFETY: as in `execv`.
    unsafe { execvpe(file, arguments, environment::own()) }
}

/// The arguments of a variadic call: five from registers, the others from the stack.
struct Variadic {
    registers: *const *const c_char,
    stack: *const *const c_char,
}

/// More arguments than this are not passed on one by one in a source program.
const MOST_WORDS: usize = 1024;

impl Variadic {
    fn get(&self, index: usize) -> *const c_char {
        // SAFETY: five words were spilled; the others are where the caller put them, up to the null pointer that ends
        // them and one more for `execle`, which is all that is asked for.
        unsafe { if index < 5 { *self.registers.add(index) } else { *self.stack.add(index - 5) } }
    }

    /// Collects the words up to the null pointer and calls `exec` with them, and with the word after.
    fn call(&self, exec: impl FnOnce(Words, &dyn Fn() -> Words) -> c_int) -> c_int {
        let mut words = [core::ptr::null(); MOST_WORDS];
        for (index, word) in words.iter_mut().enumerate() {
            *word = self.get(index);
            if word.is_null() {
                return exec(words.as_ptr(), &|| self.get(index + 1).cast());
            }
        }
        failed(E2BIG)
    }
}

macro_rules! variadic {
    ($($name:ident => $collect:ident, |$path:ident, $words:ident, $after:ident| $body:expr;)*) => {$(
        /// The C function of this name. Its arguments are collected into an array for `execve`.
        ///
        /// # Safety
        /// As for the function of this name.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() -> c_int {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "push r9", ".cfi_adjust_cfa_offset 8",
                "push r8", ".cfi_adjust_cfa_offset 8",
                "push rcx", ".cfi_adjust_cfa_offset 8",
                "push rdx", ".cfi_adjust_cfa_offset 8",
                "push rsi", ".cfi_adjust_cfa_offset 8",
                "mov rsi, rsp",
                "lea rdx, [rsp + 48]",
                "call {collect}",
                "add rsp, 40", ".cfi_adjust_cfa_offset -40",
                "ret",
                ".cfi_endproc",
                collect = sym $collect,
            )
        }

        unsafe extern "C" fn $collect(
            $path: *const c_char,
            registers: *const *const c_char,
            stack: *const *const c_char,
        ) -> c_int {
            Variadic { registers, stack }.call(|$words, $after| {
                let _ = $after;
                // SAFETY: the words are the program's own, null-terminated, and outlive the call on its stack and ours.
                unsafe { $body }
            })
        }
    )*};
}

variadic! {
    execl => collect_execl, |path, words, after| execv(path, words);
    execlp => collect_execlp, |path, words, after| execvp(path, words);
    execle => collect_execle, |path, words, after| execve(path, words, after());
}
