//! Where stacks begin: a path is whole if it reaches code that is known to begin one, and
//! partial if all that is found there is a zero.

use callpath_end_to_end::{C, Profile, Program};

fn bases(mode: &str) -> Profile {
    Program::nasty("bases.c").arguments([mode]).same().profile()
}

/// All of `root`'s time is on whole paths that begin there, and continue as `path` says.
fn assert_begins(profile: &Profile, root: &str, path: &[&str]) {
    // The loader's samples are whole, too.
    profile.assert_full(950);
    assert!(profile.percent_through(&[&[root], path].concat()) > 90.0, "{:?}", profile.paths());
    let beyond = profile.paths().into_iter().filter(|path| path.iter().position(|name| *name == root) > Some(0));
    assert_eq!(beyond.count(), 0, "something has called {root}: {:?}", profile.paths());
    for name in path {
        assert_eq!(profile.through(&["main", name], "samples"), 0, "{name} is not main's");
    }
}

#[test]
fn zeros_in_a_scratch_area_are_no_end() {
    let profile = bases("scratch");
    let metric = "samples";
    let of_machine = |name: &str| (profile.through(&[name], metric), profile.through(&["partial:", name], metric));
    let (adds, turns) = (of_machine("adds"), of_machine("turns"));
    assert!((adds.0 + turns.0) * 10 > 9 * profile.total(metric), "{:?}", profile.paths());
    for (all, partial) in [adds, turns] {
        assert_eq!(all, partial, "nothing says that it begins a stack: {:?}", profile.quality);
    }
}

#[test]
fn coroutines_of_boost_begin_at_their_trampoline() {
    assert_begins(&bases("trampoline"), "first_context", &["routine", "work"]);
}

#[test]
fn greenlets_begin_on_the_stack_of_another() {
    assert_begins(&bases("slices"), "greenlet::UserGreenlet::inner_bootstrap(_greenlet*, _object*)", &["runs", "work"]);
}

#[test]
fn a_zero_at_the_top_of_a_mapping_is_an_end() {
    assert_begins(&bases("top"), "entry", &["work"]);
}

#[test]
fn a_zero_elsewhere_is_none() {
    let profile = bases("inside");
    assert!(profile.percent_through(&["partial:", "entry", "work"]) > 90.0, "{:?}", profile.paths());
    assert_eq!(profile.through(&["entry"], "samples"), profile.through(&["partial:", "entry"], "samples"));
}

#[test]
fn an_entry_point_in_c() {
    let program = C { source: "entry.c", output: "entry", options: &["-O2", "-nostartfiles"] };
    assert_begins(&Program::compiled(program).same().profile(), "_start", &["work"]);
}
