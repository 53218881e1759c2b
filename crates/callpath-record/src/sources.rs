//! The sources of a process's samples: the kernel's clock if it is allowed, else
//! timers; and the events that are counted besides.

use std::sync::atomic::AtomicU64;

use callpath_format::shared::Source;
use callpath_measurement::plain;
use callpath_target::{ClockEvent, EventKind, Pid, TargetError};

use crate::counters::Counters;
use crate::events::Clock;
use crate::offered;
use crate::settings::RecordOptions;

/// Where the samples of one process come from.
pub(crate) struct Sources {
    pub(crate) kind: Source,
    clocks: Vec<ClockEvent>,
    pub(crate) counters: Counters,
}

impl Sources {
    /// Opens the best source that this user may have, and the other counted events, and writes their samples' weights
    /// to `bases`, those of the process's slot. Second: notes for the user.
    pub(crate) fn open(pid: Pid, bases: &[AtomicU64], options: &RecordOptions) -> (Sources, Vec<String>) {
        let Clocks { kind, events, note } = Clocks::open(pid, options);
        let (counters, lost) = Counters::open(pid, bases, options, kind == Source::Clock);
        (Sources { kind, clocks: events, counters }, note.into_iter().chain(lost).collect())
    }

    /// The event of the process's CPU clock, if the kernel gives one.
    pub(crate) fn cpu_clock(&self) -> Option<&ClockEvent> {
        self.clocks.first()
    }

    /// Lets all of them run, or stops them.
    pub(crate) fn set_running(&self, running: bool) {
        self.clocks.iter().for_each(|event| event.set_running(running));
        self.counters.set_running(running);
    }
}

/// The source of samples.
struct Clocks {
    kind: Source,
    events: Vec<ClockEvent>,
    /// A note on it for the user.
    note: Option<String>,
}

impl Clocks {
    /// Nothing is tried out beforehand: closing an event takes the kernel 10 ms.
    fn open(pid: Pid, options: &RecordOptions) -> Clocks {
        let wall = options.uses(Clock::WallTime);
        if !wall && !options.uses(Clock::CpuTime) {
            return Clocks { kind: Source::Clock, events: Vec::new(), note: None };
        }
        let why = match Clocks::whole_clock(pid, wall, options.period_ns) {
            Ok(events) => return Clocks { kind: Source::Clock, events, note: None },
            Err(TargetError::Event { source, .. }) => source,
            Err(other) => std::io::Error::other(other),
        };
        // The reason, and what would help where the kernel's setting is the reason.
        let why_with_advice = |enough| {
            let advice =
                offered::paranoid_is_too_strict(enough).map_or_else(String::new, |advice| format!("; {advice}"));
            format!("{}{advice}", plain(&why))
        };
        let timers = |kind, note| Clocks { kind, events: Vec::new(), note: Some(note) };
        if why.raw_os_error() == Some(libc::ESRCH) {
            // It has just ended: nothing is left to sample.
            return Clocks { kind: Source::Clock, events: Vec::new(), note: None };
        }
        if why.raw_os_error() == Some(libc::EMFILE) {
            let note = "descriptors ran out (RLIMIT_NOFILE, `ulimit -n`): samples of some processes come from a timer in each \
                        thread"
                .to_owned();
            return timers(if wall { Source::WallTimer } else { Source::CpuTimer }, note);
        }
        if wall {
            let note = format!(
                "samples come from a timer in each thread, which may interrupt system calls that are made without the C library: the kernel's clock \
                 is not for this user ({})",
                why_with_advice(1)
            );
            return timers(Source::WallTimer, note);
        }
        if let Ok(event) = ClockEvent::open(EventKind::UserCpuClock, pid, options.period_ns) {
            let note = format!(
                "time in the kernel is sampled at the kernel's tick only, since its clock shows this user no more than \
                 user mode ({})",
                why_with_advice(1)
            );
            return Clocks { kind: Source::UserClock, events: vec![event], note: Some(note) };
        }
        let note = format!(
            "samples come from a timer in each thread, at the kernel's tick at most (100 to 1000 a second): the kernel's \
             clock is not for this user ({})",
            why_with_advice(2)
        );
        timers(Source::CpuTimer, note)
    }

    fn whole_clock(pid: Pid, wall: bool, period_ns: u64) -> Result<Vec<ClockEvent>, TargetError> {
        let mut events = vec![ClockEvent::open(EventKind::CpuClock, pid, period_ns)?];
        if wall {
            events.push(ClockEvent::open(EventKind::ContextSwitches, pid, 1)?);
        }
        Ok(events)
    }
}
