//! A process's file: its threads' trees copied out, those of threads that have ended put together, the end credited.

use std::sync::atomic::Ordering::Relaxed;

use callpath_format::address::RunAddr;
use callpath_format::frame::FrameKey;
use callpath_format::shared::{Dropped, MetricSettings, ProcessSlot, Settings, Source};
use callpath_measurement::{MeasurementError, PathTree, ProcessFile, Scaling, ThreadProfile};
use rustc_hash::FxHashMap;

use crate::events::rule_of;
use crate::exact::Flows;
use crate::plausible::{Impossible, Limits, Numbers};
use crate::shared::Shared;
use crate::sources::Sources;
use crate::tail::{AtEnd, Parting};
use crate::thread;
use crate::thread_tree::Units;

use super::{Process, ThreadState};

/// Ended threads beyond this many are put together by where they began.
const SEPARATE_THREADS: usize = 512;

/// At each writing the kernel is asked of so many threads at most whether they still live. All others that have ended
/// say so.
const THREADS_ASKED_FOR: usize = 1024;

/// How many processes have separate files; later ones have one if they live for long.
const OWN_FILES: u32 = 16;

impl Process {
    /// Copies out what has been measured, takes leave of threads that have ended, and writes the file. `ended_ns`: when
    /// the process has ended, since the measurement began.
    pub(crate) fn write(&mut self, shared: &mut Shared, ended_ns: Option<u64>) -> Result<(), MeasurementError> {
        self.drain_raw(shared);
        self.code.generated.look_again();
        self.code.publish_changes(shared, self.slot);
        self.find_threads(shared);
        let mut partings = Vec::new();
        let ask_every = 1 + self.records.len() / THREADS_ASKED_FOR;
        for index in 0..self.threads.len() {
            let ThreadState::Live(thread) = &self.threads[index] else { continue };
            let is_asked_for =
                (index + self.writings).is_multiple_of(ask_every) || thread.says_it_ended(&shared.allocator);
            let has_ended = || is_asked_for && thread.has_ended(&shared.allocator, self.handle.pid());
            let over = ended_ns.is_some() || has_ended() && !self.has_waiting(thread.record);
            if over {
                // What it has put down since belongs to it as long as it is here.
                self.drain_raw(shared);
                partings.push((index, self.follow_to_end(index, shared)));
                self.take_leave(index, shared);
            } else {
                self.follow(index, shared);
            }
        }
        self.writings += 1;
        self.credit_rest(shared, ended_ns.is_some());
        if let Some(ended_ns) = ended_ns.filter(|_| self.outside.is_none()) {
            if self.threads.is_empty() {
                // There was no memory for its first thread's record, or it called nothing that is probed. What it has run is
                // known all the same.
                let (tid, name) = (self.handle.pid().0, self.program_name());
                let first = ThreadProfile { tid, count: 1, name, ..ThreadProfile::default() };
                self.threads.push(ThreadState::Ended(Box::new(first)));
                partings.push((0, Parting::default()));
                self.has_no_record =
                    !shared.has_probes_alone() || has_dropped_for_memory(shared.allocator.slot(self.slot));
            }
            self.credit(shared, shared.began.time_base().begin_mono_ns + ended_ns, &partings);
        }
        // Places in `self.threads` change here.
        self.put_together_ended(shared.publisher.metrics());
        self.name_generated_code(ended_ns.is_some());
        self.name_kernel_code(shared);
        self.generated_names.write(&shared.directory, self.sequence)?;
        self.write_file(shared, ended_ns)
    }

    /// Writes what the process has counted exactly, once: at its end, or that of the measurement.
    pub(crate) fn write_counts(&mut self, shared: &mut Shared) -> Result<(), MeasurementError> {
        let Some(counted) = self.code.program.and_then(|program| shared.programs.get(program)) else { return Ok(()) };
        if let Some(flows) = &mut shared.flows {
            let live = self.threads.iter().filter_map(|thread| match thread {
                ThreadState::Live(thread) => Some(thread),
                ThreadState::Ended(_) => None,
            });
            live.for_each(|thread| self.flows.add(flows, thread));
            self.flows.add_further(&counted.further());
        }
        if let (Some(hashed), Some(_)) = (&counted.hashed, &shared.flows) {
            self.flows.add_hashed(hashed)?;
        }
        let in_contexts = shared.flows.as_ref().map(|flows| (flows, &self.flows));
        let by = (in_contexts, shared.began.time_base().tick);
        let counts = counted.take(self.handle.pid(), |of| self.code.index_at((&of.path, &of.identity), of.bias), by)?;
        counts.map_or(Ok(()), |counts| counts.write(&shared.directory, self.sequence))?;
        shared.flows.as_mut().and_then(Flows::take_trouble).map_or(Ok(()), Err)
    }

    /// Enters what has passed since the last samples of the threads that were there at its end.
    fn credit(&mut self, shared: &Shared, ended_ns: u64, partings: &[(usize, Parting)]) {
        let threads_ever = self.threads_ever();
        let metrics = shared.publisher.metrics();
        let cpu = metrics.iter().position(|metric| metric.meter == Settings::CPU_TIME);
        let mut trees: Vec<(usize, &mut PathTree)> = Vec::new();
        for (index, state) in self.threads.iter_mut().enumerate() {
            if let ThreadState::Ended(profile) = state {
                trees.push((index, &mut profile.tree));
            }
        }
        let accounted_ns =
            trees.iter().fold(0, |sum: u64, (_, tree)| sum.saturating_add(cpu.map_or(0, |cpu| tree.total(cpu))));
        let mut last: Vec<(Parting, &mut PathTree)> = Vec::new();
        for (index, tree) in trees {
            if let Ok(at) = partings.binary_search_by_key(&index, |(index, _)| *index) {
                last.push((partings[at].1.clone(), tree));
            }
        }
        let slot = shared.allocator.slot(self.slot);
        let had_no_room = self.has_no_record || has_dropped_for_memory(slot);
        let at_end = AtEnd {
            metrics,
            period_ns: shared.allocator.settings().period_ns,
            source: Source::from_u32(slot.source.load(Relaxed)),
            ran: &self.ran,
            event: self.sources.as_ref().and_then(Sources::cpu_clock),
            ended_ns,
            threads_ever,
            accounted_ns,
            had_no_room,
        };
        at_end.credit(&mut last);
    }

    /// Reads the program's names of its generated code.
    fn name_generated_code(&mut self, ended: bool) {
        if !self.code.generated.is_there() {
            return;
        }
        for state in &self.threads {
            let fresh = state.profile().tree.fresh_nodes().iter().map(|node| node.key);
            self.generated_keys.extend(fresh.filter(|key| self.code.generated.is_module(key.module())));
        }
        self.generated_names.name(&self.generated_keys, &mut self.code.generated, ended);
    }

    /// Names the frames of the kernel.
    fn name_kernel_code(&mut self, shared: &Shared) {
        let Some(kernel) = &shared.kernel else { return };
        let fresh = self.threads.iter().flat_map(|state| state.profile().tree.fresh_nodes()).map(|node| node.key);
        self.generated_names.name_kernel(fresh.filter(|key| self.code.is_of_kernel(*key)), kernel);
    }

    /// Takes leave of threads that have ended, so that others can have their chunks.
    pub(crate) fn reap(&mut self, shared: &mut Shared) {
        self.drain_raw(shared);
        self.find_threads(shared);
        for index in 0..self.threads.len() {
            let ThreadState::Live(thread) = &self.threads[index] else { continue };
            if thread.says_it_ended(&shared.allocator)
                && !self.has_waiting(thread.record)
                && thread.has_ended(&shared.allocator, self.handle.pid())
            {
                self.drain_raw(shared);
                self.follow_to_end(index, shared);
                self.take_leave(index, shared);
            }
        }
        self.put_together_ended(shared.publisher.metrics());
    }

    /// Brings a thread's profile up to date, if it has done anything since the last time.
    fn follow(&mut self, index: usize, shared: &Shared) {
        if let ThreadState::Live(thread) = &mut self.threads[index]
            && thread.has_changed(&shared.allocator)
        {
            self.update(index, shared, false);
        }
    }

    /// The same of a thread that adds nothing any more. Returns its last state.
    fn follow_to_end(&mut self, index: usize, shared: &Shared) -> Parting {
        self.update(index, shared, true);
        let ThreadState::Live(thread) = &self.threads[index] else { return Parting::default() };
        let time_base = shared.began.time_base();
        Parting::of(thread, &shared.allocator, |ticks| time_base.monotonic_ns(ticks))
    }

    fn update(&mut self, index: usize, shared: &Shared, is_last: bool) {
        let time_base = shared.began.time_base();
        let ThreadState::Live(thread) = &mut self.threads[index] else { return };
        if thread.outside.is_some() {
            return thread.update_tally(&shared.allocator, time_base.tick);
        }
        thread.learn_name(&shared.allocator, |tid| self.handle.thread_name(tid));
        let units = Units { tick: time_base.tick, metrics: shared.publisher.metrics() };
        thread.follow_tree(&shared.allocator, units, is_last);
        if thread.copy.is_damaged {
            self.impossible.get_or_insert(Impossible::Tree);
        }
        thread.update_tally(&shared.allocator, time_base.tick);
        let Some(record) = thread.record(&shared.allocator) else { return };
        let routine = record.start_routine.load(Relaxed);
        thread.profile.start = (routine != 0).then(|| self.code.frame_at(RunAddr(routine)));
    }

    fn take_leave(&mut self, index: usize, shared: &mut Shared) {
        let ThreadState::Live(thread) = &mut self.threads[index] else { return };
        if let Some(flows) = &mut shared.flows {
            self.flows.add(flows, thread);
        }
        // Out of the list first: its place is a new thread's as soon as its chunk has been given back.
        let unmatched = thread.record(&shared.allocator).map_or(0, |record| record.unmatched_exits.load(Relaxed));
        self.unmatched_exits = self.unmatched_exits.saturating_add(unmatched);
        thread::unlink(&shared.allocator, self.slot, thread.record);
        thread.release(&mut shared.allocator);
        self.records.remove(&thread.record);
        let profile = std::mem::take(&mut thread.profile);
        self.threads[index] = ThreadState::Ended(Box::new(profile));
    }

    /// Writes what has changed.
    fn write_file(&mut self, shared: &mut Shared, ended_ns: Option<u64>) -> Result<(), MeasurementError> {
        for (metric, sum) in self.sums.iter_mut().enumerate() {
            let totals = self.threads.iter().map(|thread| thread.profile().tree.total(metric));
            *sum = totals.fold(0, u64::wrapping_add);
        }
        self.look_for_impossible(shared, ended_ns.is_some());
        let control_group = self.outside_group();
        let mut threads: Vec<&mut ThreadProfile> = self.threads.iter_mut().map(ThreadState::profile_mut).collect();
        let outcomes = self.sources.iter().flat_map(|sources| sources.counters.outcomes());
        let scalings = outcomes.filter_map(|outcome| {
            let (by, of) = outcome.ratio(self.sums[outcome.metric])?;
            Some(Scaling { metric: outcome.metric, by, of })
        });
        let dropped_unrecorded = &shared.allocator.slot(self.slot).dropped_unrecorded;
        let process = ProcessFile {
            pid: self.handle.pid().0,
            parent_pid: self.parent,
            sequence: self.sequence,
            rank: None,
            forked: self.forked,
            program: self.program.clone(),
            command: self.command.clone(),
            control_group,
            started_ns: self.started_ns,
            ended_ns,
            metric_count: self.metric_count,
            modules: self.code.modules.clone(),
            threads: Vec::new(),
            dropped_unrecorded: dropped_unrecorded.each_ref().map(|count| count.load(Relaxed)),
            scalings: scalings.collect(),
        };
        if ended_ns.is_some() && !self.log.is_begun() && self.sequence >= OWN_FILES {
            let bytes = self.log.bytes(&process, &mut threads);
            return shared.together.append(&shared.directory, &bytes);
        }
        self.log.write(&shared.directory, &process, &mut threads)
    }

    /// Checks whether the process's numbers are plausible. `is_last`: all nodes are looked at.
    fn look_for_impossible(&mut self, shared: &Shared, is_last: bool) {
        let mut limits = Limits::after(shared.began.elapsed());
        if shared.allocator.settings().uses(Settings::CALLS) {
            limits = limits.of_calls();
        }
        let numbers = Numbers { metrics: shared.publisher.metrics(), sums: &self.sums, threads: self.threads_ever() };
        let mut profiles = self.threads.iter().map(ThreadState::profile);
        let unrecorded = &shared.allocator.slot(self.slot).dropped_unrecorded;
        let unrecorded = unrecorded.iter().fold(0, |sum: u64, count| sum.saturating_add(count.load(Relaxed)));
        let of_process = limits.impossible(&numbers).or_else(|| limits.impossible_samples(unrecorded));
        let found = of_process.or_else(|| {
            profiles.find_map(|profile| {
                let samples = profile.tree.nodes().iter().map(|node| node.samples);
                let of_tally = limits.impossible_tally(&profile.tally, profile.count);
                let of_nodes = || limits.impossible_samples(samples.fold(0, u64::saturating_add));
                of_tally.or_else(|| is_last.then(of_nodes).flatten())
            })
        });
        self.impossible = self.impossible.or(found);
    }

    /// Keeps a measurement from growing with the number of threads that come and go. Those that were prepared and never
    /// ran are left out.
    fn put_together_ended(&mut self, metrics: &[MetricSettings]) {
        let before = self.threads.len();
        let has_any = |profile: &ThreadProfile| (0..metrics.len()).any(|metric| profile.tree.total(metric) > 0);
        self.threads.retain(|state| match state {
            ThreadState::Ended(profile) => {
                profile.tid != 0 || profile.tally.taken != 0 || profile.count != 1 || has_any(profile)
            }
            ThreadState::Live(_) => true,
        });
        if self.threads.len() != before {
            self.log.forget();
        }
        let ended = |t: &ThreadState| matches!(t, ThreadState::Ended(_));
        if self.threads.iter().filter(|t| ended(t)).count() <= SEPARATE_THREADS {
            return;
        }
        self.log.forget();
        let mut together: Vec<ThreadProfile> = Vec::new();
        // Where those began that are sampled from outside is not known.
        let mut by_start: FxHashMap<(Option<FrameKey>, String), usize> = FxHashMap::default();
        let is_from_outside = self.outside.is_some();
        let mut kept = Vec::new();
        for state in self.threads.drain(..) {
            let ThreadState::Ended(profile) = state else {
                kept.push(state);
                continue;
            };
            let name = if is_from_outside { profile.name.clone() } else { String::new() };
            let at = *by_start.entry((profile.start, name)).or_insert(together.len());
            match together.get_mut(at) {
                None => together.push(*profile),
                Some(sum) => {
                    sum.count += profile.count;
                    sum.tally.add(&profile.tally);
                    sum.tree.merge(&profile.tree, |metric| rule_of(metrics.get(metric).map_or(0, |m| m.meter)));
                }
            }
        }
        self.threads = together.into_iter().map(|p| ThreadState::Ended(Box::new(p))).collect();
        self.threads.extend(kept);
    }
}

/// Whether there was no memory for a sample or a call of a thread without a record.
fn has_dropped_for_memory(slot: &ProcessSlot) -> bool {
    slot.dropped_unrecorded[Dropped::NoMemory as usize].load(Relaxed) > 0
}
