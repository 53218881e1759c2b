//! Which threads' stacks are copied besides the longest copy in a record, which is too short for some.

use callpath_target::StackSamples;
use rustc_hash::FxHashMap;

/// After so many samples in a row that were too short although all was copied that may be, a thread's stack is no more copied.
const GIVEN_UP_AFTER: u32 = 64;
/// Nor is it after so many samples for which a record's copy was enough.
const ENOUGH: u32 = 500;
/// After so many samples in a row without a copy, it is asked for anew: the thread's stack may be another one.
const MISSED: u32 = 64;

/// Of a thread whose stack is copied, or was.
#[derive(Default)]
struct Depth {
    /// Samples in a row for which a record's copy was enough.
    enough: u32,
    /// Samples in a row that were too short, of those that it was copied with.
    vain: u32,
    /// Samples in a row that were too short, and that it was not copied with.
    missed: u32,
}

/// By thread; those whose stacks are not that deep are not in it.
#[derive(Default)]
pub(super) struct Depths(FxHashMap<u32, Depth>);

impl Depths {
    /// Takes note of a sample: what its walk has needed of the stack, bytes; `None`: more than was copied. `is_copied`: the stack was,
    /// besides the record. Whether it is to be from now on, if that changes.
    pub(super) fn note(&mut self, tid: u32, needed: Option<usize>, is_copied: bool) -> Option<bool> {
        let Some(bytes) = needed else {
            let Some(depth) = self.0.get_mut(&tid) else {
                self.0.insert(tid, Depth::default());
                return Some(true);
            };
            if depth.vain >= GIVEN_UP_AFTER {
                return None;
            }
            if is_copied {
                (depth.vain, depth.missed) = (depth.vain + 1, 0);
                return (depth.vain == GIVEN_UP_AFTER).then_some(false);
            }
            // Samples may come late that were taken before.
            depth.missed += 1;
            return depth.missed.is_multiple_of(MISSED).then_some(true);
        };
        let depth = self.0.get_mut(&tid).filter(|depth| depth.vain < GIVEN_UP_AFTER)?;
        (depth.vain, depth.missed) = (0, 0);
        depth.enough = if bytes > StackSamples::MOST_BYTES as usize { 0 } else { depth.enough + 1 };
        if depth.enough < ENOUGH {
            return None;
        }
        self.0.remove(&tid);
        Some(false)
    }

    /// A thread has ended.
    pub(super) fn forget(&mut self, tid: u32) {
        self.0.remove(&tid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEEP: Option<usize> = Some(StackSamples::MOST_BYTES as usize + 8);

    #[test]
    fn stacks_are_copied_as_long_as_walks_need_them() {
        let mut depths = Depths::default();
        assert_eq!(depths.note(1, Some(100), false), None);
        assert_eq!(
            [None, None, DEEP, DEEP, None].map(|needed| depths.note(1, needed, true)),
            [Some(true), None, None, None, None]
        );
        let mut note =
            |samples: u32, needed| -> Vec<bool> { (0..samples).filter_map(|_| depths.note(1, needed, true)).collect() };
        assert_eq!([note(ENOUGH - 1, Some(100)), note(1, DEEP), note(ENOUGH - 1, Some(100))], [vec![], vec![], vec![]]);
        assert_eq!(note(1000, Some(100)), [false]);
        assert_eq!(note(1, None), [true]);
        // Deeper than is copied.
        assert_eq!(note(1000, None), [false]);
        assert_eq!([note(1000, DEEP), note(1000, Some(100))], [vec![], vec![]]);
        depths.forget(1);
        assert_eq!(depths.note(1, None, false), Some(true));
        let late: Vec<bool> = (0..1000).filter_map(|_| depths.note(1, None, false)).collect();
        assert_eq!(late, [true; 15], "they were taken before, or its stack is another one");
    }
}
