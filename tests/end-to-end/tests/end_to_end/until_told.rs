//! Walks that end where a map tells the rest of the path (`record --on-ambiguous=walk`): paths are whole, and none is wrong, whatever the map has
//! seen.

use std::collections::HashSet;

use callpath_end_to_end::{C, Profile, compiled};
use serde_json::Value;

use crate::inference::{Place, ROWS, known, number};

const EITHER: C = C { source: "either.c", output: "either", options: &["-O2", "-pthread"] };
const WALKING: &str = "--unwind=infer --on-ambiguous=walk --map";

fn either() -> String {
    compiled(EITHER).expect("it compiles").to_str().expect("a name").to_owned()
}

/// How many samples go through these names on the main thread and on the other one.
fn on_both(profile: &Profile, path: &[&str]) -> [u64; 2] {
    let main = profile.through(&[&["_start", "main"], path].concat(), "samples");
    [main, profile.through(&[&["begin"], path].concat(), "samples")]
}

/// Samples whose stack was walked whole, and all of which something is known.
fn walked(json: &Value) -> [u64; 2] {
    let inferred = &json["quality"]["inferred"];
    let told = ["precise", "likely", "static", "ambiguous", "missing", "undetermined"];
    let told: u64 = told.map(|name| number(inferred, &format!("/samples/{name}"))).iter().sum();
    let walked = number(inferred, "/samples/walked");
    [walked, walked + told]
}

#[test]
fn a_path_that_training_never_saw_is_not_taken_for_one_that_it_saw() {
    let (place, program) = (Place::new(), either());
    place.train("first.map", &[&program, "first", "1"]);
    for asked in ["first", "second", "third"] {
        let words = [&program, asked, "100"];
        assert_eq!(place.record((&format!("{WALKING} first.map"), asked), &words).status, 0);
        let json = place.json(["report", "--json", asked]);
        let profile = Profile::of_json(&json.to_string());
        assert_eq!(profile.quality.partial, 0, "{asked}: {json}");
        for on in ["first", "second", "third"] {
            let found = on_both(&profile, &["run", on, "middle", "inner", "work"]);
            let is_so = found.iter().all(|samples| if on == asked { *samples > 50 } else { *samples == 0 });
            assert!(is_so, "{asked}, {on}: {found:?} of {:?}", profile.paths());
        }
        // The map tells what `main` and the thread's first procedure were called by, at least.
        let [walked, all] = walked(&json);
        assert!(walked * 20 < all, "{asked}: {}", json["quality"]["inferred"]);
        let nodes = json["nodes"].as_array().expect("nodes");
        let certain =
            |name: &str| nodes.iter().filter(|node| node["name"] == name).all(|node| node["certainty"] == "precise");
        assert!(certain("main") && certain("work"), "{asked}: {json}");
    }
    // Where nothing is walked, the map tells of one what is true of the other: the same identifier has one path alone.
    assert_eq!(place.record(("--unwind=infer --map first.map", "inferred"), &[&program, "second", "100"]).status, 0);
    let profile = Profile::of_json(&place.json(["report", "--json", "inferred"]).to_string());
    let [taken_for, _] = on_both(&profile, &["run", "first", "middle", "inner", "work"]);
    assert!(taken_for > 50, "{:?}", profile.paths());
}

#[test]
fn a_measurement_keeps_its_map() {
    let (place, program) = (Place::new(), either());
    place.train("a.map", &[&program, "first", "1"]);
    assert_eq!(place.record((&format!("{WALKING} a.map"), "m"), &[&program, "first", "100"]).status, 0);
    assert_eq!(std::fs::read(place.at("m/map")).expect("it is kept"), std::fs::read(place.at("a.map")).unwrap());
    let path = ["run", "first", "middle", "inner", "work"];
    let whole = |words: &[&str]| {
        let profile = Profile::of_json(&place.json(words).to_string());
        assert!(on_both(&profile, &path).into_iter().all(|samples| samples > 50), "{words:?}: {:?}", profile.paths());
    };
    whole(&["report", "--json", "m"]);
    // A database has the paths.
    assert_eq!(place.run(["merge", "-o", "a.db", "m"]).status, 0);
    whole(&["report", "--json", "a.db"]);
    // Nothing of it is novel; of what went another way, what is below that.
    let novel = place.json(["report", "--json", "--novel", "--map", "a.map", "m"]);
    assert_eq!(Profile::of_json(&novel.to_string()).through(&["work"], "samples"), 0, "{novel}");
    assert_eq!(place.record((&format!("{WALKING} a.map"), "n"), &[&program, "second", "100"]).status, 0);
    let novel = Profile::of_json(&place.json(["report", "--json", "--novel", "n"]).to_string());
    let novel_path = ["run", "second", "middle", "inner", "work"];
    assert!(on_both(&novel, &novel_path).into_iter().all(|samples| samples > 50), "{:?}", novel.paths());
    assert_eq!(novel.quality.partial, 0, "{novel:?}");
    let nothing = place.run(["report", "--novel", "--map", "a.map", "m"]);
    // A sample may hit what could not be counted: of that it cannot be told. Or what the C library does once, and did for the object that counts
    // in training: `malloc` asks for random bytes.
    let says_so =
        ["nothing is novel:", "nothing is known to be novel:"].iter().any(|words| nothing.stdout.starts_with(words));
    let is_once = nothing.stdout.contains("--novel: 1 of ")
        && !path.iter().any(|name| nothing.stdout.contains(&format!("› {name}")));
    assert!(nothing.status == 0 && (says_so || is_once), "{nothing:?}");
    // A map that other runs have made tells other paths of the same numbers: it is refused, and it may say what is new.
    place.train("b.map", &[&program, "second", "1"]);
    let refused = place.run(["report", "--map", "b.map", "m"]);
    assert!(
        refused.status != 0 && refused.stderr.contains("another map") && refused.stderr.contains("m/map"),
        "{refused:?}"
    );
    let novel = Profile::of_json(&place.json(["report", "--json", "--novel", "--map", "b.map", "m"]).to_string());
    assert!(on_both(&novel, &path).into_iter().all(|samples| samples > 50), "{:?}", novel.paths());
    let refused = place.run(["map", "check", "a.map", "m"]);
    assert!(refused.status != 0 && refused.stderr.contains("--unwind=both"), "{refused:?}");
    let refused = place.run(["report", "--pack", "m"]);
    assert!(refused.status != 0 && refused.stderr.contains("callpath merge"), "{refused:?}");
    // Without the map, what was walked is there, and what was not is said.
    std::fs::remove_file(place.at("m/map")).expect("it was there");
    let bare = Profile::of_json(&place.json(["report", "--json", "m"]).to_string());
    assert!(bare.through(&["[undetermined calls]", "work"], "samples") > 100, "{:?}", bare.paths());
    assert!(place.run(["report", "m"]).stdout.contains("until the map tells the rest"), "a note says so");
    whole(&["report", "--json", "--map", "a.map", "m"]);
}

/// Of a program that nobody wrote for this, and a map of a run that did next to nothing: each path is one that counting every call has found.
#[test]
fn paths_of_debians_sqlite3_are_those_that_were_counted() {
    let program = ["/usr/bin/sqlite3", ":memory:", ROWS];
    let place = Place::new();
    place.train("little.map", &["/usr/bin/sqlite3", ":memory:", "select 1"]);
    place.train("same.map", &program);
    let counted = [&["record", "-q", "-F", "0", "--exact=calls", "-o", "counted"], &program[..]].concat();
    assert_eq!(place.run(counted).status, 0);
    let counted = place.json(["report", "--json", "counted"]);
    let (paths, procedures) = counted_paths(&counted, "calls");
    let entered: HashSet<_> = paths.iter().filter_map(|path| path.last()).collect();
    for map in ["little", "same"] {
        assert_eq!(place.record((&format!("{WALKING} {map}.map"), map), &program).status, 0);
        let json = place.json(["report", "--json", map]);
        let profile = Profile::of_json(&json.to_string());
        profile.assert_full(999);
        let (sampled, _) = counted_paths(&json, "samples");
        assert!(sampled.len() > 20, "{json}");
        // What was not counted: a procedure that cannot be, even where it calls one that can (the loader's), and the loader before all else.
        let is_counted = |path: &&Vec<Procedure>| {
            path.last().is_some_and(|last| entered.contains(last))
                && path.iter().all(|procedure| procedures.contains(procedure))
        };
        let others: Vec<_> = sampled.iter().filter(is_counted).filter(|path| !paths.contains(*path)).collect();
        assert!(others.is_empty(), "{map}: {others:?}");
        let [walked, all] = walked(&json);
        assert!(map != "same" || walked * 10 < all, "{}", json["quality"]["inferred"]);
    }
}

/// A procedure's module and address.
type Procedure = (String, String);

/// The paths that something was measured on, and all procedures.
fn counted_paths(json: &Value, metric: &str) -> (HashSet<Vec<Procedure>>, HashSet<Procedure>) {
    let metrics = json["metrics"].as_array().expect("metrics");
    let column = metrics.iter().position(|known| known["name"] == metric).expect("the metric");
    let (mut paths, mut procedures) = (HashSet::new(), HashSet::new());
    let mut above: Vec<Vec<Procedure>> = Vec::new();
    for node in json["nodes"].as_array().expect("nodes") {
        let mut path = node["parent"].as_u64().map_or(Vec::new(), |parent| above[parent as usize].clone());
        if let (Some(module), Some(address)) = (node["module"].as_str(), node["address"].as_str())
            && node["kind"] == "procedure"
        {
            path.push((module.to_owned(), address.to_owned()));
            procedures.extend(path.last().cloned());
        }
        if node["exclusive"][column].as_u64().is_some_and(|value| value > 0) {
            paths.insert(path.clone());
        }
        above.push(path);
    }
    (paths, procedures)
}

#[test]
fn what_cannot_be_walked_so_is_refused() {
    let (place, program) = (Place::new(), known());
    place.train("a.map", &[&program, "50"]);
    let walking = ["record", "--unwind=infer", "--on-ambiguous=walk", "-o", "never"];
    let refused = |words: &[&str], expected: &[&str]| {
        let ended = place.run(words);
        assert_ne!(ended.status, 0, "{words:?}: {ended:?}");
        assert!(expected.iter().all(|said| ended.stderr.contains(said)), "{words:?}: {}", ended.stderr);
        assert!(!place.at("never").exists(), "{words:?}");
    };
    let with = |more: &[&'static str]| [&walking[..], &["--map", "a.map"], more, &["/bin/true"]].concat();
    refused(&[&walking[..], &["/bin/true"]].concat(), &["--map"]);
    refused(&[&walking[..], &["--map", "none.map", "/bin/true"]].concat(), &["none.map"]);
    refused(&with(&["--outside=always"]), &["--on-ambiguous=walk", "--outside"]);
    refused(&with(&["-a", "--duration", "1"]), &["--on-ambiguous=walk", "-a"]);
    refused(&with(&["--recursion=collapse"]), &["--on-ambiguous=walk", "--recursion"]);
    refused(&["record", "--unwind=both", "--on-ambiguous=walk", "--map", "a.map", "/bin/true"], &["--unwind=infer"]);
    refused(&["record", "--map", "a.map", "/bin/true"], &["--map", "--unwind=infer"]);
    refused(&with(&["--pack"]), &["--pack", "--map"]);
    // Another build in the place of the one that was learned.
    let copy = place.at("program");
    std::fs::copy(either(), &copy).expect("a copy");
    let copy = copy.to_str().expect("a name");
    place.train("copy.map", &[copy, "first", "1"]);
    std::fs::copy(&program, copy).expect("a copy");
    refused(&[&walking[..], &["--map", "copy.map", copy, "50"]].concat(), &["copy.map", "another build of", copy]);
    let kept = ["record", "--unwind=infer", "--map", "copy.map", "-o", "never", copy, "50"];
    refused(&kept, &["copy.map", "another build of", copy]);
}
