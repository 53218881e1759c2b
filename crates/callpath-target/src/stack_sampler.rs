//! Samples of other processes' threads, taken from outside: registers and a copy of the stack, written by the kernel into a ring
//! for each processor. Nothing in the processes changes.

mod deep;
mod unseen;

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::control_group::ControlGroup;
use crate::deep_copies::DeepCopies;
use crate::perf_event::{Attributes, StackSamples, enable, number_of};
use crate::pid::Pid;
use crate::process::{descriptor_limit, descriptors_are_scarce, processes, thread_lives};
use crate::processors::processors;
use crate::ring::Ring;
use unseen::AllUnseen;
pub use unseen::Unseen;

/// From when on a thread is sampled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum From {
    /// From now on.
    Now,
    /// From when it executes a program, and what it starts then.
    ItsExec,
    /// The same of all threads of its process, and of those that they start.
    EachExec,
}

/// The events of one thread, on every processor; threads that it starts inherit them.
#[derive(Debug)]
struct OfThread {
    generation: u32,
    /// Its process.
    pid: Pid,
    from: From,
    /// What its records name its events by.
    numbers: Vec<u64>,
    events: Vec<OwnedFd>,
}

/// An event.
#[derive(Clone, Copy, Debug)]
struct Event {
    /// The process that it was opened on.
    pid: Pid,
    generation: u32,
    /// The number of its set: the events that a thread was given at once.
    set: u64,
    /// How long its copies are at most, bytes.
    stack_bytes: u32,
    /// Its samples are of threads that leave their processors.
    of_switches: bool,
}

/// Rings, and events on threads that write into them. Dropping it ends the samples.
#[derive(Debug)]
pub struct StackSampler {
    processors: Vec<u32>,
    rings: Arc<[Ring]>,
    samples: StackSamples,
    /// How often the samples have changed: events of earlier ones are replaced.
    generation: u32,
    /// Those that have events of their own, by number. They stay when a thread has ended: others have inherited from it.
    threads: HashMap<u32, OfThread>,
    /// Events of threads that have others now, or that have ended: others may have inherited from them.
    retired: Vec<OfThread>,
    /// When all threads that are known had events of this generation, as long as there may be older ones.
    settled: Option<Instant>,
    /// Those that have inherited events of this generation, with their processes.
    inherited: HashMap<u32, Pid>,
    /// The set that tells of a thread, and its generation.
    telling: HashMap<u32, (u64, u32)>,
    /// How many sets there were.
    sets: u64,
    /// How many processes were given events since the generation began, and how many are many.
    starters: usize,
    many_starters: usize,
    /// Those that are to have events.
    waiting: VecDeque<(Pid, u32)>,
    /// The processes of those that were, since none was.
    lined_up: HashSet<Pid>,
    /// By number.
    opened_on: HashMap<u64, Event>,
    /// The numbers of events that were closed, and when: rings may have records of them.
    closed: VecDeque<(Instant, Vec<u64>)>,
    /// Those that could have none.
    refused: HashSet<u32>,
    /// Those that had ended: a first thread is listed as long as others go on.
    gone: HashSet<u32>,
    /// Those that were given events and may have done something before.
    unseen: AllUnseen,
    /// Where all threads are sampled: those of this group alone.
    group: Option<ControlGroup>,
    /// Copies of what lies beyond those in records.
    pub deep: Option<DeepCopies>,
    /// Those that had inherited their events before that began: their samples do not run it.
    without_deep: HashSet<u32>,
}

impl StackSampler {
    /// The lengths of a ring that are tried, the longest first, bytes. An ordinary user may lock half a megabyte for each processor. The
    /// first ones are for the switches of all threads of a machine.
    const RING_LENGTHS: [usize; 8] = [32 << 20, 16 << 20, 8 << 20, 4 << 20, 2 << 20, 1 << 20, 512 << 10, 256 << 10];
    const FOR_EVERYTHING: usize = 2;

    /// Older events stay for so long once all known threads have others: what begins or executes a program by them tells of itself,
    /// and is given some.
    const SETTLES_AFTER: Duration = Duration::from_millis(250);

    /// After so many processes at most, the events of those that have ended are worth closing.
    const MANY_STARTERS: usize = 256;

    /// Closed events are known for so long: until the rings have been read.
    const KNOWN_FOR: Duration = Duration::from_secs(2);

    /// How long all rings are at most, bytes, unless they would be shorter than the shortest but one.
    const MOST_OF_RINGS: usize = 128 << 20;

    /// So many of the longest copies shall find room in a ring.
    const ROOM: usize = 32;

    /// Rings for all processors that are there. Copies are as long as `samples` says, or shorter if the rings are short.
    pub fn new(samples: StackSamples) -> io::Result<StackSampler> {
        let processors = processors();
        let most_for_some = StackSampler::RING_LENGTHS[StackSampler::FOR_EVERYTHING];
        let at_most = (StackSampler::MOST_OF_RINGS / processors.len().max(1)).max(1 << 20);
        let fits = |len: &usize| match samples.everything {
            // Switches of a machine come in bursts.
            true => samples.switches || *len <= at_most.max(most_for_some),
            false => *len <= at_most.min(most_for_some),
        };
        let lengths: Vec<usize> = StackSampler::RING_LENGTHS.into_iter().filter(fits).collect();
        let rings: Arc<[Ring]> =
            processors.iter().map(|processor| Ring::open(*processor, &lengths)).collect::<Result<_, _>>()?;
        // At most a quarter of all descriptors is theirs.
        let of_one = 2 * processors.len().max(1);
        let many_starters = (descriptor_limit() / 4 / of_one).clamp(1, StackSampler::MANY_STARTERS);
        let shortest = rings.iter().map(Ring::len_bytes).min().unwrap_or(0);
        let stack_bytes = samples.stack_bytes.min((shortest / StackSampler::ROOM) as u32).min(StackSamples::MOST_BYTES);
        Ok(StackSampler {
            processors,
            rings,
            samples: StackSamples { stack_bytes, ..samples },
            generation: 0,
            threads: HashMap::new(),
            retired: Vec::new(),
            settled: None,
            inherited: HashMap::new(),
            telling: HashMap::new(),
            sets: 0,
            starters: 0,
            waiting: VecDeque::new(),
            lined_up: HashSet::new(),
            opened_on: HashMap::new(),
            closed: VecDeque::new(),
            many_starters,
            refused: HashSet::new(),
            gone: HashSet::new(),
            unseen: AllUnseen::default(),
            group: None,
            deep: None,
            without_deep: HashSet::new(),
        })
    }

    /// The rings, by processor.
    pub fn rings(&self) -> Arc<[Ring]> {
        Arc::clone(&self.rings)
    }

    /// How the samples are taken.
    pub fn samples(&self) -> &StackSamples {
        &self.samples
    }

    /// The process that an event was opened on which a record names.
    pub fn process_of(&self, event: u64) -> Option<Pid> {
        self.opened_on.get(&event).map(|event| event.pid)
    }

    /// How long the copies of an event are at most, bytes.
    pub fn copied_bytes(&self, event: u64) -> usize {
        self.opened_on.get(&event).map_or(0, |event| event.stack_bytes as usize)
    }

    /// Whether samples of an event are of threads that leave their processors.
    pub fn is_of_switches(&self, event: u64) -> bool {
        self.opened_on.get(&event).is_some_and(|event| event.of_switches)
    }

    fn is_current(&self, event: u64) -> bool {
        self.opened_on.get(&event).is_some_and(|event| event.generation == self.generation)
    }

    /// Whether a sample of a thread counts. It may have several sets of events, its own and inherited ones: of those of the latest
    /// generation, the one counts that was first to tell of it.
    pub fn counts(&mut self, event: u64, tid: u32) -> bool {
        let Some(Event { set, generation, .. }) = self.opened_on.get(&event).copied() else { return true };
        match self.telling.get(&tid) {
            Some((telling, _)) if *telling == set => true,
            Some((_, of)) if *of >= generation => false,
            _ => {
                self.telling.insert(tid, (set, generation));
                true
            }
        }
    }

    /// How many threads could have no events: there were no descriptors left.
    pub fn refused(&self) -> usize {
        self.refused.len()
    }

    /// Whether a thread has events of this generation of its own.
    fn has_own(&self, tid: u32) -> Option<From> {
        self.threads.get(&tid).filter(|events| events.generation == self.generation).map(|events| events.from)
    }

    /// Whether events of this generation tell of a thread.
    fn is_sampled(&self, tid: u32) -> bool {
        self.has_own(tid) == Some(From::Now) || self.inherited.contains_key(&tid)
    }

    /// Of all threads, those of a control group alone are sampled.
    pub fn within(&mut self, group: ControlGroup) {
        self.group = Some(group);
    }

    /// Whether that is so.
    pub fn is_within_group(&self) -> bool {
        self.group.is_some()
    }

    /// Samples all threads of the machine, or of the group.
    ///
    /// # Errors
    /// The kernel does not allow it.
    pub fn begin_everywhere(&mut self) -> io::Result<()> {
        let all = self.open_on(Pid(0), Attributes::EVERY_THREAD, From::Now)?;
        self.threads.insert(Attributes::EVERY_THREAD, all);
        Ok(())
    }

    /// Where all is sampled, or all of a group: the processes that are there, this one apart.
    pub fn everywhere(&self) -> Option<Vec<Pid>> {
        let mut all =
            self.samples.everything.then(|| self.group.as_ref().map_or_else(processes, ControlGroup::processes))?;
        all.retain(|pid| pid.0 != std::process::id());
        Some(all)
    }

    /// A process has run before: its threads may wait already.
    pub fn ran_before(&mut self, pid: Pid) {
        if self.samples.switches {
            self.unseen.add(threads_of(pid).into_iter().map(|tid| (pid, tid)));
        }
    }

    /// What a process did is in no record: those of its threads that are sampled may wait.
    pub fn ran_unseen(&mut self, pid: Pid) {
        if self.samples.switches {
            let is_sampled = |tid: &u32| self.samples.everything || self.is_sampled(*tid);
            let threads: Vec<u32> = threads_of(pid).into_iter().filter(is_sampled).collect();
            self.unseen.add(threads.into_iter().map(|tid| (pid, tid)));
        }
    }

    /// Samples a thread from when it executes a program ([`From::ItsExec`], [`From::EachExec`]).
    ///
    /// # Errors
    /// There is no such thread, or the kernel allows it not.
    pub fn begin_at_exec(&mut self, tid: u32, from: From) -> io::Result<()> {
        if self.inherited.contains_key(&tid) {
            // They go on telling of it, and of what it starts.
            return Ok(());
        }
        let events = self.open_on(Pid(tid), tid, from)?;
        self.keep(tid, events);
        self.starters += 1;
        if from == From::EachExec {
            self.begin_at_execs_of(Pid(tid));
        }
        Ok(())
    }

    /// Has all that a process starts sampled: gives those of its threads events that have none of this generation.
    fn begin_at_execs_of(&mut self, pid: Pid) {
        /// Threads that begin meanwhile may inherit from one that has none yet.
        const LOOKS: u32 = 3;
        for _ in 0..LOOKS {
            let is_new = |tid: &u32| {
                self.has_own(*tid).is_none() && !self.inherited.contains_key(tid) && !self.refused.contains(tid)
            };
            let new: Vec<u32> = threads_of(pid).into_iter().filter(is_new).collect();
            if new.is_empty() {
                return;
            }
            for tid in new {
                match self.open_on(pid, tid, From::EachExec) {
                    Ok(events) => self.keep(tid, events),
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                    Err(_) => drop(self.refused.insert(tid)),
                }
            }
        }
    }

    /// A process that was given events for what it starts has ended.
    pub fn is_over(&mut self, pid: Pid) {
        let its = |events: &OfThread| events.pid == pid && events.from == From::EachExec;
        let over: Vec<u32> = self.threads.iter().filter(|(_, events)| its(events)).map(|(tid, _)| *tid).collect();
        for tid in over {
            self.retired.extend(self.threads.remove(&tid));
        }
    }

    /// Whether so many processes were given events that those of ended ones are worth closing, by [`StackSampler::copy`].
    pub fn has_many_starters(&self) -> bool {
        self.starters >= self.many_starters && !self.is_settling()
    }

    /// Whether there may be events of earlier generations.
    pub fn is_settling(&self) -> bool {
        self.settled.is_some() || !self.waiting.is_empty()
    }

    /// Samples the first thread of a process, and those that it starts; its other threads by [`StackSampler::open_more`].
    ///
    /// # Errors
    /// Its first thread cannot be sampled: there is no such process, or the kernel allows it not.
    pub fn begin(&mut self, pid: Pid) -> io::Result<()> {
        // The first one may have ended, and others go on.
        let mut tried = self.open_on(pid, pid.0, From::Now).map(|events| (pid.0, events));
        for tid in threads_of(pid).into_iter().filter(|tid| *tid != pid.0) {
            let has_ended = tried.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::ESRCH));
            if !has_ended {
                break;
            }
            tried = self.open_on(pid, tid, From::Now).map(|events| (tid, events));
        }
        let (tid, events) = tried?;
        self.keep(tid, events);
        self.starters += 1;
        self.wait_for_threads(pid);
        Ok(())
    }

    fn keep(&mut self, tid: u32, events: OfThread) {
        self.telling.remove(&tid);
        self.retired.extend(self.threads.insert(tid, events));
    }

    /// Closes events of earlier generations: those of threads that have others; with `all`, the rest, too. Whether there were any of
    /// the former.
    fn close_older(&mut self, all: bool) -> bool {
        let generation = self.generation;
        let is_older = |events: &OfThread| events.generation != generation;
        let mut closed: Vec<OfThread> = self.retired.extract_if(.., |events| is_older(events)).collect();
        let any = !closed.is_empty();
        if all {
            // Those of one that could have no others go on.
            let refused = &self.refused;
            let rest = self.threads.extract_if(|tid, events| is_older(events) && !refused.contains(tid));
            closed.extend(rest.map(|(_, events)| events));
        }
        self.close(closed);
        any
    }

    fn close(&mut self, events: Vec<OfThread>) {
        let numbers: Vec<u64> = events.iter().flat_map(|events| events.numbers.iter().copied()).collect();
        self.closed.push_back((Instant::now(), numbers));
    }

    /// Forgets events that were closed long ago.
    fn forget_closed(&mut self) {
        while self.closed.front().is_some_and(|(at, _)| at.elapsed() >= StackSampler::KNOWN_FOR)
            && let Some((_, numbers)) = self.closed.pop_front()
        {
            for number in &numbers {
                self.opened_on.remove(number);
            }
        }
    }

    /// Puts all threads of a process in line that have no events.
    fn wait_for_threads(&mut self, pid: Pid) {
        let is_known = |tid: &u32| self.refused.contains(tid) || self.gone.contains(tid);
        let is_new = |tid: &u32| !self.is_sampled(*tid) && !is_known(tid);
        let fresh: Vec<u32> = threads_of(pid).into_iter().filter(is_new).collect();
        self.waiting.extend(fresh.into_iter().map(|tid| (pid, tid)));
    }

    /// How many threads wait for events.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Gives threads events that wait for them, for so long at most.
    pub fn open_more(&mut self, at_most: Duration) {
        let begun = Instant::now();
        if self.waiting.is_empty() && self.settled.is_some_and(|since| since.elapsed() >= StackSampler::SETTLES_AFTER) {
            // A thread that began while events were opened may have inherited the older ones of one that starts others.
            let starters = self.threads.values().filter(|events| events.from == From::EachExec);
            let starters: HashSet<Pid> = starters.map(|events| events.pid).collect();
            starters.into_iter().for_each(|pid| self.begin_at_execs_of(pid));
            self.settled = None;
            self.close_older(true);
        }
        self.forget_closed();
        while begun.elapsed() < at_most
            && let Some((pid, tid)) = self.waiting.pop_front()
        {
            self.lined_up.insert(pid);
            if self.is_sampled(tid) {
                continue;
            }
            let mut opened = self.open_on(pid, tid, From::Now);
            let are_scarce = opened.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EMFILE));
            if are_scarce && (self.close_older(false) || self.close_own_older(tid)) {
                opened = self.open_on(pid, tid, From::Now);
            }
            match opened {
                Ok(events) => self.keep(tid, events),
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => drop(self.gone.insert(tid)),
                Err(_) => drop(self.refused.insert(tid)),
            }
        }
        if self.waiting.is_empty() && !self.lined_up.is_empty() {
            // Threads that began meanwhile have inherited events, or their number is not known yet.
            std::mem::take(&mut self.lined_up).into_iter().for_each(|pid| self.wait_for_threads(pid));
            if self.waiting.is_empty() {
                self.settled.get_or_insert_with(Instant::now);
            }
        }
    }

    /// Closes the events of a thread that are of an earlier generation. Whether there were any.
    fn close_own_older(&mut self, tid: u32) -> bool {
        let older = self.threads.remove(&tid).map(|own| (own.generation != self.generation, own));
        match older {
            Some((true, own)) => {
                self.close(vec![own]);
                true
            }
            Some((false, own)) => {
                self.threads.insert(tid, own);
                false
            }
            None => false,
        }
    }

    /// A thread of a process has begun; `event` is the one that tells of it, which it has inherited.
    pub fn has_begun(&mut self, of: (Pid, u32), event: u64) {
        let (pid, tid) = of;
        self.telling.remove(&tid);
        if self.is_current(event) {
            // Those of another thread that had its number: others may have inherited from it.
            self.retired.extend(self.threads.remove(&tid));
        }
        self.has_inherited((pid, tid), event);
    }

    /// A thread has executed a program; `event` tells of it. If it was to begin with that, nothing has told of the thread before.
    pub fn has_executed(&mut self, of: (Pid, u32), event: u64) {
        self.has_inherited(of, event);
    }

    fn has_inherited(&mut self, (pid, tid): (Pid, u32), event: u64) {
        if self.is_current(event) {
            self.inherited.insert(tid, pid);
        } else if !self.samples.everything && self.opened_on.contains_key(&event) {
            // Those that it has inherited are about to go.
            self.waiting.push_back((pid, tid));
        }
    }

    /// A thread has ended.
    pub fn has_ended(&mut self, tid: u32) {
        self.inherited.remove(&tid);
        self.telling.remove(&tid);
        self.retired.extend(self.threads.remove(&tid));
    }

    /// The kernel has taken the events of a thread away that told of it.
    pub fn tells_anew(&mut self, tid: u32) {
        self.telling.remove(&tid);
    }

    /// Records were lost: threads may have ended, and others may have their numbers.
    pub fn has_lost(&mut self) {
        self.telling.clear();
        self.unseen.has_lost();
        self.inherited.retain(|tid, pid| thread_lives(*pid, *tid));
    }

    /// Takes longer or shorter copies of stacks from now on: the threads of `pids` get other events, one after the other.
    pub fn copy(&mut self, stack_bytes: u32, pids: impl Iterator<Item = Pid>) {
        self.samples.stack_bytes = stack_bytes.min(StackSamples::MOST_BYTES);
        self.generation += 1;
        self.without_deep.clear();
        self.starters = 0;
        let inherited = std::mem::take(&mut self.inherited);
        self.waiting.clear();
        self.settled = None;
        if self.samples.everything {
            // Those that there were go on if there can be no others.
            return drop(self.begin_everywhere());
        }
        // Those that have had a sample; those that have told of themselves in another way; and those that were given events.
        let begun = self.threads.values().filter(|events| events.from == From::Now).map(|events| events.pid);
        let pids: HashSet<Pid> = pids.chain(inherited.into_values()).chain(begun).collect();
        let not_yet = self.threads.iter().filter(|(_, events)| !pids.contains(&events.pid));
        let of_kind = |kind: From| not_yet.clone().filter(move |(_, events)| events.from == kind);
        let starters: HashSet<Pid> = of_kind(From::EachExec).map(|(_, events)| events.pid).collect();
        let executing: Vec<u32> = of_kind(From::ItsExec).map(|(tid, _)| *tid).collect();
        starters.into_iter().for_each(|pid| self.begin_at_execs_of(pid));
        for tid in executing {
            let begun = self.begin_at_exec(tid, From::ItsExec);
            // One that has ended needs none.
            if begun.is_err_and(|error| error.raw_os_error() != Some(libc::ESRCH)) {
                self.refused.insert(tid);
            }
        }
        for pid in pids {
            self.waiting.extend(threads_of(pid).into_iter().map(|tid| (pid, tid)));
        }
        if self.waiting.is_empty() {
            self.settled = Some(Instant::now());
        }
    }

    fn open_on(&mut self, pid: Pid, tid: u32, from: From) -> io::Result<OfThread> {
        let from_exec = from != From::Now;
        if descriptors_are_scarce() {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        let of_switches = self.samples.switches.then(|| Attributes::of_switches(&self.samples, from_exec));
        let of_clock = Attributes::of_stacks(&self.samples, from_exec);
        // Waits are seen from their beginning where threads go on.
        let kinds = of_switches.iter().map(|attributes| (true, attributes)).chain([(false, &of_clock)]);
        self.sets += 1;
        let set = self.sets;
        let (mut events, mut numbers) = (Vec::with_capacity(self.processors.len()), Vec::new());
        for (of_switches, attributes) in kinds {
            for (processor, ring) in self.processors.iter().zip(&*self.rings) {
                let event = match self.group.as_ref().filter(|_| tid == Attributes::EVERY_THREAD) {
                    Some(group) => attributes.open_in(group.as_fd(), *processor)?,
                    None => attributes.open(tid, Some(*processor))?,
                };
                ring.take_in(event.as_raw_fd())?;
                if let Some(deep) = self.deep.as_ref().filter(|_| !of_switches) {
                    // Without it, samples are as long as their records.
                    if deep.attach(event.as_raw_fd()).is_err() {
                        self.deep = None;
                    }
                }
                let (generation, stack_bytes) = (self.generation, self.samples.stack_bytes);
                let number = number_of(&event)?;
                numbers.push(number);
                self.opened_on.insert(number, Event { pid, generation, set, stack_bytes, of_switches });
                events.push(event);
            }
        }
        // Only now: if one could not be opened, none has told of the thread.
        if !from_exec {
            events.iter().for_each(enable);
        }
        if !from_exec && self.samples.switches && tid != Attributes::EVERY_THREAD {
            self.unseen.add([(pid, tid)]);
        }
        Ok(OfThread { generation: self.generation, pid, from, numbers, events })
    }

    /// Waits until a ring is half full, for `at_most`. Whether one is.
    pub fn wait(rings: &[std::os::fd::RawFd], at_most: Duration) -> bool {
        let mut polled: Vec<libc::pollfd> =
            rings.iter().map(|fd| libc::pollfd { fd: *fd, events: libc::POLLIN, revents: 0 }).collect();
        let timeout = i32::try_from(at_most.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: valid records, as many as are said.
        let ready = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, timeout) };
        ready > 0
    }
}

/// The threads of a process, by number; none if it has ended.
fn threads_of(pid: Pid) -> Vec<u32> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::{Record, What};

    /// A thread of this process that works is sampled by number, and one that it starts.
    #[test]
    fn threads_that_are_there_and_those_that_come() {
        let samples = StackSamples {
            period_ns: 1_000_000,
            user_only: true,
            stack_bytes: 4096,
            with_children: false,
            everything: false,
            switches: false,
            kernel: false,
        };
        let Ok(mut sampler) = StackSampler::new(samples) else {
            eprintln!("not run: this machine allows no rings");
            return;
        };
        let is_over = std::sync::atomic::AtomicBool::new(false);
        let spin = |_: u32| {
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        };
        // SAFETY: returns a number.
        let own_number = || unsafe { libc::gettid() } as u32;
        std::thread::scope(|scope| {
            let (tell, told) = std::sync::mpsc::channel();
            let (go, may_go) = std::sync::mpsc::channel::<()>();
            let tell_later = tell.clone();
            scope.spawn(move || {
                tell.send(own_number()).unwrap();
                may_go.recv().unwrap();
                std::thread::scope(|inner| {
                    inner.spawn(|| {
                        tell_later.send(own_number()).unwrap();
                        spin(1);
                    });
                });
            });
            let first = told.recv().unwrap();
            sampler.begin(Pid(std::process::id())).expect("a process may sample itself");
            while sampler.waiting() > 0 {
                sampler.open_more(Duration::from_millis(1));
            }
            assert!(sampler.threads.len() >= 2 && sampler.refused() == 0, "{sampler:?}");
            go.send(()).unwrap();
            let second = told.recv().unwrap();
            let mut seen = Vec::new();
            let begun = std::time::Instant::now();
            while seen.len() < 20 && begun.elapsed() < Duration::from_secs(30) {
                for ring in &*sampler.rings() {
                    let mut records = ring.records();
                    for record in records.by_ref() {
                        // Other tests of this process start children meanwhile; what is wrong is said when all threads have ended.
                        let Some(Record { pid, tid, event, what }) = record.read(false) else { continue };
                        if let (What::Sample { registers, stack, .. }, true) = (what, tid == second) {
                            seen.push((registers, stack.len_bytes(), pid, sampler.process_of(event)));
                        }
                    }
                    ring.give_back(records.position());
                }
            }
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(seen.len() >= 20 && first != second, "{} samples of a thread that began later", seen.len());
            for (registers, stack_bytes, pid, of) in seen {
                let registers = registers.expect("a thread in user mode has registers");
                assert!(registers[7] != 0 && registers[16] != 0 && stack_bytes > 0);
                assert_eq!((pid, of), (std::process::id(), Some(Pid(pid))));
            }
        });
    }
}
