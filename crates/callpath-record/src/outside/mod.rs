//! Processes that are sampled from outside: the kernel writes registers and a copy of the stack into rings, which are read here,
//! in order of time, and walked by the same walk as raw samples. Nothing in the processes changes.

mod attached;
mod launched;
mod poller;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use callpath_target::{Pid, Record, Ring, RingRecord, StackSampler, StackSamples, What};
use rustc_hash::FxHashMap;

use crate::process::{Origin, Process, Taken};
use crate::program::Doorbell;
use crate::serve::Recorder;
pub use attached::{AttachOptions, attach};
pub(crate) use launched::record_from_outside;
use poller::Poller;

/// The lengths of copies of stacks, from the shortest, bytes: most stacks are shallow, and what is copied costs time.
const COPIES_BYTES: [u32; 5] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, StackSamples::MOST_BYTES];

/// After so many samples copies are made as short as these allow.
const ENOUGH: u32 = 500;

/// How long threads are given events at a time: what others write meanwhile must be read.
const OPEN_AT_MOST: Duration = Duration::from_millis(5);

/// The rings, and what is known of whom they are about.
pub(crate) struct Outside {
    // The first to go: its thread looks at the rings.
    _poller: Poller,
    sampler: StackSampler,
    /// Samples since copies were made as long as they are; what the longest walk among them has needed of one, bytes; and how many
    /// were too short.
    samples: u32,
    needed_bytes: usize,
    too_short: u32,
    /// The kernel took no samples for a while.
    was_throttled: bool,
}

/// A record that is due.
struct Due<'r> {
    time_ns: u64,
    record: RingRecord<'r>,
}

impl Outside {
    /// Rings for samples at this period. `user_only`: see [`StackSamples`].
    pub(crate) fn new(samples: StackSamples, doorbell: Doorbell) -> io::Result<Outside> {
        let sampler = StackSampler::new(StackSamples { stack_bytes: StackSamples::MOST_BYTES, ..samples })?;
        let _poller = Poller::start(&sampler.rings(), doorbell);
        Ok(Outside { _poller, sampler, samples: 0, needed_bytes: 0, too_short: 0, was_throttled: false })
    }

    /// Samples a process from now on.
    pub(crate) fn begin(&mut self, pid: Pid) -> io::Result<()> {
        self.sampler.begin(pid)
    }

    /// Samples a thread from when it executes a program.
    fn begin_at_exec(&mut self, tid: u32) -> io::Result<()> {
        self.sampler.begin_at_exec(tid)
    }

    /// Samples everything from now on.
    fn begin_everywhere(&mut self) -> io::Result<()> {
        self.sampler.begin_everywhere()
    }

    /// Whether there is something to do at once.
    pub(crate) fn is_pressing(&self) -> bool {
        self.sampler.waiting() > 0
    }

    /// Copies more of stacks from now on, if copies were too short, or less, if less is enough.
    fn fit_copies(&mut self, pids: impl Iterator<Item = Pid>) {
        let now = self.sampler.samples().stack_bytes;
        let is_longer = self.too_short > 0;
        if self.sampler.waiting() > 0 || (!is_longer && self.samples < ENOUGH) {
            return;
        }
        // What is enough now may not be later: half as much again.
        let enough = |bytes: &u32| if is_longer { *bytes > now } else { *bytes as usize >= self.needed_bytes * 3 / 2 };
        let fitting = COPIES_BYTES.into_iter().find(enough).unwrap_or(StackSamples::MOST_BYTES);
        let is_other = fitting > now || (fitting < now && !is_longer);
        (self.samples, self.needed_bytes, self.too_short) = (0, 0, 0);
        if is_other {
            self.sampler.copy(fitting, pids);
        }
    }
}

impl Recorder<'_> {
    /// Reads what the rings hold.
    pub(crate) fn serve_outside(&mut self) {
        let Some(mut outside) = self.outside.take() else { return };
        if outside.sampler.samples().user_only {
            self.processes.iter_mut().for_each(Process::look_at_clock);
        }
        // What they did before they ended is in the rings by now.
        let ended: Vec<Pid> = self.processes_outside().filter(|p| !p.handle.lives()).map(|p| p.pid()).collect();
        let rings: Arc<[Ring]> = outside.sampler.rings();
        let mut due: Vec<Due<'_>> = Vec::new();
        let mut read = Vec::with_capacity(rings.len());
        for ring in &*rings {
            let mut records = ring.records();
            due.extend(records.by_ref().map(|record| Due { time_ns: record.time_ns().unwrap_or(0), record }));
            read.push(records.position());
        }
        due.sort_by_key(|due| due.time_ns);
        let mut places = FxHashMap::default();
        for Due { record, .. } in due {
            let Some(record) = record.read() else { continue };
            self.enter(&mut outside, &mut places, record);
        }
        rings.iter().zip(read).for_each(|(ring, position)| ring.give_back(position));
        for process in self.processes.iter_mut().filter(|process| ended.contains(&process.pid())) {
            process.is_over();
        }
        let live: Vec<Pid> = self.processes_outside().map(Process::pid).filter(|pid| !ended.contains(pid)).collect();
        outside.fit_copies(live.into_iter());
        outside.sampler.open_more(OPEN_AT_MOST);
        self.outside = Some(outside);
    }

    /// Begins to sample a process that runs.
    pub(crate) fn begin_outside(&mut self, mut outside: Outside, pid: Pid) -> io::Result<Outside> {
        // Its code first: samples are then walked as they come.
        let known = self.place_of(pid, &mut FxHashMap::default(), None);
        outside.begin(pid)?;
        if let Some(process) = known.and_then(|index| self.processes.get_mut(index)) {
            // What it has mapped meanwhile is in no record.
            process.refresh_map(&mut self.shared);
        }
        Ok(outside)
    }

    /// Ends the samples from outside.
    pub(crate) fn end_outside(&mut self) {
        let Some(outside) = self.outside.take() else { return };
        if outside.was_throttled {
            self.note("the kernel took no samples for a while, since they took too much time (kernel.perf_cpu_time_max_percent); a lower rate (-F) helps");
        }
        let waiting = outside.sampler.waiting();
        if waiting > 0 {
            self.note(&format!("{waiting} threads were not sampled from the beginning: events for so many take longer than the recording"));
        }
        let refused = outside.sampler.refused();
        if refused > 0 {
            self.note(&format!(
                "{refused} threads were not sampled: there are not enough descriptors for events on all processors (ulimit -n)"
            ));
        }
    }

    fn processes_outside(&self) -> impl Iterator<Item = &Process> {
        self.processes.iter().filter(|process| process.is_from_outside())
    }

    /// Enters one record.
    fn enter(&mut self, outside: &mut Outside, places: &mut FxHashMap<u32, usize>, record: Record<'_>) {
        let Record { pid, tid, event, what } = record;
        if pid == 0 || pid == u32::MAX || pid == std::process::id() {
            // The thread had ended for the kernel when it was written.
            return;
        }
        let pid = Pid(pid);
        match what {
            What::Sample { .. } if outside.sampler.is_replaced(event, tid) => {}
            What::Sample { registers, stack } => {
                let asked_bytes = outside.sampler.samples().stack_bytes as usize;
                let taken = Taken { tid, registers, stack, asked_bytes };
                let Some(index) = self.place_of(pid, places, None) else { return };
                let needed = self.processes[index].take(&mut self.shared, &taken);
                outside.samples += 1;
                match needed {
                    Some(bytes) => outside.needed_bytes = outside.needed_bytes.max(bytes),
                    None => outside.too_short += 1,
                }
            }
            What::Mapped(entry) => {
                if let Some(index) = self.place_of(pid, places, None) {
                    self.processes[index].has_mapped(entry);
                }
            }
            What::Named { name, is_exec } => {
                if is_exec {
                    self.has_executed(pid, places);
                }
                if let Some(index) = self.place_of(pid, places, None) {
                    self.processes[index].has_named(tid, name);
                }
            }
            What::Began { by } => {
                outside.sampler.has_begun(tid, event);
                if pid.0 != by {
                    let parent = self.place_of(Pid(by), places, None);
                    let origin = parent.and_then(|parent| self.processes[parent].origin_of_fork());
                    self.place_of(pid, places, origin);
                }
            }
            What::Ended => {
                outside.sampler.has_ended(tid);
                if let Some(process) = self.processes.iter_mut().find(|process| process.pid() == pid) {
                    process.has_ended_thread(tid);
                }
            }
            What::Lost(count) => {
                let of = outside.sampler.process_of(event).unwrap_or(pid);
                if let Some(process) = self.processes.iter_mut().find(|process| process.pid() == of) {
                    process.has_lost(&self.shared, count);
                }
            }
            What::Throttled => outside.was_throttled = true,
            What::Other => {}
        }
    }

    /// Where a process that is sampled from outside is in the list, from now on if it was not. `None`: it is measured from inside,
    /// or there is no room. `origin`: what it begins with, if a record has told.
    fn place_of(&mut self, pid: Pid, places: &mut FxHashMap<u32, usize>, origin: Option<Origin>) -> Option<usize> {
        if let Some(index) = places.get(&pid.0) {
            return Some(*index);
        }
        if let Some(index) = self.processes.iter().position(|process| process.pid() == pid) {
            return self.processes[index].is_from_outside().then(|| *places.entry(pid.0).or_insert(index));
        }
        let started_ns = self.shared.began.elapsed().as_nanos() as u64;
        let begun = (self.sequence, started_ns);
        let process = Process::from_outside(&mut self.shared, pid, begun, origin);
        let Some(process) = process else {
            self.note("some processes were not measured: there are too many at once");
            return None;
        };
        self.sequence += 1;
        self.processes.push(process);
        places.insert(pid.0, self.processes.len() - 1);
        Some(self.processes.len() - 1)
    }

    /// A process has executed another program, which is a process of its own here.
    fn has_executed(&mut self, pid: Pid, places: &mut FxHashMap<u32, usize>) {
        let before = self.processes.iter().position(|process| process.pid() == pid);
        let mut origin = Origin::default();
        if let Some(index) = before {
            let before = &self.processes[index];
            if !before.is_from_outside() && !before.leaves_us(&self.shared) {
                // Our object in the program will tell.
                return;
            }
            let process = self.processes.swap_remove(index);
            places.clear();
            origin.before_ns = process.sampled_ns(&self.shared);
            self.take_leave(process);
        }
        self.place_of(pid, places, Some(origin));
    }
}
