//! What a sample weighs: for each metric, what has run or happened since the thread's last sample that was kept for it.
//! No paths here: a sample weighs the same wherever it was taken.
//!
//! Only samples of a metric's own event take its value, so a clock's time never goes to where another event happened.
//! The weight of a sample that is not kept goes to the metric's next sample, so sums equal the kernel's.

use callpath_format::shared::refused::Calls;
use callpath_format::shared::{ArenaRef, Column, MetricSettings, Metrics, Settings, Source, ThreadRecord};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use crate::clock::{self, Usage};
use crate::process::Process;
use crate::refused;
use crate::sample::{EventOf, Trigger};
use crate::thread::Thread;

#[cfg(test)]
mod tests;

/// A kernel timer's tick is seldom shorter; kernel time of half a tick or more was seen by a tick in the kernel.
const KERNEL_TICK_SEEN_NS: u64 = 900_000;

/// The weight of one sample. Its values are in the thread's columns, so a thread has one weight at a time.
pub(crate) struct Weight<'m> {
    record: &'m ThreadRecord,
    columns: &'m [Column],
    metrics: Metrics<'m>,
    /// The thread's CPU clock, if a metric reads it.
    pub(crate) cpu_now_ns: Option<u64>,
    /// The thread's usage when the sample began, if a metric is read from it.
    pub(crate) usage: Option<Usage>,
    /// The clocks' new values in the record.
    clocks: [Option<u64>; 3],
}

impl<'m> Weight<'m> {
    /// For a sample. `None`: the trigger found nothing to sample.
    pub(crate) fn of_trigger(process: &Process<'m>, thread: Thread<'m>, trigger: Trigger) -> Option<Weight<'m>> {
        let settings = &process.session.settings;
        match trigger {
            Trigger::Kernel(EventOf::Clocks) | Trigger::KernelLate(EventOf::Clocks) => {
                add_pending_period(process, thread.record)
            }
            // Beside the clock, the timer only covers time in the kernel.
            Trigger::Timer if source_of(process) != Source::UserClock => add_pending_period(process, thread.record),
            _ => {}
        }
        let mut weight = Weight::of_nothing(process, thread);
        match trigger {
            Trigger::Kernel(EventOf::Metric(number)) | Trigger::KernelLate(EventOf::Metric(number)) => {
                let meter = process.session.metrics.get(number)?.meter;
                weight.read(|other, its| other == number || (its.period == 0 && happen_together(meter, its.meter)));
                // What the sample before has had already, or what happened inside of it, is not the program's.
                let value = thread.columns.get(number)?.value.load(Relaxed);
                if Settings::is_of_usage(meter) && value == 0 {
                    return None;
                }
            }
            Trigger::Kernel(EventOf::Clocks)
            | Trigger::KernelLate(EventOf::Clocks)
            | Trigger::Timer
            | Trigger::Asked => {
                let user_clock = source_of(process) == Source::UserClock;
                let kernel_ns = weight.read_clocks(process);
                let cpu_time = settings.uses(Settings::CPU_TIME);
                if user_clock && trigger == Trigger::Timer {
                    // The timer's tick is the one that the kernel divides CPU time by.
                    // It is taken only if it hit in the kernel.
                    if kernel_ns < KERNEL_TICK_SEEN_NS && cpu_time {
                        return None;
                    }
                    weight.leave_clock(0);
                } else if user_clock {
                    // The clock saw the thread in user mode: what it ran in the kernel is another sample's.
                    weight.leave_clock(2);
                }
                // Wall time is read at each context switch, which then has no separate event.
                let at_switches = settings.uses(Settings::WALL_TIME);
                weight.read(|_, its| at_switches && its.meter == Settings::CONTEXT_SWITCHES);
            }
            Trigger::Own => {
                weight.read_clocks(process);
                weight.read(|_, _| true);
            }
        }
        Some(weight)
    }

    /// Everything that has not been attributed yet.
    pub(crate) fn of_all(process: &Process<'m>, thread: Thread<'m>) -> Weight<'m> {
        let mut weight = Weight::of_nothing(process, thread);
        weight.read_clocks(process);
        weight.read(|_, _| true);
        weight
    }

    fn of_nothing(process: &Process<'m>, thread: Thread<'m>) -> Weight<'m> {
        let Thread { record, columns, .. } = thread;
        let settings = &process.session.settings;
        let divided = is_divided(process) && settings.uses(Settings::CPU_TIME);
        let usage = (divided || settings.uses_usage()).then(Usage::of_thread);
        let cpu_now_ns = match usage {
            Some(usage) if divided => Some(usage.user_ns + usage.kernel_ns),
            _ => settings.uses(Settings::CPU_TIME).then(|| cpu_ns(record)),
        };
        columns.iter().for_each(|column| column.value.store(0, Relaxed));
        Weight { record, columns, metrics: process.session.metrics, cpu_now_ns, usage, clocks: [None; 3] }
    }

    /// By metric.
    #[inline]
    pub(crate) fn values(&self) -> impl Iterator<Item = u64> + use<'m> {
        self.columns.iter().map(|column| column.value.load(Relaxed))
    }

    /// Each metric's number, what was asked for of it, and its value.
    pub(crate) fn each(&self) -> impl Iterator<Item = (usize, MetricSettings, &'m AtomicU64)> + use<'m> {
        let values = self.columns.iter().map(|column| &column.value);
        values.zip(self.metrics.iter()).enumerate().map(|(number, (value, metric))| (number, metric, value))
    }

    /// Reads the clocks. Returns how much of the CPU time was the kernel's, where that is known.
    fn read_clocks(&mut self, process: &Process<'_>) -> u64 {
        self.clocks = match (self.usage, self.cpu_now_ns) {
            (Some(usage), Some(_)) if is_divided(process) => [Some(usage.user_ns), None, Some(usage.kernel_ns)],
            // What was divided before is kept apart.
            (_, Some(now_ns)) => [Some(now_ns.saturating_sub(self.record.clocks[2].load(Relaxed))), None, None],
            _ => [None; 3],
        };
        if process.session.settings.uses(Settings::WALL_TIME) {
            self.clocks[1] = Some(clock::monotonic_ns());
        }
        self.value_clocks();
        self.kernel_ns()
    }

    /// Of the CPU time, what the kernel has counted as its own; 0 where it is not divided.
    pub(crate) fn kernel_ns(&self) -> u64 {
        self.clock_since(2)
    }

    /// Leaves a clock's old value: its time is another sample's.
    fn leave_clock(&mut self, clock: usize) {
        self.clocks[clock] = None;
        self.value_clocks();
    }

    fn value_clocks(&self) {
        let cpu_ns = self.clock_since(0) + self.clock_since(2);
        let wall_ns = self.clock_since(1);
        for (_, metric, value) in self.each() {
            match metric.meter {
                Settings::CPU_TIME => value.store(cpu_ns, Relaxed),
                Settings::WALL_TIME => value.store(wall_ns, Relaxed),
                _ => {}
            }
        }
    }

    fn clock_since(&self, clock: usize) -> u64 {
        self.clocks[clock].map_or(0, |now| now.saturating_sub(self.record.clocks[clock].load(Relaxed)))
    }

    /// Reads the metrics that are no clocks: those that `has_fired` names, and those whose event must have been lost.
    fn read(&self, has_fired: impl Fn(usize, MetricSettings) -> bool) {
        let usage = self.usage.unwrap_or_default();
        for (number, (column, metric)) in self.columns.iter().zip(self.metrics.iter()).enumerate() {
            let has_fired = has_fired(number, metric);
            let before = column.count.load(Relaxed);
            if metric.meter == Settings::COUNTED {
                if has_fired {
                    column.value.store(before, Relaxed);
                }
            } else if Settings::is_of_usage(metric.meter) {
                let now = usage.reading(metric.meter);
                let since = now.saturating_sub(before);
                // The kernel keeps one SIGTRAP for a thread: of two events at the same moment one is lost.
                let is_due = metric.period > 0 && since >= metric.period;
                if has_fired || is_due {
                    column.value.store(since, Relaxed);
                }
            }
        }
    }

    /// It has been attributed, to a node if it is known already: the next sample's weight begins here.
    pub(crate) fn mark_attributed(&self, node: Option<ArenaRef>) {
        if self.clocks[0].is_some() {
            self.record.unread_ns.store(0, Relaxed);
        }
        for (clock, now) in self.record.clocks.iter().zip(self.clocks) {
            if let Some(now) = now {
                clock.store(now, Relaxed);
            }
        }
        for (column, metric) in self.columns.iter().zip(self.metrics.iter()) {
            let value = column.value.load(Relaxed);
            if value == 0 {
                continue;
            }
            if metric.meter == Settings::COUNTED {
                // The debt may have grown since it was read, so it is subtracted, not cleared.
                column.count.fetch_sub(value, Relaxed);
            } else if Settings::is_of_usage(metric.meter) {
                column.count.store(column.count.load(Relaxed).wrapping_add(value), Relaxed);
            }
            if let Some(node) = node {
                column.last_node.store(node.0, Relaxed);
            }
        }
    }

    /// The node of this sample is not known here: it was kept raw.
    pub(crate) fn forget_nodes(&self) {
        for column in self.columns.iter().filter(|column| column.value.load(Relaxed) > 0) {
            column.last_node.store(0, Relaxed);
        }
    }

    /// Its values are a gap's, and may be less than what was read: the next sample's weight
    /// begins after them, so that sums stay the kernel's.
    pub(crate) fn move_on(&self) {
        let [cpu, wall, kernel] = &self.record.clocks;
        let advance = |clock: &AtomicU64, by: u64| clock.store(clock.load(Relaxed).wrapping_add(by), Relaxed);
        for (column, metric) in self.columns.iter().zip(self.metrics.iter()) {
            let value = column.value.load(Relaxed);
            match metric.meter {
                _ if value == 0 => {}
                Settings::WALL_TIME => advance(wall, value),
                Settings::CPU_TIME => {
                    // Where the clock is divided, the kernel's part is what the first one has not.
                    let of_first = value.min(self.clock_since(0));
                    advance(cpu, of_first);
                    advance(kernel, value - of_first);
                }
                Settings::COUNTED => drop(column.count.fetch_sub(value, Relaxed)),
                _ => advance(&column.count, value),
            }
        }
    }
}

/// Whether a period was given for an event: then each sample is walked, however long that takes. If one were
/// dropped, its weight would go to the wrong place.
pub(crate) fn is_exact(process: &Process<'_>, trigger: Trigger) -> bool {
    metric_of(trigger).and_then(|number| process.session.metrics.get(number)).is_some_and(|metric| metric.period > 0)
}

/// Of a thread that is in our own code: whether the event is what that code did. A page fault there is not sampled.
pub(crate) fn is_of_own_code(process: &Process<'_>, trigger: Trigger) -> bool {
    let metric = metric_of(trigger).and_then(|number| process.session.metrics.get(number));
    metric.is_some_and(|metric| Settings::is_of_usage(metric.meter))
}

fn metric_of(trigger: Trigger) -> Option<usize> {
    match trigger {
        Trigger::Kernel(EventOf::Metric(metric)) | Trigger::KernelLate(EventOf::Metric(metric)) => Some(metric),
        _ => None,
    }
}

/// Adds the event of a counted metric to its pending count, whatever becomes of the sample.
pub(crate) fn add_pending(process: &Process<'_>, thread: Thread<'_>, trigger: Trigger) {
    let Some(number) = metric_of(trigger) else { return };
    if process.session.metrics.get(number).is_none_or(|metric| metric.meter != Settings::COUNTED) {
        return;
    }
    let (Some(column), Some(base)) = (thread.columns.get(number), process.bases.get(number)) else { return };
    // The first thread's event is the one that the recorder holds, and may have changed; other
    // threads have copies of what it was when they began.
    let is_first = thread.record.tid.load(Relaxed) == process.slot.pid.load(Relaxed);
    let period = if is_first { base } else { &column.period };
    column.count.fetch_add(period.load(Relaxed), Relaxed);
}

/// Leaves out the page faults of a sample itself: they are not the program's.
pub(crate) fn leave_out_own(process: &Process<'_>, thread: Thread<'_>, before: Option<Usage>) {
    let Some(before) = before.filter(|_| process.session.settings.uses_usage()) else { return };
    let after = Usage::of_thread();
    for (column, metric) in thread.columns.iter().zip(process.session.metrics.iter()) {
        if matches!(metric.meter, Settings::PAGE_FAULTS | Settings::MINOR_FAULTS | Settings::MAJOR_FAULTS) {
            let own = after.reading(metric.meter).saturating_sub(before.reading(metric.meter));
            column.count.store(column.count.load(Relaxed).wrapping_add(own), Relaxed);
        }
    }
}

/// Whether CPU time is read as user time and kernel time.
fn is_divided(process: &Process<'_>) -> bool {
    source_of(process) == Source::UserClock && !refused::has(Calls::GETRUSAGE)
}

/// The calling thread's CPU time. If no clock can be read: the last
/// known value plus the periods that have passed since.
fn cpu_ns(record: &ThreadRecord) -> u64 {
    let [cpu, _, kernel] = &record.clocks;
    let known_ns = || cpu.load(Relaxed).wrapping_add(kernel.load(Relaxed));
    clock::thread_cpu_ns().unwrap_or_else(|| known_ns().wrapping_add(record.unread_ns.load(Relaxed)))
}

/// If the thread's CPU time cannot be read, a tick of its clock weighs the clock's period.
fn add_pending_period(process: &Process<'_>, record: &ThreadRecord) {
    if refused::has(Calls::CLOCK_GETTIME) && refused::has(Calls::GETRUSAGE) {
        let unread_ns = record.unread_ns.load(Relaxed).wrapping_add(process.session.settings.period_ns);
        record.unread_ns.store(unread_ns, Relaxed);
    }
}

pub(crate) fn source_of(process: &Process<'_>) -> Source {
    Source::from_u32(process.slot.source.load(Relaxed))
}

/// Whether the same page fault is an event of both meters.
fn happen_together(one: u32, other: u32) -> bool {
    let is_kind = |meter| matches!(meter, Settings::MINOR_FAULTS | Settings::MAJOR_FAULTS);
    (one == Settings::PAGE_FAULTS && is_kind(other)) || (is_kind(one) && other == Settings::PAGE_FAULTS)
}
