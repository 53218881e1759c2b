//! `callpath install`: shells complete, and `man` renders every page without a warning.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn callpath(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_callpath")).args(words).output().unwrap()
}

/// An installation, and the files that it named.
fn installed() -> (tempfile::TempDir, Vec<PathBuf>) {
    let directory = tempfile::tempdir().unwrap();
    let output = callpath(&["install", "--prefix", directory.path().to_str().unwrap()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let files: Vec<PathBuf> = String::from_utf8(output.stdout).unwrap().lines().map(PathBuf::from).collect();
    (directory, files)
}

/// Whether a command is there. If not, a test says so.
fn is_there(command: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {command}")]).output().unwrap().status.success();
    if !found {
        println!("skipped: there is no {command}");
    }
    found
}

/// What bash completes the last word to.
fn completed(share: &Path, words: &[&str]) -> Vec<String> {
    let script = r#"source "$0/bash-completion/completions/callpath"
        how=$(complete -p callpath) || exit 1
        function=${how#*-F }; function=${function%% *}
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
        "$function" callpath "${@: -1}" "${@: -2:1}"
        printf '%s\n' "${COMPREPLY[@]}""#;
    let output = Command::new("bash").args(["-c", script]).arg(share).args(words).output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && err.is_empty(), "{err}");
    String::from_utf8(output.stdout).unwrap().lines().map(String::from).collect()
}

#[test]
fn bash_completes_commands_options_and_values() {
    let (directory, _) = installed();
    let share = directory.path().join("share");
    assert_eq!(completed(&share, &["callpath", "re"]), ["record", "report"]);
    assert_eq!(completed(&share, &["callpath", "report", "--vi"]), ["--view"]);
    assert_eq!(completed(&share, &["callpath", "report", "--view", "c"]), ["context", "callers", "contexts"]);
    assert_eq!(completed(&share, &["callpath", "debug", "rec"]), ["recipes"]);
    assert_eq!(completed(&share, &["callpath", "export", "--format", "fl"]), ["flamegraph"]);
    // What the help hides is not offered: perf's options, commands of our own.
    let offered = completed(&share, &["callpath", "record", "--"]);
    assert!(offered.contains(&"--event".into()) && !offered.contains(&"--call-graph".into()), "{offered:?}");
    assert_eq!(completed(&share, &["callpath", "debug", "bu"]), [""]);
}

#[test]
fn what_is_installed_is_what_a_shell_is_told() {
    let (directory, _) = installed();
    let share = directory.path().join("share");
    for (shell, file) in [
        ("bash", "bash-completion/completions/callpath"),
        ("zsh", "zsh/site-functions/_callpath"),
        ("fish", "fish/vendor_completions.d/callpath.fish"),
    ] {
        let printed = callpath(&["completions", shell]).stdout;
        assert_eq!(fs::read(share.join(file)).unwrap(), printed, "{shell}");
        if is_there(shell) {
            let parsed = Command::new(shell).arg("-n").arg(share.join(file)).output().unwrap();
            assert!(parsed.status.success(), "{shell}: {}", String::from_utf8_lossy(&parsed.stderr));
        }
    }
}

#[test]
fn every_command_has_a_page_that_renders_without_a_warning() {
    let (directory, files) = installed();
    let pages: Vec<&PathBuf> = files.iter().filter(|file| file.extension().is_some_and(|e| e == "1")).collect();
    for command in ["callpath", "callpath-record", "callpath-merge", "callpath-debug-contexts"] {
        let page = directory.path().join(format!("share/man/man1/{command}.1"));
        assert!(pages.contains(&&page), "{pages:?}");
    }
    assert!(!pages.iter().any(|page| page.ends_with("callpath-debug-busy.1")));
    for page in pages {
        if is_there("man") {
            let man = Command::new("man").args(["--warnings", "-l"]).arg(page).env("MANPAGER", "cat").output().unwrap();
            let (out, err) = (String::from_utf8_lossy(&man.stdout), String::from_utf8_lossy(&man.stderr));
            assert!(man.status.success() && err.is_empty(), "{}: {err}", page.display());
            assert!(out.contains("NAME") && out.contains("callpath"), "{out}");
        }
        if is_there("mandoc") {
            let lint = Command::new("mandoc").args(["-T", "lint", "-W", "error"]).arg(page).output().unwrap();
            assert!(lint.status.success(), "{}", String::from_utf8_lossy(&lint.stdout));
        }
    }
}

#[test]
fn an_installation_takes_the_place_of_an_older_one_for_everybody() {
    use std::os::unix::fs::PermissionsExt;
    let (directory, files) = installed();
    let prefix = directory.path().to_str().unwrap();
    fs::write(&files[0], "older").unwrap();
    let output = callpath(&["install", "--prefix", prefix, "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let named = json["files"].as_array().unwrap().iter().map(|file| PathBuf::from(file.as_str().unwrap()));
    assert!(named.eq(files.iter().cloned()) && json["schema"] == 1 && json["kind"] == "install", "{json}");
    assert!(fs::read(&files[0]).unwrap().len() > 1000);
    assert_eq!(fs::metadata(&files[0]).unwrap().permissions().mode() & 0o444, 0o444);
}

#[test]
fn users_get_theirs_below_their_home() {
    // Root's would go to /usr/local.
    let home = tempfile::tempdir().unwrap();
    fs::set_permissions(home.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let script = "exec setpriv --reuid 65534 --clear-groups env -u XDG_DATA_HOME HOME=\"$1\" \"$0\" install";
    let output =
        Command::new("sh").args(["-c", script, env!("CARGO_BIN_EXE_callpath")]).arg(home.path()).output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() && !err.starts_with("callpath: ") {
        println!("skipped: no other user here: {err}");
        return;
    }
    assert!(output.status.success(), "{err}");
    assert!(home.path().join(".local/share/man/man1/callpath.1").is_file());
    assert!(err.contains(".local/share/zsh/site-functions)"), "{err}");
}
