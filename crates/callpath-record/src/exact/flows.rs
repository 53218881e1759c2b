//! Counters of paths in contexts (`callpath_format::shared::flows`), read out of the memory that they are in. Trusts nothing that it
//! reads.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use callpath_format::shared::ArenaRef;
use callpath_format::shared::flows::{FlowRecord, FlowsHead};
use callpath_format::shared::hashed::HashedKey;
use callpath_measurement::{CountedContext, MeasurementError, PARTIAL_ROOT, PathTree};
use callpath_tables::paths::{CUT_SHORT, FIRST_OF_CONTEXT};
use callpath_target::{SharedMemory, TargetError};
use rustc_hash::FxHashMap;

use super::hashed::{Executions, Hashed};
use crate::thread::Thread;

const WORD_BYTES: usize = size_of::<u64>();
const PIECE_BYTES: usize = FlowsHead::PIECE_WORDS * WORD_BYTES;
/// The most pieces: 64 GB of address space.
const MOST_PIECES: u64 = 1 << 20;

/// The counters of all processes.
pub(crate) struct Flows {
    pub(super) memory: SharedMemory,
    file: File,
    /// Pieces that have been looked at.
    seen: u64,
    /// Those of them that had no owner yet: a thread that takes one says so behind that.
    unowned: Vec<u64>,
    /// The others, by the thread that has taken them.
    pieces: FxHashMap<u64, Vec<u64>>,
    /// Why counters could not be read.
    trouble: Option<std::io::Error>,
}

impl Flows {
    /// Memory of so many bytes at most.
    pub(super) fn create(most_bytes: u64) -> Result<Flows, TargetError> {
        let pieces = (most_bytes / PIECE_BYTES as u64).clamp(2, MOST_PIECES);
        let memory = SharedMemory::create(c"callpath-flows", FlowsHead::len_bytes(pieces) as usize)?;
        let file = memory.file()?;
        let flows = Flows { memory, file, seen: 0, unowned: Vec::new(), pieces: FxHashMap::default(), trouble: None };
        flows.head().most.store(pieces, Relaxed);
        Ok(flows)
    }

    fn head(&self) -> &FlowsHead {
        // SAFETY: the memory begins with it, and is as long; atomics are valid for any bytes.
        unsafe { &*self.memory.base().cast::<FlowsHead>() }
    }

    /// The words of a piece; 0 is the shared one. Memory that was never written is not read, which would back it.
    fn piece(&mut self, number: u64) -> Vec<u64> {
        let mut bytes = vec![0; PIECE_BYTES];
        let at = FlowsHead::LEN_BYTES as u64 + number * PIECE_BYTES as u64;
        match self.file.read_exact_at(&mut bytes, at) {
            // Nobody counts there any more.
            Ok(()) => {
                self.memory.discard(at as usize, PIECE_BYTES);
                bytes.as_chunks::<WORD_BYTES>().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
            }
            Err(error) => {
                self.trouble.get_or_insert(error);
                Vec::new()
            }
        }
    }

    /// Why counters could not be read, once.
    pub(crate) fn take_trouble(&mut self) -> Option<MeasurementError> {
        let path = format!("/proc/self/fd/{}", self.memory.descriptor()).into();
        self.trouble.take().map(|source| MeasurementError::Read { path, source })
    }

    /// The pieces of a thread, each with its number, once.
    fn take_pieces(&mut self, owner: ArenaRef) -> Vec<(u64, Vec<u64>)> {
        let taken = self.head().pieces.load(Relaxed).min(MOST_PIECES);
        let fresh = std::mem::take(&mut self.unowned).into_iter().chain(self.seen + 1..=taken);
        for number in fresh {
            let place = FlowsHead::LEN_BYTES + number as usize * PIECE_BYTES;
            if place + WORD_BYTES > self.memory.len_bytes() {
                break;
            }
            // SAFETY: within the memory, aligned.
            match unsafe { &*self.memory.base().add(place).cast::<AtomicU64>() }.load(Relaxed) {
                0 => self.unowned.push(number),
                owner => self.pieces.entry(owner).or_default().push(number),
            }
        }
        self.seen = self.seen.max(taken);
        let numbers = self.pieces.remove(&u64::from(owner.0)).unwrap_or_default();
        numbers.into_iter().map(|number| (number, self.piece(number))).collect()
    }

    /// Paths whose contexts were not known, or had no room, once.
    pub(super) fn take_lost(&self) -> u64 {
        let words = self.memory.base().wrapping_add(FlowsHead::LEN_BYTES).cast::<AtomicU64>();
        // SAFETY: within the memory, aligned.
        let words = (0..FlowsHead::PIECE_WORDS).map(|number| unsafe { &*words.add(number) }.swap(0, Relaxed));
        words.fold(0, u64::wrapping_add)
    }
}

/// What a process has counted in its contexts.
#[derive(Default)]
pub(crate) struct ContextCounts {
    /// The contexts.
    tree: PathTree,
    /// By node of it, if that is known, and procedure: its counters.
    counters: FxHashMap<(Option<u32>, u32), Vec<u64>>,
    /// By procedure: the sums of the counters, also of those whose contexts are not known.
    pub(super) sums: FxHashMap<u32, Vec<u64>>,
    /// By the number of the first counter: the node of the tree, if it is known, and the procedure. Of those whose paths are counted in a hash
    /// table.
    flows: FxHashMap<u64, (Option<u32>, u32)>,
    /// Of these, by node and procedure, what further words have counted of paths that have no counter.
    further: FxHashMap<(Option<u32>, u32), Executions>,
    /// That, and what was counted in the hash table.
    hashed: FxHashMap<(Option<u32>, u32), Executions>,
}

impl ContextCounts {
    /// Adds what a thread has counted, which adds nothing any more, and whose tree has been followed to its end.
    pub(crate) fn add(&mut self, flows: &mut Flows, thread: &Thread) {
        for (number, piece) in flows.take_pieces(thread.record) {
            let mut rest = piece.get(FlowRecord::FIRST_AT..).unwrap_or(&[]);
            while let Some(words) = rest.first_chunk::<{ FlowRecord::WORDS }>()
                && let Some(record) = FlowRecord::from_words(*words)
                && let (start, counters) = (piece.len() - rest.len(), record.counters)
                && let Some((words, behind)) = rest.split_at_checked(counters.record_words())
                && let Some(counters) = words.get(counters.first_at()..counters.first_at() + counters.count as usize)
            {
                let at = number * FlowsHead::PIECE_WORDS as u64 + (start + record.counters.first_at()) as u64;
                rest = behind;
                if record.counters.are_more_hashed {
                    let node = self.node(thread, ArenaRef(record.context));
                    self.flows.insert(at, (node, record.procedure));
                }
                if counters.iter().any(|count| *count > 0) {
                    add_all(self.sums.entry(record.procedure).or_default(), counters);
                    let node = self.node(thread, ArenaRef(record.context));
                    add_all(self.counters.entry((node, record.procedure)).or_default(), counters);
                }
            }
        }
    }

    /// Adds what further words count to the paths that they count, when all threads have been added. `further`: see [`super::Counted::further`].
    pub(crate) fn add_further(&mut self, further: &FxHashMap<u32, (u32, &[u64])>) {
        let add = |procedure: &u32, counters: &mut Vec<u64>, without: &mut dyn FnMut(u64, u64)| {
            let Some((words, further)) = further.get(procedure) else { return };
            let words = counters.len().min((FIRST_OF_CONTEXT + words) as usize);
            for (path, count) in further.iter().zip(counters.split_off(words)) {
                match counters.get_mut(FIRST_OF_CONTEXT as usize + *path as usize) {
                    Some(sum) => *sum = sum.wrapping_add(count),
                    None => without(*path, count),
                }
            }
        };
        for (of, counters) in &mut self.counters {
            add(&of.1, counters, &mut |path, count| {
                if count > 0 {
                    let sum = self.further.entry(*of).or_default().entry(path).or_default();
                    *sum = sum.wrapping_add(count);
                }
            });
        }
        // Those without a counter are summed with what is in the hash table.
        self.sums.iter_mut().for_each(|(procedure, sums)| add(procedure, sums, &mut |_, _| {}));
    }

    /// Adds what is in a hash table, when all threads and what further words count have been added.
    pub(crate) fn add_hashed(&mut self, hashed: &Hashed) -> Result<(), MeasurementError> {
        let ContextCounts { flows, further, hashed: sums, .. } = self;
        sums.clone_from(further);
        hashed.read(|key, executions| {
            if let HashedKey::OfContext { flow, path } = key
                && let Some(of) = flows.get(&flow)
            {
                let sum = sums.entry(*of).or_default().entry(path.into()).or_default();
                *sum = sum.wrapping_add(executions);
            }
        })
    }

    /// The sums of that by procedure, also of contexts that are not known.
    pub(super) fn hashed_sums(&self) -> FxHashMap<u32, Executions> {
        let mut sums: FxHashMap<u32, Executions> = FxHashMap::default();
        for ((_, procedure), paths) in &self.hashed {
            let sums = sums.entry(*procedure).or_default();
            for (path, executions) in paths {
                let sum = sums.entry(*path).or_default();
                *sum = sum.wrapping_add(*executions);
            }
        }
        sums
    }

    /// The node of our tree for one of the thread's.
    fn node(&mut self, thread: &Thread, context: ArenaRef) -> Option<u32> {
        let nodes = thread.profile.tree.nodes();
        let mut at = thread.copy.index(context)?;
        let mut keys = Vec::new();
        while at > PARTIAL_ROOT {
            let node = nodes.get(at as usize)?;
            keys.push(node.key);
            at = node.parent;
        }
        Some(keys.into_iter().rev().fold(at, |parent, key| self.tree.child(parent, key)))
    }

    /// The contexts for a file: those in which anything was counted, and all that they are below.
    pub(super) fn contexts(&self) -> Vec<CountedContext> {
        let nodes = self.tree.nodes();
        let mut by_node: Vec<&[u64]> = vec![&[]; nodes.len()];
        for ((node, _), counters) in &self.counters {
            if let Some(place) = node.and_then(|node| by_node.get_mut(node as usize)) {
                *place = counters;
            }
        }
        let mut hashed: Vec<Option<&Executions>> = vec![None; nodes.len()];
        for ((node, _), executions) in &self.hashed {
            if let Some(place) = node.and_then(|node| hashed.get_mut(node as usize)) {
                *place = Some(executions);
            }
        }
        let number = |node: u32| node.checked_sub(PARTIAL_ROOT + 1);
        let counted = nodes.iter().zip(by_node.into_iter().zip(hashed)).skip(PARTIAL_ROOT as usize + 1);
        let paths = |counters: &[u64], hashed: Option<&Executions>| {
            let paths = (0u64..).zip(counters.iter().skip(FIRST_OF_CONTEXT as usize).copied());
            let hashed = hashed.into_iter().flatten().map(|(number, executions)| (*number, *executions));
            let mut all: Vec<(u64, u64)> = paths.chain(hashed).filter(|(_, executions)| *executions > 0).collect();
            all.sort_unstable();
            // What has a word may be in the table, too: where no register is free, all is counted there.
            all.dedup_by(|(number, executions), (before, sum)| {
                let is_same = number == before;
                *sum = sum.wrapping_add(if is_same { *executions } else { 0 });
                is_same
            });
            all
        };
        type Of<'c> = (&'c [u64], Option<&'c Executions>);
        let context = |(node, (counters, hashed)): (&callpath_measurement::TreeNode, Of<'_>)| CountedContext {
            parent: number(node.parent),
            is_partial: node.parent == PARTIAL_ROOT,
            frame: node.key,
            cut_short: counters.get(CUT_SHORT as usize).copied().unwrap_or(0),
            paths: paths(counters, hashed),
        };
        counted.map(context).collect()
    }
}

fn add_all(sums: &mut Vec<u64>, counters: &[u64]) {
    if sums.len() < counters.len() {
        sums.resize(counters.len(), 0);
    }
    sums.iter_mut().zip(counters).for_each(|(sum, count)| *sum = sum.wrapping_add(*count));
}

#[cfg(test)]
mod tests {
    use super::*;
    use callpath_format::address::RunAddr;
    use callpath_format::frame::FrameKey;
    use callpath_format::shared::hashed::{HashedHead, HashedPath};
    use callpath_measurement::FULL_ROOT;

    #[test]
    fn what_is_counted_in_several_places_is_summed() {
        const PROCEDURE: u32 = 7;
        let mut counts = ContextCounts::default();
        let node = counts.tree.child(FULL_ROOT, FrameKey::outside(RunAddr(0x1234)));
        // Paths cut short, paths 0 and 1, which have counters, and two further words: of paths 1 and 70.
        let further = FxHashMap::from_iter([(PROCEDURE, (2, &[1, 70][..]))]);
        counts.counters.insert((Some(node), PROCEDURE), vec![3, 5, 6, 10, 20]);
        counts.counters.insert((None, PROCEDURE), vec![0, 1, 1, 1, 1]);
        counts.sums.insert(PROCEDURE, vec![3, 6, 7, 11, 21]);
        counts.flows.insert(132, (Some(node), PROCEDURE));
        let hashed = Hashed::create().unwrap();
        let entries = [(1, 100), (70, 200), (80, 300)].map(|(path, executions)| (132, path, executions));
        for (place, (flow, path, executions)) in entries.into_iter().chain([(136, 80, 1)]).enumerate() {
            let at = HashedHead::LEN_BYTES + place * size_of::<HashedPath>();
            let key = HashedKey::OfContext { flow, path }.to_word();
            let entry = HashedPath { key: key.into(), executions: executions.into() };
            // SAFETY: within the memory, aligned.
            unsafe { hashed.memory.base().add(at).cast::<HashedPath>().write(entry) };
        }
        counts.add_further(&further);
        for _ in 0..2 {
            // As often as it is read.
            counts.add_hashed(&hashed).unwrap();
            assert_eq!(counts.sums[&PROCEDURE], [3, 6, 18]);
            let of_table = &counts.hashed_sums()[&PROCEDURE];
            assert_eq!([1, 70, 80].map(|path| of_table[&path]), [100, 221, 300], "{of_table:?}");
            let contexts = counts.contexts();
            let [context] = &contexts[..] else { panic!("{contexts:?}") };
            assert_eq!(context.cut_short, 3);
            assert_eq!(context.paths, [(0, 5), (1, 116), (70, 220), (80, 300)]);
        }
    }
}
