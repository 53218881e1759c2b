//! Whether a name that was typed is that of a function: its linker's, its demangled one, or a part of that.

use std::borrow::Cow;

use callpath_db::{AskedName, bare_path, matches_glob, without_parameters};
use callpath_image::demangle::demangle;

/// What compilers put behind the names of the procedures that they make of others. Numbers follow some of them.
const CLONES: [&str; 10] =
    ["constprop", "isra", "part", "cold", "lto_priv", "llvm", "localalias", "default", "resolver", "clone"];
/// Of a version for some processors (`target_clones`).
const ARCHITECTURES: [&str; 5] = ["arch_", "avx", "sse", "ssse3", "popcnt"];

/// A name, or a glob for names, that was typed.
pub(super) struct Wanted<'a> {
    /// Without what says that it is a part: that of a function is meant.
    text: &'a str,
    /// With one sign before a version.
    versioned: Option<String>,
    /// Without what symbols do not say of a Rust function.
    linkers: Option<AskedName>,
    is_glob: bool,
    /// Identifiers that stand in each demangled name that is meant.
    identifiers: Vec<String>,
    /// Stands in each symbol's name that is meant, mangled or not, unless that is the text itself.
    in_symbol: Option<String>,
}

impl<'a> Wanted<'a> {
    pub(super) fn new(text: &'a str) -> Wanted<'a> {
        let text = without_part(text);
        let is_glob = text.contains(['*', '?']);
        let linkers = AskedName::new(text).as_linkers_call_it();
        let in_symbol = if is_glob { None } else { last_part(linkers.as_ref().map_or(text, AskedName::text)) };
        let is_break = |c: char| !(c.is_alphanumeric() || c == '_');
        let identifiers: Vec<String> = linkers
            .as_ref()
            .map_or(text, AskedName::text)
            .split(is_break)
            .filter(|identifier| !identifier.is_empty())
            .map(str::to_owned)
            .collect();
        Wanted {
            text,
            versioned: text.contains('@').then(|| text.replace("@@", "@")),
            identifiers,
            linkers,
            is_glob,
            in_symbol,
        }
    }

    /// It may be a glob. Names with such signs in them are found first.
    pub(super) fn is_glob(&self) -> bool {
        self.is_glob
    }

    /// A symbol's name, without its version, is this one.
    pub(super) fn is_symbol(&self, symbol: &Symbol<'_>) -> bool {
        let Symbol { name, version, .. } = *symbol;
        if let (Some(wanted), Some(version)) = (&self.versioned, version)
            && let Some(behind) = wanted.strip_prefix(name)
            && behind == version.replace("@@", "@")
        {
            return true;
        }
        if name == self.text || without_clone(name) == self.text {
            return true;
        }
        self.may_be_symbol(name) && symbol.demangled().is_some_and(|demangled| self.is_demangled(&demangled))
    }

    /// Tells most symbols' names, mangled or not, from what is meant, and quickly.
    pub(super) fn may_be_symbol(&self, name: &str) -> bool {
        self.in_symbol.as_ref().is_none_or(|part| name.contains(part)) || name == self.text
    }

    /// It is a demangled name: whole, without what says that it is a clone, without parameters, without arguments.
    pub(super) fn is_demangled(&self, name: &str) -> bool {
        let is = |wanted: &str| {
            name == wanted
                || name.split(" [clone ").next() == Some(wanted)
                || without_parameters(name) == wanted
                || bare_path(name) == wanted
        };
        self.may_be(name) && (is(self.text) || self.linkers.as_ref().is_some_and(|linkers| is(linkers.text())))
    }

    /// Tells most names from what is meant, and quickly.
    fn may_be(&self, name: &str) -> bool {
        self.identifiers.iter().all(|identifier| name.contains(&**identifier))
    }

    /// A linker's name was typed: this one.
    pub(super) fn is_raw(&self, name: &str) -> bool {
        self.text == name
    }

    /// It says more of a Rust function than its symbol does.
    pub(super) fn is_more_exact(&self) -> bool {
        self.linkers.is_some()
    }

    /// The same for a name that DWARF gives a Rust function, which says more than its symbol. `false` only if it says
    /// that another one of the same symbol's name is meant.
    pub(super) fn may_be_exact(&self, name: &str) -> bool {
        let is_instance = || name.strip_prefix(self.text).is_some_and(|rest| rest.starts_with("::<"));
        self.linkers.is_none() || name == self.text || without_parameters(name) == self.text || is_instance()
    }

    /// A symbol's name is one that the glob describes.
    pub(super) fn describes_symbol(&self, symbol: &Symbol<'_>) -> bool {
        let name = symbol.name;
        let may_be_raw = !is_mangled(name) || is_mangled(self.text);
        may_be_raw
            && self.may_be(name)
            && (matches_glob(self.text, name) || matches_glob(self.text, without_clone(name)))
            || symbol.demangled().is_some_and(|demangled| self.describes_demangled(&demangled))
    }

    /// A demangled name is one that the glob describes: as [`Wanted::is_demangled`].
    pub(super) fn describes_demangled(&self, name: &str) -> bool {
        self.may_be(name)
            && (matches_glob(self.text, name)
                || matches_glob(self.text, without_parameters(name))
                || matches_glob(self.text, &bare_path(name)))
    }
}

/// A symbol's name.
#[derive(Clone, Copy)]
pub(super) struct Symbol<'a> {
    /// Mangled, without its version.
    pub(super) name: &'a str,
    pub(super) version: Option<&'a str>,
    /// The demangled name, if it is known already.
    pub(super) demangled: Option<&'a str>,
}

impl<'a> Symbol<'a> {
    /// `None` where the name is not mangled.
    fn demangled(&self) -> Option<Cow<'a, str>> {
        let demangled = || self.demangled.map_or_else(|| demangle(self.name), Cow::Borrowed);
        is_mangled(self.name).then(demangled).filter(|demangled| demangled != self.name)
    }
}

fn is_mangled(name: &str) -> bool {
    name.starts_with("_Z") || name.starts_with("_R")
}

/// What mangling leaves as it is: the last part of a name, `f` of `ns::f<int>(long)`. Not an operator, closure or
/// destructor, nor a constructor: that of `std::string` is mangled as `SsC1`.
fn last_part(text: &str) -> Option<String> {
    let path = bare_path(text);
    let mut parts = path.rsplit("::");
    let last = parts.next().filter(|last| Some(*last) != parts.next())?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    (!last.is_empty() && last.chars().all(is_plain)).then(|| last.to_owned())
}

/// `f` of `f.constprop.0`, `f.isra.0.cold`, `f.avx2`, and of the nested function `f.0`.
pub(super) fn without_clone(name: &str) -> &str {
    let mut rest = name;
    while let Some((before, last)) = rest.rsplit_once('.').filter(|(before, _)| !before.is_empty()) {
        let is_number = !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit());
        let is_architecture = ARCHITECTURES.iter().any(|word| last.starts_with(word));
        if !(is_number || is_architecture || CLONES.contains(&last)) {
            break;
        }
        rest = before;
    }
    rest
}

/// `f` of `f.cold`, which is a part of it; `f.isra.0` of `f.isra.0.cold`.
fn without_part(name: &str) -> &str {
    let unnumbered = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let unnumbered = unnumbered.strip_suffix('.').filter(|_| unnumbered.len() < name.len()).unwrap_or(name);
    let part = unnumbered.strip_suffix(".cold").or_else(|| name.strip_suffix(" [clone .cold]"));
    part.filter(|part| !part.is_empty()).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_by_their_parts() {
        for (text, symbol, version, is) in [
            ("main", "main", None, true),
            ("mai", "main", None, false),
            ("memcpy", "memcpy", Some("@@GLIBC_2.14"), true),
            ("memcpy@GLIBC_2.14", "memcpy", Some("@@GLIBC_2.14"), true),
            ("memcpy@@GLIBC_2.14", "memcpy", Some("@@GLIBC_2.14"), true),
            ("memcpy@GLIBC_2.2.5", "memcpy", Some("@@GLIBC_2.14"), false),
            ("f", "f.constprop.0", None, true),
            ("f", "f.isra.0.cold", None, true),
            ("f.part.0", "f.part.0", None, true),
            ("f.part.0", "f.part.1", None, false),
            ("f.cold", "f", None, true),
            ("f.isra.0.cold", "f.isra.0", None, true),
            ("f.cold.3", "f", None, true),
            ("main", "main.main", None, false),
            ("main", "main.func1", None, false),
            ("f", "f.avx2.0", None, true),
            ("ns::f", "_ZN2ns1fEi", None, true),
            ("ns::f(int)", "_ZN2ns1fEi", None, true),
            ("ns::f(long)", "_ZN2ns1fEi", None, false),
            ("f", "_ZN2ns1fEi", None, false),
            ("_ZN2ns1fEi", "_ZN2ns1fEi", None, true),
            ("ns::f", "_ZN2ns1fEi.isra.0", None, true),
            ("ns::f(int)", "_ZN2ns1fEi.isra.0", None, true),
            ("A::A", "_ZN1AC4IiEEPKcT_", None, true),
            ("A::A<int>", "_ZN1AC4IiEEPKcT_", None, true),
            ("step", "_ZN12_GLOBAL__N_14stepEd", None, true),
            ("core::fmt::Write::write_fmt", "_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE", None, true),
            ("g::sum::<f32>", "_ZN1g3sum17h31f6a829116dbe65E", None, true),
            ("std::basic_string::basic_string", "_ZNSsC1Ev", None, true),
            ("std::string::append", "_ZNSs6appendEPKc", None, true),
            ("std::ostream::operator<<", "_ZNSolsEl", None, true),
            ("g::main::{closure#1}", "_ZN1g4main28_$u7b$$u7b$closure$u7d$$u7d$17h0123456789abcdefE", None, true),
            ("main::{lambda(int)#1}::operator()", "_ZZ4mainENKUliE_clEi", None, true),
            ("std::strstream::~strstream", "_ZNSt9strstreamD1Ev", None, true),
            ("std::strstream::~strstream", "_ZThn16_NSt9strstreamD1Ev", None, false),
        ] {
            let name = Symbol { name: symbol, version, demangled: None };
            assert_eq!(Wanted::new(text).is_symbol(&name), is, "{text} {symbol}");
        }
    }

    #[test]
    fn globs_describe_whole_names() {
        for (text, symbol, is) in [
            ("mem*", "memcpy", true),
            ("em*", "memcpy", false),
            ("ns::*", "_ZN2ns1fEi", true),
            ("*f", "_ZN2ns1fEi", true),
            ("n?::f(*)", "_ZN2ns1fEi", true),
            ("_*", "_ZN2ns1fEi", false),
            ("_ZN2ns*", "_ZN2ns1fEi", true),
            ("*", "f.constprop.0", true),
            ("?", "f.constprop.0", true),
        ] {
            let name = Symbol { name: symbol, version: None, demangled: None };
            assert_eq!(Wanted::new(text).describes_symbol(&name), is, "{text} {symbol}");
        }
    }
}
