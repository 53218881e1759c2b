//! Raw samples, unwound by the collector's own walk once their tables are there.
//! Knows nothing of how they were taken.

use std::ops::ControlFlow;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use callpath_analyze::measurement::{FULL_ROOT, PARTIAL_ROOT};
use callpath_format::address::{CodePoint, RunAddr};
use callpath_format::frame::FrameKey;
use callpath_format::recipe::{Expression, Packed, Recipe};
use callpath_format::register::{Reg, Registers};
use callpath_format::shared::load_map::{Mapping, Published};
use callpath_format::shared::tree::RawSample;
use callpath_format::shared::{ArenaRef, CHUNK_LEN_BYTES, ChunkHeader, ChunkIndex, MAX_METRICS, ProcessSlot, Settings};
use callpath_format::table::RecipeId;
use callpath_unwind::{CodeMap, Cursor, End, Located, Memory, walk};

use crate::arena::ArenaKeeper;
use crate::modules::ModuleId;
use crate::thread::Thread;
use crate::written::{ModuleList, Witness, WrittenCode};

/// The raw samples that a process has put down since the last time.
pub(crate) fn take_list(keeper: &ArenaKeeper, slot: &ProcessSlot) -> Vec<ChunkIndex> {
    let mut chunks = Vec::new();
    let mut next = ChunkIndex(slot.raw.swap(0, AcqRel));
    while keeper.is_backed(next) && (chunks.len() as u32) < keeper.arena().chunk_count() {
        chunks.push(next);
        next = match keeper.arena().chunk(next) {
            Some(header) => ChunkIndex(header.next.load(Acquire)),
            None => break,
        };
    }
    chunks
}

/// One raw sample in its chunk.
pub(crate) struct Raw<'a> {
    sample: &'a RawSample,
    stack: &'a [AtomicU64],
    code: &'a [AtomicU64],
    /// The thread's record.
    pub(crate) owner: ArenaRef,
}

impl<'a> Raw<'a> {
    /// What lies in a chunk, if it is a raw sample.
    pub(crate) fn in_chunk(keeper: &'a ArenaKeeper, chunk: ChunkIndex) -> Option<Raw<'a>> {
        let arena = keeper.arena();
        let header = arena.chunk(chunk).filter(|h| h.kind.load(Relaxed) == ChunkHeader::KIND_RAW)?;
        let base = chunk.0 as usize * CHUNK_LEN_BYTES + ChunkHeader::LEN_BYTES;
        let sample: &RawSample = arena.at_offset(base)?;
        let len = (sample.stack_len_bytes.load(Relaxed) as usize).min(RawSample::MAX_STACK_BYTES);
        let stack = arena.slice_at(base + size_of::<RawSample>(), len / 8)?;
        let code_len = (sample.code_len_bytes.load(Relaxed) as usize).min(RawSample::MAX_CODE_BYTES);
        let code_at = (chunk.0 as usize + 1) * CHUNK_LEN_BYTES - RawSample::MAX_CODE_BYTES;
        let code = arena.slice_at(code_at, code_len / 8)?;
        Some(Raw { sample, stack, code, owner: ArenaRef(header.owner.load(Relaxed)) })
    }

    /// How much memory a copy of it takes, bytes.
    pub(crate) fn len_bytes(&self) -> usize {
        size_of::<KeptRaw>() + 8 * (self.stack.len() + self.code.len())
    }

    /// A copy of it.
    pub(crate) fn kept(&self) -> KeptRaw {
        let copy = |words: &[AtomicU64]| words.iter().map(|word| AtomicU64::new(word.load(Relaxed))).collect();
        let sample = RawSample::default();
        let words = sample.registers.iter().chain(&sample.values);
        for (to, from) in words.zip(self.sample.registers.iter().chain(&self.sample.values)) {
            to.store(from.load(Relaxed), Relaxed);
        }
        sample.stack_start.store(self.sample.stack_start.load(Relaxed), Relaxed);
        sample.samples.store(self.sample.samples.load(Relaxed), Relaxed);
        sample.code_start.store(self.sample.code_start.load(Relaxed), Relaxed);
        KeptRaw { sample, stack: copy(self.stack), code: copy(self.code), owner: self.owner }
    }

    /// The interrupted instruction.
    pub(crate) fn pc(&self) -> RunAddr {
        RunAddr(self.sample.registers[16].load(Relaxed))
    }

    /// Walks it.
    pub(crate) fn walk(&self, mut code: Code<'_>) -> Walked {
        let registers = std::array::from_fn(|i| self.sample.registers[i].load(Relaxed));
        let mut memory = Stack { start: self.sample.stack_start.load(Relaxed), words: self.stack };
        code.witness = Witness {
            start: RunAddr(self.sample.code_start.load(Relaxed)),
            bytes: self.code.iter().flat_map(|word| word.load(Relaxed).to_le_bytes()).collect(),
        };
        let mut keys: Vec<FrameKey> = Vec::new();
        let mut cursor = Cursor::interrupted(self.pc(), registers);
        loop {
            let mut last = None;
            let end = walk(cursor, &mut code, &mut memory, |cursor, located, _| {
                if located.key == NO_FRAME {
                    return ControlFlow::Break(());
                }
                keys.push(located.key);
                last = Some(*cursor);
                ControlFlow::Continue(())
            });
            // No thread begins in written code: a zero that is found for its return address is none.
            let full = end == End::Outermost && !code.after_written;
            match last.filter(|_| !full).and_then(|last| code.by_frame_pointer(&last, &mut memory)) {
                Some(caller) => cursor = caller,
                None => {
                    let Code { met_unknown, met_awaited, .. } = code;
                    return Walked { keys, full, met_unknown, met_awaited };
                }
            }
        }
    }

    /// Adds it to its thread's own tree.
    pub(crate) fn attribute(&self, thread: &mut Thread, walked: &Walked, settings: &Settings) {
        let (root, count) =
            if walked.full { (FULL_ROOT, &mut thread.raw_full) } else { (PARTIAL_ROOT, &mut thread.raw_partial) };
        let samples = self.sample.samples.load(Relaxed);
        *count += samples;
        let kept = settings.kept_frames().map_or(walked.keys.len(), |most| most.min(walked.keys.len()));
        let root = if kept < walked.keys.len() { thread.own.child(root, FrameKey::LEFT_OUT) } else { root };
        let is_collapsed = settings.recursion == Settings::COLLAPSED;
        let node = walked.keys[..kept].iter().rev().fold(root, |node, key| match is_collapsed {
            true => thread.own.child_or_active(node, *key),
            false => thread.own.child(node, *key),
        });
        let values: [u64; MAX_METRICS] = std::array::from_fn(|i| self.sample.values[i].load(Relaxed));
        thread.own.add(node, samples, values);
    }
}

/// The frames of a raw sample, the innermost first.
pub(crate) struct Walked {
    keys: Vec<FrameKey>,
    /// They reach an outermost frame.
    full: bool,
    /// Something was not in the load map.
    pub(crate) met_unknown: bool,
    /// It ends in this module, whose recipe table is awaited.
    pub(crate) met_awaited: Option<ModuleId>,
}

/// A raw sample out of the shared memory.
pub(crate) struct KeptRaw {
    sample: RawSample,
    stack: Vec<AtomicU64>,
    code: Vec<AtomicU64>,
    /// The thread's record.
    pub(crate) owner: ArenaRef,
}

impl KeptRaw {
    pub(crate) fn as_raw(&self) -> Raw<'_> {
        Raw { sample: &self.sample, stack: &self.stack, code: &self.code, owner: self.owner }
    }

    #[cfg(test)]
    pub(crate) fn of_stack(owner: ArenaRef, len_bytes: usize) -> KeptRaw {
        let stack = (0..len_bytes / 8).map(|_| AtomicU64::new(0)).collect();
        KeptRaw { sample: RawSample::default(), stack, code: Vec::new(), owner }
    }
}

/// A copy of a stack.
struct Stack<'a> {
    start: u64,
    words: &'a [AtomicU64],
}

impl Memory for Stack<'_> {
    fn read_u64(&mut self, addr: u64) -> Option<u64> {
        let offset = addr.checked_sub(self.start)?;
        let (index, shift) = (usize::try_from(offset / 8).ok()?, 8 * (offset % 8) as u32);
        let low = self.words.get(index)?.load(Relaxed);
        if shift == 0 {
            return Some(low);
        }
        let high = self.words.get(index + 1)?.load(Relaxed);
        Some(low >> shift | high << (64 - shift))
    }
}

/// What a word on the stack that is no return address leads to. Never a frame's key: the highest address belongs to the kernel.
const NO_FRAME: FrameKey = FrameKey(u64::MAX);
/// No frame of written code is larger, bytes: there is nothing to be sure of.
const LARGEST_FRAME_BYTES: u64 = 64 << 10;

/// A process's code as the recorder knows it.
pub(crate) struct Code<'a> {
    pub(crate) mappings: &'a [Mapping],
    /// Those of modules whose tables are being made.
    pub(crate) awaited: &'a [(ModuleId, Mapping)],
    pub(crate) published: Published<'a>,
    pub(crate) written: &'a mut WrittenCode,
    pub(crate) modules: &'a mut ModuleList,
    /// Code as it was when the sample was taken.
    pub(crate) witness: Witness,
    /// The frame before is one of written code: its recipe may be wrong, and its caller is looked at closely.
    pub(crate) after_written: bool,
    /// Something was not in the load map.
    pub(crate) met_unknown: bool,
    /// The walk has come to this module, whose recipe table is awaited.
    pub(crate) met_awaited: Option<ModuleId>,
}

impl Code<'_> {
    fn mapping(&self, addr: RunAddr) -> Option<&Mapping> {
        let index = self.mappings.partition_point(|m| m.end <= addr);
        self.mappings.get(index).filter(|m| m.start <= addr)
    }

    fn awaited(&self, addr: RunAddr) -> Option<&(ModuleId, Mapping)> {
        let index = self.awaited.partition_point(|(_, m)| m.end <= addr);
        self.awaited.get(index).filter(|(_, m)| m.start <= addr)
    }

    /// Whether a call may have left this word on the stack.
    fn may_be_return_address(&self, word: u64) -> bool {
        let at = RunAddr(word.wrapping_sub(1));
        (self.mapping(at).is_some() || self.awaited(at).is_some()) && self.written.is_behind_call(RunAddr(word))
    }

    /// The caller of a frame of written code that has no recipe, the last resort: by the frame pointer, if it leads to a
    /// return address, and either the code has made it, or nothing between it and the stack's top could be another return
    /// address. (A procedure without a frame of its own has its caller's frame pointer, and its return address below.)
    fn by_frame_pointer(&mut self, frame: &Cursor, memory: &mut Stack<'_>) -> Option<Cursor> {
        let at = frame.point.lookup();
        if !self.written.holds(at) {
            return None;
        }
        let caller = self.caller_by_frame_pointer(frame, memory);
        self.written.note_try(at, caller.is_some());
        caller
    }

    fn caller_by_frame_pointer(&self, frame: &Cursor, memory: &mut Stack<'_>) -> Option<Cursor> {
        let rsp = frame.registers.get(Reg::RSP)?;
        let rbp = frame.registers.get(Reg::RBP)?;
        if rbp % 8 != 0 || rsp % 8 != 0 || rbp < rsp || rbp - rsp > LARGEST_FRAME_BYTES {
            return None;
        }
        let return_address = memory.read_u64(rbp + 8)?;
        if !self.may_be_return_address(return_address) {
            return None;
        }
        let is_return = matches!(frame.point, CodePoint::Return(_));
        if !self.written.is_framed(frame.point.lookup(), is_return) {
            for addr in (rsp..rbp).step_by(8) {
                if self.may_be_return_address(memory.read_u64(addr)?) {
                    return None;
                }
            }
        }
        let mut registers = Registers::UNKNOWN;
        registers.set(Reg::RSP, rbp + 16);
        registers.set(Reg::RBP, memory.read_u64(rbp)?);
        Some(Cursor { point: CodePoint::Return(RunAddr(return_address)), registers })
    }
}

impl CodeMap for Code<'_> {
    fn locate(&mut self, addr: RunAddr) -> Located {
        self.locate_point(CodePoint::Exact(addr))
    }

    fn locate_point(&mut self, point: CodePoint) -> Located {
        let unknown = Packed { disp: 0, add: 0, head: Packed::UNKNOWN, slots: [0; 6] };
        let addr = point.lookup();
        let is_return = matches!(point, CodePoint::Return(_));
        let Some(mapping) = self.mapping(addr).copied() else {
            if let Some((id, mapping)) = self.awaited(addr).copied() {
                self.met_awaited = Some(id);
                let key = FrameKey::in_module(mapping.module, addr.to_link(mapping.bias));
                return Located { key, recipe: unknown, table: 0 };
            }
            self.met_unknown = true;
            // A walk may end at code that is not there. What is returned to is.
            let key = if is_return { NO_FRAME } else { FrameKey::outside(addr) };
            return Located { key, recipe: unknown, table: 0 };
        };
        let is_written = mapping.flags & (Mapping::WRITTEN | Mapping::PENDING) != 0;
        if is_return && (is_written || self.after_written) && !self.written.is_behind_call(point.pc()) {
            return Located { key: NO_FRAME, recipe: unknown, table: 0 };
        }
        self.after_written = is_written;
        let link = addr.to_link(mapping.bias);
        if is_written {
            let (module, recipe) = self.written.locate(addr, is_return, &self.witness, self.modules);
            return Located { key: FrameKey::in_module(module, link), recipe: recipe.unwrap_or(unknown), table: 0 };
        }
        let key = FrameKey::in_module(mapping.module, link);
        let found = self.published.table(mapping.table).and_then(|t| {
            let id = t.find(link)?;
            Some((id, t.packed(id)?))
        });
        match found {
            Some((id, recipe)) => Located { key, recipe, table: mapping.table << 16 | u64::from(id.0) },
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
