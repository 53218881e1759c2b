//! Settings of a recording: the program, its events and period, and what is kept of paths.

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;

use callpath_format::shared::gauge::{Gauge, Part, gauges};
use callpath_format::shared::{MetricSettings, Metrics, Settings};
use callpath_image::identity::ModuleIdentity;
use callpath_measurement::{NOT_WALKED, Rank, walked_until_told};
use callpath_schema::{Metric, MetricId, derived_metrics};
use callpath_target::Every;

use crate::events::{Clock, Event, EventSource, Probed};

/// Whether samples mark return addresses (csprof-2006, section 2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Sentinel {
    /// Never.
    Never,
    /// On deep stacks, where it saves time.
    #[default]
    Auto,
    /// At each sample; returns are counted.
    Always,
}

impl Sentinel {
    fn code(self) -> u32 {
        match self {
            Sentinel::Never => Settings::NEVER,
            Sentinel::Auto => Settings::AUTO,
            Sentinel::Always => Settings::ALWAYS,
        }
    }
}

/// Whether programs that load our object are sampled from outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FromOutside {
    /// Only where that takes less time and tells as much: where no stack is walked, and the kernel shows this user its own time, too.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// How the call path of a sample is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Unwind {
    /// The stack is walked.
    #[default]
    Walk,
    /// Not at all: the innermost frame is kept, and how high the stack was. A map of call paths tells the rest later.
    Infer,
    /// It is walked, and how high the stack was is kept, too.
    Both,
    /// It is walked up to a frame of which a map tells the rest of the path ([`RecordOptions::told`]); how high the stack is there is kept.
    UntilTold,
}

impl Unwind {
    fn flags(self) -> u32 {
        match self {
            Unwind::Walk => 0,
            Unwind::Infer => Settings::HEIGHTS | Settings::INFERS,
            Unwind::Both => Settings::HEIGHTS,
            Unwind::UntilTold => Settings::TOLD,
        }
    }
}

/// What is kept of a path on which calls recur.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Recursion {
    /// Every frame.
    #[default]
    Full,
    /// A frame whose call is on the path already continues there.
    Collapse,
    /// This many of the innermost frames.
    Suffix(NonZeroU32),
    /// Every frame of samples; exact counts of a procedure that is called while it is active are those of the context of
    /// its outermost activation.
    BackEdges,
}

impl Recursion {
    fn code(self) -> u32 {
        match self {
            Recursion::Full => Settings::WHOLE,
            Recursion::Collapse => Settings::COLLAPSED,
            Recursion::BackEdges => Settings::BACK_EDGES,
            Recursion::Suffix(kept) => kept.get().min(Settings::BACK_EDGES - 1),
        }
    }
}

/// A note on the frames that were not kept, for reports.
pub(crate) fn frames_left_out(settings: &Settings, options: &RecordOptions) -> Option<String> {
    if settings.infers() {
        return Some(NOT_WALKED.to_owned());
    }
    if settings.asks_a_map() {
        return Some(walked_until_told(options.told_by));
    }
    match (settings.recursion, settings.suffix_frames()) {
        (Settings::COLLAPSED, _) => Some(
            "recursion was collapsed while recording (--recursion=collapse): a repeated call continues at its first occurrence"
                .to_owned(),
        ),
        (Settings::BACK_EDGES, _) => Some(
            "recursion is back edges in what was counted exactly (--recursion=backedges): a procedure that is called while it is active counts in the context of its outermost activation"
                .to_owned(),
        ),
        (_, Some(kept)) => Some(format!(
            "only the {kept} innermost frames of each call path were kept (--recursion=suffix:{kept})"
        )),
        (_, None) => None,
    }
}

/// Frames of a stack from which on [`Sentinel::Auto`] marks it: a walk of as many takes three times as long as the rest
/// of a sample, a hundredth of the time at 1000 Hz (docs/results.md, Depth). Few programs ever are as deep.
const DEEP_FRAMES: u32 = 256;

/// The options of a recording.
#[derive(Clone, Debug)]
pub struct RecordOptions {
    /// The program as typed.
    pub program: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// The events, the first one first. None: there are no samples, and something else is counted.
    pub events: Vec<Event>,
    /// Nanoseconds between two samples of a thread by a clock.
    pub period_ns: u64,
    /// Whether return addresses are marked.
    pub sentinel: Sentinel,
    /// What is kept of paths on which calls recur.
    pub recursion: Recursion,
    /// How call paths are found.
    pub unwind: Unwind,
    /// With [`Unwind::UntilTold`], what the map tells: blocks of modules ([`callpath_format::shared::told`]).
    pub told: Vec<(ModuleIdentity, Vec<u8>)>,
    /// The checksum of that map.
    pub told_by: u64,
    /// Samples from outside have the frames of the kernel, too.
    pub kernel: bool,
    /// From where programs are sampled that load our object.
    pub outside: FromOutside,
    /// Record until all processes have ended, not only the program that was typed.
    pub wait_all: bool,
    /// The measurement directory, of ranks that of all; `None`: `./<program>-<pid>.callpath`, of ranks `./<program>-job-<id>.callpath`.
    pub output: Option<PathBuf>,
    /// Which rank of a parallel job this is, if it is one.
    pub rank: Option<Rank>,
    /// Where recipe tables and the preload object are kept; `None`: nowhere, tables are built anew.
    pub cache: Option<PathBuf>,
    /// The preload object's bytes.
    pub preload: &'static [u8],
}

impl RecordOptions {
    /// Whether a clock is asked for.
    pub(crate) fn uses(&self, clock: Clock) -> bool {
        self.events.iter().any(|event| event.source == EventSource::Clock(clock))
    }

    /// What is measured by event, what follows from that, and the number of samples.
    pub(crate) fn metrics(&self) -> Vec<Metric> {
        let mut metrics: Vec<Metric> = self.events.iter().map(Event::metric).collect();
        metrics.extend(derived_metrics(&metrics));
        metrics.extend(self.events.iter().any(|event| event.is_for_off_cpu).then(|| Metric::of(MetricId::OFF_CPU)));
        metrics.push(Metric::of(MetricId::SAMPLES));
        metrics
    }

    /// Whether return addresses are marked. A mark leads to the caller's node in the tree. If only a path's innermost
    /// frames are kept, that node depends on the depth at which the path ends.
    fn marks(&self) -> Sentinel {
        match (self.recursion, self.unwind) {
            (Recursion::Suffix(_), _) | (_, Unwind::Infer | Unwind::Both | Unwind::UntilTold) => Sentinel::Never,
            (Recursion::Full | Recursion::Collapse | Recursion::BackEdges, Unwind::Walk) => self.sentinel,
        }
    }

    /// The settings of each event for the processes, and the programs of expressions, which lie behind them.
    pub(crate) fn metric_settings(&self) -> (Vec<MetricSettings>, Vec<u64>) {
        let first = (Metrics::OFFSET as usize + MetricSettings::bytes_of(self.events.len())) / size_of::<u64>();
        let mut programs: Vec<u64> = Vec::new();
        let mut begun = first;
        let settings = self.events.iter().map(|event| {
            if !event.program.is_empty() {
                begun = first + programs.len();
                programs.extend(&event.program);
            }
            let period = match (event.source, event.counter().map(|counter| counter.spec.every)) {
                // The columns of an expression have one program.
                (EventSource::Probed(Probed { part, .. }), _) if part.program_words > 0 => {
                    Part { program: begun as u32, ..part }.to_u64()
                }
                (EventSource::Probed(Probed { part, .. }), _) => part.to_u64(),
                (_, Some(Every::Period(fixed))) => fixed,
                (_, Some(Every::Rate(_)) | None) => 0,
            };
            MetricSettings { meter: event.meter(), period }
        });
        (settings.collect(), programs)
    }

    /// What probes measure, by name.
    pub(crate) fn gauges(&self) -> Vec<(String, Gauge)> {
        let (settings, _) = self.metric_settings();
        let names = self.events.iter().filter(|event| matches!(event.source, EventSource::Probed(_)));
        let names: Vec<&str> = names.map(|event| event.name.as_str()).collect();
        let name = |gauge: &Gauge| names.get(gauge.column as usize).copied().unwrap_or_default().to_owned();
        gauges(settings.into_iter()).map(|gauge| (name(&gauge), gauge)).collect()
    }

    /// The settings of the recording for the processes.
    pub(crate) fn shared(&self, ticks_per_ms: u64) -> Settings {
        let settings = Settings {
            flags: self.unwind.flags(),
            period_ns: self.period_ns,
            throttle_factor: 4,
            sentinel: self.marks().code(),
            sentinel_depth: DEEP_FRAMES,
            recursion: self.recursion.code(),
            refused_calls: 0,
            ticks_per_ms,
            // As many as there is room for.
            raw_limit: 0,
            ..Settings::default()
        };
        settings.with_metrics(&self.metric_settings().0)
    }
}
