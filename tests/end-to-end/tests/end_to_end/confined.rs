//! Where the kernel allows less: filters, name spaces, an ordinary user. Whole paths, the kernel's own time, and
//! one line that says where samples come from.

use std::process::{Command, Stdio};

use callpath_end_to_end::{C, Ended, Profile, Program, callpath, compiled, is_root, skip};

/// A prefix that runs a command under a filter which denies perf_event_open with this error.
pub(crate) fn filtered(error: &str) -> Vec<String> {
    let confined = C { source: "confined.c", output: "confined", options: &[] };
    let confined = compiled(confined).expect("confined.c compiles");
    vec![confined.display().to_string(), error.to_owned()]
}

/// Whether a command that sets up surroundings works here.
pub(crate) fn works(prefix: &[&str]) -> Result<(), String> {
    let mut command = Command::new(prefix[0]);
    command.args(&prefix[1..]).arg("true").stdin(Stdio::null());
    match command.output() {
        Ok(said) if said.status.success() => Ok(()),
        Ok(said) => Err(String::from_utf8_lossy(&said.stderr).trim().to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// What `record` says beside where the measurement is: the lines, without who speaks.
pub(crate) fn notes(said: &Ended) -> Vec<String> {
    let ours = said.stderr.lines().filter_map(|line| line.strip_prefix("callpath: "));
    ours.filter(|line| !line.starts_with("recorded to ")).map(str::to_owned).collect()
}

fn measured(prefix: &[&str]) -> (Profile, Vec<String>) {
    let program = Program::nasty("burn.c").arguments(["400"]).through(prefix);
    let (recorded, cost_ns) = program.same_with_rusage();
    let profile = recorded.profile();
    profile.assert_full(980);
    assert!(profile.percent_through(&["main", "outer", "inner"]) > 90.0);
    let total = profile.total("cpu-time");
    assert!(total.abs_diff(cost_ns) < cost_ns / 50 + 8_000_000, "{total} of {cost_ns}; {:?}", profile.quality);
    (profile, notes(&recorded.ended))
}

fn words(prefix: &[String]) -> Vec<&str> {
    prefix.iter().map(String::as_str).collect()
}

#[test]
fn a_filter_that_denies_the_kernels_clock() {
    for (error, reason) in [("EPERM", "Operation not permitted"), ("ENOSYS", "Function not implemented")] {
        let prefix = filtered(error);
        let (_, notes) = measured(&words(&prefix));
        let [note] = notes.as_slice() else { panic!("{error}: not one line: {notes:?}") };
        assert!(note.contains("samples come from a timer") && note.contains(reason), "{note}");
    }
}

#[test]
fn a_user_name_space() {
    let prefix = ["unshare", "--user", "--map-root-user"];
    if let Err(reason) = works(&prefix) {
        return skip("confined::a_user_name_space", &format!("user name spaces cannot be made here: {reason}"));
    }
    let (_, notes) = measured(&prefix);
    // Root of a name space has the kernel's clock only as far as kernel.perf_event_paranoid allows anybody.
    let allowed = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok();
    let allowed = allowed.and_then(|text| text.trim().parse::<i32>().ok()).unwrap_or(4);
    match (allowed, notes.as_slice()) {
        (..=1, []) => {}
        (2, [note]) => assert!(note.contains("user mode"), "{note}"),
        (3.., [note]) => assert!(note.contains("samples come from a timer"), "{note}"),
        _ => panic!("kernel.perf_event_paranoid is {allowed}: {notes:?}"),
    }
}

#[test]
fn name_spaces_of_processes_and_mounts() {
    let prefix: &[&str] = match is_root() {
        true => &["unshare", "--pid", "--fork", "--mount", "--mount-proc"],
        false => &["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount", "--mount-proc"],
    };
    if let Err(reason) = works(prefix) {
        let reason = format!("PID name spaces cannot be made here: {reason}");
        return skip("confined::name_spaces_of_processes_and_mounts", &reason);
    }
    let (_, notes) = measured(prefix);
    assert!(notes.len() <= 1 && notes.iter().all(|note| !note.contains("not measured")), "{notes:?}");
}

#[test]
fn an_ordinary_user_behind_a_filter() {
    if !is_root() {
        return skip("confined::an_ordinary_user_behind_a_filter", "the tests run as an ordinary user anyway");
    }
    let place = crate::ordinary_user::UserDirectory::new();
    let burn = place.copy(Program::nasty("burn.c").path()).display().to_string();
    let confined = place.copy(std::path::Path::new(&filtered("EPERM")[0])).display().to_string();
    let said = place.run_through(&[&confined, "EPERM"], &["record", "-o", "m", "--", &burn, "400", "exit"]);
    assert_eq!((said.status, said.stdout.as_str()), (3, "burnt, now exit\n"), "{said:?}");
    let notes = notes(&said);
    assert!(matches!(notes.as_slice(), [note] if note.contains("samples come from a timer")), "{notes:?}");
    let profile = place.profile("m");
    profile.assert_full(980);
    assert!(profile.percent_through(&["main", "outer", "inner"]) > 90.0);
}

#[test]
fn the_doctor_says_where_samples_come_from() {
    let confined = filtered("ENOSYS");
    let mut surroundings: Vec<Vec<&str>> = vec![vec![], words(&confined)];
    let name_space = vec!["unshare", "--user", "--map-root-user"];
    surroundings.extend(works(&name_space).is_ok().then_some(name_space));
    let ordinary = vec!["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all"];
    surroundings.extend(is_root().then_some(ordinary));
    let place = crate::ordinary_user::UserDirectory::new();
    let (program, command) = (place.copy(Program::nasty("burn.c").path()), place.copy(callpath()));
    // A user who may not read the tests' own directories gets copies.
    let confined_copy = place.copy(std::path::Path::new(&confined[0])).display().to_string();
    for (number, mut prefix) in surroundings.into_iter().enumerate() {
        if prefix.first() == Some(&confined[0].as_str()) {
            prefix[0] = &confined_copy;
        }
        let run = |arguments: &[&str]| {
            let mut line: Vec<&str> = prefix.clone();
            line.push(command.to_str().expect("a temp directory has a plain name"));
            line.extend(arguments);
            let mut run = Command::new(line[0]);
            let cache = place.path().join(format!("cache-{number}"));
            run.args(&line[1..]).current_dir(place.path()).env("CALLPATH_CACHE_DIR", cache);
            Ended::of(&run.output().expect("a command that works here"))
        };
        let said = run(&["doctor", "--json"]);
        assert_eq!(said.status, 0, "{prefix:?}: {said:?}");
        let json: serde_json::Value = serde_json::from_str(&said.stdout).expect("the doctor speaks JSON");
        let findings = json["machine"].as_array().expect("findings");
        for event in ["cpu-time", "wall-time"] {
            let measurement = format!("m-{number}-{event}");
            let recorded = run(&["record", "-e", event, "-o", &measurement, "--", program.to_str().unwrap(), "20"]);
            assert_eq!(recorded.status, 0, "{prefix:?}: {recorded:?}");
            let topic = format!("samples of {event}");
            let source = findings.iter().find(|finding| finding["topic"] == topic.as_str()).expect("the topic");
            match notes(&recorded).as_slice() {
                [] => assert_eq!(source["state"], "good", "{prefix:?}: {source}"),
                [note] => assert_eq!(source["found"], note.as_str(), "{prefix:?}"),
                more => panic!("{prefix:?}: not one line: {more:?}"),
            }
        }
    }
}
