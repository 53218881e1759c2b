//! Times of paths (`callpath_format::shared::times`), read out of the memory that they are in. Trusts nothing that it reads.

use std::sync::atomic::Ordering::Relaxed;

use callpath_format::shared::times::{PathKey, PathTimes, TimesHead};
use callpath_measurement::MeasuredTime;
use callpath_target::{SharedMemory, TargetError};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::time_base::TickLength;

/// Which executions of paths are measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExactTimes {
    /// Some, chosen by chance: of each procedure in each thread the first ones all are.
    Chosen,
    /// All.
    All,
}

/// What was measured in a program and its forks.
pub(super) struct Times {
    pub(super) memory: SharedMemory,
}

/// By the procedure's number and the path's: what was measured in some lanes, ticks as nanoseconds.
pub(super) type ByPath = FxHashMap<(u32, u32), MeasuredTime>;

impl Times {
    pub(super) fn create(which: ExactTimes) -> Result<Times, TargetError> {
        let memory = SharedMemory::create(c"callpath-times", TimesHead::len_bytes())?;
        let times = Times { memory };
        times.head().count.store(TimesHead::COUNT as u64, Relaxed);
        let most_shift = if which == ExactTimes::All { 0 } else { TimesHead::MOST_SHIFT };
        times.head().most_shift.store(most_shift, Relaxed);
        Ok(times)
    }

    fn head(&self) -> &TimesHead {
        // SAFETY: the memory begins with it, and is as long; atomics are valid for any bytes.
        unsafe { &*self.memory.base().cast::<TimesHead>() }
    }

    fn table(&self) -> &[PathTimes] {
        let table = self.memory.base().wrapping_add(TimesHead::LEN_BYTES).cast::<PathTimes>();
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(table, TimesHead::COUNT) }
    }

    /// Executions that were measured and had no room, once.
    pub(super) fn take_lost(&self) -> u64 {
        self.head().lost.swap(0, Relaxed)
    }

    /// What was measured in these lanes.
    pub(super) fn in_lanes(&self, lanes: &FxHashSet<u32>, tick: TickLength) -> ByPath {
        let mut by_path = ByPath::default();
        for times in self.table() {
            let key = PathKey::from_word(times.key.load(Relaxed)).filter(|key| lanes.contains(&key.lane));
            let Some(PathKey { procedure, path, .. }) = key else { continue };
            let sum = by_path.entry((procedure, path)).or_default();
            *sum = sum.plus(measured(times, tick));
        }
        by_path
    }
}

fn measured(times: &PathTimes, tick: TickLength) -> MeasuredTime {
    let [lows, highs] = times.squares.each_ref().map(|sum| u128::from(sum.load(Relaxed)));
    let squares = (highs << PathTimes::LOW_BITS) + lows;
    let square_ns = squares as f64 * tick.ns_per_tick * tick.ns_per_tick;
    MeasuredTime {
        measured: times.measured.load(Relaxed),
        weight: times.weight.load(Relaxed),
        time_ns: tick.ns(times.ticks.load(Relaxed)),
        spread: [times.pairs.load(Relaxed).into(), tick.ns(times.pair_ticks.load(Relaxed)).into(), square_ns as u128],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lanes_have_measured_adds_up() {
        let times = Times::create(ExactTimes::Chosen).unwrap();
        let tick = TickLength { ns_per_tick: 0.5 };
        for (lane, procedure, path, weight, ticks) in
            [(1, 2, 3, 1, 100), (1, 2, 3, 4, 300), (5, 2, 3, 2, 50), (6, 2, 3, 1, 7), (1, 9, 0, 1, 8)]
        {
            PathTimes::of(times.table(), PathKey { lane, procedure, path }).unwrap().add(weight, ticks);
        }
        let found = times.in_lanes(&FxHashSet::from_iter([1, 5]), tick);
        let expected = MeasuredTime { measured: 3, weight: 7, time_ns: 700, spread: [14, 1_850, 271_250] };
        assert_eq!(found.get(&(2, 3)), Some(&expected));
        assert_eq!((found.len(), found.get(&(9, 0)).map(|time| time.time_ns)), (2, Some(4)));
        assert_eq!(times.take_lost(), 0);
    }
}
