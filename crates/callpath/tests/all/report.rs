//! `callpath report` as a shell sees it: what goes where, and with which status.
//! The measurement is written down by the test, not recorded.

use crate::measurement;

use std::fs::File;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use measurement::measurement;

fn report(directory: &Path, options: &[&str], stdout: Stdio) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_callpath"));
    command.arg("report").arg(directory).args(options).stdout(stdout).stderr(Stdio::piped());
    command.spawn().unwrap().wait_with_output().unwrap()
}

/// Status, standard output, standard error; the directory is DIR there.
fn said(directory: &Path, options: &[&str]) -> (i32, String, String) {
    let output = report(directory, options, Stdio::piped());
    let text = |bytes| String::from_utf8(bytes).unwrap().replace(directory.to_str().unwrap(), "DIR");
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// Everything that writes to standard output.
const OUTPUTS: [&[&str]; 3] = [&[], &["--json"], &["--view", "flat"]];

#[test]
fn a_whole_measurement_is_reported_without_a_word_on_standard_error() {
    let whole = measurement(2, true);
    for options in OUTPUTS {
        let (status, out, err) = said(whole.path(), options);
        assert_eq!((status, err.as_str(), out.is_empty()), (0, "", false), "{options:?}");
    }
    let (_, out, _) = said(whole.path(), &[]);
    assert!(out.contains("measuring cost 2.0% of the cpu time;\n  the recorder took 3.00 ms\n"), "{out}");
}

#[test]
fn a_partly_damaged_measurement_says_so() {
    let partly = measurement(2, true);
    let file = partly.path().join("process-1-101");
    std::fs::write(&file, &std::fs::read(&file).unwrap()[..50]).unwrap();
    for options in OUTPUTS {
        let (status, out, err) = said(partly.path(), options);
        assert_eq!((status, out.is_empty()), (0, false), "{options:?}");
        assert!(
            err.starts_with("callpath: failed to read DIR/process-1-101: it ends at byte 50, not at byte "),
            "{err}"
        );
    }
    let (_, out, _) = said(partly.path(), &[]);
    assert!(out.contains("Notes\n") && out.contains("process-1-101: it ends at byte 50"), "{out}");
}

#[test]
fn where_nothing_can_be_read_there_is_no_report() {
    for is_gone in [false, true] {
        let damaged = measurement(1, true);
        let file = damaged.path().join("process-0-100");
        if is_gone {
            std::fs::remove_file(&file).unwrap();
        } else {
            let mut bytes = std::fs::read(&file).unwrap();
            bytes[50] ^= 1;
            std::fs::write(&file, bytes).unwrap();
        }
        for options in OUTPUTS {
            let (status, out, err) = said(damaged.path(), options);
            assert_eq!((status, out.as_str()), (1, ""), "{options:?}");
            let why = "what follows byte 48 does not match its checksum; it is damaged";
            assert!(is_gone || err.contains(&format!("failed to read DIR/process-0-100: {why}")), "{err}");
            assert!(err.contains("callpath: A note.\ncallpath: DIR: no data of any process: "), "{err}");
        }
    }
}

#[test]
fn a_recording_that_has_only_begun_has_a_report() {
    let begun = measurement(0, false);
    let (status, out, err) = said(begun.path(), &[]);
    assert_eq!((status, err.as_str()), (0, ""));
    assert!(out.contains("still running"), "{out}");
}

#[test]
fn a_full_disk_is_said_and_a_closed_pipe_is_not() {
    let whole = measurement(2, true);
    for options in OUTPUTS {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = report(whole.path(), options, full.into());
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{options:?}");
        assert_eq!(err, "callpath: cannot write to standard output: No space left on device\n", "{options:?}");

        // Nobody reads, from the first byte on.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = report(whole.path(), options, writer.into());
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]), "{options:?}");
    }
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let help = Command::new(env!("CARGO_BIN_EXE_callpath")).arg("--help").stdout(full()).output().unwrap();
    assert_eq!(help.status.code(), Some(1));
    // Where nothing can be said, the status is right nevertheless.
    let mut wrong = Command::new(env!("CARGO_BIN_EXE_callpath"));
    wrong.args(["report", "/nowhere/at/all"]).stderr(full());
    assert_eq!(wrong.status().unwrap().code(), Some(1));
}

#[test]
fn options_out_of_range_are_refused() {
    let whole = measurement(1, true);
    for (option, value, why) in [
        ("--width", "0", "must be 40 or more"),
        ("--width", "39", "must be 40 or more"),
        ("--depth", "0", "must be 1 or more"),
        ("--depth", "-1", "must be 1 or more"),
        ("--threshold", "-1", "must be from 0 to 100"),
        ("--threshold", "100.1", "must be from 0 to 100"),
        ("--threshold", "nan", "must be from 0 to 100"),
    ] {
        let (status, out, err) = said(whole.path(), &[option, value]);
        assert_eq!((status, out.as_str()), (2, ""), "{option} {value}");
        assert!(err.starts_with(&format!("callpath: invalid value '{value}' for '{option} ")), "{err}");
        assert!(err.ends_with(&format!(": {why}; see: callpath report --help\n")), "{err}");
    }
    for options in [["--width", "40"], ["--depth", "1"], ["--threshold", "0"], ["--threshold", "100"]] {
        assert_eq!(said(whole.path(), &options).0, 0, "{options:?}");
    }
}

#[test]
fn statistics_are_of_the_metric_asked_for() {
    let whole = measurement(2, true);
    let (status, out, err) = said(whole.path(), &["--statistics"]);
    assert_eq!((status, err.as_str()), (0, ""));
    assert!(out.starts_with("cpu-time of 2 profiles (threads)\n"), "{out}");
    let numbers = "  2.00 ms   1.00 ms   1.00 ms   1.00 ms      0 ns       2     all\n";
    assert!(out.contains(numbers), "{out}");
    let (_, out, _) = said(whole.path(), &["--statistics", "--columns", "samples"]);
    assert!(out.starts_with("samples of 2 profiles (threads)\n"), "{out}");
    let (status, out, err) = said(whole.path(), &["--statistics", "--columns", "none"]);
    let expected = "callpath: no metric is called none; there are: cpu-time, samples\n";
    assert_eq!((status, out.as_str(), err.as_str()), (1, "", expected));
}
