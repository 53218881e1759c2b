//! The versions of a module's own dynamic symbols (`GLIBC_2.14`), as GNU's linkers write them.

use std::borrow::Cow;

use callpath_format::address::LinkAddr;
use rustc_hash::FxHashMap;

use crate::abi;
use crate::bytes::{Bytes, cstr_at};
use crate::elf::Image;

/// Set in a symbol's entry where it is no default: a name alone does not mean it.
const HIDDEN: u16 = 0x8000;
/// The numbers below are those of symbols without a version.
const FIRST_OF_OWN: u16 = 2;
/// Set in the definition that names the module itself.
const BASE: u16 = 1;
/// No module defines more.
const MOST: usize = 1 << 12;

/// The version of a symbol.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Version {
    pub(crate) name: String,
    /// What the name alone means (`@@`).
    pub(crate) is_default: bool,
}

/// The versions of the symbols of `.dynsym`.
pub(crate) struct Versions<'a> {
    /// Two bytes for each symbol.
    numbers: &'a [u8],
    names: FxHashMap<u16, Cow<'a, str>>,
}

impl<'a> Versions<'a> {
    /// `None` where the module defines none.
    pub(crate) fn of(image: &'a Image) -> Option<Versions<'a>> {
        let value = |wanted| image.dynamic().find(|&(tag, _)| tag == wanted).map(|(_, value)| value);
        let bytes = |tag| image.bytes_from(LinkAddr(value(tag)?));
        let (numbers, definitions, strings) = (bytes(abi::DT_VERSYM)?, bytes(abi::DT_VERDEF)?, bytes(abi::DT_STRTAB)?);
        let mut names = FxHashMap::default();
        let mut at = 0u64;
        for _ in 0..MOST {
            // Elf64_Verdef: version, flags, index, count (u16); hash, distance to its names, to the next one (u32).
            let entry = (definitions.u16_at(at + 2), definitions.u16_at(at + 4), definitions.u32_at(at + 12));
            let ((Some(flags), Some(index), Some(to_name)), Some(next)) = (entry, definitions.u32_at(at + 16)) else {
                break;
            };
            let name = definitions.u32_at(at + u64::from(to_name)).and_then(|name| cstr_at(strings, name.into()));
            if let Some(name) = name.filter(|_| flags & BASE == 0) {
                names.insert(index & !HIDDEN, String::from_utf8_lossy(name));
            }
            if next == 0 {
                break;
            }
            at += u64::from(next);
        }
        Some(Versions { numbers, names })
    }

    /// Of the symbol at `index` of `.dynsym`.
    pub(crate) fn at(&self, index: usize) -> Option<Version> {
        let number = self.numbers.u16_at(index as u64 * 2)?;
        let name = self.names.get(&(number & !HIDDEN)).filter(|_| number & !HIDDEN >= FIRST_OF_OWN)?;
        Some(Version { name: name.clone().into_owned(), is_default: number & HIDDEN == 0 })
    }
}
