//! A counter: an event that the kernel counts, as it is opened.

use callpath_format::shared::Settings;
use callpath_target::EventSpec;

/// The kind of an event's source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// The kernel itself.
    Software,
    /// The processor.
    Hardware,
    /// A unit that the kernel describes under /sys.
    Device,
    /// A tracepoint.
    Tracepoint,
    /// A breakpoint.
    Breakpoint,
}

/// An event that the kernel counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Counter {
    pub(crate) spec: EventSpec,
    /// The meter of its metric, one of [`Settings`]'s numbers.
    pub(crate) meter: u32,
    /// How often a second it may happen in a busy thread: the first guess for a rate.
    pub(crate) usual_rate: u64,
    pub(crate) kind: Kind,
    /// Whether modifiers named the modes.
    pub(crate) modes_given: bool,
}

impl Counter {
    pub(crate) fn new(spec: EventSpec, kind: Kind, usual_rate: u64) -> Counter {
        Counter { spec, meter: Settings::COUNTED, usual_rate, kind, modes_given: false }
    }
}
