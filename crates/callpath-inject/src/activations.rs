//! A thread's stack of activations of probed procedures. What was left by longjmp, an exception or a switch of stacks
//! is found by the stack pointer.

use callpath_collect::{Thread, clock};
use callpath_format::shared::probe::{Activation, Area};
use core::arch::asm;
use core::sync::atomic::Ordering::Relaxed;

/// Stacks that are not the thread's own are taken for one if they lie no farther apart, bytes.
const SAME_STACK_BYTES: u64 = 256 << 10;

/// Adds to a value by one instruction, so that no signal comes in between.
///
/// # Safety
/// A node's value must be there.
unsafe fn add(value: *mut u64, amount: u64) {
    // SAFETY: the caller vouches for the place.
    unsafe { asm!("add qword ptr [{}], {}", in(reg) value, in(reg) amount, options(nostack)) };
}

/// Counts a call.
///
/// # Safety
/// `values` must be the address of a node's values.
pub unsafe fn count(values: u64) {
    // SAFETY: calls are the first metric.
    unsafe { add(values as *mut u64, 1) };
}

/// The activations of the calling thread.
pub struct Activations<'a> {
    area: &'a mut Area,
    stack: [u64; 2],
}

impl<'a> Activations<'a> {
    /// # Safety
    /// The area must be the calling thread's.
    pub unsafe fn of(area: *mut Area, thread: &Thread<'_>) -> Activations<'a> {
        let stack = thread.record.stack.each_ref().map(|bound| bound.load(Relaxed));
        // SAFETY: the caller vouches for the area.
        Activations { area: unsafe { &mut *area }, stack }
    }

    /// The index of the uppermost one.
    fn top(&self) -> usize {
        (self.area.top.saturating_sub(self.area.activations.as_ptr() as u64)) as usize / size_of::<Activation>()
    }

    fn set_top(&mut self, top: usize) {
        self.area.top = self.area.activations.as_ptr() as u64 + (top * size_of::<Activation>()) as u64;
    }

    /// Whether an activation was left, seen from a stack pointer: it is on the same stack, and not outwards of that.
    fn is_left(&self, activation: &Activation, rsp: u64) -> bool {
        let [low, high] = self.stack;
        let is_own = |at: u64| low.saturating_sub(64 << 20) <= at && at < high;
        let same = is_own(activation.rsp) == is_own(rsp)
            && (is_own(rsp) || activation.rsp.abs_diff(rsp) < SAME_STACK_BYTES);
        same && activation.rsp <= rsp
    }

    /// Ends the uppermost one now.
    fn end(&mut self, now: u64) {
        let top = self.top();
        let Some(ended) = self.area.activations.get(top).copied() else { return };
        let Some(below) = top.checked_sub(1) else { return };
        self.set_top(below);
        let took = now.saturating_sub(ended.began);
        if let Some(caller) = self.area.activations.get_mut(below) {
            caller.callees = caller.callees.wrapping_add(took);
        }
        if ended.values != 0 {
            // SAFETY: the values of a node, as it was entered; time is the second metric.
            unsafe { add((ended.values as *mut u64).wrapping_add(1), took.saturating_sub(ended.callees)) };
        }
    }

    /// Ends those that were left without an exit.
    fn end_left(&mut self, rsp: u64, now: u64) {
        while let Some(top) = self.area.activations.get(self.top()).copied() {
            if self.top() == 0 || !self.is_left(&top, rsp) {
                break;
            }
            self.end(now);
        }
    }

    /// One begins. Beyond [`Activation::MOST`] they are not followed.
    pub fn enter(&mut self, rsp: u64, values: u64) {
        let now = clock::ticks();
        self.end_left(rsp, now);
        let next = self.top() + 1;
        if let Some(place) = self.area.activations.get_mut(next) {
            *place = Activation { rsp, values, began: now, callees: 0 };
            self.set_top(next);
        }
    }

    /// One ends by an exit. `false`: none that is known does.
    pub fn leave(&mut self, rsp: u64) -> bool {
        let now = clock::ticks();
        // Those inwards of it on the same stack have been left.
        self.end_left(rsp.wrapping_sub(1), now);
        let top = self.top();
        let Some(found) = self.area.activations.get(1..=top).and_then(|all| all.iter().rposition(|a| a.rsp == rsp))
        else {
            return false;
        };
        // Those above it are on other stacks, and go on: it is taken to the top, one by one.
        let mut at = found + 1;
        while at < top {
            let Some([below, above]) = self.area.activations.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) else {
                break;
            };
            core::mem::swap(below, above);
            at += 1;
        }
        self.end(now);
        true
    }
}
