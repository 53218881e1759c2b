//! The registry: a row for each metric that callpath knows. A new metric is a row here and the code that measures it;
//! files, views and JSON take it from the row.

use crate::{Expression, Formula, Metric, MetricKind, MetricSource, MetricType};

/// A row of the registry, by its number in files. A number is never given to another metric.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct MetricId(pub u32);

impl MetricId {
    /// The thread's time on a CPU, in user mode and in the kernel.
    pub const CPU_TIME: MetricId = MetricId(1);
    /// Time that passed.
    pub const WALL_TIME: MetricId = MetricId(2);
    /// An event that the kernel counts; its metric has the name that was typed.
    pub const COUNTED: MetricId = MetricId(3);
    /// Returns from frames that were active at a sample (csprof-2006, section 2).
    pub const RETURNS: MetricId = MetricId(4);
    /// Samples.
    pub const SAMPLES: MetricId = MetricId(5);
    /// The first metric per return.
    pub const PER_RETURN: MetricId = MetricId(6);
    /// Instructions per cycle.
    pub const INSTRUCTIONS_PER_CYCLE: MetricId = MetricId(7);
    /// Calls of a procedure, each of them counted.
    pub const CALLS: MetricId = MetricId(8);
    /// Time that passed in activations of a procedure, each of them timed, less that of procedures that it calls and that
    /// are timed, too.
    pub const TIMED: MetricId = MetricId(9);
    /// The same of the thread's time on a CPU.
    pub const TIMED_CPU: MetricId = MetricId(10);
    /// The shortest of a procedure's activations, with all that it calls.
    pub const SHORTEST: MetricId = MetricId(11);
    /// The longest of them.
    pub const LONGEST: MetricId = MetricId(12);
    /// How long they took, as a histogram.
    pub const LATENCY: MetricId = MetricId(13);
    /// An integer argument of a procedure's calls, as a histogram; its metric is named by the argument.
    pub const ARGUMENT: MetricId = MetricId(14);
    /// What a procedure returned, as a histogram; its metric has the name that was typed.
    pub const RESULT: MetricId = MetricId(15);
    /// An expression that somebody typed, computed at each call; its metric has the name that was typed.
    pub const COMPUTED: MetricId = MetricId(16);
    /// Calls of which such an expression could not be computed.
    pub const UNREADABLE: MetricId = MetricId(17);
    /// Time that a procedure's activations waited for others, less that of procedures that it calls and that are probed,
    /// too.
    pub const WAITED: MetricId = MetricId(18);
    /// The same for input and output.
    pub const WAITED_FOR_IO: MetricId = MetricId(19);
    /// No cost: the number of a context, by which the measured program asks for it.
    pub const CONTEXT: MetricId = MetricId(20);
    /// Time that passed and was on no processor.
    pub const OFF_CPU: MetricId = MetricId(21);
    /// Events that happened in activations of a procedure, each of them counted, less those in procedures that it calls and that are counted, too; its metric
    /// has the event's name.
    pub const COUNTED_IN_CALLS: MetricId = MetricId(22);
}

struct Row {
    id: MetricId,
    /// Empty: each metric of this row has its own name.
    name: &'static str,
    /// Empty: that of the metric that it is computed from.
    unit: &'static str,
    value: MetricType,
    kind: fn() -> MetricKind,
    source: MetricSource,
    is_of_procedure: bool,
    note: Option<&'static str>,
}

const fn row(id: MetricId, name: &'static str, unit: &'static str, source: MetricSource) -> Row {
    Row {
        id,
        name,
        unit,
        value: MetricType::Integer,
        kind: || MetricKind::Sum,
        source,
        is_of_procedure: false,
        note: None,
    }
}

/// What probes measure.
const fn probed(id: MetricId, name: &'static str, unit: &'static str) -> Row {
    Row { is_of_procedure: true, ..row(id, name, unit, MetricSource::Probes) }
}

const ROWS: [Row; 22] = [
    row(MetricId::CPU_TIME, "cpu-time", "ns", MetricSource::Clock),
    row(MetricId::WALL_TIME, "wall-time", "ns", MetricSource::Clock),
    row(MetricId::COUNTED, "", "count", MetricSource::Kernel),
    Row {
        is_of_procedure: true,
        note: Some("returns from frames that were active at a sample; not a call count"),
        ..row(MetricId::RETURNS, "returns", "count", MetricSource::Sentinel)
    },
    row(MetricId::SAMPLES, "samples", "count", MetricSource::Samples),
    row(MetricId::PER_RETURN, "", "", MetricSource::Computed),
    Row {
        value: MetricType::Real,
        ..row(MetricId::INSTRUCTIONS_PER_CYCLE, "instructions-per-cycle", "ratio", MetricSource::Computed)
    },
    probed(MetricId::CALLS, "calls", "count"),
    probed(MetricId::TIMED, "wall-time", "ns"),
    probed(MetricId::TIMED_CPU, "cpu-time", "ns"),
    Row { kind: || MetricKind::Min, ..probed(MetricId::SHORTEST, "wall-time:min", "ns") },
    Row { kind: || MetricKind::Max, ..probed(MetricId::LONGEST, "wall-time:max", "ns") },
    Row { value: MetricType::Histogram { bin: 0 }, ..probed(MetricId::LATENCY, "wall-time:histogram", "ns") },
    Row { value: MetricType::Histogram { bin: 0 }, ..probed(MetricId::ARGUMENT, "arg", "count") },
    Row { value: MetricType::Histogram { bin: 0 }, ..probed(MetricId::RESULT, "ret", "count") },
    Row { value: MetricType::Signed, ..probed(MetricId::COMPUTED, "", "count") },
    probed(MetricId::UNREADABLE, "", "count"),
    probed(MetricId::WAITED, "wait-time", "ns"),
    probed(MetricId::WAITED_FOR_IO, "io-time", "ns"),
    Row { kind: || MetricKind::Max, ..probed(MetricId::CONTEXT, "context", "count") },
    Row { value: MetricType::Real, kind: off_cpu, ..row(MetricId::OFF_CPU, "off-cpu", "ns", MetricSource::Computed) },
    probed(MetricId::COUNTED_IN_CALLS, "", "count"),
];

/// A thread's clocks are read one after the other: what is between them is no time off the processor.
fn off_cpu() -> MetricKind {
    let difference = Expression::parse("max(wall-time - cpu-time, 0)");
    difference.map_or(MetricKind::Sum, |difference| MetricKind::Derived(Formula::Expression(difference)))
}

impl Metric {
    /// A metric of the registry; of a histogram, its first bin.
    pub fn of(id: MetricId) -> Metric {
        let row = row_of(id);
        Metric {
            id: Some(id),
            value: row.value,
            kind: (row.kind)(),
            source: row.source,
            is_of_procedure: row.is_of_procedure,
            note: row.note.map(str::to_owned),
            ..Metric::sum(row.name, row.unit)
        }
    }

    /// What paths, and calls that are counted exactly, take themselves, by the name that was typed.
    pub fn of_paths(name: &str) -> Metric {
        let times = [MetricId::TIMED, MetricId::TIMED_CPU].map(Metric::of);
        times
            .into_iter()
            .find(|time| time.name == name)
            .unwrap_or_else(|| Metric::named(MetricId::COUNTED_IN_CALLS, name))
    }

    /// An event that the kernel counts, by the name that was typed.
    pub fn counted(name: &str) -> Metric {
        Metric::named(MetricId::COUNTED, name)
    }

    /// A metric of a row whose metrics have names of their own.
    pub fn named(id: MetricId, name: &str) -> Metric {
        Metric { name: name.to_owned(), ..Metric::of(id) }
    }

    /// The same, or a row with one name, of a histogram: one of its bins.
    pub fn bin_of(id: MetricId, name: &str, bin: u32) -> Metric {
        Metric { value: MetricType::Histogram { bin }, ..Metric::named(id, name) }
    }

    /// `cost` per `count` of a procedure itself: `cost-per-return` of `cost` and `returns`.
    pub fn per_own(cost: &Metric, count: &Metric) -> Metric {
        Metric {
            name: format!("{}-per-{}", cost.name, count.name.strip_suffix('s').unwrap_or(&count.name)),
            unit: cost.unit.clone(),
            kind: MetricKind::Derived(Formula::PerOwn { cost: cost.name.clone(), count: count.name.clone() }),
            note: count.note.clone(),
            ..Metric::of(MetricId::PER_RETURN)
        }
    }
}

fn row_of(id: MetricId) -> &'static Row {
    ROWS.iter().find(|row| row.id == id).unwrap_or(&ROWS[2])
}

/// The metrics that can be computed from `measured` ones.
pub fn derived_metrics(measured: &[Metric]) -> Vec<Metric> {
    let mut derived = Vec::new();
    if let Some(returns) = measured.iter().skip(1).find(|metric| metric.id == Some(MetricId::RETURNS)) {
        derived.push(Metric::per_own(&measured[0], returns));
    }
    // Each may have been counted in user mode only, as its name shows.
    let counted = |name: &str| {
        let is_it = |metric: &&Metric| metric.name.split(':').next() == Some(name);
        measured.iter().find(is_it).map(|metric| metric.name.clone())
    };
    let modes = |name: &str| name.split_once(':').map(|(_, modes)| modes.to_owned());
    if let (Some(numerator), Some(denominator)) = (counted("instructions"), counted("cycles"))
        && modes(&numerator) == modes(&denominator)
    {
        let ratio = Formula::Ratio { numerator, denominator, scale: 1 };
        derived.push(Metric { kind: MetricKind::Derived(ratio), ..Metric::of(MetricId::INSTRUCTIONS_PER_CYCLE) });
    }
    derived
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers are in files, so they must not change.
    #[test]
    fn each_row_has_its_number() {
        let numbers: Vec<u32> = ROWS.iter().map(|row| row.id.0).collect();
        assert_eq!(numbers, (1..=22).collect::<Vec<u32>>());
        assert!(matches!(Metric::of(MetricId::OFF_CPU).kind, MetricKind::Derived(_)));
        assert_eq!(Metric::of(MetricId::RETURNS).name, "returns");
    }

    #[test]
    fn what_is_computed_follows_from_what_is_measured() {
        let names = |measured: &[Metric]| -> Vec<String> {
            derived_metrics(measured).into_iter().map(|metric| metric.name).collect()
        };
        let (cpu_time, returns) = (Metric::of(MetricId::CPU_TIME), Metric::of(MetricId::RETURNS));
        assert_eq!(names(&[cpu_time.clone(), returns.clone()]), ["cpu-time-per-return"]);
        assert!(names(&[returns, cpu_time]).is_empty());
        let (cycles, instructions) = (Metric::counted("cycles:u"), Metric::counted("instructions:u"));
        assert_eq!(names(&[cycles.clone(), instructions]), ["instructions-per-cycle"]);
        assert!(names(&[cycles, Metric::counted("instructions")]).is_empty());
    }
}
