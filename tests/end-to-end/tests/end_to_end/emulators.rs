//! Programs that run inside another one: an emulator takes their signals for its own, and dies of samples.

use callpath_end_to_end::{C, Program, Recorded, run_report, skip};

use crate::outside::is_allowed;

const EMULATES: C = C { source: "emulates.c", output: "emulates", options: &["-static"] };

/// The words behind a prefix, started by a shell, which is measured.
fn started_by_shell(words: &[&str]) -> Recorded {
    let script = format!("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; exec {}", words.join(" "));
    Program::at("/bin/sh").arguments(["-c", &script]).same()
}

/// Says that the program was left alone, and measures what came before it. The emulator is a static program, and sampled from outside
/// where that is allowed.
fn is_left_alone(recorded: &Recorded, emulator: &str) {
    if is_allowed("emulators_from_outside") {
        assert!(recorded.ended.stderr.contains("were sampled from outside"), "{:?}", recorded.ended);
        assert!(!recorded.ended.stderr.contains("was not measured"), "{:?}", recorded.ended);
        assert!(recorded.profile().total("cpu-time") > 0);
        return;
    }
    let note = format!("a process was not measured: it runs in an emulator ({emulator})");
    assert!(recorded.ended.stderr.contains(&note), "{:?}", recorded.ended);
    let said = run_report(&recorded.directory, &[]);
    assert!(said.status == 0 && said.stdout.contains(&note), "{said:?}");
    let profile = recorded.profile();
    assert!(!profile.names().contains("outer"), "{profile:?}");
    assert!(profile.total("cpu-time") > 0);
}

#[test]
fn an_emulator_of_our_own() {
    let emulator = Program::compiled(EMULATES);
    let burn = Program::nasty("burn.c");
    let recorded =
        started_by_shell(&[emulator.path().to_str().unwrap(), burn.path().to_str().unwrap(), "200", "_exit"]);
    assert_eq!((recorded.ended.status, recorded.ended.stdout.as_str()), (4, "burnt, now _exit\n"), "{recorded:?}");
    is_left_alone(&recorded, "emulates");
}

#[test]
fn valgrind() {
    if !std::path::Path::new("/usr/bin/valgrind").exists() {
        return skip("emulators::valgrind", "valgrind is not installed");
    }
    let burn = Program::nasty("burn.c");
    let recorded = started_by_shell(&["valgrind", "-q", "--tool=none", burn.path().to_str().unwrap(), "200", "_exit"]);
    assert_eq!((recorded.ended.status, recorded.ended.stdout.as_str()), (4, "burnt, now _exit\n"), "{recorded:?}");
    is_left_alone(&recorded, "none-amd64-linux");
    // It has nothing to say of our object, of which it reads the call frame information.
    let own_words: Vec<&str> = recorded.ended.stderr.lines().filter(|line| !line.starts_with("callpath: ")).collect();
    assert_eq!(own_words, Vec::<&str>::new());
}

#[test]
fn a_program_behind_its_loader_is_none() {
    // The loader changes what the kernel has said of the program: its entry and its name.
    let burn = Program::nasty("burn.c");
    let loader =
        Program::at("/lib64/ld-linux-x86-64.so.2").arguments([burn.path().as_os_str()]).arguments(["200", "exit"]);
    let script = Program::at("/bin/sh").arguments(["-c", "exec \"$@\"", "sh"]);
    let recorded = script.arguments([loader.path()]).arguments(loader.words()).same();
    assert_eq!(recorded.ended.status, 3, "{:?}", recorded.ended);
    let profile = recorded.profile();
    profile.assert_full(900);
    assert!(profile.through(&["main", "outer"], "cpu-time") * 2 > profile.total("cpu-time"), "{profile:?}");
}
