//! What `callpath record --exact` measures of paths and calls (`-m`).

use callpath_record::{
    Event, ExactKind, ExactKinds, ExactTimes, MeasuredExecutions, MetricOfPaths, ProbeMetricError, exact_events,
};

/// The most metrics at once.
const MOST: usize = 2;

#[derive(clap::Args)]
pub(super) struct Measuring {
    /// What is measured of paths and calls, one metric or two (`-m cpu-time,page-faults`): what they take themselves, callees left out:
    /// wall-time, cpu-time, page-faults, minor-faults, major-faults, context-switches, or a hardware event of `callpath list`. Some are measured, chosen
    /// by chance; docs/paths.md
    #[arg(short, long, value_name = "METRIC", value_delimiter = ',', value_parser = measure)]
    metrics: Vec<Measure>,
    /// With -m, measure every execution, not a random selection (slow)
    #[arg(long, requires = "metrics")]
    full: bool,
    /// With -m and --exact=calls, read metrics at the back edges of loops, too, so that what was spent up to there is in its context also if a
    /// `longjmp` leaves the procedure, or the program is killed
    #[arg(long, requires = "metrics")]
    back_edges: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Measure {
    Metric(MetricOfPaths),
    /// perf's number of pages.
    Pages,
}

/// What is measured of paths. perf's `-m` takes a number.
fn measure(typed: &str) -> Result<Measure, String> {
    if typed.starts_with(|first: char| first.is_ascii_digit()) {
        return Ok(Measure::Pages);
    }
    MetricOfPaths::parse(typed).map(Measure::Metric).map_err(|error| error.to_string())
}

impl Measuring {
    /// Whether perf's pages were meant.
    pub(super) fn has_pages(&self) -> bool {
        self.metrics.contains(&Measure::Pages)
    }

    fn metrics(&self) -> Vec<MetricOfPaths> {
        let of = |measure: &Measure| match measure {
            Measure::Metric(metric) => Some(*metric),
            Measure::Pages => None,
        };
        self.metrics.iter().filter_map(of).collect()
    }

    fn places(&self) -> [Option<MetricOfPaths>; MOST] {
        let metrics = self.metrics();
        std::array::from_fn(|number| metrics.get(number).copied())
    }

    /// The columns of the calling context tree.
    pub(super) fn columns(&self) -> Result<Vec<Event>, ProbeMetricError> {
        exact_events(self.places())
    }

    /// What is measured, if anything is. `events`: what samples measure. An error if neither paths nor calls are counted, or it cannot be measured.
    pub(super) fn times(&self, kinds: Option<&ExactKinds>, events: &[Event]) -> anyhow::Result<Option<ExactTimes>> {
        let metrics = self.metrics();
        if metrics.is_empty() {
            return Ok(None);
        }
        let counts = |kind| kinds.is_some_and(|kinds| kinds.has(kind));
        if !counts(ExactKind::Paths) && !counts(ExactKind::Calls) {
            anyhow::bail!("-m measures what paths or calls take: count them (--exact=paths, calls or calls,paths)");
        }
        if metrics.len() > MOST {
            anyhow::bail!("-m measures at most two metrics at once: leave out {}", metrics[MOST].name());
        }
        if let [first, second] = metrics[..]
            && first == second
        {
            anyhow::bail!("-m names {} twice: leave one out", first.name());
        }
        if self.back_edges && !counts(ExactKind::Calls) {
            anyhow::bail!(
                "--back-edges is for contexts: paths end at back edges, and are measured up to there; leave it out"
            );
        }
        if self.back_edges && counts(ExactKind::Paths) {
            anyhow::bail!(
                "--back-edges is for --exact=calls alone: with paths, metrics are read at back edges anyway; leave it out"
            );
        }
        if let Some(both) = metrics.iter().find(|metric| events.iter().any(|event| event.name == metric.name())) {
            let name = both.name();
            anyhow::bail!(
                "`{name}` would be measured by samples and by -m: leave out -e {name} or -m; without samples: -F 0"
            );
        }
        metrics.iter().try_for_each(MetricOfPaths::check)?;
        let executions = if self.full { MeasuredExecutions::All } else { MeasuredExecutions::Chosen };
        Ok(Some(ExactTimes { metrics: self.places(), executions, at_back_edges: self.back_edges }))
    }
}
