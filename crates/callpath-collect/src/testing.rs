//! A measurement in plain memory, for tests: an arena with free chunks, a
//! recipe table and a load map, a process, a thread.

extern crate std;

use callpath_format::address::RunAddr;
use callpath_format::frame::ModuleIndex;
use callpath_format::recipe::Packed;
use callpath_format::shared::load_map::{CurrentMap, Mapping, Published, words_of, write_map};
use callpath_format::shared::told::Contents;
use callpath_format::shared::{
    Arena, ArenaRef, CHUNK_LEN_BYTES, ChunkIndex, MetricSettings, Metrics, Node, Session, SessionHead, Settings,
    ThreadRecord,
};
use callpath_format::table::{Header, Region};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Relaxed, Release};
use std::alloc::{Layout, alloc_zeroed};
use std::collections::HashMap;
use std::vec::Vec;

use crate::process::Process;
use crate::thread::Thread;

const PAGE_BYTES: usize = 4096;
/// Words of what is published: where the load map begins, where the table does, and what is told of paths.
const MAP_AT: usize = 512;
const TABLE_AT: usize = 1024;
const TOLD_AT: usize = 6144;
/// Where the module's code begins in the process.
pub(crate) const CODE: u64 = 0x40_0000;

/// Zeroed words at a page's beginning, for ever.
fn memory(len_bytes: usize) -> &'static [AtomicU64] {
    let layout = Layout::from_size_align(len_bytes, PAGE_BYTES).expect("a page divides it");
    // SAFETY: a size above 0; what was allocated is zeroed, aligned, and never given back.
    unsafe {
        let at = alloc_zeroed(layout);
        assert!(!at.is_null(), "there is no memory");
        std::slice::from_raw_parts(at.cast(), len_bytes / 8)
    }
}

/// Metrics that read these meters.
pub(crate) fn metrics(meters: &[u32]) -> Vec<MetricSettings> {
    meters.iter().map(|&meter| MetricSettings { meter, period: 0 }).collect()
}

/// A process that has joined a measurement of so many chunks, and a thread of it that does not run. Its code has a row
/// of recipes: the n-th holds for 16 bytes from `CODE + 16 * n` on.
pub(crate) fn measured(
    settings: Settings,
    metrics: &[MetricSettings],
    chunks: usize,
    recipes: &[Packed],
) -> (Process<'static>, Thread<'static>) {
    let nothing = Contents { ranges: &[], calls: &[], paths: &[] };
    measured_and_told(settings, metrics, (chunks, recipes), nothing)
}

/// The same, with what a map tells of the code, by its addresses from 0 on.
pub(crate) fn measured_and_told(
    settings: Settings,
    metrics: &[MetricSettings],
    (chunks, recipes): (usize, &[Packed]),
    told: Contents<'_>,
) -> (Process<'static>, Thread<'static>) {
    let settings = settings.with_metrics(metrics);
    let first_free = settings.columns().expect("not too many metrics").first_free_chunk();
    let chunks = first_free as usize + chunks;
    let words = memory(chunks * CHUNK_LEN_BYTES);
    // SAFETY: allocated above, for ever.
    let arena = unsafe { Arena::new(words.as_ptr().cast_mut().cast(), chunks * CHUNK_LEN_BYTES) };
    let session: &Session = arena.at_offset(0).expect("it holds chunk 0");
    session.set_head(SessionHead { magic: Session::MAGIC, settings, ..SessionHead::default() });
    (first_free..chunks as u32).for_each(|chunk| assert!(session.give_chunk(ChunkIndex(chunk))));
    let published = memory(1 << 16);
    for (word, of_metric) in published.iter().skip(Metrics::OFFSET as usize / 8).zip(MetricSettings::words_of(metrics))
    {
        word.store(of_metric, Relaxed);
    }
    // A table without code is none.
    let recipes = if recipes.is_empty() {
        &[Packed { disp: 0, add: 0, head: Packed::OUTERMOST, slots: [0; 6] }]
    } else {
        recipes
    };
    let table = table(recipes);
    for (word, bytes) in published.iter().skip(TABLE_AT).zip(table.chunks(8)) {
        word.store(u64::from_le_bytes(bytes.try_into().expect("tables are whole words")), Relaxed);
    }
    let mut block = std::vec![0; told.len_bytes().expect("a small block")];
    assert!(told.write(&mut block));
    for (word, bytes) in published.iter().skip(TOLD_AT).zip(block.chunks(8)) {
        word.store(u64::from_le_bytes(bytes.try_into().expect("blocks are whole words")), Relaxed);
    }
    let end = RunAddr(CODE + 16 * recipes.len() as u64);
    let mapping = Mapping {
        start: RunAddr(CODE),
        end,
        bias: CODE,
        table: 8 * TABLE_AT as u64,
        module: ModuleIndex(0),
        told: 8 * TOLD_AT as u64,
        flags: 0,
    };
    assert!(write_map(&published[MAP_AT..MAP_AT + words_of(1)], 1, &[mapping]));
    // SAFETY: allocated above, for ever, and not written to any more.
    let published = unsafe { Published::new(published.as_ptr().cast(), 1 << 16) };
    let process = Process::claim(arena, published, None).expect("a slot is free");
    process.slot.load_map.store(CurrentMap::new(1, 8 * MAP_AT as u64).expect("it fits").0, Release);
    let thread = Thread::create(&process, 0, [0; 2], [0; 2]).expect("chunks are free");
    (process, thread)
}

/// A recipe table from link address 0 on, a row for each 16 bytes.
fn table(recipes: &[Packed]) -> Vec<u8> {
    let len_bytes = 16 * recipes.len() as u64;
    let blocks = len_bytes.div_ceil(256) as u32;
    let region = Region { link_start: 0, len_bytes, first_block: 0, block_count: blocks };
    let rows = recipes.len() as u32;
    let mut header = Header {
        regions: 1,
        blocks,
        rows,
        recipes: rows + 1,
        largest: region,
        knows_pinned: true,
        ..Header::default()
    };
    header.len_bytes = header.layout().expect("a small table").end as u32;
    let layout = header.layout().expect("as before");
    let mut bytes = std::vec![0; layout.end];
    bytes[..Header::LEN_BYTES].copy_from_slice(&header.to_bytes());
    bytes[layout.regions..layout.blocks].copy_from_slice(&region.to_bytes());
    for block in 0..=blocks as usize {
        let first = (16 * block as u32).min(rows);
        bytes[layout.blocks + 4 * block..][..4].copy_from_slice(&first.to_le_bytes());
    }
    for (block, recipes) in recipes.chunks(16).enumerate() {
        let at = layout.rows + 3 * 16 * block;
        for n in 0..recipes.len() {
            bytes[at + n] = 16 * n as u8;
            let id = (16 * block + n + 1) as u16;
            bytes[at + recipes.len() + 2 * n..][..2].copy_from_slice(&id.to_le_bytes());
        }
    }
    for (n, recipe) in recipes.iter().enumerate() {
        bytes[layout.recipes + 16 * (n + 1)..][..16].copy_from_slice(&recipe.to_bytes());
    }
    let table = callpath_format::table::Table::new(&bytes).expect("it is one");
    assert_eq!(table.check(), Ok(()));
    bytes
}

/// The path of a node: whether it hangs below the root of full paths, and its keys, the outermost first.
pub(crate) fn path_of(process: &Process<'_>, record: &ThreadRecord, node: ArenaRef) -> (bool, Vec<u64>) {
    let (mut keys, mut at) = (Vec::new(), node);
    loop {
        let node: &Node = process.arena.get(at).expect("nodes lie in the arena");
        match ArenaRef(node.parent.load(Relaxed)) {
            ArenaRef::NONE => break,
            parent => {
                keys.push(node.key.load(Relaxed));
                at = parent;
            }
        }
    }
    keys.reverse();
    (at.0 == record.full_root.load(Relaxed), keys)
}

/// All nodes with samples or costs below the root of full paths, as the recorder finds them: chunk by chunk, by path.
pub(crate) fn costs(process: &Process<'_>, thread: Thread<'_>) -> HashMap<Vec<u64>, (u64, Vec<u64>)> {
    let columns = process.session.columns;
    let mut found = HashMap::new();
    let mut chunk = thread.chunk;
    while chunk.0 != 0 {
        let header = process.arena.chunk(chunk).expect("it is in the arena");
        let base = chunk.0 as usize * CHUNK_LEN_BYTES;
        let mut at = header.start.load(Relaxed) as usize;
        while at < header.end.load(Relaxed) as usize {
            let reference = ArenaRef::from_offset(base + at);
            let node: &Node = process.arena.get(reference).expect("as before");
            let values = columns.of_node(&process.arena, reference).expect("as before");
            let values: Vec<u64> = values.iter().map(|value| value.load(Relaxed)).collect();
            let samples = node.samples.load(Relaxed);
            if samples > 0 || values.iter().any(|value| *value > 0) {
                let (is_full, path) = path_of(process, thread.record, reference);
                assert!(is_full && found.insert(path, (samples, values)).is_none(), "two nodes have one path");
            }
            at += columns.stride_bytes();
        }
        chunk = ChunkIndex(header.next.load(Relaxed));
    }
    found
}

/// Pseudo-random numbers (Knuth's linear congruential generator).
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}
