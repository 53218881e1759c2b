//! One measured process: its load map, its threads, what it has measured so far.
//! It must not look at other processes.

mod heights;
mod origin;
mod outside;
mod slots;
mod waiting;
mod writing;

use std::path::PathBuf;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::time::{Duration, Instant, SystemTime};

use callpath_format::address::RunAddr;
use callpath_format::frame::FrameKey;
use callpath_format::shared::load_map::Published;
use callpath_format::shared::refused::Calls;
use callpath_format::shared::{ArenaRef, Pause, ProcessSlot, Settings, SlotState, ThreadRecord};
use callpath_measurement::{ProcessLog, ThreadProfile};
use callpath_target::{Maps, Pid, ProcessHandle};
use rustc_hash::FxHashSet;

pub(crate) use heights::FirstStack;
pub(crate) use origin::Origin;
pub(crate) use outside::{Outside, Taken, Took, Worth};
pub(crate) use waiting::LOOK_AT_MOST;

use crate::arena::{ArenaAllocator, wake};
use crate::asks::{Allowance, Asker, Round};
use crate::backlog::Backlog;
use crate::code::ProcessCode;
use crate::counters::Counted;
use crate::exact::ContextCounts;
use crate::generated_names::GeneratedNames;
use crate::module::Awaited;
use crate::moved::{MovedCode, ProgramNumber};
use crate::plausible::{Impossible, Overwritten};
use crate::raw::{Reach, Standing};
use crate::sentinel::Unmarkable;
use crate::shared::Shared;
use crate::sources::Sources;
use crate::tail::Ran;
use crate::thread::{self, Thread};
use crate::worker_pool::Pace;

/// Samples of generated code are frequent: the memory map is not read again for each.
const MAP_IS_OLD: Duration = Duration::from_millis(100);

/// Whether a process that has just filled in its slot runs in an emulator (valgrind, qemu): what it takes for its first
/// thread's stack is not the one that the kernel has given the process. Signals would then find the emulator's code,
/// which does not expect them. A fork's child has begun on any stack.
pub(crate) fn is_emulated(allocator: &ArenaAllocator, slot: usize, maps: &Maps) -> bool {
    let at = allocator.slot(slot);
    let first = ArenaRef(at.threads.load(Acquire));
    let record = allocator.arena().get::<ThreadRecord>(first).filter(|_| allocator.is_backed(first.chunk()));
    // Where the kernel has put the program's name and environment.
    let top = record.map_or(0, |record| record.stack[1].load(Relaxed));
    let stack = maps.entries.iter().find(|entry| entry.path.as_os_str() == "[stack]");
    at.forked_from.load(Relaxed) == 0
        && top != 0
        && stack.is_some_and(|stack| !(stack.start.0..=stack.end.0).contains(&top))
}

/// How often a process's clock is compared with its event's, if it has fewer than [`THREADS_A_LOOK`] threads.
const LOOK_AT_CLOCKS_EVERY: Duration = Duration::from_millis(50);

/// The kernel adds up both over all threads: with so many more it is asked less often.
const THREADS_A_LOOK: usize = 256;

enum ThreadState {
    Live(Box<Thread>),
    Ended(Box<ThreadProfile>),
}

impl ThreadState {
    fn profile(&self) -> &ThreadProfile {
        match self {
            ThreadState::Live(thread) => &thread.profile,
            ThreadState::Ended(profile) => profile,
        }
    }

    fn profile_mut(&mut self) -> &mut ThreadProfile {
        match self {
            ThreadState::Live(thread) => &mut thread.profile,
            ThreadState::Ended(profile) => profile,
        }
    }
}

/// A process.
pub(crate) struct Process {
    pub(crate) slot: usize,
    stage: Stage,
    pub(crate) handle: ProcessHandle,
    pub(crate) sequence: u32,
    parent: u32,
    forked: bool,
    program: PathBuf,
    command: Vec<String>,
    started_ns: u64,
    metric_count: u32,
    /// `None`: it has not been let in yet.
    sources: Option<Sources>,
    ran: Ran,
    ran_looked: Option<Instant>,
    asker: Option<Asker>,
    code: ProcessCode,
    generated_names: GeneratedNames,
    /// Samples that wait for recipe tables.
    backlog: Backlog<Awaited>,
    /// Samples of generated code that may be analysed, but not yet.
    postponed: Backlog<()>,
    reach: Reach,
    threads: Vec<ThreadState>,
    records: FxHashSet<ArenaRef>,
    /// How often its file has been brought up to date.
    writings: usize,
    /// By metric, the sum over all samples at the last writing.
    sums: Vec<u64>,
    /// Frames in code that the process has generated.
    generated_keys: FxHashSet<FrameKey>,
    log: ProcessLog,
    /// The first of its numbers that is implausible.
    impossible: Option<Impossible>,
    /// There was no memory for a record of any of its threads.
    has_no_record: bool,
    /// Exits of probed procedures without an entry, of threads that have ended.
    unmatched_exits: u64,
    /// What was counted in contexts by threads that have ended.
    flows: ContextCounts,
    /// It is sampled from outside.
    outside: Option<Box<Outside>>,
}

/// Whether more comes of a process's program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Measured,
    /// It has executed another program, whose memory map says nothing of its samples.
    Succeeded,
    /// It goes on, and is not measured any more.
    Left,
}

impl Process {
    /// A process that has just filled in its slot.
    pub(crate) fn new(shared: &Shared, slot: usize, sequence: u32, started_ns: u64) -> Process {
        let at = shared.allocator.slot(slot);
        let handle = ProcessHandle::open(Pid(at.pid.load(Relaxed)));
        let mut code = ProcessCode::new(handle.pid());
        code.innermost_only = shared.allocator.settings().infers();
        Process {
            slot,
            stage: Stage::Measured,
            sequence,
            parent: handle.parent().map_or(0, |p| p.0),
            forked: at.forked_from.load(Relaxed) != 0,
            program: handle.program().unwrap_or_default(),
            command: handle.command_line(),
            code,
            backlog: Backlog::default(),
            postponed: Backlog::default(),
            reach: Reach::default(),
            generated_names: GeneratedNames::new(handle.pid(), SystemTime::now()),
            handle,
            started_ns,
            metric_count: shared.allocator.settings().metric_count,
            sources: None,
            ran: Ran::default(),
            ran_looked: None,
            asker: None,
            threads: Vec::new(),
            records: FxHashSet::default(),
            writings: 0,
            sums: vec![0; shared.publisher.metrics().len()],
            generated_keys: FxHashSet::default(),
            log: ProcessLog::default(),
            impossible: None,
            unmatched_exits: 0,
            has_no_record: false,
            flows: ContextCounts::default(),
            outside: None,
        }
    }

    /// Lets the process continue with its source of samples.
    pub(crate) fn admit(&mut self, shared: &Shared, sources: Sources) {
        let slot = shared.allocator.slot(self.slot);
        self.ran = Ran::begin(&self.handle, sources.cpu_clock(), slot.inherited_cpu_ns.load(Relaxed));
        self.asker = Asker::of(&self.handle, shared.allocator.settings(), sources.kind);
        slot.source.store(sources.kind as u32, Release);
        wake(&slot.source);
        self.sources = Some(sources);
    }

    fn set_running(&self, running: bool) {
        self.sources.iter().for_each(|sources| sources.set_running(running));
    }

    /// Writes what has been accounted for already to the slot that the process has taken after executing another
    /// program: the thread that continues keeps its CPU time and its usage.
    pub(crate) fn hand_on(&mut self, shared: &Shared, to: usize) {
        self.stage = Stage::Succeeded;
        self.ran.hand_on();
        // Its own have come to their end, however long it stays for tables: they would sample the next program.
        self.set_running(false);
        self.find_threads(shared);
        let pid = self.handle.pid().0;
        let (to, bases) = (shared.allocator.slot(to), shared.allocator.bases(to));
        let records = self.threads.iter().filter_map(|t| match t {
            ThreadState::Live(thread) => Some((thread.record(&shared.allocator)?, thread.columns(&shared.allocator)?)),
            ThreadState::Ended(_) => None,
        });
        for (record, columns) in records.filter(|(record, _)| record.tid.load(Relaxed) == pid) {
            let cpu_ns = record.clocks[0].load(Relaxed).wrapping_add(record.clocks[2].load(Relaxed));
            to.inherited_cpu_ns.fetch_max(cpu_ns, Relaxed);
            for ((base, column), metric) in bases.iter().zip(columns).zip(shared.publisher.metrics()) {
                if Settings::is_of_usage(metric.meter) {
                    base.fetch_max(column.count.load(Relaxed), Relaxed);
                }
            }
        }
    }

    /// It has executed a program that does not load our object. How much it has accounted for of the CPU time of the thread that
    /// goes on, nanoseconds.
    pub(crate) fn leave_for_outside(&mut self, shared: &Shared) -> u64 {
        if self.is_from_outside() {
            self.forget_clock();
            return self.sampled_ns(shared);
        }
        self.stage = Stage::Succeeded;
        self.ran.hand_on();
        self.set_running(false);
        self.find_threads(shared);
        let pid = self.handle.pid().0;
        let records = self.threads.iter().filter_map(|state| match state {
            ThreadState::Live(thread) => thread.record(&shared.allocator),
            ThreadState::Ended(_) => None,
        });
        // The thread that has executed it goes on under the first one's number, whichever it was: by its clock.
        let now_ns = self.handle.thread_cpu_ns(pid).unwrap_or(u64::MAX);
        let cpu_ns = records.map(|record| record.clocks[0].load(Relaxed).wrapping_add(record.clocks[2].load(Relaxed)));
        cpu_ns.filter(|cpu_ns| *cpu_ns <= now_ns).max().unwrap_or(0)
    }

    /// Asks threads that wait for a sample.
    pub(crate) fn ask(&mut self, shared: &Shared, now_ticks: u64, allowance: &mut Allowance) {
        let Some(asker) = self.asker.take() else { return };
        self.find_threads(shared);
        let (head, slot) = (shared.allocator.head(), shared.allocator.slot(self.slot));
        let mut round = Round { handle: &self.handle, head, slot, now_ticks, allowance };
        for state in &mut self.threads {
            let ThreadState::Live(thread) = state else { continue };
            if let Some(record) = thread.record(&shared.allocator) {
                asker.ask(&mut round, thread, record);
            }
        }
        self.asker = Some(asker);
    }

    /// The results of its counted events: by the kernel, and in samples.
    pub(crate) fn counted(&self) -> impl Iterator<Item = Counted> {
        let outcomes = self.sources.iter().flat_map(|sources| sources.counters.outcomes());
        outcomes.map(|outcome| Counted { in_samples: self.sums[outcome.metric], outcome })
    }

    /// Adds its return addresses that could not be marked.
    pub(crate) fn enter_marks(&self, shared: &Shared, unmarkable: &mut Unmarkable) {
        unmarkable.add(shared.allocator.settings(), shared.allocator.slot(self.slot));
    }

    /// The last part of its program's path.
    pub(crate) fn program_name(&self) -> String {
        self.program.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Its name, and the system calls that are refused to it.
    pub(crate) fn refused_calls(&self, shared: &Shared) -> (String, Calls) {
        (self.program_name(), Calls(shared.allocator.slot(self.slot).refused_calls.load(Relaxed)))
    }

    /// Whether its numbers are implausible; if so, adds it.
    pub(crate) fn enter_overwritten(&self, overwritten: &mut Overwritten) -> bool {
        let Some(what) = self.impossible else { return false };
        overwritten.add(&self.program_name(), self.handle.pid().0, what);
        true
    }

    /// Whether there was no memory for any sample of it; known once it has ended.
    pub(crate) fn has_no_record(&self) -> bool {
        self.has_no_record
    }

    /// Whether it has begun as a fork of another one.
    pub(crate) fn is_fork(&self) -> bool {
        self.forked
    }

    /// The program that it runs, if code was put into it that is that program's alone.
    pub(crate) fn own_program(&self) -> Option<ProgramNumber> {
        self.code.program
    }

    /// How many threads it has had.
    pub(crate) fn threads_ever(&self) -> u64 {
        let count = |t: &ThreadState| match t {
            ThreadState::Live(_) => 1,
            ThreadState::Ended(profile) => profile.count,
        };
        self.threads.iter().map(count).sum()
    }

    /// Serves the process's requests since the last time.
    pub(crate) fn serve(&mut self, shared: &mut Shared) {
        let bases = shared.allocator.bases(self.slot);
        self.sources.iter_mut().for_each(|sources| sources.counters.look(bases));
        let look_every = LOOK_AT_CLOCKS_EVERY * (1 + self.records.len() / THREADS_A_LOOK) as u32;
        if self.outside.is_none() && self.ran_looked.is_none_or(|at| at.elapsed() >= look_every) {
            self.ran_looked = Some(Instant::now());
            self.ran.look(&self.handle, self.sources.as_ref().and_then(Sources::cpu_clock));
        }
        self.receive_tables(shared, LOOK_AT_MOST);
        let slot = shared.allocator.slot(self.slot);
        let wanted = slot.map_wanted.load(Acquire);
        // Samples from outside have spent of the budget for generated code, and leave no raw samples.
        self.code.generated.begin_round();
        if slot.raw.load(Acquire) != 0 || !self.postponed.is_empty() {
            self.drain_raw(shared);
        }
        let slot = shared.allocator.slot(self.slot);
        if slot.map_served.load(Relaxed) != wanted {
            self.refresh_map(shared);
            self.hurry_for_calls(shared);
            let slot = shared.allocator.slot(self.slot);
            slot.map_served.store(wanted, Release);
            wake(&slot.map_served);
        }
        self.reuse_regions(shared);
        let slot = shared.allocator.slot(self.slot);
        match slot.pause.load(Acquire) {
            Pause::WANTED => {
                self.set_running(false);
                slot.pause.store(Pause::PAUSED, Release);
                wake(&slot.pause);
            }
            Pause::OVER => {
                self.set_running(true);
                slot.pause.store(Pause::RUNNING, Release);
            }
            _ => {}
        }
    }

    /// Begins to build the table of the code that the last walk of a call has lacked, if there is one.
    fn hurry_for_calls(&self, shared: &mut Shared) {
        let lacks = RunAddr(shared.allocator.slot(self.slot).map_lacks.swap(0, Relaxed));
        if let Some(awaited) = self.code.awaited_at(lacks) {
            shared.modules.hurry(awaited);
            shared.allocator.slot(self.slot).map_awaits.store(1, Release);
        }
    }

    /// Gives back published regions that no sample can be reading any more.
    fn reuse_regions(&mut self, shared: &mut Shared) {
        let Some(now) = self.code.generation().filter(|_| self.code.has_retired()) else { return };
        // A thread is in the list before its first sample.
        self.find_threads(shared);
        let records = self.threads.iter().filter_map(|state| match state {
            ThreadState::Live(thread) => thread.record(&shared.allocator),
            ThreadState::Ended(_) => None,
        });
        // A thread in a sample may not have recorded its map yet: then the recorded one is older.
        let generations = records.filter(|record| record.busy.load(SeqCst) != 0);
        let generations = generations.map(|record| record.cache_generation.load(Acquire));
        let oldest = generations.max_by_key(|generation| now.wrapping_sub(*generation));
        self.code.reuse(&mut shared.publisher, oldest);
    }

    /// Publishes what is known of code that is about to be put in. `false` as of [`ProcessCode::prepare`].
    pub(crate) fn prepare(&self, shared: &mut Shared, moved: &mut MovedCode) -> bool {
        self.code.prepare(shared, moved)
    }

    /// The frames of a thread of it that stands still, the innermost first.
    pub(crate) fn frames_of(&mut self, standing: &Standing, published: Published<'_>) -> Vec<FrameKey> {
        self.code.walk(&standing.as_raw(), published).into_keys()
    }

    /// An address as a frame.
    pub(crate) fn frame_at(&self, at: RunAddr) -> FrameKey {
        self.code.frame_at(at)
    }

    /// Exits of probed procedures that belong to no activation that is known.
    pub(crate) fn unmatched_exits(&self, shared: &Shared) -> u64 {
        let live = self.threads.iter().filter_map(|state| match state {
            ThreadState::Live(thread) => thread.record(&shared.allocator),
            ThreadState::Ended(_) => None,
        });
        let live = live.map(|record| record.unmatched_exits.load(Relaxed));
        live.fold(self.unmatched_exits, u64::saturating_add)
    }

    /// Whether it has said that it executes a program which does not load our object.
    pub(crate) fn leaves_us(&self, shared: &Shared) -> bool {
        shared.allocator.slot(self.slot).pause.load(Acquire) == Pause::PAUSED
    }

    /// Whether the process has ended.
    pub(crate) fn has_ended(&self) -> bool {
        match &self.outside {
            Some(outside) => outside.is_over,
            None => !self.handle.lives(),
        }
    }

    /// What samples still wait for is decided with what is known when they are looked at next.
    pub(crate) fn leave(&mut self) {
        if self.stage == Stage::Measured {
            self.stage = Stage::Left;
        }
    }

    /// Publishes the load map as the process's memory map is now, with the tables of all its modules.
    pub(crate) fn refresh_map(&mut self, shared: &mut Shared) {
        if self.outside.is_some() {
            return self.refresh_from_outside(shared);
        }
        // A process that has ended, or is about to, has no map; one that has executed another program has that one's. What it
        // had is still right for its raw samples.
        match Maps::read(self.handle.pid()) {
            Ok(maps) if self.stage != Stage::Succeeded && self.code.may_have(&maps) => self.publish_maps(shared, &maps),
            _ => self.code.map_read = Instant::now(),
        }
    }

    /// The same with the memory map as it was read just now.
    pub(crate) fn publish_maps(&mut self, shared: &mut Shared, maps: &Maps) {
        if !self.backlog.is_empty() && self.code.is_missing_in(maps) {
            // Samples may wait for a module that goes away.
            while self.awaits_tables_soon(shared) {
                shared.modules.receive_one(&mut shared.publisher);
                self.receive_tables(shared, Duration::MAX);
            }
            self.stop_waiting(shared);
        }
        self.code.publish(shared, self.slot, maps);
        if self.code.generated.is_there() {
            self.generated_names.expect_map();
        }
        if let Some(dump) = &self.code.jit_dump {
            self.generated_names.expect_dump(dump);
        }
    }

    /// Whether a sample would end its program; asked once its memory map is known.
    pub(crate) fn is_go_without_c(&self, shared: &Shared) -> bool {
        self.code.is_go_without_c(&shared.modules)
    }

    /// Whether it starts programs past the C library; asked once its memory map is known.
    pub(crate) fn executes_unseen(&self, shared: &Shared) -> bool {
        self.code.executes_unseen(&shared.modules)
    }

    /// Whether the recipe tables of all its modules are there.
    pub(crate) fn has_all_tables(&self, shared: &Shared) -> bool {
        self.code.has_all_tables(&shared.modules)
    }

    /// How many samples of it have been taken.
    pub(crate) fn samples_taken(&self, shared: &Shared) -> u64 {
        let taken = self.threads.iter().map(|state| match state {
            ThreadState::Live(thread) => thread.samples_taken(&shared.allocator),
            ThreadState::Ended(profile) => profile.tally.taken,
        });
        taken.fold(0, u64::saturating_add)
    }

    /// Begins to build all tables of its modules, however large they are.
    pub(crate) fn want_whole_tables(&self, shared: &mut Shared) {
        self.code.modules().for_each(|id| shared.modules.want_whole(id, Pace::Now));
    }

    /// Whether some of them are being built.
    pub(crate) fn awaits_whole_tables(&self, shared: &Shared) -> bool {
        self.code.modules().any(|id| shared.modules.is_whole_being_built(id))
    }

    fn find_threads(&mut self, shared: &Shared) {
        let fresh = thread::records(&shared.allocator, shared.allocator.slot(self.slot), &mut self.records);
        // Newest first in the list, oldest first here.
        self.threads.extend(fresh.into_iter().rev().map(|at| ThreadState::Live(Box::new(Thread::new(at)))));
    }

    /// Ends the samples and gives the slot back.
    pub(crate) fn release(mut self, shared: &mut Shared) {
        drop(self.sources);
        self.code.release(&mut shared.publisher);
        let slot: &ProcessSlot = shared.allocator.slot(self.slot);
        slot.state.store(SlotState::FREE, Release);
    }

    /// Its number.
    pub(crate) fn pid(&self) -> Pid {
        self.handle.pid()
    }
}
