//! Call paths that the code has (`callpath map static`): they complete what training missed, and none is told that is not so.

use std::process::Command;

use callpath_end_to_end::Profile;
use serde_json::Value;

use crate::inference::{Place, ROWS, known, number, refused};

fn samples(checked: &Value, verdict: &str) -> u64 {
    number(checked, &format!("/samples/{verdict}"))
}

/// Each call that the program makes is in its code: what is not told is among what is too much to tell, and missing is what is refused by name.
#[test]
fn the_code_has_every_path() {
    let (place, program) = (Place::new(), known());
    let made = place.run(["map", "static", "-o", "a.map", &program]);
    assert_eq!(made.status, 0, "{made:?}");
    assert!(
        made.stderr.contains("calls that name what they call") && made.stderr.contains("computed length"),
        "{made:?}"
    );
    let shown = place.json(["map", "show", "--json", "a.map"]);
    assert!(shown["variable"].to_string().contains("inferred!varies"), "{shown}");
    assert!(number(&shown, "/code/modules") >= 3 && number(&shown, "/code/pointed") > 100, "{shown}");
    assert_eq!(place.record(("--unwind=both --outside=never", "both"), &[&program, "100000"]).status, 3);
    let checked = place.json(["map", "check", "a.map", "both", "--json"]);
    for wrong in ["wrong", "unlikely", "static_wrong", "incorrect"] {
        assert_eq!(samples(&checked, wrong), 0, "{checked}");
    }
    // The thread calls nothing through pointers.
    assert!(samples(&checked, "static") > 0, "{checked}");
    assert!(samples(&checked, "many") + samples(&checked, "ambiguous") > 0, "{checked}");
    for missing in checked["missing"].as_array().expect("a list") {
        let path: Vec<&str> = missing["path"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let is_own = path.last() == Some(&"work");
        assert!(!is_own || path.iter().any(|name| ["varies", "raise"].contains(name)), "{missing}");
    }
    let explained = place.json(["map", "explain", "a.map", "inferred!thick", "0", "--thread", "thick", "--json"]);
    assert_eq!(explained["answers"], Value::Array(Vec::new()), "nothing has its address: {explained}");
    let explained =
        place.json(["map", "explain", "a.map", "thread_begins", "0", "--thread", "thread_begins", "--json"]);
    assert_eq!(explained["answers"][0]["certainty"], "static", "{explained}");
}

/// A path that no training run took.
#[test]
fn code_completes_what_training_missed() {
    let place = Place::new();
    let source = "int printf(const char *, ...);\n\
                  __attribute__((noinline)) long work(long n) { long s = n; for (long i = 0; i < 40000000; i++) s = s * 31 + (i ^ s >> 3); return s; }\n\
                  __attribute__((noinline)) long usual(long n) { volatile char own[64]; own[0] = n; return work(n) + own[0]; }\n\
                  __attribute__((noinline)) long deep(long n) { volatile char own[200]; own[0] = n; return work(n) + own[0]; }\n\
                  __attribute__((noinline)) long rare(long n) { volatile char own[640]; own[0] = n; return deep(n) + own[0]; }\n\
                  int main(int count, char **words) { long s = usual(count); if (count > 1) s += rare(count); printf(\"%ld\\n\", s); return 0; }\n";
    std::fs::write(place.at("missed.c"), source).expect("room");
    let gcc = Command::new("gcc").args(["-O1", "-o", "missed", "missed.c"]).current_dir(place.at(".")).status();
    assert!(gcc.expect("gcc can be run").success());
    place.train("seen.map", &["./missed"]);
    assert_eq!(place.run(["map", "static", "-q", "-o", "both.map", "--from", "seen.map", "./missed"]).status, 0);
    assert_eq!(place.record(("--unwind=infer --outside=never", "run"), &["./missed", "more"]).status, 0);
    let path = ["main", "rare", "deep", "work"];
    let report = |map: &str, novel: &[&str]| {
        let json = place.json([&["report", "--json", "--map", map, "run"], novel].concat());
        (Profile::of_json(&json.to_string()), json)
    };
    let (seen, json) = report("seen.map", &[]);
    let missing = number(&json["quality"]["inferred"], "/samples/missing");
    assert!(seen.through(&path, "samples") == 0 && missing > 20, "{json}");
    let (both, json) = report("both.map", &[]);
    let inferred = &json["quality"]["inferred"];
    let told = number(inferred, "/samples/static");
    assert!(told > 20 && told <= missing && both.through(&path, "samples") <= told, "{inferred}");
    assert!(both.through(&path, "samples") > 20, "{:?}", both.paths());
    assert!(both.through(&["main", "usual", "work"], "samples") > 20, "{:?}", both.paths());
    let all = ["precise", "likely", "static", "ambiguous", "undetermined", "missing"];
    let all: u64 = all.iter().map(|name| number(inferred, &format!("/samples/{name}"))).sum();
    assert_eq!(all, seen.quality.full + seen.quality.partial, "{inferred}");
    let of = |name: &str| json["nodes"].as_array().expect("nodes").iter().find(|node| node["name"] == name).cloned();
    assert_eq!(of("rare").expect("it is there")["certainty"], "static");
    assert_ne!(of("main").expect("it is there")["certainty"], "static");
    let text = place.run(["report", "--map", "both.map", "run"]).stdout;
    assert!(text.contains("one that the code alone has for"), "{text}");
    // No run has taken it: it is novel, with its path.
    let (novel, json) = report("both.map", &["--novel"]);
    let [usual, rare] = [&["usual"][..], &["work"]].map(|path| novel.through(path, "samples"));
    assert!(usual == 0 && rare > 20, "{json}");
}

/// What is refused by name is not taken for what cannot be: the true path may be among it.
#[test]
fn nothing_is_certain_beside_what_is_refused() {
    let place = Place::new();
    let source = "#include <alloca.h>\n#include <stdlib.h>\nstatic volatile long sink; volatile int len = 64;\n\
                  #define APART __attribute__((noinline, noclone))\n\
                  APART void work(long n) { for (long i = 0; i < n; i++) sink = sink * 31 + i; }\n\
                  APART void fixed(long n) { volatile char own[SIZE]; own[0] = n; work(n); sink += own[0]; }\n\
                  APART void varies(long n) { volatile char *own = alloca(len); own[0] = n; work(n); sink += own[0]; }\n\
                  int main(int count, char **words) { for (int i = 0; i < atoi(words[1]); i++) { fixed(20000); varies(20000); } return 0; }\n";
    std::fs::write(place.at("beside.c"), source).expect("room");
    let mut right = 0;
    for size in [72, 88, 104, 120, 136] {
        let mut gcc = Command::new("gcc");
        gcc.args(["-O2", &format!("-DSIZE={size}"), "-o", "beside", "beside.c"]).current_dir(place.at("."));
        assert!(gcc.status().expect("gcc can be run").success());
        assert_eq!(place.run(["map", "static", "-q", "-o", "a.map", "./beside"]).status, 0);
        let directory = format!("both{size}");
        assert_eq!(place.record(("--unwind=both --outside=never", &directory), &["./beside", "3000"]).status, 0);
        let checked = place.json(["map", "check", "a.map", &directory, "--json"]);
        assert_eq!((samples(&checked, "static_wrong"), samples(&checked, "wrong")), (0, 0), "{size}: {checked}");
        right += samples(&checked, "likely");
        assert!(samples(&checked, "unlikely") + samples(&checked, "missing") > 0, "{size}: {checked}");
    }
    assert!(right > 0);
}

/// Of a program that nobody wrote for this, trained on next to nothing.
#[test]
fn of_debians_sqlite() {
    let place = Place::new();
    place.train("little.map", &["/usr/bin/sqlite3", ":memory:", "select 1"]);
    let made = ["map", "static", "-q", "-o", "both.map", "--from", "little.map", "sqlite3"];
    assert_eq!(place.run(made).status, 0);
    let rows = ["/usr/bin/sqlite3", ":memory:", ROWS];
    assert_eq!(place.record(("--unwind=both --outside=never", "both"), &rows).status, 0);
    let [little, both] = ["little.map", "both.map"].map(|map| place.json(["map", "check", map, "both", "--json"]));
    assert_eq!((samples(&both, "static_wrong"), number(&both, "/paths/static_wrong")), (0, 0), "{both}");
    let one_path =
        |checked: &Value| ["precise", "static", "likely"].iter().map(|name| samples(checked, name)).sum::<u64>();
    assert!(one_path(&both) >= one_path(&little), "{little} {both}");
    let told = ["precise", "likely", "static", "ambiguous"];
    let [before, after] = [&little, &both].map(|checked| told.iter().map(|name| samples(checked, name)).sum::<u64>());
    assert!(after > before, "{little} {both}");
    // What is not among them lies below memory of a computed length.
    assert!(samples(&both, "missing") * 20 <= samples(&little, "missing"), "{little} {both}");
}

#[test]
fn what_cannot_be_read_is_refused() {
    let (place, program) = (Place::new(), known());
    std::fs::write(place.at("text"), "no program").expect("room");
    let bytes = std::fs::read(&program).expect("it is there");
    std::fs::write(place.at("cut"), &bytes[..1000]).expect("room");
    for (words, said) in [
        (&["map", "static", "-o", "a.map", "./text"][..], "text"),
        (&["map", "static", "-o", "a.map", "./none"], "none"),
        (&["map", "static", "-o", "a.map", "./"], "it is no file"),
        (&["map", "static", "-q", "-o", "a.map", "./cut"], "no map was written"),
        (&["map", "static", "-o", "no/a.map", &program], "no/a.map"),
        (&["map", "static", "-o", "a.map", "--from", "none.map", &program], "none.map"),
    ] {
        refused(&place, words, &[said]);
        assert!(!place.at("a.map").exists());
    }
    // Another build.
    std::fs::copy(&program, place.at("inferred")).expect("room");
    place.train("a.map", &["./inferred", "50"]);
    let mut strip = Command::new("strip");
    strip.args(["--remove-section=.note.gnu.build-id", "inferred"]).current_dir(place.at("."));
    assert!(strip.status().expect("binutils are there").success());
    refused(&place, &["map", "static", "-o", "b.map", "--from", "a.map", "./inferred"], &["another build of"]);
}
