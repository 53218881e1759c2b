//! Children that are started in every way, and those that cannot be measured: they run as if callpath were not there.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use callpath_end_to_end::{C, Ended, Program, Recorded, compiled, copy_program, is_root, run_report, skip};

use crate::ordinary_user::UserDirectory;
use crate::outside::is_allowed;

const TELLS: C = C { source: "tells.c", output: "tells", options: &[] };
const TELLS_STATIC: C = C { source: "tells.c", output: "tells_static", options: &["-static"] };
const TELLS_32: C = C { source: "tells.c", output: "tells_32", options: &["-m32"] };

fn tells(what: C) -> PathBuf {
    compiled(what).expect("tells.c compiles")
}

/// What a program says on stderr under `callpath record`, without what callpath says itself.
fn own_words(ended: &Ended) -> String {
    ended.stderr.lines().filter(|line| !line.starts_with("callpath: ")).map(|line| format!("{line}\n")).collect()
}

/// Runs bare and recorded: the same on both streams, and the same status.
fn undisturbed(program: &Program) -> Recorded {
    let (bare, recorded) = (program.bare(), program.recorded());
    let what = program.words();
    assert_eq!((&bare.stdout, bare.status), (&recorded.ended.stdout, recorded.ended.status), "{what:?}: {recorded:?}");
    assert_eq!(bare.stderr, own_words(&recorded.ended), "{what:?}");
    recorded
}

fn started(how: &str, program: &Path) -> Recorded {
    undisturbed(&Program::nasty("starts.c").arguments([how]).arguments([program]))
}

/// The report's line about what was not measured.
fn unmeasured(measurement: &Path) -> String {
    let said = run_report(measurement, &["--width", "1000"]);
    assert_eq!(said.status, 0, "{said:?}");
    let lines: Vec<_> = said.stdout.lines().filter(|line| line.contains("not measured")).collect();
    assert!(lines.len() <= 1, "one line: {lines:?}");
    lines.first().map_or_else(String::new, |line| line.trim().to_owned())
}

/// Whether a program that loads no preloaded object was sampled from outside. One that the C library starts by itself may have
/// ended before it could be.
#[track_caller]
fn assert_sampled(how: &str, line: &str, otherwise: &str) {
    let may_be_late = how.contains("spawn");
    if is_allowed("sampled_from_outside") && !(may_be_late && line.starts_with("1 program")) {
        assert_eq!(line, "", "{how}");
    } else {
        assert!(line.starts_with("1 program") && line.contains(otherwise), "{how}: {line}");
    }
}

#[test]
fn in_every_way() {
    let program = tells(TELLS);
    for how in ["vfork", "clone", "clone-vm", "spawnp", "popen"] {
        let recorded = started(how, &program);
        let profile = recorded.profile();
        let processes = profile.processes();
        let count = |name: &str| processes.iter().filter(|(called, _)| called.starts_with(name)).count();
        assert_eq!((count("starts"), count("tells")), (1, 1), "{how}: {processes:?}");
        assert_eq!(unmeasured(&recorded.directory), "", "{how}");
        if ["vfork", "clone-vm"].contains(&how) {
            assert!(recorded.ended.stdout.contains("the child's write was seen"), "{how}: {recorded:?}");
        }
    }
}

#[test]
fn what_they_inherit_of_sigtrap() {
    let program = tells(TELLS);
    for how in ["ignore:exec", "ignore:spawn", "ignore:vfork", "block:exec", "block:fork", "block:spawn", "block:vfork"]
    {
        let recorded = started(how, &program);
        let word = if how.starts_with("ignore") { "is ignored" } else { ", blocked" };
        assert!(recorded.ended.stdout.contains(word), "{how}: {recorded:?}");
    }
}

#[test]
fn static_ones() {
    let program = tells(TELLS_STATIC);
    for how in ["exec", "fork", "vfork", "spawn", "system", "clone", "ignore:fork", "block:fork", "block:spawn"] {
        let recorded = started(how, &program);
        recorded.profile();
        let line = unmeasured(&recorded.directory);
        assert_sampled(how, &line, "statically linked: tells_static");
    }
}

#[test]
fn a_static_one_while_a_sample_is_due() {
    // A sample that is taken inside execve is delivered to the new program, which has no handler: it must not die.
    let program = tells(TELLS_STATIC);
    for _ in 0..10 {
        let options = ["-F", "20000"];
        undisturbed(&Program::nasty("starts.c").arguments(["exec"]).arguments([&program]).options(&options));
    }
}

#[test]
fn programs_of_32_bits() {
    let Ok(program) = compiled(TELLS_32) else {
        return skip("programs_of_32_bits", "gcc -m32 does not work here (the Debian package gcc-multilib is missing)");
    };
    for how in ["exec", "fork", "vfork", "spawn", "spawnp", "system", "popen"] {
        let line = unmeasured(&started(how, &program).directory);
        assert!(line.starts_with("1 program") && line.contains("32-bit") && line.contains("tells_32"), "{how}: {line}");
    }
}

#[test]
fn without_any_environment() {
    for what in [TELLS, TELLS_STATIC] {
        for how in ["cleared:fork", "cleared:spawn", "cleared:exec"] {
            let line = unmeasured(&started(how, &tells(what)).directory);
            assert_sampled(how, &line, "environment");
        }
    }
}

#[test]
fn one_that_cannot_be_executed_after_all() {
    // Its file says that it is static, and no user may execute it: the clock stood still, and continues.
    let place = tempfile::TempDir::new().expect("a temp directory");
    let program = place.path().join("no_program");
    copy_program(&tells(TELLS_STATIC), &program);
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o644)).expect("its mode can be set");
    let starts = Program::nasty("starts.c").arguments(["exec"]).arguments([&program]).options(&["-F", "5000"]);
    let recorded = undisturbed(&starts);
    assert!(recorded.ended.stderr.contains("Permission denied"), "{recorded:?}");
    // 30 ms of work before the call and 30 after it; the clock of a virtual machine may be half as fast as asked.
    let samples = recorded.profile().through(&["main", "work_before"], "samples");
    let before = Program::nasty("starts.c").arguments(["detach", "/bin/true"]).options(&["-F", "5000"]).recorded();
    let as_many = before.profile().through(&["process:starts", "main", "work_before"], "samples");
    assert!(samples * 3 > as_many * 2, "{samples} samples, and {as_many} where nothing is executed");
    assert_eq!(unmeasured(&recorded.directory), "");
}

#[test]
fn setuid_ones() {
    if !is_root() {
        return skip("setuid_ones", "only root can make a program that is setuid root");
    }
    let place = UserDirectory::new();
    let starts = place.copy(Program::nasty("starts.c").path());
    let copy = place.copy(&tells(TELLS));
    let program = place.path().join("tells_setuid");
    std::fs::rename(copy, &program).expect("it can be renamed");
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o4755)).expect("its mode can be set");
    for how in ["exec", "fork", "spawn"] {
        let bare = place.run_bare(&[starts.to_str().unwrap(), how, program.to_str().unwrap()]);
        let (starts, program) = (starts.to_str().unwrap(), program.to_str().unwrap());
        let said = place.run(&["record", "-o", how, "--", starts, how, program]);
        assert_eq!((bare.stdout, bare.status), (said.stdout.clone(), said.status), "{how}: {said:?}");
        assert_eq!(bare.stderr, own_words(&said), "{how}");
        let line = unmeasured(&place.path().join(how));
        assert!(
            line.starts_with("1 program") && line.contains("setuid") && line.contains("tells_setuid"),
            "{how}: {line}"
        );
    }
}

/// A root directory that holds programs, a shell, and what they need; our object is not in it.
fn another_root(programs: &[&Path]) -> tempfile::TempDir {
    let root = tempfile::TempDir::new().expect("a temp directory");
    let put = |from: &Path, to: &str| {
        let to = root.path().join(to);
        std::fs::create_dir_all(to.parent().expect("it is below the root")).expect("the root can be written");
        copy_program(from, &to);
    };
    for program in programs {
        put(program, program.file_name().and_then(|name| name.to_str()).expect("a name"));
    }
    put(Path::new("/bin/sh"), "bin/sh");
    put(Path::new("/lib64/ld-linux-x86-64.so.2"), "lib64/ld-linux-x86-64.so.2");
    put(Path::new("/lib/x86_64-linux-gnu/libc.so.6"), "lib/x86_64-linux-gnu/libc.so.6");
    root
}

#[test]
fn below_another_root() {
    if !is_root() {
        return skip("below_another_root", "only root can change the root directory");
    }
    let root = another_root(&[&tells(TELLS)]);
    for how in ["exec", "fork", "spawn", "system", "popen"] {
        let way = format!("chroot={}:{how}", root.path().display());
        let recorded = started(&way, Path::new("/tells"));
        assert!(recorded.ended.stdout.contains("SIGTRAP is not ignored"), "it ran: {recorded:?}");
        recorded.profile();
        if !["system", "popen"].contains(&how) {
            let line = unmeasured(&recorded.directory);
            assert_sampled(how, &line, "another root");
        }
    }
}

#[test]
fn as_another_user_who_may_not_read_our_object() {
    if !is_root() {
        return skip("as_another_user_who_may_not_read_our_object", "only root can become another user");
    }
    let place = UserDirectory::new();
    let program = place.copy(&tells(TELLS));
    let cache = place.path().join("of-root-only");
    std::fs::create_dir(&cache).expect("a place of one's own");
    std::fs::set_permissions(&cache, PermissionsExt::from_mode(0o700)).expect("its mode can be set");
    let cache = format!("CALLPATH_CACHE_DIR={}", cache.display());
    for how in ["exec", "fork", "spawn", "system", "popen"] {
        let starts = Program::nasty("starts.c").arguments([format!("user=65534:{how}")]).arguments([&program]);
        let recorded = undisturbed(&starts.through(&["env", &cache]));
        assert!(recorded.ended.stdout.contains("SIGTRAP is not ignored"), "it ran: {recorded:?}");
    }
}

#[test]
fn one_that_gives_up_being_root_as_it_is() {
    if !is_root() {
        return skip("one_that_gives_up_being_root_as_it_is", "only root can become another user");
    }
    // It keeps root's capabilities until it executes the program: what it can open then, the program cannot.
    let user = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let recorded = undisturbed(&Program::at("/usr/bin/setpriv").arguments(user).arguments(["/usr/bin/id", "-u"]));
    assert_eq!(recorded.ended.stdout, "65534\n");
    assert!(!recorded.ended.stderr.contains("ld.so"), "{}", recorded.ended.stderr);
    let report = run_report(&recorded.directory, &["--width", "1000"]);
    assert_eq!(report.stdout.contains("sampled from outside"), is_allowed("sampled_from_outside"), "{}", report.stdout);
}

#[test]
fn the_report_chooses_and_sums() {
    let burn = compiled(C { source: "burn.c", output: "burn", options: &[] }).expect("burn.c compiles");
    let script = format!("{0} 60 & {0} 60 & {0} 60; wait; {1} 60", burn.display(), tells(TELLS).display());
    let recorded = Program::at("/bin/sh").arguments(["-c", &script]).same();
    let view = |options: &[&str]| {
        let said = run_report(&recorded.directory, &[options, &["--json"]].concat());
        assert_eq!(said.status, 0, "{said:?}");
        let profile = callpath_end_to_end::Profile::of_json(&said.stdout);
        profile.assert_sound();
        (profile.processes(), profile.total("cpu-time"))
    };
    let (all, total) = view(&[]);
    let burning: Vec<_> = all.iter().filter(|(name, _)| name.starts_with("burn")).collect();
    let burnt: u64 = burning.iter().map(|(_, cost)| cost).sum();
    assert_eq!((burning.len(), all.iter().map(|(_, cost)| cost).sum::<u64>()), (3, total), "{all:?}");

    let (named, named_total) = view(&["--process", "burn"]);
    assert_eq!((named.len(), named_total), (3, burnt), "{named:?}");
    let (merged, merged_total) = view(&["--process", "burn", "--merge-processes"]);
    assert_eq!((merged.len(), merged_total), (1, burnt), "{merged:?}");
    let (merged, merged_total) = view(&["--merge-processes"]);
    assert_eq!(merged_total, total, "{merged:?}");
    assert_eq!(
        merged.iter().filter(|(name, _)| name.starts_with("burn")).map(|(_, c)| *c).collect::<Vec<_>>(),
        [burnt]
    );

    // By number, as the report names it.
    let said = run_report(&recorded.directory, &["--view", "context", "--per-process", "--width", "200"]);
    let mut numbers = said
        .stdout
        .lines()
        .filter(|line| line.contains("burn"))
        .filter_map(|line| line.split(|c: char| !c.is_ascii_digit()).find(|word| word.len() > 2 && *word != "100"));
    let pid = numbers.next_back().expect("a number").to_owned();
    let (one, cost) = view(&["--process", &pid]);
    // The shell that became it has the same number.
    let burning: Vec<_> = one.iter().filter(|(name, _)| name.starts_with("burn")).collect();
    assert!(burning.len() == 1 && one.len() <= 2 && burning[0].1 > cost / 2, "{pid}: {one:?}");
}

#[test]
fn executed_by_the_number_of_the_call() {
    // A sample that is taken inside of the call must not reach the program that it executes.
    // At the default rate a process may end before its first sample.
    let recorded = Program::nasty("by_number.c").arguments(["100"]).options(&["-F", "10000"]).same();
    assert_eq!(recorded.ended.status, 7, "{:?}", recorded.ended);
    let profile = recorded.profile();
    profile.assert_full(900);
    assert!(profile.through(&["main", "work"], "cpu-time") * 8 > profile.total("cpu-time"), "{profile:?}");
}
