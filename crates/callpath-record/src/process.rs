//! One measured process: its load map, its threads, what it has measured so far.
//! Knows nothing of the other processes but through the modules that they share.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::{Duration, Instant, SystemTime};

use callpath_analyze::measurement::{
    MeasurementError, PARTIAL_ROOT, PathTree, ProcessFile, ThreadProfile, encode_process, process_file_name,
    trace_file_name, write_file,
};
use callpath_format::address::RunAddr;
use callpath_format::frame::FrameKey;
use callpath_format::shared::{ArenaRef, MAX_METRICS, Pause, ProcessSlot, Settings, SlotState, Source, ThreadRecord};
use callpath_target::{ClockEvent, Maps, Pid, ProcessHandle};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::arena::ArenaKeeper;
use crate::backlog::Backlog;
use crate::code::ProcessCode;
use crate::counters::{Counted, Counters};
use crate::modules::Modules;
use crate::publish::Publisher;
use crate::raw::{self, Raw, Walked};
use crate::sentinel::Unmarkable;
use crate::thread::{Thread, TickLength};
use crate::trace::{self, TraceFile};
use crate::written_names::WrittenNames;

/// Ended threads beyond this many are put together by where they began.
const THREADS_KEPT_APART: usize = 512;

/// Samples of code that the program writes come all the time: the memory map is not read anew for each.
const MAP_IS_OLD: Duration = Duration::from_millis(100);

/// What all processes share.
pub(crate) struct Shared {
    // The first to go: its threads ring the doorbell, which is in the arena.
    pub(crate) modules: Modules,
    pub(crate) keeper: ArenaKeeper,
    pub(crate) publisher: Publisher,
}

/// Time in the measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clockwork {
    pub(crate) begin_ticks: u64,
    pub(crate) tick: TickLength,
}

impl Clockwork {
    fn since_begin_ns(self, ticks: u64) -> u64 {
        self.tick.ns(ticks.saturating_sub(self.begin_ticks))
    }
}

enum ThreadState {
    Live(Box<Thread>),
    Ended(Box<ThreadProfile>),
}

/// A process.
pub(crate) struct Process {
    pub(crate) slot: usize,
    pub(crate) handle: ProcessHandle,
    pub(crate) sequence: u32,
    parent: u32,
    forked: bool,
    program: PathBuf,
    command: Vec<String>,
    started_ns: u64,
    metric_count: u32,
    events: Vec<ClockEvent>,
    counters: Counters,
    code: ProcessCode,
    written_names: WrittenNames,
    /// Samples that wait for recipe tables.
    backlog: Backlog,
    threads: Vec<ThreadState>,
    records: FxHashSet<ArenaRef>,
    /// By metric, what all samples came to at the last writing.
    sums: [u64; MAX_METRICS],
    trace: Option<TraceFile>,
    trace_loss: Option<MeasurementError>,
    written: Option<Vec<u8>>,
}

impl Process {
    /// A process that has just filled in its slot.
    pub(crate) fn new(shared: &Shared, slot: usize, sequence: u32, started_ns: u64) -> Process {
        let at = shared.keeper.slot(slot);
        let handle = ProcessHandle::open(Pid(at.pid.load(Relaxed)));
        Process {
            slot,
            sequence,
            parent: handle.parent().map_or(0, |p| p.0),
            forked: at.forked_from.load(Relaxed) != 0,
            program: handle.executable().unwrap_or_default(),
            command: handle.command_line(),
            code: ProcessCode::new(handle.pid()),
            backlog: Backlog::default(),
            written_names: WrittenNames::new(handle.pid(), SystemTime::now()),
            handle,
            started_ns,
            metric_count: shared.keeper.session().settings.metric_count,
            events: Vec::new(),
            counters: Counters::default(),
            threads: Vec::new(),
            records: FxHashSet::default(),
            sums: [0; MAX_METRICS],
            trace: None,
            trace_loss: None,
            written: None,
        }
    }

    /// Lets the process go on with its source of samples.
    pub(crate) fn admit(&mut self, shared: &Shared, events: Vec<ClockEvent>, counters: Counters, source: Source) {
        self.events = events;
        self.counters = counters;
        let slot = shared.keeper.slot(self.slot);
        slot.source.store(source as u32, Release);
        wake(&slot.source);
    }

    /// Tells the slot that the process has taken after executing another program what has been accounted for already: the
    /// thread that goes on keeps its CPU time and its usage.
    pub(crate) fn hand_on(&mut self, shared: &Shared, to: usize) {
        self.find_threads(shared);
        let pid = self.handle.pid().0;
        let settings = &shared.keeper.session().settings;
        let to = shared.keeper.slot(to);
        let records = self.threads.iter().filter_map(|t| match t {
            ThreadState::Live(thread) => thread.record(&shared.keeper),
            ThreadState::Ended(_) => None,
        });
        for record in records.filter(|r| r.tid.load(Relaxed) == pid) {
            let cpu_ns = record.clocks[0].load(Relaxed).wrapping_add(record.clocks[2].load(Relaxed));
            to.inherited_cpu_ns.fetch_max(cpu_ns, Relaxed);
            for ((base, count), meter) in to.bases.iter().zip(&record.counts).zip(settings.in_use()) {
                if Settings::is_of_usage(*meter) {
                    base.fetch_max(count.load(Relaxed), Relaxed);
                }
            }
        }
    }

    /// What its counted events came to: by the kernel, and in samples.
    pub(crate) fn counted(&self) -> impl Iterator<Item = Counted> {
        self.counters.outcomes().map(|outcome| Counted { in_samples: self.sums[outcome.metric], outcome })
    }

    /// What of its return addresses could not be marked.
    pub(crate) fn enter_marks(&self, shared: &Shared, unmarkable: &mut Unmarkable) {
        unmarkable.add(&shared.keeper.session().settings, shared.keeper.slot(self.slot));
    }

    /// How many threads it has had.
    pub(crate) fn threads_ever(&self) -> u64 {
        let count = |t: &ThreadState| match t {
            ThreadState::Live(_) => 1,
            ThreadState::Ended(profile) => profile.count,
        };
        self.threads.iter().map(count).sum()
    }

    /// Serves what the process has asked for since the last time.
    pub(crate) fn serve(&mut self, shared: &mut Shared) {
        let slot = shared.keeper.slot(self.slot);
        self.counters.look(slot);
        self.receive_tables(shared);
        let slot = shared.keeper.slot(self.slot);
        let wanted = slot.map_wanted.load(Acquire);
        if slot.raw.load(Acquire) != 0 {
            self.drain_raw(shared);
        }
        let slot = shared.keeper.slot(self.slot);
        if slot.map_served.load(Relaxed) != wanted {
            self.refresh_map(shared);
            let slot = shared.keeper.slot(self.slot);
            slot.map_served.store(wanted, Release);
            wake(&slot.map_served);
        }
        let slot = shared.keeper.slot(self.slot);
        match slot.pause.load(Acquire) {
            Pause::WANTED => {
                self.events.iter().for_each(|event| event.set_running(false));
                self.counters.set_running(false);
                slot.pause.store(Pause::PAUSED, Release);
                wake(&slot.pause);
            }
            Pause::OVER => {
                self.events.iter().for_each(|event| event.set_running(true));
                self.counters.set_running(true);
                slot.pause.store(Pause::RUNNING, Release);
            }
            _ => {}
        }
    }

    /// Whether the process has ended.
    pub(crate) fn has_ended(&self) -> bool {
        !self.handle.lives()
    }

    /// Publishes the load map as the process's memory map is now, with the tables of all its modules.
    pub(crate) fn refresh_map(&mut self, shared: &mut Shared) {
        // A process that has ended has no map; what it had is still right for its raw samples.
        match Maps::read(self.handle.pid()) {
            Ok(maps) => self.publish_maps(shared, &maps),
            Err(_) => self.code.map_read = Instant::now(),
        }
    }

    /// The same with the memory map as it was read just now.
    pub(crate) fn publish_maps(&mut self, shared: &mut Shared, maps: &Maps) {
        if !self.backlog.is_empty() && self.code.is_missing_in(maps) {
            // What goes away may be what samples wait for.
            shared.modules.receive_all(&mut shared.publisher);
            self.receive_tables(shared);
        }
        self.code.publish(shared, self.slot, maps);
        if self.code.written.is_there() {
            self.written_names.expect_map();
        }
    }

    /// Goes on with samples whose tables are there now.
    pub(crate) fn receive_tables(&mut self, shared: &mut Shared) {
        if !self.code.receive(shared, self.slot) {
            return;
        }
        let places = self.live_threads();
        for kept in self.backlog.take() {
            let walked = self.code.walk(&kept.as_raw(), shared.publisher.published());
            self.attribute(shared, &places, &kept.as_raw(), &walked);
        }
    }

    /// Adds the samples that wait for tables with the paths that are known. Whether there are any.
    pub(crate) fn stop_waiting(&mut self, shared: &Shared) -> bool {
        let places = self.live_threads();
        let waiting = self.backlog.take();
        for kept in &waiting {
            let walked = self.code.walk(&kept.as_raw(), shared.publisher.published());
            self.enter(shared, &places, &kept.as_raw(), &walked);
        }
        !waiting.is_empty()
    }

    /// Whether the recipe tables of all its modules are there.
    pub(crate) fn has_all_tables(&self) -> bool {
        self.code.has_all_tables()
    }

    /// Whether samples wait for recipe tables.
    pub(crate) fn awaits_tables(&self) -> bool {
        !self.backlog.is_empty()
    }

    fn find_threads(&mut self, shared: &Shared) {
        let mut at = ArenaRef(shared.keeper.slot(self.slot).threads.load(Acquire));
        let mut fresh = Vec::new();
        while let Some(record) = shared.keeper.arena().get::<ThreadRecord>(at) {
            if !shared.keeper.is_backed(at.chunk()) || !self.records.insert(at) {
                break;
            }
            fresh.push(at);
            at = ArenaRef(record.next.load(Relaxed));
        }
        // Newest first in the list, oldest first here.
        self.threads.extend(fresh.into_iter().rev().map(|at| ThreadState::Live(Box::new(Thread::new(at)))));
    }

    /// Walks the raw samples that it has put down since the last time.
    pub(crate) fn drain_raw(&mut self, shared: &mut Shared) {
        let chunks = raw::take_list(&shared.keeper, shared.keeper.slot(self.slot));
        if chunks.is_empty() {
            return;
        }
        self.find_threads(shared);
        let places = self.live_threads();
        self.code.written.begin_round();
        // Oldest first.
        let mut refreshed = false;
        for chunk in chunks.iter().rev() {
            let Some(raw) = Raw::in_chunk(&shared.keeper, *chunk) else { continue };
            let mut walked = self.code.walk(&raw, shared.publisher.published());
            let is_old = self.code.map_read.elapsed() > MAP_IS_OLD;
            if !refreshed && (walked.met_unknown || is_old) {
                refreshed = true;
                // Its chunk is not given back before all have been looked at.
                self.refresh_map(shared);
                let Some(raw) = Raw::in_chunk(&shared.keeper, *chunk) else { continue };
                walked = self.code.walk(&raw, shared.publisher.published());
            }
            let Some(raw) = Raw::in_chunk(&shared.keeper, *chunk) else { continue };
            self.attribute(shared, &places, &raw, &walked);
        }
        self.code.publish_changes(shared, self.slot);
        for chunk in &chunks {
            raw::give_back(&mut shared.keeper, *chunk);
        }
        shared.keeper.slot(self.slot).raw_pending.fetch_sub(chunks.len() as u32, AcqRel);
    }

    /// Where live threads stand, by their records.
    fn live_threads(&self) -> FxHashMap<ArenaRef, usize> {
        let live = self.threads.iter().enumerate().filter_map(|(at, thread)| match thread {
            ThreadState::Live(thread) => Some((thread.record, at)),
            ThreadState::Ended(_) => None,
        });
        live.collect()
    }

    /// Adds a raw sample to its thread, or keeps it for later.
    fn attribute(&mut self, shared: &Shared, places: &FxHashMap<ArenaRef, usize>, raw: &Raw<'_>, walked: &Walked) {
        if let Some(module) = walked.met_awaited
            && self.backlog.keep(raw)
        {
            return shared.modules.hurry(module);
        }
        self.enter(shared, places, raw, walked);
    }

    fn enter(&mut self, shared: &Shared, places: &FxHashMap<ArenaRef, usize>, raw: &Raw<'_>, walked: &Walked) {
        let thread = places.get(&raw.owner).and_then(|at| self.threads.get_mut(*at));
        if let Some(ThreadState::Live(thread)) = thread {
            raw.attribute(thread, walked, &shared.keeper.session().settings);
        }
    }

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
        self.code.written.look_again(&mut shared.publisher);
        self.code.publish_changes(shared, self.slot);
        self.find_threads(shared);
        let mut live = Vec::new();
        for index in 0..self.threads.len() {
            let ThreadState::Live(thread) = &self.threads[index] else { continue };
            let waits = self.backlog.has_any_of(thread.record);
            let over = ended_ns.is_some() || !waits && thread.has_ended(&shared.keeper, self.handle.pid());
            if over {
                // What it has put down since belongs to it as long as it is here.
                self.drain_raw(shared);
            }
            let profile = self.copy_out(index, shared, clockwork);
            if over {
                self.take_leave(index, profile, shared);
            } else {
                live.push((index, profile));
            }
        }
        // Places in `self.threads` change here.
        let live: Vec<ThreadProfile> = live.into_iter().map(|(_, profile)| profile).collect();
        self.put_together_ended();
        self.name_written_code(&live, ended_ns.is_some());
        self.written_names.write(directory, self.sequence)?;
        let bytes = self.encode(shared, live, ended_ns);
        if self.written.as_ref() != Some(&bytes) {
            write_file(directory, &process_file_name(self.sequence, self.handle.pid().0), &bytes)?;
            self.written = Some(bytes);
        }
        self.trace_loss.take().map_or(Ok(()), Err)
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
                && !self.backlog.has_any_of(thread.record)
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
        if thread.name.is_empty() {
            if let Some(record) = thread.record(&shared.keeper) {
                thread.tid = record.tid.load(Relaxed);
            }
            thread.name = self.handle.thread_name(thread.tid).unwrap_or_default();
        }
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
        let routine = thread.record(&shared.keeper).map_or(0, |r| r.start_routine.load(Relaxed));
        let start = (routine != 0).then(|| self.code.frame_at(RunAddr(routine)));
        let account = thread.account(&shared.keeper, clockwork.tick);
        ThreadProfile { tid: thread.tid, count: 1, name: thread.name.clone(), start, account, tree }
    }

    fn take_leave(&mut self, index: usize, profile: ThreadProfile, shared: &mut Shared) {
        if let ThreadState::Live(thread) = &self.threads[index] {
            // Out of the list first: its place is a new thread's as soon as its chunk has been given back.
            unlink(&shared.keeper, self.slot, thread.record);
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

    /// Ends the samples and gives the slot back.
    pub(crate) fn release(mut self, shared: &mut Shared) {
        drop(self.events);
        self.code.release(&mut shared.publisher);
        let slot: &ProcessSlot = shared.keeper.slot(self.slot);
        slot.state.store(SlotState::FREE, Release);
    }

    /// Its number.
    pub(crate) fn pid(&self) -> Pid {
        self.handle.pid()
    }
}

/// Takes a record out of its process's list. Threads push at the head at the same time; only the recorder takes out.
fn unlink(keeper: &ArenaKeeper, slot: usize, record: ArenaRef) {
    let Some(next) = keeper.arena().get::<ThreadRecord>(record).map(|r| r.next.load(Relaxed)) else { return };
    let head = &keeper.slot(slot).threads;
    if head.compare_exchange(record.0, next, AcqRel, Acquire).is_ok() {
        return;
    }
    let mut at = ArenaRef(head.load(Acquire));
    // A list that the program has damaged may run in circles.
    for _ in 0..keeper.arena().chunk_count() {
        match keeper.arena().get::<ThreadRecord>(at).filter(|_| keeper.is_backed(at.chunk())) {
            Some(before) if before.next.load(Relaxed) == record.0 => return before.next.store(next, Relaxed),
            Some(before) => at = ArenaRef(before.next.load(Relaxed)),
            None => return,
        }
    }
}

pub(crate) fn wake(word: &std::sync::atomic::AtomicU32) {
    // SAFETY: wakes; does not touch memory.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}
