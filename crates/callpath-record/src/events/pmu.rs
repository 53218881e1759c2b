//! Units that count, as the kernel describes them under /sys: `cpu/event=0x3c,umask=0x0/`.

use std::path::Path;

use callpath_target::{EventSpec, Every};

use super::counter::{Counter, Kind};
use super::error::EventError;
use super::period::rate_in_range;

/// Where they are described.
pub(super) const DEVICES: &str = "/sys/bus/event_source/devices";

/// A unit's event by its terms: `name=value`, `name` for 1, or the name of an event that the unit has.
pub(super) fn counter(devices: &Path, unit: &str, terms: &str, text: &str) -> Result<Counter, EventError> {
    let wrong = |reason: String| EventError::Malformed { event: text.to_owned(), reason };
    if !is_name(unit) {
        return Err(EventError::Unknown(text.to_owned()));
    }
    let directory = devices.join(unit);
    let Some(number) = read(&directory.join("type")).and_then(|number| number.parse().ok()) else {
        return Err(wrong(format!("this machine has no unit `{unit}`; those that it has: {}", units(devices))));
    };
    let mut spec = EventSpec::new(number, 0);
    for term in terms.split(',').filter(|term| !term.is_empty()) {
        let (name, value) = term.split_once('=').map_or((term, None), |(name, value)| (name, Some(value)));
        if !is_name(name) {
            return Err(wrong(format!("`{term}` is not a term")));
        }
        match value {
            None if directory.join("events").join(name).is_file() => {
                let its_terms = read(&directory.join("events").join(name)).unwrap_or_default();
                for term in its_terms.split(',') {
                    let (name, value) = term.split_once('=').unwrap_or((term, "1"));
                    set(&mut spec, &directory, name, value).map_err(wrong)?;
                }
            }
            _ => set(&mut spec, &directory, name, value.unwrap_or("1")).map_err(wrong)?,
        }
    }
    Ok(Counter::new(spec, Kind::Device, 50_000_000))
}

fn set(spec: &mut EventSpec, directory: &Path, name: &str, value: &str) -> Result<(), String> {
    let number = match value.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => value.parse(),
    };
    let number = number.map_err(|_| format!("`{name}={value}`: no number"))?;
    match name {
        "config" => spec.config = number,
        "config1" => spec.config1 = number,
        "config2" => spec.config2 = number,
        "period" if number > 0 => spec.every = Every::Period(number),
        "freq" => spec.every = Every::Rate(rate_in_range(number).map_err(|error| error.to_string())?),
        _ => {
            let format = read(&directory.join("format").join(name)).ok_or_else(|| {
                format!("this unit has no term `{name}`; it has {}", listed(&directory.join("format")))
            })?;
            scatter(spec, &format, number)
                .ok_or_else(|| format!("`{name}={value}` is more than its bits hold ({format})"))?;
        }
    }
    Ok(())
}

/// Puts a number into the bits that a format names: `config:0-7,32-35`, the lowest first. `None`: it does not fit.
fn scatter(spec: &mut EventSpec, format: &str, mut number: u64) -> Option<()> {
    let (word, ranges) = format.trim().split_once(':')?;
    let word = match word {
        "config" => &mut spec.config,
        "config1" => &mut spec.config1,
        "config2" => &mut spec.config2,
        _ => return None,
    };
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last > 63 {
            return None;
        }
        let mask = u64::MAX >> (63 - (last - first));
        *word = *word & !(mask << first) | (number & mask) << first;
        number = if last - first == 63 { 0 } else { number >> (last - first + 1) };
    }
    (number == 0).then_some(())
}

fn units(devices: &Path) -> String {
    listed(devices)
}

fn listed(directory: &Path) -> String {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn read(path: &Path) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
}

/// Nothing that leads elsewhere.
fn is_name(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As /sys has it for an Intel processor (Documentation/ABI/testing/sysfs-bus-event_source-devices-format).
    fn devices() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let cpu = directory.path().join("cpu");
        for (path, text) in [
            ("type", "4\n"),
            ("format/event", "config:0-7\n"),
            ("format/umask", "config:8-15\n"),
            ("format/edge", "config:18\n"),
            ("format/cmask", "config:24-31\n"),
            ("format/wide", "config1:0-3,60-63\n"),
            ("events/cpu-cycles", "event=0x3c\n"),
            ("events/mem-loads", "event=0xcd,umask=0x1,wide=0x13\n"),
        ] {
            let path = cpu.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        directory
    }

    #[test]
    fn terms_are_bits() {
        let devices = devices();
        let spec = |terms: &str| counter(devices.path(), "cpu", terms, "e").map(|c| c.spec);
        let with = |config, config1| Ok(EventSpec { config1, ..EventSpec::new(4, config) });
        assert_eq!(spec("event=0x3c,umask=0x0"), with(0x3c, 0));
        assert_eq!(spec("event=0xa3,umask=4,edge,cmask=0x5"), with(0x0504_04a3, 0));
        assert_eq!(spec("cpu-cycles"), with(0x3c, 0));
        assert_eq!(spec("mem-loads"), with(0x1cd, 0x1000_0000_0000_0003));
        assert_eq!(
            spec("config=0xff,period=77"),
            Ok(EventSpec { every: Every::Period(77), ..EventSpec::new(4, 0xff) })
        );
        for (terms, word) in [
            ("event=0x100", "more than its bits"),
            ("event=x", "no number"),
            ("evnt=1", "cmask, edge, event"),
            ("../type=1", "not a term"),
            ("freq=0", "out of range"),
        ] {
            let said = spec(terms).unwrap_err().to_string();
            assert!(said.contains(word), "{terms}: {said}");
        }
        let said = counter(devices.path(), "gpu", "event=1", "gpu/event=1/").unwrap_err().to_string();
        assert_eq!(said, "event `gpu/event=1/`: this machine has no unit `gpu`; those that it has: cpu");
    }
}
