//! JSON as another program reads it: parsed by serde_json, compared with the schema and the view.

use crate::synthetic;

use std::collections::BTreeSet;

use callpath_db::{
    CpuTime, Handlers, Links, Metric, MetricId, MetricType, Name, NodeId, ProcessInfo, Profile, Quality, Query, Scope,
    ScopeKind, View, ViewKind,
};
use callpath_view::json;
use serde_json::Value;

fn written(view: &View, profile: &Profile) -> Vec<u8> {
    let mut out = Vec::new();
    json::write(view, profile, &mut out).expect("a vector takes all");
    out
}

fn parsed(profile: &Profile, query: &Query) -> Value {
    let view = profile.view(query).expect("an answer");
    serde_json::from_slice(&written(&view, profile)).expect("valid JSON")
}

/// The example of the schema, to the byte.
#[test]
fn schema_2() {
    let mut profile = Profile::new(vec![Metric::of(MetricId::CPU_TIME), Metric::max("depth", "count")]);
    let [main, module, file, hot] = ["main", "app", "src/app.c", "hot \"quoted\"\\"].map(|s| profile.strings.intern(s));
    let scope = Scope {
        module: Some(module),
        file: Some(file),
        line: Some(12),
        address: Some(0x1234),
        ..Scope::new(ScopeKind::Procedure, main)
    };
    let main = profile.tree.child(NodeId::ROOT, scope);
    let line = Scope { file: Some(file), line: Some(14), ..Scope::new(ScopeKind::Line, profile.strings.intern("")) };
    let line = profile.tree.child(main, line);
    let hot = profile.tree.child(line, Scope::new(ScopeKind::Procedure, hot));
    profile.tree.add(line, &[5, 2]);
    profile.tree.add(hot, &[u64::MAX - 5, 3]);
    profile.info.program = "app".into();
    profile.quality.taken = 3;
    profile.quality.full = 2;
    profile.quality.dropped.insert("no room".into(), 1);
    profile.quality.links = Links { valid: 4, likely: 5, invalid: 6 };
    profile.quality.overhead_ns = 7;
    profile.quality.handlers = Handlers { longest_ns: 8, histogram: vec![0, 2, 1] };
    let info = &mut profile.info;
    info.command = vec!["./app".into(), "\"a b\"".into()];
    (info.working_directory, info.host) = ("/home/me".into(), "host".into());
    info.exit = Some("exit status 0".into());
    (info.started_unix_ns, info.duration_ns) = (8, 9);
    (info.cpu_time_by_kernel, info.recorder_cpu_ns) = (Some(CpuTime { user_ns: 7, system_ns: 3 }), Some(11));
    info.notes = vec!["One.".into(), "Two.".into()];
    info.processes.push(ProcessInfo {
        rank: None,
        run: 0,
        pid: 12,
        parent_pid: 13,
        name: "app".into(),
        command: vec!["app".into()],
        control_group: "/a.slice/b".into(),
        started_ns: 14,
        duration_ns: 15,
        threads: 16,
        merged_threads: Vec::new(),
        continues: true,
        quality: Quality { taken: 3, full: 3, ..Quality::default() },
    });
    let view = profile.view(&Query::default()).expect("an answer");
    let expected = r#"{"schema":2,"view":"context",
"metrics":[{"name":"cpu-time","unit":"ns","kind":"sum","type":"integer","source":"clock"},{"name":"depth","unit":"count","kind":"max","type":"integer","source":"kernel"}],
"quality":{"taken":3,"full":2,"partial":0,"raw_kept":0,"dropped":{"no room":1},"links":{"valid":4,"likely":5,"invalid":6},"overhead_ns":7,"handlers":{"longest_ns":8,"histogram":[0,2,1]}},
"run":{"command":["./app","\"a b\""],"working_directory":"/home/me","host":"host","exit":"exit status 0","started_unix_ns":8,"duration_ns":9,"cpu_time_by_kernel_ns":10,"user_time_by_kernel_ns":7,"system_time_by_kernel_ns":3,"recorder_cpu_ns":11,"notes":["One.","Two."],
"processes":[
{"id":12,"parent_id":13,"name":"app","command":["app"],"control_group":"/a.slice/b","started_ns":14,"duration_ns":15,"threads":16,"continues":true,"quality":{"taken":3,"full":3,"partial":0,"raw_kept":0,"dropped":{},"links":{"valid":0,"likely":0,"invalid":0},"overhead_ns":0,"handlers":{"longest_ns":0,"histogram":[]}}}]},
"nodes":[
{"kind":"root","name":"app","inclusive":[18446744073709551615,3],"exclusive":[0,0],"self":[0,0]},
{"parent":0,"kind":"procedure","name":"main","module":"app","file":"src/app.c","line":12,"address":"0x1234","inclusive":[18446744073709551615,3],"exclusive":[5,2],"self":[5,2]},
{"parent":1,"kind":"procedure","name":"hot \"quoted\"\\","call_site":{"file":"src/app.c","line":14},"inclusive":[18446744073709551610,3],"exclusive":[18446744073709551610,3],"self":[18446744073709551610,3]}
]}
"#;
    assert_eq!(String::from_utf8_lossy(&written(&view, &profile)), expected);
}

/// A cell for each metric: a number of its type, or a histogram's bins.
#[test]
fn cells_of_each_type() {
    let of = |value| Metric { value, ..Metric::sum("of-a-type", "ratio") };
    let mut metrics = vec![of(MetricType::Integer), of(MetricType::Signed), of(MetricType::Real)];
    // Two histograms, of 4 bins and of 2, one behind the other.
    metrics.extend(Metric::histogram("latency", "ns", 4));
    metrics.extend(Metric::histogram("latency", "ns", 2));
    metrics.push(Metric::of(MetricId::SAMPLES));
    let mut profile = Profile::new(metrics);
    let main = profile.tree.child(NodeId::ROOT, Scope::new(ScopeKind::Procedure, Name::EMPTY));
    let row = |signed: i64, real: f64| [7, signed as u64, real.to_bits(), 0, 5, 0, 0, 0, 9, 1];
    profile.tree.add(main, &row(-3, 0.25));
    let leaf = profile.tree.child(main, Scope::new(ScopeKind::Loop, Name::EMPTY));
    profile.tree.add(leaf, &row(1, 1e300));
    let json = parsed(&profile, &Query::default());
    let types: Vec<_> =
        json["metrics"].as_array().unwrap().iter().map(|metric| metric["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["integer", "signed", "real", "histogram", "histogram", "integer"]);
    assert_eq!((json["metrics"][3]["bins"].as_u64(), json["metrics"][4]["bins"].as_u64()), (Some(4), Some(2)));
    let cells = |cost: &str| json["nodes"][0][cost].clone();
    assert_eq!(cells("inclusive"), serde_json::json!([14, -2, 1e300, [0, 10], [0, 18], 2]));
    assert_eq!(json["nodes"][1]["exclusive"], serde_json::json!([7, -3, 0.25, [0, 5], [0, 9], 1]));
    assert_eq!(cells("exclusive"), serde_json::json!([0, 0, 0.0, [], [], 0]));
}

/// Every member of every node is one of the schema's, of its type.
#[test]
fn nodes_keep_to_the_schema() {
    let kinds = "root process rank thread partial module file procedure inlined loop line pruned truncated";
    let kinds: BTreeSet<&str> = kinds.split(' ').collect();
    for profile in [synthetic::xz(), synthetic::cpp(), synthetic::many()] {
        for view in [ViewKind::Context, ViewKind::Callers, ViewKind::Flat] {
            for min_share in [0.0, 0.02] {
                let json = parsed(&profile, &Query { view, min_share, fold: Vec::new(), ..Query::default() });
                assert_eq!(json["schema"], 2);
                assert_eq!(json["view"], view.word());
                let width = json["metrics"].as_array().expect("metrics").len();
                for (index, node) in json["nodes"].as_array().expect("nodes").iter().enumerate() {
                    for (key, value) in node.as_object().expect("an object") {
                        let ok = match key.as_str() {
                            "parent" => index > 0 && value.as_u64().is_some_and(|parent| (parent as usize) < index),
                            "kind" => value.as_str().is_some_and(|kind| kinds.contains(kind)),
                            "name" | "module" | "file" => value.is_string(),
                            "line" | "id" => value.is_u64(),
                            "address" => value.as_str().is_some_and(|address| address.starts_with("0x")),
                            "call_site" => value["file"].is_string() && value["line"].is_u64(),
                            "inclusive" | "exclusive" | "self" => value
                                .as_array()
                                .is_some_and(|costs| costs.len() == width && costs.iter().all(Value::is_u64)),
                            _ => false,
                        };
                        assert!(ok, "{key}: {value}");
                    }
                    assert!(node.get("parent").is_some() || index == 0);
                }
            }
        }
    }
}

#[test]
fn what_is_not_known_of_a_run_is_left_out() {
    let json = parsed(&Profile::new(vec![Metric::of(MetricId::CPU_TIME)]), &Query::default());
    assert_eq!(json["run"], serde_json::json!({"command": [], "duration_ns": 0, "notes": [], "processes": []}));
}

#[test]
fn any_name_is_valid_json_and_comes_back() {
    let mut profile = Profile::new(vec![Metric::sum("cost \"\\\u{1}", "\n")]);
    let mut names: Vec<String> = (0..=0x2fu32).chain(0x7f..0xa0).filter_map(char::from_u32).map(String::from).collect();
    names.extend(["\u{2028}\u{fffd}\u{10ffff}\"\\/</script>", &"x".repeat(100_000)].map(String::from));
    for name in &names {
        let id = profile.strings.intern(name);
        let node = profile.tree.child(NodeId::ROOT, Scope::new(ScopeKind::Procedure, id));
        profile.tree.add(node, &[1]);
    }
    let json = parsed(&profile, &Query::default());
    let found: BTreeSet<&str> =
        json["nodes"].as_array().expect("nodes")[1..].iter().filter_map(|node| node["name"].as_str()).collect();
    assert_eq!(found, names.iter().map(String::as_str).collect());
    assert_eq!(json["metrics"][0]["name"], "cost \"\\\u{1}");
}

#[test]
fn the_deepest_path() {
    let profile = synthetic::deep(200_000, true);
    let json = parsed(&profile, &Query::default());
    assert_eq!(json["nodes"].as_array().map(Vec::len), Some(200_001));
}

/// Nodes are written as they come: memory does not grow with their number, nor does the number of calls with each byte.
#[test]
fn a_million_nodes_in_pieces() {
    #[derive(Default)]
    struct Pieces {
        lines: usize,
        bytes: usize,
        count: usize,
        longest: usize,
    }
    impl std::io::Write for Pieces {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.lines += bytes.iter().filter(|&&byte| byte == b'\n').count();
            self.bytes += bytes.len();
            self.count += 1;
            self.longest = self.longest.max(bytes.len());
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let profile = synthetic::large(1_000_000);
    let view = profile.view(&Query::default()).expect("an answer");
    let mut pieces = Pieces::default();
    json::write(&view, &profile, &mut pieces).expect("all is taken");
    let Pieces { lines, bytes, count, longest } = pieces;
    // A line for each node, and seven around them.
    assert_eq!(lines, view.nodes.len() + 7);
    assert!(bytes > 100_000_000 && bytes < 300 * view.nodes.len(), "{bytes} bytes");
    assert!(longest < 1 << 17 && count <= bytes / (1 << 16) + 1, "{count} pieces, the longest of {longest} bytes");
}

/// A reader that goes away is an error, not a panic.
#[test]
fn a_full_disk_is_an_error() {
    struct Full(usize);
    impl std::io::Write for Full {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let profile = synthetic::xz();
    let view = profile.view(&Query::default()).expect("an answer");
    let size = written(&view, &profile).len();
    assert!(json::write(&view, &profile, &mut Full(size)).is_ok());
    assert!(json::write(&view, &profile, &mut Full(size - 1)).is_err());
}
