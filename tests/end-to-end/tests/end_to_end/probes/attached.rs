//! Processes that run when callpath comes, and go on when it leaves.

use callpath_end_to_end::{Attached, Program, Running, is_root, skip};

/// What `crew asked` says of itself.
struct Crew {
    running: Running,
    leaf: u64,
    step: u64,
    /// The first bytes of its functions.
    bare: [Vec<u8>; 2],
}

/// As many threads may be between their entry and what they count of it.
const THREADS: u64 = 8;
const FUNCTIONS: [&str; 2] = ["crew!leaf", "crew!step"];

impl Crew {
    fn new() -> Self {
        Crew::that_is("")
    }

    /// One that has arranged something for itself (`arrange` in its source).
    fn that_is(arrangement: &str) -> Self {
        let mut running = Program::nasty("crew.c").arguments(["asked", arrangement]).started();
        let line = running.line();
        let words: Vec<&str> = line.split(' ').collect();
        let address = |at: usize| u64::from_str_radix(words[at].trim_start_matches("0x"), 16).expect("an address");
        let (leaf, step) = (address(1), address(3));
        let bare = [running.bytes(leaf, 64), running.bytes(step, 64)];
        Self { running, leaf, step, bare }
    }

    /// Calls so far, of leaf and step.
    fn calls(&mut self) -> [u64; 2] {
        let line = self.running.ask("count");
        let mut numbers = line.split(' ').map(|number| number.parse().expect("a number"));
        [numbers.next().expect("of leaf"), numbers.next().expect("of step")]
    }

    /// Waits until there have been so many more calls.
    fn goes_on(&mut self) {
        let [before, _] = self.calls();
        while self.calls()[0] < before + 200_000 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    fn attached(&self, options: &[&str]) -> Attached {
        self.attaching(options).until_probed(&self.running, self.leaf).until_probed(&self.running, self.step)
    }

    fn attaching(&self, options: &[&str]) -> Attached {
        Attached::to(self.running.pid(), &FUNCTIONS, options)
    }

    /// Its code is what it was, and the file's.
    #[track_caller]
    fn assert_untouched(&self) {
        let now = [self.running.bytes(self.leaf, 64), self.running.bytes(self.step, 64)];
        assert_eq!(now, self.bare, "the functions' bytes");
        let file = std::fs::read(format!("/proc/{}/exe", self.running.pid())).expect("it lives");
        for bytes in &self.bare {
            assert!(file.windows(bytes.len()).any(|window| window == bytes.as_slice()), "not the file's code");
        }
    }

    #[track_caller]
    fn assert_ends_well(self) {
        let ended = self.running.ended();
        assert!(ended.status == 7 && ended.stdout.ends_with("all is right\n"), "{ended:?}");
        assert_eq!(ended.stderr, "");
    }
}

#[test]
fn calls_between_two_moments() {
    for metric in ["calls", "wall-time"] {
        let mut crew = Crew::new();
        let before = crew.calls();
        let attached = crew.attached(&["-m", metric]);
        let begun = crew.calls();
        crew.goes_on();
        let over = crew.calls();
        let recorded = attached.detached();
        let after = crew.calls();
        assert_eq!(recorded.ended.status, 0, "{recorded:?}");
        crew.assert_untouched();
        let profile = recorded.profile();
        for (number, function) in ["leaf", "step"].into_iter().enumerate() {
            let counted = profile.calls_of(function);
            let least = over[number] - begun[number] - THREADS;
            let most = after[number] - before[number] + THREADS;
            assert!((least..=most).contains(&counted), "{function}: {counted} of {least} to {most}");
        }
        let paths = profile.calls(&["crew"]).into_values().next().expect("a process");
        // An activation of step that began unprobed is on the path all the same.
        assert_eq!(paths.keys().collect::<Vec<_>>(), ["goes_on;step", "goes_on;step;leaf"]);
        crew.goes_on();
        crew.assert_ends_well();
    }
}

#[test]
fn for_a_time() {
    let crew = Crew::new();
    let recorded = crew.attaching(&["--duration", "0.3"]).ended();
    assert_eq!(recorded.ended.status, 0, "{recorded:?}");
    assert!(recorded.profile().calls_of("leaf") > 0);
    crew.assert_untouched();
    crew.assert_ends_well();
}

fn again_and_again(rounds: u32) {
    let mut crew = Crew::new();
    for round in 0..rounds {
        let options: &[&str] = if round % 2 == 0 { &[] } else { &["-m", "wall-time"] };
        let attached = crew.attached(options);
        if round % 10 == 0 {
            crew.goes_on();
        }
        let recorded = attached.detached();
        let failed = recorded.ended.stderr.contains("failed");
        assert_eq!((recorded.ended.status, failed), (0, false), "round {round}: {recorded:?}");
        crew.assert_untouched();
        if round % 10 == 0 {
            crew.goes_on();
            assert!(recorded.profile().calls_of("leaf") > 0, "round {round}");
        }
    }
    crew.assert_ends_well();
}

#[test]
fn a_hundred_times() {
    again_and_again(100);
}

#[test]
#[ignore = "takes minutes: `cargo xtask test --long`"]
fn a_thousand_times() {
    again_and_again(1000);
}

/// The second one works, or says in a sentence why not; the first one's counts and the program are right.
#[test]
fn by_two_at_once() {
    let mut crew = Crew::new();
    let first = crew.attached(&[]);
    let before = crew.calls();
    let second = crew.attaching(&["--duration", "0.3"]).ended();
    crew.goes_on();
    let over = crew.calls();
    let recorded = first.detached();
    assert_eq!(recorded.ended.status, 0, "{recorded:?}");
    let counted = recorded.profile().calls_of("leaf");
    assert!(counted >= over[0] - before[0] - THREADS, "{counted} of {before:?} to {over:?}; {second:?}");
    if second.ended.status == 0 {
        assert!(second.profile().calls_of("leaf") > 0, "{second:?}");
    } else {
        assert!(second.ended.stderr.starts_with("callpath: failed to "), "{second:?}");
        assert!(!second.directory.exists(), "{second:?}");
    }
    crew.assert_untouched();
    crew.goes_on();
    crew.assert_ends_well();
}

/// Whoever leaves first.
#[test]
fn by_two_that_leave_in_the_order_in_which_they_came() {
    let mut crew = Crew::new();
    let first = crew.attached(&[]);
    let second = crew.attaching(&[]);
    // Until it has put its probes in, or was refused.
    std::thread::sleep(std::time::Duration::from_millis(500));
    crew.goes_on();
    let first = first.detached();
    assert_eq!(first.ended.status, 0, "{first:?}");
    crew.goes_on();
    let second = second.stopped();
    assert!(!second.ended.stderr.contains("panicked"), "{second:?}");
    crew.goes_on();
    crew.assert_untouched();
    crew.assert_ends_well();
}

#[test]
fn by_one_that_is_killed() {
    for metric in ["calls", "wall-time"] {
        let mut crew = Crew::new();
        let attached = crew.attached(&["-m", metric]);
        crew.goes_on();
        attached.signal("KILL");
        assert_eq!(attached.ended().ended.status, 137);
        crew.goes_on();
        crew.assert_ends_well();
    }
}

/// At any moment, too.
#[test]
fn by_one_that_is_killed_as_it_comes() {
    for wait_ms in (0..200).step_by(10) {
        let crew = Crew::new();
        let attached = crew.attaching(&["-q"]);
        std::thread::sleep(std::time::Duration::from_millis(wait_ms));
        attached.signal("KILL");
        assert_eq!(attached.ended().ended.status, 137);
        crew.assert_ends_well();
    }
}

/// Between any two of the requests by which it stops, changes and lets go the program, too.
#[test]
fn by_one_that_is_killed_between_two_requests() {
    killed_between_requests("by_one_that_is_killed_between_two_requests", 13);
}

#[test]
#[ignore = "takes minutes: `cargo xtask test --long`"]
fn by_one_that_is_killed_between_any_two_requests() {
    killed_between_requests("by_one_that_is_killed_between_any_two_requests", 1);
}

/// `each`: of so many requests, one is not made any more.
fn killed_between_requests(test: &str, each: usize) {
    const STRACE: &str = "/usr/bin/strace";
    if !std::path::Path::new(STRACE).exists() {
        skip(test, &format!("{STRACE} is not installed"));
        return;
    }
    for last in (each..).step_by(each) {
        let crew = Crew::new();
        let inject = format!("inject=ptrace:signal=KILL:when={last}");
        let strace = [STRACE, "-f", "-o", "/dev/null", "-e", "trace=ptrace", "-e", inject.as_str()];
        let options = ["-q", "--duration", "0.05"];
        let attached = Attached::through(&strace, crew.running.pid(), (&FUNCTIONS, &options)).ended();
        crew.assert_ends_well();
        match attached.ended.status {
            137 => {}
            // It makes fewer.
            0 if last > 100 => return,
            _ => panic!("request {last}: {attached:?}"),
        }
    }
}

#[test]
fn that_end_meanwhile() {
    let mut crew = Crew::new();
    let attached = crew.attached(&[]);
    crew.goes_on();
    crew.assert_ends_well();
    let recorded = attached.ended();
    assert_eq!(recorded.ended.status, 0, "{recorded:?}");
    assert!(recorded.profile().calls_of("leaf") > 0);
}

/// Probed, or told that it has ended; never anything else.
#[test]
fn that_end_as_callpath_comes() {
    for wait_ms in (0..150).step_by(6) {
        let crew = Crew::new();
        let attached = crew.attaching(&["-q"]);
        std::thread::sleep(std::time::Duration::from_millis(wait_ms));
        crew.assert_ends_well();
        let recorded = attached.ended();
        let said = &recorded.ended.stderr;
        match recorded.ended.status {
            0 => assert!(recorded.directory.is_dir(), "{recorded:?}"),
            125..=127 => {
                assert!(said.starts_with("callpath: failed to ") && said.lines().count() == 1, "{recorded:?}");
            }
            _ => panic!("{recorded:?}"),
        }
    }
}

/// Its memory stays in RAM, uses huge pages, may not become code: probed all the same, and with no more RAM than others.
#[test]
fn that_have_arranged_their_memory() {
    for arrangement in ["locked", "huge", "fixed"] {
        if arrangement == "locked" && !is_root() {
            skip("that_have_arranged_their_memory", "an ordinary user may not lock as much memory as callpath maps");
            continue;
        }
        let mut crew = Crew::that_is(arrangement);
        let before = crew.calls();
        let locked_kb = crew.running.status_kb("VmLck");
        let attached = crew.attached(&[]);
        crew.goes_on();
        // Our shared memory alone is longer, and private memory of each thread is not.
        let more_kb = crew.running.status_kb("VmLck") - locked_kb;
        assert!(more_kb < 64 << 10, "{arrangement}: {more_kb} kB more are locked");
        let recorded = attached.detached();
        assert_eq!(recorded.ended.status, 0, "{recorded:?}");
        let after = crew.calls();
        let counted = recorded.profile().calls_of("leaf");
        assert!(counted > 0 && counted <= after[0] - before[0] + THREADS, "{counted} of {before:?} to {after:?}");
        crew.assert_untouched();
        crew.assert_ends_well();
    }
}

/// What they lack is said, and they run on.
#[test]
fn that_may_have_no_more() {
    for (arrangement, said) in [("narrow", "ulimit -v"), ("few", "ulimit -n")] {
        let mut crew = Crew::that_is(arrangement);
        let recorded = crew.attaching(&["-q"]).ended();
        assert_eq!(recorded.ended.status, 125, "{recorded:?}");
        assert!(recorded.ended.stderr.contains(said), "{recorded:?}");
        assert!(!recorded.directory.exists(), "{recorded:?}");
        crew.goes_on();
        crew.assert_untouched();
        crew.assert_ends_well();
    }
}

/// A call for which there is no memory is counted as dropped.
#[test]
fn that_have_no_memory_for_what_threads_keep() {
    let mut crew = Crew::that_is("poor");
    let attached = crew.attached(&["-q"]);
    crew.goes_on();
    let recorded = attached.detached();
    assert_eq!(recorded.ended.status, 0, "{recorded:?}");
    let profile = recorded.profile();
    profile.assert_sound();
    assert!(profile.quality.dropped["no-memory"] >= 100_000, "{:?}", profile.quality);
    assert_eq!(profile.calls_of("leaf"), 0);
    crew.assert_untouched();
    crew.assert_ends_well();
}
