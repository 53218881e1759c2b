//! Many threads and processes in one report: those of one kind are one row and one tree; each can be asked for.

use callpath_end_to_end::{C, Profile, Program, compiled, run_report};

fn report(directory: &std::path::Path, options: &[&str]) -> String {
    let said = run_report(directory, options);
    assert_eq!(said.status, 0, "{said:?}");
    said.stdout
}

fn json(directory: &std::path::Path, options: &[&str]) -> Profile {
    let profile = Profile::of_json(&report(directory, &[options, &["--json"]].concat()));
    profile.assert_sound();
    profile
}

/// The share at the beginning of the first line with these words.
fn share(text: &str, words: &str) -> f64 {
    let line = text.lines().find(|line| line.contains(words)).unwrap_or_else(|| panic!("no {words:?} in {text}"));
    let number = line.trim_start().split('%').next().and_then(|number| number.parse().ok());
    number.unwrap_or_else(|| panic!("no share in {line:?}"))
}

#[test]
fn threads_of_a_kind_are_one_row_and_all_are_one_tree() {
    let recorded = Program::nasty("kinds.c").arguments(["24", "20"]).same();
    let text = report(&recorded.directory, &[]);
    // 16 of them cost twice as much as the 8 others.
    let (hot, cold) = (share(&text, "×16 \"worker-*\""), share(&text, "×8 \"io-*\""));
    assert!((70.0..90.0).contains(&hot) && (10.0..30.0).contains(&cold), "{hot} {cold} in {text}");
    let tree = text.split("Call paths").nth(1).and_then(|rest| rest.split("Procedures by").next()).unwrap_or_default();
    for procedure in ["work", "hot", "cold"] {
        let rows = tree.lines().filter(|line| line.split([' ', '›']).any(|word| word == procedure)).count();
        assert_eq!(rows, 1, "{procedure} in {tree}");
    }

    let workers = json(&recorded.directory, &["--thread", "worker-*"]);
    let others = json(&recorded.directory, &["--thread", "io-?", "--per-thread"]);
    let all = json(&recorded.directory, &[]);
    assert!(workers.total("cpu-time") > 2 * others.total("cpu-time"), "{workers:?} {others:?}");
    assert!(workers.percent_through(&["work", "hot"]) > 95.0 && others.percent_through(&["work", "cold"]) > 90.0);
    assert_eq!(
        all.through(&["work", "hot"], "cpu-time"),
        json(&recorded.directory, &["--focus", "hot"]).total("cpu-time")
    );
    let without = json(&recorded.directory, &["--ignore", "hot", "--hide", "cold"]);
    assert_eq!(without.total("cpu-time"), all.total("cpu-time") - all.through(&["work", "hot"], "cpu-time"));
    assert_eq!(without.through(&["work", "cold"], "cpu-time"), 0);
    assert!(without.through(&["work", "burn"], "cpu-time") > 0, "{without:?}");

    let apart = report(&recorded.directory, &["--view", "context", "--per-thread", "--threshold", "0"]);
    assert_eq!(apart.matches("thread worker-").count(), 16, "{apart}");
    let page = report(&recorded.directory, &["--procedure", "work"]);
    let parts =
        ["\nwork  [kinds]  kinds.c:", "\nCallers", " start_thread", "\nCallees", " hot", "\nLines", "  kinds.c:"];
    for part in parts {
        assert!(page.contains(part), "{part:?} in {page}");
    }
    let said = run_report(&recorded.directory, &["--focus", "hto"]);
    assert!(said.status == 1 && said.stderr.contains("\"hto\"; similar names: hot"), "{said:?}");
}

/// The region that one procedure calls stands there with the workers' part; the one of two callers does not.
#[test]
fn workers_of_openmp_are_below_what_called_the_region() {
    let options = &["-fopenmp"];
    let recorded = Program::compiled(C { source: "regions.c", output: "regions", options }).same();
    let main_of = |options: &[&str]| {
        let text = report(&recorded.directory, &[options, &["--focus", "main", "--width", "200"]].concat());
        let line = text.lines().find(|line| line.contains("shown: ")).expect("how much is shown").to_owned();
        line.split([' ', '%']).find_map(|word| word.parse::<f64>().ok()).expect("a share")
    };
    // Three threads take 900 ms in one region and twice 450 in the other; of that, main's own is a third.
    let (met, apart) = (main_of(&[]), main_of(&["--per-thread"]));
    assert!((60.0..75.0).contains(&met) && (28.0..42.0).contains(&apart), "{met} {apart}");
    let text = report(&recorded.directory, &["--threshold", "5"]);
    assert!(text.contains("is shown below the region's caller"), "{text}");
    // JSON says what was on the stacks.
    let profile = json(&recorded.directory, &[]);
    let (whole, below_main) =
        (profile.through(&["single"], "cpu-time"), profile.through(&["main", "single"], "cpu-time"));
    assert!(below_main * 5 < whole * 2, "{below_main} of {whole}");
}

#[test]
fn processes_of_one_name_are_listed_with_their_arguments() {
    let burn = compiled(C { source: "burn.c", output: "burn", options: &[] }).expect("burn.c compiles");
    let script = format!("{0} 60 & {0} 120; wait", burn.display());
    let recorded = Program::at("/bin/sh").arguments(["-c", &script]).same();
    let text = report(&recorded.directory, &["--process", "burn"]);
    assert!(text.contains("\n  shown: 2 of 3 processes, "), "{text}");
    let (long, short) = (share(&text, "burn 120 ("), share(&text, "burn 60 ("));
    assert!(long > short && (98.0..102.0).contains(&(long + short)), "{long} {short} in {text}");
    let tree = report(&recorded.directory, &["--view", "context", "--process", "b?rn", "--per-process"]);
    assert_eq!(tree.matches(" process burn (pid ").count(), 2, "{tree}");
    let flat = report(&recorded.directory, &["--view", "flat", "--process", "burn"]);
    assert!(flat.starts_with("  shown: 2 of 3 processes, "), "{flat}");
}
