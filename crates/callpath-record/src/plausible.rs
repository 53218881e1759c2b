//! Whether a process's numbers can be true: a program may overwrite the memory where they are kept.
//!
//! The limits are far above what any run reaches, so that a program that left this memory alone never gets a note.

use std::sync::LazyLock;
use std::time::Duration;

use callpath_format::shared::{MetricSettings, Settings};
use callpath_measurement::SampleTally;

/// A number that no run can reach.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Impossible {
    CpuTime,
    WallTime,
    Events,
    Samples,
    Handlers,
    /// A node without a parent, or a chunk that is not its thread's.
    Tree,
}

impl Impossible {
    fn words(self) -> &'static str {
        match self {
            Impossible::CpuTime => "more CPU time than there were processors for",
            Impossible::WallTime => "more time than has passed",
            Impossible::Events => "more events than there was time for",
            Impossible::Samples => "more samples than there was time for",
            Impossible::Handlers => "handlers that took longer than the recording",
            Impossible::Tree => "a damaged tree of call paths",
        }
    }
}

/// The numbers of a process.
pub(crate) struct Numbers<'a> {
    pub(crate) metrics: &'a [MetricSettings],
    /// By metric, over all threads.
    pub(crate) sums: &'a [u64],
    /// How many threads it has had.
    pub(crate) threads: u64,
}

/// How much there can be of anything.
pub(crate) struct Limits {
    /// The longest that one thread can have been at work, ns.
    thread_ns: u64,
    /// The most that all processors can have been, ns.
    processors_ns: u64,
    /// The least that a sample takes, ns.
    sample_ns: u64,
}

/// Tolerance, as a factor and a sum: clocks differ, and are read at different moments.
const FACTOR: u64 = 2;
const SLACK_NS: u64 = 1_000_000_000;
/// Events in a nanosecond, of one processor.
const EVENTS_PER_NS: u64 = 1000;
/// No signal is delivered in less, ns.
const SAMPLE_NS: u64 = 100;
/// No call is counted in less, ns.
const CALL_NS: u64 = 1;
/// No thread or process is started in less, ns.
const START_NS: u64 = 1000;

/// All that there are: a program may run on others than the recorder.
static PROCESSORS: LazyLock<u64> = LazyLock::new(|| {
    // SAFETY: asks for a number.
    let configured = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    let available = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    available.max(u64::try_from(configured).unwrap_or(0))
});

impl Limits {
    /// Of processes that began at most so long ago.
    pub(crate) fn after(elapsed: Duration) -> Limits {
        Limits::of(elapsed, *PROCESSORS)
    }

    fn of(elapsed: Duration, processors: u64) -> Limits {
        let elapsed_ns = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        let thread_ns = elapsed_ns.saturating_mul(FACTOR).saturating_add(SLACK_NS);
        Limits { thread_ns, processors_ns: thread_ns.saturating_mul(processors), sample_ns: SAMPLE_NS }
    }

    /// Where each call of a probed procedure is a sample: no signal delivers it.
    pub(crate) fn of_calls(self) -> Limits {
        Limits { sample_ns: CALL_NS, ..self }
    }

    /// The first implausible number of a process's metrics.
    pub(crate) fn impossible(&self, numbers: &Numbers<'_>) -> Option<Impossible> {
        numbers.metrics.iter().zip(numbers.sums).find_map(|(metric, sum)| {
            let (most, what) = match metric.meter {
                Settings::CPU_TIME => (self.processors_ns, Impossible::CpuTime),
                Settings::WALL_TIME => (self.thread_ns.saturating_mul(numbers.threads), Impossible::WallTime),
                Settings::PROBED_CPU => (self.processors_ns, Impossible::CpuTime),
                // Any number, and what does not add up.
                Settings::PROBED_EXPRESSION
                | Settings::PROBED_SHORTEST
                | Settings::PROBED_LONGEST
                | Settings::PROBED_CONTEXT => return None,
                _ => (self.processors_ns.saturating_mul(EVENTS_PER_NS), Impossible::Events),
            };
            (*sum > most).then_some(what)
        })
    }

    /// The first implausible number of a tally, of one thread or of several.
    pub(crate) fn impossible_tally(&self, tally: &SampleTally, threads: u64) -> Option<Impossible> {
        let in_histogram = tally.handler_histogram.iter().fold(0, |sum: u64, count| sum.saturating_add(*count));
        let thread_ns = self.thread_ns.saturating_mul(threads);
        if tally.taken.max(in_histogram) > self.most_samples() {
            Some(Impossible::Samples)
        } else if tally.handler_ns.max(tally.handler_max_ns) > thread_ns {
            Some(Impossible::Handlers)
        } else {
            None
        }
    }

    /// The same of samples in a tree.
    pub(crate) fn impossible_samples(&self, samples: u64) -> Option<Impossible> {
        (samples > self.most_samples()).then_some(Impossible::Samples)
    }

    /// Whether so many processes or threads can have been started.
    pub(crate) fn allows_starts(&self, count: u64) -> bool {
        count <= self.processors_ns / START_NS
    }

    fn most_samples(&self) -> u64 {
        self.processors_ns / self.sample_ns
    }
}

/// Processes that are named one by one.
const NAMED: usize = 3;

/// Processes whose numbers cannot be true.
#[derive(Default)]
pub(crate) struct Overwritten {
    named: Vec<String>,
    more: u64,
}

impl Overwritten {
    /// Enters a process of this name.
    pub(crate) fn add(&mut self, program: &str, pid: u32, what: Impossible) {
        if self.named.len() < NAMED {
            self.named.push(format!("{program} ({pid}): {}", what.words()));
        } else {
            self.more += 1;
        }
    }

    /// As a sentence, if there are any.
    pub(crate) fn note(&self) -> Option<String> {
        let more = if self.more > 0 { format!("; and {} more processes", self.more) } else { String::new() };
        (!self.named.is_empty()).then(|| {
            let named = self.named.join("; ");
            format!("do not trust the numbers of {named}{more}. Most likely the program overwrote callpath's memory")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn limits() -> Limits {
        Limits::of(Duration::from_secs(10), 4)
    }

    #[test]
    fn what_all_processors_can_do_is_possible() {
        let metric = |meter| MetricSettings { meter, period: 0 };
        let metrics = [Settings::CPU_TIME, Settings::WALL_TIME, Settings::COUNTED, Settings::RETURNS].map(metric);
        let impossible =
            |sums: [u64; 4]| limits().impossible(&Numbers { metrics: &metrics, sums: &sums, threads: 100 });
        // All processors and all threads at work all the time; 5 GHz, 6 instructions in each cycle.
        assert_eq!(impossible([40 * SECOND_NS, 1000 * SECOND_NS, 40 * 30 * SECOND_NS, 40 * SECOND_NS]), None);
        assert_eq!(impossible([90 * SECOND_NS, 0, 0, 0]), Some(Impossible::CpuTime));
        assert_eq!(impossible([0, 2200 * SECOND_NS, 0, 0]), Some(Impossible::WallTime));
        assert_eq!(impossible([0, 0, 90_000 * SECOND_NS, 0]), Some(Impossible::Events));
        assert_eq!(impossible([0, 0, 0, u64::MAX]), Some(Impossible::Events));
    }

    #[test]
    fn as_many_samples_as_signals_can_be_delivered_are_possible() {
        let tally = SampleTally {
            taken: 40_000_000,
            handler_ns: 10 * SECOND_NS,
            handler_max_ns: 10 * SECOND_NS,
            handler_histogram: vec![0, 40_000_000],
            ..SampleTally::default()
        };
        let impossible = |tally: &SampleTally| limits().impossible_tally(tally, 1);
        assert_eq!((impossible(&tally), limits().impossible_samples(40_000_000)), (None, None));
        assert_eq!(limits().impossible_samples(SECOND_NS), Some(Impossible::Samples));
        assert!(limits().allows_starts(40_000_000) && !limits().allows_starts(SECOND_NS));
        for damaged in [
            SampleTally { taken: SECOND_NS, ..tally.clone() },
            SampleTally { handler_histogram: vec![u32::MAX.into()], ..tally.clone() },
        ] {
            assert_eq!(impossible(&damaged), Some(Impossible::Samples), "{damaged:?}");
        }
        for damaged in [
            SampleTally { handler_ns: 30 * SECOND_NS, ..tally.clone() },
            SampleTally { handler_max_ns: 30 * SECOND_NS, ..tally.clone() },
        ] {
            assert_eq!(impossible(&damaged), Some(Impossible::Handlers), "{damaged:?}");
            assert_eq!(limits().impossible_tally(&damaged, 2), None);
        }
    }

    #[test]
    fn some_processes_are_named() {
        let mut overwritten = Overwritten::default();
        assert_eq!(overwritten.note(), None);
        (0..5).for_each(|pid| overwritten.add("a", pid, Impossible::Tree));
        let note = overwritten.note().unwrap();
        assert!(note.contains("; a (2): a damaged tree of call paths; and 2 more processes."), "{note}");
    }
}
