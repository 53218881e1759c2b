//! The rings that the kernel writes samples from outside into, and how long their copies of stacks are.

mod depths;
mod loading;
mod poller;
mod waits;

use std::io;
use std::time::{Duration, Instant};

use callpath_format::register::Reg;
use callpath_target::{
    ControlGroup, DeepCopies, DeepCopy, EventSpec, Every, Hurried, PerfEvent, Pid, ProcessHandle, SampledFrom,
    StackCopy, StackSampler, StackSamples,
};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::process::{FirstStack, Origin};
use crate::program::Doorbell;
use crate::time_base::own_cpu_ns;
use depths::{Depths, UpTo};
pub(crate) use depths::{Need, Noted};
pub(crate) use loading::Loading;
use poller::Poller;
pub(crate) use waits::{Wait, Waits};

/// The lengths of copies of stacks, from the shortest, bytes: most stacks are shallow, and what is copied costs time. The first ones reach
/// over a few frames, and are for samples that are not walked.
const COPIES_BYTES: [u32; 7] = [512, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, StackSamples::MOST_BYTES];

/// How long copies are at first where all switches of a machine are recorded.
const FIRST_OF_SWITCHES_BYTES: u32 = 8 << 10;

/// Who waits is looked at again after a loss, but not more often than this.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// In the beginning, and where stacks are deep, rings are looked at so often: how long copies must be is seen soon, and deep stacks fill rings.
const LOOK_SOON: Duration = Duration::from_millis(15);
const LOOK_AT_ONCE: Duration = Duration::from_millis(4);
/// The beginning of a process and of a thread, of whose stack some pages may not be in memory.
const AT_FIRST: Duration = Duration::from_millis(200);
const AT_FIRST_OF_THREAD: Duration = Duration::from_millis(60);
/// For so long of a process's beginning, rings are looked at even sooner.
const VERY_FIRST: Duration = Duration::from_millis(60);

/// The serving thread hurries from when a ring is so full, and until all are emptier than that, per cent.
const HURRY_AT: u64 = 50;
const CALM_BELOW: u64 = 10;

/// Up to so many bytes above the stack pointer, the stack of a thread that was not seen yet is copied: a record ends at the first page that is
/// not in memory.
const NEW_BYTES: u32 = 160 << 10;

/// The first that is for stacks that are walked.
const FOR_WALKS: usize = 2;

/// After this many samples, copies are shortened to what these needed.
const ENOUGH: u32 = 500;

/// The rings, and what is known of the processes whose records they hold.
pub(crate) struct Outside {
    // The first to go: its thread looks at the rings.
    _poller: Poller,
    pub(crate) sampler: StackSampler,
    /// Samples since copies were made as long as they are; what the longest walk among them has needed of one, bytes; and how many
    /// were too short.
    samples: u32,
    needed_bytes: usize,
    too_short: u32,
    /// How long copies may be.
    copies_bytes: &'static [u32],
    /// Threads that wait.
    pub(crate) waits: Waits,
    /// The kernel took no samples for a while.
    pub(crate) was_throttled: bool,
    /// Records were lost.
    pub(crate) has_lost: bool,
    /// Stacks are walked, and copies of them may have to be longer soon.
    walks: bool,
    /// While the rings fill faster than they are read.
    hurried: Option<Hurried>,
    /// Records were lost, and nobody has looked since who waits; and some were lost since it was looked last whether they were.
    waits_are_lost: bool,
    loses: bool,
    /// When it was looked last.
    looked: Option<Instant>,
    /// Samples whose stack goes on beyond the longest copy.
    pub(crate) beyond: u64,
    /// Whose stacks are copied beyond that.
    depths: Depths,
    /// Those that are to be once that has begun, and what they need.
    wants_deep: FxHashMap<u32, (Pid, Noted)>,
    /// The loading of the program that copies them, in progress or over; `None`: no stack was deep yet.
    deep: Option<Loading>,
    /// A thread's events are to be replaced, so that its samples are copied beyond their records.
    replaces_events: bool,
    /// Until then a process or a thread counts as new, and rings are read sooner.
    begins_until: Instant,
    /// The stack of the program that a recording has started, if heights are kept, until the record of that is read.
    pub(crate) started: Option<(Pid, FirstStack)>,
    /// What is known of processes without a sample.
    pub(crate) origins: FxHashMap<u32, Origin>,
    /// Where all is sampled: how many samples were lost; and of processes without a sample, the CPU time that they had used when it began,
    /// nanoseconds.
    pub(crate) lost: u64,
    pub(crate) clocks: FxHashMap<u32, u64>,
    /// How many samples of callpath itself there were, and what it had used when it began, nanoseconds.
    pub(crate) own: u64,
    pub(crate) own_begun_ns: u64,
    /// Processes whose events were reopened before callpath read the record that the kernel took the first ones away.
    pub(crate) begun_again: FxHashSet<u32>,
    /// Of `origins`, processes whose first thread has ended; the others' last records are read by the next time.
    pub(crate) leaving: Vec<u32>,
}

impl Outside {
    /// Rings for samples at this period. `user_only`: see [`StackSamples`]. `innermost_only`: of each, the innermost frame is asked for, and
    /// its CFA.
    pub(crate) fn new(samples: StackSamples, innermost_only: bool, doorbell: Doorbell) -> io::Result<Outside> {
        let copies_bytes = &COPIES_BYTES[if innermost_only { 0 } else { FOR_WALKS }..];
        let stack_bytes = match () {
            () if innermost_only => COPIES_BYTES[0],
            // A record is as long as was asked for, however long the copy is, and there is one of each switch.
            () if samples.everything && samples.switches => FIRST_OF_SWITCHES_BYTES,
            () => StackSamples::MOST_BYTES,
        };
        let sampler = StackSampler::new(StackSamples { stack_bytes, ..samples })?;
        // On a whole machine, threads begin all the time.
        let _poller = Poller::start(&sampler.rings(), doorbell, !samples.everything);
        Ok(Outside {
            _poller,
            sampler,
            samples: 0,
            needed_bytes: 0,
            too_short: 0,
            copies_bytes,
            waits: Waits::default(),
            was_throttled: false,
            has_lost: false,
            walks: !innermost_only,
            hurried: None,
            waits_are_lost: false,
            loses: false,
            looked: None,
            beyond: 0,
            depths: Depths::default(),
            wants_deep: FxHashMap::default(),
            deep: None,
            replaces_events: false,
            begins_until: Instant::now() + AT_FIRST,
            started: None,
            origins: FxHashMap::default(),
            lost: 0,
            clocks: FxHashMap::default(),
            own: 0,
            own_begun_ns: own_cpu_ns(),
            begun_again: FxHashSet::default(),
            leaving: Vec::new(),
        })
    }

    /// Samples a process from now on.
    pub(crate) fn begin(&mut self, pid: Pid) -> io::Result<()> {
        self.begins_until = Instant::now() + AT_FIRST;
        self.sampler.begin(pid)
    }

    /// Has deep stacks copied from the beginning on, and threads watched that have none yet: they may soon have some. Otherwise, it is begun
    /// when one is seen.
    pub(crate) fn expect_deep(&mut self, loading: Loading) {
        self.depths.watch();
        self.deep.get_or_insert(loading);
    }

    /// Begins to copy deep stacks if that has been loaded, and waits for that, for so long at most. Nothing has been sampled yet if there is
    /// time to wait.
    pub(crate) fn begin_deep(&mut self, at_most: Duration) {
        if let Some(deep) = self.deep.as_mut().and_then(|loading| loading.take(at_most)) {
            self.sampler.begin_deep(deep);
            let bytes = if self.depths.copies_new() { NEW_BYTES } else { 0 };
            self.sampler.deep.iter_mut().for_each(|deep| deep.copy_of_new(bytes));
        }
        if !at_most.is_zero() {
            self.begins_until = Instant::now() + AT_FIRST;
        }
    }

    /// Samples a thread from when it executes a program.
    pub(crate) fn begin_at_exec(&mut self, tid: u32, from: SampledFrom) -> io::Result<()> {
        self.sampler.begin_at_exec(tid, from)
    }

    /// Samples everything from now on, or all of a control group.
    pub(crate) fn begin_everywhere(&mut self, group: Option<ControlGroup>) -> io::Result<()> {
        // What they have mapped already is in no record.
        group.into_iter().for_each(|group| self.sampler.within(group));
        let processes = self.sampler.everywhere().unwrap_or_default();
        self.sampler.begin_everywhere()?;
        processes.iter().for_each(|pid| self.sampler.ran_before(*pid));
        self.own_begun_ns = own_cpu_ns();
        let clock_of = |pid: &Pid| Some((pid.0, ProcessHandle::open(*pid).cpu_ns()?));
        if self.clocks_tell() {
            self.clocks = processes.iter().filter_map(clock_of).collect();
        }
        self.origins = processes.into_iter().map(|pid| (pid.0, Origin::read(pid))).collect();
        Ok(())
    }

    /// Whether a process's CPU time is what its samples should come to: in a control group, it may be for a while alone.
    pub(crate) fn clocks_tell(&self) -> bool {
        self.sampler.samples().everything && !self.sampler.is_within_group()
    }

    /// Records were lost: nobody knows who waits until it is looked at.
    pub(crate) fn lose(&mut self) {
        self.has_lost = true;
        // Their ends may be among it.
        let has_ended = |tid: &u32| !std::path::Path::new(&format!("/proc/{tid}")).exists();
        let copied = self.sampler.deep.iter().flat_map(DeepCopies::threads);
        let ended: Vec<u32> = self.depths.threads().chain(copied).filter(has_ended).collect();
        ended.into_iter().for_each(|tid| self.is_not_deep(tid));
        (self.waits_are_lost, self.loses) = (true, true);
        self.waits.forget_all();
    }

    /// Whether it is time to look who waits of those whose waits began in no record: records were lost, and no more are. To look takes
    /// time, in which more may be.
    pub(crate) fn shall_look_for_waits(&mut self) -> bool {
        let is_lost = !std::mem::take(&mut self.loses) && self.waits_are_lost && self.sampler.samples().switches;
        is_lost && self.looked.is_none_or(|looked| looked.elapsed() >= LOOK_AGAIN_AFTER)
    }

    /// The serving thread comes before others, where this user may ask for that, as long as it finds rings half full, and where all is sampled:
    /// among many threads that run, it would come too late to read them. `filled`: the greatest part of a ring that was full, per cent.
    pub(crate) fn keep_up(&mut self, filled: u64) {
        match filled {
            _ if self.sampler.samples().everything => drop(self.hurried.get_or_insert_with(Hurried::new)),
            HURRY_AT.. => drop(self.hurried.get_or_insert_with(Hurried::new)),
            ..CALM_BELOW => self.hurried = None,
            _ => {}
        }
    }

    /// Has all looked at whose waits began in no record: some go on only when the recording has ended. `met`: the processes that have had
    /// a sample.
    pub(crate) fn find_lost_waits(&mut self, met: FxHashSet<Pid>) {
        self.waits_are_lost = false;
        self.looked = Some(Instant::now());
        let of_chosen = || met.into_iter().chain(self.origins.keys().copied().map(Pid)).collect();
        let processes = self.sampler.everywhere().unwrap_or_else(of_chosen);
        processes.into_iter().for_each(|pid| self.sampler.ran_unseen(pid));
    }

    /// Looks which threads wait that may have begun before their records, for so long at most.
    pub(crate) fn look_for_waits(&mut self, at_most: Duration) {
        let begun = Instant::now();
        while begun.elapsed() < at_most
            && let Some(unseen) = self.sampler.take_unseen()
        {
            self.waits.look_at(unseen);
        }
    }

    /// Takes note of a sample: what its walk has needed of the copy, bytes; `None`: the copy was too short.
    /// `asked_bytes`: how long it was to be.
    pub(crate) fn note_need(&mut self, needed: Option<usize>, asked_bytes: usize) {
        self.samples += 1;
        self.beyond += u64::from(needed.is_none() && asked_bytes >= StackSamples::MOST_BYTES as usize);
        match needed {
            Some(bytes) => self.needed_bytes = self.needed_bytes.max(bytes),
            None => self.too_short += 1,
        }
    }

    /// The same of a thread whose stack is copied beyond its record where it is deep.
    pub(crate) fn note_depth(&mut self, of: (Pid, u32), noted: Noted) {
        let need = noted.need;
        if self.sampler.deep.is_none() {
            if need.is_deep() && self.deep.is_none() {
                self.deep = Some(Loading::start());
            }
            if need.is_deep() && self.deep.as_ref().is_some_and(Loading::goes_on) {
                let (_, wanted) = self.wants_deep.entry(of.1).or_insert((of.0, noted));
                // What was too short counts.
                *wanted = Noted { need: if wanted.need == Need::Beyond { Need::Beyond } else { need }, ..noted };
            }
            return;
        }
        // Events are replaced only if they must be: for a while there are twice as many.
        self.replaces_events |= need == Need::Beyond && self.sampler.lacks_deep(of.1);
        let change = self.depths.note(of.1, noted);
        let Some(deep) = &mut self.sampler.deep else { return };
        deep.copy_of_new(if self.depths.copies_new() && deep.has_room() { NEW_BYTES } else { 0 });
        match change {
            None => {}
            Some(UpTo::End) => deep.want(of, noted.rsp),
            Some(UpTo::EndIfNear) => deep.want_if_near(of, noted.rsp),
            Some(UpTo::Address(address, from)) => deep.want_up_to(of.1, address, from),
            Some(UpTo::Nothing) => deep.stop(of.1),
        }
    }

    /// No sample of a thread is walked.
    pub(crate) fn is_not_taken(&mut self, tid: u32) {
        if self.depths.copies_new() {
            self.sampler.deep.iter_mut().for_each(|deep| deep.stop_if_new(tid));
        }
    }

    /// A thread has begun.
    pub(crate) fn has_begun_thread(&mut self) {
        if !self.sampler.samples().everything {
            self.begins_until = self.begins_until.max(Instant::now() + AT_FIRST_OF_THREAD);
        }
    }

    /// A thread has ended.
    pub(crate) fn has_ended(&mut self, tid: u32) {
        self.sampler.has_ended(tid);
        self.is_not_deep(tid);
    }

    /// A thread has ended, or has another stack: it has executed another program.
    pub(crate) fn is_not_deep(&mut self, tid: u32) {
        self.depths.forget(tid);
        self.wants_deep.remove(&tid);
        self.sampler.deep.iter_mut().for_each(|deep| deep.forget(tid));
    }

    /// Reads what was copied beyond the records' copies: once the records are known that are entered next.
    pub(crate) fn read_deep(&mut self) {
        self.sampler.deep.iter_mut().for_each(DeepCopies::read);
    }

    /// All records up to this time were entered.
    pub(crate) fn forget_deep(&mut self, before_ns: u64) {
        self.sampler.deep.iter_mut().for_each(|deep| deep.forget_before(before_ns));
    }

    /// What was copied of a sample beyond its record's copy, by address.
    pub(crate) fn deep_of(
        &mut self,
        tid: u32,
        (registers, stack): (Option<[u64; 17]>, StackCopy<'_>),
        time_ns: u64,
    ) -> DeepCopy {
        let mut taken = |rsp: u64| self.sampler.deep.as_mut()?.take(tid, (rsp, stack), time_ns);
        registers.and_then(|registers| taken(registers[Reg::RSP.index()])).unwrap_or_default()
    }

    /// Whether there is something to do at once.
    pub(crate) fn is_pressing(&self) -> bool {
        self.sampler.waiting() > 0 || self.sampler.has_unseen()
    }

    /// How long to wait before rings are looked at again, if that is sooner than for anything else.
    pub(crate) fn look_every(&self) -> Option<Duration> {
        let is_loading = self.deep.as_ref().is_some_and(Loading::goes_on);
        let is_deep = self.sampler.deep.as_ref().is_some_and(DeepCopies::is_used);
        let begins = self.begins_until.saturating_duration_since(Instant::now());
        let left = if self.walks { begins } else { Duration::ZERO };
        if left > AT_FIRST - VERY_FIRST {
            return Some(LOOK_AT_ONCE);
        }
        (is_loading || is_deep || !left.is_zero()).then_some(LOOK_SOON)
    }

    /// Copies more of stacks from now on, if copies were too short, or less, if less is enough.
    pub(crate) fn fit_copies(&mut self, pids: impl Iterator<Item = Pid>) {
        let now = self.sampler.samples().stack_bytes;
        self.begin_deep(Duration::ZERO);
        if self.deep.as_ref().is_some_and(|deep| !deep.goes_on()) {
            for (tid, (pid, noted)) in std::mem::take(&mut self.wants_deep) {
                if self.sampler.deep.is_some() {
                    self.note_depth((pid, tid), noted);
                }
            }
        }
        if std::mem::take(&mut self.replaces_events) {
            return self.sampler.copy(now, pids);
        }
        self.sampler.fit_deep();
        if self.sampler.has_many_starters() {
            return self.sampler.copy(now, pids);
        }
        let is_longer = self.too_short > 0;
        if !is_longer && self.sampler.is_settling() {
            return;
        }
        if self.sampler.waiting() > 0 || (!is_longer && self.samples < ENOUGH) {
            return;
        }
        // What is enough now may not be later: half as much again.
        let enough = |bytes: &u32| if is_longer { *bytes > now } else { *bytes as usize >= self.needed_bytes * 3 / 2 };
        let fitting = self.copies_bytes.iter().copied().find(enough).unwrap_or(StackSamples::MOST_BYTES);
        let is_other = fitting > now || (fitting < now && !is_longer);
        (self.samples, self.needed_bytes, self.too_short) = (0, 0, 0);
        if is_other {
            self.sampler.copy(fitting, pids);
        }
    }
}

/// For the user.
pub(crate) const USER_ONLY: &str = "the kernel lets this user sample user mode only (kernel.perf_event_paranoid is 2 or more): time in system calls is not in \
                         the call paths; with `sysctl kernel.perf_event_paranoid=1`, or as root, it is";

/// Whether the kernel refuses samples that hit in it to this user.
pub(crate) fn sees_user_mode_only() -> bool {
    const SOFTWARE: u32 = 1;
    const CPU_CLOCK: u64 = 0;
    let spec = EventSpec { every: Every::Period(1_000_000), ..EventSpec::new(SOFTWARE, CPU_CLOCK) };
    PerfEvent::try_out(&spec).is_err()
}

/// Samples of programs that a recording starts, and of all that these start.
pub(crate) fn of_started(period_ns: u64, user_only: bool, switches: bool) -> StackSamples {
    StackSamples {
        period_ns,
        user_only,
        stack_bytes: 0,
        with_children: true,
        everything: false,
        switches,
        kernel: false,
    }
}
