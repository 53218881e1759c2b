//! Call paths from the procedure and how high the stack is (`record --unwind=infer`, `callpath map`): what a map tells is true, and what it
//! cannot tell it does not guess.

use std::ffi::OsStr;
use std::path::PathBuf;

use callpath_end_to_end::{C, Ended, Profile, Program, compiled, run_callpath, run_report};
use serde_json::Value;

use crate::outside::is_allowed;

pub(crate) const ROWS: &str = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 80000) \
                    select count(distinct i * 7 % 1000), sum(length(hex(i))) from n;";

const KNOWN: C = C { source: "inferred.c", output: "inferred", options: &["-O2", "-pthread"] };

/// A directory with what a test makes.
pub(crate) struct Place(tempfile::TempDir);

impl Place {
    pub(crate) fn new() -> Place {
        Place(tempfile::tempdir().expect("room"))
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn run<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> Ended {
        run_callpath(self.0.path(), words)
    }

    /// A map of a run.
    #[track_caller]
    pub(crate) fn train(&self, map: &str, program: &[&str]) {
        let ended = self.run([&["map", "train", "-q", "-o", map, "--"], program].concat());
        assert_eq!(ended.status, 0, "{ended:?}");
    }

    /// `options`: with spaces between.
    #[track_caller]
    pub(crate) fn record(&self, (options, directory): (&str, &str), program: &[&str]) -> Ended {
        let options: Vec<&str> = options.split(' ').collect();
        self.run([&["record", "-q", "-F", "2000"], &options[..], &["-o", directory], program].concat())
    }

    #[track_caller]
    pub(crate) fn json<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> Value {
        let ended = self.run(words);
        assert_eq!(ended.status, 0, "{ended:?}");
        serde_json::from_str(&ended.stdout).expect("JSON")
    }
}

/// From where samples are taken here.
fn ways() -> Vec<&'static str> {
    let mut ways = vec!["--outside=never"];
    ways.extend(is_allowed("inference, from outside").then_some("--outside=always"));
    ways
}

pub(crate) fn known() -> String {
    compiled(KNOWN).expect("it compiles").to_str().expect("a name").to_owned()
}

/// How many of something the JSON has.
#[track_caller]
pub(crate) fn number(json: &Value, pointer: &str) -> u64 {
    json.pointer(pointer).and_then(Value::as_u64).unwrap_or_else(|| panic!("{pointer}: {json}"))
}

fn names(path: &Value) -> Vec<&str> {
    path.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

#[test]
fn what_a_map_tells_is_what_a_walk_finds() {
    let (place, program) = (Place::new(), known());
    place.train("a.map", &[&program, "100"]);
    for way in ways() {
        let directory = format!("both{way}");
        assert_eq!(place.record((&format!("--unwind=both {way}"), &directory), &[&program, "100000"]).status, 3);
        let checked = place.json(["map", "check", "a.map", &directory, "--json"]);
        tells_the_truth(&checked);
        // On the stack of a handler of its own. From outside the copy is of that stack alone, and there is no path.
        let [undetermined, unknown] = ["/samples/undetermined", "/unknown"].map(|at| number(&checked, at));
        if way == "--outside=never" {
            assert!(undetermined > 0 && unknown == 0, "{way}: {checked}");
        } else {
            // Where a thread begins and ends, its stack is higher than where heights count from.
            assert!(unknown > 0 && undetermined * 50 < number(&checked, "/samples/precise"), "{way}: {checked}");
        }
    }
}

#[track_caller]
fn tells_the_truth(checked: &Value) {
    for wrong in ["wrong", "unlikely", "incorrect"] {
        assert_eq!(number(checked, &format!("/samples/{wrong}")), 0, "{checked}");
    }
    // thin twice, thick, down twice, many, jumps and the pointer, leaps, by a pointer through thin; of the thread thin and thick.
    has_own_identifiers(checked);
    // left and right; above and below.
    assert!((4..=6).contains(&number(checked, "/paths/ambiguous")), "{checked}");
    // The program's own are missing below `alloca`, and below the handler. A sample may also hit what binds a call for the first time, or what
    // callpath's own hook of `pthread_create` calls.
    let missing = checked["missing"].as_array().expect("a list");
    let is_own = |missing: &&Value| names(&missing["path"]).last().is_some_and(|name| name.starts_with("work"));
    assert!(missing.iter().filter(is_own).count() > 0, "{checked}");
    for missing in missing {
        let path = names(&missing["path"]);
        assert!(!is_own(&missing) || path.iter().any(|name| ["varies", "raise"].contains(name)), "{missing}");
        assert!(names(&missing["known_at"]).is_empty(), "{missing}");
    }
}

/// Of the paths that no other one shares the identifier with, the code has another way to one or two alone.
#[track_caller]
fn has_own_identifiers(checked: &Value) {
    let [precise, likely] = ["/paths/precise", "/paths/likely"].map(|at| number(checked, at));
    assert!(precise >= 9 && precise + likely >= 11, "{checked}");
}

#[test]
fn a_report_has_the_paths_and_says_how_sure_they_are() {
    let (place, program) = (Place::new(), known());
    place.train("a.map", &[&program, "100"]);
    for way in ways() {
        let directory = format!("infer{way}");
        assert_eq!(place.record((&format!("--unwind=infer {way}"), &directory), &[&program, "100000"]).status, 3);
        has_paths_and_certainties(&place, &directory);
    }
}

#[track_caller]
fn has_paths_and_certainties(place: &Place, directory: &str) {
    let bare = Profile::of_json(&run_report(&place.at(directory), &["--json"]).stdout);
    // From outside a sample may hit the kernel's part of the program's start, which has no path.
    let started = bare.through(&["not sampled (start of the process: exec, loader)"], "samples");
    assert_eq!((bare.quality.full, bare.quality.partial), (started, bare.quality.taken - dropped(&bare) - started));

    let report = ["report", "--json", "--map", "a.map", directory];
    let (json, text) = (place.json(report), place.run(["report", "--map", "a.map", directory]).stdout);
    let profile = Profile::of_json(&json.to_string());
    let main = ["_start", "__libc_start_main", "__libc_start_call_main", "main"];
    for path in
        [&["thin", "work"][..], &["thick", "work"], &["down"; 8], &["many_called", "many", "work"], &["leaps", "work"]]
    {
        let path = [&main[..], path].concat();
        assert!(profile.percent_through(&path) > 1.0, "{path:?}: {text}");
    }
    let [left, right] = ["left", "right"].map(|name| profile.percent_through(&[name]));
    assert_eq!((left, right), (0.0, 0.0), "which of them it was cannot be told: {text}");
    assert!(profile.percent_through(&["main", "[undetermined calls]", "work"]) > 5.0, "{text}");
    assert!(profile.percent_through(&["thread_begins", "thick", "work"]) > 1.0, "{text}");

    let inferred = &json["quality"]["inferred"];
    let of_samples = |name: &str| number(inferred, &format!("/samples/{name}"));
    let all = ["precise", "likely", "ambiguous", "undetermined", "missing"].map(of_samples);
    assert_eq!(all.iter().sum::<u64>(), bare.quality.partial, "{inferred}");
    assert!(all.iter().enumerate().all(|(class, count)| class == 1 || *count > 0), "{inferred}");
    assert_eq!(inferred["samples"]["degree"]["2"].as_u64(), Some(of_samples("ambiguous")), "{inferred}");
    assert_eq!(json["quality"]["full"].as_u64(), Some(all[0] + all[1] + started));
    let nodes = json["nodes"].as_array().expect("nodes");
    let certainty_of = |name: &str| -> Vec<&str> {
        nodes.iter().filter(|node| node["name"] == name).filter_map(|node| node["certainty"].as_str()).collect()
    };
    assert_eq!((certainty_of("many"), certainty_of("[undetermined calls]")), (vec!["precise"], vec!["undetermined"]));
    let of_work: std::collections::BTreeSet<_> =
        [certainty_of("work"), certainty_of("work_anywhere")].concat().into_iter().collect();
    // The code has another way to one of them, of the same height.
    assert_eq!(of_work.into_iter().collect::<Vec<_>>(), ["likely", "missing", "precise", "undetermined"]);
    assert!(text.contains("the map has one path for") && !text.contains("stacks were not walked"), "{text}");
}

fn dropped(profile: &Profile) -> u64 {
    profile.quality.dropped.values().sum()
}

/// Of programs that nobody wrote for this: what the code says of heights is what the stack is like.
#[test]
fn heights_of_debians_programs() {
    let script = "my %h; for my $i (1..30000) { my $s = join ',', map { $_ * $i } 1..10; $h{length $s}++; }";
    for (name, program) in
        [("perl", &["/usr/bin/perl", "-e", script][..]), ("sqlite3", &["/usr/bin/sqlite3", ":memory:", ROWS])]
    {
        let place = Place::new();
        place.train("a.map", program);
        assert_eq!(place.record(("--unwind=both", "both"), program).status, 0, "{name}");
        let checked = place.json(["map", "check", "a.map", "both", "--json"]);
        let samples = |verdict: &str| number(&checked, &format!("/samples/{verdict}"));
        let right = samples("precise") + samples("likely") + samples("ambiguous");
        let all = right + samples("wrong") + samples("unlikely") + samples("incorrect") + samples("missing");
        assert!(all >= 20, "{name}: {checked}");
        for missing in checked["missing"].as_array().expect("a list") {
            let known_at = missing["known_at"].as_array().map_or(0, Vec::len);
            assert_eq!(known_at, 0, "{name}: the map has the path at another height: {missing}");
        }
        // The same work in both runs.
        assert!(right * 10 >= all * 9, "{name}: {checked}");
        // Walks that ask the map would end before the stack does.
        let walks = |what: &str| number(&checked, &format!("/walks/{what}"));
        assert_eq!(walks("told") + walks("whole"), all + samples("undetermined"), "{name}: {checked}");
        assert!(walks("told") * 10 >= all * 9 && walks("walked_frames") < walks("frames"), "{name}: {checked}");
    }
}

#[test]
fn a_map_of_several_runs_and_of_measurements() {
    let (place, program) = (Place::new(), known());
    place.train("one.map", &[&program, "50"]);
    let counted = ["record", "-q", "-F", "0", "--exact=calls", "-o", "counted", &program, "60"];
    assert_eq!(place.run(counted).status, 3);
    let learned = ["map", "train", "-q", "--measurement", "counted", "-o", "other.map"];
    assert_eq!(place.run(learned).status, 0);
    let both = ["map", "train", "-q", "--from", "one.map", "--from", "other.map", "-o", "both.map"];
    assert_eq!(place.run(both).status, 0);
    let of = |map: &str, pointer: &str| number(&place.json(["map", "show", "--json", map]), pointer);
    for name in ["one.map", "other.map", "both.map"] {
        assert!(of(name, "/inferred/precise") > 40, "{name}");
        assert!(of(name, "/inferred/ambiguous") >= 4, "{name}");
    }
    let calls = |map: &str| of(map, "/inferred/calls/precise") + of(map, "/inferred/calls/ambiguous");
    assert_eq!(calls("both.map"), calls("one.map") + calls("other.map"));
    assert!(place.json(["map", "show", "--json", "both.map"])["variable"].to_string().contains("inferred!varies"));

    let height = place.run(["map", "explain", "both.map", "inferred!work", "1"]).stdout;
    let first = height.split("It knows paths there with ").nth(1).and_then(|rest| rest.split([',', '.']).next());
    let first = first.unwrap_or_else(|| panic!("{height}"));
    let explained = place.json(["map", "explain", "both.map", "inferred!work", first, "--json"]);
    // The lowest of all is the thread's.
    let answer = &explained["answers"][0];
    assert_eq!(
        (answer["thread"].as_str(), number(answer, "/degree")),
        (Some("inferred!thread_begins"), 1),
        "{explained}"
    );
    let path = names(&answer["paths"][0]);
    assert_eq!(
        path,
        ["libc.so.6!clone3", "libc.so.6!start_thread", "inferred!thread_begins", "inferred!thin", "inferred!work"]
    );
    let of_thread = ["map", "explain", "both.map", "thin", "0", "--thread", "thread_begins"];
    assert!(place.run(of_thread).stdout.contains("The map knows no call path"));
}

/// Clones tell apart what no frames can: the same procedures in another order, the same frames around the call.
#[test]
fn clones_tell_paths_of_one_height_apart() {
    let (place, program) = (Place::new(), known());
    place.train("a.map", &[&program, "100"]);
    let ambiguous = |plan: &str, resize: &[&str]| {
        let resized = place.run([&["map", "resize", "a.map", "-o", plan, "--every", "16"], resize].concat());
        assert_eq!(resized.status, 0, "{resized:?}");
        let directory = format!("both-{plan}");
        let options = format!("--unwind=both --plan {plan}");
        let recorded = place.run(
            [
                &["record", "-F", "2000", "-o", &directory],
                &*options.split(' ').collect::<Vec<_>>(),
                &[&program, "100000"],
            ]
            .concat(),
        );
        assert_eq!(recorded.status, 3, "{recorded:?}");
        let checked = place.json(["map", "check", "a.map", &directory, "--json"]);
        for wrong in ["wrong", "unlikely", "incorrect"] {
            assert_eq!(number(&checked, &format!("/samples/{wrong}")), 0, "{checked}");
        }
        for missing in checked["missing"].as_array().expect("a list") {
            assert_eq!(missing["known_at"].as_array().map_or(0, Vec::len), 0, "at another height: {missing}");
        }
        (number(&checked, "/paths/ambiguous"), recorded.stderr)
    };
    let (without, said) = ambiguous("frames", &[]);
    assert!((4..=6).contains(&without) && !said.contains("clones are called"), "{without}: {said}");
    let (with, said) = ambiguous("clones", &["--clones", "100"]);
    let made = said.split("frames are larger, ").nth(1).and_then(|rest| rest.split_once(" clones are called"));
    let (called, planned) = made.and_then(|(counts, _)| counts.split_once(" of ")).unwrap_or_else(|| panic!("{said}"));
    let counts = [called, planned].map(|count| count.parse::<u32>().expect("a number"));
    assert!(with == 0 && counts[0] >= 4, "{with} are ambiguous: {said}");
    // Without a walk.
    assert_eq!(place.record(("--unwind=infer --plan clones", "clones.callpath"), &[&program, "100000"]).status, 3);
    let report = place.json(["report", "--json", "--map", "a.map", "clones.callpath"]);
    assert_eq!(number(&report, "/quality/inferred/samples/ambiguous"), 0, "{}", report["quality"]);
    let profile = Profile::of_json(&report.to_string());
    for path in [["main", "above", "below", "work"], ["main", "below", "above", "work"]] {
        assert!(profile.through(&path, "samples") > 0, "{path:?}: {:?}", profile.paths());
    }
}

/// A tail call leads to no clone: the path that it is on has not the clone's caller. Three are as high: by `both`, by `other`, and by one of
/// those that call `both`, which jumps.
#[test]
fn a_tail_call_leads_to_no_clone() {
    let place = Place::new();
    let source = "#define APART __attribute__((noinline, noclone))\n\
                  static volatile unsigned sink;\n\
                  APART unsigned work(unsigned n) { unsigned s = n; for (unsigned i = 0; i < n * 1000000; i++) s = s * 31 + (i ^ s >> 3); return s; }\n\
                  APART unsigned both(unsigned n, int jumps) { volatile char own[200]; own[0] = n; if (jumps) return work(n + 2); return work(n) + own[0]; }\n\
                  #define BELOW(size) APART unsigned below##size(unsigned n) { volatile char own[size]; own[0] = n; return both(n, 1) + own[0]; }\n\
                  BELOW(168) BELOW(184) BELOW(200) BELOW(216) BELOW(232)\n\
                  APART unsigned other(unsigned n) { volatile char own[200]; own[0] = n; return work(n + 1) + own[0]; }\n\
                  int main(int count, char **words) { unsigned n = count > 1 ? 100 : 1; sink = both(n, 0) + other(n);\n\
                    sink += below168(n) + below184(n) + below200(n) + below216(n) + below232(n); return 0; }\n";
    std::fs::write(place.at("jumps.c"), source).expect("room");
    let gcc =
        std::process::Command::new("gcc").args(["-O2", "-o", "jumps", "jumps.c"]).current_dir(place.at(".")).status();
    assert!(gcc.expect("gcc can be run").success());
    place.train("a.map", &["./jumps"]);
    let resized = place.run(["map", "resize", "a.map", "-o", "a.plan", "--every", "16", "--clones", "100"]);
    assert_eq!(resized.status, 0, "{resized:?}");
    let checked = |directory: &str, plan: &[&str]| {
        let words = [&["record", "-F", "2000", "--unwind=both", "-o", directory], plan, &["./jumps", "more"]].concat();
        let recorded = place.run(words);
        assert_eq!(recorded.status, 0, "{recorded:?}");
        (place.json(["map", "check", "a.map", directory, "--json"]), recorded.stderr)
    };
    let (before, _) = checked("before", &[]);
    assert_eq!(number(&before, "/paths/ambiguous"), 3, "{before}");
    let (after, said) = checked("after", &["--plan", "a.plan"]);
    for wrong in ["wrong", "unlikely", "incorrect"] {
        assert_eq!(number(&after, &format!("/samples/{wrong}")), 0, "{after}");
    }
    // Through `both` and `other` it is told by clones, which nothing else that these do leads past; so what is left is the jump.
    assert_eq!(number(&after, "/paths/ambiguous"), 0, "{said} {after}");
}

/// A procedure of a library that is called by two of the program, in another order: where the loader closes the linkage table, each of them calls
/// a clone. Where it does not, the word may lead elsewhere later.
#[test]
fn calls_of_another_file_lead_to_clones() {
    let place = Place::new();
    let work = "static volatile unsigned sink;\n\
                unsigned work(unsigned n) { unsigned s = n; for (unsigned i = 0; i < n * 1000000; i++) s = s * 31 + (i ^ s >> 3); return s; }\n\
                unsigned idle(unsigned n) { sink += n; return sink; }\n";
    let orders = "#define APART __attribute__((noinline, noclone))\n\
                  unsigned work(unsigned), idle(unsigned), two(unsigned, int);\n\
                  APART unsigned one(unsigned n, int more) { volatile char own[200]; own[0] = n; return (more ? two(n, 0) : work(n)) + own[0]; }\n\
                  APART unsigned two(unsigned n, int more) { volatile char own[200]; own[0] = n; return (more ? one(n, 0) : work(n)) + own[0]; }\n\
                  int main(int count, char **words) { unsigned n = count > 1 ? 200 : 1; return (one(n, 1) + two(n, 1) + idle(n)) == 42; }\n";
    std::fs::write(place.at("work.c"), work).expect("room");
    std::fs::write(place.at("orders.c"), orders).expect("room");
    let gcc = |words: &[&str]| {
        let gcc = std::process::Command::new("gcc").arg("-O2").args(words).current_dir(place.at(".")).status();
        assert!(gcc.expect("gcc can be run").success(), "{words:?}");
    };
    gcc(&["-shared", "-fPIC", "-o", "libwork.so", "work.c"]);
    for (program, binding, ambiguous) in [("./closed", "-Wl,-z,relro,-z,now", 0), ("./lazy", "-Wl,-z,relro,-z,lazy", 2)]
    {
        gcc(&["-o", program, "orders.c", "-L.", "-lwork", "-Wl,-rpath,$ORIGIN", binding]);
        place.train("a.map", &[program]);
        let resized = place.run(["map", "resize", "a.map", "-o", "a.plan", "--every", "16", "--clones", "100"]);
        assert_eq!(resized.status, 0, "{resized:?}");
        let measurement = format!("{program}.callpath");
        let record = ["record", "-F", "2000", "--unwind=both", "-o", &measurement, "--plan", "a.plan", program, "more"];
        let recorded = place.run(record);
        assert_eq!(recorded.status, 0, "{recorded:?}");
        let checked = place.json(["map", "check", "a.map", &measurement, "--json"]);
        for wrong in ["wrong", "unlikely", "incorrect"] {
            assert_eq!(number(&checked, &format!("/samples/{wrong}")), 0, "{program}: {checked}");
        }
        assert_eq!(number(&checked, "/paths/ambiguous"), ambiguous, "{program}: {} {checked}", recorded.stderr);
        let are_called = recorded.stderr.contains("clones are called") && !recorded.stderr.contains(", 0 of");
        assert_eq!(are_called, ambiguous == 0, "{program}: {}", recorded.stderr);
    }
}

/// With larger frames more paths have heights of their own, and what a map says of them is true still.
#[test]
#[ignore = "takes minutes: `cargo xtask test --long`"]
fn larger_frames_tell_more_paths_apart() {
    // What perl executes depends on a random number in each run.
    let known = known();
    for (program, status) in [(&[known.as_str(), "30000"][..], 3), (&["/usr/bin/sqlite3", ":memory:", ROWS], 0)] {
        let place = Place::new();
        place.train("a.map", program);
        let said = place.run(["map", "resize", "a.map", "-o", "a.plan"]);
        assert!(said.status == 0 && said.stderr.contains("frames larger"), "{said:?}");
        let checked = |name: &str, options: &[&str]| {
            let directory = format!("{name}.callpath");
            let recorded = [&["record", "-F", "2000", "--unwind=both", "-o", &directory], options, program].concat();
            let ended = place.run(recorded);
            assert_eq!(ended.status, status, "{ended:?}");
            let checked = place.json(["map", "check", "a.map", &directory, "--json"]);
            for wrong in ["wrong", "unlikely", "incorrect"] {
                assert_eq!(number(&checked, &format!("/samples/{wrong}")), 0, "{program:?}: {checked}");
            }
            for missing in checked["missing"].as_array().expect("a list") {
                let known_at = missing["known_at"].as_array().map_or(0, Vec::len);
                assert_eq!(known_at, 0, "{program:?}: the map has the path at another height: {missing}");
            }
            (ended.stderr, checked)
        };
        let (_, before) = checked("before", &[]);
        let (said, after) = checked("after", &["--plan", "a.plan"]);
        assert!(said.contains("frames are larger") && !said.contains("--plan: 0 of"), "{said}");
        // Which samples hit is chance: distinct paths that are ambiguous, of those that are known.
        let share = |checked: &Value| {
            let [precise, likely, ambiguous] =
                ["precise", "likely", "ambiguous"].map(|verdict| number(checked, &format!("/paths/{verdict}")) as f64);
            ambiguous / (precise + likely + ambiguous)
        };
        assert!(share(&after) < share(&before), "{before} {after}");
        // `report` knows of the larger frames by itself.
        let report = place.json(["report", "--json", "--map", "a.map", "after.callpath"]);
        let samples = &report["quality"]["inferred"]["samples"];
        let of_check = number(&after, "/samples/precise");
        assert_eq!(number(samples, "/precise"), of_check, "{samples}");
    }
}

/// Paths that training has not taken: of a walked run and of one without walks.
#[test]
fn what_training_never_saw() {
    let place = Place::new();
    let source = "int printf(const char *, ...);\n\
                  __attribute__((noinline)) long work(long n) { long s = n; for (long i = 0; i < 40000000; i++) s = s * 31 + (i ^ s >> 3); return s; }\n\
                  __attribute__((noinline)) long usual(long n) { volatile char own[64]; own[0] = n; return work(n) + own[0]; }\n\
                  __attribute__((noinline)) long rare(long n) { volatile char own[640]; own[0] = n; return work(n) + own[0]; }\n\
                  int main(int count, char **words) { long s = usual(count); if (count > 1) s += rare(count); printf(\"%ld\\n\", s); return 0; }\n";
    std::fs::write(place.at("novel.c"), source).expect("room");
    let gcc =
        std::process::Command::new("gcc").args(["-O1", "-o", "novel", "novel.c"]).current_dir(place.at(".")).status();
    assert!(gcc.expect("gcc can be run").success());
    place.train("a.map", &["./novel"]);
    for (unwind, rare_path) in [("--unwind=walk", &["main", "rare", "work"][..]), ("--unwind=infer", &["work"])] {
        for (more, is_novel) in [(&["./novel", "more"][..], true), (&["./novel"], false)] {
            let directory = format!("run{unwind}-{is_novel}");
            assert_eq!(place.record((unwind, &directory), more).status, 0);
            let profile = place.json(["report", "--json", "--map", "a.map", "--novel", &directory]);
            let profile = Profile::of_json(&profile.to_string());
            let [usual, rare] = [&["usual"][..], rare_path].map(|path| profile.through(path, "samples"));
            assert_eq!((usual, rare > 20), (0, is_novel), "{unwind} {more:?}: {:?}", profile.paths());
        }
    }
}

/// The stack of the thread that forks is the child's first: it has no fixed place there.
#[test]
fn a_child_that_a_thread_has_forked() {
    let place = Place::new();
    let source = "#include <pthread.h>\n#include <sys/wait.h>\n#include <unistd.h>\n\
                  static volatile long sink;\n\
                  __attribute__((noinline)) void work(long n) { for (long i = 0; i < n * 1000000; i++) sink = sink * 31 + i; }\n\
                  __attribute__((noinline)) void *forks(void *n) { if (fork() == 0) { work((long)n); _exit(0); } wait(0); work((long)n); return n; }\n\
                  int main(void) { pthread_t t; work(60); pthread_create(&t, 0, forks, (void *)60); pthread_join(t, 0); return 0; }\n";
    std::fs::write(place.at("forks.c"), source).expect("room");
    let mut gcc = std::process::Command::new("gcc");
    gcc.args(["-O1", "-pthread", "-o", "forks", "forks.c"]).current_dir(place.at("."));
    assert!(gcc.status().expect("gcc can be run").success());
    place.train("a.map", &["./forks"]);
    for way in ways() {
        let directory = format!("both{way}");
        assert_eq!(place.record((&format!("--unwind=both {way}"), &directory), &["./forks"]).status, 0);
        let checked = place.json(["map", "check", "a.map", &directory, "--json"]);
        let samples = |verdict: &str| number(&checked, &format!("/samples/{verdict}"));
        assert_eq!([samples("wrong"), samples("unlikely"), samples("incorrect")], [0; 3], "{checked}");
        assert!(samples("undetermined") > 20 && samples("precise") > 40, "{way}: {checked}");
    }
}

/// What is executed by a program with larger frames has the frames that it has.
#[test]
fn a_program_that_another_executes_has_its_own_frames() {
    let (place, known) = (Place::new(), known());
    place.train("a.map", &[&known, "100"]);
    assert_eq!(place.run(["map", "resize", "-q", "a.map", "--every", "64", "-o", "a.plan"]).status, 0);
    let script = format!("{known} 20000; exit 7");
    let shell = ["record", "--unwind=both", "--plan", "a.plan", "-o", "both", "/bin/sh", "-c", &script];
    assert_eq!(place.run(shell).status, 7);
    let checked = place.json(["map", "check", "a.map", "both", "--json"]);
    for wrong in ["wrong", "unlikely", "incorrect"] {
        assert_eq!(number(&checked, &format!("/samples/{wrong}")), 0, "{checked}");
    }
    has_own_identifiers(&checked);
}

/// Every frame that can be is larger: programs do what they do bare, and their stacks are walked as ever.
#[test]
#[ignore = "takes minutes: `cargo xtask test --long`"]
fn programs_with_larger_frames_are_as_they_were() {
    let throws = C { source: "throws.cpp", output: "throws-larger", options: &["-O2"] };
    let lands = C { source: "lands.cpp", output: "lands-larger", options: &["-O2"] };
    let tails = C { source: "tails.c", output: "tails-larger", options: &["-O2"] };
    // While an exception lands, a walk goes on where the handler will be; the stack is as high as it was when it was thrown.
    let (lands_nothing, lands_some) = (false, true);
    let mut with_clones = Vec::new();
    let programs = [
        (Program::compiled(throws), &[][..], lands_some),
        (Program::compiled(lands), &[], lands_some),
        (Program::compiled(tails), &[], lands_nothing),
        (Program::nasty("crew.c"), &["eight"], lands_nothing),
        (Program::nasty("panics.rs"), &[], lands_some),
    ];
    for (program, arguments, lands) in programs {
        let program = program.arguments(arguments);
        let place = Place::new();
        let path = program.path().to_str().expect("a name").to_owned();
        place.train("a.map", &[&[path.as_str()], arguments].concat());
        for (bytes, clones) in [("16", "0"), ("272", "0"), ("32", "2000")] {
            let plan = place.at(bytes);
            let resized = ["map", "resize", "-q", "a.map", "--every", bytes, "--clones", clones, "-o", bytes];
            assert_eq!(place.run(resized).status, 0);
            let options = ["--unwind=both", "--plan", plan.to_str().expect("a name")];
            let larger = Program::at(&path).arguments(arguments).options(&options);
            let recorded = larger.same();
            let said = &recorded.ended.stderr;
            assert!(said.contains("frames are larger") && !said.contains("--plan: 0 of"), "{path}: {said}");
            let has_clones = said.contains("clones are called") && !said.contains(", 0 of");
            assert!(!has_clones || clones != "0", "{path}: {said}");
            with_clones.extend(has_clones.then(|| path.clone()));
            recorded.profile().assert_full(900);
            let directory = recorded.directory.to_str().expect("a name");
            let checked = place.json(["map", "check", "a.map", directory, "--json"]);
            assert!(lands || number(&checked, "/samples/wrong") == 0, "{path}: {checked}");
            for missing in checked["missing"].as_array().expect("a list") {
                let known_at = missing["known_at"].as_array().map_or(0, Vec::len);
                assert_eq!(known_at, 0, "{path}: the map has the path at another height: {missing}");
            }
        }
    }
    // Not all have paths that clones tell apart.
    assert!(with_clones.len() >= 3, "{with_clones:?}");
}

/// It fails, with a line that has these parts.
#[track_caller]
pub(crate) fn refused(place: &Place, words: &[&str], expected: &[&str]) {
    let ended = place.run(words);
    assert_ne!(ended.status, 0, "{words:?}: {ended:?}");
    for part in expected {
        assert!(ended.stderr.contains(part), "{words:?}: {}", ended.stderr);
    }
    assert_eq!(ended.stderr.trim_end().lines().count(), 1, "{}", ended.stderr);
}

#[test]
fn what_cannot_be_used_is_refused() {
    let (place, program) = (Place::new(), known());
    place.train("a.map", &[&program, "50"]);
    let refused = |words: &[&str], expected: &[&str]| refused(&place, words, expected);
    // Another build in the place of the one that was learned.
    let copy = place.at("program");
    std::fs::copy(&program, &copy).expect("a copy");
    place.train("copy.map", &[copy.to_str().unwrap(), "50"]);
    let other = compiled(C { source: "inferred.c", output: "inferred-o1", options: &["-O1", "-pthread"] });
    std::fs::copy(other.expect("it compiles"), &copy).expect("a copy");
    assert_eq!(place.record(("--unwind=infer", "infer"), &[copy.to_str().unwrap(), "2000"]).status, 3);
    refused(&["report", "--map", "copy.map", "infer"], &["copy.map", "another build of", "program"]);
    let train = ["map", "train", "-q", "--from", "copy.map", "-o", "b.map", "--", copy.to_str().unwrap(), "50"];
    refused(&train, &["another build of"]);
    assert!(!place.at("b.map").exists());

    let bytes = std::fs::read(place.at("a.map")).expect("a map");
    std::fs::write(place.at("cut.map"), &bytes[..bytes.len() / 2]).expect("room");
    refused(&["map", "show", "cut.map"], &["cut.map", "bytes"]);
    let mut changed = bytes.clone();
    changed[bytes.len() / 2] ^= 4;
    std::fs::write(place.at("changed.map"), &changed).expect("room");
    refused(&["report", "--map", "changed.map", "infer"], &["changed.map", "checksum"]);
    refused(&["map", "show", "infer"], &["infer"]);
    refused(&["map", "show", &program], &["not a map of call paths"]);
    refused(&["map", "show", "none.map"], &["none.map"]);
    refused(&["map", "train", "-o", "b.map"], &["nothing to learn from"]);
    refused(&["map", "train", "-o", "no/b.map", "--", &program, "50"], &["no/b.map", "the program was not run"]);
    refused(&["map", "train", "-q", "-o", "b.map", "--", "/no/such/program"], &["/no/such/program"]);
    refused(&["map", "explain", "a.map", "wrok", "0"], &["wrok", "work"]);
    refused(&["map", "explain", "a.map", "nowhere.so+0x10", "0"], &["nowhere.so"]);
    refused(&["map", "explain", "a.map", "work", "high"], &["number of bytes"]);

    assert_eq!(place.record(("--unwind=walk", "walked"), &[&program, "2000"]).status, 3);
    refused(&["report", "--map", "a.map", "walked"], &["walked", "--unwind=infer"]);
    refused(&["map", "check", "a.map", "walked"], &["walked", "--unwind=both"]);
    assert_eq!(place.run(["merge", "walked", "-o", "a.db"]).status, 0);
    refused(&["report", "--map", "a.map", "a.db"], &["a.db", "--map"]);
    refused(&["record", "--unwind=infer", "--exact=calls", &program], &["--unwind"]);
    assert_eq!(place.run(["map", "resize", "-q", "copy.map", "--every", "16", "-o", "copy.plan"]).status, 0);
    let other = ["record", "-q", "--unwind=infer", "--plan", "copy.plan", "-o", "never", copy.to_str().unwrap(), "50"];
    refused(&other, &["copy.plan", "another build of"]);
    assert!(!place.at("never").exists());
    refused(&["record", "--plan", "copy.plan", &program], &["--plan", "--unwind=infer"]);
    refused(&["record", "--unwind=infer", "--plan", "a.map", &program], &["not a plan"]);
    refused(&["map", "resize", "a.map", "--every", "24", "-o", "odd.plan"], &["multiple of 16"]);
    refused(&["record", "--unwind=infer", "--sentinel=always", &program], &["--sentinel=always", "--unwind"]);
}

/// A thread that is on another stack than its own whenever it is sampled has no height, and all others have.
#[test]
fn a_thread_on_another_stack_and_others() {
    let place = Place::new();
    let source = "#include <pthread.h>\n#include <signal.h>\n#include <stdlib.h>\n\
                  static volatile long sink;\n\
                  __attribute__((noinline)) void work(long n) { for (long i = 0; i < n * 1000000; i++) sink = sink * 31 + i; }\n\
                  static void handler(int s) { work(30); }\n\
                  static void *elsewhere(void *n) { stack_t own = { .ss_sp = malloc(65536), .ss_size = 65536 }; sigaltstack(&own, 0);\n\
                    struct sigaction to = { .sa_handler = handler, .sa_flags = SA_ONSTACK }; sigaction(SIGUSR1, &to, 0); raise(SIGUSR1); return n; }\n\
                  __attribute__((noinline)) static void *here(void *n) { work((long)n); sink++; return n; }\n\
                  int main(void) { pthread_t t, u; pthread_create(&t, 0, elsewhere, 0); pthread_join(t, 0);\n\
                    pthread_create(&t, 0, here, (void *)100); pthread_create(&u, 0, here, (void *)100); pthread_join(t, 0); pthread_join(u, 0); return 0; }\n";
    std::fs::write(place.at("stacks.c"), source).expect("room");
    let mut gcc = std::process::Command::new("gcc");
    gcc.args(["-O1", "-pthread", "-o", "stacks", "stacks.c"]).current_dir(place.at("."));
    assert!(gcc.status().expect("gcc can be run").success());
    place.train("a.map", &["./stacks"]);
    for way in ways() {
        let directory = format!("infer{way}");
        assert_eq!(place.record((&format!("--unwind=infer {way}"), &directory), &["./stacks"]).status, 0);
        let json = place.json(["report", "--json", "--map", "a.map", &directory]);
        let of_samples = |name: &str| number(&json, &format!("/quality/inferred/samples/{name}"));
        let [precise, undetermined] = ["precise", "undetermined"].map(of_samples);
        assert!(undetermined > 0 && precise > 2 * undetermined, "{way}: {precise}, {undetermined}");
    }
}

/// A static program cannot be trained by counting; a walked run teaches its paths, and a run without walks has them.
#[test]
fn a_static_program_from_its_own_samples() {
    if !is_allowed("a_static_program_from_its_own_samples") {
        return;
    }
    let program = C { source: "burn.c", output: "inferred_static", options: &["-O2", "-static"] };
    let program = compiled(program).expect("it compiles").to_str().expect("a name").to_owned();
    let place = Place::new();
    assert_eq!(place.record(("--unwind=both", "both"), &[&program, "300", "exit"]).status, 3);
    assert_eq!(place.run(["map", "train", "-q", "--measurement", "both", "-o", "a.map"]).status, 0);
    assert_eq!(place.record(("--unwind=infer", "infer"), &[&program, "300", "exit"]).status, 3);
    let json = place.json(["report", "--json", "--map", "a.map", "infer"]);
    let profile = Profile::of_json(&json.to_string());
    assert!(profile.percent_through(&["main", "outer", "inner"]) > 90.0, "{profile:?}");
    let checked = place.json(["map", "check", "a.map", "both", "--json"]);
    assert_eq!(number(&checked, "/samples/wrong") + number(&checked, "/samples/undetermined"), 0, "{checked}");
}

/// What the map does not know of stays a part of a path, and is said.
#[test]
fn a_map_that_lacks_a_module() {
    let (place, program) = (Place::new(), known());
    place.train("true.map", &["/bin/true"]);
    assert_eq!(place.record(("--unwind=infer", "infer"), &[&program, "5000"]).status, 3);
    let text = place.run(["report", "--map", "true.map", "infer"]).stdout;
    assert!(text.contains("the map knows nothing of"), "{text}");
    let json = place.json(["report", "--json", "--map", "true.map", "infer"]);
    let samples = &json["quality"]["inferred"]["samples"];
    assert!(number(samples, "/missing") > 0, "{samples}");
    // What the loader calls is the same in every program. All else leads through the map's program, which is not here.
    let nodes = json["nodes"].as_array().expect("nodes");
    let is_precise = |node: &Value| node["certainty"] == "precise";
    let is_wrong = |node: &&Value| node["module"] == "true" || is_precise(node) && node["module"] == "inferred";
    assert_eq!(nodes.iter().find(is_wrong), None);
}

/// Of a map of several programs, each process is told the paths of its own code alone.
#[test]
fn a_map_of_two_programs() {
    let (place, program) = (Place::new(), known());
    place.train("known.map", &[&program, "20"]);
    place.train("true.map", &["/bin/true"]);
    assert_eq!(
        place.run(["map", "train", "-q", "--from", "known.map", "--from", "true.map", "-o", "both.map"]).status,
        0
    );
    // Heights, and the stacks themselves: what the map says can be compared with them.
    assert_eq!(place.record(("--unwind=both", "walked"), &[&program, "300"]).status, 3);
    let [alone, both] = ["known.map", "both.map"].map(|map| place.json(["map", "check", map, "walked", "--json"]));
    // The other program may have shown that a library's procedure has other callers: then a path is likely.
    let known = |checked: &Value| {
        ["precise", "likely"].map(|verdict| number(checked, &format!("/samples/{verdict}"))).iter().sum::<u64>()
    };
    assert!(known(&alone) > 0, "{alone}");
    assert_eq!(known(&alone), known(&both), "{alone} {both}");
    assert_eq!(number(&both, "/samples/wrong"), 0, "{both}");
    assert_eq!(place.record(("--unwind=infer", "infer"), &[&program, "300"]).status, 3);
    let [alone, both] = ["known.map", "both.map"].map(|map| place.json(["report", "--json", "--map", map, "infer"]));
    let names = |json: &Value| -> Vec<String> {
        json["nodes"].as_array().expect("nodes").iter().map(|node| node["name"].to_string()).collect()
    };
    assert_eq!(names(&alone), names(&both));
}
