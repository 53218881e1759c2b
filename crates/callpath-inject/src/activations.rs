//! A thread's activations of probed procedures. What was left by longjmp or an exception is found by the stack pointer.
//!
//! A thread may turn from one stack to another and back (coroutines). Activations of one stack are a group, which begins
//! with a mark; an activation's time is taken off that of the one before it in its group only.

use callpath_collect::{Thread, clock};
use callpath_format::shared::probe::{Activation, Area};
use core::arch::asm;
use core::sync::atomic::Ordering::Relaxed;

/// A signal stack of the program's may lie anywhere, and its outermost frame is that of the stack that was interrupted:
/// places that are not on the thread's own stack are on one stack if they lie no farther apart, bytes.
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

/// The activations of the calling thread, which no signal interrupts.
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

    fn at(&self, index: usize) -> Activation {
        self.area.activations.get(index).copied().unwrap_or(Activation::mark(0))
    }

    fn put(&mut self, index: usize, activation: Activation) -> bool {
        let place = self.area.activations.get_mut(index);
        place.map(|place| *place = activation).is_some()
    }

    /// Whether an activation was left, seen from a stack pointer: it is on the same stack, and not outwards of that.
    fn is_left(&self, activation: &Activation, rsp: u64) -> bool {
        let [low, high] = self.stack;
        let is_own = |at: u64| low.saturating_sub(64 << 20) <= at && at < high;
        let same =
            is_own(activation.rsp) == is_own(rsp) && (is_own(rsp) || activation.rsp.abs_diff(rsp) < SAME_STACK_BYTES);
        same && activation.rsp <= rsp
    }

    /// Ends the uppermost one now.
    fn end(&mut self, now: u64) {
        let top = self.top();
        let Some(below) = top.checked_sub(1) else { return };
        let ended = self.at(top);
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
        loop {
            let top = self.at(self.top());
            if top.rsp == Activation::MARK || !self.is_left(&top, rsp) {
                break;
            }
            self.end(now);
        }
    }

    /// Takes the group of a stack to the top, or begins it. `false`: there is no room.
    fn turn_to(&mut self, base: u64) -> bool {
        let top = self.top();
        if top > 0 && self.at(top).rsp == Activation::MARK && self.at(top).base != base {
            // Nothing is active on the stack that was left.
            self.set_top(top - 1);
        }
        let top = self.top();
        if self.at(top).base == base {
            return true;
        }
        let Some(last) = (1..top).rev().find(|index| self.at(*index).base == base) else {
            if top + 1 >= Activation::MOST {
                self.forget_a_stack();
            }
            let top = self.top() + 1;
            let is_put = self.put(top, Activation::mark(base));
            if is_put {
                self.set_top(top);
            }
            return is_put;
        };
        let first = (1..last).rev().find(|index| self.at(*index).base != base).map_or(1, |before| before + 1);
        // It changes places with those above it.
        self.reverse(first, last);
        self.reverse(last + 1, top);
        self.reverse(first, top);
        true
    }

    fn reverse(&mut self, mut first: usize, mut last: usize) {
        while first < last {
            let (a, b) = (self.at(first), self.at(last));
            self.put(first, b);
            self.put(last, a);
            first += 1;
            last -= 1;
        }
    }

    /// Forgets the activations of the stack that was left the longest ago: it may be gone.
    fn forget_a_stack(&mut self) {
        let (top, base) = (self.top(), self.at(1).base);
        let Some(next) = (1..=top).find(|index| self.at(*index).base != base) else { return };
        for index in next..=top {
            self.put(index + 1 - next, self.at(index));
        }
        self.set_top(top + 1 - next);
    }

    /// One begins on the stack with this base; 0: on the one that the last one began on. Beyond [`Activation::MOST`] they
    /// are not followed.
    pub fn enter(&mut self, rsp: u64, values: u64, base: u64) {
        let now = clock::ticks();
        if base != 0 && !self.turn_to(base) {
            return;
        }
        self.end_left(rsp, now);
        let (next, base) = (self.top() + 1, self.at(self.top()).base);
        if self.put(next, Activation { rsp, values, began: now, callees: 0, base }) {
            self.set_top(next);
        }
    }

    /// One ends by an exit. `false`: none that is known does.
    pub fn leave(&mut self, rsp: u64) -> bool {
        let now = clock::ticks();
        let Some(base) = self.find(rsp).map(|found| self.at(found).base) else { return false };
        if !self.turn_to(base) {
            return false;
        }
        // Those inwards of it on the same stack have been left.
        self.end_left(rsp.wrapping_sub(1), now);
        let Some(found) = self.find(rsp) else { return false };
        // Those above it go on, on a stack that has the same outermost frame: it is taken to the top.
        let (top, ending) = (self.top(), self.at(found));
        for index in found..top {
            self.put(index, self.at(index + 1));
        }
        self.put(top, ending);
        self.end(now);
        true
    }

    /// The index of the one that was entered with this stack pointer.
    fn find(&self, rsp: u64) -> Option<usize> {
        (1..=self.top()).rev().find(|index| self.at(*index).rsp == rsp)
    }
}
