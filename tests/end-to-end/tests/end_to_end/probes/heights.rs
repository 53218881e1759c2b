//! `record --unwind=infer --probe`: calls whose paths a map tells are where a walk at each of them finds them.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::inference::{Place, known, number};

/// By procedures, the outermost first: calls there, and whether the path is precise.
type Paths = BTreeMap<Vec<String>, (u64, bool)>;

/// The call paths of the calls of functions.
fn paths(json: &Value) -> Paths {
    let column =
        |at: &Value| at["metrics"].as_array().and_then(|all| all.iter().position(|one| one["name"] == "calls"));
    let (calls, nodes) = (column(json).expect("calls"), json["nodes"].as_array().expect("nodes"));
    let mut paths = Paths::new();
    for node in nodes {
        let own = node["exclusive"][calls].as_u64().unwrap_or(0);
        if own == 0 {
            continue;
        }
        let parent = |node: &&Value| node["parent"].as_u64().and_then(|at| nodes.get(at as usize));
        let above = std::iter::successors(Some(node), parent).filter(|node| node["kind"] == "procedure");
        let mut path: Vec<String> = above.map(|node| node["name"].as_str().expect("a name").to_owned()).collect();
        path.reverse();
        let found = paths.entry(path).or_insert((0, node["certainty"] == "precise"));
        found.0 += own;
    }
    paths
}

fn all(paths: &Paths) -> u64 {
    paths.values().map(|(calls, _)| calls).sum()
}

#[test]
fn a_map_tells_the_contexts_of_calls() {
    let (place, program) = (Place::new(), known());
    place.train("a.map", &[&program, "2"]);
    let ended = place.run(["probe", "-q", "-f", "work", "-f", "work_anywhere", "-o", "walked", "--", &program, "3"]);
    assert_eq!(ended.status, 3, "{ended:?}");
    let walked = paths(&place.json(["report", "walked", "--json"]));
    for (metrics, directory) in [("calls", "counted"), ("wall-time", "timed")] {
        let options = format!("--unwind=infer --probe work --probe work_anywhere --probe-metrics {metrics}");
        assert_eq!(place.record((&options, directory), &[&program, "3"]).status, 3);
        // Without a map, no call has a path.
        let bare = paths(&place.json(["report", directory, "--json"]));
        assert!(bare.keys().all(|path| path.len() == 1), "{bare:?}");
        let json = place.json(["report", directory, "--map", "a.map", "--json"]);
        let told = paths(&json);
        assert_eq!((all(&told), all(&bare)), (all(&walked), all(&walked)), "{told:?} {walked:?}");
        let precise: Paths =
            told.iter().filter(|(_, (_, is_sure))| *is_sure).map(|(path, of)| (path.clone(), *of)).collect();
        for (path, (calls, _)) in &precise {
            assert_eq!(walked.get(path).map(|(calls, _)| calls), Some(calls), "{path:?} {walked:?}");
        }
        // Through frames of different sizes, in a thread, and recursion.
        assert!(precise.len() >= 6, "{told:?}");
        let of = |certainty: &str| number(&json, &format!("/quality/inferred/calls/{certainty}"));
        assert_eq!(of("precise"), all(&precise), "{json}");
        // left and right; above and below. On the stack of a handler of its own.
        assert!(of("ambiguous") > 0 && of("undetermined") > 0, "{json}");
        let counts = ["precise", "likely", "static", "ambiguous", "missing", "undetermined"];
        assert_eq!(counts.iter().map(|certainty| of(certainty)).sum::<u64>(), all(&walked), "{json}");
    }
    // The map may be kept with the measurement.
    let options = "--unwind=infer --map a.map --probe work";
    assert_eq!(place.record((options, "kept"), &[&program, "3"]).status, 3);
    let kept = place.json(["report", "kept", "--json"]);
    assert!(number(&kept, "/quality/inferred/calls/precise") > 0, "{kept}");
}

#[test]
fn what_walks_at_samples_alone_is_refused() {
    let (place, program) = (Place::new(), known());
    let ended = place.record(("--unwind=both --probe work", "both"), &[&program, "1"]);
    assert_eq!(ended.status, 125, "{ended:?}");
    assert!(ended.stderr.contains("--unwind=both keeps the heights of samples only"), "{ended:?}");
    assert!(!place.at("both").exists());
}
