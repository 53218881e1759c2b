//! Wall time of activations: a function that sleeps takes that long at least, and never more than has passed.

use callpath_end_to_end::{Profile, Program, Recorded};

fn takes(functions: &[&str]) -> (Recorded, Profile, u64) {
    let recorded = Program::nasty("takes.c").options(&["-m", "wall-time"]).same_probed(functions);
    assert_eq!(recorded.ended.status, 0, "{recorded:?}");
    let profile = recorded.profile();
    let passed = std::fs::read_to_string(recorded.surroundings().join("times")).expect("the program has written it");
    (recorded, profile, passed.trim().parse().expect("a number"))
}

/// Exclusive time by path, within what was slept and what has passed. The time stamp counter's rate is known to a
/// thousandth.
#[track_caller]
fn assert_took(profile: &Profile, passed_ns: u64, wanted_ms: &[(&str, u64)]) {
    let times = profile.by_path("wall-time", &["takes"]).into_values().next().expect("one process");
    assert_eq!(times.keys().collect::<Vec<_>>().len(), wanted_ms.len(), "{times:?}");
    for (path, least_ms) in wanted_ms {
        let took_ns = times.get(*path).unwrap_or_else(|| panic!("nothing by {path}: {times:?}"));
        let most_ns = passed_ns * if path.starts_with("beside") { 2 } else { 1 };
        assert!(
            *took_ns >= least_ms * 999_000 && *took_ns <= most_ns + most_ns / 1000,
            "{path}: {took_ns} ns, {least_ms} ms at least, {passed_ns} ns have passed"
        );
    }
    let firsts: u64 = times.iter().filter(|(path, _)| path.starts_with("main")).map(|(_, ns)| ns).sum();
    assert!(firsts <= passed_ns + passed_ns / 1000, "{firsts} of {passed_ns} ns of the first thread");
}

#[test]
fn of_each_function_without_those_it_calls() {
    let (_recorded, profile, passed_ns) = takes(&["inner", "middle", "outer", "down", "beside"]);
    let down: Vec<String> = (1..=10).map(|depth| format!("main{}", ";down".repeat(depth))).collect();
    let mut wanted = vec![
        ("main;outer", 60),
        ("main;outer;middle", 60),
        ("main;outer;middle;inner", 30),
        ("main;outer;inner", 15),
        ("beside", 60),
        ("beside;inner", 10),
    ];
    wanted.extend(down.iter().map(|path| (path.as_str(), 2)));
    assert_took(&profile, passed_ns, &wanted);
    let outer_ns = profile.through(&["main", "outer"], "wall-time");
    assert!(outer_ns >= 165 * 999_000 && outer_ns <= passed_ns + passed_ns / 1000, "{outer_ns} of {passed_ns}");
}

/// What they call otherwise is theirs.
#[test]
fn with_functions_that_are_not_probed() {
    let (_recorded, profile, passed_ns) = takes(&["outer", "inner"]);
    let wanted = [("main;outer", 120), ("main;outer;middle;inner", 30), ("main;outer;inner", 15), ("beside;inner", 10)];
    assert_took(&profile, passed_ns, &wanted);
    let (_recorded, profile, passed_ns) = takes(&["main"]);
    assert_took(&profile, passed_ns, &[("main", 185)]);
}

/// A handler that interrupts a wait does not wait, and what it takes is no part of the wait; also if it never returns there.
#[test]
fn what_is_waited_without_the_handler_that_interrupts() {
    const METRICS: &str = "wall-time,wait-time,io-time";
    for mode in ["returns", "jumps"] {
        let program = Program::nasty("interrupted.c").arguments([mode]).options(&["-m", METRICS]);
        let recorded = program.same_probed(&["handles", "waits", "tries"]);
        assert_eq!(recorded.ended.status, 3, "{recorded:?}");
        let profile = recorded.profile();
        let waited_ms = |function: &str| {
            let by_path = profile.by_path("io-time", &["interrupted"]).into_values().next().unwrap_or_default();
            let of = by_path.into_iter().filter(|(path, _)| path.ends_with(function));
            of.map(|(_, ns)| ns).sum::<u64>() / 1_000_000
        };
        assert_eq!(waited_ms("handles"), 0, "{mode}");
        assert!((240..=300).contains(&waited_ms("waits")), "{mode}: {} ms", waited_ms("waits"));
        assert_eq!(profile.total("wait-time"), 0, "{mode}");
    }
}
