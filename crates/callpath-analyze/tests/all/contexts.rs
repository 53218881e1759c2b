//! Counts of calls of a compiled program become contexts of its procedures: `objdump` says where its calls are.

use std::path::Path;
use std::process::Command;

use callpath_analyze::attribute::{AttributeOptions, attribute};
use callpath_analyze::exact::context_tree;
use callpath_db::exact::{ContextShape, ContextTree, OnePath};
use callpath_format::address::LinkAddr;
use callpath_format::frame::{FrameKey, ModuleIndex};
use callpath_image::elf::Image;
use callpath_measurement::{
    CountedContext, CountedPath, CountedProcedure, FULL_ROOT, Measurement, ModuleRecord, PathCategory, PathCounts,
    PathTime, PathTree, ProcessFile, SessionFile, ThreadProfile, encode_process, encode_session, process_file_name,
    write_file,
};
use callpath_schema::{Metric, MetricId};

/// `main` calls `leaf` from two places, and `work`, whose second call is not made in the test.
const SOURCE: &str = "
void leaf(void) {}
void work(void (*callee)(void)) { callee(); callee(); }
void handler(int number) { (void)number; leaf(); }
int main(void) { leaf(); leaf(); work(leaf); return 0; }
";

fn said(command: &mut Command) -> String {
    let output = command.output().expect("it can be run");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A procedure's first instruction, that of its second, and where its calls return to.
struct Code {
    entry: u64,
    second: u64,
    returns: Vec<u64>,
}

fn code(program: &Path, name: &str) -> Code {
    let text =
        said(Command::new("objdump").args(["-d", "--no-show-raw-insn", &format!("--disassemble={name}")]).arg(program));
    let line = |line: &str| {
        let (address, rest) = line.split_once(':')?;
        Some((u64::from_str_radix(address.trim(), 16).ok()?, rest.contains("call")))
    };
    let lines: Vec<(u64, bool)> = text.lines().filter_map(line).collect();
    let returns = lines.windows(2).filter(|pair| pair[0].1).map(|pair| pair[1].0).collect();
    Code { entry: lines[0].0, second: lines[1].0, returns }
}

/// The contexts of a process with this tree.
fn tree_of(program: &Path, identity_of: &Path, frames: &PathTree) -> ContextTree {
    tree_with(program, identity_of, (frames, &PathCounts::default()))
}

/// The same where this was counted besides.
fn tree_with(program: &Path, identity_of: &Path, (frames, counts): (&PathTree, &PathCounts)) -> ContextTree {
    let directory = tempfile::tempdir().expect("room");
    let metrics = vec![Metric::of(MetricId::CALLS), Metric::of(MetricId::SAMPLES)];
    let session = SessionFile { metrics, processes: 1, program: program.to_owned(), ..SessionFile::default() };
    write_file(directory.path(), "session", &encode_session(&session)).expect("room");
    let identity = Some(Image::read(identity_of).expect("an image").identity());
    let modules = vec![ModuleRecord { path: program.to_owned(), identity }];
    let thread = ThreadProfile { tid: 100, count: 1, tree: frames.clone(), ..ThreadProfile::default() };
    let process = ProcessFile { pid: 100, metric_count: 1, modules, threads: vec![thread], ..ProcessFile::default() };
    write_file(directory.path(), &process_file_name(0, 100), &encode_process(&process)).expect("room");
    PathCounts { pid: 100, ..counts.clone() }.write(directory.path(), 0).expect("room");
    let measurement = Measurement::read(directory.path()).expect("a measurement");
    let options = AttributeOptions::default();
    let paths = measurement.read_paths().expect("counts");
    let profile = attribute(&measurement, &options, &mut |_, _| {});
    context_tree((&measurement, &paths), &profile, &options, &mut |_, _| {}).expect("counts of calls")
}

/// Paths of `main` and `work` in the contexts of [`frames_become_contexts_of_procedures`]: one leads through all calls of `main`, two through those
/// of `work`; those of `handler` were not counted.
fn path_counts([main, work]: [&Code; 2], third: FrameKey) -> PathCounts {
    let module = ModuleIndex(0);
    let path = |number, category, entry| CountedPath {
        number,
        category,
        blocks: vec![LinkAddr(entry)],
        executions: 2,
        times: [PathTime::default(); 2],
    };
    let procedure = |entry, paths| CountedProcedure { module, entry: LinkAddr(entry), possible: 3, cuts: 0, paths };
    let two = vec![path(0, PathCategory::EntryExit, work.entry), path(2, PathCategory::HeadExit, work.entry)];
    let context = |parent, frame, paths: &[(u64, u64)]| CountedContext {
        parent,
        is_partial: false,
        frame,
        cut_short: 0,
        paths: paths.to_vec(),
    };
    let entry = |code: &Code| FrameKey::in_module(module, LinkAddr(code.entry));
    PathCounts {
        procedures: vec![
            procedure(main.entry, vec![path(1, PathCategory::EntryExit, main.entry)]),
            procedure(work.entry, two),
        ],
        contexts: vec![
            context(None, entry(main), &[(1, 2)]),
            context(None, third, &[]),
            context(Some(1), entry(work), &[(0, 1), (2, 1)]),
        ],
        ..PathCounts::default()
    }
}

#[test]
fn frames_become_contexts_of_procedures() {
    let directory = tempfile::tempdir().expect("room");
    let (source, program) = (directory.path().join("prog.c"), directory.path().join("prog"));
    std::fs::write(&source, SOURCE).expect("room");
    said(Command::new("gcc").args(["-O0", "-o"]).arg(&program).arg(&source));
    let [main, work, leaf, handler] = ["main", "work", "leaf", "handler"].map(|name| code(&program, name));
    assert_eq!([&main, &work, &leaf, &handler].map(|code| code.returns.len()), [3, 2, 0, 1]);
    let frame = |address| FrameKey::in_module(ModuleIndex(0), LinkAddr(address));
    let call = |returns_to: u64| frame(returns_to - 1);
    let mut frames = PathTree::default();
    let mut add = |above: &[FrameKey], entry: u64, calls: u64| {
        let above = above.iter().fold(FULL_ROOT, |node, key| frames.child(node, *key));
        let node = frames.child(above, frame(entry));
        frames.add(node, calls, &[calls]);
    };
    let [first, second, third] = [0, 1, 2].map(|site| call(main.returns[site]));
    add(&[], main.entry, 1);
    add(&[first], leaf.entry, 4);
    add(&[second], leaf.entry, 5);
    add(&[third], work.entry, 1);
    add(&[third, call(work.returns[0])], leaf.entry, 6);
    // A signal interrupts main at an instruction that is no call.
    add(&[frame(main.second)], handler.entry, 1);
    add(&[frame(main.second), call(handler.returns[0])], leaf.entry, 1);
    // Below code that was not counted: two places of a page without a file.
    for place in [0x7000_0000_1010, 0x7000_0000_1020] {
        add(&[second, FrameKey::outside(callpath_format::address::RunAddr(place))], leaf.entry, 1);
    }
    // A sample in leaf adds no context.
    let sampled = frames.child(FULL_ROOT, first);
    let sampled = frames.child(sampled, frame(leaf.second));
    frames.add(sampled, 1, &[0]);

    let tree = tree_of(&program, &program, &frames);
    let shape = tree.shape();
    let procedures: Vec<(&str, u64, u64, Option<u32>)> = shape
        .procedures
        .iter()
        .filter_map(|its| Some((tree.procedure(its.procedure)?, its)))
        .map(|(procedure, its)| (procedure.name.as_str(), its.contexts, its.calls, procedure.sites))
        .collect();
    let rows = [("leaf", 6, 18, Some(0)), ("work", 1, 1, Some(2)), ("handler", 1, 1, Some(1)), ("main", 1, 1, Some(3))];
    assert_eq!(procedures, rows);
    // main's three, work's first, handler's.
    assert_eq!((shape.sites, shape.used_sites), (6, 5));
    assert_eq!((shape.size.contexts, shape.size.bytes), (9, 9 * 72 + 6 * 8));
    // main: two leaves, work, handler, and two leaves behind the code without a file.
    assert_eq!((shape.inner, shape.children, shape.gaps), (3, 8, 2));
    // 4 below main, two below work and handler.
    assert_eq!((shape.leaves(), shape.leaf_heights, shape.max_height), (6, 4 * 2 + 2 * 3, 3));
    // main, leaf, work with leaf, handler with leaf, and one leaf below the page.
    assert_eq!((shape.sites_together.contexts, shape.sites_together.bytes), (7, 7 * 72 + 3 * 8));
    assert!(tree.notes.is_empty(), "{:?}", tree.notes);
    assert_eq!(shape.one_path, None);

    // With paths: main's three call sites, not the one of work.
    let counts = path_counts([&main, &work], third);
    let with_paths = tree_with(&program, &program, (&frames, &counts)).shape();
    assert_eq!(with_paths.one_path, Some(OnePath { sites: 3, unknown: 1 }));
    assert_eq!(ContextShape { one_path: None, ..with_paths }, shape);

    // Without the file, the tree is the same but for call sites.
    let gone = tree_of(&directory.path().join("gone"), &program, &frames);
    let without = gone.shape();
    assert_eq!((without.size.contexts, without.children, without.leaf_heights), (9, 8, shape.leaf_heights));
    assert_eq!((without.sites, without.used_sites, without.without_sites), (0, 0, 9));
    assert!(gone.notes.iter().any(|note| note.contains("gone cannot be read")), "{:?}", gone.notes);
}
