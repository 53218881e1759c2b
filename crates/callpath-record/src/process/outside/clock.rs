//! What a process that is sampled from outside has used by its own clock, and what of that is in no sample: lost, or never hit.

use std::sync::atomic::Ordering::Relaxed;

use callpath_format::frame::{FrameKey, Gap};
use callpath_format::shared::{Dropped, Settings};
use callpath_measurement::FULL_ROOT;

use super::Worth;
use crate::process::{Process, ThreadState};
use crate::shared::Shared;

/// A clock event's ticks and the process's clock may differ by this part.
const CLOCKS_DIFFER: u64 = 50;

impl Process {
    /// Looks at its CPU time, before its samples are read: some of it no sample may hit.
    pub(crate) fn look_at_clock(&mut self) {
        let outside = self.outside.as_mut().filter(|outside| !outside.is_without_clock);
        let (Some(outside), Some(now)) = (outside, self.handle.cpu_ns()) else { return };
        // A process that has been forked begins with nothing.
        let begun = if outside.is_forked { 0 } else { now };
        let [begun, _, before] = outside.cpu_ns.unwrap_or([begun, begun, begun]);
        outside.cpu_ns = Some([begun, before, now]);
    }

    /// All processes are sampled. `begun_ns`: what its clock showed when that began, nanoseconds, if it was there. `clock_tells`: whether its clock
    /// tells what its samples should come to.
    pub(crate) fn is_of_all(&mut self, begun_ns: Option<u64>, clock_tells: bool) {
        let Some(outside) = &mut self.outside else { return };
        (outside.is_of_all, outside.is_without_clock) = (true, !clock_tells);
        outside.cpu_ns = begun_ns.map(|begun_ns| [begun_ns; 3]);
    }

    /// Samples were lost, and nobody knows whose.
    pub(crate) fn may_have_lost(&mut self) {
        self.outside.iter_mut().for_each(|outside| outside.has_lost = true);
    }

    /// Enters the CPU time in which no sample hit it: in the kernel, where this user may not sample that, or in threads that ended before
    /// the first sample.
    /// Once, at the end: what was lost is counted only when there is room again.
    pub(in crate::process) fn credit_rest(&mut self, shared: &mut Shared, has_ended: bool) {
        if !has_ended && !self.outside.as_ref().is_some_and(|outside| outside.is_ending) {
            return;
        }
        let cpu = shared.publisher.metrics().iter().position(|metric| metric.meter == Settings::CPU_TIME);
        let Some(outside) = self.outside.as_ref().filter(|outside| !outside.is_of_all || outside.has_lost) else {
            return;
        };
        let Some((cpu, [begun, _, now])) = cpu.zip(outside.cpu_ns) else { return };
        let period_ns = shared.allocator.settings().period_ns;
        let accounted = self.threads.iter().map(|state| {
            // Samples that wait for tables are in no tree yet.
            let waiting = match state {
                ThreadState::Live(thread) => thread.samples_waiting(),
                ThreadState::Ended(_) => 0,
            };
            state.profile().tree.total(cpu).saturating_add(waiting.saturating_mul(period_ns))
        });
        let missing = (now - begun.min(now)).saturating_sub(accounted.fold(0, u64::saturating_add));
        // Up to a period of each thread that goes on is in the next sample, and clocks differ.
        let live = self.threads.iter().filter(|thread| matches!(thread, ThreadState::Live(_))).count() as u64;
        let usual = period_ns.saturating_mul(live + 2) + (now - begun.min(now)) / CLOCKS_DIFFER;
        if missing <= usual {
            return;
        }
        let gap = match outside {
            outside if outside.is_out_of_reach => Gap::AfterLastSample,
            outside if outside.is_user_only => Gap::InKernel,
            outside if outside.has_lost => Gap::NoRoom,
            _ => Gap::NeverSampled,
        };
        if outside.is_of_all {
            shared.credited_ns = shared.credited_ns.saturating_add(missing);
        }
        self.enter_gap(gap, (cpu, missing), shared.publisher.metrics().len());
    }

    /// Enters CPU time of lost samples, nanoseconds.
    pub(crate) fn has_lost_time(&mut self, shared: &Shared, ns: u64) {
        let cpu = shared.publisher.metrics().iter().position(|metric| metric.meter == Settings::CPU_TIME);
        if let Some(cpu) = cpu.filter(|_| ns > 0) {
            self.enter_gap(Gap::NoRoom, (cpu, ns), shared.publisher.metrics().len());
        }
    }

    /// Enters what no sample has hit, of one of `count` metrics.
    fn enter_gap(&mut self, gap: Gap, (metric, value): (usize, u64), count: usize) {
        if self.threads.is_empty() {
            self.thread_of(self.handle.pid().0);
        }
        if let Some(thread) = self.threads.first_mut() {
            let tree = &mut thread.profile_mut().tree;
            let node = tree.child(FULL_ROOT, FrameKey::gap(gap));
            let mut values = vec![0; count];
            values[metric] = value;
            tree.add(node, 0, &values);
        }
    }

    /// It has executed another program, whose time the process's clock has from now on.
    pub(in crate::process) fn forget_clock(&mut self) {
        if let Some(outside) = &mut self.outside {
            // Some of what passed since the look before may be the other program's.
            outside.cpu_ns =
                outside.cpu_ns.filter(|_| outside.is_of_all).map(|[begun, before, _]| [begun, before, before]);
        }
    }

    /// So many samples were lost: there was no room for them, or what they hit is not known. `tid`: of which thread, the first if that is not
    /// known. `worth`: `None` if that is not known.
    pub(crate) fn has_lost(&mut self, shared: &Shared, count: u64, (tid, worth): (Option<u32>, Option<Worth>)) {
        let first = self.handle.pid().0;
        let index = self.thread_of(tid.unwrap_or(first));
        let (Some(outside), Some(ThreadState::Live(thread))) = (&mut self.outside, self.threads.get_mut(index)) else {
            return;
        };
        outside.has_lost = true;
        let slot = shared.allocator.slot(self.slot);
        slot.dropped_unrecorded[Dropped::RawFull as usize].fetch_add(count, Relaxed);
        // Of periods and waits together the process's clock tells how much was lost.
        let Some(worth) = worth else { return };
        let values: Vec<u64> = outside.values_of(worth).iter().map(|value| value.saturating_mul(count)).collect();
        let node = thread.profile.tree.child(FULL_ROOT, FrameKey::gap(Gap::NoRoom));
        thread.profile.tree.add(node, 0, &values);
    }
}
