//! Processes that are sampled from outside: the kernel writes registers and a copy of the stack into rings, which are read here,
//! in order of time, and walked by the same walk as raw samples. Nothing in the processes changes.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use callpath_format::register::Reg;
use callpath_target::{DeepCopy, Maps, Pid, ProcessHandle, Record, Ring, RingRecord, StackSamples, What, has_memory};
use rustc_hash::{FxHashMap, FxHashSet};

use super::Recorder;
use crate::process::{FirstStack, Origin, Process, Taken, Took, Worth};
use crate::rings::{Need, Noted, Outside, Wait};
use crate::time_base::monotonic_ns;

/// How long threads are given events, and are looked at, at a time: what others write meanwhile must be read.
const OPEN_AT_MOST: Duration = Duration::from_millis(5);
const LOOK_AT_MOST: Duration = Duration::from_millis(5);

/// For the user.
pub(super) const TOO_MANY_PROCESSES: &str = "some processes were not measured: there are too many at once";
const LOST_BY_PRIVILEGES: &str = "some processes were sampled only until they executed a program that gains privileges (setuid, setgid or \
                                  file capabilities): only root may sample such programs";

/// A record that is due.
struct Due<'r> {
    /// Its time, or that of an earlier record of its ring, if that is later: a ring's records stay in their order.
    order_ns: u64,
    time_ns: u64,
    record: RingRecord<'r>,
    /// Its ring, by index, and where it ends there.
    place: (usize, u64),
}

impl Recorder<'_> {
    /// Reads what the rings hold.
    pub(crate) fn serve_outside(&mut self) {
        let Some(mut outside) = self.outside.take() else { return };
        self.processes.iter_mut().for_each(Process::look_at_clock);
        // What they did before they ended is in the rings by now.
        let ended: Vec<Pid> = self.processes_outside().filter(|p| !p.handle.lives()).map(|p| p.pid()).collect();
        let rings: Arc<[Ring]> = outside.sampler.rings();
        let began_ns = monotonic_ns();
        let mut due: Vec<Due<'_>> = Vec::new();
        let mut read = Vec::with_capacity(rings.len());
        let filled = |ring: &Ring| ring.records().left_bytes() * 100 / ring.len_bytes().max(1) as u64;
        outside.keep_up(rings.iter().map(filled).max().unwrap_or(0));
        for (index, ring) in rings.iter().enumerate() {
            let (mut records, mut order_ns) = (ring.records(), 0);
            while let Some(record) = records.next() {
                let time_ns = record.time_ns().unwrap_or(0);
                order_ns = time_ns.max(order_ns);
                due.push(Due { order_ns, time_ns, record, place: (index, records.position()) });
            }
            read.push(records.position());
        }
        due.sort_by_key(|due| due.order_ns);
        outside.read_deep();
        let (own, mut places) = (std::process::id(), FxHashMap::default());
        let (leaving, with_kernel) = (std::mem::take(&mut outside.leaving), outside.sampler.samples().kernel);
        for Due { record, time_ns, place: (ring, end), .. } in due {
            // A thread had ended for the kernel when a record without a number was written.
            match record.read(with_kernel) {
                Some(Record { pid, event, what: What::Sample { .. }, .. }) if pid == own => {
                    outside.own += u64::from(!outside.sampler.is_of_switches(event));
                }
                Some(record) if ![0, u32::MAX, own].contains(&record.pid) => {
                    self.enter((&mut outside, &mut places), time_ns, record);
                }
                _ => {}
            }
            // At once: to enter all of them may take longer than a ring takes to fill.
            rings[ring].give_back(end);
        }
        rings.iter().zip(read).for_each(|(ring, position)| ring.give_back(position));
        outside.forget_deep(began_ns);
        leaving.iter().for_each(|pid| drop(outside.origins.remove(pid)));
        for process in self.processes.iter_mut().filter(|process| ended.contains(&process.pid())) {
            process.is_over();
        }
        let live: FxHashSet<Pid> =
            self.processes_outside().map(Process::pid).filter(|pid| !ended.contains(pid)).collect();
        outside.fit_copies(live.iter().copied());
        outside.sampler.open_more(OPEN_AT_MOST);
        if outside.shall_look_for_waits() {
            // What was lost may be of other code: a wait from now on is of what they have mapped now.
            for process in self.processes.iter_mut().filter(|process| live.contains(&process.pid())) {
                process.is_other_program(&mut self.shared);
            }
            outside.find_lost_waits(live);
        }
        outside.look_for_waits(LOOK_AT_MOST);
        self.outside = Some(outside);
    }

    /// Begins to sample a process that runs.
    pub(crate) fn begin_outside(&mut self, outside: &mut Outside, pid: Pid) -> io::Result<()> {
        // Its code first: samples are then walked as they come.
        outside.origins.insert(pid.0, Origin::read(pid));
        let known = self.place_of(pid, (&mut FxHashMap::default(), outside));
        self.begin_with_events(outside, pid, known)
    }

    /// Gives a process events, unless it was given new ones already; it has a place in the list, or finds no room there.
    fn begin_with_events(&mut self, outside: &mut Outside, pid: Pid, place: Option<usize>) -> io::Result<()> {
        if !outside.begun_again.remove(&pid.0) {
            outside.begin(pid)?;
        }
        if let Some(process) = place.and_then(|index| self.processes.get_mut(index)) {
            // What it has mapped meanwhile, or executed, is in no record.
            process.begin_with(&mut self.shared, Origin::read(pid));
        }
        Ok(())
    }

    /// A process has executed a program that gains privileges: the kernel has taken its events away.
    fn begin_again(&mut self, (outside, places): (&mut Outside, &mut FxHashMap<u32, usize>), pid: Pid) {
        if outside.sampler.samples().everything {
            // Those are the machine's.
            return;
        }
        let place = self.place_of(pid, (places, outside));
        let begun = self.begin_with_events(outside, pid, place);
        // Those of a process that has ended meanwhile cannot be had either.
        if begun.is_err_and(|error| matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM))) {
            place.and_then(|index| self.processes.get_mut(index)).into_iter().for_each(Process::is_out_of_reach);
            self.note(LOST_BY_PRIVILEGES);
        }
    }

    /// Whether a process whose first thread has lost its events goes on: they were taken away by an `exec` that gains privileges.
    /// Nothing has been mapped since.
    fn has_lost_events(&mut self, outside: &Outside, pid: Pid) -> bool {
        let is_bare = match self.met(pid) {
            Some(process) => process.has_just_executed(),
            None => outside.origins.get(&pid.0).is_some_and(Origin::has_just_executed),
        };
        is_bare && has_memory(pid)
    }

    /// Ends the samples from outside.
    pub(crate) fn end_outside(&mut self) {
        let Some(mut outside) = self.outside.take() else { return };
        let mut places = FxHashMap::default();
        self.find_lost((&mut outside, &mut places));
        // First: a wait counts if what the process has mapped was known before its end.
        for pid in outside.waits.processes() {
            self.place_of(pid, (&mut places, &mut outside));
        }
        let now_ns = monotonic_ns();
        for tid in outside.waits.tids() {
            if let Some((wait, lasted_ns)) = outside.waits.end(tid, now_ns) {
                self.enter_wait((&mut outside, &mut places), &wait, lasted_ns);
            }
        }
        self.processes.iter_mut().for_each(Process::is_ending);
        if outside.was_throttled {
            self.note("the kernel took no samples for a while, since they took too much time (kernel.perf_cpu_time_max_percent); a lower rate (-F) helps");
        }
        if outside.beyond > 0 {
            let (samples, longest) = (outside.beyond, StackSamples::MOST_BYTES >> 10);
            let how = match &outside.sampler.deep {
                Some(deep) if deep.was_full() => {
                    "callpath copies up to 1 MB of such stacks, but there was no room for some of these copies: a lower rate (-F) helps"
                }
                Some(deep) if deep.lacked_places() => {
                    "callpath copies up to 1 MB of the stacks of 4,096 threads, and there were more at once"
                }
                Some(_) => "callpath then copies up to 1 MB of such stacks",
                None => "as root, outside a container with its own process numbers, callpath can copy up to 1 MB",
            };
            self.note(&format!(
                "{samples} samples have partial call paths: the stack goes on beyond the {longest} KB that the kernel copies into a record; {how}. A program that callpath starts is measured from inside, without this limit"
            ));
        }
        if outside.has_lost {
            self.note(match outside.sampler.samples().switches {
                true => "the kernel's rings were full for a while, and samples were lost; waits that began or ended then are missing. A lower rate (-F) helps, or fewer processes",
                false => "the kernel's rings were full for a while, and samples were lost: a lower rate (-F) helps",
            });
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
    fn enter(
        &mut self,
        (outside, places): (&mut Outside, &mut FxHashMap<u32, usize>),
        time_ns: u64,
        record: Record<'_>,
    ) {
        let Record { pid, tid, event, what } = record;
        let pid = Pid(pid);
        match what {
            // Where a thread's events are being replaced, both sets may tell of the same switch; it is the same wait.
            What::Sample { registers, stack, kernel } if outside.sampler.is_of_switches(event) => {
                let asked_bytes = outside.sampler.copied_bytes(event);
                outside.sampler.is_seen(tid);
                if let Some(registers) = registers {
                    outside.waits.begin((pid, tid, time_ns), registers, (stack, asked_bytes, kernel));
                }
            }
            What::Leaves => outside.waits.has_left(tid, time_ns),
            What::GoesOn => {
                outside.sampler.is_seen(tid);
                if let Some((wait, lasted_ns)) = outside.waits.end(tid, time_ns) {
                    self.enter_wait((outside, places), &wait, lasted_ns);
                }
            }
            // Its deep copy stays: a thread's two events may fire together, and the copy may belong to the sample that counts.
            What::Sample { .. } if !outside.sampler.counts(event, tid) => {}
            What::Sample { registers, stack, kernel } => {
                outside.sampler.has_run(tid, time_ns);
                let asked_bytes = outside.sampler.copied_bytes(event);
                let beyond = outside.deep_of(tid, (registers, stack), time_ns);
                let (worth, beyond, kernel) = (Worth::Period, &beyond, &kernel[..]);
                let taken = Taken { tid, worth, time_ns, registers, stack, beyond, asked_bytes, kernel };
                self.take_from_outside((outside, places), pid, &taken);
            }
            What::Mapped(entry) => match self.met(pid) {
                Some(process) => process.has_mapped(entry),
                None => outside.origins.entry(pid.0).or_insert_with(|| Origin::read_late(pid)).has_mapped(entry),
            },
            What::Named { name, is_exec: true } => {
                // Several sets of events may tell of it. Another program would have mapped something in between.
                let is_known = self.met(pid).is_some_and(|process| process.has_just_executed())
                    || outside.origins.get(&pid.0).is_some_and(Origin::has_just_executed);
                if !is_known {
                    self.has_executed(pid, name, (places, outside));
                }
                outside.sampler.has_executed((pid, tid), event);
                outside.is_not_deep(tid);
                if outside.sampler.process_of(event) == Some(pid) {
                    // What was asked for is there without a sample, too.
                    self.place_of(pid, (places, outside));
                }
            }
            What::Named { name, is_exec: false } => {
                if let Some(process) = self.met(pid) {
                    process.has_named(tid, name);
                }
            }
            What::Began { by } => {
                if pid.0 == by {
                    outside.has_begun_thread();
                }
                let with_children = outside.sampler.samples().with_children;
                if pid.0 == by || with_children {
                    outside.sampler.has_begun((pid, tid), event);
                }
                if pid.0 != by && with_children {
                    let known = self.met(Pid(by)).and_then(|parent| parent.origin_of_fork());
                    let of_parent =
                        || outside.origins.entry(by).or_insert_with(|| Origin::read_late(Pid(by))).of_fork();
                    let origin = known.unwrap_or_else(of_parent);
                    outside.origins.insert(pid.0, origin);
                }
            }
            What::Ended if tid == pid.0 && self.has_lost_events(outside, pid) => {
                match outside.begun_again.contains(&tid) {
                    true => outside.sampler.tells_anew(tid),
                    false => outside.has_ended(tid),
                }
                self.begin_again((outside, places), pid);
            }
            What::Ended => {
                outside.has_ended(tid);
                outside.waits.forget(tid);
                if tid == pid.0 {
                    // The number may be another process's soon.
                    outside.clocks.remove(&tid);
                }
                match self.met(pid) {
                    Some(process) => process.has_ended_thread(tid),
                    None if tid == pid.0 => outside.leaving.push(tid),
                    None => {}
                }
            }
            What::Lost(count) => {
                // What was mapped or executed may be among it.
                self.processes.iter_mut().for_each(Process::doubt);
                outside.origins.clear();
                outside.sampler.has_lost();
                outside.lose();
                if outside.sampler.samples().everything {
                    // Of anyone, callpath itself included: the processes' clocks tell whose time that was.
                    outside.lost += count;
                    if outside.clocks_tell() {
                        self.processes.iter_mut().for_each(Process::may_have_lost);
                    }
                    return;
                }
                let of = outside.sampler.process_of(event).filter(|of| self.processes.iter().any(|p| p.pid() == *of));
                // Of a process that is measured from inside, others have inherited the event.
                let place = self.place_of(of.unwrap_or(pid), (places, outside));
                if let Some(index) = place.or_else(|| self.place_of(pid, (places, outside))) {
                    let worth = (!outside.sampler.samples().switches).then_some(Worth::Period);
                    self.processes[index].has_lost(&self.shared, count, (None, worth));
                }
            }
            What::Throttled => outside.was_throttled = true,
            What::Other => {}
        }
    }

    /// Enters a sample.
    fn take_from_outside(
        &mut self,
        (outside, places): (&mut Outside, &mut FxHashMap<u32, usize>),
        pid: Pid,
        taken: &Taken<'_>,
    ) {
        let Some(mut index) = self.place_of(pid, (places, outside)) else { return outside.is_not_taken(taken.tid) };
        if self.processes[index].is_other_program(&mut self.shared) {
            // The record of that was lost.
            self.has_executed(pid, String::new(), (places, outside));
            outside.origins.insert(pid.0, Origin::read_late(pid));
            let Some(of_new) = self.place_of(pid, (places, outside)) else { return outside.is_not_taken(taken.tid) };
            index = of_new;
        }
        let took = self.processes[index].take(&mut self.shared, taken);
        outside.note_need(took.as_ref().map_or(Some(0), |took| took.needed), taken.asked_bytes);
        // Of those that leave their processors, no more is copied.
        if taken.worth != Worth::Period {
            return;
        }
        let Some(registers) = taken.registers else {
            // One that is beginning soon has a stack.
            if !self.processes[index].is_beginning(&self.shared) {
                outside.is_not_taken(taken.tid);
            }
            return;
        };
        let Some(Took { needed, is_whole, is_cut, is_awaited }) = took else { return };
        let rsp = registers[Reg::RSP.index()];
        let copied_bytes = taken.stack.len_bytes();
        // A record of copies or two cost next to nothing.
        const LITTLE_BYTES: usize = 32 << 10;
        let much = rsp.saturating_add((copied_bytes + LITTLE_BYTES) as u64);
        let is_beyond = taken.beyond.pages.last().is_some_and(|page| page.start >= much);
        let need = match needed {
            Some(bytes) if bytes <= copied_bytes && is_beyond => Need::Within(bytes),
            Some(bytes) => Need::Bytes(bytes),
            None if taken.beyond.is_most => Need::BeyondAll,
            None if taken.asked_bytes >= StackSamples::MOST_BYTES as usize => Need::Beyond,
            // Records become longer first.
            None => return,
        };
        outside.note_depth((pid, taken.tid), Noted { rsp, need, is_whole, is_cut, is_awaited });
    }

    /// Enters a wait that has ended, or that goes on at the end.
    fn enter_wait(&mut self, of: (&mut Outside, &mut FxHashMap<u32, usize>), wait: &Wait, lasted_ns: u64) {
        let (tid, asked_bytes, stack) = (wait.tid, wait.asked_bytes, wait.stack());
        let (registers, kernel) = (Some(wait.registers), &wait.kernel[..]);
        let (worth, time_ns) = (Worth::Wait(lasted_ns), wait.since_ns);
        let taken = Taken { tid, worth, time_ns, registers, stack, beyond: &DeepCopy::default(), asked_bytes, kernel };
        self.take_from_outside(of, wait.pid, &taken);
    }

    /// A process that has had a sample, or is measured from inside.
    fn met(&mut self, pid: Pid) -> Option<&mut Process> {
        self.processes.iter_mut().find(|process| process.pid() == pid)
    }

    /// Where a process that is sampled from outside is in the list, from now on if it was not. `None`: it is measured from inside,
    /// or there is no room.
    pub(super) fn place_of(
        &mut self,
        pid: Pid,
        (places, outside): (&mut FxHashMap<u32, usize>, &mut Outside),
    ) -> Option<usize> {
        if let Some(index) = places.get(&pid.0) {
            return Some(*index);
        }
        if let Some(index) = self.processes.iter().position(|process| process.pid() == pid) {
            return self.processes[index].is_from_outside().then(|| *places.entry(pid.0).or_insert(index));
        }
        // It waits until it is let in, and is measured from inside then.
        if self.held.iter().any(|held| held.process.pid() == pid) {
            return None;
        }
        let started_ns = self.shared.began.elapsed().as_nanos() as u64;
        let origin = outside.origins.remove(&pid.0).unwrap_or_else(|| Origin::read_late(pid));
        let begun = (self.sequence, started_ns);
        let origin = (origin, outside.sampler.samples().user_only);
        let process = Process::from_outside(&mut self.shared, pid, begun, origin);
        let Some(mut process) = process else {
            self.note(TOO_MANY_PROCESSES);
            return None;
        };
        if outside.sampler.samples().everything {
            process.is_of_all(outside.clocks.remove(&pid.0), outside.clocks_tell());
        }
        if outside.lost > 0 && outside.clocks_tell() {
            process.may_have_lost();
        }
        self.sequence += 1;
        self.processes.push(process);
        places.insert(pid.0, self.processes.len() - 1);
        Some(self.processes.len() - 1)
    }

    /// A process has executed another program, which is a process of its own here.
    fn has_executed(&mut self, pid: Pid, name: String, (places, outside): (&mut FxHashMap<u32, usize>, &mut Outside)) {
        let before = self.processes.iter().position(|process| process.pid() == pid);
        let mut before_ns = 0;
        if let Some(index) = before {
            let before = &self.processes[index];
            // Past the C library, nothing has told.
            let has_left = || {
                let maps = Maps::read(pid).unwrap_or_default();
                before.executes_unseen(&self.shared) && !self.shared.allocator.is_mapped_in(&maps)
            };
            if !before.is_from_outside() && !before.leaves_us(&self.shared) && !has_left() {
                // Our object in the program will tell.
                return;
            }
            let mut process = self.processes.swap_remove(index);
            places.clear();
            before_ns = process.leave_for_outside(&self.shared);
            self.take_leave(process);
        }
        let stack = outside.started.take_if(|(started, _)| *started == pid).map(|(_, stack)| stack);
        let stack = match self.shared.allocator.settings().keeps_heights() {
            true => stack.or_else(|| FirstStack::read(&ProcessHandle::open(pid))),
            false => None,
        };
        outside.origins.insert(pid.0, Origin::executed(pid, name, before_ns).with_stack(stack));
    }
}
