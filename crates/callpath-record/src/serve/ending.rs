//! The end of a recording: samples wait for recipe tables that are not there yet.

use std::time::Duration;

use rustc_hash::FxHashMap;

use super::{Recorder, Subject, note_once};
use crate::module::ModuleId;
use crate::process::Process;
use crate::signals;
use crate::worker_pool::Pace;

/// How long a measurement waits at its end for whole tables of large modules, at most: they take a second or a few of a
/// processor's time, which a busy machine gives late. Samples that need them end where there is none.
const PATIENCE_AT_END: Duration = Duration::from_secs(60);
/// A whole table is built at the end for this share of the samples of processes in which any wait, one in so many, if there are at least
/// [`LEAST_SAMPLES`].
const WORTHY_SHARE: u64 = 100;
const LEAST_SAMPLES: u64 = 5;

impl Recorder<'_> {
    /// Waits for the tables that samples still wait for.
    pub(super) fn await_tables(&mut self, program: &mut impl Subject) {
        signals::have_stopped();
        self.shared.modules.hasten();
        self.let_all_in();
        while self.processes.iter().any(Process::awaits_tables) || !self.held.is_empty() || !self.leaving.is_empty() {
            if !self.any_awaits(|process, _| process.has_more_to_walk()) {
                self.shared.modules.receive_one(&mut self.shared.publisher);
            }
            program.listen();
            let waited = self.shared.began.elapsed() - self.lasted.unwrap_or_default();
            if signals::shall_stop() {
                self.stop_waiting(
                    "the recorder was interrupted while it built recipe tables; paths end in code without a table",
                );
            } else if !self.any_awaits(Process::awaits_any) && !self.begin_worthy_tables() {
                // Too few samples want what nothing describes.
                self.stop_waiting("");
            } else if waited >= PATIENCE_AT_END && !self.any_awaits(Process::awaits_tables_soon) {
                self.stop_waiting(
                    "the recipe tables of large modules were not complete a minute after the program's end: some paths end in \
                     code that has no call frame information; the next recording on a machine that is less busy completes them",
                );
            }
            self.serve();
        }
    }

    /// Begins to build the whole table that most samples wait for, if it is worth it: one at a time, as they take much memory. Whether
    /// it can be had.
    fn begin_worthy_tables(&mut self) -> bool {
        let mut waiting: FxHashMap<ModuleId, u64> = FxHashMap::default();
        let mut all = 0;
        for process in self.processes.iter().chain(self.leaving.iter().map(|(process, _)| process)) {
            let awaited = process.awaited_modules();
            if !awaited.is_empty() {
                all += process.samples_taken(&self.shared);
            }
            awaited.into_iter().for_each(|(module, samples)| *waiting.entry(module).or_default() += samples);
        }
        waiting.retain(|module, samples| is_worthy(*samples, all) && self.shared.modules.may_have_whole(*module));
        let Some((module, _)) = waiting.into_iter().max_by_key(|(module, samples)| (*samples, module.0)) else {
            return false;
        };
        self.shared.modules.want_whole(module, Pace::Now);
        true
    }

    /// Continues without the tables that samples wait for.
    fn stop_waiting(&mut self, note: &str) {
        for process in self.processes.iter_mut().chain(self.leaving.iter_mut().map(|(process, _)| process)) {
            if process.stop_waiting(&self.shared) && !note.is_empty() {
                note_once(&mut self.notes, note);
            }
        }
    }
}

/// Whether so many samples that wait, of all, are worth a table that takes seconds.
fn is_worthy(samples: u64, all: u64) -> bool {
    samples >= LEAST_SAMPLES && samples.saturating_mul(WORTHY_SHARE) >= all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_samples_are_worth_no_table() {
        assert!(is_worthy(5, 10) && is_worthy(5, 500) && is_worthy(40, 600));
        assert!(!is_worthy(4, 10) && !is_worthy(5, 501) && !is_worthy(40, 5000) && !is_worthy(0, 0));
    }
}
