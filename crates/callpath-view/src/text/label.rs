//! What a scope is called on one line of text.

use callpath_db::{Name, Profile, Scope, ScopeKind, View, ViewKind};

use super::printable::{columns, printable};
use super::quantity::count;
use super::shorten::{shorten, shorten_apart};

/// The words for one node, printable; and apart from them, how they may be shortened.
pub(super) struct Label {
    /// A demangled name or a path.
    name: String,
    /// What follows it and is never shortened.
    suffix: String,
    /// Where it is defined, ` at gaps.rs:61`, or its address: tells it from one with the same name.
    tells: String,
    /// The names of others that stand beside it and may look the same.
    rivals: Vec<String>,
}

/// Names of so many columns are shown whole whatever room there is.
const ALWAYS_WHOLE: usize = 12;

/// Follows the name of a procedure whose body is part of another one's.
const INLINED: &str = " (inlined)";

/// So many of a node's children, the costliest, never look the same.
pub(super) const RIVALS: usize = 200;

impl Label {
    /// The name alone, without what follows it.
    pub(super) fn bare(self) -> Label {
        Label { suffix: String::new(), ..self }
    }

    /// Which looks like none of some other names, either.
    pub(super) fn among(mut self, names: &[String]) -> Label {
        if columns(&self.name) > ALWAYS_WHOLE {
            self.rivals.extend(names.iter().filter(|name| columns(name) > ALWAYS_WHOLE).cloned());
        }
        self
    }

    /// In at most `max` columns; where that needs it, without its place, which stands beside it. In little room there is no word that it is
    /// inlined.
    pub(super) fn fit_beside(mut self, place: &str, max: usize) -> String {
        const LITTLE: usize = 38;
        let fits = |label: &Label| columns(&label.name) + columns(&label.suffix) <= max;
        if !place.is_empty() && !fits(&self) {
            self.suffix = self.suffix.replacen(&format!(" at {place}"), "", 1);
        }
        if max < LITTLE && !fits(&self) {
            self.suffix = self.suffix.replacen(INLINED, "", 1);
        }
        // A name that is hard to know says less with its place.
        const TOO_LITTLE: usize = 24;
        if max < TOO_LITTLE && !fits(&self) {
            self.suffix.clear();
        }
        self.fit(max)
    }

    /// In at most `max` columns where that is possible at all.
    pub(super) fn fit(&self, max: usize) -> String {
        let room = max.saturating_sub(columns(&self.suffix));
        let Some(name) = shorten_apart(&self.name, &self.rivals, room.max(ALWAYS_WHOLE)) else {
            let room = room.saturating_sub(columns(&self.tells));
            return format!("{}{}{}", shorten(&self.name, room.max(ALWAYS_WHOLE)), self.tells, self.suffix);
        };
        format!("{name}{}", self.suffix)
    }

    /// With what tells it from another of the same name.
    fn told_apart(mut self) -> Label {
        self.suffix.insert_str(0, &std::mem::take(&mut self.tells));
        self
    }
}

/// What `node` of `view` is called. `is_cut`: rows may be left out because they lie too
/// deep, not only because they cost little.
pub(super) fn label(view: &View, node: usize, profile: &Profile, is_cut: bool) -> Label {
    let scope = &view.nodes[node].scope;
    let mut label = scope_label(scope, profile);
    match scope.kind {
        ScopeKind::Pruned => label.name = pruned(view, &[node], is_cut),
        ScopeKind::Root | ScopeKind::Truncated => label.name = printable(&view.name(node, profile)),
        ScopeKind::Process | ScopeKind::Thread if view.nodes[node].contexts > 1 && scope.discriminator == 0 => {
            label.suffix = format!(" ×{}", view.nodes[node].contexts);
        }
        kind if kind.is_frame() => {
            let siblings = view.nodes[node].parent.into_iter().flat_map(|parent| view.children(parent)).take(RIVALS);
            let others = siblings.filter(|&other| other != node).map(|other| &view.nodes[other].scope);
            return label_among(scope, others, profile);
        }
        _ => {}
    }
    label
}

/// The label of a procedure or an inlined call, which looks like that of none of the `others` in the same list. The list shows modules.
pub(super) fn label_among<'s>(own: &Scope, others: impl Iterator<Item = &'s Scope>, profile: &Profile) -> Label {
    let mut label = scope_label(own, profile);
    let rivals: Vec<&Scope> = others.filter(|scope| scope.kind == own.kind && scope.module == own.module).collect();
    let place = place_of(own, profile);
    let is_called_same = |scope: &&&Scope| scope.name == own.name && own.name != Name::EMPTY;
    let mut named_same = rivals.iter().filter(is_called_same).peekable();
    let is_named_same = named_same.peek().is_some();
    // Its place is known by the file without the directory.
    let address = own.address.map_or_else(String::new, |address| format!(" at {address:#x}"));
    if is_named_same && (place.is_none() || named_same.any(|scope| place_of(scope, profile) == place)) {
        // Of a closure its place is in the suffix.
        match label.tells.is_empty() {
            true => {
                let place = label.suffix.strip_suffix(INLINED).unwrap_or(&label.suffix).len();
                label.suffix.insert_str(place, &address);
            }
            false => label.tells = address,
        }
    }
    if columns(&label.name) > ALWAYS_WHOLE {
        let names = rivals.iter().map(|scope| printable(profile.strings.get(scope.name)));
        label.rivals = names.filter(|name| columns(name) > ALWAYS_WHOLE).collect();
    }
    if is_named_same { label.told_apart() } else { label }
}

/// It is a closure's or a lambda's name, whose number says less than its line.
fn is_closure(name: &str) -> bool {
    let name = name.split(" [clone ").next().unwrap_or_default();
    // An argument of a template is another's name.
    let is_outside = |(before, _): &(&str, &str)| {
        let before = before.replace("->", "");
        before.matches('<').count() == before.matches('>').count()
    };
    let marks = ["{closure", "{{closure}}", "{lambda", "<lambda(", "::$_"];
    let found = marks.iter().filter_map(|mark| name.rsplit_once(*mark)).filter(is_outside);
    let Some((_, behind)) = found.min_by_key(|(_, behind)| behind.len()) else { return false };
    // clang's: `main::$_3::operator()(int) const`.
    let behind = behind.trim_start_matches(|c: char| c.is_ascii_digit());
    if behind.starts_with("::operator()") {
        return true;
    }
    let rest = behind.trim_start_matches(|c| !matches!(c, '}' | '>' | ')')).trim_start_matches(['}', '>', ')']);
    let rest = rest.split_once('}').filter(|_| rest.starts_with('#')).map_or(rest, |(_, rest)| rest);
    rest.is_empty() || rest.starts_with("::operator()") || rest.starts_with("::<")
}

/// What stands for the children of some nodes that have no row: `3 smaller callees`. `nodes` are pruned.
pub(super) fn pruned(view: &View, nodes: &[usize], is_cut: bool) -> String {
    let word = |&node: &usize| {
        let above = view.nodes[node].parent.map(|above| view.nodes[above].scope.kind);
        match (view.kind, above) {
            (ViewKind::Context, Some(ScopeKind::Root)) | (ViewKind::Flat, _) => "row",
            // Threads, or where they are no level, the outer ends of paths.
            (ViewKind::Context, Some(ScopeKind::Process)) => {
                let is_thread = |child: usize| view.nodes[child].scope.kind == ScopeKind::Thread;
                let has_threads = view.nodes[node].parent.is_some_and(|above| view.children(above).any(is_thread));
                if has_threads { "thread" } else { "row" }
            }
            (ViewKind::Callers, Some(ScopeKind::Root)) => "procedure",
            (ViewKind::Context, _) => "callee",
            (ViewKind::Callers, _) => "caller",
        }
    };
    let otherwise = if view.kind == ViewKind::Context { "callee" } else { "row" };
    let one = nodes.iter().map(word).reduce(|a, b| if a == b { a } else { otherwise }).unwrap_or(otherwise);
    let how = if is_cut { "more" } else { "smaller" };
    let many = nodes.iter().fold(0u64, |sum, &node| sum.saturating_add(view.nodes[node].scope.discriminator));
    count(many, &format!("{how} {one}"), &format!("{how} {one}s"))
}

/// What `scope` is called where there is room for all of it.
pub(crate) fn whole_label(scope: &Scope, profile: &Profile) -> String {
    let label = scope_label(scope, profile);
    label.name + &label.suffix
}

/// What `scope` is called wherever it stands.
pub(super) fn scope_label(scope: &Scope, profile: &Profile) -> Label {
    let text = |name: Name| printable(profile.strings.get(name));
    let place = place_of(scope, profile);
    let named = |name: Name, otherwise: &str| if name == Name::EMPTY { otherwise.into() } else { text(name) };
    let id = |word: &str| match scope.unit_id() {
        0 => String::new(),
        id => format!(" ({word} {id})"),
    };
    let (name, suffix) = match scope.kind {
        ScopeKind::Process => (format!("process {}", text(scope.name)), id("pid")),
        ScopeKind::Thread => (format!("thread {}", text(scope.name)), id("tid")),
        ScopeKind::Rank => (format!("rank {}", text(scope.name)), String::new()),
        ScopeKind::Partial => (named(scope.name, "partial paths"), String::new()),
        ScopeKind::Module => (named(scope.name, "no known module"), String::new()),
        ScopeKind::Procedure | ScopeKind::Inlined => {
            let name = match (scope.name, scope.module, scope.address) {
                (Name::EMPTY, Some(module), Some(address)) => format!("{}+{address:#x}", text(module)),
                (Name::EMPTY, ..) => "unnamed".into(),
                (name, ..) => text(name),
            };
            let inlined = if scope.kind == ScopeKind::Inlined { INLINED } else { "" };
            let label = Label {
                suffix: inlined.into(),
                tells: place.map_or_else(String::new, |place| format!(" at {place}")),
                rivals: Vec::new(),
                name,
            };
            return if is_closure(&label.name) { label.told_apart() } else { label };
        }
        ScopeKind::Loop => match (place, scope.address) {
            (Some(place), _) => (format!("loop at {place}"), String::new()),
            (None, Some(address)) => (format!("loop at {address:#x}"), String::new()),
            (None, None) => (named(scope.name, "loop"), String::new()),
        },
        ScopeKind::Line => (place.unwrap_or_else(|| named(scope.name, "no known line")), String::new()),
        ScopeKind::SystemCall => (text(scope.name), system_call_suffix(&text(scope.name))),
        ScopeKind::Root | ScopeKind::File | ScopeKind::Pruned | ScopeKind::Truncated | ScopeKind::Gap => {
            (text(scope.name), String::new())
        }
    };
    Label { name, suffix, tells: String::new(), rivals: Vec::new() }
}

/// The file, line and column of a procedure or loop, as far as they are known, without the directory.
pub(super) fn source_label(scope: &Scope, profile: &Profile) -> Option<String> {
    place_of(scope, profile).filter(|_| scope.kind.is_frame() || scope.kind == ScopeKind::Loop)
}

fn place_of(scope: &Scope, profile: &Profile) -> Option<String> {
    let path = printable(profile.strings.get(scope.file?));
    let file = path.rsplit('/').next().unwrap_or_default();
    let column = scope.column.map_or(String::new(), |column| format!(":{column}"));
    let place = scope.line.map_or_else(|| file.to_string(), |line| format!("{file}:{line}{column}"));
    Some(place).filter(|place| !place.is_empty())
}

/// Procedures of the C library have the same names; a call without a name says what it is.
fn system_call_suffix(name: &str) -> String {
    if name.starts_with("system call") { String::new() } else { " (system call)".into() }
}

/// The module of a scope in brackets, unless its name begins with it anyway (`libz.so.1+0x1234`).
pub(super) fn module_label(scope: &Scope, profile: &Profile) -> Option<String> {
    let module = profile.strings.get(scope.module?);
    let name = profile.strings.get(scope.name);
    let says_it = name.is_empty() || name.strip_prefix(module).is_some_and(|rest| rest.starts_with('+'));
    let shown = scope.kind.is_frame() && !says_it && !module.is_empty();
    let module = shorten(&printable(module), 40);
    // What is no file has brackets of its own: `[jit]`, `[vdso]`.
    let has_brackets = module.starts_with('[') && module.ends_with(']');
    shown.then(|| if has_brackets { module } else { format!("[{module}]") })
}

#[cfg(test)]
mod tests {
    use super::is_closure;

    #[test]
    fn closures_are_known_by_their_names() {
        for closure in [
            "g::main::{closure#0}",
            "g::main::{{closure}}",
            "std::rt::lang_start::<()>::{closure#0}",
            "g::main::{closure#0}::{closure#1}::<u8>",
            "main::{lambda(int)#1}::operator()(int) const",
            "main::{lambda(int)#1}::operator()(int) const [clone .constprop.0]",
            "main()::<lambda(int)>::operator()(int)",
            "app::make::{lambda#2}",
            "main::{lambda#3}::operator()<double>",
            "main::$_3::operator()(double) const",
        ] {
            assert!(is_closure(closure), "{closure}");
        }
        for other in ["main", "closure", "each<main::{lambda(int)#1}>(int)", "g::apply::<g::main::{closure_env#0}>"] {
            assert!(!is_closure(other), "{other}");
        }
    }
}
