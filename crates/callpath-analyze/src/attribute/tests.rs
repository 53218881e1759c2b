//! Tests from files to a profile, where no module is needed.

use super::*;
use callpath_db::{ContextId, ContextSum, Contexts, Metric, MetricId};
use callpath_format::address::LinkAddr;
use callpath_format::frame::{FrameKey, ModuleIndex};
use callpath_image::identity::ModuleIdentity;
use callpath_measurement::{FULL_ROOT, ModuleRecord, NamedCode, NamesFile, PARTIAL_ROOT, PathTree, ThreadProfile};
use callpath_measurement::{Job, RankSession, Ranks, SessionEnd, SessionFile};

fn process(sequence: u32, pid: u32, forked: bool, tally: SampleTally) -> ProcessFile {
    let thread = ThreadProfile { tid: pid, count: 1, name: "main".into(), tally, ..ThreadProfile::default() };
    ProcessFile { sequence, pid, forked, metric_count: 1, threads: vec![thread], ..ProcessFile::default() }
}

fn profile(processes: Vec<ProcessFile>) -> Profile {
    profile_with_names(processes, Vec::new())
}

fn profile_with_names(processes: Vec<ProcessFile>, names: Vec<NamesFile>) -> Profile {
    let session = SessionFile {
        metrics: vec![Metric::of(MetricId::CPU_TIME), Metric::of(MetricId::SAMPLES)],
        working_directory: "/somewhere".into(),
        recorder_cpu_ns: 40,
        ..SessionFile::default()
    };
    let measurement =
        Measurement { directory: "m.callpath".into(), session, processes, names, unreadable: Vec::new(), ranks: None };
    attribute(&measurement, &AttributeOptions::default(), &mut |_, _| ())
}

#[test]
fn a_process_that_executes_another_program_goes_on() {
    // A shell, its child that executes a program, another child with the number of the first one.
    let made = [(100, false), (101, true), (101, false), (101, true)];
    let made = made.into_iter().enumerate();
    let profile =
        profile(made.map(|(i, (pid, forked))| process(i as u32, pid, forked, SampleTally::default())).collect());
    let continues: Vec<bool> = profile.info.processes.iter().map(|p| p.continues).collect();
    assert_eq!(continues, [false, false, true, false]);
    assert_eq!(profile.info.recorder_cpu_ns, Some(40));
    assert_eq!(profile.info.working_directory, "/somewhere");
}

#[test]
fn where_walks_stopped_is_said() {
    let mut stopping = process(0, 1, false, SampleTally::default());
    stopping.modules.push(ModuleRecord { path: "/nowhere/libodd.so".into(), identity: None });
    let mut stopped = |key: FrameKey, samples: u64| {
        let tree = &mut stopping.threads[0].tree;
        let outermost = tree.child(PARTIAL_ROOT, key);
        let inner = tree.child(outermost, FrameKey::in_module(ModuleIndex(0), LinkAddr(0x20)));
        tree.add(inner, samples, &[samples]);
        profile(vec![stopping.clone()]).info.notes.into_iter().find(|note| note.starts_with("partial"))
    };
    let outside = FrameKey::outside(callpath_format::address::RunAddr(0x7000));
    let note = "partial call paths: the walk stopped in code without a file, made at run time (3 of 3 samples)";
    assert_eq!(stopped(outside, 3).as_deref(), Some(note));
    let note = "partial call paths: the walk stopped in /nowhere/libodd.so (4 of 7 samples)";
    assert_eq!(stopped(FrameKey::in_module(ModuleIndex(0), LinkAddr(0x10)), 4).as_deref(), Some(note));
    assert!(profile(vec![process(0, 1, false, SampleTally::default())]).info.notes.is_empty());
}

/// Two processes with code at the same address, each with a name of its own for it.
#[test]
fn generated_code_is_called_what_its_own_process_calls_it() {
    let code = || ModuleRecord { path: "[jit]".into(), identity: None };
    let generated = |sequence: u32| {
        let mut process = process(sequence, 100 + sequence, false, SampleTally::default());
        process.modules = vec![ModuleRecord { path: "/nowhere/app".into(), identity: None }, code()];
        for address in [0x1010, 0x1020, 0x2000] {
            let key = FrameKey::in_module(ModuleIndex(1), LinkAddr(address));
            let node = process.threads[0].tree.child(FULL_ROOT, key);
            process.threads[0].tree.add(node, 1, &[1]);
        }
        process
    };
    let names = |sequence: u32, name: &str| NamesFile {
        sequence,
        bad_lines: 0,
        procedures: vec![NamedCode { module: 1, start: 0x1000, len_bytes: 0x100, name: name.into() }],
    };
    let processes = vec![generated(0), generated(1), generated(2)];
    let profile = profile_with_names(processes, vec![names(2, "second"), names(0, "first")]);
    let mut found: Vec<(u64, String, u64)> = Vec::new();
    for node in profile.tree.nodes() {
        let scope = profile.tree.scope(node);
        if scope.kind == ScopeKind::Procedure {
            let samples = profile.tree.values(node)[1];
            let process = profile.tree.scope(profile.tree.parent(profile.tree.parent(node).unwrap()).unwrap());
            found.push((process.discriminator, profile.strings.get(scope.name).to_owned(), samples));
        }
    }
    found.sort();
    let expected = [
        (100, "[jit]+0x2000", 1),
        (100, "first", 2),
        (101, "[jit]+0x1010", 1),
        (101, "[jit]+0x1020", 1),
        (101, "[jit]+0x2000", 1),
        (102, "[jit]+0x2000", 1),
        (102, "second", 2),
    ];
    assert_eq!(found, expected.map(|(pid, name, samples)| (pid, name.to_owned(), samples)));
}

/// A file may hold anything behind a right checksum.
#[test]
fn numbers_without_bounds_do_not_overflow() {
    let tally = SampleTally {
        taken: u64::MAX,
        full: u64::MAX,
        dropped: [u64::MAX; Dropped::COUNT],
        handler_ns: u64::MAX,
        ..SampleTally::default()
    };
    let mut process = process(0, 1, false, tally);
    let mut tree = PathTree::default();
    for root in [FULL_ROOT, PARTIAL_ROOT] {
        let mut node = root;
        for address in 0..3 {
            node = tree.child(node, FrameKey(address));
            tree.add(node, u64::MAX, &[u64::MAX; 8]);
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

/// Two processes with their modules in another order, each with two threads on the same path.
#[test]
fn contexts_of_threads_processes_and_measurements_are_one() {
    let app = ModuleRecord { path: "/nowhere/app".into(), identity: Some(ModuleIdentity::BuildId(vec![7; 20])) };
    let elsewhere = ModuleRecord { path: "/elsewhere/app".into(), ..app.clone() };
    let library = ModuleRecord { path: "/nowhere/lib.so".into(), identity: Some(ModuleIdentity::Content(9)) };
    let measured = |modules: Vec<ModuleRecord>, app: u16| {
        let mut process = process(0, 1, false, SampleTally::default());
        process.modules = modules;
        let tree = &mut process.threads[0].tree;
        let at = |module, addr| FrameKey::in_module(ModuleIndex(module), LinkAddr(addr));
        let main = tree.child(FULL_ROOT, at(app, 0x100));
        let inner = tree.child(main, at(1 - app, 0x200));
        let left_out = tree.child(PARTIAL_ROOT, FrameKey::LEFT_OUT);
        let cut = tree.child(left_out, at(app, 0x100));
        for (node, value) in [(FULL_ROOT, 1), (main, 10), (inner, 100), (cut, 1000)] {
            tree.add(node, 1, &[value]);
        }
        process.threads.push(process.threads[0].clone());
        process
    };
    let one = || measured(vec![app.clone(), library.clone()], 0);
    let other = ProcessFile { sequence: 1, pid: 2, ..measured(vec![library.clone(), elsewhere.clone()], 1) };
    let whole = profile(vec![one(), other.clone()]);
    let rows = |contexts: &Contexts| -> Vec<(ContextId, ContextId, u64, Vec<u64>)> {
        let rows = contexts.iter().map(|(c, values)| (c.id, c.parent, c.offset, values.to_vec()));
        rows.collect()
    };
    let main = ContextId::ROOT.child(&[7; 20], 0x100);
    let left_out = ContextId::PARTIAL_ROOT.child(&[], FrameKey::LEFT_OUT.0);
    let expected = vec![
        (ContextId::ROOT, ContextId::ROOT, 0, vec![4, 4]),
        (ContextId::PARTIAL_ROOT, ContextId::PARTIAL_ROOT, 0, vec![0, 0]),
        (main, ContextId::ROOT, 0x100, vec![40, 4]),
        (main.child(&9u128.to_be_bytes(), 0x200), main, 0x200, vec![400, 4]),
        (left_out, ContextId::PARTIAL_ROOT, FrameKey::LEFT_OUT.0, vec![0, 0]),
        (left_out.child(&[7; 20], 0x100), left_out, 0x100, vec![4000, 4]),
    ];
    assert_eq!(rows(&whole.contexts), expected);
    // The same of two measurements, added up; and the tree of names says the same.
    let mut sum = ContextSum::default();
    [vec![one()], vec![other]].into_iter().for_each(|measurement| sum.add(&profile(measurement)));
    assert_eq!(rows(&sum.contexts), expected);
    let all = whole.tree.nodes().fold([0; 2], |mut sums: [u64; 2], node| {
        sums.iter_mut().zip(whole.tree.values(node).iter()).for_each(|(sum, value)| *sum += value);
        sums
    });
    assert_eq!(all, [4444, 16]);
}

/// One process of each rank, recorded by metrics of its own, with a cost of 10 in each at one address outside of all modules.
fn ranks(metrics: &[&[MetricId]], exits: &[Option<i32>]) -> Profile {
    let (mut there, mut processes) = (Vec::new(), Vec::new());
    for (rank, (metrics, exit)) in (0..).zip(metrics.iter().zip(exits)) {
        let session = SessionFile {
            metrics: metrics.iter().copied().chain([MetricId::SAMPLES]).map(Metric::of).collect(),
            started_unix_ns: 1_000_000 + u64::from(rank),
            ended: exit.map(|status| SessionEnd { status, user_ns: 1, ..SessionEnd::default() }),
            // Not silent for long.
            duration_ns: u64::MAX / 2,
            ..SessionFile::default()
        };
        let mut tree = PathTree::default();
        let node = tree.child(FULL_ROOT, FrameKey::outside(callpath_format::address::RunAddr(0x1234)));
        tree.add(node, 1, &vec![10; metrics.len()]);
        let thread = ThreadProfile { tid: 7, count: 1, tree, ..ThreadProfile::default() };
        processes.push(ProcessFile {
            rank: Some(rank),
            sequence: rank,
            threads: vec![thread],
            ..process(rank, 7, false, SampleTally::default())
        });
        there.push(RankSession { rank, session, first_sequence: 0 });
    }
    let session = there[0].session.clone();
    let job = Job { launcher: "test".into(), id: "1".into(), size: Some(9) };
    let measurement = Measurement {
        directory: "m.callpath".into(),
        session,
        processes,
        names: Vec::new(),
        unreadable: Vec::new(),
        ranks: Some(Ranks { job, there }),
    };
    attribute(&measurement, &AttributeOptions::default(), &mut |_, _| ())
}

#[test]
fn ranks_may_have_other_metrics_each() {
    let (cpu, wall) = (MetricId::CPU_TIME, MetricId::WALL_TIME);
    let profile = ranks(&[&[cpu], &[wall, cpu], &[cpu]], &[Some(0); 3]);
    let total = |id| {
        let column = profile.metrics.iter().position(|metric| metric.id == Some(id)).expect("the metric");
        profile.tree.nodes().map(|node| profile.tree.values(node).get(column)).sum::<u64>()
    };
    assert_eq!((total(cpu), total(wall), total(MetricId::SAMPLES)), (30, 10, 3));
    // All have one id.
    let processes: Vec<_> = profile.info.processes.iter().map(|p| (p.rank, p.pid, p.continues, p.started_ns)).collect();
    assert_eq!(processes.len(), 3);
    assert!(processes.iter().all(|(rank, pid, continues, started)| {
        (*pid, *continues) == (7, false) && rank.is_some_and(|rank| u64::from(rank) == *started)
    }));
    assert_eq!(profile.process_count(), 3);
    let names: Vec<&str> = profile
        .tree
        .nodes()
        .map(|node| profile.tree.scope(node))
        .filter(|scope| scope.kind == ScopeKind::Procedure)
        .map(|scope| profile.strings.get(scope.name))
        .collect();
    assert!(names.len() == 3 && names.iter().all(|name| *name == names[0] && name.contains("0x1")), "{names:?}");
    assert_eq!(profile.info.losses, ["RANKS 3 to 8 ARE MISSING: there is no data of them that can be read."]);
}

#[test]
fn how_ranks_ended_is_said_together() {
    let ended = |exits: &[Option<i32>]| ranks(&vec![&[MetricId::CPU_TIME][..]; exits.len()], exits).info;
    assert_eq!(ended(&[Some(0); 9]).exit.as_deref(), Some("exit status 0"));
    assert!(ended(&[Some(0); 9]).losses.is_empty());
    let odd = ended(&[Some(0), Some(137), Some(0), Some(137), Some(1), Some(0), Some(0), Some(0), Some(0)]);
    assert_eq!(odd.exit.as_deref(), Some("exit status 0, but rank 4: exit status 1; ranks 1, 3: signal 9"));
    let running = ended(&[None, Some(137), Some(0), None, None, None, None, None]);
    assert_eq!(running.exit, None);
    assert_eq!(running.losses.len(), 2, "{:?}", running.losses);
    assert!(running.losses[0].starts_with("rank 1 ended with signal 9; others run"), "{:?}", running.losses);
    assert!(running.losses[1].starts_with("RANK 8 IS MISSING: ") && running.losses[1].ends_with("so far."));
}
