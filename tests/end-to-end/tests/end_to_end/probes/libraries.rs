//! Libraries that come after the probes, and go.

use callpath_end_to_end::{C, Program, compiled};

use super::truth;

const PLUGGABLE: C = C { source: "pluggable.c", output: "libpluggable.so", options: &["-shared", "-fPIC"] };

#[test]
fn one_that_comes_and_goes() {
    let library = compiled(PLUGGABLE).expect("the library compiles").to_str().unwrap().to_owned();
    let functions = ["libpluggable.so!plugged", "libpluggable.so!plugged_deep", "libpluggable.so!briefly"];
    for metric in ["calls", "wall-time"] {
        let plugs_in = Program::nasty("plugs_in.c").arguments([&library, "5", "100"]);
        let bare = plugs_in.bare();
        let recorded = plugs_in.arguments(["probed"]).options(&["-m", metric]).probed(&functions);
        assert_eq!((bare.status, &bare.stdout), (recorded.ended.status, &recorded.ended.stdout), "{recorded:?}");
        let (profile, truth) = (recorded.profile(), truth(&recorded));
        // While it is probed, all; while nothing waits for the probes, no more than there were.
        assert_eq!(profile.calls_of("plugged"), truth.calls_of("plugged"));
        assert_eq!(profile.calls_of("plugged_deep"), 5 * 100 * (1..=10).sum::<u64>());
        assert!(profile.calls_of("briefly") <= truth.calls_of("briefly"), "{profile:?}");
        let paths = profile.calls(&["plugs_in", "libpluggable.so"]).into_values().next().expect("a process");
        for path in paths.keys() {
            let is_one = path.starts_with("main;use;plugged") || path == "main;briefly";
            assert!(is_one, "no such path: {path}");
        }
    }
}

/// A pattern with the name of a module that is not there yet is no error; nor is one that never comes.
#[test]
fn one_that_never_comes() {
    let recorded = Program::nasty("many.c").probed(&["libno_such.so!function"]);
    assert_eq!(recorded.ended.status, 2, "{recorded:?}");
    assert!(recorded.ended.stderr.contains("libno_such.so"), "{recorded:?}");
    assert_eq!(recorded.profile().total("calls"), 0);
}
