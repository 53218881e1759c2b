//! A process that is sampled from outside: its threads by number, and its memory map as the kernel's records tell it. By now
//! the process may be running another program.

mod clock;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use callpath_format::frame::{FrameKey, Gap};
use callpath_format::register::Reg;
use callpath_format::shared::{ArenaRef, Settings};
use callpath_measurement::FULL_ROOT;
use callpath_target::{DeepCopy, MapEntry, Maps, Pid, StackCopy, StackSamples, read_memory};
use rustc_hash::{FxHashMap, FxHashSet};

use super::heights::{Bases, Looked};
use super::origin::Origin;
use super::slots::take_slot;
use super::{MAP_IS_OLD, Process, ThreadState};
use crate::raw::{Copied, Raw, Walked};
use crate::shared::Shared;
use crate::thread::Thread;
use crate::time_base::monotonic_ns;

/// So many samples may come before a program runs its own code: it is being executed. Of a program of another word length, no sample
/// ever shows any.
const BEFORE_IT_RUNS: u64 = 16;

/// What is known of such a process beside what every process has.
#[derive(Default)]
pub(crate) struct Outside {
    /// Where threads are in the process's list, by number, if they still are.
    places: FxHashMap<u32, usize>,
    /// How many threads it has had.
    threads: u32,
    /// Its memory map, as it was when it was seen first, and by what the kernel has recorded since.
    maps: Arc<Maps>,
    /// It has changed since it was published.
    has_changed: bool,
    /// Nothing of it comes any more.
    pub(crate) is_over: bool,
    /// It goes on, and nothing of it is read any more.
    is_ending: bool,
    is_forked: bool,
    /// It has executed a program.
    is_new: bool,
    /// One of its samples was in code that it has mapped. Before that, registers may still be those of the program before.
    has_run: bool,
    /// Its program's name is as good as it gets.
    is_named: bool,
    /// What its samples of earlier programs come to, nanoseconds of CPU time.
    before_ns: u64,
    /// What its samples are worth, by metric.
    values: Vec<u64>,
    /// The metric of waits, if they are seen.
    wall: Option<usize>,
    /// Samples of it were lost.
    has_lost: bool,
    /// All processes are sampled: a processor's periods go on from one to the next, so that it has its share, however short its threads are.
    is_of_all: bool,
    /// Its clock does not tell what its samples should come to.
    is_without_clock: bool,
    /// Its CPU time when its samples began, at the last look but one, and at the last, nanoseconds.
    cpu_ns: Option<[u64; 3]>,
    /// This user may not sample the kernel.
    pub(crate) is_user_only: bool,
    /// It has gained privileges, and this user may not sample it any more.
    is_out_of_reach: bool,
    /// Records of it may have been lost.
    is_doubted: bool,
    /// Since when its memory map is known, by the monotonic clock.
    known_from_ns: u64,
    /// The control group that it was in when it was seen first, if that is known.
    control_group: Arc<str>,
    /// From where heights on its stacks count.
    bases: Bases,
    /// Where copies of its stacks have ended early.
    holes: FxHashSet<u64>,
}

impl Outside {
    /// A copy of a stack has ended here. That is the stack's end, or a page that is not in memory: one within a large frame that nobody has used
    /// yet. Looking at such pages brings them in, and later copies go on beyond.
    fn fill_hole(&mut self, pid: Pid, at: u64, missing_bytes: usize) {
        const MOST: usize = 1 << 12;
        if self.holes.len() < MOST && self.holes.insert(at) {
            read_memory(pid, at, &mut vec![0; missing_bytes.min(StackSamples::MOST_BYTES as usize)]);
        }
    }

    /// What a sample is worth, by metric.
    fn values_of(&self, worth: Worth) -> Vec<u64> {
        match worth {
            Worth::Period => self.values.clone(),
            Worth::Wait(ns) => {
                let mut values = vec![0; self.values.len()];
                self.wall.and_then(|wall| values.get_mut(wall)).into_iter().for_each(|value| *value = ns);
                values
            }
        }
    }
}

/// What a sample is worth.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Worth {
    /// A period, in which the thread has run.
    Period,
    /// Nanoseconds that it has waited.
    Wait(u64),
}

/// A sample that the kernel has taken of a thread.
pub(crate) struct Taken<'r> {
    pub(crate) tid: u32,
    pub(crate) worth: Worth,
    /// When, or when the wait began, by the monotonic clock.
    pub(crate) time_ns: u64,
    /// `None`: it has none in user mode, or those of another word length.
    pub(crate) registers: Option<[u64; 17]>,
    pub(crate) stack: StackCopy<'r>,
    /// What was copied beyond that.
    pub(crate) beyond: &'r DeepCopy,
    /// How long a copy was asked for, bytes.
    pub(crate) asked_bytes: usize,
    /// If it hit in the kernel: where, then the return addresses there ([`callpath_target::What::Sample`]).
    pub(crate) kernel: &'r [u64],
}

/// What a sample's walk needed of the copy of its stack.
pub(crate) struct Took {
    /// Bytes. `None`: it was too short.
    pub(crate) needed: Option<usize>,
    /// It has reached the outermost frame.
    pub(crate) is_whole: bool,
    /// It ended where the record does, although that was to be longer: there the stack ends, or a page is not in memory.
    pub(crate) is_cut: bool,
    /// It goes on once a table exists.
    pub(crate) is_awaited: bool,
}

impl Process {
    /// A process that is sampled from outside. It has no slot of its own, and is given one. `None`: all are taken.
    pub(crate) fn from_outside(
        shared: &mut Shared,
        pid: Pid,
        (sequence, started_ns): (u32, u64),
        (origin, is_user_only): (Origin, bool),
    ) -> Option<Process> {
        let slot = take_slot(&shared.allocator, pid)?;
        let period_ns = shared.allocator.settings().period_ns;
        let worth = |meter: u32| match meter {
            Settings::CPU_TIME | Settings::WALL_TIME => period_ns,
            _ => 0,
        };
        let values = shared.publisher.metrics().iter().map(|metric| worth(metric.meter)).collect();
        let wall = shared.publisher.metrics().iter().position(|metric| metric.meter == Settings::WALL_TIME);
        let mut process = Process::new(shared, slot, sequence, started_ns);
        process.code.is_from_outside = true;
        let Origin { maps, program, command, is_forked, control_group, is_new, before_ns, known_from_ns, first_stack } =
            origin;
        // What /proc says may be of another program by now.
        (process.program, process.command) = (program, command);
        process.outside = Some(Box::new(Outside {
            maps,
            values,
            wall,
            is_user_only,
            is_forked,
            control_group,
            is_new,
            before_ns,
            known_from_ns,
            bases: Bases::with_first(first_stack),
            has_changed: true,
            ..Outside::default()
        }));
        process.publish_known_maps(shared);
        Some(process)
    }

    /// The control group that it was in, if it is sampled from outside and that is known.
    pub(super) fn outside_group(&self) -> String {
        self.outside.as_ref().map_or(String::new(), |outside| outside.control_group.to_string())
    }

    /// Whether it is sampled from outside.
    pub(crate) fn is_from_outside(&self) -> bool {
        self.outside.is_some()
    }

    /// It has executed a program, and mapped nothing since.
    pub(crate) fn has_just_executed(&self) -> bool {
        self.outside.as_ref().is_some_and(|outside| outside.is_new && outside.maps.entries.is_empty())
    }

    /// It is executing its program, of which no code has run yet.
    pub(crate) fn is_beginning(&self, shared: &Shared) -> bool {
        let has_not_run = self.outside.as_ref().is_some_and(|outside| outside.is_new && !outside.has_run);
        has_not_run && self.samples_taken(shared) <= BEFORE_IT_RUNS
    }

    /// It has gained privileges, and this user may not sample it any more.
    pub(crate) fn is_out_of_reach(&mut self) {
        self.outside.iter_mut().for_each(|outside| outside.is_out_of_reach = true);
    }

    /// What a process begins with that it forks.
    pub(crate) fn origin_of_fork(&self) -> Option<Origin> {
        let outside = self.outside.as_ref()?;
        let (maps, program, command) = (outside.maps.clone(), self.program.clone(), self.command.clone());
        let (first_stack, control_group) = (outside.bases.first().cloned(), outside.control_group.clone());
        Some(Origin { maps, program, command, first_stack, control_group, is_forked: true, ..Origin::default() })
    }

    /// What its samples come to, those of earlier programs included, nanoseconds of CPU time.
    pub(crate) fn sampled_ns(&self, shared: &Shared) -> u64 {
        let Some(outside) = &self.outside else { return 0 };
        let cpu = shared.publisher.metrics().iter().position(|metric| metric.meter == Settings::CPU_TIME);
        let totals = self.threads.iter().map(|thread| cpu.map_or(0, |cpu| thread.profile().tree.total(cpu)));
        totals.fold(outside.before_ns, u64::saturating_add)
    }

    /// Its new program has loaded our object, and is measured from inside from its `exec` on. Releases the slot and returns the
    /// process's number if nothing of it has been written; `Err`: something has.
    pub(crate) fn give_up(self, shared: &mut Shared, to_slot: usize) -> Result<u32, Box<Process>> {
        let Some(outside) = self.outside.as_ref().filter(|outside| outside.is_new && !self.log.is_begun()) else {
            return Err(Box::new(self));
        };
        shared.allocator.slot(to_slot).inherited_cpu_ns.fetch_max(outside.before_ns, Relaxed);
        let sequence = self.sequence;
        self.release(shared);
        Ok(sequence)
    }

    /// Records of it may have been lost: what it has mapped is not known any more.
    pub(crate) fn doubt(&mut self) {
        self.outside.iter_mut().for_each(|outside| outside.is_doubted = true);
    }

    /// Whether it runs another program than it did when records of it were lost. If not, and it still runs, its memory map is known anew
    /// from now on.
    pub(crate) fn is_other_program(&mut self, shared: &mut Shared) -> bool {
        let Some(outside) = self.outside.as_mut().filter(|outside| outside.is_doubted) else { return false };
        let is_of_file = |entry: &&MapEntry| entry.executable && entry.file.is_some();
        let first = outside.maps.entries.iter().find(is_of_file);
        let now = Maps::read(self.handle.pid()).unwrap_or_default();
        if now.entries.is_empty() {
            // It has ended: what it had mapped at the end is not known.
            outside.known_from_ns = u64::MAX;
            return false;
        }
        let is_same = first.is_some_and(|first| {
            now.entries.iter().any(|entry| (entry.start, entry.file) == (first.start, first.file))
                && self.handle.runs_file().is_none_or(|inode| first.file.is_some_and(|file| file.inode == inode))
        });
        if is_same {
            outside.maps = Arc::new(now);
            (outside.is_doubted, outside.has_changed) = (false, true);
            outside.known_from_ns = monotonic_ns();
            self.publish_known_maps(shared);
        }
        !is_same
    }

    /// What it has mapped, as it is now, before any of its samples was looked at.
    pub(crate) fn begin_with(&mut self, shared: &mut Shared, origin: Origin) {
        if let Some(outside) = &mut self.outside {
            (outside.maps, outside.has_changed) = (origin.maps, true);
            (self.program, self.command) = (origin.program, origin.command);
        }
        self.publish_known_maps(shared);
    }

    /// Reads the words that its program was executed with, if it still runs that.
    fn name_program(&mut self) {
        let Some(outside) = self.outside.as_mut().filter(|outside| outside.is_new && !outside.is_named) else { return };
        outside.is_named = true;
        if self.handle.executable().is_some_and(|running| running == self.program) {
            let command = self.handle.command_line();
            if !command.is_empty() {
                self.command = command;
                self.program = self.handle.program().unwrap_or_else(|| self.program.clone());
            }
        }
    }

    /// It goes on, and nothing of it is read any more.
    pub(crate) fn is_ending(&mut self) {
        self.outside.iter_mut().for_each(|outside| outside.is_ending = true);
    }

    /// Nothing of it comes any more.
    pub(crate) fn is_over(&mut self) {
        self.outside.iter_mut().for_each(|outside| outside.is_over = true);
    }

    /// Enters what it has mapped.
    pub(crate) fn has_mapped(&mut self, entry: MapEntry) {
        if self.program.as_os_str().is_empty() && entry.executable && entry.path.is_absolute() {
            self.program.clone_from(&entry.path);
        }
        if let Some(outside) = &mut self.outside {
            Arc::make_mut(&mut outside.maps).map(entry);
            outside.has_changed = true;
        }
    }

    fn publish_known_maps(&mut self, shared: &mut Shared) {
        let Some(outside) = self.outside.as_mut().filter(|outside| outside.has_changed) else { return };
        outside.has_changed = false;
        let maps = outside.maps.clone();
        self.publish_maps(shared, &maps);
    }

    /// Publishes its memory map: as it is now, if it still runs the same program, else as it was recorded.
    pub(super) fn refresh_from_outside(&mut self, shared: &mut Shared) {
        let Some(outside) = &mut self.outside else { return };
        let is_of_file = |entry: &&MapEntry| entry.executable && entry.file.is_some();
        let first = outside.maps.entries.iter().find(is_of_file).cloned();
        let now = Maps::read(self.handle.pid()).unwrap_or_default();
        // The number may be that of another program by now, or of another process.
        let is_same = first.is_some_and(|first| {
            now.entries.iter().any(|entry| (entry.start, entry.file) == (first.start, first.file))
        });
        if is_same {
            // What is known of an address is of when its samples were taken: it may be of something else now.
            outside.has_changed |= Arc::make_mut(&mut outside.maps).add_missing(now);
        }
        self.code.map_read = std::time::Instant::now();
        self.publish_known_maps(shared);
    }

    /// Adds a sample: walks the copy of the stack, now or once the tables that it needs exist. Returns what it needed of the
    /// copy. `None`: it was not walked.
    pub(crate) fn take(&mut self, shared: &mut Shared, taken: &Taken<'_>) -> Option<Took> {
        // Code that a thread waits in stays where it is.
        let stood_until_ns = match taken.worth {
            Worth::Wait(ns) => taken.time_ns.saturating_add(ns),
            Worth::Period => taken.time_ns,
        };
        if self.outside.as_ref().is_some_and(|outside| stood_until_ns < outside.known_from_ns) {
            // Of code that may have been something else then, it has no path.
            self.has_lost(shared, 1, (Some(taken.tid), Some(taken.worth)));
            return None;
        }
        self.name_program();
        let base = taken.registers.map_or(0, |registers| self.base_of(shared, (taken.tid, registers)));
        let kernel = shared.kernel.as_ref().map_or(Vec::new(), |kernel| self.code.frames_of(kernel, taken.kernel));
        let index = self.thread_of(taken.tid);
        let (Some(outside), Some(ThreadState::Live(thread))) = (&mut self.outside, self.threads.get_mut(index)) else {
            return None;
        };
        let worth = outside.values_of(taken.worth);
        let values: Vec<AtomicU64> = worth.iter().copied().map(AtomicU64::new).collect();
        let record = thread.record;
        thread.outside.iter_mut().for_each(|outside| outside.taken += 1);
        let Some(registers) = taken.registers.filter(|_| !outside.maps.entries.is_empty()) else {
            // It has not begun to run its program, or is the kernel's own.
            let gap = if outside.is_new { Gap::Start } else { Gap::InKernel };
            let tree = &mut thread.profile.tree;
            let node = match gap == Gap::InKernel && !kernel.is_empty() {
                true => kernel.iter().rev().fold(FULL_ROOT, |node, key| tree.child(node, *key)),
                false => tree.child(FULL_ROOT, FrameKey::gap(gap)),
            };
            tree.add(node, 1, &worth);
            thread.raw_full += 1;
            return None;
        };
        let copied_bytes = taken.stack.len_bytes();
        let is_whole = copied_bytes < taken.asked_bytes;
        if is_whole {
            outside.fill_hole(
                self.handle.pid(),
                registers[Reg::RSP.index()].wrapping_add(copied_bytes as u64),
                taken.asked_bytes - copied_bytes,
            );
        }
        let copied =
            Copied::new(registers, taken.stack, (is_whole, base)).with_kernel(kernel).with_more(&taken.beyond.pages);
        let raw = copied.as_raw(&values, record);
        if outside.has_changed {
            self.publish_known_maps(shared);
        }
        let mut walked = self.walk_on(&raw, shared, index);
        if walked.met_unknown && self.code.map_read.elapsed() > MAP_IS_OLD {
            self.refresh_from_outside(shared);
            walked = self.walk_on(&raw, shared, index);
        }
        let (Some(outside), Some(ThreadState::Live(thread))) = (&mut self.outside, self.threads.get_mut(index)) else {
            return None;
        };
        if outside.is_new && !outside.has_run && walked.met_unknown && walked.len() <= 1 {
            let node = thread.profile.tree.child(FULL_ROOT, FrameKey::gap(Gap::Start));
            thread.profile.tree.add(node, 1, &worth);
            thread.raw_full += 1;
            return None;
        }
        outside.has_run = true;
        thread.outside.iter_mut().for_each(|outside| outside.frames += walked.len() as u64);
        let live = self.only(record, index, shared.allocator.settings());
        let wanted = self.attribute(&live, &raw, &walked);
        wanted.into_iter().for_each(|awaited| shared.modules.hurry(awaited));
        Some(Took {
            needed: (!walked.ran_out).then_some(walked.read_bytes),
            is_whole: walked.full,
            is_awaited: walked.met_awaited.is_some(),
            is_cut: is_whole && walked.met_end,
        })
    }

    /// Walks a sample of the thread at `index` in the list.
    fn walk_on(&mut self, raw: &Raw<'_>, shared: &Shared, index: usize) -> Walked {
        let published = shared.publisher.published();
        let outside = match self.threads.get_mut(index) {
            Some(ThreadState::Live(thread)) => thread.outside.as_mut(),
            _ => None,
        };
        match outside {
            Some(outside) => self.code.walk_on(raw, published, &mut outside.earlier),
            None => self.code.walk(raw, published),
        }
    }

    /// From where heights of a sample count; 0: that is not known, or no heights are kept.
    fn base_of(&mut self, shared: &mut Shared, (tid, registers): (u32, [u64; 17])) -> u64 {
        if !shared.allocator.settings().keeps_heights() {
            return 0;
        }
        self.publish_known_maps(shared);
        let Some(outside) = &mut self.outside else { return 0 };
        let Outside { bases, maps, .. } = &mut **outside;
        let first = maps.entries.iter().find(|entry| entry.executable && entry.file.is_some());
        let looked = Looked { handle: &self.handle, code: &mut self.code, first };
        let base = bases.of_sample(looked, shared.publisher.published(), (tid, registers));
        if let Some(start) = bases.start_of(tid) {
            let (index, start) = (self.thread_of(tid), self.code.frame_at(start));
            if let Some(ThreadState::Live(thread)) = self.threads.get_mut(index) {
                thread.profile.start = Some(start);
            }
        }
        base
    }

    /// A thread has this name now.
    pub(crate) fn has_named(&mut self, tid: u32, name: String) {
        if self.command.is_empty() {
            self.command.push(name.clone());
        }
        let index = self.thread_of(tid);
        if let Some(ThreadState::Live(thread)) = self.threads.get_mut(index) {
            thread.profile.name = name;
        }
    }

    /// A thread has ended.
    pub(crate) fn has_ended_thread(&mut self, tid: u32) {
        let Some(index) = self.outside.as_ref().and_then(|outside| outside.places.get(&tid).copied()) else { return };
        self.outside.iter_mut().for_each(|outside| outside.bases.forget(tid));
        if let Some(ThreadState::Live(thread)) = self.threads.get_mut(index).filter(|state| is_of(state, tid)) {
            thread.outside.iter_mut().for_each(|outside| outside.has_ended = true);
        }
    }

    /// Where a thread is in the list, from now on if it was not.
    fn thread_of(&mut self, tid: u32) -> usize {
        let Some(outside) = &mut self.outside else { return usize::MAX };
        let known = outside.places.get(&tid).copied();
        if let Some(index) = known.filter(|index| self.threads.get(*index).is_some_and(|state| is_of(state, tid))) {
            return index;
        }
        let index = self.threads.iter().position(|state| is_of(state, tid)).unwrap_or_else(|| {
            let name = self.handle.thread_name(tid).unwrap_or_default();
            outside.threads += 1;
            // No record is that far in the arena.
            let key = ArenaRef(u32::MAX - outside.threads);
            self.threads.push(ThreadState::Live(Box::new(Thread::from_outside(key, tid, name))));
            self.threads.len() - 1
        });
        outside.places.insert(tid, index);
        index
    }
}

/// Whether it is a thread of this number that goes on.
fn is_of(state: &ThreadState, tid: u32) -> bool {
    match state {
        ThreadState::Live(thread) => {
            thread.profile.tid == tid && thread.outside.as_ref().is_some_and(|outside| !outside.has_ended)
        }
        ThreadState::Ended(_) => false,
    }
}
