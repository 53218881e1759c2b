//! Events as a person types them: what each counts, and when there is a sample.
//!
//! `NAME[:MODIFIERS][@PERIOD|@fRATE]`, the names and modifiers being perf's.

mod clock;
mod counter;
mod error;
mod names;
mod of_paths;
mod period;
mod pmu;
mod probed;
mod program;
mod tracepoints;

use std::path::Path;

use callpath_format::shared::Settings;
use callpath_schema::{Metric, MetricId};
use callpath_target::{EventSpec, Every};

pub use period::HIGHEST_RATE;
use period::{clock_period, clock_period_in_range, counter_period, period_of_rate, rate_in_range};

pub use clock::Clock;
pub(crate) use counter::Counter;
pub(crate) use counter::Kind;
pub use error::{EventError, MAX_EVENTS};
pub(crate) use names::ALL;
pub use of_paths::{MetricOfPaths, OfPathsError, exact_events};
pub use probed::{ProbeMetric, ProbeMetricError, probe_events};
pub(crate) use probed::{Probed, rule_of};
pub use program::ExpressionError;

/// What to sample.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// The name of its metric.
    pub name: String,
    /// The source of its samples.
    pub(crate) source: EventSource,
    /// Of an expression that probes compute.
    pub(crate) program: Vec<u64>,
    /// A clock that was asked for to show time off the processor.
    pub(crate) is_for_off_cpu: bool,
}

/// Where an event comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EventSource {
    /// A clock, which takes its period from [`crate::RecordOptions`].
    Clock(Clock),
    /// An event that the kernel counts.
    Counter(Counter),
    /// Returns that the sentinel counts; there is no sample for it.
    Returns,
    /// What probes measure; no sample either.
    Probed(Probed),
}

/// The default: samples a second.
const DEFAULT_RATE: u64 = 1000;

impl Event {
    /// The event of a clock.
    pub fn clock(clock: Clock) -> Event {
        Event { name: clock.name(), source: EventSource::Clock(clock), program: Vec::new(), is_for_off_cpu: false }
    }

    /// The event of the sentinel.
    pub fn returns() -> Event {
        Event {
            name: Metric::of(MetricId::RETURNS).name,
            source: EventSource::Returns,
            program: Vec::new(),
            is_for_off_cpu: false,
        }
    }

    /// As it was asked for.
    pub(crate) fn asked_name(&self) -> &str {
        if self.is_for_off_cpu { OFF_CPU } else { &self.name }
    }

    /// The counter, if it is one.
    pub(crate) fn counter(&self) -> Option<&Counter> {
        match &self.source {
            EventSource::Clock(_) | EventSource::Returns | EventSource::Probed(_) => None,
            EventSource::Counter(counter) => Some(counter),
        }
    }

    pub(crate) fn meter(&self) -> u32 {
        match self.source {
            EventSource::Clock(clock) => clock.code(),
            EventSource::Counter(counter) => counter.meter,
            EventSource::Returns => Settings::RETURNS,
            EventSource::Probed(probed) => probed.meter,
        }
    }

    /// Its row in the registry of metrics.
    pub(crate) fn metric(&self) -> Metric {
        match self.source {
            EventSource::Clock(clock) => clock.metric(),
            EventSource::Counter(_) => Metric::counted(&self.name),
            EventSource::Returns => Metric::of(MetricId::RETURNS),
            EventSource::Probed(probed) => probed.metric(&self.name),
        }
    }
}

/// Events as typed, and the period or rate of those that name none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Unsaid {
    /// `-F`: samples a second; 0: there are none.
    pub rate: Option<u64>,
    /// `-c`: events, or nanoseconds, from one sample to the next.
    pub period: Option<u64>,
}

/// The events as typed (`-e`, in order), and the period of the clocks, nanoseconds. A period
/// with an event overrides the others. The first one given for a clock counts for all clocks,
/// since all of them are read at each clock's sample. With a rate of 0 there are no events.
pub fn parse_events(texts: &[String], usual: Unsaid) -> Result<(Vec<Event>, u64), EventError> {
    if usual.rate == Some(0) {
        return match texts.first() {
            Some(text) => Err(EventError::NoSamples(text.clone())),
            None => Ok((Vec::new(), period_of_rate(DEFAULT_RATE)?)),
        };
    }
    let mut events: Vec<Event> = Vec::new();
    let mut clock_period = None;
    if let Some(group) = texts.iter().find(|text| text.contains(['{', '}'])) {
        return Err(EventError::Group { group: group.clone(), list: without_groups(group) });
    }
    for text in texts.iter().flat_map(|text| split_list(text)) {
        if let Some(suffix) = text.strip_prefix(OFF_CPU).filter(|rest| rest.is_empty() || rest.starts_with('@')) {
            clock_period = clock_period.or(suffix.strip_prefix('@').map(self::clock_period).transpose()?);
            add_off_cpu(&mut events);
            continue;
        }
        let (event, its_period) = parse_event(text, usual)?;
        match events.iter().find(|e| e.name == event.name) {
            // It is there as a part of that.
            Some(known) if known.is_for_off_cpu => {}
            Some(_) => return Err(EventError::Twice(event.name)),
            None => events.push(event),
        }
        clock_period = clock_period.or(its_period);
    }
    if events.is_empty() {
        events.push(Event::clock(Clock::CpuTime));
    }
    if events.len() > MAX_EVENTS {
        return Err(EventError::TooMany(events.len()));
    }
    let of_rate = period_of_rate(usual.rate.unwrap_or(DEFAULT_RATE))?;
    let has_clock = events.iter().any(|e| e.counter().is_none());
    let given = match usual.period.filter(|_| has_clock) {
        Some(period) => Some(clock_period_in_range(period, &period.to_string())?),
        None => None,
    };
    Ok((events, clock_period.or(given).unwrap_or(of_rate)))
}

/// Time off the processor: that which passed, less that on it.
pub(crate) const OFF_CPU: &str = "off-cpu";

/// Adds the clocks whose difference it is.
fn add_off_cpu(events: &mut Vec<Event>) {
    for clock in [Clock::WallTime, Clock::CpuTime] {
        match events.iter_mut().find(|event| event.source == EventSource::Clock(clock)) {
            Some(known) => known.is_for_off_cpu = true,
            None => events.push(Event { is_for_off_cpu: true, ..Event::clock(clock) }),
        }
    }
}

/// At commas, but not at those between slashes (`cpu/event=1,umask=2/`).
fn split_list(text: &str) -> Vec<&str> {
    let mut is_inside = false;
    text.split(|c| {
        is_inside ^= c == '/';
        c == ',' && !is_inside
    })
    .collect()
}

/// The events of perf's groups (`{a,b}:u`) as a list (`a:u,b:u`). `S`, by which the first event alone is sampled, means nothing in a list.
fn without_groups(text: &str) -> String {
    let mut list = Vec::new();
    for (number, part) in text.split('{').enumerate() {
        let (events, behind) = if number == 0 { ("", part) } else { part.split_once('}').unwrap_or((part, "")) };
        let (modifiers, others) = match behind.strip_prefix(':') {
            Some(behind) => behind.split_once(',').unwrap_or((behind, "")),
            None => ("", behind),
        };
        let modifiers = modifiers.replace('S', "");
        for event in split_list(events).into_iter().filter(|event| !event.is_empty()) {
            // Clocks have none.
            let modifiers = if Clock::of_name(event).is_some() { "" } else { &*modifiers };
            let colon = if modifiers.is_empty() || event.contains(':') { "" } else { ":" };
            list.push(format!("{event}{colon}{modifiers}"));
        }
        list.extend(
            split_list(others).into_iter().filter(|event| !event.is_empty()).map(|event| event.replace('}', "")),
        );
    }
    list.join(",")
}

/// One event, and its period in nanoseconds if it is a clock that has one.
fn parse_event(text: &str, usual: Unsaid) -> Result<(Event, Option<u64>), EventError> {
    let (name, suffix) = match text.split_once('@') {
        Some((name, suffix)) => (name, Some(suffix)),
        None => (text, None),
    };
    if let Some(clock) = Clock::of_name(name) {
        let period = match suffix {
            None => None,
            Some(suffix) => Some(clock_period(suffix)?),
        };
        return Ok((Event::clock(clock), period));
    }
    let mut counter = parse_counter(name)?;
    let its_own = counter.spec.every;
    counter.spec.every = match (suffix, its_own) {
        (Some(suffix), _) => counter_period(suffix)?,
        (None, Every::Rate(_)) => its_own,
        (None, Every::Period(period)) if period > 1 => its_own,
        // A tracepoint or a breakpoint is sampled at each hit, as with perf.
        (None, _) if usual == Unsaid::default() && matches!(counter.kind, Kind::Tracepoint | Kind::Breakpoint) => {
            Every::Period(1)
        }
        (None, _) => match usual.period {
            Some(0) => return Err(EventError::Period("0".to_owned())),
            Some(period) => Every::Period(period),
            None => Every::Rate(rate_in_range(usual.rate.unwrap_or(DEFAULT_RATE))?),
        },
    };
    Ok((
        Event {
            name: name.to_owned(),
            source: EventSource::Counter(counter),
            program: Vec::new(),
            is_for_off_cpu: false,
        },
        None,
    ))
}

/// A counter by name, as perf spells it.
fn parse_counter(text: &str) -> Result<Counter, EventError> {
    if let Some((pmu, rest)) = text.split_once('/').filter(|_| !text.starts_with("mem:")) {
        let Some((terms, modifiers)) = rest.rsplit_once('/') else {
            let reason = "a slash is missing at the end of its terms".to_owned();
            return Err(EventError::Malformed { event: text.to_owned(), reason });
        };
        let counter = pmu::counter(Path::new(pmu::DEVICES), pmu, terms, text)?;
        return modified(counter, modifiers.strip_prefix(':').unwrap_or(modifiers), text);
    }
    if let Some(rest) = text.strip_prefix("mem:") {
        let (counter, modifiers) = breakpoint(rest, text)?;
        return modified(counter, modifiers, text);
    }
    let (name, modifiers) = text.split_once(':').unwrap_or((text, ""));
    if let Some(counter) = names::counter(name) {
        return modified(counter, modifiers, text);
    }
    if Clock::of_name(name).is_some() || name == OFF_CPU {
        let reason = format!("a clock runs in user and kernel mode alike and has no modifiers; write {name}");
        return Err(EventError::Malformed { event: text.to_owned(), reason });
    }
    if text.contains(':') {
        let (name, modifiers) = modifiers.split_once(':').unwrap_or((modifiers, ""));
        let system = text.split(':').next().unwrap_or_default();
        return modified(tracepoints::counter(system, name, text)?, modifiers, text);
    }
    Err(EventError::Unknown(text.to_owned()))
}

/// `ADDRESS[/LENGTH][:ACCESS][:MODIFIERS]`
fn breakpoint<'t>(rest: &'t str, text: &str) -> Result<(Counter, &'t str), EventError> {
    const BREAKPOINT: u32 = 5;
    const EXECUTE: u32 = 4;
    let wrong = |reason: &str| EventError::Malformed { event: text.to_owned(), reason: reason.to_owned() };
    let mut parts = rest.splitn(3, ':');
    let place = parts.next().unwrap_or_default();
    let (address, len) = match place.split_once('/') {
        Some((address, len)) => (address, Some(len)),
        None => (place, None),
    };
    let number = |digits: &str| match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => digits.parse().ok(),
    };
    let address = number(address).ok_or_else(|| wrong("no address; write mem:0x401136:x, for example"))?;
    let access = parts.next().filter(|access| !access.is_empty()).unwrap_or("rw");
    let mut kinds = 0;
    for letter in access.chars() {
        kinds |= match letter {
            'r' => 1,
            'w' => 2,
            'x' => EXECUTE,
            _ => return Err(wrong("an access is one or more of r, w and x")),
        };
    }
    let len = match len {
        None if kinds & EXECUTE != 0 => 8,
        None => 4,
        Some(len) => {
            number(len).filter(|len| (1..=8).contains(len)).ok_or_else(|| wrong("a length is 1 to 8 bytes"))?
        }
    };
    let spec = EventSpec {
        breakpoint: kinds,
        config1: address,
        config2: len,
        exclude_kernel: true,
        ..EventSpec::new(BREAKPOINT, 0)
    };
    Ok((Counter::new(spec, Kind::Breakpoint, 1000), parts.next().unwrap_or_default()))
}

/// As `perf list` describes them: of u, k and h those that are not named are left out.
fn modified(mut counter: Counter, modifiers: &str, text: &str) -> Result<Counter, EventError> {
    let (mut modes, mut precise) = (String::new(), 0u8);
    for modifier in modifiers.chars() {
        match modifier {
            'u' | 'k' | 'h' => modes.push(modifier),
            'p' if precise < 3 => precise += 1,
            _ => return Err(EventError::Modifier { event: text.to_owned(), modifier }),
        }
    }
    counter.spec.precise = precise;
    if !modes.is_empty() {
        let spec = &mut counter.spec;
        spec.exclude_user = !modes.contains('u');
        spec.exclude_kernel = !modes.contains('k');
        spec.exclude_hypervisor = !modes.contains('h');
        counter.modes_given = true;
        if let Some(reason) = counter.never_happens() {
            return Err(EventError::Malformed { event: text.to_owned(), reason: reason.to_owned() });
        }
        // The thread's usage is of all modes.
        counter.meter = Settings::COUNTED;
    }
    Ok(counter)
}

#[cfg(test)]
mod tests;
