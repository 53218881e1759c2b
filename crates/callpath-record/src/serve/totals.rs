//! Totals of processes that are no longer served: counted events, unmarkable return addresses, refused calls,
//! overwritten numbers.

use crate::counters::Ledger;
use crate::events::Event;
use crate::plausible::Overwritten;
use crate::process::Process;
use crate::refused::Refusals;
use crate::sentinel::Unmarkable;
use crate::shared::Shared;

/// Sums over processes.
#[derive(Default)]
pub(super) struct Totals {
    ledger: Ledger,
    unmarkable: Unmarkable,
    refusals: Refusals,
    overwritten: Overwritten,
}

impl Totals {
    /// Adds a process, once.
    pub(super) fn add(&mut self, process: &Process, shared: &Shared) {
        if process.enter_overwritten(&mut self.overwritten) {
            return;
        }
        self.ledger.add(process.counted(), process.threads_ever());
        process.enter_marks(shared, &mut self.unmarkable);
        let (program, calls) = process.refused_calls(shared);
        self.refusals.add(&program, calls);
    }

    /// Notes on counted events.
    pub(super) fn notes_of_events(&self, events: &[Event]) -> Vec<String> {
        self.ledger.notes(events)
    }

    /// All other notes.
    pub(super) fn notes(&self) -> impl Iterator<Item = String> {
        self.unmarkable.notes().into_iter().chain(self.refusals.notes()).chain(self.overwritten.note())
    }
}
