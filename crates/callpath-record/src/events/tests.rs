//! Events as perf spells them: names, numbers, modifiers, periods.

use super::*;

fn one(text: &str) -> Result<(Event, u64), EventError> {
    let (mut events, period) = parse_events(&[text.to_owned()], Unsaid::default())?;
    assert_eq!(events.len(), 1);
    Ok((events.remove(0), period))
}

fn spec(text: &str) -> EventSpec {
    one(text).unwrap_or_else(|error| panic!("{text}: {error}")).0.counter().expect("a counter").spec
}

fn said(text: &str) -> String {
    one(text).expect_err(text).to_string()
}

#[test]
fn clocks() {
    let clock = |text: &str| one(text).map(|(event, period)| (event.source, period));
    let is = |clock, period| Ok((EventSource::Clock(clock), period));
    assert_eq!(clock("cpu-time"), is(Clock::CpuTime, 1_000_000));
    assert_eq!(clock("cpu-clock"), is(Clock::CpuTime, 1_000_000));
    assert_eq!(clock("wall-time@500000"), is(Clock::WallTime, 500_000));
    assert_eq!(clock("cpu-time@f4000"), is(Clock::CpuTime, 250_000));
    for wrong in ["cpu-time@", "cpu-time@x", "cpu-time@-5", "cpu-time@0", "cpu-time@fx", "cpu-time@99"] {
        assert!(matches!(clock(wrong), Err(EventError::ClockPeriod(_))), "{wrong}");
    }
    assert_eq!(clock("cpu-time@f0"), Err(EventError::Rate(0)));
}

#[test]
fn a_rate_of_0_is_no_event() {
    let without = Unsaid { rate: Some(0), period: None };
    assert_eq!(parse_events(&[], without).map(|(events, _)| events), Ok(Vec::new()));
    for text in ["cpu-time", "page-faults", "page-faults@100"] {
        assert_eq!(parse_events(&[text.to_owned()], without), Err(EventError::NoSamples(text.to_owned())));
    }
}

/// Unit and number as include/uapi/linux/perf_event.h has them; names as `perf list` prints them.
#[test]
fn names_of_perf() {
    for (name, unit, config) in [
        ("cycles", 0, 0),
        ("cpu-cycles", 0, 0),
        ("instructions", 0, 1),
        ("cache-references", 0, 2),
        ("cache-misses", 0, 3),
        ("branch-instructions", 0, 4),
        ("branches", 0, 4),
        ("branch-misses", 0, 5),
        ("bus-cycles", 0, 6),
        ("stalled-cycles-frontend", 0, 7),
        ("idle-cycles-backend", 0, 8),
        ("ref-cycles", 0, 9),
        ("page-faults", 1, 2),
        ("faults", 1, 2),
        ("context-switches", 1, 3),
        ("cs", 1, 3),
        ("cpu-migrations", 1, 4),
        ("migrations", 1, 4),
        ("minor-faults", 1, 5),
        ("major-faults", 1, 6),
        ("alignment-faults", 1, 7),
        ("emulation-faults", 1, 8),
        ("L1-dcache-loads", 3, 0x0_0000),
        ("L1-dcache-load-misses", 3, 0x1_0000),
        ("L1-icache-load-misses", 3, 0x1_0001),
        ("LLC-stores", 3, 0x0_0102),
        ("LLC-load-misses", 3, 0x1_0002),
        ("dTLB-store-misses", 3, 0x1_0103),
        ("iTLB-load-misses", 3, 0x1_0004),
        ("branch-loads", 3, 0x0_0005),
        ("node-prefetch-misses", 3, 0x1_0206),
        ("r1a8", 4, 0x1a8),
        ("rFF01", 4, 0xff01),
    ] {
        let of_rate = EventSpec { every: Every::Rate(1000), ..EventSpec::new(unit, config) };
        assert_eq!(spec(name), of_rate, "{name}");
    }
    for of_clock in ["cpu-time:u", "wall-time:k", "task-clock:u"] {
        assert!(matches!(one(of_clock), Err(EventError::Malformed { .. })), "{of_clock}");
    }
    for unknown in ["cycle", "", "r", "rxyz", "r+1", "LLC-loadmisses", "LLC", "dTLB-", "page-fault", "help"] {
        assert_eq!(one(unknown), Err(EventError::Unknown(unknown.to_owned())), "{unknown}");
    }
}

/// As tools/perf/Documentation/perf-list.txt describes them.
#[test]
fn modifiers() {
    let modes = |text: &str| {
        let spec = spec(text);
        (spec.exclude_user, spec.exclude_kernel, spec.exclude_hypervisor, spec.precise)
    };
    assert_eq!(modes("cycles"), (false, false, false, 0));
    assert_eq!(modes("cycles:u"), (false, true, true, 0));
    assert_eq!(modes("cycles:k"), (true, false, true, 0));
    assert_eq!(modes("cycles:uk"), (false, false, true, 0));
    assert_eq!(modes("cycles:ppp"), (false, false, false, 3));
    assert_eq!(modes("instructions:upp@1000"), (false, true, true, 2));
    assert_eq!(said("cycles:pppp"), EventError::Modifier { event: "cycles:pppp".into(), modifier: 'p' }.to_string());
    assert!(said("cycles:z").contains("`z` is not a modifier"));
    // The thread's usage is of all modes, so it is no measure of one.
    assert_eq!(one("page-faults").unwrap().0.meter(), Settings::PAGE_FAULTS);
    assert_eq!(one("page-faults:u").unwrap().0.meter(), Settings::COUNTED);
}

/// What is said of an event is about that event, never about tracepoints.
#[test]
fn each_name_with_each_modifier() {
    let clocks = ["cpu-time", "cpu-clock", "task-clock", "wall-time"];
    for clock in clocks {
        for modifier in ["u", "k", "h", "uk", "p", "pp", "ppp"] {
            let text = format!("{clock}:{modifier}");
            let reason = "a clock runs in user and kernel mode alike and has no modifiers; write";
            assert_eq!(said(&text), format!("event `{text}`: {reason} {clock}"));
            assert_eq!(said(&format!("{text}@f100")), said(&text));
        }
    }
    let names = names::ALL.into_iter().flat_map(|row| [row.0, row.1]).filter(|name| !name.is_empty());
    for name in names {
        for modifier in ["u", "k", "uk", "p", "pp", "ppp", "up", "kpp", "h"] {
            let text = format!("{name}:{modifier}");
            let is_software = names::counter(name).unwrap().kind == Kind::Software;
            let is_in_kernel = name.ends_with("switches") || name.ends_with("migrations") || name == "cs";
            let why = match modifier {
                "h" if is_software => {
                    Some("it never happens in a hypervisor; choose u (user mode), k (kernel) or both")
                }
                "u" | "up" if is_in_kernel => Some("it happens in the kernel only; leave the modifier out"),
                _ => None,
            };
            assert_eq!(one(&text).err().map(|e| e.to_string()), why.map(|why| format!("event `{text}`: {why}")));
        }
    }
}

#[test]
fn periods_and_rates() {
    assert_eq!(spec("page-faults@1").every, Every::Period(1));
    assert_eq!(spec("cycles:u@2000003").every, Every::Period(2_000_003));
    assert_eq!(spec("context-switches@f99").every, Every::Rate(99));
    for wrong in ["page-faults@", "page-faults@0", "page-faults@x", "page-faults@-1", "page-faults@9223372036854775808"]
    {
        assert!(matches!(one(wrong), Err(EventError::Period(_))), "{wrong}");
    }
    assert_eq!(one("page-faults@f20001"), Err(EventError::Rate(20_001)));
}

#[test]
fn breakpoints() {
    let at = |text: &str| {
        let spec = spec(text);
        (spec.unit, spec.breakpoint, spec.config1, spec.config2, spec.every)
    };
    assert_eq!(at("mem:0x401136:x"), (5, 4, 0x40_1136, 8, Every::Period(1)));
    assert_eq!(at("mem:4096/2:w"), (5, 2, 4096, 2, Every::Period(1)));
    assert_eq!(at("mem:0x1000@f50"), (5, 3, 0x1000, 4, Every::Rate(50)));
    for wrong in ["mem:", "mem:x", "mem:0x10/9:w", "mem:0x10:y"] {
        assert!(matches!(one(wrong), Err(EventError::Malformed { .. })), "{wrong}");
    }
}

#[test]
fn lists() {
    let words = |words: &[&str]| words.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
    let names = |texts: &[&str], unsaid| {
        let (events, period) = parse_events(&words(texts), unsaid)?;
        Ok((events.into_iter().map(|e| e.name).collect::<Vec<_>>(), period))
    };
    let rate = |rate| Unsaid { rate: Some(rate), period: None };
    assert_eq!(names(&[], Unsaid::default()), Ok((words(&["cpu-time"]), 1_000_000)));
    // A period with an event overrides the rate.
    assert_eq!(names(&["wall-time,cpu-time@f100"], rate(50)), Ok((words(&["wall-time", "cpu-time"]), 10_000_000)));
    assert_eq!(
        names(&["page-faults@1,cpu-time", "cs"], rate(50)),
        Ok((words(&["page-faults", "cpu-time", "cs"]), 20_000_000))
    );
    // A difference of two clocks, which may be asked for, too.
    let both = words(&["wall-time", "cpu-time"]);
    assert_eq!(names(&["off-cpu"], Unsaid::default()), Ok((both.clone(), 1_000_000)));
    assert_eq!(names(&["off-cpu@f100"], rate(50)), Ok((both.clone(), 10_000_000)));
    assert_eq!(names(&["off-cpu,cpu-time", "wall-time"], rate(1000)), Ok((both, 1_000_000)));
    assert_eq!(
        names(&["page-faults@1,cpu-time", "off-cpu"], rate(1000)),
        Ok((words(&["page-faults", "cpu-time", "wall-time"]), 1_000_000))
    );
    let (events, _) = parse_events(&words(&["off-cpu", "page-faults"]), Unsaid::default()).unwrap();
    let asked: Vec<&str> = events.iter().map(Event::asked_name).collect();
    assert_eq!(asked, ["off-cpu", "off-cpu", "page-faults"], "a refusal names what was asked for");
    assert!(names(&["off-cpu@never"], rate(50)).is_err() && names(&["off-cpus"], rate(50)).is_err());
    assert_eq!(split_list("cpu/a=1,b=2/u,cycles"), ["cpu/a=1,b=2/u", "cycles"]);
    assert_eq!(names(&["cpu-time", "cpu-time"], Unsaid::default()), Err(EventError::Twice("cpu-time".into())));
    assert_eq!(names(&[], rate(HIGHEST_RATE + 1)), Err(EventError::Rate(HIGHEST_RATE + 1)));
    let many = |count: usize| (1..=count).map(|number| format!("r{number}")).collect::<Vec<_>>().join(",");
    assert_eq!(names(&[&many(MAX_EVENTS)], Unsaid::default()).unwrap().0.len(), MAX_EVENTS);
    assert_eq!(names(&[&many(MAX_EVENTS + 1)], Unsaid::default()), Err(EventError::TooMany(MAX_EVENTS + 1)));
    let period = Unsaid { rate: None, period: Some(77) };
    let (events, _) = parse_events(&words(&["page-faults"]), period).unwrap();
    assert_eq!(events[0].counter().unwrap().spec.every, Every::Period(77));
    assert_eq!(names(&["cpu-time"], period), Err(EventError::ClockPeriod("77".into())));
}

#[test]
fn perfs_groups_are_answered_with_a_list() {
    for (group, list) in [
        ("{cycles,instructions}", "cycles,instructions"),
        ("{cycles,instructions}:S", "cycles,instructions"),
        ("{cycles,instructions:p}:uS", "cycles:u,instructions:pu"),
        ("faults,{cs,migrations}:u,cpu-time", "faults,cs:u,migrations:u,cpu-time"),
        ("{cpu/event=1,umask=2/,cs},{r1a8}", "cpu/event=1,umask=2/,cs,r1a8"),
        ("{cpu-clock,faults}:u", "cpu-clock,faults:u"),
        ("{cycles,", "cycles"),
        ("cycles}", "cycles"),
    ] {
        let said = parse_events(&[group.to_owned()], Unsaid::default()).expect_err(group).to_string();
        assert!(said.starts_with(&format!("event `{group}`: there are no groups, ")), "{said}");
        assert!(said.ends_with(&format!(": -e {list}")), "{said}");
    }
}
