//! The formats of other tools, read back by small readers of their own: the totals are the profile's, and the names are there.

use crate::synthetic;

use std::collections::{BTreeMap, HashMap};
use std::io::Read;

use callpath_db::{CallSite, Metric, NodeId, Profile, Query, Scope, ScopeKind};
use callpath_view::ViewError;
use callpath_view::export::{ExportOptions, Format, write};
use serde_json::Value;

/// Threads and processes, a loop, inlined calls, recursion, a partial path, lines, and names that every format has to escape.
fn varied() -> Profile {
    let mut profile = Profile::new(vec![
        Metric::sum("cpu-time", "ns"),
        Metric::sum("samples", "count"),
        Metric::max("peak", "bytes"),
    ]);
    profile.info.program = "app".into();
    profile.info.command = vec!["./app".into(), "x".into()];
    profile.info.started_unix_ns = 1_700_000_000_000_000_000;
    profile.info.duration_ns = 77;
    let mut intern = |text: &str| profile.strings.intern(text);
    let (file, header, module) = (intern("src/f.c"), intern("g.h"), intern("libapp.so"));
    let scope = |kind, name, line| Scope { module: Some(module), file: Some(file), line, ..Scope::new(kind, name) };
    let site = |file, line| Some(CallSite { file, line });
    let [app, main, none, g, h, odd, partial] =
        ["app", "main", "", "g", "h", "odd;<&\"]]>\u{1b}[31m name", "partial paths"].map(intern);
    let (main, in_loop) = (scope(ScopeKind::Procedure, main, Some(5)), scope(ScopeKind::Loop, none, Some(12)));
    let line = |line| scope(ScopeKind::Line, none, Some(line));
    let g = Scope { file: Some(header), call_site: site(file, 13), ..scope(ScopeKind::Inlined, g, Some(2)) };
    let h = Scope { call_site: site(header, 3), ..scope(ScopeKind::Procedure, h, Some(30)) };
    let again = Scope { call_site: site(file, 31), ..h };
    let odd = Scope { call_site: site(file, 6), ..scope(ScopeKind::Procedure, odd, None) };
    let partial = Scope::new(ScopeKind::Partial, partial);
    for pid in [7, 8] {
        let process = profile.tree.child(NodeId::ROOT, Scope::process(app, 0, pid));
        for tid in [pid, pid + 10] {
            let thread = Scope { discriminator: u64::from(tid), ..Scope::new(ScopeKind::Thread, app) };
            let thread = profile.tree.child(process, thread);
            let mut add = |path: &[Scope], cost: u64| {
                let node = path.iter().fold(thread, |node, scope| profile.tree.child(node, *scope));
                profile.tree.add(node, &[cost, 1, 100]);
            };
            let outer = [main, in_loop, g];
            add(&[main], 1_000_000_007);
            add(&[main, in_loop, line(13)], 3);
            add(&outer, 20_000_001);
            add(&[&outer[..], &[h, line(31)]].concat(), 100_000_003);
            add(&[&outer[..], &[h, again, again, line(32)]].concat(), 500_000_019);
            add(&[main, odd], 1_000_000 + u64::from(tid));
            add(&[partial, h], 1_000_040);
            add(&[], 9);
        }
    }
    profile
}

/// The same, with costs that belong to no thread.
fn outside_of_threads() -> Profile {
    let mut profile = varied();
    let processes: Vec<NodeId> = profile.tree.children(NodeId::ROOT).collect();
    for node in processes.into_iter().chain([NodeId::ROOT]) {
        profile.tree.add(node, &[1_000_000, 1, 1]);
    }
    profile
}

fn export(profile: &Profile, format: Format, options: &ExportOptions) -> Vec<u8> {
    let mut out = Vec::new();
    write(profile, format, options, &mut out).unwrap_or_else(|error| panic!("{}: {error}", format.word()));
    out
}

fn of_metric(name: &str) -> ExportOptions {
    ExportOptions { metric: Some(name.into()), ..ExportOptions::default() }
}

fn total(profile: &Profile, metric: usize) -> u64 {
    profile.view(&Query::default()).expect("a view").inclusive(0).get(metric)
}

/// What an export adds up to, and the cost of every name itself (not of what it calls), by the format's own rules.
fn read(format: Format, bytes: &[u8]) -> (u64, BTreeMap<String, u64>) {
    let text = || std::str::from_utf8(bytes).expect("text");
    match format {
        Format::Folded => folded(text()),
        Format::Flamegraph => flamegraph(text()),
        Format::Pprof => Pprof::read(bytes).totals(0),
        Format::Firefox => firefox(text()),
        Format::Speedscope => speedscope(text()),
        Format::Callgrind => callgrind(text()),
    }
}

fn folded(text: &str) -> (u64, BTreeMap<String, u64>) {
    let (mut total, mut own) = (0, BTreeMap::new());
    for line in text.lines() {
        let (path, cost) = line.rsplit_once(' ').expect("a cost");
        let cost: u64 = cost.parse().expect("a number");
        total += cost;
        *own.entry(path.rsplit(';').next().expect("a frame").to_owned()).or_default() += cost;
    }
    (total, own)
}

/// The rectangles, with what is in each and in none above it.
fn flamegraph(text: &str) -> (u64, BTreeMap<String, u64>) {
    let attribute = |line: &str, name: &str| -> String {
        let rest = line.split(&format!("{name}=\"")).nth(1).expect(name);
        rest.split('"').next().expect(name).to_owned()
    };
    let unescaped =
        |text: String| text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&");
    let mut own: BTreeMap<String, u64> = BTreeMap::new();
    let (mut whole, mut open): (u64, Vec<(String, u64, u64)>) = (0, Vec::new());
    for line in text.lines().filter(|line| line.starts_with("<g class=\"f\"")) {
        let number = |name: &str| -> u64 { attribute(line, name).parse().expect("a number") };
        let (level, at, cost) = (number("data-level") as usize, number("data-at"), number("data-cost"));
        let name = unescaped(attribute(line, "data-name"));
        assert!(level <= open.len(), "{line}");
        open.truncate(level);
        match open.last() {
            None => whole = cost,
            Some((above, from, to)) => {
                assert!(at >= *from && at + cost <= *to, "{line} lies outside of its caller");
                *own.get_mut(above).expect("its caller") -= cost;
            }
        }
        *own.entry(name.clone()).or_default() += cost;
        open.push((name, at, at + cost));
    }
    assert_eq!(text.matches("]]>").count(), 1, "one CDATA section");
    own.retain(|_, cost| *cost > 0);
    (whole, own)
}

fn speedscope(text: &str) -> (u64, BTreeMap<String, u64>) {
    let json: Value = serde_json::from_str(text).expect("JSON");
    let (mut total, mut own) = (0, BTreeMap::new());
    for profile in json["profiles"].as_array().expect("profiles") {
        let (mut open, mut at) = (Vec::new(), 0);
        for event in profile["events"].as_array().expect("events") {
            let (now, frame) = (event["at"].as_u64().expect("a time"), event["frame"].as_u64().expect("a frame"));
            if now > at {
                let top: &u64 = open.last().expect("cost is spent in a frame");
                let name = json["shared"]["frames"][*top as usize]["name"].as_str().expect("a name");
                *own.entry(name.to_owned()).or_default() += now - at;
                at = now;
            }
            match event["type"].as_str() {
                Some("O") => open.push(frame),
                _ => assert_eq!(open.pop(), Some(frame), "frames close from within"),
            }
        }
        assert!(open.is_empty());
        assert_eq!(profile["endValue"].as_u64(), Some(at));
        total += at;
    }
    (total, own)
}

fn firefox(text: &str) -> (u64, BTreeMap<String, u64>) {
    let json: Value = serde_json::from_str(text).expect("JSON");
    let strings = &json["shared"]["stringArray"];
    let at = |table: &Value, column: &str, row: u64| {
        let rows = table[column].as_array().unwrap_or_else(|| panic!("no {column}"));
        assert_eq!(rows.len() as u64, table["length"].as_u64().expect("a length"), "{column}");
        rows[row as usize].clone()
    };
    let (mut total, mut own) = (0, BTreeMap::new());
    for thread in json["threads"].as_array().expect("threads") {
        let samples = &thread["samples"];
        for sample in 0..samples["length"].as_u64().expect("a length") {
            let weight = at(samples, "weight", sample).as_f64().expect("a weight");
            let in_ns = samples["weightType"] == "tracing-ms";
            let cost = (weight * if in_ns { 1e6 } else { 1.0 }).round() as u64;
            let stack = at(samples, "stack", sample).as_u64().expect("a stack");
            let frame = at(&thread["stackTable"], "frame", stack).as_u64().expect("a frame");
            let func = at(&thread["frameTable"], "func", frame).as_u64().expect("a function");
            let name = at(&thread["funcTable"], "name", func).as_u64().expect("a name");
            *own.entry(strings[name as usize].as_str().expect("a name").to_owned()).or_default() += cost;
            total += cost;
        }
    }
    (total, own)
}

/// Own cost by function.
fn callgrind(text: &str) -> (u64, BTreeMap<String, u64>) {
    let (mut total, mut own, mut names) = (0, BTreeMap::new(), HashMap::new());
    let (mut function, mut is_call) = (String::new(), false);
    let mut name = |word: &str| match word.split_once(' ') {
        Some((number, name)) => names.entry(number.to_owned()).or_insert_with(|| name.to_owned()).clone(),
        None => names[word].clone(),
    };
    for line in text.lines() {
        if let Some(word) = line.strip_prefix("fn=") {
            function = name(word);
        } else if let Some(word) = line.strip_prefix("cfn=") {
            name(word);
        } else if line.starts_with("calls=") {
            is_call = true;
        } else if line.starts_with(|c: char| c.is_ascii_digit()) {
            let cost: u64 = line.split(' ').nth(1).expect("a cost").parse().expect("a number");
            if !std::mem::take(&mut is_call) {
                total += cost;
                *own.entry(function.clone()).or_default() += cost;
            }
        }
    }
    assert!(text.contains(&format!("\nsummary: {total}\n")) && text.contains(&format!("\ntotals: {total}\n")));
    (total, own)
}

/// A message of Protocol Buffers: its fields in order, integers or bytes.
fn fields(mut bytes: &[u8]) -> Vec<(u64, u64, Vec<u8>)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let value = varint(&mut bytes);
        let mut content = Vec::new();
        if key & 7 == 2 {
            let (mine, rest) = bytes.split_at(value as usize);
            content = mine.to_vec();
            bytes = rest;
        } else {
            assert_eq!(key & 7, 0, "a varint");
        }
        fields.push((key >> 3, value, content));
    }
    fields
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let (mut value, mut shift) = (0, 0);
    loop {
        let (first, rest) = bytes.split_first().expect("a varint's end");
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        shift += 7;
        if first & 0x80 == 0 {
            return value;
        }
    }
}

fn varints(mut bytes: &[u8]) -> Vec<u64> {
    let mut values = Vec::new();
    while !bytes.is_empty() {
        values.push(varint(&mut bytes));
    }
    values
}

#[derive(Default)]
struct Pprof {
    types: Vec<String>,
    /// By location, innermost first: function and line.
    locations: HashMap<u64, Vec<(String, u64)>>,
    /// Locations, values, labels.
    samples: Vec<(Vec<u64>, Vec<u64>, Vec<String>)>,
}

impl Pprof {
    fn read(bytes: &[u8]) -> Pprof {
        let mut raw = Vec::new();
        flate2::read::GzDecoder::new(bytes).read_to_end(&mut raw).expect("gzip");
        let all = fields(&raw);
        let of = |wanted: u64| all.iter().filter(move |field| field.0 == wanted);
        let strings: Vec<String> = of(6).map(|(.., text)| String::from_utf8(text.clone()).expect("UTF-8")).collect();
        assert_eq!(strings[0], "");
        let integer = |message: &[(u64, u64, Vec<u8>)], wanted: u64| {
            message.iter().find(|field| field.0 == wanted).map_or(0, |field| field.1)
        };
        let mut functions = HashMap::new();
        for (.., function) in of(5) {
            let function = fields(function);
            functions.insert(integer(&function, 1), strings[integer(&function, 2) as usize].clone());
        }
        let mappings: Vec<u64> = of(3).map(|(.., mapping)| integer(&fields(mapping), 1)).collect();
        let mut pprof = Pprof::default();
        for (.., location) in of(4) {
            let location = fields(location);
            let mapping = integer(&location, 2);
            assert!(mapping == 0 || mappings.contains(&mapping));
            let lines = location.iter().filter(|field| field.0 == 4).map(|(.., line)| {
                let line = fields(line);
                (functions[&integer(&line, 1)].clone(), integer(&line, 2))
            });
            assert!(pprof.locations.insert(integer(&location, 1), lines.collect()).is_none(), "each location once");
        }
        for (.., kind) in of(1) {
            let kind = fields(kind);
            let [name, unit] = [1, 2].map(|field| &strings[integer(&kind, field) as usize]);
            pprof.types.push(format!("{name}/{unit}"));
        }
        for (.., sample) in of(2) {
            let sample = fields(sample);
            let list = |wanted: u64| sample.iter().filter(move |field| field.0 == wanted).map(|field| &field.2);
            let labels = list(3).map(|label| {
                let label = fields(label);
                let (key, text) = (&strings[integer(&label, 1) as usize], &strings[integer(&label, 2) as usize]);
                format!("{key}={text}{}", integer(&label, 3))
            });
            pprof.samples.push((
                varints(list(1).next().expect("locations")),
                varints(list(2).next().expect("values")),
                labels.collect(),
            ));
        }
        pprof
    }

    fn totals(&self, value: usize) -> (u64, BTreeMap<String, u64>) {
        let (mut total, mut own) = (0, BTreeMap::new());
        for (locations, values, _) in &self.samples {
            total += values[value];
            let leaf = &self.locations[&locations[0]][0];
            *own.entry(leaf.0.clone()).or_default() += values[value];
        }
        (total, own)
    }
}

#[test]
fn every_format_adds_up_to_the_profile() {
    let nothing = Profile::new(vec![Metric::sum("cpu-time", "ns")]);
    for profile in [varied(), outside_of_threads(), synthetic::xz(), synthetic::cpp(), nothing] {
        for (metric, column) in profile.metrics.iter().zip(0..).take(2) {
            let expected = total(&profile, column);
            for format in Format::ALL {
                let (total, own) = read(format, &export(&profile, format, &of_metric(&metric.name)));
                assert_eq!(total, expected, "{} of {}", format.word(), metric.name);
                assert_eq!(own.values().sum::<u64>(), expected, "{} of {}", format.word(), metric.name);
            }
        }
    }
}

#[test]
fn loops_and_inlined_calls_are_in_every_format() {
    let profile = varied();
    // Of four threads.
    let (in_loop, in_g, in_h) = (4 * 3, 4 * 20_000_001, 4 * (100_000_003 + 500_000_019 + 1_000_040));
    for format in Format::ALL {
        let (_, own) = read(format, &export(&profile, format, &ExportOptions::default()));
        let cost = |name: &str| own.get(name).copied().unwrap_or(0);
        match format {
            Format::Pprof | Format::Firefox => {
                assert_eq!([cost("loop at f.c:12"), cost("g"), cost("h")], [in_loop, in_g, in_h], "{}", format.word());
            }
            // The inlined code is the loop's there.
            Format::Callgrind => assert_eq!([cost("loop at f.c:12 in main"), cost("h")], [in_loop + in_g, in_h]),
            _ => {
                let costs = [cost("loop at f.c:12"), cost("g (inlined)"), cost("h")];
                assert_eq!(costs, [in_loop, in_g, in_h], "{}", format.word());
            }
        }
        let folded = vec![ScopeKind::Loop, ScopeKind::Inlined, ScopeKind::SystemCall];
        let options = ExportOptions { query: Query { fold: folded, ..Query::default() }, metric: None };
        let (sum, own) = read(format, &export(&profile, format, &options));
        assert_eq!(sum, total(&profile, 0));
        assert!(!own.keys().any(|name| name.contains("loop") || name.starts_with('g')), "{own:?}");
    }
}

#[test]
fn a_location_of_pprof_is_a_frame_with_what_is_inlined() {
    let pprof = Pprof::read(&export(&varied(), Format::Pprof, &of_metric("samples")));
    assert_eq!(pprof.types, ["samples/count", "cpu-time/nanoseconds"]);
    let sample = pprof.samples.iter().find(|(_, values, _)| values[1] == 500_000_019).expect("the deepest path");
    let path: Vec<_> = sample.0.iter().map(|location| pprof.locations[location].clone()).collect();
    let line = |name: &str, line| (name.to_owned(), line);
    let in_main = vec![line("g", 3), line("loop at f.c:12", 13), line("main", 12)];
    assert_eq!(path, [vec![line("h", 32)], vec![line("h", 31)], vec![line("h", 31)], in_main]);
    assert_eq!(sample.2.len(), 4);
    let has = |label: &str| sample.2.iter().any(|of| of == label);
    assert!(has("process=app0") && has("thread=app0") && (has("pid=7") || has("pid=8")), "{:?}", sample.2);
}

#[test]
fn a_frame_of_firefox_has_its_line_and_inline_depth() {
    let json: Value =
        serde_json::from_slice(&export(&varied(), Format::Firefox, &ExportOptions::default())).expect("JSON");
    let threads = json["threads"].as_array().expect("threads");
    assert_eq!(threads.len(), 4);
    let thread = &threads[0];
    let samples = &thread["samples"];
    let deepest = samples["weight"].as_array().and_then(|all| all.iter().position(|weight| *weight == 500.000019));
    let mut stack = samples["stack"][deepest.expect("the deepest path")].as_u64();
    let mut path = Vec::new();
    while let Some(at) = stack {
        let frame = thread["stackTable"]["frame"][at as usize].as_u64().expect("a frame") as usize;
        let frames = &thread["frameTable"];
        let func = frames["func"][frame].as_u64().expect("a function") as usize;
        let name = thread["funcTable"]["name"][func].as_u64().expect("a name") as usize;
        let name = json["shared"]["stringArray"][name].as_str().expect("a name");
        path.push((name, frames["line"][frame].as_u64(), frames["inlineDepth"][frame].as_u64()));
        let symbol = frames["nativeSymbol"][frame].as_u64().expect("a symbol") as usize;
        assert!(thread["nativeSymbols"]["libIndex"][symbol] == 0 && json["libs"][0]["name"] == "libapp.so");
        stack = thread["stackTable"]["prefix"][at as usize].as_u64();
    }
    let in_h = ["h", "h", "h"].into_iter().zip([32, 31, 31]).map(|(name, line)| (name, Some(line), Some(0)));
    let in_main = [("g", Some(3), Some(2)), ("loop at f.c:12", Some(13), Some(1)), ("main", Some(12), Some(0))];
    assert!(path.iter().copied().eq(in_h.chain(in_main)), "{path:?}");
}

#[test]
fn callgrind_counts_recursion_once_and_has_inlined_code_at_its_file() {
    let text = String::from_utf8(export(&varied(), Format::Callgrind, &ExportOptions::default())).expect("text");
    let number = |word: &str| text.split(&format!(") {word}\n")).next().and_then(|text| text.rsplit('(').next());
    let part = |name: &str| {
        let begin = format!("\nfn=({})", number(name).expect(name));
        text.split("\n\n").find(|part| part.contains(&begin)).expect(name)
    };
    let (in_loop, header) = (part("loop at f.c:12 in main"), number("g.h").expect("a file"));
    assert!(in_loop.contains(&format!("\nfi=({header}) g.h\n0 80000004\n")), "{in_loop}");
    let recursive = part("h");
    // The second activation contains the third.
    assert!(recursive.ends_with(&format!("\n31 {}", 4 * 500_000_019_u64)), "{recursive}");
}

#[test]
fn names_break_no_format() {
    let profile = varied();
    for format in Format::ALL {
        let bytes = export(&profile, format, &ExportOptions::default());
        let (_, own) = read(format, &bytes);
        let odd = "odd;<&\"]]>\\x1b[31m name";
        let odd = if format == Format::Folded { odd.replace(';', ":") } else { odd.to_owned() };
        assert_eq!(own.get(&odd), Some(&(4_000_000 + 7 + 17 + 8 + 18)), "{}: {own:?}", format.word());
        assert!(format.is_binary() || !bytes.contains(&0x1b), "{}", format.word());
    }
}

#[test]
fn what_cannot_be_exported_is_refused() {
    let profile = varied();
    let result = |metric: &str| write(&profile, Format::Folded, &of_metric(metric), &mut Vec::new());
    assert!(matches!(result("cycles"), Err(ViewError::NoSuchMetric { there, .. }) if there.len() == 3));
    assert!(matches!(result("peak"), Err(ViewError::NotASum { there, .. }) if there == ["cpu-time", "samples"]));
    let mut large = Profile::new(vec![Metric::sum("cpu-time", "ns")]);
    large.tree.add(NodeId::ROOT, &[u64::MAX]);
    for format in Format::ALL {
        let result = write(&large, format, &ExportOptions::default(), &mut Vec::new());
        let holds_it = matches!(format, Format::Folded | Format::Callgrind);
        assert_eq!(result.is_ok(), holds_it, "{}", format.word());
    }
}

/// Nothing recurses, and what is written of a tree that is one path grows with it, not with its square.
#[test]
fn very_deep_trees_are_written() {
    const DEPTH: usize = 200_000;
    let mut profile = Profile::new(vec![Metric::sum("cpu-time", "ns")]);
    let names = ["even", "odd"].map(|name| profile.strings.intern(name));
    let mut node = NodeId::ROOT;
    for level in 0..DEPTH {
        let kind = if level % 4 == 3 { ScopeKind::Inlined } else { ScopeKind::Procedure };
        node = profile.tree.child(node, Scope::new(kind, names[level % 2]));
    }
    profile.tree.add(node, &[1_234_567_891]);
    for format in Format::ALL {
        let bytes = export(&profile, format, &ExportOptions::default());
        assert_eq!(read(format, &bytes).0, 1_234_567_891, "{}", format.word());
        assert!(bytes.len() < 200 * DEPTH, "{} takes {} bytes", format.word(), bytes.len());
    }
}
