//! A measurement that is written down, not recorded.

use callpath_db::{Metric, MetricId};
use callpath_format::address::{LinkAddr, RunAddr};
use callpath_format::frame::{FrameKey, ModuleIndex};
use callpath_measurement::{
    CountedPath, CountedProcedure, FULL_ROOT, MeasuredTime, ModuleRecord, PathCategory, PathCounts, PathMetric,
    PathTime, PathTree, ProcessFile, RefusedProcedure, SampleTally, SessionEnd, SessionFile, ThreadProfile,
    TimesAccount, encode_process, encode_session, process_file_name, write_file,
};

/// A measurement of processes with one sample each, in a directory of its own.
pub(crate) fn measurement(processes: u32, ended: bool) -> tempfile::TempDir {
    measured(MetricId::CPU_TIME, processes, ended)
}

/// The same of another metric.
fn measured(metric: MetricId, processes: u32, ended: bool) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let session = SessionFile {
        program: "/usr/bin/app".into(),
        command: vec!["app".into()],
        metrics: vec![Metric::of(metric), Metric::of(MetricId::SAMPLES)],
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

/// A measurement of a process whose paths were counted, in a program that is gone.
#[allow(dead_code)] // Not every test has one.
pub(crate) fn with_paths() -> tempfile::TempDir {
    let directory = measurement(1, true);
    let modules = vec![ModuleRecord { path: "/gone/app".into(), identity: None }];
    let process = ProcessFile { pid: 100, program: "/gone/app".into(), modules, ..ProcessFile::default() };
    write_file(directory.path(), &process_file_name(0, 100), &encode_process(&process)).unwrap();
    let (module, entry) = (ModuleIndex(0), LinkAddr(0x1000));
    let path = |number, category, blocks: &[u64], executions| CountedPath {
        number,
        category,
        blocks: blocks.iter().copied().map(LinkAddr).collect(),
        executions,
        times: [PathTime::default(); 2],
    };
    let paths = vec![
        path(0, PathCategory::EntryBack, &[0x1000, 0x1010], 10),
        path(3, PathCategory::HeadExit, &[0x1010, 0x1020], 9),
    ];
    let counts = PathCounts {
        pid: 100,
        procedures: vec![CountedProcedure { module, entry, possible: 4, cuts: 0, paths }],
        refused: vec![RefusedProcedure { module, entry: LinkAddr(0x2000), reason: "it changes its own code".into() }],
        cut_short: 1,
        lost: 0,
        edges: vec![],
        contexts: vec![],
        metrics: Vec::new(),
    };
    counts.write(directory.path(), 0).unwrap();
    directory
}

/// [`with_paths`], where the path that was executed less often was measured, each time, and the other one was not.
#[allow(dead_code)] // Not every test has one.
pub(crate) fn with_times() -> tempfile::TempDir {
    let directory = with_paths();
    let file = directory.path().join("paths-0-100");
    let mut counts = PathCounts::from_bytes(&std::fs::read(&file).unwrap(), &file).unwrap();
    let usual = MeasuredTime { measured: 9, weight: 9, time_ns: 225, spread: [0; 3] };
    counts.procedures[0].paths[1].times[0] = PathTime { usual, ..PathTime::default() };
    let account = TimesAccount { lost: 2, clock_ns: 20 };
    counts.metrics = vec![PathMetric { name: "wall-time".into(), account }];
    counts.write(directory.path(), 0).unwrap();
    directory
}

/// A measurement of a process whose calls were counted, without samples, in a program that is gone: `app+0x1000` calls `app+0x2000` from two places.
#[allow(dead_code)] // Not every test has one.
pub(crate) fn with_calls() -> tempfile::TempDir {
    let directory = measurement(1, true);
    let session = SessionFile {
        program: "/gone/app".into(),
        command: vec!["app".into()],
        metrics: vec![Metric::of(MetricId::CALLS), Metric::of(MetricId::SAMPLES)],
        ended: Some(SessionEnd::default()),
        started_unix_ns: std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64,
        ..SessionFile::default()
    };
    write_file(directory.path(), "session", &encode_session(&session)).unwrap();
    let frame = |address| FrameKey::in_module(ModuleIndex(0), LinkAddr(address));
    let mut tree = PathTree::default();
    let mut call = |caller: Option<u64>, entry, calls| {
        let above = caller.map_or(FULL_ROOT, |caller| tree.child(FULL_ROOT, frame(caller)));
        let node = tree.child(above, frame(entry));
        tree.add(node, calls, &[calls]);
    };
    call(None, 0x1000, 1);
    call(Some(0x1010), 0x2000, 6);
    call(Some(0x1020), 0x2000, 5);
    let tally = SampleTally { taken: 12, full: 12, ..SampleTally::default() };
    let process = ProcessFile {
        pid: 100,
        program: "/gone/app".into(),
        metric_count: 1,
        modules: vec![ModuleRecord { path: "/gone/app".into(), identity: None }],
        threads: vec![ThreadProfile { tid: 100, count: 1, tally, tree, ..ThreadProfile::default() }],
        ..ProcessFile::default()
    };
    write_file(directory.path(), &process_file_name(0, 100), &encode_process(&process)).unwrap();
    count_calls(&directory, [0x1000, 0x2000], (0x3000, "it calls setjmp"));
    directory
}

/// Says of process 100 that calls of two procedures of its first module were counted, and why those of another were not.
fn count_calls(directory: &tempfile::TempDir, counted: [u64; 2], (refused, reason): (u64, &str)) {
    let module = ModuleIndex(0);
    let procedure = |entry| CountedProcedure { module, entry: LinkAddr(entry), possible: 0, cuts: 0, paths: vec![] };
    let counts = PathCounts {
        pid: 100,
        procedures: counted.map(procedure).to_vec(),
        refused: vec![RefusedProcedure { module, entry: LinkAddr(refused), reason: reason.into() }],
        ..PathCounts::default()
    };
    counts.write(directory.path(), 0).unwrap();
}

/// A measurement of two processes without samples: in the first one all calls were counted, in the other one none.
#[allow(dead_code)] // Not every test has one.
pub(crate) fn with_calls_in_one() -> tempfile::TempDir {
    let directory = measured(MetricId::CALLS, 2, true);
    let modules = vec![ModuleRecord { path: "/gone/app".into(), identity: None }];
    let mut tree = PathTree::default();
    let node = tree.child(FULL_ROOT, FrameKey::outside(RunAddr(0x1000)));
    tree.add(node, 7, &[7]);
    let tally = SampleTally { taken: 7, full: 7, handler_ns: 20_000, ..SampleTally::default() };
    let threads = vec![ThreadProfile { tid: 100, count: 1, tally, tree, ..ThreadProfile::default() }];
    let process = ProcessFile {
        pid: 100,
        program: "/gone/first".into(),
        modules,
        metric_count: 1,
        threads,
        ..ProcessFile::default()
    };
    write_file(directory.path(), &process_file_name(0, 100), &encode_process(&process)).unwrap();
    count_calls(&directory, [0x1000, 0x1100], (0x2000, "it changes its own code"));
    directory
}
