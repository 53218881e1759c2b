//! Ends of every kind: what was taken until then is in the files.

use callpath_end_to_end::{Program, run_report};

fn ends(how: &str, status: i32) {
    let (recorded, cost_ns) = Program::nasty("burn.c").arguments(["400", how]).same_with_rusage();
    assert_eq!(recorded.ended.status, status, "{how}");
    let profile = recorded.profile();
    profile.assert_full(990);
    let total = profile.total("cpu-time");
    assert!(total.abs_diff(cost_ns) < cost_ns / 50 + 15_000_000, "{how}: {total} of {cost_ns}");
    assert!(profile.percent_through(&["main", "outer", "inner"]) > 90.0, "{how}");
}

#[test]
fn by_return_and_exit() {
    ends("return", 0);
    ends("exit", 3);
}

#[test]
fn by_exit_without_handlers() {
    ends("_exit", 4);
    ends("quick_exit", 5);
}

#[test]
fn by_abort() {
    ends("abort", 128 + 6);
}

#[test]
fn by_sigkill() {
    ends("kill", 128 + 9);
}

#[test]
fn by_other_signals() {
    ends("term", 128 + 15);
    ends("segv", 128 + 11);
}

#[test]
fn the_program_itself_killed() {
    let recorded = Program::nasty("burn.c").arguments(["300", "kill"]).same();
    assert_eq!(recorded.ended.status, 137);
    recorded.profile().assert_full(980);
}

#[test]
fn read_while_it_runs() {
    let program = Program::nasty("burn.c");
    let directory = tempfile::TempDir::new().expect("a temp directory");
    let measurement = directory.path().join("m.callpath");
    let mut command = std::process::Command::new(callpath_end_to_end::callpath());
    // Longer than it takes to see it grow, however busy the machine is; it is ended then.
    command.args(["record", "-o"]).arg(&measurement).arg("--").arg(program.path()).arg("120000");
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let mut child = command.spawn().expect("callpath can be run");
    let mut seen: Vec<u64> = vec![];
    while child.try_wait().expect("it can be waited for").is_none() {
        if seen.iter().collect::<std::collections::BTreeSet<_>>().len() > 2 {
            let told = std::process::Command::new("/bin/kill").arg(child.id().to_string()).status();
            assert!(told.expect("kill can be run").success());
            child.wait().expect("it can be waited for");
            break;
        }
        if measurement.is_dir() {
            let said = run_report(&measurement, &["--json"]);
            assert!(said.status < 100, "{said:?}");
            if said.status == 0 {
                let profile = callpath_end_to_end::Profile::of_json(&said.stdout);
                profile.assert_sound();
                seen.push(profile.quality.taken);
            }
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert!(seen.is_sorted(), "samples got lost: {seen:?}");
    let mut different = seen.clone();
    different.dedup();
    assert!(different.len() > 2, "it was never seen to grow: {seen:?}");
}
