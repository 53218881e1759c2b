//! Libraries that come and go: a path names what was there at the time.

use callpath_end_to_end::{C, Program, compiled};

use crate::outside::is_allowed;

const A: C =
    C { source: "plug.c", output: "libplug_a.so", options: &["-shared", "-fPIC", "-DNAME=a_work", "-DPADDING=0"] };
const B: C =
    C { source: "plug.c", output: "libplug_b.so", options: &["-shared", "-fPIC", "-DNAME=b_work", "-DPADDING=1"] };

#[test]
fn two_libraries_in_turn_at_the_same_address() {
    let (a, b) = (compiled(A).expect("plug.c compiles"), compiled(B).expect("plug.c compiles"));
    let program = Program::compiled(C { source: "reload.c", output: "reload", options: &["-ldl"] });
    let recorded = program.arguments([a, b]).arguments(["30"]).same();
    assert_eq!(recorded.ended.stdout.trim(), "at the same address each time", "the test tests nothing");
    let profile = recorded.profile();
    profile.assert_full(980);
    let (in_a, in_b) = (profile.exclusive_in("libplug_a.so"), profile.exclusive_in("libplug_b.so"));
    for (costs, expected) in [(&in_a, "a_work"), (&in_b, "b_work")] {
        let total: u64 = costs.values().sum();
        // What a library's loading and unloading costs stands at what crt files put there, some samples of it.
        let foreign = ["padding", "a_work", "b_work"].into_iter().filter(|name| *name != expected);
        assert!(foreign.into_iter().all(|name| !costs.contains_key(name)), "expected {expected}: {costs:?}");
        assert!(costs.get(expected).is_some_and(|cost| cost * 100 >= total * 95), "expected {expected}: {costs:?}");
    }
    let (a, b) = (in_a["a_work"] as f64, in_b["b_work"] as f64);
    assert!((0.7..1.4).contains(&(a / b)), "each has half of the work: {a} and {b}");
    assert!(profile.percent_through(&["main", "use", "plug_run", "a_work"]) > 40.0);
    assert!(profile.percent_through(&["main", "use", "plug_run", "b_work"]) > 40.0);
}

const LARGE: C = C { source: "large.c", output: "liblarge.so", options: &["-shared", "-fPIC"] };

/// Samples in a library whose table is still being built are kept: of threads that have ended, of a library that is
/// gone, of a program that ends before; of stacks that no chunk of the shared memory holds, and with marks on them.
#[test]
fn samples_that_come_before_the_table() {
    let library = compiled(LARGE).expect("large.c compiles");
    // With marks on the stacks, whose copies have the true return addresses.
    let always = ("700", "1", "1000", "always");
    for (milliseconds, rounds, depth, sentinel) in
        [("60", "1", "0", "never"), ("700", "2", "0", "never"), ("700", "1", "1000", "auto"), always]
    {
        let cache = tempfile::tempdir().expect("a directory can be made");
        let cache = format!("CALLPATH_CACHE_DIR={}", cache.path().display());
        let program = Program::compiled(C { source: "late.c", output: "late", options: &["-ldl", "-pthread"] });
        let program = program.arguments([library.as_os_str()]).arguments([milliseconds, rounds, depth]);
        let program = program.options(&["--sentinel", sentinel]);
        let profile = program.through(&["env", &cache]).same().profile();
        profile.assert_full(980);
        let percent = profile.percent_through(&["use", "down", "large_run", "work"]);
        assert!(percent > 50.0, "{milliseconds} ms, {rounds} times, {depth} frames, {sentinel}: {percent}%");
        assert!(profile.depth() > depth.parse::<usize>().unwrap(), "{depth} frames: {}", profile.depth());
    }
}

const SLICED: C = C { source: "sliced.c", output: "libsliced.so", options: &["-shared", "-fPIC"] };

/// The table of a large library is made in slices, when samples meet them: a path through several is whole in the first
/// recording, and in the next one, which finds them.
#[test]
fn a_path_through_slices_of_a_large_table() {
    let library = compiled(SLICED).expect("sliced.c compiles");
    let cache = tempfile::tempdir().expect("a directory can be made");
    let setting = format!("CALLPATH_CACHE_DIR={}", cache.path().display());
    for (milliseconds, rounds, depth) in [("700", "1", "0"), ("300", "2", "300")] {
        let program = Program::compiled(C { source: "late.c", output: "late", options: &["-ldl", "-pthread"] });
        let program = program.arguments([library.as_os_str()]).arguments([milliseconds, rounds, depth]);
        let profile = program.through(&["env", &setting]).same().profile();
        profile.assert_full(980);
        let percent = profile.percent_through(&["use", "down", "large_run", "hop_two", "hop_three", "work"]);
        assert!(percent > 50.0, "{milliseconds} ms, {rounds} times, {depth} frames: {percent}%");
        let files = std::fs::read_dir(cache.path()).expect("it is there").map(|entry| entry.expect("it is").path());
        let is_of_slices = |path: std::path::PathBuf| std::fs::read(path).is_ok_and(|b| b.starts_with(b"CPSLIC01"));
        assert_eq!(files.filter(|path| is_of_slices(path.clone())).count(), 1, "the test tests nothing");
    }
}

/// What nothing describes of a large library is in its whole table alone. That is made for few samples, too, if the program has not
/// many more: these are about 22.
#[test]
fn a_short_run_in_code_of_a_large_library_that_nothing_describes() {
    let library = C { output: "libbare.so", options: &["-shared", "-fPIC", "-DBARE"], ..SLICED };
    let library = compiled(library).expect("sliced.c compiles");
    let name = "a_short_run_in_code_of_a_large_library_that_nothing_describes";
    for from in [Some(&[][..]), is_allowed(name).then_some(&["--outside"][..])].into_iter().flatten() {
        let cache = tempfile::tempdir().expect("a directory can be made");
        let setting = format!("CALLPATH_CACHE_DIR={}", cache.path().display());
        let program = Program::compiled(C { source: "late.c", output: "late", options: &["-ldl", "-pthread"] });
        let program = program.arguments([library.as_os_str()]).arguments(["20", "0", "0"]).options(from);
        let profile = program.through(&["env", &setting]).same().profile();
        // One of them may be partial for another reason.
        profile.assert_full(800);
        let percent = profile.percent_through(&["use", "down", "large_run", "hop_two", "hop_three", "work"]);
        assert!(percent > 50.0, "{from:?}: {percent}%");
    }
}

#[test]
fn a_stripped_interpreter() {
    let script = callpath_end_to_end::tool_path("loop.py");
    let text =
        "def inner(n):\n    return sum(i * i for i in range(n))\n\nprint(sum(inner(20000) for _ in range(600)))\n";
    std::fs::write(&script, text).unwrap();
    let recorded = Program::at("/usr/bin/python3").arguments(["-S".as_ref(), script.as_os_str()]).same();
    let profile = recorded.profile();
    profile.assert_full(999);
    assert!(profile.percent_through(&["_start", "__libc_start_main", "python3!", "_PyEval_EvalFrameDefault"]) > 80.0);
}
