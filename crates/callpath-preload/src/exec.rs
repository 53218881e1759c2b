//! Another program in this process: no sample may reach it before it can take one.
//! Knows nothing of environments and arguments.
//!
//! The kernel removes the clock from a process that executes another program, but a sample that it took inside that
//! system call is delivered afterwards: to a program that has no handler yet, and dies of it. A signal that is ignored
//! stays so through `execve` and is never delivered, so SIGTRAP is ignored from just before the call until our object
//! in the new program takes it over. What the program itself had wanted is told to the new one by its slot.

use core::ffi::{c_char, c_int};
use core::sync::atomic::Ordering::Relaxed;

use crate::loader::real;
use crate::{attach, signal};

type Words = *const *const c_char;

/// Calls `exec`, which returns only if it fails.
fn around(exec: impl FnOnce() -> c_int) -> c_int {
    let ignored = signal::is_ignored_by_program();
    let own = attach::own_process();
    if let Some(process) = own {
        process.slot.trap_default.store(u32::from(!ignored), Relaxed);
    }
    // The child of a vfork has no clock; it must only pass on what the program ignores.
    let change = own.is_some() || (ignored && attach::process().is_some());
    if change {
        signal::ignore();
    }
    let result = exec();
    if change {
        signal::take_back();
    }
    result
}

fn failed(error: c_int) -> c_int {
    if let Some(location) = real!(c"__errno_location") {
        // SAFETY: `__errno_location` of the C library gives the place of the calling thread's errno.
        unsafe {
            let location: extern "C" fn() -> *mut c_int = core::mem::transmute(location);
            *location() = error;
        }
    }
    -1
}

const ENOSYS: c_int = 38;
const E2BIG: c_int = 7;

macro_rules! wrap {
    ($($name:ident($($arg:ident: $ty:ty),*);)*) => {$(
        /// The function of this name, with SIGTRAP ignored in between.
        ///
        /// # Safety
        /// As for the function of this name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> c_int {
            const NAME: &core::ffi::CStr =
                match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => c"",
                };
            let Some(address) = real!(NAME) else { return failed(ENOSYS) };
            // SAFETY: the C library's function of this name has this type.
            let real: unsafe extern "C" fn($($ty),*) -> c_int = unsafe { core::mem::transmute(address) };
            // SAFETY: the caller's own arguments.
            around(|| unsafe { real($($arg),*) })
        }
    )*};
}

wrap! {
    execve(path: *const c_char, arguments: Words, environment: Words);
    execv(path: *const c_char, arguments: Words);
    execvp(file: *const c_char, arguments: Words);
    execvpe(file: *const c_char, arguments: Words, environment: Words);
    fexecve(descriptor: c_int, arguments: Words, environment: Words);
    execveat(directory: c_int, path: *const c_char, arguments: Words, environment: Words, flags: c_int);
}

/// The words of a variadic call: five from registers, the others from the stack.
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
        /// The function of this name: its arguments are collected as `execve` wants them.
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
                // SAFETY: the caller's own arguments.
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
