//! Generated code: its paths are whole, or honestly a part, and never another's. Until it has been
//! analysed, paths are partial. On a busy machine that takes longer, so the shares that are asked for
//! are lower than what is usual (980 of 1000).

use callpath_end_to_end::{C, Profile, Program, skip};

fn jit(mode: &str) -> Profile {
    let program = Program::compiled(C { source: "jit.c", output: "jit", options: &["-z", "execstack"] });
    program.arguments([mode]).same().profile()
}

#[test]
fn procedures_with_and_without_a_frame_pointer() {
    let profile = jit("frames");
    profile.assert_full(900);
    assert!(profile.percent_through(&["main", "run_frames", "[jit]!"]) > 90.0);
    assert!(profile.percent_through(&["main", "run_frames", "[jit]!", "between", "[jit]!", "in_c"]) > 15.0);
}

/// Of a process whose first thread has ended, the kernel shows memory and map of the others only.
#[test]
fn code_that_comes_once_the_first_thread_has_ended() {
    let profile = jit("heir");
    profile.assert_full(900);
    assert!(profile.percent_through(&["heir", "run_frames", "[jit]!"]) > 90.0);
    assert!(profile.percent_through(&["heir", "run_frames", "[jit]!", "between", "[jit]!", "in_c"]) > 15.0);
}

/// What a program has generated is looked at when it runs no more, in part: the next one is in its place.
#[test]
fn code_of_programs_that_execute_the_next() {
    let program = Program::compiled(C { source: "jit.c", output: "jit", options: &["-z", "execstack"] });
    let profile = program.arguments(["succeeds", "100"]).same().profile();
    profile.assert_full(900);
    assert!(profile.percent_through(&["main", "run_succeeds", "[jit]!"]) > 50.0, "{:?}", profile.of_kind("procedure"));
}

#[test]
fn another_frame_size_at_the_same_address() {
    let profile = jit("rewritten");
    assert_eq!(profile.through(&["decoy"], "samples"), 0, "a procedure that was not called is on a path");
    assert_eq!(profile.through(&["own_return_address"], "samples"), 0);
    // Each version is there for a few samples: analysed for one of them, it serves those that follow.
    profile.assert_full(300);
}

#[test]
fn one_procedure_behind_the_other() {
    let profile = jit("appended");
    profile.assert_full(500);
    assert!(profile.percent_through(&["main", "run_appended", "[jit]!", "in_c"]) > 10.0);
}

#[test]
fn code_that_is_jumped_into_has_no_procedure() {
    let profile = jit("jumps");
    assert_eq!(profile.through(&["decoy"], "samples"), 0, "a procedure that was not called is on a path");
    let share = profile.percent_through(&["[jit]!"]);
    assert!(share > 90.0, "{share}% of {:?}", profile.of_kind("procedure"));
    let quality = &profile.quality;
    assert_eq!(quality.taken, quality.full + quality.partial + quality.dropped.values().sum::<u64>(), "{quality:?}");
}

#[test]
fn a_frame_pointer_is_the_last_resort() {
    let profile = jit("pointer");
    // Without it none would be whole. Where the recorder gets no processor for a while there is no room for more
    // samples of unknown code, and those are partial.
    profile.assert_full(500);
    assert!(profile.percent_through(&["main", "run_pointer", "[jit]!"]) > 80.0);
}

#[test]
fn nested_functions_on_an_executable_stack() {
    let profile = jit("trampolines");
    profile.assert_full(980);
    let share = profile.percent_through(&["main", "run_trampolines", "apply", "in_c"]);
    assert!(share > 95.0, "{share}% of {:?}", profile.of_kind("procedure"));
}

#[test]
fn callbacks_through_closures() {
    let script = callpath_end_to_end::tool_path("callback.py");
    let text = "import ctypes\n\
                compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))\n\
                values = (ctypes.c_int * 20000)(*[(i * 7919) % 20011 for i in range(20000)])\n\
                ctypes.CDLL(None).qsort(values, len(values), 4, compare(lambda a, b: a[0] - b[0]))\n\
                print(values[0], values[19999])\n";
    std::fs::write(&script, text).unwrap();
    let python = "/usr/bin/python3";
    let has_ctypes = std::process::Command::new(python).args(["-c", "import ctypes"]).status();
    if !has_ctypes.is_ok_and(|status| status.success()) {
        return skip("callbacks_through_closures", "python has no ctypes");
    }
    let profile = Program::at(python).arguments([script]).same().profile();
    profile.assert_full(970);
    // The interpreter calls libffi, that qsort, that a closure, and that the interpreter.
    assert!(profile.percent_through(&["Py_RunMain", "ffi_call", "qsort_r", "python3!"]) > 20.0);
}

/// A jitdump names procedures, also one that was moved.
#[test]
fn names_of_a_jitdump() {
    let program = Program::compiled(C { source: "jit.c", output: "jit", options: &["-z", "execstack"] });
    let place = tempfile::tempdir().expect("room");
    let recorded = program.arguments(["dumped".as_ref(), place.path().as_os_str()]).same();
    let profile = recorded.profile();
    profile.assert_full(900);
    let nested = profile.percent_through(&["main", "run_dumped", "jit_outer", "between", "jit_inner", "in_c"]);
    let moved = profile.percent_through(&["main", "run_dumped", "jit_moved"]);
    let named = profile.percent_through(&["main", "run_dumped", "jit_outer"]) + moved;
    assert!(nested > 10.0 && moved > 10.0 && named > 90.0, "{nested} {moved} {named}: {:?}", profile.paths());
}

/// A jitdump describes frames: code that shows none itself has whole paths, as long as it is the code that was described.
#[test]
fn frames_of_a_jitdump() {
    let program = Program::compiled(C { source: "jit.c", output: "jit", options: &["-z", "execstack"] });
    let place = tempfile::tempdir().expect("room");
    let recorded = program.arguments(["described".as_ref(), place.path().as_os_str()]).same();
    let profile = recorded.profile();
    let described = profile.percent_through(&["main", "run_described", "jit_described"]);
    let took = std::fs::read_to_string(place.path().join("took")).expect("it says what calls took");
    let took: Vec<f64> = took.split_whitespace().map(|ns| ns.parse().expect("a number")).collect();
    let [undescribed_ns, described_ns] = took[..] else { panic!("{took:?}") };
    let share = described_ns / (undescribed_ns + described_ns);
    // All of that but the calls up to the first look into the jitdump, give or take five standard deviations.
    let deviation = (share * (1.0 - share) / profile.total("samples") as f64).sqrt();
    let (least, most) = (share * 200.0 / 3.0, (share + 5.0 * deviation) * 100.0);
    assert!((least..=most).contains(&described), "{least} <= {described} <= {most}: {:?}", profile.paths());
    // The fourth one is not described, nor is it what was described at its address: nobody knows whose frame it is in.
    let undescribed = |path: &&Vec<&str>| path.len() > 1 && path.contains(&"jit_before");
    assert_eq!(profile.paths().iter().find(undescribed), None);
    let whole = profile.percent_through(&["main", "run_described"]);
    assert!(whole - described < 5.0, "{whole} {described}: {:?}", profile.paths());
}
