//! A process's file: its threads' trees copied out, those of threads that have ended put together, the end credited.
//! Knows nothing of the file's bytes.

use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use callpath_format::address::RunAddr;
use callpath_format::frame::FrameKey;
use callpath_format::shared::{MAX_METRICS, Settings, Source};
use callpath_measurement::{
    MeasurementError, PARTIAL_ROOT, PathTree, ProcessFile, ThreadProfile, encode_process, process_file_name,
    trace_file_name, write_file,
};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::tail::{AtEnd, Parting};
use crate::thread;
use crate::trace::{self, TraceFile};

use super::{Clockwork, Process, Shared, ThreadState};

/// Ended threads beyond this many are put together by where they began.
const THREADS_KEPT_APART: usize = 512;

/// So many processes have files of their own; later ones if they live for long.
const OWN_FILES: u32 = 16;

impl Process {
    /// Starts a trace file.
    pub(crate) fn start_trace(&mut self, directory: &Path) -> Result<(), MeasurementError> {
        let name = trace_file_name(self.sequence, self.handle.pid().0);
        self.trace = Some(TraceFile::create(&directory.join(name))?);
        Ok(())
    }

    /// Copies out what has been measured, takes leave of threads that have ended, and writes the file.
    pub(crate) fn write(
        &mut self,
        shared: &mut Shared,
        clockwork: Clockwork,
        directory: &Path,
        ended_ns: Option<u64>,
    ) -> Result<(), MeasurementError> {
        self.drain_raw(shared);
        self.code.written.look_again();
        self.code.publish_changes(shared, self.slot);
        self.find_threads(shared);
        let (mut live, mut partings) = (Vec::new(), Vec::new());
        for index in 0..self.threads.len() {
            let ThreadState::Live(thread) = &self.threads[index] else { continue };
            let waits = self.has_waiting(thread.record);
            let over = ended_ns.is_some() || !waits && thread.has_ended(&shared.keeper, self.handle.pid());
            if over {
                // What it has put down since belongs to it as long as it is here.
                self.drain_raw(shared);
            }
            let profile = self.copy_out(index, shared, clockwork);
            if over {
                if let ThreadState::Live(thread) = &mut self.threads[index] {
                    partings.push((index, std::mem::take(&mut thread.parting)));
                }
                self.take_leave(index, profile, shared);
            } else {
                live.push((index, profile));
            }
        }
        if let Some(ended_ns) = ended_ns {
            self.credit(shared, clockwork.begin_mono_ns + ended_ns, &partings);
        }
        // Places in `self.threads` change here.
        let live: Vec<ThreadProfile> = live.into_iter().map(|(_, profile)| profile).collect();
        self.put_together_ended();
        self.name_written_code(&live, ended_ns.is_some());
        self.written_names.write(directory, self.sequence)?;
        let bytes = self.encode(shared, live, ended_ns);
        if ended_ns.is_some() && self.written.is_none() && self.sequence >= OWN_FILES {
            shared.together.append(directory, &bytes)?;
        } else if self.written.as_ref() != Some(&bytes) {
            write_file(directory, &process_file_name(self.sequence, self.handle.pid().0), &bytes)?;
            self.written = Some(bytes);
        }
        self.trace_loss.take().map_or(Ok(()), Err)
    }

    /// Enters what has passed since the last samples of the threads that were there at its end.
    fn credit(&mut self, shared: &Shared, ended_ns: u64, partings: &[(usize, Parting)]) {
        let threads_ever = self.threads_ever();
        let settings = shared.keeper.settings();
        let cpu = settings.in_use().iter().position(|meter| *meter == Settings::CPU_TIME);
        let mut trees: Vec<(usize, &mut PathTree)> = Vec::new();
        for (index, state) in self.threads.iter_mut().enumerate() {
            if let ThreadState::Ended(profile) = state {
                trees.push((index, &mut profile.tree));
            }
        }
        let accounted_ns =
            trees.iter().fold(0, |sum: u64, (_, tree)| sum.saturating_add(cpu.map_or(0, |cpu| tree.totals()[cpu])));
        let mut last: Vec<(Parting, &mut PathTree)> = Vec::new();
        for (index, tree) in trees {
            if let Ok(at) = partings.binary_search_by_key(&index, |(index, _)| *index) {
                last.push((partings[at].1.clone(), tree));
            }
        }
        let at_end = AtEnd {
            settings,
            source: Source::from_u32(shared.keeper.slot(self.slot).source.load(Relaxed)),
            ran: &self.ran,
            event: self.events.first(),
            ended_ns,
            threads_ever,
            accounted_ns,
        };
        at_end.credit(&mut last);
    }

    /// Asks the program's own words for the names of code that it has written.
    fn name_written_code(&mut self, live: &[ThreadProfile], ended: bool) {
        if !self.code.written.is_there() {
            return;
        }
        let kept = self.threads.iter().filter_map(|t| match t {
            ThreadState::Ended(profile) => Some(&**profile),
            ThreadState::Live(_) => None,
        });
        let keys = kept.chain(live).flat_map(|thread| thread.tree.nodes().iter().skip(PARTIAL_ROOT as usize + 1));
        let keys: FxHashSet<FrameKey> =
            keys.map(|node| node.key).filter(|key| self.code.written.is_module(key.module())).collect();
        self.written_names.name(&keys, &self.code.written, ended);
    }

    /// Takes leave of threads that have ended, so that others can have their chunks.
    pub(crate) fn reap(&mut self, shared: &mut Shared, clockwork: Clockwork) {
        self.drain_raw(shared);
        self.find_threads(shared);
        for index in 0..self.threads.len() {
            let ThreadState::Live(thread) = &self.threads[index] else { continue };
            if thread.says_it_ended(&shared.keeper)
                && !self.has_waiting(thread.record)
                && thread.has_ended(&shared.keeper, self.handle.pid())
            {
                self.drain_raw(shared);
                let profile = self.copy_out(index, shared, clockwork);
                self.take_leave(index, profile, shared);
            }
        }
        self.put_together_ended();
    }

    /// A thread as it stands now.
    fn copy_out(&mut self, index: usize, shared: &mut Shared, clockwork: Clockwork) -> ThreadProfile {
        let ThreadState::Live(thread) = &mut self.threads[index] else { return ThreadProfile::default() };
        thread.learn_name(&shared.keeper, |tid| self.handle.thread_name(tid));
        let entries = if self.trace.is_some() { trace::take(&mut shared.keeper, thread) } else { Vec::new() };
        let copy = thread.copy_tree(&shared.keeper);
        if let Some(file) = &mut self.trace {
            let time_ns = |ticks| clockwork.since_begin_ns(ticks);
            let appended = trace::append(file, &entries, &copy, index as u32, time_ns);
            self.trace_loss = self.trace_loss.take().or(appended.err());
        }
        let mut tree = PathTree::default();
        tree.merge(&copy.nodes);
        tree.merge(thread.own.nodes());
        if let Some(record) = thread.record(&shared.keeper) {
            thread.parting = Parting::of(thread, record, &copy, &mut tree, |ticks| clockwork.monotonic_ns(ticks));
        }
        let routine = thread.record(&shared.keeper).map_or(0, |r| r.start_routine.load(Relaxed));
        let start = (routine != 0).then(|| self.code.frame_at(RunAddr(routine)));
        let account = thread.account(&shared.keeper, clockwork.tick);
        ThreadProfile { tid: thread.tid, count: 1, name: thread.name.clone(), start, account, tree }
    }

    fn take_leave(&mut self, index: usize, profile: ThreadProfile, shared: &mut Shared) {
        if let ThreadState::Live(thread) = &self.threads[index] {
            // Out of the list first: its place is a new thread's as soon as its chunk has been given back.
            thread::unlink(&shared.keeper, self.slot, thread.record);
            trace::release(&mut shared.keeper, thread);
            thread.release(&mut shared.keeper);
            self.records.remove(&thread.record);
        }
        self.threads[index] = ThreadState::Ended(Box::new(profile));
    }

    fn encode(&mut self, shared: &Shared, live: Vec<ThreadProfile>, ended_ns: Option<u64>) -> Vec<u8> {
        let mut live = live.into_iter();
        let mut threads = Vec::with_capacity(self.threads.len());
        for state in &self.threads {
            match state {
                ThreadState::Ended(profile) => threads.push((**profile).clone()),
                ThreadState::Live(_) => threads.extend(live.next()),
            }
        }
        self.sums = threads.iter().fold([0; MAX_METRICS], |mut sums: [u64; MAX_METRICS], thread| {
            for (sum, value) in sums.iter_mut().zip(thread.tree.totals()) {
                *sum = sum.wrapping_add(value);
            }
            sums
        });
        for outcome in self.counters.outcomes() {
            if let Some((by, of)) = outcome.ratio(self.sums[outcome.metric]) {
                threads.iter_mut().for_each(|thread| thread.tree.scale(outcome.metric, by, of));
            }
        }
        encode_process(&ProcessFile {
            pid: self.handle.pid().0,
            parent_pid: self.parent,
            sequence: self.sequence,
            forked: self.forked,
            program: self.program.clone(),
            command: self.command.clone(),
            started_ns: self.started_ns,
            ended_ns,
            metric_count: self.metric_count,
            modules: self.code.modules.clone(),
            threads,
            dropped_unrecorded: std::array::from_fn(|i| {
                shared.keeper.slot(self.slot).dropped_unrecorded[i].load(Relaxed)
            }),
        })
    }

    /// Keeps a measurement from growing with the number of threads that come and go. Not with a trace, whose entries
    /// name threads by their place.
    fn put_together_ended(&mut self) {
        let ended = |t: &ThreadState| matches!(t, ThreadState::Ended(_));
        if self.trace.is_some() || self.threads.iter().filter(|t| ended(t)).count() <= THREADS_KEPT_APART {
            return;
        }
        let mut together: Vec<ThreadProfile> = Vec::new();
        let mut by_start: FxHashMap<Option<FrameKey>, usize> = FxHashMap::default();
        let mut kept = Vec::new();
        for state in self.threads.drain(..) {
            let ThreadState::Ended(profile) = state else {
                kept.push(state);
                continue;
            };
            let at = *by_start.entry(profile.start).or_insert(together.len());
            match together.get_mut(at) {
                None => together.push(*profile),
                Some(sum) => {
                    sum.count += profile.count;
                    sum.account.add(&profile.account);
                    sum.tree.merge(profile.tree.nodes());
                }
            }
        }
        self.threads = together.into_iter().map(|p| ThreadState::Ended(Box::new(p))).collect();
        self.threads.extend(kept);
    }
}
