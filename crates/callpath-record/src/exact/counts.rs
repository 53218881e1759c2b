//! What has been counted: read out of the lanes, and decoded.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;

use super::flows::{ContextCounts, Flows};
use super::hashed::Hashed;
use super::layout::Layout;
use super::pages::read_written;
use super::times::Times;
use crate::time_base::TickLength;
use callpath_format::address::LinkAddr;
use callpath_format::frame::ModuleIndex;
use callpath_format::shared::lanes::{LaneHead, LanesHead};
use callpath_image::identity::ModuleIdentity;
use callpath_measurement::{
    CountedEdge, CountedEdges, CountedPath, CountedProcedure, MeasurementError, PathCategory, PathCounts,
    RefusedProcedure,
};
use callpath_schema::Bounds;
use callpath_tables::paths::{self, Category, CountedInside, EdgeBounds, Executed};
use callpath_target::{Pid, SharedMemory};
use rustc_hash::{FxHashMap, FxHashSet};

const WORD_BYTES: usize = 8;

/// A module whose procedures count.
pub(crate) struct InModule {
    /// Where it is.
    pub(crate) path: PathBuf,
    /// Which build it is.
    pub(crate) identity: ModuleIdentity,
    /// Run-time address minus link-time address.
    pub(crate) bias: u64,
    /// By ascending first word of a lane.
    pub(super) procedures: Vec<paths::CountedProcedure>,
    /// The first instructions of those whose calls alone are counted, in the calling context tree.
    pub(super) called: Vec<LinkAddr>,
    /// The first instructions of those that are not counted, and why.
    pub(super) refused: Vec<(LinkAddr, String)>,
}

/// All that is counted in a program and its forks.
pub(crate) struct Counted {
    pub(super) lanes: SharedMemory,
    pub(super) lane_len_bytes: u64,
    /// The process that the copies were put into: others are its forks.
    pub(super) first: Pid,
    pub(super) modules: Vec<InModule>,
    /// Counters of paths for which lanes have no words.
    pub(crate) hashed: Option<Hashed>,
    /// What paths took, if that was measured.
    pub(super) times: Option<Times>,
    /// If a guide says where counters are placed: how often they were executed, of all that has been taken.
    pub(super) executed: Cell<Option<Executed>>,
    /// How its copies are laid out, if libraries that come later are counted, too.
    pub(super) layout: Option<Layout>,
}

impl Counted {
    /// What a process has counted, once: another program that it has executed meanwhile, or a later process with its number, has
    /// not. `module_of`: the index of a module there; `None`: it never had it. `in_contexts`: if paths are counted in contexts, what it has counted there. `tick`: how long
    /// a tick is, by which times were measured.
    /// `None`: it has no lanes.
    pub(crate) fn take(
        &self,
        pid: Pid,
        module_of: impl Fn(&InModule) -> Option<ModuleIndex>,
        (in_contexts, tick): (Option<(&Flows, &ContextCounts)>, TickLength),
    ) -> Result<Option<PathCounts>, MeasurementError> {
        let Some(words) = self.words_of(pid)? else { return Ok(None) };
        let lanes: FxHashSet<u32> = self.lanes_of(pid).collect();
        let by_path = self.times.as_ref().map(|times| times.in_lanes(&lanes, tick)).transpose()?;
        let hashed = match (&self.hashed, in_contexts) {
            (None, _) => FxHashMap::default(),
            (Some(_), Some((_, contexts))) => contexts.hashed_sums(),
            (Some(hashed), None) => hashed.in_lanes(&lanes)?,
        };
        let add_executed = |more: Option<Executed>, times: u64| {
            if let Some(more) = more {
                let mut executed = self.executed.get().unwrap_or_default();
                executed.add(more, times);
                self.executed.set(Some(executed));
            }
        };
        let word = |number: u64| words.get(number as usize).copied().unwrap_or(0);
        let mut counts = PathCounts { pid: pid.0, cut_short: word(paths::CUT_SHORT.into()), ..PathCounts::default() };
        // Each has counted in a lane that it shares with others.
        counts.lost = self.head().without.swap(0, Relaxed);
        counts.lost = counts.lost.saturating_add(self.hashed.as_ref().map_or(0, Hashed::take_lost));
        counts.metrics = self.times.as_ref().map(|times| times.account(tick)).unwrap_or_default();
        let sums = in_contexts.map(|(_, contexts)| &contexts.sums);
        if let Some((flows, contexts)) = in_contexts {
            counts.lost = counts.lost.saturating_add(flows.take_lost());
            let cut_short = contexts.sums.values().filter_map(|sums| sums.get(paths::CUT_SHORT as usize));
            counts.cut_short = cut_short.fold(counts.cut_short, |all, count| all.saturating_add(*count));
            counts.contexts = contexts.contexts();
        }
        for in_module in &self.modules {
            let InModule { procedures, called, refused, .. } = in_module;
            let Some(module) = module_of(in_module) else { continue };
            for procedure in procedures {
                let own_sums = procedure.number.and_then(|number| sums?.get(&number));
                let word = |number: u64| match (procedure.number, own_sums) {
                    (Some(_), Some(sums)) => {
                        sums.get(paths::FIRST_OF_CONTEXT as usize + number as usize).copied().unwrap_or(0)
                    }
                    (Some(_), None) => 0,
                    (None, _) => word(u64::from(procedure.first_word) + number),
                };
                let entry = procedure.entry;
                match &procedure.counts {
                    CountedInside::Paths(numbering) => {
                        let mut paths = Vec::new();
                        let of_table = match procedure.hashed {
                            Some(number) => hashed.get(&procedure.number.unwrap_or(number)),
                            None => None,
                        };
                        let in_table = of_table.into_iter().flatten().map(|(number, count)| (*number, *count));
                        let in_words = (0..u64::from(procedure.words)).map(|number| (number, word(number)));
                        let in_turn = (u64::from(procedure.words)..)
                            .zip(&procedure.further)
                            .map(|(at, number)| (*number, word(at)));
                        let mut sums: BTreeMap<u64, u64> = BTreeMap::new();
                        for (number, count) in in_words.chain(in_table).chain(in_turn).filter(|(_, count)| *count > 0) {
                            let sum = sums.entry(number).or_default();
                            *sum = sum.wrapping_add(count);
                        }
                        for (number, executions) in sums {
                            let Some((path, blocks)) = procedure.path(number) else { continue };
                            add_executed(procedure.increments(number), executions);
                            let category = category(path.category);
                            let measured = || by_path.as_ref()?.get(&(procedure.timed?, number as u32)).copied();
                            let times = measured().unwrap_or_default();
                            paths.push(CountedPath { number, category, blocks, executions, times });
                        }
                        let entries = procedure.entries.and_then(|entries| words.get(entries as usize)).copied();
                        if let Some(entries) = entries.filter(|entries| *entries > 0) {
                            let ended = paths.iter().filter(|path| path.category.is_to_exit());
                            let ended = ended.fold(0, |sum: u64, path| sum.saturating_add(path.executions));
                            // What began before a fork may have ended behind it, uncounted there.
                            let cut_short = (pid == self.first).then(|| entries.saturating_sub(ended));
                            counts.cut_short = counts.cut_short.saturating_add(cut_short.unwrap_or(0));
                            counts.edges.push(CountedEdges {
                                module,
                                entry,
                                entries,
                                cut_short,
                                blocks: Vec::new(),
                                edges: Vec::new(),
                            });
                        }
                        let (possible, cuts) = (numbering.paths(), numbering.cuts());
                        counts.procedures.push(CountedProcedure { module, entry, possible, cuts, paths });
                    }
                    CountedInside::Edges { .. } => {
                        // What went on in a fork began elsewhere.
                        let Some(found) = procedure.edges(word, pid == self.first) else { continue };
                        // Else it is not known how often other counters had counted.
                        let is_known = found.cut_short == Some(0);
                        add_executed(procedure.counters_executed(&found).filter(|_| is_known), 1);
                        counts.cut_short = counts.cut_short.saturating_add(found.cut_short.unwrap_or(0));
                        let starts = procedure.starts().iter().copied();
                        let blocks = starts.zip(found.blocks.iter().copied().map(bounds));
                        let edges = procedure.edges_of(&found).into_iter().map(|edge| CountedEdge {
                            from: edge.from,
                            to: edge.to,
                            is_back: edge.is_back,
                            executions: bounds(edge.executions),
                        });
                        counts.edges.push(CountedEdges {
                            module,
                            entry,
                            entries: found.entries,
                            cut_short: found.cut_short,
                            blocks: blocks.filter(|(_, executions)| executions.is_known_to_be_some()).collect(),
                            edges: edges.filter(|edge| edge.executions.is_known_to_be_some()).collect(),
                        });
                    }
                }
            }
            counts.procedures.extend(called.iter().map(|entry| CountedProcedure {
                module,
                entry: *entry,
                possible: 0,
                cuts: 0,
                paths: Vec::new(),
            }));
            counts.refused.extend(refused.iter().map(|(entry, reason)| RefusedProcedure {
                module,
                entry: *entry,
                reason: reason.clone(),
            }));
        }
        self.head().retire(pid.0);
        Ok(Some(counts))
    }

    /// By number of the procedure, how many paths have words of a context, and what further words count, if it has such.
    pub(crate) fn further(&self) -> FxHashMap<u32, (u32, &[u64])> {
        let procedures = self.modules.iter().flat_map(|module| &module.procedures);
        let with_further = procedures.filter(|procedure| !procedure.further.is_empty());
        with_further.filter_map(|it| Some((it.number?, (it.words, it.further.as_slice())))).collect()
    }

    /// If there was a guide, how often what counts was executed, of all that has been taken, and what it is.
    pub(super) fn executed(&self) -> Option<(Executed, &'static str)> {
        let executed = self.executed.get()?;
        let what = match self.modules.iter().flat_map(|module| &module.procedures).next()?.counts {
            CountedInside::Paths(_) => "increments",
            CountedInside::Edges { .. } => "counts of edges",
        };
        Some((executed, what))
    }

    /// The lanes' head.
    pub(super) fn head(&self) -> &LanesHead {
        // SAFETY: the memory begins with it, and is as long; atomics are valid for any bytes.
        unsafe { &*self.lanes.base().cast::<LanesHead>() }
    }

    fn lanes_of(&self, pid: Pid) -> impl Iterator<Item = u32> {
        let head = self.head();
        (0..LanesHead::MOST as u32).filter(move |lane| head.owner(*lane) == pid.0)
    }

    /// The sums of the words of all lanes of a process. `None`: it has none.
    fn words_of(&self, pid: Pid) -> Result<Option<Vec<u64>>, MeasurementError> {
        let mut sums: Option<Vec<u64>> = None;
        for lane in self.lanes_of(pid) {
            let sums = sums.get_or_insert_with(|| {
                vec![0; (self.lane_len_bytes as usize).saturating_sub(LaneHead::LEN_BYTES) / WORD_BYTES]
            });
            let begin = LanesHead::LEN_BYTES as u64 + self.lane_len_bytes * u64::from(lane);
            self.add_lane(begin, sums)?;
        }
        Ok(sums)
    }

    /// Adds the words of the lane that begins at an offset.
    fn add_lane(&self, begin: u64, sums: &mut [u64]) -> Result<(), MeasurementError> {
        let first = begin + LaneHead::LEN_BYTES as u64;
        read_written(&self.lanes, first..begin + self.lane_len_bytes, WORD_BYTES as u64, |at, words| {
            let from = (at - first) as usize / WORD_BYTES;
            let places = sums.get_mut(from..).unwrap_or_default();
            places.iter_mut().zip(words).for_each(|(sum, word)| *sum = sum.wrapping_add(*word));
        })
    }
}

fn bounds(bounds: EdgeBounds) -> Bounds {
    Bounds { least: bounds.least, most: bounds.most }
}

fn category(category: Category) -> PathCategory {
    match category {
        Category::EntryExit => PathCategory::EntryExit,
        Category::EntryBack => PathCategory::EntryBack,
        Category::HeadBack => PathCategory::HeadBack,
        Category::HeadExit => PathCategory::HeadExit,
    }
}
