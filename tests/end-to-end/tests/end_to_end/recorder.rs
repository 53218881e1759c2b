//! What becomes of the program when the recorder gets signals, is stopped, killed, or has done: nothing.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use callpath_end_to_end::{C, Ended, NamedPipe, Profile, Program, callpath, compiled, run_report, tool_path};

fn path(what: C) -> String {
    compiled(what).expect("it compiles").display().to_string()
}

fn burn() -> String {
    path(C { source: "burn.c", output: "burn", options: &[] })
}

fn tells() -> String {
    path(C { source: "tells.c", output: "tells", options: &[] })
}

/// What a shell script does, bare and recorded; `$CALLPATH_SESSION` tells it which.
fn script(text: &str) -> Program {
    Program::at("/bin/sh").arguments(["-c", text])
}

/// `callpath record`, in a process group of its own, not waited for.
fn start(measurement: &Path, words: &[&str]) -> Child {
    start_with_cache(measurement, words, &tool_path("cache"))
}

fn start_with_cache(measurement: &Path, words: &[&str], cache: &Path) -> Child {
    let mut command = Command::new(callpath());
    command.args(["record", "-o"]).arg(measurement).arg("--").args(words).env("CALLPATH_CACHE_DIR", cache);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    command.spawn().expect("callpath can be run")
}

/// Reads what it says until it says this.
fn await_words(child: &mut Child, words: &str) -> String {
    let (mut said, mut byte) = (Vec::new(), [0]);
    let out = child.stdout.as_mut().expect("stdout is a pipe");
    while !String::from_utf8_lossy(&said).contains(words) {
        assert_eq!(
            out.read(&mut byte).expect("its pipe can be read"),
            1,
            "it ended: {}",
            String::from_utf8_lossy(&said)
        );
        said.push(byte[0]);
    }
    String::from_utf8_lossy(&said).into_owned()
}

fn send(signal: &str, target: &str) {
    let status = Command::new("/bin/kill").args(["-s", signal, "--", target]).status();
    assert!(status.expect("kill can be run").success(), "{signal} to {target}");
}

#[test]
fn killed() {
    // The program kills its own recorder, and continues: work, threads' and
    // children's start, a static child, a 32-bit one.
    let static_one = path(C { source: "tells.c", output: "tells_static", options: &["-static"] });
    let script = format!(
        "test -z \"$CALLPATH_SESSION\" || kill -9 $PPID; {0} 100; {1}; {1} | cat; {2}; (exec {2}); (exec {0} 100 exit); echo $?",
        burn(),
        tells(),
        static_one
    );
    let place = tempfile::TempDir::new().expect("a temp directory");
    let measurement = place.path().join("m");
    let bare = self::script(&script).bare();
    let mut child = start(&measurement, &["/bin/sh", "-c", &script]);
    let (mut out, mut err) = (String::new(), String::new());
    child.stdout.take().expect("a pipe").read_to_string(&mut out).expect("text");
    child.stderr.take().expect("a pipe").read_to_string(&mut err).expect("text");
    assert_eq!((bare.stdout, bare.stderr), (out, err));
    let ended = child.wait().expect("it can be waited for");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended), Some(9));
    // Its files are whole, if it came to write any.
    let said = run_report(&measurement, &["--json"]);
    assert!(said.status < 100 && !said.stderr.contains("panicked"), "{said:?}");
}

#[test]
fn killed_while_timers_tick() {
    let place = crate::ordinary_user::UserDirectory::new();
    if !callpath_end_to_end::is_root() {
        return callpath_end_to_end::skip("killed_while_timers_tick", "the tests run as an ordinary user anyway");
    }
    let burn = place.copy(Path::new(&burn()));
    let script = format!("kill -9 $PPID; {0} 300; (exec {0} 300 exit); echo $?", burn.display());
    // Whoever waits for callpath does not wait for the shell: its words go to a pipe of their own.
    let output = NamedPipe::new(place.path().join("output"));
    let told = output.told();
    let line = format!("exec > {} 2>&1; {script}; echo end", output.path().display());
    place.run(&["record", "-e", "wall-time", "-o", "m", "--", "/bin/sh", "-c", &line]);
    assert_eq!(told.until_the_end(), "burnt, now return\nburnt, now exit\n3\nend\n");
}

#[test]
fn stopped_for_a_while() {
    let script = format!(
        "test -z \"$CALLPATH_SESSION\" || kill -STOP $PPID; {0} 60; {1}; {1} | cat; (exec {0} 60); \
         test -z \"$CALLPATH_SESSION\" || kill -CONT $PPID; {0} 100; exit 6",
        burn(),
        tells()
    );
    let recorded = self::script(&script).same();
    assert_eq!(recorded.ended.status, 6);
    let profile = recorded.profile();
    assert!(profile.through(&["process:burn", "main", "outer"], "cpu-time") > 60_000_000, "{:?}", profile.processes());
}

/// A daemon that writes to `left`, runs `first`, starts a child that works for 300 ms, and says so at its end.
fn daemon(left: &Path, first: &str) -> Program {
    let script = format!("exec > {0} 2>&1; {first}; {1} 300; echo end", left.display(), burn());
    Program::nasty("starts.c").arguments(["detach", "/bin/sh", "-c", &script])
}

#[test]
fn waits_for_daemons_where_that_is_asked_for() {
    let place = tempfile::TempDir::new().expect("a temp directory");
    let left = place.path().join("left");
    let recorded = daemon(&left, "sleep 0.5").options(&["--wait-all"]).same();
    // It has ended when the recorder has.
    let said = std::fs::read_to_string(&left).expect("the daemon has written");
    assert!(said.ends_with("end\n"), "{said}");
    let profile = recorded.profile();
    let burnt = profile.through(&["process:burn", "main", "outer"], "cpu-time");
    assert!(burnt > 200_000_000, "{burnt}: {:?}", profile.processes());
    let report = run_report(&recorded.directory, &["--width", "1000"]).stdout;
    assert!(!report.contains("still run"), "{report}");
}

#[test]
fn an_interrupt_ends_the_wait_for_daemons() {
    for signal in ["INT", "TERM"] {
        let place = tempfile::TempDir::new().expect("a temp directory");
        let measurement = place.path().join("m");
        let [left, go] = ["left", "go"].map(|name| NamedPipe::new(place.path().join(name)));
        let told = left.told();
        // It does not wait for ever where this test fails.
        let program = daemon(left.path(), &format!("timeout 600 cat {}", go.path().display()));
        let mut command = Command::new(callpath());
        command.args(["record", "--wait-all", "-o"]).arg(&measurement).arg("--").arg(program.path());
        command.args(program.words()).env("CALLPATH_CACHE_DIR", tool_path("cache"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().expect("callpath can be run");
        while !measurement.join("session").exists() || has_child(child.id(), "starts") {
            assert!(child.try_wait().expect("it is our child").is_none(), "{signal}: it has not waited for the daemon");
            std::thread::sleep(Duration::from_millis(20));
        }
        // The daemon waits for a word; the recorder, whose program has ended, for the daemon or a signal.
        while child.try_wait().expect("it can be waited for").is_none() {
            let _ =
                Command::new("/bin/kill").args(["-s", signal, &child.id().to_string()]).stderr(Stdio::null()).status();
            std::thread::sleep(Duration::from_millis(20));
        }
        let ended = Ended::of(&child.wait_with_output().expect("it can be waited for"));
        assert!(ended.status == 0 && ended.stderr.contains("still running"), "{signal}: {ended:?}");
        assert!(!told.is_over(), "{signal}: the daemon has ended, too");
        std::fs::write(go.path(), "go\n").expect("the daemon reads it");
        assert!(told.until_the_end().ends_with("end\n"), "{signal}: the daemon was disturbed");
    }
}

/// Whether a child of `process` has this name; one that has ended and was not waited for counts.
fn has_child(process: u32, name: &str) -> bool {
    let read = |path: String| std::fs::read_to_string(path).unwrap_or_default();
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let children = tasks.flat_map(|task| {
        let children = read(task.path().join("children").display().to_string());
        children.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    });
    children.into_iter().any(|child| read(format!("/proc/{child}/comm")).trim_end() == name)
}

#[test]
fn done_before_its_daemon() {
    let place = tempfile::TempDir::new().expect("a temp directory");
    let left = NamedPipe::new(place.path().join("left"));
    // It works on, starts children, and says what they said.
    let script = format!(
        "{0} 200; exec > {1} 2>&1; sleep 0.5; {0} 100; {2}; {2} | cat; echo end",
        burn(),
        left.path().display(),
        tells()
    );
    let program = Program::nasty("starts.c").arguments(["detach", "/bin/sh", "-c", &script]);
    let told = left.told();
    let bare = program.bare();
    let by_bare = told.until_the_end();
    let told = left.told();
    let recorded = program.recorded();
    assert_eq!((bare.stdout, bare.status), (recorded.ended.stdout.clone(), recorded.ended.status));
    let said = run_report(&recorded.directory, &["--width", "1000"]).stdout;
    let lines: Vec<_> = said.lines().filter(|line| line.contains("still run")).collect();
    assert!(lines.len() == 1 && lines[0].contains("no longer measured"), "{said}");
    assert!(recorded.profile().through(&["process:starts", "main", "work_before"], "cpu-time") > 40_000_000);
    assert_eq!(by_bare, told.until_the_end());
}

/// A program that counts the signals it gets: the measurement, and how `callpath record` ended.
fn signalled(signal: &str, to_group: bool) -> (Ended, Profile) {
    let place = tempfile::TempDir::new().expect("a temp directory");
    let measurement = place.path().join("m");
    let counts = Program::nasty("counts.c");
    let mut child = start(&measurement, &[counts.path().to_str().expect("its path is text")]);
    let mut stdout = await_words(&mut child, "ready\n");
    let recorder = child.id().to_string();
    send(signal, &if to_group { format!("-{recorder}") } else { recorder });
    let rest = child.wait_with_output().expect("it can be waited for");
    let mut ended = Ended::of(&rest);
    stdout.push_str(&ended.stdout);
    ended.stdout = stdout;
    let said = run_report(&measurement, &["--json"]);
    let profile = Profile::of_json(&said.stdout);
    profile.assert_sound();
    (ended, profile)
}

#[test]
fn an_interrupt_reaches_the_program_alone() {
    for signal in ["INT", "QUIT"] {
        // As the terminal sends it: to the whole group.
        let (ended, profile) = signalled(signal, true);
        assert_eq!((ended.stdout.as_str(), ended.status), (format!("ready\nSIG{signal} 1\n").as_str(), 8), "{ended:?}");
        assert!(ended.stderr.contains("recorded to"), "{ended:?}");
        assert!(profile.percent_through(&["main", "count_work"]) > 50.0);
    }
}

#[test]
fn an_interrupt_ends_the_wait_for_tables() {
    let place = tempfile::TempDir::new().expect("a temp directory");
    let measurement = place.path().join("m");
    let library = path(C { source: "large.c", output: "liblarge.so", options: &["-shared", "-fPIC"] });
    let late = path(C { source: "late.c", output: "late", options: &["-ldl", "-pthread"] });
    let words = [&late, &library, "60", "0", "0"];
    let mut child = start_with_cache(&measurement, &words, &place.path().join("cache"));
    await_words(&mut child, "done\n");
    // As long as the program is there it is the program's.
    while child.try_wait().expect("it can be waited for").is_none() {
        let _ = Command::new("/bin/kill").args(["-s", "INT", &child.id().to_string()]).stderr(Stdio::null()).status();
        std::thread::sleep(Duration::from_millis(20));
    }
    let ended = Ended::of(&child.wait_with_output().expect("it can be waited for"));
    assert!(ended.status == 0 && ended.stderr.contains("recorded to"), "{ended:?}");
    let said = run_report(&measurement, &["--width", "1000"]).stdout;
    assert!(said.contains("the recorder was interrupted while it built recipe tables"), "{said}");
    let profile = Profile::of_json(&run_report(&measurement, &["--json"]).stdout);
    profile.assert_sound();
    // All that the thread did in the library, which is nearly all that the program did.
    assert!(profile.quality.partial * 4 > profile.due(), "{} due: {:?}", profile.due(), profile.quality);
}

#[test]
fn a_termination_is_handed_on() {
    for signal in ["TERM", "HUP"] {
        let (ended, profile) = signalled(signal, false);
        assert_eq!((ended.stdout.as_str(), ended.status), (format!("ready\nSIG{signal} 1\n").as_str(), 8), "{ended:?}");
        assert!(ended.stderr.contains("recorded to"), "{ended:?}");
        assert!(profile.percent_through(&["main", "count_work"]) > 50.0);
    }
}

#[test]
fn a_termination_of_the_whole_group_comes_once() {
    for signal in ["TERM", "HUP"] {
        for _ in 0..5 {
            let (ended, _) = signalled(signal, true);
            assert_eq!(
                (ended.stdout.as_str(), ended.status),
                (format!("ready\nSIG{signal} 1\n").as_str(), 8),
                "{ended:?}"
            );
        }
    }
}
