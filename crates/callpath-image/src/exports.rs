//! The procedures that a module offers to others, by name.

use callpath_format::address::LinkAddr;
use rustc_hash::FxHashMap;

use crate::elf::Image;
use crate::symbol_table::{SymbolTable, procedure_symbols_of};

/// A procedure that other modules can name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Export {
    /// Where it begins.
    pub start: LinkAddr,
    /// It is called once, when it is bound, and chooses which other procedure it stands for.
    pub chooses: bool,
}

/// What a module exports: for each name, without its version, all that have it.
#[derive(Default, Debug)]
pub struct Exports {
    by_name: FxHashMap<String, Vec<Export>>,
}

impl Exports {
    /// Reads the dynamic symbols.
    pub fn of(image: &Image) -> Exports {
        let mut exports = Exports::default();
        let Some(table) = SymbolTable::dynamic(image) else { return exports };
        let symbols = procedure_symbols_of(image, &table, &image.executable_ranges());
        for symbol in symbols.into_iter().filter(|symbol| symbol.is_global) {
            let export = Export { start: symbol.start, chooses: symbol.chooses };
            exports.by_name.entry(symbol.name.into_owned()).or_default().push(export);
        }
        exports
    }

    /// The procedures of this name.
    pub fn named(&self, name: &str) -> &[Export] {
        self.by_name.get(name).map_or(&[], Vec::as_slice)
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
