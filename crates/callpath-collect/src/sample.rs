//! A sample: its trigger, the interrupted thread, and the proof that it is being taken.

use callpath_format::shared::{Columns, ThreadRecord};
use core::sync::atomic::Ordering::{Release, SeqCst};

use crate::process::Process;
use crate::thread::Thread;

/// Proof that the calling thread is the only one that changes its record, and does not do so in a
/// handler that has interrupted itself. Only [`InSample::begin`] makes one, by the record's
/// `busy`, which is taken back when it is dropped.
pub(crate) struct InSample<'m>(&'m ThreadRecord);

impl<'m> InSample<'m> {
    /// For the thread itself. `None`: it has begun already.
    #[inline]
    pub(crate) fn begin(record: &'m ThreadRecord) -> Option<InSample<'m>> {
        // In one order with the publishing of load maps (`code.rs`); on x86-64 an exchange is, whatever is asked for.
        // Made only where it is given: one that is dropped takes `busy` back, which another holds.
        (record.busy.swap(1, SeqCst) == 0).then(|| InSample(record))
    }
}

impl Drop for InSample<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.busy.store(0, Release);
    }
}

/// An interrupted thread.
pub struct Interrupted {
    /// General-purpose registers in DWARF order.
    pub registers: [u64; 16],
    /// The next instruction.
    pub pc: u64,
}

/// The trigger of a sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trigger {
    /// An event of the kernel's.
    Kernel(EventOf),
    /// The same, but delivered late: the thread had blocked the signal, and is elsewhere now.
    KernelLate(EventOf),
    /// A timer of the thread's own.
    Timer,
    /// The recorder, of a thread that waits.
    Asked,
    /// The collector itself, at a moment that it knows of.
    Own,
}

/// Whose event it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventOf {
    /// The clocks': their software clock, or the context switches that wall time is read at.
    Clocks,
    /// A metric's own, by number.
    Metric(usize),
}

impl EventOf {
    /// From the value that the recorder gave the kernel with the event: 0, or a
    /// metric's number + 1. `None`: the event is not ours.
    pub fn from_signal(data: u64, columns: Columns) -> Option<EventOf> {
        match usize::try_from(data).ok()? {
            0 => Some(EventOf::Clocks),
            event if event <= columns.count() => Some(EventOf::Metric(event - 1)),
            _ => None,
        }
    }
}

/// A sample of the calling thread, as long as it is being taken.
#[derive(Clone, Copy)]
pub(crate) struct Sample<'s, 'm> {
    pub(crate) in_sample: &'s InSample<'m>,
    pub(crate) process: &'s Process<'m>,
    pub(crate) thread: Thread<'m>,
    pub(crate) trigger: Trigger,
    pub(crate) interrupted: &'s Interrupted,
    /// When it began, by the time stamp counter.
    pub(crate) begin_ticks: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{measured, metrics};
    use callpath_format::shared::Settings;
    use core::sync::atomic::Ordering::Relaxed;

    #[test]
    fn a_sample_within_another_leaves_that_its_record() {
        let (_, thread) = measured(Settings::default(), &metrics(&[Settings::CPU_TIME]), 8, &[]);
        let outer = InSample::begin(thread.record).expect("nothing else is at work");
        for _ in 0..3 {
            assert!(InSample::begin(thread.record).is_none());
            assert_eq!(thread.record.busy.load(Relaxed), 1);
        }
        drop(outer);
        assert!(InSample::begin(thread.record).is_some());
    }
}
