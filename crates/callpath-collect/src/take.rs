//! Taking a sample: what it is attributed to, and the tally. No signals here: the
//! caller hands in the interrupted thread's registers.

use callpath_format::frame::{FrameKey, Gap};
use callpath_format::register::Reg;
use callpath_format::shared::thread::Dropped;
use callpath_format::shared::{ArenaRef, ThreadRecord};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use crate::clock;
use crate::path::{self, Innermost, Path};
use crate::process::Process;
use crate::sample::{InSample, Interrupted, Sample, Trigger};
use crate::stack::Stack;
use crate::thread::Thread;
use crate::tree::Tree;
use crate::weight::{self, Weight};
use crate::{gap, raw, refused, sentinel, syscall};

/// Takes a sample of the calling thread.
pub fn take(process: &Process<'_>, thread: Thread<'_>, trigger: Trigger, interrupted: &Interrupted) {
    let begin_ticks = clock::ticks();
    let record = thread.record;
    let Some(in_sample) = &InSample::begin(record) else {
        if weight::is_of_own_code(process, trigger) {
            return;
        }
        record.taken.fetch_add(1, Relaxed);
        weight::add_pending(process, thread, trigger);
        return drop_sample(record, Dropped::InCollector);
    };
    let sample = Sample { in_sample, process, thread, trigger, interrupted, begin_ticks };
    weight::add_pending(process, thread, trigger);
    let is_of_handler = is_of_handler(&sample);
    if !is_of_handler {
        gap::find(process, thread, trigger, begin_ticks);
    }
    let Some(weight) = Weight::of_trigger(process, thread, trigger) else { return };
    add(&record.taken, 1);
    record.asked.store(0, Relaxed);
    let stored_before = stored_samples(record);
    let cpu_begin_ns = weight.cpu_now_ns;
    if is_of_handler {
        count(&sample, &weight, ArenaRef(record.last_node.load(Relaxed)), &record.full);
    } else if cpu_begin_ns.unwrap_or(begin_ticks) < record.throttled_until.load(Relaxed)
        && !weight::is_exact(process, trigger)
        && trigger != Trigger::Asked
    {
        drop_sample(record, Dropped::Throttled);
    } else if matches!(trigger, Trigger::KernelLate(_)) {
        drop_sample(record, Dropped::Late);
    } else {
        store(&sample, &weight);
    }
    record.asked.store(u32::from(trigger == Trigger::Asked && stored_samples(record) != stored_before), Relaxed);
    weight::leave_out_own(process, thread, weight.usage);
    let refused_calls = refused::calls().0;
    if process.slot.refused_calls.load(Relaxed) != refused_calls {
        process.slot.refused_calls.store(refused_calls, Relaxed);
    }
    let spent_ticks = account_for_own_time(&sample, cpu_begin_ns);
    if !weight::is_exact(process, trigger) {
        throttle(&sample, spent_ticks, cpu_begin_ns);
    }
}

/// Whether the clock fired while the thread was in our handler for its last sample: the signal waited for the handler's
/// end, and nothing of the program has run since. The kernel swaps the clocks of two threads that it switches between,
/// so this is not rare where samples take long. The time is that of the sample before, and so is the path.
fn is_of_handler(sample: &Sample<'_, '_>) -> bool {
    let record = sample.thread.record;
    let since = sample.begin_ticks.saturating_sub(record.last_end.load(Relaxed));
    matches!(sample.trigger, Trigger::KernelLate(_))
        && record.last_location.iter().zip(location_of(sample.interrupted)).all(|(last, now)| last.load(Relaxed) == now)
        && since < sample.process.session.settings.ticks_per_ms / DELIVERIES_PER_MS
}

/// A signal that waited is delivered within this part of a millisecond.
const DELIVERIES_PER_MS: u64 = 20;

fn location_of(interrupted: &Interrupted) -> [u64; 2] {
    [interrupted.pc, interrupted.registers[Reg::RSP.index()]]
}

/// Adds a sample to a node.
fn count(sample: &Sample<'_, '_>, weight: &Weight<'_>, node: ArenaRef, counter: &AtomicU64) {
    let Sample { process, thread, .. } = *sample;
    let record = thread.record;
    if !Tree::new(process, thread).is_some_and(|mut tree| tree.count(node, 1, weight.values())) {
        return drop_sample(record, Dropped::NoMemory);
    }
    weight.mark_attributed(Some(node));
    add(counter, 1);
    record.last_node.store(node.0, Relaxed);
}

fn store(sample: &Sample<'_, '_>, weight: &Weight<'_>) {
    let Sample { process, thread, .. } = *sample;
    let record = thread.record;
    let beyond = sentinel::beyond(process, sample.interrupted);
    let ordinary = beyond.is_none() && sample.trigger != Trigger::Own;
    let sample = &Sample { interrupted: beyond.as_ref().unwrap_or(sample.interrupted), ..*sample };
    let mut stack = Stack::new(sample);
    if stack.bounds().is_none() && ![0, record.tid.load(Relaxed)].contains(&syscall::gettid()) {
        // A clone that shares its creator's thread pointer: it has used its creator's record.
        return drop_sample(record, Dropped::SharedThread);
    }
    let mut location = [0; 2];
    let (mut path, mut innermost) = path_of(sample, &mut stack, ordinary, false);
    if let Path::NoTable(generated) = path {
        if raw::store(sample, &mut stack, raw::Taken { weight, generated }) {
            add(&record.raw, 1);
            record.last_location.iter().for_each(|last| last.store(0, Relaxed));
            weight.mark_attributed(None);
            return weight.forget_nodes();
        }
        if generated.is_none() {
            return drop_for_room(sample, weight, Dropped::RawFull);
        }
        // The recorder might have known more; what is known here is a part of the path.
        (path, innermost) = path_of(sample, &mut stack, ordinary, true);
    }
    let (node, counter) = match path {
        Path::Full(node) => {
            location = location_of(sample.interrupted);
            (node, &record.full)
        }
        Path::Partial(node) => (node, &record.partial),
        Path::NoMemory | Path::NoTable(_) | Path::Deep => return drop_for_room(sample, weight, Dropped::NoMemory),
    };
    let node = if process.session.settings.keeps_heights() {
        let height = height_of(sample, &stack, innermost.cfa);
        let key = FrameKey::height(height.and_then(|height| innermost.clone.height(height)));
        let Some(with_height) = Tree::new(process, thread).and_then(|mut tree| tree.child(node, key)) else {
            return drop_for_room(sample, weight, Dropped::NoMemory);
        };
        with_height
    } else {
        node
    };
    for (last, now) in record.last_location.iter().zip(location) {
        last.store(now, Relaxed);
    }
    count(sample, weight, node, counter);
}

/// The path that is kept, and, if heights are, what they are made of.
fn path_of(sample: &Sample<'_, '_>, stack: &mut Stack, ordinary: bool, as_it_is: bool) -> (Path, Innermost) {
    let settings = &sample.process.session.settings;
    if settings.infers() {
        return path::of_innermost(sample, stack, as_it_is);
    }
    let path = path::of(sample, stack, ordinary, as_it_is);
    let innermost = if settings.keeps_heights() { path::of_walked(sample, stack) } else { Innermost::default() };
    (path, innermost)
}

/// How high the thread's own stack is at a CFA on it.
pub(crate) fn height_of(sample: &Sample<'_, '_>, stack: &Stack, cfa: Option<u64>) -> Option<i64> {
    let base = sample.thread.record.stack_base.load(Relaxed);
    stack.bounds().filter(|_| base != 0)?;
    Some(base.wrapping_sub(cfa?) as i64)
}

/// How many samples were stored, full, partial or raw.
fn stored_samples(record: &ThreadRecord) -> u64 {
    [&record.full, &record.partial, &record.raw].iter().fold(0, |sum, count| sum.wrapping_add(count.load(Relaxed)))
}

/// The time of a sample that cannot be kept goes to a gap: it is not the next
/// one's, which may come much later from another place.
fn drop_for_room(sample: &Sample<'_, '_>, weight: &Weight<'_>, reason: Dropped) {
    let Sample { process, thread, .. } = *sample;
    if let Some(gap) = gap::add(process, thread, Gap::NoRoom, weight) {
        weight.mark_attributed(Some(gap));
    }
    drop_sample(thread.record, reason);
}

fn drop_sample(record: &ThreadRecord, reason: Dropped) {
    add(&record.dropped[reason as usize], 1);
}

fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(n), Relaxed);
}

/// A handler that took longer by the time stamp counter may have been preempted meanwhile, ticks.
const MAY_HAVE_BEEN_PREEMPTED_TICKS: u64 = 100_000;

/// How much throttling a thread can be spared after a time without samples, milliseconds.
const THROTTLE_CREDIT_MS: u64 = 10;

/// Returns the time spent, ticks.
fn account_for_own_time(sample: &Sample<'_, '_>, cpu_begin_ns: Option<u64>) -> u64 {
    let (process, record) = (sample.process, sample.thread.record);
    let settings = &process.session.settings;
    let end = clock::ticks();
    record.last_end.store(end, Relaxed);
    let mut spent = end.saturating_sub(sample.begin_ticks);
    if spent > MAY_HAVE_BEEN_PREEMPTED_TICKS
        && let (Some(cpu_begin_ns), Some(cpu_now_ns)) = (cpu_begin_ns, clock::thread_cpu_ns())
    {
        let cpu_ns = cpu_now_ns.saturating_sub(cpu_begin_ns);
        spent = spent.min(cpu_ns.saturating_mul(settings.ticks_per_ms) / 1_000_000);
    }
    if let Some(cpu_begin_ns) = cpu_begin_ns {
        gap::could_come(process, record, cpu_begin_ns, spent);
    }
    add(&record.handler_ticks, spent);
    if spent > record.handler_ticks_max.load(Relaxed) {
        record.handler_ticks_max.store(spent, Relaxed);
    }
    let bin = (u64::BITS - spent.leading_zeros()) as usize;
    if let Some(bin) = record.handler_histogram.get(bin) {
        bin.store(bin.load(Relaxed).wrapping_add(1), Relaxed);
    }
    spent
}

fn throttle(sample: &Sample<'_, '_>, spent: u64, cpu_begin_ns: Option<u64>) {
    let (settings, record) = (&sample.process.session.settings, sample.thread.record);
    // After a handler a thread is throttled for so many times its own length. A thread that was not sampled for a while
    // has some credit: one handler that took long among short ones drops no sample. Where the CPU clock is read this is
    // the thread's own time, not that of others that ran meanwhile.
    let per_ms = settings.ticks_per_ms.max(1);
    let (begin, spent, credit) = match cpu_begin_ns {
        Some(begin_ns) => (begin_ns, spent.saturating_mul(1_000_000) / per_ms, THROTTLE_CREDIT_MS * 1_000_000),
        None => (sample.begin_ticks, spent, THROTTLE_CREDIT_MS.saturating_mul(per_ms)),
    };
    let paid_until = record.throttled_until.load(Relaxed).max(begin.saturating_sub(credit));
    let throttled_until = paid_until.saturating_add(spent.saturating_mul(settings.throttle_factor.saturating_add(1)));
    record.throttled_until.store(throttled_until, Relaxed);
}
