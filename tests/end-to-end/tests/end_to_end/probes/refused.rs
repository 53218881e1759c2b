//! What cannot be probed: a sentence that says so, a status of callpath's own, and nothing left behind.

use callpath_end_to_end::{Attached, C, Ended, Program, compiled, is_root, run_probe, skip};

use crate::ordinary_user::UserDirectory;

/// One sentence on stderr that holds these words; nothing on stdout; 125 to 127.
#[track_caller]
fn assert_refused(said: &Ended, words: &[&str]) {
    assert!((125..=127).contains(&said.status), "{said:?}");
    assert_eq!(said.stdout, "", "{said:?}");
    let sentence = said.stderr.trim_end();
    assert!(sentence.starts_with("callpath: ") && sentence.lines().count() == 1, "not one sentence: {said:?}");
    assert!(!sentence.contains("panicked"), "{sentence}");
    for word in words {
        assert!(sentence.contains(word), "`{word}` is missing: {sentence}");
    }
}

#[track_caller]
fn refused(words: &[&str], said: &[&str]) {
    let (ended, left) = run_probe(words);
    assert_refused(&ended, said);
    assert_eq!(left, Vec::<String>::new(), "a refused run leaves nothing behind: {ended:?}");
}

fn path_of(program: &Program) -> &str {
    program.path().to_str().expect("its path is text")
}

#[test]
fn functions_that_do_not_exist() {
    let sites = Program::nasty("sites.c");
    refused(&["-f", "other_laef", "--", path_of(&sites)], &["other_laef", "other_leaf"]);
    refused(&["-f", "sites!treee", "--", path_of(&sites)], &["treee", "tree"]);
    refused(&["-f", "no_such_function_anywhere", "--", path_of(&sites)], &["no_such_function_anywhere"]);
    // One of two is.
    let recorded = sites.probed(&["leaf", "other_laef"]);
    assert_eq!(recorded.ended.status, 5, "{recorded:?}");
    assert!(recorded.ended.stderr.contains("other_laef"), "{recorded:?}");
    assert_eq!(recorded.profile().calls_of("leaf"), recorded.profile().total("calls"));
}

#[test]
fn malformed_patterns_and_options() {
    let sites = Program::nasty("sites.c");
    for pattern in ["", "!", "sites!", "sites+0xzz", "sites+99999999999999999999", "["] {
        let (said, left) = run_probe(&["-f", pattern, "--", path_of(&sites)]);
        assert_refused(&said, &[]);
        assert_eq!(left, Vec::<String>::new(), "{pattern}: {said:?}");
    }
    for words in [
        &["--", "true"][..],
        &["-f", "main"],
        &["-f", "main", "-p", "0"],
        &["-f", "main", "-p", "-1"],
        &["-f", "main", "-p", "many"],
        &["-f", "main", "-p", "1", "--", "true"],
        &["-f", "main", "-m", "no-such-metric", "--", "true"],
        &["-f", "main", "--duration", "soon", "--", "true"],
        &["-f", "main", "--duration", "-1", "--", "true"],
        &["-f", "main", "--", "/no/such/program"],
        &["-f", "main", "-o", "m", "--", "/no/such/program"],
        &["-f", "main", "-o", "m", "-p", "4194304"],
        &["-f", "no_such_function", "-o", "m", "--", "/bin/true"],
        &["-f", "main", "--", "/usr"],
        &["-f", "main", "--", "/etc/passwd"],
    ] {
        let (said, left) = run_probe(words);
        assert!((125..=127).contains(&said.status) && said.stdout.is_empty(), "{words:?}: {said:?}");
        assert!(!said.stderr.is_empty() && !said.stderr.contains("panicked"), "{words:?}: {said:?}");
        assert_eq!(left, Vec::<String>::new(), "{words:?}: {said:?}");
    }
}

#[test]
fn processes_that_do_not_exist() {
    let mut gone = std::process::Command::new("true").spawn().unwrap();
    let pid = gone.id().to_string();
    gone.wait().unwrap();
    refused(&["-f", "main", "-p", &pid], &[&pid, "no such process"]);
    refused(&["-f", "main", "-p", "4194304"], &["4194304", "no such process"]);
}

/// Also of a thread of another process, and of the kernel.
#[test]
fn processes_that_are_none_to_probe() {
    // The kernel's, where there is one with this number.
    if std::fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n") {
        refused(&["-f", "main", "-p", "2"], &["2", "it is a thread of the kernel"]);
    } else {
        skip("probes::processes_that_are_none_to_probe", "process 2 is not the kernel's (a PID name space)");
    }
}

#[test]
fn processes_of_another_user() {
    if !is_root() {
        return skip("probes::processes_of_another_user", "only root can start a process of another user");
    }
    let place = UserDirectory::new();
    let mut running = Program::nasty("crew.c").arguments(["asked"]).started();
    running.line();
    let said = place.run(&["probe", "-f", "leaf", "-o", "m", "-p", &running.pid().to_string()]);
    assert_refused(&said, &[&running.pid().to_string(), "it belongs to another user (0, callpath runs as "]);
    assert!(!place.path().join("m").exists());
    let ended = running.ended();
    assert!(ended.stdout.ends_with("all is right\n"), "{ended:?}");
}

/// As an ordinary user, of one's own.
#[test]
fn not_the_processes_of_an_ordinary_user() {
    if !is_root() {
        return skip("probes::not_the_processes_of_an_ordinary_user", "the tests run as an ordinary user anyway");
    }
    let place = UserDirectory::new();
    let sites = place.copy(Program::nasty("sites.c").path());
    let said = place.run(&["probe", "-f", "leaf", "-o", "m", "--", sites.to_str().unwrap()]);
    assert_eq!(said.status, 5, "{said:?}");
    let truth = callpath_end_to_end::Truth::in_directory(place.path()).of(&["leaf"]);
    truth.assert_counted(&place.profile("m").calls(&["sites"]));
}

#[test]
fn static_and_32_bit_programs() {
    let options = &["-static"];
    let program = compiled(C { source: "sites.c", output: "sites_static", options }).expect("it compiles");
    refused(&["-f", "leaf", "--", program.to_str().unwrap()], &["sites_static", "static"]);
    match compiled(C { source: "sites.c", output: "sites_32", options: &["-m32"] }) {
        Ok(program) => refused(&["-f", "leaf", "--", program.to_str().unwrap()], &["sites_32", "32"]),
        Err(_) => skip("probes::static_and_32_bit_programs", "gcc -m32 does not work here"),
    }
}

/// A static one that runs can be probed, or not: its truth is counted, or a sentence says why not.
#[test]
fn static_programs_that_run() {
    let options = &["-static"];
    let program = compiled(C { source: "crew.c", output: "crew_static", options }).expect("it compiles");
    let mut running = Program::at(program).arguments(["asked"]).started();
    running.line();
    let recorded = Attached::to(running.pid(), &["leaf"], &["--duration", "0.2"]).ended();
    match recorded.ended.status {
        0 => assert!(recorded.profile().calls_of("leaf") > 0, "{recorded:?}"),
        _ => assert_refused(&recorded.ended, &["crew_static"]),
    }
    let ended = running.ended();
    assert!(ended.stdout.ends_with("all is right\n"), "{ended:?}");
}

#[test]
fn processes_that_are_traced() {
    let mut running = Program::nasty("traces.c").started();
    let traced = running.line();
    refused(&["-f", "main", "-p", &traced], &[&traced, "traces it already"]);
    let ended = running.ended();
    assert_eq!((ended.status, ended.stdout.ends_with("traced to its end\n")), (0, true), "{ended:?}");
}

#[test]
fn directories_that_exist() {
    let sites = Program::nasty("sites.c");
    let place = tempfile::TempDir::new().unwrap();
    let existing = place.path().to_str().unwrap();
    refused(&["-f", "leaf", "-o", existing, "--", path_of(&sites)], &[existing]);
    refused(&["-f", "leaf", "-o", "/no/such/directory/m", "--", path_of(&sites)], &["/no/such/directory"]);
    assert_eq!(place.path().read_dir().unwrap().count(), 0);
    let mut running = Program::nasty("crew.c").arguments(["asked"]).started();
    running.line();
    let pid = running.pid().to_string();
    refused(&["-f", "leaf", "-o", existing, "-p", &pid], &[existing]);
    let ended = running.ended();
    assert!(ended.stdout.ends_with("all is right\n"), "{ended:?}");
}

/// Its numbers of processes are others.
#[test]
fn a_process_in_another_pid_name_space() {
    let mut outside = std::process::Command::new("unshare");
    outside.args(["--user", "--map-root-user", "--pid", "--fork", "--kill-child", "sleep", "60"]);
    let mut outside = outside.spawn().expect("unshare can be run");
    let children = format!("/proc/{0}/task/{0}/children", outside.id());
    let is_sleep = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sleep\n");
    let mut inside = None;
    for _ in 0..200 {
        let pid = std::fs::read_to_string(&children).unwrap_or_default().trim().to_owned();
        if !pid.is_empty() && is_sleep(&pid) {
            inside = Some(pid);
            break;
        }
        if outside.try_wait().expect("it is a child").is_some() {
            return skip("a_process_in_another_pid_name_space", "this user may make no name spaces");
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let inside = inside.expect("it begins");
    refused(&["-f", "nanosleep", "-p", &inside], &[&inside, "PID name space"]);
    outside.kill().expect("it lives");
    outside.wait().expect("it ends");
}

/// A function whose code the program sums up stays as it is; the one that sums it up is probed.
#[test]
fn a_function_whose_code_is_read() {
    let recorded = Program::nasty("sums.c").options(&["-m", "wall-time"]).same_probed(&["summed", "called", "sum"]);
    assert_eq!(recorded.ended.status, 0, "{recorded:?}");
    assert!(recorded.ended.stderr.contains("not probed: sums!summed: its code is read as data at 0x"), "{recorded:?}");
    let profile = recorded.profile();
    let calls = ["summed", "called", "sum"].map(|function| profile.calls_of(function));
    assert_eq!(calls, [0, 1000, 1001]);
}
