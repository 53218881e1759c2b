//! The kernel's call paths (`record --kernel`): below what entered it, by name.

use std::path::Path;

use callpath_end_to_end::{Ended, Profile, is_root, run_callpath, run_report, skip};
use serde_json::Value;

use crate::outside::is_allowed;

/// Whether this user sees the kernel's samples and names here.
fn is_shown(test: &str) -> bool {
    let names = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    let is_shown =
        is_root() && names.lines().any(|line| line.ends_with(" vfs_read") && !line.starts_with("0000000000000000"));
    if !is_shown {
        skip(test, "the kernel shows this user no names of its own");
    }
    is_shown && is_allowed(test)
}

fn json(directory: &Path, name: &str) -> Value {
    let ended = run_report(&directory.join(name), &["--json", "--kernel"]);
    assert_eq!(ended.status, 0, "{ended:?}");
    serde_json::from_str(&ended.stdout).expect("JSON")
}

#[track_caller]
fn done(ended: &Ended) {
    assert_eq!(ended.status, 0, "{ended:?}");
}

#[test]
fn what_the_kernel_does_stands_below_the_system_call() {
    if !is_shown("what_the_kernel_does_stands_below_the_system_call") {
        return;
    }
    let place = tempfile::tempdir().expect("room");
    let copies = ["/usr/bin/dd", "if=/dev/zero", "of=/dev/null", "bs=64k", "count=40000", "status=none"];
    let record = |options: &[&str], name| {
        done(&run_callpath(place.path(), [&["record", "-q", "-o", name], options, &copies].concat()));
        let json = json(place.path(), name);
        let profile = Profile::of_json(&json.to_string());
        profile.assert_sound();
        (json, profile)
    };
    let (json, with) = record(&["--kernel"], "with");
    let (_, without) = record(&["--outside"], "without");
    for (profile, is_with) in [(&with, true), (&without, false)] {
        let [read, in_kernel] = [&["read"][..], &["read", "vfs_read"]].map(|path| profile.through(path, "samples"));
        assert!(read * 2 > profile.total("samples") && read > 20, "{:?}", profile.paths());
        assert!(if is_with { in_kernel * 2 > read } else { in_kernel == 0 }, "{:?}", profile.paths());
    }
    // Nothing counts as broken where the kernel is entered by no call.
    assert!(with.quality.full * 100 >= with.quality.taken * 99, "{:?}", with.quality);
    let nodes = json["nodes"].as_array().expect("nodes");
    let parent = |node: &Value| &nodes[node["parent"].as_u64().expect("a parent") as usize];
    let first = nodes.iter().filter(|node| node["module"] == "[kernel]" && parent(node)["module"] != "[kernel]");
    let entered_by: Vec<&Value> = first.map(parent).collect();
    assert!(entered_by.iter().any(|node| node["kind"] == "system_call" && node["name"] == "read"), "{entered_by:?}");
    let text = run_report(&place.path().join("with"), &[]).stdout;
    assert!(text.contains("vfs_read") && text.contains("[kernel]"), "{text}");
}

#[test]
fn what_a_thread_waits_for() {
    if !is_shown("what_a_thread_waits_for") {
        return;
    }
    let place = tempfile::tempdir().expect("room");
    let sleep = ["record", "-q", "-e", "off-cpu", "--kernel", "-o", "m", "/usr/bin/sleep", "0.3"];
    done(&run_callpath(place.path(), sleep));
    let profile = Profile::of_json(&json(place.path(), "m").to_string());
    let asleep = profile.through(&["clock_nanosleep", "hrtimer_nanosleep"], "wall-time");
    assert!(asleep >= 250_000_000, "{:?}", profile.paths());
    // All of the machine, with what is the kernel's alone.
    let all = [
        "record",
        "-q",
        "-a",
        "--kernel",
        "-o",
        "all",
        "/usr/bin/dd",
        "if=/dev/zero",
        "of=/dev/null",
        "bs=64k",
        "count=100000",
    ];
    done(&run_callpath(place.path(), all));
    let profile = Profile::of_json(&json(place.path(), "all").to_string());
    let [read, in_kernel] = [&["read"][..], &["read", "vfs_read"]].map(|path| profile.through(path, "samples"));
    assert!(in_kernel > 0 && in_kernel * 2 > read, "{read}, {in_kernel}: {:?}", profile.quality);
}

#[test]
fn what_cannot_have_the_kernels_paths_is_refused() {
    let place = tempfile::tempdir().expect("room");
    for (options, expected) in [
        (&["--outside=never"][..], "--outside=never"),
        (&["--unwind=both"], "--unwind"),
        (&["--exact=calls"], "--kernel"),
        (&["--sentinel=always"], "--kernel"),
    ] {
        let ended = run_callpath(place.path(), [&["record", "--kernel"], options, &["/bin/true"]].concat());
        assert!(ended.status != 0 && ended.stderr.contains(expected), "{options:?}: {ended:?}");
    }
}
