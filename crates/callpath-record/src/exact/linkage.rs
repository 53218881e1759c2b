//! Calls through linkage tables whose words the loader has bound and closed: what they lead to stays the same, so that copies need not go
//! through the procedure's beginning at home, and can hand over nodes.

use std::ops::Range;

use callpath_format::address::{LinkAddr, RunAddr};
use callpath_format::frame::CloneNumber;
use callpath_tables::copies::Copies;
use callpath_tables::probes::Change;
use callpath_target::{Pid, read_memory};
use rustc_hash::FxHashMap;

use super::analysed::Analysed;
use crate::probe::Loaded;

/// No module has as many words that the loader writes; a damaged file may say so, bytes.
const MOST_BYTES: u64 = 64 << 20;
/// The loader closes whole pages, bytes.
const PAGE_BYTES: u64 = 4096;
const WORD_BYTES: usize = size_of::<u64>();

/// Words of a module, which the loader has relocated, that the program cannot write any more, with the addresses in modules that they hold.
pub(super) fn bound_words(pid: Pid, of: &Analysed, modules: &[Loaded]) -> FxHashMap<LinkAddr, u64> {
    let Some(range) = of.module.image().relocated_range() else { return FxHashMap::default() };
    let start = range.start.0.next_multiple_of(WORD_BYTES as u64);
    let len_bytes = (range.end.0 & !(PAGE_BYTES - 1)).saturating_sub(start);
    if len_bytes > MOST_BYTES {
        return FxHashMap::default();
    }
    let mut bytes = vec![0; len_bytes as usize];
    let read = read_memory(pid, start.wrapping_add(of.bias), &mut bytes);
    let (words, _) = bytes.get(..read).unwrap_or(&[]).as_chunks::<WORD_BYTES>();
    let mut modules: Vec<Range<u64>> = modules.iter().map(|loaded| loaded.start..loaded.end).collect();
    modules.sort_unstable_by_key(|module| module.start);
    let is_in_module = |address: u64| {
        let after = modules.partition_point(|module| module.start <= address);
        after.checked_sub(1).and_then(|index| modules.get(index)).is_some_and(|module| address < module.end)
    };
    let words = words.iter().map(|word| u64::from_le_bytes(*word)).zip((start..).step_by(WORD_BYTES));
    words.filter(|(word, _)| is_in_module(*word)).map(|(word, at)| (LinkAddr(at), word)).collect()
}

/// Words through which copies call procedures of other modules, handing over nodes or not, and where copies take them.
#[derive(Debug, Default)]
pub(super) struct Links {
    /// Where clones begin.
    clones: FxHashMap<CloneNumber, u64>,
    /// Words that may lead there: where they lie, what they hold, and the clone.
    to_clones: Vec<(RunAddr, u64, CloneNumber)>,
    /// By run-time address of a procedure: where its copy takes a node.
    takes_node_at: FxHashMap<u64, u64>,
    /// Where words lie, and what they hold.
    words: Vec<(RunAddr, Vec<u64>)>,
}

impl Links {
    /// Copies of a module, and its words.
    pub(super) fn add(&mut self, copies: &Copies, (at, values): (LinkAddr, Vec<u64>), bias: u64) {
        let run = |at: LinkAddr| at.0.wrapping_add(bias);
        let taking =
            copies.made.iter().filter_map(|made| Some((run(made.copy.entry), run(made.copy.entered_by_linkage?))));
        self.takes_node_at.extend(taking);
        if !values.is_empty() {
            self.words.push((RunAddr(run(at)), values));
        }
    }

    /// Clones of a module, and its words that lead to those of others.
    pub(super) fn add_clones(&mut self, copies: &Copies, to_clones: Vec<(LinkAddr, u64, CloneNumber)>, bias: u64) {
        let run = |at: LinkAddr| at.0.wrapping_add(bias);
        let clones = copies.made.iter().filter(|made| made.clone != CloneNumber::NONE);
        self.clones.extend(clones.map(|made| (made.clone, run(made.copy.entered_at))));
        self.to_clones.extend(to_clones.into_iter().map(|(at, value, clone)| (RunAddr(run(at)), value, clone)));
    }

    /// What is to be written when all clones are there: where, what stands there, and what is to.
    pub(super) fn to_clones(&self) -> Vec<Change> {
        let change = |&(at, value, clone): &(RunAddr, u64, CloneNumber)| {
            let new = self.clones.get(&clone)?.to_le_bytes().to_vec();
            Some(Change { at: LinkAddr(at.0), old: Some(value.to_le_bytes().to_vec()), new })
        };
        self.to_clones.iter().filter_map(change).collect()
    }

    /// What is to be written when all copies are there: each word, or what it holds already.
    pub(super) fn written(&self) -> impl Iterator<Item = (RunAddr, Vec<u8>)> + '_ {
        let linked = |value: &u64| self.takes_node_at.get(value).unwrap_or(value).to_le_bytes();
        self.words.iter().map(move |(at, values)| (*at, values.iter().flat_map(linked).collect()))
    }
}
