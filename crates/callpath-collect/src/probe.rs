//! Calls of probed procedures: the context of one, and what tells that a later one has the same (iPath: Bernat and Miller
//! 2006, section 3, which walks at each hit).

use callpath_format::address::{CodePoint, RunAddr};
use callpath_format::frame::FrameKey;
use callpath_format::register::Reg;
use callpath_format::shared::probe::Known;
use callpath_format::shared::refused::Calls;
use callpath_format::shared::thread::{Dropped, layout};
use callpath_format::shared::tree::KnownKind;
use callpath_format::shared::{ArenaRef, Node, Session, Settings, ThreadRecord};
use callpath_unwind::CodeMap;
use core::ops::ControlFlow;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use crate::code::Code;
use crate::context_number::number;
use crate::deep::Front;
use crate::path::{self, Path};
use crate::process::Process;
use crate::sample::{InSample, Interrupted, Sample, Trigger};
use crate::stack::Stack;
use crate::syscall::futex_wait;
use crate::take::height_of;
use crate::thread::Thread;
use crate::tree::Tree;
use crate::{clock, refused};

/// The words that a walk depended on, from the innermost frame on.
struct Words<'k> {
    known: &'k mut Known,
    len: usize,
    /// Bounds of the thread's own stack: nothing else stays mapped for certain.
    bounds: Option<(u64, u64)>,
    /// The walk depended on nothing else, and all words fit.
    are_all: bool,
}

impl Words<'_> {
    fn add(&mut self, at: u64, word: u64) {
        let is_on_stack = self.bounds.is_some_and(|(low, high)| low <= at && at <= high.saturating_sub(8));
        match self.known.word.get_mut(self.len).filter(|_| is_on_stack) {
            Some(place) => {
                *place = [at, word];
                self.len += 1;
            }
            None => self.are_all = false,
        }
    }
}

/// A context of a procedure that was entered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Context {
    /// Its node, whose key is the procedure's first instruction.
    pub node: ArenaRef,
    /// The address of those of its values that are of probes.
    pub values: u64,
    /// Its path ends in code that is in no load map yet: a library that was just loaded.
    pub lacks_code: bool,
}

impl Context {
    /// Of a path that lacks code: it is to be walked again.
    const LACKING: Context = Context { node: ArenaRef(0), values: 0, lacks_code: true };
}

/// What tells the context of a frame, of code that counts.
#[derive(Clone, Copy, Debug)]
pub struct Told {
    /// Where the word is that does, on the thread's own stack.
    pub at: u64,
    /// The context of the frame's procedure, if paths further inwards are to begin there, whatever the stack is further out.
    pub below: Option<ArenaRef>,
}

/// The node that a context is below.
fn outwards(process: &Process<'_>, context: ArenaRef) -> Option<ArenaRef> {
    ArenaRef(process.arena.get::<Node>(context)?.parent.load(Relaxed)).some()
}

/// The context at which the calling thread's call counts: of a procedure at whose entry it stands. `known` then tells the context from others; if it cannot, `known.site` is 0. `None`: there is no
/// memory, or the thread has been interrupted while this was at work. It is counted as dropped.
///
/// A path that lacks code counts nowhere, unless it is taken `as_it_is`. `told`: what tells all contexts further out, by where a
/// return address is, and the return address.
pub fn context_of_call(
    (process, thread): (&Process<'_>, Thread<'_>),
    (at_entry, as_it_is): (&Interrupted, bool),
    known: &mut Known,
    told: impl Fn(u64, u64) -> Option<Told>,
) -> Option<Context> {
    let record = thread.record;
    (known.site, known.node) = (0, 0);
    let Some(in_sample) = &InSample::begin(record) else { return dropped(record, Dropped::InCollector) };
    let sample = &Sample { in_sample, process, thread, trigger: Trigger::Own, interrupted: at_entry, begin_ticks: 0 };
    known.map = process.slot.load_map.load(Relaxed);
    known.rbp_mask = 0;
    let mut stack = Stack::new(sample);
    let mut words = Words { known, len: 0, bounds: stack.bounds(), are_all: true };
    let mut is_told = false;
    let mut front = Front::NOWHERE;
    let (mut frames, mut base) = (0usize, 0);
    let (path, lacks_code) = path::of_call(sample, &mut stack, as_it_is, |frame, stack| {
        frames += 1;
        base = frame.cursor.registers.get(Reg::RSP).unwrap_or(0);
        for fact in front.step(frame, stack).into_iter().flatten() {
            if is_told {
                break;
            }
            match (fact.kind & !KnownKind::MARKABLE, fact.at) {
                (KnownKind::FRAME, 0) if frame.is_innermost => {}
                (KnownKind::FRAME, at) if at != 0 => {
                    words.add(at, fact.word);
                    if let Some(told) = told(at, fact.word) {
                        // SAFETY: a word of the thread's own stack, as `Told` says.
                        words.add(told.at, unsafe { (told.at as *const u64).read() });
                        is_told = true;
                        let below = told.below.and_then(|context| outwards(process, context));
                        if let Some(below) = below {
                            base = 0;
                            return ControlFlow::Break(below);
                        }
                    }
                }
                (KnownKind::WORD, 0) => words.known.rbp_mask = u64::MAX,
                (KnownKind::WORD, at) => words.add(at, fact.word),
                _ => words.are_all = false,
            }
        }
        ControlFlow::Continue(())
    });
    let (len, are_all) = (words.len, words.are_all);
    let node = match path {
        Path::Full(node) | Path::Partial(node) => node,
        Path::NoTable(_) if lacks_code => return Some(Context::LACKING),
        Path::NoTable(_) | Path::Deep | Path::NoMemory => return dropped(record, Dropped::NoMemory),
    };
    let context = Context { lacks_code, ..context(process, &thread, Some(node))? };
    known.words = len as u64;
    known.values = context.values;
    // Of a deeper stack, the outermost frame was not seen here.
    known.base = if matches!(path, Path::Full(_)) && frames < layout::KEYS_LEN { base } else { 0 };
    if are_all && matches!(path, Path::Full(_)) {
        known.site = u64::MAX;
    }
    Some(context)
}

/// The same where nothing is walked: of a procedure at a height of the stack, of which a map tells the path later. The stack pointer alone tells
/// it from others, on the thread's own stack.
pub fn context_at_height(
    (process, thread): (&Process<'_>, Thread<'_>),
    (at_entry, as_it_is): (&Interrupted, bool),
    known: &mut Known,
) -> Option<Context> {
    let record = thread.record;
    (known.site, known.node) = (0, 0);
    let Some(in_sample) = &InSample::begin(record) else { return dropped(record, Dropped::InCollector) };
    let sample = &Sample { in_sample, process, thread, trigger: Trigger::Own, interrupted: at_entry, begin_ticks: 0 };
    known.map = process.slot.load_map.load(Relaxed);
    let stack = Stack::new(sample);
    let Some(mut code) = Code::new(sample) else { return dropped(record, Dropped::NoMemory) };
    let entry = code.locate_point(CodePoint::Exact(RunAddr(at_entry.pc))).key;
    let lacks_code = code.unknown_code && code.unknown_generated.is_none();
    if let Some(RunAddr(lacks)) = code.unmapped.filter(|_| lacks_code) {
        process.slot.map_lacks.store(lacks, Relaxed);
    }
    if lacks_code && !as_it_is {
        return Some(Context::LACKING);
    }
    // At an entry, the CFA is above the return address.
    let cfa = at_entry.registers.get(Reg::RSP.index()).map(|rsp| rsp.wrapping_add(size_of::<u64>() as u64));
    let height = FrameKey::height(height_of(sample, &stack, cfa));
    let node = || {
        let mut tree = Tree::new(process, thread)?;
        let procedure = tree.child(ArenaRef(record.partial_root.load(Relaxed)), entry)?;
        tree.child(procedure, height)
    };
    let context = Context { lacks_code, ..context(process, &thread, node())? };
    (known.rbp_mask, known.words, known.values) = (0, 0, context.values);
    // Any word that is the same for all of a stack.
    known.base = stack.bounds().map_or(0, |(_, high)| high);
    if known.base != 0 && !lacks_code {
        known.site = u64::MAX;
    }
    Some(context)
}

/// The context of a procedure at whose entry the calling thread stands, where that of its caller is known: `returns_to` is the
/// return address. There is no walk; the session has to keep whole paths. `None` as of [`context_of_call`].
pub fn context_below(
    process: &Process<'_>,
    thread: Thread<'_>,
    (caller, returns_to): (ArenaRef, u64),
    at_entry: &Interrupted,
) -> Option<Context> {
    let record = thread.record;
    let Some(in_sample) = &InSample::begin(record) else { return dropped(record, Dropped::InCollector) };
    let sample = &Sample { in_sample, process, thread, trigger: Trigger::Own, interrupted: at_entry, begin_ticks: 0 };
    let node = || {
        let outwards = outwards(process, caller)?;
        let mut code = Code::new(sample)?;
        let call = code.locate_point(CodePoint::Return(RunAddr(returns_to))).key;
        let entry = code.locate_point(CodePoint::Exact(RunAddr(at_entry.pc))).key;
        let mut tree = Tree::new(process, thread)?;
        let call = tree.child(outwards, call)?;
        tree.child(call, entry)
    };
    context(process, &thread, node())
}

/// The load map that walks go by from now on.
pub fn load_map(process: &Process<'_>) -> u64 {
    process.slot.load_map.load(Acquire)
}

/// Asks the recorder for a load map that has what the one `before` lacks, and waits for it, so long at most. `false`: there
/// is none, or there will be none: the memory map was read anew, and no table is being built. `before` was read before the
/// walk that found it lacking: another may have come since.
pub fn await_code(process: &Process<'_>, before: u64, patience_ns: u64) -> bool {
    const TURN_NS: u64 = 2_000_000;
    let slot = process.slot;
    if slot.load_map.load(Acquire) != before {
        return true;
    }
    if process.session.recorder.load(Relaxed) != Session::SERVING || refused::has(Calls::FUTEX) {
        return false;
    }
    let wanted = slot.map_wanted.fetch_add(1, AcqRel).wrapping_add(1);
    process.ring();
    let begin = clock::monotonic_ns();
    loop {
        let served = slot.map_served.load(Acquire);
        // A table may be there some time after the map was read.
        let is_vain = is_served(served, wanted) && slot.map_awaits.load(Acquire) == 0;
        let is_late = || clock::monotonic_ns().saturating_sub(begin) >= patience_ns;
        let is_there = slot.load_map.load(Acquire) != before;
        if is_there || is_vain || is_late() {
            return is_there;
        }
        futex_wait(&slot.map_served, served, TURN_NS);
    }
}

/// Whether request `wanted` has been served, if `served` is the last one that was. Both counters wrap around.
fn is_served(served: u32, wanted: u32) -> bool {
    served.wrapping_sub(wanted) as i32 >= 0
}

/// Whether recursion of counted procedures is a back edge.
pub fn has_back_edges(process: &Process<'_>) -> bool {
    process.session.settings.recursion == Settings::BACK_EDGES
}

/// Whether no stack is walked: a map tells call paths later.
pub fn infers(process: &Process<'_>) -> bool {
    process.session.settings.infers()
}

/// Whether call paths are kept as they are.
pub fn keeps_whole_paths(process: &Process<'_>) -> bool {
    let settings = &process.session.settings;
    settings.recursion != Settings::COLLAPSED && settings.suffix_frames().is_none()
}

fn context(process: &Process<'_>, thread: &Thread<'_>, node: Option<ArenaRef>) -> Option<Context> {
    let found = node.and_then(|node| Some(Context { node, values: values_of(process, node)?, lacks_code: false }));
    match found {
        Some(Context { node, .. }) => number(process, thread, node),
        None => _ = dropped::<Context>(thread.record, Dropped::NoMemory),
    }
    found
}

/// The address of those of a node's values that are of probes.
fn values_of(process: &Process<'_>, node: ArenaRef) -> Option<u64> {
    let values = process.session.columns.of_node(&process.arena, node)?;
    Some(values.get(process.session.first_of_probes..)?.as_ptr() as u64)
}

fn dropped<T>(record: &ThreadRecord, reason: Dropped) -> Option<T> {
    let count = record.dropped.get(reason as usize)?;
    count.store(count.load(Relaxed).wrapping_add(1), Relaxed);
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_served_up_to_the_last_one() {
        assert!(is_served(5, 5) && is_served(6, 5) && !is_served(4, 5));
        assert!(is_served(1, u32::MAX) && !is_served(u32::MAX, 1));
    }
}
