//! The kernel's software clock (perf_event) on another process, delivered there as SIGTRAP.

use crate::error::TargetError;
use crate::perf_event::{EventSpec, Every, PerfEvent};
use crate::pid::Pid;

/// What the kernel counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventKind {
    /// A sample each so many nanoseconds that the thread runs, in user mode and in the kernel.
    CpuClock,
    /// The same in user mode only.
    UserCpuClock,
    /// A sample each time the thread leaves a CPU, delivered when it is back in user mode.
    ContextSwitches,
}

impl EventKind {
    fn name(self) -> &'static str {
        match self {
            EventKind::CpuClock => "cpu-clock",
            EventKind::UserCpuClock => "cpu-clock in user mode",
            EventKind::ContextSwitches => "context-switches",
        }
    }

    fn spec(self, period: u64) -> EventSpec {
        const SOFTWARE: u32 = 1;
        const CPU_CLOCK: u64 = 0;
        const CONTEXT_SWITCHES: u64 = 3;
        let config = if self == EventKind::ContextSwitches { CONTEXT_SWITCHES } else { CPU_CLOCK };
        let in_user_mode = self == EventKind::UserCpuClock;
        EventSpec {
            every: Every::Period(period),
            exclude_kernel: in_user_mode,
            exclude_hypervisor: in_user_mode,
            ..EventSpec::new(SOFTWARE, config)
        }
    }
}

/// An open event; closing it ends the samples.
#[derive(Debug)]
pub struct ClockEvent {
    event: PerfEvent,
}

impl ClockEvent {
    /// Opens an event on a process that has one thread; all threads that it starts later inherit the event.
    pub fn open(kind: EventKind, pid: Pid, period: u64) -> Result<ClockEvent, TargetError> {
        let event = PerfEvent::open(&kind.spec(period), pid, ClockEvent::SIGNAL_DATA);
        let error = |source| TargetError::Event { event: kind.name(), pid, source };
        Ok(ClockEvent { event: event.map_err(error)? })
    }

    /// Lets it tick in all threads, or stops it in all; when this returns, it has.
    pub fn set_running(&self, running: bool) {
        self.event.set_running(running);
    }

    /// How long threads of the process have been on a CPU since it was opened,
    /// nanoseconds, those that have ended included.
    pub fn count(&self) -> Option<u64> {
        self.event.count().ok().map(|count| count.events)
    }

    /// What comes with a clock's signal: no metric has an event of this number.
    const SIGNAL_DATA: u64 = 0;
}
