//! Counts of paths of a compiled program: their lines are those that its source marks, their calls those that it makes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use callpath_analyze::attribute::AttributeOptions;
use callpath_analyze::exact::{Counted, exact_counts, sampled_metrics};
use callpath_db::exact::{ExactBlock, ExactCounts, ExactPath, ExactProcedure, ExactTiming, InContext};
use callpath_format::address::LinkAddr;
use callpath_format::frame::{FrameKey, ModuleIndex};
use callpath_image::elf::Image;
use callpath_image::identity::ModuleIdentity;
use callpath_measurement::{
    CountedContext, CountedPath, CountedProcedure, FULL_ROOT, Measurement, ModuleRecord, PARTIAL_ROOT, PathCategory,
    PathCounts, PathMetric, PathTime, PathTree, ProcessFile, RefusedProcedure, SessionFile, ThreadProfile,
    encode_process, encode_session, process_file_name, write_file,
};
use callpath_schema::{MeasuredTime, Metric, MetricId, TimesAccount};
use callpath_tables::graphs::with_flow;
use callpath_tables::module::Module;
use callpath_x86::paths::{Category, Numbering, Ways, weights};

const SOURCE: &str = r#"#include <stdio.h>
static int helper(int x) { return x * 3; }
static inline __attribute__((always_inline)) int twice(int x) {
    return x * 2;                       // INLINED
}
__attribute__((noinline)) int work(int n) {
    int sum = 0;
    for (int i = 0; i < n; i++) {       // LOOP
        if (i % 3 == 0)
            sum += twice(i);            // INLINING
        else
            puts("other");              // CALL
    }
    return sum + helper(n);             // LAST
}
int main(int argc, char **argv) { return work(argc); }
"#;

/// The line with a mark.
fn line(mark: &str) -> u32 {
    let at = SOURCE.lines().position(|line| line.ends_with(&format!("// {mark}"))).expect("a mark");
    at as u32 + 1
}

fn compiled(directory: &Path) -> PathBuf {
    let (source, program) = (directory.join("prog.c"), directory.join("prog"));
    std::fs::write(&source, SOURCE).expect("room");
    let said = Command::new("gcc").args(["-O0", "-g", "-o"]).arg(&program).arg(&source).output().expect("gcc");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    program
}

/// All paths of the procedure of this name, each executed as often as its number says, and once.
fn all_paths(program: &Path, name: &str) -> CountedProcedure {
    let module = Module::read(program).expect("a module");
    let said = Command::new("nm").arg(program).output().expect("nm");
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    let symbol = text.lines().find(|line| line.split(' ').nth(2) == Some(name)).expect("a symbol");
    let entry = LinkAddr(u64::from_str_radix(symbol.split(' ').next().expect("an address"), 16).expect("hexadecimal"));
    with_flow(&module, |flow, _| {
        let graph = flow.graph(flow.procedure_at(entry).expect("a procedure"));
        let ways = Ways::new(flow, &graph);
        let numbering = Numbering::new(&ways, &weights(&graph, &ways));
        let path = |number| {
            let path = numbering.decode(&ways, number).expect("a path");
            let category = match path.category {
                Category::EntryExit => PathCategory::EntryExit,
                Category::EntryBack => PathCategory::EntryBack,
                Category::HeadBack => PathCategory::HeadBack,
                Category::HeadExit => PathCategory::HeadExit,
            };
            CountedPath {
                number,
                category,
                blocks: path.addresses(&ways),
                executions: number + 1,
                times: [PathTime::default(); 2],
            }
        };
        CountedProcedure {
            module: ModuleIndex(0),
            entry,
            possible: numbering.paths(),
            cuts: 0,
            paths: (0..numbering.paths()).map(path).collect(),
        }
    })
}

/// What two processes with these counts give.
fn analysed(program: &Path, counts: &PathCounts, identity: Option<ModuleIdentity>) -> ExactCounts {
    sampled(program, (counts, &PathTree::default()), identity)
}

/// What two processes with these counts, and a thread with these samples each, give. A third one counts nothing.
fn sampled(
    program: &Path,
    (counts, samples): (&PathCounts, &PathTree),
    identity: Option<ModuleIdentity>,
) -> ExactCounts {
    let directory = tempfile::tempdir().expect("room");
    let metrics = vec![Metric::of(MetricId::CPU_TIME)];
    let session = SessionFile { metrics, processes: 3, program: program.to_owned(), ..SessionFile::default() };
    write_file(directory.path(), "session", &encode_session(&session)).expect("room");
    for sequence in 0..3 {
        let pid = 100 + sequence;
        let of_program = ModuleRecord { path: program.to_owned(), identity: identity.clone() };
        let ours = ModuleRecord { path: "/cache/callpath-preload-0123.so".into(), identity: None };
        let threads = vec![ThreadProfile { tid: pid, count: 1, tree: samples.clone(), ..ThreadProfile::default() }];
        let modules = vec![of_program, ours];
        let process = ProcessFile { sequence, pid, modules, metric_count: 1, threads, ..ProcessFile::default() };
        write_file(directory.path(), &process_file_name(sequence, pid), &encode_process(&process)).expect("room");
        if sequence < 2 {
            PathCounts { pid, ..counts.clone() }.write(directory.path(), sequence).expect("room");
        }
    }
    let measurement = Measurement::read(directory.path()).expect("a measurement");
    let paths = measurement.read_paths().expect("counts");
    let options = AttributeOptions::default();
    let sampled = sampled_metrics(&measurement).next();
    let counted = Counted { measurement: &measurement, paths: &paths, sampled };
    exact_counts(counted, &options, &mut |_, _| {})
}

/// The lines of the file that a path is on, and the procedures that it calls.
fn along(procedure: &ExactProcedure, number: u64) -> (BTreeSet<u32>, Vec<String>) {
    let path = procedure.paths.iter().find(|path| path.number == number).expect("a path");
    let lines = procedure.blocks_of(path).flat_map(|block| &block.lines).map(|place| place.line).collect();
    let calls = procedure.blocks_of(path).flat_map(|block| &block.calls);
    (lines, calls.map(|call| call.name.clone().expect("a direct call")).collect())
}

#[test]
fn paths_have_the_lines_and_calls_of_the_source() {
    let directory = tempfile::tempdir().expect("room");
    let program = compiled(directory.path());
    let work = all_paths(&program, "work");
    let possible = work.possible;
    let refused =
        RefusedProcedure { module: ModuleIndex(0), entry: all_paths(&program, "main").entry, reason: "no".into() };
    let counts = PathCounts { procedures: vec![work], refused: vec![refused], cut_short: 3, ..PathCounts::default() };
    let identity = Image::read(&program).expect("an image").identity();
    let found = analysed(&program, &counts, Some(identity));
    assert_eq!((found.quality.counted, found.quality.cut_short, found.notes.as_slice()), (1, 6, &[][..]));
    assert_eq!((&*found.quality.refused[0].function, &*found.quality.refused[0].module), ("main", "prog"));
    let [procedure] = &found.procedures[..] else { panic!("{found:?}") };
    assert_eq!((&*procedure.name, &*procedure.module), ("work", "prog"));
    // Both processes together.
    assert_eq!(procedure.cost().executions, (1..=possible).sum::<u64>() * 2);
    // Without a condition a path would be on both sides of the `if`.
    let (mut with_call, mut with_inlined, mut to_last) = (0, 0, 0);
    for number in 0..possible {
        let (lines, calls) = along(procedure, number);
        let has = |mark: &str| lines.contains(&line(mark));
        assert!(!(has("CALL") && has("INLINING")), "{number}: {lines:?}");
        assert_eq!(has("CALL"), calls.contains(&"puts".to_owned()), "{number}: {lines:?} {calls:?}");
        assert_eq!(has("LAST"), calls.contains(&"helper".to_owned()), "{number}: {lines:?} {calls:?}");
        with_call += u32::from(has("CALL"));
        with_inlined += u32::from(has("INLINED") && has("INLINING"));
        to_last += u32::from(has("LAST"));
    }
    assert!(with_call > 0 && with_inlined > 0 && to_last > 0);
    let [its] = &procedure.loops[..] else { panic!("{:?}", procedure.loops) };
    assert_eq!(its.place.as_ref().map(|place| place.line), Some(line("LOOP")));
    let around = procedure.paths.iter().filter(|path| path.category == PathCategory::HeadBack);
    assert!(around.clone().count() > 0 && around.clone().all(|path| procedure.loop_of(path).is_some()));
    // objdump counts the instructions of the blocks.
    let first = procedure.blocks.first().expect("a block").code.start;
    let last = procedure.blocks.last().expect("a block").code.end;
    let bounds = [format!("--start-address={first:#x}"), format!("--stop-address={last:#x}")];
    let said = Command::new("objdump").args(["-d", "--no-show-raw-insn"]).args(bounds).arg(&program).output();
    let text = String::from_utf8_lossy(&said.expect("objdump").stdout).into_owned();
    let listed = text.lines().filter(|line| line.starts_with("  ") && line.contains(":\t")).count() as u64;
    assert_eq!(procedure.blocks.iter().map(|block| block.instructions).sum::<u64>(), listed, "{text}");
    // Control that comes in goes out: of every block on no cut path.
    let (edges, costs) = (procedure.edges(), procedure.block_costs());
    for (number, cost) in (0u32..).zip(&costs) {
        let out: u64 = edges.iter().filter(|edge| edge.from == number).map(|edge| edge.executions.least).sum();
        assert_eq!(out, cost.executions, "block {number}");
    }
}

#[test]
fn paths_have_the_callers_of_their_contexts() {
    let directory = tempfile::tempdir().expect("room");
    let program = compiled(directory.path());
    let [work, main, helper] = ["work", "main", "helper"].map(|name| all_paths(&program, name));
    let in_module = |procedure: &CountedProcedure, offset| {
        FrameKey::in_module(ModuleIndex(0), LinkAddr(procedure.entry.0 + offset))
    };
    let context = |parent, frame, paths: &[(u64, u64)]| CountedContext {
        parent,
        is_partial: false,
        frame,
        cut_short: 0,
        paths: paths.to_vec(),
    };
    let nowhere = FrameKey::outside(callpath_format::address::RunAddr(0x7000_0000_1234));
    let contexts = vec![
        context(None, in_module(&main, 5), &[]),
        // Two call sites of one caller.
        context(Some(0), in_module(&work, 0), &[(0, 3), (1, 1)]),
        context(None, in_module(&main, 6), &[]),
        context(Some(2), in_module(&work, 0), &[(0, 4)]),
        context(Some(2), nowhere, &[]),
        context(Some(4), in_module(&helper, 3), &[]),
        context(Some(5), in_module(&work, 0), &[(0, 20)]),
        CountedContext { is_partial: true, ..context(None, in_module(&helper, 3), &[]) },
        context(Some(7), in_module(&work, 0), &[(0, 5), (99_999, 1)]),
        // Of a procedure whose paths were not counted.
        context(Some(2), in_module(&main, 0), &[(0, 7)]),
    ];
    let counts = PathCounts { procedures: vec![work], contexts, ..PathCounts::default() };
    let identity = Image::read(&program).expect("an image").identity();
    let found = analysed(&program, &counts, Some(identity));
    let callers = found.callers.as_ref().expect("callers");
    let path = |number: u64| found.procedures[0].paths.iter().find(|path| path.number == number).expect("a path");
    let in_words = |path: &ExactPath| -> Vec<(String, bool, u64)> {
        let names = |its: &InContext| callers.names(its.callers).collect::<Vec<_>>().join(" ");
        path.contexts.iter().map(|its| (names(its), callers.is_partial(its.callers), its.executions)).collect()
    };
    // Both processes together.
    let through = "main [code without a file]+0x700000001000 helper".to_owned();
    let expected = [(through, false, 40), ("main".into(), false, 14), ("helper".into(), true, 10)];
    assert_eq!(in_words(path(0)), expected);
    assert_eq!(in_words(path(1)), [("main".into(), false, 2)]);
    assert!(path(2).contexts.is_empty() && found.quality.in_contexts);
    let said = found.notes.join("\n");
    assert!(said.contains("process 100: it counted paths in contexts that their procedures do not have"), "{said}");
}

/// Whether an execution was interrupted is decided by all processes together.
#[test]
fn times_of_processes_add_up() {
    let directory = tempfile::tempdir().expect("room");
    let program = compiled(directory.path());
    let mut work = all_paths(&program, "work");
    let time = |measured, time_ns| MeasuredTime { measured, weight: measured, time_ns, spread: [1, 2, 3] };
    work.paths[0].times[0] = PathTime { usual: time(64, 640), long: time(2, 90_000) };
    work.paths[1].times[0] = PathTime { usual: time(64, 640), long: time(3, 90_000) };
    work.paths[0].times[1] = PathTime { usual: time(3, 30), ..PathTime::default() };
    let of = |account: Option<TimesAccount>| {
        let metric = |name: &str, account| PathMetric { name: name.into(), account };
        let metrics =
            account.map(|account| vec![metric("wall-time", account), metric("page-faults", TimesAccount::default())]);
        let metrics = metrics.unwrap_or_default();
        let counts = PathCounts { procedures: vec![work.clone()], metrics, ..PathCounts::default() };
        analysed(&program, &counts, None)
    };
    let found = of(Some(TimesAccount { lost: 3, clock_ns: 19 }));
    let timing = |name: &str, unit: &str, account| ExactTiming { name: name.into(), unit: unit.into(), account };
    let wall_time = timing("wall-time", "ns", TimesAccount { lost: 6, clock_ns: 19 });
    assert_eq!(found.timings, [wall_time, timing("page-faults", "count", TimesAccount::default())]);
    let path = |number| found.procedures[0].paths.iter().find(|path| path.number == number).expect("a path");
    // Two of 64 are seldom; three are the path's own.
    let both = |measured, time_ns, spread| MeasuredTime { measured, weight: measured, time_ns, spread };
    let of_first = |number| (path(number).times[0], path(number).interruptions[0]);
    assert_eq!(of_first(0), (both(128, 1_280, [2, 4, 6]), 4));
    assert_eq!(of_first(1), (both(134, 181_280, [4, 8, 12]), 0));
    assert_eq!(path(2).times, [MeasuredTime::default(); 2]);
    assert_eq!([0, 1].map(|number| path(number).times[1]), [both(6, 60, [2, 4, 6]), MeasuredTime::default()]);
    let unmeasured = found.procedures[0].paths.len() as u64 - 2;
    assert_eq!([0, 1].map(|number| found.unmeasured(number).paths), [unmeasured, unmeasured + 1]);
    assert_eq!(of(None).timings, []);
}

#[test]
fn samples_are_divided_among_paths() {
    let directory = tempfile::tempdir().expect("room");
    let program = compiled(directory.path());
    let mut work = all_paths(&program, "work");
    // The blocks with a call of `puts` were not executed.
    let all = analysed(&program, &PathCounts { procedures: vec![work.clone()], ..PathCounts::default() }, None);
    let calls = |block: &ExactBlock| block.calls.iter().any(|call| call.name.as_deref() == Some("puts"));
    let other = all.procedures[0].blocks.iter().find(|block| calls(block)).expect("a block").code.clone();
    work.paths.retain(|path| !path.blocks.iter().any(|block| block.0 == other.start));
    let (main, entry) = (all_paths(&program, "main").entry, work.entry);
    let frame = |address: u64| FrameKey::in_module(ModuleIndex(0), LinkAddr(address));
    let ours = FrameKey::in_module(ModuleIndex(1), LinkAddr(0x100));
    let mut tree = PathTree::default();
    let caller = tree.child(FULL_ROOT, frame(main.0 + 4));
    let last = all.procedures[0].blocks.last().expect("a block").code.clone();
    let mut sample = |above: u32, key: FrameKey, value: u64| {
        let node = tree.child(above, key);
        tree.add(node, 1, &[value]);
        node
    };
    sample(caller, frame(entry.0), 1001);
    // The same address below another caller, on a path that is not whole.
    sample(PARTIAL_ROOT, frame(entry.0), 10);
    sample(caller, frame(last.end - 1), 300);
    sample(caller, frame(other.start), 70);
    // What our own code costs that `work` has called is its own.
    let here = sample(caller, frame(last.start), 0);
    sample(here, ours, 5);
    sample(FULL_ROOT, ours, 9_000);
    sample(FULL_ROOT, frame(main.0), 20_000);
    sample(FULL_ROOT, FrameKey::PROBE, 40_000);
    let counts = PathCounts { procedures: vec![work], ..PathCounts::default() };
    let found = sampled(&program, (&counts, &tree), None);
    let [work] = &found.procedures[..] else { panic!("{:?}", found.procedures) };
    // Of two processes; the third one has counted nothing, and its time is elsewhere.
    let block = |start: u64| work.blocks.iter().find(|block| block.code.start == start).expect("a block").sampled;
    assert_eq!((block(entry.0), block(last.start)), (2 * 1011, 2 * 305));
    assert_eq!((work.sampled_unexecuted, work.sampled_outside, work.sampled()), (140, 0, 2 * (1011 + 305 + 70)));
    let on_paths: u64 = work.paths.iter().map(|path| path.sampled).sum();
    assert_eq!(on_paths, 2 * (1011 + 305));
    // Those through the last block have what is in it, and more the more often they were executed.
    let through = |path: &&ExactPath, start: u64| work.blocks_of(path).any(|block| block.code.start == start);
    for start in [entry.0, last.start] {
        let mut those: Vec<&ExactPath> = work.paths.iter().filter(|path| through(path, start)).collect();
        those.retain(|path| !(through(path, entry.0) && through(path, last.start)));
        those.sort_by_key(|path| path.executions);
        assert!(!those.is_empty() && those.is_sorted_by_key(|path| path.sampled), "{those:?}");
    }
    let sampling = found.sampling.as_ref().expect("samples");
    let each = 1001 + 10 + 300 + 70 + 5 + 9_000 + 20_000 + 40_000;
    assert_eq!((sampling.metric.name.as_str(), sampling.total), ("cpu-time", 3 * each));
    assert_eq!((sampling.samples, found.sampled_elsewhere()), (2 * 5, 3 * each - work.sampled()));
}

#[test]
fn what_cannot_be_read_is_said() {
    let directory = tempfile::tempdir().expect("room");
    let program = compiled(directory.path());
    let mut counts = PathCounts { procedures: vec![all_paths(&program, "work")], ..PathCounts::default() };
    // Another build.
    let found = analysed(&program, &counts, Some(ModuleIdentity::BuildId(vec![1; 20])));
    assert!(found.notes[0].contains("was replaced since it ran"), "{:?}", found.notes);
    assert_eq!(found.cost().instructions, 0);
    // Gone.
    let found = analysed(&directory.path().join("gone"), &counts, None);
    assert!(found.notes[0].contains("gone cannot be read"), "{:?}", found.notes);
    assert!(found.procedures[0].name.starts_with("gone+0x"), "{:?}", found.procedures[0].name);
    // Blocks in the middle of others, and a module that is not there.
    for path in &mut counts.procedures[0].paths {
        path.blocks[0].0 += 1;
    }
    let elsewhere = CountedProcedure { module: ModuleIndex(7), ..counts.procedures[0].clone() };
    counts.procedures.push(elsewhere);
    let found = analysed(&program, &counts, None);
    let said = found.notes.join("\n");
    assert!(said.contains("process 100: it counted in module 7"), "{said}");
    assert!(said.contains("not where its code has blocks"), "{said}");
}
