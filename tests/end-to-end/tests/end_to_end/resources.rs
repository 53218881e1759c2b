//! What runs out: disk, directories, memory, address space, descriptors, lengths of files, threads. The program lives.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use callpath_end_to_end::{C, Ended, Program, callpath, compiled, is_root, run_report, skip, tool_path};

const LIMITS: C = C { source: "limits.c", output: "limits", options: &["-O1"] };

fn limits(mode: &str) -> Program {
    Program::compiled(LIMITS).arguments([mode])
}

/// The program allows itself 64 MiB.
fn limits_itself(mode: &str) {
    let recorded = limits(mode).same();
    assert!(recorded.ended.stdout.contains("executed: 67108864 67108864, room"), "{:?}", recorded.ended);
    let profile = recorded.profile();
    profile.assert_full(970);
    // Parent, thread and the program that the child executes work 20 million steps each.
    let each = profile.total("cpu-time") / 3;
    assert!(profile.through(&["space", "work"], "cpu-time") * 2 > each, "the parent");
    assert!(profile.through(&["works", "work"], "cpu-time") * 2 > each, "the thread");
    assert!(profile.processes().len() >= 2, "the executed program is not measured: {:?}", profile.processes());
}

#[test]
fn address_space_that_the_program_limits() {
    limits_itself("space");
}

#[test]
fn private_memory_that_the_program_limits() {
    limits_itself("data");
}

#[test]
fn address_space_limited_from_outside() {
    let limited = ["/bin/sh", "-c", "ulimit -S -v 100000; exec \"$@\"", "sh"];
    let recorded = limits("descriptors").through(&limited).same();
    recorded.profile().assert_full(970);
    // Nobody may raise this one: the windows are small then.
    if is_root() {
        let place = crate::ordinary_user::UserDirectory::new();
        let program = place.copy(limits("").path());
        let script = format!(
            "ulimit -v 150000; exec '{}' record -o m -- {} descriptors",
            place.path().join("callpath").display(),
            program.display()
        );
        let said = place.run_bare(&["/bin/sh", "-c", &script]);
        assert_eq!((said.status, said.stdout.lines().count()), (0, 2), "{said:?}");
        place.profile("m").assert_full(970);
    }
}

#[test]
fn memory_that_runs_out() {
    let recorded = limits("memory").same();
    assert_eq!(recorded.ended.stdout, "all of it\n");
    let profile = recorded.profile();
    profile.assert_full(970);
    assert!(profile.percent_through(&["main", "memory", "work"]) > 20.0);
}

#[test]
fn descriptors_and_lengths_of_files_that_the_program_limits() {
    for (mode, path) in [("descriptors", ["works", "work"]), ("files", ["files", "work"])] {
        let profile = limits(mode).same().profile();
        profile.assert_full(970);
        assert!(profile.percent_through(&path) > 25.0, "{mode}");
    }
}

#[test]
fn a_stack_of_a_gibibyte() {
    let profile = limits("stack").same().profile();
    // The first samples learn the stack: each of them is partial.
    let quality = &profile.quality;
    let throttled = quality.dropped.get("throttled").unwrap_or(&0);
    assert_eq!(quality.full + quality.partial + throttled, quality.taken, "{quality:?}");
    profile.assert_throttled_as_said();
    assert!(quality.full > 0, "{quality:?}");
    assert!(quality.partial * 10 < quality.taken, "{quality:?}");
    assert!(profile.depth() > 16_000, "{} frames", profile.depth());
}

#[test]
fn five_hundred_threads_at_once() {
    let profile = limits("at-once").same().profile();
    // On a busy machine a thread is often interrupted where our own code makes it: at most once each, for few of them.
    let in_collector = profile.quality.dropped.get("in-collector").copied().unwrap_or(0);
    assert!(in_collector <= 500 / 10, "{:?}", profile.quality);
    let walked = profile.quality.taken - in_collector;
    profile.assert_full(990 * walked / profile.quality.taken);
    assert!(profile.percent_through(&["meets", "work"]) > 50.0);
    assert_eq!(profile.quality.dropped.get("no-memory"), None, "{:?}", profile.quality);
}

#[test]
fn fifty_thousand_threads_in_turn() {
    let place = tempfile::TempDir::new().expect("a temp directory");
    let measurement = place.path().join("m.callpath");
    let program = compiled(LIMITS).expect("limits.c compiles");
    let mut recorder = started(&measurement, &[program.to_str().unwrap(), "in-turn", "50000"]);
    // Chunks of threads that have ended are used again: what is behind the arena is of those that live at once.
    let mut most = 0;
    while recorder.try_wait().expect("it can be waited for").is_none() {
        most = most.max(arena_bytes(recorder.id()));
        std::thread::sleep(Duration::from_millis(20));
    }
    let said = Ended::of(&recorder.wait_with_output().expect("it can be waited for"));
    assert_eq!((said.status, said.stdout.as_str()), (0, "50000 threads\n"), "{}", said.stderr);
    assert!((1..100_000_000).contains(&most), "{most} bytes behind the arena");
    let profile = profile(&measurement);
    assert_eq!(profile.quality.dropped.get("no-memory"), None, "{:?}", profile.quality);
    assert!(length(&measurement) < 2_000_000, "{} bytes for a few contexts", length(&measurement));
}

#[test]
fn lengths_of_files_limited_for_the_recorder() {
    let mirror = Program::nasty("mirror.c");
    let soft = ["/bin/sh", "-c", "ulimit -S -f 20; ulimit -S -n 60; ulimit -S -v 3000000; exec \"$@\"", "sh"];
    let (bare, recorded) = (mirror.clone().through(&soft).bare(), mirror.through(&soft).recorded());
    let limits =
        |said: &str| said.lines().filter(|line| line.starts_with("limit ")).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(limits(&bare.stdout), limits(&recorded.ended.stdout), "{:?}", recorded.ended);
    recorded.profile();
    if !is_root() {
        return skip("lengths_of_files_limited_for_the_recorder", "in part: only root can become an ordinary user");
    }
    // A limit that cannot be raised is reported before the program starts, and no signal ends the recorder.
    let place = crate::ordinary_user::UserDirectory::new();
    let burn = place.copy(Program::nasty("burn.c").path());
    let script = format!(
        "ulimit -f 20; exec '{}' record -o m -- {} 50",
        place.path().join("callpath").display(),
        burn.display()
    );
    let said = place.run_bare(&["/bin/sh", "-c", &script]);
    assert_eq!((said.status, said.stdout.as_str()), (125, ""), "{said:?}");
    assert!(said.stderr.contains("RLIMIT_FSIZE") && said.stderr.lines().count() == 1, "{said:?}");
}

#[test]
fn few_descriptors_for_the_recorder_and_many_processes() {
    let burn = compiled(C { source: "burn.c", output: "burn", options: &[] }).expect("burn.c compiles");
    let many = format!("for i in 1 2 3 4 5 6 7 8 9 10 11 12; do {} 30 & done; wait; echo all", burn.display());
    // Root could raise the limit again.
    let held = ["setpriv", "--bounding-set=-sys_resource", "--inh-caps=-sys_resource"];
    let limited = ["/bin/sh", "-c", "ulimit -n 16; exec \"$@\"", "sh"];
    let limited: Vec<&str> = held.iter().filter(|_| is_root()).chain(&limited).copied().collect();
    let recorded = Program::at("/bin/sh").arguments(["-c", &many]).through(&limited).same();
    assert!(recorded.profile().through(&["main", "outer", "inner"], "cpu-time") > 12 * 20_000_000);
}

#[test]
fn a_directory_that_vanishes() {
    let place = tempfile::TempDir::new().expect("a temp directory");
    let measurement = place.path().join("m.callpath");
    let burn = compiled(C { source: "burn.c", output: "burn", options: &[] }).expect("burn.c compiles");
    let mut recorder = started(&measurement, &[burn.to_str().unwrap(), "1500", "exit"]);
    wait_for(&mut recorder, || measurement.join("session").exists());
    std::fs::remove_dir_all(&measurement).unwrap();
    let said = Ended::of(&recorder.wait_with_output().expect("it can be waited for"));
    assert_eq!((said.status, said.stdout.as_str()), (3, "burnt, now exit\n"), "{}", said.stderr);
    let word = measurement.display().to_string();
    assert!(said.stderr.contains("failed to write") && said.stderr.contains(&word), "the loss is not said: {said:?}");
    assert_eq!(place.path().read_dir().unwrap().count(), 0);
}

#[test]
fn a_cache_that_cannot_be_written() {
    let place = tempfile::TempDir::new().expect("a temp directory");
    let burn = Program::nasty("burn.c");
    let mut command = Command::new(callpath());
    command.args(["record", "-o", "m", "--"]).arg(burn.path()).arg("60").current_dir(place.path());
    command.env("CALLPATH_CACHE_DIR", "/proc/self/no-cache").env("TMPDIR", place.path());
    let said = Ended::of(&command.output().expect("callpath can be run"));
    assert_eq!((said.status, said.stdout.as_str()), (0, "burnt, now return\n"), "{said:?}");
    assert!(said.stderr.contains("/proc/self/no-cache"), "it is not said: {said:?}");
    profile(&place.path().join("m")).assert_full(970);
}

/// A file system of 64 KiB; none where this user may not mount one.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new(test: &str) -> Option<SmallDisk> {
        let disk = tempfile::TempDir::new().expect("a temp directory");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64k", "callpath-test"]).arg(disk.path()).stderr(Stdio::null());
        if mount.status().is_ok_and(|status| status.success()) {
            return Some(SmallDisk(disk));
        }
        skip(test, "no file system can be mounted by this user here");
        None
    }

    fn fill(&self) -> PathBuf {
        let filler = self.0.path().join("filler");
        // It fails when the disk is full, which is what is wanted.
        let error = std::fs::write(&filler, vec![1; 1 << 20]).expect_err("64 KiB hold no mebibyte");
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
        filler
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let status = Command::new("umount").arg("-l").arg(self.0.path()).status();
        assert!(status.is_ok_and(|status| status.success()), "the small disk cannot be unmounted");
    }
}

#[test]
fn a_full_disk() {
    let Some(disk) = SmallDisk::new("a_full_disk") else { return };
    let burn = compiled(C { source: "burn.c", output: "burn", options: &[] }).expect("burn.c compiles");
    let burn = burn.to_str().unwrap();
    let measurement = disk.0.path().join("m.callpath");
    // Full in mid-run: what was written stays readable, and the loss is reported.
    const BURNT_MS: u64 = 2500;
    let mut recorder = started(&measurement, &[burn, &BURNT_MS.to_string(), "exit"]);
    wait_for_process_file(&mut recorder, &measurement);
    let filler = disk.fill();
    let said = Ended::of(&recorder.wait_with_output().expect("it can be waited for"));
    assert_eq!((said.status, said.stdout.as_str()), (3, "burnt, now exit\n"), "{}", said.stderr);
    assert!(said.stderr.contains("failed to write") && said.stderr.contains("No space left"), "{said:?}");
    let early = profile(&measurement);
    let early_ms = early.total("cpu-time") / 1_000_000;
    assert!(early.quality.full > 0 && early_ms < BURNT_MS, "{early_ms} of {BURNT_MS} ms: {:?}", early.quality);
    let names = measurement.read_dir().unwrap().map(|entry| entry.unwrap().file_name());
    assert!(!names.into_iter().any(|name| name.to_string_lossy().ends_with(".new")), "a file that was begun is left");
    // Full from the beginning.
    std::fs::remove_dir_all(&measurement).unwrap();
    std::fs::remove_file(filler).unwrap();
    std::fs::create_dir(&measurement).unwrap();
    disk.fill();
    let recorder = started(&measurement.join("m"), &[burn, "50", "exit"]);
    let said = Ended::of(&recorder.wait_with_output().expect("it can be waited for"));
    assert!([3, 125].contains(&said.status), "{said:?}");
    assert!(said.stderr.contains("No space left"), "{said:?}");
    // What can be read is called recorded, and nothing else is.
    let is_read = callpath_end_to_end::run_report(&measurement.join("m"), &[]).status == 0;
    assert_eq!(
        said.stderr.contains("recorded to") && !said.stderr.contains("nothing that can be read"),
        is_read,
        "{said:?}"
    );
}

#[test]
fn a_full_disk_that_has_room_again() {
    let Some(disk) = SmallDisk::new("a_full_disk_that_has_room_again") else { return };
    let burn = compiled(C { source: "burn.c", output: "burn", options: &[] }).expect("burn.c compiles");
    let measurement = disk.0.path().join("m.callpath");
    const BURNT_MS: u64 = 3000;
    let mut recorder = started(&measurement, &[burn.to_str().unwrap(), &BURNT_MS.to_string()]);
    wait_for_process_file(&mut recorder, &measurement);
    let filler = disk.fill();
    std::thread::sleep(Duration::from_millis(1200));
    std::fs::remove_file(filler).unwrap();
    let said = Ended::of(&recorder.wait_with_output().expect("it can be waited for"));
    assert_eq!(said.status, 0, "{said:?}");
    assert!(!said.stderr.contains("failed"), "nothing is lost in the end: {said:?}");
    let profile = profile(&measurement);
    profile.assert_full(970);
    assert!(profile.total("cpu-time") >= BURNT_MS * 1_000_000, "the end is missing: {:?}", profile.quality);
}

fn started(measurement: &Path, program: &[&str]) -> Child {
    let mut command = Command::new(callpath());
    command.args(["record", "-o"]).arg(measurement).arg("--").args(program);
    command.env("CALLPATH_CACHE_DIR", tool_path("cache")).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("callpath can be run")
}

/// Waits as long as the recorder runs, and no longer.
fn wait_for(recorder: &mut Child, is_there: impl Fn() -> bool) {
    while !is_there() {
        assert!(recorder.try_wait().expect("it is our child").is_none(), "the recorder ended before");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn wait_for_process_file(recorder: &mut Child, measurement: &Path) {
    let written = |name: &str| name.starts_with("process-0-") && !name.ends_with(".new");
    wait_for(recorder, || {
        let entries = measurement.read_dir().into_iter().flatten();
        entries.flatten().any(|entry| written(&entry.file_name().to_string_lossy()))
    });
}

fn profile(measurement: &Path) -> callpath_end_to_end::Profile {
    let said = run_report(measurement, &["--json"]);
    assert_eq!(said.status, 0, "{}", said.stderr);
    let profile = callpath_end_to_end::Profile::of_json(&said.stdout);
    profile.assert_sound();
    profile
}

fn length(directory: &Path) -> u64 {
    directory.read_dir().unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
}

/// Memory behind the arena of a recorder, bytes; 0 if it cannot be seen.
fn arena_bytes(recorder: u32) -> u64 {
    let descriptors = std::fs::read_dir(format!("/proc/{recorder}/fd"));
    let arena = descriptors.into_iter().flatten().flatten().find(|entry| {
        std::fs::read_link(entry.path()).is_ok_and(|name| name.to_string_lossy().starts_with("/memfd:callpath-arena"))
    });
    arena.and_then(|entry| std::fs::metadata(entry.path()).ok()).map_or(0, |found| found.blocks() * 512)
}

#[test]
fn a_directory_without_rights() {
    if !is_root() {
        return skip("a_directory_without_rights", "only root can become an ordinary user");
    }
    let place = crate::ordinary_user::UserDirectory::new();
    let burn = place.copy(Program::nasty("burn.c").path());
    let closed = place.path().join("closed");
    std::fs::create_dir(&closed).unwrap();
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o755)).unwrap();
    let inside = closed.join("m").display().to_string();
    let said = place.run(&["record", "-o", &inside, "--", burn.to_str().unwrap(), "50"]);
    assert_eq!((said.status, said.stdout.as_str()), (125, ""), "the program did not run: {said:?}");
    assert!(said.stderr.contains(&inside) && said.stderr.contains("-o"), "{said:?}");
}
