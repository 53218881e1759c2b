//! How much one sample may do: a bound on the handler's time, in steps and by the clock.

use crate::clock;

/// A word of the stack that is compared with what it was. A step is about three nanoseconds.
pub(crate) const COMPARED: u32 = 1;
/// A frame that is walked over.
pub(crate) const WALKED: u32 = 8;
/// A frame's node that is found.
pub(crate) const FOUND: u32 = 8;
/// Additional cost of a node that is added.
pub(crate) const ADDED: u32 = 15;

/// The most that one sample does beyond [`crate::path`]'s first frames, steps: somewhat less than a millisecond.
pub(crate) const MOST: u32 = 250_000;
/// The clock is not looked at before each part of the work has taken so many steps: a sample that was not on a processor
/// for a while, or whose memory is slow, gets on even so.
const LEAST: u32 = 40_000;
/// The same for the part that is useless unless finished: comparing the deepest stack.
const LEAST_WHOLE: u32 = 140_000;
/// One sample in this many may do this many times as much, if its result lasts.
pub(crate) const LONG_ONE_IN: u64 = 128;
const LONG: u32 = 4;
/// The clock is looked at after so many steps.
pub(crate) const LOOK: u32 = 512;

/// The work that is left to a sample.
pub(crate) struct Work {
    left: u32,
    next_look: u32,
    /// Time stamps.
    soon: u64,
    end: u64,
}

impl Work {
    /// The budget of a sample that begins now.
    pub(crate) fn begin(ticks_per_ms: u64, is_long: bool) -> Work {
        let now = clock::ticks();
        let times = if is_long { LONG } else { 1 };
        let tenth = ticks_per_ms / 10 * u64::from(times);
        let left = MOST * times;
        Work { left, next_look: left - LEAST, soon: now + 6 * tenth, end: now + 15 * tenth / 2 }
    }

    /// The reserve, for the last part of the sample.
    pub(crate) fn spend_reserve(&mut self) {
        self.soon = self.end;
        self.look_after(LEAST);
    }

    /// For a part that is useless unless finished.
    pub(crate) fn begin_whole(&mut self) {
        self.look_after(LEAST_WHOLE);
    }

    fn look_after(&mut self, steps: u32) {
        self.next_look = self.next_look.min(self.left.saturating_sub(steps));
    }

    /// Whether that much may still be done.
    #[inline]
    pub(crate) fn spend(&mut self, steps: u32) -> bool {
        self.left = self.left.saturating_sub(steps);
        if self.left > self.next_look {
            return true;
        }
        self.look()
    }

    #[cold]
    fn look(&mut self) -> bool {
        self.next_look = self.left.saturating_sub(LOOK);
        if clock::ticks() > self.soon {
            self.left = 0;
        }
        self.left > 0
    }
}
