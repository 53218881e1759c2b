//! The shadow stack against programs that know their own call paths, and the walk against the shadow stack.
//! gcc compiles what is run: no module is needed that is not on every machine.

use std::collections::HashSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use callpath_oracle::exam::{Exam, Files};
use callpath_oracle::run::{Options, Ran, Recorder, run};
use callpath_oracle::score::Asked;
use callpath_oracle::truth::Paths;
use callpath_tables::recipes::RecipeOptions;

fn compile(compiler: &str, source: &str, options: &[&str], into: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(source);
    let program = into.join(format!("{}{}", source.file_stem().unwrap().display(), options.concat()));
    let status = Command::new(compiler).args(options).arg(&source).arg("-o").arg(&program).status().unwrap();
    assert!(status.success());
    program
}

fn quiet(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("LC_ALL", "C").stdout(Stdio::null());
    command
}

/// A line of the program's: the entry of the marking function, and what it says is on its path.
struct Mark {
    kind: String,
    pc: u64,
    path: Vec<u64>,
}

fn marks(text: &str) -> Vec<Mark> {
    let number = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).unwrap();
    let lines = text.lines().filter_map(|line| line.strip_prefix("mark "));
    lines
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            Mark {
                kind: words[0].to_owned(),
                pc: number(words[1]),
                path: words[2..].iter().map(|word| number(word)).collect(),
            }
        })
        .collect()
}

fn recorded(program: &Path, options: &Options, output: &Path) -> (Ran, Asked, Paths) {
    let mut command = quiet(program);
    command.stdout(File::create(output).unwrap());
    let mut recorder = Recorder::new(std::io::sink(), None).unwrap();
    let ran = run(command, options, &mut recorder).unwrap();
    let (asked, truths) = recorder.finish().unwrap();
    (ran, asked, truths)
}

/// Runs the program; what it says of its paths is true.
#[track_caller]
fn check_truth(program: &Path, options: &Options, expected_marks: usize) -> Vec<(u64, Vec<u64>)> {
    let output = program.with_extension("output");
    let (ran, asked, truths) = recorded(program, options, &output);
    assert_eq!(ran.status, Some(0));
    let marks = marks(&std::fs::read_to_string(output).unwrap());
    assert_eq!(marks.len(), expected_marks);
    let all: Vec<(u64, Vec<u64>)> =
        asked.scores(&truths, &truths).map(|scored| (scored.pc.0, scored.truth.to_vec())).collect();
    let mut seen = HashSet::new();
    // Of each place the first one is examined.
    for mark in marks.into_iter().filter(|mark| seen.insert(mark.pc)) {
        let (_, truth) = all.iter().find(|(pc, _)| *pc == mark.pc).expect("a snapshot of each mark");
        if mark.kind == "exact" {
            assert!(truth.starts_with(&mark.path), "{:x?} begins with {:x?}", truth, mark.path);
            // Beyond main there are no more than the C library and _start.
            assert!(truth.len() <= mark.path.len() + 3, "{:x?} is not much more than {:x?}", truth, mark.path);
        } else {
            let mut rest = truth.iter();
            let within = mark.path.iter().take_while(|own| rest.any(|t| t == *own)).count();
            // An alternate stack shows nothing beyond the interrupted instruction.
            let least = if mark.kind == "cut" { 3 } else { mark.path.len() };
            assert!(within >= least, "{:x?} is in {:x?}", mark.path, truth);
        }
    }
    all
}

#[test]
fn shadow_stack_is_what_programs_say_of_themselves() {
    let place = tempfile::tempdir().unwrap();
    for level in ["-O0", "-O2"] {
        let program = compile("gcc", "zoo.c", &[level], place.path());
        check_truth(&program, &Options::default(), 23);
        let program = compile("g++", "throws.cpp", &[level], place.path());
        check_truth(&program, &Options::default(), 5);
    }
}

#[test]
fn running_freely_gives_the_same_as_every_step() {
    let place = tempfile::tempdir().unwrap();
    let program = compile("gcc", "zoo.c", &["-O1"], place.path());
    let free = check_truth(&program, &Options::default(), 23);
    let stepped = check_truth(&program, &Options { every_step: true, ..Options::default() }, 23);
    assert!(free.len() > 5000);
    for (free, stepped) in free.iter().zip(&stepped) {
        assert_eq!(free, stepped);
    }
    assert_eq!(free.len(), stepped.len());
}

#[test]
fn walk_is_never_wrong() {
    let place = tempfile::tempdir().unwrap();
    let retpolines = ["-O2", "-mindirect-branch=thunk", "-fcf-protection=none"];
    // gcc's call frame information is wrong at the end of procedures that realign their frame.
    let realigned = ["-O2", "-mincoming-stack-boundary=3", "-frename-registers", "-Wl,--no-as-needed", "-lm"];
    let programs = [
        ("gcc", "zoo.c", &["-O2"][..]),
        ("g++", "throws.cpp", &["-O2"]),
        ("gcc", "zoo.c", &retpolines),
        ("gcc", "../exam/calc.c", &realigned),
    ];
    for (compiler, source, options) in programs {
        let program = compile(compiler, source, options, place.path());
        let exam = Exam { recipes: RecipeOptions::default(), shown: 3 };
        let files = Files { stream: place.path().join("kept.cpsnap"), truth: place.path().join("kept.txt") };
        let result = exam.of_program(quiet(&program), &Options::default(), Some(&files)).unwrap();
        let figures = result.report.all;
        assert_eq!(figures.wrong, 0, "{}", result.report);
        assert!(figures.exact > 5000 && figures.partial * 100 < figures.exact, "{}", result.report);
        let again = exam.of_files(&files).unwrap();
        assert_eq!(again.report.all, figures);
    }
}

#[test]
fn wrong_answers_are_seen() {
    let place = tempfile::tempdir().unwrap();
    let program = compile("gcc", "zoo.c", &["-O1"], place.path());
    let (_, asked, truths) = recorded(&program, &Options::default(), &place.path().join("output"));
    // A walk that takes one return address for another, at one place of all.
    let mut found = Paths::default();
    for (index, scored) in asked.scores(&truths, &truths).enumerate() {
        let path = scored.truth.iter().map(|address| address + u64::from(index == 4000));
        found.insert(scored.id, path.collect::<Vec<_>>());
    }
    let wrong = asked.scores(&found, &truths).filter(|scored| scored.found != scored.truth).count();
    assert_eq!(wrong, 1);
}
