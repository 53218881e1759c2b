//! What others could do: read or replace what is written, lead it elsewhere, or act
//! on the terminal where a report is read.

use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use callpath_end_to_end::{C, Ended, Profile, Program, callpath, compiled, copy_program, is_root, run_report, skip};

/// Records a short program into `measurement` with this cache.
fn record(cache: &Path, measurement: &Path) -> Ended {
    let burn = compiled(C { source: "burn.c", output: "burn", options: &[] }).expect("burn.c compiles");
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "umask 0; exec \"$@\"", "sh"]).arg(callpath()).args(["record", "-o"]).arg(measurement);
    command.arg("--").arg(burn).arg("60").env("CALLPATH_CACHE_DIR", cache);
    command.env("TMPDIR", cache.parent().expect("a cache lies in a directory"));
    let said = Ended::of(&command.output().expect("callpath can be run"));
    assert_eq!((said.status, said.stdout.as_str()), (0, "burnt, now return\n"), "{said:?}");
    let report = run_report(measurement, &["--json"]);
    let profile = Profile::of_json(&report.stdout);
    profile.assert_sound();
    profile.assert_full(900);
    said
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = directory.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    all.sort();
    all
}

fn mode(path: &Path) -> u32 {
    path.symlink_metadata().unwrap().mode() & 0o7777
}

fn is(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|found| found == extension)
}

#[test]
fn what_is_written_is_the_users_alone() {
    let place = tempfile::TempDir::new().expect("a temp directory");
    let (cache, measurement) = (place.path().join("cache"), place.path().join("m"));
    record(&cache, &measurement);
    assert_eq!((mode(&cache), mode(&measurement)), (0o700, 0o700));
    let files = [entries(&cache), entries(&measurement)].concat();
    assert!(files.len() > 4, "{files:?}");
    for file in files {
        // The loader of any program may map the object, where it can come to it.
        let expected = if is(&file, "so") { 0o755 } else { 0o600 };
        assert_eq!(mode(&file) & !0o022, expected, "{}", file.display());
        assert!(is(&file, "so") || mode(&file) == expected, "{}", file.display());
    }
}

#[test]
fn links_are_not_followed() {
    let place = tempfile::TempDir::new().expect("a temp directory");
    let (cache, elsewhere) = (place.path().join("cache"), place.path().join("elsewhere"));
    record(&cache, &place.path().join("first"));
    std::fs::create_dir(&elsewhere).unwrap();
    let mut planted = Vec::new();
    for file in entries(&cache) {
        let target = elsewhere.join(file.file_name().unwrap());
        // Something precious of the user's own.
        std::fs::write(&target, "precious").unwrap();
        std::fs::remove_file(&file).unwrap();
        symlink(&target, &file).unwrap();
        planted.push((file, target));
    }
    record(&cache, &place.path().join("second"));
    for (file, target) in &planted {
        assert_eq!(std::fs::read_to_string(target).unwrap(), "precious", "{} was followed", file.display());
    }
    let replaced = planted.iter().filter(|(file, _)| file.symlink_metadata().unwrap().is_file()).count();
    assert!(replaced > 1, "nothing was kept anew");
    // A measurement's name that is a link, to a directory or to nowhere.
    let burn = Program::nasty("burn.c");
    for target in [elsewhere.clone(), place.path().join("nowhere")] {
        let link = place.path().join("link");
        symlink(&target, &link).unwrap();
        let mut command = Command::new(callpath());
        command
            .args(["record", "-o"])
            .arg(&link)
            .arg("--")
            .arg(burn.path())
            .arg("20")
            .env("CALLPATH_CACHE_DIR", &cache);
        let said = Ended::of(&command.output().expect("callpath can be run"));
        assert_eq!((said.status, said.stdout.as_str()), (125, ""), "{said:?}");
        std::fs::remove_file(&link).unwrap();
    }
    assert_eq!(entries(&elsewhere).len(), planted.len(), "something was written through a link");
}

#[test]
fn a_cache_that_others_may_write_to() {
    let place = tempfile::TempDir::new().expect("a temp directory");
    let cache = place.path().join("cache");
    std::fs::create_dir(&cache).unwrap();
    std::fs::set_permissions(&cache, std::fs::Permissions::from_mode(0o777)).unwrap();
    let said = record(&cache, &place.path().join("m"));
    assert!(said.stderr.contains("others may write to it"), "it is not said: {said:?}");
    // Whoever may write there could replace the object between our look and the loader's.
    assert_eq!(entries(&cache), Vec::<PathBuf>::new(), "something was put where others may replace it");
}

#[test]
fn a_cache_of_another_user() {
    if !is_root() {
        return skip("a_cache_of_another_user", "only root can make a file another user's");
    }
    const NOBODY: Option<u32> = Some(65534);
    let place = tempfile::TempDir::new().expect("a temp directory");
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let cache = place.path().join("cache");
    record(&cache, &place.path().join("first"));
    // Single files of another's in one's own cache: made again, whatever is in them.
    let whole = entries(&cache);
    for file in &whole {
        std::os::unix::fs::chown(file, NOBODY, NOBODY).unwrap();
    }
    record(&cache, &place.path().join("second"));
    let owners = whole.iter().filter(|file| !is(file, "memo")).map(|file| (file, file.metadata().unwrap().uid()));
    let believed: Vec<_> = owners.filter(|(_, owner)| *owner != 0).collect();
    assert!(believed.is_empty(), "another user's files were believed: {believed:?}");
    // The whole directory.
    std::os::unix::fs::chown(&cache, NOBODY, NOBODY).unwrap();
    for file in entries(&cache) {
        std::fs::remove_file(file).unwrap();
    }
    let said = record(&cache, &place.path().join("third"));
    assert!(said.stderr.contains("user 65534 owns it"), "it is not said: {said:?}");
    assert_eq!(entries(&cache), Vec::<PathBuf>::new());
}

/// No byte of an output may do anything on a terminal but be shown.
fn assert_harmless(said: &Ended, what: &str) {
    for (stream, text) in [("standard output", &said.stdout), ("standard error", &said.stderr)] {
        let acts = |c: char| (c.is_control() && c != '\n') || ('\u{202a}'..='\u{202e}').contains(&c);
        let line = text.lines().find(|line| line.chars().any(acts));
        assert_eq!(line, None, "{what}: {stream}");
    }
}

#[test]
fn names_do_not_act_on_a_terminal() {
    let escapes = compiled(C { source: "escapes.c", output: "escapes", options: &[] }).expect("escapes.c compiles");
    let place = tempfile::TempDir::new().expect("a temp directory");
    let name = std::ffi::OsString::from_vec(b"prog\x1b[2J\xc2\x9b1m\xe2\x80\xae\nred".to_vec());
    let (program, measurement) = (place.path().join(&name), place.path().join("m\x1b[31m"));
    copy_program(&escapes, &program);
    let cache = callpath_end_to_end::tool_path("cache");
    let mut command = Command::new(callpath());
    command.args(["record", "-o"]).arg(&measurement).arg("--").arg(&program).arg("argument\x1b]0;title\x07");
    let said = Ended::of(&command.env("CALLPATH_CACHE_DIR", cache).output().expect("callpath can be run"));
    assert_eq!((said.status, said.stdout.as_str()), (0, "named\n"), "{said:?}");
    assert_harmless(&said, "record");
    let views: [&[&str]; 8] = [
        &[],
        &["--view", "context", "--per-thread"],
        &["--view", "callers"],
        &["--view", "flat", "--lines"],
        &["--quality"],
        &["--json", "--per-thread"],
        &["--process", "no\x1b[31m such"],
        &["--width", "40", "--threshold", "0"],
    ];
    for options in views {
        assert_harmless(&run_report(&measurement, options), &format!("report {options:?}"));
    }
    let json = run_report(&measurement, &["--json"]).stdout;
    let profile = Profile::of_json(&json);
    // The names themselves are whole.
    assert!(profile.percent_through(&["red\u{1b}[31m", "single\u{9b}2J", "turned\u{202e}"]) > 50.0);
    let said = run_report(&place.path().join("none\x1b[31m"), &[]);
    assert!(said.status != 0, "{said:?}");
    assert_harmless(&said, "report of nothing");
    let mut command = Command::new(callpath());
    let said = Ended::of(&command.args(["record", "--", "/no/such\x1b[31m\nprogram"]).output().unwrap());
    assert_harmless(&said, "record of nothing");
    assert_eq!(said.stderr.lines().count(), 1, "{said:?}");
}
