//! `.symtab` and `.dynsym`: the symbols that can name code.

use std::borrow::Cow;
use std::ops::Range;

use callpath_format::address::LinkAddr;

use crate::abi;
use crate::bytes::{Bytes, cstr_at};
use crate::elf::Image;
use crate::go_table::GoTable;

const SYMBOL_LEN: usize = 24;

/// Mangled names of heavy templates have 10,000 bytes; nothing sensible has more than this.
const NAME_LEN_LIMIT: usize = 1 << 16;

/// A symbol that names code.
#[derive(Clone, Debug)]
pub(crate) struct Symbol<'a> {
    pub(crate) start: LinkAddr,
    /// Bytes, 0 if not known.
    pub(crate) len: u64,
    /// Linker's name without its version.
    pub(crate) name: Cow<'a, str>,
    /// Seen by other modules, or by other units of this one.
    pub(crate) is_global: bool,
    /// Said to be a procedure, not just a label.
    pub(crate) is_typed: bool,
    /// It is a procedure that chooses at load time which other one it stands for (`STT_GNU_IFUNC`).
    pub(crate) chooses: bool,
}

impl Symbol<'_> {
    /// Which of several names a person would use, the best first: `puts` rather than `_IO_puts`, `malloc` rather than
    /// `__libc_malloc`, `main` rather than a label. Weak is as good as global: glibc's plain names are the weak ones.
    pub(crate) fn rank(&self) -> impl Ord + use<'_> {
        let is_mangled = self.name.starts_with("_Z") || self.name.starts_with("_R");
        let underscores = if is_mangled { 0 } else { self.name.bytes().take_while(|&byte| byte == b'_').count() };
        (!self.is_typed, !self.is_global, underscores, self.name.len(), self.name.as_ref())
    }
}

/// One symbol table with its strings, as the bytes say.
pub(crate) struct SymbolTable<'a> {
    symbols: Cow<'a, [u8]>,
    strings: Cow<'a, [u8]>,
}

impl<'a> SymbolTable<'a> {
    /// The dynamic linker's table: without section headers too.
    pub(crate) fn dynamic(image: &'a Image) -> Option<SymbolTable<'a>> {
        SymbolTable::by_section(image, ".dynsym").or_else(|| SymbolTable::by_dynamic_segment(image))
    }

    /// The full table, `.symtab`, unless the image is stripped.
    pub(crate) fn full(image: &'a Image) -> Option<SymbolTable<'a>> {
        SymbolTable::by_section(image, ".symtab")
    }

    fn by_section(image: &'a Image, name: &str) -> Option<SymbolTable<'a>> {
        let headers = image.section_headers();
        let header = headers.iter().find(|header| header.name == name)?;
        let strings = headers.get(header.link as usize)?;
        Some(SymbolTable { symbols: image.section_data(header)?, strings: image.section_data(strings)? })
    }

    /// The number of symbols stands nowhere there; linkers put the strings right behind them.
    fn by_dynamic_segment(image: &'a Image) -> Option<SymbolTable<'a>> {
        let value = |wanted| image.dynamic().find(|&(tag, _)| tag == wanted).map(|(_, value)| value);
        let (symbols, strings) = (value(abi::DT_SYMTAB)?, value(abi::DT_STRTAB)?);
        let strings_len = usize::try_from(value(abi::DT_STRSZ)?).ok()?;
        let symbols_len = usize::try_from(strings.checked_sub(symbols)?).ok()?;
        Some(SymbolTable {
            symbols: Cow::Borrowed(image.bytes_at(LinkAddr(symbols), symbols_len)?),
            strings: Cow::Borrowed(image.bytes_at(LinkAddr(strings), strings_len)?),
        })
    }

    /// The name of the symbol at `index`, without its version.
    pub(crate) fn name(&self, index: u32) -> Option<Cow<'_, str>> {
        let entry = self.symbols.chunks_exact(SYMBOL_LEN).nth(index as usize)?;
        self.name_at(entry.u32_at(0)?)
    }

    /// Where the symbol at `index` is, if it is in this image.
    pub(crate) fn value(&self, index: u32) -> Option<u64> {
        let entry = self.symbols.chunks_exact(SYMBOL_LEN).nth(index as usize)?;
        (entry.u16_at(6)? != abi::SHN_UNDEF).then_some(entry.u64_at(8)?)
    }

    /// Procedures of other images for whose addresses those of stubs in this one's
    /// linkage table stand (psABI, section 5.2).
    pub(crate) fn with_canonical_stubs(&self) -> impl Iterator<Item = String> {
        self.symbols.chunks_exact(SYMBOL_LEN).filter_map(|entry| {
            let is_one = entry.u16_at(6)? == abi::SHN_UNDEF && entry.u64_at(8)? != 0;
            is_one.then(|| self.name_at(entry.u32_at(0)?)).flatten().map(Cow::into_owned)
        })
    }

    /// The source files of the units that local symbols are of: each with the index from which on, by ascending index.
    /// Without a name where linkers' own symbols begin.
    pub(crate) fn files(&self) -> Vec<(usize, Option<Cow<'a, str>>)> {
        let entries = self.symbols.chunks_exact(SYMBOL_LEN).enumerate();
        let files = entries.filter(|(_, entry)| entry.get(4).is_some_and(|info| info & 0xf == abi::STT_FILE));
        files.map(|(index, entry)| (index, entry.u32_at(0).and_then(|name| self.name_at(name)))).collect()
    }

    /// The names of the symbols that are in this image.
    pub(crate) fn defined_names(&self) -> impl Iterator<Item = Cow<'_, str>> {
        let symbols = self.symbols.chunks_exact(SYMBOL_LEN);
        let defined = symbols.filter(|entry| entry.u16_at(6).is_some_and(|section| section != abi::SHN_UNDEF));
        defined.filter_map(|entry| self.name_at(entry.u32_at(0)?))
    }

    /// The names of the symbols that another image has to have.
    pub(crate) fn undefined_names(&self) -> impl Iterator<Item = Cow<'_, str>> {
        let symbols = self.symbols.chunks_exact(SYMBOL_LEN);
        let undefined = symbols.filter(|entry| entry.u16_at(6) == Some(abi::SHN_UNDEF));
        undefined.filter_map(|entry| self.name_at(entry.u32_at(0)?))
    }

    fn name_at(&self, offset: u32) -> Option<Cow<'a, str>> {
        match &self.strings {
            Cow::Borrowed(strings) => name_in(strings, offset),
            Cow::Owned(strings) => name_in(strings, offset).map(|name| Cow::Owned(name.into_owned())),
        }
    }
}

fn name_in(strings: &[u8], offset: u32) -> Option<Cow<'_, str>> {
    let name = cstr_at(strings, offset.into())?;
    let version = name.iter().skip(1).position(|&byte| byte == b'@').map_or(name.len(), |at| at + 1);
    let name = name.get(..version).filter(|name| !name.is_empty() && name.len() <= NAME_LEN_LIMIT)?;
    Some(String::from_utf8_lossy(name))
}

/// `.symtab` is there: the file was not stripped.
pub(crate) fn has_full_table(image: &Image) -> bool {
    image.section_headers().iter().any(|header| header.name == ".symtab" && header.has_bytes())
}

/// All symbols of `image` that name code in `executable`. In an image that holds debug information only, the sections
/// have no bytes, but their headers are good.
pub(crate) fn procedure_symbols<'a>(image: &'a Image, executable: &[Range<LinkAddr>]) -> Vec<Symbol<'a>> {
    let mut found = Vec::new();
    // .symtab holds all that .dynsym does, where it was not cut down by hand.
    for table in [SymbolTable::full(image), SymbolTable::dynamic(image)].into_iter().flatten() {
        found.extend(procedure_symbols_of(image, &table, executable));
    }
    found.extend(go_symbols(image, executable));
    found
}

/// The procedures that Go's table names, in an image without a full table of symbols.
pub(crate) fn go_symbols<'a>(image: &Image, executable: &[Range<LinkAddr>]) -> Vec<Symbol<'a>> {
    let Some(table) = GoTable::of(image).filter(|_| !has_full_table(image)) else { return Vec::new() };
    let mut name_bytes_left = usize::try_from(image.file_len()).unwrap_or(usize::MAX);
    let mut found = Vec::new();
    for procedure in table.procedures() {
        let Some(range) = executable.iter().find(|range| range.contains(&procedure.code.start)) else { continue };
        let Some(name) = table.name(&procedure) else { continue };
        let Some(left) = name_bytes_left.checked_sub(name.len()) else { break };
        name_bytes_left = left;
        let (start, end) = (procedure.code.start, procedure.code.end.min(range.end));
        let name = Cow::Owned(name.to_owned());
        found.push(Symbol { start, len: end.0 - start.0, name, is_global: true, is_typed: true, chooses: false });
    }
    found
}

/// All symbols of one table that name code in `executable`.
pub(crate) fn procedure_symbols_of<'a>(
    image: &'a Image,
    table: &SymbolTable<'a>,
    executable: &[Range<LinkAddr>],
) -> Vec<Symbol<'a>> {
    numbered_procedure_symbols_of(image, table, executable).into_iter().map(|(_, symbol)| symbol).collect()
}

/// The same, each with its index in the table.
pub(crate) fn numbered_procedure_symbols_of<'a>(
    image: &'a Image,
    table: &SymbolTable<'a>,
    executable: &[Range<LinkAddr>],
) -> Vec<(usize, Symbol<'a>)> {
    // Names beyond this are shared tails: more bytes of names than the file has strings.
    let mut name_bytes_left = table.strings.len().saturating_mul(4);
    let mut found = Vec::new();
    for (index, entry) in table.symbols.chunks_exact(SYMBOL_LEN).enumerate() {
        let Some(symbol) = procedure_symbol(image, table, entry, executable) else { continue };
        let Some(left) = name_bytes_left.checked_sub(symbol.name.len()) else { break };
        name_bytes_left = left;
        found.push((index, symbol));
    }
    found
}

fn procedure_symbol<'a>(
    image: &'a Image,
    table: &SymbolTable<'a>,
    entry: &[u8],
    executable: &[Range<LinkAddr>],
) -> Option<Symbol<'a>> {
    let (info, section) = (*entry.get(4)?, entry.u16_at(6)?);
    let (kind, binding) = (info & 0xf, info >> 4);
    let is_typed = matches!(kind, abi::STT_FUNC | abi::STT_GNU_IFUNC);
    if section == abi::SHN_UNDEF || !(is_typed || kind == abi::STT_NOTYPE) {
        return None;
    }
    let start = LinkAddr(entry.u64_at(8)?);
    let len = entry.u64_at(16)?;
    let range = executable.iter().find(|range| range.contains(&start))?;
    if !is_typed {
        // A label counts if it stands in code, not behind its end as `_etext` does.
        let header = image.section_headers().get(usize::from(section))?;
        let in_section = start.0.checked_sub(header.addr).is_some_and(|offset| offset < header.len);
        if !header.is_executable() || !in_section {
            return None;
        }
    }
    let name = table.name_at(entry.u32_at(0)?)?;
    if !is_typed && name.starts_with(".L") {
        return None;
    }
    let len = len.min(range.end.0 - start.0);
    let is_global = binding != abi::STB_LOCAL;
    Some(Symbol { start, len, name, is_global, is_typed, chooses: kind == abi::STT_GNU_IFUNC })
}
