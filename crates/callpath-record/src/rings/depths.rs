//! How much of each thread's stack is copied besides the longest copy in a record, which is too short for some.

use callpath_target::{DeepCopies, StackSamples};
use rustc_hash::FxHashMap;

const PAGE_BYTES: usize = 4096;
/// How many pages are copied at first.
const FIRST_PAGES: u32 = 64;
/// After so many samples in a row that were too short with all that may be copied, a thread's stack is not copied.
const GIVEN_UP_AFTER: u32 = 64;
/// After so many samples, no more is copied than these needed.
const ENOUGH: u32 = 100;

/// Of a thread: how many pages are copied; how many samples there were since that was decided, and what the longest walk among them has
/// needed, bytes.
#[derive(Default)]
struct Depth {
    pages: u32,
    samples: u32,
    needed_bytes: usize,
    /// How many samples in a row were too short although all was copied that may be.
    vain: u32,
}

/// By thread; those whose stacks are not that deep are not in it.
#[derive(Default)]
pub(super) struct Depths(FxHashMap<u32, Depth>);

impl Depths {
    /// Takes note of a sample, as [`super::Outside::note_need`]. How many pages are to be copied from now on, if that is other than
    /// before.
    pub(super) fn note(&mut self, tid: u32, needed: Option<usize>) -> Option<u32> {
        let most = StackSamples::MOST_BYTES as usize;
        let Some(bytes) = needed else {
            let depth = self.0.entry(tid).or_default();
            if depth.pages == DeepCopies::MOST_PAGES {
                depth.vain += 1;
                // Its stack is deeper than that, for good.
                return (depth.vain == GIVEN_UP_AFTER).then_some(0);
            }
            let pages = (2 * depth.pages).clamp(FIRST_PAGES, DeepCopies::MOST_PAGES);
            *depth = Depth { pages, ..Depth::default() };
            return Some(pages);
        };
        let depth = self.0.get_mut(&tid)?;
        depth.samples += 1;
        if depth.vain < GIVEN_UP_AFTER {
            depth.vain = 0;
        }
        depth.needed_bytes = depth.needed_bytes.max(bytes);
        if depth.samples < ENOUGH {
            return None;
        }
        // From the stack pointer on, and the next ones may need more: a quarter again.
        let enough = match depth.needed_bytes {
            bytes if bytes > most => (bytes * 5 / 4).div_ceil(PAGE_BYTES) as u32,
            _ => 0,
        };
        if enough == 0 {
            self.0.remove(&tid);
            return Some(0);
        }
        let (pages, vain) = (enough.min(depth.pages), depth.vain);
        let is_less = pages < depth.pages;
        *depth = Depth { pages, vain, ..Depth::default() };
        is_less.then_some(pages)
    }

    /// A thread has ended.
    pub(super) fn forget(&mut self, tid: u32) {
        self.0.remove(&tid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_as_long_as_walks_need() {
        let mut depths = Depths::default();
        assert_eq!(depths.note(1, Some(100)), None);
        assert_eq!([(); 5].map(|()| depths.note(1, None)), [Some(64), Some(128), Some(256), None, None]);
        let needed = StackSamples::MOST_BYTES as usize + 10 * PAGE_BYTES;
        let noted: Vec<u32> = (0..2 * ENOUGH).filter_map(|_| depths.note(1, Some(needed))).collect();
        assert_eq!(noted, [33]);
        assert_eq!(depths.note(1, None), Some(66));
        let noted: Vec<u32> = (0..2 * ENOUGH).filter_map(|_| depths.note(1, Some(100))).collect();
        assert_eq!(noted, [0]);
        assert_eq!(depths.note(1, None), Some(64));
        // Deeper than is copied.
        let noted: Vec<u32> = (0..500).filter_map(|_| depths.note(1, None)).collect();
        assert_eq!(noted, [128, 256, 0]);
        depths.forget(1);
        assert_eq!(depths.note(1, Some(needed)), None);
    }
}
