//! A thread's activations of probed procedures. What was left by longjmp or an exception is found by the stack pointer.
//!
//! A thread may turn from one stack to another and back (coroutines). Activations of one stack are a group, which begins
//! with a mark; an activation's time is taken off that of the one before it in its group only.

use callpath_collect::{Thread, clock};
use callpath_format::shared::probe::{Activation, Area, Reading};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::compiler_fence;

use crate::gauges::{self, Clocks, Ended};
use crate::wait;

/// A signal stack of the program's may lie anywhere, and its outermost frame is that of the stack that was interrupted:
/// places that are not on the thread's own stack are on one stack if they lie no farther apart, bytes.
pub const SAME_STACK_BYTES: u64 = 256 << 10;

/// A call that has been entered.
pub struct Entered {
    /// The stack pointer there.
    pub rsp: u64,
    /// Its context's values; 0: it counts nowhere.
    pub values: u64,
    /// The stack that it is on; 0: the one that the last one began on.
    pub base: u64,
    /// What was read of clocks.
    pub reading: Reading,
    /// When it began is noted.
    pub is_timed: bool,
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

    fn reading(&self, index: usize) -> Reading {
        self.area.readings.get(index).copied().unwrap_or(Reading::NONE)
    }

    fn put_reading(&mut self, index: usize, reading: Reading) {
        if let Some(place) = self.area.readings.get_mut(index) {
            *place = reading;
        }
    }

    /// Whether a place is on the thread's own stack.
    fn is_own(&self, at: u64) -> bool {
        let [low, high] = self.stack;
        low.saturating_sub(64 << 20) <= at && at < high
    }

    /// Whether an activation is on the stack that this stack pointer is on.
    fn is_on_stack(&self, activation: &Activation, rsp: u64) -> bool {
        let is_own = self.is_own(rsp);
        self.is_own(activation.rsp) == is_own && (is_own || activation.rsp.abs_diff(rsp) < SAME_STACK_BYTES)
    }

    /// Whether an activation was left, seen from a stack pointer: it is on the same stack, and not outwards of that.
    fn is_left(&self, activation: &Activation, rsp: u64) -> bool {
        self.is_on_stack(activation, rsp) && activation.rsp <= rsp
    }

    /// The values of the innermost one outwards of a stack pointer, on its stack. A handler on a stack of its own, on which
    /// nothing was entered, is in what it has interrupted. 0: nothing is active.
    pub fn innermost(&self, rsp: u64) -> u64 {
        let all = || (1..=self.top()).rev().map(|index| self.at(index)).filter(|one| one.rsp != Activation::MARK);
        let outwards = all().find(|one| self.is_on_stack(one, rsp) && one.rsp > rsp);
        let interrupted = || if self.is_own(rsp) { None } else { all().find(|one| !self.is_left(one, rsp)) };
        outwards.or_else(interrupted).map_or(0, |one| one.values)
    }

    /// Ends the uppermost one now; the thread is at `rsp`.
    fn end(&mut self, rsp: u64, clocks: &mut Clocks, result: Option<u64>) {
        let top = self.top();
        let Some(below) = top.checked_sub(1) else { return };
        let ended = Ended { activation: self.at(top), reading: self.reading(top), result };
        self.set_top(below);
        let interrupted = ended.interrupted();
        let is_left = self.is_own(interrupted.rsp) == self.is_own(rsp) && interrupted.rsp <= rsp;
        // SAFETY: the values of a node, as it was entered; the area is the calling thread's.
        unsafe {
            gauges::at_end(self.area, below, &ended, clocks);
            wait::go_on(self.area, interrupted, is_left);
        }
    }

    /// Ends those that were left without an exit.
    fn end_left(&mut self, rsp: u64, clocks: &mut Clocks) {
        loop {
            let top = self.at(self.top());
            if top.rsp == Activation::MARK || !self.is_left(&top, rsp) {
                break;
            }
            self.end(rsp, clocks, None);
        }
    }

    /// Ends those that control has left for this stack pointer.
    pub fn end_left_at(&mut self, rsp: u64) {
        self.end_left(rsp, &mut Clocks::now());
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
            let of_first = (self.at(first), self.reading(first));
            self.put(first, self.at(last));
            self.put_reading(first, self.reading(last));
            self.put(last, of_first.0);
            self.put_reading(last, of_first.1);
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
            self.put_reading(index + 1 - next, self.reading(index));
        }
        self.set_top(top + 1 - next);
    }

    /// One begins. Beyond [`Activation::MOST`] they are not followed.
    pub fn enter(&mut self, call: Entered) {
        let mut clocks = Clocks::now();
        let Entered { rsp, values, base, reading, is_timed } = call;
        if base != 0 && !self.turn_to(base) {
            return;
        }
        self.end_left(rsp, &mut clocks);
        let (next, base) = (self.top() + 1, self.at(self.top()).base);
        let began = if is_timed { clock::ticks() } else { 0 };
        if self.put(next, Activation { rsp, values, began, callees: 0, base }) {
            let reading = if reading == Reading::NONE { reading } else { Reading { began, ..reading } };
            self.put_reading(next, reading);
            self.set_top(next);
        }
    }

    /// One ends by an exit, with a result if that is known. `false`: none that is known does.
    pub fn leave(&mut self, rsp: u64, result: Option<u64>) -> bool {
        let mut clocks = Clocks::now();
        let Some(base) = self.find(rsp).map(|found| self.at(found).base) else { return false };
        if !self.turn_to(base) {
            return false;
        }
        // Those inwards of it on the same stack have been left.
        self.end_left(rsp.wrapping_sub(1), &mut clocks);
        let Some(found) = self.find(rsp) else { return false };
        // Those above it go on, on a stack that has the same outermost frame: it is taken to the top.
        let (top, ending, reading) = (self.top(), self.at(found), self.reading(found));
        for index in found..top {
            self.put(index, self.at(index + 1));
            self.put_reading(index, self.reading(index + 1));
        }
        self.put(top, ending);
        self.put_reading(top, reading);
        self.end(rsp, &mut clocks, result);
        true
    }

    /// The index of the one that was entered with this stack pointer.
    fn find(&self, rsp: u64) -> Option<usize> {
        (1..=self.top()).rev().find(|index| self.at(*index).rsp == rsp)
    }
}

/// The place of an activation that [`push_quickly`] has noted.
pub struct Pushed(usize);

/// The index of the uppermost activation, and its place.
///
/// # Safety
/// The area must be the calling thread's.
unsafe fn uppermost(area: *mut Area) -> Option<(usize, *mut Activation)> {
    // SAFETY: the caller vouches for the area. Volatile: a handler may change it.
    let at = unsafe { (&raw const (*area).top).read_volatile() };
    // SAFETY: as above.
    let index = (at.checked_sub(unsafe { &raw const (*area).activations } as u64)?) as usize / size_of::<Activation>();
    Some((index, at as *mut Activation))
}

/// Notes an activation on the stack of the uppermost one, outwards of which nothing was left; [`Pushed::set`] completes it.
/// `None`: that is not how it is. A handler that comes in between finds its place above it, or uses the same one and is
/// done before this goes on.
///
/// # Safety
/// The area must be the calling thread's.
pub unsafe fn push_quickly(area: *mut Area, call: &Entered) -> Option<Pushed> {
    // SAFETY: the caller vouches for the area; places within it stay mapped.
    unsafe {
        let (index, top) = uppermost(area)?;
        let (base, rsp) = ((&raw const (*top).base).read_volatile(), (&raw const (*top).rsp).read_volatile());
        if base != call.base || rsp <= call.rsp || index + 1 >= Activation::MOST {
            return None;
        }
        let next = top.wrapping_add(1);
        // The time for a handler that does not come back.
        let began = Activation { rsp: call.rsp, values: call.values, began: clock::ticks(), callees: 0, base };
        next.write_volatile(began);
        compiler_fence(SeqCst);
        (&raw mut (*area).top).write_volatile(next as u64);
        compiler_fence(SeqCst);
        // Once more: a handler that came in between had its own activation there.
        next.write_volatile(began);
        Some(Pushed(index + 1))
    }
}

impl Pushed {
    /// The activation begins now.
    ///
    /// # Safety
    /// The area must be the calling thread's, in which it was noted.
    pub unsafe fn set(self, area: *mut Area, reading: Reading) {
        // SAFETY: the caller vouches for the area.
        let (activation, place) = unsafe { ((*area).activations.get_mut(self.0), (*area).readings.get_mut(self.0)) };
        let (Some(activation), Some(place)) = (activation, place) else { return };
        let began = clock::ticks();
        // SAFETY: just borrowed. Volatile: a handler may look there.
        unsafe {
            core::ptr::from_mut(place).write_volatile(Reading { began, ..reading });
            (&raw mut activation.began).write_volatile(began);
        }
        compiler_fence(SeqCst);
    }
}

/// Ends the uppermost activation, if it is the one that was entered with this stack pointer. `None`: it is not.
///
/// # Safety
/// The area must be the calling thread's.
pub unsafe fn pop_quickly((area, thread): (*mut Area, &Thread<'_>), rsp: u64, result: Option<u64>) -> Option<()> {
    let mut clocks = Clocks::now();
    // SAFETY: the caller vouches for the area; places within it stay mapped. What is read is read before the place is free
    // for a handler's.
    unsafe {
        let (index, top) = uppermost(area)?;
        let activation = top.read_volatile();
        if activation.rsp != rsp {
            return None;
        }
        let below = index.checked_sub(1)?;
        let reading = (&raw const (*area).readings).cast::<Reading>().wrapping_add(index).read_volatile();
        compiler_fence(SeqCst);
        (&raw mut (*area).top).write_volatile(top.wrapping_sub(1) as u64);
        compiler_fence(SeqCst);
        let ended = Ended { activation, reading, result };
        gauges::at_end(area, below, &ended, &mut clocks);
        let interrupted = ended.interrupted();
        wait::go_on(area, interrupted, wait::is_left(interrupted.rsp, rsp, thread));
    }
    Some(())
}
