//! `report --kernel`: a system call has its cost, and nothing else does.

use std::collections::BTreeMap;

use callpath_end_to_end::{Program, run_report};
use serde_json::Value;

/// Samples in each system call below each procedure of `kernel_calls.c`, and all samples below it.
struct Found {
    calls: BTreeMap<(String, String), u64>,
    procedures: BTreeMap<String, u64>,
}

fn found(json: &str) -> Found {
    let json: Value = serde_json::from_str(json).expect("the report is JSON");
    let nodes = json["nodes"].as_array().expect("nodes");
    let samples = json["metrics"].as_array().expect("metrics").len() - 1;
    let (mut calls, mut procedures) = (BTreeMap::new(), BTreeMap::new());
    for node in nodes {
        let name = |node: &Value| node["name"].as_str().unwrap_or_default().to_owned();
        let count = node["inclusive"][samples].as_u64().expect("a number");
        if ["by_", "in_v", "touch"].iter().any(|start| name(node).starts_with(start)) {
            *procedures.entry(name(node)).or_default() += count;
        }
        if node["kind"] == "system_call" {
            let mut above = node;
            while let Some(parent) = above["parent"].as_u64() {
                above = &nodes[parent as usize];
                if procedures.contains_key(&name(above)) {
                    *calls.entry((name(above), name(node))).or_default() += count;
                    break;
                }
            }
        }
    }
    Found { calls, procedures }
}

#[test]
fn are_named_below_the_code_that_made_them() {
    let recorded = Program::nasty("kernel_calls.c").arguments(["1200000"]).options(&["-F", "2000"]).same();
    let report = |options: &[&str]| {
        let said = run_report(&recorded.directory, options);
        assert_eq!(said.status, 0, "{}", said.stderr);
        said.stdout
    };
    let Found { calls, procedures } = found(&report(&["--json", "--kernel"]));
    // Most of what a call costs is in the kernel.
    for (procedure, call) in [("by_name", "getppid"), ("by_number", "getpgid"), ("by_variable", "system call")] {
        let all = procedures.get(procedure).copied().unwrap_or(0);
        let own = calls.get(&(procedure.to_owned(), call.to_owned())).copied().unwrap_or(0);
        assert!(own * 2 > all && all >= 50, "{procedure}: {own} of {all} in {call}; {calls:?}");
        // And in no other.
        let others = calls.iter().filter(|(place, _)| place.0 == procedure).map(|(_, count)| count).sum::<u64>();
        assert_eq!(others, own, "{calls:?}");
    }
    // The vdso's clock is read in user mode, and page faults are no calls.
    for procedure in ["in_vdso", "touch"] {
        assert!(procedures.get(procedure).is_some_and(|count| *count >= 50), "{procedures:?}");
        assert!(!calls.keys().any(|place| place.0 == procedure), "{calls:?}");
    }
    let plain = report(&["--json"]);
    assert!(!plain.contains("system_call"));
    let text = report(&["--kernel"]);
    assert!(text.contains("getpgid (system call)") && text.contains(" user, "), "{text}");
    assert!(!report(&[]).contains("(system call)"));
}
