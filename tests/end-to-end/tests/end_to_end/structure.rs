//! Loops and inlined calls stand in the call paths, where the source has them.

use callpath_end_to_end::{C, Profile, Program, run_report};

const COUNT: &str = "9000";

fn recorded(output: &'static str, options: &'static [&'static str]) -> callpath_end_to_end::Recorded {
    Program::compiled(C { source: "loops.c", output, options }).arguments([COUNT]).same()
}

#[test]
fn with_dwarf() {
    let recorded = recorded("loops_with_dwarf", &["-finline"]);
    let profile = recorded.profile();
    profile.assert_full(990);
    // Lines of tests/nasty/loops.c.
    let inlined = profile.percent_through(&["main", "work", "loop@25", "inlined:sum", "loop@9"]);
    let called = profile.percent_through(&["main", "work", "loop@25", "loop@28", "scale", "loop@17"]);
    assert!(inlined > 8.0 && called > 8.0 && inlined + called > 90.0, "{inlined} and {called}");
    assert!(profile.percent_through(&["inlined:sum", "loop@28"]) < 1.0);

    for (option, kind, other) in [("--no-loops", "loop", "inlined"), ("--no-inlines", "inlined", "loop")] {
        let said = run_report(&recorded.directory, &["--json", option]);
        let folded = Profile::of_json(&said.stdout);
        folded.assert_sound();
        assert!(folded.of_kind(kind).is_empty(), "{option}");
        assert!(!folded.of_kind(other).is_empty(), "{option}");
        assert_eq!(folded.total("cpu-time"), profile.total("cpu-time"), "{option}");
    }
    let flat = run_report(&recorded.directory, &["--view", "flat", "--width", "120"]);
    assert!(flat.stdout.contains("loop at loops.c:25") && flat.stdout.contains("sum (inlined)"), "{}", flat.stdout);
}

#[test]
fn of_a_stripped_program() {
    let profile = recorded("loops_stripped", &["-finline", "-s"]).profile();
    profile.assert_full(990);
    // The loop around all work, and the two in it, by address: cost is in the inner ones.
    let loops = profile.of_kind("loop");
    let total = profile.total("cpu-time");
    assert!(loops.iter().any(|(_, cost)| cost * 10 > total * 9), "{loops:?}");
    assert!(loops.iter().filter(|(_, cost)| cost * 20 > total).count() >= 3, "{loops:?}");
}

#[test]
fn as_a_command() {
    let program = Program::compiled(C { source: "loops.c", output: "loops_shown", options: &["-finline", "-O1"] });
    let path = program.path().to_str().expect("a plain name").to_owned();
    let shown = |options: &[&str]| {
        let mut command = std::process::Command::new(callpath_end_to_end::callpath());
        let said = command.arg("structure").arg(&path).args(options).output().expect("callpath can be run");
        assert!(said.status.success(), "{said:?}");
        String::from_utf8(said.stdout).expect("text")
    };
    let text = shown(&["--procedure", "work"]);
    let lines: Vec<&str> = text.lines().map(|line| line.split("  at 0x").next().unwrap_or(line)).collect();
    assert!(lines[0].starts_with("work  loops.c:22  0x"), "{text}");
    let expected = [
        "  loop  loops.c:25:5  lines 25-29",
        "    inlined sum  loops.c:6  called at loops.c:26",
        "      loop  loops.c:9:23  lines 9-10",
        "    loop  loops.c:28:24  lines 28-29",
    ];
    assert_eq!(lines[1..], expected, "{text}");
    let json: serde_json::Value = serde_json::from_str(&shown(&["--json", "--lines"])).expect("JSON");
    assert_eq!(json["schema"], 1);
    let procedures = json["procedures"].as_array().expect("an array");
    let work = procedures.iter().find(|procedure| procedure["name"] == "work").expect("work is there");
    assert_eq!(work["scopes"].as_array().map(Vec::len), Some(4));
    assert!(work["pieces"].as_array().is_some_and(|pieces| pieces.iter().any(|piece| piece["place"]["line"] == 29)));
}

/// Two loops of one line have a row each, in a report and as a command, whatever a compiler makes of each.
#[test]
fn of_one_line() {
    let builds: [(_, &[_]); 3] = [("one_line_0", &["-O0"]), ("one_line_2", &["-O2"]), ("one_line_3", &["-O3"])];
    for (output, options) in builds {
        let level = options[0];
        let program = C { source: "one_line.c", output, options };
        let recorded = Program::compiled(program).arguments(["2000"]).same();
        let profile = recorded.profile();
        profile.assert_full(990);
        let mut command = std::process::Command::new(callpath_end_to_end::callpath());
        let command = command.arg("structure").arg(Program::compiled(program).path()).args(["--procedure", "work"]);
        let said = command.output().expect("callpath can be run");
        let text = String::from_utf8(said.stdout).expect("text");
        let loops = text.lines().filter_map(|line| line.trim().strip_prefix("loop  ")?.split(' ').next());
        let loops: Vec<&str> = loops.collect();
        let [around, first, second] = loops[..] else { panic!("{level}: {text}") };
        assert!(around.starts_with("one_line.c:10:"), "{level}: {text}");
        // Line 11 of tests/nasty/one_line.c: the second one begins behind `x;`, the first before.
        let column = |name: &str| name.strip_prefix("one_line.c:11:").and_then(|column| column.parse::<u32>().ok());
        let (first_column, second_column) = (column(first).expect(&text), column(second).expect(&text));
        assert!(first_column < 50 && second_column > 50, "{level}: {text}");
        // The second one divides twice as often; a compiler may make two divisions one.
        let report = run_report(&recorded.directory, &["--all", "--width", "140"]).stdout;
        let share = |name: &str| {
            let mut rows = report.lines().filter(|row| row.ends_with(name));
            let share = rows.find_map(|row| row.trim().split('%').next()?.parse::<f64>().ok());
            share.unwrap_or_else(|| panic!("{level}: no row of {name}:\n{report}"))
        };
        let (first, second) = (share(first), share(second));
        assert!(first + second > 95.0 && (0.7..3.0).contains(&(second / first)), "{level}: {first} and {second}");
    }
}

/// Each name that it prints is one that it takes: of a procedure without one, too, and what DWARF has.
#[test]
fn as_it_is_called() {
    let shown = |program: &Program, asked: &[&str]| {
        let mut command = std::process::Command::new(callpath_end_to_end::callpath());
        let said = command.arg("structure").arg("--json").arg(program.path()).args(asked).output();
        let said = said.expect("callpath can be run");
        assert!(said.status.success(), "{asked:?}: {said:?}");
        let json: serde_json::Value = serde_json::from_slice(&said.stdout).expect("JSON");
        json["procedures"].as_array().expect("an array").clone()
    };
    let stripped = Program::compiled(C { source: "loops.c", output: "loops_asked_stripped", options: &["-s"] });
    let all = shown(&stripped, &[]);
    let nameless: Vec<_> =
        all.iter().filter(|procedure| procedure["name"].as_str().is_some_and(|n| n.contains("+0x"))).collect();
    assert!(nameless.len() > 3, "{all:?}");
    for procedure in nameless {
        let name = procedure["name"].as_str().expect("a name");
        assert_eq!(shown(&stripped, &["--procedure", name]), std::slice::from_ref(procedure), "{name}");
    }
    let no_symbols = Program::compiled(C {
        source: "loops.c",
        output: "loops_no_symbols",
        options: &["-Wl,--retain-symbols-file=/dev/null"],
    });
    let found = shown(&no_symbols, &["--procedure", "work"]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0]["name"], "work");
}

/// What was found is cached, for reports, too; `--no-cache` neither reads nor
/// writes it. No bar where there is no terminal.
#[test]
fn found_once() {
    let program = Program::compiled(C { source: "loops.c", output: "loops_kept", options: &["-finline", "-O1"] });
    let cache = tempfile::tempdir().expect("a directory");
    let shown = |options: &[&str]| {
        let mut command = std::process::Command::new(callpath_end_to_end::callpath());
        command.arg("structure").arg(program.path()).args(options).env("CALLPATH_CACHE_DIR", cache.path());
        let said = command.output().expect("callpath can be run");
        assert!(said.status.success() && said.stderr.is_empty(), "{said:?}");
        said.stdout
    };
    let kept = || {
        let files = std::fs::read_dir(cache.path()).expect("a cache").map(|entry| entry.expect("a file").path());
        let mut files = files.filter(|path| path.extension().is_some_and(|extension| extension == "structure"));
        files.next().map(|path| (std::fs::read(&path).expect("a cached structure"), path))
    };
    let found = shown(&["--no-cache"]);
    assert!(kept().is_none());
    assert_eq!(shown(&[]), found);
    let (whole, path) = kept().expect("a cached structure");
    assert_eq!(shown(&[]), found);
    // Damaged, it is built again, except with --no-cache, which does not look at it.
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    std::fs::write(&path, &damaged).expect("a file");
    assert_eq!(shown(&["--no-cache"]), found);
    assert_eq!(kept().expect("a cached structure").0, damaged);
    assert_eq!(shown(&[]), found);
    assert_eq!(kept().expect("a cached structure").0, whole);
}

/// Debug information that was split off has all headers of its program, and no
/// code: an empty answer would look like one.
#[test]
fn of_a_file_without_code() {
    let program = Program::compiled(C { source: "loops.c", output: "loops_split", options: &[] });
    let directory = tempfile::tempdir().expect("a directory");
    let cases = [
        (&["--only-keep-debug"][..], "holds debug information without code: name the program or library"),
        (&["--only-keep-debug", "--remove-section=.debug_info"], "holds no code"),
    ];
    for (number, (options, expected)) in cases.into_iter().enumerate() {
        let file = directory.path().join(format!("split-{number}"));
        let split = std::process::Command::new("objcopy").args(options).arg(program.path()).arg(&file).status();
        assert!(split.expect("objcopy can be run").success());
        let expected = format!("callpath: {} {expected}", file.display());
        for words in
            [&["structure"][..], &["structure", "--json"], &["debug", "recipes"], &["debug", "recipes", "--disagree"]]
        {
            let mut command = std::process::Command::new(callpath_end_to_end::callpath());
            let said = command.args(words).arg(&file).output().expect("callpath can be run");
            let error = String::from_utf8_lossy(&said.stderr);
            let is_refused = said.status.code() == Some(1) && said.stdout.is_empty();
            assert!(is_refused && error.lines().any(|line| line.starts_with(&expected)), "{words:?}: {said:?}");
        }
    }
}

#[test]
fn what_there_is_not() {
    let program = Program::compiled(C { source: "loops.c", output: "loops_asked", options: &[] });
    let path = program.path().to_str().expect("a plain name").to_owned();
    let cases = [
        (&["/dev/null"][..], "failed to read /dev/null: not a regular file"),
        (&[&path, "--procedure", "nobody"], "is called nobody"),
        (&[&path, "--procedure", "0x1"], "is at 0x1"),
        (&[&path, "--procedure", "loops_asked+0x1"], "is at loops_asked+0x1"),
        (&[&path, "--procedure", "0xno"], "not an address: hexadecimal digits are expected after 0x"),
        (&[&path, "--procedure", "0xffffffffffffffffff"], "not an address: addresses have 64 bits at most"),
    ];
    for (words, expected) in cases {
        let mut command = std::process::Command::new(callpath_end_to_end::callpath());
        let said = command.arg("structure").args(words).output().expect("callpath can be run");
        let error = String::from_utf8_lossy(&said.stderr).into_owned();
        assert!(
            said.status.code() == Some(1) && error.contains(expected) && said.stdout.is_empty(),
            "{words:?}: {error}"
        );
    }
}
