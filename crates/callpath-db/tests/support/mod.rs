//! Profiles from text, views as text, and a generator of random samples, for the tests of this crate.
//! It must not use an algorithm that is tested.

#![allow(dead_code, reason = "each test file uses its part")]

use std::path::Path;

use callpath_db::database::{Database, DatabaseError, Source, merge};
use callpath_db::{
    CodeFile, CodeIdentity, Context, ContextId, Metric, NodeId, Profile, Query, Scope, ScopeKind, Strings, View,
    ViewKind,
};

/// A database that is no file.
pub(crate) struct InMemory(pub(crate) Vec<u8>);

impl Source for InMemory {
    type Error = DatabaseError;

    fn open(&self) -> Result<Database, DatabaseError> {
        Database::of_bytes(self.0.clone(), Path::new("input"))
    }
}

pub(crate) fn encoded(profile: &Profile) -> InMemory {
    InMemory(profile.to_database().expect("a database"))
}

pub(crate) fn merged(parts: &[InMemory]) -> InMemory {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("merged");
    merge(parts, &path, |_| {}).expect("a merge");
    InMemory(std::fs::read(&path).expect("the merged database"))
}

pub(crate) fn loaded(database: &InMemory) -> Profile {
    database.open().and_then(|database| database.to_profile()).expect("a profile")
}

/// A profile with one metric that adds up. Each line is a path and its cost: `main > f > @7 > ~g = 5`.
/// See [`step`] for the marks.
pub(crate) fn profile(samples: &str) -> Profile {
    let mut profile = Profile::new(vec![Metric::sum("cost", "count")]);
    for line in samples.lines().filter(|line| !line.trim().is_empty()) {
        let (path, cost) = line.split_once('=').expect("path = cost");
        let path: Vec<&str> = path.split('>').map(str::trim).collect();
        add(&mut profile, &path, &[cost.trim().parse().expect("a number")]);
    }
    profile
}

/// The answer of the profile of `samples` to `query` is `expected`, written as [`shown`] does.
#[track_caller]
pub(crate) fn check(samples: &str, query: Query, expected: &str) {
    let profile = profile(samples);
    let view = profile.view(&query).expect("an answer");
    assert_eq!(shown(&view, &profile), dedent(expected));
}

/// A view with nothing left out.
pub(crate) fn query(view: ViewKind) -> Query {
    Query { view, ..Query::default() }
}

/// Adds a cost at a path of steps.
pub(crate) fn add(profile: &mut Profile, path: &[&str], values: &[u64]) {
    let mut node = NodeId::ROOT;
    for text in path {
        let scope = step(text, &mut profile.strings);
        node = profile.tree.child(node, scope);
    }
    profile.tree.add(node, values);
}

/// `$name.1` process 1, `%name.7` thread 7, `?` partial root, `@12` loop at line 12, `:12` line 12 of a.c, `~name`
/// inlined, `^` frames left out, `#name` a system call, else a procedure; `module!name` in a module; `name/file` in a file.
pub(crate) fn step(text: &str, strings: &mut Strings) -> Scope {
    let (mark, rest) = text.split_at(usize::from("$%?@:~^#".contains(&text[..1])));
    let kind = match mark {
        "$" => ScopeKind::Process,
        "%" => ScopeKind::Thread,
        "?" => ScopeKind::Partial,
        "^" => ScopeKind::Truncated,
        "@" => ScopeKind::Loop,
        ":" => ScopeKind::Line,
        "~" => ScopeKind::Inlined,
        "#" => ScopeKind::SystemCall,
        _ => ScopeKind::Procedure,
    };
    let mut scope = Scope::new(kind, strings.intern(rest));
    match kind {
        ScopeKind::Process | ScopeKind::Thread => {
            let (name, id) = rest.split_once('.').unwrap_or((rest, "0"));
            scope.name = strings.intern(name);
            scope.discriminator = id.parse().expect("an id");
        }
        ScopeKind::Loop | ScopeKind::Line => {
            scope.name = strings.intern("");
            scope.file = Some(strings.intern("a.c"));
            scope.line = rest.parse().ok();
        }
        _ => {
            let (module, name) = rest.split_once('!').map_or((None, rest), |(module, name)| (Some(module), name));
            let (name, file) = name.split_once('/').map_or((name, None), |(name, file)| (name, Some(file)));
            scope.name = strings.intern(name);
            scope.module = module.map(|module| strings.intern(module));
            scope.file = file.map(|file| strings.intern(file));
        }
    }
    scope
}

/// A line per node: indented name, then inclusive, exclusive and self cost by metric 0, and the call site.
pub(crate) fn shown(view: &View, profile: &Profile) -> String {
    let mut depth = vec![0; view.nodes.len()];
    let mut text = String::new();
    for (i, node) in view.nodes.iter().enumerate() {
        depth[i] = node.parent.map_or(0, |parent| depth[parent] + 1);
        let scope = &node.scope;
        let name = match scope.kind {
            ScopeKind::Loop => format!("@{}", scope.line.unwrap_or(0)),
            ScopeKind::Line => format!(":{}", scope.line.unwrap_or(0)),
            ScopeKind::Inlined => format!("~{}", profile.strings.get(scope.name)),
            ScopeKind::Partial => "?".into(),
            ScopeKind::Truncated => "^".into(),
            ScopeKind::SystemCall => format!("#{}", profile.strings.get(scope.name)),
            ScopeKind::Process => format!("${}", profile.strings.get(scope.name)),
            ScopeKind::Thread => format!("%{}", profile.strings.get(scope.name)),
            _ => view.name(i, profile).into_owned(),
        };
        let site = scope.call_site.map_or(String::new(), |site| format!(" from :{}", site.line));
        let recursion = if node.recursion > 1 { format!(" x {}", node.recursion) } else { String::new() };
        let costs = [view.inclusive(i)[0], view.exclusive(i)[0], view.self_cost(i)[0]].map(|cost| cost.to_string());
        text += &format!("{}{name} {}{site}{recursion}\n", "  ".repeat(depth[i]), costs.join(" "));
    }
    text
}

/// Lines without their common indentation.
pub(crate) fn dedent(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let indent = lines.iter().map(|line| line.len() - line.trim_start().len()).min().unwrap_or(0);
    lines.iter().map(|line| format!("{}\n", line[indent..].trim_end())).collect()
}

pub(crate) struct Random(fastrand::Rng);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(fastrand::Rng::with_seed(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// Less than `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0.u64(..bound)
    }
}

/// A random sample: its path and cost.
pub(crate) type Sample = (Vec<String>, u64);

/// Random samples: a process, a thread, procedures of few names in two modules, so that recursion is common; some with
/// inlined calls, loops and lines.
pub(crate) fn random_samples(random: &mut Random) -> Vec<Sample> {
    let count = 1 + random.below(40);
    (0..count).map(|_| (random_path(random), 1 + random.below(100))).collect()
}

fn random_path(random: &mut Random) -> Vec<String> {
    let mut path = vec![format!("$p{}.{}", random.below(2), random.below(2)), format!("%t.{}", random.below(3))];
    if random.below(8) == 0 {
        path.push("?".into());
    }
    for _ in 0..random.below(12) {
        let procedure = random.below(5);
        path.push(format!("m{}!f{procedure}", procedure % 2));
        if random.below(3) == 0 {
            path.push(format!("@{}", random.below(2)));
        }
        if random.below(4) == 0 {
            let module = procedure % 2;
            path.push(format!("~m{module}!g{module}"));
        }
        if random.below(3) == 0 {
            path.push(format!(":{}", random.below(3)));
        }
    }
    path
}

/// The profile of samples, with a second metric that is a high-water mark.
pub(crate) fn profile_of(samples: &[Sample]) -> Profile {
    let mut profile = Profile::new(vec![Metric::sum("cost", "count"), Metric::max("peak", "bytes")]);
    for (path, cost) in samples {
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        add(&mut profile, &path, &[*cost, *cost]);
        add_instruction(&mut profile, &path, &[*cost, *cost]);
    }
    profile
}

/// Adds the cost of a path at one of few instructions, which the path's length and its module's number choose.
fn add_instruction(profile: &mut Profile, path: &[&str], values: &[u64]) {
    let module = path.last().and_then(|step| step.strip_prefix('m')).and_then(|step| step.chars().next());
    let (path, build) = (format!("/lib/m{}", module.unwrap_or('x')), vec![7 + path.len() as u8 % 2, 9]);
    let offset = 0x1000 + path.len() as u64 * u64::from(build[0]) * 3;
    let identity = Some(CodeIdentity::BuildId(build.clone()));
    let file = profile.contexts.enter_file(&CodeFile { path: path.into(), identity });
    let id = ContextId::ROOT.child(&build, offset);
    profile.contexts.enter(Context { id, parent: ContextId::ROOT, file, offset });
    profile.contexts.add(id, values);
}
