//! Chooses the threads whose stacks are copied beyond their records: those that may need it, as soon as they may. Where a stack ends within
//! the record, nothing is copied beyond, and it costs nothing.

use rustc_hash::FxHashMap;

/// A stack is deep from here on: it may soon be deeper than a record, bytes.
const DEEP_BYTES: usize = 16 << 10;
/// Copying stops for a thread after this many samples in a row that were too short although the most was copied.
const GIVEN_UP_AFTER: u32 = 64;
/// Copying stops after this many samples in a row that did not need what was copied beyond the record, until one is too short.
const NOT_NEEDED: u32 = 64;
/// The thread is forgotten after this many samples in a row whose stacks were not deep.
const ENOUGH: u32 = 500;
/// After this many too-short samples in a row without a full copy, copies are asked for again: the thread may have another stack.
const MISSED: u32 = 64;

/// What a sample's walk needed of the stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Need {
    /// So many bytes. Either nothing was copied beyond the record, or that copy was needed.
    Bytes(usize),
    /// So many bytes, all of them in the record, although more was copied.
    Within(usize),
    /// More than the longest record has.
    Beyond,
    /// The same, although nearly the most was copied beyond it.
    BeyondAll,
}

impl Need {
    /// Whether the stack is deep.
    pub(super) fn is_deep(self) -> bool {
        !matches!(self, Need::Bytes(..DEEP_BYTES) | Need::Within(..DEEP_BYTES))
    }
}

/// Of a thread whose stack is copied, or was.
#[derive(Default)]
struct Depth {
    /// It is copied.
    is_wanted: bool,
    /// Samples in a row that were not deep.
    enough: u32,
    /// Those in a row that did not need their copies.
    not_needed: u32,
    /// Too-short samples in a row with a full copy.
    vain: u32,
    /// Too-short samples in a row without one.
    missed: u32,
}

/// By thread; those whose stacks are not that deep are not in it.
#[derive(Default)]
pub(super) struct Depths(FxHashMap<u32, Depth>);

impl Depths {
    /// Notes a sample. Returns whether to copy the thread's stack from now on, if that changes, or if it is to be looked at again where it
    /// ends.
    pub(super) fn note(&mut self, tid: u32, need: Need) -> Option<bool> {
        let is_deep = need.is_deep();
        let Some(depth) = self.0.get_mut(&tid) else {
            let begins = is_deep.then(|| Depth { is_wanted: true, ..Depth::default() });
            return begins.map(|depth| self.0.insert(tid, depth).is_none());
        };
        if depth.vain >= GIVEN_UP_AFTER {
            return None;
        }
        let before = depth.is_wanted;
        let mut again = false;
        match need {
            Need::BeyondAll => {
                (depth.vain, depth.missed) = (depth.vain + 1, 0);
                depth.is_wanted &= depth.vain < GIVEN_UP_AFTER;
            }
            // Samples may come late that were taken before.
            Need::Beyond => {
                depth.missed += 1;
                again = depth.missed.is_multiple_of(MISSED);
                depth.is_wanted = true;
            }
            Need::Bytes(_) | Need::Within(_) => (depth.vain, depth.missed) = (0, 0),
        }
        depth.not_needed = if matches!(need, Need::Within(_)) { depth.not_needed + 1 } else { 0 };
        depth.is_wanted &= depth.not_needed < NOT_NEEDED;
        depth.enough = if is_deep { 0 } else { depth.enough + 1 };
        let (is_wanted, is_shallow) = (depth.is_wanted, depth.enough >= ENOUGH);
        if is_shallow {
            self.0.remove(&tid);
            return before.then_some(false);
        }
        (is_wanted != before || again).then_some(is_wanted)
    }

    /// The threads whose stacks are copied, or were.
    pub(super) fn threads(&self) -> impl Iterator<Item = u32> {
        self.0.keys().copied()
    }

    /// A thread has ended.
    pub(super) fn forget(&mut self, tid: u32) {
        self.0.remove(&tid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Need::{Beyond, BeyondAll, Bytes, Within};

    const DEEP: Need = Bytes(DEEP_BYTES);

    fn note(depths: &mut Depths, samples: u32, need: Need) -> Vec<bool> {
        (0..samples).filter_map(|_| depths.note(1, need)).collect()
    }

    #[test]
    fn stacks_are_copied_as_long_as_walks_may_need_them() {
        let mut depths = Depths::default();
        assert_eq!(note(&mut depths, 1000, Bytes(DEEP_BYTES - 8)), []);
        assert_eq!([DEEP, DEEP, Beyond, DEEP].map(|need| depths.note(1, need)), [Some(true), None, None, None]);
        assert_eq!(note(&mut depths, ENOUGH - 1, Bytes(100)), []);
        assert_eq!(note(&mut depths, 1, DEEP), []);
        assert_eq!(note(&mut depths, 2 * ENOUGH, Bytes(100)), [false]);
        assert_eq!(note(&mut depths, 1, Beyond), [true]);
        let late = note(&mut depths, 1000, Beyond);
        assert_eq!(late, [true; 15], "they were taken before, or its stack is another one");
        // Deeper than is copied.
        assert_eq!(note(&mut depths, 1000, BeyondAll), [false]);
        assert_eq!([note(&mut depths, 1000, DEEP), note(&mut depths, 1000, Bytes(100))], [vec![], vec![]]);
        depths.forget(1);
        assert_eq!(depths.note(1, Beyond), Some(true));
    }

    #[test]
    fn what_is_not_needed_is_not_copied_for_long() {
        let mut depths = Depths::default();
        assert_eq!(note(&mut depths, NOT_NEEDED + 100, Within(DEEP_BYTES)), [true, false]);
        assert_eq!(note(&mut depths, 100, DEEP), []);
        assert_eq!(note(&mut depths, 1, Beyond), [true]);
        // Now and then it is.
        for _ in 0..10 {
            assert_eq!(note(&mut depths, NOT_NEEDED - 1, Within(DEEP_BYTES)), []);
            assert_eq!(note(&mut depths, 1, DEEP), []);
        }
    }
}
