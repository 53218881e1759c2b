//! The live screen of a probe, drawn from two profiles.

use callpath_db::{Metric, MetricId, NodeId, Profile, Scope, ScopeKind};
use callpath_view::text::{LiveOptions, live, live_line};

/// A path by its names from the outermost on, with calls and nanoseconds.
type Path<'a> = (&'a [&'a str], [u64; 2]);

/// What was counted after some milliseconds, in two threads of a process.
fn profile(after_ms: u64, paths: &[Path<'_>]) -> Profile {
    let mut profile = Profile::new(vec![Metric::of(MetricId::CALLS), Metric::of(MetricId::WALL_TIME)]);
    profile.info.duration_ns = after_ms * 1_000_000;
    let name = profile.strings.intern("prog");
    let process = profile.tree.child(NodeId::ROOT, Scope::new(ScopeKind::Process, name));
    for tid in [1, 2] {
        let thread = Scope { discriminator: tid, ..Scope::new(ScopeKind::Thread, name) };
        let thread = profile.tree.child(process, thread);
        for (names, costs) in paths {
            let mut node = thread;
            for name in *names {
                let scope = Scope::new(ScopeKind::Procedure, profile.strings.intern(name));
                node = profile.tree.child(node, Scope { module: profile.strings.intern("prog").into(), ..scope });
            }
            // The second thread has half of what the first has.
            profile.tree.add(node, &costs.map(|cost| cost / tid));
        }
    }
    profile
}

fn options() -> LiveOptions {
    LiveOptions {
        width: 70,
        rows: 8,
        color: false,
        metric: 0,
        title: "prog, process 7".into(),
        keys: "m: by wall-time  p: pause  q: end the probe".into(),
    }
}

const STEP: &[&str] = &["main", "run", "run", "run", "step"];
const FREE: &[&str] = &["main", "run", "free"];
const DEEP: &[&str] = &["main", "ns::reader::read_all_of_the_records(ns::Input const&, int)", "a_longer_name", "free"];

fn earlier() -> Profile {
    profile(2_000, &[(STEP, [1_000, 400_000_000]), (FREE, [100, 2_000_000])])
}

fn now() -> Profile {
    let paths = [(STEP, [2_000, 800_000_000]), (FREE, [100, 2_000_000]), (DEEP, [40, 900_000_000])];
    profile(4_000, &paths)
}

fn drawn(earlier: Option<&Profile>, now: &Profile, options: &LiveOptions) -> String {
    live(earlier, now, options).expect("a screen")
}

#[test]
fn by_calls_with_rates_since_the_last_look() {
    let expected = "\
prog, process 7: 4.00 s, 3,210 calls, 780 a second
     calls    a second  share  call path
     3,000         750  93.5%  main › run ×3 › step
       150           0   4.7%  main › run › free
        60          30   1.9%  … a_longer_name › free
m: by wall-time  p: pause  q: end the probe";
    assert_eq!(drawn(Some(&earlier()), &now(), &options()), expected);
}

#[test]
fn by_time_shares_are_of_the_time_that_passed() {
    let options = LiveOptions { metric: 1, width: 100, ..options() };
    let expected = "\
prog, process 7: 4.00 s, 3,210 calls, 780 a second
 wall-time    a second  share  call path
    1.35 s      675 ms  33.8%  main › ns::reader::read_all_of_the_records(…) › a_longer_name › free
    1.20 s      300 ms  30.0%  main › run ×3 › step
   3.00 ms        0 ns   0.1%  main › run › free
m: by wall-time  p: pause  q: end the probe";
    assert_eq!(drawn(Some(&earlier()), &now(), &options), expected);
}

#[test]
fn the_first_look_has_no_rates() {
    let expected = "\
prog, process 7: 2.00 s, 1,650 calls
     calls    a second  share  call path
     1,500           -  90.9%  main › run ×3 › step
       150           -   9.1%  main › run › free";
    let without_keys = LiveOptions { keys: String::new(), ..options() };
    assert_eq!(drawn(None, &earlier(), &without_keys), expected);
    // Nothing was written since: no time has passed.
    assert_eq!(drawn(Some(&earlier()), &earlier(), &without_keys), expected);
    let nothing = drawn(None, &Profile::new(Vec::new()), &options());
    assert!(nothing.starts_with("prog, process 7: 0 ns, 0 calls\n") && nothing.contains("nothing was counted yet"));
}

#[test]
fn no_line_is_wider_or_longer_than_the_terminal() {
    for width in [1, 8, 20, 31, 33, 40, 55] {
        for rows in 1..8 {
            let text = drawn(Some(&earlier()), &now(), &LiveOptions { width, rows, ..options() });
            assert!(text.lines().count() <= rows, "{width} {rows}: {text}");
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width} {rows}: {text}");
        }
    }
    // The costliest stay, and so do the keys.
    let short = drawn(Some(&earlier()), &now(), &LiveOptions { rows: 4, ..options() });
    let lines: Vec<&str> = short.lines().collect();
    assert!(lines[2].ends_with("main › run ×3 › step") && lines[3].starts_with("m: by"), "{short}");
}

#[test]
fn colour_changes_no_text() {
    let coloured = drawn(Some(&earlier()), &now(), &LiveOptions { color: true, ..options() });
    let mut plain = String::new();
    for (number, part) in coloured.split('\x1b').enumerate() {
        plain += if number == 0 { part } else { part.split_once('m').expect("a colour").1 };
    }
    assert!(coloured.contains("\x1b[1;31m"));
    assert_eq!(plain, drawn(Some(&earlier()), &now(), &options()));
}

#[test]
fn names_do_not_act_on_the_terminal() {
    let odd = profile(1_000, &[(&["main", "f\x1b[2J"], [4, 4])]);
    let text = drawn(None, &odd, &LiveOptions { title: "a\x07".into(), ..options() });
    assert!(!text.contains(['\x1b', '\x07']) && text.contains("f\\x1b[2J"), "{text}");
}

#[test]
fn a_line_names_the_costliest_path() {
    let line = |width| live_line(Some(&earlier()), &now(), &LiveOptions { width, ..options() }).expect("a line");
    let head = "prog, process 7: 4.00 s, 3,210 calls, 780 a second; 93.5% of calls: ";
    assert_eq!(line(120), format!("{head}main › run ×3 › step"));
    // However narrow it is, twenty columns are the path's.
    assert_eq!(line(70), format!("{head}main › run ×3 › step"));
    let by_time = LiveOptions { metric: 1, ..options() };
    let by_time = live_line(Some(&earlier()), &now(), &by_time).expect("a line");
    assert!(by_time.ends_with(" 780 a second; 33.8% of the time: … free"), "{by_time}");
}
