//! How much an image says of its source: which symbol table, and how much DWARF.

use crate::elf::Image;
use crate::symbol_table::{SymbolTable, has_full_table};

/// The names that an image has of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SymbolLevel {
    /// None.
    None,
    /// Only those that the dynamic linker needs (`.dynsym`).
    Dynamic,
    /// All (`.symtab`).
    Full,
}

/// The DWARF that an image has of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum DwarfLevel {
    /// No lines.
    None,
    /// Procedures, inlined calls and lines, no variables and types: `-g1`, `-gline-tables-only`.
    Lines,
    /// Variables and types, too: `-g`.
    Full,
}

impl Image {
    /// Which symbol table it has.
    pub fn symbol_level(&self) -> SymbolLevel {
        match has_full_table(self) {
            true => SymbolLevel::Full,
            // It names all procedures.
            false if self.go_table().is_some() => SymbolLevel::Full,
            false if SymbolTable::dynamic(self).is_some() => SymbolLevel::Dynamic,
            false => SymbolLevel::None,
        }
    }

    /// How much DWARF it has.
    pub fn dwarf_level(&self) -> DwarfLevel {
        let has_lines = self.section_headers().iter().any(|header| header.name == ".debug_line" && header.has_bytes());
        match self.section(".debug_abbrev") {
            _ if !has_lines => DwarfLevel::None,
            Some(abbreviations) if describes_types(&abbreviations.data) => DwarfLevel::Full,
            _ => DwarfLevel::Lines,
        }
    }
}

/// Whether some abbreviation stands for a parameter of a procedure (DWARF 5, section 7.5.3: tables of (code, tag,
/// children, attributes), each ended by a code of 0).
fn describes_types(mut abbreviations: &[u8]) -> bool {
    const FORMAL_PARAMETER: u64 = 0x05;
    const IMPLICIT_CONST: u64 = 0x21;
    let mut number = || -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..).step_by(7) {
            let (byte, rest) = abbreviations.split_first()?;
            abbreviations = rest;
            value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            if byte & 0x80 == 0 {
                break;
            }
        }
        Some(value)
    };
    let mut any = || -> Option<bool> {
        loop {
            if number()? == 0 {
                continue;
            }
            let tag = number()?;
            // DW_CHILDREN_yes or _no: a byte, and as a number the same.
            number()?;
            loop {
                let (name, form) = (number()?, number()?);
                if form == IMPLICIT_CONST {
                    number()?;
                }
                if (name, form) == (0, 0) {
                    break;
                }
            }
            if tag == FORMAL_PARAMETER {
                return Some(true);
            }
        }
    };
    any().unwrap_or(false)
}

/// The release of the GNU C library, if this is one: `2.36`, from the sentence that it prints when it is run.
pub fn glibc_release(image: &Image) -> Option<String> {
    const SENTENCE: &[u8] = b"GNU C Library ";
    const RELEASE: &[u8] = b" version ";
    let data = image.section(".rodata")?.data;
    let at = find(&data, SENTENCE)?;
    let line = data.get(at..)?.split(|byte| *byte == b'\n').next()?;
    let release = line.get(find(line, RELEASE)? + RELEASE.len()..)?;
    let digits: String =
        release.iter().take_while(|byte| byte.is_ascii_digit() || **byte == b'.').map(|byte| *byte as char).collect();
    let digits = digits.trim_end_matches('.');
    (!digits.is_empty()).then(|| digits.to_owned())
}

fn find(data: &[u8], wanted: &[u8]) -> Option<usize> {
    data.windows(wanted.len()).position(|window| window == wanted)
}
