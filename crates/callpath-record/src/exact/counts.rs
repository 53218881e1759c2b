//! What has been counted: read out of the lanes, and decoded.

use std::cell::Cell;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;

use super::flows::{ContextCounts, Flows};
use super::times::Times;
use crate::time_base::TickLength;
use callpath_format::address::{LinkAddr, RunAddr};
use callpath_format::frame::FrameKey;
use callpath_format::shared::lanes::{LaneHead, LanesHead};
use callpath_measurement::{
    CountedEdge, CountedEdges, CountedPath, CountedProcedure, MeasurementError, PathCategory, PathCounts,
    RefusedProcedure,
};
use callpath_schema::Bounds;
use callpath_tables::paths::{self, Category, CountedInside, EdgeBounds, Executed};
use callpath_target::{Pid, SharedMemory};

const WORD_BYTES: usize = 8;

/// A module whose procedures count.
pub(super) struct InModule {
    /// Run-time address minus link-time address.
    pub(super) bias: u64,
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
    /// What paths took, if that was measured.
    pub(super) times: Option<Times>,
    /// If a guide says where counters are placed: how often they were executed, of all that has been taken.
    pub(super) executed: Cell<Option<Executed>>,
}

impl Counted {
    /// What a process has counted, once: another program that it has executed meanwhile, or a later process with its number, has
    /// not. `frame_at`: an address of it as a frame. `in_contexts`: if paths are counted in contexts, what it has counted there. `tick`: how long
    /// a tick is, by which times were measured.
    /// `None`: it has no lanes.
    pub(crate) fn take(
        &self,
        pid: Pid,
        frame_at: impl Fn(RunAddr) -> FrameKey,
        (in_contexts, tick): (Option<(&Flows, &ContextCounts)>, TickLength),
    ) -> Result<Option<PathCounts>, MeasurementError> {
        let Some(words) = self.words_of(pid)? else { return Ok(None) };
        let by_path = self.times.as_ref().map(|times| times.in_lanes(&self.lanes_of(pid).collect(), tick));
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
        let sums = in_contexts.map(|(_, contexts)| &contexts.sums);
        if let Some((flows, contexts)) = in_contexts {
            counts.lost = counts.lost.saturating_add(flows.take_lost());
            let cut_short = contexts.sums.values().filter_map(|sums| sums.get(paths::CUT_SHORT as usize));
            counts.cut_short = cut_short.fold(counts.cut_short, |all, count| all.saturating_add(*count));
            counts.contexts = contexts.contexts();
        }
        for InModule { bias, procedures, called, refused } in &self.modules {
            let key = |at: LinkAddr| frame_at(RunAddr(at.0.wrapping_add(*bias)));
            for procedure in procedures {
                let module = key(procedure.entry).module();
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
                        for number in 0..numbering.paths() {
                            let executions = word(number);
                            let found = if executions > 0 { procedure.path(number) } else { None };
                            let Some((path, blocks)) = found else { continue };
                            add_executed(procedure.increments(number), executions);
                            let category = category(path.category);
                            let measured = || by_path.as_ref()?.get(&(procedure.timed?, number as u32)).copied();
                            let time = measured().unwrap_or_default();
                            if std::env::var_os("CPDBG").is_some_and(|v| !v.is_empty()) {
                                eprintln!(
                                    "{:#x} #{number} x{executions} {:?} mean {:?} int {:?}",
                                    entry.0,
                                    time,
                                    time.mean_ns(),
                                    time.interval_ns(executions)
                                );
                            }
                            paths.push(CountedPath { number, category, blocks, executions, time });
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
                module: key(*entry).module(),
                entry: *entry,
                possible: 0,
                cuts: 0,
                paths: Vec::new(),
            }));
            counts.refused.extend(refused.iter().map(|(entry, reason)| RefusedProcedure {
                module: key(*entry).module(),
                entry: *entry,
                reason: reason.clone(),
            }));
        }
        self.head().retire(pid.0);
        Ok(Some(counts))
    }

    /// What a guide was good for, if there was one.
    pub(crate) fn note_of_guide(&self) -> Option<String> {
        let Executed { guided, by_depth } = self.executed.get()?;
        let what = match self.modules.iter().flat_map(|module| &module.procedures).next()?.counts {
            CountedInside::Paths(_) => "increments",
            CountedInside::Edges { .. } => "counts of edges",
        };
        Some(format!("--guide: {guided} {what} were executed; placed by loop depth they would have been {by_depth}"))
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

    /// Adds the words of the lane that begins at an offset. Pages that were never written are not read, which would give them memory.
    fn add_lane(&self, begin: u64, sums: &mut [u64]) -> Result<(), MeasurementError> {
        const STEP_BYTES: usize = 1 << 16;
        let path = PathBuf::from(format!("/proc/self/fd/{}", self.lanes.descriptor()));
        let failed = |source| MeasurementError::Read { path: path.clone(), source };
        let file = std::fs::File::open(&path).map_err(failed)?;
        let end = begin + self.lane_len_bytes;
        let mut bytes = vec![0; STEP_BYTES];
        let mut at = begin;
        while let Some(data) = next_data(&file, at).map_err(failed)?.filter(|data| *data < end) {
            let from = data.max(begin) / WORD_BYTES as u64 * WORD_BYTES as u64;
            let len = STEP_BYTES.min((end - from) as usize);
            let Some(page) = bytes.get_mut(..len) else { break };
            file.read_exact_at(page, from).map_err(failed)?;
            let (words, _) = page.as_chunks::<WORD_BYTES>();
            let first = from.saturating_sub(begin) as usize;
            for (index, word) in words.iter().enumerate() {
                let offset = (first + index * WORD_BYTES).checked_sub(LaneHead::LEN_BYTES);
                if let Some(sum) = offset.and_then(|offset| sums.get_mut(offset / WORD_BYTES)) {
                    *sum = sum.wrapping_add(u64::from_le_bytes(*word));
                }
            }
            at = from + len as u64;
        }
        Ok(())
    }
}

/// Where the next page is that was written, from an offset on. `None`: there is none.
fn next_data(file: &std::fs::File, from: u64) -> std::io::Result<Option<u64>> {
    use std::os::fd::AsRawFd;
    // SAFETY: moves the position of a descriptor of our own.
    let at = unsafe { libc::lseek(file.as_raw_fd(), from as libc::off_t, libc::SEEK_DATA) };
    let error = std::io::Error::last_os_error();
    match u64::try_from(at) {
        Ok(at) => Ok(Some(at)),
        Err(_) if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
        Err(_) => Err(error),
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
