//! The few parts of a file that say what it is built with, without reading all of it.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::abi;
use crate::bytes::Bytes;
use crate::error::ImageError;
use crate::headers::Header;
use crate::peek::read_at;

/// No program has more names.
const MOST_BYTES: u64 = 64 << 20;
const HEAD_LEN: u64 = 64;
const ENTRY_LEN: u64 = 56;

/// A file's program headers.
pub(crate) struct Outline {
    file: File,
    path: PathBuf,
    segments: Vec<Part>,
}

struct Part {
    kind: u32,
    offset: u64,
    address: u64,
    len_bytes: u64,
}

impl Outline {
    /// Reads the headers of the ELF file at `path`.
    pub(crate) fn open(path: &Path) -> Result<Outline, ImageError> {
        let file = File::open(path).map_err(|source| ImageError::Read { path: path.to_path_buf(), source })?;
        let mut outline = Outline { file, path: path.to_path_buf(), segments: Vec::new() };
        let header = Header::parse(&outline.read(0, HEAD_LEN)?, path)?;
        let table = outline.read(header.phoff, u64::from(header.phnum) * ENTRY_LEN)?;
        let parts = table.chunks_exact(ENTRY_LEN as usize).filter_map(|entry| {
            let (kind, offset) = (entry.u32_at(0)?, entry.u64_at(8)?);
            Some(Part { kind, offset, address: entry.u64_at(16)?, len_bytes: entry.u64_at(32)? })
        });
        outline.segments = parts.collect();
        Ok(outline)
    }

    fn read(&self, offset: u64, len_bytes: u64) -> Result<Vec<u8>, ImageError> {
        read_at(&self.file, offset, len_bytes.min(MOST_BYTES))
            .map_err(|source| ImageError::Read { path: self.path.clone(), source })
    }

    /// The string table that the dynamic section names: each ends with a zero byte. One that
    /// another ends with may be a part of that one.
    pub(crate) fn dynamic_names(&self) -> Result<Option<Vec<u8>>, ImageError> {
        let Some(part) = self.segments.iter().find(|part| part.kind == abi::PT_DYNAMIC) else { return Ok(None) };
        let dynamic = self.read(part.offset, part.len_bytes)?;
        let value = |wanted| {
            let mut entries = dynamic.chunks_exact(16).map(|entry| (entry.u64_at(0), entry.u64_at(8)));
            entries.find(|(tag, _)| *tag == Some(wanted)).and_then(|(_, value)| value)
        };
        let (Some(at), Some(len_bytes)) = (value(abi::DT_STRTAB), value(abi::DT_STRSZ)) else { return Ok(None) };
        let place = self.segments.iter().find_map(|part| {
            let within =
                at.checked_sub(part.address).filter(|within| part.kind == abi::PT_LOAD && *within < part.len_bytes)?;
            part.offset.checked_add(within)
        });
        place.map(|place| self.read(place, len_bytes)).transpose()
    }

    /// Whether it has a note of this owner.
    pub(crate) fn has_note_of(&self, owner: &[u8]) -> Result<bool, ImageError> {
        for part in self.segments.iter().filter(|part| part.kind == abi::PT_NOTE) {
            let notes = self.read(part.offset, part.len_bytes)?;
            let mut at = 0_usize;
            while let Some((name_len, len)) = notes.u32_at(at as u64).zip(notes.u32_at(at.saturating_add(4) as u64)) {
                let padded = |len: u32| (len as usize).saturating_add(3) & !3;
                let name = at.saturating_add(12);
                if notes.get(name..name.saturating_add(name_len as usize)).is_some_and(|found| found == owner) {
                    return Ok(true);
                }
                at = name.saturating_add(padded(name_len)).saturating_add(padded(len));
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_this_test() {
        let own = Outline::open(&std::env::current_exe().unwrap()).unwrap();
        let names = own.dynamic_names().unwrap().expect("it is dynamically linked");
        assert!(names.split(|byte| *byte == 0).any(|name| name == b"libc.so.6"), "its names were not found");
        assert!(own.has_note_of(b"GNU\0").unwrap());
        assert!(!own.has_note_of(b"Go\0\0").unwrap());
        assert!(Outline::open(Path::new("/dev/null")).is_err());
    }
}
