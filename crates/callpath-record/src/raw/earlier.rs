//! The outer frames of a thread's last walk. The next one does not walk them again where it comes to one of them as it was, and the
//! copy of the stack shows that all words that were read from there on are the same.

use callpath_format::address::CodePoint;
use callpath_format::frame::FrameKey;
use callpath_format::recipe::Packed;
use callpath_format::register::Reg;
use callpath_unwind::{Cursor, Located};

use super::stack::Stack;

/// Of stacks with fewer frames nothing is kept: to walk them takes no more time.
const FEWEST: usize = 48;
/// The most frames that are kept of a thread, the outermost.
const MOST: usize = 1 << 13;

/// A frame, by all that the steps from it on depend on, apart from the stack: steps by packed recipes know a register that a call
/// may change for nothing else than to give it on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    point: CodePoint,
    rsp: u64,
    callee_saved: [Option<u64>; 6],
}

impl Place {
    /// `None`: the step from there depends on more.
    fn of(cursor: &Cursor, located: &Located) -> Option<Place> {
        let is_kept = |reg: Reg| reg == Reg::RSP || Reg::CALLEE_SAVED.contains(&reg);
        let depends_on_kept = match located.recipe.kind() {
            Packed::REGISTER | Packed::DEREF => is_kept(located.recipe.base()),
            kind => kind == Packed::OUTERMOST,
        };
        // Code without a table of its module may be another the next time; several frames of probes become one.
        let is_lasting = located.table != 0 && located.key != FrameKey::PROBE;
        let rsp = cursor.registers.get(Reg::RSP).filter(|_| depends_on_kept && is_lasting)?;
        let callee_saved = Reg::CALLEE_SAVED.map(|reg| cursor.registers.get(reg));
        Some(Place { point: cursor.point, rsp, callee_saved })
    }
}

/// A frame of the last walk.
#[derive(Clone, Copy, Debug)]
struct Outer {
    place: Place,
    key: FrameKey,
    /// Where in [`Earlier::reads`] the words begin that the step from it has read.
    reads: usize,
}

/// What is kept of a thread's last walk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Earlier {
    /// The generation of the load map that it went by.
    generation: Option<u32>,
    /// How many frames the last walk had.
    last: usize,
    /// From the outermost on.
    frames: Vec<Outer>,
    /// Addresses and words, by frame.
    reads: Vec<(u64, u64)>,
    /// Of the outermost frames, their nodes in the thread's tree.
    nodes: Vec<u32>,
}

impl Earlier {
    /// Nothing of it counts if the process's code is another one now.
    pub(crate) fn of_generation(&mut self, generation: Option<u32>) {
        if self.generation != generation || generation.is_none() {
            *self = Earlier { generation, last: self.last, ..Earlier::default() };
        }
    }

    /// Whether the stack is so deep that frames are kept.
    pub(crate) fn is_worth_it(&self) -> bool {
        self.last >= FEWEST
    }

    /// Takes note of how many frames a walk had.
    pub(crate) fn note_frames(&mut self, count: usize) {
        self.last = count;
        if !self.is_worth_it() {
            self.truncate(0);
        }
    }

    /// The node of the outermost frames, and how many they are: at most so many.
    pub(super) fn node(&self, at_most: usize) -> Option<(u32, usize)> {
        let count = self.nodes.len().min(at_most);
        Some((*self.nodes.get(count.checked_sub(1)?)?, count))
    }

    /// Takes note of the nodes of the frames that follow those that are known.
    pub(super) fn note_nodes(&mut self, from: usize, nodes: impl Iterator<Item = u32>) {
        self.nodes.truncate(from);
        let room = self.frames.len().saturating_sub(self.nodes.len());
        self.nodes.extend(nodes.take(room));
    }

    /// The words that the step from a frame has read.
    fn reads_of(&self, index: usize) -> &[(u64, u64)] {
        let end = self.frames.get(index + 1).map_or(self.reads.len(), |inner| inner.reads);
        self.frames.get(index).and_then(|frame| self.reads.get(frame.reads..end)).unwrap_or_default()
    }

    fn truncate(&mut self, frames: usize) {
        let reads = self.frames.get(frames).map_or(self.reads.len(), |first| first.reads);
        self.reads.truncate(reads);
        self.frames.truncate(frames);
        self.nodes.truncate(frames);
    }
}

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
        let left = earlier.as_ref().map_or(0, |earlier| earlier.frames.len());
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
        let frames = &earlier.frames;
        while self.left > 0 && frames.get(self.left - 1).is_some_and(|frame| frame.place.rsp < place.rsp) {
            self.left -= 1;
        }
        let met = self.left.checked_sub(1).filter(|met| frames.get(*met).is_some_and(|frame| frame.place == place));
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
        let frames = self.earlier.as_ref().and_then(|earlier| earlier.frames.get(..self.left.saturating_sub(1)));
        frames.unwrap_or_default().iter().rev().map(|frame| frame.key)
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
        for Seen { place, key, read } in self.seen.into_iter().rev().take(MOST.saturating_sub(earlier.frames.len())) {
            earlier.frames.push(Outer { place, key, reads: earlier.reads.len() });
            earlier.reads.extend_from_slice(log.get(read..end).unwrap_or_default());
            end = read;
        }
        true
    }
}
