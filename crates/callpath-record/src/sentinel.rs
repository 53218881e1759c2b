//! What is to be said of return addresses that could not be marked.
//! Knows nothing of how they are.

use std::sync::atomic::Ordering::Relaxed;

use callpath_format::shared::{ProcessSlot, Settings, Unmarked};

/// Over all processes.
#[derive(Default)]
pub(crate) struct Unmarkable {
    shadow_stacks: u64,
    walk_themselves: u64,
    marks_lost: u64,
}

impl Unmarkable {
    /// Enters what a process's slot says at its end.
    pub(crate) fn add(&mut self, settings: &Settings, slot: &ProcessSlot) {
        if settings.sentinel == Settings::NEVER {
            return;
        }
        self.shadow_stacks += u64::from(slot.unmarked.load(Relaxed) == Unmarked::ShadowStack as u32);
        self.walk_themselves += u64::from(slot.walks_itself.load(Relaxed) != 0);
        self.marks_lost += u64::from(slot.marks_lost.load(Relaxed));
    }

    /// As sentences.
    pub(crate) fn notes(&self) -> Vec<String> {
        let said = [
            (
                self.shadow_stacks,
                "the sentinel was not used in processes whose return addresses the processor checks (a user shadow stack)",
            ),
            (
                self.walk_themselves,
                "the sentinel was not used in processes with a runtime that walks its stacks itself (Java, JavaScript, Go, \
                 OCaml, .NET, Ruby, Guile, greenlets)",
            ),
            (self.marks_lost, "frames were not marked, since all marks were in use; their returns are not counted"),
        ];
        said.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{what}: {count}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_asked_for_is_missed() {
        // SAFETY: all atomics, for which zero is a value.
        let slot: ProcessSlot = unsafe { std::mem::zeroed() };
        slot.walks_itself.store(1, Relaxed);
        slot.marks_lost.store(7, Relaxed);
        let mut unmarkable = Unmarkable::default();
        unmarkable.add(&Settings::default(), &slot);
        assert_eq!(unmarkable.notes(), Vec::<String>::new());
        unmarkable.add(&Settings { sentinel: Settings::ALWAYS, ..Settings::default() }, &slot);
        let notes = unmarkable.notes();
        assert!(notes[0].ends_with("greenlets): 1") && notes[1].ends_with("counted: 7"), "{notes:?}");
    }
}
