//! One measured process: its load map, its threads, what it has measured so far.
//! Knows nothing of the other processes but through the modules that they share.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::{Duration, Instant, SystemTime};

use callpath_analyze::measurement::{
    MeasurementError, ModuleRecord, PARTIAL_ROOT, PathTree, ProcessFile, ThreadProfile, encode_process,
    process_file_name, trace_file_name, write_file,
};
use callpath_format::address::RunAddr;
use callpath_format::frame::{FrameKey, ModuleIndex};
use callpath_format::shared::load_map::{Mapping, Published};
use callpath_format::shared::{ArenaRef, MAX_METRICS, Pause, ProcessSlot, Settings, SlotState, Source, ThreadRecord};
use callpath_target::{ClockEvent, MapEntry, Maps, Pid, ProcessHandle};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::arena::ArenaKeeper;
use crate::counters::{Counted, Counters};
use crate::modules::{ModuleId, Modules};
use crate::publish::{MapPlaces, Publisher};
use crate::raw::{self, Code, Raw, Walked};
use crate::sentinel::Unmarkable;
use crate::thread::{Thread, TickLength};
use crate::trace::{self, TraceFile};
use crate::written::{Witness, WrittenCode};
use crate::written_names::WrittenNames;

/// Ended threads beyond this many are put together by where they began.
const THREADS_KEPT_APART: usize = 512;

/// Samples of code that the program writes come all the time: the memory map is not read anew for each.
const MAP_IS_OLD: Duration = Duration::from_millis(100);

/// What all processes share.
pub(crate) struct Shared {
    pub(crate) keeper: ArenaKeeper,
    pub(crate) publisher: Publisher,
    pub(crate) modules: Modules,
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
    /// All of them, by address, and those among them that lie in modules.
    mappings: Vec<Mapping>,
    module_mappings: Vec<Mapping>,
    written_code: WrittenCode,
    written_names: WrittenNames,
    map_read: Instant,
    places: MapPlaces,
    module_indices: FxHashMap<(ModuleId, u64), ModuleIndex>,
    modules: Vec<ModuleRecord>,
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
            written_code: WrittenCode::new(handle.pid()),
            written_names: WrittenNames::new(handle.pid(), SystemTime::now()),
            handle,
            started_ns,
            metric_count: shared.keeper.session().settings.metric_count,
            events: Vec::new(),
            counters: Counters::default(),
            mappings: Vec::new(),
            module_mappings: Vec::new(),
            map_read: Instant::now(),
            places: MapPlaces::default(),
            module_indices: FxHashMap::default(),
            modules: Vec::new(),
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
            Err(_) => self.map_read = Instant::now(),
        }
    }

    /// The same with the memory map as it was read just now.
    pub(crate) fn publish_maps(&mut self, shared: &mut Shared, maps: &Maps) {
        self.map_read = Instant::now();
        let executable: Vec<&MapEntry> = maps.entries.iter().filter(|e| e.executable).collect();
        if executable.is_empty() {
            return;
        }
        let beat = &shared.keeper.session().beat;
        shared.modules.read_all(self.handle.pid(), &executable, &mut shared.publisher, beat);
        self.module_mappings.clear();
        let mut others = Vec::new();
        let mut walks_itself = false;
        for entry in executable {
            let id = shared.modules.of_mapping(self.handle.pid(), entry, &mut shared.publisher);
            let mapping =
                |module, bias, table| Mapping { start: entry.start, end: entry.end, bias, table, module, flags: 0 };
            match id.filter(|id| shared.modules.get(*id).identity.is_some()) {
                Some(id) => {
                    let bias = shared.modules.get(id).bias(entry);
                    let module = self.index_of(&shared.modules, id, bias);
                    let return_use = shared.modules.get(id).return_use;
                    walks_itself |= return_use.walks;
                    let flags = if return_use.reads { Mapping::KEPT } else { 0 }
                        | if return_use.catches { Mapping::CATCHES } else { 0 };
                    let mapping = mapping(module, bias, shared.modules.get(id).table);
                    self.module_mappings.push(Mapping { flags, ..mapping });
                }
                // No file, or one that is no ELF file or cannot be read: what counts is what is in memory.
                None if entry.readable => others.push(entry),
                // The kernel's own page; nothing is known of it.
                None => self.module_mappings.push(mapping(ModuleIndex::NONE, 0, 0)),
            }
        }
        shared.keeper.slot(self.slot).walks_itself.store(u32::from(walks_itself), Relaxed);
        self.written_code.set_areas(&others, &mut self.modules, &mut shared.publisher);
        if self.written_code.is_there() {
            self.written_names.expect_map();
        }
        self.publish_map(shared);
    }

    fn publish_map(&mut self, shared: &mut Shared) {
        let mut mappings = self.written_code.mappings(&mut shared.publisher);
        mappings.extend(&self.module_mappings);
        mappings.sort_by_key(|m| m.start);
        if mappings == self.mappings {
            return;
        }
        if let Some(offset) = shared.publisher.publish_map(&mut self.places, &mappings) {
            shared.keeper.slot(self.slot).load_map.store(offset, Release);
        }
        self.mappings = mappings;
    }

    fn index_of(&mut self, modules: &Modules, id: ModuleId, bias: u64) -> ModuleIndex {
        if let Some(index) = self.module_indices.get(&(id, bias)) {
            return *index;
        }
        let index = ModuleIndex(u16::try_from(self.modules.len()).unwrap_or(u16::MAX));
        if index != ModuleIndex::NONE {
            let module = modules.get(id);
            self.modules.push(ModuleRecord { path: module.path.clone(), identity: module.identity.clone() });
            self.module_indices.insert((id, bias), index);
        }
        index
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

    fn drain_raw(&mut self, shared: &mut Shared) {
        let chunks = raw::take_list(&shared.keeper, shared.keeper.slot(self.slot));
        if chunks.is_empty() {
            return;
        }
        self.find_threads(shared);
        let by_record: FxHashMap<ArenaRef, usize> = self
            .threads
            .iter()
            .enumerate()
            .filter_map(|(i, t)| match t {
                ThreadState::Live(thread) => Some((thread.record, i)),
                ThreadState::Ended(_) => None,
            })
            .collect();
        self.written_code.begin_round();
        // Oldest first.
        let mut refreshed = false;
        for chunk in chunks.iter().rev() {
            let Some(raw) = Raw::in_chunk(&shared.keeper, *chunk) else { continue };
            let mut walked = self.walk_raw(&raw, shared.publisher.published());
            let is_old = self.map_read.elapsed() > MAP_IS_OLD;
            if !refreshed && (walked.met_unknown || is_old) {
                refreshed = true;
                // Its chunk is not given back before all have been looked at.
                self.refresh_map(shared);
                let Some(raw) = Raw::in_chunk(&shared.keeper, *chunk) else { continue };
                walked = self.walk_raw(&raw, shared.publisher.published());
            }
            let Some(raw) = Raw::in_chunk(&shared.keeper, *chunk) else { continue };
            let thread = by_record.get(&raw.owner).and_then(|i| self.threads.get_mut(*i));
            if let Some(ThreadState::Live(thread)) = thread {
                raw.attribute(thread, &walked, &shared.keeper.session().settings);
            }
        }
        if self.written_code.changed {
            self.publish_map(shared);
        }
        for chunk in &chunks {
            shared.keeper.give_back(*chunk);
        }
        shared.keeper.slot(self.slot).raw_pending.fetch_sub(chunks.len() as u32, AcqRel);
    }

    fn walk_raw(&mut self, raw: &Raw<'_>, published: Published<'_>) -> Walked {
        let (written, modules) = (&mut self.written_code, &mut self.modules);
        raw.walk(Code {
            mappings: &self.mappings,
            published,
            written,
            modules,
            witness: Witness::default(),
            after_written: false,
            met_unknown: false,
        })
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
        self.written_code.look_again(&mut shared.publisher);
        if self.written_code.changed {
            self.publish_map(shared);
        }
        self.find_threads(shared);
        let mut live = Vec::new();
        for index in 0..self.threads.len() {
            let ThreadState::Live(thread) = &self.threads[index] else { continue };
            let over = ended_ns.is_some() || thread.has_ended(&shared.keeper, self.handle.pid());
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
        if !self.written_code.is_there() {
            return;
        }
        let kept = self.threads.iter().filter_map(|t| match t {
            ThreadState::Ended(profile) => Some(&**profile),
            ThreadState::Live(_) => None,
        });
        let keys = kept.chain(live).flat_map(|thread| thread.tree.nodes().iter().skip(PARTIAL_ROOT as usize + 1));
        let keys: FxHashSet<FrameKey> =
            keys.map(|node| node.key).filter(|key| self.written_code.is_module(key.module())).collect();
        self.written_names.name(&keys, &self.written_code, ended);
    }

    /// Takes leave of threads that have ended, so that others can have their chunks.
    pub(crate) fn reap(&mut self, shared: &mut Shared, clockwork: Clockwork) {
        self.drain_raw(shared);
        self.find_threads(shared);
        for index in 0..self.threads.len() {
            let ThreadState::Live(thread) = &self.threads[index] else { continue };
            if thread.says_it_ended(&shared.keeper) && thread.has_ended(&shared.keeper, self.handle.pid()) {
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
        let start = thread.record(&shared.keeper).and_then(|r| start_of(r, &self.mappings));
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
            modules: self.modules.clone(),
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
        self.written_code.release(&mut shared.publisher);
        shared.publisher.give_maps_back(&mut self.places);
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

/// Where a thread began, as a frame.
fn start_of(record: &ThreadRecord, mappings: &[Mapping]) -> Option<FrameKey> {
    let routine = RunAddr(record.start_routine.load(Relaxed));
    if routine.0 == 0 {
        return None;
    }
    let index = mappings.partition_point(|m| m.end <= routine);
    Some(match mappings.get(index).filter(|m| m.start <= routine) {
        Some(m) => FrameKey::in_module(m.module, routine.to_link(m.bias)),
        None => FrameKey::outside(routine),
    })
}

pub(crate) fn wake(word: &std::sync::atomic::AtomicU32) {
    // SAFETY: wakes; does not touch memory.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}
