//! A scope as a record of a fixed length.
//!
//! ```text
//! 0   kind           u32, and in bits 8 to 10 whether line, address and call site are known
//! 4   name           u32: number of a string
//! 8   module         u32: number of a string plus 1, or 0
//! 12  file           u32: the same
//! 16  line           u32
//! 20  column         u32: 0 where it is not known
//! 24  call's file    u32: number of a string
//! 28  call's line    u32
//! 32  address        u64
//! 40  discriminator  u64
//! ```

use std::num::NonZeroU16;

use super::layout::{u32_at, u64_at};
use crate::{CallSite, Name, Scope, ScopeKind};

pub(crate) const BYTES: usize = 48;

const LINE: u32 = 1 << 8;
const ADDRESS: u32 = 1 << 9;
const CALL_SITE: u32 = 1 << 10;

pub(crate) fn bytes(scope: &Scope) -> [u8; BYTES] {
    let flag = |is_known: bool, flag: u32| if is_known { flag } else { 0 };
    let flags = flag(scope.line.is_some(), LINE)
        | flag(scope.address.is_some(), ADDRESS)
        | flag(scope.call_site.is_some(), CALL_SITE);
    let number = |name: Option<Name>| name.map_or(0, |name| name.index() as u32 + 1);
    let words = [
        u32::from(scope.kind.number()) | flags,
        scope.name.index() as u32,
        number(scope.module),
        number(scope.file),
        scope.line.unwrap_or(0),
        scope.column.map_or(0, |column| u32::from(column.get())),
        scope.call_site.map_or(0, |site| site.file.index() as u32),
        scope.call_site.map_or(0, |site| site.line),
    ];
    let mut bytes = [0; BYTES];
    for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes[32..40].copy_from_slice(&scope.address.unwrap_or(0).to_le_bytes());
    bytes[40..].copy_from_slice(&scope.discriminator.to_le_bytes());
    bytes
}

/// The scope of a record; `None`: it is nonsense. `strings`: how many there are.
pub(crate) fn read(bytes: &[u8], strings: usize) -> Option<Scope> {
    let word = |at: usize| u32_at(bytes, at);
    let flags = word(0) & !0xff;
    if flags & !(LINE | ADDRESS | CALL_SITE) != 0 || bytes.len() != BYTES {
        return None;
    }
    let name = |number: u32| Some(number as usize).filter(|number| *number < strings).and_then(Name::at);
    let optional = |number: u32| number.checked_sub(1).map(|number| name(number).ok_or(())).transpose().ok();
    let known = |flag: u32| flags & flag != 0;
    let column = u16::try_from(word(5)).ok()?;
    Some(Scope {
        kind: ScopeKind::from_number(word(0) & 0xff)?,
        name: name(word(1))?,
        module: optional(word(2))?,
        file: optional(word(3))?,
        line: known(LINE).then_some(word(4)),
        column: NonZeroU16::new(column),
        address: known(ADDRESS).then_some(u64_at(bytes, 4)),
        call_site: match known(CALL_SITE) {
            true => Some(CallSite { file: name(word(6))?, line: word(7) }),
            false => None,
        },
        discriminator: u64_at(bytes, 5),
    })
}
