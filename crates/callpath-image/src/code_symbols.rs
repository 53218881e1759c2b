//! All symbols that name a module's code, aliases too, with what tells symbols of one name apart: the version, and the
//! source file of the unit. Which of several names of an address people use is said elsewhere ([`crate::symbols`]).

use std::ops::Range;

use callpath_format::address::LinkAddr;

use crate::elf::Image;
use crate::symbol_table::{SymbolTable, go_symbols, has_full_table, numbered_procedure_symbols_of};
use crate::versions::Versions;

/// A symbol that names code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CodeSymbol {
    /// Where the code begins.
    pub start: LinkAddr,
    /// Its length in bytes, 0 where the symbol does not say it.
    pub len_bytes: u64,
    /// The linker's name, still mangled, without its version.
    pub name: String,
    /// Its version, with the signs before it: `@@GLIBC_2.14`, `@GLIBC_2.2.5` where the name alone means another symbol.
    pub version: Option<String>,
    /// The source file of its unit, as the compiler names it, without directories; only local symbols have one.
    pub file: Option<String>,
    /// Other modules can name it.
    pub is_exported: bool,
    /// Its code chooses at load time which procedure it stands for (`STT_GNU_IFUNC`).
    pub chooses: bool,
}

/// The symbols that name a module's code.
pub struct CodeSymbols {
    /// By ascending start.
    symbols: Vec<CodeSymbol>,
    is_complete: bool,
}

impl CodeSymbols {
    /// Reads the symbols of `image` and of its separate debug file, which must be of the same build.
    pub fn of(image: &Image, debug_file: Option<&Image>) -> CodeSymbols {
        let executable = image.executable_ranges();
        let images = || [Some(image), debug_file].into_iter().flatten();
        let mut symbols = Vec::new();
        for image in images() {
            symbols.extend(full(image, &executable));
            symbols.extend(dynamic(image, &executable));
            symbols.extend(of_go(image, &executable));
        }
        symbols.sort_by(|a, b| a.start.cmp(&b.start).then_with(|| a.name.cmp(&b.name)));
        // What both tables have is one symbol.
        symbols.dedup_by(|again, symbol| {
            let is_same = again.start == symbol.start
                && again.name == symbol.name
                && (again.version.is_none() || symbol.version.is_none() || again.version == symbol.version);
            if is_same {
                symbol.len_bytes = symbol.len_bytes.max(again.len_bytes);
                symbol.version = symbol.version.take().or_else(|| again.version.take());
                symbol.file = symbol.file.take().or_else(|| again.file.take());
                symbol.is_exported |= again.is_exported;
                symbol.chooses |= again.chooses;
            }
            is_same
        });
        CodeSymbols { symbols, is_complete: images().any(has_full_table) }
    }

    /// All of them, by ascending start; those of one address by name.
    pub fn all(&self) -> &[CodeSymbol] {
        &self.symbols
    }

    /// Those that begin at `start`.
    pub fn at(&self, start: LinkAddr) -> &[CodeSymbol] {
        let first = self.symbols.partition_point(|symbol| symbol.start < start);
        let rest = self.symbols.get(first..).unwrap_or_default();
        rest.get(..rest.partition_point(|symbol| symbol.start == start)).unwrap_or_default()
    }

    /// There is a full symbol table (`.symtab`), not just the names that other modules need.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }
}

fn full(image: &Image, executable: &[Range<LinkAddr>]) -> Vec<CodeSymbol> {
    let Some(table) = SymbolTable::full(image) else { return Vec::new() };
    let files = table.files();
    let file = |index: usize| {
        let (_, name) = files.get(files.partition_point(|(from, _)| *from < index).checked_sub(1)?)?;
        // Units of link-time optimization, and rustc's, are called after files of the compiler.
        let is_source = |name: &str| {
            let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
            !matches!(extension, "" | "o") && !extension.bytes().all(|byte| byte.is_ascii_digit())
        };
        name.as_deref().filter(|name| is_source(name)).map(str::to_owned)
    };
    let symbols = numbered_procedure_symbols_of(image, &table, executable);
    let read = symbols.into_iter().map(|(index, symbol)| CodeSymbol {
        start: symbol.start,
        len_bytes: symbol.len,
        file: if symbol.is_global { None } else { file(index) },
        name: symbol.name.into_owned(),
        version: None,
        is_exported: false,
        chooses: symbol.chooses,
    });
    read.collect()
}

fn of_go(image: &Image, executable: &[Range<LinkAddr>]) -> impl Iterator<Item = CodeSymbol> {
    go_symbols(image, executable).into_iter().map(|symbol| CodeSymbol {
        start: symbol.start,
        len_bytes: symbol.len,
        name: symbol.name.into_owned(),
        version: None,
        file: None,
        is_exported: false,
        chooses: false,
    })
}

fn dynamic(image: &Image, executable: &[Range<LinkAddr>]) -> Vec<CodeSymbol> {
    let Some(table) = SymbolTable::dynamic(image) else { return Vec::new() };
    let versions = Versions::of(image);
    let symbols = numbered_procedure_symbols_of(image, &table, executable);
    let read = symbols.into_iter().map(|(index, symbol)| {
        let version = versions.as_ref().and_then(|versions| versions.at(index));
        let sign = |is_default| if is_default { "@@" } else { "@" };
        CodeSymbol {
            start: symbol.start,
            len_bytes: symbol.len,
            name: symbol.name.into_owned(),
            version: version.map(|version| format!("{}{}", sign(version.is_default), version.name)),
            file: None,
            is_exported: symbol.is_global,
            chooses: symbol.chooses,
        }
    });
    read.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::process::Command;

    /// What readelf says of the C library's own `memcpy`s.
    #[test]
    fn versions_are_those_that_readelf_prints() {
        let libc = Path::new("/lib/x86_64-linux-gnu/libc.so.6");
        let output = Command::new("readelf").args(["--dyn-syms", "-W"]).arg(libc).output().unwrap();
        let listing = String::from_utf8(output.stdout).unwrap();
        let mut expected: Vec<(u64, &str)> = listing
            .lines()
            .filter_map(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                let is_code = matches!(words.get(3), Some(&("FUNC" | "IFUNC"))) && words.get(6) != Some(&"UND");
                is_code.then(|| (u64::from_str_radix(words[1], 16).unwrap(), words[7]))
            })
            .collect();
        let symbols = CodeSymbols::of(&Image::read(libc).unwrap(), None);
        let mut found: Vec<(u64, String)> = symbols
            .all()
            .iter()
            .map(|symbol| (symbol.start.0, symbol.name.clone() + symbol.version.as_deref().unwrap_or_default()))
            .collect();
        expected.sort_unstable();
        found.sort_unstable();
        assert!(expected.iter().any(|(_, name)| *name == "memcpy@GLIBC_2.2.5"), "{listing}");
        assert!(found.iter().map(|(start, name)| (*start, &**name)).eq(expected.iter().copied()));
    }

    #[test]
    fn local_symbols_have_the_file_of_their_unit() {
        let dir = tempfile::tempdir().unwrap();
        let unit = |name: &str, other: &str| {
            let path = dir.path().join(name);
            let text = format!(
                "__attribute__((noinline)) static int hidden(int a) {{ return a * 3 + __COUNTER__; }}\n\
                 int {other}(int a) {{ return hidden(a) + 1; }}\n"
            );
            std::fs::write(&path, text).unwrap();
            path
        };
        let units = [unit("one.c", "shown_one"), unit("two.c", "shown_two")];
        let library = dir.path().join("library.so");
        let status = Command::new("gcc").args(["-O1", "-shared", "-fPIC", "-o"]).arg(&library).args(&units).status();
        assert!(status.unwrap().success());
        let symbols = CodeSymbols::of(&Image::read(&library).unwrap(), None);
        let of = |name: &str| -> Vec<&CodeSymbol> { symbols.all().iter().filter(|s| s.name == name).collect() };
        let files: Vec<_> = of("hidden").iter().map(|symbol| symbol.file.as_deref()).collect();
        assert_eq!(files, [Some("one.c"), Some("two.c")]);
        assert!(symbols.is_complete());
        let shown = of("shown_one");
        assert!(matches!(shown[..], [CodeSymbol { file: None, is_exported: true, .. }]), "{shown:?}");
        assert_eq!(symbols.at(shown[0].start), [shown[0].clone()]);
        assert_eq!(symbols.at(LinkAddr(0)), []);
    }
}
