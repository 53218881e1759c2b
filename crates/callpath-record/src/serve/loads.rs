//! Threads that wait for what is done in libraries that have come.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use callpath_target::Pid;

use crate::arena::wake;
use crate::moved::ProgramNumber;

use super::Recorder;

/// A process in which libraries have come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loading {
    pub(crate) pid: Pid,
    pub(crate) slot: usize,
    /// The program that it runs.
    pub(crate) program: ProgramNumber,
    wanted: u32,
}

impl Recorder<'_> {
    /// One whose threads wait.
    pub(crate) fn loading(&self) -> Option<Loading> {
        self.processes.iter().find_map(|process| {
            let program = process.own_program()?;
            let slot = self.shared.allocator.slot(process.slot);
            let wanted = slot.loads_wanted.load(Acquire);
            let waits = wanted != slot.loads_served.load(Relaxed);
            waits.then_some(Loading { pid: process.pid(), slot: process.slot, program, wanted })
        })
    }

    /// Lets them go on.
    pub(crate) fn let_go_on(&mut self, loading: Loading) {
        let slot = self.shared.allocator.slot(loading.slot);
        slot.loads_served.store(loading.wanted, Release);
        wake(&slot.loads_served);
    }
}
