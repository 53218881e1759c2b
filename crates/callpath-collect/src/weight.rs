//! What a sample weighs: for each metric, what has run or happened since the thread's last sample that was kept for it.
//! Knows nothing of paths.
//!
//! A metric is moved on only by samples of its own event, so a clock's time never goes to where something else happened.
//! What is not kept is left to the metric's next sample, so sums are the kernel's own.

use callpath_format::shared::refused::Calls;
use callpath_format::shared::{ArenaRef, MAX_METRICS, Settings, Source, ThreadRecord};
use core::sync::atomic::Ordering::Relaxed;

use crate::clock::{self, Usage};
use crate::process::Process;
use crate::refused;
use crate::sample::{EventOf, Trigger};

#[cfg(test)]
mod tests;

/// A kernel timer's tick is seldom shorter; kernel time of half a tick or more was seen by a tick in the kernel.
const KERNEL_TICK_SEEN_NS: u64 = 900_000;

/// The weight of one sample.
pub(crate) struct Weight {
    /// By metric.
    pub(crate) values: [u64; MAX_METRICS],
    /// The thread's CPU clock, if a metric reads it.
    pub(crate) cpu_now_ns: Option<u64>,
    /// The thread's usage when the sample began, if a metric is read from it.
    pub(crate) usage: Option<Usage>,
    /// The clocks as they will stand in the record.
    clocks: [Option<u64>; 3],
    /// How many metrics there are.
    metrics: usize,
    /// Bits of the metrics that were read from the thread's usage: their values are since the readings that stand in the record.
    read: u32,
    /// Bits of those that are counted by their events: their values are what the record says that these owe.
    counted: u32,
}

const _: () = assert!(MAX_METRICS <= u32::BITS as usize);

impl Weight {
    /// For a sample. `None`: the trigger found nothing to sample.
    pub(crate) fn of_trigger(process: &Process<'_>, record: &ThreadRecord, trigger: Trigger) -> Option<Weight> {
        let settings = &process.session.settings;
        match trigger {
            Trigger::Kernel(EventOf::Clocks) | Trigger::KernelLate(EventOf::Clocks) => owe_period(process, record),
            // Beside the clock it only looks for time in the kernel.
            Trigger::Timer if source_of(process) != Source::UserClock => owe_period(process, record),
            _ => {}
        }
        let mut weight = Weight::of_nothing(process, record);
        match trigger {
            Trigger::Kernel(EventOf::Metric(metric)) | Trigger::KernelLate(EventOf::Metric(metric)) => {
                let meter = *settings.in_use().get(metric)?;
                weight.read(process, record, |other, its_meter, its_period| {
                    other == metric || (its_period == 0 && happen_together(meter, its_meter))
                });
                // What the sample before has had already, or what happened inside of it, is nothing of the program's.
                if Settings::is_of_usage(meter) && weight.values.get(metric) == Some(&0) {
                    return None;
                }
            }
            Trigger::Kernel(EventOf::Clocks)
            | Trigger::KernelLate(EventOf::Clocks)
            | Trigger::Timer
            | Trigger::Asked => {
                let user_clock = source_of(process) == Source::UserClock;
                let kernel_ns = weight.read_clocks(process, record);
                let cpu_time = settings.uses(Settings::CPU_TIME);
                if user_clock && trigger == Trigger::Timer {
                    // The timer's tick is the one that the kernel divides CPU time by. It is taken only if it hit in the
                    // kernel.
                    if kernel_ns < KERNEL_TICK_SEEN_NS && cpu_time {
                        return None;
                    }
                    weight.leave_clock(record, settings, 0);
                } else if user_clock {
                    // The clock saw the thread in user mode: what it ran in the kernel is another sample's.
                    weight.leave_clock(record, settings, 2);
                }
                // Wall time is read at each context switch, which then has no event of its own.
                let at_switches = settings.uses(Settings::WALL_TIME);
                weight.read(process, record, |_, meter, _| at_switches && meter == Settings::CONTEXT_SWITCHES);
            }
            Trigger::Own => {
                weight.read_clocks(process, record);
                weight.read(process, record, |_, _, _| true);
            }
        }
        Some(weight)
    }

    /// All that has not been attributed yet.
    pub(crate) fn of_all(process: &Process<'_>, record: &ThreadRecord) -> Weight {
        let mut weight = Weight::of_nothing(process, record);
        weight.read_clocks(process, record);
        weight.read(process, record, |_, _, _| true);
        weight
    }

    fn of_nothing(process: &Process<'_>, record: &ThreadRecord) -> Weight {
        let settings = &process.session.settings;
        let divided = is_divided(process) && settings.uses(Settings::CPU_TIME);
        let usage = (divided || settings.uses_usage()).then(Usage::of_thread);
        let cpu_now_ns = match usage {
            Some(usage) if divided => Some(usage.user_ns + usage.kernel_ns),
            _ => settings.uses(Settings::CPU_TIME).then(|| cpu_ns(record)),
        };
        Weight {
            values: [0; MAX_METRICS],
            cpu_now_ns,
            usage,
            clocks: [None; 3],
            metrics: (settings.metric_count as usize).min(MAX_METRICS),
            read: 0,
            counted: 0,
        }
    }

    /// Reads the clocks. Returns how much of the CPU time was the kernel's, where that is known.
    fn read_clocks(&mut self, process: &Process<'_>, record: &ThreadRecord) -> u64 {
        let settings = &process.session.settings;
        self.clocks = match (self.usage, self.cpu_now_ns) {
            (Some(usage), Some(_)) if is_divided(process) => [Some(usage.user_ns), None, Some(usage.kernel_ns)],
            // What was divided before is kept apart.
            (_, Some(now_ns)) => [Some(now_ns.saturating_sub(record.clocks[2].load(Relaxed))), None, None],
            _ => [None; 3],
        };
        if settings.uses(Settings::WALL_TIME) {
            self.clocks[1] = Some(clock::monotonic_ns());
        }
        self.value_clocks(record, settings);
        self.clock_since(record, 2)
    }

    /// Leaves a clock as it stood: its time is another sample's.
    fn leave_clock(&mut self, record: &ThreadRecord, settings: &Settings, clock: usize) {
        self.clocks[clock] = None;
        self.value_clocks(record, settings);
    }

    fn value_clocks(&mut self, record: &ThreadRecord, settings: &Settings) {
        let cpu_ns = self.clock_since(record, 0) + self.clock_since(record, 2);
        let wall_ns = self.clock_since(record, 1);
        for (value, meter) in self.values.iter_mut().zip(settings.in_use()) {
            match *meter {
                Settings::CPU_TIME => *value = cpu_ns,
                Settings::WALL_TIME => *value = wall_ns,
                _ => {}
            }
        }
    }

    pub(crate) fn clock_since(&self, record: &ThreadRecord, clock: usize) -> u64 {
        self.clocks[clock].map_or(0, |now| now.saturating_sub(record.clocks[clock].load(Relaxed)))
    }

    /// Reads the metrics that are no clocks: those that `has_fired` names (number, meter, period), and those
    /// whose event must have been lost.
    fn read(&mut self, process: &Process<'_>, record: &ThreadRecord, has_fired: impl Fn(usize, u32, u64) -> bool) {
        let settings = &process.session.settings;
        let usage = self.usage.unwrap_or_default();
        // By number, below a bound that the compiler knows: no look-up can fail.
        for metric in 0..MAX_METRICS {
            if metric >= settings.metric_count as usize {
                return;
            }
            let (meter, period) = (settings.meters[metric], settings.periods[metric]);
            let has_fired = has_fired(metric, meter, period);
            let before = record.counts[metric].load(Relaxed);
            if meter == Settings::COUNTED {
                if has_fired {
                    self.values[metric] = before;
                    self.counted |= 1 << metric;
                }
            } else if Settings::is_of_usage(meter) {
                let now = usage.reading(meter);
                let since = now.saturating_sub(before);
                // The kernel keeps one SIGTRAP for a thread: of two events at the same moment one is lost.
                let is_due = period > 0 && since >= period;
                if has_fired || is_due {
                    self.values[metric] = since;
                    self.read |= 1 << metric;
                }
            }
        }
    }

    /// It has been attributed, to a node if it is known already: the next sample's weight begins here.
    pub(crate) fn keep(&self, record: &ThreadRecord, node: Option<ArenaRef>) {
        if self.clocks[0].is_some() {
            record.unread_ns.store(0, Relaxed);
        }
        for (clock, now) in record.clocks.iter().zip(self.clocks) {
            if let Some(now) = now {
                clock.store(now, Relaxed);
            }
        }
        let state = record.counts.iter().zip(&record.last_nodes).zip(&self.values);
        for (metric, ((count, last_node), value)) in state.take(self.metrics).enumerate() {
            if *value == 0 {
                continue;
            }
            if self.read & 1 << metric != 0 {
                count.store(count.load(Relaxed).wrapping_add(*value), Relaxed);
            }
            if self.counted & 1 << metric != 0 {
                // The debt may have grown since it was read: it is paid, not cleared.
                count.fetch_sub(*value, Relaxed);
            }
            if let Some(node) = node {
                last_node.store(node.0, Relaxed);
            }
        }
    }
}

impl Weight {
    /// The node of this sample is not known here: it was kept raw.
    pub(crate) fn forget_nodes(&self, record: &ThreadRecord) {
        for (last_node, value) in record.last_nodes.iter().zip(&self.values).take(self.metrics) {
            if *value > 0 {
                last_node.store(0, Relaxed);
            }
        }
    }
}

/// Whether somebody asked for each so-many-th of an event: then each is walked, however long that takes. What was left to
/// the next sample would be at the wrong place.
pub(crate) fn is_exact(process: &Process<'_>, trigger: Trigger) -> bool {
    metric_of(trigger).is_some_and(|metric| process.session.settings.periods.get(metric).is_some_and(|p| *p > 0))
}

/// Of a thread that is in our own code: whether the event is what that code did. A page fault there is no sample.
pub(crate) fn is_of_own_code(process: &Process<'_>, trigger: Trigger) -> bool {
    let meter = metric_of(trigger).and_then(|metric| process.session.settings.in_use().get(metric));
    meter.is_some_and(|meter| Settings::is_of_usage(*meter))
}

fn metric_of(trigger: Trigger) -> Option<usize> {
    match trigger {
        Trigger::Kernel(EventOf::Metric(metric)) | Trigger::KernelLate(EventOf::Metric(metric)) => Some(metric),
        _ => None,
    }
}

/// Notes that a counted metric's event has fired, whatever becomes of the sample.
pub(crate) fn owe(process: &Process<'_>, record: &ThreadRecord, trigger: Trigger) {
    let Some(metric) = metric_of(trigger) else { return };
    if process.session.settings.in_use().get(metric) != Some(&Settings::COUNTED) {
        return;
    }
    // The first thread's event is the one that the recorder holds, and may have changed; other threads have copies of what
    // it was when they began.
    let is_first = record.tid.load(Relaxed) == process.slot.pid.load(Relaxed);
    let periods = if is_first { &process.slot.bases } else { &record.periods };
    if let (Some(count), Some(period)) = (record.counts.get(metric), periods.get(metric)) {
        count.fetch_add(period.load(Relaxed), Relaxed);
    }
}

/// Leaves out the page faults of a sample itself: they are not the program's.
pub(crate) fn leave_out_own(process: &Process<'_>, record: &ThreadRecord, before: Option<Usage>) {
    let settings = &process.session.settings;
    let Some(before) = before.filter(|_| settings.uses_usage()) else { return };
    let after = Usage::of_thread();
    for (count, meter) in record.counts.iter().zip(settings.in_use()) {
        if matches!(*meter, Settings::PAGE_FAULTS | Settings::MINOR_FAULTS | Settings::MAJOR_FAULTS) {
            let own = after.reading(*meter).saturating_sub(before.reading(*meter));
            count.store(count.load(Relaxed).wrapping_add(own), Relaxed);
        }
    }
}

/// Whether CPU time is read as user time and kernel time.
fn is_divided(process: &Process<'_>) -> bool {
    source_of(process) == Source::UserClock && !refused::has(Calls::GETRUSAGE)
}

/// The calling thread's CPU time; where nothing tells it, what was known of it and the periods that have passed since.
fn cpu_ns(record: &ThreadRecord) -> u64 {
    let [cpu, _, kernel] = &record.clocks;
    let known_ns = || cpu.load(Relaxed).wrapping_add(kernel.load(Relaxed));
    clock::thread_cpu_ns().unwrap_or_else(|| known_ns().wrapping_add(record.unread_ns.load(Relaxed)))
}

/// Where the thread's CPU time cannot be read, a tick of its clock stands for the clock's period.
fn owe_period(process: &Process<'_>, record: &ThreadRecord) {
    if refused::has(Calls::CLOCK_GETTIME) && refused::has(Calls::GETRUSAGE) {
        let unread_ns = record.unread_ns.load(Relaxed).wrapping_add(process.session.settings.period_ns);
        record.unread_ns.store(unread_ns, Relaxed);
    }
}

pub(crate) fn source_of(process: &Process<'_>) -> Source {
    Source::from_u32(process.slot.source.load(Relaxed))
}

/// Whether one and the same page fault is an event of both meters.
fn happen_together(one: u32, other: u32) -> bool {
    let is_kind = |meter| matches!(meter, Settings::MINOR_FAULTS | Settings::MAJOR_FAULTS);
    (one == Settings::PAGE_FAULTS && is_kind(other)) || (is_kind(one) && other == Settings::PAGE_FAULTS)
}
