//! From an interrupted thread to the node of its call path.
//! No clocks and no metrics here.
//!
//! A walk finds the innermost frame first, a tree wants the outermost first: the frames of a walk are kept in a buffer
//! of 1,024. A deeper stack is not walked at once (`deep.rs`).

use callpath_format::address::RunAddr;
use callpath_format::frame::{CloneNumber, FrameKey};
use callpath_format::shared::thread::layout;
use callpath_format::shared::{ArenaRef, CHUNK_LEN_BYTES};
use callpath_unwind::{Cursor, End, innermost, walk};
use core::ops::ControlFlow;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use crate::clock;
use crate::code::Code;
use crate::deep::{self, Outcome};
use crate::frame::Frame;
use crate::process::Process;
use crate::sample::Sample;
use crate::sentinel::{Marks, Noted, Noting};
use crate::stack::Stack;
use crate::told::Told;
use crate::tree::Tree;

#[cfg(test)]
mod tests;

/// What became of a sample's path.
pub(crate) enum Path {
    /// The path ends at an outermost frame; its node.
    Full(ArenaRef),
    /// It does not; its node, under the root of partial paths.
    Partial(ArenaRef),
    /// Some code on it has no table yet; the first of it that was generated at run time, if it was.
    NoTable(Option<RunAddr>),
    /// There are more frames than one walk covers: the keys of the inner ones are in the buffer.
    Deep,
    /// No memory for new nodes.
    NoMemory,
}

/// What heights are made of: of an interrupted thread's innermost frame, the CFA, if it is known, and the clone that its code is in.
#[derive(Clone, Copy, Default)]
pub(crate) struct Innermost {
    pub(crate) cfa: Option<u64>,
    pub(crate) clone: CloneNumber,
}

/// Walks and finds the node. `ordinary`: an event has interrupted the program's own code. `as_it_is`: a
/// path on which some code has no table ends there.
pub(crate) fn of(sample: &Sample<'_, '_>, stack: &mut Stack, ordinary: bool, as_it_is: bool) -> Path {
    // One after the other, not one inside of the other: signal stacks are small.
    let asks_a_map = sample.process.session.settings.asks_a_map();
    let path = if asks_a_map { until_told(sample, stack, as_it_is) } else { find(sample, stack, ordinary, as_it_is) };
    if !matches!(path, Path::Deep) {
        return path;
    }
    match deep::find(sample, stack, as_it_is) {
        Some(Outcome::Full(node)) => Path::Full(node),
        Some(Outcome::Partial(node)) => Path::Partial(node),
        Some(Outcome::Unknown(generated)) => Path::NoTable(generated),
        Some(Outcome::TooMuch { .. }) | None => insert_innermost(sample),
    }
}

/// The node of the innermost frame alone.
pub(crate) fn of_innermost(sample: &Sample<'_, '_>, stack: &mut Stack, as_it_is: bool) -> (Path, Innermost) {
    let Sample { process, thread, interrupted, .. } = *sample;
    let Some(mut code) = Code::new(sample) else { return (Path::NoMemory, Innermost::default()) };
    let cursor = Cursor::interrupted(RunAddr(interrupted.pc), interrupted.registers);
    let (located, cfa) = innermost(cursor, &mut code, stack);
    if cfa.is_none() && code.unknown_code && !as_it_is {
        return (Path::NoTable(code.unknown_generated), Innermost::default());
    }
    let innermost = Innermost { cfa, clone: code.clone_at(RunAddr(interrupted.pc)) };
    let root = ArenaRef(thread.record.partial_root.load(Relaxed));
    let node = Tree::new(process, thread).and_then(|mut tree| tree.child(root, located.key));
    (node.map_or(Path::NoMemory, Path::Partial), innermost)
}

/// The same of a sample whose stack was walked.
pub(crate) fn of_walked(sample: &Sample<'_, '_>, stack: &mut Stack) -> Innermost {
    let Some(mut code) = Code::new(sample) else { return Innermost::default() };
    let at = RunAddr(sample.interrupted.pc);
    let (_, cfa) = innermost(Cursor::interrupted(at, sample.interrupted.registers), &mut code, stack);
    Innermost { cfa, clone: code.clone_at(at) }
}

#[inline(never)]
fn find(sample: &Sample<'_, '_>, stack: &mut Stack, ordinary: bool, as_it_is: bool) -> Path {
    let Sample { process, thread, interrupted, .. } = *sample;
    let Some(mut walker) = Walker::new(sample) else { return Path::NoMemory };
    stack.marks = Marks::of_sample(sample, stack.bounds(), ordinary);
    let cursor = Cursor::interrupted(RunAddr(interrupted.pc), interrupted.registers);
    let (frames, end) = walker.walk_first(cursor, stack, |_, _| ControlFlow::Continue(()));
    if matches!(end, End::Broken) && !stack.marks.is_met() {
        return Path::Deep;
    }
    // Outwards of a mark, all frames are as they were at the sample that set it, and the path is full.
    let outwards = stack.marks.node_outwards();
    let end = if outwards.is_some() { End::Outermost } else { end };
    thread.record.frames.fetch_add(frames as u64, Relaxed);
    stack.marks.note_unmarked(process, frames);
    if !matches!(end, End::Outermost) && walker.code.unknown_code && !as_it_is {
        return Path::NoTable(walker.code.unknown_generated);
    }
    let root = match end {
        End::Outermost => &thread.record.full_root,
        End::Stopped(_) | End::Broken => &thread.record.partial_root,
    };
    let root = outwards.unwrap_or(ArenaRef(root.load(Relaxed)));
    let is_markable = matches!(end, End::Outermost) && !walker.code.met_generated;
    let noting = if is_markable { stack.marks.begin(process, frames) } else { None };
    let walked = Walked { root, frames, noting };
    let node = Tree::new(process, thread).and_then(|mut tree| walker.insert(walked, &mut tree, stack));
    if let (Some(_), Some(noting)) = (node, noting) {
        stack.mark(interrupted, noting.frames);
    }
    match (node, end) {
        (None, _) => Path::NoMemory,
        (Some(node), End::Outermost) => Path::Full(node),
        (Some(node), End::Stopped(_) | End::Broken) => Path::Partial(node),
    }
}

/// The path up to a frame of which a map tells the rest: its node, below how high the stack is at that frame. The whole one
/// if the map tells of none.
#[inline(never)]
fn until_told(sample: &Sample<'_, '_>, stack: &mut Stack, as_it_is: bool) -> Path {
    let Sample { process, thread, interrupted, .. } = *sample;
    let Some(mut walker) = Walker::new(sample) else { return Path::NoMemory };
    let mut told = Told::new(sample, stack);
    let cursor = Cursor::interrupted(RunAddr(interrupted.pc), interrupted.registers);
    let (walked, end) = walker.walk_first(cursor, stack, |frame, stack| told.see(frame, stack));
    thread.record.frames.fetch_add(walked as u64, Relaxed);
    // The caller of a frame that is told was looked at, and is told, too.
    let frames = walked - usize::from(told.height.is_some());
    if matches!(end, End::Broken) && told.height.is_none() {
        return Path::Deep;
    }
    if matches!(end, End::Stopped(_)) && walker.code.unknown_code && !as_it_is {
        return Path::NoTable(walker.code.unknown_generated);
    }
    let is_full = matches!(end, End::Outermost);
    let root = ArenaRef(if is_full { &thread.record.full_root } else { &thread.record.partial_root }.load(Relaxed));
    let mut insert = || {
        let mut tree = Tree::new(process, thread)?;
        let root = match told.height {
            Some(height) => tree.child(root, FrameKey::height(Some(height)))?,
            None => root,
        };
        walker.insert(Walked { root, frames, noting: None }, &mut tree, stack)
    };
    match insert() {
        None => Path::NoMemory,
        Some(node) if is_full => Path::Full(node),
        Some(node) => Path::Partial(node),
    }
}

/// The path of a call, walked as it is now: code without a table ends it; of one that lacks code, no node is made unless it
/// is taken `as_it_is`. `each`: is given each frame, the innermost
/// first; of a stack deeper than the buffer, those that fit. It may end the walk with the node that the frame's path is
/// below: then the path counts as one that is whole. Also whether it ends in code that is in no load map yet.
#[inline(never)]
pub(crate) fn of_call(
    sample: &Sample<'_, '_>,
    stack: &mut Stack,
    as_it_is: bool,
    mut each: impl FnMut(Frame<'_>, &mut Stack) -> ControlFlow<ArenaRef>,
) -> (Path, bool) {
    let Sample { process, thread, interrupted, .. } = *sample;
    let Some(mut walker) = Walker::new(sample) else { return (Path::NoMemory, false) };
    let cursor = Cursor::interrupted(RunAddr(interrupted.pc), interrupted.registers);
    let mut below = None;
    let (frames, end) = walker.walk_first(cursor, stack, |frame, stack| {
        let is_on = each(frame, stack);
        below = is_on.break_value();
        if below.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    if matches!(end, End::Broken) && below.is_none() {
        return (of(sample, stack, false, true), false);
    }
    let (root, is_full) = match (below, end) {
        (Some(below), _) => (below, true),
        (None, End::Outermost) => (ArenaRef(thread.record.full_root.load(Relaxed)), true),
        (None, End::Stopped(_) | End::Broken) => (ArenaRef(thread.record.partial_root.load(Relaxed)), false),
    };
    let wants_map = walker.code.unknown_code && !is_full;
    let lacks_code = wants_map && walker.code.unknown_generated.is_none();
    if let Some(RunAddr(lacks)) = walker.code.unmapped.filter(|_| lacks_code) {
        // What the recorder is asked for next.
        process.slot.map_lacks.store(lacks, Relaxed);
    }
    if lacks_code && !as_it_is {
        return (Path::NoTable(None), true);
    }
    let walked = Walked { root, frames, noting: None };
    let node = Tree::new(process, thread).and_then(|mut tree| walker.insert(walked, &mut tree, stack));
    if wants_map {
        want_map(process);
    }
    let path = match node {
        None => Path::NoMemory,
        Some(node) if is_full => Path::Full(node),
        Some(node) => Path::Partial(node),
    };
    (path, lacks_code)
}

/// Has the recorder read the process's memory map again, every tenth of a second at most.
#[cold]
fn want_map(process: &Process<'_>) {
    const EVERY_MS: u64 = 100;
    /// When it may be wanted again, ticks.
    static WANTED_UNTIL: AtomicU64 = AtomicU64::new(0);
    let now = clock::ticks();
    if now >= WANTED_UNTIL.load(Relaxed) {
        let until = now.saturating_add(process.session.settings.ticks_per_ms.saturating_mul(EVERY_MS));
        WANTED_UNTIL.store(until, Relaxed);
        process.slot.map_wanted.fetch_add(1, Relaxed);
        process.ring();
    }
}

/// The result of a walk, with the keys in the buffer.
struct Walked<'s, 'm> {
    /// The node that its path begins at.
    root: ArenaRef,
    /// How many frames there are.
    frames: usize,
    /// Whether they are noted for the sentinel.
    noting: Option<Noting<'s, 'm>>,
}

struct Walker<'p, 'm> {
    code: Code<'p, 'm>,
    keys: &'m [AtomicU64],
    slots: &'m [AtomicU64],
}

impl<'p, 'm> Walker<'p, 'm> {
    fn new(sample: &Sample<'p, 'm>) -> Option<Walker<'p, 'm>> {
        let Sample { process, thread, .. } = *sample;
        let base = thread.chunk.0 as usize * CHUNK_LEN_BYTES;
        Some(Walker {
            code: Code::new(sample)?,
            keys: process.arena.slice_at(base + layout::KEYS, layout::KEYS_LEN)?,
            slots: process.arena.slice_at(base + layout::SLOTS, layout::KEYS_LEN)?,
        })
    }

    /// Walks to the end, or over as many frames as the buffer holds; leaves the keys and return addresses' places.
    /// `each`: is given each frame, the innermost first; the walk ends where it breaks, with that frame.
    fn walk_first(
        &mut self,
        cursor: Cursor,
        stack: &mut Stack,
        mut each: impl FnMut(Frame<'_>, &mut Stack) -> ControlFlow<()>,
    ) -> (usize, End) {
        let (keys, slots) = (self.keys, self.slots);
        let mut frames = 0usize;
        let mut callee = 0;
        let end = walk(cursor, &mut self.code, stack, |cursor, located, stack| {
            let frame = Frame { cursor, located, is_innermost: frames == 0 };
            let slot = if frame.is_innermost { 0 } else { stack.slot_of_callee(callee, frame) };
            if let Some(place) = frames.checked_sub(1).and_then(|at| slots.get(at)) {
                place.store(slot, Relaxed);
            }
            if stack.marks.is_met() {
                return ControlFlow::Break(());
            }
            let (Some(key), Some(slot)) = (keys.get(frames), slots.get(frames)) else {
                return ControlFlow::Break(());
            };
            key.store(located.key.0, Relaxed);
            slot.store(0, Relaxed);
            let is_on = each(frame, stack);
            callee = frame.head();
            frames += 1;
            is_on
        });
        (frames, end)
    }

    /// Finds the node of the path that was walked, from the root inwards, or only of the
    /// innermost frames if the settings keep no more.
    fn insert(&mut self, walked: Walked<'_, '_>, tree: &mut Tree<'_, '_>, stack: &mut Stack) -> Option<ArenaRef> {
        let Walked { root, frames, noting } = walked;
        let stored = tree.suffix_frames().map_or(frames, |most| most.min(frames));
        let mut node = if stored < frames { tree.child(root, FrameKey::LEFT_OUT)? } else { root };
        for (key, slot) in self.keys.get(..stored)?.iter().zip(self.slots.get(..stored)?).rev() {
            node = tree.child(node, FrameKey(key.load(Relaxed)))?;
            if let Some(noting) = noting {
                stack.note(noting, Noted { node, slot: slot.load(Relaxed) });
            }
        }
        Some(node)
    }
}

/// The node of the frames in the buffer: the innermost of a stack that is not known yet farther outwards.
#[inline(never)]
fn insert_innermost(sample: &Sample<'_, '_>) -> Path {
    let Sample { process, thread, .. } = *sample;
    let insert = || {
        let base = thread.chunk.0 as usize * CHUNK_LEN_BYTES;
        let keys = process.arena.slice_at::<AtomicU64>(base + layout::KEYS, layout::KEYS_LEN)?;
        let mut tree = Tree::new(process, thread)?;
        let stored = tree.suffix_frames().map_or(keys.len(), |most| most.min(keys.len()));
        let root = tree.child(ArenaRef(thread.record.partial_root.load(Relaxed)), FrameKey::LEFT_OUT)?;
        keys.get(..stored)?.iter().rev().try_fold(root, |node, key| tree.child(node, FrameKey(key.load(Relaxed))))
    };
    insert().map_or(Path::NoMemory, Path::Partial)
}
