//! Measurements of earlier versions of the format are refused with a sentence that names the version; files
//! that later versions no longer write are ignored.

use std::path::Path;

use callpath_measurement::{
    Measurement, ProcessFile, SessionEnd, SessionFile, decode_process, encode_process, encode_session,
    process_file_name, write_file,
};
use callpath_schema::{Metric, MetricId};

#[test]
fn earlier_versions_are_named() {
    for version in ["03", "04"] {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/version-{version}"));
        let session = Measurement::read(&directory).unwrap_err().to_string();
        let words = format!("another version of the format ({version} at byte 6, not 05)");
        assert!(session.contains(&words), "{session}");
        let path = directory.join("process-0-100");
        let process = decode_process(&std::fs::read(&path).unwrap(), &path).unwrap_err().to_string();
        assert!(process.ends_with("use the callpath that recorded it"), "{process}");
        assert!(process.contains(&format!("({version} at byte 6")), "{process}");
    }
}

/// A file of `record --trace` (CPTRAC01), which earlier builds put beside the process's own.
#[test]
fn a_trace_is_ignored() {
    let directory = tempfile::tempdir().unwrap();
    let session = SessionFile {
        metrics: vec![Metric::of(MetricId::CPU_TIME)],
        ended: Some(SessionEnd::default()),
        processes: 1,
        ..SessionFile::default()
    };
    write_file(directory.path(), Measurement::SESSION_FILE, &encode_session(&session)).unwrap();
    let process = encode_process(&ProcessFile { pid: 100, ..ProcessFile::default() });
    write_file(directory.path(), &process_file_name(0, 100), &process).unwrap();
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/trace-01/trace-0-100");
    std::fs::copy(trace, directory.path().join("trace-0-100")).unwrap();
    let read = Measurement::read(directory.path()).unwrap();
    assert_eq!((read.losses(), read.processes.len()), (vec![], 1));
}
