//! What can be wrong with an event, a rate or a period that a person typed.

use callpath_format::shared::Columns;

/// How many events can be recorded at once. A thread's first chunk of shared memory holds a column of each.
pub const MAX_EVENTS: usize = Columns::MOST as usize;

/// An event, a rate or a period that cannot be recorded.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum EventError {
    #[error("unknown event `{0}`; see: callpath list")]
    Unknown(String),
    #[error(
        "event `{group}`: there are no groups, since each event has samples of its own; to record the events in one run: -e {list}"
    )]
    Group { group: String, list: String },
    #[error("event `{event}`: there is no tracepoint of that name under {directory}/events")]
    Tracepoint { event: String, directory: String },
    #[error(
        "event `{event}`: the kernel's tracepoints cannot be read ({reason}); they need root, and: mount -t tracefs none /sys/kernel/tracing"
    )]
    Tracing { event: String, reason: String },
    #[error("event `{event}`: {reason}")]
    Malformed { event: String, reason: String },
    #[error(
        "event `{event}`: `{modifier}` is not a modifier; these are: u (user mode), k (kernel), h (hypervisor), p, pp, ppp"
    )]
    Modifier { event: String, modifier: char },
    #[error(
        "`{0}` is not a period; write nanoseconds between samples, from 50000 to 1000000000 (cpu-time@1000000), or a rate (cpu-time@f1000)"
    )]
    ClockPeriod(String),
    #[error(
        "`{0}` is not a period; write events from one sample to the next (page-faults@100) or a rate (page-faults@f1000)"
    )]
    Period(String),
    #[error("a rate of {0} samples a second is out of range; choose 1 to 20000")]
    Rate(u64),
    #[error("-F 0 takes no samples, and event `{0}` needs them; leave out one of the two")]
    NoSamples(String),
    #[error("event `{0}` is asked for twice")]
    Twice(String),
    #[error("{0} events are too many; {MAX_EVENTS} can be recorded at once")]
    TooMany(usize),
}
