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

    /// Whether it is a switch: of contexts, processors or cgroups. These happen inside the kernel.
    pub(crate) fn is_switch(&self) -> bool {
        self.kind == Kind::Software && matches!(self.spec.config, 3 | 4 | 11)
    }

    /// Why nothing can be counted in the modes that are left. The kernel takes such an event and counts nothing.
    pub(crate) fn never_happens(&self) -> Option<&'static str> {
        if self.kind != Kind::Software {
            None
        } else if self.spec.exclude_user && self.spec.exclude_kernel {
            Some("it never happens in a hypervisor; choose u (user mode), k (kernel) or both")
        } else if self.is_switch() && self.spec.exclude_kernel {
            Some("it happens in the kernel only; leave the modifier out")
        } else {
            None
        }
    }
}
