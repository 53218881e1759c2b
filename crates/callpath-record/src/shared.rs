//! The recorder's data for all processes: their memories, modules, and the file that many of them
//! share. Data of a single process does not belong here.

use std::path::PathBuf;

use callpath_format::shared::Settings;
use callpath_measurement::Together;

use crate::arena::ArenaAllocator;
use crate::exact::{Flows, Programs};
use crate::kernel::Kernel;
use crate::modules::Modules;
use crate::moved::AllMoved;
use crate::publish::Publisher;
use crate::time_base::Beginning;

/// What all processes share.
pub(crate) struct Shared {
    // The first to go: its threads ring the doorbell, which is in the arena.
    pub(crate) modules: Modules,
    pub(crate) allocator: ArenaAllocator,
    pub(crate) publisher: Publisher,
    /// The kernel's code, if samples have frames there.
    pub(crate) kernel: Option<Kernel>,
    /// Code that we have put into processes.
    pub(crate) moved: AllMoved,
    /// Where the table of the object is published that we inject, once it is.
    pub(crate) injected_table: Option<u64>,
    /// What is counted exactly, in each program.
    pub(crate) programs: Programs,
    /// What is counted of it in contexts.
    pub(crate) flows: Option<Flows>,
    /// The measurement's.
    pub(crate) directory: PathBuf,
    pub(crate) began: Beginning,
    /// The file of many processes that end at once.
    pub(crate) together: Together,
    /// Where all is sampled: CPU time of lost samples that stands under the processes whose it was, nanoseconds.
    pub(crate) credited_ns: u64,
}

impl Shared {
    /// Whether calls of probes are counted.
    pub(crate) fn has_probes(&self) -> bool {
        self.publisher.metrics().iter().any(|metric| Settings::is_of_probes(metric.meter))
    }

    /// Whether all that is measured is probes': threads have records once they call something that is probed.
    pub(crate) fn has_probes_alone(&self) -> bool {
        self.has_probes() && self.publisher.metrics().iter().all(|metric| Settings::is_of_probes(metric.meter))
    }
}
