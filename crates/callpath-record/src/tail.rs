//! What has passed in a process after the last samples of its threads, until its end.
//!
//! The process's clock and its event's count give the CPU time, with the kernel's work at the process's end. Up to a
//! sample's period of it belongs to the last context; the rest goes to a gap, since it was never sampled. Where the clock
//! ticks in user mode only, what was in no path at the last sample is the kernel's, and goes to the gap for that. For wall time, a thread that was asked for a sample still waits there, and others have continued since.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use callpath_format::frame::{FrameKey, Gap};
use callpath_format::shared::{ArenaRef, Column, MetricSettings, Settings, Source, ThreadRecord};
use callpath_measurement::{FULL_ROOT, PathTree};
use callpath_target::{ClockEvent, ProcessHandle};

use crate::arena::ArenaAllocator;
use crate::thread::Thread;

/// What a process has run, by the kernel.
#[derive(Default)]
pub(crate) struct Ran {
    /// Of the process's clock, what earlier programs in it have accounted for.
    before_ns: u64,
    /// The process's clock and the event's count at the same moment.
    base: Option<(u64, u64)>,
    /// Another program continues in it, and has the rest.
    is_handed_on: bool,
}

/// The process's clock may run so much ahead of its event's before it must be another program's time, nanoseconds.
const CLOCKS_DIFFER_NS: u64 = 5_000_000;

/// A process's clock lacks what a thread has run since the kernel's last tick, nanoseconds.
const CLOCK_LAGS_NS: u64 = 4_000_000;

impl Ran {
    /// Of a process that waits for us, with one thread, and an event that has just been opened. `inherited_ns`: what of
    /// its thread's time an earlier program has accounted for.
    pub(crate) fn begin(handle: &ProcessHandle, event: Option<&ClockEvent>, inherited_ns: u64) -> Ran {
        let (Some(clock), Some(count)) = (handle.cpu_ns(), event.and_then(ClockEvent::count)) else {
            return Ran::default();
        };
        let before_ns = match inherited_ns {
            0 => 0,
            inherited => clock.saturating_sub(handle.thread_cpu_ns(handle.pid().0).unwrap_or(clock)) + inherited,
        };
        Ran { before_ns, base: Some((clock, count)), is_handed_on: false }
    }

    pub(crate) fn hand_on(&mut self) {
        self.is_handed_on = true;
    }

    /// Looks at both while it runs, often: the event counts time that a virtual machine was denied, too, which adds up.
    pub(crate) fn look(&mut self, handle: &ProcessHandle, event: Option<&ClockEvent>) {
        if let (Some(base), Some(clock), Some(count)) = (self.base, handle.cpu_ns(), event.and_then(ClockEvent::count))
            && clock.saturating_sub(base.0) <= count.saturating_sub(base.1) + CLOCKS_DIFFER_NS
        {
            let by_count = base.0.saturating_add(count.saturating_sub(base.1));
            self.base = Some((by_count.clamp(clock, clock.saturating_add(CLOCK_LAGS_NS)), count));
        }
    }

    /// All that its samples should come to, once it has ended. `None`: the kernel does not report it.
    fn at_end_ns(&self, event: Option<&ClockEvent>) -> Option<u64> {
        let (clock, count_then) = self.base.filter(|_| !self.is_handed_on)?;
        let since = event.and_then(ClockEvent::count)?.saturating_sub(count_then);
        Some((clock + since).saturating_sub(self.before_ns))
    }
}

/// The state of a thread when its process ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parting {
    /// By the monotonic clock, when its last sample ended.
    seen_ns: u64,
    /// What it had run then that is in no path; `None`: not known, no sample of it was kept.
    pending_ns: Option<u64>,
    /// It has attributed the rest itself.
    is_over: bool,
    /// It waited where it was seen last.
    waits: bool,
    /// Its wall clock at the last sample, 0: none is kept.
    wall_ns: u64,
    /// By metric, the node of its last sample.
    nodes: Vec<u32>,
}

impl Parting {
    /// Of a thread whose tree has been followed to its end. `time_ns`: of the time
    /// stamp counter's ticks, by the monotonic clock.
    pub(crate) fn of(thread: &Thread, allocator: &ArenaAllocator, time_ns: impl Fn(u64) -> u64) -> Parting {
        let (Some(record), Some(columns)) = (thread.record(allocator), thread.columns(allocator)) else {
            return Parting::default();
        };
        let last = |at: u32| thread.copy.index(ArenaRef(at)).unwrap_or(FULL_ROOT);
        let node = |column: &Column| match (column.last_node.load(Relaxed), thread.raw_last) {
            (0, Some(raw)) => raw,
            (0, None) => last(record.last_node.load(Relaxed)),
            (at, _) => last(at),
        };
        let [cpu, wall, kernel] = record.clocks.each_ref().map(|clock| clock.load(Relaxed));
        let kept = [&record.full, &record.partial, &record.raw].iter().any(|count| count.load(Relaxed) > 0);
        Parting {
            seen_ns: time_ns(record.last_end.load(Relaxed)),
            pending_ns: kept.then(|| record.seen_cpu_ns.load(Relaxed).saturating_sub(cpu.saturating_add(kernel))),
            is_over: record.state.load(Acquire) == ThreadRecord::EXITED || record.tid.load(Relaxed) == 0,
            waits: record.asked.load(Relaxed) != 0,
            wall_ns: wall,
            nodes: columns.iter().map(node).collect(),
        }
    }
}

impl Parting {
    /// The node of its last sample for a metric, where time belongs that passed since, if it is not more than usual.
    fn node(&self, metric: usize) -> Option<u32> {
        self.nodes.get(metric).copied()
    }

    /// Where it belongs otherwise.
    fn gap(&self) -> Gap {
        if self.pending_ns.is_some() { Gap::AfterLastSample } else { Gap::NeverSampled }
    }
}

/// A process at its end.
pub(crate) struct AtEnd<'a> {
    pub(crate) metrics: &'a [MetricSettings],
    /// Nanoseconds between two samples of a thread by a clock.
    pub(crate) period_ns: u64,
    pub(crate) source: Source,
    pub(crate) ran: &'a Ran,
    pub(crate) event: Option<&'a ClockEvent>,
    /// By the monotonic clock.
    pub(crate) ended_ns: u64,
    /// How many threads it has had.
    pub(crate) threads_ever: u64,
    /// CPU time in all trees, those of threads that have ended before included.
    pub(crate) accounted_ns: u64,
    /// Some of its threads had no record, as there was no memory for one: their samples were lost.
    pub(crate) had_no_room: bool,
}

impl AtEnd<'_> {
    /// Gives each of its last threads what has passed since its last sample.
    pub(crate) fn credit(&self, threads: &mut [(Parting, &mut PathTree)]) {
        let metric_of = |meter| self.metrics.iter().position(|metric| metric.meter == meter);
        if let Some(metric) = metric_of(Settings::WALL_TIME) {
            for (parting, tree) in threads.iter_mut().filter(|(p, _)| !p.is_over && p.wall_ns > 0) {
                let passed_ns = self.ended_ns.saturating_sub(parting.wall_ns);
                let sampled = parting.waits || self.source == Source::WallTimer;
                let most_ns = if sampled { u64::MAX } else { self.usual_ns() };
                let last = parting.node(metric).filter(|_| passed_ns <= most_ns);
                let node = last.unwrap_or_else(|| tree.child(FULL_ROOT, FrameKey::gap(parting.gap())));
                add(tree, node, metric, passed_ns);
            }
        }
        if let Some(metric) = metric_of(Settings::CPU_TIME)
            && let Some(all_ns) = self.ran.at_end_ns(self.event)
        {
            let most_ns = self.most_ns(threads.iter().map(|(parting, _)| parting));
            let mut rest_ns = all_ns.saturating_sub(self.accounted_ns).min(most_ns);
            if self.source == Source::UserClock && !self.had_no_room {
                rest_ns -= self.leave_kernels(metric, threads, rest_ns);
            }
            let running = threads.iter().filter(|(parting, _)| !parting.is_over).count().max(1) as u64;
            // The thread that ran it is unknown: the one that was seen running last is taken.
            let last = threads.iter_mut().max_by_key(|(parting, _)| (!parting.is_over, parting.seen_ns));
            if let Some((parting, tree)) = last {
                let most_ns = running.saturating_mul(self.usual_ns());
                let last = parting.node(metric).filter(|_| rest_ns <= most_ns);
                let gap = if self.had_no_room { Gap::NoRoom } else { parting.gap() };
                let node = last.unwrap_or_else(|| tree.child(FULL_ROOT, FrameKey::gap(gap)));
                add(tree, node, metric, rest_ns);
            }
        }
    }

    /// Gives what the kernel had counted as its own at each thread's last sample, where no tick showed it, to a gap.
    /// At most `rest_ns`; returns how much it was.
    fn leave_kernels(&self, metric: usize, threads: &mut [(Parting, &mut PathTree)], rest_ns: u64) -> u64 {
        let mut left_ns = rest_ns;
        for (parting, tree) in threads.iter_mut().filter(|(parting, _)| !parting.is_over) {
            let kernel_ns = parting.pending_ns.unwrap_or(0).min(left_ns);
            if kernel_ns >= self.usual_ns() {
                let gap = tree.child(FULL_ROOT, FrameKey::gap(Gap::InKernel));
                add(tree, gap, metric, kernel_ns);
                left_ns -= kernel_ns;
            }
        }
        rest_ns - left_ns
    }

    /// Threads cannot have run for longer than time has passed since they were seen: the event counts time that a
    /// virtual machine was denied, and is compared with the process's clock only now and then.
    fn most_ns<'p>(&self, partings: impl Iterator<Item = &'p Parting>) -> u64 {
        let (of_running, running) =
            partings.filter(|parting| !parting.is_over).fold((0, 0), |(sum, count), parting| {
                let since_ns = self.ended_ns.saturating_sub(parting.seen_ns);
                let most = parting.pending_ns.map_or(u64::MAX, |pending| pending.saturating_add(since_ns));
                (most.saturating_add(sum), count + 1)
            });
        // The others have accounted for all but their ends in the kernel.
        of_running.saturating_add(self.threads_ever.saturating_sub(running).saturating_mul(self.usual_ns()))
    }

    /// As much of a thread's time may be without a sample.
    fn usual_ns(&self) -> u64 {
        self.period_ns.saturating_mul(2)
    }
}

fn add(tree: &mut PathTree, node: u32, metric: usize, value: u64) {
    if value == 0 {
        return;
    }
    let mut values = vec![0; metric + 1];
    values[metric] = value;
    tree.add(node, 0, &values);
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: FrameKey = FrameKey(7);

    fn at_end(ran: &Ran, meter: u32, accounted_ns: u64) -> AtEnd<'_> {
        AtEnd {
            metrics: Box::leak(Box::new([MetricSettings { meter, period: 0 }])),
            period_ns: 1_000_000,
            source: Source::Clock,
            ran,
            event: None,
            ended_ns: 50_000_000,
            threads_ever: 3,
            accounted_ns,
            had_no_room: false,
        }
    }

    fn credited(meter: u32, parting: Parting) -> (u64, u64) {
        let mut tree = PathTree::default();
        let node = tree.child(FULL_ROOT, KEY);
        let parting = Parting { nodes: vec![node], ..parting };
        at_end(&Ran::default(), meter, 0).credit(&mut [(parting, &mut tree)]);
        let gap = tree.nodes().iter().position(|n| n.key == FrameKey::gap(Gap::AfterLastSample));
        let value = |node| tree.values(node as u32).next().map_or(0, |(_, value)| value);
        (value(node as usize), gap.map_or(0, value))
    }

    #[test]
    fn no_thread_ran_for_longer_than_time_has_passed() {
        let most = |partings: &[Parting]| at_end(&Ran::default(), Settings::CPU_TIME, 0).most_ns(partings.iter());
        let seen = Parting { seen_ns: 47_000_000, pending_ns: Some(400_000), ..Parting::default() };
        let over = Parting { is_over: true, ..seen.clone() };
        assert_eq!(most(std::slice::from_ref(&seen)), 3_400_000 + 2 * 2_000_000);
        assert_eq!(most(&[seen.clone(), over, seen.clone()]), 8_800_000);
        assert_eq!(most(&[seen.clone(), Parting { pending_ns: None, ..seen }]), u64::MAX);
    }

    #[test]
    fn what_the_kernel_counted_as_its_own_is_its() {
        let mut tree = PathTree::default();
        let node = tree.child(FULL_ROOT, KEY);
        let parting = |pending_ns, is_over| Parting { pending_ns, is_over, nodes: vec![node], ..Parting::default() };
        let ran = Ran::default();
        let left = |parting: Parting, rest_ns| {
            let mut tree = PathTree::default();
            let given = at_end(&ran, Settings::CPU_TIME, 0).leave_kernels(0, &mut [(parting, &mut tree)], rest_ns);
            let gap = tree.nodes().iter().position(|n| n.key == FrameKey::gap(Gap::InKernel));
            let value = gap.and_then(|gap| tree.values(gap as u32).next()).map_or(0, |(_, value)| value);
            assert_eq!(given, value);
            given
        };
        assert_eq!(left(parting(Some(40_000_000), false), 42_000_000), 40_000_000);
        assert_eq!(left(parting(Some(40_000_000), false), 30_000_000), 30_000_000);
        assert_eq!(left(parting(Some(1_900_000), false), 42_000_000), 0);
        assert_eq!(left(parting(Some(40_000_000), true), 42_000_000), 0);
        assert_eq!(left(parting(None, false), 42_000_000), 0);
    }

    #[test]
    fn time_that_passed_is_where_the_thread_is_known_to_wait() {
        let parting = |wall_ns, waits| Parting { wall_ns, waits, pending_ns: Some(0), ..Parting::default() };
        assert_eq!(credited(Settings::WALL_TIME, parting(10_000_000, true)), (40_000_000, 0));
        assert_eq!(credited(Settings::WALL_TIME, parting(10_000_000, false)), (0, 40_000_000));
        assert_eq!(credited(Settings::WALL_TIME, parting(49_000_000, false)), (1_000_000, 0));
        assert_eq!(credited(Settings::WALL_TIME, Parting { is_over: true, ..parting(10_000_000, true) }), (0, 0));
        assert_eq!(credited(Settings::WALL_TIME, parting(0, true)), (0, 0));
        // It is unknown what has run.
        assert_eq!(credited(Settings::CPU_TIME, parting(10_000_000, true)), (0, 0));
    }
}
