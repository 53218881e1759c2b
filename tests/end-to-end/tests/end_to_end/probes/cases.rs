//! The case studies of iPath (Bernat and Miller 2006, section 5), in small: what one caller hides, paths tell.

use std::process::Command;

use callpath_end_to_end::{C, Calls, Profile, Program, Truth, callpath, is_root, run_report, skip};

use super::{assert_counted, truth};

const GATHERS: C = C { source: "gathers.c", output: "gathers", options: &["compiler=mpicc", "-g", "-O2"] };

/// What only the paths of one caller cost.
fn part(calls: &Calls, through: &[&str]) -> u64 {
    let is_through = |path: &str| through.iter().all(|name| path.split(';').any(|part| part == *name));
    calls.iter().filter(|(path, _)| is_through(path)).map(|(_, cost)| cost).sum()
}

/// MPI_Wait, which one wrapper calls for all, in the two ranks of a job.
#[test]
fn of_a_wait_behind_a_wrapper() {
    let there = |name: &str| Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success());
    if !there("mpirun") || !there("mpicc") {
        return skip(
            "of_a_wait_behind_a_wrapper",
            "there is no Open MPI (the Debian packages openmpi-bin and libopenmpi-dev are missing)",
        );
    }
    let here = tempfile::tempdir().expect("a directory");
    let program = Program::compiled(GATHERS).path().to_owned();
    let mut command = Command::new("mpirun");
    if is_root() {
        command.arg("--allow-run-as-root");
    }
    command.args(["--oversubscribe", "-n", "2"]).arg(callpath());
    command.args(["probe", "-q", "-f", "MPI_Wait", "-m", "wall-time", "-o", "waits", "--"]).arg(program).arg("8");
    let output = command.current_dir(here.path()).output().expect("mpirun can be run");
    assert!(output.status.success(), "{output:?}");
    let report = run_report(&here.path().join("waits"), &["--json"]);
    let profile = Profile::of_json(&report.stdout);
    let modules = ["gathers", profile.module_of("MPI_Wait")];
    let calls = profile.calls(&modules);
    let truth = Truth::in_directory(here.path()).of(&["MPI_Wait"]);
    truth.assert_counted(&calls);
    // Two waits in each path by names: a profile by function shows one caller, and call sites tell more than names.
    let of_one = calls.values().next().expect("a rank");
    assert_eq!((calls.len(), of_one.len()), (2, 3 * 3 * 2 * 4));
    let by_site = Profile::of_json(&run_report(&here.path().join("waits"), &["--json", "--lines"]).stdout);
    assert_eq!((by_site.contexts_of("MPI_Wait"), by_site.total("calls")), (2 * 2 * of_one.len(), truth.total()));
    // What each rank has measured itself around the waits of the late path. One of them waits for the other.
    let times = profile.by_path("wall-time", &modules);
    let said = String::from_utf8_lossy(&output.stdout);
    let numbers = |line: &str| line.split(' ').map(|word| word.parse().expect("a number")).collect::<Vec<u64>>();
    let late_ns = said.lines().map(numbers).map(|numbers| {
        (part(&times[&numbers[0]], &["trajectory", "update_h", "dslash_special", "gather_t"]), numbers[1])
    });
    let late_ns: Vec<(u64, u64)> = late_ns.collect();
    assert!(late_ns.iter().all(|(probed, own)| *probed <= own + own / 1000), "{late_ns:?}");
    let (probed, own) = late_ns.iter().max_by_key(|(_, own)| own).expect("two ranks");
    assert!(probed * 2 > *own, "{late_ns:?}");
    assert_eq!(said.lines().count(), 2);
}

/// A look-up that searches for one of its callers only, which calls it the least.
#[test]
fn of_a_search_behind_a_busy_look_up() {
    let recorded = Program::nasty("lookup.c").options(&["-m", "wall-time"]).same_probed(&["find_function"]);
    let profile = assert_counted(&recorded, &["find_function"], &["lookup"]);
    let (calls, times) = (profile.calls(&["lookup"]), profile.by_path("wall-time", &["lookup"]));
    let (calls, times) = (calls.values().next().expect("one process"), times.values().next().expect("one process"));
    let per_call = |caller: &str| part(times, &[caller]) as f64 / part(calls, &[caller]) as f64;
    let (search, total) = (part(calls, &["name_of_return_address"]), truth(&recorded).total());
    assert!(search * 50 < total, "{search} of {total} calls");
    // By its own count, a search looks at some 2,000 entries, and another look-up at 3.
    for fast in ["insert_at_entry", "remove_probe", "resolve_call"] {
        let (slow_ns, fast_ns) = (per_call("name_of_return_address"), per_call(fast));
        assert!(slow_ns > fast_ns, "{slow_ns:.0} ns a search, {fast_ns:.0} ns by {fast}");
    }
}
