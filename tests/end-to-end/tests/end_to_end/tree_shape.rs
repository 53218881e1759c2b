//! `report --view contexts`: the shape of a tree that is known (tests/nasty/bushy.c), alone and with samples beside.

use callpath_end_to_end::{C, Program, Recorded, run_report};
use serde_json::Value;

const BUSHY: C = C { source: "bushy.c", output: "bushy", options: &["-O0"] };

fn recorded(options: &[&str]) -> Recorded {
    let recorded = Program::compiled(BUSHY).options(options).same();
    assert_eq!(recorded.ended.status, 4, "{recorded:?}");
    recorded
}

fn json(recorded: &Recorded, options: &[&str]) -> Value {
    let report = run_report(&recorded.directory, &[options, &["--json"]].concat());
    assert_eq!(report.status, 0, "{report:?}");
    serde_json::from_str(&report.stdout).expect("JSON")
}

/// What a node takes without slots, bytes.
const NODE_BYTES: u64 = 72;

/// The procedure of the program with this name: contexts, calls, call sites.
fn procedure(shape: &Value, name: &str) -> [u64; 3] {
    let nodes = shape["nodes"].as_array().expect("nodes");
    let node = nodes.iter().find(|node| node["module"] == "bushy" && node["name"] == name);
    let node = node.unwrap_or_else(|| panic!("{name}: {shape}"));
    let number = |value: &Value| value.as_u64().expect("a number");
    [number(&node["inclusive"][0]), number(&node["inclusive"][1]), number(&node["call_sites"])]
}

#[test]
fn a_tree_that_is_known() {
    for options in [&["--exact=calls", "-F", "0"][..], &["--exact=calls"]] {
        let recorded = recorded(options);
        let shape = json(&recorded, &["--view", "contexts"]);
        assert_eq!((&shape["schema"], &shape["view"]), (&2.into(), &"contexts".into()));
        let of = |name| procedure(&shape, name);
        assert_eq!(of("main"), [1, 1, 5], "{options:?}");
        assert_eq!(of("twig"), [3, 5, 2], "{options:?}");
        assert_eq!(of("leaf"), [7, 11, 0], "{options:?}");
        assert_eq!(of("down"), [3, 3, 2], "{options:?}");
        assert_eq!(of("through"), [1, 2, 1], "{options:?}");
        // What the loader and the C library do besides is counted by the sums.
        let number = |pointer: &str| shape["shape"].pointer(pointer).and_then(Value::as_u64).expect("a number");
        let nodes = shape["nodes"].as_array().expect("nodes");
        let sum = |member: &dyn Fn(&Value) -> u64| nodes.iter().skip(1).map(member).sum::<u64>();
        let contexts = |node: &Value| node["inclusive"][0].as_u64().expect("contexts");
        let sites = |node: &Value| node["call_sites"].as_u64().unwrap_or(0);
        assert_eq!(number("/contexts"), sum(&contexts));
        assert_eq!(number("/call_sites/all"), sum(&|node| contexts(node) * sites(node)));
        assert_eq!(number("/bytes"), NODE_BYTES * number("/contexts") + 8 * number("/call_sites/all"));
        assert!(number("/call_sites/used") <= number("/call_sites/all"), "{shape}");
        // Of the program's 15 contexts 10 remain: main's two calls of twig are one, and so are twig's two of leaf, twice.
        assert!(number("/contexts") - number("/together/contexts") >= 5, "{shape}");
        assert_eq!(shape["shape"]["call_sites"]["one_path"], Value::Null);
    }
}

/// What differs between two runs of which one goes a level deeper follows from the level alone.
#[test]
fn recursion_and_heights() {
    const PLAIN: C = C { source: "bushy.c", output: "bushy-deep", options: &["-O0", "-DDEEPER=7"] };
    let recorded_shape = |what| {
        let recorded = Program::compiled(what).options(&["--exact=calls", "-F", "0"]).same();
        json(&recorded, &["--view", "contexts"])["shape"].clone()
    };
    let [shallow, deep] = [BUSHY, PLAIN].map(recorded_shape);
    let more = |pointer: &str| {
        let of = |shape: &Value| shape.pointer(pointer).and_then(Value::as_u64).expect("a number");
        of(&deep) - of(&shallow)
    };
    assert_eq!((more("/contexts"), more("/together/contexts")), (7, 7));
    assert_eq!((more("/inner"), more("/leaves")), (7, 0));
    assert_eq!((more("/call_sites/all"), more("/call_sites/used")), (14, 7));
    assert_eq!((more("/bytes"), more("/together/bytes")), (7 * (NODE_BYTES + 2 * 8), 7 * (NODE_BYTES + 8)));
    // Of all leaves, and of all inner nodes: one leaf is seven levels deeper, and each level is a child more.
    let sum = |shape: &Value, mean: &str, of: &str| {
        shape[mean].as_f64().expect("a number") * shape[of].as_f64().expect("a number")
    };
    for (mean, of) in [("mean_height", "leaves"), ("out_degree", "inner")] {
        let more = sum(&deep, mean, of) - sum(&shallow, mean, of);
        assert!((more - 7.0).abs() < 1e-6, "{mean}: {more}");
    }
    assert_eq!(deep["max_replication"]["name"], "down");
    assert_eq!(deep["max_replication"]["contexts"], 10);
}

#[test]
fn what_cannot_be_shown_is_said() {
    let sampled = recorded(&[]);
    let report = run_report(&sampled.directory, &["--view", "contexts"]);
    assert!(report.status != 0 && report.stderr.contains("callpath record --exact=calls PROGRAM"), "{report:?}");
    let counted = recorded(&["--exact=calls", "-F", "0"]);
    let text = run_report(&counted.directory, &["--view", "contexts"]).stdout;
    for part in ["max replication", "leaf [bushy]", "reached by one path            -", "call sites        "] {
        assert!(text.contains(part), "{part}: {text}");
    }
    for option in [&["--hot", "2"][..], &["--procedure", "leaf"], &["--focus", "leaf"]] {
        let report = run_report(&counted.directory, &[&["--view", "contexts"], option].concat());
        assert!(report.status != 0 && report.stderr.contains("is for other views"), "{option:?}: {report:?}");
    }
}
