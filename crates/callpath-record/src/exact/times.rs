//! Times of paths (`callpath_format::shared::times`), read out of the memory that they are in. Trusts nothing that it reads.

use std::sync::atomic::Ordering::Relaxed;

use callpath_format::shared::times::{PathKey, PathTimes, TimesHead, TimesOfPath};
use callpath_measurement::{MeasuredTime, MeasurementError, PathTime, TimesAccount};
use callpath_target::{SharedMemory, TargetError};
use rustc_hash::{FxHashMap, FxHashSet};

use super::pages::read_written;
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
pub(super) type ByPath = FxHashMap<(u32, u32), PathTime>;

impl Times {
    pub(super) fn create(which: ExactTimes) -> Result<Times, TargetError> {
        let memory = SharedMemory::create(c"callpath-times", TimesHead::len_bytes())?;
        let times = Times { memory };
        let most_shift = if which == ExactTimes::All { 0 } else { TimesHead::MOST_SHIFT };
        times.head().most_shift.store(most_shift, Relaxed);
        Ok(times)
    }

    fn head(&self) -> &TimesHead {
        // SAFETY: the memory begins with it, and is as long; atomics are valid for any bytes.
        unsafe { &*self.memory.base().cast::<TimesHead>() }
    }

    /// What is known of the measuring; of what had no room, once.
    pub(super) fn account(&self, tick: TickLength) -> TimesAccount {
        let head = self.head();
        TimesAccount { lost: head.lost.swap(0, Relaxed), clock_ns: tick.ns(head.clock_ticks.load(Relaxed)) }
    }

    /// What was measured in these lanes.
    pub(super) fn in_lanes(&self, lanes: &FxHashSet<u32>, tick: TickLength) -> Result<ByPath, MeasurementError> {
        let mut by_path = ByPath::default();
        let table = TimesHead::LEN_BYTES as u64..TimesHead::len_bytes() as u64;
        read_written(&self.memory, table, size_of::<TimesOfPath>() as u64, |_, words| {
            for [key, times @ ..] in words.as_chunks::<{ TimesOfPath::WORDS }>().0 {
                let key = PathKey::from_word(*key).filter(|key| lanes.contains(&key.lane));
                let Some(PathKey { procedure, path, .. }) = key else { continue };
                let sum = by_path.entry((procedure, path)).or_default();
                if let [short, long] = times.as_chunks::<{ PathTimes::WORDS }>().0 {
                    *sum = sum.plus(PathTime { usual: measured(short, tick), long: measured(long, tick) });
                }
            }
        })?;
        Ok(by_path)
    }
}

fn measured(times: &[u64; PathTimes::WORDS], tick: TickLength) -> MeasuredTime {
    let [measured, weight, ticks, pairs, pair_ticks, lows, highs] = *times;
    let squares = (u128::from(highs) << PathTimes::LOW_BITS) + u128::from(lows);
    let square_ns = squares as f64 * tick.ns_per_tick * tick.ns_per_tick;
    let spread = [pairs.into(), tick.ns(pair_ticks).into(), square_ns as u128];
    // A thread that is killed between two additions leaves the number, and not what it weighs.
    MeasuredTime { measured, weight: weight.max(measured), time_ns: tick.ns(ticks), spread }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lanes_have_measured_adds_up() {
        let times = Times::create(ExactTimes::Chosen).unwrap();
        let tick = TickLength { ns_per_tick: 0.5 };
        for (lane, procedure, path, weight, ticks) in [
            (1, 2, 3, 1, 100),
            (1, 2, 3, 4, 300),
            (5, 2, 3, 2, 50),
            (6, 2, 3, 1, 7),
            (1, 9, 0, 1, 8),
            (1, 9, 0, 1, 1 << 16),
        ] {
            let table = times.memory.base().wrapping_add(TimesHead::LEN_BYTES).cast::<TimesOfPath>();
            // SAFETY: as long as the memory; atomics.
            let table = unsafe { std::slice::from_raw_parts(table, TimesHead::COUNT) };
            TimesOfPath::of(table, PathKey { lane, procedure, path }).unwrap().add(weight, ticks);
        }
        let found = times.in_lanes(&FxHashSet::from_iter([1, 5]), tick).unwrap();
        let expected = MeasuredTime { measured: 3, weight: 7, time_ns: 700, spread: [14, 1_850, 271_250] };
        assert_eq!(found.get(&(2, 3)), Some(&PathTime { usual: expected, long: MeasuredTime::default() }));
        let other = found.get(&(9, 0)).map(|time| (time.usual.time_ns, time.long.time_ns));
        assert_eq!((found.len(), other), (2, Some((4, 1 << 15))));
        assert_eq!(times.account(tick), TimesAccount::default());
    }
}
