//! Stacks that are deeper than one sample may walk. The facts that a sample finds are kept, and the thread's next
//! sample continues from there. It walks the new frames up to a known one, compares every word that the known way
//! outwards depended on, and continues where the last walk or insertion of nodes stopped. So a path is complete after
//! some samples, however deep, and each sample takes a bounded time.
//!
//! Nothing is guessed: a word that has changed is forgotten, with everything that is known inwards of it. Samples from
//! before the outer frames were known stay partial: those frames may have been others then.

mod front;
mod known;

use callpath_format::address::RunAddr;
use callpath_format::frame::FrameKey;
use callpath_format::shared::thread::{Deep, layout};
use callpath_format::shared::tree::KnownKind;
use callpath_format::shared::{ArenaRef, CHUNK_LEN_BYTES};
use callpath_unwind::{Cursor, End, Memory, walk};
use core::ops::ControlFlow;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use crate::code::Code;
use crate::frame::Frame;
use crate::process::Process;
use crate::sample::Sample;
use crate::sentinel::Noted;
use crate::stack::Stack;
use crate::thread::Thread;
use crate::tree::Tree;
use crate::work::{self, Work};
pub(crate) use front::Front;
use known::{FRESH, Fact, List, MOST, Stretch};

/// How many frames are noted for the sentinel: those that return next.
const NOTED: u32 = 1024;
/// After samples that failed, at most this many do not try.
const MOST_SKIPPED: u32 = 63;

/// What became of a deep sample's path.
pub(crate) enum Outcome {
    /// It ends at an outermost frame; its node.
    Full(ArenaRef),
    /// It does not; its node below the root of partial paths.
    Partial(ArenaRef),
    /// Some code on it has no table; the first of it that was generated at run time, if it was.
    Unknown(Option<RunAddr>),
    /// The work exceeds one sample's budget. `gets_on`: later samples continue where it stopped.
    TooMuch {
        /// See the variant.
        gets_on: bool,
    },
}

/// How a walk over new frames ended.
enum Fresh {
    /// At a frame that is known: its position.
    Joined(u32),
    /// At the end of the stack, or where no walk gets further.
    Ended(End),
    /// At the end of the budget: there are more frames.
    TooMuch,
    /// At the end of the budget for comparing.
    TooMuchKnown,
    NoMemory,
}

/// Result of a comparison.
enum Compared {
    Same,
    /// From this position on, inwards.
    Otherwise(u32),
    TooMuch,
}

/// Progress of a walk over new frames.
struct Walked {
    /// The frame that it has reached.
    front: Front,
    /// How many facts are in the list of new ones.
    len: u32,
}

/// The search for the path of a sample of a deep stack.
struct Search<'s, 'm> {
    sample: &'s Sample<'s, 'm>,
    /// A path on which some code has no table ends there.
    as_it_is: bool,
    known: Stretch<'s, 'm>,
    fresh: List<'s, 'm>,
    work: Work,
}

/// Finds the path of a sample of a deep stack, or as much of it as one sample's budget allows. `as_it_is`: a path on
/// which some code has no table ends there. `None`: no memory. Out of line: signal stacks are small.
#[inline(never)]
pub(crate) fn find(sample: &Sample<'_, '_>, stack: &mut Stack, as_it_is: bool) -> Option<Outcome> {
    let (known, fresh) = known_stack(sample.process, sample.thread)?;
    let code = &mut Code::new(sample)?;
    let state = known.state;
    let skipped = state.skip.load(Relaxed);
    if skipped > 0 {
        state.skip.store(skipped - 1, Relaxed);
        return Some(Outcome::TooMuch { gets_on: false });
    }
    // The answer may change with the load map.
    let generation = sample.thread.record.cache_generation.load(Relaxed);
    if known.inner() == 0 || state.generation.load(Relaxed) != generation {
        known.clear();
        state.generation.store(generation, Relaxed);
    }
    stack.marks.pass_by(sample.process);
    if state.unmarkable.load(Relaxed) != 0 && stack.marks.may_be_added() {
        // Which of its frames may be marked was not asked: the stack's bounds were not known then.
        known.clear();
    }
    let is_walked = state.end.load(Relaxed) != Deep::OPEN;
    let is_to_learn = !is_walked || state.noded.load(Relaxed) < known.inner() && suffix_frames(sample).is_none();
    let work = begin_work(sample, state, is_to_learn);
    let mut search = Search { sample, as_it_is, known, fresh, work };
    let outcome = if is_walked && is_to_learn {
        // The stack of the last sample has its nodes in the tree before the next one is walked.
        let is_full = state.end.load(Relaxed) == Deep::OUTERMOST;
        search.work.spend_reserve();
        search.node(is_full).map(|_| Outcome::TooMuch { gets_on: true })
    } else {
        search.go_on(code, stack)
    };
    if outcome.is_none() {
        known.clear();
    }
    let is_in_vain = !matches!(
        outcome,
        Some(Outcome::Full(_) | Outcome::Partial(_) | Outcome::Unknown(_) | Outcome::TooMuch { gets_on: true })
    );
    let vain = if is_in_vain { (2 * state.vain.load(Relaxed) + 1).min(MOST_SKIPPED) } else { 0 };
    state.vain.store(vain, Relaxed);
    state.skip.store(vain, Relaxed);
    outcome
}

fn begin_work(sample: &Sample<'_, '_>, state: &Deep, is_to_learn: bool) -> Work {
    let taken = sample.thread.record.taken.load(Relaxed);
    let long = state.long.load(Relaxed);
    let is_long = is_to_learn && (u64::from(long) + 1) * work::LONG_ONE_IN <= taken;
    state.long.store(long + u32::from(is_long), Relaxed);
    Work::begin(sample.process.session.settings.ticks_per_ms, is_long)
}

fn suffix_frames(sample: &Sample<'_, '_>) -> Option<usize> {
    sample.process.session.settings.suffix_frames()
}

/// The known facts about a thread's deep stack.
fn known_stack<'p, 'm>(process: &'p Process<'m>, thread: Thread<'m>) -> Option<(Stretch<'p, 'm>, List<'p, 'm>)> {
    let base = thread.chunk.0 as usize * CHUNK_LEN_BYTES;
    let state: &Deep = process.arena.at_offset(base + layout::DEEP)?;
    let chunks: &[AtomicU32] =
        process.arena.slice_at(base + layout::DEEP + size_of::<Deep>(), layout::DEEP_CHUNKS + layout::FRESH_CHUNKS)?;
    let (known, fresh) = chunks.split_at_checked(layout::DEEP_CHUNKS)?;
    Some((Stretch { list: List::new(process, thread, known), state }, List::new(process, thread, fresh)))
}

impl Search<'_, '_> {
    fn go_on(&mut self, code: &mut Code<'_, '_>, stack: &mut Stack) -> Option<Outcome> {
        let (known, fresh) = (self.known, self.fresh);
        let state = known.state;
        let mut new = Walked { front: Front::NOWHERE, len: 0 };
        let ended = self.walk_fresh(code, stack, &mut new);
        self.work.spend_reserve();
        let Walked { front, mut len } = new;
        let joined = match ended {
            Fresh::Joined(at) => {
                known.cut(at + 1);
                // The known frame is in both lists. Its callee may be another one now.
                len -= 1;
                known.list.remark(at, fresh.fact(len)?)?;
                front
            }
            Fresh::NoMemory => return None,
            Fresh::TooMuchKnown if len * work::WALKED < (known.inner() - known.outer()) * work::COMPARED => {
                return Some(Outcome::TooMuch { gets_on: false });
            }
            // The new frames took more than comparing the known ones does. Both together may be too much for each
            // sample: the new ones are kept.
            Fresh::Ended(_) | Fresh::TooMuch | Fresh::TooMuchKnown => {
                known.clear();
                front.save(state);
                state.unmarkable.store(u32::from(!stack.marks.may_be_added()), Relaxed);
                Front::NOWHERE
            }
        };
        for at in (0..len).rev() {
            known.push_inner(fresh.fact(at)?)?;
        }
        state.met_generated.fetch_or(code.met_generated.into(), Relaxed);
        match ended {
            Fresh::Ended(end) => self.end(code, end),
            Fresh::Joined(_) if state.end.load(Relaxed) == Deep::OPEN => {
                let front = Front::load(state, &joined, stack);
                self.walk_outwards(code, stack, front)?;
            }
            _ => {}
        }
        if state.end.load(Relaxed) == Deep::OPEN {
            if code.unknown_code && !self.as_it_is {
                return Some(Outcome::Unknown(code.unknown_generated));
            }
            if !code.unknown_code {
                let may_join = state.sealed.load(Relaxed) > known.outer();
                let is_too_deep = known.inner() - known.outer() >= MOST;
                return Some(Outcome::TooMuch { gets_on: may_join && !is_too_deep });
            }
        }
        let is_full = state.end.load(Relaxed) == Deep::OUTERMOST;
        let Some(node) = self.node(is_full)? else {
            return Some(Outcome::TooMuch { gets_on: true });
        };
        if !is_full {
            return Some(Outcome::Partial(node));
        }
        if state.met_generated.load(Relaxed) == 0 && suffix_frames(self.sample).is_none() {
            self.mark(stack);
        }
        Some(Outcome::Full(node))
    }

    /// Walks from the innermost frame to one that is known, or as far as it may.
    #[inline(never)]
    fn walk_fresh(&mut self, code: &mut Code<'_, '_>, stack: &mut Stack, new: &mut Walked) -> Fresh {
        let (known, fresh) = (self.known, self.fresh);
        let Walked { front, len } = new;
        let cursor = Cursor::interrupted(RunAddr(self.sample.interrupted.pc), self.sample.interrupted.registers);
        let mut next = known.inner();
        let mut broken = Fresh::TooMuch;
        let end = walk(cursor, code, stack, |cursor, located, stack| {
            let step = front.step(Frame { cursor, located, is_innermost: *len == 0 }, stack);
            for fact in step.into_iter().flatten() {
                if fresh.put(*len, fact).is_none() {
                    broken = Fresh::NoMemory;
                    return ControlFlow::Break(());
                }
                *len += 1;
            }
            let [_, _, Some(fact)] = step else { return ControlFlow::Break(()) };
            let mut is_short = !self.work.spend(work::WALKED) || *len + 3 > FRESH;
            while let Some(before) = next.checked_sub(1).filter(|at| fact.at != 0 && *at >= known.outer()) {
                let Some(entry) = known.list.fact(before) else { break };
                if entry.is_frame() && entry.at > fact.at {
                    break;
                }
                next = before;
                is_short |= !self.work.spend(work::COMPARED);
                let is_same = entry.is_frame() && entry.at == fact.at && entry.word == fact.word;
                if is_same && before < known.state.sealed.load(Relaxed) {
                    match self.compare(before, front, stack) {
                        Compared::Same => {
                            broken = Fresh::Joined(before);
                            return ControlFlow::Break(());
                        }
                        Compared::Otherwise(at) => {
                            known.cut(at);
                            next = at;
                        }
                        Compared::TooMuch => {
                            broken = Fresh::TooMuchKnown;
                            return ControlFlow::Break(());
                        }
                    }
                    break;
                }
            }
            if is_short { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        self.sample.thread.record.frames.fetch_add(u64::from(*len), Relaxed);
        if matches!(end, End::Broken) { broken } else { Fresh::Ended(end) }
    }

    /// Continues the walk outwards where the last one stopped.
    #[inline(never)]
    fn walk_outwards(&mut self, code: &mut Code<'_, '_>, stack: &mut Stack, mut front: Front) -> Option<()> {
        let known = self.known;
        let before = known.outer();
        let (mut is_known_already, mut memory) = (true, Some(()));
        let end = walk(front.cursor(), code, stack, |cursor, located, stack| {
            let step = front.step(Frame { cursor, located, is_innermost: false }, stack);
            if is_known_already {
                is_known_already = false;
                return ControlFlow::Continue(());
            }
            for fact in step.into_iter().flatten() {
                memory = memory.and_then(|()| known.push_outer(fact));
            }
            let is_enough = known.inner() - known.outer() >= MOST;
            if memory.is_none() || is_enough || !self.work.spend(work::WALKED) {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        memory?;
        self.sample.thread.record.frames.fetch_add(u64::from(before - known.outer()), Relaxed);
        known.state.met_generated.fetch_or(code.met_generated.into(), Relaxed);
        front.save(known.state);
        self.end(code, end);
        Some(())
    }

    /// A walk has ended at the outermost known frame.
    fn end(&self, code: &Code<'_, '_>, end: End) {
        let end = match end {
            End::Broken => return,
            // The recorder may know more at the next sample.
            End::Stopped(_) if code.unknown_code => Deep::OPEN,
            End::Outermost => Deep::OUTERMOST,
            End::Stopped(_) => Deep::STOPPED,
        };
        self.known.state.end.store(end, Relaxed);
    }

    /// The node of the innermost frame, if the budget allows. `None`: no memory.
    #[inline(never)]
    fn node(&mut self, is_full: bool) -> Option<Option<ArenaRef>> {
        let known = self.known;
        let record = self.sample.thread.record;
        let root = if is_full { &record.full_root } else { &record.partial_root };
        let root = ArenaRef(root.load(Relaxed));
        let mut tree = Tree::new(self.sample.process, self.sample.thread)?;
        if let Some(most) = suffix_frames(self.sample) {
            return self.node_of_innermost(&mut tree, root, most);
        }
        let state = known.state;
        if state.root.swap(root.0, Relaxed) != root.0 {
            state.noded.store(known.outer(), Relaxed);
        }
        let mut at = state.noded.load(Relaxed).max(known.outer());
        let mut node = known.node_before(at).filter(|_| at > known.outer()).unwrap_or(root);
        while at < known.inner() {
            let (fact, (_, entry)) = (known.list.fact(at)?, known.list.get(at)?);
            if fact.is_frame() {
                let nodes = record.nodes.load(Relaxed);
                node = tree.child(node, FrameKey(fact.key))?;
                let steps = if record.nodes.load(Relaxed) == nodes { work::FOUND } else { work::FOUND + work::ADDED };
                if !self.work.spend(steps) {
                    return Some(None);
                }
            }
            entry.node.store(node.0, Relaxed);
            at += 1;
            state.noded.store(at, Relaxed);
        }
        Some(Some(node))
    }

    /// Notes the innermost frames for the sentinel, and marks one.
    #[inline(never)]
    fn mark(&self, stack: &mut Stack) {
        let known = self.known;
        let frames = (known.inner() - known.outer()) as usize;
        stack.marks.note_unmarked(self.sample.process, frames);
        let Some(noted) = stack.marks.begin(self.sample.process, frames) else { return };
        // Where the return address of the next frame inwards is, if it may be marked.
        let mut slot = 0;
        for at in known.outer().max(known.inner().saturating_sub(NOTED))..known.inner() {
            let (Some(fact), Some((_, entry))) = (known.list.fact(at), known.list.get(at)) else { return };
            if fact.is_frame() {
                stack.note(noted, Noted { node: ArenaRef(entry.node.load(Relaxed)), slot });
                slot = if fact.kind & KnownKind::MARKABLE != 0 { fact.at } else { 0 };
            }
        }
        stack.mark(self.sample.interrupted, noted.frames);
    }

    /// Compares each word that the way outwards of a known frame depended
    /// on with its value now. `front`: at that frame.
    fn compare(&mut self, joined: u32, front: &Front, stack: &mut Stack) -> Compared {
        let known = self.known;
        let mut end = joined;
        self.work.begin_whole();
        while end > known.outer() {
            let Some(words) = known.list.last_words(known.outer().max(end.saturating_sub(work::LOOK)), end) else {
                return Compared::Otherwise(known.outer());
            };
            let same = stack.same_words(words) as u32;
            end -= same;
            if !self.work.spend(work::COMPARED * (same + 1)) {
                return Compared::TooMuch;
            }
            if (same as usize) < words.len() {
                // Another kind of entry, a mark, or another word.
                end -= 1;
                let Some(fact) = known.list.fact(end) else { return Compared::Otherwise(end) };
                let is_same = match fact.kind {
                    KnownKind::SEAL => false,
                    // Saved inwards of the frame: it has been restored by now.
                    KnownKind::WORD if fact.at < front.rsp => front.rbp == Some(fact.word),
                    KnownKind::WORD => stack.read_u64(fact.at) == Some(fact.word),
                    _ => stack.true_word(fact.at) == Some(fact.word),
                };
                if !is_same {
                    return Compared::Otherwise(end);
                }
            }
        }
        Compared::Same
    }

    /// The node of the innermost frames only. `None`: no memory.
    fn node_of_innermost(&mut self, tree: &mut Tree<'_, '_>, root: ArenaRef, most: usize) -> Option<Option<ArenaRef>> {
        let known = self.known;
        let key = |at: u32| known.list.fact(at).filter(Fact::is_frame).map(|fact| FrameKey(fact.key));
        let (mut from, mut frames) = (known.inner(), 0);
        while from > known.outer() && frames < most {
            from -= 1;
            frames += usize::from(key(from).is_some());
        }
        let is_cut = (known.outer()..from).any(|at| key(at).is_some());
        let mut node = if is_cut { tree.child(root, FrameKey::LEFT_OUT)? } else { root };
        for key in (from..known.inner()).filter_map(key) {
            if !self.work.spend(work::FOUND) {
                return Some(None);
            }
            node = tree.child(node, key)?;
        }
        Some(Some(node))
    }
}
