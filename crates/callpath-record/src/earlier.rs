//! The outer frames of a thread's last walk, which the next one need not walk again (`raw/trace.rs`).

use callpath_format::address::CodePoint;
use callpath_format::frame::FrameKey;
use callpath_format::recipe::Packed;
use callpath_format::register::Reg;
use callpath_unwind::{Cursor, Located};

/// Of stacks with fewer frames nothing is kept: to walk them takes no more time.
const FEWEST: usize = 48;
/// The most frames that are kept of a thread, the outermost.
const MOST: usize = 1 << 13;

/// A frame, by all that the steps from it on depend on, apart from the stack: steps by packed recipes only pass
/// caller-saved registers on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    point: CodePoint,
    pub(crate) rsp: u64,
    callee_saved: [Option<u64>; 6],
}

impl Place {
    /// `None`: the step from there depends on more.
    pub(crate) fn of(cursor: &Cursor, located: &Located) -> Option<Place> {
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
    pub(crate) fn node(&self, at_most: usize) -> Option<(u32, usize)> {
        let count = self.nodes.len().min(at_most);
        Some((*self.nodes.get(count.checked_sub(1)?)?, count))
    }

    /// Takes note of the nodes of the frames that follow those that are known.
    pub(crate) fn note_nodes(&mut self, from: usize, nodes: impl Iterator<Item = u32>) {
        self.nodes.truncate(from);
        let room = self.frames.len().saturating_sub(self.nodes.len());
        self.nodes.extend(nodes.take(room));
    }

    /// How many frames are kept.
    pub(crate) fn len(&self) -> usize {
        self.frames.len()
    }

    /// A frame's place, by how many are outside of it.
    pub(crate) fn place(&self, index: usize) -> Option<Place> {
        self.frames.get(index).map(|frame| frame.place)
    }

    /// The keys of so many outermost frames, the innermost of them first.
    pub(crate) fn keys(&self, frames: usize) -> impl Iterator<Item = FrameKey> {
        self.frames.get(..frames).unwrap_or_default().iter().rev().map(|frame| frame.key)
    }

    /// Keeps one more frame, the callee of the innermost kept one, and the words that the step from it has read, if there is room.
    pub(crate) fn push(&mut self, (place, key): (Place, FrameKey), read: &[(u64, u64)]) {
        if self.frames.len() < MOST {
            self.frames.push(Outer { place, key, reads: self.reads.len() });
            self.reads.extend_from_slice(read);
        }
    }

    /// The words that the step from a frame has read.
    pub(crate) fn reads_of(&self, index: usize) -> &[(u64, u64)] {
        let end = self.frames.get(index + 1).map_or(self.reads.len(), |inner| inner.reads);
        self.frames.get(index).and_then(|frame| self.reads.get(frame.reads..end)).unwrap_or_default()
    }

    /// Forgets all frames inside of so many outermost ones.
    pub(crate) fn truncate(&mut self, frames: usize) {
        let reads = self.frames.get(frames).map_or(self.reads.len(), |first| first.reads);
        self.reads.truncate(reads);
        self.frames.truncate(frames);
        self.nodes.truncate(frames);
    }
}
