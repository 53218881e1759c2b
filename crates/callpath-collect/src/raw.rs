//! Samples that come before their code's recipe table: registers and stack are kept for the recorder.
//! Knows nothing of how they are unwound later.

use callpath_format::register::Reg;
use callpath_format::shared::tree::RawSample;
use callpath_format::shared::{CHUNK_LEN_BYTES, ChunkHeader, MAX_METRICS};
use callpath_unwind::Memory;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Relaxed, Release};

use crate::process::Process;
use crate::sample::{InSample, Interrupted};
use crate::stack::{RED_ZONE_BYTES, Stack};
use crate::thread::Thread;

/// Keeps a raw sample. `false`: there is no room.
pub(crate) fn keep(
    _in_sample: &InSample,
    process: &Process<'_>,
    thread: Thread<'_>,
    interrupted: &Interrupted,
    stack: &mut Stack,
    ticks: u64,
    values: [u64; MAX_METRICS],
) -> bool {
    let slot = process.slot;
    if u64::from(slot.raw_pending.fetch_add(1, AcqRel)) >= process.session.settings.raw_limit
        || fill(process, thread, interrupted, stack, ticks, values).is_none()
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
    ticks: u64,
    values: [u64; MAX_METRICS],
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
    let (start, len, whole) = copy_stack(process, base, interrupted, stack)?;
    sample.stack_start.store(start, Relaxed);
    sample.stack_len_bytes.store(len, Relaxed);
    sample.flags.store(u32::from(whole), Relaxed);
    sample.ticks.store(ticks, Relaxed);
    sample.samples.store(1, Relaxed);
    for (to, from) in sample.values.iter().zip(values) {
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

/// Copies the stack from rsp-128 upwards: where it began, its length in bytes, and whether it reaches the stack's end.
fn copy_stack(
    process: &Process<'_>,
    base: usize,
    interrupted: &Interrupted,
    stack: &mut Stack,
) -> Option<(u64, u32, bool)> {
    let room = RawSample::MAX_STACK_BYTES & !7;
    let to = process.arena.slice_at::<AtomicU64>(base + ChunkHeader::LEN_BYTES + size_of::<RawSample>(), room / 8)?;
    let rsp = interrupted.registers[Reg::RSP.index()];
    let (start, end) = match stack.bounds() {
        Some((low, high)) => (low, high),
        None => (rsp.saturating_sub(RED_ZONE_BYTES), u64::MAX),
    };
    let mut addr = start;
    for word in to {
        if addr.saturating_add(8) > end {
            break;
        }
        let Some(value) = stack.read_u64(addr) else { break };
        word.store(value, Relaxed);
        addr += 8;
    }
    // A few bytes below the end may be left out; no return address lies there.
    Some((start, (addr - start) as u32, addr.saturating_add(8) > end))
}
