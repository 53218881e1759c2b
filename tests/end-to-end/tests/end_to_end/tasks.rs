//! Limits of processes and threads (`ulimit -u`, a cgroup's `pids.max`): the program gets what there
//! is, and the recorder does without threads.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use callpath_end_to_end::{Ended, Profile, Program, is_root, run_report, skip};

use crate::ordinary_user::UserDirectory;

/// What `burn 60 _exit` ends with.
const OWN_STATUS: i32 = 4;

/// A recording of `burn` behind a prefix that sets a limit, with nothing in the
/// cache; and where its measurement will be.
fn limited(place: &UserDirectory, prefix: &[&str], arguments: [&str; 2]) -> (Command, PathBuf) {
    let program = place.copy(Program::nasty("burn.c").path());
    let own = tempfile::Builder::new().tempdir_in(place.path()).expect("a directory").keep();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(&own, open).expect("one's own directory can be opened to all");
    let measurement = own.join("m");
    let mut command = Command::new(prefix[0]);
    command.args(&prefix[1..]).arg(place.path().join("callpath")).args(["record", "-o"]).arg(&measurement);
    command.arg("--").arg(program).args(arguments).current_dir(&own);
    command.env("HOME", &own).env("CALLPATH_CACHE_DIR", own.join("cache"));
    (command, measurement)
}

fn run(place: &UserDirectory, prefix: &[&str]) -> (Ended, PathBuf) {
    let (mut command, measurement) = limited(place, prefix, ["60", "_exit"]);
    (Ended::of(&command.output().expect("what sets the limit can be run")), measurement)
}

/// As a user whom no other test takes: the kernel counts all of a user's processes.
fn at_most(most: u32) -> Vec<String> {
    let user =
        ["setpriv", "--reuid=65531", "--regid=65531", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"];
    user.map(str::to_owned).into_iter().chain(["prlimit".to_owned(), format!("--nproc={most}")]).collect()
}

fn is_whole(ended: &Ended, measurement: &Path) {
    assert_eq!((ended.status, ended.stdout.as_str()), (OWN_STATUS, "burnt, now _exit\n"), "{ended:?}");
    assert!(!ended.stderr.contains("panicked"), "{ended:?}");
    let said = run_report(measurement, &["--json"]);
    assert_eq!(said.status, 0, "{said:?}");
    let profile = Profile::of_json(&said.stdout);
    profile.assert_sound();
    profile.assert_full(900);
    // By samples: the kernel divides CPU time by where its ticks find the program, and 60 ms have few of them.
    assert!(profile.through(&["main", "outer"], "samples") * 2 > profile.total("samples"), "{profile:?}");
}

/// callpath itself was the last that could be started.
fn is_refused(ended: &Ended) {
    assert_eq!(ended.status, 126, "{ended:?}");
    assert!(ended.stderr.contains("failed to run") && !ended.stderr.contains("panicked"), "{ended:?}");
}

#[test]
fn few_processes_for_the_user() {
    if !is_root() {
        return skip("tasks::few_processes_for_the_user", "becoming another user takes root");
    }
    let place = UserDirectory::new();
    for most in 1..=7 {
        let prefix = at_most(most);
        let (ended, measurement) = run(&place, &prefix.iter().map(String::as_str).collect::<Vec<_>>());
        match most {
            1 => is_refused(&ended),
            _ => is_whole(&ended, &measurement),
        }
    }
    // Without a thread for them, signals are handed on all the same.
    let prefix = at_most(3);
    let prefix: Vec<&str> = prefix.iter().map(String::as_str).collect();
    let (mut command, measurement) = limited(&place, &prefix, ["600000", "return"]);
    let mut recorder = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("setpriv can be run");
    let pid = recorder.id().to_string();
    let children = format!("/proc/{pid}/task/{pid}/children");
    let has_child = || std::fs::read_to_string(&children).is_ok_and(|children| !children.is_empty());
    while !(has_child() && measurement.join("session").exists()) {
        assert!(recorder.try_wait().expect("it is our child").is_none(), "it has ended before it was told to");
        std::thread::sleep(Duration::from_millis(10));
    }
    Command::new("kill").args(["-TERM", &pid]).status().expect("kill can be run");
    let ended = Ended::of(&recorder.wait_with_output().expect("it can be waited for"));
    assert_eq!(ended.status, 128 + 15, "{ended:?}");
}

/// A control group of this test's own.
struct Group(PathBuf);

impl Group {
    fn new() -> Option<Group> {
        let name = format!("callpath-test-{}", std::process::id());
        // Where the first version counts tasks, and where the second does.
        let groups = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"].map(|root| Path::new(root).join(&name));
        groups.into_iter().find_map(|group| {
            std::fs::create_dir(&group).ok()?;
            let group = Group(group);
            group.0.join("pids.max").exists().then_some(group)
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        drop(std::fs::remove_dir(&self.0));
    }
}

#[test]
fn few_tasks_for_the_group() {
    let Some(group) = Group::new() else {
        return skip("tasks::few_tasks_for_the_group", "no control group that counts tasks can be made here");
    };
    let place = UserDirectory::new();
    let script = format!("echo $$ > '{}' && exec \"$@\"", group.0.join("cgroup.procs").display());
    for most in 1..=4 {
        std::fs::write(group.0.join("pids.max"), most.to_string()).expect("a limit can be set");
        let (ended, measurement) = run(&place, &["/bin/sh", "-c", &script, "sh"]);
        match most {
            1 => is_refused(&ended),
            _ => is_whole(&ended, &measurement),
        }
    }
}
