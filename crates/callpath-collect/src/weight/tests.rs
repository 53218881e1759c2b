//! What samples weigh, against sums kept by hand and against the kernel's own.

extern crate std;

use callpath_format::frame::{FrameKey, Gap};
use callpath_format::shared::{ArenaRef, Settings, Source};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use super::{Weight, add_pending};
use crate::clock::{Usage, monotonic_ns};
use crate::process::Process;
use crate::sample::{EventOf, Trigger};
use crate::testing::{Chance, costs, measured, metrics};
use crate::thread::Thread;

fn measured_by(meters: &[u32]) -> (Process<'static>, Thread<'static>) {
    measured(Settings { period_ns: 1_000_000, ..Settings::default() }, &metrics(meters), 4, &[])
}

/// Each event is its period's worth, whatever the period is by then; what a sample that is not kept would have had is
/// the next one's of the same event, and no other's.
#[test]
fn counted_events_are_paid_once_each() {
    for is_first_thread in [true, false] {
        let meters = [Settings::COUNTED, Settings::CPU_TIME, Settings::COUNTED];
        let (process, thread) = measured_by(&meters);
        thread.record.tid.store(u32::from(!is_first_thread), Relaxed);
        let periods: [&AtomicU64; 3] = match is_first_thread {
            true => [0, 1, 2].map(|metric| &process.bases[metric]),
            false => [0, 1, 2].map(|metric| &thread.columns[metric].period),
        };
        periods.iter().for_each(|period| period.store(1, Relaxed));
        let (mut chance, mut pending, mut paid, mut all) = (Chance(3), [0; 3], [0; 3], [0; 3]);
        for _ in 0..2000 {
            let metric = [0, 2][chance.below(2) as usize];
            if chance.below(10) == 0 {
                periods[metric].store(1 + chance.below(5000), Relaxed);
            }
            let trigger = Trigger::Kernel(EventOf::Metric(metric));
            add_pending(&process, thread, trigger);
            pending[metric] += periods[metric].load(Relaxed);
            all[metric] += periods[metric].load(Relaxed);
            if chance.below(3) == 0 {
                // It came while the one before was being taken: it weighs nothing.
                continue;
            }
            let weight = Weight::of_trigger(&process, thread, trigger).expect("there is something to weigh");
            let mut expected = [0; 3];
            expected[metric] = pending[metric];
            assert!(weight.values().eq(expected));
            if chance.below(2) == 0 {
                weight.mark_attributed(Some(ArenaRef(8)));
                assert_eq!(thread.columns[metric].last_node.load(Relaxed), 8);
                paid[metric] += pending[metric];
                pending[metric] = 0;
            }
        }
        let rest: std::vec::Vec<u64> = Weight::of_all(&process, thread).values().collect();
        assert_eq!([rest[0], rest[2]], [pending[0], pending[2]]);
        assert_eq!([paid[0] + pending[0], paid[2] + pending[2]], [all[0], all[2]]);
    }
}

/// What is kept of a clock adds up to what it has run, without what is not kept being lost or counted twice.
#[test]
fn a_clocks_samples_add_up_to_its_time() {
    let (process, thread) = measured_by(&[Settings::WALL_TIME, Settings::CPU_TIME]);
    let before = monotonic_ns();
    thread.start_clocks(&process);
    let after = monotonic_ns();
    let begin = thread.record.clocks[1].load(Relaxed);
    assert!((before..=after).contains(&begin));
    let (mut chance, mut sums, mut last) = (Chance(4), [0; 2], 0);
    for _ in 0..500 {
        let before = monotonic_ns();
        let weight = Weight::of_trigger(&process, thread, Trigger::Timer).expect("time has passed");
        let after = monotonic_ns();
        if chance.below(3) == 0 {
            weight.mark_attributed(None);
            sums.iter_mut().zip(weight.values()).for_each(|(sum, value)| *sum += value);
            last = thread.record.clocks[1].load(Relaxed);
            assert!((before..=after).contains(&last));
        }
    }
    assert_eq!(sums[0], last - begin);
    // A thread cannot run for longer than time passes; this one began long before its clock was set to zero.
    let cpu_ns = thread.record.clocks[0].load(Relaxed);
    assert_eq!(sums[1], cpu_ns);
}

/// Kernel time that no tick has shown is at no path when the thread ends: its last sample was elsewhere.
#[test]
fn kernel_time_that_no_tick_has_shown_is_a_gap() {
    const PERIOD_NS: u64 = 1_000_000;
    let (process, thread) = measured_by(&[Settings::CPU_TIME]);
    process.slot.source.store(Source::UserClock as u32, Relaxed);
    thread.start_clocks(&process);
    let mut calls = 0;
    while Usage::of_thread().kernel_ns < 3 * PERIOD_NS {
        std::hint::black_box(std::fs::metadata("/").is_ok());
        calls += 1;
    }
    let weight = Weight::of_trigger(&process, thread, Trigger::Kernel(EventOf::Clocks)).expect("it has run");
    weight.mark_attributed(None);
    let in_samples = weight.values().sum::<u64>();
    thread.flush(&process, false);
    let costs = costs(&process, thread);
    let gap = costs.get(&[FrameKey::gap(Gap::InKernel).0][..]).map_or(0, |(_, values)| values[0]);
    let usage = Usage::of_thread();
    assert!((3 * PERIOD_NS..=usage.kernel_ns).contains(&gap), "{gap} of {}, {calls} calls", usage.kernel_ns);
    let all = costs.values().map(|(_, values)| values[0]).sum::<u64>();
    assert!(in_samples + all <= usage.user_ns + usage.kernel_ns);
    // What was left at the last sample's node is less than what usually passes between two.
    assert!(all - gap < 2 * PERIOD_NS + usage.user_ns - in_samples, "{costs:?}");
}

/// A meter of the thread's usage against what getrusage says.
#[test]
fn page_faults_are_the_kernels() {
    let faults = || {
        // SAFETY: a record of numbers, for which zeros are valid, and into which the kernel writes.
        unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &mut usage), 0);
            (usage.ru_minflt + usage.ru_majflt) as u64
        }
    };
    let (process, thread) = measured_by(&[Settings::PAGE_FAULTS]);
    let trigger = Trigger::Kernel(EventOf::Metric(0));
    Weight::of_all(&process, thread).mark_attributed(None);
    let begin = faults();
    let (mut chance, mut sum) = (Chance(5), 0);
    for _ in 0..200 {
        let mut pages = std::vec::Vec::<u8>::with_capacity(1 << 20);
        for page in 0..chance.below(4) as usize {
            // SAFETY: within what was allocated.
            unsafe { pages.as_mut_ptr().add(page << 12).write_volatile(1) };
        }
        // The next ones are others, and new.
        pages.leak();
        match Weight::of_trigger(&process, thread, trigger) {
            Some(weight) if chance.below(2) == 0 => {
                weight.mark_attributed(None);
                sum += weight.values().sum::<u64>();
            }
            _ => {}
        }
    }
    let rest = Weight::of_all(&process, thread).values().sum::<u64>();
    let by_kernel = faults() - begin;
    // The looks themselves may have touched a page for the first time.
    assert!(sum + rest <= by_kernel && by_kernel - sum - rest <= 2, "{sum} and {rest} of {by_kernel}");
    assert!(sum > 100, "{sum} in samples");
}
