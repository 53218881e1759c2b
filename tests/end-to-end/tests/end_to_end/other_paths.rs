//! Call paths that training did not take, and that have the identifiers of paths that it did: none is told for certain, none counts as seen.

use callpath_end_to_end::Profile;
use serde_json::Value;

use crate::inference::{Place, number};

impl Place {
    /// Compiles a program without optimization.
    #[track_caller]
    fn compile(&self, name: &str, source: &str) {
        let file = format!("{name}.c");
        std::fs::write(self.at(&file), source).expect("room");
        let gcc = std::process::Command::new("gcc").args(["-O0", "-o", name, &file]).current_dir(self.at(".")).status();
        assert!(gcc.expect("gcc can be run").success());
    }
}

/// `one` and `other` have frames of the same size; which is called, the argument says. What they call, they call through a pointer.
const EITHER: &str = "#include <stdlib.h>\n\
    #define NI __attribute__((noinline))\n\
    volatile unsigned long sink;\n\
    NI void leaf(long n) { for (long i = 0; i < n; i++) sink += i; }\n\
    NI void through(void (*to)(long), long n) { volatile char b[32]; b[0] = 1; to(n); b[1] = 2; }\n\
    NI void one(long n) { volatile char b[32]; b[0] = 1; through(leaf, n); b[1] = 2; }\n\
    NI void other(long n) { volatile char b[32]; b[0] = 1; through(leaf, n); b[1] = 2; }\n\
    NI void outer(int s, long n) { volatile char b[64]; b[0] = s; if (s) one(n); else other(n); b[1] = 2; }\n\
    int main(int c, char **v) { outer(atoi(v[1]), 100000000); return 0; }\n";

#[test]
fn a_path_that_the_code_has_another_of_is_likely() {
    let place = Place::new();
    place.compile("either", EITHER);
    place.train("a.map", &["./either", "0"]);
    assert_eq!(place.record(("--unwind=both", "both"), &["./either", "1"]).status, 0);
    let checked = place.json(["map", "check", "a.map", "both", "--json"]);
    assert_eq!(number(&checked, "/samples/wrong"), 0, "{checked}");
    assert!(number(&checked, "/samples/unlikely") > 20, "{checked}");

    // What was walked is shown, and is novel.
    let report = |more: &[&str]| {
        let json = place.json([&["report", "--json", "--map", "a.map"], more].concat());
        (Profile::of_json(&json.to_string()), json)
    };
    let (shown, json) = report(&["both"]);
    assert!(shown.through(&["outer", "one", "through", "leaf"], "samples") > 20, "{:?}", shown.paths());
    assert_eq!(shown.through(&["other"], "samples"), 0, "{:?}", shown.paths());
    assert!(number(&json, "/quality/inferred/samples/walked") > 20, "{json}");
    let is_leaf = |node: &&Value| node["name"] == "leaf";
    assert!(json["nodes"].as_array().expect("nodes").iter().filter(is_leaf).all(|node| node["certainty"] == "walked"));
    let (novel, _) = report(&["--novel", "both"]);
    assert!(novel.through(&["outer", "one", "through", "leaf"], "samples") > 20, "{:?}", novel.paths());

    assert_eq!(place.record(("--unwind=infer", "infer"), &["./either", "1"]).status, 0);
    let (_, json) = report(&["infer"]);
    assert!(number(&json, "/quality/inferred/samples/likely") > 20, "{json}");
    let nothing = place.run(["report", "--novel", "--map", "a.map", "infer"]);
    assert!(nothing.status == 0 && nothing.stdout.contains("this is not known"), "{nothing:?}");

    // Nothing can be learned from samples without a path.
    let refused = place.run(["map", "train", "-o", "b.map", "--measurement", "infer"]);
    assert!(refused.status != 0 && refused.stderr.contains("only with the help of a map"), "{refused:?}");
}

/// What a coroutine calls on a stack of its own, which training did not do.
#[test]
fn a_coroutine_is_never_counted_as_seen() {
    let place = Place::new();
    let source = "#include <stdlib.h>\n#include <ucontext.h>\n\
        #define NI __attribute__((noinline))\n\
        volatile unsigned long sink;\n\
        static ucontext_t outside, inside;\n\
        NI void leaf(long n) { for (long i = 0; i < n; i++) sink += i; }\n\
        NI void usual(long n) { leaf(n); sink++; }\n\
        NI void rare(void) { leaf(50000000); usual(50000000); }\n\
        int main(int c, char **v) {\n\
            (void)v;\n\
            if (c == 1) { usual(100); leaf(100); return 0; }\n\
            getcontext(&inside); inside.uc_stack.ss_sp = malloc(1 << 20); inside.uc_stack.ss_size = 1 << 20; inside.uc_link = &outside;\n\
            makecontext(&inside, rare, 0); swapcontext(&outside, &inside); return 0;\n\
        }\n";
    place.compile("coroutine", source);
    place.train("a.map", &["./coroutine"]);
    assert_eq!(place.record(("--unwind=walk", "walked"), &["./coroutine", "more"]).status, 0);
    let novel = place.json(["report", "--json", "--novel", "--map", "a.map", "walked"]);
    let novel = Profile::of_json(&novel.to_string());
    for path in [&["rare", "leaf"][..], &["rare", "usual", "leaf"]] {
        assert!(novel.through(path, "samples") > 20, "{:?}", novel.paths());
    }
    // Without a walk, its height says nothing.
    assert_eq!(place.record(("--unwind=infer --outside=never", "infer"), &["./coroutine", "more"]).status, 0);
    let nothing = place.run(["report", "--novel", "--map", "a.map", "infer"]);
    assert!(nothing.status == 0 && !nothing.stdout.contains("of all"), "{nothing:?}");
    assert!(nothing.stdout.contains("this is not known"), "{nothing:?}");
    // After training that did it, it is not novel.
    place.train("b.map", &["./coroutine", "more"]);
    let novel = place.json(["report", "--json", "--novel", "--map", "b.map", "walked"]);
    assert_eq!(Profile::of_json(&novel.to_string()).through(&["rare"], "samples"), 0, "{novel}");
}

#[test]
fn a_map_or_a_plan_of_another_program_is_named() {
    let place = Place::new();
    place.compile("either", EITHER);
    place.train("a.map", &["./either", "0"]);
    let absent = |ended: &callpath_end_to_end::Ended, of: &str| {
        let said =
            ended.stderr.contains("did not load") && ended.stderr.contains("either") && ended.stderr.contains(of);
        assert!(ended.status == 0 && said, "{ended:?}");
    };
    for ways in [&[][..], &["--on-ambiguous=walk"]] {
        let words = [&["record", "--unwind=infer", "--map", "a.map", "-o", "m"], ways, &["--", "/bin/true"]].concat();
        absent(&place.run(words), "map's");
        let report = place.run(["report", "--map", "a.map", "m"]);
        let told = format!("{}{}", report.stdout, report.stderr);
        assert!(report.status == 0 && told.contains("did not load"), "{report:?}");
        std::fs::remove_dir_all(place.at("m")).expect("a measurement");
    }
    assert_eq!(place.run(["map", "resize", "a.map", "-o", "a.plan", "-q", "--every", "16"]).status, 0);
    absent(&place.run(["record", "--unwind=infer", "--plan", "a.plan", "-o", "p", "--", "/bin/true"]), "plan's");
}

/// Each level of recursion takes a larger frame again.
#[test]
fn larger_frames_in_recursion_are_said() {
    let place = Place::new();
    let source = "volatile long sink;\n\
        __attribute__((noinline)) void down(long n) { if (n > 0) down(n - 1); sink += n; }\n\
        int main(void) { down(20); return 0; }\n";
    place.compile("down", source);
    place.train("a.map", &["./down"]);
    let resized = place.run(["map", "resize", "a.map", "-o", "a.plan", "--every", "64"]);
    assert!(resized.status == 0 && resized.stderr.contains("down!down 64"), "{resized:?}");
    let shown = place.json(["map", "show", "--json", "a.map"]);
    assert_eq!(number(&shown, "/inferred/missing"), 0, "{shown}");
    number(&shown, "/inferred/undetermined");
}
