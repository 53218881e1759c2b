//! A counter: an event that the kernel counts, as it is opened.

use callpath_format::shared::Settings;
use callpath_target::EventSpec;

/// What kind of thing counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// The kernel itself.
    Software,
    /// The processor.
    Hardware,
    /// A unit that the kernel describes under /sys.
    Device,
    /// A place in the kernel.
    Tracepoint,
    /// An address.
    Breakpoint,
}

/// Something that the kernel counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Counter {
    pub(crate) spec: EventSpec,
    /// What its metric reads, of [`Settings`]'s numbers.
    pub(crate) meter: u32,
    /// So often a second it may happen in a thread that is busy with it: what a rate begins with.
    pub(crate) usual_rate: u64,
    pub(crate) kind: Kind,
    /// Whether a person said in which modes.
    pub(crate) modes_given: bool,
}

impl Counter {
    pub(crate) fn new(spec: EventSpec, kind: Kind, usual_rate: u64) -> Counter {
        Counter { spec, meter: Settings::COUNTED, usual_rate, kind, modes_given: false }
    }
}
