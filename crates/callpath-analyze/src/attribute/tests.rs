//! From files to a profile, where no module is needed.
//! Knows nothing of names.

use super::*;
use crate::measurement::{MetricInfo, PathTree, ThreadProfile};

fn process(sequence: u32, pid: u32, forked: bool, account: Account) -> ProcessFile {
    let thread = ThreadProfile { tid: pid, count: 1, name: "main".into(), account, ..ThreadProfile::default() };
    ProcessFile { sequence, pid, forked, metric_count: 1, threads: vec![thread], ..ProcessFile::default() }
}

fn profile(processes: Vec<ProcessFile>) -> Profile {
    let session = SessionFile {
        metrics: vec![MetricInfo { name: "cpu-time".into(), unit: "ns".into() }],
        working_directory: "/somewhere".into(),
        recorder_cpu_ns: 40,
        ..SessionFile::default()
    };
    let measurement = Measurement { directory: "m.callpath".into(), session, processes, unreadable: Vec::new() };
    attribute(&measurement, &AttributeOptions { debug_roots: Vec::new(), vdso: None }, &mut |_, _| ())
}

#[test]
fn a_process_that_executes_another_program_goes_on() {
    // A shell, its child that executes a program, another child with the number of the first one.
    let made = [(100, false), (101, true), (101, false), (101, true)];
    let made = made.into_iter().enumerate();
    let profile = profile(made.map(|(i, (pid, forked))| process(i as u32, pid, forked, Account::default())).collect());
    let continues: Vec<bool> = profile.info.processes.iter().map(|p| p.continues).collect();
    assert_eq!(continues, [false, false, true, false]);
    assert_eq!(profile.info.recorder_cpu_ns, Some(40));
    assert_eq!(profile.info.working_directory, "/somewhere");
}

#[test]
fn where_walks_stopped_is_said() {
    let mut stopping = process(0, 1, false, Account::default());
    stopping.modules.push(ModuleRecord { path: "/nowhere/libodd.so".into(), identity: None });
    let mut stopped = |key: FrameKey, samples: u64| {
        let tree = &mut stopping.threads[0].tree;
        let outermost = tree.child(PARTIAL_ROOT, key);
        let inner = tree.child(outermost, FrameKey::in_module(ModuleIndex(0), LinkAddr(0x20)));
        tree.add(inner, samples, [samples, 0]);
        profile(vec![stopping.clone()]).info.notes.into_iter().find(|note| note.starts_with("partial"))
    };
    let outside = FrameKey::outside(callpath_format::address::RunAddr(0x7000));
    let note = "partial call paths: the walk stopped in code without a file, made at run time (3 of 3 samples)";
    assert_eq!(stopped(outside, 3).as_deref(), Some(note));
    let note = "partial call paths: the walk stopped in /nowhere/libodd.so (4 of 7 samples)";
    assert_eq!(stopped(FrameKey::in_module(ModuleIndex(0), LinkAddr(0x10)), 4).as_deref(), Some(note));
    assert!(profile(vec![process(0, 1, false, Account::default())]).info.notes.is_empty());
}

/// A file may hold anything behind a right checksum.
#[test]
fn numbers_without_bounds_do_not_overflow() {
    let account = Account {
        taken: u64::MAX,
        full: u64::MAX,
        dropped: [u64::MAX; Dropped::COUNT],
        handler_ns: u64::MAX,
        ..Account::default()
    };
    let mut process = process(0, 1, false, account);
    let mut tree = PathTree::default();
    for root in [FULL_ROOT, PARTIAL_ROOT] {
        let mut node = root;
        for address in 0..3 {
            node = tree.child(node, FrameKey(address));
            tree.add(node, u64::MAX, [u64::MAX; 2]);
        }
    }
    process.threads[0].tree = tree;
    process.threads[0].count = u64::MAX;
    process.threads.push(process.threads[0].clone());
    process.dropped_unrecorded = [u64::MAX; Dropped::COUNT];
    let profile = profile(vec![process.clone(), process]);
    assert_eq!(profile.quality.taken, u64::MAX);
    assert_eq!(profile.info.processes[0].threads, u32::MAX);
}
