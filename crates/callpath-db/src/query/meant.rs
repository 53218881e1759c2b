//! Which procedures the names of a query mean. A name is looked up in the whole profile, so that it means the same whatever
//! else is asked for.

use rustc_hash::{FxHashMap, FxHashSet};

use super::question::{Query, QueryError};
use crate::asked_name::{AskedName, Way};
use crate::pattern::nearest;
use crate::{Name, Profile, Scope, Strings};

/// The procedures that one name means.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Meant {
    asked: String,
    way: Way,
    /// The place that stands behind the name, where a procedure of that name is there.
    place: Option<String>,
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

    /// What the procedures are called, in order.
    pub fn procedures<'a>(&'a self, strings: &'a Strings) -> Vec<&'a str> {
        let names = self.names.iter().map(|name| strings.get(*name));
        let mut all: Vec<&str> = names.chain(self.nameless.iter().map(String::as_str)).collect();
        all.sort_unstable();
        all
    }

    /// Whether a scope is one of them.
    pub(crate) fn is(&self, strings: &Strings, scope: &Scope) -> bool {
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
    /// One at most.
    pub(super) procedure: Vec<Meant>,
}

impl MeantByQuery {
    pub(super) fn of(profile: &Profile, query: &Query) -> Result<MeantByQuery, QueryError> {
        let Query { focus, ignore, hide, procedure, .. } = query;
        if focus.is_empty() && ignore.is_empty() && hide.is_empty() && procedure.is_none() {
            return Ok(MeantByQuery::default());
        }
        let known = Known::of(profile);
        let meant = |names: &[String]| names.iter().map(|name| known.meant(name)).collect::<Result<Vec<_>, _>>();
        let (focus, ignore, hide) = (meant(focus)?, meant(ignore)?, meant(hide)?);
        let procedure = meant(procedure.as_slice())?;
        let all = known.scopes.len() + known.nameless.len();
        let is_all = |meant: &&Meant| all > 1 && meant.names.len() + meant.nameless.len() == all;
        if let Some(Meant { asked, .. }) = procedure.iter().find(is_all) {
            return Err(QueryError::AllMeant { wanted: asked.clone() });
        }
        Ok(MeantByQuery { focus, ignore, hide, procedure })
    }

    /// All of them.
    pub(super) fn all(self) -> Vec<Meant> {
        [self.focus, self.ignore, self.hide, self.procedure].concat()
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
            return Ok(Meant { asked: wanted.to_owned(), way, place, names, nameless });
        }
        let all = self.scopes.keys().map(|name| strings.get(*name)).chain(self.nameless.iter().map(String::as_str));
        Err(QueryError::NoSuchProcedure { wanted: wanted.to_owned(), near: nearest(asked.text(), all) })
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
