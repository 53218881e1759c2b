//! The dynamic symbols of an object: what it offers, what it needs, in which versions, and what it looks up by name.

use std::fmt;

use anyhow::Context;
use object::read::elf::{ElfFile64, Rela, SectionHeader, Sym};
use object::{Endianness, elf};

/// A symbol that another object must define.
#[derive(Debug, PartialEq, Eq)]
pub struct Needed {
    /// Its name.
    pub name: String,
    /// `GLIBC_2.34`, for example; `None`: the default one of whoever defines it.
    pub version: Option<String>,
    /// Weak: the object is loaded without it.
    pub may_be_missing: bool,
}

impl Needed {
    /// The release of glibc that the version belongs to.
    pub fn glibc(&self) -> Option<(u32, u32)> {
        let mut numbers = self.version.as_ref()?.strip_prefix("GLIBC_")?.split('.').map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    }
}

impl fmt::Display for Needed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = self.version.as_ref().map_or("no version", |version| version);
        write!(f, "{} ({version}{})", self.name, if self.may_be_missing { ", may be missing" } else { "" })
    }
}

/// What it offers, and what it needs, by name.
pub fn dynamic(file: &ElfFile64<'_, Endianness>, bytes: &[u8]) -> anyhow::Result<(Vec<String>, Vec<Needed>)> {
    let endian = file.endian();
    let table = file.elf_dynamic_symbol_table();
    let versions = file.elf_section_table().versions(endian, bytes)?;
    let (mut exports, mut needed) = (Vec::new(), Vec::new());
    for (index, symbol) in table.enumerate().filter(|(index, _)| index.0 != 0) {
        let name = String::from_utf8_lossy(symbol.name(endian, table.strings())?).into_owned();
        if !symbol.is_undefined(endian) {
            exports.push(name);
            continue;
        }
        let version = match &versions {
            Some(versions) => versions.version(versions.version_index(endian, index).index())?,
            None => None,
        };
        needed.push(Needed {
            name,
            version: version.map(|version| String::from_utf8_lossy(version.name()).into_owned()),
            may_be_missing: symbol.st_bind() == elf::STB_WEAK,
        });
    }
    exports.sort();
    needed.sort_by(|a, b| a.name.cmp(&b.name));
    Ok((exports, needed))
}

/// The names in the section of definitions that it looks up itself: each may be missing.
pub fn looked_up(file: &ElfFile64<'_, Endianness>, bytes: &[u8]) -> anyhow::Result<Vec<String>> {
    let endian = file.endian();
    let sections = file.elf_section_table();
    let (_, section) =
        sections.section_by_name(endian, b"callpath_reals").context("it has no section callpath_reals")?;
    let range = section.sh_addr(endian)..section.sh_addr(endian) + section.sh_size(endian);
    let mut names = Vec::new();
    for header in sections.iter() {
        let Some((relocations, _)) = header.rela(endian, bytes)? else { continue };
        for relocation in relocations.iter().filter(|relocation| range.contains(&relocation.r_offset.get(endian))) {
            let at = relocation.r_addend(endian) as u64;
            let holder = sections.iter().find(|section| {
                let start = section.sh_addr(endian);
                start != 0 && (start..start + section.sh_size(endian)).contains(&at)
            });
            let holder = holder.with_context(|| format!("no section holds the name at {at:#x}"))?;
            let data = holder.data(endian, bytes)?;
            let name = data.get((at - holder.sh_addr(endian)) as usize..).unwrap_or_default();
            let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
            names.push(String::from_utf8_lossy(name).into_owned());
        }
    }
    names.sort();
    names.dedup();
    Ok(names)
}
