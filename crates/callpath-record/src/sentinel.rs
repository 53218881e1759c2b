//! Counts return addresses that could not be marked, and puts them into sentences.

use std::sync::atomic::Ordering::Relaxed;

use callpath_format::shared::{ProcessSlot, Settings, Unmarked};

/// Over all processes.
#[derive(Default)]
pub(crate) struct Unmarkable {
    shadow_stacks: u64,
    walk_themselves: u64,
    no_memory: u64,
    marks_lost: u64,
}

impl Unmarkable {
    /// Adds the numbers of a process's slot at its end.
    pub(crate) fn add(&mut self, settings: &Settings, slot: &ProcessSlot) {
        if settings.sentinel == Settings::NEVER {
            return;
        }
        let why = slot.unmarked.load(Relaxed);
        let is_for = |reason: Unmarked| u64::from(why == reason as u32);
        self.shadow_stacks += is_for(Unmarked::ShadowStack);
        self.no_memory += is_for(Unmarked::NoMemory);
        // By default nothing is missed before a stack is deep.
        let misses = slot.walks_itself.load(Relaxed) != 0 && settings.sentinel == Settings::ALWAYS;
        self.walk_themselves += is_for(Unmarked::WalksItself).max(u64::from(misses));
        self.marks_lost += u64::from(slot.marks_lost.load(Relaxed));
    }

    /// As sentences.
    pub(crate) fn notes(&self) -> Vec<String> {
        let counts = [
            (
                self.shadow_stacks,
                "the sentinel was not used in processes whose return addresses the processor checks (a user shadow stack)",
            ),
            (
                self.walk_themselves,
                "the sentinel was not used in processes with a runtime that walks its stacks itself (Java, JavaScript, Go, \
                 OCaml, .NET, Ruby, Guile, greenlets)",
            ),
            (self.no_memory, "deep stacks were not marked in processes that lack the memory or limit it (RLIMIT_AS)"),
            (self.marks_lost, "frames were not marked, since all marks were in use; their returns are not counted"),
        ];
        counts.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{what}: {count}")).collect()
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
        let auto = Settings { sentinel: Settings::AUTO, ..Settings::default() };
        slot.marks_lost.store(0, Relaxed);
        unmarkable.add(&auto, &slot);
        assert_eq!(unmarkable.notes(), Vec::<String>::new());
        for (why, word) in [(Unmarked::NoMemory, "RLIMIT_AS"), (Unmarked::WalksItself, "Ruby")] {
            slot.unmarked.store(why as u32, Relaxed);
            let mut unmarkable = Unmarkable::default();
            unmarkable.add(&auto, &slot);
            assert!(unmarkable.notes().concat().contains(word), "{why:?}");
        }
        slot.unmarked.store(0, Relaxed);
        slot.marks_lost.store(7, Relaxed);
        unmarkable.add(&Settings { sentinel: Settings::ALWAYS, ..Settings::default() }, &slot);
        let notes = unmarkable.notes();
        assert!(notes[0].ends_with("greenlets): 1") && notes[1].ends_with("counted: 7"), "{notes:?}");
    }
}
