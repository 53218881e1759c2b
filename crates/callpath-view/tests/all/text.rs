//! The text as a person sees it: golden files, small enough to be read, and what must hold for any profile.
//!
//! `CALLPATH_BLESS=1 cargo test -p callpath-view` writes the golden files anew; read the difference before committing.

use crate::synthetic;

use std::path::Path;

use callpath_db::{Inlined, Links, Metric, MetricId, NodeId, Profile, Query, Scope, ScopeKind, ViewKind};
use callpath_view::text::{self, TextOptions};

#[track_caller]
fn check(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("CALLPATH_BLESS").is_some() {
        return std::fs::write(&path, text).expect("golden files can be written");
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = golden.lines().zip(text.lines()).position(|(a, b)| a != b);
    assert!(golden == text, "{name} differs, first in line {differs:?}; now:\n{text}");
}

fn report(profile: &Profile, options: &TextOptions) -> String {
    let mut out = Vec::new();
    text::report(profile, options, &mut out).expect("a report");
    String::from_utf8(out).expect("UTF-8")
}

fn view(profile: &Profile, view: ViewKind, options: &TextOptions) -> String {
    let mut out = Vec::new();
    let options = TextOptions { query: Query { view, ..options.query.clone() }, ..options.clone() };
    text::view(profile, &options, &mut out).expect("a view");
    String::from_utf8(out).expect("UTF-8")
}

#[test]
fn reports() {
    let options = TextOptions::default();
    check("xz.txt", &report(&synthetic::xz(), &options));
    check("cpp.txt", &report(&synthetic::cpp(), &options));
    check(
        "cpp-narrow-color.txt",
        &report(&synthetic::cpp(), &TextOptions { width: 70, color: true, ..options.clone() }),
    );
    check("many.txt", &report(&synthetic::many(), &options));
    check("nothing.txt", &report(&Profile::new(vec![Metric::of(MetricId::CPU_TIME)]), &options));
}

#[test]
fn views() {
    let options = TextOptions::default();
    check("cpp-callers.txt", &view(&synthetic::cpp(), ViewKind::Callers, &options));
    check("cpp-flat.txt", &view(&synthetic::cpp(), ViewKind::Flat, &options));
    let shallow = TextOptions { query: Query { max_depth: Some(6), ..options.query.clone() }, ..options };
    check("xz-shallow.txt", &view(&synthetic::xz(), ViewKind::Context, &shallow));
}

#[test]
fn each_further_metric_has_a_column() {
    let metrics = [
        Metric::counted("page-faults"),
        Metric::of(MetricId::CPU_TIME),
        Metric::counted("context-switches"),
        Metric::of(MetricId::SAMPLES),
    ];
    let mut profile = Profile::new(metrics.into());
    let mut node = NodeId::ROOT;
    for (name, costs) in [("main", [0; 4]), ("fill", [90_000, 0, 7, 97]), ("work", [10_000, 5_000_000, 0, 15])] {
        let name = profile.strings.intern(name);
        node = profile.tree.child(node, Scope::new(ScopeKind::Procedure, name));
        profile.tree.add(node, &costs);
    }
    check("metrics.txt", &view(&profile, ViewKind::Context, &TextOptions::default()));
    for (kind, width) in [(ViewKind::Context, 84), (ViewKind::Callers, 76), (ViewKind::Flat, 84)] {
        let shown = |width| view(&profile, kind, &TextOptions { width, ..TextOptions::default() });
        // A metric without room for its column is named, with the width that shows it.
        let narrow = shown(47).replace('\n', " ");
        let one_left_out = format!("No room for context-switches: --width {width} shows it; --json has every metric.");
        assert!(narrow.contains(&one_left_out), "{narrow}");
        assert!(shown(47).lines().all(|line| line.chars().count() <= 47), "{narrow}");
        assert!(shown(width - 1).replace('\n', " ").contains(&one_left_out));
        let wide = shown(width);
        assert!(!wide.contains("No room") && wide.contains(" context-switches  "), "{wide}");
    }
}

/// `often` is called often, `slow` once; `leaf` has not returned while it was active at a sample.
#[test]
fn cost_per_return() {
    let returns = Metric::sum("returns", "count").noted("not a call count");
    let time = Metric::of(MetricId::CPU_TIME);
    let metrics = vec![time.clone(), returns.clone(), Metric::per_own(&time, &returns), Metric::of(MetricId::SAMPLES)];
    let mut profile = Profile::new(metrics);
    let main = Scope::new(ScopeKind::Procedure, profile.strings.intern("main"));
    let main = profile.tree.child(NodeId::ROOT, main);
    for (name, [own, returned, of_leaf]) in [("often", [2_000_000, 40, 6_000_000]), ("slow", [12_000_000, 1, 0])] {
        let callee = Scope::new(ScopeKind::Procedure, profile.strings.intern(name));
        let callee = profile.tree.child(main, callee);
        profile.tree.add(callee, &[own, returned, 0, own / 1_000_000]);
        let leaf = Scope::new(ScopeKind::Procedure, profile.strings.intern("leaf"));
        let leaf = profile.tree.child(callee, leaf);
        profile.tree.add(leaf, &[of_leaf, 0, 0, of_leaf / 1_000_000]);
    }
    let options = TextOptions::default();
    let texts = [ViewKind::Context, ViewKind::Callers, ViewKind::Flat].map(|kind| view(&profile, kind, &options));
    check("returns.txt", &(report(&profile, &options) + "\n" + &texts.join("\n")));
}

#[test]
fn links_are_in_the_head_only_if_some_are_invalid() {
    let mut profile = synthetic::xz();
    let quality = |profile: &Profile| {
        let mut out = Vec::new();
        text::quality(profile, &TextOptions::default(), &mut out).expect("an account");
        String::from_utf8(out).expect("UTF-8")
    };
    profile.quality.links = Links::default();
    assert!(!quality(&profile).contains("Links"));
    profile.quality.links = Links { valid: 60, likely: 40, invalid: 0 };
    assert!(!report(&profile, &TextOptions::default()).contains("links"));
    let counted = "\nLinks between frames\n          60  60.0%  valid\n          40  40.0%  likely\n           0   0.0%  invalid\n";
    assert!(quality(&profile).contains(counted), "{}", quality(&profile));
    profile.quality.links.invalid = 1;
    let text = report(&profile, &TextOptions::default());
    assert!(text.contains("1.0% of the links between frames are invalid;"), "{text}");
}

#[test]
fn a_process_that_executed_another_program_counts_once() {
    let mut profile = synthetic::many();
    assert!(report(&profile, &TextOptions::default()).contains(", 4 processes, 4 threads,"));
    profile.info.processes[2].continues = true;
    assert!(report(&profile, &TextOptions::default()).contains(", 3 processes, 3 threads,"));
}

#[test]
fn the_kernels_account_is_there_whatever_was_sampled() {
    let mut profile = synthetic::xz();
    let said = |profile: &Profile| report(profile, &TextOptions::default()).lines().nth(1).map(str::to_owned);
    let clocks = "cpu time 4.06 s (by the kernel: 3.67 s user, 406 ms system)";
    assert!(said(&profile).is_some_and(|line| line.ends_with(clocks)), "{:?}", said(&profile));
    profile.metrics[0] = Metric::of(MetricId::WALL_TIME);
    let clock = ", cpu time by the kernel: 3.67 s user, 406 ms system";
    assert!(said(&profile).is_some_and(|line| line.ends_with(clock)), "{:?}", said(&profile));
}

#[test]
fn a_threshold_is_said_as_it_was_typed() {
    for (min_share, said) in [(0.14, "below 14%"), (0.005, "below 0.5%"), (0.29, "below 29%")] {
        let query = Query { min_share, ..TextOptions::default().query };
        let options = TextOptions { query, ..TextOptions::default() };
        let text = view(&synthetic::xz(), ViewKind::Context, &options);
        assert!(text.contains(&format!("({said} left out)")), "{text}");
    }
}

#[test]
fn a_selection_is_named() {
    let profile = synthetic::many();
    let options = |process: &str| TextOptions {
        query: Query { process: Some(process.into()), ..TextOptions::default().query },
        ..TextOptions::default()
    };
    let text = report(&profile, &options("13"));
    assert!(text.contains("\nCall paths of process 13 by cpu-time (below 1% left out)\n"), "{text}");
    let text = view(&profile, ViewKind::Flat, &options("cc1"));
    assert!(text.contains("\nModules and procedures of process cc1 by cpu-time"), "{text}");
    // Several processes of that name are not added up silently.
    assert!(text.starts_with("  shown: 3 of 4 processes, 99.0% of the cpu-time measured\n"), "{text}");
    assert!([11, 12, 13].iter().all(|pid| text.contains(&format!("  cc1 ({pid})\n"))), "{text}");
    let one = view(&profile, ViewKind::Flat, &options("13"));
    assert!(one.starts_with("  shown: 1 of 4 processes, 33.0% of the cpu-time measured\n\nModules and"), "{one}");
    assert!(one.contains("\nModules and procedures of process 13 by cpu-time"), "{one}");
}

/// The lines below `Hottest path`, up to the empty one.
fn hottest_path(text: &str) -> Vec<&str> {
    let lines = text.lines().skip_while(|line| !line.starts_with("Hottest path")).skip(1);
    lines.take_while(|line| !line.is_empty()).collect()
}

#[test]
fn the_hottest_path_goes_to_a_leaf() {
    let mut profile = Profile::new(vec![Metric::of(MetricId::CPU_TIME)]);
    let file = profile.strings.intern("/src/gaps.rs");
    let mut node = NodeId::ROOT;
    // Each level has a lighter sibling, so that the leaf has a hundredth of the cost.
    for level in 0..7 {
        let [name, beside] = ["f", "g"].map(|name| profile.strings.intern(&format!("{name}{level}")));
        let lighter = profile.tree.child(node, Scope::new(ScopeKind::Procedure, beside));
        profile.tree.add(lighter, &[9 << (10 - level)]);
        node = profile.tree.child(node, Scope::new(ScopeKind::Procedure, name));
        let scope = Scope::new(ScopeKind::Line, profile.strings.intern(""));
        node = profile.tree.child(node, Scope { file: Some(file), line: Some(10 + level as u32), ..scope });
    }
    profile.tree.add(node, &[10 << 4]);
    let query = Query { fold: Vec::new(), min_share: 0.2, ..Query::default() };
    let text = report(&profile, &TextOptions { query, ..TextOptions::default() });
    let path = hottest_path(&text);
    assert_eq!(path.len(), 7, "{text}");
    assert!(path[0].starts_with(" 50.") && path[0].ends_with("%  f0 › gaps.rs:10"), "{text}");
    assert!(path[6].ends_with("  f6 › gaps.rs:16") && text.contains("in f6, gaps.rs:16\n"), "{text}");
}

#[test]
fn the_hottest_path_says_where_its_cost_stays() {
    let mut profile = Profile::new(vec![Metric::of(MetricId::CPU_TIME)]);
    let mut node = NodeId::ROOT;
    for (name, cost) in [("main", 0), ("work", 827), ("copy", 0), ("leaf", 3)] {
        let name = profile.strings.intern(name);
        node = profile.tree.child(node, Scope::new(ScopeKind::Procedure, name));
        profile.tree.add(node, &[cost]);
        if name == profile.strings.intern("main") {
            let other = Scope::new(ScopeKind::Procedure, profile.strings.intern("other"));
            let other = profile.tree.child(node, other);
            profile.tree.add(other, &[170]);
        }
    }
    let text = report(&profile, &TextOptions::default());
    assert!(text.contains("\nHottest path: 82.7% of cpu-time in work itself\n"), "{text}");
    assert_eq!(hottest_path(&text), ["100.0%  main", " 83.0%  work  (82.7% self)", "  0.3%  copy › leaf"], "{text}");
}

/// Every line of a tree's rows: the level of its row, read off its marks, and its name.
fn levels(text: &str) -> Vec<(usize, String)> {
    let mut rows = text.lines().skip_while(|line| !line.contains("  call path"));
    let numbers = rows.next().and_then(|head| head.find("call path")).expect("a head");
    let rows = rows.take_while(|line| !line.is_empty()).filter(|line| !line.ends_with(" elsewhere"));
    rows.map(|line| {
        let marks: String = line.chars().skip(numbers).collect();
        let (begins, marks) = match marks.split_once("… ").filter(|(level, _)| level.parse::<usize>().is_ok()) {
            Some((level, marks)) => (level.parse().unwrap(), marks),
            None => (1, &*marks),
        };
        match marks.chars().position(|c| "├└".contains(c)) {
            Some(column) => (begins + column / 2 + 1, marks.chars().skip(column + 2).collect()),
            None => (begins, marks.into()),
        }
    })
    .collect()
}

/// The deeper the tree, the more often its drawing begins at the left again.
#[test]
fn each_rows_parent_is_seen_on_the_page() {
    let mut random = fastrand::Rng::with_seed(315);
    for round in 0..300 {
        let mut profile = Profile::new(vec![Metric::of(MetricId::CPU_TIME)]);
        let mut parents: Vec<(NodeId, String)> = vec![(NodeId::ROOT, "all".into())];
        let mut expected = std::collections::HashMap::new();
        let deep = random.usize(1..60);
        for number in 0..random.usize(2..150) {
            let last = parents.len() - 1;
            let above = if random.u8(..10) < 8 { last } else { last - random.usize(..=last.min(deep)) };
            let (parent, above) = parents[above].clone();
            let name = format!("f{number}");
            let scope = Scope::new(ScopeKind::Procedure, profile.strings.intern(&name));
            let node = profile.tree.child(parent, scope);
            profile.tree.add(node, &[random.u64(1000..100_000)]);
            expected.insert(name.clone(), above);
            parents.push((node, name));
        }
        let width = [48, 60, 100][round % 3];
        let query = Query { min_share: 0.0, ..TextOptions::default().query };
        let options = TextOptions { whole: true, width, query, max_lines: usize::MAX, ..TextOptions::default() };
        let text = view(&profile, ViewKind::Context, &options);
        let rows = levels(&text);
        let mut seen = 0;
        for (index, (level, name)) in rows.iter().enumerate().filter(|(_, (level, _))| *level > 1) {
            let parent = rows[..index].iter().rev().find(|(above, _)| above + 1 == *level);
            assert_eq!(parent.map(|(_, parent)| parent), expected.get(name), "{name}: {text}");
            seen += 1;
        }
        assert!(seen + 1 >= expected.len(), "{text}");
        let is_deep = rows.iter().any(|(level, _)| *level > width / 6 + 1);
        let behind = format!("right behind {}… hangs on", width / 6 + 1);
        assert_eq!(text.replace('\n', " ").contains(&behind), is_deep, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= width.max(80)), "{text}");
    }
}

/// The heads of columns are what the numbers below them are.
#[test]
fn heads_name_what_their_numbers_are() {
    const NAME: &str = "liblzma.so.5+0x15f90";
    let profile = synthetic::xz();
    let of = |kind: ViewKind, procedure: Option<&str>| {
        let query = Query { procedure: procedure.map(str::to_owned), ..TextOptions::default().query };
        view(&profile, kind, &TextOptions { query, ..TextOptions::default() })
    };
    let procedures = profile.procedures(&Query::default(), Inlined::default()).expect("procedures");
    let costs = procedures.iter().find(|p| profile.strings.get(p.scope.name) == NAME).expect("a procedure");
    let total: u64 = procedures.iter().map(|procedure| procedure.self_cost[0]).sum();
    assert_ne!(costs.self_cost[0], costs.inclusive[0]);
    let row = |text: &str| -> (String, f64) {
        let head = text.lines().find(|line| line.contains("procedure, and below")).expect("a head");
        let row = text.lines().find(|line| line.get(18..).is_some_and(|name| name.starts_with(NAME))).expect(text);
        let share = row.trim_start().split('%').next().unwrap_or_default();
        (head.split_whitespace().next().unwrap_or_default().into(), share.parse().expect(text))
    };
    let (head, share) = row(&of(ViewKind::Callers, None));
    assert_eq!((head.as_str(), share), ("self", (1000.0 * costs.self_cost[0] as f64 / total as f64).round() / 10.0));
    // The whole is what goes through the procedure.
    let text = of(ViewKind::Callers, Some(NAME));
    assert!(
        text.starts_with("  shown: 94.2% of ") && text.contains("\nCallers of liblzma.so.5+0x15f90 by cpu-time"),
        "{text}"
    );
    assert_eq!(row(&text), ("total".into(), 100.0));
    assert!(of(ViewKind::Flat, Some(NAME)).contains("\nModules and procedures below liblzma.so.5+0x15f90 by "));
}

/// What a procedure's callees returned is no count of its own returns.
#[test]
fn callers_of_a_procedure_have_no_cost_per_return() {
    let returns = Metric::sum("returns", "count");
    let time = Metric::of(MetricId::CPU_TIME);
    let mut profile = Profile::new(vec![time.clone(), returns.clone(), Metric::per_own(&time, &returns)]);
    let [main, leaf] = ["main", "leaf"].map(|name| Scope::new(ScopeKind::Procedure, profile.strings.intern(name)));
    let main = profile.tree.child(NodeId::ROOT, main);
    profile.tree.add(main, &[1_000_000, 1, 0]);
    let leaf = profile.tree.child(main, leaf);
    profile.tree.add(leaf, &[1_000_000, 999, 0]);
    let query = Query { procedure: Some("main".into()), ..TextOptions::default().query };
    let text = view(&profile, ViewKind::Callers, &TextOptions { query, ..TextOptions::default() });
    assert!(!text.contains("1,000") && !text.contains(" 999 "), "{text}");
}

#[test]
fn procedures_of_a_list_never_look_the_same() {
    let mut profile = Profile::new(vec![Metric::of(MetricId::CPU_TIME)]);
    let long = |number: u32| {
        format!(
            "the_name_of_a_space::Template<std::pair<int, std::array<char, {number}> >, std::less<int> >::member(int, int, int)"
        )
    };
    let files = ["/src/a/mod.rs", "/src/b/mod.rs"].map(|file| profile.strings.intern(file));
    for (number, address) in [(3u32, 0x10u64), (4, 0x20), (5, 0x30)] {
        let scope = Scope::new(ScopeKind::Procedure, profile.strings.intern(&long(number)));
        let node = profile.tree.child(NodeId::ROOT, Scope { address: Some(address), ..scope });
        profile.tree.add(node, &[1000 + address]);
    }
    for (file, address) in files.into_iter().zip([0x40, 0x50]) {
        let scope = Scope::new(ScopeKind::Procedure, profile.strings.intern("visit"));
        let scope = Scope { file: Some(file), line: Some(7), address: Some(address), ..scope };
        let node = profile.tree.child(NodeId::ROOT, scope);
        profile.tree.add(node, &[1000 + address]);
    }
    for width in [60, 80, 100] {
        let text = report(&profile, &TextOptions { width, ..TextOptions::default() });
        let list = text.lines().skip_while(|line| !line.starts_with("Procedures by self")).skip(2);
        let mut names: Vec<&str> = list.take_while(|line| !line.is_empty()).map(|line| &line[26..]).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!((names.len(), count), (5, 5), "{text}");
        assert!(names.contains(&"visit at mod.rs:7 at 0x40") || names.contains(&"visit at 0x40"), "{text}");
    }
}

#[test]
fn what_is_hidden_is_named() {
    let query = Query { hide: vec!["lzma_code".into(), "xz+0x4a10".into()], ..TextOptions::default().query };
    let text = report(&synthetic::xz(), &TextOptions { query, ..TextOptions::default() });
    let title = "\nCall paths by cpu-time (below 1% left out, frames of lzma_code and xz+0x4a10 hidden)\n";
    assert!(text.contains(title), "{text}");
}

/// A path of calls and the branches beside it: `depth` levels of f, each calling g and h as well.
fn comb(depth: usize) -> Profile {
    let mut profile = Profile::new(vec![Metric::of(MetricId::CPU_TIME)]);
    let mut node = NodeId::ROOT;
    for level in 0..depth {
        let [f, g, h] = ["f", "g", "h"].map(|name| profile.strings.intern(&format!("{name}{level}")));
        node = profile.tree.child(node, Scope::new(ScopeKind::Procedure, f));
        for name in [g, h] {
            let beside = profile.tree.child(node, Scope::new(ScopeKind::Procedure, name));
            profile.tree.add(beside, &[1 << (depth - level)]);
        }
    }
    profile.tree.add(node, &[1]);
    profile
}

#[test]
fn branches_without_end_stay_on_the_page() {
    let query = Query { min_share: 0.0, ..Query::default() };
    let options = TextOptions { width: 80, query, max_lines: usize::MAX, ..TextOptions::default() };
    let text = report(&comb(50), &options);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    for level in 0..50 {
        assert!(["f", "g", "h"].iter().all(|name| text.contains(&format!(" {name}{level}\n"))), "{level}: {text}");
    }
}

#[test]
fn a_long_tree_is_pruned_until_it_is_short() {
    let few = TextOptions { max_lines: 20, ..TextOptions::default() };
    let text = report(&synthetic::large(20_000), &few);
    assert!(text.contains("(below 5% left out)") || text.contains("(below 10% left out)"), "{text}");
    let fine = report(&synthetic::large(20_000), &TextOptions { max_lines: usize::MAX, ..TextOptions::default() });
    assert!(fine.contains("(below 1% left out)"));
}

/// A terminal would act on these.
const HOSTILE: &str = "\x1b]0;owned\x07\x1b[2J\r\n\u{9b}31m\u{202e}\t\0\x7f\u{2028}";

fn hostile() -> Profile {
    let mut profile = Profile::new(vec![Metric::sum(HOSTILE, HOSTILE), Metric::max(HOSTILE, "ns")]);
    let name = profile.strings.intern(HOSTILE);
    let mut node = NodeId::ROOT;
    for kind in [
        ScopeKind::Process,
        ScopeKind::Rank,
        ScopeKind::Thread,
        ScopeKind::Partial,
        ScopeKind::Module,
        ScopeKind::File,
        ScopeKind::Procedure,
        ScopeKind::Inlined,
        ScopeKind::Loop,
        ScopeKind::Line,
    ] {
        for id in [3, 4] {
            let place = (kind != ScopeKind::Loop).then_some(name);
            let scope = Scope { discriminator: id, module: Some(name), file: place, ..Scope::new(kind, name) };
            node = profile.tree.child(node, scope);
            profile.tree.add(node, &[10, 10]);
        }
    }
    profile.quality.taken = 3;
    profile.quality.dropped.insert(HOSTILE.into(), 2);
    let info = &mut profile.info;
    let words = [&mut info.program, &mut info.host, &mut info.directory];
    words.into_iter().for_each(|word| *word = HOSTILE.into());
    info.command = vec![HOSTILE.into(), HOSTILE.into()];
    info.exit = Some(HOSTILE.into());
    info.notes = vec![HOSTILE.into()];
    profile
}

#[test]
fn nothing_that_a_terminal_acts_on_gets_through() {
    let profile = hostile();
    let query = Query { fold: Vec::new(), ..Query::default() };
    let options = TextOptions { query, ..TextOptions::default() };
    let mut texts = vec![report(&profile, &options)];
    texts.extend([ViewKind::Context, ViewKind::Callers, ViewKind::Flat].map(|kind| view(&profile, kind, &options)));
    for text in texts {
        let bad = text.chars().find(|&c| (c.is_control() && c != '\n') || "\u{202e}\u{2028}".contains(c));
        assert_eq!(bad, None, "{text}");
        assert!(text.contains("\\x1b]0;owned\\x07"), "{text}");
    }
}

#[test]
fn any_width_and_any_numbers_will_do() {
    for profile in [synthetic::xz(), synthetic::cpp(), synthetic::many(), hostile(), Profile::new(Vec::new())] {
        for width in [0, 1, 20, 40, 80, 1000] {
            let options = TextOptions { width, ..TextOptions::default() };
            report(&profile, &options);
            for kind in [ViewKind::Context, ViewKind::Callers, ViewKind::Flat] {
                view(&profile, kind, &options);
            }
        }
        for share in [f64::NAN, f64::INFINITY, -1.0, 2.0] {
            let query = Query { min_share: share, max_depth: Some(0), ..Query::default() };
            report(&profile, &TextOptions { query, ..TextOptions::default() });
        }
    }
    let mut profile = synthetic::xz();
    profile.tree.add(NodeId::ROOT, &[u64::MAX, u64::MAX]);
    profile.info.duration_ns = u64::MAX;
    profile.quality.full = u64::MAX;
    assert!(report(&profile, &TextOptions::default()).contains("does not add up"));
}

/// Paths of a few procedures, loops and inlined calls at random, with heavy and light ones.
fn random_profile(random: &mut fastrand::Rng) -> Profile {
    let mut profile = Profile::new(vec![Metric::of(MetricId::CPU_TIME)]);
    for _ in 0..random.usize(1..80) {
        let mut node = NodeId::ROOT;
        for _ in 0..random.usize(1..25) {
            let name = format!("{}_of_some_length", random.char('a'..='d'));
            let kind = [ScopeKind::Procedure, ScopeKind::Inlined, ScopeKind::Loop][random.usize(..6) / 2];
            let mut scope = Scope::new(kind, profile.strings.intern(&name));
            scope.file = random.bool().then(|| profile.strings.intern("some_file.c"));
            scope.line = Some(random.u32(1..4));
            node = profile.tree.child(node, scope);
        }
        profile.tree.add(node, &[1 << random.u32(10..24)]);
    }
    profile
}

/// What the column self prints is everything, but for rounding.
#[test]
fn the_column_self_adds_up() {
    let mut random = fastrand::Rng::with_seed(1512);
    for round in 0..600 {
        let profile = random_profile(&mut random);
        let min_share = [0.0, 0.01, 0.05, 0.2][round % 4];
        let query = Query { min_share, ..TextOptions::default().query };
        let options =
            TextOptions { whole: round % 3 == 0, width: [40, 80, 100][round / 2 % 3], query, ..TextOptions::default() };
        let text = view(&profile, ViewKind::Context, &options);
        let mut rows = text.lines().skip_while(|line| !line.contains(" self  call path"));
        let end = rows.next().and_then(|head| head.find("  call path")).expect("a head");
        let cells = rows.take_while(|line| !line.is_empty()).map(|line| line.get(end - 6..end).expect(line).trim());
        let (mut sum, mut count) = (0.0, 0);
        for cell in cells {
            count += 1;
            sum += if cell.is_empty() { 0.0 } else { cell.trim_end_matches('%').parse::<f64>().expect(cell) };
        }
        assert!((sum - 100.0f64).abs() <= 0.05 * f64::from(count) + 0.1, "{round}: {sum} of {count} rows\n{text}");
    }
}

/// In few columns names have most of them: no loop without its procedure, no row over the end.
#[test]
fn narrow_trees_keep_to_the_width() {
    let mut random = fastrand::Rng::with_seed(1517);
    for round in 0..300 {
        let profile = if round == 0 { synthetic::cpp() } else { random_profile(&mut random) };
        for width in [40, 50, 60, 70] {
            for kind in [ViewKind::Context, ViewKind::Callers] {
                let text = view(&profile, kind, &TextOptions { width, ..TextOptions::default() });
                let tree = text.lines().take_while(|line| !line.is_empty()).skip(1);
                let wide: Vec<&str> = tree.filter(|line| line.chars().count() > width).collect();
                assert!(wide.is_empty(), "{width}: {wide:#?}");
                // A name is at least so long that it says something.
                assert!(!text.contains("more › loop"), "{text}");
            }
        }
    }
    let shown = |width| view(&synthetic::cpp(), ViewKind::Context, &TextOptions { width, ..TextOptions::default() });
    assert!(shown(40).contains("│ ├ intersect(…)"), "{}", shown(40));
    assert!(shown(70).contains("│ ├ intersect(…) › loop         encoder.c:88"), "{}", shown(70));
}

/// Padding by a width beyond 16 bits is a panic in a format string.
#[test]
fn a_very_wide_page() {
    let text = view(&synthetic::xz(), ViewKind::Context, &TextOptions { width: 70_000, ..TextOptions::default() });
    assert!(text.lines().any(|line| line.chars().count() == 70_000 && line.ends_with("encoder.c:312")));
}

/// A fold names the program's own code rather than the libraries' around it; a view of callers the nearest callers.
#[test]
fn folds_name_the_programs_own_code() {
    let mut profile = Profile::new(vec![Metric::of(MetricId::CPU_TIME)]);
    let mut node = NodeId::ROOT;
    let pool = "/home/me/.cargo/registry/src/pool-1.0/src/job.rs";
    let frames: Vec<(String, &str)> = (0..30)
        .map(|i| (format!("pool_of_threads::job::execute_number_{i}"), pool))
        .chain([("app::sort_all::{closure#0}".into(), "/home/me/app/src/main.rs")])
        .chain((0..30).map(|i| (format!("pool_of_threads::iter::bridge_number_{i}"), pool)))
        .collect();
    for (name, file) in frames {
        let mut scope = Scope::new(ScopeKind::Procedure, profile.strings.intern(&name));
        scope.file = Some(profile.strings.intern(file));
        scope.line = Some(7);
        node = profile.tree.child(node, scope);
    }
    let mut innermost = Scope::new(ScopeKind::Loop, profile.strings.intern("loop"));
    (innermost.file, innermost.line) = (Some(profile.strings.intern(pool)), Some(9));
    node = profile.tree.child(node, innermost);
    profile.tree.add(node, &[1_000_000]);
    for width in [80, 100, 160] {
        let options = TextOptions { width, ..TextOptions::default() };
        let text = view(&profile, ViewKind::Context, &options);
        let row = text.lines().find(|line| line.contains("job.rs:9")).expect(&text);
        let own = if width < 160 { "app::…::{closure#0}" } else { "app::sort_all::{closure#0}" };
        assert!(width < 100 || row.contains(own), "{text}");
        assert!(row.contains("number_29"), "{text}");
        let text = view(&profile, ViewKind::Callers, &options);
        let row = text.lines().find(|line| line.contains("└ ")).expect(&text);
        assert!(row.contains("number_28"), "{text}");
    }
}

#[test]
fn lines_keep_to_the_width() {
    for width in [80, 100, 132] {
        for profile in [synthetic::xz(), synthetic::cpp(), synthetic::many()] {
            let options = TextOptions { width, ..TextOptions::default() };
            let mut text = report(&profile, &options);
            for kind in [ViewKind::Context, ViewKind::Callers, ViewKind::Flat] {
                text += &view(&profile, kind, &options);
            }
            let wide: Vec<&str> = text.lines().filter(|line| line.chars().count() > width).collect();
            assert!(wide.is_empty(), "{width}: {wide:#?}");
        }
    }
}

/// Procedures of a flat view have a row each. What is quadratic in the depth takes minutes here.
#[test]
fn the_deepest_recursion_is_a_few_lines() {
    const DEPTH: usize = 200_000;
    const FEW: usize = 60;
    for different in [false, true] {
        let profile = synthetic::deep(DEPTH, different);
        let text = report(&profile, &TextOptions::default());
        assert!(text.lines().count() < FEW, "{text}");
        assert!(different || text.contains("f0 ×200000"), "{text}");
        for kind in [ViewKind::Context, ViewKind::Callers, ViewKind::Flat] {
            let text = view(&profile, kind, &TextOptions::default());
            let rows = if different && kind == ViewKind::Flat { DEPTH } else { 0 };
            assert!(text.lines().count() < rows + FEW && text.len() < (rows + FEW) * 80, "{kind:?}: {text}");
        }
    }
}
