//! What a scope is called in the source: equal in two builds of one program, whatever their addresses.

use rustc_hash::FxHashMap;

use crate::{Name, Profile, Scope, ScopeKind, Strings};

/// Stands for the program itself, whose file may be called otherwise on either side.
const PROGRAM: &str = "\u{1}program";

/// What makes two scopes below one parent the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) enum Identity {
    /// A procedure, called or inlined: by its module and name, both in the strings of the comparison.
    Frame { module: Name, name: Name },
    /// A procedure without a name, by its address.
    Unnamed { module: Name, address: u64 },
    /// Something else that holds frames: a process, the root of partial paths.
    Other { kind: ScopeKind, name: Name },
}

/// Turns the scopes of one profile into identities.
pub(super) struct Identities<'a> {
    profile: &'a Profile,
    renames: &'a [(String, String)],
    names: FxHashMap<Name, Name>,
    modules: FxHashMap<Name, Name>,
}

impl<'a> Identities<'a> {
    /// `renames`: from names of side A to names of side B; none for side B.
    pub(super) fn new(profile: &'a Profile, renames: &'a [(String, String)]) -> Self {
        Identities { profile, renames, names: FxHashMap::default(), modules: FxHashMap::default() }
    }

    /// None of what is neither a frame nor holds any: its cost is its parent's.
    pub(super) fn of(&mut self, scope: &Scope, strings: &mut Strings) -> Option<Identity> {
        match scope.kind {
            ScopeKind::Procedure | ScopeKind::Inlined => {
                let module = self.module(scope.module.unwrap_or(Name::EMPTY), strings);
                match (scope.name, scope.address) {
                    (Name::EMPTY, Some(address)) => Some(Identity::Unnamed { module, address }),
                    (name, _) => Some(Identity::Frame { module, name: self.name(name, strings) }),
                }
            }
            ScopeKind::Process => {
                let name = self.module(scope.name, strings);
                Some(Identity::Other { kind: scope.kind, name })
            }
            ScopeKind::Partial | ScopeKind::Truncated | ScopeKind::Gap => {
                Some(Identity::Other { kind: scope.kind, name: strings.intern(self.profile.strings.get(scope.name)) })
            }
            _ => None,
        }
    }

    /// The module that a scope's code is of.
    pub(super) fn home(&mut self, scope: &Scope, strings: &mut Strings) -> Name {
        self.module(scope.module.unwrap_or(Name::EMPTY), strings)
    }

    fn name(&mut self, name: Name, strings: &mut Strings) -> Name {
        let Identities { profile, renames, names, .. } = self;
        *names.entry(name).or_insert_with(|| {
            let text = without_clone(profile.strings.get(name));
            strings.intern(renamed(text, renames))
        })
    }

    fn module(&mut self, module: Name, strings: &mut Strings) -> Name {
        let Identities { profile, renames, modules, .. } = self;
        *modules.entry(module).or_insert_with(|| {
            let text = profile.strings.get(module);
            if !text.is_empty() && text == profile.info.program {
                return strings.intern(PROGRAM);
            }
            strings.intern(renamed(&without_version(text), renames))
        })
    }
}

/// Whether a module or process is the program itself.
pub(super) fn is_program(name: &str) -> bool {
    name == PROGRAM
}

fn renamed<'n>(name: &'n str, renames: &'n [(String, String)]) -> &'n str {
    renames.iter().find(|(old, _)| old == name).map_or(name, |(_, new)| new)
}

/// A procedure's name without what compilers add to that of a part or a copy: `f.part.0`, `f.constprop.0.isra.0`, `f.cold`.
fn without_clone(name: &str) -> &str {
    const ADDED: [&str; 7] = [".part.", ".constprop.", ".isra.", ".cold", ".llvm.", ".lto_priv.", " [clone ."];
    let cut = ADDED.iter().filter_map(|added| name.find(added)).min();
    cut.filter(|&at| at > 0).map_or(name, |at| &name[..at])
}

/// A library's name without its version: `libz.so.1.3.1` and `libc-2.31.so` as `libz.so` and `libc.so`.
fn without_version(name: &str) -> String {
    let Some(at) = name.find(".so") else { return name.to_owned() };
    let behind = &name[at + 3..];
    if !behind.chars().all(|c| c.is_ascii_digit() || c == '.') {
        return name.to_owned();
    }
    let stem = &name[..at];
    let is_version = |part: &str| part.starts_with(|c: char| c.is_ascii_digit()) && part.contains('.');
    let stem = stem.rsplit_once('-').filter(|(_, part)| is_version(part)).map_or(stem, |(stem, _)| stem);
    format!("{stem}.so")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_what_a_build_adds() {
        let names = [
            ("f.part.0", "f"),
            ("f.constprop.0.isra.1", "f"),
            ("f.cold", "f"),
            ("ns::g(int) [clone .isra.0]", "ns::g(int)"),
            (".cold", ".cold"),
            ("partition", "partition"),
        ];
        for (name, expected) in names {
            assert_eq!(without_clone(name), expected);
        }
        let modules = [
            ("libz.so.1.3.1", "libz.so"),
            ("libc-2.31.so", "libc.so"),
            ("libstdc++.so.6", "libstdc++.so"),
            ("lib-a.so", "lib-a.so"),
            ("my.sofa", "my.sofa"),
            ("app", "app"),
        ];
        for (name, expected) in modules {
            assert_eq!(without_version(name), expected);
        }
    }
}
