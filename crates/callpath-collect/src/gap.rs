//! Time in which no sample could come, since the thread had blocked the signal by a direct system call, or since the
//! process had not begun. It is shown in a separate scope, not at the sample that comes when samples can, which is elsewhere.
//!
//! While SIGTRAP is blocked the kernel keeps one sample and gives it late. The last sample, kept or not, shows that
//! samples could come: if several periods have passed since, the signal was blocked. Time of samples that were dropped
//! (throttled, say) is not: they came, and it is the next kept one's.

use callpath_format::frame::{FrameKey, Gap};
use callpath_format::shared::{ArenaRef, Settings, Source, ThreadRecord};
use core::sync::atomic::Ordering::Relaxed;

use crate::clock::{self, Usage};
use crate::process::Process;
use crate::sample::{EventOf, Trigger};
use crate::thread::Thread;
use crate::tree::Tree;
use crate::weight::{self, Weight};

/// Fewer periods without a sample are no gap: one that comes late leaves its period to the next one.
const LEAST_PERIODS: u64 = 2;

/// A thread's timer fires at the kernel's ticks only, which are 10 ms apart at most, and a virtual machine may be
/// stopped for some of them: in so much time in user mode without one it was blocked.
const TIMERS_SILENCE_NS: u64 = 200_000_000;

/// A signal that waited for the end of our own handler comes within this part of a millisecond after it.
const BEHIND_HANDLER_PER_MS: u64 = 20;

/// Checks whether a sample shows that none could come before it, and adds a gap then.
pub(crate) fn find(process: &Process<'_>, thread: Thread<'_>, trigger: Trigger, begin: u64) {
    match trigger {
        Trigger::KernelLate(EventOf::Metric(metric)) => leave(process, thread, begin, Some(metric)),
        Trigger::KernelLate(EventOf::Clocks) => leave(process, thread, begin, None),
        Trigger::Timer if weight::source_of(process) != Source::Clock => {
            let user_ns = Usage::of_thread().user_ns;
            let silent_ns = user_ns.saturating_sub(thread.record.seen_user_ns.swap(user_ns, Relaxed));
            if silent_ns >= TIMERS_SILENCE_NS.max(8 * process.session.settings.period_ns) {
                leave(process, thread, begin, None);
            }
        }
        _ => {}
    }
}

/// Notes that samples can come: one has, and its handler has run since this time of the CPU clock.
pub(crate) fn could_come(process: &Process<'_>, record: &ThreadRecord, cpu_begin_ns: u64, spent_ticks: u64) {
    let spent_ns = ticks_to_ns(process, spent_ticks);
    record.seen_cpu_ns.store(cpu_begin_ns.saturating_add(spent_ns), Relaxed);
}

/// Gives what has passed since the last sample to the gap: of clocks whole periods, of what the thread
/// reads all that no sample has had, if some clock missed samples or `late` is its event; of what is
/// counted by its event, the pending count of `late`.
pub(crate) fn leave(process: &Process<'_>, thread: Thread<'_>, now_ticks: u64, late: Option<usize>) {
    let (settings, record) = (&process.session.settings, thread.record);
    let since_ticks = now_ticks.saturating_sub(record.last_end.load(Relaxed));
    if since_ticks < settings.ticks_per_ms / BEHIND_HANDLER_PER_MS {
        return;
    }
    let weight = Weight::of_all(process, thread);
    let silent_ns = weight.cpu_now_ns.map_or(0, |now| now.saturating_sub(record.seen_cpu_ns.load(Relaxed)));
    let missed = |since: u64, at_most_ns: u64| {
        let periods = since.min(at_most_ns) / settings.period_ns.max(1);
        if periods < LEAST_PERIODS { 0 } else { periods * settings.period_ns }
    };
    let mut missed_some = false;
    for (_, metric, value) in weight.each() {
        let most_ns = match metric.meter {
            Settings::CPU_TIME => silent_ns,
            Settings::WALL_TIME => ticks_to_ns(process, since_ticks),
            _ => continue,
        };
        let missed = missed(value.load(Relaxed), most_ns);
        value.store(missed, Relaxed);
        missed_some |= missed > 0;
    }
    for (number, metric, value) in weight.each() {
        let is_late = late == Some(number);
        let is_missed = match metric.meter {
            Settings::CPU_TIME | Settings::WALL_TIME => true,
            Settings::COUNTED => is_late,
            meter => Settings::is_of_usage(meter) && (is_late || missed_some),
        };
        if !is_missed {
            value.store(0, Relaxed);
        }
    }
    if add(process, thread, Gap::TrapBlocked, &weight).is_some() {
        weight.move_on();
    }
}

/// Gives what a process's first thread has used before it can be sampled to gaps: CPU time since `joined_cpu_ns`, which
/// was our own and is what callpath costs, too, and what was used before that. In a fork's child the latter is the
/// program's, and is left to the first sample. What there is no memory for is found missing at the process's end.
pub(crate) fn leave_start(process: &Process<'_>, thread: Thread<'_>, joined_cpu_ns: Option<u64>, is_fork: bool) {
    let (record, per_ms) = (thread.record, process.session.settings.ticks_per_ms);
    let weight = Weight::of_all(process, thread);
    let now_ns = weight.cpu_now_ns.or_else(clock::thread_cpu_ns);
    let own_ns = joined_cpu_ns.zip(now_ns).map_or(0, |(joined_ns, now_ns)| now_ns.saturating_sub(joined_ns));
    let own_ticks = own_ns.saturating_mul(per_ms) / 1_000_000;
    record.handler_ticks.store(record.handler_ticks.load(Relaxed).wrapping_add(own_ticks), Relaxed);
    let used_ns = weight.cpu_now_ns.map_or(0, |now_ns| {
        record.seen_cpu_ns.store(now_ns, Relaxed);
        now_ns.saturating_sub(process.slot.inherited_cpu_ns.load(Relaxed))
    });
    let own_ns = own_ns.min(used_ns);
    if !is_fork {
        for (_, metric, value) in weight.each() {
            match metric.meter {
                Settings::CPU_TIME => value.store(used_ns - own_ns, Relaxed),
                // It begins with the measurement.
                Settings::WALL_TIME => value.store(0, Relaxed),
                _ => {}
            }
        }
        if add(process, thread, Gap::Start, &weight).is_some() {
            weight.move_on();
        }
    }
    for (_, metric, value) in weight.each() {
        value.store(if metric.meter == Settings::CPU_TIME { own_ns } else { 0 }, Relaxed);
    }
    if add(process, thread, Gap::OwnStart, &weight).is_some() {
        weight.move_on();
    }
    if !is_fork {
        weight.mark_attributed(None);
    }
}

/// How much of a weight, nanoseconds, is kernel time that no sample has shown; 0 if it is less than usually passes between two samples.
/// The kernel divides CPU time by where its ticks found the thread: after a few ticks in the kernel, it takes much user time for its own.
pub(crate) fn unseen_in_kernel_ns(process: &Process<'_>, weight: &Weight<'_>) -> u64 {
    let kernel_ns = weight.kernel_ns();
    if kernel_ns < LEAST_PERIODS * process.session.settings.period_ns { 0 } else { kernel_ns }
}

/// Gives a sample's weight to a gap, and returns its node. `None`: it was nothing, or there is no memory for the node.
pub(crate) fn add(process: &Process<'_>, thread: Thread<'_>, gap: Gap, weight: &Weight<'_>) -> Option<ArenaRef> {
    if weight.values().all(|value| value == 0) {
        return None;
    }
    let mut tree = Tree::new(process, thread)?;
    // Beside the paths of the thread's samples: where it was is not known, but not because a walk ended early.
    let root = ArenaRef(thread.record.full_root.load(Relaxed));
    let gap = tree.child(root, FrameKey::gap(gap))?;
    tree.count(gap, 0, weight.values()).then_some(gap)
}

fn ticks_to_ns(process: &Process<'_>, ticks: u64) -> u64 {
    let per_ms = process.session.settings.ticks_per_ms.max(1);
    (ticks / per_ms).saturating_mul(1_000_000).saturating_add(ticks % per_ms * 1_000_000 / per_ms)
}
