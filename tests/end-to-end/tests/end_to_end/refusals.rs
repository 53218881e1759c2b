//! What cannot be done: one sentence that says so, and a status of our own.

use callpath_end_to_end::{C, Ended, Program, callpath, compiled, copy_program, is_root, skip};

/// One sentence on stderr that holds these words; nothing on stdout; 125 to 127.
fn assert_refused(said: &Ended, words: &[&str]) {
    assert!((125..=127).contains(&said.status), "{said:?}");
    assert_eq!(said.stdout, "", "{said:?}");
    let sentence = said.stderr.trim_end();
    assert!(
        !sentence.is_empty() && sentence.lines().count() <= 2 && sentence.len() < 500,
        "not one sentence: {said:?}"
    );
    assert!(sentence.starts_with("callpath"), "it does not say who speaks: {said:?}");
    for word in words {
        assert!(sentence.contains(word), "`{word}` is missing: {sentence}");
    }
    assert!(!sentence.contains("panicked"), "{sentence}");
}

fn record(arguments: &[&str]) -> Ended {
    let place = tempfile::TempDir::new().expect("a temp directory");
    let mut command = std::process::Command::new(callpath());
    command.arg("record").args(arguments).current_dir(place.path());
    let said = Ended::of(&command.output().expect("callpath can be run"));
    let left = place.path().read_dir().unwrap().count();
    assert_eq!(left, 0, "a refused run leaves nothing behind");
    said
}

#[test]
fn no_such_program() {
    let said = record(&["--", "/no/such/program"]);
    assert_refused(&said, &["/no/such/program"]);
    assert_eq!(said.status, 127);
    assert_refused(&record(&["no-such-program-in-the-path"]), &["no-such-program-in-the-path"]);
}

#[test]
fn a_directory_or_a_file_that_cannot_be_run() {
    assert_refused(&record(&["--", "/usr"]), &["/usr"]);
    let said = record(&["--", "/etc/passwd"]);
    assert_refused(&said, &["/etc/passwd"]);
    assert_eq!(said.status, 126);
}

#[test]
fn a_missing_interpreter() {
    let script = callpath_end_to_end::tool_path("no-interpreter");
    std::fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    assert_refused(&record(&["--", script.to_str().unwrap()]), &["no-interpreter"]);
}

// Samples of such programs are taken from outside: counts need our object inside.
#[test]
fn a_static_program() {
    let program =
        compiled(C { source: "burn.c", output: "burn_static", options: &["-static"] }).expect("burn.c compiles");
    assert_refused(&record(&["--exact=calls", "--", program.to_str().unwrap(), "50"]), &["burn_static", "static"]);
}

#[test]
fn a_static_pie_program() {
    let options = &["-static-pie", "-fPIE"];
    let program = compiled(C { source: "burn.c", output: "burn_static_pie", options }).expect("burn.c compiles");
    assert_refused(&record(&["--exact=calls", "--", program.to_str().unwrap(), "50"]), &["burn_static_pie", "static"]);
}

#[test]
fn a_32_bit_program() {
    match compiled(C { source: "burn.c", output: "burn_32", options: &["-m32"] }) {
        Ok(program) => assert_refused(&record(&["--", program.to_str().unwrap(), "50"]), &["burn_32", "32"]),
        Err(_) => skip("a_32_bit_program", "gcc -m32 does not work here (the Debian package gcc-multilib is missing)"),
    }
}

#[test]
fn a_setuid_program() {
    if !is_root() {
        return skip("a_setuid_program", "only root can make a program that is setuid root");
    }
    let burn = compiled(C { source: "burn.c", output: "burn", options: &[] }).expect("burn.c compiles");
    let place = crate::ordinary_user::UserDirectory::new();
    let program = place.path().join("burn_setuid");
    copy_program(&burn, &program);
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o4755)).unwrap();
    let said = place.run(&["record", "--", program.to_str().unwrap(), "50"]);
    assert_refused(&said, &["burn_setuid", "setuid"]);
}

#[test]
fn unknown_events_and_options() {
    for (arguments, word) in [
        (&["-e", "no-such-event", "true"][..], "no-such-event"),
        (&["-e", "cpu-time@", "true"], "period"),
        (&["-e", "cpu-time@0", "true"], "`0`"),
        (&["-e", "cpu-time@-5", "true"], "`-5`"),
        (&["-e", "cpu-time@99999999999999999999999", "true"], "`99999999999999999999999`"),
        (&["-e", "", "true"], "event"),
        (&["-F", "0", "true"], "takes no samples"),
        (&["-F", "many", "true"], "many"),
        (&["--no-such-option", "true"], "--no-such-option"),
    ] {
        let said = record(arguments);
        assert!((125..=127).contains(&said.status), "{arguments:?}: {said:?}");
        assert!(said.stderr.contains(word) && said.stdout.is_empty(), "{arguments:?}: {said:?}");
    }
    let said = record(&[]);
    assert!((125..=127).contains(&said.status), "{said:?}");
}

/// Neither they nor words that nobody knows are taken for a program.
#[test]
fn options_of_perf_that_ask_for_another_recording() {
    for (arguments, words) in [
        (&["-u", "me"][..], ["-u, --uid: ", "callpath record PROGRAM"]),
        (&["-F", "99", "-gt", "7", "--", "true"], ["-t, --tid: ", "-p PID"]),
        (&["-C", "0", "true"], ["-C, --cpu: ", "taskset"]),
        (&["-x", "--", "true"], ["'-x'", "callpath record --help"]),
        (&["--no-such-option", "--", "true"], ["'--no-such-option'", "callpath record --help"]),
        (&["--", "-x"], ["-x", "no such program"]),
    ] {
        let said = record(arguments);
        assert_refused(&said, &words);
        assert_eq!(said.status == 127, arguments[0] == "--", "{arguments:?}: {said:?}");
    }
}

/// Each event that `callpath list` offers, with each modifier that it names, is recorded or has a sentence of its own.
#[test]
fn modifiers_of_the_events_that_are_listed() {
    let listed = std::process::Command::new(callpath()).arg("list").output().expect("callpath can be run");
    let listed = Ended::of(&listed).stdout;
    let here = listed.lines().skip_while(|line| !line.starts_with("Events that can")).skip(1);
    let names: Vec<&str> = here.take_while(|line| !line.is_empty()).flat_map(|line| line.split(", or ")).collect();
    let names: Vec<&str> = names.into_iter().map(str::trim).collect();
    assert!(names.contains(&"cpu-clock") && names.contains(&"wall-time"), "{listed}");
    for name in names {
        let is_clock = name.ends_with("-time") || name.ends_with("-clock");
        for modifier in [":u", ":k", ":p"] {
            let event = format!("{name}{modifier}");
            let place = tempfile::TempDir::new().expect("a temp directory");
            let mut command = std::process::Command::new(callpath());
            command.args(["record", "-q", "-e", &event, "--", "/bin/true"]).current_dir(place.path());
            let said = Ended::of(&command.output().expect("callpath can be run"));
            if is_clock || said.status != 0 {
                assert_refused(&said, &[&event]);
                assert!(!said.stderr.contains("tracepoint"), "{said:?}");
            }
        }
    }
}

#[test]
fn reports_of_what_is_no_measurement() {
    let place = tempfile::TempDir::new().expect("a temp directory");
    let empty = place.path().join("empty.callpath");
    std::fs::create_dir(&empty).unwrap();
    for what in [empty.as_path(), std::path::Path::new("/no/such/directory"), std::path::Path::new("/etc/passwd")] {
        let said = callpath_end_to_end::run_report(what, &[]);
        assert!(said.status != 0 && said.status != 101 && said.status < 128, "{said:?}");
        assert!(said.stderr.contains(what.to_str().unwrap()) && said.stdout.is_empty(), "{said:?}");
    }
}

#[test]
fn a_reader_that_goes_away() {
    let recorded = Program::nasty("burn.c").arguments(["50"]).recorded();
    let line = format!(
        "'{}' report '{}' --json | head -c 10; exit ${{PIPESTATUS[0]}}",
        callpath().display(),
        recorded.directory.display()
    );
    let said = std::process::Command::new("bash").args(["-c", &line]).output().expect("bash can be run");
    let said = Ended::of(&said);
    assert!(!said.stderr.contains("panicked"), "{said:?}");
}
