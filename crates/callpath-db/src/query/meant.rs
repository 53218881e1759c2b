//! Which procedures the names of a query mean. A name is looked up in the whole profile, so that it means the same whatever
//! else is asked for.

use rustc_hash::{FxHashMap, FxHashSet};

use super::question::{Query, QueryError};
use crate::asked_name::{AskedName, Way};
use crate::pattern::{matches_glob, nearest};
use crate::{Name, NodeId, Profile, Scope, Strings};

/// What a name is the name of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    Procedure,
    /// Each procedure in it.
    Module,
    /// Each procedure in it.
    File,
}

impl What {
    /// What is asked for, and its name: `module:libc.so.6`, but not `module::main`.
    fn of(asked: &str) -> (What, &str) {
        let those = [("module:", What::Module), ("file:", What::File)];
        let found = those.into_iter().find_map(|(prefix, what)| {
            asked.strip_prefix(prefix).filter(|name| !name.starts_with(':')).map(|name| (what, name))
        });
        found.unwrap_or((What::Procedure, asked))
    }
}

/// The procedures that one name means.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Meant {
    asked: String,
    what: What,
    way: Way,
    /// The place that stands behind the name, where a procedure of that name is there.
    place: Option<String>,
    /// Of procedures, modules or files.
    names: FxHashSet<Name>,
    /// Of those without a name, as module and address.
    nameless: FxHashSet<String>,
}

impl Meant {
    /// The name as it was asked for.
    pub fn asked(&self) -> &str {
        &self.asked
    }

    /// How the procedures were found.
    pub fn way(&self) -> Way {
        self.way
    }

    /// What the procedures are called, in order; of a module or file that itself.
    pub fn procedures<'a>(&'a self, strings: &'a Strings) -> Vec<&'a str> {
        let names = self.names.iter().map(|name| strings.get(*name));
        let mut all: Vec<&str> = names.chain(self.nameless.iter().map(String::as_str)).collect();
        all.sort_unstable();
        all
    }

    /// Whether a scope is one of them. `module`: that of the code, also where it is inlined.
    pub fn is(&self, strings: &Strings, scope: &Scope, module: Option<Name>) -> bool {
        let place = match self.what {
            What::Procedure => return self.is_procedure(strings, scope),
            What::Module => module,
            What::File => scope.file,
        };
        scope.kind.is_frame() && place.is_some_and(|place| self.names.contains(&place))
    }

    fn is_procedure(&self, strings: &Strings, scope: &Scope) -> bool {
        let is_called = match scope.name {
            Name::EMPTY => {
                !self.nameless.is_empty() && nameless(strings, scope).is_some_and(|name| self.nameless.contains(&name))
            }
            name => self.names.contains(&name),
        };
        is_called && scope.kind.is_frame() && self.place.as_ref().is_none_or(|place| is_at(strings, scope, place))
    }
}

/// What a query's names mean.
#[derive(Default)]
pub(super) struct MeantByQuery {
    pub(super) focus: Vec<Meant>,
    pub(super) ignore: Vec<Meant>,
    pub(super) hide: Vec<Meant>,
    pub(super) prune_from: Vec<Meant>,
    /// One at most.
    pub(super) procedure: Vec<Meant>,
}

impl MeantByQuery {
    pub(super) fn of(profile: &Profile, query: &Query) -> Result<MeantByQuery, QueryError> {
        let Query { focus, ignore, hide, prune_from, procedure, .. } = query;
        if [focus, ignore, hide, prune_from].iter().all(|names| names.is_empty()) && procedure.is_none() {
            return Ok(MeantByQuery::default());
        }
        let known = Known::of(profile);
        let meant = |names: &[String]| names.iter().map(|name| known.meant(name)).collect::<Result<Vec<_>, _>>();
        let (focus, ignore, hide, prune_from) = (meant(focus)?, meant(ignore)?, meant(hide)?, meant(prune_from)?);
        let procedure = meant(procedure.as_slice())?;
        let all = known.scopes.len() + known.nameless.len();
        let is_all = |meant: &&Meant| {
            meant.what == What::Procedure && all > 1 && meant.names.len() + meant.nameless.len() == all
        };
        if let Some(Meant { asked, .. }) = procedure.iter().find(is_all) {
            return Err(QueryError::AllMeant { wanted: asked.clone() });
        }
        Ok(MeantByQuery { focus, ignore, hide, prune_from, procedure })
    }

    /// All of them.
    pub(super) fn all(self) -> Vec<Meant> {
        [self.focus, self.ignore, self.hide, self.prune_from, self.procedure].concat()
    }
}

/// The procedures of a profile.
struct Known<'p> {
    profile: &'p Profile,
    /// By name, one scope of each place.
    scopes: FxHashMap<Name, Vec<&'p Scope>>,
    nameless: FxHashSet<String>,
}

impl<'p> Known<'p> {
    fn of(profile: &'p Profile) -> Known<'p> {
        let mut known = Known { profile, scopes: FxHashMap::default(), nameless: FxHashSet::default() };
        let mut met = FxHashSet::default();
        for node in profile.tree.nodes() {
            let scope = profile.tree.scope(node);
            if !scope.kind.is_frame() || !met.insert((scope.name, scope.file, scope.line, scope.address)) {
                continue;
            }
            match scope.name {
                Name::EMPTY => known.nameless.extend(nameless(&profile.strings, scope)),
                name => known.scopes.entry(name).or_default().push(scope),
            }
        }
        known
    }

    fn meant(&self, wanted: &str) -> Result<Meant, QueryError> {
        let (what, name) = What::of(wanted);
        if what != What::Procedure {
            return self.place(wanted, what, name);
        }
        let asked = AskedName::new(wanted);
        if asked.text().is_empty() {
            return Err(QueryError::EmptyName);
        }
        let strings = &self.profile.strings;
        for way in Way::ALL {
            let names = self.scopes.keys().copied().filter(|name| asked.is(strings.get(*name), way));
            let nameless = self.nameless.iter().filter(|name| asked.is(name, way)).cloned();
            let (names, nameless): (FxHashSet<Name>, FxHashSet<String>) = (names.collect(), nameless.collect());
            if names.is_empty() && nameless.is_empty() {
                continue;
            }
            let is_there = |place: &&str| {
                let mut scopes = names.iter().filter_map(|name| self.scopes.get(name)).flatten();
                scopes.any(|scope| is_at(strings, scope, place))
            };
            let place = asked.place().filter(is_there).map(str::to_owned);
            return Ok(Meant { asked: wanted.to_owned(), what, way, place, names, nameless });
        }
        let all = self.scopes.keys().map(|name| strings.get(*name)).chain(self.nameless.iter().map(String::as_str));
        Err(QueryError::NoSuchProcedure { wanted: wanted.to_owned(), near: nearest(asked.text(), all) })
    }
}

impl Known<'_> {
    /// The modules or files that `name` is, with or without directories, or describes.
    fn place(&self, wanted: &str, what: What, name: &str) -> Result<Meant, QueryError> {
        if name.is_empty() {
            return Err(QueryError::EmptyName);
        }
        let strings = &self.profile.strings;
        let tree = &self.profile.tree;
        let of = |node: NodeId| match what {
            What::Module => tree.scope(node).module,
            What::File | What::Procedure => tree.scope(node).file,
        };
        let there: FxHashSet<Name> =
            tree.nodes().filter(|node| tree.scope(*node).kind.is_frame()).filter_map(of).collect();
        let is_it = |place: &Name| {
            let place = strings.get(*place);
            place == name
                || matches_glob(name, place)
                || place.rsplit('/').next().is_some_and(|last| matches_glob(name, last))
                || place.ends_with(name) && place[..place.len() - name.len()].ends_with('/')
        };
        let names: FxHashSet<Name> = there.iter().copied().filter(is_it).collect();
        if names.is_empty() {
            let last = |name: &Name| strings.get(*name).rsplit('/').next().unwrap_or_default();
            let kind = if what == What::Module { "module" } else { "file" };
            let near = nearest(name, there.iter().map(last));
            return Err(QueryError::NoSuchPlace { kind, wanted: name.to_owned(), near });
        }
        let (asked, way) = (wanted.to_owned(), Way::Pattern);
        Ok(Meant { asked, what, way, place: None, names, nameless: FxHashSet::default() })
    }
}

/// Procedures without a name are called by their module and address.
fn nameless(strings: &Strings, scope: &Scope) -> Option<String> {
    Some(format!("{}+{:#x}", strings.get(scope.module?), scope.address?))
}

/// Whether a scope is defined at `place`: an address, or a file's name and a line, perhaps with a column.
fn is_at(strings: &Strings, scope: &Scope, place: &str) -> bool {
    if scope.address.is_some_and(|address| format!("{address:#x}") == place) {
        return true;
    }
    let (Some(file), Some(line)) = (scope.file, scope.line) else { return false };
    let file = strings.get(file).rsplit('/').next().unwrap_or_default();
    let Some(rest) = place.strip_prefix(&format!("{file}:{line}")) else { return false };
    rest.is_empty() || rest.starts_with(':')
}
