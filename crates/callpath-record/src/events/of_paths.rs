//! What `callpath record -m` measures of paths and of calls that are counted exactly: each name is a meter, and how the thread reads it.

use callpath_format::shared::Settings;
use callpath_format::shared::gauge::Part;
use callpath_schema::{Metric, MetricId, PATH_METRICS};
use callpath_target::{EventSpec, PerfEvent};

use super::counter::Kind;
use super::probed::Probed;
use super::{Event, EventSource, ProbeMetricError, probe_events};
use crate::offered::why_not_counted;

/// What `-m` names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MetricOfPaths {
    name: &'static str,
    meter: u32,
    /// Of a counter of the processor, which.
    spec: Option<EventSpec>,
}

/// Those that the kernel tells by a system call, and the time that passes.
const NAMES: [(&str, u32); 6] = [
    ("wall-time", Settings::PROBED_TICKS),
    ("cpu-time", Settings::PROBED_CPU),
    ("page-faults", Settings::EXACT_FAULTS),
    ("minor-faults", Settings::EXACT_MINOR_FAULTS),
    ("major-faults", Settings::EXACT_MAJOR_FAULTS),
    ("context-switches", Settings::EXACT_SWITCHES),
];

/// Why a text names nothing that is measured of paths.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OfPathsError {
    /// It is unknown.
    #[error("of paths and calls, {known} are measured, and hardware events of `callpath list`; not `{typed}`")]
    Unknown {
        /// As it was typed.
        typed: String,
        /// What there is.
        known: String,
    },
    /// This machine does not count it.
    #[error("failed to count {name}: {reason}; -m wall-time and cpu-time can be measured here")]
    NotHere {
        /// Its name.
        name: &'static str,
        /// Why not.
        reason: String,
    },
}

impl MetricOfPaths {
    /// What a text names, whether this machine has it or not.
    ///
    /// # Errors
    /// If that is nothing.
    pub fn parse(text: &str) -> Result<MetricOfPaths, OfPathsError> {
        if let Some((name, meter)) = NAMES.into_iter().find(|(name, _)| *name == text) {
            return Ok(MetricOfPaths { name, meter, spec: None });
        }
        let unknown = || OfPathsError::Unknown {
            typed: text.to_owned(),
            known: NAMES.map(|(name, _)| format!("`{name}`")).join(", "),
        };
        let (name, ..) = super::ALL.into_iter().find(|row| text == row.0 || text == row.1).ok_or_else(unknown)?;
        let counter = super::names::counter(name).filter(|counter| counter.kind == Kind::Hardware);
        let spec = counter.ok_or_else(unknown)?.spec;
        Ok(MetricOfPaths { name, meter: Settings::EXACT_COUNTER, spec: Some(spec) })
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Whether threads can measure it here.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self) -> Result<(), OfPathsError> {
        let Some(spec) = &self.spec else { return Ok(()) };
        let reason = match PerfEvent::try_counting(spec) {
            Ok(true) => return Ok(()),
            Ok(false) => "programs may not read the processor's counters (rdpmc); to allow it, write 1 to /sys/bus/event_source/devices/cpu/rdpmc".to_owned(),
            Err(error) => why_not_counted(&error),
        };
        Err(OfPathsError::NotHere { name: self.name, reason })
    }

    /// What it reads.
    pub(crate) fn meter(&self) -> u32 {
        self.meter
    }

    /// Of a counter of the processor, what the kernel is told.
    pub(crate) fn attributes(&self) -> Option<[u64; callpath_target::ATTRIBUTES_WORDS]> {
        self.spec.as_ref().map(PerfEvent::counting)
    }

    fn event(&self) -> Event {
        let id = Metric::of_paths(self.name).id.unwrap_or(MetricId::COUNTED_IN_CALLS);
        Event {
            name: self.name.to_owned(),
            source: EventSource::Probed(Probed { meter: self.meter, part: Part::default(), id }),
            program: Vec::new(),
            is_for_off_cpu: false,
        }
    }
}

/// The columns of a calling context tree that is counted exactly: the calls, then what is measured of them, in this order.
///
/// # Errors
/// As of [`probe_events`].
pub fn exact_events(metrics: [Option<MetricOfPaths>; PATH_METRICS]) -> Result<Vec<Event>, ProbeMetricError> {
    let calls = probe_events(&[])?;
    Ok(calls.into_iter().chain(metrics.iter().flatten().map(MetricOfPaths::event)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_list() {
        let of = |text: &str| {
            MetricOfPaths::parse(text)
                .map(|metric| (metric.name, metric.meter, metric.spec.map(|spec| (spec.unit, spec.config))))
        };
        assert_eq!(of("wall-time"), Ok(("wall-time", Settings::PROBED_TICKS, None)));
        assert_eq!(of("page-faults"), Ok(("page-faults", Settings::EXACT_FAULTS, None)));
        for (name, number) in [("cycles", 0), ("instructions", 1), ("cache-misses", 3), ("branch-misses", 5)] {
            assert_eq!(of(name), Ok((name, Settings::EXACT_COUNTER, Some((0, number)))));
        }
        assert_eq!(of("cpu-cycles"), of("cycles"));
        for text in ["", "alignment-faults", "walltime", "r1c2", "wall-time:max"] {
            let error = of(text).unwrap_err().to_string();
            assert!(
                error.contains("`wall-time`, `cpu-time`, `page-faults`") && error.ends_with(&format!("not `{text}`")),
                "{error}"
            );
        }
    }

    #[test]
    fn columns_are_in_the_order_of_the_metrics() {
        let [a, b] = ["context-switches", "wall-time"].map(|name| MetricOfPaths::parse(name).ok());
        let columns: Vec<(String, u32, String)> = exact_events([a, b])
            .unwrap()
            .iter()
            .map(|event| (event.name.clone(), event.meter(), event.metric().unit))
            .collect();
        let expected = [
            ("calls", Settings::CALLS, "count"),
            ("context-switches", Settings::EXACT_SWITCHES, "count"),
            ("wall-time", Settings::PROBED_TICKS, "ns"),
        ];
        assert_eq!(columns, expected.map(|(name, meter, unit)| (name.to_owned(), meter, unit.to_owned())));
    }
}
