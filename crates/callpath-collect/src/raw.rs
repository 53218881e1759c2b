//! Samples that come before their code's recipe table: registers and stack are kept for the recorder.
//! Knows nothing of how they are unwound later.

use callpath_format::address::RunAddr;
use callpath_format::register::Reg;
use callpath_format::shared::tree::RawSample;
use callpath_format::shared::{CHUNK_LEN_BYTES, ChunkHeader, ChunkIndex, MAX_METRICS};
use callpath_unwind::Memory;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Relaxed, Release};

use crate::process::Process;
use crate::sample::{InSample, Interrupted};
use crate::stack::{PAGE_BYTES, Probed, RED_ZONE_BYTES, Stack};
use crate::thread::Thread;

/// What is known of a sample besides its registers and stack.
#[derive(Clone, Copy)]
pub(crate) struct Taken {
    /// When, by the time stamp counter.
    pub(crate) ticks: u64,
    /// What it weighs.
    pub(crate) values: [u64; MAX_METRICS],
    /// The frame that its walk did not get over, if the code there was written at run time.
    pub(crate) written: Option<RunAddr>,
}

/// Keeps a raw sample. `false`: there is no room.
pub(crate) fn keep(
    in_sample: &InSample,
    process: &Process<'_>,
    thread: Thread<'_>,
    interrupted: &Interrupted,
    stack: &mut Stack,
    taken: Taken,
) -> bool {
    let slot = process.slot;
    if u64::from(slot.raw_pending.fetch_add(1, AcqRel)) >= process.session.settings.raw_limit
        || fill(process, thread, interrupted, stack, taken, Probed::new(in_sample)).is_none()
    {
        slot.raw_pending.fetch_sub(1, AcqRel);
        return false;
    }
    process.ring();
    true
}

fn fill(
    process: &Process<'_>,
    thread: Thread<'_>,
    interrupted: &Interrupted,
    stack: &mut Stack,
    taken: Taken,
    code: Probed,
) -> Option<()> {
    let chunk = process.take_chunk()?;
    let base = chunk.0 as usize * CHUNK_LEN_BYTES;
    let header = process.arena.chunk(chunk)?;
    let sample: &RawSample = process.arena.at_offset(base + ChunkHeader::LEN_BYTES)?;
    header.kind.store(ChunkHeader::KIND_RAW, Relaxed);
    header.owner.store(thread.place().0, Relaxed);
    for (to, from) in sample.registers.iter().zip(interrupted.registers) {
        to.store(from, Relaxed);
    }
    sample.registers[16].store(interrupted.pc, Relaxed);
    // Samples that wait for a file's table are walked when it is there. Of generated code that is not so sure: the recorder
    // says when a longer copy is of use.
    let more = match taken.written {
        Some(_) => (process.slot.raw_reach.load(Relaxed) as usize).min(RawSample::MAX_MORE),
        None => RawSample::MAX_MORE,
    };
    copy_stack(process, base, sample, interrupted, stack, more)?;
    let code_len = match taken.written {
        Some(at) => copy_code(process, base, sample, at, code)?,
        None => 0,
    };
    sample.code_len_bytes.store(code_len, Relaxed);
    sample.ticks.store(taken.ticks, Relaxed);
    sample.samples.store(1, Relaxed);
    for (to, from) in sample.values.iter().zip(taken.values) {
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

/// How much of the code before a frame is copied, bytes: that is where it was made.
const CODE_BEFORE_BYTES: u64 = 3072;

/// Copies the code around `at`, as far as it can be read, and returns the copy's length in bytes: it may be other code when
/// the recorder looks.
fn copy_code(process: &Process<'_>, base: usize, sample: &RawSample, at: RunAddr, mut memory: Probed) -> Option<u32> {
    let place = base + CHUNK_LEN_BYTES - RawSample::MAX_CODE_BYTES;
    let to = process.arena.slice_at::<AtomicU64>(place, RawSample::MAX_CODE_BYTES / 8)?;
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
    sample.code_start.store(start, Relaxed);
    Some((addr - start) as u32)
}

/// Copies the stack from rsp-128 upwards, as far as there is room there and in so many `more` chunks.
fn copy_stack(
    process: &Process<'_>,
    base: usize,
    sample: &RawSample,
    interrupted: &Interrupted,
    stack: &mut Stack,
    mut more_chunks: usize,
) -> Option<()> {
    let place = base + ChunkHeader::LEN_BYTES + size_of::<RawSample>();
    let mut to = process.arena.slice_at::<AtomicU64>(place, RawSample::FIRST_STACK_BYTES / 8)?;
    let rsp = interrupted.registers[Reg::RSP.index()];
    let (start, end) = match stack.bounds() {
        Some((low, high)) => (low, high),
        None => (rsp.saturating_sub(RED_ZONE_BYTES), u64::MAX),
    };
    let mut addr = start;
    let mut link = &sample.more;
    loop {
        addr = stack.copy(addr, end, to);
        if addr.saturating_add(8) > end || more_chunks == 0 || stack.read_u64(addr).is_none() {
            break;
        }
        more_chunks -= 1;
        let Some((chunk, words)) = more(process) else { break };
        link.store(chunk.0, Relaxed);
        (link, to) = (&process.arena.chunk(chunk)?.next, words);
    }
    sample.stack_start.store(start, Relaxed);
    sample.stack_len_bytes.store((addr - start) as u32, Relaxed);
    // A few bytes below the end may be left out; no return address lies there.
    sample.flags.store(u32::from(addr.saturating_add(8) > end), Relaxed);
    Some(())
}

/// Free chunks that are no stack's copy.
const FOR_TREES: u32 = 40;

/// Another chunk for a stack's copy, and its words. The last ones are for trees.
fn more<'m>(process: &Process<'m>) -> Option<(ChunkIndex, &'m [AtomicU64])> {
    if process.session.free_chunks() <= process.session.low_water.load(Relaxed).min(FOR_TREES) {
        process.ring();
        return None;
    }
    let chunk = process.take_chunk()?;
    process.arena.chunk(chunk)?.kind.store(ChunkHeader::KIND_RAW_MORE, Relaxed);
    let base = chunk.0 as usize * CHUNK_LEN_BYTES + ChunkHeader::LEN_BYTES;
    Some((chunk, process.arena.slice_at(base, RawSample::MORE_STACK_BYTES / 8)?))
}
