//! Slots of the shared memory for processes that do not know of it.

use std::sync::atomic::Ordering::Relaxed;

use callpath_format::shared::{PROCESS_SLOTS, ProcessSlot, SlotState, Source};
use callpath_target::Pid;

use crate::arena::ArenaAllocator;

/// Takes a free slot for a process that does not know of it.
pub(super) fn take_slot(allocator: &ArenaAllocator, pid: Pid) -> Option<usize> {
    let claim =
        |slot: &ProcessSlot| slot.state.compare_exchange(SlotState::FREE, SlotState::CLAIMED, Relaxed, Relaxed).is_ok();
    let index = (0..PROCESS_SLOTS).find(|index| claim(allocator.slot(*index)))?;
    let slot = allocator.slot(index);
    slot.pid.store(pid.0, Relaxed);
    slot.source.store(Source::Outside as u32, Relaxed);
    let zero = [
        &slot.map_wanted,
        &slot.map_served,
        &slot.threads,
        &slot.raw,
        &slot.raw_pending,
        &slot.forked_from,
        &slot.record_word,
        &slot.trap_default,
        &slot.unloading,
        &slot.pause,
        &slot.walks_itself,
        &slot.unmarked,
        &slot.marks_lost,
        &slot.refused_calls,
        &slot.raw_reach,
        &slot.loads_wanted,
        &slot.loads_served,
    ];
    zero.into_iter().for_each(|word| word.store(0, Relaxed));
    slot.load_map.store(0, Relaxed);
    slot.lane_word.store(0, Relaxed);
    slot.lane_word_image.store(0, Relaxed);
    slot.inherited_cpu_ns.store(0, Relaxed);
    slot.dropped_unrecorded.iter().for_each(|count| count.store(0, Relaxed));
    // The recorder alone reads it, which knows it already.
    slot.state.store(SlotState::LIVE, Relaxed);
    Some(index)
}
