//! Files of a measurement, cut and changed: the report is an answer or a clear refusal, never a panic, never endless. Memory of
//! callpath's that the program overwrites: what was in it is said to be wrong.

use std::path::Path;

use callpath_end_to_end::{DISTRUSTED, Program, copy_program, run_report, run_report_within};

/// CPU time that a report may take, seconds; some hundredths is what it takes.
const MOST_CPU_S: u32 = 20;

fn assert_survived(directory: &Path, what: &str) {
    for options in [&["--json"][..], &[]] {
        let said = run_report_within(MOST_CPU_S, directory, options);
        let what = format!("{what}, {options:?}");
        assert!(
            said.status < 101 || (102..128).contains(&said.status),
            "{what}: status {}: {}",
            said.status,
            said.stderr
        );
        assert!(!said.stderr.contains("panicked"), "{what}: {}", said.stderr);
        if said.status != 0 {
            assert!(said.stderr.contains(directory.to_str().unwrap()), "{what}: names no file: {}", said.stderr);
        } else if options == ["--json"] {
            callpath_end_to_end::Profile::of_json(&said.stdout).assert_sound();
        }
    }
}

/// The same damage every time.
fn numbers(seed: u64) -> impl FnMut() -> u64 {
    let mut random = fastrand::Rng::with_seed(seed);
    move || random.u64(..)
}

#[test]
fn every_file_of_a_measurement() {
    let burn = callpath_end_to_end::compiled(callpath_end_to_end::C { source: "burn.c", output: "burn", options: &[] });
    let program = Program::nasty("processes.c").arguments(["fork-exec"]).arguments([burn.expect("burn.c compiles")]);
    let recorded = program.arguments(["60"]).same();
    recorded.profile();
    let mut draw = numbers(0x9e37_79b9_7f4a_7c15);
    let files: Vec<_> = recorded.directory.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(!files.is_empty());
    for file in files {
        let whole = std::fs::read(&file).unwrap();
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let mut lengths: Vec<usize> = vec![0, 1, 4, 7, 8, 9, 16, 31, 64];
        lengths.extend((0..24).map(|_| draw() as usize % whole.len().max(1)));
        lengths.push(whole.len().saturating_sub(1));
        for len in lengths.into_iter().filter(|len| *len < whole.len()) {
            std::fs::write(&file, &whole[..len]).unwrap();
            assert_survived(&recorded.directory, &format!("{name} cut at {len} of {}", whole.len()));
        }
        for round in 0..60 {
            let mut changed = whole.clone();
            if changed.is_empty() {
                break;
            }
            // The first bytes carry the lengths and counts: every second change goes there.
            let end = if round % 2 == 0 { changed.len().min(256) } else { changed.len() };
            let at = draw() as usize % end;
            let value = match round % 3 {
                0 => 0xff,
                1 => changed[at] ^ (1 << (draw() % 8)),
                _ => draw() as u8,
            };
            changed[at] = value;
            std::fs::write(&file, &changed).unwrap();
            assert_survived(&recorded.directory, &format!("{name} with {value:#x} at {at}"));
        }
        let mut longer = whole.clone();
        longer.extend_from_slice(&whole);
        std::fs::write(&file, &longer).unwrap();
        assert_survived(&recorded.directory, &format!("{name} twice"));
        std::fs::remove_file(&file).unwrap();
        assert_survived(&recorded.directory, &format!("{name} missing"));
        std::fs::write(&file, &whole).unwrap();
    }
    recorded.profile();
}

#[test]
fn memory_that_the_program_overwrites() {
    let overwrites = Program::nasty("overwrites.c");
    for mode in ["thread", "header", "shared"] {
        let recorded = overwrites.clone().arguments([mode]).same();
        let said = run_report_within(MOST_CPU_S, &recorded.directory, &[]);
        let text = said.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.status == 0 && text.contains(&format!("{DISTRUSTED}overwrites (")), "{mode}: {said:?}");
    }
    overwrites.arguments(["nothing"]).same().profile().assert_full(900);
}

#[test]
fn the_program_replaced_after_the_run() {
    let place = tempfile::TempDir::new().expect("a temp directory");
    let copy = place.path().join("burn");
    copy_program(Program::nasty("burn.c").path(), &copy);
    let recorded = Program::at(&copy).arguments(["100"]).recorded();
    assert!(recorded.profile().percent_through(&["main", "outer", "inner"]) > 80.0);
    std::fs::remove_file(&copy).unwrap();
    std::fs::copy(Program::nasty("reads.c").path(), &copy).unwrap();
    let profile = recorded.profile();
    assert_eq!(profile.through(&["read_all"], "samples"), 0, "names of another program");
    std::fs::write(&copy, "no ELF at all").unwrap();
    recorded.profile();
    std::fs::remove_file(&copy).unwrap();
    recorded.profile();
}

#[test]
fn the_cache_of_tables() {
    let cache = callpath_end_to_end::tool_path("damaged-cache");
    let burn = Program::nasty("burn.c");
    let record = |measurement: &Path| {
        let mut command = std::process::Command::new(callpath_end_to_end::callpath());
        command.args(["record", "-o"]).arg(measurement).arg("--").arg(burn.path()).arg("60");
        command.env("CALLPATH_CACHE_DIR", &cache);
        let said = callpath_end_to_end::Ended::of(&command.output().expect("callpath can be run"));
        assert_eq!((said.status, said.stdout.as_str()), (0, "burnt, now return\n"), "{said:?}");
        let report = run_report(measurement, &["--json"]);
        assert_eq!(report.status, 0, "{report:?}");
        let profile = callpath_end_to_end::Profile::of_json(&report.stdout);
        profile.assert_sound();
        profile.assert_full(900);
    };
    let place = tempfile::TempDir::new().expect("a temp directory");
    record(&place.path().join("first"));
    let mut draw = numbers(42);
    for round in 0..8 {
        let mut damaged = 0;
        let mut directories = vec![cache.clone()];
        while let Some(directory) = directories.pop() {
            for entry in directory.read_dir().expect("the cache is a directory") {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    directories.push(path);
                    continue;
                }
                let mut bytes = std::fs::read(&path).unwrap();
                if bytes.is_empty() {
                    continue;
                }
                if round % 2 == 0 {
                    bytes.truncate(draw() as usize % bytes.len());
                } else {
                    for _ in 0..20 {
                        let at = draw() as usize % bytes.len();
                        bytes[at] ^= draw() as u8 | 1;
                    }
                }
                std::fs::write(&path, bytes).unwrap();
                damaged += 1;
            }
        }
        assert!(damaged > 0, "the cache holds nothing");
        record(&place.path().join(round.to_string()));
    }
    std::fs::remove_dir_all(&cache).unwrap();
}
