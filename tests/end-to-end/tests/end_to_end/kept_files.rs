//! Files that a report could not find under their paths are kept with the measurement: of programs that are deleted while they run, and
//! of those in another mount name space, as in a container.

use std::path::Path;
use std::process::Command;

use callpath_end_to_end::{C, Profile, compiled, is_root, run_callpath, run_report, skip};

use crate::outside::is_allowed;

const PROGRAM: C = C { source: "replaced.c", output: "replaced_kept", options: &["-O1", "-static", "-DNAME=one"] };

/// The kept files of a measurement.
fn kept(measurement: &Path) -> Vec<String> {
    let names = std::fs::read_dir(measurement).expect("a measurement").map(|entry| entry.unwrap().file_name());
    names.map(|name| name.to_string_lossy().into_owned()).filter(|name| name.starts_with("module-")).collect()
}

/// All samples have names, and there is nothing to excuse.
fn check(measurement: &Path, words: &[&str]) {
    let said = run_report(measurement, words);
    let profile = Profile::of_json(&said.stdout);
    let worked = profile.through(&["main", "mid_one", "spin_one"], "samples");
    assert!(worked > 300 && worked * 100 > profile.total("samples") * 95, "{profile:?}");
    assert!(!said.stderr.contains("cannot be read") && !said.stderr.contains("failed"), "{}", said.stderr);
}

#[test]
fn of_programs_that_are_gone() {
    if !is_allowed("of_programs_that_are_gone") {
        return;
    }
    if !is_root() {
        return skip("of_programs_that_are_gone", "only root reads deleted files");
    }
    let place = tempfile::tempdir().expect("room");
    let at = |name: &str| place.path().join(name);
    let source = compiled(PROGRAM).expect("it compiles");
    std::fs::create_dir(at("mounted")).unwrap();
    let copy = at("program");
    std::fs::copy(&source, &copy).expect("a copy");
    let deleted = Command::new(&copy);
    let mut elsewhere = Command::new("unshare");
    let (from, to) = (copy.display(), at("mounted").display().to_string());
    let script = format!("mount -t tmpfs none {to} && cp {from} {to}/program && exec {to}/program $0");
    elsewhere.args(["--mount", "sh", "-c", &script]);
    let mut cases = vec![("elsewhere", elsewhere), ("deleted", deleted)];
    let mut mounts = Command::new("unshare");
    mounts.args(["--mount", "mount", "-t", "tmpfs", "none", &to]);
    if !mounts.output().is_ok_and(|ended| ended.status.success()) {
        skip("of_programs_that_are_gone", "nothing can be mounted here");
        cases.remove(0);
    }
    for (name, mut command) in cases {
        let mut running = command.arg("1500").spawn().expect("it starts");
        let program = format!("/proc/{}/exe", running.id());
        while !std::fs::read_link(&program).is_ok_and(|at| at.ends_with("program")) {
            assert_eq!(running.try_wait().expect("it is a child"), None, "{name}");
            std::thread::yield_now();
        }
        if name == "deleted" {
            std::fs::remove_file(&copy).expect("it was there");
        }
        let pid = running.id().to_string();
        let ended = run_callpath(place.path(), ["record", "-q", "-o", name, "-p", &pid]);
        assert_eq!(ended.status, 0, "{name}: {ended:?}");
        assert!(running.wait().expect("it was there").success());
        assert_eq!(kept(&at(name)).len(), 1, "{name}: the program, not the vdso");
        check(&at(name), &["--json"]);
        // Instructions are shown from the file that is kept.
        let code = run_callpath(place.path(), ["annotate", "--asm", "spin_one", name]);
        assert!(code.status == 0 && code.stdout.contains("imul"), "{name}: {code:?}");
        // A pack has what a report needs, and nothing is kept twice.
        assert_eq!(run_callpath(place.path(), ["report", "--pack", name]).status, 0);
        kept(&at(name)).iter().for_each(|file| std::fs::remove_file(at(name).join(file)).unwrap());
        check(&at(name), &["--json"]);
    }
}

/// What a report finds where it was is not kept.
#[test]
fn of_no_others() {
    let place = tempfile::tempdir().expect("room");
    let program = compiled(PROGRAM).expect("it compiles").display().to_string();
    for (name, words) in [
        ("inside", vec!["record", "-q", "-o", "inside", "/bin/true"]),
        ("outside", { vec!["record", "-q", "-o", "outside", &program, "100"] }),
    ] {
        if name == "outside" && !is_allowed("of_no_others") {
            return;
        }
        assert_eq!(run_callpath(place.path(), words).status, 0);
        assert_eq!(kept(&place.path().join(name)), Vec::<String>::new(), "{name}");
    }
}
