//! Activations that are left without an exit: where it is known at once, hidden probes end them. A program that asks for its
//! context would else be told one that it has left, as long as it stays inwards of that.

use core::arch::asm;

use crate::activations::Activations;
use crate::areas;
use crate::hit::Saved;
use crate::undisturbed::Undisturbed;

/// Where a `jmp_buf` has the stack pointer, bytes: of glibc and musl.
const STACK_POINTER_AT: u64 = 48;
/// By so many bits glibc rotates it (PTR_MANGLE of x86-64).
const ROTATED_BITS: u32 = 17;

/// `callpath_jump`: `longjmp` is entered, whose first argument says where it leads.
pub unsafe extern "C" fn jumps(saved: &Saved) {
    let [buffer, ..] = saved.arguments();
    let here = saved.rsp_at_exit();
    // SAFETY: the caller of longjmp vouches for its buffer.
    let kept = unsafe { (buffer.wrapping_add(STACK_POINTER_AT) as *const u64).read_unaligned() };
    let guard: u64;
    // SAFETY: the word is in the C library's control block of the thread; another library than glibc has something else
    // there.
    unsafe { asm!("mov {}, qword ptr fs:[48]", out(reg) guard, options(nostack, readonly, preserves_flags)) };
    let demangled = kept.rotate_right(ROTATED_BITS) ^ guard;
    /// No frame lies farther outwards.
    const LONGEST: u64 = 1 << 30;
    let is_outwards = |rsp: &u64| here < *rsp && rsp.wrapping_sub(here) < LONGEST && rsp.is_multiple_of(8);
    // A jump from one stack to another leaves nothing of the one that is known here.
    if let Some(rsp) = [demangled, kept].into_iter().find(is_outwards) {
        end_left(rsp);
    }
}

/// `callpath_catch`: an exception is caught by the caller of this function.
pub unsafe extern "C" fn catches(saved: &Saved) {
    end_left(saved.rsp_at_exit());
}

fn end_left(rsp: u64) {
    // Nothing is active in a thread that is not known.
    let Some((_, thread, area)) = areas::known() else { return };
    let _undisturbed = Undisturbed::begin();
    // SAFETY: the calling thread's own.
    unsafe { Activations::of(area, &thread) }.end_left_at(rsp);
}
