//! Samples that come before their code's recipe table: registers and stack are kept. The recorder unwinds them.

use callpath_format::address::RunAddr;
use callpath_format::register::Reg;
use callpath_format::shared::tree::RawSample;
use callpath_format::shared::{CHUNK_LEN_BYTES, ChunkHeader, ChunkIndex};
use callpath_unwind::Memory;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Relaxed, Release};

use crate::process::Process;
use crate::sample::Sample;
use crate::stack::{PAGE_BYTES, Probed, RED_ZONE_BYTES, Stack};
use crate::weight::Weight;

/// The facts about a sample besides its registers and stack.
#[derive(Clone, Copy)]
pub(crate) struct Taken<'w, 'm> {
    /// What it weighs.
    pub(crate) weight: &'w Weight<'m>,
    /// The frame that its walk did not get over, if the code there was generated at run time.
    pub(crate) generated: Option<RunAddr>,
}

/// Stores a raw sample. `false`: there is no room.
pub(crate) fn store(sample: &Sample<'_, '_>, stack: &mut Stack, taken: Taken<'_, '_>) -> bool {
    let slot = sample.process.slot;
    if u64::from(slot.raw_pending.fetch_add(1, AcqRel)) >= sample.process.session.settings.raw_limit
        || fill(sample, stack, taken).is_none()
    {
        slot.raw_pending.fetch_sub(1, AcqRel);
        return false;
    }
    sample.process.ring();
    true
}

fn fill(sample: &Sample<'_, '_>, stack: &mut Stack, taken: Taken<'_, '_>) -> Option<()> {
    let Sample { process, thread, interrupted, .. } = *sample;
    let chunk = process.take_chunk()?;
    let base = chunk.0 as usize * CHUNK_LEN_BYTES;
    let header = process.arena.chunk(chunk)?;
    let copy = Copy { process, base, raw: process.arena.at_offset(base + ChunkHeader::LEN_BYTES)? };
    let raw = copy.raw;
    header.kind.store(ChunkHeader::KIND_RAW, Relaxed);
    header.owner.store(thread.reference().0, Relaxed);
    for (to, from) in raw.registers.iter().zip(interrupted.registers) {
        to.store(from, Relaxed);
    }
    raw.registers[16].store(interrupted.pc, Relaxed);
    // Samples that wait for a file's table are walked when it is there. For generated code that is less certain:
    // the recorder decides when a longer copy helps.
    let more = match taken.generated {
        // Nothing is walked.
        _ if process.session.settings.infers() => 0,
        Some(_) => (process.slot.raw_reach.load(Relaxed) as usize).min(RawSample::MAX_MORE),
        None => RawSample::MAX_MORE,
    };
    copy.stack(interrupted.registers[Reg::RSP.index()], stack, more)?;
    let code_len = match taken.generated {
        Some(at) => copy.code(at, Probed::new(sample.in_sample))?,
        None => 0,
    };
    raw.code_len_bytes.store(code_len, Relaxed);
    let base = stack.bounds().map_or(0, |_| thread.record.stack_base.load(Relaxed));
    raw.stack_base.store(base, Relaxed);
    raw.ticks.store(sample.begin_ticks, Relaxed);
    raw.samples.store(1, Relaxed);
    for (to, from) in process.session.columns.of_raw(&process.arena, chunk)?.iter().zip(taken.weight.values()) {
        to.store(from, Relaxed);
    }
    let mut head = process.slot.raw.load(Relaxed);
    loop {
        header.next.store(head, Relaxed);
        match process.slot.raw.compare_exchange_weak(head, chunk.0, Release, Relaxed) {
            Ok(_) => return Some(()),
            Err(now) => head = now,
        }
    }
}

/// How much of the code before a frame is copied, bytes: its frame was built there.
const CODE_BEFORE_BYTES: u64 = 3072;
/// Free chunks that are no stack's copy.
const FOR_TREES: u32 = 40;

/// The copy that is being made, alone in a chunk.
struct Copy<'s, 'm> {
    process: &'s Process<'m>,
    /// Where the chunk begins.
    base: usize,
    raw: &'m RawSample,
}

impl<'m> Copy<'_, 'm> {
    /// Copies the code around `at`, as far as it can be read, and returns the copy's length in bytes:
    /// it may be other code when the recorder looks.
    fn code(&self, at: RunAddr, mut memory: Probed) -> Option<u32> {
        let place = self.base + CHUNK_LEN_BYTES - RawSample::MAX_CODE_BYTES;
        let to = self.process.arena.slice_at::<AtomicU64>(place, RawSample::MAX_CODE_BYTES / 8)?;
        let mut start = at.0.saturating_sub(CODE_BEFORE_BYTES) & !7;
        if memory.read_u64(start).is_none() {
            start = at.0 & !(PAGE_BYTES - 1);
        }
        let mut addr = start;
        for word in to {
            let Some(value) = memory.read_u64(addr) else { break };
            word.store(value, Relaxed);
            addr += 8;
        }
        self.raw.code_start.store(start, Relaxed);
        Some((addr - start) as u32)
    }

    /// Copies the stack from rsp-128 upwards, as far as there is room there and in so many `more` chunks.
    fn stack(&self, rsp: u64, stack: &mut Stack, mut more: usize) -> Option<()> {
        let Copy { process, base, raw } = *self;
        let columns = process.session.columns;
        let place = base + columns.stack_start();
        let mut to = process.arena.slice_at::<AtomicU64>(place, columns.first_stack_bytes() / 8)?;
        let (start, end) = match stack.bounds() {
            Some((low, high)) => (low, high),
            None => (rsp.saturating_sub(RED_ZONE_BYTES), u64::MAX),
        };
        let mut addr = start;
        let mut link = &raw.more;
        loop {
            addr = stack.copy(addr, end, to);
            if addr.saturating_add(8) > end || more == 0 || stack.read_u64(addr).is_none() {
                break;
            }
            more -= 1;
            let Some((chunk, words)) = self.another() else { break };
            link.store(chunk.0, Relaxed);
            (link, to) = (&process.arena.chunk(chunk)?.next, words);
        }
        raw.stack_start.store(start, Relaxed);
        raw.stack_len_bytes.store((addr - start) as u32, Relaxed);
        // A few bytes below the end may be left out; no return address lies there.
        raw.flags.store(u32::from(addr.saturating_add(8) > end), Relaxed);
        Some(())
    }

    /// Another chunk for a stack's copy, and its words. The last ones are for trees.
    fn another(&self) -> Option<(ChunkIndex, &'m [AtomicU64])> {
        let process = self.process;
        if process.session.free_chunks() <= process.session.low_water.load(Relaxed).min(FOR_TREES) {
            process.ring();
            return None;
        }
        let chunk = process.take_chunk()?;
        process.arena.chunk(chunk)?.kind.store(ChunkHeader::KIND_RAW_MORE, Relaxed);
        let base = chunk.0 as usize * CHUNK_LEN_BYTES + ChunkHeader::LEN_BYTES;
        Some((chunk, process.arena.slice_at(base, RawSample::MORE_STACK_BYTES / 8)?))
    }
}
