//! Totals of processes that are no longer served: counted events, unmarkable return addresses, refused calls,
//! overwritten numbers.

use callpath_format::frame::Gap;

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
    /// Processes that there was no memory for.
    without_record: u64,
    /// There were processes that were sampled from outside.
    from_outside: bool,
}

/// For the user.
const SOME_FROM_OUTSIDE: &str =
    "programs that load no preloaded object (static, musl, Go, another environment) were sampled from outside";

impl Totals {
    /// Adds a process, once.
    pub(super) fn add(&mut self, process: &Process, shared: &Shared) {
        if process.enter_overwritten(&mut self.overwritten) {
            return;
        }
        self.from_outside |= process.is_from_outside();
        self.without_record += u64::from(process.has_no_record());
        self.ledger.add(process.counted(), process.threads_ever());
        process.enter_marks(shared, &mut self.unmarkable);
        let (program, calls) = process.refused_calls(shared);
        self.refusals.add(&program, calls);
    }

    /// A note if some were sampled from outside, beside others that were measured from inside.
    pub(super) fn note_of_outside(&self) -> Option<String> {
        self.from_outside.then(|| SOME_FROM_OUTSIDE.to_owned())
    }

    /// Notes on counted events.
    pub(super) fn notes_of_events(&self, events: &[Event]) -> Vec<String> {
        self.ledger.notes(events)
    }

    /// A note if there was too little memory. `is_exhausted`: no more could be had at some time.
    pub(super) fn note_of_memory(&self, is_exhausted: bool) -> Option<String> {
        let without = match self.without_record {
            0 if !is_exhausted => return None,
            0 => String::new(),
            1 => ", and all of 1 process".to_owned(),
            more => format!(", and all of {more} processes"),
        };
        Some(format!(
            "memory for the measurement ran out: samples were dropped{without}; their time has no call path and stands in the \
             rows `{}`",
            Gap::NoRoom.name()
        ))
    }

    /// All other notes.
    pub(super) fn notes(&self) -> impl Iterator<Item = String> {
        self.unmarkable.notes().into_iter().chain(self.refusals.notes()).chain(self.overwritten.note())
    }
}
