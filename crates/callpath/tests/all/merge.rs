//! `callpath merge` where inputs, disks and descriptors are not as one would wish: what it says, and that nothing half is left.

use crate::measurement;

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use callpath_db::database::Database;
use callpath_db::{Metric, NodeId, Profile, Scope, ScopeKind};
use measurement::measurement;

/// A directory with the database `one` of so many procedures, each called by the one before.
fn with_one(procedures: u64) -> (tempfile::TempDir, PathBuf) {
    let mut profile = Profile::new(vec![Metric::sum("cost", "count")]);
    let mut node = NodeId::ROOT;
    for number in 0..procedures {
        let name = profile.strings.intern(&format!("procedure_{number}"));
        node = profile.tree.child(node, Scope::new(ScopeKind::Procedure, name));
        profile.tree.add(node, &[number * 1_000_003 + 1]);
    }
    let directory = tempfile::tempdir().unwrap();
    let one = directory.path().join("one");
    fs::write(&one, profile.to_database().unwrap()).unwrap();
    (directory, one)
}

fn callpath() -> Command {
    Command::new(env!("CARGO_BIN_EXE_callpath"))
}

/// The merge of an input, named so many times, into `output`.
fn begun(input: &Path, times: usize, output: &Path) -> Child {
    let mut command = callpath();
    command.arg("merge").args(std::iter::repeat_n(input, times)).arg("-o").arg(output);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until a merge has its handlers of signals, and an input in its memory.
fn wait_until_it_reads(merge: &Child, input: &Path) {
    let said = |file: &str| fs::read_to_string(format!("/proc/{}/{file}", merge.id())).unwrap_or_default();
    let input = input.to_str().unwrap();
    while !said("maps").contains(input) {
        assert!(Path::new(&format!("/proc/{}/exe", merge.id())).exists(), "it ended before");
        std::thread::sleep(Duration::from_millis(1));
    }
    let caught = said("status").lines().find_map(|line| line.strip_prefix("SigCgt:").map(|set| set.trim().to_owned()));
    let caught = u64::from_str_radix(&caught.unwrap(), 16).unwrap();
    assert_ne!(caught >> (libc::SIGINT - 1) & 1, 0);
}

/// The same in a shell, after `before`.
fn after(before: &str, inputs: &[&Path], output: &Path) -> Output {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{before}; exec \"$@\""), "sh", env!("CARGO_BIN_EXE_callpath"), "merge"]);
    command.args(inputs).arg("-o").arg(output).output().unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn listed(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn ten_thousand_inputs_need_few_descriptors() {
    let (directory, one) = with_one(3);
    let measured: Vec<tempfile::TempDir> = (0..80).map(|_| measurement(2, true)).collect();
    let mut inputs = vec![&*one; 9_920];
    inputs.extend(measured.iter().map(tempfile::TempDir::path));
    let all = directory.path().join("all");
    let output = after("ulimit -n 64", &inputs, &all);
    assert!(output.status.success(), "{}", err(&output));
    let database = Database::open(&all).unwrap();
    assert_eq!((database.runs().len(), database.profiles().len()), (10_000, 9_920 + 160));
    let sum = |metric: &str| -> u64 {
        let metric = database.metrics().iter().position(|m| m.name == metric).unwrap() as u32;
        let columns = database.profiles().iter().flat_map(|profile| &profile.columns);
        columns.filter(|column| column.metric == metric).map(|column| column.total).sum()
    };
    assert_eq!((sum("cost"), sum("cpu-time")), (9_920 * (3 + 3 * 1_000_003), 160_000_000));
    assert_eq!(listed(directory.path()), ["all", "one"]);
}

#[test]
fn a_merge_that_ends_early_leaves_nothing() {
    let (directory, one) = with_one(2_000);
    for (signal, status) in [(libc::SIGKILL, None), (libc::SIGINT, Some(130)), (libc::SIGTERM, Some(143))] {
        let child = begun(&one, 5_000, &directory.path().join("all"));
        wait_until_it_reads(&child, &one);
        // SAFETY: our own child, which was not waited for.
        unsafe { libc::kill(child.id() as i32, signal) };
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), status, "{}", err(&output));
        match status {
            None => assert_eq!(output.status.signal(), Some(signal)),
            Some(_) => assert_eq!(err(&output), "callpath: interrupted; nothing was written\n"),
        }
        assert_eq!(listed(directory.path()), ["one"]);
    }
}

#[test]
fn an_output_that_is_there_stays() {
    let (directory, one) = with_one(3);
    let before = fs::read(&one).unwrap();
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(&one, &link).unwrap();
    let output = after("true", &[&one, &one], &link);
    let expected = format!(
        "callpath: failed to write {}: it is an input, too ({}); name a new file\n",
        link.display(),
        one.display()
    );
    assert_eq!((output.status.code(), err(&output)), (Some(1), expected));
    let other = directory.path().join("other");
    fs::write(&other, "theirs").unwrap();
    let output = after("true", &[&one, &one], &other);
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("other: it is there already, and nothing is overwritten"), "{}", err(&output));
    assert_eq!((fs::read(&one).unwrap(), fs::read(&other).unwrap()), (before, b"theirs".to_vec()));
}

#[test]
fn a_file_that_may_not_grow_is_named() {
    let (directory, one) = with_one(2_000);
    let all = directory.path().join("all");
    let output = after("ulimit -f 8", &[&one, &one], &all);
    assert_eq!(
        (output.status.code(), err(&output)),
        (
            Some(1),
            format!(
                "callpath: failed to write {}: File too large; nothing of it is left. Raise the limit (ulimit -f), or name a file on another disk\n",
                all.display()
            )
        )
    );
    // The database of a measurement, which is written first.
    let measured = measurement(300, true);
    let output = after("ulimit -f 8", &[measured.path(), &one], &all);
    let expected = format!("callpath: failed to write a temporary file in {}; ", directory.path().display());
    assert!(err(&output).starts_with(&expected) && err(&output).ends_with(": File too large\n"), "{}", err(&output));
    assert_eq!(listed(directory.path()), ["one"]);
}

#[test]
fn a_disk_that_fills_is_named_and_nothing_is_left_on_it() {
    let (directory, one) = with_one(2_000);
    let disk = directory.path().join("disk");
    fs::create_dir(&disk).unwrap();
    let script = "mount -t tmpfs -o size=64k tmpfs \"$1\" 2>&1 || exit 99
        \"$2\" merge \"$3\" \"$3\" -o \"$1/all\"; echo status $?; ls -A \"$1\"; df --output=used \"$1\" | tail -n1";
    let mut command = Command::new("unshare");
    command.args(["-rm", "sh", "-c", script, "sh"]).arg(&disk).arg(env!("CARGO_BIN_EXE_callpath")).arg(&one);
    let output = command.output().unwrap();
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.code() == Some(99) || err(&output).starts_with("unshare:") {
        println!("skipped: no file system can be mounted here: {out}{}", err(&output));
        return;
    }
    let expected = format!(
        "callpath: failed to write {}/all: No space left on device; nothing of it is left. Free some room, or name a file on another disk\n",
        disk.display()
    );
    assert_eq!(err(&output), expected);
    assert_eq!(out.split_whitespace().collect::<Vec<_>>(), ["status", "1", "0"]);
}

#[test]
fn an_input_that_is_cut_while_it_is_read_ends_the_merge_with_a_sentence() {
    let (directory, one) = with_one(20_000);
    let child = begun(&one, 5_000, &directory.path().join("all"));
    wait_until_it_reads(&child, &one);
    File::options().write(true).open(&one).unwrap().set_len(4096).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{:?} {}", output.status, err(&output));
    assert!(err(&output).starts_with(&format!("callpath: failed to read {}: it ", one.display())), "{}", err(&output));
    assert_eq!(listed(directory.path()), ["one"]);
}

#[test]
fn what_was_merged_is_said_as_json_too() {
    let (directory, one) = with_one(3);
    let all = directory.path().join("all");
    let output = callpath().arg("merge").args([&one, &one]).arg("--json").arg("-o").arg(&all).output().unwrap();
    assert_eq!((output.status.code(), err(&output).as_str()), (Some(0), ""));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let expected = serde_json::json!({
        "schema": 1, "kind": "merge", "file": all.to_str().unwrap(), "runs": 2, "profiles": 2, "contexts": 4, "values": 6,
        "len_bytes": fs::metadata(&all).unwrap().len(),
    });
    assert_eq!(json, expected);
}

#[test]
fn what_is_in_no_database_is_said() {
    let (directory, one) = with_one(3);
    let one = one.to_str().unwrap();
    let pipe = directory.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let cases: [(&[&str], &str); 5] = [
        (&["debug", "contexts", one], "is a database, whose contexts are of names"),
        (&["report", "--pack", one], "has names, lines and loops already"),
        (&["annotate", "procedure_1", one, "--asm"], "has none, an earlier callpath merged it"),
        (&["report", pipe.to_str().unwrap()], "there is no file `session` in it"),
        (&["report", "/proc/self/status"], "neither a measurement, which is a directory, nor a database"),
    ];
    for (words, expected) in cases {
        let output = callpath().args(words).output().unwrap();
        assert_eq!((output.status.code(), &*output.stdout), (Some(1), &b""[..]), "{words:?}");
        assert!(err(&output).contains(expected), "{words:?}: {}", err(&output));
    }
}

/// What a merged file answers by itself is what the same file without its views answers, which is loaded.
#[test]
fn a_report_of_the_mapped_file_is_that_of_the_loaded_tree() {
    let directory = tempfile::tempdir().unwrap();
    let (one, all) = (directory.path().join("one"), directory.path().join("all"));
    let mut profile = Profile::new(vec![Metric::sum("cost", "count"), Metric::max("peak", "bytes")]);
    let name = profile.strings.intern("app");
    let process = profile.tree.child(NodeId::ROOT, Scope::process(name, 0, 7));
    for thread in 0..3 {
        let scope = Scope { discriminator: thread, ..Scope::new(ScopeKind::Thread, name) };
        let mut node = profile.tree.child(process, scope);
        for step in 0..40 {
            let name = profile.strings.intern(&format!("procedure_{}", (step * step + thread) % 23));
            let kind =
                [ScopeKind::Procedure, ScopeKind::Line, ScopeKind::Procedure, ScopeKind::Loop, ScopeKind::Inlined];
            let scope = Scope { line: Some(step as u32), ..Scope::new(kind[step as usize % 5], name) };
            node = profile.tree.child(node, Scope { file: Some(name), ..scope });
            profile.tree.add(node, &[1 + step * 1_000_003 % 17, step]);
        }
    }
    fs::write(&one, profile.to_database().unwrap()).unwrap();
    let output = after(":", &[&one], &all);
    assert!(output.status.success(), "{}", err(&output));
    let loaded = Database::open(&all).and_then(|all| all.to_profile()).unwrap().to_database().unwrap();
    // Of the same name in another directory: it is in the page.
    let elsewhere = tempfile::tempdir().unwrap();
    let without_views = elsewhere.path().join("all");
    fs::write(&without_views, loaded).unwrap();
    assert!(fs::metadata(&without_views).unwrap().len() < fs::metadata(&all).unwrap().len());
    let pages: [&[&str]; 10] = [
        &[],
        &["--view", "context", "--threshold", "0"],
        &["--view", "callers", "--threshold", "20"],
        &["--view", "flat"],
        &["--inlines", "--all", "--depth", "7"],
        &["--recursion", "collapse", "--view", "callers"],
        &["--lines"],
        &["--per-thread"],
        &["--focus", "procedure_20"],
        &["--quality"],
    ];
    for options in pages {
        let report =
            |place: &Path| callpath().args(["report", "all"]).args(options).current_dir(place).output().unwrap();
        let (mapped, loaded) = (report(directory.path()), report(elsewhere.path()));
        assert!(mapped.status.success(), "{}", err(&mapped));
        assert_eq!(String::from_utf8_lossy(&mapped.stdout), String::from_utf8_lossy(&loaded.stdout), "{options:?}");
    }
}
