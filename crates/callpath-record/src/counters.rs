//! Events that the kernel counts, in one process: opened, kept near their rate, read out.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use callpath_format::shared::Settings;
use callpath_target::{Count, EventSpec, Every, PerfEvent, Pid};

use crate::events::{Clock, Counter, Event};
use crate::settings::RecordOptions;

/// How often a period is compared with the rate that was asked for.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How many events a note names before it counts the rest.
const NAMED: usize = 3;
/// A period that is off by less than this factor stays.
const NEAR_ENOUGH: u64 = 2;

/// One event in one process.
struct Open {
    metric: usize,
    event: PerfEvent,
    meter: u32,
    /// Samples a second and thread, if the recorder adapts the period.
    rate: Option<u64>,
    period: u64,
    at_last_look: Count,
}

/// The counters of a process.
#[derive(Default)]
pub(crate) struct Counters {
    open: Vec<Open>,
    looked: Option<Instant>,
}

/// The result of a counted metric in a process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) metric: usize,
    /// The kernel's count.
    pub(crate) count: Count,
    /// The events that a sample weighs, at the end.
    pub(crate) period: u64,
    /// The period was changed meanwhile, so that the samples' weights are approximate.
    pub(crate) is_adapted: bool,
}

impl Outcome {
    /// The ratio that corrects the metric's costs, given the sum over all samples. `None`: they are right.
    pub(crate) fn ratio(&self, in_samples: u64) -> Option<(u64, u64)> {
        let Count { events, enabled_ns, running_ns } = self.count;
        let shared = self.count.is_shared().then_some((enabled_ns, running_ns));
        if !self.is_adapted || in_samples == 0 {
            return shared;
        }
        let (by, of) = shared.unwrap_or((1, 1));
        let whole = u128::from(events) * u128::from(by) / u128::from(of);
        Some((u64::try_from(whole).unwrap_or(u64::MAX), in_samples))
    }
}

impl Counters {
    /// Opens the events of the options, and writes the weights of their samples to the bases of the process's slot.
    /// Second: a note on the events that could not be opened.
    pub(crate) fn open(
        pid: Pid,
        bases: &[AtomicU64],
        options: &RecordOptions,
        kernel_clock: bool,
    ) -> (Counters, Option<String>) {
        let mut counters = Counters::default();
        let mut refused = Vec::new();
        for (metric, event) in options.events.iter().enumerate() {
            let Some(counter) = event.counter() else { continue };
            // Wall time is sampled at each context switch, and these are read there.
            if counter.meter == Settings::CONTEXT_SWITCHES && kernel_clock && options.uses(Clock::WallTime) {
                continue;
            }
            match Open::on(pid, metric, counter) {
                Ok(open) => {
                    if counter.meter == Settings::COUNTED {
                        open.write_base(bases);
                    }
                    counters.open.push(open);
                }
                Err(error) => refused.push((event.name.as_str(), error.to_string())),
            }
        }
        (counters, not_opened(&refused))
    }

    /// Brings periods nearer to the rates that were asked for.
    pub(crate) fn look(&mut self, bases: &[AtomicU64]) {
        if self.looked.is_some_and(|at| at.elapsed() < LOOK_EVERY) {
            return;
        }
        self.looked = Some(Instant::now());
        for open in &mut self.open {
            if open.adapt() {
                open.write_base(bases);
            }
        }
    }

    /// Lets them count, or stops them.
    pub(crate) fn set_running(&self, running: bool) {
        self.open.iter().for_each(|open| open.event.set_running(running));
    }

    /// The results of the metrics that are counted by their events, as far as the kernel still reports them.
    pub(crate) fn outcomes(&self) -> impl Iterator<Item = Outcome> {
        self.open.iter().filter(|open| open.meter == Settings::COUNTED).filter_map(|open| {
            Some(Outcome {
                metric: open.metric,
                count: open.event.count().ok()?,
                period: open.period,
                is_adapted: open.rate.is_some(),
            })
        })
    }
}

/// One counted event in one process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    /// The events by its samples.
    pub(crate) in_samples: u64,
    pub(crate) outcome: Outcome,
}

/// The kernel's counts and those of samples, over all processes.
#[derive(Default)]
pub(crate) struct Ledger {
    /// By metric, as far as one was counted by its event.
    entries: Vec<Entry>,
}

#[derive(Clone, Copy, Default)]
struct Entry {
    by_kernel: u64,
    in_samples: u64,
    /// How much may be missing without a note: the events after each thread's last sample.
    rest: u64,
    is_adapted: bool,
    enabled_ns: u64,
    running_ns: u64,
}

impl Ledger {
    /// Adds the results of a process that had `threads` threads.
    pub(crate) fn add(&mut self, counted: impl Iterator<Item = Counted>, threads: u64) {
        for Counted { in_samples, outcome } in counted {
            if self.entries.len() <= outcome.metric {
                self.entries.resize(outcome.metric + 1, Entry::default());
            }
            let entry = &mut self.entries[outcome.metric];
            entry.by_kernel = entry.by_kernel.saturating_add(outcome.count.events);
            entry.in_samples = entry.in_samples.saturating_add(in_samples);
            entry.is_adapted = outcome.is_adapted;
            entry.rest = entry.rest.saturating_add(outcome.period.saturating_mul(threads));
            entry.enabled_ns = entry.enabled_ns.saturating_add(outcome.count.enabled_ns);
            entry.running_ns = entry.running_ns.saturating_add(outcome.count.running_ns);
        }
    }

    /// At most two notes: on the events that shared the processor's counters, and on those that samples account for too
    /// little of.
    pub(crate) fn notes(&self, events: &[Event]) -> Vec<String> {
        notes_of(events.iter().map(|event| event.name.as_str()).zip(&self.entries))
    }
}

fn notes_of<'e>(entries: impl Iterator<Item = (&'e str, &'e Entry)> + Clone) -> Vec<String> {
    let mut notes = Vec::new();
    let (names, percents): (Vec<_>, Vec<_>) =
        entries.clone().filter_map(|(name, entry)| Some((name, entry.percent_of_time()?))).unzip();
    if let Some((least, most)) = range(&percents) {
        let (were, their) = if names.len() == 1 { ("was", "its") } else { ("were", "their") };
        let percent =
            if least.round() == most.round() { format!("{most:.0}%") } else { format!("{least:.0}-{most:.0}%") };
        notes.push(format!(
            "{} {were} counted for {percent} of the time, since events share the processor's counters; {their} costs are \
             scaled up to the whole",
            named(&names)
        ));
    }
    let (names, percents): (Vec<_>, Vec<_>) =
        entries.filter_map(|(name, entry)| Some((name, entry.percent_in_samples()?))).unzip();
    if let Some((least, most)) = range(&percents) {
        let percent = if names.len() == 1 { format!("{most:.1}%") } else { format!("{least:.1}-{most:.1}%") };
        notes.push(format!(
            "{}: samples account for {percent} of the kernel's count; the kernel sends a thread one signal for all events \
             before the thread is back in its own code",
            named(&names)
        ));
    }
    notes
}

/// The least and the largest value; `None`: there is none.
fn range(values: &[f64]) -> Option<(f64, f64)> {
    let all = || values.iter().copied();
    all().reduce(f64::min).zip(all().reduce(f64::max))
}

/// The first names, and how many more events there are.
fn named(names: &[&str]) -> String {
    let first = names[..names.len().min(NAMED)].join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => first,
        1 => format!("{first} and 1 more event"),
        more => format!("{first} and {more} more events"),
    }
}

impl Entry {
    /// Percent of the time in which the kernel counted the event; `None`: all of it.
    fn percent_of_time(&self) -> Option<f64> {
        let count = Count { events: self.by_kernel, enabled_ns: self.enabled_ns, running_ns: self.running_ns };
        count.is_shared().then(|| 100.0 * self.running_ns as f64 / self.enabled_ns as f64)
    }

    /// Percent of the kernel's count that samples account for; `None`: enough. Costs of an adapted period are scaled
    /// to the kernel's count, so more may be missing.
    fn percent_in_samples(&self) -> Option<f64> {
        let tolerated = if self.is_adapted { self.by_kernel / 10 } else { self.by_kernel / 50 };
        let missing = self.by_kernel.saturating_sub(self.in_samples);
        (missing > self.rest && missing > tolerated).then(|| 100.0 * self.in_samples as f64 / self.by_kernel as f64)
    }
}

/// A note on the events that the kernel did not open, given by name and error. `None`: there is none.
fn not_opened(refused: &[(&str, String)]) -> Option<String> {
    let mut by_error: Vec<(&str, Vec<&str>)> = Vec::new();
    for (name, error) in refused {
        match by_error.iter_mut().find(|(same, _)| same == error) {
            Some((_, names)) => names.push(name),
            None => by_error.push((error, vec![name])),
        }
    }
    let sentence = |(error, names): &(&str, Vec<&str>)| {
        let (were, them) = if names.len() == 1 { ("was", "it") } else { ("were", "them") };
        format!("{} {were} not sampled in a process: the kernel did not open {them} there ({error})", named(names))
    };
    (!refused.is_empty()).then(|| by_error.iter().map(sentence).collect::<Vec<_>>().join("; "))
}

impl Open {
    fn on(pid: Pid, metric: usize, counter: &Counter) -> std::io::Result<Open> {
        let (spec, rate) = with_period(counter);
        let event = PerfEvent::open(&spec, pid, metric as u64 + 1)?;
        let period = match spec.every {
            Every::Period(period) => period,
            Every::Rate(_) => 0,
        };
        Ok(Open { metric, event, meter: counter.meter, rate, period, at_last_look: Count::default() })
    }

    /// Writes its samples' weight, the period, to the bases.
    fn write_base(&self, bases: &[AtomicU64]) {
        if let Some(base) = bases.get(self.metric) {
            base.store(self.period, Relaxed);
        }
    }

    /// Sets the period that would have given the rate asked for since the last look. `true`: there is a new one.
    fn adapt(&mut self) -> bool {
        let Some(rate) = self.rate else { return false };
        let Ok(now) = self.event.count() else { return false };
        let events = now.events.saturating_sub(self.at_last_look.events);
        let ran_ns = now.running_ns.saturating_sub(self.at_last_look.running_ns);
        self.at_last_look = now;
        let Some(period) = period_for(events, ran_ns, rate) else { return false };
        if period <= self.period.saturating_mul(NEAR_ENOUGH) && self.period <= period.saturating_mul(NEAR_ENOUGH) {
            return false;
        }
        let changed = self.event.set_period(period).is_ok();
        if changed {
            self.period = period;
        }
        changed
    }
}

/// How the event is opened. Where a thread can read its own count, the kernel adapts the period in each thread: samples
/// weigh what was read. Elsewhere a sample weighs its period, which must be known in the thread: then the recorder
/// adapts it. Second: the rate that it is adapted to.
fn with_period(counter: &Counter) -> (EventSpec, Option<u64>) {
    match counter.spec.every {
        Every::Rate(rate) if counter.meter == Settings::COUNTED => {
            let first = (counter.usual_rate / rate).max(1);
            (EventSpec { every: Every::Period(first), ..counter.spec }, Some(rate))
        }
        _ => (counter.spec, None),
    }
}

/// The period that gives `rate` samples a second of a thread that ran. `None`: it ran for too short a time.
fn period_for(events: u64, ran_ns: u64, rate: u64) -> Option<u64> {
    const LEAST_NS: u64 = 10_000_000;
    if ran_ns < LEAST_NS {
        return None;
    }
    let wanted = u128::from(ran_ns) * u128::from(rate) / 1_000_000_000;
    let period = u128::from(events) / wanted.max(1);
    Some(u64::try_from(period).unwrap_or(u64::MAX).clamp(1, (1 << 63) - 1))
}

/// How the event would be opened, for trying it out.
pub(crate) fn opened_as(counter: &Counter) -> EventSpec {
    with_period(counter).0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios() {
        let outcome = |events, enabled_ns, running_ns, is_adapted| Outcome {
            metric: 0,
            count: Count { events, enabled_ns, running_ns },
            period: 10,
            is_adapted,
        };
        assert_eq!(outcome(1000, 50, 50, false).ratio(990), None);
        // Counted for half of the time: the kernel's own count is half, and so are the samples.
        assert_eq!(outcome(1000, 1_000_000, 500_000, false).ratio(990), Some((1_000_000, 500_000)));
        assert_eq!(outcome(1000, 1_000_000, 500_000, true).ratio(990), Some((2000, 990)));
        assert_eq!(outcome(1000, 50, 50, true).ratio(990), Some((1000, 990)));
        assert_eq!(outcome(1000, 50, 50, true).ratio(0), None);
    }

    /// An event of which samples account for nearly all, and which was counted all the time.
    const COUNTED: Entry =
        Entry { by_kernel: 1000, in_samples: 995, rest: 10, enabled_ns: 7, running_ns: 7, is_adapted: false };

    #[test]
    fn notes_on_one_event() {
        let notes = |name, entry: Entry| notes_of([(name, &entry)].into_iter());
        assert_eq!(notes("e", COUNTED), [""; 0]);
        let missed = Entry { in_samples: 500, ..COUNTED };
        assert_eq!(
            notes("e", missed),
            [
                "e: samples account for 50.0% of the kernel's count; the kernel sends a thread one signal for all events \
              before the thread is back in its own code"
            ]
        );
        let shared = Entry { enabled_ns: 4_000_000, running_ns: 1_000_000, ..COUNTED };
        assert_eq!(
            notes("cycles", shared),
            [
                "cycles was counted for 25% of the time, since events share the processor's counters; its costs are scaled up \
              to the whole"
            ]
        );
        assert_eq!(notes("e", Entry { in_samples: 500, ..shared }).len(), 2);
    }

    /// A recording may ask for hundreds of events, of which each shares a counter.
    #[test]
    fn notes_name_events_up_to_a_number() {
        let names: Vec<_> = (0..200).map(|n| format!("mem:{n:#x}")).collect();
        let notes = |entry: fn(u64) -> Entry, count: usize| {
            let entries: Vec<_> = (0..count as u64).map(entry).collect();
            notes_of(names.iter().map(String::as_str).zip(&entries))
        };
        let both = notes(
            |n| Entry { in_samples: 500 + n, enabled_ns: 4_000_000, running_ns: 1_000_000 + 1000 * n, ..COUNTED },
            200,
        );
        assert_eq!(
            both,
            [
                "mem:0x0, mem:0x1, mem:0x2 and 197 more events were counted for 25-30% of the time, since events share the \
                 processor's counters; their costs are scaled up to the whole",
                "mem:0x0, mem:0x1, mem:0x2 and 197 more events: samples account for 50.0-69.9% of the kernel's count; the \
                 kernel sends a thread one signal for all events before the thread is back in its own code",
            ]
        );
        let equal: fn(u64) -> Entry = |_| Entry { enabled_ns: 4_000_000, running_ns: 1_000_000, ..COUNTED };
        let [four] = &notes(equal, 4)[..] else { panic!("one note for all") };
        assert!(
            four.starts_with("mem:0x0, mem:0x1, mem:0x2 and 1 more event were counted for 25% of the time, "),
            "{four}"
        );
        let [three] = &notes(equal, 3)[..] else { panic!("one note for all") };
        assert!(three.starts_with("mem:0x0, mem:0x1, mem:0x2 were counted for 25% of the time, "), "{three}");
    }

    #[test]
    fn refused_events_are_named_up_to_a_number() {
        let refused = |count: usize, error: &str| -> Vec<(String, String)> {
            (0..count).map(|n| (format!("mem:{n:#x}"), error.to_owned())).collect()
        };
        let said = |refused: &[(String, String)]| {
            let refused: Vec<_> = refused.iter().map(|(name, error)| (name.as_str(), error.clone())).collect();
            not_opened(&refused)
        };
        assert_eq!(said(&[]), None);
        assert_eq!(
            said(&refused(1, "full")).unwrap(),
            "mem:0x0 was not sampled in a process: the kernel did not open it there (full)"
        );
        assert_eq!(
            said(&refused(3, "full")).unwrap(),
            "mem:0x0, mem:0x1, mem:0x2 were not sampled in a process: the kernel did not open them there (full)"
        );
        let mut both = refused(200, "full");
        both.extend(refused(1, "odd"));
        assert_eq!(
            said(&both).unwrap(),
            "mem:0x0, mem:0x1, mem:0x2 and 197 more events were not sampled in a process: the kernel did not open them there \
             (full); mem:0x0 was not sampled in a process: the kernel did not open it there (odd)"
        );
    }

    #[test]
    fn periods_of_rates() {
        // 3e9 events in a second of running, 1000 samples: each weighs 3e6.
        assert_eq!(period_for(3_000_000_000, 1_000_000_000, 1000), Some(3_000_000));
        // Two threads that ran half a second each are a second of threads' time.
        assert_eq!(period_for(500, 1_000_000_000, 1000), Some(1));
        assert_eq!(period_for(10_000, 100_000_000, 1000), Some(100));
        assert_eq!(period_for(5, 1_000_000, 1000), None);
        assert_eq!(period_for(u64::MAX, u64::MAX, 1), Some(1_000_000_000));
    }
}
