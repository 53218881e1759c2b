//! Samples from outside: of processes that run already, of programs that load no preloaded object, of the whole machine.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use callpath_end_to_end::{
    C, Ended, Profile, Program, callpath, compiled, copy_program, is_root, run_callpath, run_report, skip,
};

pub(crate) const OUTSIDE: C =
    C { source: "outside.c", output: "outside", options: &["-O1", "-fno-optimize-sibling-calls", "-pthread"] };
const NAPS: C = C { source: "naps.c", output: "naps", options: &["-O1", "-fno-optimize-sibling-calls", "-pthread"] };
const STATIC: C = C { source: "burn.c", output: "outside_static", options: &["-O2", "-static"] };

/// A program that runs without callpath; it ends with this.
pub(crate) struct Running {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Running {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().expect("a pipe")));
        Running { child, input, output }
    }

    pub(crate) fn nasty(arguments: &[&str]) -> Running {
        let program = compiled(OUTSIDE).expect("it compiles");
        let mut running = Running::start(Command::new(program).args(arguments));
        assert_eq!(running.line(), "ready");
        running
    }

    pub(crate) fn pid(&self) -> String {
        self.child.id().to_string()
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("it says something");
        line.trim_end().to_owned()
    }

    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.input.as_mut().expect("it listens"), "{line}").expect("it listens");
    }

    /// What the kernel shows of it that a visitor could have changed.
    fn traces(&self) -> [Vec<String>; 4] {
        let of = |what: &str| PathBuf::from(format!("/proc/{}/{what}", self.child.id()));
        let names = |what: &str| {
            let mut names: Vec<String> =
                std::fs::read_dir(of(what)).unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into()).collect();
            names.sort();
            names
        };
        let lines = |what: &str| std::fs::read_to_string(of(what)).unwrap().lines().map(str::to_owned).collect();
        let mut status: Vec<String> = lines("status");
        status.retain(|line| {
            ["TracerPid", "SigPnd", "SigBlk", "SigIgn", "SigCgt", "Shd", "Seccomp", "NoNewPrivs"]
                .iter()
                .any(|name| line.starts_with(name))
        });
        [names("task"), names("fd"), lines("maps"), status]
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A recording under way.
pub(crate) struct Attached {
    pub(crate) recorder: Child,
    place: tempfile::TempDir,
}

impl Attached {
    pub(crate) fn to(words: &[&str]) -> Attached {
        let place = tempfile::tempdir().expect("room");
        let mut command = Command::new(callpath());
        command.args(["record", "-o", "m"]).args(words).current_dir(place.path()).stderr(Stdio::piped());
        let recorder = command.spawn().expect("callpath starts");
        let attached = Attached { recorder, place };
        // The session is written when the samples have begun.
        let begun = Instant::now();
        while !attached.directory().join("session").exists() {
            assert!(begun.elapsed() < Duration::from_secs(60), "it does not begin");
            std::thread::sleep(Duration::from_millis(5));
        }
        attached
    }

    fn directory(&self) -> PathBuf {
        self.place.path().join("m")
    }

    pub(crate) fn profile(&self, options: &[&str]) -> Profile {
        profile(&self.directory(), options)
    }

    /// Waits until it has so many samples.
    pub(crate) fn until(&self, samples: u64) {
        self.until_all(|profile| profile.total("samples") >= samples);
    }

    /// Waits until what was measured so far is as wanted.
    fn until_all(&self, is_so: impl Fn(&Profile) -> bool) {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(60) {
            let ended = run_report(&self.directory(), &["--json"]);
            if ended.status == 0 && is_so(&Profile::of_json(&ended.stdout)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        panic!("what is waited for does not come");
    }

    /// Ends it, as Ctrl-C does.
    pub(crate) fn interrupt(&mut self) -> Ended {
        let pid = self.recorder.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().expect("kill is there").success());
        self.ended()
    }

    pub(crate) fn ended(&mut self) -> Ended {
        let mut stderr = String::new();
        std::io::Read::read_to_string(&mut self.recorder.stderr.take().expect("a pipe"), &mut stderr).expect("text");
        let status = self.recorder.wait().expect("it ends").code().unwrap_or(-1);
        Ended { status, stdout: String::new(), stderr }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        drop(self.recorder.kill());
        drop(self.recorder.wait());
    }
}

/// Whether this machine lets a user sample processes of their own from outside.
pub(crate) fn is_allowed(test: &str) -> bool {
    static ALLOWED: LazyLock<bool> = LazyLock::new(|| {
        let own = std::process::id().to_string();
        run(&["record", "-q", "-p", &own, "--duration", "0.01"]).0.status == 0
    });
    if !*ALLOWED {
        skip(test, "perf_event_open is refused");
    }
    *ALLOWED
}

/// Whether callpath can have the kernel run a program at each sample: as root, where processes have the kernel's own numbers.
pub(crate) fn may_load_programs() -> bool {
    use std::os::unix::fs::MetadataExt;
    /// The inode of the first name space of process numbers.
    const FIRST: u64 = 0xeffffffc;
    let is_first = std::fs::metadata("/proc/self/ns/pid").is_ok_and(|file| file.ino() == FIRST);
    // The program's loader needs the types of the kernel's own records.
    is_root() && is_first && Path::new("/sys/kernel/btf/vmlinux").exists()
}

#[track_caller]
pub(crate) fn profile(directory: &Path, options: &[&str]) -> Profile {
    let ended = run_report(directory, &[&["--json"], options].concat());
    assert_eq!(ended.status, 0, "{ended:?}");
    let profile = Profile::of_json(&ended.stdout);
    profile.assert_sound();
    profile
}

pub(crate) fn run(words: &[&str]) -> (Ended, tempfile::TempDir) {
    let place = tempfile::tempdir().expect("room");
    (run_callpath(place.path(), words), place)
}

#[test]
fn threads_that_are_there_and_those_that_come() {
    if !is_allowed("threads_that_are_there_and_those_that_come") {
        return;
    }
    let mut running = Running::nasty(&["3", "20"]);
    let before = running.traces();
    let mut attached = Attached::to(&["-p", &running.pid()]);
    attached.until(200);
    running.tell("another");
    assert_eq!(running.line(), "one more");
    attached.until_all(|profile| profile.through(&["later", "work"], "samples") >= 50);
    assert_eq!(attached.interrupt().status, 0);
    let profile = attached.profile(&[]);
    profile.assert_full(990);
    // Three threads have run all the time, and one since it began.
    assert!(profile.through(&["down", "work"], "samples") > profile.through(&["later", "work"], "samples"));
    let [threads, descriptors, maps, status] = running.traces();
    assert_eq!((threads.len(), &descriptors, &status), (before[0].len() + 1, &before[1], &before[3]));
    // A stack and perhaps an arena for the thread that has come.
    assert!(maps.len() <= before[2].len() + 6, "{maps:?}");
}

/// The kernel shows no memory map by the process's number then.
#[test]
fn a_process_whose_first_thread_has_ended() {
    if !is_allowed("a_process_whose_first_thread_has_ended") {
        return;
    }
    let mut running = Running::nasty(&["2", "20"]);
    running.tell("leave");
    assert_eq!(running.line(), "left");
    let map = format!("/proc/{}/maps", running.pid());
    while std::fs::read(&map).is_ok_and(|map| !map.is_empty()) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut attached = Attached::to(&["-p", &running.pid()]);
    attached.until(100);
    let ended = attached.interrupt();
    assert!(ended.status == 0 && !ended.stderr.contains("not sampled"), "{ended:?}");
    let profile = attached.profile(&[]);
    profile.assert_full(990);
    assert!(profile.percent_through(&["down", "work"]) > 95.0, "{:?}", profile.of_kind("procedure"));
}

/// Waits that had begun before, that begin and end meanwhile, and that go on at the end.
#[test]
fn what_threads_wait_for() {
    if !is_allowed("what_threads_wait_for") {
        return;
    }
    let mut running = Running::start(Command::new(compiled(NAPS).expect("it compiles")).arg("1000000"));
    assert_eq!(running.line(), "ready");
    let mut attached = Attached::to(&["-p", &running.pid(), "-e", "wall-time,cpu-time"]);
    attached.until_all(|profile| profile.through(&["naps"], "samples") >= 100);
    assert_eq!(attached.interrupt().status, 0);
    let profile = attached.profile(&[]);
    profile.assert_full(950);
    let wall = |path: &[&str]| profile.through(path, "wall-time");
    let [waits, naps, holds] = [&["waits_for_good", "pause"][..], &["naps"], &["holds"]].map(wall);
    let [wants, works] = [&["wants"][..], &["work"]].map(wall);
    // The first thread naps with the lock, without it, and works; the second wants the lock; the third waits all the time.
    let (first, all) = (naps + works, profile.total("wall-time"));
    assert!(
        waits > 0 && first * 10 > waits * 8 && first * 10 < waits * 12,
        "{waits} and {naps} + {works}: {profile:?}"
    );
    assert!(holds * 3 > first && holds < first && wants * 4 > holds, "{holds} of {first}, {wants}: {profile:?}");
    assert!(all * 10 > waits * 28 && all * 10 < waits * 32, "{all} of {waits}: {profile:?}");
    // Who waits uses no processor.
    assert!(profile.total("cpu-time") * 2 < first, "{profile:?}");
    assert_eq!(profile.through(&["waits_for_good"], "cpu-time"), 0);
}

/// A static program that is started, and one that a measured program starts: what they sleep.
#[test]
fn static_programs_that_wait() {
    if !is_allowed("static_programs_that_wait") {
        return;
    }
    let waits = C { source: "naps.c", output: "naps_static", options: &["-O1", "-static", "-pthread"] };
    let waits = compiled(waits).expect("it compiles").display().to_string();
    let script = format!("'{waits}' 20 < /dev/null");
    for words in [vec![waits.as_str(), "20"], vec!["/bin/sh", "-c", &script]] {
        let (ended, place) = run(&[&["record", "-e", "wall-time", "-o", "m"], &words[..]].concat());
        assert_eq!(ended.status, 4, "{ended:?}");
        let profile = profile(&place.path().join("m"), &[]);
        // 20 rounds of 10 and 5 milliseconds.
        let naps = profile.through(&["naps"], "wall-time");
        assert!(naps >= 295_000_000, "{words:?}: {naps}: {profile:?}");
        // Paths are whole from when the pages of a large frame have been looked at, which happens ten times a second.
        let whole = profile.through(&["main", "naps"], "wall-time");
        assert!(whole * 2 > naps, "{words:?}: {whole} of {naps}: {profile:?}");
        assert!(profile.through(&["waits_for_good"], "wall-time") * 10 > naps * 9, "{words:?}: {profile:?}");
    }
}

#[test]
fn children_and_programs_that_it_executes() {
    if !is_allowed("children_and_programs_that_it_executes") {
        return;
    }
    let burn = Program::nasty("burn.c").path().display().to_string();
    let script = format!("read x; '{burn}' 300; exec '{burn}' 200");
    for no_children in [false, true] {
        let mut running = Running::start(Command::new("/bin/sh").args(["-c", &script]));
        let options: &[&str] = if no_children { &["--no-children"] } else { &[] };
        let pid = running.pid();
        let mut attached = Attached::to(&[&["-p", &pid], options].concat());
        running.tell("go");
        let ended = attached.ended();
        assert_eq!(ended.status, 0, "{ended:?}");
        let profile = attached.profile(&[]);
        profile.assert_full(970);
        let burning = profile.processes().iter().filter(|(name, _)| name.contains("burn")).count();
        assert_eq!(burning, if no_children { 1 } else { 2 }, "{:?}", profile.processes());
        assert!(profile.percent_through(&["main", "outer", "inner"]) > 80.0, "{profile:?}");
    }
}

#[test]
fn a_process_whose_file_is_gone() {
    if !is_allowed("a_process_whose_file_is_gone") {
        return;
    }
    let place = tempfile::tempdir().expect("room");
    let copy = place.path().join("copy");
    copy_program(&compiled(OUTSIDE).expect("it compiles"), &copy);
    let mut running = Running::start(Command::new(&copy).args(["1", "5"]));
    assert_eq!(running.line(), "ready");
    std::fs::remove_file(&copy).expect("it is there");
    let mut attached = Attached::to(&["-p", &running.pid()]);
    attached.until(200);
    attached.interrupt();
    attached.profile(&[]).assert_full(990);
    // It has the name that it had, with nothing of the kernel's behind it.
    attached.profile(&["--process", "copy"]).assert_full(990);
}

#[test]
fn a_process_with_another_root_directory() {
    if !is_allowed("a_process_with_another_root_directory") {
        return;
    }
    if !is_root() {
        return skip("a_process_with_another_root_directory", "chroot is for root");
    }
    let place = tempfile::tempdir().expect("room");
    copy_program(&compiled(STATIC).expect("it compiles"), &place.path().join("burn"));
    let running = Running::start(Command::new("chroot").arg(place.path()).args(["/burn", "60000"]));
    std::thread::sleep(Duration::from_millis(300));
    let mut attached = Attached::to(&["-p", &running.pid()]);
    attached.until(200);
    attached.interrupt();
    let profile = attached.profile(&[]);
    profile.assert_full(990);
    assert!(profile.percent_through(&["main", "outer", "inner"]) > 90.0, "{profile:?}");
}

#[test]
fn a_recorder_that_is_killed_leaves_no_trace() {
    if !is_allowed("a_recorder_that_is_killed_leaves_no_trace") {
        return;
    }
    let running = Running::nasty(&["2", "5"]);
    let before = running.traces();
    let mut attached = Attached::to(&["-p", &running.pid()]);
    attached.until(500);
    drop(attached.recorder.kill());
    drop(attached.recorder.wait());
    assert!(attached.profile(&[]).total("samples") >= 500);
    assert_eq!(running.traces(), before);
}

#[test]
fn to_come_and_to_go_changes_nothing() {
    if !is_allowed("to_come_and_to_go_changes_nothing") {
        return;
    }
    come_and_go(30);
}

#[test]
#[ignore = "takes minutes: `cargo xtask test --long`"]
fn to_come_and_to_go_a_thousand_times_changes_nothing() {
    if is_allowed("to_come_and_to_go_a_thousand_times_changes_nothing") {
        come_and_go(1000);
    }
}

/// Attaches to a busy program again and again.
fn come_and_go(rounds: usize) {
    let running = Running::nasty(&["2", "5"]);
    let before = running.traces();
    for _ in 0..rounds {
        let (ended, _place) = run(&["record", "-q", "-p", &running.pid(), "--duration", "0.01"]);
        assert_eq!(ended.status, 0, "{ended:?}");
    }
    assert_eq!(running.traces(), before);
}

#[test]
fn what_cannot_be_attached_to_is_said() {
    if !is_allowed("what_cannot_be_attached_to_is_said") {
        return;
    }
    let mut gone = Command::new("/bin/true").spawn().expect("it starts");
    gone.wait().expect("it ends");
    let running = Running::nasty(&["1", "1"]);
    let (gone, pid) = (gone.id().to_string(), running.pid());
    for (words, why) in [
        (&["-p", &gone][..], "there is no such process"),
        (&["-p", &pid, "-e", "page-faults"], "is sampled from outside, by cpu-time and wall-time alone"),
        (&["-p", &pid, "--outside=never"], "is sampled from outside; leave it out"),
        (&["-p", "many"], "invalid value 'many'"),
        (&["-p", &pid, "/bin/true"], "cannot be used with"),
        (&["--duration", "1", "/bin/true"], "recording ends with the program"),
        (&["--no-children", "/bin/true"], "is for -p PID"),
    ] {
        let (ended, place) = run(&[&["record"], words].concat());
        assert!(ended.status != 0 && ended.stderr.contains(why), "{words:?}: {ended:?}");
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0, "{words:?} leaves a directory");
    }
    let [threads, ..] = running.traces();
    let thread = threads.iter().find(|thread| **thread != pid).expect("it has two");
    let (ended, _place) = run(&["record", "-p", thread]);
    assert!(ended.stderr.contains(&format!("it is a thread of process {pid}")), "{ended:?}");
    if std::fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n") {
        let (ended, _place) = run(&["record", "-p", "2"]);
        assert!(ended.stderr.contains("a thread of the kernel"), "{ended:?}");
    }
    if is_root() {
        let place = tempfile::tempdir().expect("room");
        let other = place.path().join("callpath");
        copy_program(callpath(), &other);
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(place.path(), open).expect("our own");
        let words = ["--reuid=65534", "--regid=65534", "--clear-groups"];
        let mut command = Command::new("setpriv");
        command.args(words).arg(&other).args(["record", "-p", &pid]).current_dir(place.path());
        let output = command.env_remove("CALLPATH_CACHE_DIR").output().expect("setpriv is there");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("belongs to another user"), "{said}");
    }
}

#[test]
fn static_programs_are_started_and_sampled() {
    if !is_allowed("static_programs_are_started_and_sampled") {
        return;
    }
    let program = Program::at(compiled(STATIC).expect("it compiles")).arguments(["300", "exit"]);
    let recorded = program.same();
    assert!(recorded.ended.stderr.contains("sampled from outside: it is statically linked"), "{:?}", recorded.ended);
    let profile = recorded.profile();
    profile.assert_full(990);
    assert!(profile.percent_through(&["main", "outer", "inner"]) > 90.0, "{profile:?}");
    // What is needed from inside is refused before it begins.
    for (options, why) in
        [(&["-e", "page-faults"][..], "by cpu-time and wall-time alone"), (&["--exact=paths"], "statically linked")]
    {
        let refused = program.clone().options(options).recorded();
        assert!(refused.ended.status == 126 || refused.ended.status == 125, "{options:?}: {:?}", refused.ended);
        assert!(
            refused.ended.stderr.contains(why) && refused.ended.stdout.is_empty(),
            "{options:?}: {:?}",
            refused.ended
        );
    }
}

/// The kernel takes all events from a program that gains privileges when it is executed.
#[test]
fn programs_that_gain_privileges() {
    if !is_allowed("programs_that_gain_privileges") {
        return;
    }
    if !is_root() {
        return skip("programs_that_gain_privileges", "only root may sample them");
    }
    let place = tempfile::tempdir().expect("room");
    std::fs::set_permissions(place.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("our own");
    let dynamic = Program::nasty("burn.c").path().to_owned();
    for (name, from) in [("static", compiled(STATIC).expect("it compiles")), ("dynamic", dynamic)] {
        let copy = place.path().join(name);
        copy_program(&from, &copy);
        std::os::unix::fs::chown(&copy, Some(65534), Some(65534)).expect("for root");
        std::fs::set_permissions(&copy, std::os::unix::fs::PermissionsExt::from_mode(0o4755)).expect("for root");
        // Started by callpath; executed by a process that is sampled already.
        let started = Program::at(&copy).arguments(["1200"]).same().profile();
        let script = format!("read x; exec '{}' 1200", copy.display());
        let mut running = Running::start(Command::new("/bin/sh").args(["-c", &script]));
        let mut attached = Attached::to(&["-p", &running.pid()]);
        running.tell("go");
        let ended = attached.ended();
        assert_eq!(ended.status, 0, "{ended:?}");
        for profile in [started, attached.profile(&[])] {
            let of_it: Vec<u64> =
                profile.processes().iter().filter(|(its, _)| its == name).map(|(_, ns)| *ns).collect();
            // Until callpath samples it anew, a look of its own apart, there are no samples: 100 ms on a busy machine.
            assert!(of_it.len() == 1 && of_it[0] > 900_000_000, "{name}: {:?}", profile.processes());
            profile.assert_full(970);
            assert!(profile.percent_through(&["main", "outer", "inner"]) > 50.0, "{name}: {profile:?}");
        }
    }
}

#[test]
fn static_programs_that_a_measured_one_starts() {
    if !is_allowed("static_programs_that_a_measured_one_starts") {
        return;
    }
    let burn = compiled(STATIC).expect("it compiles").display().to_string();
    let inside = Program::nasty("burn.c").path().display().to_string();
    // The second shell is replaced by the program; the third is one that has no environment.
    let script = format!("'{burn}' 200; (exec '{burn}' 200); env -i '{inside}' 200; '{inside}' 200");
    let profile = Program::at("/bin/sh").arguments(["-c", &script]).same().profile();
    let mut burning = profile.processes();
    burning.retain(|(name, _)| name.contains("burn") || name.contains("outside_static"));
    assert_eq!(burning.len(), 4, "{burning:?}");
    assert!(burning.iter().all(|(_, ns)| *ns > 100_000_000), "{burning:?}");
    assert!(profile.percent_through(&["main", "outer", "inner"]) > 80.0, "{profile:?}");
}

#[test]
fn the_whole_machine() {
    if !is_allowed("the_whole_machine") {
        return;
    }
    if !is_root() {
        return skip("the_whole_machine", "only root samples all processes");
    }
    let running = Running::nasty(&["1", "5"]);
    let burn = Program::nasty("burn.c").path().display().to_string();
    let place = tempfile::tempdir().expect("room");
    let ended = run_callpath(place.path(), ["record", "-q", "-a", "-o", "m", "--", &burn, "500", "exit"]);
    assert_eq!((ended.status, ended.stdout.as_str()), (3, "burnt, now exit\n"), "{ended:?}");
    let profile = profile(&place.path().join("m"), &[]);
    let names = profile.names();
    // Both the program that was typed and the other one.
    assert!(names.contains("inner") && names.contains("down"), "{names:?}");
    drop(running);
}

/// What all processes wait for, those that wait already when it begins too; the kernel's own threads, which have no call paths, are left out.
#[test]
fn what_the_whole_machine_waits_for() {
    if !is_allowed("what_the_whole_machine_waits_for") {
        return;
    }
    if !is_root() {
        return skip("what_the_whole_machine_waits_for", "only root samples all processes");
    }
    let mut sleeper = Command::new("sleep").arg("1000").spawn().expect("coreutils are there");
    // It sleeps once it has begun to.
    std::thread::sleep(Duration::from_millis(200));
    let rests = Program::nasty("rests.c").path().display().to_string();
    let place = tempfile::tempdir().expect("room");
    // Waits whose records the kernel had no room for are missing, which is said.
    let mut recorded = (0..20).map(|attempt| {
        let name = if attempt == 0 { "m".to_owned() } else { format!("m{attempt}") };
        let words = ["record", "-a", "-e", "off-cpu", "-o", &name, "--", &rests, "40"];
        (run_callpath(place.path(), words), place.path().join(&name))
    });
    let (ended, directory) =
        recorded.find(|(ended, _)| !ended.stderr.contains("samples were lost")).expect("a recording that lost nothing");
    sleeper.kill().expect("it sleeps");
    sleeper.wait().expect("it was there");
    assert_eq!(ended.status, 0, "{ended:?}");
    let profile = profile(&directory, &[]);
    let [slept, rested] = [&["process:sleep", "clock_nanosleep"][..], &["process:rests", "sleeps"]]
        .map(|path| profile.through(path, "off-cpu"));
    // It has rested for 400 ms at least, and the sleeper as long as all that lasted.
    assert!(rested >= 380_000_000 && slept >= rested, "{slept} {rested}");
    assert!(profile.through(&["process:rests", "works"], "cpu-time") > 0);
    assert_eq!(profile.through(&["process:kthreadd"], "wall-time"), 0, "{profile:?}");
}

/// A control group: a container or a service. Who comes into it is sampled, who is not in it is not.
#[test]
fn a_control_group_alone() {
    if !is_allowed("a_control_group_alone") {
        return;
    }
    if !is_root() {
        return skip("a_control_group_alone", "only root samples all processes");
    }
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("it is there");
    let mounted = mounts.lines().filter_map(|line| line.split(' ').nth(1).zip(line.split(' ').nth(2)));
    let root = mounted.filter(|(_, kind)| *kind == "cgroup2").map(|(root, _)| root.to_owned()).next();
    let name = format!("callpath-test-{}", std::process::id());
    let group = root.map(|root| std::path::PathBuf::from(root).join(&name));
    let Some(group) = group.filter(|group| std::fs::create_dir(group).is_ok()) else {
        return skip("a_control_group_alone", "no control group can be made here");
    };
    let rests = Program::nasty("rests.c").path().display().to_string();
    let place = tempfile::tempdir().expect("room");
    let joins = format!("echo $$ > {}/cgroup.procs && exec {rests} 60", group.display());
    let mut within = Command::new("sh").args(["-c", &format!("sleep 0.4; {joins}")]).spawn().expect("sh is there");
    // Running all the while.
    let other = Running::nasty(&["1", "5"]);
    let of_group =
        |words: &[&str]| run_callpath(place.path(), [&["record", "-q", "-a", "-e", "off-cpu"], words].concat());
    let ended = of_group(&["-o", "m", "--cgroup", &name, "--duration", "2"]);
    assert!(within.wait().expect("it was there").success());
    drop(other);
    assert_eq!(ended.status, 0, "{ended:?}");
    let profile = profile(&place.path().join("m"), &["--merge-processes"]);
    let slept = profile.through(&["sleeps"], "off-cpu");
    assert!(slept >= 570_000_000, "{slept}: {profile:?}");
    assert!(!profile.names().contains("down"), "of a process that is not in it: {:?}", profile.names());
    assert!(profile.through(&["works"], "cpu-time") > 0);
    // What its processes are shown as, and what one that was measured from inside is not.
    let by_group = self::profile(&place.path().join("m"), &["--per-container"]);
    let called: Vec<String> = by_group.processes().into_iter().map(|(called, _)| called).collect();
    assert_eq!(called, [name.as_str()], "{by_group:?}");
    let text = run_report(&place.path().join("m"), &["--per-container"]).stdout;
    assert!(text.contains(&name), "{text}");
    assert_eq!(run_callpath(place.path(), ["record", "-q", "-o", "inside", "/bin/true"]).status, 0);
    let refused = run_report(&place.path().join("inside"), &["--per-container"]);
    assert!(refused.status != 0 && refused.stderr.contains("no control groups are known"), "{refused:?}");
    // By its directory; and one that is not there.
    let ended = of_group(&["-o", "n", "--cgroup", &group.display().to_string(), "--", "/bin/true"]);
    assert!(ended.stderr.contains("nothing was measured: no process of the control group ran"), "{ended:?}");
    let ended = of_group(&["-o", "none", "--cgroup", "callpath-test-none", "--", "/bin/true"]);
    assert!(ended.status == 125 && ended.stderr.contains("there is no such control group"), "{ended:?}");
    std::fs::remove_dir(&group).expect("nobody is in it");
}

/// Threads that end before a period has passed are never hit: how much they have used is known all the same.
#[test]
fn the_time_of_short_threads_is_accounted_for() {
    if !is_allowed("the_time_of_short_threads_is_accounted_for") {
        return;
    }
    // Each works for 0.4 ms by its own clock, and a sample is taken each millisecond. What they have done since the last look at the
    // process's clock, a tenth of a second before its end, is missing.
    let program = Program::nasty("crowd.c").arguments(["threads", "3000", "400"]);
    let recorded = program.options(&["--outside"]).recorded();
    let profile = recorded.profile();
    assert!(profile.total("cpu-time") > 600_000_000, "{profile:?}");
    // Most of what they did was in no sample. The thread that makes them has samples of its own, the more, the busier the machine is.
    let json: serde_json::Value =
        serde_json::from_str(&run_report(&recorded.directory, &["--json"]).stdout).expect("JSON");
    let nodes = json["nodes"].as_array().expect("nodes");
    let cpu_ns = |node: &serde_json::Value| node["inclusive"][0].as_u64().expect("nanoseconds");
    let gap = nodes.iter().find(|node| node["kind"] == "gap").expect("what was not sampled");
    let threads = &nodes[gap["parent"].as_u64().expect("its threads") as usize];
    assert!(cpu_ns(gap) * 2 > cpu_ns(threads), "{gap} of {threads}");
}
