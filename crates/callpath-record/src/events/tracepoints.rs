//! Places in the kernel, by the names that tracefs gives them.

use std::io::ErrorKind;

use callpath_measurement::plain;
use callpath_target::EventSpec;

use super::counter::{Counter, Kind};
use super::error::EventError;

/// Where tracefs is mounted, the usual place first.
const MOUNT_POINTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// `SYSTEM:NAME`
pub(super) fn counter(system: &str, name: &str, text: &str) -> Result<Counter, EventError> {
    const TRACEPOINT: u32 = 2;
    let event = || text.to_owned();
    // Names are directories' names: nothing that leads elsewhere.
    let is_name =
        |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if !is_name(system) || !is_name(name) {
        return Err(EventError::Unknown(event()));
    }
    let mut reason = "tracefs is not mounted".to_owned();
    for directory in MOUNT_POINTS {
        match std::fs::read_to_string(format!("{directory}/events/{system}/{name}/id")) {
            Ok(id) => match id.trim().parse() {
                Ok(id) => return Ok(Counter::new(EventSpec::new(TRACEPOINT, id), Kind::Tracepoint, 1000)),
                Err(_) => reason = format!("{directory}/events/{system}/{name}/id does not hold a number"),
            },
            Err(error) if error.kind() == ErrorKind::NotFound => match std::fs::metadata(format!("{directory}/events"))
            {
                Ok(_) => return Err(EventError::Tracepoint { event: event(), directory: directory.to_owned() }),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => reason = plain(&error),
            },
            Err(error) => reason = plain(&error),
        }
    }
    Err(EventError::Tracing { event: event(), reason })
}
