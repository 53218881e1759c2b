//! A thread's record, read out of the arena while it runs or after it has ended.
//! Trusts nothing that it reads.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use callpath_format::shared::{ArenaRef, ChunkIndex, Column, Dropped, ProcessSlot, ThreadRecord};
use callpath_measurement::{FULL_ROOT, PARTIAL_ROOT, PathTree, SampleTally, ThreadProfile};
use callpath_target::thread_lives;
use rustc_hash::FxHashSet;

use crate::arena::ArenaAllocator;
use crate::earlier::Earlier;
use crate::thread_tree::{TreeCopy, Units, Update};
use crate::time_base::TickLength;

/// A thread that was seen in a process's list.
#[derive(Debug)]
pub(crate) struct Thread {
    pub(crate) record: ArenaRef,
    /// Its profile for the file: its own samples, and raw ones that were unwound here.
    pub(crate) profile: ThreadProfile,
    pub(crate) copy: TreeCopy,
    /// The node of the last raw sample.
    pub(crate) raw_last: Option<u32>,
    /// When it was last seen before it was asked for a sample, ticks.
    pub(crate) asked_at: u64,
    /// The name's words in the record when `name` was read.
    noted_name: [u64; 2],
    pub(crate) raw_full: u64,
    pub(crate) raw_partial: u64,
    /// What it had done when the profile was brought up to date last.
    noted: Option<Doings>,
    /// It is sampled from outside, and has no record.
    pub(crate) outside: Option<OutsideThread>,
}

/// What is known of a thread that is sampled from outside.
#[derive(Clone, Debug, Default)]
pub(crate) struct OutsideThread {
    /// Samples of it that have come.
    pub(crate) taken: u64,
    /// Frames on their paths.
    pub(crate) frames: u64,
    pub(crate) has_ended: bool,
    /// Of its last walk.
    pub(crate) earlier: Earlier,
}

/// What changes in a thread's record, and here, with whatever its profile is brought up to date with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Doings {
    tid: u32,
    name: Option<[u64; 2]>,
    start_routine: u64,
    /// Additions to nodes.
    counted: u32,
    /// Samples: taken; of full, of partial paths, raw ones; those of raw ones that were unwound here.
    samples: [u64; 6],
    dropped: [u64; Dropped::COUNT],
    handler_ticks: u64,
}

impl Thread {
    pub(crate) fn new(record: ArenaRef) -> Thread {
        Thread {
            record,
            profile: ThreadProfile { count: 1, ..ThreadProfile::default() },
            copy: TreeCopy::default(),
            raw_last: None,
            asked_at: 0,
            noted_name: [0; 2],
            raw_full: 0,
            raw_partial: 0,
            noted: None,
            outside: None,
        }
    }

    /// A thread that is sampled from outside. `key`: no record's, and no other thread's of the process.
    pub(crate) fn from_outside(key: ArenaRef, tid: u32, name: String) -> Thread {
        let profile = ThreadProfile { tid, count: 1, name, ..ThreadProfile::default() };
        Thread { profile, outside: Some(OutsideThread::default()), ..Thread::new(key) }
    }

    /// Of a thread that is sampled from outside, how many samples are in no tree yet.
    pub(crate) fn samples_waiting(&self) -> u64 {
        let taken = self.outside.as_ref().map_or(0, |outside| outside.taken);
        taken.saturating_sub(self.raw_full.saturating_add(self.raw_partial))
    }

    /// How many samples have been taken of it.
    pub(crate) fn samples_taken(&self, allocator: &ArenaAllocator) -> u64 {
        match &self.outside {
            Some(outside) => outside.taken,
            None => self.record(allocator).map_or(0, |record| record.taken.load(Acquire)),
        }
    }

    /// Whether the thread has done anything since this was asked last.
    pub(crate) fn has_changed(&mut self, allocator: &ArenaAllocator) -> bool {
        let doings = self.doings(allocator);
        // What probes and returns add is in no account.
        let is_new = doings.is_none() || doings != self.noted;
        self.noted = doings;
        is_new
    }

    fn doings(&self, allocator: &ArenaAllocator) -> Option<Doings> {
        let settings = allocator.settings();
        let record = self.record(allocator).filter(|_| settings.notes_additions())?;
        let [taken, full, partial, raw] =
            [&record.taken, &record.full, &record.partial, &record.raw].map(|count| count.load(Acquire));
        Some(Doings {
            tid: record.tid.load(Relaxed),
            name: record.name(),
            start_routine: record.start_routine.load(Relaxed),
            counted: record.counted.load(Acquire),
            samples: [taken, full, partial, raw, self.raw_full, self.raw_partial],
            dropped: record.dropped.each_ref().map(|count| count.load(Relaxed)),
            handler_ticks: record.handler_ticks.load(Relaxed),
        })
    }

    pub(crate) fn record<'a>(&self, allocator: &'a ArenaAllocator) -> Option<&'a ThreadRecord> {
        allocator.arena().get(self.record).filter(|_| allocator.is_backed(self.record.chunk()))
    }

    /// Its column of each metric.
    pub(crate) fn columns<'a>(&self, allocator: &'a ArenaAllocator) -> Option<&'a [Column]> {
        let chunk = Some(self.record.chunk()).filter(|chunk| allocator.is_backed(*chunk))?;
        allocator.columns().of_thread(&allocator.arena(), chunk)
    }

    /// Reads its number and its name: the kernel's at first, later the one that the thread has set. A thread that has
    /// ended by then has left its name in its record.
    pub(crate) fn learn_name(&mut self, allocator: &ArenaAllocator, ask_kernel: impl Fn(u32) -> Option<String>) {
        let Some(record) = self.record(allocator) else { return };
        // A name that is being written is read the next time.
        let (tid, noted) = (record.tid.load(Relaxed), record.name().unwrap_or(self.noted_name));
        // One that had not run yet when it was seen first had its creator's name.
        if self.profile.name.is_empty() || self.profile.tid != tid {
            self.profile.tid = tid;
            self.profile.name = ask_kernel(tid).filter(|name| !name.is_empty()).unwrap_or_else(|| text_of(noted));
        } else if noted != self.noted_name {
            self.profile.name = text_of(noted);
        }
        self.noted_name = noted;
    }

    /// Whether the thread has run its last destructor of ours.
    pub(crate) fn says_it_ended(&self, allocator: &ArenaAllocator) -> bool {
        match &self.outside {
            Some(outside) => outside.has_ended,
            None => self.record(allocator).is_some_and(|r| r.state.load(Acquire) == ThreadRecord::EXITED),
        }
    }

    /// Whether the thread can add no more: the kernel no longer knows it, or its record shows its end before it ran.
    pub(crate) fn has_ended(&self, allocator: &ArenaAllocator, pid: callpath_target::Pid) -> bool {
        if let Some(outside) = &self.outside {
            return outside.has_ended;
        }
        let Some(record) = self.record(allocator) else { return true };
        let tid = record.tid.load(Relaxed);
        let exited = record.state.load(Acquire) == ThreadRecord::EXITED;
        if tid == 0 { exited } else { !thread_lives(pid, tid) }
    }

    /// The thread's chunks of nodes, in order.
    pub(crate) fn chunks(&self, allocator: &ArenaAllocator) -> Vec<ChunkIndex> {
        let mut chunks = Vec::new();
        let mut next = self.record.chunk();
        while allocator.is_backed(next) {
            // A list that runs in circles or into another's was damaged by the program.
            let mine = allocator.arena().chunk(next).filter(|h| h.owner.load(Relaxed) == self.record.0);
            let Some(header) = mine else { break };
            if chunks.len() as u32 > allocator.arena().chunk_count() {
                return Vec::new();
            }
            chunks.push(next);
            next = ChunkIndex(header.next.load(Acquire));
        }
        chunks
    }

    /// Brings the profile's tree up to date. `is_last`: the thread adds nothing any more.
    pub(crate) fn follow_tree(&mut self, allocator: &ArenaAllocator, units: Units<'_>, is_last: bool) {
        let Thread { copy, record, profile, .. } = self;
        Update { copy, allocator, record: *record, tree: &mut profile.tree, units }.run(is_last);
    }

    /// Brings the tally up to date, if any sample has come; otherwise the
    /// conversion of ticks would change times a little.
    pub(crate) fn update_tally(&mut self, allocator: &ArenaAllocator, tick: TickLength) {
        let tally = self.tally(allocator, tick);
        // A thread's start costs something without a sample.
        let counts = |tally: &SampleTally| {
            (tally.taken, tally.full, tally.partial, tally.raw_kept, tally.frames, tally.handler_ns > 0)
        };
        if counts(&tally) != counts(&self.profile.tally) {
            self.profile.tally = tally;
        }
    }

    /// What became of the thread's samples.
    fn tally(&self, allocator: &ArenaAllocator, tick: TickLength) -> SampleTally {
        if let Some(OutsideThread { taken, frames, .. }) = self.outside {
            let (full, partial) = (self.raw_full, self.raw_partial);
            let raw_kept = self.samples_waiting();
            return SampleTally { taken, full, partial, raw_kept, frames, ..SampleTally::default() };
        }
        let Some(record) = self.record(allocator) else { return SampleTally::default() };
        // Calls of probed procedures are counted in the tree alone. Beside samples they are none.
        let [calls_full, calls_partial] =
            if allocator.settings().calls_are_samples() { samples_by_root(&self.profile.tree) } else { [0; 2] };
        // The sum first, `taken` last: what is between is not finished.
        let mut tally = SampleTally {
            full: record.full.load(Acquire).saturating_add(self.raw_full).saturating_add(calls_full),
            partial: record.partial.load(Acquire).saturating_add(self.raw_partial).saturating_add(calls_partial),
            raw_kept: record.raw.load(Acquire).saturating_sub(self.raw_full + self.raw_partial),
            handler_ns: tick.ns(record.handler_ticks.load(Relaxed)),
            handler_max_ns: tick.ns(record.handler_ticks_max.load(Relaxed)),
            frames: record.frames.load(Relaxed),
            ..SampleTally::default()
        };
        for (to, from) in tally.dropped.iter_mut().zip(&record.dropped) {
            *to = from.load(Acquire);
        }
        for (bin, count) in record.handler_histogram.iter().enumerate() {
            let count = u64::from(count.load(Relaxed));
            let ns_bin = if bin == 0 { 0 } else { (tick.ns(1 << bin).max(1)).ilog2() as usize };
            if count != 0 {
                if tally.handler_histogram.len() <= ns_bin {
                    tally.handler_histogram.resize(ns_bin + 1, 0);
                }
                tally.handler_histogram[ns_bin] += count;
            }
        }
        let kept = [tally.full, tally.partial, tally.raw_kept];
        let finished = kept.iter().chain(&tally.dropped).fold(0, |sum: u64, count| sum.saturating_add(*count));
        tally.unfinished = record.taken.load(Acquire).saturating_sub(finished);
        tally.taken = finished.saturating_add(tally.unfinished);
        tally
    }

    /// Gives the thread's chunks back.
    pub(crate) fn release(&self, allocator: &mut ArenaAllocator) {
        for chunk in self.chunks(allocator) {
            allocator.give_back(chunk);
        }
    }
}

/// The samples of full and of partial paths.
fn samples_by_root(tree: &PathTree) -> [u64; 2] {
    let mut sums = [0u64; 2];
    let mut is_partial: Vec<bool> = Vec::with_capacity(tree.nodes().len());
    for (index, node) in tree.nodes().iter().enumerate() {
        // A node stands behind its parent.
        let partial = match index as u32 {
            FULL_ROOT => false,
            PARTIAL_ROOT => true,
            _ => is_partial.get(node.parent as usize).copied().unwrap_or(true),
        };
        is_partial.push(partial);
        let sum = &mut sums[usize::from(partial)];
        *sum = sum.saturating_add(node.samples);
    }
    sums
}

/// The records of a process's list that are not `known` yet, which they are from now on; the newest first.
pub(crate) fn records(
    allocator: &ArenaAllocator,
    slot: &ProcessSlot,
    known: &mut FxHashSet<ArenaRef>,
) -> Vec<ArenaRef> {
    let mut at = ArenaRef(slot.threads.load(Acquire));
    let mut records = Vec::new();
    while let Some(record) = allocator.arena().get::<ThreadRecord>(at) {
        if !allocator.is_backed(at.chunk()) || !known.insert(at) {
            break;
        }
        records.push(at);
        at = ArenaRef(record.next.load(Relaxed));
    }
    records
}

/// Takes a record out of its process's list. Threads push at the head at the same time; only the recorder takes out.
pub(crate) fn unlink(allocator: &ArenaAllocator, slot: usize, record: ArenaRef) {
    let Some(next) = allocator.arena().get::<ThreadRecord>(record).map(|r| r.next.load(Relaxed)) else { return };
    let head = &allocator.slot(slot).threads;
    if head.compare_exchange(record.0, next, AcqRel, Acquire).is_ok() {
        return;
    }
    let mut at = ArenaRef(head.load(Acquire));
    // A list that the program has damaged may run in circles.
    for _ in 0..allocator.arena().chunk_count() {
        match allocator.arena().get::<ThreadRecord>(at).filter(|_| allocator.is_backed(at.chunk())) {
            Some(before) if before.next.load(Relaxed) == record.0 => return before.next.store(next, Relaxed),
            Some(before) => at = ArenaRef(before.next.load(Relaxed)),
            None => return,
        }
    }
}

/// A name in two words, up to its first zero.
fn text_of(words: [u64; 2]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
