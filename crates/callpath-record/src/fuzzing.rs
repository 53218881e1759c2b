//! One call that makes the recorder read any bytes as a program's shared memory, for the mutation test and for a fuzz
//! target. It checks that reading ends, and that no chunk has two owners.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use callpath_format::address::{LinkAddr, RunAddr};
use callpath_format::frame::ModuleIndex;
use callpath_format::recipe::Packed;
use callpath_format::register::Reg;
use callpath_format::shared::load_map::Mapping;
use callpath_format::shared::thread::layout;
use callpath_format::shared::tree::RawSample;
use callpath_format::shared::{
    ArenaRef, CHUNK_LEN_BYTES, ChunkHeader, ChunkIndex, MetricSettings, Node, ProcessSlot, Settings, ThreadRecord,
};
use callpath_format::table::{Header, Region};
use callpath_target::Pid;
use rustc_hash::FxHashSet;

use crate::arena::ArenaAllocator;
use crate::code::ProcessCode;
use crate::plausible::{Impossible, Limits, Numbers};
use crate::publish::Publisher;
use crate::raw::{self, Raw};
use crate::tail::Parting;
use crate::thread::{self, Thread};
use crate::thread_tree::Units;
use crate::time_base::TickLength;
use crate::unmeasured;

const ARENA_CHUNKS: usize = 40;
const SLOT: usize = 3;
/// Where code is, and the stack of a raw sample.
const CODE: u64 = 0x40_1000;
const STACK: u64 = 0x7fff_0000;

/// Reads an arena that `bytes` damage, twice, and once more after further damage. Returns how much was found. The first
/// bytes choose settings, the others change words of an arena as a process leaves it.
pub fn fuzz_arena(bytes: &[u8]) -> usize {
    let Some(([metrics, recursion], changes)) = bytes.split_first_chunk() else { return 0 };
    let metrics = metrics_of(1 + usize::from(metrics % 64));
    let settings = Settings {
        period_ns: 1_000_000,
        ticks_per_ms: 1_000_000,
        raw_limit: 32,
        recursion: [Settings::WHOLE, Settings::COLLAPSED, 3][usize::from(recursion % 3)],
        ..Settings::default()
    };
    let allocator = ArenaAllocator::create(ARENA_CHUNKS * CHUNK_LEN_BYTES, 1 << 20, 7, settings.with_metrics(&metrics));
    let (Ok(mut allocator), Ok(mut publisher)) = (allocator, Publisher::create(1 << 20, metrics, &[])) else {
        return 0;
    };
    let Some(left) = Left::by_a_process(&allocator, &mut publisher) else { return 0 };
    let mut code = ProcessCode::new(Pid(std::process::id()));
    code.mappings = vec![left.mapping];
    let (first, then) = changes.split_at(changes.len() / 2);
    left.damage(&allocator, first);
    let mut found = read(&mut allocator, &publisher, &mut code, false);
    left.damage(&allocator, then);
    found += read(&mut allocator, &publisher, &mut code, false);
    left.damage(&allocator, first);
    found += read(&mut allocator, &publisher, &mut code, true);
    found + look_up(&mut publisher, changes)
}

/// The data that a process has left.
struct Left {
    thread: ChunkIndex,
    nodes: ChunkIndex,
    raw: ChunkIndex,
    more: ChunkIndex,
    mapping: Mapping,
}

impl Left {
    /// A thread with a tree in two chunks, and a raw sample whose stack lies in two chunks.
    fn by_a_process(allocator: &ArenaAllocator, publisher: &mut Publisher) -> Option<Left> {
        let take = || allocator.session().take_chunk();
        let (thread, nodes, raw, more) = (take()?, take()?, take()?, take()?);
        let arena = allocator.arena();
        let record_at = ArenaRef::from_offset(base(thread) + layout::RECORD);
        let header = |chunk, kind, next: u32, start: usize, end: usize| {
            let header = arena.chunk(chunk)?;
            let fields = [&header.kind, &header.next, &header.start, &header.end, &header.top, &header.owner];
            let values = [kind, next, start as u32, end as u32, CHUNK_LEN_BYTES as u32, record_at.0];
            fields.iter().zip(values).for_each(|(field, value)| field.store(value, Relaxed));
            Some(())
        };
        let columns = allocator.columns();
        let (stride, nodes_start) = (columns.stride_bytes(), columns.nodes_start());
        header(thread, ChunkHeader::KIND_THREAD, nodes.0, nodes_start, nodes_start + 6 * stride)?;
        header(nodes, ChunkHeader::KIND_NODES, 0, ChunkHeader::LEN_BYTES, ChunkHeader::LEN_BYTES + 4 * stride)?;
        header(raw, ChunkHeader::KIND_RAW, 0, 0, 0)?;
        header(more, ChunkHeader::KIND_RAW_MORE, 0, 0, 0)?;
        let mut parent = ArenaRef::NONE;
        let places = (0..6).map(|n| base(thread) + nodes_start + n * stride);
        let places = places.chain((0..4).map(|n| base(nodes) + ChunkHeader::LEN_BYTES + n * stride));
        for (index, place) in places.enumerate() {
            let node: &Node = arena.at_offset(place)?;
            node.key.store(index as u64, Relaxed);
            node.samples.store(1, Relaxed);
            node.parent.store(if index < 2 { 0 } else { parent.0 }, Relaxed);
            parent = ArenaRef::from_offset(place);
        }
        let record: &ThreadRecord = arena.get(record_at)?;
        record.state.store(ThreadRecord::EXITED, Relaxed);
        record.last_node.store(parent.0, Relaxed);
        record.taken.store(5, Relaxed);
        record.full.store(3, Relaxed);
        record.set_name([0x6f6e6f, 0]);
        let sample: &RawSample = arena.at_offset(base(raw) + ChunkHeader::LEN_BYTES)?;
        let registers = [(16, CODE + 8), (Reg::RSP.index(), STACK + 128)];
        registers.into_iter().for_each(|(index, value)| sample.registers[index].store(value, Relaxed));
        sample.samples.store(1, Relaxed);
        sample.stack_start.store(STACK, Relaxed);
        let words = arena.slice_at::<std::sync::atomic::AtomicU64>(
            base(raw) + columns.stack_start(),
            columns.first_stack_bytes() / 8,
        )?;
        words.iter().for_each(|word| word.store(CODE + 40, Relaxed));
        sample.stack_len_bytes.store(columns.first_stack_bytes() as u32 + 256, Relaxed);
        sample.more.store(more.0, Relaxed);
        let slot = allocator.slot(SLOT);
        slot.threads.store(record_at.0, Relaxed);
        slot.raw.store(raw.0, Relaxed);
        slot.raw_pending.store(1, Relaxed);
        let table = publisher.append(&table())?;
        let mapping = Mapping {
            start: RunAddr(CODE),
            end: RunAddr(CODE + 256),
            bias: 0,
            table,
            module: ModuleIndex(0),
            told: 0,
            flags: 0,
        };
        Some(Left { thread, nodes, raw, more, mapping })
    }

    /// Six bytes for each change: what is changed, where in it, and how.
    fn damage(&self, allocator: &ArenaAllocator, changes: &[u8]) {
        let slot = ProcessSlot::offset_bytes(SLOT).unwrap_or_default();
        let places = [
            slot,
            base(self.thread),
            base(self.thread) + layout::RECORD,
            base(self.thread) + layout::COLUMNS,
            base(self.nodes),
            base(self.raw),
            base(self.more),
            base(self.thread) + layout::COUNTED,
        ];
        let chunks = [self.thread, self.nodes, self.raw, self.more];
        let chunk = |value: u8| chunks.get(usize::from(value)).map_or(u32::from(value), |chunk| chunk.0);
        for [what, low, high, how, value, more] in changes.as_chunks::<6>().0 {
            let place = places[usize::from(what % 8)];
            // Fields lie close to the beginning; anything may be anywhere.
            let at = usize::from(u16::from_le_bytes([*low, *high])) * if what & 8 == 0 { 1 } else { 4 };
            let at = if what & 16 == 0 { at % 256 } else { at % CHUNK_LEN_BYTES };
            let Some(word) = allocator.arena().at_offset::<AtomicU32>((place + at) & !3) else { continue };
            let value = match how % 6 {
                0 => u32::from(*value),
                1 => chunk(*value),
                2 => ArenaRef::from_offset(chunk(*value) as usize * CHUNK_LEN_BYTES + usize::from(*more) * 8).0,
                3 => u32::from(*value).wrapping_neg(),
                4 => CHUNK_LEN_BYTES as u32 + u32::from(*value) - 128,
                _ => u32::from_le_bytes([*value, *more, *value, *more]),
            };
            word.store(value, Relaxed);
        }
    }
}

/// So many metrics, all of which read the same clock.
fn metrics_of(count: usize) -> Vec<MetricSettings> {
    vec![MetricSettings { meter: Settings::CPU_TIME, period: 0 }; count]
}

fn base(chunk: ChunkIndex) -> usize {
    chunk.0 as usize * CHUNK_LEN_BYTES
}

/// A recipe table of 256 bytes of code: frames of 2 KiB.
fn table() -> Vec<u8> {
    let region = Region { link_start: LinkAddr(CODE).0, len_bytes: 256, first_block: 0, block_count: 1 };
    let mut header = Header { regions: 1, blocks: 1, rows: 1, recipes: 2, largest: region, ..Header::default() };
    let layout = header.layout().unwrap_or_else(|| unreachable!("a small table"));
    header.len_bytes = layout.end as u32;
    let mut bytes = vec![0; layout.end];
    bytes[..Header::LEN_BYTES].copy_from_slice(&header.to_bytes());
    bytes[layout.regions..layout.blocks].copy_from_slice(&region.to_bytes());
    bytes[layout.blocks + 4] = 1;
    // Its row begins at the region's start, and its recipe is the second.
    bytes[layout.rows + 1] = 1;
    bytes[layout.recipes + 16..][..16].copy_from_slice(&[
        0,
        8,
        0,
        0,
        0,
        0,
        0,
        0,
        7 << 3 | Packed::REGISTER as u8,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
    ]);
    bytes
}

/// Reads all that a process has left, as a round of serving and writing does; `is_last`: and takes leave of it.
fn read(allocator: &mut ArenaAllocator, publisher: &Publisher, code: &mut ProcessCode, is_last: bool) -> usize {
    let records = thread::records(allocator, allocator.slot(SLOT), &mut FxHashSet::default());
    let mut threads: Vec<Thread> = records.into_iter().map(Thread::new).collect();
    let mut found = read_raw(allocator, publisher, code, &mut threads);
    for thread in &mut threads {
        thread.learn_name(allocator, |_| None);
        found += thread.profile.name.len() + usize::from(thread.says_it_ended(allocator));
        // What it has noted, then all that there is.
        thread.follow_tree(
            allocator,
            Units { tick: TickLength { ns_per_tick: 0.5 }, metrics: publisher.metrics() },
            false,
        );
        thread.follow_tree(
            allocator,
            Units { tick: TickLength { ns_per_tick: 0.5 }, metrics: publisher.metrics() },
            true,
        );
        found += thread.profile.tree.nodes().len();
        let _parting = Parting::of(thread, allocator, |ticks| ticks);
        thread.update_tally(allocator, TickLength { ns_per_tick: 0.5 });
        found += thread.profile.tally.taken.min(1) as usize;
        found += usize::from(impossible(allocator, publisher, thread).is_some());
    }
    found += unmeasured::note(allocator.session(), &Limits::after(Duration::from_secs(1))).map_or(0, |note| note.len());
    if is_last {
        for thread in &threads {
            thread::unlink(allocator, SLOT, thread.record);
            thread.release(allocator);
        }
        allocator.refill_with_more();
    }
    allocator.assert_whole();
    found
}

/// What of a thread's numbers cannot be, if it is all that ran in a second.
fn impossible(allocator: &ArenaAllocator, publisher: &Publisher, thread: &Thread) -> Option<Impossible> {
    let tree = &thread.profile.tree;
    let sums: Vec<u64> = (0..allocator.columns().count()).map(|metric| tree.total(metric)).collect();
    let limits = Limits::after(Duration::from_secs(1));
    let of_metrics = limits.impossible(&Numbers { metrics: publisher.metrics(), sums: &sums, threads: 1 });
    let samples = tree.nodes().iter().fold(0u64, |sum, node| sum.saturating_add(node.samples));
    let of_tally = limits.impossible_tally(&thread.profile.tally, 1).or_else(|| limits.impossible_samples(samples));
    thread.copy.is_damaged.then_some(Impossible::Tree).or(of_metrics).or(of_tally)
}

fn read_raw(
    allocator: &mut ArenaAllocator,
    publisher: &Publisher,
    code: &mut ProcessCode,
    threads: &mut [Thread],
) -> usize {
    let mut found = 0;
    let chunks = raw::take_list(allocator, allocator.slot(SLOT));
    let mut before = None;
    for chunk in &chunks {
        let Some(raw) = Raw::in_chunk(allocator, *chunk) else { continue };
        let walked = code.walk(&raw, publisher.published());
        let (retained, len) = raw.retained(before.as_ref());
        let again = code.walk(&retained.as_raw(), publisher.published());
        assert_eq!((walked.full, walked.ran_out), (again.full, again.ran_out), "a copy is walked differently");
        if let Some(thread) = threads.iter_mut().find(|thread| thread.record == raw.owner) {
            raw.attribute(thread, &walked, allocator.settings());
        }
        found += len + raw.more_chunks() + raw.stack_words().count();
        before = Some(retained);
    }
    for chunk in chunks {
        raw::give_back(allocator, chunk);
    }
    found
}

/// Has any bytes looked up in as what is published.
fn look_up(publisher: &mut Publisher, bytes: &[u8]) -> usize {
    let Some(at) = publisher.append(bytes) else { return 0 };
    let published = publisher.published();
    let mut found = 0;
    for offset in (at..at + bytes.len() as u64).step_by(8).take(64) {
        for addr in [0, CODE, u64::MAX] {
            found += usize::from(published.load_map(offset).is_some_and(|map| map.find(RunAddr(addr)).is_some()));
            found += usize::from(published.table(offset).is_some_and(|table| table.find(LinkAddr(addr)).is_some()));
            let generated = published.generated(offset);
            found += usize::from(generated.is_some_and(|generated| generated.procedure_at(RunAddr(addr)).is_some()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_leaves_is_found() {
        let metrics = metrics_of(2);
        let settings = Settings::default().with_metrics(&metrics);
        let mut allocator =
            ArenaAllocator::create(ARENA_CHUNKS * CHUNK_LEN_BYTES, 1 << 20, 7, settings).expect("memory for an arena");
        let mut publisher = Publisher::create(1 << 20, metrics, &[]).expect("memory");
        let left = Left::by_a_process(&allocator, &mut publisher).expect("chunks are free");
        let mut code = ProcessCode::new(Pid(std::process::id()));
        code.mappings = vec![left.mapping];
        let mut threads: Vec<Thread> = thread::records(&allocator, allocator.slot(SLOT), &mut FxHashSet::default())
            .into_iter()
            .map(Thread::new)
            .collect();
        let first_stack_bytes = allocator.columns().first_stack_bytes();
        let stack_words = (first_stack_bytes + 256) / 8;
        assert!(read_raw(&mut allocator, &publisher, &mut code, &mut threads) > stack_words);
        let [thread] = &mut threads[..] else { panic!("one thread") };
        // The walk ends in the second chunk, where there are no return addresses.
        let of_raw = 1 + (first_stack_bytes - 121) / 2048;
        assert_eq!(thread.profile.tree.nodes().len(), 2 + of_raw);
        thread.follow_tree(
            &allocator,
            Units { tick: TickLength { ns_per_tick: 1.0 }, metrics: publisher.metrics() },
            true,
        );
        assert_eq!(thread.profile.tree.nodes().len(), 10 + of_raw);
        thread.learn_name(&allocator, |_| None);
        assert_eq!(thread.profile.name, "ono");
        thread.update_tally(&allocator, TickLength { ns_per_tick: 1.0 });
        let tally = &thread.profile.tally;
        assert_eq!((tally.taken, tally.full, tally.partial, tally.unfinished), (5, 3, 1, 1));
        assert_eq!(impossible(&allocator, &publisher, thread), None);
    }

    /// What is found when one word of the thread's is set to ones.
    fn overwritten(place: impl Fn(&Left) -> usize) -> Option<Impossible> {
        let metrics = metrics_of(2);
        let settings = Settings::default().with_metrics(&metrics);
        let allocator =
            ArenaAllocator::create(ARENA_CHUNKS * CHUNK_LEN_BYTES, 1 << 20, 7, settings).expect("memory for an arena");
        let mut publisher = Publisher::create(1 << 20, metrics, &[]).expect("memory");
        let left = Left::by_a_process(&allocator, &mut publisher).expect("chunks are free");
        let word = allocator.arena().at_offset::<AtomicU32>(place(&left)).expect("a word of the arena");
        word.store(u32::MAX, Relaxed);
        let record = ArenaRef(allocator.slot(SLOT).threads.load(Relaxed));
        let mut thread = Thread::new(record);
        thread.follow_tree(
            &allocator,
            Units { tick: TickLength { ns_per_tick: 1.0 }, metrics: publisher.metrics() },
            true,
        );
        thread.update_tally(&allocator, TickLength { ns_per_tick: 1.0 });
        impossible(&allocator, &publisher, &thread)
    }

    #[test]
    fn what_a_program_overwrites_is_noticed() {
        use std::mem::offset_of;
        let in_record = |field: usize| overwritten(|left| base(left.thread) + layout::RECORD + field);
        let in_nodes = |field: usize| overwritten(|left| base(left.nodes) + ChunkHeader::LEN_BYTES + field);
        // The upper half of a number.
        let taken = in_record(offset_of!(ThreadRecord, taken) + 4);
        let full = in_record(offset_of!(ThreadRecord, full) + 4);
        let in_handlers = in_record(offset_of!(ThreadRecord, handler_ticks) + 4);
        assert_eq!(
            (taken, full, in_handlers),
            (Some(Impossible::Samples), Some(Impossible::Samples), Some(Impossible::Handlers))
        );
        assert_eq!(in_record(offset_of!(ThreadRecord, stack)), None);
        assert_eq!(in_nodes(offset_of!(Node, parent)), Some(Impossible::Tree));
        assert_eq!(in_nodes(offset_of!(Node, samples) + 4), Some(Impossible::Samples));
        assert_eq!(in_nodes(size_of::<Node>() + 4), Some(Impossible::CpuTime));
        let next = overwritten(|left| base(left.thread) + offset_of!(ChunkHeader, next));
        assert_eq!(next, Some(Impossible::Tree));
    }

    #[test]
    fn nothing_that_a_program_leaves_stops_the_recorder() {
        // A generator of the kind that Knuth describes; the fuzz target has better ones.
        let mut state = 0x2545_f491_4f6c_dd1du64;
        let mut bytes = [0; 74];
        for _ in 0..400 {
            for byte in &mut bytes {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                *byte = (state >> 56) as u8;
            }
            fuzz_arena(&bytes);
        }
    }
}
