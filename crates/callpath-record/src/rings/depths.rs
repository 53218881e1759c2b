//! Chooses the threads whose stacks are copied beyond their records: those for which the longest record is too short.

use callpath_target::StackSamples;
use rustc_hash::FxHashMap;

/// Copying stops for a thread after this many samples in a row that were too short although the most was copied.
const GIVEN_UP_AFTER: u32 = 64;
/// Copying stops after this many samples in a row for which the record's copy was enough.
const ENOUGH: u32 = 500;
/// After this many too-short samples in a row without a full copy, copies are asked for again: the thread may have another stack.
const MISSED: u32 = 64;

/// Of a thread whose stack is copied, or was.
#[derive(Default)]
struct Depth {
    /// Samples in a row for which a record's copy was enough.
    enough: u32,
    /// Too-short samples in a row with a full copy.
    vain: u32,
    /// Too-short samples in a row without one.
    missed: u32,
}

/// By thread; those whose stacks are not that deep are not in it.
#[derive(Default)]
pub(super) struct Depths(FxHashMap<u32, Depth>);

impl Depths {
    /// Notes a sample. `needed`: how many bytes of the stack its walk needed; `None`: more than was copied. `is_copied`: nearly the most
    /// was copied beyond the record. Returns whether to copy the thread's stack from now on, if that changes.
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
