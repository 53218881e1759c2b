//! A walk that may come to frames of its thread's last one. It ends there if a frame is as it was, and the copy of the stack shows that all
//! words that were read from there on are the same.

use callpath_format::frame::FrameKey;
use callpath_unwind::{Cursor, Located};

use super::stack::Stack;
use crate::earlier::{Earlier, Place};

/// A frame of the walk that goes on.
struct Seen {
    place: Place,
    key: FrameKey,
    /// How many words had been read before.
    read: usize,
}

/// A walk that may come to frames of an earlier one.
pub(super) struct Trace<'e> {
    earlier: Option<&'e mut Earlier>,
    /// Frames of the earlier one that may still be met.
    left: usize,
    /// The innermost frame was visited.
    has_begun: bool,
    /// The frames of this one, the innermost first, from the last one on that cannot be kept.
    seen: Vec<Seen>,
}

impl<'e> Trace<'e> {
    pub(super) fn new(earlier: Option<&'e mut Earlier>) -> Trace<'e> {
        let left = earlier.as_ref().map_or(0, |earlier| earlier.len());
        Trace { earlier, left, has_begun: false, seen: Vec::new() }
    }

    /// What was seen is of no use: the walk is taken up in another way.
    pub(super) fn forget(&mut self) {
        self.seen.clear();
    }

    /// A frame of this walk. Whether the walk goes on from there as the earlier one did.
    pub(super) fn visit(&mut self, cursor: &Cursor, located: &Located, memory: &mut Stack<'_>) -> bool {
        let Some(earlier) = &self.earlier else { return false };
        let is_innermost = !std::mem::replace(&mut self.has_begun, true);
        if memory.has_missed_since() {
            self.seen.clear();
        }
        memory.forget_misses();
        let Some(place) = Place::of(cursor, located) else {
            self.seen.clear();
            return false;
        };
        while self.left > 0 && earlier.place(self.left - 1).is_some_and(|kept| kept.rsp < place.rsp) {
            self.left -= 1;
        }
        let met = self.left.checked_sub(1).filter(|met| earlier.place(*met) == Some(place));
        // The innermost frame's CFA is asked for, too: it is walked from.
        if let Some(met) = met.filter(|_| !is_innermost) {
            let mut same = |index: &usize| earlier.reads_of(*index).iter().all(|(at, word)| memory.is(*at, *word));
            match (0..=met).rev().find(|index| !same(index)) {
                None => return true,
                // Only beyond that it may be the same.
                Some(other) => self.left = other,
            }
        }
        self.seen.push(Seen { place, key: located.key, read: memory.log().len() });
        false
    }

    /// The keys of the callers of the frame that was met, the innermost first.
    pub(super) fn callers(&self) -> impl Iterator<Item = FrameKey> {
        self.earlier.iter().flat_map(|earlier| earlier.keys(self.left.saturating_sub(1)))
    }

    /// The walk has come to the outermost frame: its frames are kept for the next one. `has_met`: it came to one of the earlier walk.
    /// Returns whether they are.
    pub(super) fn keep(self, memory: &Stack<'_>, has_met: bool) -> bool {
        let Some(earlier) = self.earlier else { return false };
        earlier.truncate(if has_met { self.left } else { 0 });
        if memory.has_missed_since() {
            earlier.truncate(0);
            return false;
        }
        let log = memory.log();
        let mut end = log.len();
        for Seen { place, key, read } in self.seen.into_iter().rev() {
            earlier.push((place, key), log.get(read..end).unwrap_or_default());
            end = read;
        }
        true
    }
}
