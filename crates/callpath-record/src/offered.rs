//! What this machine offers this user: events tried out before the program is started.

use std::io::{Error, ErrorKind};

use callpath_measurement::plain;
use callpath_target::{EventSpec, PerfEvent};

use crate::counters::opened_as;
use crate::error::RecordError;
use crate::events::{ALL, Clock, Counter, Event, EventSource, Kind, OFF_CPU, Unsaid, parse_events};
use crate::settings::RecordOptions;

/// An event by its usual name, and whether it can be had here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Offer {
    /// Its name.
    pub name: String,
    /// Another name, or nothing.
    pub other_name: &'static str,
    /// `None`: it can be sampled. Else why not.
    pub why_not: Option<String>,
}

/// The events that have names, and whether each can be had here.
pub fn offered_events() -> Vec<Offer> {
    let clocks = Clock::ALL.into_iter().map(|clock| {
        let other_name = if clock == Clock::CpuTime { "cpu-clock" } else { "" };
        Offer { name: clock.name().to_owned(), other_name, why_not: None }
    });
    let difference = Offer { name: OFF_CPU.to_owned(), other_name: "", why_not: None };
    let counters = ALL.into_iter().filter_map(|(name, other_name, ..)| {
        let (events, _) = parse_events(&[name.to_owned()], Unsaid::default()).ok()?;
        let why_not = fitted(events.first()?.counter()?).err();
        Some(Offer { name: name.to_owned(), other_name, why_not })
    });
    clocks.chain([difference]).chain(counters).collect()
}

/// The options with each event as it can be had, and notes on what was changed.
pub(crate) fn fit(options: &RecordOptions) -> Result<(RecordOptions, Vec<String>), RecordError> {
    let (mut options, mut notes) = (options.clone(), Vec::new());
    for event in &mut options.events {
        let Some(counter) = event.counter() else { continue };
        let (spec, why) = fitted(counter).map_err(|reason| refused(event, reason))?;
        if let Some(why) = why {
            let name = &event.name;
            if counter.meter == callpath_format::shared::Settings::COUNTED {
                notes.push(format!("{name} is counted in user mode only: {why}"));
                event.name = in_user_mode(name);
            } else {
                notes.push(format!(
                    "{name} is sampled in user mode only; what happens in system calls counts at the next sample: {why}"
                ));
            }
        }
        if let EventSource::Counter(counter) = &mut event.source {
            counter.spec = spec;
        }
    }
    Ok((options, notes))
}

/// As perf writes it.
fn in_user_mode(name: &str) -> String {
    let separator = if name.matches(':').count() > usize::from(name.starts_with("mem:")) { "" } else { ":" };
    format!("{name}{separator}u")
}

/// How the kernel lets this user have the counter, and why not as asked; or why not at all.
fn fitted(counter: &Counter) -> Result<(EventSpec, Option<String>), String> {
    let tried = |spec: EventSpec| PerfEvent::try_out(&opened_as(&Counter { spec, ..*counter }));
    let mut error = match tried(counter.spec) {
        Ok(()) => return Ok((counter.spec, None)),
        Err(error) => error,
    };
    let is_forbidden = error.kind() == ErrorKind::PermissionDenied;
    // What happens inside the kernel is never seen from user mode.
    let in_kernel = counter.kind == Kind::Tracepoint || counter.is_switch();
    if is_forbidden && !counter.modes_given && !in_kernel {
        let spec = EventSpec { exclude_kernel: true, exclude_hypervisor: true, ..counter.spec };
        match tried(spec) {
            Ok(()) => return Ok((spec, Some(format!("{}; {}", plain(&error), paranoid(1))))),
            // The kernel looks at rights first, and only then whether there is such a thing.
            Err(other) => error = other,
        }
    }
    Err(reason(counter, &error, in_kernel))
}

fn reason(counter: &Counter, error: &Error, in_kernel: bool) -> String {
    let why = match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) if counter.kind == Kind::Tracepoint => {
            "tracepoints need root or CAP_PERFMON".to_owned()
        }
        Some(libc::EACCES | libc::EPERM) if in_kernel => format!("it happens in the kernel; {}", paranoid(1)),
        Some(libc::EACCES | libc::EPERM) => format!("not for this user; {}", paranoid(2)),
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO | libc::EOPNOTSUPP) => match counter.kind {
            Kind::Hardware if counter.spec.precise > 0 => {
                "this machine has no such counter, or not so precise".to_owned()
            }
            Kind::Hardware => "this machine has no such counter (virtual machines often have none)".to_owned(),
            _ => "this kernel does not offer it".to_owned(),
        },
        Some(libc::EINVAL) if counter.kind == Kind::Device => {
            "this unit cannot be sampled, or has no such event".to_owned()
        }
        Some(libc::EINVAL) => {
            "the kernel does not take its numbers; kernel.perf_event_max_sample_rate bounds rates".to_owned()
        }
        Some(libc::ENOSPC) => "the processor has no free breakpoint register or counter".to_owned(),
        _ => "the kernel refuses it".to_owned(),
    };
    format!("{why} ({})", plain(error))
}

/// Why threads cannot count an event of the processor themselves.
pub(crate) fn why_not_counted(error: &Error) -> String {
    reason(&Counter::new(EventSpec::new(0, 0), Kind::Hardware, 1), error, false)
}

/// Advice if the kernel's setting is stricter than `enough`; `None` if the refusal has another cause.
pub(crate) fn paranoid_is_too_strict(enough: i32) -> Option<String> {
    let level = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok()?.trim().parse::<i32>().ok()?;
    too_strict(level, enough)
}

fn too_strict(level: i32, enough: i32) -> Option<String> {
    (level > enough).then(|| format!("kernel.perf_event_paranoid is {level}, {enough} or less would do"))
}

fn paranoid(enough: i32) -> String {
    let level = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    let level = if level.trim().is_empty() { "not to be read" } else { level.trim() };
    format!("kernel.perf_event_paranoid is {level}, {enough} or less would do, and so would CAP_PERFMON")
}

fn refused(event: &Event, reason: String) -> RecordError {
    let here: Vec<String> = offered_events().into_iter().filter(|o| o.why_not.is_none()).map(|o| o.name).collect();
    let reason = format!("{reason}; what can be sampled here: {}", here.join(", "));
    RecordError::Event { event: event.asked_name().to_owned(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_is_for_what_is_set() {
        let advice = Some("kernel.perf_event_paranoid is 3, 2 or less would do".to_owned());
        assert_eq!(too_strict(3, 2), advice);
        assert_eq!((too_strict(2, 2), too_strict(1, 2), too_strict(-1, 1)), (None, None, None));
    }
}
