//! `report --pack` and `record --pack`: the same report where the program's files are gone.

use std::path::Path;
use std::process::{Command, Stdio};

use callpath_end_to_end::{Ended, Program, callpath, copy_program};

/// A report with a cache of its own.
fn report(measurement: &Path, cache: &Path, options: &[&str]) -> Ended {
    let mut report = Command::new(callpath());
    report.arg("report").arg(measurement).args(options).env("CALLPATH_CACHE_DIR", cache).stdin(Stdio::null());
    Ended::of(&report.output().expect("callpath can be run"))
}

#[test]
fn a_measurement_travels_without_the_program() {
    let place = tempfile::tempdir().unwrap();
    let (program, debug) = (place.path().join("traveller"), place.path().join("traveller.debug"));
    copy_program(Program::nasty("kernel_calls.c").path(), &program);
    let objcopy = |words: &[&str]| {
        let mut command = Command::new("objcopy");
        let said = command.args(words).arg(&program).current_dir(place.path()).output().expect("objcopy is needed");
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    };
    std::fs::copy(&program, &debug).unwrap();
    objcopy(&["--strip-all", "--add-gnu-debuglink=traveller.debug"]);
    let recorded = Program::at(&program).arguments(["400000"]).recorded();
    let measurement = recorded.directory.as_path();
    let questions: [&[&str]; 5] =
        [&[], &["--json"], &["--json", "--kernel", "--lines"], &["--view", "callers"], &["--view", "flat", "--json"]];
    let answers = |cache: &str| questions.map(|options| report(measurement, &place.path().join(cache), options));
    let before = answers("first");
    assert!(before.iter().all(|said| said.status == 0 && said.stdout.contains("by_number")), "{before:?}");

    let packing = report(measurement, &place.path().join("first"), &["--pack"]);
    assert!(packing.status == 0 && packing.stderr.contains("/pack ("), "{packing:?}");
    assert_eq!(packing.stdout, before[0].stdout);
    assert!(std::fs::metadata(measurement.join("pack")).unwrap().len() < 100_000);
    std::fs::remove_file(&program).unwrap();
    std::fs::remove_file(&debug).unwrap();
    assert_eq!(answers("second"), before);

    // Where the files are gone a pack cannot be made better.
    let again = report(measurement, &place.path().join("second"), &["--pack"]);
    assert!(again.status != 0 && again.stderr.contains("is there already"), "{again:?}");
    // One made now says what it lacks.
    let pack = measurement.join("pack");
    let whole = place.path().join("whole");
    std::fs::rename(&pack, &whole).unwrap();
    let poor = report(measurement, &place.path().join("second"), &["--pack"]);
    assert!(
        poor.status == 0 && poor.stderr.contains(", but nothing of ") && poor.stderr.contains(": gone"),
        "{poor:?}"
    );
    std::fs::rename(&whole, &pack).unwrap();
    // A damaged one is named, and nothing is shown in its place.
    let mut bytes = std::fs::read(&pack).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&pack, bytes).unwrap();
    let damaged = report(measurement, &place.path().join("second"), &[]);
    let says = format!("failed to read {}: what follows byte 32 does not match its checksum", pack.display());
    assert!(damaged.status != 0 && damaged.stdout.is_empty() && damaged.stderr.contains(&says), "{damaged:?}");
}

#[test]
fn a_recording_is_packed_at_once() {
    let place = tempfile::tempdir().unwrap();
    let program = place.path().join("traveller");
    copy_program(Program::nasty("kernel_calls.c").path(), &program);
    let record = |directory: &Path, options: &[&str]| {
        let mut record = Command::new(callpath());
        record.args(["record", "-o"]).arg(directory).args(options).arg("--").arg(&program).arg("400000");
        Ended::of(&record.stdin(Stdio::null()).output().expect("callpath can be run"))
    };
    let measurement = place.path().join("m");
    let recorded = record(&measurement, &["--pack"]);
    assert!(recorded.status == 0 && recorded.stderr.contains("callpath: packed: "), "{recorded:?}");
    assert!(recorded.stderr.contains("; see it with: "), "{recorded:?}");
    let before = report(&measurement, &place.path().join("first"), &[]);
    let quiet = record(&place.path().join("quiet"), &["--pack", "-q"]);
    assert!(quiet.status == 0 && quiet.stderr.is_empty() && place.path().join("quiet/pack").exists(), "{quiet:?}");

    std::fs::remove_file(&program).unwrap();
    let after = report(&measurement, &place.path().join("second"), &[]);
    assert!(after.status == 0 && after.stdout.contains("by_number"), "{after:?}");
    assert_eq!(after.stdout, before.stdout);
}

/// A directory stands where the pack is to be written.
#[test]
fn a_recording_that_cannot_be_packed_stays() {
    let place = tempfile::tempdir().unwrap();
    let measurement = place.path().join("m");
    let mut record = Command::new(callpath());
    record.args(["record", "--pack", "-q", "-o"]).arg(&measurement).args(["--", "sh", "-c"]);
    record.arg("i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; mkdir \"$0/pack\"; exit 7").arg(&measurement);
    let said = Ended::of(&record.stdin(Stdio::null()).output().expect("callpath can be run"));
    assert!(said.status == 7 && said.stderr.starts_with("callpath: not packed: failed to "), "{said:?}");
    assert!(said.stderr.contains("; the measurement is complete; pack it with: "), "{said:?}");
    std::fs::remove_dir(measurement.join("pack")).unwrap();
    let reported = report(&measurement, &place.path().join("cache"), &[]);
    assert!(reported.status == 0 && reported.stdout.contains("Call paths by cpu-time"), "{reported:?}");
}
