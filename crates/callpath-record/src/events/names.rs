//! The names of the kernel's own events, as perf spells them.

use callpath_format::shared::Settings;
use callpath_target::EventSpec;

use super::counter::{Counter, Kind};

const HARDWARE: u32 = 0;
const SOFTWARE: u32 = 1;
const CACHE: u32 = 3;
const RAW: u32 = 4;

/// Name, another name or nothing, unit, number, how often a second it may happen.
type Row = (&'static str, &'static str, u32, u64, u64);

/// `PERF_COUNT_SW_*` and `PERF_COUNT_HW_*` of perf_event_open(2).
pub(crate) const ALL: [Row; 18] = [
    ("page-faults", "faults", SOFTWARE, 2, 1000),
    ("context-switches", "cs", SOFTWARE, 3, 1000),
    ("cpu-migrations", "migrations", SOFTWARE, 4, 100),
    ("minor-faults", "", SOFTWARE, 5, 1000),
    ("major-faults", "", SOFTWARE, 6, 1000),
    ("alignment-faults", "", SOFTWARE, 7, 1000),
    ("emulation-faults", "", SOFTWARE, 8, 1000),
    ("cgroup-switches", "", SOFTWARE, 11, 1000),
    ("cycles", "cpu-cycles", HARDWARE, 0, 3_000_000_000),
    ("instructions", "", HARDWARE, 1, 3_000_000_000),
    ("cache-references", "", HARDWARE, 2, 100_000_000),
    ("cache-misses", "", HARDWARE, 3, 10_000_000),
    ("branches", "branch-instructions", HARDWARE, 4, 500_000_000),
    ("branch-misses", "", HARDWARE, 5, 10_000_000),
    ("bus-cycles", "", HARDWARE, 6, 100_000_000),
    ("stalled-cycles-frontend", "idle-cycles-frontend", HARDWARE, 7, 500_000_000),
    ("stalled-cycles-backend", "idle-cycles-backend", HARDWARE, 8, 500_000_000),
    ("ref-cycles", "", HARDWARE, 9, 3_000_000_000),
];

/// `PERF_COUNT_HW_CACHE_*`: name and number of the cache.
const CACHES: [(&str, u64); 7] =
    [("L1-dcache", 0), ("L1-icache", 1), ("LLC", 2), ("dTLB", 3), ("iTLB", 4), ("branch", 5), ("node", 6)];

/// What is done with it: operation, and whether only misses count.
const CACHE_OPERATIONS: [(&str, u64, u64); 6] = [
    ("loads", 0, 0),
    ("load-misses", 0, 1),
    ("stores", 1, 0),
    ("store-misses", 1, 1),
    ("prefetches", 2, 0),
    ("prefetch-misses", 2, 1),
];

/// A counter without modifiers. `None`: no such name.
pub(super) fn counter(name: &str) -> Option<Counter> {
    if let Some((_, _, unit, number, rate)) =
        ALL.into_iter().find(|row| name == row.0 || name == row.1).filter(|_| !name.is_empty())
    {
        let kind = if unit == SOFTWARE { Kind::Software } else { Kind::Hardware };
        let meter = match (unit, number) {
            (SOFTWARE, 2) => Settings::PAGE_FAULTS,
            (SOFTWARE, 3) => Settings::CONTEXT_SWITCHES,
            (SOFTWARE, 5) => Settings::MINOR_FAULTS,
            (SOFTWARE, 6) => Settings::MAJOR_FAULTS,
            _ => Settings::COUNTED,
        };
        return Some(Counter { meter, ..Counter::new(EventSpec::new(unit, number), kind, rate) });
    }
    if let Some(config) = cache_event(name) {
        return Some(Counter::new(EventSpec::new(CACHE, config), Kind::Hardware, 50_000_000));
    }
    let digits = name.strip_prefix('r').filter(|digits| !digits.is_empty())?;
    let config = u64::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+'))?;
    Some(Counter::new(EventSpec::new(RAW, config), Kind::Hardware, 50_000_000))
}

/// `LLC-load-misses`: cache, operation and result, a byte each.
fn cache_event(name: &str) -> Option<u64> {
    CACHES.into_iter().find_map(|(cache, number)| {
        let operation = name.strip_prefix(cache)?.strip_prefix('-')?;
        let (_, operation, result) = CACHE_OPERATIONS.into_iter().find(|(words, ..)| *words == operation)?;
        Some(number | operation << 8 | result << 16)
    })
}
