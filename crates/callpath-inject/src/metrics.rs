//! Metrics of paths, one or two at once (Ammons, Ball and Larus 1997, section 3.1): what routines of `times.rs` call where a path is measured
//! by more than the time that passes.
//!
//! ```text
//! callpath_begin_metrics   the lane's address, a word, the procedure's; they become: what was read, of each metric, and what the path weighs
//! callpath_leave_metrics   what was read, of each metric, the lane's address; the first two become: what the path has taken
//! callpath_resume_metrics  what it has taken, of each, the lane's address; the first two become: what would have been read without the call
//! callpath_end_metrics     what was read, of each, what it weighs, the lane's address, a part of its number, procedure and the other part,
//!                          the context's node
//! ```
//!
//! A word of an activation is [`BIAS`] above what it says, since 0 says that nothing is measured. So what was read becomes what was taken, and that what
//! would have been read, by one operation: `now - word + 2 * BIAS`.

use callpath_collect::clock::{self, Usage};
use callpath_collect::refused;
use callpath_collect::syscall::getpid;
use callpath_format::shared::Settings;
use callpath_format::shared::gauge::Gauge;
use callpath_format::shared::refused::Calls;
use callpath_format::shared::times::{MeteredPaths, TimesHead};
use core::arch::x86_64::_mm_lfence;
use core::cell::Cell;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::counters::Counters;
use crate::times::{EndedPath, Words, add_in_context, head, of_nothing};
use crate::undisturbed::Undisturbed;

/// See above.
const BIAS: u64 = 1 << 62;

/// What a path that does nothing takes, of each metric: reading takes that.
static COSTS: [AtomicU64; TimesHead::METRICS] = [const { AtomicU64::new(0) }; TimesHead::METRICS];
/// Whether they are known: 0: nobody has asked; [`KNOWN`], which a fork's child inherits; else a thread is asking: of this process, by twice its
/// number.
static ASKED: AtomicU64 = AtomicU64::new(0);
const KNOWN: u64 = 1;

unsafe extern "C" {
    fn callpath_nothing_happens(lane: u64, words: &mut [u64; TimesHead::METRICS], none_yet: u64);
}

/// What a copy has pushed where a path begins.
#[repr(C)]
pub struct Begun {
    /// Becomes the first word.
    lane: u64,
    second: u64,
    /// Becomes what the path weighs.
    procedure: u64,
}

/// The same around calls.
#[repr(C)]
pub struct Turned {
    words: [u64; TimesHead::METRICS],
    lane: u64,
}

/// The same at the end.
#[repr(C)]
pub struct Ended {
    words: [u64; TimesHead::METRICS],
    weight: u64,
    lane: u64,
    index: u64,
    procedure: u64,
    node: u64,
}

/// Where metrics are read: the dear ones, by system calls, are read outside of the cheap ones, so that these do not count them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    /// What follows is measured.
    Before,
    /// What was before.
    Behind,
}

/// Whether it is read by a system call.
fn is_dear(metric: &MeteredPaths) -> bool {
    !matches!(metric.meter.load(Relaxed) as u32, 0 | Settings::PROBED_TICKS | Settings::EXACT_COUNTER)
}

/// What a metric says now. `None`: it cannot be read.
fn reading(metric: &MeteredPaths, number: usize, counters: Counters) -> Option<u64> {
    let of_usage = |meter: u32| {
        let usage = Usage::of_thread();
        (!refused::has(Calls::GETRUSAGE)).then(|| usage.reading(meter))
    };
    match metric.meter.load(Relaxed) as u32 {
        Settings::PROBED_TICKS => {
            // SAFETY: any processor has it. Nothing before it is still to come, and nothing behind it has begun.
            unsafe { _mm_lfence() };
            let ticks = clock::ticks();
            // SAFETY: as above.
            unsafe { _mm_lfence() };
            Some(ticks)
        }
        Settings::PROBED_CPU => clock::thread_cpu_ns(),
        Settings::EXACT_FAULTS => of_usage(Settings::PAGE_FAULTS),
        Settings::EXACT_MINOR_FAULTS => of_usage(Settings::MINOR_FAULTS),
        Settings::EXACT_MAJOR_FAULTS => of_usage(Settings::MAJOR_FAULTS),
        Settings::EXACT_SWITCHES => of_usage(Settings::CONTEXT_SWITCHES),
        Settings::EXACT_COUNTER => counters.read(number),
        // There is no second metric.
        _ => Some(0),
    }
}

/// What all say. `None`: one cannot be read, which is counted.
fn readings(head: &TimesHead, lane: u64, side: Side) -> Option<[u64; TimesHead::METRICS]> {
    // SAFETY: a copy has pushed it.
    let counters = unsafe { Counters::of(lane) };
    let [first, second] = &head.metrics;
    let read = |metric: &MeteredPaths, number: usize| reading(metric, number, counters);
    let is_first_outside = is_dear(first) || !is_dear(second);
    let all = if is_first_outside == (side == Side::Before) {
        let first = read(first, 0);
        [first, first.and_then(|_| read(second, 1))]
    } else {
        let second = read(second, 1);
        [second.and_then(|_| read(first, 0)), second]
    };
    if let [Some(first), Some(second)] = all {
        return Some([first, second]);
    }
    lose(head);
    None
}

/// Counts a path that is not measured after all: in none of the metrics.
fn lose(head: &TimesHead) {
    for metric in head.metrics.iter().filter(|metric| metric.meter.load(Relaxed) != 0) {
        metric.lost.fetch_add(1, Relaxed);
    }
}

/// What reading takes, of a metric.
fn cost(number: usize) -> u64 {
    COSTS.get(number).map_or(0, |cost| cost.load(Relaxed))
}

/// Whether it is known what reading takes. The first thread of a process that asks finds out what is measured of a path that does nothing; until
/// then, no path is measured.
fn are_costs_known(head: &TimesHead, lane: u64) -> bool {
    let state = ASKED.load(Acquire);
    let own = u64::from(getpid()) << 1;
    // Another state may be of the process that this one was forked from.
    if state == own || readings(head, lane, Side::Before).is_none() {
        return false;
    }
    if ASKED.compare_exchange(state, own, AcqRel, Acquire).is_err() {
        return false;
    }
    let _undisturbed = Undisturbed::begin();
    let are_known = find_costs(head, lane);
    ASKED.store(if are_known { KNOWN } else { 0 }, Release);
    are_known
}

/// `false`: they could not be read each time.
fn find_costs(head: &TimesHead, lane: u64) -> bool {
    const TIMES: usize = 31;
    let has_failed = Cell::new(false);
    for (number, (to, metric)) in COSTS.iter().zip(&head.metrics).enumerate() {
        let cost = of_nothing::<TIMES>(|| {
            let mut words = [0; TimesHead::METRICS];
            // SAFETY: it writes the words alone.
            unsafe { callpath_nothing_happens(lane, &mut words, BIAS) };
            match words {
                [0, _] => {
                    has_failed.set(true);
                    0
                }
                words => words.get(number).map_or(0, |word| word.saturating_sub(BIAS)),
            }
        });
        // Meanwhile nothing is taken off.
        metric.cost.store(cost, Relaxed);
        to.store(0, Relaxed);
    }
    for (to, metric) in COSTS.iter().zip(&head.metrics) {
        to.store(metric.cost.load(Relaxed), Release);
    }
    !has_failed.get()
}

/// Chooses whether this path is measured, and begins.
pub extern "C" fn begun(begun: &mut Begun) {
    let Begun { lane, procedure, .. } = *begun;
    // SAFETY: as a copy has pushed it.
    let words = unsafe { Words::of(lane, procedure) };
    *begun = Begun { lane: 0, second: 0, procedure: 0 };
    let Some(head) = head() else { return };
    let weight = words.take_chosen().unwrap_or_else(|| words.choose(head.most_shift.load(Relaxed)));
    if weight == 0 {
        return;
    }
    // SAFETY: a copy has pushed it.
    let has_counters = unsafe { Counters::of(lane) }.begin(head);
    if !has_counters || ASKED.load(Acquire) != KNOWN && !are_costs_known(head, lane) {
        return;
    }
    if let Some([first, second]) = readings(head, lane, Side::Before) {
        *begun = Begun { lane: first.wrapping_add(BIAS), second: second.wrapping_add(BIAS), procedure: weight };
    }
}

/// What was read becomes what was taken, and that what would have been read: a word, when `now` is read. `cost` is taken off.
fn turn(word: u64, now: u64, cost: u64) -> u64 {
    now.wrapping_sub(word).wrapping_add(BIAS << 1).wrapping_sub(cost)
}

/// Before a call.
pub extern "C" fn left(turned: &mut Turned) {
    let now = head().and_then(|head| readings(head, turned.lane, Side::Behind));
    let [first, second] = turned.words;
    // Where it cannot be read, the path is not measured.
    turned.words =
        now.map_or([0; TimesHead::METRICS], |now| [turn(first, now[0], cost(0)), turn(second, now[1], cost(1))]);
}

/// Behind a call.
pub extern "C" fn resumed(turned: &mut Turned) {
    let now = head().and_then(|head| readings(head, turned.lane, Side::Before));
    let [first, second] = turned.words;
    turned.words = now.map_or([0; TimesHead::METRICS], |now| [turn(first, now[0], 0), turn(second, now[1], 0)]);
}

/// Adds what a path has taken: in the tables if the procedure has a number there, and in its context.
pub extern "C" fn ended(ended: &Ended) {
    let Some(head) = head() else { return };
    let Some(now) = readings(head, ended.lane, Side::Behind) else { return };
    let mut taken = [0u64; TimesHead::METRICS];
    for (number, ((taken, now), word)) in taken.iter_mut().zip(now).zip(ended.words).enumerate() {
        // So much less than nothing is no inaccuracy: what was read first was another thread's, as where a path was begun before a fork.
        const FAR_STRETCHES: u64 = 256;
        let cost = cost(number);
        let raw = now.wrapping_sub(word).wrapping_add(BIAS) as i64;
        let Some(metric) = head.metrics.get(number) else { return };
        let is_time = metric.meter.load(Relaxed) as u32 == Settings::PROBED_TICKS;
        if raw.saturating_add_unsigned(cost.wrapping_mul(FAR_STRETCHES)) < 0 && !is_time {
            lose(head);
            return;
        }
        *taken = raw.saturating_sub_unsigned(cost).max(0) as u64;
    }
    let Ended { weight, lane, index, procedure, node, .. } = *ended;
    let path = EndedPath { lane, index, procedure };
    for (number, (metric, taken)) in head.metrics.iter().zip(taken).enumerate() {
        let meter = metric.meter.load(Relaxed) as u32;
        if meter == 0 {
            break;
        }
        // SAFETY: where a copy keeps a node's address, it stays mapped.
        unsafe { add_in_context(node, Gauge::TICKS_COLUMN + number, taken.wrapping_mul(weight)) };
        if let Some(sums) = path.sums(head, number) {
            // Only what passes is more where a thread is interrupted.
            match meter {
                Settings::PROBED_TICKS => sums.add(weight, taken),
                _ => sums.short.add(weight, taken),
            }
        }
    }
}
