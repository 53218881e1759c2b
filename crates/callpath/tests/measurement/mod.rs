//! A measurement that is written down, not recorded.

use callpath_db::{Metric, MetricId};
use callpath_format::address::RunAddr;
use callpath_format::frame::FrameKey;
use callpath_measurement::{
    FULL_ROOT, PathTree, ProcessFile, SampleTally, SessionEnd, SessionFile, ThreadProfile, encode_process,
    encode_session, process_file_name, write_file,
};

/// A measurement of processes with one sample each, in a directory of its own.
pub(crate) fn measurement(processes: u32, ended: bool) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let session = SessionFile {
        program: "/usr/bin/app".into(),
        command: vec!["app".into()],
        metrics: vec![Metric::of(MetricId::CPU_TIME), Metric::of(MetricId::SAMPLES)],
        ended: ended.then_some(SessionEnd { user_ns: 2_000_000, ..SessionEnd::default() }),
        // A recorder that is silent for long is taken for dead.
        started_unix_ns: std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64,
        notes: vec!["A note.".into()],
        recorder_cpu_ns: 3_000_000,
        ..SessionFile::default()
    };
    write_file(directory.path(), "session", &encode_session(&session)).unwrap();
    for sequence in 0..processes {
        let mut tree = PathTree::default();
        let node = tree.child(FULL_ROOT, FrameKey::outside(RunAddr(0x1000)));
        tree.add(node, 1, &[1_000_000]);
        let tally = SampleTally { taken: 1, full: 1, handler_ns: 20_000, ..SampleTally::default() };
        let thread = ThreadProfile { tid: 100, count: 1, tally, tree, ..ThreadProfile::default() };
        let process = ProcessFile {
            pid: 100 + sequence,
            sequence,
            program: "/usr/bin/app".into(),
            metric_count: 1,
            threads: vec![thread],
            ..ProcessFile::default()
        };
        write_file(directory.path(), &process_file_name(sequence, process.pid), &encode_process(&process)).unwrap();
    }
    directory
}
