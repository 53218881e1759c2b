//! The procedures that a module offers to others, by name.

use std::ops::Range;

use callpath_format::address::LinkAddr;
use xxhash_rust::xxh3::xxh3_64;

use crate::elf::Image;
use crate::symbol_table::{Symbol, SymbolTable, procedure_symbols_of};

/// A procedure that other modules can name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Export {
    /// Where it begins.
    pub start: LinkAddr,
    /// It is called once, when it is bound, and chooses which other procedure it stands for.
    pub chooses: bool,
}

/// Whether a module needs a symbol of one of these names from another module.
pub fn imports_any(image: &Image, names: &[&str]) -> bool {
    SymbolTable::dynamic(image).is_some_and(|table| table.undefined_names().any(|name| names.contains(&&*name)))
}

/// What a module exports: for each name, without its version, all that have it.
#[derive(Default, Debug)]
pub struct Exports {
    /// Each with the hash of its name and where that is in `names`, in order of hashes and names.
    index: Vec<(u64, Range<usize>)>,
    /// In the same order.
    exports: Vec<Export>,
    /// All names, one behind the other.
    names: String,
}

impl Exports {
    /// Reads the dynamic symbols.
    pub fn of(image: &Image) -> Exports {
        let mut exports = Exports::default();
        let Some(table) = SymbolTable::dynamic(image) else { return exports };
        let symbols = procedure_symbols_of(image, &table, &image.executable_ranges());
        let mut found: Vec<(u64, Symbol<'_>)> = symbols
            .into_iter()
            .filter(|symbol| symbol.is_global)
            .map(|symbol| (xxh3_64(symbol.name.as_bytes()), symbol))
            .collect();
        // Stable: those of one name stay in the table's order.
        found.sort_by(|(one, a), (other, b)| one.cmp(other).then_with(|| a.name.cmp(&b.name)));
        for (hash, symbol) in found {
            let begin = exports.names.len();
            exports.names.push_str(&symbol.name);
            exports.index.push((hash, begin..exports.names.len()));
            exports.exports.push(Export { start: symbol.start, chooses: symbol.chooses });
        }
        exports
    }

    /// All, with their names.
    pub fn names(&self) -> impl Iterator<Item = (&str, Export)> {
        let name = |(_, place): &(u64, Range<usize>)| self.names.get(place.clone()).unwrap_or_default();
        self.index.iter().map(name).zip(self.exports.iter().copied())
    }

    /// The procedures of this name.
    pub fn named(&self, name: &str) -> &[Export] {
        let hash = xxh3_64(name.as_bytes());
        let key = |(hash, place): &(u64, Range<usize>)| (*hash, self.names.get(place.clone()).unwrap_or_default());
        let first = self.index.partition_point(|entry| key(entry) < (hash, name));
        let count = self.index.iter().skip(first).take_while(|entry| key(entry) == (hash, name)).count();
        self.exports.get(first..first + count).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_c_librarys() {
        let libc = Image::read(Path::new("/lib/x86_64-linux-gnu/libc.so.6")).unwrap();
        let exports = Exports::of(&libc);
        assert!(matches!(exports.named("qsort"), [Export { chooses: false, .. }]));
        // Of two versions, the newer of which chooses.
        assert_eq!(exports.named("memcpy").iter().filter(|export| export.chooses).count(), 1);
        assert_eq!(exports.named("memcpy").len(), 2);
        assert_eq!(exports.named("no_such_procedure"), []);
    }
}
