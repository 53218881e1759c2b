//! Closures, lambdas and instantiations are procedures of their own, in every view and in the list of procedures.

use callpath_end_to_end::{C, Program, Recorded, run_report};

/// The shown names of procedures of the program with a cost above 3%, that contain `part`: each stands once in each view.
fn shown(recorded: &Recorded, options: &[&str], part: &str) -> Vec<String> {
    let text = run_report(&recorded.directory, options).stdout;
    let rows = text.lines().filter(|row| row.contains(part) && !row.starts_with("Next"));
    let name = |row: &str| {
        let words: Vec<&str> = row.split("  ").filter(|word| word.contains(part)).collect();
        words.concat().trim_matches([' ', '├', '└', '│']).to_owned()
    };
    let mut names: Vec<String> = rows.map(name).collect();
    names.sort();
    names
}

fn assert_listed(recorded: &Recorded, part: &str, count: usize) {
    let text = run_report(&recorded.directory, &["--width", "100"]).stdout;
    let list: Vec<&str> = text.lines().skip_while(|row| !row.starts_with("Procedures by self")).collect();
    let rows: Vec<&&str> = list.iter().filter(|row| row.contains(part) && !row.starts_with("Next")).collect();
    assert_eq!(rows.len(), count, "{part}: {text}");
    let flat = shown(recorded, &["--view", "flat", "--no-loops", "--no-inlines", "--width", "100"], part);
    let mut distinct = flat.clone();
    distinct.dedup();
    assert_eq!((flat.len(), distinct.len()), (count, count), "{part}: {flat:?}");
}

/// The names that a report prints are those that `structure --procedure` takes.
fn assert_found(path: &str, asked: &str, count: usize) {
    let mut command = std::process::Command::new(callpath_end_to_end::callpath());
    let said = command.args(["structure", "--json", path, "--procedure", asked]).output().expect("callpath can be run");
    assert!(said.status.success(), "{asked}: {said:?}");
    let json: serde_json::Value = serde_json::from_slice(&said.stdout).expect("JSON");
    assert_eq!(json["procedures"].as_array().map(Vec::len), Some(count), "{asked}: {json}");
}

#[test]
fn of_rust() {
    for (output, mangling) in [("instances_legacy", "legacy"), ("instances_v0", "v0")] {
        let options: &[&str] =
            if mangling == "v0" { &["-O", "-g", "-Csymbol-mangling-version=v0"] } else { &["-O", "-g"] };
        let program = Program::compiled(C { source: "instances.rs", output, options });
        let path = program.path().to_str().expect("a plain name").to_owned();
        let recorded = program.same();
        assert_listed(&recorded, "::add", 2);
        // Their cost is in what is inlined.
        let flat = shown(&recorded, &["--view", "flat", "--no-loops", "--width", "120"], "::apply::<");
        assert!(flat.len() == 2 && flat[0] != flat[1], "{flat:?}");
        // Its division takes most of the time of its loop; it is shown, however few samples fall into it.
        let context = run_report(&recorded.directory, &["--width", "200", "--all", "--threshold", "0"]).stdout;
        for name in ["::add::<f32>", "::add::<u32>", "::main::{closure#0} at instances.rs:23 (inlined)"] {
            assert!(context.contains(name), "{name}: {context}");
        }
        assert_found(&path, "add::<f32>", 1);
        assert_found(&path, "add::<…>", 2);
        assert_found(&path, "instances::appl*", 2);
    }
}

#[test]
fn of_cpp() {
    let options = &["-O2", "-g"];
    let program = Program::compiled(C { source: "instances.cpp", output: "instances_cpp", options });
    let path = program.path().to_str().expect("a plain name").to_owned();
    let recorded = program.same();
    assert_listed(&recorded, "turn<", 3);
    // In a narrow page, too.
    let narrow = shown(&recorded, &["--width", "64", "--no-loops"], "turn<");
    let mut distinct = narrow.clone();
    distinct.dedup();
    assert!(distinct.len() >= 3, "{narrow:?}");
    let context = run_report(&recorded.directory, &["--width", "100"]).stdout;
    for name in ["{lambda#1}", "{lambda#2}"] {
        assert!(context.contains(name), "{name}: {context}");
    }
    assert_found(&path, "double turn<int, 3>(…)", 1);
    assert_found(&path, "main::{lambda#1}", 1);
    assert_found(&path, "turn", 3);
}
