//! The line about programs that measured processes started and that could not be measured.

use std::sync::atomic::Ordering::Relaxed;

use callpath_format::shared::Session;
use callpath_format::shared::unmeasured::Reason;

use crate::plausible::Limits;

/// How many names are given for each reason.
const NAMED: usize = 4;

/// One line for all of them; `None` if there were none, or more than there can be.
pub(crate) fn note(session: &Session, limits: &Limits) -> Option<String> {
    let found: Vec<_> = session.unmeasured.iter().filter_map(|entry| entry.read()).collect();
    let others = session.unmeasured_others.load(Relaxed);
    let count = found.iter().fold(others, |sum, (_, _, count)| sum.saturating_add(*count));
    if count == 0 || !limits.allows_starts(count.into()) {
        return None;
    }
    let mut parts = Vec::new();
    for reason in Reason::ALL {
        let mut names = Vec::new();
        for (_, name, count) in found.iter().filter(|(why, ..)| *why == reason) {
            let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
            let name = String::from_utf8_lossy(&name[..end]);
            names.push(if *count > 1 { format!("{name} ({count} times)") } else { name.into_owned() });
        }
        if names.is_empty() {
            continue;
        }
        let more = names.len().saturating_sub(NAMED);
        names.truncate(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        parts.push(format!("{}: {}{more}", words(reason), names.join(", ")));
    }
    if others > 0 {
        parts.push(format!("{others} others"));
    }
    let programs = if count == 1 {
        "1 program that it started was".to_owned()
    } else {
        format!("{count} programs that it started were")
    };
    Some(format!("{programs} not measured; {}", parts.join("; ")))
}

fn words(reason: Reason) -> &'static str {
    match reason {
        Reason::Static => "statically linked",
        Reason::OtherMachine => "32-bit or for another processor",
        Reason::Privileged => "with other privileges (setuid, setgid or file capabilities)",
        Reason::OutOfReach => "where callpath's object cannot be opened (another root directory or user)",
        Reason::NoEnvironment => "without the environment that callpath gave",
        Reason::OtherLibrary => "of another C library than glibc",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn all_are_counted_and_some_are_named() {
        // SAFETY: a session is atomics and numbers, for which zeros are valid; it is large, and so made on the heap.
        let session = unsafe { Box::<Session>::new_zeroed().assume_init() };
        let limits = Limits::after(Duration::from_secs(1));
        assert_eq!(note(&session, &limits), None);
        let start = |reason, name: &str| {
            let entry = session.unmeasured.iter().find(|entry| entry.takes(reason, name.as_bytes()));
            match entry {
                Some(entry) => entry.count(true),
                None => drop(session.unmeasured_others.fetch_add(1, Relaxed)),
            }
        };
        start(Reason::Static, "busybox");
        assert_eq!(
            note(&session, &limits).as_deref(),
            Some("1 program that it started was not measured; statically linked: busybox")
        );
        start(Reason::Static, "busybox");
        start(Reason::OtherMachine, "busybox");
        assert_eq!(
            note(&session, &limits).as_deref(),
            Some(
                "3 programs that it started were not measured; statically linked: busybox (2 times); 32-bit or for another \
                 processor: busybox"
            )
        );
        for index in 0..40 {
            start(Reason::Privileged, &format!("su{index}"));
        }
        let line = note(&session, &limits).expect("there are some");
        assert!(
            line.starts_with("43 programs") && line.contains("su0, su1, su2, su3 and 26 more; 10 others"),
            "{line}"
        );
        session.unmeasured_others.store(u32::MAX, Relaxed);
        assert_eq!(note(&session, &limits), None);
    }
}
