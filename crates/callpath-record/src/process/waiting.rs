//! A process's raw samples: taken out of the shared memory, walked, and retained while they wait for tables.

use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::time::Duration;

use callpath_format::shared::{ArenaRef, Settings};
use rustc_hash::FxHashMap;

use crate::module::{Awaited, ModuleId};
use crate::raw::{self, Raw, Walked};
use crate::shared::Shared;

use super::{MAP_IS_OLD, Process, Stage, ThreadState};

/// Samples that waited for a table are walked for so long at a time: new ones come meanwhile, and need room.
pub(crate) const LOOK_AT_MOST: Duration = Duration::from_millis(2);

/// Threads that samples may be added to.
pub(super) struct Live {
    /// Their indices in the process, by their records.
    thread_indices: FxHashMap<ArenaRef, usize>,
    settings: Settings,
}

impl Process {
    /// Walks the raw samples that it has put down since the last time.
    pub(crate) fn drain_raw(&mut self, shared: &mut Shared) {
        self.code.generated.begin_round();
        self.generated_names.follow_dump(&mut self.code.generated);
        let chunks = raw::take_list(&shared.allocator, shared.allocator.slot(self.slot));
        if chunks.is_empty() {
            return self.look_again_at_postponed(shared);
        }
        self.find_threads(shared);
        let live = self.live_threads(shared.allocator.settings());
        let mut longest = 0;
        // Oldest first.
        let mut refreshed = false;
        for chunk in chunks.iter().rev() {
            let Some(raw) = Raw::in_chunk(&shared.allocator, *chunk) else { continue };
            let mut walked = self.code.walk(&raw, shared.publisher.published());
            let is_old = self.code.map_read.elapsed() > MAP_IS_OLD;
            if !refreshed && (walked.met_unknown || is_old) {
                refreshed = true;
                // Its chunk is not given back before all have been looked at.
                self.refresh_map(shared);
                let Some(raw) = Raw::in_chunk(&shared.allocator, *chunk) else { continue };
                walked = self.code.walk(&raw, shared.publisher.published());
            }
            let Some(raw) = Raw::in_chunk(&shared.allocator, *chunk) else { continue };
            longest = longest.max(raw.more_chunks());
            if raw.is_of_generated_code() {
                let chunks = self.reach.learn(&walked, raw.more_chunks());
                shared.allocator.slot(self.slot).raw_reach.store(chunks as u32, Relaxed);
            }
            let wanted = self.attribute(&live, &raw, &walked);
            wanted.into_iter().for_each(|awaited| shared.modules.hurry(awaited));
        }
        self.code.publish_changes(shared, self.slot);
        for chunk in &chunks {
            raw::give_back(&mut shared.allocator, *chunk);
        }
        shared.allocator.expect_copies(longest as u32 + 1);
        shared.allocator.slot(self.slot).raw_pending.fetch_sub(chunks.len() as u32, AcqRel);
        self.look_again_at_postponed(shared);
    }

    /// Continues samples whose tables are there now, for about this long.
    pub(crate) fn receive_tables(&mut self, shared: &mut Shared, at_most: Duration) {
        let has_changed = self.code.receive(shared, self.slot);
        // A map that was read meanwhile may have brought tables, too.
        let is_due = self.backlog.is_due(|awaited| shared.modules.is_there(awaited));
        if !has_changed && !is_due {
            return;
        }
        let live = self.live_threads(shared.allocator.settings());
        let mut backlog = std::mem::take(&mut self.backlog);
        let mut wanted = Vec::new();
        backlog.look(
            at_most,
            |awaited| shared.modules.is_there(awaited),
            |retained| {
                let walked = self.code.walk(&retained.as_raw(), shared.publisher.published());
                match walked.met_awaited {
                    Some(awaited) => wanted.push(awaited),
                    None if walked.met_postponed && self.postponed.retain(&retained.as_raw(), ()) => {
                        self.code.retain_for(&retained.as_raw());
                    }
                    None => self.enter(&live, &retained.as_raw(), &walked),
                }
                walked.met_awaited
            },
        );
        self.backlog = backlog;
        wanted.into_iter().for_each(|awaited| shared.modules.hurry(awaited));
    }

    /// Continues samples of generated code that could not be analysed when they came. Code of a
    /// process that has ended cannot be read any more.
    pub(super) fn look_again_at_postponed(&mut self, shared: &mut Shared) {
        let has_ended = self.has_ended() || self.stage != Stage::Measured;
        if self.postponed.is_empty() || !has_ended && !self.code.generated.shall_look_again() {
            return;
        }
        if has_ended {
            self.code.generated.finish();
        }
        let live = self.live_threads(shared.allocator.settings());
        let postponed: Vec<_> = self.postponed.take().collect();
        for retained in postponed {
            if has_ended {
                // There is no later round, and no other process to serve in this one.
                self.code.generated.begin_round();
            }
            let walked = self.code.walk(&retained.as_raw(), shared.publisher.published());
            if has_ended {
                self.enter(&live, &retained.as_raw(), &walked);
            } else {
                let wanted = self.attribute(&live, &retained.as_raw(), &walked);
                wanted.into_iter().for_each(|awaited| shared.modules.hurry(awaited));
            }
        }
        self.code.publish_changes(shared, self.slot);
    }

    /// Adds a raw sample to its thread, or retains it for later: until the tables
    /// are there that it gives, the first one first.
    pub(super) fn attribute(&mut self, live: &Live, raw: &Raw<'_>, walked: &Walked) -> Vec<Awaited> {
        if let Some(awaited) = walked.met_awaited
            && self.backlog.retain(raw, awaited)
        {
            // And what its callers will wait for.
            return [awaited].into_iter().chain(self.code.awaited_by(raw)).collect();
        }
        let is_kept = walked.met_awaited.is_none() && walked.met_postponed && self.postponed.retain(raw, ());
        if is_kept {
            // The process may end before it is looked at again.
            self.code.retain_for(raw);
        } else {
            self.enter(live, raw, walked);
        }
        Vec::new()
    }

    fn enter(&mut self, live: &Live, raw: &Raw<'_>, walked: &Walked) {
        let thread = live.thread_indices.get(&raw.owner).and_then(|at| self.threads.get_mut(*at));
        if let Some(ThreadState::Live(thread)) = thread {
            raw.attribute(thread, walked, &live.settings);
        }
    }

    /// Adds the samples that wait for tables with the paths that are known. Whether there are any.
    pub(crate) fn stop_waiting(&mut self, shared: &Shared) -> bool {
        let live = self.live_threads(shared.allocator.settings());
        let waiting: Vec<_> = self.backlog.take().collect();
        for retained in &waiting {
            let walked = self.code.walk(&retained.as_raw(), shared.publisher.published());
            self.enter(&live, &retained.as_raw(), &walked);
        }
        !waiting.is_empty()
    }

    /// Whether samples wait for recipe tables that are soon there.
    pub(crate) fn awaits_tables_soon(&self, shared: &Shared) -> bool {
        self.backlog.waits(|awaited| shared.modules.is_soon(awaited))
    }

    /// Whether samples wait for recipe tables.
    pub(crate) fn awaits_tables(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// How many samples wait for recipe tables, by module.
    pub(crate) fn awaited_modules(&self) -> FxHashMap<ModuleId, u64> {
        let mut waiting = FxHashMap::default();
        self.backlog.awaited().for_each(|awaited| *waiting.entry(awaited.module).or_default() += 1);
        waiting
    }

    /// Whether samples wait for recipe tables that are being built.
    pub(crate) fn awaits_any(&self, shared: &Shared) -> bool {
        self.backlog.waits(|awaited| shared.modules.is_being_built(awaited))
    }

    /// Whether samples are left whose tables are there.
    pub(crate) fn has_more_to_walk(&self) -> bool {
        self.backlog.broke_off()
    }

    /// Whether samples of this thread wait for a table or an analysis.
    pub(super) fn has_waiting(&self, record: ArenaRef) -> bool {
        self.backlog.has_any_of(record) || self.postponed.has_any_of(record)
    }

    /// One thread, whose index is known.
    pub(super) fn only(&self, record: ArenaRef, index: usize, settings: &Settings) -> Live {
        Live { thread_indices: [(record, index)].into_iter().collect(), settings: *settings }
    }

    fn live_threads(&self, settings: &Settings) -> Live {
        let live = self.threads.iter().enumerate().filter_map(|(at, thread)| match thread {
            ThreadState::Live(thread) => Some((thread.record, at)),
            ThreadState::Ended(_) => None,
        });
        Live { thread_indices: live.collect(), settings: *settings }
    }
}
