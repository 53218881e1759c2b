//! Measurements of earlier versions of the format are refused with a sentence that names the version.

use std::path::{Path, PathBuf};

use callpath_measurement::{Measurement, decode_process};

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/version-03")
}

#[test]
fn version_03_is_named() {
    let session = Measurement::read(&directory()).unwrap_err().to_string();
    assert!(session.contains("another version of the format (03 at byte 6, not 04)"), "{session}");
    let path = directory().join("process-0-100");
    let process = decode_process(&std::fs::read(&path).unwrap(), &path).unwrap_err().to_string();
    assert!(process.ends_with("use the callpath that recorded it") && process.contains("(03 at byte 6"), "{process}");
}
