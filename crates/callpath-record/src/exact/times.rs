//! Times of paths (`callpath_format::shared::times`), read out of the memory that they are in. Trusts nothing that it reads.

use std::sync::atomic::Ordering::Relaxed;

use callpath_format::shared::Settings;
use callpath_format::shared::times::{MeteredPaths, PathKey, PathTimes, TimesHead, TimesOfPath};
use callpath_measurement::{MeasuredTime, MeasurementError, PATH_METRICS, PathMetric, PathTime, TimesAccount};
use callpath_target::{SharedMemory, TargetError};
use rustc_hash::{FxHashMap, FxHashSet};

use super::pages::read_written;
use crate::events::MetricOfPaths;
use crate::time_base::TickLength;

/// What is measured of paths, or of calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExactTimes {
    /// The metrics: the first one is there.
    pub metrics: [Option<MetricOfPaths>; PATH_METRICS],
    /// Which executions are.
    pub executions: MeasuredExecutions,
    /// Where calls alone are counted: metrics are read at the back edges of procedures, too.
    pub at_back_edges: bool,
}

impl ExactTimes {
    /// Whether it takes the general routines: anything but the time that passes alone.
    pub(super) fn is_general(&self) -> bool {
        self.metrics.iter().flatten().any(|metric| metric.meter() != Settings::PROBED_TICKS)
            || self.metrics[1].is_some()
    }
}

/// Which executions of paths are measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MeasuredExecutions {
    /// Some, chosen by chance: of each procedure in each thread the first ones all are.
    Chosen,
    /// All.
    All,
}

/// What was measured in a program and its forks.
pub(super) struct Times {
    pub(super) memory: SharedMemory,
    metrics: Vec<MetricOfPaths>,
}

/// By the procedure's number and the path's: what was measured in some lanes, of each metric; ticks as nanoseconds.
pub(super) type ByPath = FxHashMap<(u32, u32), [PathTime; PATH_METRICS]>;

/// The length of a tick, or of a unit of what is no ticks.
fn unit_of(metric: MetricOfPaths, tick: TickLength) -> TickLength {
    if metric.meter() == Settings::PROBED_TICKS { tick } else { TickLength { ns_per_tick: 1.0 } }
}

impl Times {
    pub(super) fn create(which: ExactTimes) -> Result<Times, TargetError> {
        let metrics: Vec<MetricOfPaths> = which.metrics.into_iter().flatten().collect();
        let memory = SharedMemory::create(c"callpath-times", TimesHead::len_bytes(metrics.len()))?;
        let times = Times { memory, metrics };
        let most_shift = if which.executions == MeasuredExecutions::All { 0 } else { TimesHead::MOST_SHIFT };
        times.head().most_shift.store(most_shift, Relaxed);
        for (place, metric) in times.head().metrics.iter().zip(&times.metrics) {
            let attributes = metric.attributes().unwrap_or_default();
            place.attributes.iter().zip(attributes).for_each(|(word, attribute)| word.store(attribute, Relaxed));
            place.meter.store(metric.meter().into(), Relaxed);
        }
        Ok(times)
    }

    fn head(&self) -> &TimesHead {
        // SAFETY: the memory begins with it, and is as long; atomics are valid for any bytes.
        unsafe { &*self.memory.base().cast::<TimesHead>() }
    }

    /// What is known of the measuring; of what had no room, once.
    pub(super) fn account(&self, tick: TickLength) -> Vec<PathMetric> {
        let of = |(place, metric): (&MeteredPaths, &MetricOfPaths)| {
            let cost = unit_of(*metric, tick).ns(place.cost.load(Relaxed));
            let account = TimesAccount { lost: place.lost.swap(0, Relaxed), clock_ns: cost };
            PathMetric { name: metric.name().to_owned(), account }
        };
        self.head().metrics.iter().zip(&self.metrics).map(of).collect()
    }

    /// What was measured in these lanes.
    pub(super) fn in_lanes(&self, lanes: &FxHashSet<u32>, tick: TickLength) -> Result<ByPath, MeasurementError> {
        let mut by_path = ByPath::default();
        for (number, metric) in self.metrics.iter().enumerate() {
            let unit = unit_of(*metric, tick);
            let table = TimesHead::table_at(number) as u64..TimesHead::table_at(number + 1) as u64;
            read_written(&self.memory, table, size_of::<TimesOfPath>() as u64, |_, words| {
                for [key, times @ ..] in words.as_chunks::<{ TimesOfPath::WORDS }>().0 {
                    let key = PathKey::from_word(*key).filter(|key| lanes.contains(&key.lane));
                    let Some(PathKey { procedure, path, .. }) = key else { continue };
                    let sum = by_path.entry((procedure, path)).or_default().get_mut(number);
                    if let (Some(sum), [short, long]) = (sum, times.as_chunks::<{ PathTimes::WORDS }>().0) {
                        *sum = sum.plus(PathTime { usual: measured(short, unit), long: measured(long, unit) });
                    }
                }
            })?;
        }
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
        let metrics = ["wall-time", "page-faults"].map(|name| MetricOfPaths::parse(name).ok());
        let executions = MeasuredExecutions::Chosen;
        let times = Times::create(ExactTimes { metrics, executions, at_back_edges: false }).unwrap();
        let tick = TickLength { ns_per_tick: 0.5 };
        for (metric, lane, procedure, path, weight, ticks) in [
            (0, 1, 2, 3, 1, 100),
            (0, 1, 2, 3, 4, 300),
            (0, 5, 2, 3, 2, 50),
            (0, 6, 2, 3, 1, 7),
            (0, 1, 9, 0, 1, 8),
            (0, 1, 9, 0, 1, 1 << 16),
            (1, 5, 2, 3, 2, 50),
        ] {
            let table = times.memory.base().wrapping_add(TimesHead::table_at(metric)).cast::<TimesOfPath>();
            // SAFETY: as long as the memory; atomics.
            let table = unsafe { std::slice::from_raw_parts(table, TimesHead::COUNT) };
            TimesOfPath::of(table, PathKey { lane, procedure, path }).unwrap().add(weight, ticks);
        }
        let found = times.in_lanes(&FxHashSet::from_iter([1, 5]), tick).unwrap();
        let expected = MeasuredTime { measured: 3, weight: 7, time_ns: 700, spread: [14, 1_850, 271_250] };
        // What is no time is not in ticks.
        let faults = MeasuredTime { measured: 1, weight: 2, time_ns: 100, spread: [2, 100, 5_000] };
        let both = [expected, faults].map(|usual| PathTime { usual, long: MeasuredTime::default() });
        assert_eq!(found.get(&(2, 3)), Some(&both));
        let other = found.get(&(9, 0)).map(|[time, _]| (time.usual.time_ns, time.long.time_ns));
        assert_eq!((found.len(), other), (2, Some((4, 1 << 15))));
        times.head().metrics.iter().for_each(|metric| metric.cost.store(40, Relaxed));
        let accounts = times.account(tick).into_iter().map(|metric| (metric.name, metric.account.clock_ns));
        assert_eq!(accounts.collect::<Vec<_>>(), [("wall-time".to_owned(), 20), ("page-faults".to_owned(), 40)]);
    }
}
