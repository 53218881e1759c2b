//! From an interrupted thread to the node of its call path.
//! Knows nothing of clocks and of what is counted.
//!
//! A walk finds the innermost frame first, a tree wants the outermost first. The frames of a walk are kept in a buffer
//! of 1,024; of a deeper stack the buffer holds the outermost part when the walk ends, and a checkpoint (the cursor) is
//! kept at each 1,024th frame, from which the inner parts are walked once more, one buffer at a time.

use callpath_format::address::{CodePoint, RunAddr};
use callpath_format::frame::FrameKey;
use callpath_format::recipe::Packed;
use callpath_format::register::Registers;
use callpath_format::shared::thread::layout;
use callpath_format::shared::{ArenaRef, CHUNK_LEN_BYTES};
use callpath_unwind::{Cursor, End, Located, Stop, walk};
use core::ops::ControlFlow;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use crate::code::Code;
use crate::process::Process;
use crate::sample::{InSample, Interrupted};
use crate::sentinel::Marks;
use crate::stack::Stack;
use crate::thread::Thread;
use crate::tree::Tree;

const CHECKPOINT_WORDS: usize = layout::CHECKPOINT_BYTES / 8;

/// What became of a sample's path.
pub(crate) enum Path {
    /// The path ends at an outermost frame; its node.
    Full(ArenaRef),
    /// It does not; its node, under the root of partial paths.
    Partial(ArenaRef),
    /// Some code on it has no table yet; the first of it that was written at run time, if it was.
    NoTable(Option<RunAddr>),
    /// No memory for new nodes.
    NoMemory,
}

/// Walks and finds the node. `ordinary`: an event has interrupted the program's own code. `as_it_is`: a path on which some code has no table ends there.
pub(crate) fn find(
    in_sample: &InSample,
    process: &Process<'_>,
    thread: Thread<'_>,
    interrupted: &Interrupted,
    stack: &mut Stack,
    ordinary: bool,
    as_it_is: bool,
) -> Path {
    let Some(mut walker) = Walker::new(in_sample, process, thread) else { return Path::NoMemory };
    stack.marks = Marks::of_sample(in_sample, process, stack.bounds(), ordinary);
    let cursor = Cursor::interrupted(RunAddr(interrupted.pc), interrupted.registers);
    let (frames, end) = walker.walk_whole(cursor, stack);
    // Outwards of a mark all is as it was at the sample that set it: on a full path.
    let outwards = stack.marks.node_outwards();
    let end = if outwards.is_some() { End::Outermost } else { end };
    // No thread begins in written code: a zero that is found for its return address is none.
    let last = walker.keys.get(frames.saturating_sub(1) % layout::KEYS_LEN).map(|key| FrameKey(key.load(Relaxed)));
    let end = match (end, last) {
        (End::Outermost, Some(last)) if outwards.is_none() && walker.code.is_written(last) => {
            End::Stopped(Stop::NoRecipe)
        }
        _ => end,
    };
    thread.record.frames.fetch_add(frames as u64, Relaxed);
    stack.marks.tell(process, frames);
    if !matches!(end, End::Outermost) && walker.code.unknown_code && !as_it_is {
        return Path::NoTable(walker.code.unknown_written);
    }
    let root = match end {
        End::Outermost => &thread.record.full_root,
        End::Stopped(_) | End::Broken => &thread.record.partial_root,
    };
    let root = outwards.unwrap_or(ArenaRef(root.load(Relaxed)));
    let is_markable = matches!(end, End::Outermost) && !walker.code.met_written;
    let noted = if is_markable { stack.marks.begin(process, frames) } else { None };
    let node = Tree::new(process, thread).and_then(|mut tree| {
        walker.insert(root, frames, &mut tree, stack, |node, slot, stack| {
            if let Some(noted) = noted {
                stack.note(process, noted, slot, node);
            }
        })
    });
    if let (Some(_), Some(noted)) = (node, noted) {
        stack.mark(interrupted, noted);
    }
    match (node, end) {
        (None, _) => Path::NoMemory,
        (Some(node), End::Outermost) => Path::Full(node),
        (Some(node), End::Stopped(_) | End::Broken) => Path::Partial(node),
    }
}

struct Walker<'p, 'm> {
    code: Code<'p, 'm>,
    keys: &'m [AtomicU64],
    slots: &'m [AtomicU64],
    checkpoints: &'m [[AtomicU64; CHECKPOINT_WORDS]],
}

impl<'p, 'm> Walker<'p, 'm> {
    fn new(in_sample: &InSample, process: &'p Process<'m>, thread: Thread<'m>) -> Option<Walker<'p, 'm>> {
        let base = thread.chunk.0 as usize * CHUNK_LEN_BYTES;
        let checkpoints = process
            .arena
            .slice_at::<AtomicU64>(base + layout::CHECKPOINTS, layout::CHECKPOINTS_LEN * CHECKPOINT_WORDS)?;
        Some(Walker {
            code: Code::new(in_sample, process, thread)?,
            keys: process.arena.slice_at(base + layout::KEYS, layout::KEYS_LEN)?,
            slots: process.arena.slice_at(base + layout::SLOTS, layout::KEYS_LEN)?,
            checkpoints: checkpoints.as_chunks().0,
        })
    }

    /// Walks to the end; leaves checkpoints, and the keys and return addresses' places of the last part.
    fn walk_whole(&mut self, cursor: Cursor, stack: &mut Stack) -> (usize, End) {
        let (keys, slots, checkpoints) = (self.keys, self.slots, self.checkpoints);
        let mut frames = 0usize;
        let mut callee = 0;
        let end = walk(cursor, &mut self.code, stack, |cursor, located, stack| {
            let slot = if frames > 0 { stack.slot_of_callee(callee, cursor, located) } else { 0 };
            if let Some(place) = slots.get((frames.wrapping_sub(1)) % layout::KEYS_LEN) {
                place.store(slot, Relaxed);
            }
            if stack.marks.is_met() {
                return ControlFlow::Break(());
            }
            if frames.is_multiple_of(layout::KEYS_LEN) && frames > 0 {
                match checkpoints.get(frames / layout::KEYS_LEN - 1) {
                    Some(checkpoint) => save(cursor, checkpoint),
                    None => return ControlFlow::Break(()),
                }
            } else if frames == 0
                && let Some(last) = checkpoints.last()
            {
                // The walk's own start; a walk that needs the last checkpoint is broken off above.
                save(cursor, last);
            }
            let at = frames % layout::KEYS_LEN;
            if let (Some(key), Some(slot)) = (keys.get(at), slots.get(at)) {
                key.store(located.key.0, Relaxed);
                slot.store(0, Relaxed);
            }
            callee = callee_head(cursor, located, frames == 0);
            frames += 1;
            ControlFlow::Continue(())
        });
        (frames, end)
    }

    /// Finds the node of the path that was walked, from the root inwards, or of its innermost frames if no more are kept;
    /// `visit` gets each frame's node, and where its return address is if it may be marked.
    fn insert(
        &mut self,
        root: ArenaRef,
        frames: usize,
        tree: &mut Tree<'_, '_>,
        stack: &mut Stack,
        mut visit: impl FnMut(ArenaRef, u64, &mut Stack),
    ) -> Option<ArenaRef> {
        let kept = tree.kept_frames().map_or(frames, |most| most.min(frames));
        let mut node = if kept < frames { tree.child(root, FrameKey::LEFT_OUT)? } else { root };
        let outermost_part = frames.saturating_sub(1) / layout::KEYS_LEN;
        let mut part = kept.saturating_sub(1) / layout::KEYS_LEN;
        let mut len = kept - part * layout::KEYS_LEN;
        if part < outermost_part {
            self.again(part, stack)?;
        }
        loop {
            for (key, slot) in self.keys.get(..len)?.iter().zip(self.slots.get(..len)?).rev() {
                node = tree.child(node, FrameKey(key.load(Relaxed)))?;
                visit(node, slot.load(Relaxed), stack);
            }
            if part == 0 {
                return Some(node);
            }
            part -= 1;
            len = layout::KEYS_LEN;
            self.again(part, stack)?;
        }
    }

    /// Walks the frames of an inner part once more.
    fn again(&mut self, part: usize, stack: &mut Stack) -> Option<()> {
        let checkpoint = match part {
            0 => self.checkpoints.last()?,
            _ => self.checkpoints.get(part - 1)?,
        };
        let (keys, slots) = (self.keys, self.slots);
        let mut frames = 0usize;
        let mut callee = 0;
        let end = walk(load(checkpoint), &mut self.code, stack, |cursor, located, stack| {
            if let Some(slot) = frames.checked_sub(1).and_then(|at| slots.get(at)) {
                slot.store(stack.slot_of_callee(callee, cursor, located), Relaxed);
            }
            let Some(key) = keys.get(frames) else { return ControlFlow::Break(()) };
            key.store(located.key.0, Relaxed);
            callee = callee_head(cursor, located, frames == 0 && part == 0);
            frames += 1;
            ControlFlow::Continue(())
        });
        // The same stack gives the same frames; if it does not, the path is not known.
        match end {
            End::Broken => Some(()),
            End::Outermost | End::Stopped(Stop::NoRecipe) | End::Stopped(_) => None,
        }
    }
}

/// What is to be known of a frame when its return address may be marked. One that a signal of the program's has interrupted
/// may be about to go on to code that keeps its return address, as a stub of the linkage table does to `setjmp`; of the one that
/// the sample itself has interrupted that is looked at (`sentinel::may_leave`).
fn callee_head(cursor: &Cursor, located: &Located, is_innermost: bool) -> u16 {
    let is_interrupted = matches!(cursor.point, CodePoint::Exact(_)) && !is_innermost;
    located.recipe.head | if is_interrupted { Packed::KEPT } else { 0 }
}

fn save(cursor: &Cursor, checkpoint: &[AtomicU64; CHECKPOINT_WORDS]) {
    let (values, known) = cursor.registers.to_words();
    let exact = matches!(cursor.point, CodePoint::Exact(_));
    let words = values.into_iter().chain([u64::from(known), cursor.point.pc().0, u64::from(exact)]);
    for (to, from) in checkpoint.iter().zip(words) {
        to.store(from, Relaxed);
    }
}

fn load(checkpoint: &[AtomicU64; CHECKPOINT_WORDS]) -> Cursor {
    let mut values = [0; 16];
    for (to, from) in values.iter_mut().zip(checkpoint) {
        *to = from.load(Relaxed);
    }
    let pc = RunAddr(checkpoint[17].load(Relaxed));
    Cursor {
        point: if checkpoint[18].load(Relaxed) != 0 { CodePoint::Exact(pc) } else { CodePoint::Return(pc) },
        registers: Registers::from_words(values, checkpoint[16].load(Relaxed) as u32),
    }
}
