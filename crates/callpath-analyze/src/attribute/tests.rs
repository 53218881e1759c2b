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
