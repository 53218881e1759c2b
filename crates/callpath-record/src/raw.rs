//! Raw samples, unwound by the collector's own walk once their tables are there.

mod beyond;
mod copied;
mod stack;
mod start;
mod trace;

use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use callpath_format::address::{CodePoint, RunAddr};
use callpath_format::frame::{CloneNumber, FrameKey, ModuleIndex};
use callpath_format::recipe::{Expression, Packed, Recipe};
use callpath_format::register::Reg;
use callpath_format::shared::load_map::{Mapping, Published};
use callpath_format::shared::tree::RawSample;
use callpath_format::shared::{ArenaRef, CHUNK_LEN_BYTES, ChunkHeader, ChunkIndex, ProcessSlot, Settings};
use callpath_format::table::RecipeId;
use callpath_measurement::{FULL_ROOT, PARTIAL_ROOT};
use callpath_tables::recipes::generated::{Exits, Return};
use callpath_unwind::{CodeMap, Cursor, End, Located, Stop, innermost, walk};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::arena::ArenaAllocator;
use crate::earlier::Earlier;
use crate::generated::{GeneratedCode, ModuleList, Witness};
use crate::module::{Awaited, ModuleId};
use crate::thread::Thread;
use beyond::caller_of_interpreted;
pub(crate) use copied::Copied;
use stack::{Stack, StackPart};
pub(crate) use start::{Begun, start_of_thread};
use trace::Trace;

/// The raw samples that a process has put down since the last time.
pub(crate) fn take_list(allocator: &ArenaAllocator, slot: &ProcessSlot) -> Vec<ChunkIndex> {
    let mut chunks = Vec::new();
    let mut seen = FxHashSet::default();
    let mut next = ChunkIndex(slot.raw.swap(0, AcqRel));
    // A list that the program has damaged may run in circles, or into what is no raw sample.
    while let Some(header) = in_kind(allocator, next, ChunkHeader::KIND_RAW).filter(|_| seen.insert(next)) {
        chunks.push(next);
        next = ChunkIndex(header.next.load(Acquire));
    }
    chunks
}

/// The header of a chunk that was handed out and is of this kind.
fn in_kind(allocator: &ArenaAllocator, chunk: ChunkIndex, kind: u32) -> Option<&ChunkHeader> {
    let header = allocator.arena().chunk(chunk).filter(|_| allocator.is_backed(chunk))?;
    (header.kind.load(Relaxed) == kind).then_some(header)
}

/// The chunks with more of the stack of the raw sample in `chunk`.
fn more_of(allocator: &ArenaAllocator, chunk: ChunkIndex) -> Vec<ChunkIndex> {
    let base = chunk.0 as usize * CHUNK_LEN_BYTES + ChunkHeader::LEN_BYTES;
    let mut next = allocator.arena().at_offset::<RawSample>(base).map_or(0, |sample| sample.more.load(Acquire));
    let mut chunks = Vec::new();
    while chunks.len() < RawSample::MAX_MORE
        && let Some(header) = in_kind(allocator, ChunkIndex(next), ChunkHeader::KIND_RAW_MORE)
    {
        chunks.push(ChunkIndex(next));
        next = header.next.load(Relaxed);
    }
    chunks
}

/// Gives the chunks of a raw sample back.
pub(crate) fn give_back(allocator: &mut ArenaAllocator, chunk: ChunkIndex) {
    if in_kind(allocator, chunk, ChunkHeader::KIND_RAW).is_none() {
        return;
    }
    for more in more_of(allocator, chunk) {
        // It is no longer of that kind if it was given back already.
        if in_kind(allocator, more, ChunkHeader::KIND_RAW_MORE).is_some() {
            allocator.give_back(more);
        }
    }
    allocator.give_back(chunk);
}

/// One raw sample in its chunks.
pub(crate) struct Raw<'a> {
    sample: &'a RawSample,
    /// Its weight, by metric.
    values: &'a [AtomicU64],
    /// The stack's copy.
    stack: Vec<StackPart<'a>>,
    code: &'a [AtomicU64],
    /// If it hit in the kernel and that is known: the frames there, the innermost first.
    kernel: &'a [FrameKey],
    /// The thread's record.
    pub(crate) owner: ArenaRef,
}

impl<'a> Raw<'a> {
    /// What lies in a chunk, if it is a raw sample.
    pub(crate) fn in_chunk(allocator: &'a ArenaAllocator, chunk: ChunkIndex) -> Option<Raw<'a>> {
        let arena = allocator.arena();
        let header = arena.chunk(chunk).filter(|h| h.kind.load(Relaxed) == ChunkHeader::KIND_RAW)?;
        let base = chunk.0 as usize * CHUNK_LEN_BYTES + ChunkHeader::LEN_BYTES;
        let sample: &RawSample = arena.at_offset(base)?;
        let mut start = sample.stack_start.load(Relaxed);
        let mut left = sample.stack_len_bytes.load(Relaxed) as usize / 8;
        start.checked_add(8 * left as u64)?;
        let mut stack = Vec::new();
        let columns = allocator.columns();
        let first = (base - ChunkHeader::LEN_BYTES + columns.stack_start(), columns.first_stack_bytes() / 8);
        let behind_header = |chunk: ChunkIndex| chunk.0 as usize * CHUNK_LEN_BYTES + ChunkHeader::LEN_BYTES;
        let more =
            more_of(allocator, chunk).into_iter().map(|more| (behind_header(more), RawSample::MORE_STACK_BYTES / 8));
        for (at, room) in std::iter::once(first).chain(more) {
            let words = arena.slice_at(at, room.min(left))?;
            stack.push(StackPart { start, words });
            start += 8 * words.len() as u64;
            left -= words.len();
        }
        let code_len = (sample.code_len_bytes.load(Relaxed) as usize).min(RawSample::MAX_CODE_BYTES);
        let code_at = (chunk.0 as usize + 1) * CHUNK_LEN_BYTES - RawSample::MAX_CODE_BYTES;
        let code = arena.slice_at(code_at, code_len / 8)?;
        let values = columns.of_raw(&arena, chunk)?;
        Some(Raw { sample, values, stack, code, kernel: &[], owner: ArenaRef(header.owner.load(Relaxed)) })
    }

    /// A copy of it, that shares with `before`, an earlier sample of the same thread, what is the same on the stack;
    /// and how much memory it takes beyond that, bytes.
    pub(crate) fn retained(&self, before: Option<&RetainedRaw>) -> (RetainedRaw, usize) {
        let copy = |word: &AtomicU64| AtomicU64::new(word.load(Relaxed));
        let sample = RawSample::default();
        for (to, from) in sample.registers.iter().zip(&self.sample.registers) {
            to.store(from.load(Relaxed), Relaxed);
        }
        sample.stack_start.store(self.sample.stack_start.load(Relaxed), Relaxed);
        sample.samples.store(self.sample.samples.load(Relaxed), Relaxed);
        sample.flags.store(self.sample.flags.load(Relaxed), Relaxed);
        sample.stack_base.store(self.sample.stack_base.load(Relaxed), Relaxed);
        sample.code_start.store(self.sample.code_start.load(Relaxed), Relaxed);
        let values: Vec<AtomicU64> = self.values.iter().map(copy).collect();
        let mut len_bytes = size_of::<RetainedRaw>() + 8 * (values.len() + self.code.len());
        let page = |page: Page<'_>| {
            len_bytes += size_of::<RetainedPage>();
            if let Some(same) =
                before.and_then(|before| before.page_at(page.start)).filter(|retained| page.is(&retained.words))
            {
                return same.clone();
            }
            let words: Arc<[AtomicU64]> = page.parts.iter().flat_map(|part| part.iter().map(copy)).collect();
            len_bytes += 8 * words.len();
            RetainedPage { start: page.start, words }
        };
        let stack = pages(&self.stack).into_iter().map(page).collect();
        let code = self.code.iter().map(copy).collect();
        let kernel = self.kernel.to_vec();
        (RetainedRaw { sample, values, stack, code, kernel, owner: self.owner }, len_bytes)
    }

    /// The words of the stack.
    pub(crate) fn stack_words(&self) -> impl Iterator<Item = u64> {
        self.stack.iter().flat_map(|part| part.words.iter().map(|word| word.load(Relaxed)))
    }

    /// The interrupted instruction.
    pub(crate) fn pc(&self) -> RunAddr {
        RunAddr(self.sample.registers[16].load(Relaxed))
    }

    /// Whether the copy reaches the end of the stack.
    fn is_whole_stack(&self) -> bool {
        self.sample.flags.load(Relaxed) & 1 != 0
    }

    /// How many chunks its copy takes beyond the first.
    pub(crate) fn more_chunks(&self) -> usize {
        self.stack.len().saturating_sub(1)
    }

    /// Whether its copy is one of generated code.
    pub(crate) fn is_of_generated_code(&self) -> bool {
        !self.code.is_empty()
    }

    /// Walks it. `earlier`: what is known of the last walk of the same thread, over the same code.
    pub(crate) fn walk(&self, mut code: Code<'_>, earlier: Option<&mut Earlier>) -> Walked {
        let registers = std::array::from_fn(|i| self.sample.registers[i].load(Relaxed));
        let mut memory = Stack::new(&self.stack);
        if earlier.is_some() {
            memory.keep_log();
        }
        let mut trace = Trace::new(earlier);
        let mut is_kept = false;
        code.witness = Witness {
            start: RunAddr(self.sample.code_start.load(Relaxed)),
            bytes: self.code.iter().flat_map(|word| word.load(Relaxed).to_le_bytes()).collect(),
        };
        code.generated.postponed = false;
        if code.innermost_only {
            return self.look_at_innermost(code, memory);
        }
        let mut keys: Vec<FrameKey> = Vec::new();
        let mut cursor = Cursor::interrupted(self.pc(), registers);
        let mut ran_out = false;
        let mut met_end = false;
        let mut rsp_of_caller = None;
        // A path beyond a guessed frame counts if it reaches the stack's outermost frame.
        let mut surely = None;
        let mut rounds = 0;
        loop {
            let mut last = None;
            let mut interpreted = None;
            let mut has_met = false;
            let end = walk(cursor, &mut code, &mut memory, |cursor, located, memory| {
                if keys.len() == 1 {
                    rsp_of_caller = cursor.registers.get(Reg::RSP);
                }
                if located.key == NO_FRAME {
                    return ControlFlow::Break(());
                }
                keys.push(located.key);
                last = Some(*cursor);
                has_met = trace.visit(cursor, located, memory);
                if has_met {
                    return ControlFlow::Break(());
                }
                interpreted = caller_of_interpreted(cursor, located, memory);
                match interpreted {
                    Some(_) => ControlFlow::Break(()),
                    None => ControlFlow::Continue(()),
                }
            });
            let full = end == End::Outermost || has_met;
            let has_ended = end == End::Stopped(Stop::Unreadable) && memory.has_ended();
            met_end |= has_ended;
            ran_out |= has_ended && !self.is_whole_stack();
            let interpreted = interpreted.filter(|caller| code.may_be_return_address(caller.point.pc().0));
            let beyond = interpreted.map(|caller| (caller, true));
            let beyond = beyond.or_else(|| code.beyond(&last.filter(|_| !full)?, &mut memory));
            rounds += 1;
            match beyond.filter(|(caller, _)| rounds < MOST_ROUNDS && last.is_some_and(|last| rises(&last, caller))) {
                Some((caller, is_sure)) => {
                    cursor = caller;
                    trace.forget();
                    if !is_sure {
                        surely = surely.or(Some(keys.len()));
                    }
                }
                None => {
                    if has_met {
                        keys.extend(trace.callers());
                    }
                    if full {
                        is_kept = trace.keep(&memory, has_met);
                    }
                    if let Some(surely) = surely.filter(|_| !full) {
                        keys.truncate(surely);
                    }
                    keys.dedup_by(|one, other| *one == FrameKey::PROBE && one == other);
                    let height = self.height(rsp_of_caller, &code);
                    let Code { met_unknown, met_awaited, generated, .. } = code;
                    let (ran_out, met_postponed) = (ran_out && !full, !full && generated.postponed);
                    let read_bytes = memory.read_bytes();
                    return Walked {
                        keys,
                        full,
                        is_kept,
                        #[cfg(test)]
                        has_met,
                        height,
                        ran_out,
                        met_end: met_end && !full,
                        read_bytes,
                        met_unknown,
                        met_awaited,
                        met_postponed,
                    };
                }
            }
        }
    }

    /// The innermost frame and its height alone: the caller may lie beyond the copy.
    fn look_at_innermost(&self, mut code: Code<'_>, mut memory: Stack<'_>) -> Walked {
        let registers = std::array::from_fn(|i| self.sample.registers[i].load(Relaxed));
        let (located, rsp) = innermost(Cursor::interrupted(self.pc(), registers), &mut code, &mut memory);
        Walked {
            keys: vec![located.key],
            full: false,
            is_kept: false,
            #[cfg(test)]
            has_met: false,
            height: self.height(rsp, &code),
            ran_out: rsp.is_none() && memory.is_short(),
            met_end: false,
            read_bytes: memory.read_bytes(),
            met_unknown: code.met_unknown,
            met_awaited: code.met_awaited,
            met_postponed: code.generated.postponed,
        }
    }

    /// How high the stack is at the innermost frame, whose caller has this stack pointer, bytes.
    fn height(&self, rsp_of_caller: Option<u64>, code: &Code<'_>) -> Option<i64> {
        let base = self.sample.stack_base.load(Relaxed);
        let height = rsp_of_caller.filter(|_| base != 0).map(|rsp| base.wrapping_sub(rsp) as i64);
        code.clone_at(self.pc()).height(height?)
    }

    /// Adds it to its thread's own tree.
    pub(crate) fn attribute(&self, thread: &mut Thread, walked: &Walked, settings: &Settings) {
        let is_full = walked.full && !settings.infers();
        let (root, count) =
            if is_full { (FULL_ROOT, &mut thread.raw_full) } else { (PARTIAL_ROOT, &mut thread.raw_partial) };
        let samples = self.sample.samples.load(Relaxed).min(1);
        *count += samples;
        let most = if settings.infers() { Some(1) } else { settings.suffix_frames() };
        let retained = most.map_or(walked.keys.len(), |most| most.min(walked.keys.len()));
        let tree = &mut thread.profile.tree;
        let root = if retained < walked.keys.len() && !settings.infers() {
            tree.child(root, FrameKey::LEFT_OUT)
        } else {
            root
        };
        let is_collapsed = settings.recursion == Settings::COLLAPSED;
        // Of the frames that the walk before came to, too, the nodes are known.
        let is_complete = is_full && walked.is_kept && retained == walked.keys.len();
        let earlier = thread.outside.as_mut().filter(|_| is_complete).map(|outside| &mut outside.earlier);
        let (root, known) = earlier.as_ref().and_then(|earlier| earlier.node(retained)).unwrap_or((root, 0));
        let mut nodes = Vec::with_capacity(retained - known);
        let node = walked.keys[..retained - known].iter().rev().fold(root, |node, key| {
            let node = match is_collapsed {
                true => tree.child_or_active(node, *key),
                false => tree.child(node, *key),
            };
            nodes.push(node);
            node
        });
        earlier.into_iter().for_each(|earlier| earlier.note_nodes(known, nodes.iter().copied()));
        let node = self.kernel.iter().rev().fold(node, |node, key| tree.child(node, *key));
        let node = if settings.keeps_heights() { tree.child(node, FrameKey::height(walked.height)) } else { node };
        let values: Vec<u64> = self.values.iter().map(|value| value.load(Relaxed)).collect();
        tree.add(node, samples, &values);
        thread.raw_last = Some(node);
    }
}

/// The frames of a raw sample, the innermost first.
pub(crate) struct Walked {
    keys: Vec<FrameKey>,
    /// They reach an outermost frame.
    pub(crate) full: bool,
    /// The outermost are those that are kept for the thread's next walk.
    is_kept: bool,
    /// It came to a frame of the walk before, from which on nothing had changed.
    #[cfg(test)]
    pub(crate) has_met: bool,
    /// How high the stack is at the innermost, bytes.
    pub(crate) height: Option<i64>,
    /// They do not, since they reach the end of the copied part of the stack.
    pub(crate) ran_out: bool,
    /// They reach the copy's end, be it the stack's or not.
    pub(crate) met_end: bool,
    /// How much of the copy they have needed, bytes.
    pub(crate) read_bytes: usize,
    /// Some code was not in the load map.
    pub(crate) met_unknown: bool,
    /// It ends where this recipe table is awaited.
    pub(crate) met_awaited: Option<Awaited>,
    /// It ends in generated code that may be analysed, but not yet.
    pub(crate) met_postponed: bool,
}

/// How much of the stack raw samples of generated code copy: one chunk of it, and more where a walk ran out
/// of the copy and longer copies make paths whole.
pub(crate) struct Reach {
    chunks: usize,
    /// How many more longer copies may fail in a row.
    hope: u32,
}

impl Default for Reach {
    fn default() -> Reach {
        Reach { chunks: 0, hope: Reach::HOPE }
    }
}

impl Reach {
    const HOPE: u32 = 8;

    /// Learns from a walk of such a sample; how many more chunks the next ones shall copy.
    pub(crate) fn learn(&mut self, walked: &Walked, more_chunks: usize) -> usize {
        if more_chunks > 0 {
            self.hope = if walked.full { Reach::HOPE } else { self.hope.saturating_sub(1) };
        }
        if self.hope == 0 {
            self.chunks = 0;
        } else if walked.ran_out && more_chunks >= self.chunks {
            self.chunks = (2 * self.chunks + 1).min(RawSample::MAX_MORE);
        }
        self.chunks
    }
}

/// What of parts that follow each other lies in one page of the stack's addresses.
struct Page<'a> {
    start: u64,
    parts: Vec<&'a [AtomicU64]>,
}

impl Page<'_> {
    /// Whether these are its words.
    fn is(&self, words: &[AtomicU64]) -> bool {
        let mut rest = words;
        for part in &self.parts {
            let Some((these, others)) = rest.split_at_checked(part.len()) else { return false };
            if !these.iter().zip(*part).all(|(a, b)| a.load(Relaxed) == b.load(Relaxed)) {
                return false;
            }
            rest = others;
        }
        rest.is_empty()
    }
}

/// The pages of parts that follow each other.
fn pages<'a>(parts: &[StackPart<'a>]) -> Vec<Page<'a>> {
    const PAGE_BYTES: u64 = 4096;
    let mut pages: Vec<Page<'a>> = Vec::new();
    for part in parts {
        let (mut start, mut words) = (part.start, part.words);
        while !words.is_empty() {
            let left = ((PAGE_BYTES - start % PAGE_BYTES).div_ceil(8) as usize).min(words.len());
            let (part, rest) = words.split_at(left);
            match pages.last_mut().filter(|page| page.start / PAGE_BYTES == start / PAGE_BYTES) {
                Some(page) => page.parts.push(part),
                None => pages.push(Page { start, parts: vec![part] }),
            }
            (start, words) = (start + 8 * left as u64, rest);
        }
    }
    pages
}

/// A part of a retained stack, within a page; of several samples.
#[derive(Clone)]
struct RetainedPage {
    start: u64,
    words: Arc<[AtomicU64]>,
}

/// A raw sample out of the shared memory.
pub(crate) struct RetainedRaw {
    sample: RawSample,
    values: Vec<AtomicU64>,
    /// By address.
    stack: Vec<RetainedPage>,
    code: Vec<AtomicU64>,
    kernel: Vec<FrameKey>,
    /// The thread's record.
    pub(crate) owner: ArenaRef,
}

/// A thread that stands still, as a raw sample would find it.
pub(crate) struct Standing {
    sample: RawSample,
    start: u64,
    words: Vec<AtomicU64>,
}

impl Standing {
    /// Its registers in DWARF order, then rip, and its stack: the address of the first word, and the words.
    pub(crate) fn new(registers: [u64; 17], start: u64, words: &[u64]) -> Standing {
        let sample = RawSample { registers: registers.map(AtomicU64::new), ..RawSample::default() };
        Standing { sample, start, words: words.iter().copied().map(AtomicU64::new).collect() }
    }

    /// From where heights on the stack count.
    #[cfg(test)]
    pub(crate) fn with_base(self, base: u64) -> Standing {
        self.sample.stack_base.store(base, Relaxed);
        self
    }

    pub(crate) fn as_raw(&self) -> Raw<'_> {
        let stack = vec![StackPart { start: self.start, words: &self.words }];
        Raw { sample: &self.sample, values: &[], stack, code: &[], kernel: &[], owner: ArenaRef::NONE }
    }
}

impl Walked {
    /// How many frames there are.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// What is at each frame, the innermost first.
    pub(crate) fn into_keys(self) -> Vec<FrameKey> {
        self.keys
    }
}

impl RetainedRaw {
    pub(crate) fn as_raw(&self) -> Raw<'_> {
        let stack = self.stack.iter().map(|page| StackPart { start: page.start, words: &page.words }).collect();
        Raw {
            sample: &self.sample,
            values: &self.values,
            stack,
            code: &self.code,
            kernel: &self.kernel,
            owner: self.owner,
        }
    }

    fn page_at(&self, start: u64) -> Option<&RetainedPage> {
        self.stack.binary_search_by_key(&start, |page| page.start).ok().and_then(|index| self.stack.get(index))
    }

    #[cfg(test)]
    pub(crate) fn words(&self) -> impl Iterator<Item = u64> {
        self.stack.iter().flat_map(|page| page.words.iter().map(|word| word.load(Relaxed)))
    }

    #[cfg(test)]
    pub(crate) fn of_stack(owner: ArenaRef, words: impl Iterator<Item = u64>) -> RetainedRaw {
        let words: Arc<[AtomicU64]> = words.map(AtomicU64::new).collect();
        let stack = vec![RetainedPage { start: 0x7000, words }];
        let (values, code, kernel) = (Vec::new(), Vec::new(), Vec::new());
        RetainedRaw { sample: RawSample::default(), values, stack, code, kernel, owner }
    }
}

/// The key for a word on the stack that is no return address. No frame has this
/// key: the highest address belongs to the kernel.
const NO_FRAME: FrameKey = FrameKey(u64::MAX);

/// A process's code as the recorder knows it.
pub(crate) struct Code<'a> {
    pub(crate) mappings: &'a [Mapping],
    /// Code whose tables are not there.
    pub(crate) awaited: &'a [(Awaited, Mapping)],
    /// What is mapped of modules.
    pub(crate) in_modules: &'a [(ModuleId, Mapping)],
    pub(crate) published: Published<'a>,
    pub(crate) generated: &'a mut GeneratedCode,
    pub(crate) modules: &'a mut ModuleList,
    /// The innermost frame alone is asked for, and its CFA.
    pub(crate) innermost_only: bool,
    /// Code as it was when the sample was taken.
    pub(crate) witness: Witness,
    /// The frame before is one of generated code: its recipe may be wrong, and its caller is looked at closely.
    pub(crate) after_generated: bool,
    /// Some code was not in the load map.
    pub(crate) met_unknown: bool,
    /// The walk has come to code whose recipe table is awaited.
    pub(crate) met_awaited: Option<Awaited>,
    pub(crate) memo: Memo,
}

/// What one walk has read of the program's memory: recursion comes to the
/// same places again, and each look is a system call.
#[derive(Default)]
pub(crate) struct Memo {
    behind_calls: FxHashMap<RunAddr, bool>,
    generated: FxHashMap<CodePoint, (ModuleIndex, Option<Packed>)>,
    framed: FxHashMap<CodePoint, bool>,
    ahead: FxHashMap<RunAddr, Option<(Return, bool)>>,
    described: FxHashMap<RunAddr, bool>,
    exits: FxHashMap<RunAddr, Rc<Exits>>,
    jumps: FxHashMap<RunAddr, Option<RunAddr>>,
    uses: FxHashMap<RunAddr, bool>,
}

impl Code<'_> {
    fn mapping(&self, addr: RunAddr) -> Option<&Mapping> {
        let index = self.mappings.partition_point(|m| m.end <= addr);
        self.mappings.get(index).filter(|m| m.start <= addr)
    }

    fn awaited(&self, addr: RunAddr) -> Option<&(Awaited, Mapping)> {
        let index = self.awaited.partition_point(|(_, m)| m.end <= addr);
        self.awaited.get(index).filter(|(_, m)| m.start <= addr)
    }

    /// The clone of a procedure that an address is in.
    fn clone_at(&self, addr: RunAddr) -> CloneNumber {
        let mapping = self.mapping(addr).filter(|mapping| mapping.flags & Mapping::MOVED != 0);
        let moved = mapping.and_then(|mapping| Some((self.published.moved(mapping.table)?.0, mapping.bias)));
        moved.map_or(CloneNumber::NONE, |(moved, bias)| moved.clone_at(addr.to_link(bias)))
    }

    /// Whether a call may have left this word on the stack.
    fn may_be_return_address(&mut self, word: u64) -> bool {
        let at = RunAddr(word.wrapping_sub(1));
        (self.mapping(at).is_some() || self.awaited(at).is_some()) && self.is_behind_call(RunAddr(word))
    }

    fn is_behind_call(&mut self, addr: RunAddr) -> bool {
        let Code { memo, generated, .. } = self;
        *memo.behind_calls.entry(addr).or_insert_with(|| generated.is_behind_call(addr))
    }
}

impl CodeMap for Code<'_> {
    fn locate(&mut self, addr: RunAddr) -> Located {
        self.locate_point(CodePoint::Exact(addr))
    }

    fn locate_point(&mut self, point: CodePoint) -> Located {
        let unknown = Packed { disp: 0, add: 0, head: Packed::UNKNOWN, slots: [0; 6] };
        let addr = point.lookup();
        let is_return = point.is_return();
        let Some(mapping) = self.mapping(addr).copied() else {
            if let Some((awaited, mapping)) = self.awaited(addr).copied() {
                self.met_awaited = Some(awaited);
                let key = FrameKey::in_module(mapping.module, addr.to_link(mapping.bias));
                return Located { key, recipe: unknown, table: 0 };
            }
            self.met_unknown = true;
            // A walk may end at code that is not there. What is returned to is.
            let key = if is_return { NO_FRAME } else { FrameKey::outside(addr) };
            return Located { key, recipe: unknown, table: 0 };
        };
        let is_generated = mapping.flags & (Mapping::GENERATED | Mapping::PENDING) != 0;
        if is_return && (is_generated || self.after_generated) && !self.is_behind_call(point.pc()) {
            return Located { key: NO_FRAME, recipe: unknown, table: 0 };
        }
        self.after_generated = is_generated;
        let link = addr.to_link(mapping.bias);
        if is_generated {
            let Code { memo, generated, witness, modules, .. } = self;
            let located = memo.generated.entry(point).or_insert_with(|| generated.locate(point, witness, modules));
            let (module, recipe) = *located;
            return Located { key: FrameKey::in_module(module, link), recipe: recipe.unwrap_or(unknown), table: 0 };
        }
        let (key, table_at) = if mapping.flags & Mapping::MOVED == 0 {
            (FrameKey::in_module(mapping.module, link), mapping.table)
        } else {
            let moved = self.published.moved(mapping.table);
            let found = moved.and_then(|(moved, table_at)| Some((moved.key_of(mapping.module, link)?, table_at)));
            let Some(found) = found else {
                let key = if is_return { NO_FRAME } else { FrameKey::outside(addr) };
                return Located { key, recipe: unknown, table: 0 };
            };
            found
        };
        let found = self.published.table(table_at).and_then(|t| {
            let id = t.find(link)?;
            Some((id, t.packed(id)?))
        });
        let is_known = found.is_some_and(|(_, recipe)| recipe.kind() != Packed::UNKNOWN);
        if mapping.flags & Mapping::UNFINISHED != 0 && !is_known {
            // Of moved code, where it comes from.
            let addr = if mapping.flags & Mapping::MOVED == 0 { link.0 } else { key.address() };
            let addr = RunAddr(addr.wrapping_add(mapping.bias));
            let index = self.in_modules.partition_point(|(_, m)| m.end <= addr);
            self.met_awaited = self.in_modules.get(index).map(|(module, _)| Awaited { module: *module, slice: None });
        }
        match found {
            Some((id, recipe)) => Located { key, recipe, table: table_at << 16 | u64::from(id.0) },
            None => Located { key, recipe: unknown, table: 0 },
        }
    }

    fn open(&self, located: &Located) -> Option<Recipe> {
        self.published.table(located.table >> 16)?.recipe(RecipeId(located.table as u16))
    }

    fn expression(&self, located: &Located, expression: Expression) -> Option<&[u8]> {
        self.published.table(located.table >> 16)?.expression(expression)
    }
}

/// So often a walk is taken up again, at most: more than a stack that is copied has such frames.
const MOST_ROUNDS: u32 = 1 << 16;

/// Whether a caller's stack pointer lies above that of its callee, as far as both are known: else a walk might not end.
fn rises(callee: &Cursor, caller: &Cursor) -> bool {
    let [from, to] = [callee, caller].map(|cursor| cursor.registers.get(Reg::RSP));
    from.zip(to).is_none_or(|(from, to)| to > from)
}
