//! A difference as text, JSON and a flame graph, from trees whose costs are known.

use callpath_db::diff::{Diff, DiffOptions};
use callpath_db::{Metric, MetricId, NodeId, Profile, Scope, ScopeKind, ViewKind};
use callpath_view::diff_json;
use callpath_view::export::write_diff;
use callpath_view::text::{DiffTextOptions, diff};

const SAMPLE: u64 = 1_000_000;

fn profile(chains: &[(&[&str], u64)]) -> Profile {
    let mut profile = Profile::new(vec![Metric::of(MetricId::CPU_TIME), Metric::of(MetricId::SAMPLES)]);
    for (chain, samples) in chains {
        let module = Some(profile.strings.intern("app"));
        let node = chain.iter().fold(NodeId::ROOT, |node, name| {
            let name = profile.strings.intern(name);
            profile.tree.child(node, Scope { module, ..Scope::new(ScopeKind::Procedure, name) })
        });
        profile.tree.add(node, &[samples * SAMPLE, *samples]);
    }
    profile
}

/// `slow<&>` got slower, `old` went, `same` did not change.
fn changed(view: Option<ViewKind>) -> Diff {
    let a = profile(&[(&["main", "slow<&>"], 1000), (&["main", "same"], 500), (&["main", "old"], 300)]);
    let b = profile(&[(&["main", "slow<&>"], 2000), (&["main", "same"], 510)]);
    Diff::of(&[a], &[b], &DiffOptions { view, ..DiffOptions::default() }).expect("an answer")
}

fn text(view: Option<ViewKind>) -> String {
    let mut out = Vec::new();
    let options = DiffTextOptions { width: 120, color: false, top: 20, view };
    diff(&changed(view), options, &mut out).expect("memory takes all");
    String::from_utf8(out).expect("text")
}

#[test]
fn each_view_has_its_changes_with_intervals() {
    let row = |view, name: &str| {
        let text = text(Some(view));
        text.lines().find(|line| line.trim_end().ends_with(name)).map(str::to_owned).unwrap_or_else(|| panic!("{text}"))
    };
    for view in [ViewKind::Context, ViewKind::Callers, ViewKind::Flat] {
        let slow = row(view, " slow<&>");
        assert!(slow.contains("+1.00 s") && slow.contains("+100.0%") && slow.contains(" to "), "{slow}");
        assert!(!slow.starts_with('~') && row(view, " old").contains("gone"));
        let text = text(Some(view));
        assert!(!text.contains(" same") && text.contains("Within noise: "), "{text}");
    }
    assert!(row(ViewKind::Flat, " app").contains("1.80 s -> 2.51 s"));
    // Of `slow<&>` on calls from there.
    assert!(row(ViewKind::Callers, "  main").contains("1.00 s -> 2.00 s"));
    assert!(text(None).contains("Procedures by the change") && text(None).contains("Call paths by the change"));
}

#[test]
fn the_json_has_the_view_that_was_asked_for() {
    let json = |view| -> serde_json::Value {
        let mut out = Vec::new();
        diff_json::write(&changed(view), &mut out).expect("memory takes all");
        serde_json::from_slice(&out).expect("JSON")
    };
    assert!(json(None)["contexts"].is_array() && json(None)["flat"].is_null());
    let flat = json(Some(ViewKind::Flat));
    let slow = flat["flat"].as_array().and_then(|rows| rows.iter().find(|row| row["name"] == "slow<&>"));
    let own = &slow.expect("a row")["self"];
    assert!(own["found"] == true && own["b"] == 2e9 && own["interval"][0].as_f64() > Some(8e8), "{own}");
    assert!(json(Some(ViewKind::Callers))["callers"].is_array());
}

#[test]
fn a_differential_flame_graph_is_as_wide_as_b_and_what_only_a_has() {
    let mut out = Vec::new();
    write_diff(&changed(None), &mut out).expect("memory takes all");
    let picture = String::from_utf8(out).expect("text");
    let frame = |name: &str| -> (u64, String) {
        let line = picture.lines().find(|line| line.contains(&format!("data-name=\"{name}\""))).expect("a rectangle");
        let cost = line.split("data-cost=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a cost");
        let end = picture[picture.find(line).expect("it is there")..].find("</g>").expect("its end");
        let from = picture.find(line).expect("it is there");
        (cost.parse().expect("a number"), picture[from..from + end].to_owned())
    };
    let slow = frame("slow&lt;&amp;&gt;");
    assert!(slow.0 == 2000 * SAMPLE && slow.1.contains("hsl(6,") && slow.1.contains("+100.0% ("), "{}", slow.1);
    let old = frame("old");
    assert!(old.0 == 300 * SAMPLE && old.1.contains("hsl(211,"), "{}", old.1);
    let same = frame("same");
    assert!(same.0 == 510 * SAMPLE && same.1.contains("#d2d2cd") && same.1.contains("within noise"), "{}", same.1);
    assert_eq!(frame("main").0, 2810 * SAMPLE);
    assert_eq!(frame("all").0, 2810 * SAMPLE);
    assert!(!picture.contains("http://www.w3.org/1999/xlink") && picture.trim_end().ends_with("</svg>"));
}
