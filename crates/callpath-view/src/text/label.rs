//! What a scope is called on one line of text.

use callpath_db::{Name, Profile, Scope, ScopeKind, View, ViewKind};

use super::printable::{printable, shorten};
use super::quantity::count;

/// The words for one node, printable; and apart from them, how they may be shortened.
pub(super) struct Label {
    /// A demangled name or a path.
    name: String,
    /// What follows it and is never shortened.
    suffix: String,
}

impl Label {
    /// The name alone, without what follows it.
    pub(super) fn bare(self) -> Label {
        Label { suffix: String::new(), ..self }
    }

    /// In at most `max` columns where that is possible at all.
    pub(super) fn fit(&self, max: usize) -> String {
        let room = max.saturating_sub(self.suffix.chars().count());
        format!("{}{}", shorten(&self.name, room.max(12)), self.suffix)
    }
}

/// What `node` of `view` is called. `is_cut`: rows may be left out because they lie too
/// deep, not only because they cost little.
pub(super) fn label(view: &View, node: usize, profile: &Profile, is_cut: bool) -> Label {
    let scope = &view.nodes[node].scope;
    let mut label = scope_label(scope, profile);
    match scope.kind {
        ScopeKind::Pruned => label.name = pruned(view, node, is_cut),
        ScopeKind::Root | ScopeKind::Truncated => label.name = printable(&view.name(node, profile)),
        ScopeKind::Process | ScopeKind::Thread if view.nodes[node].contexts > 1 && scope.discriminator == 0 => {
            label.suffix = format!(" (x {})", view.nodes[node].contexts);
        }
        _ => {}
    }
    label
}

/// What stands for the children of one node that have no row: `3 smaller callees`.
fn pruned(view: &View, node: usize, is_cut: bool) -> String {
    let above = view.nodes[node].parent.map(|above| view.nodes[above].scope.kind);
    let one = match (view.kind, above) {
        (ViewKind::Context, Some(ScopeKind::Root)) | (ViewKind::Flat, _) => "row",
        (ViewKind::Context, Some(ScopeKind::Process)) => "thread",
        (ViewKind::Callers, Some(ScopeKind::Root)) => "procedure",
        (ViewKind::Context, _) => "callee",
        (ViewKind::Callers, _) => "caller",
    };
    let how = if is_cut { "more" } else { "smaller" };
    count(view.nodes[node].scope.discriminator, &format!("{how} {one}"), &format!("{how} {one}s"))
}

/// What `scope` is called wherever it stands.
pub(super) fn scope_label(scope: &Scope, profile: &Profile) -> Label {
    let text = |name: Name| printable(profile.strings.get(name));
    let place = scope.file.map(|file| {
        let file = text(file);
        let file = file.rsplit('/').next().unwrap_or_default();
        scope.line.map_or_else(|| file.to_string(), |line| format!("{file}:{line}"))
    });
    let named = |name: Name, otherwise: &str| if name == Name::EMPTY { otherwise.into() } else { text(name) };
    let id = |word: &str| match scope.discriminator {
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
            (name, if scope.kind == ScopeKind::Inlined { " (inlined)".into() } else { String::new() })
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
    Label { name, suffix }
}

/// The file and line of a scope, without the directory.
pub(super) fn source_label(scope: &Scope, profile: &Profile) -> Option<String> {
    let is_code = scope.kind.is_frame() || scope.kind == ScopeKind::Loop;
    let path = printable(profile.strings.get(scope.file.filter(|_| is_code)?));
    let file = path.rsplit('/').next().filter(|file| !file.is_empty())?;
    Some(scope.line.map_or_else(|| file.to_string(), |line| format!("{file}:{line}")))
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
