//! The machine that the tests run on, and what cannot be tested there.

use std::io::Write;

/// Reports that a test did not run, and why. libtest counts such a test as passed; `cargo xtask test` reads the reports
/// from the file that `CALLPATH_SKIPPED_TESTS` names and counts it as skipped.
pub fn skip(test: &str, reason: &str) {
    eprintln!("SKIPPED: {test}: {reason}");
    if let Some(file) = std::env::var_os("CALLPATH_SKIPPED_TESTS") {
        let opened = std::fs::OpenOptions::new().append(true).create(true).open(file);
        let written = opened.and_then(|mut file| writeln!(file, "{test}: {reason}"));
        written.expect("the list of skipped tests can be written");
    }
}

/// Whether the tests run as root.
pub fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc is mounted");
    status.lines().any(|line| line.starts_with("Uid:") && line.split_whitespace().nth(2) == Some("0"))
}

/// Time that the host denied to a virtual machine's processors since it started, nanoseconds, in steps of 10 ms.
pub fn stolen_ns() -> u64 {
    let said = std::fs::read_to_string("/proc/stat").expect("the kernel's account");
    let ticks: u64 = said.split_whitespace().nth(8).and_then(|ticks| ticks.parse().ok()).expect("time that was stolen");
    ticks * 10_000_000
}
