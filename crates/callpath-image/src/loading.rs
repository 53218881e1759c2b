//! What the dynamic loader puts where: relocated pointers, symbols' addresses, initialisers, exported procedures.

use std::ops::Range;

use callpath_format::address::LinkAddr;

use crate::abi;
use crate::bytes::Bytes;
use crate::elf::Image;
use crate::parse_counts::ImagePart;
use crate::symbol_table::{SymbolTable, go_symbols, procedure_symbols, procedure_symbols_of};

const RELOCATION_LEN: usize = 24;
const R_X86_64_64: u32 = 1;
const R_X86_64_RELATIVE: u32 = 8;
const DT_PLTRELSZ: u64 = 2;
const DT_RELA: u64 = 7;
const DT_RELASZ: u64 = 8;
const DT_INIT: u64 = 12;
const DT_FINI: u64 = 13;
const DT_JMPREL: u64 = 23;
const DT_INIT_ARRAY: u64 = 25;
const DT_FINI_ARRAY: u64 = 26;
const DT_INIT_ARRAYSZ: u64 = 27;
const DT_FINI_ARRAYSZ: u64 = 28;
const DT_RELRSZ: u64 = 35;
const DT_RELR: u64 = 36;

/// What the loader does to an image's words.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Loading {
    /// `(slot, address)`: the slot will hold the run-time address of a place in this image. By slot.
    pub pointers: Vec<(LinkAddr, LinkAddr)>,
    /// `(slot, name)`: the slot will hold the address of the symbol of that name, without its version.
    pub symbols: Vec<(LinkAddr, String)>,
    /// Symbols of other images whose addresses this one's own data hold, or its code has for constants (the addresses
    /// of stubs in the linkage table that stand for them), without their versions.
    pub taken: Vec<String>,
    /// Procedures that the loader calls: at the start, at the end, or to choose an implementation.
    pub called: Vec<LinkAddr>,
    /// Of those, the ones that choose an implementation (`R_X86_64_IRELATIVE`), behind the slot that will hold its address. In the order
    /// of the file.
    pub resolvers: Vec<(LinkAddr, LinkAddr)>,
}

impl Loading {
    /// Reads the relocations and arrays of `image`: through the dynamic segment, and where there is none (a static
    /// program), through the sections that the program itself goes through. No more of them than the file has bytes.
    pub(crate) fn of(image: &Image) -> Loading {
        image.count_parse(ImagePart::Relocations);
        let mut loading = Loading::default();
        let value = |wanted| image.dynamic().find(|&(tag, _)| tag == wanted).map(|(_, value)| value);
        let table = |start, len| {
            let (start, len) = (value(start)?, usize::try_from(value(len)?).ok()?);
            Some((LinkAddr(start), image.bytes_at(LinkAddr(start), len)?))
        };
        let section = |name| image.plain_section(name);
        let symbols = SymbolTable::dynamic(image);
        let relocations = [
            table(DT_RELA, DT_RELASZ).or_else(|| section(".rela.dyn")),
            table(DT_JMPREL, DT_PLTRELSZ).or_else(|| section(".rela.plt")),
        ];
        for (_, table) in relocations.into_iter().flatten() {
            loading.relocations(table, symbols.as_ref());
        }
        loading.taken.extend(symbols.iter().flat_map(SymbolTable::with_canonical_stubs));
        if let Some((_, table)) = table(DT_RELR, DT_RELRSZ).or_else(|| section(".relr.dyn")) {
            loading.packed(image, table);
        }
        // Linkers write runs that are in order.
        loading.pointers.sort();
        loading.called.extend([DT_INIT, DT_FINI].into_iter().filter_map(value).map(LinkAddr));
        for name in [".init", ".fini"] {
            loading.called.extend(section(name).map(|(start, _)| start));
        }
        let arrays = [
            table(DT_INIT_ARRAY, DT_INIT_ARRAYSZ).or_else(|| section(".init_array")),
            table(DT_FINI_ARRAY, DT_FINI_ARRAYSZ).or_else(|| section(".fini_array")),
        ];
        for (start, array) in arrays.into_iter().flatten() {
            let end = LinkAddr(start.0.saturating_add(array.len() as u64));
            let relocated = loading.pointers_in(start..end).map(|(_, to)| *to).collect::<Vec<_>>();
            if relocated.is_empty() {
                loading.called.extend(array.chunks_exact(8).filter_map(|word| word.u64_at(0)).map(LinkAddr));
            }
            loading.called.extend(relocated);
        }
        loading
    }

    fn pointers_in(&self, slots: Range<LinkAddr>) -> impl Iterator<Item = &(LinkAddr, LinkAddr)> {
        let first = self.pointers.partition_point(|(slot, _)| *slot < slots.start);
        self.pointers.iter().skip(first).take_while(move |(slot, _)| *slot < slots.end)
    }

    fn relocations(&mut self, table: &[u8], symbols: Option<&SymbolTable<'_>>) {
        for entry in table.chunks_exact(RELOCATION_LEN) {
            let (Some(slot), Some(info), Some(addend)) = (entry.u64_at(0), entry.u64_at(8), entry.u64_at(16)) else {
                return;
            };
            let symbol = (info >> 32) as u32;
            match info as u32 {
                R_X86_64_RELATIVE => self.pointers.push((LinkAddr(slot), LinkAddr(addend))),
                abi::R_X86_64_IRELATIVE => {
                    self.called.push(LinkAddr(addend));
                    self.resolvers.push((LinkAddr(slot), LinkAddr(addend)));
                }
                abi::R_X86_64_GLOB_DAT | abi::R_X86_64_JUMP_SLOT => {
                    let name = symbols.and_then(|symbols| symbols.name(symbol));
                    self.symbols.extend(name.map(|name| (LinkAddr(slot), name.into_owned())));
                }
                R_X86_64_64 => match symbols.and_then(|symbols| symbols.value(symbol)) {
                    Some(value) => self.pointers.push((LinkAddr(slot), LinkAddr(value.wrapping_add(addend)))),
                    None => self.taken.extend(symbols.and_then(|s| Some(s.name(symbol)?.into_owned()))),
                },
                _ => {}
            }
        }
    }

    /// `DT_RELR`: an address, then bitmaps of the words behind it; the words hold link-time addresses.
    fn packed(&mut self, image: &Image, table: &[u8]) {
        let mut slot = 0u64;
        let mut add = |slot: u64| {
            if let Some(to) = image.bytes_at(LinkAddr(slot), 8).and_then(|word| word.u64_at(0)) {
                self.pointers.push((LinkAddr(slot), LinkAddr(to)));
            }
        };
        for entry in table.chunks_exact(8).filter_map(|entry| entry.u64_at(0)) {
            if entry & 1 == 0 {
                add(entry);
                slot = entry.wrapping_add(8);
            } else {
                (1..64).filter(|bit| entry >> bit & 1 != 0).for_each(|bit| add(slot.wrapping_add(8 * (bit - 1))));
                slot = slot.wrapping_add(63 * 8);
            }
        }
    }
}

/// A symbol whose type is that of a procedure; labels have none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcedureSymbol<'a> {
    /// The linker's name without its version.
    pub name: &'a str,
    /// The code, empty where the symbol has no length.
    pub code: Range<LinkAddr>,
    /// Of the dynamic linker's table, which is left in a stripped module; else of `.symtab`.
    pub is_dynamic: bool,
}

/// Gives each symbol whose type is that of a procedure to `take`: those of `.symtab`, then those of the dynamic
/// linker's table. Some come twice, of each table.
pub fn each_procedure_symbol(image: &Image, mut take: impl FnMut(ProcedureSymbol<'_>)) {
    image.count_parse(ImagePart::ProcedureSymbols);
    let executable = image.executable_ranges();
    let tables = [(SymbolTable::full(image), false), (SymbolTable::dynamic(image), true)];
    for (table, is_dynamic) in tables {
        let symbols = table.map_or(Vec::new(), |table| procedure_symbols_of(image, &table, &executable));
        for symbol in symbols.iter().filter(|symbol| symbol.is_typed) {
            let code = symbol.start..LinkAddr(symbol.start.0.saturating_add(symbol.len));
            take(ProcedureSymbol { name: &symbol.name, code, is_dynamic });
        }
    }
    for symbol in go_symbols(image, &executable) {
        let code = symbol.start..LinkAddr(symbol.start.0.saturating_add(symbol.len));
        take(ProcedureSymbol { name: &symbol.name, code, is_dynamic: false });
    }
}

/// The procedures that an unstripped image's symbols name, and whether each is a part of one ([`is_part`]): of the
/// image and of its debug file. Each start once, by ascending start.
pub fn named_starts(image: &Image, debug_file: Option<&Image>) -> Vec<(LinkAddr, bool)> {
    let executable = image.executable_ranges();
    let images = [Some(image), debug_file].into_iter().flatten();
    let symbols = images.flat_map(|image| procedure_symbols(image, &executable));
    let typed = symbols.filter(|symbol| symbol.is_typed);
    let mut starts: Vec<_> = typed.map(|symbol| (symbol.start, is_part(&symbol.name))).collect();
    starts.sort_unstable();
    starts.dedup_by_key(|start| start.0);
    starts
}

/// `f.cold`, `f.cold.3`, `f.isra.0.cold`: a part of a procedure, not one of its own.
pub fn is_part(name: &str) -> bool {
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit());
    name.strip_suffix('.').unwrap_or(name).ends_with(".cold")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cold_parts_are_no_procedures() {
        for name in ["main.cold", "f.isra.0.cold", "f.cold.12", "_ZN1a1bEv.cold"] {
            assert!(is_part(name), "{name}");
        }
        for name in ["main", "cold", "f.part.0", "f.constprop.0", "a.cold_start", "f1"] {
            assert!(!is_part(name), "{name}");
        }
    }
}
